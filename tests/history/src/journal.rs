//! The journal, by revision.

use crate::types::*;
use crate::violation::{Violation, broken};

/// Where each revision's events are. Revision 1 is the empty store.
#[derive(Debug)]
pub(crate) struct Journal<'a> {
    pub(crate) events: &'a [Event],
    /// The number of the first event of revision `index + 2`, and the end.
    starts: Vec<usize>,
}

impl<'a> Journal<'a> {
    /// Every revision once, in order, each key once in a revision.
    pub(crate) fn new(events: &'a [Event]) -> Result<Journal<'a>, Violation> {
        let (mut starts, mut last) = (Vec::new(), 1);
        for (index, event) in events.iter().enumerate() {
            if event.revision == last + 1 {
                starts.push(index);
                last += 1;
            } else if event.revision != last || index == 0 {
                broken!(Dense, "revision {} follows {last}: {event:?}", event.revision);
            }
        }
        starts.push(events.len());
        let journal = Journal { events, starts };
        for revision in 2..=journal.last() {
            let mut keys: Vec<&Blob> = journal.at(revision).iter().map(|event| &event.key).collect();
            keys.sort_unstable();
            if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
                broken!(Dense, "revision {revision} changes {} twice", String::from_utf8_lossy(pair[0]));
            }
        }
        Ok(journal)
    }

    /// The last revision; 1 for an empty journal.
    pub(crate) fn last(&self) -> i64 {
        self.starts.len() as i64
    }

    /// The numbers of the events of a revision, or of where they would be.
    pub(crate) fn place(&self, revision: i64) -> std::ops::Range<usize> {
        let at = |revision: i64| match revision - 2 {
            ..0 => 0,
            index => self.starts.get(index as usize).copied().unwrap_or(self.events.len()),
        };
        at(revision)..at(revision + 1)
    }

    pub(crate) fn at(&self, revision: i64) -> &'a [Event] {
        &self.events[self.place(revision)]
    }
}
