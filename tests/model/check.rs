//! The test body: random steps, every answer held against the model's.

use super::coverage::Coverage;
use super::driver::Driver;
use super::expected::Expected;
use super::generate::Generator;
use super::op::{Outcome, Refusal, Reply, Request};
use super::rng::Rng;
use super::state::Model;
use super::watching::Stream;
use super::wire::*;
use super::wire_more::LeaseGrantRequest;

/// All right, or what is wrong.
pub type Checked = Result<(), String>;

/// A run of random steps against one keyspace.
pub struct Run<'a, D: Driver> {
    pub driver: &'a mut D,
    pub model: &'a mut Model,
    pub rng: Rng,
    pub coverage: &'a mut Coverage,
    pub streams: Vec<Stream>,
    /// Of 1000 steps so many end the keyspace and open it again.
    pub reopens_per_mille: usize,
    serial: u64,
    trace: Vec<String>,
}

impl<'a, D: Driver> Run<'a, D> {
    /// A run from a seed, on from the state that the model is in.
    pub fn new(driver: &'a mut D, model: &'a mut Model, coverage: &'a mut Coverage, seed: u64) -> Run<'a, D> {
        let serial = seed << 20;
        Run {
            driver,
            model,
            rng: Rng::new(seed),
            coverage,
            streams: Vec::new(),
            reopens_per_mille: 15,
            serial,
            trace: Vec::new(),
        }
    }

    /// Makes so many steps, then looks at everything. Panics with the seed and the last steps if something is wrong.
    pub fn sequence(&mut self, seed: u64, steps: usize) {
        let outcome = (0..steps).try_for_each(|_| self.step()).and_then(|()| self.finish());
        if let Err(wrong) = outcome {
            let last = self.trace.len().saturating_sub(12);
            panic!("STERNPOST_TEST_SEED={seed}, step {}\n{}\n{wrong}", self.trace.len(), self.trace[last..].join("\n"));
        }
    }

    fn step(&mut self) -> Checked {
        if self.rng.below(1000) < self.reopens_per_mille {
            return self.reopen();
        }
        match self.rng.below(100) {
            0..70 => {
                let request = self.generator().request();
                self.request(request)
            }
            70..78 => self.watch_something(),
            78..80 => self.cancel_something(),
            80..87 => self.drain_something(),
            87..89 => self.ask_for_progress(),
            89..91 => self.watch_wrongly(),
            91 if self.rng.chance(40) => self.rewrite(),
            91..94 => self.flush(),
            94..96 => self.page_through(),
            96..98 => self.compact_past_a_watch(),
            98 => self.short_lease(),
            _ => self.read_everything(3),
        }
    }

    /// A lease that would not last the run is revoked at once.
    fn short_lease(&mut self) -> Checked {
        let free = (100..).find(|id| !self.model.leases.contains_key(id)).unwrap_or(0);
        let ttl = self.rng.between(-1, 2);
        self.request(Request::Grant(LeaseGrantRequest { ttl, id: free }))?;
        self.request(Request::Revoke(free))
    }

    fn finish(&mut self) -> Checked {
        self.read_everything(12)?;
        self.drain_everything()?;
        self.ask_for_progress()?;
        for stream in std::mem::take(&mut self.streams) {
            self.driver.watch_close(stream.id);
        }
        Ok(())
    }

    pub fn generator(&mut self) -> Generator<'_> {
        Generator { rng: &mut self.rng, model: self.model, serial: &mut self.serial }
    }

    /// Remembers what was done, for the report of a failure.
    pub fn trace(&mut self, what: String) {
        self.trace.push(what.chars().take(1500).collect());
    }

    /// Sends a request to both and compares.
    pub fn request(&mut self, request: Request) -> Checked {
        self.outcome(request).map(|_| ())
    }

    fn outcome(&mut self, request: Request) -> Result<Option<Outcome>, String> {
        let before = (self.model.revision, self.model.compacted);
        let mut after = self.model.clone();
        let mut asked = request.clone();
        let mut early = None;
        if let Request::Grant(grant) = &mut asked
            && grant.id == 0
            && grant.ttl <= Model::MAX_TTL
        {
            // The store chooses the id: the model is asked with what it chose.
            let got = self.driver.apply(&request);
            match &got {
                Ok(Reply::Grant(reply)) if reply.id > 0 => grant.id = reply.id,
                other => return Err(format!("a lease without an id: {other:?}")),
            }
            early = Some(got);
        }
        let expected = after.apply(&asked);
        let twice = changes_a_key_twice(&after, before.0);
        if after.undefined || (twice && self.driver.rules().breaks_on_two_changes_of_a_key) {
            return Ok(None);
        }
        self.trace(format!("revision {}, {request:?}", before.0));
        let unsupported = matches!(request, Request::RangeStream(_)) && !self.driver.streams_lists();
        if unsupported {
            return Ok(None);
        }
        let got = early.unwrap_or_else(|| self.driver.apply(&request));
        Expected::check(&expected, &got).map_err(|wrong| format!("{request:?}\n{wrong}"))?;
        *self.model = after;
        self.coverage.note_if(twice, "txn: several versions of a key");
        let tombstone = |revision: &i64| {
            self.model.history.get(revision).is_some_and(|all| all.iter().any(|change| change.version.record.is_none()))
        };
        let at_tombstone = matches!(&request, Request::Compact(_)) && got.is_ok() && tombstone(&self.model.compacted);
        self.coverage.note_if(at_tombstone, "compaction: at a tombstone");
        self.coverage.note_request(&request, &got, before);
        Ok(Some(got))
    }

