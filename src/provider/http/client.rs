//! The client: one connection pool, one attempt per request, redirects by hand.
//!
//! Keeps true: nothing is built before it is asked for; a request is sent again only where a pooled connection was
//! already dead, once, before a byte of an answer came; certificates are read off the runtime's thread.
//!
//! Must not know: protocols, retries, where its settings come from.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, poll_fn, select};
use hyper_util::client::legacy::connect::HttpInfo;
use reqwest::Url;
use reqwest::header::{HeaderMap, LOCATION};

use super::body::ResponseBody;
use super::proxy::ProxyRules;
use super::redirect::{self, REDIRECTS_MAX};
use super::timers::Timers;
use super::{HttpError, HttpSettings, PostRequest, Refusal, Response, failure, headers, secrets, tls};
use crate::model::{ErrorKind, ErrorRecord};
use crate::port::Clock;
use crate::provider::error::{self, ErrorContext};
use crate::provider::url::{parse_base, shown};

/// How long an idle connection is kept for the next turn (HTTP-5).
const POOL_IDLE: Duration = Duration::from_secs(90);
/// Distance of HTTP/2 pings while a reply streams, and the wait for their answer (HTTP-4).
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How many connections that have answered are remembered.
const ANSWERED_MAX: usize = 64;

/// The HTTP client of the process. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct HttpClient {
    shared: Arc<Shared>,
}

