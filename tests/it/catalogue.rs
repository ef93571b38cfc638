//! The catalogue: which model a spec names, which dialect a server gets, which key a request is signed
//! with. Cases are those of `tests/cases/providers.md`.

use std::ffi::OsString;

use pirn::config::{Env, Origin, Settings, Sources, load};
use pirn::model::{ErrorKind, ErrorRecord, Input, Model, Thinking, ThinkingStyle};
use pirn::port::{Credential, Models as _};
use pirn::provider::catalogue::{Catalogue, Choice, Choices};
use pirn::provider::compat::{Compat, OptionalField};
use serde_json::{Map, Value, json};

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn settings(env: &Env, sets: &[&str]) -> Settings {
    let sets = sets.iter().map(|set| (*set).to_owned()).collect();
    load(&Sources { sets, ..Sources::new(env, "/".into()) }).unwrap()
}

fn catalogue(env: Pairs<'_>, sets: &[&str]) -> Catalogue {
    let env = Env::from_pairs(env.iter().copied());
    Catalogue::new(&settings(&env, sets), &env).unwrap()
}

fn choose(env: Pairs<'_>, sets: &[&str], spec: &str) -> Result<Choice, ErrorRecord> {
    choose_all(env, sets, spec).map(|choices| choices.first)
}

/// As `-m` does, with commas between specs.
fn choose_all(env: Pairs<'_>, sets: &[&str], specs: &str) -> Result<Choices, ErrorRecord> {
    catalogue(env, sets).choose(&split(specs))
}

fn split(specs: &str) -> Vec<String> {
    specs.split(',').filter(|spec| !spec.is_empty()).map(str::to_owned).collect()
}

fn spec_of(env: Pairs<'_>, sets: &[&str], spec: &str) -> String {
    choose(env, sets, spec).unwrap().model.spec()
}

const LOCAL: &[&str] = &["providers.local.base_url=http://127.0.0.1:9/v1"];

#[test]
fn a_spec_names_a_model_by_provider_alias_or_unique_end() {
    let alias = ["models.fast.id=openai/gpt-5-mini", "models.short.id=gpt-4o-mini"];
    let table = [
        ("openai/gpt-4o", "openai/gpt-4o"),
        ("openai/smollm2", "openai/smollm2"),
        ("ollama/qwen3:8b", "ollama/qwen3:8b"),
        ("demo", "demo/demo"),
        ("demo/demo", "demo/demo"),
        ("demo:high", "demo/demo"),
        (" fast ", "openai/gpt-5-mini"),
        ("short", "openai/gpt-4o-mini"),
        ("gpt-4o,", "openai/gpt-4o"),
        // The maker before aggregators that serve the same model.
        ("gpt-4o", "openai/gpt-4o"),
        ("GPT-4o", "openai/gpt-4o"),
        ("kimi-k3", "moonshotai/kimi-k3"),
        ("4o-mini", "openai/gpt-4o-mini"),
        // Only aggregators have it.
        ("codestral-2508", "openrouter/mistralai/codestral-2508"),
        ("mistralai/codestral-2508", "openrouter/mistralai/codestral-2508"),
    ];
    for (spec, expected) in table {
        assert_eq!(spec_of(&[], &alias, spec), expected, "{spec}");
    }
}

#[test]
fn a_level_behind_a_colon_is_a_level_only_if_it_is_a_level_word() {
    let table = [
        ("openai/qwen3:8b", "openai/qwen3:8b", None),
        ("openai/gpt-5-mini:low", "openai/gpt-5-mini", Some(Thinking::Low)),
        ("gpt-5-mini:high", "openai/gpt-5-mini", Some(Thinking::High)),
        ("openrouter/openai/gpt-5-mini:low", "openrouter/openai/gpt-5-mini", Some(Thinking::Low)),
        ("openrouter/foo/bar:free", "openrouter/foo/bar:free", None),
    ];
    for (spec, expected, level) in table {
        let choice = choose(&[], &[], spec).unwrap();
        assert_eq!((choice.model.spec().as_str(), choice.thinking), (expected, level), "{spec}");
    }
    let typo = choose(&[], &[], "openai/gpt-5-mini:hihg").unwrap_err();
    assert_eq!(typo.kind, ErrorKind::Usage);
    assert_eq!(typo.hint.as_deref(), Some("did you mean openai/gpt-5-mini:high?"));
}

