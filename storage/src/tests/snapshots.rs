//! Snapshots: what was taken while everything went on comes back as it was, and nothing else passes for one.

use std::path::Path;

use super::*;
use crate::fs::sim::{CrashStyle, Fault, FaultKind, Prng};
use crate::fs::{FileSystem, OpenMode};

const FILE: &str = "/snapshot";

/// A keyspace under random requests.
struct Busy {
    keyspace: Keyspace,
    rng: Prng,
}

impl Busy {
    fn new(seed: u64) -> Busy {
        let keyspace = Machine::new(seed).open().unwrap();
        for id in 1..4 {
            keyspace.lease_grant(Some(LeaseId(id)), 1000 * id).wait().unwrap();
        }
        Busy { keyspace, rng: Prng::new(seed) }
    }

    /// One request, or something that moves data about.
    fn step(&mut self) {
        let (keyspace, rng) = (&self.keyspace, &mut self.rng);
        let name = format!("key {}", rng.below(30));
        match rng.below(40) {
            0 => drop(
                keyspace.delete_range(DeleteRange { range: KeyRange::prefix(key("key 1")), prev_kv: false }).wait(),
            ),
            1..8 => drop(keyspace.delete_range(delete(&name)).wait().unwrap()),
            8 => keyspace.flush().unwrap(),
            9 => drop(keyspace.defragment()),
            10 => drop(keyspace.lease_grant(Some(LeaseId(rng.below(9) as i64 + 1)), 500).wait()),
            11 => drop(keyspace.lease_revoke(LeaseId(rng.below(9) as i64 + 1)).wait()),
            _ => {
                let value = vec![b'v'; [0, 7, 64, 65, 900][rng.below(5) as usize]];
                let lease = LeaseId(rng.below(9) as i64 + 1);
                let lease = if rng.below(4) == 0 { PutLease::Attach(lease) } else { PutLease::Detach };
                drop(keyspace.put(Put { lease, ..put(&name, value) }).wait());
            }
        }
    }

    fn steps(&mut self, count: u64) {
        (0..count).for_each(|_| self.step());
    }

    /// Compacts to somewhere up to `upto`, `most` revisions further at most, and now and then waits until it is done.
    fn compact(&mut self, upto: Revision, most: u64) {
        let compacted = self.keyspace.status().compacted.0.max(1);
        let room = (upto.0 - compacted).max(0) as u64;
        let target = compacted + self.rng.below(room.min(most) + 1) as i64;
        if self.keyspace.compact(target).wait().is_ok() && self.rng.below(2) == 0 {
            self.keyspace.wait_swept(Revision(target)).unwrap();
        }
    }
}

/// All that a reader can learn of a keyspace.
#[derive(Debug, PartialEq)]
struct Picture {
    /// From the compacted revision on.
    states: Vec<(i64, Vec<KeyValue>)>,
    history: Vec<Arc<Change>>,
    leases: Vec<(LeaseId, i64, i64, Vec<Bytes>)>,
}

fn picture(keyspace: &Keyspace) -> Picture {
    let Status { revision, compacted, .. } = keyspace.status();
    let states = (compacted.0.max(1)..=revision.0).map(|at| (at, all_at(keyspace, at).unwrap())).collect();
    let mut ids = keyspace.leases();
    ids.sort_unstable();
    let lease = |id: LeaseId| {
        let LeaseTimeToLive { ttl, granted_ttl, keys, .. } = keyspace.lease_time_to_live(id, true).unwrap().unwrap();
        (id, granted_ttl, ttl, keys)
    };
    Picture { states, history: history(keyspace, compacted.0.max(1) + 1), leases: ids.into_iter().map(lease).collect() }
}

fn all_at(keyspace: &Keyspace, revision: i64) -> Result<Vec<KeyValue>, Error> {
    let at = if revision == 0 { At::Latest } else { At::Revision(revision) };
    keyspace.range(&RangeRequest { at, ..RangeRequest::new(KeyRange::all()) }).map(|reply| reply.kvs)
}

