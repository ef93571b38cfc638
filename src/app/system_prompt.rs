//! The system prompt of a run.

use std::path::Path;

use crate::config::ContextFile;

/// Who the model is when the configuration does not say.
const BUILT_IN: &str = "\
You are pirn, an agent that runs once in a shell or a CI job and then ends. Nobody can answer questions, so do not \
ask any: make the most sensible assumption and say which one you made. Work until the task is finished. \
Give your answer last, complete in itself, because often nothing else you wrote is shown.";

/// How to use the tools, when there are any.
const TOOLS: &str = "\
Use the tools to look instead of guessing; call several at once when they do not depend on each other. \
When a call fails, read its message and try another way. Paths may be relative to the working directory.";

/// Joins the parts by blank lines: the configured or built-in text, the environment, what the configuration appends,
/// context files. No date and no time stand in it, so that a prompt cache can reuse it.
pub(super) fn build(
    system: &str,
    append: &[String],
    context: &[ContextFile],
    cwd: &Path,
    shell: Option<&str>,
    has_tools: bool,
) -> String {
    let mut parts: Vec<String> = Vec::new();
    if system.is_empty() {
        parts.push(BUILT_IN.to_owned());
        if has_tools {
            parts.push(TOOLS.to_owned());
        }
    } else {
        parts.push(system.to_owned());
    }
    let shell = shell.map(|shell| format!("shell: {shell}\n")).unwrap_or_default();
    parts.push(format!(
        "<environment>\ncwd: {}\nplatform: {} {}\n{shell}</environment>",
        cwd.display(),
        std::env::consts::OS,
        std::env::consts::ARCH
    ));
    parts.extend(append.iter().filter(|text| !text.is_empty()).cloned());
    parts.extend(context.iter().map(context_block));
    parts.join("\n\n")
}

/// A context file between tags; the end tag stands on a line of its own.
fn context_block(file: &ContextFile) -> String {
    let path = file.path.display().to_string().replace('&', "&amp;").replace('"', "&quot;");
    let path = path.replace('<', "&lt;").replace('>', "&gt;").replace(char::is_control, "\u{fffd}");
    let text = file.text.trim_end_matches(['\n', '\r']);
    format!("<context-file path=\"{path}\">\n{text}\n</context-file>")
}

#[cfg(test)]
mod tests {
    use super::build;
    use crate::config::ContextFile;
    use std::path::Path;

    #[test]
    fn context_files_stand_last_with_their_paths() {
        let file = |path: &str, text: &str| ContextFile { path: path.into(), text: text.to_owned() };
        let files = [file("/w/a\"b/AGENTS.md", "one\n\ntwo\n"), file("/h/AGENTS.md", "three")];
        let text = build("MINE", &["A".to_owned()], &files, Path::new("/w"), None, false);
        let wanted = "\n\nA\n\n<context-file path=\"/w/a&quot;b/AGENTS.md\">\none\n\ntwo\n</context-file>\n\n\
                      <context-file path=\"/h/AGENTS.md\">\nthree\n</context-file>";
        assert!(text.ends_with(wanted), "{text}");
    }

    #[test]
    fn parts_stand_in_order_and_own_text_replaces_the_built_in_one() {
        let append = ["A".to_owned(), String::new(), "B".to_owned()];
        let text = build("MINE", &append, &[], Path::new("/w"), Some("/bin/zsh"), true);
        let parts: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(parts.len(), 4);
        assert_eq!((parts[0], parts[2], parts[3]), ("MINE", "A", "B"));
        assert!(parts[1].starts_with("<environment>\ncwd: /w\n") && parts[1].contains("shell: /bin/zsh\n"));
    }

    #[test]
    fn without_tools_nothing_is_said_of_them() {
        let text = build("", &[], &[], Path::new("/w"), None, false);
        assert!(text.starts_with("You are pirn") && !text.contains("tools") && !text.contains("shell:"));
    }
}