#[test]
fn an_end_that_fits_several_models_is_an_error_unless_one_provider_has_a_key() {
    let error = choose(&[], &[], "gpt-oss-120b").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Usage);
    assert!(error.message.contains("cerebras/gpt-oss-120b") && error.message.contains("groq/openai/gpt-oss-120b"));
    assert_eq!(spec_of(&[("GROQ_API_KEY", "k")], &[], "gpt-oss-120b"), "groq/openai/gpt-oss-120b");
}

#[test]
fn a_word_that_names_nothing_is_a_usage_error_with_suggestions() {
    let sets = ["models.quick.id=demo"];
    let table = [
        ("quik", "did you mean quick?"),
        ("gpt-4oo", "gpt-4o"),
        ("opneai/gpt-4o", "did you mean openai/gpt-4o?"),
        ("dmeo", "did you mean demo?"),
        ("zzzzzzzzzzzz", "`pirn models` lists all"),
    ];
    for (spec, hint) in table {
        let error = choose(&[], &sets, spec).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage, "{spec}");
        assert!(error.hint.as_ref().unwrap().contains(hint), "{spec}: {error:?}");
    }
    assert_eq!(choose(&[], &[], "openai/").unwrap_err().kind, ErrorKind::Usage);
}

#[test]
fn no_model_means_the_best_provider_with_a_key() {
    let table: [(Pairs<'_>, &[&str], &str); 5] = [
        (&[("OPENAI_API_KEY", "k")], &[], "openai/gpt-6.2-sol"),
        (&[("GROQ_API_KEY", "k"), ("HF_TOKEN", "k")], &[], "groq/openai/gpt-oss-120b"),
        (&[("OPENAI_API_KEY", ""), ("MISTRAL_API_KEY", "k")], &[], "mistral/mistral-large-latest"),
        (&[], &["providers.deepseek.api_key=$MINE"], ""),
        // Providers of the user come first; an alias says which model.
        (
            &[("OPENAI_API_KEY", "k")],
            &["providers.local.base_url=http://127.0.0.1:9/v1", "models.m.id=local/some"],
            "local/some",
        ),
    ];
    for (env, sets, expected) in table {
        let choice = choose(env, sets, "");
        assert_eq!(choice.map(|choice| choice.model.spec()).unwrap_or_default(), expected);
    }
}

#[test]
fn no_key_anywhere_is_an_auth_error_naming_the_variables_that_would_help_and_the_demo() {
    let error = choose(&[("OLLAMA_API_KEY", "k")], &[], "").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Auth);
    for (variable, helps) in
        [("OPENAI_API_KEY", true), ("HF_TOKEN", true), ("ANTHROPIC_API_KEY", false), ("GEMINI_API_KEY", false)]
    {
        assert_eq!(error.message.contains(variable), helps, "{error:?}");
    }
    assert!(error.hint.unwrap().contains("pirn -m demo"));
}

#[test]
fn a_best_provider_that_cannot_be_used_yet_names_the_next_one_with_a_key() {
    let two = [("ANTHROPIC_API_KEY", "k"), ("OPENAI_API_KEY", "k")];
    let error = choose(&two, &[], "").unwrap_err();
    assert_eq!((error.kind, error.hint.as_deref()), (ErrorKind::Usage, Some("pirn -m openai/gpt-6.2-sol")));
    assert!(error.message.contains("speaks anthropic-messages, which is not available"), "{error:?}");
    let alone = choose(&two[..1], &[], "").unwrap_err();
    assert_eq!(alone.kind, ErrorKind::Usage);
}

