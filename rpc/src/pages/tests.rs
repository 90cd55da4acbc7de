//! Each page over a subject that is well, ill, or slow.

use std::sync::Arc;

use axum::body::Body;
use http::{Request, StatusCode};
use storage::AlarmKind;
use tower::ServiceExt;

use super::*;
use crate::metrics::Metrics;

#[derive(Debug)]
struct Fake {
    alarms: Vec<AlarmKind>,
    /// What a serializable read and any other read meet.
    reads: [Result<(), String>; 2],
    metrics: Metrics,
}

impl Subject for Fake {
    fn alarms(&self) -> Vec<AlarmKind> {
        self.alarms.clone()
    }

    fn read(&self, serializable: bool) -> Result<(), String> {
        let [with, without] = &self.reads;
        if serializable { with.clone() } else { without.clone() }
    }

    fn metrics(&self) -> String {
        "a 1\n".to_owned()
    }

    fn checks(&self) -> &metrics::Checks {
        &self.metrics.checks
    }
}

fn subject(alarms: &[AlarmKind], reads: [Result<(), String>; 2]) -> Arc<dyn Subject> {
    Arc::new(Fake { alarms: alarms.to_vec(), reads, metrics: Metrics::new() })
}

fn well() -> Arc<dyn Subject> {
    subject(&[], [Ok(()), Ok(())])
}

/// A disk that is gone: what is in memory can be read, but nothing more is acknowledged.
fn stopped() -> Arc<dyn Subject> {
    subject(&[], [Ok(()), Err("etcdserver: server stopped".to_owned())])
}

async fn ask(subject: &Arc<dyn Subject>, method: &str, path: &str) -> (StatusCode, String, String) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).expect("a request");
    let response = routes(Arc::clone(subject)).oneshot(request).await.expect("an answer");
    let header = |name| response.headers().get(name).map(|value| value.to_str().expect("text").to_owned());
    let kind = header("content-type").unwrap_or_default();
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        assert_eq!(header("allow").as_deref(), Some("GET"), "{path}");
    }
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
    (status, kind, String::from_utf8(body.to_vec()).expect("text"))
}

#[track_caller]
fn check(found: &(StatusCode, String, String), status: u16, body: &str) {
    assert_eq!((found.0.as_u16(), found.2.as_str()), (status, body));
}