impl Picture {
    /// The same without what lies below the compacted revision.
    fn compacted_at(mut self, compacted: Revision) -> Picture {
        self.states.retain(|(at, _)| *at >= compacted.0);
        self.history.retain(|change| change.at.main > compacted);
        self
    }
}

/// The pieces of a snapshot, `meanwhile` being called between them.
pub(super) fn pieces(mut stream: SnapshotStream, mut meanwhile: impl FnMut()) -> Result<Vec<Bytes>, Error> {
    let mut pieces = Vec::new();
    let mut remaining = stream.remaining_bytes();
    while let Some(piece) = stream.next_piece()? {
        pieces.push(piece);
        assert!(stream.remaining_bytes() <= remaining, "the estimate grows");
        remaining = stream.remaining_bytes();
        meanwhile();
    }
    assert_eq!(remaining, 0);
    Ok(pieces)
}

fn whole(keyspace: &Keyspace) -> Vec<u8> {
    pieces(keyspace.snapshot().in_blocks_of(4000), || ()).unwrap().concat()
}

/// The file, alone on a machine.
pub(super) fn machine_with(bytes: &[u8], seed: u64) -> Machine {
    let machine = Machine::new(seed);
    let file = machine.disk.open(Path::new(FILE), OpenMode::CreateNew).unwrap();
    file.write_at(0, bytes).unwrap();
    file.sync().unwrap();
    machine.disk.sync_dir(Path::new("/")).unwrap();
    machine
}

fn opened(machine: &Machine) -> Result<SnapshotFile, Error> {
    SnapshotFile::open(&machine.disk, Path::new(FILE), false)
}

fn restored(machine: &Machine, bump: i64) -> Result<Keyspace, Error> {
    opened(machine)?.restore(&dir(), bump, &small(), &machine.environment())?;
    machine.open()
}

#[test]
fn what_is_taken_while_everything_goes_on_comes_back_as_it_was() {
    let (mut blocks, mut moved, mut refused, mut revisions) = (0, 0, 0, 0);
    for seed in 0..60 {
        let mut busy = Busy::new(seed);
        let steps = 50 + busy.rng.below(300);
        busy.steps(steps);
        let upto = busy.keyspace.revision();
        if seed % 3 != 0 {
            busy.compact(upto, 100);
        }
        let before = busy.keyspace.status();
        let expected = picture(&busy.keyspace);
        let stream = busy.keyspace.snapshot().in_blocks_of(3000);
        assert_eq!(stream.revision(), before.revision);
        let limit = if seed % 10 == 9 { Revision(i64::MAX) } else { before.revision };
        let step = if limit == before.revision { 6 } else { 100 };
        let taken = pieces(stream, || {
            busy.steps(10);
            let upto = limit.min(busy.keyspace.revision());
            busy.compact(upto, step);
        });
        let compacted = busy.keyspace.status().compacted;
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                assert!(matches!(error, Error::Compacted { asked, .. } if asked == before.revision.0), "{error}");
                assert!(compacted > before.revision);
                refused += 1;
                continue;
            }
        };
        blocks += taken.len();
        let machine = machine_with(&taken.concat(), seed + 1000);
        let info = *opened(&machine).unwrap().info();
        assert_eq!((info.cluster, info.revision), (before.cluster, before.revision));
        assert!(info.compacted >= before.compacted && info.compacted <= compacted);
        moved += usize::from(info.compacted > before.compacted);
        let keyspace = restored(&machine, 0).unwrap();
        keyspace.verify().unwrap();
        let status = keyspace.status();
        assert_eq!((status.revision, status.compacted), (before.revision, info.compacted));
        assert!(status.cluster != before.cluster && status.member != before.member);
        let expected = expected.compacted_at(info.compacted);
        assert_eq!(info.keys as usize, expected.states.last().unwrap().1.len());
        assert_eq!(picture(&keyspace), expected, "seed {seed}");
        revisions += expected.states.len();
        // It goes on as the original would have.
        assert_eq!(keyspace.put(put("new", "x")).wait().unwrap().revision, before.revision.next());
    }
    println!("{blocks} blocks, {moved} of 60 compacted meanwhile, {refused} overtaken, {revisions} revisions compared");
    assert!(blocks >= 500 && moved >= 25 && refused >= 3 && revisions >= 2000);
}