#[test]
fn a_provider_in_other_letters_is_never_taken_for_the_start_of_an_aggregators_id() {
    let sets = ["providers.local.base_url=http://127.0.0.1:9/v1"];
    for (spec, hint) in [
        ("Openai/gpt-5-mini", "did you mean openai/gpt-5-mini?"),
        ("OPENAI/gpt-5-mini:low", "did you mean openai/gpt-5-mini:low?"),
        ("Local/x", "did you mean local/x?"),
        ("Demo/demo", "did you mean demo/demo?"),
    ] {
        let error = choose(&[("OPENROUTER_API_KEY", "k")], &sets, spec).unwrap_err();
        assert_eq!((error.kind, error.hint.as_deref()), (ErrorKind::Usage, Some(hint)), "{spec}");
    }
    for spec in ["Mistralai/codestral-2508", "istralai/codestral-2508"] {
        assert_eq!(choose(&[], &sets, spec).unwrap_err().kind, ErrorKind::Usage, "{spec}");
    }
    assert_eq!(spec_of(&[], &sets, "mistralai/codestral-2508"), "openrouter/mistralai/codestral-2508");
}

#[test]
fn an_alias_takes_the_same_specs_as_a_model() {
    let sets = ["models.deep.id=openai/gpt-5-mini:high", "models.d.id=demo", "models.b.id=b", "models.c.id=b"];
    let level = |spec: &str| choose(&[], &sets, spec).map(|choice| (choice.model.spec(), choice.thinking)).unwrap();
    assert_eq!(level("deep"), ("openai/gpt-5-mini".to_owned(), Some(Thinking::High)));
    assert_eq!(level("deep:low"), ("openai/gpt-5-mini".to_owned(), Some(Thinking::Low)));
    assert_eq!(level("d").0, "demo/demo");
    for alias in ["b", "c"] {
        let error = choose(&[], &sets, alias).unwrap_err();
        assert_eq!(error.message, format!("models.{alias}.id: no model is called b"));
        assert!(!error.hint.unwrap().contains("did you mean b?"));
    }
    let own = ["providers.local.base_url=http://127.0.0.1:9/v1", "models.m.id=local/some:high"];
    assert_eq!(spec_of(&[], &own, ""), "local/some");
    let listed = catalogue(&[], &own).list("some").unwrap();
    assert_eq!(listed.iter().map(|row| row.model.spec()).collect::<Vec<_>>(), ["local/some"]);
}

#[test]
fn a_key_variable_that_holds_no_key_is_named_and_nothing_goes_out_unsigned() {
    use std::os::unix::ffi::OsStringExt as _;
    let blank = OsString::from(" ");
    let bytes = OsString::from_vec(vec![b'k', 0xff]);
    for (variable, value, sets, spec, wanted) in [
        ("OPENAI_API_KEY", &blank, &[][..], "openai/x", "the key of openai: OPENAI_API_KEY is blank"),
        ("OPENAI_API_KEY", &blank, &[], "", "the key of openai: OPENAI_API_KEY is blank"),
        ("OPENAI_API_KEY", &bytes, &[], "openai/x", "the key of openai: OPENAI_API_KEY is not UTF-8"),
        ("OLLAMA_API_KEY", &bytes, &[], "ollama/x", "the key of ollama: OLLAMA_API_KEY is not UTF-8"),
        ("OTHER", &blank, &["providers.openai.api_key=${A:-}"], "openai/x", "providers.openai.api_key is blank"),
        ("A", &blank, &["providers.openai.api_key=$A"], "openai/x", "providers.openai.api_key is blank"),
        ("A", &bytes, &["providers.openai.api_key=$A"], "openai/x", "the key of openai: A is not UTF-8"),
        ("OPENAI_BASE_URL", &bytes, &[], "openai/x", "OPENAI_BASE_URL is not UTF-8"),
    ] {
        let env = Env::from_pairs([(variable, value.clone())]);
        let catalogue = Catalogue::new(&settings(&env, sets), &env).unwrap();
        let error =
            catalogue.choose(&split(spec)).and_then(|choices| catalogue.connection(&choices.first.model)).unwrap_err();
        assert_eq!(error.message, wanted);
    }
}