#[tokio::test]
async fn health_is_true_without_alarms_and_with_a_read() {
    let well = well();
    for path in ["/health", "/health?serializable=true", "/health?exclude=NOSPACE&exclude=nothing", "/health?exclude="]
    {
        let found = ask(&well, "GET", path).await;
        check(&found, 200, r#"{"health":"true","reason":""}"#);
        assert_eq!(found.1, "text/plain; charset=utf-8");
    }
    for method in ["POST", "PUT"] {
        check(&ask(&well, method, "/health").await, 405, "Method Not Allowed\n");
    }
    check(&ask(&well, "HEAD", "/health").await, 405, "");
}

#[tokio::test]
async fn an_alarm_makes_health_false_unless_it_is_excluded() {
    let ill = subject(&[AlarmKind::NoSpace, AlarmKind::Corrupt], [Ok(()), Ok(())]);
    let no_space = "{\"health\":\"false\",\"reason\":\"ALARM NOSPACE\"}\n";
    check(&ask(&ill, "GET", "/health").await, 503, no_space);
    check(&ask(&ill, "GET", "/health?exclude=nospace").await, 503, no_space);
    let corrupt = "{\"health\":\"false\",\"reason\":\"ALARM CORRUPT\"}\n";
    check(&ask(&ill, "GET", "/health?exclude=NOSPACE").await, 503, corrupt);
    check(
        &ask(&ill, "GET", "/health?exclude=%4eOSPACE&exclude=CORRUPT").await,
        200,
        r#"{"health":"true","reason":""}"#,
    );
}

#[tokio::test]
async fn health_follows_the_read_that_is_asked_for() {
    let stopped = stopped();
    let reason = "{\"health\":\"false\",\"reason\":\"RANGE ERROR:etcdserver: server stopped\"}\n";
    for path in
        ["/health", "/health?serializable=false", "/health?serializable=1", "/health?serializable=no&serializable=true"]
    {
        check(&ask(&stopped, "GET", path).await, 503, reason);
    }
    check(&ask(&stopped, "GET", "/health?serializable=true").await, 200, r#"{"health":"true","reason":""}"#);
}

#[tokio::test]
async fn a_page_of_checks_says_ok_and_on_request_which_ones() {
    let well = well();
    for path in ["/livez", "/livez/serializable_read", "/readyz", "/readyz/non_learner", "/readyz/data_corruption"] {
        let found = ask(&well, "GET", path).await;
        check(&found, 200, "ok\n");
        assert_eq!(found.1, "text/plain; charset=utf-8");
    }
    check(&ask(&well, "GET", "/livez?verbose").await, 200, "[+]serializable_read ok\nok\n");
    check(&ask(&well, "GET", "/readyz/linearizable_read?verbose=false").await, 200, "[+]linearizable_read ok\nok\n");
    let all = "[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n[+]non_learner ok\nok\n";
    check(&ask(&well, "GET", "/readyz?verbose&exclude=unknown").await, 200, all);
    let two = "[+]data_corruption ok\n[+]serializable_read ok\nok\n";
    check(&ask(&well, "GET", "/readyz?exclude=linearizable_read&verbose&exclude=non_learner").await, 200, two);
    check(&ask(&well, "GET", "/livez?verbose&exclude=serializable_read").await, 200, "ok\n");
    check(&ask(&well, "POST", "/readyz").await, 405, "Method Not Allowed\n");
    check(&ask(&well, "HEAD", "/livez/serializable_read").await, 405, "");
}

#[tokio::test]
async fn a_failed_check_is_always_told_in_full() {
    let corrupt = subject(&[AlarmKind::Corrupt], [Ok(()), Ok(())]);
    check(&ask(&corrupt, "GET", "/livez").await, 200, "ok\n");
    let all = "[-]data_corruption failed: alarm activated: CORRUPT\n[+]serializable_read ok\n[+]linearizable_read ok\n\
               [+]non_learner ok\n\n";
    check(&ask(&corrupt, "GET", "/readyz").await, 503, all);
    let one = "[-]data_corruption failed: alarm activated: CORRUPT\n\n";
    check(&ask(&corrupt, "GET", "/readyz/data_corruption").await, 503, one);
    check(&ask(&corrupt, "GET", "/readyz?exclude=data_corruption").await, 200, "ok\n");
    // A full store is ready: it can be read, and deleting helps.
    let full = subject(&[AlarmKind::NoSpace], [Ok(()), Ok(())]);
    check(&ask(&full, "GET", "/readyz").await, 200, "ok\n");
    let stopped = stopped();
    check(&ask(&stopped, "GET", "/livez").await, 200, "ok\n");
    let failed = "[-]linearizable_read failed: etcdserver: server stopped\n\n";
    check(&ask(&stopped, "GET", "/readyz/linearizable_read").await, 503, failed);
}

#[tokio::test]
async fn other_pages() {
    let well = well();
    let version = ask(&well, "GET", "/version").await;
    check(&version, 200, r#"{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0"}"#);
    assert_eq!(version.1, "application/json");
    check(&ask(&well, "POST", "/version").await, 405, "Method Not Allowed\n");
    let metrics = ask(&well, "GET", "/metrics").await;
    check(&metrics, 200, "a 1\n");
    assert_eq!(metrics.1, "text/plain; version=0.0.4; charset=utf-8");
    for path in ["/", "/nothing", "/health/", "/livez/", "/livez/linearizable_read", "/readyz/nothing", "/metrics/"] {
        check(&ask(&well, "GET", path).await, 404, "404 page not found\n");
    }
    let probes = probes(well).oneshot(Request::get("/version").body(Body::empty()).expect("a request"));
    assert_eq!(probes.await.expect("an answer").status(), 404, "the probes do without the version");
}
