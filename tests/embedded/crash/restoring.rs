//! A restore that is cut short: what it leaves is refused or whole, and another one begins anew.

use std::path::Path;
use std::sync::Arc;

use storage::fs::sim::{SimFs, Tape};
use storage::fs::{FileSystem, OpenMode};
use storage::{Environment, Error, Keyspace, SnapshotFile};

use super::super::environment::{HandClock, Seeded};
use super::life::options;
use super::world::{World, Wrong};
use crate::model::rng::Rng;

const FILE: &str = "/snapshot";
const RESTORED: &str = "/restored";

/// A restore on a recording disk, and what it must bring.
pub struct Restore {
    pub tape: Tape,
    pub world: Arc<World>,
    clock: Arc<HandClock>,
}

fn environment(disk: &SimFs, clock: &Arc<HandClock>, seed: u64) -> Environment {
    Environment { fs: Arc::new(disk.clone()), clock: clock.clone(), entropy: Arc::new(Seeded::new(seed)) }
}

fn restore(disk: &SimFs, clock: &Arc<HandClock>, seed: u64) -> Result<(), Error> {
    let file = SnapshotFile::open(disk, Path::new(FILE), false)?;
    file.restore(Path::new(RESTORED), 0, &options(), &environment(disk, clock, seed)).map(drop)
}

impl Restore {
    /// Takes a snapshot of a keyspace and restores it on another disk. The last step of the tape is the mark that says it is done.
    pub fn record(
        keyspace: &Keyspace,
        world: &Arc<World>,
        clock: &Arc<HandClock>,
        seed: u64,
    ) -> Result<Restore, Wrong> {
        let disk = SimFs::new();
        let file = disk.open(Path::new(FILE), OpenMode::CreateNew).expect("the disk is empty");
        let mut snapshot = keyspace.snapshot();
        let mut offset = 0;
        while let Some(piece) = snapshot.next_piece()? {
            file.write_at(offset, &piece).expect("there is room");
            offset += piece.len() as u64;
        }
        file.sync().and_then(|()| disk.sync_dir(Path::new("/"))).expect("the disk is there");
        disk.record();
        restore(&disk, clock, seed)?;
        disk.mark(0);
        let tape = disk.take_tape().expect("it was recorded");
        Ok(Restore { tape, world: world.clone(), clock: clock.clone() })
    }

    /// What a cut of the restore left: `done` says that it had returned.
    pub fn examine(&self, image: &SimFs, done: bool, rng: &mut Rng) -> Result<(), Wrong> {
        let named = |name: &str| {
            let file = image.metadata(&Path::new(RESTORED).join(name));
            file.expect("the disk is there").is_some()
        };
        // Without an identity there is nothing that a start could mistake for data.
        if !done && !named("identity") {
            restore(image, &self.clock, rng.next())?;
        }
        let open = |seed| Keyspace::open(Path::new(RESTORED), options(), environment(image, &self.clock, seed));
        let keyspace = match open(rng.next()) {
            Ok(keyspace) => keyspace,
            Err(error) if done => return Err(Wrong::Error(error)),
            Err(_) => {
                restore(image, &self.clock, rng.next())?;
                open(rng.next())?
            }
        };
        keyspace.rest();
        self.world.check_content(&keyspace, rng)?;
        self.world.check_leases(&keyspace)?;
        keyspace.verify()?;
        Ok(())
    }
}
