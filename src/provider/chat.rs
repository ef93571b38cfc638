//! OpenAI Chat Completions and the servers compatible with it, as a [`Provider`].
//!
//! Keeps true: one attempt per request, but for repairs the server itself asked for (OC-18) and one with a renewed key
//! (KEY-2); the key stands in one header and in no URL, error or event; every failure is the end of the stream.
//!
//! Must not know: loops, tools, sessions, the environment.

mod guard;
mod key;
mod memory;
mod reply;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio_util::sync::CancellationToken;

use self::guard::Guard;
pub use self::key::KeySource;
use self::key::{Key, Renewal};
use self::memory::Memory;
use self::reply::{LateBreak, Reply};
use crate::model::{AssistantHead, Diagnostic, ErrorKind, ErrorRecord, Headers, Secret};
use crate::port::{AssistantEvent, LlmRequest, Provider, ProviderEvent, ResponseMeta};
use crate::provider::compat::Compat;
use crate::provider::error::{self, ErrorContext, http_error};
use crate::provider::http::{HttpClient, HttpError, PostRequest, Refusal, Response};
use crate::provider::settle::{Inner, settle};
use crate::provider::url::{chat_endpoint, host_and_port, sends_key_in_clear};
use crate::provider::wire::openai_chat::encode::{
    self, REPAIRS_PER_REQUEST_MAX, Repair, Repairs, RequestChars, repair_for,
};
use crate::provider::wire::openai_chat::{ChatDecoder, ChatDecoderOptions};

/// What a provider is configured with.
#[derive(Clone, Debug)]
pub struct ChatSettings {
    /// Provider id; the first word of error messages.
    pub provider: String,
    /// The configured key; the one of a request beats it.
    pub api_key: Option<Secret>,
    /// Where another one may come from when a server refuses it (KEY-2).
    pub key_source: Option<Arc<dyn KeySource>>,
    /// Whether a request without a key fails before it is sent.
    pub key_required: bool,
    /// What would supply a key, as users write it: `OPENAI_API_KEY`, `providers.local.api_key`.
    pub key_hint: Vec<String>,
    /// On top of the model's own headers (HTTP-3).
    pub headers: Headers,
    /// `retry.max_delay`: a longer wait asked for by a server is no retry (RETRY-4). `None` = no bound.
    pub retry_delay_max: Option<Duration>,
}

impl ChatSettings {
    /// A server that needs no key.
    pub fn keyless(provider: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            api_key: None,
            key_source: None,
            key_required: false,
            key_hint: Vec::new(),
            headers: Headers::new(),
            retry_delay_max: ErrorContext::default().retry_delay_max,
        }
    }
}

/// The provider of every model whose `api` is `openai-completions`. The base URL is the model's.
#[derive(Clone, Debug)]
pub struct ChatProvider {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: ChatSettings,
    key: Key,
    http: HttpClient,
    memory: Memory,
}

impl ChatProvider {
    /// A provider over a client; sends nothing.
    pub fn new(settings: ChatSettings, http: HttpClient) -> Self {
        let key = Key::new(settings.api_key.clone(), settings.key_source.clone());
        Self { shared: Arc::new(Shared { settings, key, http, memory: Memory::default() }) }
    }
}

impl Provider for ChatProvider {
    fn stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> BoxStream<'static, AssistantEvent> {
        let head = AssistantHead {
            api: request.model.api.clone(),
            provider: request.model.provider.clone(),
            model: request.model.id.clone(),
            timestamp: self.shared.http.clock().now_ms(),
        };
        let model = request.model.clone();
        let shared = self.shared.clone();
        settle(head, async move { shared.open(&request).await }, model, cancel).boxed()
    }
}

/// The status of a refused key.
const UNAUTHORIZED: u16 = 401;
/// The header that holds the key.
const AUTHORIZATION: &str = "authorization";

/// What came of a request.
enum Answer {
    Reply(Box<Response>),
    Refused(Box<Refusal>, ErrorRecord),
}

/// The parts of a request that stay the same when it is repaired.
struct Call<'a> {
    request: &'a Arc<LlmRequest>,
    compat: Compat,
    url: String,
    headers: Headers,
    context: ErrorContext,
    guard: Guard,
    /// What is told before the reply.
    before: Vec<ProviderEvent>,
}

impl Shared {
    /// Sends a request; what comes of it is masked.
    async fn open(&self, request: &Arc<LlmRequest>) -> Result<Inner, ErrorRecord> {
        let key = self.key(request);
        let headers = self.headers(request, key.as_ref());
        let context = self.context(key.as_ref(), &headers);
        let guard = Guard::new(&context.secrets);
        let mut call = self.prepare(request, headers, context, &guard).map_err(|record| guard.record(record))?;
        match self.send(&mut call, key).await {
            Ok(Answer::Reply(response)) => Ok(call.reply(*response)),
            Ok(Answer::Refused(refusal, record)) => Ok(call.refused(&refusal, record)),
            Err(record) => Err(call.guard.record(record)),
        }
    }

