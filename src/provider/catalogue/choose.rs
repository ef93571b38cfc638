//! Which model a spec names.
//!
//! Keeps true: a whole id beats everything that could be read into it, so colons in ids are safe; makers come before
//! aggregators; a word that names several models is settled only where one of them has a key, else it is an error that
//! names candidates.
//!
//! Must not know: what the model is used for.

use super::table::Row;
use super::{Catalogue, DEMO, OPENAI_COMPLETIONS, clamp, demo_model, record};
use crate::config::{key_path, nearest};
use crate::model::{ErrorKind, ErrorRecord, Model, Thinking};

/// How many models a run may choose from.
const MODELS_MAX: usize = 16;
/// How many models an error names.
const NAMED_MAX: usize = 6;
/// What may stand before the end of an id that a bare word names.
const BOUNDARIES: [char; 6] = ['/', '-', '.', '_', ':', '~'];
/// Model names that later versions give a meaning.
const LATER: [&str; 2] = ["script:", "replay:"];

/// The models of a run, none of them twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    pub first: Choice,
    /// Each is asked when the one before it failed for good, or has no key.
    pub fallbacks: Vec<Choice>,
}

impl Choices {
    /// All of them, in the order in which they are asked.
    pub fn iter(&self) -> impl Iterator<Item = &Choice> {
        std::iter::once(&self.first).chain(&self.fallbacks)
    }
}

/// A model of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// With the facts of the alias, if one was named.
    pub model: Model,
    /// Already clamped to what the model can do; `None` = nobody asked, the model's default holds.
    pub thinking: Option<Thinking>,
    /// The `[models.NAME]` that was named.
    pub alias: Option<String>,
    /// Things worth a warning.
    pub warnings: Vec<String>,
}

/// What a spec names, before facts are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Picked {
    pub(super) provider: String,
    pub(super) id: String,
    alias: Option<String>,
    level: Option<Thinking>,
}

impl Picked {
    fn new(provider: &str, id: &str) -> Self {
        Self { provider: provider.to_owned(), id: id.to_owned(), alias: None, level: None }
    }
}

/// Finds a spec that is a name as a whole.
type Exact<'a> = dyn Fn(&str) -> Result<Option<Picked>, ErrorRecord> + 'a;

impl Catalogue {
    /// Finds the models that specs name, the first one and its fallbacks; no spec stands for the best provider with a
    /// key. Whether the others have keys is not asked.
    ///
    /// # Errors
    /// Those of [`Self::choose_one`]; kind `usage` for too many specs and for two that name the same model, which
    /// would be asked again in vain; kind `auth` where none is named and no provider has a key.
    pub fn choose(&self, specs: &[String]) -> Result<Choices, ErrorRecord> {
        let Some((first, others)) = specs.split_first() else {
            return Ok(Choices { first: self.describe(self.best()?)?, fallbacks: Vec::new() });
        };
        let first_choice = self.choose_one(first)?;
        let fallbacks = self.others((first, &first_choice.model), others)?;
        Ok(Choices { first: first_choice, fallbacks })
    }

    /// The fallbacks of a model that was chosen some other way, such as by a session: those that stand behind it among
    /// the specs. None if it is not among them.
    ///
    /// # Errors
    /// Those of [`Self::choose`], of the specs behind it.
    pub fn fallbacks_of(&self, model: &Model, specs: &[String]) -> Result<Vec<Choice>, ErrorRecord> {
        let names = |spec: &String| {
            self.pick(spec.trim()).is_ok_and(|picked| picked.provider == model.provider && picked.id == model.id)
        };
        let Some(at) = specs.iter().take(MODELS_MAX).position(names) else { return Ok(Vec::new()) };
        match specs.get(at..).and_then(<[String]>::split_first) {
            Some((own, behind)) => self.others((own, model), behind),
            None => Ok(Vec::new()),
        }
    }

    /// Finds the model a spec names: `provider/id`, an alias, a unique end of an id (makers before aggregators),
    /// each with `:level` behind it if wanted; or `demo`.
    ///
    /// # Errors
    /// Kind `usage` for a spec that names no model or more than one, for a wire that does not exist yet, and where a
    /// limit of cost needs a price that is not known.
    pub fn choose_one(&self, spec: &str) -> Result<Choice, ErrorRecord> {
        self.describe(self.pick(spec.trim())?)
    }