#[test]
fn models_of_missing_wires_are_usage_errors() {
    let cases = [
        ("openai/gpt-4o,xai/grok-4.7", "xai/grok-4.7 speaks openai-responses, which is not available"),
        ("anthropic/claude-opus-5", "anthropic/claude-opus-5 speaks anthropic-messages, which is not available"),
        ("claude-opus-5", "speaks anthropic-messages"),
        ("google/gemini-2.5-pro", "speaks google-generative-ai"),
        ("xai/grok-4.7", "speaks openai-responses"),
        ("openrouter/anthropic/claude-opus-5.5", "speaks anthropic-messages"),
        ("script:x.toml", "script:FILE models are not available in this version"),
        ("replay:x.json", "not available in this version"),
    ];
    for (spec, message) in cases {
        let error = choose(&[], &[], spec).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage, "{spec}");
        assert!(error.message.contains(message), "{spec}: {error:?}");
    }
    // The user's word about the wire beats the record's.
    let choice = choose(&[], &["providers.anthropic.api=openai-completions"], "anthropic/claude-opus-5").unwrap();
    assert_eq!(choice.model.base_url, "https://api.anthropic.com/v1");
    assert_eq!(choice.model.thinking_style, Some(ThinkingStyle::Effort));
}

/// What was chosen, in order, with levels.
fn names<'a>(choices: impl IntoIterator<Item = &'a Choice>) -> Vec<(String, Option<Thinking>)> {
    choices.into_iter().map(|choice| (choice.model.spec(), choice.thinking)).collect()
}

#[test]
fn later_specs_are_fallbacks_each_with_its_own_level_and_facts_and_need_no_key() {
    let sets = ["models.fast.id=openai/gpt-5-mini", "models.fast.thinking=low", "models.fast.max_output=9"];
    let choices = choose_all(&[], &sets, "openai/gpt-5:high,fast,gpt-oss-20b:low,demo").unwrap_err();
    assert_eq!(choices.kind, ErrorKind::Usage, "an end of two ids is one wherever it stands: {choices:?}");
    let choices = choose_all(&[], &sets, "openai/gpt-5:high,fast,groq/openai/gpt-oss-20b:medium,demo").unwrap();
    let expected = [
        ("openai/gpt-5", Some(Thinking::High)),
        ("openai/gpt-5-mini", Some(Thinking::Low)),
        ("groq/openai/gpt-oss-20b", Some(Thinking::Medium)),
        ("demo/demo", None),
    ];
    assert_eq!(names(choices.iter()), expected.map(|(spec, level)| (spec.to_owned(), level)));
    assert_eq!((choices.fallbacks[0].alias.as_deref(), choices.fallbacks[0].model.max_tokens), (Some("fast"), 9));
    assert!(choose_all(&[("OPENAI_API_KEY", "k")], &[], "").unwrap().fallbacks.is_empty());
}

#[test]
fn a_mistake_in_a_later_spec_is_told_like_one_in_the_first() {
    let sets = ["models.fast.id=openai/gpt-5-mini", "models.slow.id=gpt-5-mini"];
    let many = vec!["demo"; 17].join(",");
    for (specs, message) in [
        ("demo,nonsense", "no model is called nonsense"),
        ("nonsense,demo", "no model is called nonsense"),
        ("demo,openai/", "openai/ names no model of openai"),
        ("demo,demo", "demo and demo name the same model, demo/demo"),
        ("openai/gpt-5:high,demo,gpt-5:low", "openai/gpt-5:high and gpt-5:low name the same model, openai/gpt-5"),
        ("fast,slow", "fast and slow name the same model, openai/gpt-5-mini"),
        (many.as_str(), "17 models are named; a run takes at most 16"),
    ] {
        let error = choose_all(&[], &sets, specs).unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Usage, message), "{specs}");
    }
}

