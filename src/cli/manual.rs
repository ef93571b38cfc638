//! The manual page, made from the combined description.
//!
//! Keeps true: options, commands and examples are those of the description; what the page adds to them (exit codes,
//! variables, files) a test holds against the program; the page is the same whenever it is made.
//!
//! Must not know: where the page is installed.

use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::describe::{EXAMPLES, NOTES, command, leaf};
use super::words::Noun;

/// Codes and what they say.
const EXIT_STATUS: [(&str, &str); 12] = [
    ("0", "The answer is complete."),
    ("1", "A failure without a code of its own."),
    ("2", "A mistake in the call or the configuration; nothing was sent."),
    ("3", "The answer was cut by the output limit; it is printed."),
    ("4", "Safety stop by the provider or the model."),
    ("5", "A limit of ours, such as --max-turns; pirn -c goes on."),
    ("75", "Rate limit, overload, server error, network, or a session in use: try again later."),
    ("77", "A key is missing or was refused."),
    ("101", "A bug in pirn."),
    ("124", "--timeout ran out."),
    ("129, 130, 143", "SIGHUP, SIGINT, SIGTERM; the process dies of that signal."),
    ("141", "The reader of stdout left."),
];

const ENVIRONMENT: [(&str, &str); 15] = [
    ("PIRN_MODEL", "As --model."),
    ("PIRN_THINKING", "As --thinking."),
    ("PIRN_TOOLS", "As --tools."),
    ("PIRN_MAX_TURNS", "As --max-turns."),
    ("PIRN_MAX_COST", "As --max-cost."),
    ("PIRN_TIMEOUT", "As --timeout."),
    ("PIRN_CONFIG", "As --config."),
    ("PIRN_PROFILE", "As --profile."),
    ("PIRN_BARE, PIRN_TRUST", "As --bare and --trust, unless 0, false, no or off."),
    ("PIRN_LOG", "Filter of the log that --log writes, such as pirn=trace or pirn::provider=debug,warn."),
    ("PIRN_HOME", "Directory for config/pirn.toml and state/, instead of the XDG directories."),
    ("PIRN_BACKTRACE", "1 shows where a bug happened."),
    (
        "OPENAI_API_KEY, OPENAI_BASE_URL, ...",
        "Keys and addresses of providers; pirn models says which providers have a key.",
    ),
    ("HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY", "Proxies, also in lower case."),
    ("NO_COLOR, FORCE_COLOR, CLICOLOR, CLICOLOR_FORCE", "Whether stderr is coloured, below --color."),
];

const FILES: [(&str, &str); 5] = [
    ("pirn.toml", "Configuration of a project: the nearest one from the working directory up to the one with .git."),
    ("$XDG_CONFIG_HOME/pirn/pirn.toml", "Configuration of the user; ~/.config without XDG_CONFIG_HOME."),
    ("/etc/pirn/pirn.toml", "Configuration of the system."),
    ("$XDG_STATE_HOME/pirn/sessions/", "Stored sessions; ~/.local/state without XDG_STATE_HOME."),
    ("AGENTS.md", "Text for the model, from the working directory up to the root of the project."),
];

/// The page as roff.
pub(super) fn manual() -> String {
    let page = Man::new(command()).manual("User Commands");
    let mut bytes = Vec::new();
    // Writing to memory does not fail; a page that ended early would not pass its test.
    let written = page
        .render_title(&mut bytes)
        .and_then(|()| page.render_name_section(&mut bytes))
        .and_then(|()| page.render_synopsis_section(&mut bytes))
        .and_then(|()| page.render_description_section(&mut bytes))
        .and_then(|()| page.render_options_section(&mut bytes))
        .and_then(|()| rest().to_writer(&mut bytes));
    match written {
        Ok(()) => String::from_utf8_lossy(&bytes).lines().flat_map(|line| [line.trim_end(), "\n"]).collect(),
        Err(error) => format!(".\\\" {error}\n"),
    }
}

fn rest() -> Roff {
    let mut roff = Roff::new();
    heading(&mut roff, "COMMANDS");
    for noun in Noun::ALL {
        let verbs = noun.verbs().iter().map(|verb| Some(*verb));
        let alone = noun.verbs().is_empty().then_some(None);
        for command in verbs.chain(alone).filter_map(|verb| leaf(noun, verb)) {
            command_section(&mut roff, command);
        }
    }
    heading(&mut roff, "NOTES");
    for paragraph in NOTES.split('\n').filter(|line| !line.is_empty()) {
        roff.control("PP", []);
        roff.text([roman(paragraph)]);
    }
    table(&mut roff, "EXIT STATUS", &EXIT_STATUS);
    table(&mut roff, "ENVIRONMENT", &ENVIRONMENT);
    table(&mut roff, "FILES", &FILES);
    heading(&mut roff, "EXAMPLES");
    roff.control("EX", []);
    for line in EXAMPLES.lines() {
        roff.text([roman(line.trim_start())]);
    }
    roff.control("EE", []);
    roff
}

fn heading(roff: &mut Roff, title: &str) {
    roff.control("SH", [title]);
}

fn table(roff: &mut Roff, title: &str, rows: &[(&str, &str)]) {
    heading(roff, title);
    for (name, meaning) in rows {
        entry(roff, vec![bold(*name)], meaning);
    }
}

fn entry(roff: &mut Roff, name: Vec<Inline>, text: &str) {
    roff.control("TP", []);
    roff.text(name);
    roff.text([roman(text)]);
}

fn command_section(roff: &mut Roff, mut command: Command) {
    command.build();
    let usage = command.render_usage().to_string();
    roff.control("SS", [usage.trim_start_matches("Usage: ").trim()]);
    if let Some(about) = command.get_about() {
        roff.text([roman(format!("{about}."))]);
    }
    let arguments = command.get_positionals().chain(command.get_opts());
    let described = arguments.chain(command.get_arguments().filter(|arg| !arg.get_action().takes_values()));
    for arg in described.filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version")) {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        entry(roff, name_of(arg), &help);
    }
}

/// `-n N`, `--json`, `QUERY`.
fn name_of(arg: &Arg) -> Vec<Inline> {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let mut name = Vec::new();
    for spelling in short.into_iter().chain(long) {
        if !name.is_empty() {
            name.push(roman(", "));
        }
        name.push(bold(spelling));
    }
    let values = arg.get_value_names().filter(|_| arg.get_action().takes_values());
    for value in values.into_iter().flatten() {
        if !name.is_empty() {
            name.push(roman(" "));
        }
        name.push(italic(value.to_string()));
    }
    name
}
