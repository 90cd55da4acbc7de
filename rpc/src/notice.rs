//! What an operator must hear of, whatever request it was that met it.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use storage::Error;
use tracing::{error, warn};

/// A full store is mentioned once in this time, not with every put that it refuses.
const PAUSE: Duration = Duration::from_secs(60);

static LAST_REFUSAL: Mutex<Option<Instant>> = Mutex::new(None);

/// Logs what a person has to look at; says nothing about what only concerns the client.
pub(crate) fn tell(error: &Error) {
    match error {
        Error::NoSpace if is_news(Instant::now()) => {
            warn!("no space: puts and lease grants are refused until there is room again");
        }
        Error::Corrupt { .. } | Error::LogMismatch { .. } | Error::Io { .. } => error!(%error, "a request met damage"),
        _ => {}
    }
}

fn is_news(now: Instant) -> bool {
    let mut last = LAST_REFUSAL.lock().unwrap_or_else(PoisonError::into_inner);
    let news = last.is_none_or(|last| now.duration_since(last) >= PAUSE);
    if news {
        *last = Some(now);
    }
    news
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_store_is_news_once_a_minute() {
        let start = Instant::now() + PAUSE;
        let told: Vec<bool> = [0, 1, 59, 60, 61].map(|second| is_news(start + Duration::from_secs(second))).into();
        assert_eq!(told, [true, false, false, true, false]);
    }
}