#[test]
fn a_model_that_a_session_chose_has_the_fallbacks_that_stand_behind_it() {
    let sets = ["models.fast.id=openai/gpt-5-mini"];
    let catalogue = catalogue(&[], &sets);
    for (model, specs, expected) in [
        ("openai/gpt-5-mini", "openai/gpt-5,fast:low,demo", &["demo/demo"][..]),
        ("openai/gpt-5", "openai/gpt-5,fast,demo", &["openai/gpt-5-mini", "demo/demo"]),
        ("demo", "openai/gpt-5,fast,demo", &[]),
        ("openai/gpt-4o", "openai/gpt-5,fast,demo", &[]),
        ("openai/gpt-5", "", &[]),
        // What stands before it is nobody's business any more.
        ("openai/gpt-5", "nonsense,openai/gpt-5,demo", &["demo/demo"]),
    ] {
        let model = catalogue.choose_one(model).unwrap().model;
        let found = catalogue.fallbacks_of(&model, &split(specs)).unwrap();
        let found: Vec<String> = found.iter().map(|choice| choice.model.spec()).collect();
        assert_eq!(found, expected, "{} in {specs}", model.spec());
    }
    let demo = catalogue.choose_one("demo").unwrap().model;
    for specs in ["demo,nonsense", "demo,fast,demo/demo"] {
        assert_eq!(catalogue.fallbacks_of(&demo, &split(specs)).unwrap_err().kind, ErrorKind::Usage, "{specs}");
    }
}

#[test]
fn a_limit_of_cost_needs_the_price_of_every_model() {
    let limit = "limits.max_cost=1";
    let priced = ["models.own.id=local/some", "models.own.price={ input = 1 }", LOCAL[0], limit];
    for (sets, specs, unpriced) in [
        (&[LOCAL[0]][..], "local/some", None),
        (&[LOCAL[0], "limits.max_cost=0"], "local/some", None),
        (&[LOCAL[0], limit], "local/some", Some("local/some")),
        (&[LOCAL[0], limit], "demo,local/some", Some("local/some")),
        (&[limit], "openai/gpt-4o,demo", None),
        (&priced, "own", None),
        (&priced, "local/some", None),
        (&priced, "local/other", Some("local/other")),
    ] {
        match (choose_all(&[], sets, specs), unpriced) {
            (Ok(_), None) => {}
            (Err(error), Some(model)) => {
                let wanted = format!("the price of {model} is not known, so limits.max_cost (--set) can not be kept");
                assert_eq!((error.kind, error.message), (ErrorKind::Usage, wanted));
                assert!(error.hint.unwrap().contains(&format!("id = \"{model}\"")));
            }
            (found, _) => panic!("{specs}: {found:?}"),
        }
    }
}

fn compat(env: Pairs<'_>, sets: &[&str], spec: &str) -> Map<String, Value> {
    choose(env, sets, spec).unwrap().model.compat
}

#[test]
fn the_dialect_goes_by_the_host_and_not_by_the_name_of_a_redirected_provider() {
    let openai = json!({
        "max_tokens_field": "max_completion_tokens", "reasoning": "effort", "developer_role": true, "store": true,
        "tool_call_id": "short40", "reasoning_replay": "none",
    });
    assert_eq!(json!(compat(&[], &[], "openai/gpt-5")), openai, "case 109");
    for url in ["http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/", "https://gateway.example/v1"] {
        let redirected = choose(&[("OPENAI_BASE_URL", url)], &[], "openai/gpt-5").unwrap().model;
        assert_eq!(redirected.compat, Map::new(), "case 109: {url}");
        assert_eq!(redirected.base_url, url.trim_end_matches('/'));
        let by_setting = compat(&[], &[&format!("providers.openai.base_url={url}")], "openai/gpt-5");
        assert_eq!(by_setting, Map::new(), "case 109: {url}");
    }
    let to_mistral = compat(&[("OPENAI_BASE_URL", "https://api.mistral.ai/v1")], &[], "openai/x");
    assert_eq!(to_mistral["tool_call_id"], "alnum9");
    let own = compat(&[], &["providers.mine.base_url=https://me.openai.azure.com/openai/v1"], "mine/x");
    assert_eq!(own["max_tokens_field"], "max_completion_tokens");
    let same_host = compat(&[("OPENAI_BASE_URL", "https://eu.api.openai.com/v1")], &[], "openai/x");
    assert_eq!(json!(same_host), openai);
}

#[test]
fn a_local_program_keeps_its_dialect_wherever_it_runs() {
    assert_eq!(compat(&[], &[], "vllm/x")["reasoning"], "chat_template");
    assert_eq!(compat(&[("VLLM_BASE_URL", "http://gpu:8000/v1")], &[], "vllm/x")["reasoning"], "chat_template");
    assert_eq!(compat(&[("VLLM_BASE_URL", "https://api.mistral.ai/v1")], &[], "vllm/x")["tool_call_id"], "alnum9");
    assert_eq!(compat(&[], LOCAL, "local/x"), Map::new());
}

