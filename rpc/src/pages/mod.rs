//! The pages that are not gRPC: health in three forms, metrics, the version.

mod answer;
mod checks;
mod health;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::any;
use http::{Method, Request, StatusCode};
use storage::AlarmKind;

use crate::flags::{API_VERSION, STORAGE_VERSION};
use crate::metrics;

/// What the pages tell of.
pub(crate) trait Subject: Debug + Send + Sync + 'static {
    /// The alarms that are raised.
    fn alarms(&self) -> Vec<AlarmKind>;
    /// Reads a key; after everything that was acknowledged before, unless it is to be `serializable`. The error is a text that
    /// clients know. May block on the disk.
    fn read(&self, serializable: bool) -> Result<(), String>;
    /// The page for Prometheus.
    fn metrics(&self) -> String;
    /// Where checks are counted.
    fn checks(&self) -> &metrics::Checks;
}

/// Every page; another path is not found.
pub(crate) fn routes(subject: Arc<dyn Subject>) -> Router {
    let version = format!(r#"{{"etcdserver":"{API_VERSION}","etcdcluster":"3.7.0","storage":"{STORAGE_VERSION}"}}"#);
    probes(subject).route("/version", get(move |_| std::future::ready(answer::json(version.clone()))))
}

/// The pages that say how the server is, without the rest.
pub(crate) fn probes(subject: Arc<dyn Subject>) -> Router {
    let mut router = Router::new().route("/health", {
        let subject = Arc::clone(&subject);
        get(move |query| health::answer(Arc::clone(&subject), query))
    });
    for page in &checks::PAGES {
        let all = Arc::clone(&subject);
        router = router.route(&format!("/{}", page.name), get(move |query| checks::all(page, Arc::clone(&all), query)));
        for check in page.checks {
            let one = Arc::clone(&subject);
            let path = format!("/{}/{}", page.name, check.name);
            router = router.route(&path, get(move |query| checks::one(page, check, Arc::clone(&one), query)));
        }
    }
    // Like etcd's, this page does not mind what it is asked with. It needs no disk, so it is there while readers wait for one.
    let metrics = any(move || {
        let page = answer::text(StatusCode::OK, metrics::CONTENT_TYPE, subject.metrics());
        std::future::ready(page)
    });
    router.route("/metrics", metrics).fallback(|| std::future::ready(answer::not_found()))
}

/// A page for GET alone, which is given the parameters.
fn get<A>(page: impl Fn(Query) -> A + Clone + Send + Sync + 'static) -> axum::routing::MethodRouter
where
    A: Future<Output = Response> + Send,
{
    any(move |request: Request<axum::body::Body>| {
        let page = page.clone();
        async move {
            if *request.method() == Method::GET {
                page(Query::new(request.uri().query())).await
            } else {
                answer::method_not_allowed()
            }
        }
    })
}

/// The parameters of a page, decoded.
#[derive(Clone, Debug, Default)]
struct Query(Vec<(String, String)>);

impl Query {
    fn new(query: Option<&str>) -> Query {
        Query(form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect())
    }

    /// The values of a parameter, in order.
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }
}
