//! Errors of providers, from bodies as servers send them to the record a run ends with (ERR-2 to ERR-9, RETRY-3,
//! RETRY-4, OVF-4; section G of `tests/cases/providers.md`).

use std::time::Duration;

use pirn::model::{ErrorKind, ErrorRecord, Secret};
use pirn::provider::error::{self, ErrorContext, http_error, request_id, stream_error};
use serde_json::{Value, json};

use ErrorKind::{
    Auth, Config, ContentFilter, InvalidRequest, ModelBehavior, Network, NotFound, Overflow, Overloaded, Permission,
    Protocol, Quota, RateLimit, Server, Timeout,
};

const KEY: &str = "k-0123456789-secret";

fn context(provider: &str) -> ErrorContext {
    ErrorContext {
        provider: provider.to_owned(),
        url: Some("https://user:pw@api.example.com/v1/chat/completions?k=v".to_owned()),
        key_sources: vec!["EXAMPLE_API_KEY".to_owned()],
        secrets: vec![Secret::new(KEY)],
        now_ms: 784_111_777_000,
        ..ErrorContext::default()
    }
}

fn headers(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn answer(status: u16, pairs: &[(&str, &str)], body: &str) -> ErrorRecord {
    http_error(status, &headers(pairs), body.as_bytes(), &context("openai"))
}

fn with_body(status: u16, body: &Value) -> ErrorRecord {
    answer(status, &[], &body.to_string())
}

/// Status, headers and body of a recorded response.
fn capture(path: &str) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let file = format!("{}/tests/captures/{path}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let split = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    let head = std::str::from_utf8(&bytes[..split]).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.map(|line| line.split_once(':').unwrap()).map(|(n, v)| (n.to_owned(), v.trim().to_owned()));
    (status, headers.collect(), bytes[split + 4..].to_vec())
}

#[test]
fn recorded_errors_of_real_servers_are_classified() {
    for (path, kind, retryable, sizes, text) in [
        ("litellm/err_401.http", InvalidRequest, false, None, "openai 400: No connected db."),
        ("litellm/err_mock-500.http", Server, true, None, "openai 500: litellm.InternalServerError: this is a mock"),
        ("litellm/err_mock-ctx.http", Overflow, false, None, "openai 400: litellm.ContextWindowExceededError"),
        ("litellm/err_mock-err429.http", RateLimit, true, None, "openai 429: litellm.RateLimitError"),
        ("litellm/err_nosuch.http", InvalidRequest, false, None, "openai 400: /chat/completions: Invalid model name"),
        ("litellm_llama/chat_overflow.http", Overflow, false, Some((6010, 4096)), "openai 400: litellm.Context"),
        ("litellm_llama/messages_overflow.http", Overflow, false, Some((6010, 4096)), "openai 400: litellm.Context"),
        ("litellm_llama/responses_overflow.http", Overflow, false, Some((6010, 4096)), "openai 400: litellm.Context"),
        ("litellm_llama/bad_json.http", InvalidRequest, false, None, "openai 400: Invalid JSON payload"),
        ("litellm_llama/missing_messages.http", InvalidRequest, false, None, "openai 400: /chat/completions: Missing"),
        ("llamacpp/chat_overflow.http", Overflow, false, Some((6010, 4096)), "openai 400: request (6010 tokens)"),
        ("llamacpp/messages_overflow.http", Overflow, false, Some((6010, 4096)), "openai 400: request (6010 tokens)"),
        ("llamacpp/responses_overflow.http", Overflow, false, Some((6010, 4096)), "openai 400: request (6010 tokens)"),
        ("llamacpp/bad_json.http", Server, true, None, "openai 500: [json.exception.parse_error.101]"),
        ("llamacpp/missing_messages.http", InvalidRequest, false, None, "openai 400: 'messages' is required"),
    ] {
        let (status, headers, body) = capture(path);
        let record = http_error(status, &headers, &body, &context("openai"));
        assert_eq!((record.kind, record.retryable), (kind, retryable), "{path}");
        assert_eq!(record.prompt_tokens.zip(record.limit), sizes, "{path}");
        assert!(record.message.starts_with(text), "{path}: {}", record.message);
        assert_eq!(record.http_status, Some(status), "{path}");
    }
}

#[test]
fn every_row_of_the_status_table_has_its_kind_err_6() {
    for (statuses, kind, retryable) in [
        (&[400_u16, 405, 410, 415, 422, 431, 451, 418, 501, 505][..], InvalidRequest, false),
        (&[401], Auth, false),
        (&[402], Quota, false),
        (&[403], Permission, false),
        (&[404], NotFound, false),
        (&[408], Timeout, true),
        (&[409, 425, 498, 499], Server, true),
        (&[413], Overflow, false),
        (&[421], Network, true),
        (&[424, 429], RateLimit, true),
        (&[500, 502, 504, 507, 520, 521, 522, 523, 524, 525, 526, 527, 530, 599], Server, true),
        (&[503, 529], Overloaded, true),
        (&[301, 302, 303], Config, false),
    ] {
        for status in statuses {
            for body in ["", "{\"error\":{\"message\":\"m\"}}", "plain words"] {
                let record = answer(*status, &[], body);
                assert_eq!((record.kind, record.retryable), (kind, retryable), "{status} {body}");
            }
        }
    }
}

#[test]
fn every_body_shape_gives_its_message() {
    for (body, want) in [
        (json!({"error": {"message": "m", "type": "t", "param": null, "code": "c"}}), "m"),
        (json!({"error": {"message": "m", "code": 7}}), "m"),
        (json!({"error": "model 'x' not found"}), "model 'x' not found"),
        (json!({"error": "bad_thing", "message": "m"}), "m"),
        (json!({"error": "Not Found", "message": "no such page"}), "Not Found: no such page"),
        (json!({"object": "error", "message": "m", "type": "t", "code": 3280}), "m"),
        (json!({"detail": [{"loc": ["body", "x"], "msg": "m"}, {"msg": "n"}]}), "body.x: m; n"),
        (json!({"detail": "m"}), "m"),
        (json!({"detail": [{"msg": "m"}]}), "m"),
        (json!({"object": "error", "message": "m", "type": "BadRequestError", "code": 400}), "m"),
        (json!({"type": "error", "error": {"type": "invalid_request_error", "message": "m"}}), "m"),
        (json!({"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT", "details": []}}), "m"),
        (json!([{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}]), "m"),
        (
            json!({"error": {"message": "Provider returned error", "metadata": {"raw": "upstream: no"}}}),
            "Provider returned error: upstream: no",
        ),
        (
            json!({"error": {"message": "failed", "metadata": {"raw": "{\"error\":{\"message\":\"deep\"}}", "provider_name": "P"}}}),
            "failed (P): deep",
        ),
        (json!({"error": {"message": "has it all", "metadata": {"raw": "it"}}}), "has it all"),
        (json!({"errors": [{"code": 1, "message": "m"}]}), "m"),
        (json!({"error": {"message": {"message": "m"}}}), "m"),
        (json!({"message": "m"}), "m"),
        (json!({"unknown": 1}), "{\"unknown\":1}"),
    ] {
        let record = with_body(400, &body);
        assert_eq!(record.message, format!("openai 400: {want}"), "{body}");
        assert_eq!(record.kind, InvalidRequest, "{body}");
    }
}

