//! Whether a stream is coloured, and the few colours there are.
//!
//! Keeps true: the decision is a pure function of the flag, facts of the environment and the stream itself, made once
//! per stream (OUT-15); text is never changed otherwise.
//!
//! Must not know: what is written; JSON lines and the answer are never coloured, so nobody asks for them.

use owo_colors::{OwoColorize as _, Style};

/// `--color`, `output.color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorMode {
    #[default]
    Auto,
    Always,
    Never,
}

/// The variables that decide about colour and characters, as they are set; `None` = unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvFacts {
    pub no_color: Option<String>,
    pub force_color: Option<String>,
    pub clicolor_force: Option<String>,
    pub clicolor: Option<String>,
    pub term: Option<String>,
    pub lc_all: Option<String>,
    pub lc_ctype: Option<String>,
    pub lang: Option<String>,
}

impl EnvFacts {
    /// Whether the terminal can do no more than print.
    pub fn is_dumb(&self) -> bool {
        self.term.as_deref() == Some("dumb")
    }

    /// Whether the locale is a UTF-8 one: the first of `LC_ALL`, `LC_CTYPE`, `LANG` that is not empty decides.
    pub fn is_utf8(&self) -> bool {
        let locale = [&self.lc_all, &self.lc_ctype, &self.lang].into_iter().flatten().find(|value| !value.is_empty());
        locale.is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        })
    }
}

/// Decides for one stream; the first rule that matches holds.
pub fn use_color(mode: ColorMode, env: &EnvFacts, is_terminal: bool) -> bool {
    let set = |value: &Option<String>| value.as_deref().is_some_and(|value| !value.is_empty());
    let forced = |value: &Option<String>| value.as_deref().is_some_and(|value| value != "0");
    match mode {
        ColorMode::Always => true,
        ColorMode::Never => false,
        ColorMode::Auto if set(&env.no_color) => false,
        ColorMode::Auto if forced(&env.force_color) || forced(&env.clicolor_force) => true,
        ColorMode::Auto if env.clicolor.as_deref() == Some("0") || env.is_dumb() => false,
        ColorMode::Auto => is_terminal,
    }
}

/// The colours of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// Paints, or leaves every text as it is.
    pub fn new(on: bool) -> Self {
        Self { on }
    }

    /// For errors.
    pub fn red(self, text: &str) -> String {
        self.apply(text, Style::new().red().bold())
    }

    /// For warnings.
    pub fn yellow(self, text: &str) -> String {
        self.apply(text, Style::new().yellow())
    }

    /// For what went well.
    pub fn green(self, text: &str) -> String {
        self.apply(text, Style::new().green())
    }

    /// For what is going on.
    pub fn cyan(self, text: &str) -> String {
        self.apply(text, Style::new().cyan())
    }

    /// For what matters less.
    pub fn dim(self, text: &str) -> String {
        self.apply(text, Style::new().dimmed())
    }

    fn apply(self, text: &str, style: Style) -> String {
        if self.on { text.style(style).to_string() } else { text.to_owned() }
    }
}
