//! The watches of a run: open, read, cancel, resume, overtake.

use std::collections::BTreeMap;
use std::time::Duration;

use super::check::{Checked, Run};
use super::driver::Driver;
use super::expected::same;
use super::op::Request;
use super::watcher::Watcher;
use super::wire::*;
use super::wire_more::*;

/// How long a message that must come may take.
const PATIENCE: Duration = Duration::from_secs(if cfg!(feature = "failpoints") { 8 } else { 20 });

/// A stream of watches.
pub struct Stream {
    pub id: usize,
    pub watchers: BTreeMap<i64, Watcher>,
    /// The lowest id that the stream has not chosen yet.
    counter: i64,
}

impl Stream {
    /// The id that a create gets; `None` if the one that it asks for is taken.
    fn choose(&mut self, asked: i64) -> Option<i64> {
        if asked != 0 {
            return Some(asked).filter(|id| !self.watchers.contains_key(id));
        }
        while self.watchers.contains_key(&self.counter) {
            self.counter += 1;
        }
        self.counter += 1;
        Some(self.counter - 1)
    }
}

impl<D: Driver> Run<'_, D> {
    /// How many watches can still get something.
    pub fn live_watchers(&self) -> usize {
        self.streams.iter().flat_map(|stream| stream.watchers.values()).filter(|watcher| !watcher.compacted).count()
    }

    fn some_stream(&mut self) -> usize {
        if self.streams.len() < 3 && (self.streams.is_empty() || self.rng.chance(20)) {
            let id = self.driver.watch_open();
            self.streams.push(Stream { id, watchers: BTreeMap::new(), counter: 0 });
            return self.streams.len() - 1;
        }
        self.rng.below(self.streams.len())
    }

    pub fn watch_something(&mut self) -> Checked {
        let stream = self.some_stream();
        if self.streams[stream].watchers.len() >= 5 {
            return self.cancel_something();
        }
        let spec = self.watch_spec();
        self.create(stream, spec)
    }

    fn watch_spec(&mut self) -> WatchCreate {
        let (floor, current) = (self.model.compacted.max(1), self.model.revision);
        let start_revision = match self.rng.below(10) {
            0..3 => 0,
            3..5 => floor,
            5..8 => self.rng.between(floor, current),
            8 => self.rng.between(1, floor),
            _ => current + self.rng.between(1, 4),
        };
        let key = if self.rng.chance(10) { Blob::new() } else { self.generator().key() };
        let mut range_end = if self.rng.chance(30) { vec![0] } else { self.generator().range_end(&key) };
        let real = if key.is_empty() { vec![0] } else { key.clone() };
        if range_end != [0] && range_end <= real {
            range_end.clear();
        }
        let filters = match self.rng.below(10) {
            0 => vec![0],
            1 => vec![1],
            2 => vec![0, 1],
            3 => vec![7],
            _ => Vec::new(),
        };
        let watch_id = if self.rng.chance(20) { *self.rng.pick(&[3, 4, 900, -7]) } else { 0 };
        WatchCreate {
            key,
            range_end,
            start_revision,
            filters,
            prev_kv: self.rng.chance(50),
            watch_id,
            ..Default::default()
        }
    }

    /// Creates a watch and waits for the answer.
    fn create(&mut self, stream: usize, spec: WatchCreate) -> Checked {
        let Some(id) = self.streams[stream].choose(spec.watch_id) else {
            return self.refused(
                stream,
                spec,
                "mvcc: duplicate watch ID provided on the WatchStream",
                "watch: taken id",
            );
        };
        self.trace(format!("revision {}, watch {spec:?}", self.model.revision));
        let got = self.answer_to_create(stream, spec.clone())?;
        same("id", &id, &got.watch_id)?;
        same("canceled", &(false, String::new()), &(got.canceled, got.cancel_reason))?;
        same("events with the creation", &0, &got.events.len())?;
        self.note_watch(&spec);
        let watcher = Watcher::new(spec, self.model.revision);
        self.streams[stream].watchers.insert(id, watcher);
        Ok(())
    }

    fn answer_to_create(&mut self, stream: usize, spec: WatchCreate) -> Result<WatchResponse, String> {
        self.send(stream, WatchUnion::Create(spec));
        loop {
            let got = self.must_come(stream)?;
            if got.created {
                same(
                    "revision of a creation",
                    &Some(self.model.revision),
                    &got.header.as_ref().map(|header| header.revision),
                )?;
                return Ok(got);
            }
            self.take(stream, got)?;
        }
    }

    fn refused(&mut self, stream: usize, spec: WatchCreate, reason: &str, counter: &'static str) -> Checked {
        self.trace(format!("revision {}, refused watch {spec:?}", self.model.revision));
        let got = self.answer_to_create(stream, spec)?;
        same(
            "refusal",
            &(-1, true, 0, reason),
            &(got.watch_id, got.canceled, got.compact_revision, got.cancel_reason.as_str()),
        )?;
        self.coverage.note(counter);
        Ok(())
    }

    fn note_watch(&mut self, spec: &WatchCreate) {
        let (floor, current, start) = (self.model.compacted, self.model.revision, spec.start_revision);
        self.coverage.note(match start {
            0 => "watch: now",
            _ if start > current => "watch: in the future",
            _ if start < floor => "watch: below the floor",
            _ => "watch: from the past",
        });
        self.coverage.note(match spec.range_end.as_slice() {
            _ if spec.key.is_empty() => "watch: empty key",
            [] => "watch: one key",
            [0] => "watch: from a key on",
            _ => "watch: interval",
        });
        self.coverage.note_if(spec.prev_kv, "watch: previous");
        self.coverage.note_if(spec.filters.contains(&0), "watch: no puts");
        self.coverage.note_if(spec.filters.contains(&1), "watch: no deletes");
        self.coverage.note_if(spec.watch_id != 0, "watch: chosen id");
    }

    pub fn watch_wrongly(&mut self) -> Checked {
        let stream = self.some_stream();
        let all = WatchCreate { key: vec![0], range_end: vec![0], ..Default::default() };
        match self.rng.below(3) {
            0 => {
                let spec = WatchCreate { key: b"b".to_vec(), range_end: self.rng.pick(&[b"a", b"b"]).to_vec(), ..all };
                self.refused(stream, spec, "mvcc: watcher range is empty", "watch: empty range")
            }
            1 => {
                let spec = WatchCreate { start_revision: -self.rng.between(1, 3), ..all };
                self.refused(
                    stream,
                    spec,
                    "etcdserver: mvcc: required revision has been compacted",
                    "watch: negative start",
                )
            }
            _ => {
                self.send(stream, WatchUnion::Cancel(LeaseIdRequest { id: 4711 }));
                self.coverage.note("watch: cancel unknown");
                Ok(())
            }
        }
    }

    pub fn cancel_something(&mut self) -> Checked {
        if self.streams.is_empty() {
            return Ok(());
        }
        let stream = self.rng.below(self.streams.len());
        let ids: Vec<i64> = self.streams[stream].watchers.keys().copied().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let id = *self.rng.pick(&ids);
        self.trace(format!("cancel {id}"));
        self.send(stream, WatchUnion::Cancel(LeaseIdRequest { id }));
        loop {
            let got = self.must_come(stream)?;
            if got.canceled && got.compact_revision == 0 {
                let revision = got.header.as_ref().map(|header| header.revision);
                same(
                    "cancellation",
                    &(id, Some(self.model.revision), ""),
                    &(got.watch_id, revision, got.cancel_reason.as_str()),
                )?;
                self.streams[stream].watchers.remove(&id);
                self.coverage.note("watch: canceled");
                return Ok(());
            }
            self.take(stream, got)?;
        }
    }

    pub fn drain_something(&mut self) -> Checked {
        if self.streams.is_empty() { Ok(()) } else { self.drain(self.rng.clone().below(self.streams.len())) }
    }

    pub fn drain_everything(&mut self) -> Checked {
        (0..self.streams.len()).try_for_each(|stream| self.drain(stream))
    }

    /// Reads until every watch of a stream has what the model says it must have.
    pub fn drain(&mut self, stream: usize) -> Checked {
        self.trace(format!("drain {stream}"));
        let due = |run: &Self| {
            run.streams[stream].watchers.values().any(|watcher| !watcher.outstanding(run.model).is_empty())
        };
        while due(self) {
            let got = self.must_come(stream)?;
            self.take(stream, got)?;
        }
        Ok(())
    }

    pub fn send(&mut self, stream: usize, union: WatchUnion) {
        self.driver.watch_send(self.streams[stream].id, WatchRequest { union: Some(union) });
    }

    fn must_come(&mut self, stream: usize) -> Result<WatchResponse, String> {
        let got = self.driver.watch_next(self.streams[stream].id, PATIENCE);
        got.ok_or_else(|| {
            let watchers = &self.streams[stream].watchers;
            let due: Vec<_> =
                watchers.iter().map(|(id, watcher)| (id, watcher.next, watcher.outstanding(self.model))).collect();
            format!("no message came, due: {due:?}")
        })
    }

    /// Takes a message that no step was waiting for.
    pub fn take(&mut self, stream: usize, got: WatchResponse) -> Checked {
        let rules = self.driver.rules();
        let revision = got.header.as_ref().map_or(0, |header| header.revision);
        let context = format!("{got:?}");
        let watchers = &mut self.streams[stream].watchers;
        let (model, coverage) = (&*self.model, &mut *self.coverage);
        let outcome = match watchers.get_mut(&got.watch_id) {
            _ if got.watch_id == -1 && is_progress(&got) => {
                let waiting = watchers.values().any(|watcher| watcher.next > revision + 1 && watcher.waits(model));
                let mut all = watchers.values_mut().filter(|watcher| !watcher.compacted);
                let promised = all.try_for_each(|watcher| {
                    watcher.caught_up();
                    watcher.promised(model, revision)
                });
                if waiting { Err("progress although a watch waits".into()) } else { promised }
            }
            None => Err("no such watch".into()),
            Some(watcher) if got.canceled => {
                coverage.note("watch: overtaken");
                coverage.note_if(
                    watcher.spec.start_revision >= 0 && !watcher.outstanding(model).is_empty(),
                    "watch: passed by compaction while catching up",
                );
                watcher.overtaken(model, &got)
            }
            Some(watcher) if is_progress(&got) && watcher.spec.progress_notify => watcher.promised(model, revision),
            Some(watcher) if !got.events.is_empty() => {
                coverage.note_if(watcher.future, "watch: future came");
                watcher.take(model, &got, rules, coverage)
            }
            Some(_) => Err("a message without a meaning".into()),
        };
        outcome.map_err(|wrong| format!("{context}\n{wrong}"))
    }

    /// Opens every stream again, each watch where it was.
    pub fn resume_watches(&mut self) -> Checked {
        for old in std::mem::take(&mut self.streams) {
            let id = self.driver.watch_open();
            self.streams.push(Stream { id, watchers: BTreeMap::new(), counter: 0 });
            for watcher in old.watchers.into_values().filter(|watcher| !watcher.compacted) {
                let spec = WatchCreate { start_revision: watcher.next, watch_id: 0, ..watcher.spec };
                self.create(self.streams.len() - 1, spec)?;
            }
        }
        Ok(())
    }

    /// Lets compaction pass a watch that has not read what it was opened for.
    pub fn compact_past_a_watch(&mut self) -> Checked {
        let stream = self.some_stream();
        let start_revision = self.model.compacted.max(1);
        if self.streams[stream].watchers.len() < 6 {
            self.create(
                stream,
                WatchCreate { key: vec![0], range_end: vec![0], start_revision, ..Default::default() },
            )?;
        }
        let revision = self.rng.between(self.model.compacted.max(0), self.model.revision);
        self.request(Request::Compact(CompactionRequest { revision, physical: false }))
    }
}

/// True for a message that is nothing but a promise.
pub fn is_progress(got: &WatchResponse) -> bool {
    got.events.is_empty() && !got.created && !got.canceled && got.compact_revision == 0
}