#[test]
fn switches_of_the_user_and_of_single_models_lie_on_top() {
    let sets = ["providers.openai.compat.store=false", "providers.openai.compat.strict_tools=true"];
    let openai = compat(&[], &sets, "openai/gpt-5");
    assert_eq!((&openai["store"], &openai["strict_tools"]), (&json!(false), &json!(true)));
    assert_eq!(openai["developer_role"], true);
    assert_eq!(compat(&[], &[], "openrouter/openai/gpt-5")["developer_role"], true);
    assert!(!compat(&[], &[], "openrouter/qwen/any").contains_key("developer_role"));
    assert_eq!(compat(&[], &[], "moonshotai/kimi-k2.6")["reasoning"], "none");
    assert_eq!(compat(&[], &[], "moonshotai/kimi-k3")["reasoning"], "effort");
}

#[test]
fn facts_come_from_the_record_and_an_alias_lies_on_top() {
    let sets = [
        "models.big.id=openai/gpt-4o",
        "models.big.context_window=5",
        "models.big.price={ output = 7 }",
        "models.big.options={ temperature = 0.5 }",
        "models.mine.id=local/some",
        "models.mine.reasoning=true",
        "models.mine.max_output=99",
        LOCAL[0],
    ];
    let known = choose(&[], &sets, "openai/gpt-4o").unwrap().model;
    assert_eq!((known.context_window, known.max_tokens, known.reasoning), (128_000, 16_384, false));
    assert_eq!(known.input, [Input::Text, Input::Image]);
    assert!((known.prices.as_ref().unwrap().output - 10.0).abs() < 1e-9);
    let big = choose(&[], &sets, "big").unwrap();
    assert_eq!((big.alias.as_deref(), big.model.context_window, big.model.max_tokens), (Some("big"), 5, 16_384));
    let prices = big.model.prices.unwrap();
    assert!((prices.output - 7.0).abs() < 1e-9 && (prices.input - 2.5).abs() < 1e-9);
    assert_eq!(big.model.sampling_params["temperature"], 0.5);
    // Of an unlisted model the alias is the record, also when the model is named in full.
    let unlisted = choose(&[], &sets, "local/some").unwrap().model;
    assert_eq!((unlisted.reasoning, unlisted.max_tokens, unlisted.context_window), (true, 99, 0));
    assert_eq!(unlisted.prices, None);
    let unknown = choose(&[], &sets, "local/other").unwrap().model;
    assert_eq!(unknown, Model::unknown("local", "other", "openai-completions", "http://127.0.0.1:9/v1").with_effort());
}

trait WithEffort {
    fn with_effort(self) -> Self;
}

impl WithEffort for Model {
    fn with_effort(mut self) -> Self {
        self.thinking_style = Some(ThinkingStyle::Effort);
        self
    }
}

#[test]
fn tiers_and_level_words_are_kept() {
    let catalogue = catalogue(&[], &[]);
    let haiku = catalogue.resolve("anthropic", "claude-haiku-5-5").unwrap();
    assert_eq!(haiku.prices.unwrap().tiers[0].input_tokens_above, 100_000);
    assert_eq!(haiku.thinking_level_map["minimal"], Value::Null);
    assert_eq!(haiku.thinking_level_map["max"], "max");
    assert_eq!(haiku.thinking_style, Some(ThinkingStyle::Adaptive));
    let old = catalogue.resolve("anthropic", "claude-haiku-4-5").unwrap();
    assert_eq!(old.thinking_style, Some(ThinkingStyle::Budget));
    assert_eq!(catalogue.resolve("nobody", "x"), None);
}

