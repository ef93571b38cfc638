//! What a command prints when no run is active: errors before the first request, and the last words.
//!
//! Keeps true: a JSON stream gets its `result` line on every way out, with the exit code the process will have; the
//! first cause wins, so a stdout that fails late does not hide an earlier failure.
//!
//! Must not know: how a run works, what a setting is for beyond printing.

use std::io::IsTerminal;

use super::signals;
use crate::cli::{self, JsonLevel, UsageError};
use crate::config::{self, Env, Settings, When};
use crate::exit::{self, Exit};
use crate::model::{CancelCause, ErrorKind, ErrorRecord, Reason};
use crate::port::Clock;
use crate::print::{
    self, ColorMode, Config, Encoder, EnvFacts, Events, Finished, Level, Mode, ModelRef, Msg, Patience, Printer,
    ResultLine, StdoutFailure, Verbosity,
};
use crate::process;

/// How this process prints: made from the environment and the command line at first, from the settings later.
#[derive(Clone, Debug)]
pub(super) struct Screen {
    pub(super) config: Config,
    /// The file of `--events`, once it is open.
    pub(super) events: Option<Events>,
    /// What the line of a call says that ends before its run.
    pub(super) known: Known,
}

/// What is known of a call before its run.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// By the monotonic clock; `None` = it is no run.
    pub(super) started_ms: Option<u64>,
    pub(super) session_id: Option<String>,
    pub(super) session_file: Option<String>,
    pub(super) model: Option<ModelRef>,
}

impl Screen {
    /// Before the settings are known.
    pub(super) fn before_settings(env: &Env, json: Option<JsonLevel>) -> Self {
        let mode = match json {
            Some(level) => Mode::Json { level: level_of(level) },
            None => Mode::Text { stream: false },
        };
        Self {
            config: config_of(env, mode, ColorMode::Auto, Verbosity::Normal, false),
            events: None,
            known: Known::default(),
        }
    }

    /// The same with what `output.json` says, where the settings are wrong otherwise.
    pub(super) fn wishing(&self, wish: config::JsonLevel) -> Self {
        let mut screen = self.clone();
        if let Some(level) = set_level(wish) {
            screen.config.mode = Mode::Json { level };
        }
        screen
    }

    /// As the settings say.
    pub(super) fn follow(&mut self, env: &Env, settings: &Settings) {
        let stream = settings.output.stream == When::Always;
        let mode = set_level(settings.output.json).map_or(Mode::Text { stream }, |level| Mode::Json { level });
        let color = match settings.output.color {
            When::Auto => ColorMode::Auto,
            When::Always => ColorMode::Always,
            When::Never => ColorMode::Never,
        };
        let verbosity = Verbosity::from_level(i64::from(settings.output.verbosity));
        self.config = config_of(env, mode, color, verbosity, settings.output.thinking);
    }

    /// Starts the printer.
    pub(super) fn start(&self) -> std::io::Result<Printer> {
        let stderr = print::Stderr::process(self.config.stderr_is_terminal, process::unix::is_writable)?;
        Printer::start_with(self.config, print::stdout_writer()?, stderr, self.events.clone())
    }

    /// Tells an error that came before any model call.
    pub(super) async fn fail(&self, error: ErrorRecord, clock: &dyn Clock) -> Exit {
        self.fail_with_help(error, None, clock).await
    }

    /// Tells a mistake in the call, behind the short help where that is worth showing.
    pub(super) async fn refuse(&self, error: UsageError, clock: &dyn Clock) -> Exit {
        let help = error.show_help.then(cli::short_help);
        self.fail_with_help(error.into(), help, clock).await
    }

    async fn fail_with_help(&self, error: ErrorRecord, help: Option<String>, clock: &dyn Clock) -> Exit {
        // A signal may be what caused the failure, such as an empty stdin.
        if let Some(cause) = signals::noted().await {
            return self.cancelled(cause, clock).await;
        }
        let reason = exit::reason_before_call(error.kind);
        let exit = exit::of(reason, None, Some(error.kind), None);
        self.close(exit, self.line(exit, reason, Some(error), clock), help, clock).await
    }

    /// Tells that the call was ended from outside before any model call.
    pub(super) async fn cancelled(&self, cause: CancelCause, clock: &dyn Clock) -> Exit {
        let reason = crate::turn::reason_of_abort(Some(cause));
        let exit = exit::of(reason, None, None, Some(cause));
        self.close(exit, self.line(exit, reason, None, clock), None, clock).await
    }

    /// The line of a call that ended before its run.
    fn line(&self, exit: Exit, reason: Reason, error: Option<ErrorRecord>, clock: &dyn Clock) -> ResultLine {
        let Known { started_ms, session_id, session_file, model } = self.known.clone();
        ResultLine {
            // What is stored of it can be gone on with, whatever kept this call from it.
            resumable: session_file.is_some(),
            session_id,
            session_file,
            model,
            duration_ms: started_ms.map_or(0, |started_ms| clock.monotonic_ms().saturating_sub(started_ms)),
            ..ResultLine::nothing_sent(exit.code, reason, error)
        }
    }