    /// Reads everything at some of the live revisions, and next to them what cannot be read.
    fn read_everything(&mut self, samples: usize) -> Checked {
        let (floor, current) = (self.model.compacted.max(1), self.model.revision);
        let all = (current - floor) as usize <= samples;
        for sample in 0..samples as i64 {
            let revision = if all { floor + sample } else { self.rng.between(floor, current) };
            self.read_all_at(revision.min(current))?;
        }
        self.read_all_at(floor)?;
        self.read_all_at(floor - 1)?;
        self.read_all_at(current)?;
        self.read_all_at(current + 1)
    }

    fn read_all_at(&mut self, revision: i64) -> Checked {
        self.request(Request::Range(RangeRequest { key: vec![0], range_end: vec![0], revision, ..Default::default() }))
    }

    fn rewrite(&mut self) -> Checked {
        let wait = self.rng.chance(50);
        self.trace(format!("rewrite, waited for {wait}"));
        if self.driver.rewrite(wait) {
            self.coverage.note(if wait { "rewrite: waited for" } else { "rewrite: in the background" });
            self.coverage.note_if(self.live_watchers() > 0, "rewrite: open watch");
        }
        Ok(())
    }

    fn flush(&mut self) -> Checked {
        self.trace("flush".into());
        if self.driver.flush() {
            self.coverage.note("flush");
            self.coverage.note_if(self.live_watchers() > 0, "flush: open watch");
        }
        Ok(())
    }

    fn reopen(&mut self) -> Checked {
        let killed = self.rng.chance(50);
        self.trace(format!("reopen, killed {killed}"));
        if self.driver.reopen(killed) {
            self.coverage.note("reopen");
            self.coverage.note_if(killed, "reopen: killed");
            self.coverage.note_if(self.live_watchers() > 0, "reopen: open watch");
            self.resume_watches()?;
        }
        Ok(())
    }

    /// Reads a list in pages at one revision, with other things going on between two pages.
    fn page_through(&mut self) -> Checked {
        let revision = self.rng.between(self.model.compacted.max(1), self.model.revision);
        let mut key = vec![0];
        let mut pages = 0;
        loop {
            let page = RangeRequest { key: key.clone(), range_end: vec![0], limit: 2, revision, ..Default::default() };
            let last = match self.outcome(Request::Range(page))? {
                Some(Ok(Reply::Range(reply))) if reply.more => reply.kvs.last().map(|kv| kv.key.clone()),
                Some(Err(Refusal::Compacted)) => break,
                _ => None,
            };
            let Some(last) = last else { break };
            pages += 1;
            key = last;
            key.push(0);
            self.between_pages()?;
        }
        self.coverage.note_if(pages > 1, "pages: several");
        Ok(())
    }

    fn between_pages(&mut self) -> Checked {
        match self.rng.below(12) {
            0..6 => {
                let put = self.generator().put();
                self.request(Request::Put(put))
            }
            6 => {
                let delete = self.generator().delete_range();
                self.request(Request::DeleteRange(delete))
            }
            7 | 8 => {
                self.coverage.note_if(self.driver.flush(), "flush: between pages");
                Ok(())
            }
            9 if self.rng.chance(self.reopens_per_mille * 5) => {
                self.coverage.note("reopen: between pages");
                self.reopen()
            }
            10 => self.request(Request::Compact(CompactionRequest { revision: self.model.revision, physical: false })),
            _ => Ok(()),
        }
    }
}

/// True if the revision after `before` holds two changes of one key.
fn changes_a_key_twice(model: &Model, before: i64) -> bool {
    let changes = model.history.get(&(before + 1)).map_or(&[][..], Vec::as_slice);
    let again = |index: usize| changes[..index].iter().any(|other| other.key == changes[index].key);
    (0..changes.len()).any(again)
}
