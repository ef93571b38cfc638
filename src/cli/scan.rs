//! The first pass over the arguments: it tells options and their values from prompt words.
//!
//! Keeps true: it follows the option definitions themselves, so it and the parser agree on what takes a value; words
//! keep their order and remember whether they stood after `--`, where nothing is special any more; text that begins
//! with a dash and a blank is a word, since no option looks like that (IN-03).
//!
//! Must not know: what an option means.

use std::ffi::{OsStr, OsString};

use clap::Command;

/// The arguments of one command, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// Options with their values, in order.
    pub options: Vec<OsString>,
    pub words: Vec<ScannedWord>,
    /// The first request for help or version, which beats every other meaning of the call.
    pub asked: Option<Asked>,
    pub json: JsonFlag,
}

/// How `--json` was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum JsonFlag {
    #[default]
    Absent,
    /// Without a level.
    Bare,
    Level(String),
}

/// One argument that is no option and no value of one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScannedWord {
    pub text: OsString,
    /// It stood after `--`.
    pub literal: bool,
}

/// A request for a text instead of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    ShortHelp,
    LongHelp,
    Version,
}

/// Takes `arguments` apart by the options that `command` defines; `command` has been built.
pub(super) fn scan(command: &Command, arguments: &[OsString]) -> Scan {
    let mut scan = Scan::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            scan.words.extend(rest.map(|text| ScannedWord { text: text.clone(), literal: true }));
            break;
        }
        if is_word(argument) {
            scan.words.push(ScannedWord { text: argument.clone(), literal: false });
            continue;
        }
        scan.options.push(argument.clone());
        if scan.note_option(command, argument)
            && let Some(value) = rest.next()
        {
            scan.options.push(value.clone());
        }
    }
    scan
}

impl Scan {
    /// Records what an option means to this pass; returns whether the next argument is its value.
    fn note_option(&mut self, command: &Command, argument: &OsStr) -> bool {
        let lossy = argument.to_string_lossy();
        match lossy.strip_prefix("--") {
            Some(long) => self.note_long(command, long),
            None => self.note_cluster(command, lossy.strip_prefix('-').unwrap_or_default()),
        }
    }

    fn note_long(&mut self, command: &Command, long: &str) -> bool {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        match name {
            "help" => self.ask(Asked::LongHelp),
            "version" => self.ask(Asked::Version),
            "json" => self.json = value.map_or(JsonFlag::Bare, |level| JsonFlag::Level(level.to_owned())),
            _ => {}
        }
        let found = command.get_arguments().find(|arg| arg.get_long() == Some(name));
        value.is_none() && found.is_some_and(wants_next)
    }

    fn note_cluster(&mut self, command: &Command, cluster: &str) -> bool {
        let mut letters = cluster.chars();
        while let Some(letter) = letters.next() {
            let found = command.get_arguments().find(|arg| arg.get_short() == Some(letter));
            match letter {
                'h' => self.ask(Asked::ShortHelp),
                'V' => self.ask(Asked::Version),
                _ => {}
            }
            match found {
                Some(arg) if wants_next(arg) => return letters.next().is_none(),
                Some(_) => {}
                None => return false,
            }
        }
        false
    }

    fn ask(&mut self, what: Asked) {
        self.asked.get_or_insert(what);
    }
}

fn wants_next(arg: &clap::Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

fn is_word(argument: &OsStr) -> bool {
    let lossy = argument.to_string_lossy();
    match lossy.strip_prefix('-') {
        None => true,
        Some(rest) => rest.is_empty() || rest.starts_with(char::is_whitespace),
    }
}
