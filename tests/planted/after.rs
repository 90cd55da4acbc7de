//! What is left after a life: everything that was acknowledged, and what goes with it.

use std::collections::BTreeMap;
use std::path::Path;

use storage::fs::sim::CrashStyle;
use storage::{
    Alarm, AlarmKind, At, ChangeKind, Error, KeyRange, Keyspace, RangeRequest, StartAt, WatchMessage, WatchSpec,
};

use super::life::Life;
use super::{DIR, look, put, tiny};
use crate::model::rng::Rng;

impl Life {
    /// Now and then the power goes after an end.
    pub fn cut_power(&mut self, rng: &mut Rng) {
        if rng.chance(40) {
            let style = *rng.pick(&[CrashStyle::KeepNone, CrashStyle::Sectors, CrashStyle::Pages]);
            self.disk.freeze();
            self.disk = self.disk.crash(style, rng.next());
        }
    }

    /// Opens what is left, with nothing going wrong any more, and compares it with what was acknowledged.
    pub fn assert_nothing_is_lost(&mut self) {
        look(&self.disk).expect("nothing is damaged");
        let keyspace = Keyspace::open(Path::new(DIR), tiny(), self.environment()).expect("it opens");
        let stored: Listed = list_at(&keyspace, 0).expect("it can be read");
        for (key, written) in &self.keys {
            let found = stored.get(key);
            let value = found.map(|(_, value)| value.clone());
            let acknowledged = written.acknowledged.as_ref();
            let fits = match (&found, acknowledged) {
                (Some((revision, value)), Some((acked, expected))) if value == expected => revision == acked,
                (None, None) => true,
                _ => written.open.contains(&value),
            };
            assert!(fits, "{key}: found {found:?}, written {written:?}");
        }
        self.assert_events(&keyspace, &stored);
        keyspace.verify().expect("base is sound");
        let alarm = Alarm { member: keyspace.status().member, kind: AlarmKind::NoSpace };
        keyspace.set_alarm(alarm, false).wait().expect("an alarm can be cleared");
        put(&keyspace, "again", "value").expect("it takes commands");
        keyspace.close().expect("it closes");
    }

    /// A watch from the compacted revision gives every acknowledged put, in order, and ends at what is stored.
    fn assert_events(&self, keyspace: &Keyspace, stored: &Listed) {
        let floor = keyspace.status().compacted.0.max(2);
        assert!(keyspace.status().compacted.0 >= self.compacted, "a compaction is lost");
        let (stream, current) = (keyspace.watch_stream(), keyspace.revision().0);
        stream.create(WatchSpec { start: StartAt::Revision(floor), ..WatchSpec::new(KeyRange::all()) });
        let mut events = Vec::new();
        let mut replayed: Listed = list_at(keyspace, floor).expect("it can be read");
        while events.last().map_or(1, |(revision, _, _)| *revision) < current {
            for message in stream.recv().expect("it lives") {
                let WatchMessage::Events { events: more, .. } = message else { continue };
                for event in more.iter() {
                    let (at, key) = (event.change.at.main.0, String::from_utf8_lossy(&event.change.key).into_owned());
                    match &event.change.kind {
                        ChangeKind::Put { value, .. } => {
                            replayed.insert(key.clone(), (at, value.to_vec()));
                            events.push((at, key, value.to_vec()));
                        }
                        ChangeKind::Tombstone => {
                            replayed.remove(&key);
                            events.push((at, key, Vec::new()));
                        }
                    }
                }
            }
        }
        assert!(events.is_sorted_by_key(|(revision, _, _)| *revision), "{events:?}");
        assert_eq!(&replayed, stored, "what a watch tells and what is stored");
        for put in self.puts.iter().filter(|put| put.0 >= floor) {
            assert!(events.contains(put), "no event for {put:?} from {floor} on");
        }
    }
}

/// Keys with the revisions of their last changes, and their values.
pub type Listed = BTreeMap<String, (i64, Vec<u8>)>;

pub fn list_at(keyspace: &Keyspace, revision: i64) -> Result<Listed, Error> {
    let at = if revision > 0 { At::Revision(revision) } else { At::Latest };
    let reply = keyspace.range(&RangeRequest { at, ..RangeRequest::new(KeyRange::all()) })?;
    let kvs = reply.kvs.iter();
    Ok(kvs.map(|kv| (String::from_utf8_lossy(&kv.key).into_owned(), (kv.mod_revision, kv.value.to_vec()))).collect())
}