    async fn send(&self, call: &mut Call<'_>, mut key: Option<Secret>) -> Result<Answer, ErrorRecord> {
        let request = call.request;
        let mut repairs = self.memory.repairs(&request.model);
        let (mut attempt, mut repaired, mut renewed) = (0, 0, false);
        // Ends: a request is repaired a few times and signed anew once.
        loop {
            let body = call.body(&repairs)?;
            attempt += 1;
            let begun_ms = self.http.clock().monotonic_ms();
            tracing::debug!(model = request.model.spec(), attempt, bytes = body.len(), "request started");
            let answer = self.http.post(call.post(&body)).await;
            let waited_ms = self.http.clock().monotonic_ms().saturating_sub(begun_ms);
            let refusal = match answer {
                Ok(response) => {
                    tracing::debug!(status = response.meta.status, attempt, waited_ms, "request answered");
                    if repairs.leaves_out_images() {
                        self.memory.refuse_images(request);
                    }
                    if let Some(key) = &key {
                        self.key.accepted(key);
                    }
                    return Ok(Answer::Reply(Box::new(response)));
                }
                Err(HttpError::Failed(record)) => {
                    tracing::debug!(kind = record.kind.as_str(), attempt, waited_ms, "request failed");
                    return Err(record);
                }
                Err(HttpError::Status(refusal)) => refusal,
            };
            tracing::debug!(status = refusal.status, attempt, waited_ms, "request refused");
            if !renewed && let Some(other) = self.renewed(call, key.as_ref(), &refusal).await {
                renewed = true;
                key = Some(other);
                continue;
            }
            let record = http_error(refusal.status, &refusal.headers, &refusal.body, &refusal.context);
            let repair = repair_for(refusal.status, &record.message, &body, &call.compat, &repairs);
            let Some(repair) = repair.filter(|_| repaired < REPAIRS_PER_REQUEST_MAX) else {
                return Ok(Answer::Refused(refusal, record));
            };
            repaired += 1;
            repairs.add(repair);
            if repair.is_remembered() {
                self.memory.add(&request.model, repair);
            }
            call.before.push(told(repair));
        }
    }

    /// Signs a call anew whose key was refused, if its source has another one (KEY-2). Returns that.
    async fn renewed(&self, call: &mut Call<'_>, key: Option<&Secret>, refusal: &Refusal) -> Option<Secret> {
        let is_ours = call.request.options.api_key.is_none() && is_signed_with(&call.headers, key?);
        // Behind a redirect to somewhere else the key was not even sent.
        if refusal.status != UNAUTHORIZED || !is_ours || refusal.context.key_stayed_at.is_some() {
            return None;
        }
        let code = || "key_refresh".to_owned();
        let unchanged = match self.key.renew(key?).await {
            Renewal::Renewed(other) => {
                let message = "the key was refused and renewed".to_owned();
                call.before.push(ProviderEvent::Note(Diagnostic { code: code(), message }));
                return Some(self.sign(call, other));
            }
            Renewal::Same => "the key was refused, and its source gave the same one again".to_owned(),
            Renewal::Failed(record) => format!("the key was refused, and there is no other: {}", record.message),
            Renewal::None => return None,
        };
        call.before.push(ProviderEvent::Warning { code: code(), message: unchanged });
        None
    }

    /// Replaces the key of a call. Texts must show neither.
    fn sign(&self, call: &mut Call<'_>, key: Secret) -> Secret {
        call.headers = self.headers(call.request, Some(&key));
        let mut secrets = self.context(Some(&key), &call.headers).secrets;
        secrets.append(&mut call.context.secrets);
        call.guard = Guard::new(&secrets);
        call.context.secrets = secrets;
        key
    }

    /// The key of a request; its own beats the configured one.
    fn key(&self, request: &LlmRequest) -> Option<Secret> {
        request.options.api_key.clone().or_else(|| self.key.current())
    }

    fn headers(&self, request: &LlmRequest, key: Option<&Secret>) -> Headers {
        let mut headers = Headers::new();
        if let Some(key) = key {
            headers.set(AUTHORIZATION, Some(bearer(key)));
        }
        for more in [&request.model.headers, &self.settings.headers, &request.options.headers] {
            headers.merge(more);
        }
        headers
    }