#[test]
fn code_type_and_request_id_of_a_body_are_kept() {
    let body = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "slow", "code": 12}, "request_id": "req_1"});
    let record = with_body(429, &body);
    assert_eq!(record.type_.as_deref(), Some("rate_limit_error"));
    assert_eq!(record.code.as_deref(), Some("12"));
    assert_eq!(record.request_id.as_deref(), Some("req_1"));
    assert_eq!(record.message, "openai 429: slow (request id req_1)");
    assert_eq!(record.provider.as_deref(), Some("openai"));
}

#[test]
fn the_request_id_is_the_first_of_the_known_headers_http_13() {
    let id = |pairs: &[(&str, &str)]| request_id(&headers(pairs));
    assert_eq!(id(&[("cf-ray", "c"), ("X-Request-Id", "x")]).as_deref(), Some("x"));
    assert_eq!(id(&[("mistral-correlation-id", "m"), ("apim-request-id", "a")]).as_deref(), Some("a"));
    assert_eq!(id(&[("request-id", "")]), None);
    let record = answer(500, &[("cf-ray", "c\u{1b}")], "");
    assert!(record.message.ends_with("(request id c\\u001b)"), "{}", record.message);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_overflow_text_is_recognised() {
    for (text, prompt_tokens, limit) in [
        ("prompt is too long: 213462 tokens > 200000 maximum", Some(213_462), Some(200_000)),
        ("input length and `max_tokens` exceed context limit: 1 + 2 > 3", None, None),
        ("Your input exceeds the context window of this model.", None, None),
        (
            "This model's maximum context length is 1,024 tokens. However, you requested 1029 tokens",
            Some(1_029),
            Some(1_024),
        ),
        (
            "This model's maximum context length is 1024 tokens. However, you requested 1029 tokens (1005 in the messages, 24 in the completion).",
            Some(1_005),
            Some(1_024),
        ),
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            Some(9_000),
            Some(8_192),
        ),
        ("Input exceeds the model's maximum context length of 131072 tokens", None, Some(131_072)),
        ("prompt exceeds maximum context length (4096)", None, Some(4_096)),
        (
            "The input token count (1197207) exceeds the maximum number of tokens allowed (1048576).",
            Some(1_197_207),
            Some(1_048_576),
        ),
        (
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            Some(537_812),
            Some(131_072),
        ),
        ("Please reduce the length of the messages or completion.", None, None),
        ("The prompt exceeds the maximum allowed input length of 5000 tokens", None, Some(5_000)),
        ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", Some(5_000), Some(4_096)),
        (
            "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            Some(65_673),
            Some(32_768),
        ),
        (
            "request (6010 tokens) exceeds the available context size (4096 tokens), try increasing it",
            Some(6_010),
            Some(4_096),
        ),
        (
            "Trying to keep the first 900 tokens when context the overflows. However, the model is loaded with context length of only 512 tokens",
            Some(900),
            Some(512),
        ),
        ("The number of tokens to keep is greater than the context length", None, None),
        ("Context size has been exceeded.", None, None),
        ("prompt too long; exceeded max context length by 4 tokens", None, None),
        ("The decoder prompt (length 5000) is longer than the maximum model length of 4096.", Some(5_000), Some(4_096)),
        ("prompt token count of 156430 exceeds the limit of 128000", Some(156_430), Some(128_000)),
        ("invalid params, context window exceeds limit", None, None),
        ("Your request exceeded model token limit: 262144 (requested: 291351)", Some(291_351), Some(262_144)),
        ("Prompt has 5000 tokens, but the configured context size is 4096 tokens", Some(5_000), Some(4_096)),
        ("Range of input length should be [1, 30720]", None, None),
        ("Input is too long for requested model.", None, None),
        ("litellm.ContextWindowExceededError: x", None, None),
        ("Too many tokens", None, None),
        ("token limit exceeded", None, None),
    ] {
        let body = json!({"error": {"message": text}});
        for record in [with_body(400, &body), stream_error(&body, &context("openai"))] {
            assert_eq!((record.kind, record.retryable), (Overflow, false), "{text}");
            assert_eq!((record.prompt_tokens, record.limit), (prompt_tokens, limit), "{text}");
        }
    }
    for (body, what) in [
        (json!({"error": {"message": "m", "code": "context_length_exceeded"}}), "OpenAI"),
        (json!({"error": {"message": "m", "type": "request_too_large"}}), "Anthropic"),
        (json!({"error": {"message": "m", "type": "exceed_context_size_error"}}), "llama.cpp"),
        (json!({"error": {"message": "m", "code": "1261"}}), "z.ai"),
    ] {
        assert_eq!(with_body(400, &body).kind, Overflow, "{what}");
    }
}

