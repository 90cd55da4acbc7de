//! Images of power cuts, within recovery too, and what must be found in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use storage::Options;
use storage::fs::sim::{CrashStyle, SimFs, Tape};

use super::super::environment::HandClock;
use super::life::{Life, open, options};
use super::over::{Over, is_unsynced, moment};
use super::restoring::Restore;
use super::run::Stop;
use super::world::{World, Wrong};
use crate::model::rng::Rng;

/// Lives of a history, each beginning in an image of the one before.
const LIVES: u64 = 10;
/// Steps of a life.
const STEPS: usize = 30;
/// Images of a life.
const IMAGES: usize = 60;
/// Images of a restore.
const RESTORES: usize = 20;
/// How often a recovery is cut again, and again.
const DEPTH: usize = 3;

const STYLES: [CrashStyle; 5] =
    [CrashStyle::KeepNone, CrashStyle::KeepAll, CrashStyle::Sectors, CrashStyle::Pages, CrashStyle::HeaderBytes];

/// What was examined.
#[derive(Debug, Default)]
pub struct Tally {
    pub histories: u64,
    pub lives: u64,
    pub images: u64,
    /// By what was going on when the power went.
    pub activities: BTreeMap<&'static str, u64>,
    pub styles: BTreeMap<String, u64>,
    /// Cuts within recovery, by how deep.
    pub recoveries: [u64; DEPTH],
    /// Images that were written to and cut once more.
    pub gone_on: u64,
    /// Images in which something unacknowledged survived.
    pub survived: u64,
    pub keys: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.histories += other.histories;
        self.lives += other.lives;
        self.images += other.images;
        other.activities.iter().for_each(|(name, count)| *self.activities.entry(name).or_default() += count);
        other.styles.iter().for_each(|(name, count)| *self.styles.entry(name.clone()).or_default() += count);
        self.recoveries.iter_mut().zip(other.recoveries).for_each(|(sum, count)| *sum += count);
        self.gone_on += other.gone_on;
        self.survived += other.survived;
        self.keys += other.keys;
    }

    pub fn in_recovery(&self) -> u64 {
        self.recoveries.iter().sum()
    }
}

/// A history and its images; only one of them if it is asked for.
pub struct History<'a> {
    pub seed: u64,
    pub only: Option<u64>,
    pub tally: &'a mut Tally,
    next: u64,
}

