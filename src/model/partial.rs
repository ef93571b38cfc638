//! The best reading of an argument text that was cut off.

use serde_json::{Map, Value};

/// Nesting beyond this is not completed; servers cut such texts off anyway.
const DEPTH_MAX: usize = 128;

/// Closes what an argument text left open and reads it: a half escape, a dangling key and a trailing comma are
/// dropped. Gives an empty object when nothing can be read. One pass, one parse.
///
/// For display only: a call whose text was cut never runs.
pub(super) fn best_effort(text: &str) -> Map<String, Value> {
    for candidate in candidates(text) {
        if let Ok(Value::Object(map)) = serde_json::from_str(&candidate) {
            return map;
        }
    }
    Map::new()
}

/// The text closed where it ends, then closed behind the last complete member.
fn candidates(text: &str) -> Vec<String> {
    let mut closers: Vec<char> = Vec::new();
    let (mut in_string, mut escaped, mut unicode_left) = (false, false, 0_u8);
    // Where the text could be cut so that only whole members remain, and how deep it is there.
    let mut last_member: Option<(usize, Vec<char>)> = None;
    let mut escape_at = None;
    for (at, c) in text.char_indices() {
        if in_string {
            if unicode_left > 0 {
                unicode_left -= 1;
            } else if escaped {
                escaped = false;
                if c == 'u' {
                    unicode_left = 4;
                }
            } else if c == '\\' {
                escaped = true;
                escape_at = Some(at);
            } else if c == '"' {
                in_string = false;
            }
            continue;
        }
        match c {
            '"' => in_string = true,
            '{' => closers.push('}'),
            '[' => closers.push(']'),
            '}' | ']' => {
                closers.pop();
            }
            ',' => last_member = Some((at, closers.clone())),
            _ => {}
        }
        if closers.len() > DEPTH_MAX {
            return Vec::new();
        }
    }
    let mut whole = text.to_owned();
    if escaped || unicode_left > 0 {
        whole.truncate(escape_at.unwrap_or(whole.len()));
    }
    if in_string {
        whole.push('"');
    }
    whole.extend(closers.iter().rev());
    let mut found = vec![whole];
    if let Some((at, open)) = last_member
        && let Some(head) = text.get(..at)
    {
        let mut cut = head.to_owned();
        cut.extend(open.iter().rev());
        found.push(cut);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::best_effort;

    #[test]
    fn a_cut_argument_text_keeps_what_was_complete() {
        for (text, want) in [
            (r#"{"path":"a.tx"#, r#"{"path":"a.tx"}"#),
            (r#"{"path":"a","cont"#, r#"{"path":"a"}"#),
            (r#"{"a":[1,{"b":"x\"#, r#"{"a":[1,{"b":"x"}]}"#),
            (r#"{"a":"x\u00"#, r#"{"a":"x"}"#),
            (r#"{"a":1,"b":"#, r#"{"a":1}"#),
            ("{", "{}"),
            ("", "{}"),
            ("nonsense", "{}"),
        ] {
            let got = serde_json::to_string(&best_effort(text)).unwrap();
            assert_eq!(got, want, "{text}");
        }
    }
}