#[test]
fn an_empty_400_is_an_overflow_for_cerebras_only() {
    for (provider, kind) in [("cerebras", Overflow), ("openai", InvalidRequest)] {
        assert_eq!(http_error(400, &[], b"", &context(provider)).kind, kind);
    }
}

#[test]
fn texts_about_rates_and_other_limits_are_no_overflow_case_120() {
    for (status, text, kind, retryable) in [
        (400, "ThrottlingException: Too many tokens, please wait before trying again (rate limit)", RateLimit, true),
        (429, "ThrottlingException: Too many tokens, please wait before trying again.", RateLimit, true),
        (429, "Too many tokens, please wait", RateLimit, true),
        (429, "Token limit exceeded for today", RateLimit, true),
        (503, "Service unavailable: maximum context length is 10 tokens", Overloaded, true),
        (400, "number of tools exceeds the limit of 128", InvalidRequest, false),
        (400, "max 500 tokens, please", InvalidRequest, false),
    ] {
        let record = with_body(status, &json!({"error": {"message": text}}));
        assert_eq!((record.kind, record.retryable), (kind, retryable), "{status} {text}");
    }
}

#[test]
fn anthropic_names_the_size_of_the_prompt_case_119() {
    let body = json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": "prompt is too long: 213462 tokens > 200000 maximum"}});
    let record = with_body(400, &body);
    assert_eq!((record.kind, record.retryable), (Overflow, false));
    assert_eq!((record.prompt_tokens, record.limit), (Some(213_462), Some(200_000)));
}