impl<'a> History<'a> {
    pub fn new(seed: u64, only: Option<u64>, tally: &'a mut Tally) -> History<'a> {
        History { seed, only, tally, next: 0 }
    }

    /// Leads all lives and examines their images. Errors: what is wrong, with the number of the image.
    pub fn run(mut self) -> Result<(), Stop> {
        let mut rng = Rng::new(self.seed);
        let (mut disk, clock) = (SimFs::new(), Arc::new(HandClock::default()));
        let mut allowed = vec![Arc::new(World::new())];
        for number in 0..LIVES {
            let in_life = |wrong| Stop::new(self.seed, self.next, format!("life {number}"), wrong);
            disk.record();
            let mut life = Life::begin(&disk, &clock, &allowed, rng.next()).map_err(in_life)?;
            life.clear_alarm().and_then(|()| life.steps(STEPS)).map_err(in_life)?;
            let restore = match rng.chance(25) {
                true => {
                    let world = life.worlds.last().expect("there is one");
                    Some(Restore::record(&life.keyspace, world, &clock, rng.next()).map_err(in_life)?)
                }
                false => None,
            };
            let mut over = life.end().map_err(in_life)?;
            if let Some(restore) = restore {
                self.restores(&restore, &mut rng)?;
            }
            let mut activities = over.activities(if number == 0 { "creation" } else { "recovery" });
            if rng.chance(75) {
                let order = over.interleaved(&mut rng);
                over.tape.reorder(&order);
                activities = order.iter().map(|place| activities[*place]).collect();
            }
            (disk, allowed) = self.images(&over, &activities, &mut rng)?;
            self.tally.lives += 1;
        }
        self.tally.histories += 1;
        Ok(())
    }

    /// Examines images of a restore.
    fn restores(&mut self, restore: &Restore, rng: &mut Rng) -> Result<(), Stop> {
        let steps = restore.tape.steps().len();
        let mut places: Vec<usize> = (0..RESTORES).map(|_| rng.below(steps + 1)).collect();
        places.sort_unstable();
        let mut player = restore.tape.play();
        for place in places {
            let (style, seed) = (*rng.pick(&STYLES), rng.next());
            player.advance_to(place);
            self.next += 1;
            if self.only.is_none_or(|only| only == self.next - 1) {
                let image = player.crash(style, seed);
                restore.examine(&image, place == steps, &mut Rng::new(seed)).map_err(|wrong| {
                    Stop::new(self.seed, self.next - 1, format!("{style:?} at step {place} of a restore"), wrong)
                })?;
                *self.tally.activities.entry("restore").or_default() += 1;
                self.tally.images += 1;
            }
        }
        Ok(())
    }

    /// Examines the images of a life. Returns one of them, and what it may hold.
    fn images(
        &mut self,
        over: &Over,
        activities: &[&'static str],
        rng: &mut Rng,
    ) -> Result<(SimFs, Vec<Arc<World>>), Stop> {
        let mut places: Vec<usize> = (0..IMAGES).map(|_| moment(&over.tape, rng)).collect();
        places.sort_unstable();
        let chosen = rng.below(IMAGES);
        let mut player = over.tape.play();
        let mut next_life = None;
        for (index, place) in places.into_iter().enumerate() {
            let (style, seed) = (style(is_unsynced(&over.tape, place), rng), rng.next());
            let number = self.next;
            self.next += 1;
            player.advance_to(place);
            let allowed = over.allowed(place);
            if self.only.is_none_or(|only| only == number) {
                let activity = place.checked_sub(1).map_or("rest", |last| activities[last]);
                let mut cut = Cut { tally: &mut *self.tally, clock: &over.clock, rng: Rng::new(seed) };
                let image = player.crash(style, seed);
                cut.examine(&image, allowed, is_unsynced(&over.tape, place), 0).map_err(|wrong| {
                    Stop::new(self.seed, number, format!("{style:?} at step {place}, during {activity}"), wrong)
                })?;
                *self.tally.activities.entry(activity).or_default() += 1;
                *self.tally.styles.entry(format!("{style:?}")).or_default() += 1;
                self.tally.recoveries[0] += u64::from(activity == "recovery");
            }
            if index == chosen {
                next_life = Some((player.crash(style, seed), allowed.to_vec()));
            }
        }
        Ok(next_life.expect("one was chosen"))
    }
}

/// A style; where a frame was written and not synced, more often one that tears it.
fn style(unsynced: bool, rng: &mut Rng) -> CrashStyle {
    if unsynced && rng.chance(50) { CrashStyle::Sectors } else { *rng.pick(&STYLES) }
}

/// What a life of a seed does to the disk, step by step.
pub fn record(seed: u64) -> Result<Tape, Wrong> {
    let (disk, clock) = (SimFs::new(), Arc::new(HandClock::default()));
    disk.record();
    let mut life = Life::begin(&disk, &clock, &[Arc::new(World::new())], seed)?;
    life.steps(2 * STEPS)?;
    Ok(life.end()?.tape)
}

/// An image that is looked at.
struct Cut<'a> {
    tally: &'a mut Tally,
    clock: &'a Arc<HandClock>,
    rng: Rng,
}

impl Cut<'_> {
    /// What was opened goes on for a few steps, and is cut again: where a frame may have been torn, most often while the next one is written.
    fn go_on(&mut self, image: &SimFs, world: Arc<World>, torn: bool) -> Result<(), Wrong> {
        image.record();
        let mut life = Life::begin(image, self.clock, std::slice::from_ref(&world), self.rng.next())?;
        life.clear_alarm()?;
        life.steps(1 + self.rng.below(4))?;
        if self.rng.chance(30) {
            life.settle()?;
            life.world().check_swept(&life.keyspace)?;
        }
        let over = life.end()?;
        let mut player = over.tape.play();
        let first = over.first_frame().filter(|_| torn && self.rng.chance(80));
        let place = first.unwrap_or_else(|| moment(&over.tape, &mut self.rng));
        player.advance_to(place);
        // Which sectors of the new frame, and which of the torn one, are there decides what the next start finds.
        for _ in 0..if first.is_some() { 6 } else { 1 } {
            let cut = player.crash(style(first.is_some(), &mut self.rng), self.rng.next());
            self.tally.gone_on += 1;
            self.open(&cut, over.allowed(place))?;
        }
        Ok(())
    }

    /// Opens an image, compares it with what it may hold, and cuts its recovery now and then.
    fn examine(&mut self, image: &SimFs, allowed: &[Arc<World>], torn: bool, depth: usize) -> Result<(), Wrong> {
        let again = depth < DEPTH && self.rng.chance(30);
        let on = self.rng.chance(if torn { 60 } else { 15 });
        if again {
            image.record();
        }
        let world = self.open(image, allowed)?;
        self.tally.survived += u64::from(!Arc::ptr_eq(&world, &allowed[0]));
        let Some(tape) = image.take_tape() else {
            return if on {
                self.go_on(image, world, torn).map_err(|wrong| wrong.within("when it went on"))
            } else {
                Ok(())
            };
        };
        let mut player = tape.play();
        let mut places: Vec<usize> = (0..2).map(|_| 1 + self.rng.below(tape.steps().len())).collect();
        places.sort_unstable();
        for place in places {
            player.advance_to(place);
            let (style, seed) = (*self.rng.pick(&STYLES), self.rng.next());
            // What the disk holds is decided: whatever is done to recovery, the same comes of it.
            self.examine(&player.crash(style, seed), std::slice::from_ref(&world), false, depth + 1)
                .map_err(|wrong| wrong.within(&format!("recovery {}, {style:?} at step {place}", depth + 1)))?;
            self.tally.recoveries[depth] += 1;
        }
        Ok(())
    }

    fn open(&mut self, image: &SimFs, allowed: &[Arc<World>]) -> Result<Arc<World>, Wrong> {
        // A small bound makes recovery bring parts to base.
        let options = Options { recent_changes: *self.rng.pick(&[6, 1_000_000]), ..options() };
        let keyspace = open(image, self.clock, self.rng.next(), options)?;
        keyspace.rest();
        let world = World::find(allowed, &keyspace)?;
        world.check(&keyspace, &mut self.rng)?;
        self.tally.images += 1;
        self.tally.keys += world.model.keys.len() as u64;
        Ok(world)
    }
}
