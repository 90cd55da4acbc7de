//! Handshakes that failed, as an operator hears of them.

use std::fmt::Display;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{debug, warn};

/// One line in this time: a client that is refused comes again at once.
const PAUSE: Duration = Duration::from_secs(10);

static TOLD: Mutex<Told> = Mutex::new(Told { last: None, unsaid: 0 });

#[derive(Debug)]
struct Told {
    last: Option<Instant>,
    unsaid: u64,
}

/// Logs why a handshake failed: what two sides disagree on needs somebody to look, a client that went away does not.
pub(in crate::edge) fn tell(error: &io::Error, from: impl Display) {
    let disagreement = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
    let news =
        disagreement.then(|| TOLD.lock().unwrap_or_else(PoisonError::into_inner).is_news(Instant::now())).flatten();
    match news {
        Some(unsaid) => warn!(%from, %error, unsaid, "TLS handshake failed"),
        None => debug!(%from, %error, "TLS handshake failed"),
    }
}

impl Told {
    /// If it is time for a line, how many were left out before it.
    fn is_news(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < PAUSE) {
            self.unsaid += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_handshake_is_news_once_in_ten_seconds() {
        let start = Instant::now();
        let mut told = Told { last: None, unsaid: 0 };
        let news: Vec<_> = [0, 1, 9, 10, 11].map(|second| told.is_news(start + Duration::from_secs(second))).into();
        assert_eq!(news, [Some(0), None, None, Some(2), None]);
    }
}