#[test]
fn the_servers_delay_is_kept_case_121() {
    for (pairs, want) in [
        (&[("retry-after", "2")][..], 2_000),
        (&[("Retry-After", "Sun, 06 Nov 1994 08:49:40 GMT")], 3_000),
        (&[("retry-after-ms", "150.5"), ("retry-after", "2")], 151),
    ] {
        let record = answer(429, pairs, "");
        assert_eq!((record.kind, record.retryable), (RateLimit, true));
        assert_eq!(record.retry_after_ms, Some(want), "{pairs:?}");
    }
}

#[test]
fn a_longer_wait_than_allowed_is_no_retry_and_both_times_are_named_case_122() {
    for status in [429, 503] {
        let record = answer(status, &[("retry-after", "3600")], "");
        assert_eq!((record.kind, record.retryable), (RateLimit, false), "{status}");
        assert!(record.message.contains("3600 s") && record.message.contains("60 s"), "{}", record.message);
    }
    let unbounded = ErrorContext { retry_delay_max: None, ..context("openai") };
    let record = http_error(429, &headers(&[("retry-after", "3600")]), b"", &unbounded);
    assert!(record.retryable && record.retry_after_ms == Some(3_600_000));
    let exact = ErrorContext { retry_delay_max: Some(Duration::from_secs(3_600)), ..context("openai") };
    assert!(http_error(429, &headers(&[("retry-after", "3600")]), b"", &exact).retryable);
}

#[test]
fn a_delay_in_the_text_counts_too_case_147() {
    let record = with_body(429, &json!({"error": {"message": "Please retry in 10h17m5.7s."}}));
    assert_eq!((record.kind, record.retryable), (RateLimit, false));
    assert!(record.message.contains("10h17m5.7s") && record.message.contains("37025.7 s"), "{}", record.message);
}

#[test]
fn a_spent_budget_is_never_retried_case_123_err_4() {
    for (status, body) in [
        (429, json!({"error": {"message": "m", "code": "insufficient_quota", "type": "insufficient_quota"}})),
        (429, json!({"error": {"message": "m", "code": "project_spend_limit_exceeded"}})),
        (
            429,
            json!({"error": {"type": "rate_limit_error", "message": "m",
            "details": {"error_code": "enforced_spend_limit_reached"}}}),
        ),
        (402, json!({"error": {"message": "m"}})),
        (402, json!({})),
        (400, json!({"error": {"type": "billing_error", "message": "m"}})),
        (400, json!({"error": {"message": "Your credit balance is too low"}})),
        (429, json!({"error": {"message": "m", "type": "GoUsageLimitError"}})),
        (429, json!({"error": {"message": "Quota exceeded for this key"}})),
        (500, json!({"error": {"message": "Insufficient Balance"}})),
        (429, json!({"error": {"message": "m", "code": "weight_exceeds_budget"}})),
    ] {
        let record = answer(status, &[("x-should-retry", "true")], &body.to_string());
        assert_eq!((record.kind, record.retryable), (Quota, false), "{status} {body}");
    }
    let body = json!({"error": {"message": "m", "code": "in_flight_budget_exhausted"}});
    assert!(with_body(402, &body).retryable);
}

#[test]
fn googles_quotas_per_minute_come_back_and_those_per_day_do_not_case_124() {
    let body = |quota: &str, text: &str| {
        json!({"error": {"code": 429, "message": text, "status": "RESOURCE_EXHAUSTED", "details": [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "46s"}]}})
    };
    let minute = with_body(429, &body("GenerateRequestsPerMinutePerProject", "Quota exceeded, limit: 05"));
    assert_eq!((minute.kind, minute.retryable, minute.retry_after_ms), (RateLimit, true, Some(46_000)));
    for (quota, text) in
        [("GenerateRequestsPerDayPerProject", "m"), ("PerMinute", "Quota exceeded, limit: 0, model: x")]
    {
        for value in [body(quota, text), json!([body(quota, text)])] {
            let record = with_body(429, &value);
            assert_eq!((record.kind, record.retryable), (Quota, false), "{quota} {text}");
        }
    }
}

