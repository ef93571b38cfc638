//! The providers of a run's models behind one: each request goes to the provider of its model.
//!
//! Keeps true: a request for a model nobody added is answered with a failed reply, never sent somewhere else; a
//! provider that has to be made first, such as one whose key a command prints, is made when the first request needs it,
//! and once; no key is seen here.
//!
//! Must not know: how models are chosen, protocols, when a run goes on to the next model.

use std::fmt;
use std::future::{pending, ready};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use super::settle::settle;
use crate::model::{AssistantHead, ErrorKind, ErrorRecord, Model};
use crate::port::{AssistantEvent, Clock, Credential, LlmRequest, Models, Provider};

/// Makes a provider. Called again by a later request if it failed; dropping the future ends the work.
pub type Open = Box<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Provider>, ErrorRecord>> + Send + Sync>;

/// How requests for a model are sent.
pub enum Way {
    Ready(Arc<dyn Provider>),
    /// Made by the first request; counts as having its key.
    Later(Open),
    /// There is no key; setting one of the variables would do.
    Closed {
        variables: Vec<String>,
        /// What a request is answered with: kind `auth`.
        error: Box<ErrorRecord>,
    },
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(_) => f.write_str("Ready"),
            Self::Later(_) => f.write_str("Later"),
            Self::Closed { variables, .. } => f.debug_tuple("Closed").field(variables).finish(),
        }
    }
}

/// The provider of every model of a run, and what is known about them.
pub struct Router {
    routes: Vec<Arc<Route>>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("routes", &self.routes).finish_non_exhaustive()
    }
}

struct Route {
    model: Model,
    way: Way,
    /// What [`Way::Later`] has made.
    made: OnceCell<Arc<dyn Provider>>,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.model.spec(), self.way)
    }
}

impl Route {
    fn is_of(&self, provider: &str, id: &str) -> bool {
        self.model.provider == provider && self.model.id == id
    }

    async fn provider(&self) -> Result<Arc<dyn Provider>, ErrorRecord> {
        match &self.way {
            Way::Ready(provider) => Ok(Arc::clone(provider)),
            Way::Later(open) => self.made.get_or_try_init(open).await.cloned(),
            Way::Closed { error, .. } => Err(error.as_ref().clone()),
        }
    }
}

impl Router {
    /// Routes for the first model of a run.
    pub fn new(clock: Arc<dyn Clock>, model: Model, way: Way) -> Self {
        let mut router = Self { routes: Vec::new(), clock };
        router.add(model, way);
        router
    }

    /// Adds a model. One that is there already keeps its facts and its way.
    pub fn add(&mut self, model: Model, way: Way) {
        if self.route(&model.provider, &model.id).is_none() {
            self.routes.push(Arc::new(Route { model, way, made: OnceCell::new() }));
        }
    }

    /// Whether any of the models can be asked; those without a key are passed over.
    ///
    /// # Errors
    /// Kind `auth`: none has a key. Says what each would need.
    pub fn usable(&self) -> Result<(), ErrorRecord> {
        let mut missing: Option<ErrorRecord> = None;
        let mut told: Vec<&str> = Vec::new();
        for route in &self.routes {
            let Way::Closed { error, .. } = &route.way else { return Ok(()) };
            // Models of one provider miss the same key.
            if !told.contains(&error.message.as_str()) {
                told.push(&error.message);
                missing.get_or_insert_with(|| error.as_ref().clone()).message = told.join("; ");
            }
        }
        missing.map_or(Ok(()), Err)
    }

    fn route(&self, provider: &str, id: &str) -> Option<&Arc<Route>> {
        self.routes.iter().find(|route| route.is_of(provider, id))
    }
}

type Reply = BoxStream<'static, AssistantEvent>;

impl Provider for Router {
    fn stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> Reply {
        let model = &request.model;
        let head = AssistantHead {
            api: model.api.clone(),
            provider: model.provider.clone(),
            model: model.id.clone(),
            timestamp: self.clock.now_ms(),
        };
        let Some(route) = self.route(&model.provider, &model.id) else {
            let text = format!("{} is no model of this run", model.spec());
            let error = ErrorRecord::new(ErrorKind::Config, text);
            return settle(head, ready(Err(error)), model.clone(), cancel).boxed();
        };
        if let Way::Ready(provider) = &route.way {
            return provider.stream(request, cancel);
        }
        let route = Arc::clone(route);
        let opening = async move {
            let made = tokio::select! {
                biased;
                () = cancel.cancelled() => None,
                made = route.provider() => Some(made),
            };
            match made {
                Some(Ok(provider)) => provider.stream(request, cancel),
                Some(Err(error)) => settle(head, ready(Err(error)), request.model.clone(), cancel).boxed(),
                // Settling ends what was cancelled.
                None => settle(head, pending(), request.model.clone(), cancel).boxed(),
            }
        };
        stream::once(opening).flatten().boxed()
    }
}

impl Models for Router {
    fn resolve(&self, provider: &str, id: &str) -> Option<Model> {
        self.route(provider, id).map(|route| route.model.clone())
    }

    fn credential(&self, provider: &str) -> Credential {
        let mut missing: Vec<String> = Vec::new();
        for route in self.routes.iter().filter(|route| route.model.provider == provider) {
            let Way::Closed { variables, .. } = &route.way else { return Credential::Present };
            for name in variables {
                if !missing.contains(name) {
                    missing.push(name.clone());
                }
            }
        }
        Credential::Missing(missing)
    }
}

#[cfg(test)]
mod tests;
