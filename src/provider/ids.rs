//! Ids of tool calls in the form a server takes.
//!
//! Keeps true: the same transcript prefix always gives the same ids, so that a prompt cache stays warm; two calls never
//! share an id; a result carries the id of the call it answers; stored ids never change (T-6, T-7, NET-28).
//!
//! Must not know: wires; they name the form they need.

use std::collections::{HashMap, HashSet};

use crate::model::ToolCall;

/// Characters of an id for api.openai.com.
const SHORT_CHARS: usize = 40;
/// Characters kept of an id that is cut: the rest is `_` and eight digits of the hash.
const SHORT_PREFIX_CHARS: usize = SHORT_CHARS - 9;
/// Characters of an id for Mistral.
const ALNUM_CHARS: usize = 9;

/// The form of call ids a server takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdForm {
    /// Any text. Ids of the form `call|item`, which another protocol made, are cleaned.
    #[default]
    Free,
    /// At most 40 characters.
    Short40,
    /// Exactly nine of `[A-Za-z0-9]`.
    Alnum9,
}

impl IdForm {
    /// The id in this form: unchanged if it fits; whatever is shortened carries hash digits of the original.
    pub fn apply(self, id: &str) -> String {
        match self {
            Self::Free if !id.contains('|') => id.to_owned(),
            Self::Free | Self::Short40 => short(id),
            Self::Alnum9 => {
                let fits = id.len() == ALNUM_CHARS && id.bytes().all(|b| b.is_ascii_alphanumeric());
                if fits { id.to_owned() } else { base62(hash(id.as_bytes())) }
            }
        }
    }
}

fn short(id: &str) -> String {
    let shortened = if id.contains('|') {
        let cleaned: String = id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        cleaned.trim_end_matches('_').to_owned()
    } else {
        id.to_owned()
    };
    if shortened.chars().count() <= SHORT_CHARS && !shortened.is_empty() {
        return shortened;
    }
    let prefix: String = shortened.chars().take(SHORT_PREFIX_CHARS).collect();
    format!("{prefix}_{:08x}", hash(id.as_bytes()) & 0xffff_ffff)
}

/// FNV-1a with a final mix. Not for security: only equal output on every machine and in every version matters.
fn hash(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

fn base62(mut number: u64) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut out = String::with_capacity(ALNUM_CHARS);
    for _ in 0..ALNUM_CHARS {
        let digit = usize::try_from(number % 62).ok().and_then(|at| DIGITS.get(at)).copied().unwrap_or(b'0');
        out.push(char::from(digit));
        number /= 62;
    }
    out
}

/// Gives the calls and results of one transcript their ids, in order of the transcript.
#[derive(Debug)]
pub struct CallIds<'a> {
    form: IdForm,
    /// How often an id was used so far.
    uses: HashMap<String, usize>,
    taken: HashSet<String>,
    /// Calls without a result yet, oldest first.
    open: Vec<OpenCall<'a>>,
}

#[derive(Debug)]
struct OpenCall<'a> {
    original: &'a str,
    name: &'a str,
    sent: String,
}

impl<'a> CallIds<'a> {
    /// Ids of one request, in a server's form.
    pub fn new(form: IdForm) -> Self {
        Self { form, uses: HashMap::new(), taken: HashSet::new(), open: Vec::new() }
    }

    /// The id to send for a call. `message` and `ordinal` say where it stands; they matter only for an empty id.
    /// An id used before gets `_2`, `_3`, ….
    pub fn call(&mut self, message: usize, ordinal: usize, call: &'a ToolCall) -> String {
        let base = if call.id.is_empty() {
            let place = format!("{message}/{ordinal}/{}", call.name);
            format!("call_{:08x}", hash(place.as_bytes()) & 0xffff_ffff)
        } else {
            call.id.clone()
        };
        let mut occurrence = self.uses.get(&base).map_or(1, |uses| uses.saturating_add(1));
        let mut sent = self.occurrence(&base, occurrence);
        // Another id may already look like this one; every round uses up one of the ids taken so far.
        while self.taken.contains(&sent) {
            occurrence = occurrence.saturating_add(1);
            sent = self.occurrence(&base, occurrence);
        }
        self.uses.insert(base, occurrence);
        self.taken.insert(sent.clone());
        self.open.push(OpenCall { original: &call.id, name: &call.name, sent: sent.clone() });
        sent
    }

    fn occurrence(&self, base: &str, occurrence: usize) -> String {
        if occurrence > 1 { self.form.apply(&format!("{base}_{occurrence}")) } else { self.form.apply(base) }
    }