#[test]
fn a_request_larger_than_a_limit_per_minute_is_an_overflow_case_125_err_9() {
    for (requested, kind, retryable) in [(8_590, Overflow, false), (7_000, RateLimit, true), (8_000, RateLimit, true)] {
        let text = format!(
            "Request too large for model `m` on tokens per minute (TPM): Limit 8000, Requested {requested}, please reduce your message size and try again."
        );
        for status in [413, 429] {
            let record = with_body(status, &json!({"error": {"message": text, "code": "rate_limit_exceeded"}}));
            assert_eq!((record.kind, record.retryable), (kind, retryable), "{status} {requested}");
        }
    }
}

#[test]
fn a_refused_key_names_its_variable_and_is_masked_case_126() {
    for text in [format!("Incorrect API key provided: {KEY}."), "Incorrect API key provided: sk-ab***yz".to_owned()] {
        let record = with_body(401, &json!({"error": {"message": text, "type": "authentication_error", "code": 401}}));
        assert_eq!((record.kind, record.retryable), (Auth, false));
        assert!(record.message.starts_with("openai 401: Incorrect API key provided: ***"), "{}", record.message);
        let hint = record.hint.clone().unwrap();
        assert!(hint.contains("EXAMPLE_API_KEY") && hint.contains("api.example.com"), "{hint}");
        let line = serde_json::to_string(&record).unwrap();
        assert!(!line.contains(KEY) && !line.contains("sk-ab"), "{line}");
    }
    let nameless = ErrorContext { key_sources: Vec::new(), ..context("local") };
    assert_eq!(
        http_error(401, &[], b"", &nameless).hint.as_deref(),
        Some("no key was found for local at api.example.com")
    );
    let masked = http_error(
        500,
        &[],
        format!("{{\"error\":{{\"message\":\"m\",\"code\":\"{KEY}\"}}}}").as_bytes(),
        &context("x"),
    );
    assert_eq!(masked.code.as_deref(), Some("***"));
}

#[test]
fn a_wrong_key_answered_with_400_is_auth_all_the_same() {
    for body in [
        json!({"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***."}),
        json!({"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT",
            "details": [{"reason": "API_KEY_INVALID"}]}}),
        json!({"error": {"message": "m", "code": "invalid_api_key"}}),
    ] {
        assert_eq!(with_body(400, &body).kind, Auth, "{body}");
    }
}