    async fn close(&self, exit: Exit, line: ResultLine, help: Option<String>, clock: &dyn Clock) -> Exit {
        let Ok(printer) = self.start() else {
            self.print_line(&line);
            return exit;
        };
        let handle = printer.handle();
        let mut told = Ok(());
        if let Some(help) = help {
            told = handle.send(Msg::Help(help)).await;
        }
        if told.is_ok() {
            let verdict = Msg::Result { line: Box::new(line.clone()), instead: None, ts: clock.now_ms() };
            told = handle.send(verdict).await;
        }
        drop(handle);
        match (told, printer.finish(Patience::Stall, clock).await) {
            (Ok(()), Finished::Complete | Finished::Stalled) => exit,
            (Ok(()), Finished::Failed(failure)) => self.stdout_failed(&failure, exit),
            (Err(_), _) | (Ok(()), Finished::Lost) => {
                self.print_line(&line);
                exit
            }
        }
    }

    /// What a stdout that takes no more makes of an exit. The first cause wins: a failure keeps its code.
    pub(super) fn stdout_failed(&self, failure: &StdoutFailure, exit: Exit) -> Exit {
        if exit.code != 0 && exit.code != 3 {
            return exit;
        }
        match failure {
            StdoutFailure::Closed => {
                // A signal to the group may have ended the reader.
                let cause = signals::noted_now().unwrap_or(CancelCause::Pipe);
                exit::of(crate::turn::reason_of_abort(Some(cause)), None, None, Some(cause))
            }
            StdoutFailure::Failed(_) => {
                let record = ErrorRecord::new(ErrorKind::Storage, failure.to_string());
                let exit = exit::of(Reason::Error, None, Some(record.kind), None);
                self.print_error(&record);
                exit
            }
        }
    }

    /// Prints an error and the `result` line without the printer; for when nothing else works.
    pub(super) fn print_directly(&self, exit: Exit, reason: Reason, record: ErrorRecord) {
        self.print_line(&ResultLine::nothing_sent(exit.code, reason, Some(record)));
    }

    fn print_line(&self, line: &ResultLine) {
        if let Mode::Json { level } = self.config.mode {
            let mut bytes = Vec::new();
            Encoder::new(level).result(line, 0, &mut bytes);
            if let (Ok(mut stdout), Ok(text)) = (print::stdout_writer(), std::str::from_utf8(&bytes)) {
                // There is nowhere left to report a failure to.
                drop(print::write_text(&mut *stdout, text));
            }
        }
        if let Some(record) = &line.error {
            self.print_error(record);
        }
    }

    /// Prints warnings of a command that is no run.
    pub(super) fn warn(&self, warnings: &[String]) {
        for warning in warnings {
            self.say(&format!("warning: {warning}"));
        }
    }

    /// Prints a sentence of a command that is no run.
    pub(super) fn notice(&self, text: Option<&str>) {
        if let Some(text) = text {
            self.say(text);
        }
    }

    fn say(&self, text: &str) {
        if self.config.verbosity == Verbosity::Quiet {
            return;
        }
        if let Ok(mut stderr) = print::stderr_writer() {
            // A failed stderr is ignored.
            drop(print::write_text(&mut *stderr, &format!("pirn: {}\n", print::clean(text))));
        }
    }

    fn print_error(&self, record: &ErrorRecord) {
        let paint = print::Paint::new(self.config.color);
        let text = print::error_lines(record.kind.as_str(), &record.message, record.hint.as_deref(), paint);
        if let Ok(mut stderr) = print::stderr_writer() {
            // A failed stderr is ignored.
            drop(print::write_text(&mut *stderr, &text));
        }
    }
}

fn level_of(level: JsonLevel) -> Level {
    match level {
        JsonLevel::Events => Level::Events,
        JsonLevel::Messages => Level::Messages,
        JsonLevel::Result => Level::Result,
    }
}

fn set_level(level: config::JsonLevel) -> Option<Level> {
    match level {
        config::JsonLevel::Off => None,
        config::JsonLevel::Events => Some(Level::Events),
        config::JsonLevel::Messages => Some(Level::Messages),
        config::JsonLevel::Result => Some(Level::Result),
    }
}

fn config_of(env: &Env, mode: Mode, color: ColorMode, verbosity: Verbosity, thinking: bool) -> Config {
    let facts = facts(env);
    let stdout_is_terminal = std::io::stdout().is_terminal();
    let stderr_is_terminal = std::io::stderr().is_terminal();
    Config {
        mode,
        stdout_is_terminal,
        stderr_is_terminal,
        verbosity,
        color: print::use_color(color, &facts, stderr_is_terminal),
        ascii: !facts.is_utf8(),
        thinking,
        spinner: !facts.is_dumb(),
    }
}

pub(super) fn facts(env: &Env) -> EnvFacts {
    let text = |name: &str| env.text(name).map(str::to_owned);
    EnvFacts {
        no_color: text("NO_COLOR"),
        force_color: text("FORCE_COLOR"),
        clicolor_force: text("CLICOLOR_FORCE"),
        clicolor: text("CLICOLOR"),
        term: text("TERM"),
        lc_all: text("LC_ALL"),
        lc_ctype: text("LC_CTYPE"),
        lang: text("LANG"),
    }
}
