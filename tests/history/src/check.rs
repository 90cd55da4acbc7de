//! The check: owners, replay, then the rules that need no state.

use crate::compaction::{self, Marks};
use crate::journal::Journal;
use crate::lease::Leases;
use crate::owner::{Owner, Owners};
use crate::reply::{Changed, changed, changes_differ, differs};
use crate::state::State;
use crate::time::{self, Seen};
use crate::types::*;
use crate::violation::{Rule, Violation, broken};
use crate::watch;

/// What a store promises beyond the least.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Serializable reads never go back for one client either.
    pub session_monotone: bool,
    /// What a key was before comes with an event even if it has been compacted meanwhile.
    pub prev_kv_always: bool,
}

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations, all of them.
    pub operations: u64,
    /// Those with an answer.
    pub answered: u64,
    /// Those refused for certain.
    pub refused: u64,
    /// Those of unknown outcome that were found in the journal.
    pub unknown_happened: u64,
    /// Those of unknown outcome that were not, reads included.
    pub unknown_not_found: u64,
    /// Reads compared with the state at their revision.
    pub reads: u64,
    /// Revisions of the journal.
    pub revisions: u64,
    /// Changes of the journal.
    pub changes: u64,
    /// Leases that ended by themselves and took keys along.
    pub expired: u64,
    /// Watches.
    pub watches: u64,
    /// Events delivered to watches.
    pub watch_events: u64,
    /// Progress messages.
    pub progress: u64,
    /// Watches ended by compaction.
    pub watches_compacted: u64,
    /// Refusals as compacted or future.
    pub refused_revisions: u64,
}

impl Report {
    /// Adds the counts of another history.
    pub fn add(&mut self, other: &Report) {
        let Report { operations, answered, refused, unknown_happened, unknown_not_found, reads, revisions, .. } = other;
        self.operations += operations;
        self.answered += answered;
        self.refused += refused;
        self.unknown_happened += unknown_happened;
        self.unknown_not_found += unknown_not_found;
        self.reads += reads;
        self.revisions += revisions;
        self.changes += other.changes;
        self.expired += other.expired;
        self.watches += other.watches;
        self.watch_events += other.watch_events;
        self.progress += other.progress;
        self.watches_compacted += other.watches_compacted;
        self.refused_revisions += other.refused_revisions;
    }
}

/// Checks a history. Errors: the first rule that is broken, with what broke it.
pub fn check(history: &History, options: &Options) -> Result<Report, Violation> {
    recording(history)?;
    let journal = Journal::new(&history.journal)?;
    let last = journal.last();
    let mut owners = Owners::new(history)?;
    if let Some((revision, index)) = owners.beyond(last) {
        broken!(LostWrite, "revision {revision} is not in the journal: {:?}", history.operations[index]);
    }
    let seen = Seen::new(history, last)?;
    let mut leases = Leases::new(history)?;
    let mut report = count(history, &journal);
    let mut replay = Replay { history, state: State::default(), reads: reads(history, last)?, prevs: Vec::new() };
    let mut calls = Vec::new();
    for revision in 1..=last {
        if revision > 1 {
            let recorded = journal.at(revision);
            let owner = owners.find(revision, recorded, &mut replay.state, &seen, &leases)?;
            let known = seen.first(revision).map(|(moment, _)| moment);
            replay.write(revision, recorded, owner, known, &mut leases)?;
            match owner {
                Owner::Operation(index) => calls.push((revision, index)),
                Owner::Lease(_) => report.expired += 1,
            }
        }
        replay.read(revision, &owners, &mut leases)?;
    }
    report.unknown_not_found = owners.not_found() as u64;
    let unknown = history.operations.iter().filter(|operation| operation.outcome == Outcome::Unknown).count() as u64;
    report.unknown_happened = unknown - report.unknown_not_found;
    time::check(history, &seen, &calls, last)?;
    if options.session_monotone {
        time::sessions(history)?;
    }
    let marks = Marks::new(history);
    compaction::check(history, &marks)?;
    leases.check(history)?;
    let context =
        watch::Context { history, journal: &journal, prevs: &replay.prevs, marks: &marks, options, seen: &seen };
    for (index, watch) in history.watches.iter().enumerate() {
        watch::check(&context, index, watch)?;
    }
    Ok(report)
}

fn count(history: &History, journal: &Journal<'_>) -> Report {
    let mut report = Report {
        operations: history.operations.len() as u64,
        revisions: journal.last() as u64 - 1,
        changes: history.journal.len() as u64,
        watches: history.watches.len() as u64,
        ..Report::default()
    };
    for operation in &history.operations {
        match &operation.outcome {
            Outcome::Ok(_, body) => {
                report.answered += 1;
                report.reads += u64::from(changed(&operation.request, body) == Changed::No);
            }
            Outcome::Refused(refusal) => {
                report.refused += 1;
                report.refused_revisions += u64::from(matches!(refusal, Refusal::Compacted | Refusal::Future));
            }
            Outcome::Unknown => {}
        }
    }
    for (_, told) in history.watches.iter().flat_map(|watch| &watch.told) {
        match told {
            Told::Events(_, events) => report.watch_events += events.len() as u64,
            Told::Progress(_) => report.progress += 1,
            Told::Compacted(_) => report.watches_compacted += 1,
            Told::Created(_) | Told::Canceled => {}
        }
    }
    report
}