#[test]
fn a_bump_hides_every_revision_from_before_and_keeps_what_keys_say() {
    let bump = 1_000_000_000;
    let mut busy = Busy::new(7);
    busy.steps(200);
    let revision = busy.keyspace.revision();
    let now = all_at(&busy.keyspace, 0).unwrap();
    let machine = machine_with(&whole(&busy.keyspace), 8);
    let keyspace = restored(&machine, bump).unwrap();
    let raised = Revision(revision.0 + bump);
    let status = keyspace.status();
    assert_eq!((status.revision, status.compacted), (raised, raised));
    assert_eq!(all_at(&keyspace, 0).unwrap(), now);
    assert_eq!(all_at(&keyspace, raised.0).unwrap(), now);
    for asked in [1, revision.0, revision.0 + 1, raised.0 - 1] {
        assert_eq!(all_at(&keyspace, asked), Err(Error::Compacted { asked, floor: raised.0 }));
        let stream = keyspace.watch_stream();
        stream.create(WatchSpec { start: StartAt::Revision(asked), ..WatchSpec::new(KeyRange::all()) });
        let mut refused = false;
        while !refused {
            for message in stream.recv().unwrap() {
                assert!(!matches!(message, WatchMessage::Events { .. }));
                refused |= matches!(message, WatchMessage::Compacted { floor, .. } if floor == raised);
            }
        }
    }
    // Who read a key before the loss may still compare with what he read.
    let last = now.last().unwrap();
    let name = String::from_utf8(last.key.to_vec()).unwrap();
    let compare = Compare {
        range: KeyRange::single(key(&name)),
        target: CompareTarget::Mod(last.mod_revision),
        result: CompareResult::Equal,
    };
    let txn = Txn { compares: vec![compare], success: vec![Op::Put(put(&name, "swapped"))], failure: vec![] };
    let reply = keyspace.txn(txn).wait().unwrap();
    assert!(reply.succeeded);
    assert_eq!(reply.revision, raised.next());
    let swapped = get(&keyspace, &name).unwrap();
    assert_eq!((swapped.create_revision, swapped.version), (last.create_revision, last.version + 1));
    keyspace.wait_swept(raised).unwrap();
    keyspace.verify().unwrap();
    for wrong in [-1, i64::MAX] {
        let refused = opened(&machine).unwrap().restore(Path::new("/other"), wrong, &small(), &machine.environment());
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    }
}

