//! A flipped bit is noticed: a start, a read or a look at everything says so, or everything is as it was.

use std::path::Path;
use std::sync::Arc;

use storage::failpoints::Scope;
use storage::fs::sim::SimFs;
use storage::{KeyRange, RangeRequest};

use super::{Checked, look, open, put};
use crate::embedded::environment::never_flushing;
use crate::model::rng::Rng;

pub fn suite(_: &Arc<Scope>, seed: u64) -> Checked {
    let (mut rng, mut written, original) = (Rng::new(seed), Vec::new(), SimFs::new());
    let keyspace = open(&original, never_flushing())?;
    for number in 0..12 {
        let mut value = format!("value {number:02} of {seed} ").into_bytes();
        value.resize(if number % 2 == 0 { 50 } else { 200 }, b'a' + number);
        put(&keyspace, &format!("k{number:02}"), value.clone())?;
        written.push(value);
        // What comes later is in the log alone.
        if number == 7 {
            keyspace.flush()?;
        }
    }
    original.freeze();
    drop(keyspace);
    for file in original.files() {
        // The last one is the end of the log, the first eight are in base.
        for value in [rng.pick(&written).clone(), written[11].clone(), written[rng.below(8)].clone()] {
            if let Some(at) = find(&original, &file, &value) {
                let disk = original.restart();
                let bit = (at + 16 + rng.below(value.len() - 16)) * 8 + rng.below(8);
                disk.flip_bit(&file, bit as u64)?;
                noticed(&disk, &written).map_err(|wrong| format!("bit {bit} of {}: {wrong}", file.display()))?;
            }
        }
    }
    Ok(())
}

fn find(disk: &SimFs, file: &Path, value: &[u8]) -> Option<usize> {
    disk.contents(file)?.windows(value.len()).position(|window| window == value)
}

/// All is said to be well only if it is.
fn noticed(disk: &SimFs, written: &[Vec<u8>]) -> Checked {
    let well = look(&disk.restart()).is_ok();
    let Ok(keyspace) = open(disk, never_flushing()) else {
        return if well { Err("it does not open, but all is said to be well".into()) } else { Ok(()) };
    };
    let found = keyspace.range(&RangeRequest::new(KeyRange::all()));
    let values = found.map(|reply| reply.kvs.iter().map(|kv| kv.value.to_vec()).collect::<Vec<_>>());
    match values {
        Ok(values) if values != written => Err("other values are read".into()),
        Ok(_) => Ok(()),
        Err(error) if well || keyspace.verify().is_ok() => Err(format!("all is said to be well, but {error}").into()),
        Err(_) => Ok(()),
    }
}