#[test]
fn the_level_is_that_of_the_spec_then_the_alias_then_the_setting_and_a_higher_layer_wins() {
    let alias = ["models.m.id=openai/gpt-5", "models.m.thinking=low"];
    let level = |env: Pairs<'_>, sets: &[&str], spec: &str| choose(env, sets, spec).unwrap().thinking;
    assert_eq!(level(&[], &[], "openai/gpt-5"), None);
    assert_eq!(level(&[("PIRN_THINKING", "medium")], &[], "openai/gpt-5"), Some(Thinking::Medium));
    assert_eq!(
        level(&[("PIRN_THINKING", "medium"), ("PIRN_MODEL", "x")], &[], "openai/gpt-5:high"),
        Some(Thinking::High)
    );
    assert_eq!(level(&[], &alias, "m"), Some(Thinking::Low));
    assert_eq!(level(&[], &alias, "m:high"), Some(Thinking::High));
    let flag = [alias[0], alias[1], "thinking=minimal"];
    assert_eq!(level(&[], &flag, "m:high"), Some(Thinking::Minimal));
}

#[test]
fn a_level_is_clamped_and_a_change_of_what_was_asked_for_is_said() {
    let choice = choose(&[], &["thinking=max"], "openai/gpt-5").unwrap();
    assert_eq!(choice.thinking, Some(Thinking::High));
    assert_eq!(choice.warnings, ["openai/gpt-5 cannot think at level max; using high"]);
    let quiet = choose(&[("PIRN_THINKING", "max")], &[], "openai/gpt-4o").unwrap();
    assert_eq!((quiet.thinking, quiet.warnings), (Some(Thinking::Off), Vec::new()));
}

#[test]
fn a_connection_carries_the_first_key_that_is_set_and_never_shows_it() {
    let env = [("GOOGLE_API_KEY", "second"), ("OPENAI_API_KEY", " sk-openai\n"), ("MINE", "own")];
    let sets = [
        "providers.mine.base_url=http://h/v1",
        "providers.mine.api_key=$MINE",
        "providers.mine.headers={ x-a = '1' }",
        "providers.google.api=openai-completions",
    ];
    let catalogue = catalogue(&env, &sets);
    let connect = |spec: &str| catalogue.connection(&catalogue.choose_one(spec).unwrap().model).unwrap();
    let openai = connect("openai/gpt-4o");
    assert_eq!(openai.key.as_ref().unwrap().expose(), "sk-openai");
    assert_eq!(openai.base_url, "https://api.openai.com/v1");
    assert_eq!(openai.key_sources, ["OPENAI_API_KEY"]);
    assert!(!format!("{openai:?}{catalogue:?}").contains("sk-openai"));
    assert_eq!(connect("google/x").key.unwrap().expose(), "second");
    let mine = connect("mine/x");
    assert_eq!(mine.key.unwrap().expose(), "own");
    assert_eq!(mine.headers.iter().collect::<Vec<_>>(), [("x-a", Some("1"))]);
    assert_eq!(connect("demo").api, "demo");
}

#[test]
fn a_key_that_is_no_variable_is_known_by_its_setting() {
    let sets = [LOCAL[0], "providers.local.api_key=!pass show local"];
    let catalogue = catalogue(&[], &sets);
    let connection = catalogue.unsigned(&catalogue.choose_one("local/m").unwrap().model);
    assert_eq!(connection.key_sources, ["providers.local.api_key"]);
    assert!(catalogue.keys().is_empty(), "nobody has run it");
}

#[test]
fn a_missing_key_is_an_auth_error_naming_the_variable() {
    let sets = ["providers.mine.base_url=http://h/v1", "providers.mine.api_key=${MINE}"];
    let cases = [("openai/gpt-4o", "OPENAI_API_KEY"), ("mine/x", "MINE"), ("groq/x", "GROQ_API_KEY")];
    let catalogue = catalogue(&[], &sets);
    for (spec, variable) in cases {
        let model = catalogue.choose_one(spec).unwrap().model;
        let error = catalogue.connection(&model).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Auth, "{spec}");
        assert!(error.message.contains(variable), "{error:?}");
        assert_eq!(catalogue.credential(&model.provider), Credential::Missing(vec![variable.to_owned()]));
    }
    assert_eq!(catalogue.credential("nobody"), Credential::Missing(Vec::new()));
}