    /// The models behind the first one.
    fn others(&self, first: (&String, &Model), specs: &[String]) -> Result<Vec<Choice>, ErrorRecord> {
        if specs.len() >= MODELS_MAX {
            return Err(usage(format!("{} models are named; a run takes at most {MODELS_MAX}", specs.len() + 1)));
        }
        let mut named = vec![(first.0, first.1.spec())];
        let mut choices = Vec::new();
        for spec in specs {
            let choice = self.choose_one(spec)?;
            let model = choice.model.spec();
            if let Some((other, _)) = named.iter().find(|(_, known)| *known == model) {
                let error = usage(format!("{other} and {spec} name the same model, {model}"));
                return Err(error.with_hint("name each model once; retry.max_retries says how often one is asked"));
            }
            named.push((spec, model));
            choices.push(choice);
        }
        Ok(choices)
    }

    fn describe(&self, picked: Picked) -> Result<Choice, ErrorRecord> {
        let Picked { provider, id, alias, level } = picked;
        self.check_references(&provider)?;
        let facts = alias.as_ref().and_then(|alias| self.settings.models.get(alias));
        let Some(model) = self.model(&provider, &id, facts)? else {
            return Err(self.unknown(&format!("{provider}/{id}")));
        };
        self.check_wire(&model)?;
        self.check_price(&model)?;
        let mut warnings = Vec::new();
        let asked = self.asked(level, alias.as_deref());
        let thinking = asked.as_ref().map(|asked| clamp(&model, asked.level));
        if let (Some(asked), Some(level)) = (asked.filter(|asked| asked.aloud), thinking)
            && asked.level != level
        {
            let (spec, wanted, used) = (model.spec(), asked.level.as_str(), level.as_str());
            warnings.push(format!("{spec} cannot think at level {wanted}; using {used}"));
        }
        Ok(Choice { model, thinking, alias, warnings })
    }

    /// Chat Completions is the only wire so far; the demo needs none.
    fn check_wire(&self, model: &Model) -> Result<(), ErrorRecord> {
        if model.api == OPENAI_COMPLETIONS || model.api == DEMO {
            return Ok(());
        }
        let (spec, api, provider) = (model.spec(), &model.api, &model.provider);
        let error = usage(format!("{spec} speaks {api}, which is not available in this version"));
        let compatible = self.rows.get(provider).is_some_and(|row| row.base_url.contains_key(OPENAI_COMPLETIONS));
        Err(if compatible {
            error.with_hint(format!("--set providers.{provider}.api={OPENAI_COMPLETIONS} uses the compatible endpoint"))
        } else {
            error
        })
    }

    /// A limit that nothing is counted against would be none.
    fn check_price(&self, model: &Model) -> Result<(), ErrorRecord> {
        if self.settings.limits.max_cost.is_none() || model.prices.is_some() {
            return Ok(());
        }
        let (spec, origin) = (model.spec(), self.settings.origin("limits.max_cost"));
        let error = usage(format!("the price of {spec} is not known, so limits.max_cost ({origin}) can not be kept"));
        Err(error.with_hint(format!("[models.NAME] with id = \"{spec}\" and a price states it; then: -m NAME")))
    }

    /// The model used when none is named: of the providers the user defined first, then by rank.
    fn best(&self) -> Result<Picked, ErrorRecord> {
        let own = self.settings.models.iter().find_map(|(alias, model)| {
            let (provider, _) = model.id.split_once('/')?;
            let own = !self.rows.contains_key(provider) && self.settings.providers.contains_key(provider);
            let ready = own && (self.has_key_command(provider) || self.key(provider, "").is_ok());
            let picked = ready.then(|| self.target(&model.id))?.ok()?;
            Some(Picked { alias: Some(alias.clone()), ..picked })
        });
        if let Some(own) = own {
            return Ok(own);
        }
        let defaults =
            |(name, row): (&String, &Row)| Some((row.rank?, Picked::new(name, row.default_model.as_deref()?)));
        let mut ranked: Vec<(u32, Picked)> = self.rows.iter().filter_map(defaults).collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        let mut with_key = ranked.iter().map(|(_, picked)| picked).filter(|picked| self.has_key(&picked.provider));
        let Some(first) = with_key.next() else { return Err(self.no_key(&ranked)) };
        if let Err(error) = self.usable(first) {
            // Another provider than the one the user pays first is the user's choice.
            return Err(match with_key.find(|picked| self.usable(picked).is_ok()) {
                Some(other) => error.with_hint(format!("pirn -m {}/{}", other.provider, other.id)),
                None => error,
            });
        }
        Ok(first.clone())
    }

    /// Whether this version speaks a model's wire.
    fn usable(&self, picked: &Picked) -> Result<(), ErrorRecord> {
        match self.model(&picked.provider, &picked.id, None)? {
            Some(model) => self.check_wire(&model),
            None => Ok(()),
        }
    }