#[test]
fn no_shorter_file_and_no_altered_byte_passes_for_a_snapshot() {
    let mut busy = Busy::new(3);
    busy.steps(200);
    let bytes = whole(&busy.keyspace);
    assert_eq!(bytes.len() % 512, 32);
    let mut rng = Prng::new(4);
    let small_ones = [0, 1, 11, 12, 27, 28, bytes.len() - 1, bytes.len() - 31, bytes.len() - 32, bytes.len() - 33];
    let cuts: Vec<usize> = (0..150).map(|_| rng.below(bytes.len() as u64) as usize).chain(small_ones).collect();
    for cut in cuts {
        let machine = machine_with(&bytes[..cut], 1);
        assert!(matches!(opened(&machine), Err(Error::Corrupt { .. })), "{cut} of {} bytes", bytes.len());
        assert!(machine.disk.metadata(&dir()).unwrap().is_none());
    }
    for _ in 0..300 {
        let (at, flip) = (rng.below(bytes.len() as u64) as usize, rng.below(255) as u8 + 1);
        let mut altered = bytes.clone();
        altered[at] ^= flip;
        let machine = machine_with(&altered, 1);
        let format = (8..12).contains(&at);
        let refused = opened(&machine);
        assert!(
            matches!(&refused, Err(Error::Corrupt { .. })) || (format && matches!(&refused, Err(Error::Io { .. }))),
            "byte {at}: {refused:?}"
        );
        // Without the hash everything but the hash itself is still noticed.
        let lenient = SnapshotFile::open(&machine.disk, Path::new(FILE), true);
        assert_eq!(lenient.is_ok(), at >= bytes.len() - 32, "byte {at}: {lenient:?}");
    }
    let longer = [bytes.clone(), vec![0]].concat();
    assert!(matches!(opened(&machine_with(&longer, 1)), Err(Error::Corrupt { .. })));
    // A file that changes after it was checked.
    let machine = machine_with(&bytes, 1);
    let file = opened(&machine).unwrap();
    machine.disk.damage(FILE, bytes.len() as u64 / 2, &[bytes[bytes.len() / 2] ^ 1]).unwrap();
    let refused = file.restore(&dir(), 0, &small(), &machine.environment());
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    assert!(machine.open().unwrap_err().to_string().contains("did not end"));
}

#[test]
fn a_crash_at_any_operation_of_a_restore_leaves_nothing_or_a_directory_that_is_refused_until_it_is_done() {
    let mut busy = Busy::new(5);
    busy.steps(150);
    let (bytes, revision) = (whole(&busy.keyspace), busy.keyspace.revision());
    let expected = picture(&busy.keyspace);
    let (mut refused, mut absent, mut complete) = (0, 0, 0);
    for nth in 1.. {
        let machine = machine_with(&bytes, nth);
        let file = opened(&machine).unwrap();
        machine.disk.inject(Fault::new(FaultKind::Freeze, nth));
        let done = file.restore(&dir(), 0, &small(), &machine.environment()).is_ok();
        for style in [CrashStyle::KeepNone, CrashStyle::Sectors, CrashStyle::KeepAll] {
            let after = machine.after_power_cut(style);
            let context = format!("operation {nth}, {style:?}");
            match after.open() {
                Ok(keyspace) if keyspace.revision() == revision => {
                    assert_eq!(picture(&keyspace), expected, "{context}");
                    complete += 1;
                }
                Ok(keyspace) => {
                    assert!(keyspace.status().opened.created && !done, "{context}: neither restored nor new");
                    absent += 1;
                }
                Err(error) => {
                    assert!(error.to_string().contains("did not end") && !done, "{context}: {error}");
                    refused += 1;
                    assert_eq!(picture(&restored(&after, 0).unwrap()), expected, "{context}, again");
                }
            }
        }
        if done {
            break;
        }
    }
    println!("{refused} images refused, {absent} without anything, {complete} complete");
    assert!(refused >= 60 && absent >= 3 && complete >= 3);
}

#[test]
fn the_bytes_of_an_empty_snapshot_are_fixed() {
    let bytes = whole(&Machine::new(1).open().unwrap());
    let again = whole(&Machine::new(1).open().unwrap());
    assert_eq!(bytes, again);
    let hex = |range: std::ops::Range<usize>| -> String { bytes[range].iter().map(|b| format!("{b:02x}")).collect() };
    assert_eq!(hex(0..24), "535445524e534e500200000001000000000000001800000000".get(..48).unwrap());
    // The end: nothing compacted, nothing counted.
    assert_eq!(hex(52..64), "040000000100000058000000");
    assert_eq!(hex(68..156), format!("{}{}", "f".repeat(16), "0".repeat(160)));
    assert_eq!(bytes.len(), 512 + 32);
}
