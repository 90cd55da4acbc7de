//! The scrub of an open keyspace: it finds what the disk lost, is not misled by what goes on, and writes nothing.

use super::gate::within;
use super::shrinking::Busy;
use super::*;

/// What a whole scrub did.
fn scrub(keyspace: &Keyspace, bytes_max: usize) -> Result<ScrubStep, Error> {
    let mut sum = ScrubStep::default();
    while !sum.done {
        let step = keyspace.scrub_step(bytes_max).wait()?;
        sum.rows += step.rows;
        sum.frames += step.frames;
        sum.bytes_read += step.bytes_read;
        sum.damage.extend(step.damage);
        sum.done = step.done;
    }
    Ok(sum)
}

fn base_file() -> PathBuf {
    dir().join("base.redb")
}

#[test]
fn no_false_alarm_while_everything_goes_on() {
    let (mut scrubs, mut rows, mut frames, mut rewrites) = (0, 0, 0, 0);
    for seed in 0..8 {
        let machine = Machine::new(seed);
        let keyspace = machine.open().unwrap();
        let (done, completed) = (std::sync::atomic::AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let scrubber = scope.spawn(|| {
                let (mut scrubs, mut rows, mut frames) = (0, 0, 0);
                while !done.load(Ordering::Acquire) {
                    let found = scrub(&keyspace, [200, 4000, 100_000][scrubs % 3]).unwrap();
                    assert_eq!(found.damage, []);
                    scrubs += 1;
                    completed.fetch_add(1, Ordering::AcqRel);
                    rows += found.rows;
                    frames += found.frames;
                }
                (scrubs, rows, frames)
            });
            let mut busy = Busy::new(seed);
            for round in 0.. {
                busy.work(&machine, &keyspace, 60);
                if round >= 6 && completed.load(Ordering::Acquire) >= 4 {
                    break;
                }
                if round % 3 == 1 {
                    keyspace.defragment().wait().unwrap();
                    rewrites += 1;
                }
            }
            keyspace.wait_swept(keyspace.status().compacted).unwrap();
            done.store(true, Ordering::Release);
            let (s, r, f) = scrubber.join().unwrap();
            (scrubs, rows, frames) = (scrubs + s, rows + r, frames + f);
        });
        assert!(scrub(&keyspace, 1000).unwrap().rows > 0);
        keyspace.verify().unwrap();
        keyspace.close().unwrap();
    }
    println!("{scrubs} scrubs, {rows} rows, {frames} frames, {rewrites} rewrites meanwhile");
    assert!(scrubs >= 32 && rows >= 3000 && frames >= 300 && rewrites >= 16);
}

#[test]
fn a_scrub_reads_the_files_and_writes_nothing() {
    let machine = Machine::new(1);
    let keyspace = machine.open().unwrap();
    for n in 0..500 {
        keyspace.put(put(&format!("key {n}"), vec![1; 200])).wait().unwrap();
    }
    keyspace.flush().unwrap();
    put_in_log_alone(&keyspace, "in the log alone");
    machine.disk.reset_counts();
    let found = scrub(&keyspace, 10_000).unwrap();
    let (total, base) = (machine.disk.total(), machine.disk.counts(base_file()));
    assert_eq!((total.changes, total.syncs, total.bytes_written), (0, 0, 0));
    assert!(found.rows >= 2 * 500 && found.damage.is_empty(), "{found:?}");
    assert!(found.frames >= 1 && base.bytes_read >= 500 * 200, "{found:?} {base:?}");
    assert!(found.bytes_read >= base.bytes_read, "{found:?} {base:?}");
}

/// Puts a value that is in the log and not in base: a flush that was asked for before has ended.
fn put_in_log_alone(keyspace: &Keyspace, value: &'static str) {
    loop {
        let position = |keyspace: &Keyspace| keyspace.inner.shared.head().sources.base.applied().position;
        let before = position(keyspace);
        for n in 0..4 {
            keyspace.put(put(&format!("last {n}"), value)).wait().unwrap();
        }
        if position(keyspace) == before && keyspace.inner.shared.head().sources.frozen.is_none() {
            return;
        }
        keyspace.flush().unwrap();
    }
}

