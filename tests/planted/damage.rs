//! A flipped bit is noticed: a start, a read or a look at everything says so, or everything is as it was.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use storage::failpoints::Scope;
use storage::fs::FileSystem;
use storage::fs::sim::SimFs;
use storage::{Environment, Key, KeyRange, Keyspace, Put, PutLease, PutValue, RangeRequest};

use crate::embedded::environment::{Counting, HandClock, never_flushing};
use crate::model::rng::Rng;

fn open(disk: &SimFs) -> Result<Keyspace, storage::Error> {
    let entropy = Arc::new(Counting::default());
    let environment = Environment { fs: Arc::new(disk.clone()), clock: Arc::new(HandClock::default()), entropy };
    Keyspace::open(Path::new("/keyspace"), never_flushing(), environment)
}

fn values(keyspace: &Keyspace) -> Result<Vec<Vec<u8>>, storage::Error> {
    let reply = keyspace.range(&RangeRequest::new(KeyRange::all()))?;
    Ok(reply.kvs.iter().map(|kv| kv.value.to_vec()).collect())
}

pub fn suite(_: &Arc<Scope>, seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut written = Vec::new();
    let original = SimFs::new();
    let keyspace = open(&original).map_err(|error| error.to_string())?;
    for number in 0..12 {
        let mut value = format!("value {number:02} of {seed} ").into_bytes();
        value.resize(if number % 2 == 0 { 50 } else { 200 }, b'a' + number);
        let key = Key::new(format!("k{number:02}")).expect("not empty");
        let put = Put { key, value: PutValue::Set(value.clone().into()), lease: PutLease::Detach, prev_kv: false };
        keyspace.put(put).wait().map_err(|error| error.to_string())?;
        written.push(value);
        // What comes later is in the log alone.
        if number == 7 {
            keyspace.flush().map_err(|error| error.to_string())?;
        }
    }
    original.freeze();
    drop(keyspace);
    for file in original.files() {
        // Of those in base the log has a copy, which nobody reads: either way nothing may be wrong in silence.
        for value in [rng.pick(&written).clone(), written[11].clone(), written[rng.below(8)].clone()] {
            if let Some(at) = find(&original, &file, &value) {
                let disk = original.restart();
                let bit = (at as u64 + 16 + rng.below(value.len() - 16) as u64) * 8 + rng.below(8) as u64;
                disk.flip_bit(&file, bit).map_err(|error| error.to_string())?;
                noticed(&disk, &written).map_err(|wrong| format!("bit {bit} of {}: {wrong}", file.display()))?;
            }
        }
    }
    Ok(())
}

fn find(disk: &SimFs, file: &PathBuf, value: &[u8]) -> Option<usize> {
    disk.contents(file)?.windows(value.len()).position(|window| window == value)
}

/// All is said to be well only if it is.
fn noticed(disk: &SimFs, written: &[Vec<u8>]) -> Result<(), String> {
    let copy: Arc<dyn FileSystem> = Arc::new(disk.restart());
    let all_well = storage::verify(Path::new("/keyspace"), &copy, 1 << 20).is_ok_and(|report| report.damage.is_empty());
    let Ok(keyspace) = open(disk) else {
        return if all_well { Err("it does not open, but all is said to be well".to_owned()) } else { Ok(()) };
    };
    let found = values(&keyspace);
    let verified = keyspace.verify();
    match found {
        Ok(found) if found != written => Err("other values are read".to_owned()),
        Ok(_) => Ok(()),
        Err(error) if verified.is_ok() || all_well => Err(format!("all is said to be well, a read says: {error}")),
        Err(_) => Ok(()),
    }
}
