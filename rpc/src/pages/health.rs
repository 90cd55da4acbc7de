//! `/health`: alarms, then a read.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use storage::AlarmKind;

use super::answer;
use super::checks::timed;
use super::{Query, Subject};

/// Answers a request.
pub(super) async fn answer(subject: Arc<dyn Subject>, query: Query) -> Response {
    let counted = Arc::clone(&subject);
    let reason = match timed(move || Ok(wrong(subject.as_ref(), &query))).await {
        Ok(reason) => reason,
        Err(late) => Some(range_error(&late)),
    };
    counted.checks().health(reason.is_none());
    match reason {
        None => answer::text(StatusCode::OK, "text/plain; charset=utf-8", body("true", "")),
        Some(reason) => answer::plain(StatusCode::SERVICE_UNAVAILABLE, body("false", &reason) + "\n"),
    }
}

/// What is wrong, in a few words; `None` if nothing is.
fn wrong(subject: &dyn Subject, query: &Query) -> Option<String> {
    let excluded: BTreeSet<&str> = query.values("exclude").collect();
    let raised = subject.alarms().into_iter().map(word).find(|word| !excluded.contains(word));
    if let Some(word) = raised {
        return Some(format!("ALARM {word}"));
    }
    let serializable = query.values("serializable").next() == Some("true");
    subject.read(serializable).err().map(|error| range_error(&error))
}

fn range_error(error: &str) -> String {
    format!("RANGE ERROR:{error}")
}

/// An alarm as parameters and reasons name it.
fn word(kind: AlarmKind) -> &'static str {
    match kind {
        AlarmKind::NoSpace => "NOSPACE",
        AlarmKind::Corrupt => "CORRUPT",
    }
}

/// `health` is a string in etcd's answer, and so it is here.
fn body(health: &str, reason: &str) -> String {
    let reason = reason.replace(['"', '\\', '\n'], "'");
    format!(r#"{{"health":"{health}","reason":"{reason}"}}"#)
}