/// A keyspace with keys of which each has a row in both tables, and their bytes in the file.
fn with_keys(machine: &Machine) -> Keyspace {
    let keyspace = machine.open().unwrap();
    for n in 0..300 {
        keyspace.put(put(&format!("key number {n:04}"), format!("value number {n:04}").repeat(8))).wait().unwrap();
    }
    keyspace.flush().unwrap();
    keyspace
}

/// Alters a bit in each place of the file where these bytes are. Answers how many there are.
fn alter(machine: &Machine, file: &PathBuf, bytes: &[u8]) -> usize {
    let image = machine.disk.contents(file).unwrap();
    let places: Vec<usize> = (0..image.len() - bytes.len()).filter(|at| image[*at..].starts_with(bytes)).collect();
    places.iter().for_each(|at| machine.disk.flip_bit(file, *at as u64 * 8 + 1).unwrap());
    places.len()
}

#[test]
fn an_altered_value_is_named_and_everything_else_goes_on() {
    let machine = Machine::new(2);
    let keyspace = with_keys(&machine);
    assert!(alter(&machine, &base_file(), "value number 0123value".as_bytes()) > 0);
    let found = scrub(&keyspace, 5000).unwrap();
    let [Error::Corrupt { place, reason }] = found.damage.as_slice() else { panic!("{found:?}") };
    assert!(place.contains("base.redb") && place.contains("history") && reason.contains("row "), "{place} {reason}");
    // Revision 125.
    assert!(reason.contains("000000000000007d"), "{reason}");
    keyspace.put(put("after", "1")).wait().unwrap();
    assert_eq!(get(&keyspace, "key number 0124").unwrap().value, "value number 0124".repeat(8));
    // It is found again, as long as it is there.
    assert_eq!(scrub(&keyspace, 5000).unwrap().damage, found.damage);
    keyspace.close().unwrap();
}

#[test]
fn an_altered_key_ends_the_keyspace_before_it_is_taken_for_absent_for_long() {
    let machine = Machine::new(3);
    let keyspace = with_keys(&machine);
    assert!(alter(&machine, &base_file(), b"key number 0200\0\x01") > 0);
    let error = scrub(&keyspace, 5000).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("base.redb, index") && text.contains("row 6b65"), "{text}");
    let failed = within("the end", {
        let keyspace = keyspace.clone();
        move || Pending::new(async move { Ok(keyspace.failed().await) }).wait().unwrap()
    });
    assert_eq!(failed, error);
    assert_eq!(keyspace.put(put("after", "1")).wait(), Err(Error::Stopped));
    assert!(keyspace.scrub_step(1000).wait().is_err());
}

#[test]
fn a_damaged_frame_is_named_and_what_it_held_is_brought_to_base() {
    let machine = Machine::new(4);
    let keyspace = with_keys(&machine);
    put_in_log_alone(&keyspace, "a value to be found");
    let position = keyspace.status().applied;
    let log = machine.disk.files().into_iter().rfind(|file| file.starts_with(dir().join("log"))).unwrap();
    assert!(alter(&machine, &log, b"a value to be found") >= 1);
    let found = scrub(&keyspace, 1000).unwrap();
    let Some(Error::Corrupt { place, reason }) = found.damage.last() else { panic!("{found:?}") };
    assert!(place.contains(".log at offset") && reason.contains("brought to base"), "{place} {reason}");
    // Without being asked.
    keyspace.inner.shared.wait_for_base(|head| (head.sources.base.applied().position >= position).then_some(()));
    let found = scrub(&keyspace, 1000).unwrap();
    let Some(Error::Corrupt { reason, .. }) = found.damage.last() else { panic!("{found:?}") };
    assert!(reason.contains("base has all of that"), "{reason}");
    keyspace.close().unwrap();
}

#[test]
fn who_waits_for_a_step_hears_of_the_end() {
    let keyspace = with_keys(&Machine::new(5));
    let asked: Vec<_> = (0..5).map(|_| keyspace.scrub_step(100)).collect();
    keyspace.close().unwrap();
    for step in asked {
        let answer = within("a step", move || step.wait());
        assert!(matches!(answer, Ok(_) | Err(Error::Stopped)), "{answer:?}");
    }
    assert_eq!(keyspace.scrub_step(100).wait(), Err(Error::Stopped));
}