    /// The id to send with a result: that of the nearest earlier unanswered call with the result's id. Results
    /// without an id are matched by order and name (T-7).
    pub fn result(&mut self, tool_call_id: &str, tool_name: &str) -> String {
        let at = if tool_call_id.is_empty() {
            let nameless = |call: &OpenCall<'_>| call.original.is_empty();
            let named = self.open.iter().position(|call| nameless(call) && call.name == tool_name);
            named.or_else(|| self.open.iter().position(nameless))
        } else {
            self.open.iter().rposition(|call| call.original == tool_call_id)
        };
        match at {
            Some(at) => self.open.remove(at).sent,
            None => self.form.apply(tool_call_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CallIds, IdForm};
    use crate::model::ToolCall;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.to_owned(), name: "read".to_owned(), ..ToolCall::default() }
    }

    #[test]
    fn an_id_that_fits_is_kept_and_one_that_does_not_carries_a_hash_t_6() {
        for (form, id, want) in [
            (IdForm::Free, "functions.Bash:0", "functions.Bash:0"),
            (IdForm::Free, "call_a|fc_1", "call_a_fc_1"),
            (IdForm::Short40, "functions.Bash:0", "functions.Bash:0"),
            (IdForm::Short40, "call_a|fc_1__", "call_a_fc_1"),
            (IdForm::Alnum9, "aB3dE6gH9", "aB3dE6gH9"),
        ] {
            assert_eq!(form.apply(id), want, "{form:?} {id}");
        }
        let long = format!("{}1", "ü".repeat(119));
        let other = format!("{}2", "ü".repeat(119));
        let cut = IdForm::Short40.apply(&long);
        assert_eq!(cut.chars().count(), 40);
        assert_ne!(cut, IdForm::Short40.apply(&other));
        assert_eq!(cut, IdForm::Short40.apply(&long));
        assert_eq!(IdForm::Free.apply(&long), long);
        let piped = format!("call_abc|fc_{}", "0".repeat(400));
        assert_eq!(IdForm::Short40.apply(&piped).len(), 40);
    }

    #[test]
    fn mistral_gets_nine_letters_and_digits_case_103() {
        let id = IdForm::Alnum9.apply("call_0fypS1hVX");
        assert!(id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()), "{id}");
        assert_eq!(id, IdForm::Alnum9.apply("call_0fypS1hVX"));
        assert_ne!(id, IdForm::Alnum9.apply("call_0fypS1hVY"));
    }

    #[test]
    fn an_id_used_again_gets_its_occurrence_and_results_follow_their_call_case_146() {
        for form in [IdForm::Free, IdForm::Short40, IdForm::Alnum9] {
            let (first, second) = (call("functions.read:0"), call("functions.read:0"));
            let mut ids = CallIds::new(form);
            let one = ids.call(1, 0, &first);
            assert_eq!(ids.result("functions.read:0", "read"), one);
            let two = ids.call(3, 0, &second);
            assert_ne!(one, two, "{form:?}");
            assert_eq!(ids.result("functions.read:0", "read"), two);
            if form != IdForm::Alnum9 {
                assert_eq!((one.as_str(), two.as_str()), ("functions.read:0", "functions.read:0_2"));
            }
        }
    }

    #[test]
    fn ids_that_would_meet_after_cleaning_stay_apart() {
        let calls = [call("x"), call("x_2"), call("x"), call("a|b"), call("a_b")];
        let mut ids = CallIds::new(IdForm::Short40);
        let sent: Vec<String> = calls.iter().enumerate().map(|(at, call)| ids.call(at, 0, call)).collect();
        let distinct: std::collections::HashSet<&String> = sent.iter().collect();
        assert_eq!(distinct.len(), calls.len(), "{sent:?}");
        for (call, sent) in calls.iter().zip(&sent).rev() {
            assert_eq!(&ids.result(&call.id, "read"), sent);
        }
    }

    #[test]
    fn an_empty_id_is_made_up_and_its_result_found_by_order_and_name_t_7() {
        let other = ToolCall { name: "ls".to_owned(), ..ToolCall::default() };
        let (one, two) = (call(""), call(""));
        let mut ids = CallIds::new(IdForm::Free);
        let sent = [ids.call(0, 0, &one), ids.call(0, 1, &other), ids.call(0, 2, &two)];
        assert!(sent.iter().all(|id| id.starts_with("call_") && id.len() == 13), "{sent:?}");
        assert_eq!(ids.result("", "ls"), sent[1]);
        assert_eq!(ids.result("", "read"), sent[0]);
        assert_eq!(ids.result("", "renamed"), sent[2]);
    }
}
