//! `pirn models`: what can be named with `-m`.

use crate::cli::ModelsArgs;
use crate::config::{self, Env};
use crate::model::{ErrorKind, ErrorRecord, Input};
use crate::provider::catalogue::{Catalogue, DEMO, ModelRow, OPENAI_COMPLETIONS};

/// The listing as it goes to stdout: one model a line.
pub(super) fn listing(args: &ModelsArgs, env: &Env) -> Result<String, ErrorRecord> {
    let cwd = super::setup::working_directory(None)?;
    let settings = config::load(&config::Sources::new(env, cwd))?;
    let pattern = args.pattern.as_deref().unwrap_or_default();
    let rows = Catalogue::new(&settings, env)?.list(pattern)?;
    if rows.is_empty() {
        return Err(ErrorRecord::new(ErrorKind::Usage, format!("no known model matches {pattern:?}"))
            .with_hint("pirn models lists all; a provider also takes ids that are not listed"));
    }
    if args.json { json(&rows) } else { Ok(table(&rows)) }
}

fn json(rows: &[ModelRow]) -> Result<String, ErrorRecord> {
    let mut text = String::new();
    for row in rows {
        let line =
            serde_json::to_string(row).map_err(|error| ErrorRecord::new(ErrorKind::Internal, error.to_string()))?;
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

fn table(rows: &[ModelRow]) -> String {
    let width = rows.iter().map(|row| row.model.spec().chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let model = &row.model;
        let price = match &model.prices {
            Some(prices) => format!("${} / ${}", prices.input, prices.output),
            None => "price unknown".to_owned(),
        };
        let mut facts = vec![tokens(model.context_window), price];
        if model.reasoning {
            facts.push("reasoning".to_owned());
        }
        if model.input.contains(&Input::Image) {
            facts.push("images".to_owned());
        }
        if !row.configured {
            facts.push("no key".to_owned());
        }
        if ![OPENAI_COMPLETIONS, DEMO].contains(&model.api.as_str()) {
            facts.push(format!("{} is not available in this version", model.api));
        }
        let line = format!("{:width$}  {}\n", model.spec(), facts.join(", "));
        text.push_str(&line);
    }
    text
}

fn tokens(count: u64) -> String {
    match count {
        0 => "context unknown".to_owned(),
        count if count % 1_000_000 == 0 => format!("{}M context", count / 1_000_000),
        count => format!("{}k context", count / 1000),
    }
}
