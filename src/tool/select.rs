//! Which built-in tools are on: presets, names, globs, edits.
//!
//! Keeps true: items are read from left to right; a name that is no tool of this version is an error with a suggestion;
//! the result is in the order of the tools.
//!
//! Must not know: where the list was written, what a tool does.

/// Names that are almost a tool's are worth a suggestion from here on (Jaro–Winkler similarity).
const SIMILAR_MIN: f64 = 0.75;
/// Characters of a name; longer ones are nothing but a mistake.
const NAME_CHARS_MAX: usize = 200;

/// A built-in tool of this or a later version.
struct Known {
    name: &'static str,
    preset: Preset,
    /// Whether this version has it.
    built: bool,
}

/// The smallest preset that holds a tool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Preset {
    None,
    Ro,
    Rw,
    All,
}

const PRESETS: [(&str, Preset); 4] =
    [("none", Preset::None), ("ro", Preset::Ro), ("rw", Preset::Rw), ("all", Preset::All)];

/// In the order in which a model sees them.
const KNOWN: [Known; 7] = [
    Known { name: "read", preset: Preset::Ro, built: true },
    Known { name: "grep", preset: Preset::Ro, built: false },
    Known { name: "find", preset: Preset::Ro, built: false },
    Known { name: "ls", preset: Preset::Ro, built: true },
    Known { name: "write", preset: Preset::Rw, built: true },
    Known { name: "edit", preset: Preset::Rw, built: false },
    Known { name: "bash", preset: Preset::All, built: true },
];

/// A list of tools that can not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// The tool is planned.
    #[error("tool {name} is not available in this version")]
    Unavailable { name: String },
    /// The preset holds tools that are planned; running without them would be another run than the one asked for.
    #[error("the preset {name} needs {missing}, which {} not available in this version", are(missing))]
    UnavailablePreset { name: &'static str, missing: String },
    /// Nothing has this name.
    #[error("unknown tool {name}")]
    Unknown { name: String, suggestion: Option<&'static str> },
    /// A list with a hole in it.
    #[error("empty name in the list of tools")]
    Blank,
}

impl SelectError {
    /// What to type instead.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { suggestion: Some(name), .. } => Some(format!("did you mean {name}?")),
            Self::Unknown { suggestion: None, .. } | Self::Unavailable { .. } | Self::UnavailablePreset { .. } => {
                let names: Vec<&str> = KNOWN.iter().filter(|tool| tool.built).map(|tool| tool.name).collect();
                let presets: Vec<&str> = whole_presets().collect();
                Some(format!("available: {}; {}", names.join(", "), presets.join(", ")))
            }
            Self::Blank => None,
        }
    }
}

/// The verb for a list of names.
fn are(names: &str) -> &'static str {
    if names.contains(',') { "are" } else { "is" }
}

/// What a preset promises and this version lacks. Only tools that change things are missed: `ro` is read-only either
/// way, and what it finds with fewer tools is the same.
fn missing(preset: Preset) -> String {
    let lacks = |tool: &&Known| !tool.built && tool.preset > Preset::Ro && tool.preset <= preset;
    KNOWN.iter().filter(lacks).map(|tool| tool.name).collect::<Vec<_>>().join(", ")
}

/// The presets that can be turned on.
fn whole_presets() -> impl Iterator<Item = &'static str> {
    PRESETS.into_iter().filter(|(_, preset)| missing(*preset).is_empty()).map(|(word, _)| word)
}

/// The names a list stands for, in the order of the tools. Items are presets, names and globs, each perhaps behind
/// `+` or `-`; a list of nothing but those edits the `configured` set. An empty list turns everything off.
///
/// # Errors
/// An item that names no tool of this version.
pub fn select(list: &[String], configured: &[String]) -> Result<Vec<String>, SelectError> {
    let edits = !list.is_empty() && list.iter().all(|item| item.trim().starts_with(['+', '-']));
    let configured_has = |tool: &Known| configured.iter().any(|name| name == tool.name);
    let mut on = KNOWN.map(|tool| edits && tool.built && configured_has(&tool));
    for item in list {
        let item = item.trim();
        let (name, enable) = match (item.strip_prefix('+'), item.strip_prefix('-')) {
            (Some(name), _) => (name, true),
            (_, Some(name)) => (name, false),
            (None, None) => (item, true),
        };
        let preset = PRESETS.into_iter().find(|(word, _)| *word == name);
        if let Some((name, missing)) = preset.map(|(word, preset)| (word, missing(preset)))
            && enable
            && !missing.is_empty()
        {
            return Err(SelectError::UnavailablePreset { name, missing });
        }
        let matched = match matched(name) {
            // What is not there need not be taken away.
            Err(SelectError::Unavailable { .. }) if !enable => continue,
            other => other?,
        };
        for (flag, matched) in on.iter_mut().zip(matched) {
            if matched {
                *flag = enable;
            }
        }
    }
    let names = KNOWN.iter().zip(on).filter(|(_, on)| *on).map(|(tool, _)| tool.name.to_owned());
    Ok(names.collect())
}