    /// No provider can be used without being named: a key that is wrong is told, else what could be set.
    fn no_key(&self, ranked: &[(u32, Picked)]) -> ErrorRecord {
        if let Some(wrong) = ranked.iter().find_map(|(_, picked)| self.found_key(&picked.provider).err()) {
            return wrong;
        }
        let usable = ranked.iter().filter(|(_, picked)| self.usable(picked).is_ok());
        let variables: Vec<String> = usable.flat_map(|(_, picked)| self.key_variables(&picked.provider)).collect();
        let message = format!("no provider has a key; set one of {}", variables.join(", "));
        ErrorRecord::new(ErrorKind::Auth, message).with_hint("pirn -m demo needs no key")
    }

    fn pick(&self, spec: &str) -> Result<Picked, ErrorRecord> {
        self.resolve(spec, &|word| self.exact(word))
    }

    /// What an alias stands for. An alias of an alias would be one more thing to get lost in.
    pub(super) fn target(&self, id: &str) -> Result<Picked, ErrorRecord> {
        self.resolve(id, &|word| listed(word))
    }

    /// What a spec names, with or without a level; `exact` knows the whole names, which beat everything else.
    fn resolve(&self, spec: &str, exact: &Exact<'_>) -> Result<Picked, ErrorRecord> {
        if let Some(kind) = LATER.iter().find(|kind| spec.starts_with(**kind)) {
            return Err(usage(format!("{kind}FILE models are not available in this version")));
        }
        if let Some(picked) = exact(spec)? {
            return Ok(picked);
        }
        self.check_case(spec)?;
        let level = spec.rsplit_once(':').and_then(|(base, word)| Some((base, Thinking::from_word(word)?)));
        let Some((base, level)) = level else { return self.pick_plain(spec) };
        let picked = match exact(base)? {
            Some(picked) => picked,
            None => self.pick_plain(base)?,
        };
        Ok(Picked { level: Some(level), ..picked })
    }

    /// An alias, the demo, or a listed model. Ids may hold colons, so this comes before levels are looked for.
    fn exact(&self, spec: &str) -> Result<Option<Picked>, ErrorRecord> {
        let Some(model) = self.settings.models.get(spec) else { return listed(spec) };
        let target = self.target(&model.id).map_err(|mut error| {
            error.message = format!("{}: {}", key_path(&["models", spec, "id"]), error.message);
            error
        });
        Ok(Some(Picked { alias: Some(spec.to_owned()), ..target? }))
    }

    /// A provider in other letters would be taken for the beginning of an aggregator's id, and somebody else be paid.
    fn check_case(&self, spec: &str) -> Result<(), ErrorRecord> {
        let Some((first, rest)) = spec.split_once('/') else { return Ok(()) };
        if self.is_provider(first) || first == DEMO {
            return Ok(());
        }
        let names = self.rows.keys().chain(self.settings.providers.keys()).map(String::as_str).chain([DEMO]);
        match names.into_iter().find(|name| name.eq_ignore_ascii_case(first)) {
            Some(name) => {
                Err(usage(format!("no provider is called {first}")).with_hint(format!("did you mean {name}/{rest}?")))
            }
            None => Ok(()),
        }
    }

    /// `provider/anything` of a known provider, else the end of an id.
    fn pick_plain(&self, spec: &str) -> Result<Picked, ErrorRecord> {
        match spec.split_once('/') {
            Some((provider, "")) if self.is_provider(provider) => {
                Err(usage(format!("{spec} names no model of {provider}")))
            }
            Some((provider, id)) if self.is_provider(provider) => {
                self.check_level_typo(provider, id)?;
                Ok(Picked::new(provider, id))
            }
            _ => self.pick_suffix(spec),
        }
    }

    /// A listed model with something behind it that was meant for a level. Aggregators have such ids of their own.
    fn check_level_typo(&self, provider: &str, id: &str) -> Result<(), ErrorRecord> {
        let Some((base, word)) = id.rsplit_once(':') else { return Ok(()) };
        let maker = self.rows.get(provider).is_some_and(|row| !row.aggregator);
        if !maker || record::find(provider, id)?.is_some() || record::find(provider, base)?.is_none() {
            return Ok(());
        }
        match nearest(word, Thinking::ALL.map(Thinking::as_str)) {
            Some(level) => {
                let error = usage(format!("{provider}/{base} has no thinking level {word}"));
                Err(error.with_hint(format!("did you mean {provider}/{base}:{level}?")))
            }
            None => Ok(()),
        }
    }

    fn pick_suffix(&self, word: &str) -> Result<Picked, ErrorRecord> {
        let mut matches = self.suffix_matches(word);
        if matches.len() > 1 {
            let with_key: Vec<String> =
                matches.iter().filter(|spec| self.has_key(provider_of(spec))).cloned().collect();
            if with_key.len() == 1 {
                matches = with_key;
            }
        }
        match matches.as_slice() {
            [] => Err(self.unknown(word)),
            [spec] => {
                let (provider, id) = spec.split_once('/').unwrap_or((spec, ""));
                Ok(Picked::new(provider, id))
            }
            several => {
                let error = usage(format!("{word} could be {} models: {}", several.len(), named(several)));
                Err(error.with_hint("name one of them in full"))
            }
        }
    }