struct Shared {
    settings: HttpSettings,
    clock: Arc<dyn Clock>,
    /// For cleartext: built without certificates (PERF-1).
    plain: OnceLock<Result<reqwest::Client, ErrorRecord>>,
    /// Which proxy a request takes, as it is told in errors.
    rules: OnceLock<Result<ProxyRules, ErrorRecord>>,
    secure: OnceLock<Result<reqwest::Client, ErrorRecord>>,
    /// Local addresses of connections that have answered a request, newest last. A request that fails on one of
    /// them was sent on a reused connection.
    answered: Mutex<VecDeque<SocketAddr>>,
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

impl HttpClient {
    /// Does nothing yet: the connection pool is built by the first request or by [`Self::prepare`].
    pub fn new(settings: HttpSettings, clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            settings,
            clock,
            plain: OnceLock::new(),
            rules: OnceLock::new(),
            secure: OnceLock::new(),
            answered: Mutex::new(VecDeque::new()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The clock behind every timer.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// Builds what requests to this address need. Blocks for the time certificates take to load (2–14 ms for a
    /// system store); meant for a thread that works while configuration and transcript are read. A failure is
    /// reported by the first request.
    pub fn prepare(&self, url: &str) {
        if is_secure(url) {
            drop(self.shared.secure());
        } else {
            drop(self.shared.plain());
        }
    }

    /// Checks what was configured for requests to this address, so that a mistake is found before anything is sent:
    /// the address itself, proxies, and certificate files that were named. Blocks while such files are read; pipes are
    /// left to the first request. Errors: kind `config`.
    pub fn check(&self, url: &str) -> Result<(), ErrorRecord> {
        parse_base(url)?;
        let settings = &self.shared.settings;
        let files = [&settings.ca_file, &settings.ssl_cert_file, &settings.ssl_cert_dir];
        let named: Vec<_> = files.into_iter().flatten().collect();
        // A pipe may keep its reader waiting; what is wrong with one is told by the first request.
        let waits = named.iter().any(|path| path.metadata().is_ok_and(|facts| !facts.is_file() && !facts.is_dir()));
        if !named.is_empty() && !waits && is_secure(url) {
            return self.shared.secure().map(drop);
        }
        self.shared.rules().map(drop)
    }

    /// Sends a request once and gives the body of a 2xx answer. Dropping the future cancels the request. A pooled
    /// connection that turns out dead before any byte of an answer is replaced silently, once (HTTP-5).
    pub async fn post(&self, request: PostRequest) -> Result<Response, HttpError> {
        let PostRequest { mut context, .. } = request;
        let mut url = parse(&request.url, &context)?;
        let mut headers = headers::request(&self.shared.settings.user_agent, &request.headers, &context)?;
        let mut timers = Timers::start(self.shared.clock.clone(), request.timeouts);
        secrets::add(secrets::of_headers(&request.headers), &mut context.secrets);
        for _hop in 0..=REDIRECTS_MAX {
            self.shared.describe(&url, &mut context)?;
            let response = self.exchange(&url, &headers, &request.body, &mut timers, &context).await?;
            timers.head();
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            match redirect::target(&url, response.status().as_u16(), location, &context)? {
                Some(next) => {
                    if redirect::drop_credentials(&url, &next, &mut headers) {
                        context.key_stayed_at = Some(url.to_string());
                    }
                    url = next;
                }
                None => return finish(response, timers, context).await,
            }
        }
        Err(redirect::too_many(&context).into())
    }

    /// One request up to the head of its response.
    async fn exchange(
        &self,
        url: &Url,
        headers: &HeaderMap,
        body: &Bytes,
        timers: &mut Timers,
        context: &ErrorContext,
    ) -> Result<reqwest::Response, ErrorRecord> {
        let client = self.client(url).await?;
        let mut resent = false;
        loop {
            let sending = client.post(url.clone()).headers(headers.clone()).body(body.clone()).send();
            let expiry = poll_fn(|cx| timers.poll_expired(cx));
            let sent = match select(std::pin::pin!(sending), expiry).await {
                Either::Left((sent, _)) => sent,
                Either::Right((expired, _)) => return Err(expired.record(context)),
            };
            match sent {
                Ok(response) => {
                    self.shared.remember(&response);
                    return Ok(response);
                }
                Err(error) if !resent && self.shared.was_reused(&error) => resent = true,
                Err(error) => return Err(failure::sending(&error, self.shared.settings.connect_timeout, context)),
            }
        }
    }

    /// The client for a scheme. Loading certificates happens off the runtime's thread.
    async fn client(&self, url: &Url) -> Result<reqwest::Client, ErrorRecord> {
        if url.scheme() != "https" {
            return self.shared.plain();
        }
        if let Some(client) = self.shared.secure.get() {
            return client.clone();
        }
        let shared = self.shared.clone();
        let built = tokio::task::spawn_blocking(move || shared.secure()).await;
        built.unwrap_or_else(|_panicked| {
            Err(ErrorRecord::new(ErrorKind::Internal, "building the HTTP client failed; this is a bug in pirn"))
        })
    }
}

impl Shared {
    fn plain(&self) -> Result<reqwest::Client, ErrorRecord> {
        self.plain.get_or_init(|| build(&self.settings, tls::without_roots()?)).clone()
    }

    fn secure(&self) -> Result<reqwest::Client, ErrorRecord> {
        self.secure.get_or_init(|| build(&self.settings, tls::with_roots(&self.settings)?)).clone()
    }

    fn rules(&self) -> Result<&ProxyRules, ErrorRecord> {
        self.rules.get_or_init(|| ProxyRules::new(&self.settings.proxy)).as_ref().map_err(Clone::clone)
    }

    /// Tells errors where a request goes, through which proxy, and what of it they must not show.
    fn describe(&self, url: &Url, context: &mut ErrorContext) -> Result<(), ErrorRecord> {
        context.url = Some(url.to_string());
        secrets::add(secrets::of_url(url), &mut context.secrets);
        let proxy = self.rules()?.proxy_for(url);
        context.via = proxy.map(|proxy| proxy.via(url));
        if let Some(proxy) = proxy {
            secrets::add(secrets::of_user(&proxy.url), &mut context.secrets);
        }
        Ok(())
    }

    fn remember(&self, response: &reqwest::Response) {
        let Some(info) = response.extensions().get::<HttpInfo>() else { return };
        let address = info.local_addr();
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.retain(|known| *known != address);
        answered.push_back(address);
        if answered.len() > ANSWERED_MAX {
            answered.pop_front();
        }
    }

    fn was_reused(&self, error: &reqwest::Error) -> bool {
        let Some(address) = failure::dead_connection(error) else { return false };
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let known = answered.contains(&address);
        answered.retain(|other| *other != address);
        known
    }
}

/// Turns the head into what callers read; an error answer is read here.
async fn finish(response: reqwest::Response, timers: Timers, mut context: ErrorContext) -> Result<Response, HttpError> {
    let status = response.status();
    let all = headers::response(response.headers());
    let meta = headers::meta(status.as_u16(), &all);
    context.request_id.clone_from(&meta.request_id);
    let body = ResponseBody::new(response, timers, context.clone());
    if status.is_success() {
        return Ok(Response { meta, body, secrets: context.secrets });
    }
    let body = body.start_of().await;
    Err(HttpError::Status(Box::new(Refusal { status: status.as_u16(), headers: all, meta, body, context })))
}

fn is_secure(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| url.scheme() == "https")
}

fn parse(text: &str, context: &ErrorContext) -> Result<Url, ErrorRecord> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(url),
        _ => Err(error::config(context, &format!("{} is not an http or https address", shown(text)))),
    }
}

fn build(settings: &HttpSettings, tls: rustls::ClientConfig) -> Result<reqwest::Client, ErrorRecord> {
    let rules = ProxyRules::new(&settings.proxy)?;
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .proxy(reqwest::Proxy::custom(move |target| rules.proxy_for(target).map(|proxy| proxy.url.clone())))
        .pool_idle_timeout(POOL_IDLE)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .gzip(true);
    if let Some(limit) = settings.connect_timeout {
        builder = builder.connect_timeout(limit);
    }
    builder
        .build()
        .map_err(|error| ErrorRecord::new(ErrorKind::Internal, format!("the HTTP client cannot be built: {error}")))
}