/// Which tools an item names; only ones this version has.
fn matched(name: &str) -> Result<[bool; KNOWN.len()], SelectError> {
    if name.is_empty() {
        return Err(SelectError::Blank);
    }
    if let Some((_, preset)) = PRESETS.iter().find(|(word, _)| *word == name) {
        return Ok(KNOWN.map(|tool| tool.built && tool.preset <= *preset));
    }
    let named = KNOWN.map(|tool| matches_glob(name, tool.name));
    let found = KNOWN.iter().zip(named).map(|(tool, named)| named && tool.built);
    let mut on = [false; KNOWN.len()];
    for (flag, found) in on.iter_mut().zip(found) {
        *flag = found;
    }
    if on.contains(&true) {
        Ok(on)
    } else if named.contains(&true) {
        Err(SelectError::Unavailable { name: name.to_owned() })
    } else {
        let shown: String = name.chars().take(NAME_CHARS_MAX).collect();
        Err(SelectError::Unknown { suggestion: similar(&shown), name: shown })
    }
}

fn similar(name: &str) -> Option<&'static str> {
    let words = KNOWN.iter().filter(|tool| tool.built).map(|tool| tool.name).chain(whole_presets());
    let scored = words.map(|word| (word, strsim::jaro_winkler(&name.to_lowercase(), word)));
    let best = scored.max_by(|a, b| a.1.total_cmp(&b.1));
    best.filter(|(_, score)| *score >= SIMILAR_MIN).map(|(word, _)| word)
}

/// `*` is any run of characters, `?` any one. Linear but for the last star.
fn matches_glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Behind the last star, and where its run ends so far.
    let mut star: Option<(usize, usize)> = None;
    while let Some(c) = text.get(t) {
        match (pattern.get(p), star) {
            (Some('*'), _) => {
                p += 1;
                star = Some((p, t));
            }
            (Some(wanted), _) if *wanted == '?' || wanted == c => {
                p += 1;
                t += 1;
            }
            (_, Some((after, end))) => {
                p = after;
                t = end + 1;
                star = Some((after, t));
            }
            (_, None) => return false,
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::{SelectError, matches_glob, select};

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn presets_names_globs_and_edits_choose_tools() {
        for (list, configured, want) in [
            (&["ro"][..], &[][..], &["read", "ls"][..]),
            (&["-rw"], &["read"], &[]),
            (&["read", "-all", "+ls"], &[], &["ls"]),
            (&["none"], &["read"], &[]),
            (&[], &["read"], &[]),
            (&["ls", "read"], &[], &["read", "ls"]),
            (&["ls"], &["read"], &["ls"]),
            (&["l*"], &[], &["ls"]),
            (&["*"], &[], &["read", "ls", "write", "bash"]),
            (&["ro", "+bash"], &[], &["read", "ls", "bash"]),
            (&["w*", "read"], &[], &["read", "write"]),
            (&["+write"], &["read", "ls"], &["read", "ls", "write"]),
            (&["r??d"], &[], &["read"]),
            (&["-read"], &["read", "ls"], &["ls"]),
            (&["+ls"], &["read"], &["read", "ls"]),
            (&["+ls", "-read"], &["read"], &["ls"]),
            (&["-ro", "+ls"], &["read"], &["ls"]),
            (&["ro", "-ls"], &[], &["read"]),
            (&["none", "+ls"], &["read"], &["ls"]),
            (&[" read "], &[], &["read"]),
            (&["-read", "-bash"], &["read", "grep", "mcp__a__b"], &[]),
        ] {
            assert_eq!(select(&names(list), &names(configured)), Ok(names(want)), "{list:?} over {configured:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_refused_with_a_hint() {
        for (list, text, hint) in [
            ("edit", "tool edit is not available in this version", "available: read, ls, write, bash; none, ro"),
            ("+grep", "tool grep is not available in this version", "available: read, ls, write, bash; none, ro"),
            ("e*", "tool e* is not available in this version", "available: read, ls, write, bash; none, ro"),
            (
                "rw",
                "the preset rw needs edit, which is not available in this version",
                "available: read, ls, write, bash; none, ro",
            ),
            (
                "+all",
                "the preset all needs edit, which is not available in this version",
                "available: read, ls, write, bash; none, ro",
            ),
            ("raed", "unknown tool raed", "did you mean read?"),
            ("Read", "unknown tool Read", "did you mean read?"),
            ("xyz*", "unknown tool xyz*", "available: read, ls, write, bash; none, ro"),
        ] {
            let error = select(&names(&[list]), &[]).unwrap_err();
            assert_eq!((error.to_string().as_str(), error.hint().as_deref()), (text, Some(hint)));
        }
        assert_eq!(select(&names(&["read", ""]), &[]), Err(SelectError::Blank));
        assert_eq!(select(&names(&["+"]), &[]), Err(SelectError::Blank));
    }

    #[test]
    fn globs_match_whole_names() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("", "", true),
            ("a*b*c", "axxbxbc", true),
            ("a*b*c", "axxbxb", false),
            ("?", "", false),
            ("a", "ab", false),
            ("*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(matches_glob(pattern, text), want, "{pattern} {text}");
        }
    }
}