#[test]
fn local_servers_and_providers_without_a_key_setting_need_none() {
    let sets = ["providers.mine.base_url=http://h/v1", "providers.groq.api_key="];
    let env = [("OPENAI_BASE_URL", "http://localhost:11434/v1")];
    let catalogue = catalogue(&env, &sets);
    for spec in ["mine/x", "groq/x", "ollama/x", "lmstudio/x", "openai/qwen3:8b", "demo"] {
        let model = catalogue.choose_one(spec).unwrap().model;
        assert_eq!(catalogue.connection(&model).unwrap().key, None, "{spec}");
        assert_eq!(catalogue.credential(&model.provider), Credential::Present, "{spec}");
    }
    // A server that needs no key is not a key: nothing is chosen because of it.
    assert_eq!(catalogue.choose(&[]).unwrap_err().kind, ErrorKind::Auth);
}

#[test]
fn a_broken_address_and_an_unknown_provider_are_configuration_errors() {
    let error = choose(&[("OPENAI_BASE_URL", "localhost:8080/v1")], &[], "openai/x").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config);
    assert!(error.message.starts_with("OPENAI_BASE_URL must be"), "{error:?}");
    assert_eq!(choose(&[], &[], "azure/x").unwrap_err().kind, ErrorKind::Config);
    let env = Env::default();
    let settings = settings(&env, &["providers.opneai.api_key=$K", "models.m.id=nobody/x"]);
    let error = Catalogue::new(&settings, &env).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config);
    let lines: Vec<&str> = error.message.lines().collect();
    assert_eq!(
        lines,
        [
            "--set: providers.opneai needs a base_url; no provider of this name is built in (did you mean providers.openai?)",
            "--set: models.m.id names the provider nobody, which does not exist",
        ]
    );
    assert_eq!(settings.origin("models.m.id"), &Origin::Flag("--set".to_owned()));
}

#[test]
fn the_list_has_every_model_once_with_its_facts_and_whether_it_can_be_used() {
    let catalogue =
        catalogue(&[("GROQ_API_KEY", "k")], &[LOCAL[0], "models.m.id=local/some", "models.n.id=openai/gpt-4o"]);
    let all = catalogue.list("").unwrap();
    let specs: Vec<String> = all.iter().map(|row| row.model.spec()).collect();
    assert!(specs.is_sorted_by(|a, b| a < b), "sorted, each once");
    for spec in ["demo/demo", "local/some", "openai/gpt-4o", "groq/openai/gpt-oss-120b"] {
        assert!(specs.iter().any(|known| known == spec), "{spec}");
    }
    let configured: Vec<&str> =
        all.iter().filter(|row| row.configured).map(|row| row.model.provider.as_str()).collect();
    assert!(configured.iter().all(|provider| ["demo", "groq", "local"].contains(provider)));
    let found = catalogue.list("OPENAI/ 4o mini").unwrap();
    assert!(found.len() >= 2 && found.iter().all(|row| row.model.id.contains("4o-mini")));
    assert!(catalogue.list("no such model").unwrap().is_empty());
    let row = serde_json::to_value(&catalogue.list("openai/gpt-4o-2024-05-13").unwrap()[0]).unwrap();
    assert_eq!(
        (&row["id"], &row["configured"], &row["contextWindow"]),
        (&json!("gpt-4o-2024-05-13"), &json!(false), &json!(128_000))
    );
    assert_eq!(row["cost"]["output"], 15.0);
}

#[test]
fn every_dialect_of_the_catalogue_and_every_configured_switch_is_one_the_wire_reads() {
    let known: Vec<String> = pirn::config::keys().into_iter().map(|info| info.key).collect();
    for key in Compat::KEYS {
        assert!(known.contains(&format!("providers.NAME.compat.{key}")), "{key}");
    }
    for row in catalogue(&[], &["models.m.id=azure/x", "providers.azure.base_url=https://a.openai.azure.com"])
        .list("")
        .unwrap()
    {
        let read = Compat::from_map(&row.model.compat);
        assert!(read.is_ok(), "{}: {read:?}", row.model.spec());
    }
    let words: Value = json!(OptionalField::ALL.map(OptionalField::as_str));
    let set = format!("providers.local.compat.optional_fields={words}");
    let compat = compat(&[], &[LOCAL[0], &set], "local/x");
    assert_eq!(Compat::from_map(&compat).unwrap(), Compat::default());
}
