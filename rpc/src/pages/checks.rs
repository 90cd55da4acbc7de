//! `/livez` and `/readyz`: named checks, all of them or one at a time.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use storage::AlarmKind;

use super::answer;
use super::{Query, Subject};

/// How long a check may take: as long as etcd gives a request.
const PATIENCE: Duration = Duration::from_secs(7);

/// A page of checks.
#[derive(Debug)]
pub(super) struct Page {
    /// The path, without the slash.
    pub(super) name: &'static str,
    /// In the order in which they are carried out and told of.
    pub(super) checks: &'static [Check],
}

/// A check.
#[derive(Debug)]
pub(super) struct Check {
    /// As paths and parameters name it.
    pub(super) name: &'static str,
    run: fn(&dyn Subject) -> Result<(), String>,
}

const SERIALIZABLE_READ: Check = Check { name: "serializable_read", run: |subject| subject.read(true) };

/// All pages.
pub(super) static PAGES: [Page; 2] = [
    Page { name: "livez", checks: &[SERIALIZABLE_READ] },
    Page {
        name: "readyz",
        checks: &[
            Check { name: "data_corruption", run: no_corruption },
            SERIALIZABLE_READ,
            Check { name: "linearizable_read", run: |subject| subject.read(false) },
            // A cluster of one has no learner.
            Check { name: "non_learner", run: |_| Ok(()) },
        ],
    },
];

fn no_corruption(subject: &dyn Subject) -> Result<(), String> {
    match subject.alarms().contains(&AlarmKind::Corrupt) {
        true => Err("alarm activated: CORRUPT".to_owned()),
        false => Ok(()),
    }
}

/// Carries out all checks of a page but those that are excluded; unknown names are not minded.
pub(super) async fn all(page: &'static Page, subject: Arc<dyn Subject>, query: Query) -> Response {
    let excluded: BTreeSet<&str> = query.values("exclude").collect();
    let checks: Vec<&Check> = page.checks.iter().filter(|check| !excluded.contains(check.name)).collect();
    run(page, &checks, subject, query.has("verbose")).await
}

/// Carries out one check.
pub(super) async fn one(
    page: &'static Page,
    check: &'static Check,
    subject: Arc<dyn Subject>,
    query: Query,
) -> Response {
    run(page, &[check], subject, query.has("verbose")).await
}

async fn run(page: &Page, checks: &[&'static Check], subject: Arc<dyn Subject>, verbose: bool) -> Response {
    let (mut lines, mut well) = (String::new(), true);
    for check in checks {
        let asked = Arc::clone(&subject);
        let run = check.run;
        let outcome = timed(move || run(asked.as_ref())).await;
        subject.checks().check(page.name, check.name, outcome.is_ok());
        let line = match &outcome {
            Ok(()) => format!("[+]{} ok\n", check.name),
            Err(error) => format!("[-]{} failed: {error}\n", check.name),
        };
        // Writing to a string cannot fail.
        let _ = lines.write_str(&line);
        well &= outcome.is_ok();
    }
    match (well, verbose) {
        (true, true) => answer::plain(StatusCode::OK, lines + "ok\n"),
        (true, false) => answer::plain(StatusCode::OK, "ok\n".to_owned()),
        (false, _) => answer::plain(StatusCode::SERVICE_UNAVAILABLE, lines + "\n"),
    }
}

/// Asks where blocking is allowed, and not for ever: a disk that hangs must not look like one that is well.
pub(super) async fn timed<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(ask)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(gone)) => Err(gone.to_string()),
        Err(_) => Err("etcdserver: request timed out".to_owned()),
    }
}