#[test]
fn a_server_that_says_not_to_retry_is_not_asked_again_later() {
    let headers = [("x-should-retry", "false")];
    assert_eq!(answer(503, &headers, r#"{"error": {"message": "m"}}"#).hint, None);
    let record = answer(429, &[("retry-after", "3600")], r#"{"error": {"message": "m"}}"#);
    assert!(
        record.message.ends_with("[the server asks to wait 3600 s, longer than the 60 s that are waited for at most]")
    );
}

#[test]
fn a_web_page_is_shown_by_its_title_case_127() {
    let page = "<!DOCTYPE html>\n<html><head><style>b{}</style><title>502 Bad\n Gateway &amp; more</title></head><body><h1>x</h1></body></html>";
    let record = answer(502, &[], page);
    assert_eq!((record.kind, record.retryable), (Server, true));
    assert_eq!(record.message, "openai 502: 502 Bad Gateway & more");
    assert_eq!(record.hint.as_deref(), Some("the answer came from api.example.com"));
    assert_eq!(answer(502, &[], "<html><h1>Down</h1>for <b>now</b></html>").message, "openai 502: Down");
    assert_eq!(answer(502, &[], "<html>Down for <b>now</b></html>").message, "openai 502: Down for now");
    let long = answer(502, &[], &format!("<html><title>{}</title>", "x".repeat(9_000)));
    assert!(long.message.chars().count() <= 4_000 + "openai 502: ".len());
    let refused = answer(403, &[], page);
    assert_eq!(refused.kind, Permission);
    assert!(refused.message.contains("blocked by proxy or region"), "{}", refused.message);
}

#[test]
fn an_error_framed_as_an_event_stream_is_read_case_128() {
    let body = "data: {\"error\":{\"message\":\"boom\",\"type\":\"overloaded_error\"}}\n\ndata: [DONE]\n\n";
    let record = answer(500, &[("content-type", "text/event-stream")], body);
    assert_eq!((record.kind, record.retryable), (Overloaded, true));
    assert_eq!(record.message, "openai 500: boom");
}

#[test]
fn a_redirect_that_is_not_followed_names_its_target_case_129() {
    let record = answer(302, &[("location", "https://u:p@other.example/v1?key=abc")], "<html>moved</html>");
    assert_eq!((record.kind, record.retryable), (Config, false));
    assert_eq!(record.message, "openai 302: redirected to https://other.example/v1, which is not followed");
}

#[test]
fn the_server_may_overrule_the_status_case_130_retry_5() {
    for (status, value, retryable) in [(503, "false", false), (400, "true", true), (503, "maybe", true)] {
        assert_eq!(answer(status, &[("x-should-retry", value)], "").retryable, retryable, "{status} {value}");
    }
    let overflow = json!({"error": {"message": "prompt is too long"}}).to_string();
    assert!(!answer(400, &[("x-should-retry", "true")], &overflow).retryable);
}

#[test]
fn codes_worth_another_attempt_are_known_err_5() {
    for (word, kind) in [
        ("rate_limit_exceeded", RateLimit),
        ("slow_down", RateLimit),
        ("server_is_overloaded", Overloaded),
        ("service_unavailable", Overloaded),
        ("api_error", Server),
        ("timeout_error", Timeout),
        ("tool_use_failed", ModelBehavior),
        ("DEADLINE_EXCEEDED", Timeout),
        ("ThrottlingException", RateLimit),
        ("ModelNotReadyException", Overloaded),
    ] {
        for body in [json!({"error": {"message": "m", "code": word}}), json!({"error": {"message": "m", "type": word}})]
        {
            let http = with_body(400, &body);
            let stream = stream_error(&body, &context("openai"));
            for record in [http, stream] {
                assert_eq!((record.kind, record.retryable), (kind, true), "{word}");
            }
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn an_error_object_in_a_stream_is_classified_by_code_type_and_text() {
    for (body, kind, retryable, message) in [
        // case 52
        (json!({"error": {"message": "upstream died", "code": 502}}), Server, true, "openai 502: upstream died"),
        // NET-07
        (json!({"choices": [], "error": {"code": 502, "message": "m"}}), Server, true, "openai 502: m"),
        (json!({"error": {"message": "quota"}}), Protocol, false, "openai: quota"),
        // case 53
        (
            json!({"object": "error", "code": 400, "message":
                "This model's maximum context length is 1024 tokens. However, you requested 1029 tokens"}),
            Overflow,
            false,
            "openai 400: This model's",
        ),
        // case 54
        (
            json!({"error": "x", "message": "Trying to keep the first 900 tokens when context the overflows. … only 512 tokens"}),
            Overflow,
            false,
            "openai: Trying",
        ),
        // case 68, case 92
        (
            json!({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}),
            Overloaded,
            true,
            "openai 503: Loading",
        ),
        (
            json!({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}),
            Overloaded,
            true,
            "openai 503: over",
        ),
        // Anthropic's types
        (
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
            Overloaded,
            true,
            "openai: Over",
        ),
        (
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "m"}}),
            InvalidRequest,
            false,
            "openai 400: m",
        ),
        (json!({"type": "error", "error": {"type": "authentication_error", "message": "m"}}), Auth, false, "openai: m"),
        (
            json!({"type": "error", "error": {"type": "permission_error", "message": "m"}}),
            Permission,
            false,
            "openai 403: m",
        ),
        (
            json!({"type": "error", "error": {"type": "not_found_error", "message": "m"}}),
            NotFound,
            false,
            "openai 404: m",
        ),
        (json!({"type": "error", "error": {"type": "conflict_error", "message": "m"}}), Server, true, "openai 409: m"),
        (
            json!({"type": "error", "error": {"type": "request_too_large", "message": "m"}}),
            Overflow,
            false,
            "openai: m",
        ),
        // cases 76 to 78
        (
            json!({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "m"}}}),
            Server,
            true,
            "openai: m",
        ),
        (json!({"type": "error", "code": "server_error", "message": ""}), Server, true, "openai: {\"type\":\"error\""),
        // ERR-7 and ERR-8
        (json!({"error": {"message": "Upstream connect error or disconnect"}}), Network, true, "openai: Upstream"),
        (json!({"error": {"message": "We are experiencing high demand"}}), Overloaded, true, "openai: We"),
        (json!({"error": {"message": "the request timed out"}}), Timeout, true, "openai: the"),
        (json!({"error": {"message": "at most 500 tokens"}}), Protocol, false, "openai: at most"),
        (json!({"error": {"message": "m", "code": "content_filter"}}), ContentFilter, false, "openai: m"),
    ] {
        let record = stream_error(&body, &context("openai"));
        assert_eq!((record.kind, record.retryable), (kind, retryable), "{body}");
        assert!(record.message.starts_with(message), "{body}: {}", record.message);
    }
}

#[test]
fn a_delay_in_a_stream_error_is_kept_case_76() {
    let body = json!({"type": "response.failed", "response": {"error":
        {"code": "rate_limit_exceeded", "message": "Please try again in 1.5s."}}});
    let context = ErrorContext { request_id: Some("req_9".to_owned()), ..context("openai") };
    let record = stream_error(&body, &context);
    assert_eq!((record.kind, record.retryable, record.retry_after_ms), (RateLimit, true, Some(1_500)));
    assert_eq!(record.message, "openai: Please try again in 1.5s. (request id req_9)");
}

#[test]
fn answers_that_are_no_apis_still_say_what_came_and_from_where_net_31() {
    let big = "x".repeat(5_000_000);
    for (status, body, kind, retryable, message) in [
        (400, "", InvalidRequest, false, "openai 400: Bad Request (no body)".to_owned()),
        (529, "", Overloaded, true, "openai 529: (no body)".to_owned()),
        (403, "no entry", Permission, false, "openai 403: no entry".to_owned()),
        (401, "{\"detail\":[{\"msg\":\"m\"}]}", Auth, false, "openai 401: m".to_owned()),
        (500, big.as_str(), Server, true, format!("openai 500: {}…", "x".repeat(3_999))),
        (500, "\u{FEFF}  ", Server, true, "openai 500: Internal Server Error (no body)".to_owned()),
    ] {
        let record = answer(status, &[], body);
        assert_eq!((record.kind, record.retryable), (kind, retryable), "{status}");
        assert_eq!(record.message, message);
        assert!(record.hint.as_deref().unwrap().contains("api.example.com"), "{:?}", record.hint);
    }
    let binary = http_error(500, &[], b"\xff\xfe\x00", &context("openai"));
    assert_eq!(binary.message, "openai 500: \u{FFFD}\u{FFFD}\\u0000");
}

#[test]
fn a_404_shows_the_address_without_credentials_cfg_06() {
    let record = answer(404, &[], "");
    let hint = record.hint.unwrap();
    assert!(hint.ends_with("https://api.example.com/v1/chat/completions"), "{hint}");
    assert!(!record.retryable);
}

#[test]
fn a_web_page_with_status_200_is_a_wrong_address() {
    let record = answer(200, &[], "<html><title>Welcome</title></html>");
    assert_eq!((record.kind, record.retryable), (Config, false));
    assert!(record.message.contains("not an API endpoint") && record.message.contains("Welcome"), "{}", record.message);
    assert_eq!(answer(200, &[], "hello").kind, Protocol);
    assert_eq!(with_body(200, &json!({"error": {"message": "m", "code": 503}})).kind, Overloaded);
}

#[test]
fn broken_connections_are_worth_another_attempt_and_certificates_are_not_err_3() {
    let context = context("openai");
    let network = error::network(&context, "connection refused");
    assert_eq!((network.kind, network.retryable), (Network, true));
    assert_eq!(network.message, "openai: connection refused");
    assert!(network.hint.unwrap().ends_with("https://api.example.com/v1/chat/completions"));
    let timeout = error::timeout(&context, "idle timeout: no data for 300 s");
    assert_eq!((timeout.kind, timeout.retryable), (Timeout, true));
    let certificate = error::certificate(&context, "unknown issuer");
    assert_eq!((certificate.kind, certificate.retryable), (Network, false));
    assert!(certificate.hint.unwrap().contains("SSL_CERT_FILE"));
    let config = error::config(&context, &format!("bad proxy http://u:{KEY}@proxy"));
    assert_eq!((config.kind, config.retryable), (Config, false));
    assert!(!config.message.contains(KEY));
}