    /// `provider/id` of the models whose id ends in a word, of the best class only: makers before aggregators, a
    /// whole id (or its part behind the last slash) before the end of one.
    pub(super) fn suffix_matches(&self, word: &str) -> Vec<String> {
        let mut all: Vec<&str> = record::specs().collect();
        all.extend(self.settings.models.values().map(|model| without_level(&model.id)));
        let mut found: Vec<((bool, bool), String)> = Vec::new();
        for spec in all {
            let Some((provider, id)) = spec.split_once('/') else { continue };
            let Some(partial) = ends_in(id, word) else { continue };
            let aggregator = self.rows.get(provider).is_some_and(|row| row.aggregator);
            found.push(((aggregator, partial), spec.to_owned()));
        }
        let best = found.iter().map(|(class, _)| *class).min();
        let mut specs: Vec<String> =
            found.into_iter().filter(|(class, _)| Some(*class) == best).map(|(_, spec)| spec).collect();
        specs.sort_unstable();
        specs.dedup();
        specs
    }

    fn unknown(&self, word: &str) -> ErrorRecord {
        let error = usage(match word.split_once('/') {
            Some((provider, _)) => format!("no model is called {word}, and no provider {provider}"),
            None => format!("no model is called {word}"),
        });
        let lower = word.to_lowercase();
        let aliases = self.settings.models.keys().map(String::as_str);
        // An alias of this very name is the one whose id is wrong.
        let near_alias = nearest(word, aliases.chain([DEMO]).filter(|alias| *alias != word));
        let holding: Vec<String> =
            record::specs().filter(|spec| spec.to_lowercase().contains(&lower)).map(str::to_owned).collect();
        let near_provider = || {
            let (provider, id) = word.split_once('/')?;
            Some(format!("{}/{id}", self.near_provider(provider)?))
        };
        let near_id = || {
            let end = |spec: &'static str| spec.rsplit_once('/').map_or(spec, |(_, end)| end);
            let near = nearest(word, record::specs().map(end))?;
            record::specs().find(|spec| end(spec) == near).map(str::to_owned)
        };
        let meant = near_alias.map(str::to_owned);
        let meant =
            meant.or_else(|| (!holding.is_empty()).then(|| named(&holding))).or_else(near_provider).or_else(near_id);
        error.with_hint(match meant {
            Some(meant) => format!("did you mean {meant}? `pirn models` lists all"),
            None => "`pirn models` lists all; provider/id names any other model of a known provider".to_owned(),
        })
    }
}

impl Choice {
    /// The demo model, for programs that want it without a catalogue.
    pub fn demo() -> Self {
        Self { model: demo_model(), thinking: None, alias: None, warnings: Vec::new() }
    }
}

fn usage(message: impl Into<String>) -> ErrorRecord {
    ErrorRecord::new(ErrorKind::Usage, message)
}

fn provider_of(spec: &str) -> &str {
    spec.split_once('/').map_or(spec, |(provider, _)| provider)
}

/// The demo, or a listed model.
fn listed(spec: &str) -> Result<Option<Picked>, ErrorRecord> {
    if spec == DEMO || spec.split_once('/') == Some((DEMO, DEMO)) {
        return Ok(Some(Picked::new(DEMO, DEMO)));
    }
    let Some((provider, id)) = spec.split_once('/') else { return Ok(None) };
    Ok(record::find(provider, id)?.map(|_| Picked::new(provider, id)))
}

/// A spec without the level behind it.
pub(super) fn without_level(spec: &str) -> &str {
    match spec.rsplit_once(':') {
        Some((base, word)) if Thinking::from_word(word).is_some() => base,
        _ => spec,
    }
}

/// Whether an id ends in a word at a boundary; `true` inside: it is more than the word or its last part. A word with a
/// slash is whole parts of an id, letter by letter: it names somebody.
fn ends_in(id: &str, word: &str) -> Option<bool> {
    let at = id.len().checked_sub(word.len())?;
    let (before, end) = id.split_at_checked(at)?;
    if word.is_empty() || !end.eq_ignore_ascii_case(word) {
        return None;
    }
    let named = word.contains('/');
    if named && end != word {
        return None;
    }
    match before.chars().next_back() {
        None | Some('/') => Some(false),
        Some(_) if named => None,
        Some(c) => BOUNDARIES.contains(&c).then_some(true),
    }
}

/// The first few of a list, for an error.
fn named(specs: &[String]) -> String {
    let mut text = specs.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    if specs.len() > NAMED_MAX {
        text.push_str(", …");
    }
    text
}