/// What the recorder has to keep.
fn recording(history: &History) -> Result<(), Violation> {
    let mut calls: Vec<(u32, Moment, Moment)> =
        history.operations.iter().map(|operation| (operation.client, operation.call, operation.back)).collect();
    calls.sort_unstable_by_key(|(client, call, _)| (*client, call.order));
    for (client, call, back) in &calls {
        if call.order >= back.order || call.ms > back.ms {
            broken!(Recording, "client {client} was answered at {back:?} what it asked at {call:?}");
        }
    }
    for pair in calls.windows(2) {
        if pair[0].0 == pair[1].0 && pair[0].2.order >= pair[1].1.order {
            broken!(Recording, "client {} called at {:?} before {:?}", pair[0].0, pair[1].1, pair[0].2);
        }
    }
    Ok(())
}

/// What was answered and changed nothing, by the revision at which it is to be looked at.
fn reads(history: &History, last: i64) -> Result<Vec<Vec<usize>>, Violation> {
    let mut reads = vec![Vec::new(); last as usize + 1];
    for (index, operation) in history.operations.iter().enumerate() {
        let Outcome::Ok(header, body) = &operation.outcome else { continue };
        if changed(&operation.request, body) == Changed::Yes {
            continue;
        }
        let revision = match &operation.request {
            Request::Range(range) if range.revision > 0 => range.revision,
            _ => *header,
        };
        if revision > *header {
            broken!(Future, "a revision above the header's was read: {operation:?}");
        }
        if revision >= 1 {
            reads[revision as usize].push(index);
        } else {
            broken!(Reply, "a revision below 1: {operation:?}");
        }
    }
    Ok(reads)
}

/// The store, as it goes through its revisions.
struct Replay<'a> {
    history: &'a History,
    state: State,
    reads: Vec<Vec<usize>>,
    /// What each change of the journal replaced.
    prevs: Vec<Option<KeyValue>>,
}

impl Replay<'_> {
    fn write(
        &mut self,
        revision: i64,
        recorded: &[Event],
        owner: Owner,
        known: Option<Moment>,
        leases: &mut Leases,
    ) -> Result<(), Violation> {
        let by_lease = |id: i64| Request::Revoke(id);
        let expiry;
        let (request, outcome) = match owner {
            Owner::Operation(index) => {
                (&self.history.operations[index].request, &self.history.operations[index].outcome)
            }
            Owner::Lease(id) => {
                expiry = by_lease(id);
                (&expiry, &Outcome::Unknown)
            }
        };
        let (body, events) = self.state.execute(request, revision);
        if let Some(rule) = changes_differ(&events, recorded) {
            let text = format!("revision {revision} of {request:?} is {recorded:?}, not {events:?}");
            return Err(Violation::new(rule, text));
        }
        if let Outcome::Ok(_, actual) = outcome
            && let Some(rule) = differs(&body, actual)
        {
            let rule = if rule == Rule::Read { Rule::Reply } else { rule };
            return Err(Violation::new(rule, format!("revision {revision}, {request:?}: {actual:?}, not {body:?}")));
        }
        for kv in events.iter().filter_map(|event| event.kv.as_ref()).filter(|kv| kv.lease != 0) {
            leases.attach(kv.lease, revision)?;
        }
        if let Request::Revoke(id) = request {
            leases.end(*id, revision, known);
        }
        self.prevs.extend(events.into_iter().map(|event| event.prev));
        Ok(())
    }

    /// Looks at everything that was answered at this revision and changed nothing.
    fn read(&mut self, revision: i64, owners: &Owners<'_>, leases: &mut Leases) -> Result<(), Violation> {
        for index in std::mem::take(&mut self.reads[revision as usize]) {
            let operation = &self.history.operations[index];
            let Outcome::Ok(_, actual) = &operation.outcome else { continue };
            if owners.is_used(index) {
                continue;
            }
            let (body, events) = self.state.execute(&operation.request, revision);
            if !events.is_empty() {
                broken!(Reply, "at revision {revision} it would have changed {} keys: {operation:?}", events.len());
            }
            match &operation.request {
                Request::Grant(..) | Request::KeepAlive(_) | Request::Compact(_) => {}
                Request::Revoke(id) => leases.end(*id, revision, Some(operation.back)),
                _ => {
                    if let Some(rule) = differs(&body, actual) {
                        return Err(Violation::new(rule, format!("at {revision} it is {body:?}: {operation:?}")));
                    }
                }
            }
        }
        Ok(())
    }
}