    fn prepare<'a>(
        &self,
        request: &'a Arc<LlmRequest>,
        headers: Headers,
        mut context: ErrorContext,
        guard: &Guard,
    ) -> Result<Call<'a>, ErrorRecord> {
        let settings = &self.settings;
        if settings.key_required && context.secrets.is_empty() {
            return Err(missing_key(settings));
        }
        let compat = Compat::from_map(&request.model.compat)
            .map_err(|error| error::config(&context, &format!("{}: {error}", request.model.spec())))?;
        let url = chat_endpoint(&request.model.base_url)?;
        context.url = Some(url.clone());
        let mut before = Vec::new();
        if !context.secrets.is_empty() && sends_key_in_clear(&url) && self.memory.first_warning(&url) {
            let host = host_and_port(&url);
            let message =
                format!("the key of {} crosses the network unencrypted: {host} is not https", settings.provider);
            before.push(ProviderEvent::Warning { code: "insecure_key".to_owned(), message });
        }
        Ok(Call { request, compat, url, headers, context, guard: guard.clone(), before })
    }

    fn context(&self, key: Option<&Secret>, headers: &Headers) -> ErrorContext {
        let mut secrets: Vec<Secret> = key.cloned().into_iter().collect();
        for (name, value) in headers.iter() {
            if let Some(value) = value
                && Headers::is_secret_name(name)
            {
                secrets.push(Secret::new(value));
                // `Bearer KEY`: servers repeat the key without its scheme.
                secrets.extend(value.trim().rsplit_once(' ').map(|(_, credential)| Secret::new(credential)));
            }
        }
        ErrorContext {
            provider: self.settings.provider.clone(),
            request_id: None,
            url: None,
            key_sources: self.settings.key_hint.clone(),
            secrets,
            now_ms: self.http.clock().now_ms(),
            retry_delay_max: self.settings.retry_delay_max,
            ..ErrorContext::default()
        }
    }
}

impl Call<'_> {
    /// The body as it is sent; the observer may have replaced it (HTTP-14).
    fn body(&self, repairs: &Repairs) -> Result<Bytes, ErrorRecord> {
        let body = encode::body(self.request, &self.compat, repairs)?;
        let Some(observer) = &self.request.options.observers.on_payload else { return Ok(body.into()) };
        let internal = |error: serde_json::Error| {
            ErrorRecord::new(ErrorKind::Internal, format!("the request cannot be shown as JSON: {error}"))
        };
        let shown = serde_json::from_slice(&body).map_err(internal)?;
        match observer(&shown) {
            Some(replaced) => serde_json::to_vec(&replaced).map(Bytes::from).map_err(internal),
            None => Ok(body.into()),
        }
    }

    fn post(&self, body: &Bytes) -> PostRequest {
        PostRequest {
            url: self.url.clone(),
            headers: self.headers.clone(),
            body: body.clone(),
            timeouts: self.request.options.timeouts,
            context: self.context.clone(),
        }
    }

    fn reply(mut self, response: Response) -> Inner {
        let meta = self.guard.meta(response.meta);
        self.observe(&meta);
        self.context.request_id.clone_from(&meta.request_id);
        // Those of its way, such as a proxy's password, are secrets of its body too.
        self.context.secrets.clone_from(&response.secrets);
        let guard = Guard::new(&response.secrets);
        let options = ChatDecoderOptions {
            context: self.context,
            model_id: self.request.model.id.clone(),
            think_tags: self.compat.think_tags,
            finish_reason_required: self.compat.finish_reason,
            request_chars: RequestChars::Of(Arc::clone(self.request)),
            context_window: self.request.model.context_window,
            joins_deltas: true,
        };
        let late_break = if self.compat.finish_reason { LateBreak::Forgive } else { LateBreak::Fail };
        self.before.push(ProviderEvent::Meta(Box::new(meta)));
        let decoder = Box::new(ChatDecoder::new(options));
        guard.stream(Reply::new(self.before, response.body, decoder, late_break).boxed())
    }

    /// The facts of a refusal's head, then the error.
    fn refused(mut self, refusal: &Refusal, record: ErrorRecord) -> Inner {
        let meta = self.guard.meta(refusal.meta.clone());
        self.observe(&meta);
        self.before.push(ProviderEvent::Meta(Box::new(meta)));
        let events = self.before.into_iter().map(Ok).chain([Err(record)]);
        self.guard.stream(stream::iter(events.collect::<Vec<_>>()).boxed())
    }

    fn observe(&self, meta: &ResponseMeta) {
        if let Some(observer) = &self.request.options.observers.on_response {
            observer(meta);
        }
    }
}

fn bearer(key: &Secret) -> String {
    format!("Bearer {}", key.expose())
}

/// Whether it is this key that a server saw: a header of the user's own may have taken its place.
fn is_signed_with(headers: &Headers, key: &Secret) -> bool {
    let mut sent = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(AUTHORIZATION));
    sent.any(|(_, value)| value == Some(bearer(key).as_str()))
}

/// What is told of a repair. An answer without a look at the image may be wrong, so people see that on the way.
fn told(repair: Repair) -> ProviderEvent {
    let (code, message) = ("request_repaired".to_owned(), repair.note());
    match repair {
        Repair::LeaveOutImages => ProviderEvent::Warning { code: "image_refused".to_owned(), message },
        Repair::Drop(_) | Repair::SwapMaxTokens => ProviderEvent::Note(Diagnostic { code, message }),
    }
}

fn missing_key(settings: &ChatSettings) -> ErrorRecord {
    let mut text = format!("{}: no API key", settings.provider);
    if !settings.key_hint.is_empty() {
        text.push_str("; set ");
        text.push_str(&settings.key_hint.join(" or "));
    }
    let mut record = ErrorRecord::new(ErrorKind::Auth, text);
    record.provider = Some(settings.provider.clone());
    record
}
