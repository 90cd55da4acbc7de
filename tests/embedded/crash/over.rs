//! A life that is over: what its recording says, and in which other order the same could have happened.

use std::collections::VecDeque;
use std::sync::Arc;

use storage::fs::sim::{Deed, Step, Tape};

use super::super::environment::HandClock;
use super::world::World;
use crate::model::rng::Rng;

/// What a mark on the tape stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It is open.
    Opened,
    /// Step so-and-so is begun, 0 the first.
    Begun(usize),
    /// It was answered.
    Answered(usize),
    /// The maintenance thread has a turn.
    Turn,
    /// It did this.
    Turned(&'static str),
}

/// A life that is over.
pub struct Over {
    pub tape: Tape,
    pub worlds: Vec<Arc<World>>,
    pub marks: Vec<Mark>,
    pub clock: Arc<HandClock>,
}

fn writes_log(step: &Step) -> bool {
    matches!(step.deed, Deed::Write(..)) && step.path.extension().is_some_and(|extension| extension == "log")
}

/// True if the last step before `place` wrote to the log, and nothing has synced it.
pub fn is_unsynced(tape: &Tape, place: usize) -> bool {
    place.checked_sub(1).and_then(|last| tape.steps().get(last)).is_some_and(writes_log)
}

/// A moment for a cut: anywhere on the tape, or where a frame was written and not yet synced.
pub fn moment(tape: &Tape, rng: &mut Rng) -> usize {
    let steps = tape.steps();
    let place = rng.below(steps.len());
    let next_write = steps.iter().skip(place).position(writes_log).filter(|_| rng.chance(25));
    place + 1 + next_write.unwrap_or(0)
}

impl Over {
    /// What a step on the tape belongs to.
    fn mark(&self, step: &Step) -> Option<Mark> {
        if let Deed::Mark(number) = step.deed { self.marks.get(number as usize).copied() } else { None }
    }

    /// What was going on at each step of the tape.
    pub fn activities(&self, opening: &'static str) -> Vec<&'static str> {
        let (mut now, mut activities) = (opening, Vec::new());
        for (place, step) in self.tape.steps().iter().enumerate() {
            match self.mark(step) {
                Some(Mark::Begun(_)) => now = "append",
                Some(Mark::Turn) => now = self.turned(place),
                Some(_) => now = "rest",
                None => {}
            }
            let of_committer = &*step.thread == "committer";
            activities.push(match step.deed {
                _ if now == opening => opening,
                _ if now != "append" && of_committer => "trim",
                Deed::Create | Deed::Allocate(..) if now == "append" => "segment",
                _ => now,
            });
        }
        activities
    }

    /// What the turn that begins here did.
    fn turned(&self, from: usize) -> &'static str {
        let marks = self.tape.steps().iter().skip(from + 1).filter_map(|step| self.mark(step));
        marks.take(1).find_map(|mark| if let Mark::Turned(what) = mark { Some(what) } else { None }).unwrap_or("rest")
    }

    /// Another order in which the same could have happened: what the maintenance thread did in a turn, and the trimming after it, while the next
    /// requests came in. Returns the places of the steps.
    pub fn interleaved(&self, rng: &mut Rng) -> Vec<usize> {
        let steps = self.tape.steps();
        let (mut order, mut late, mut trims) = (Vec::new(), VecDeque::new(), VecDeque::new());
        let (mut in_turn, mut delay) = (false, false);
        for (place, step) in steps.iter().enumerate() {
            match self.mark(step) {
                Some(Mark::Turn) => {
                    order.extend(late.drain(..).chain(trims.drain(..)));
                    (in_turn, delay) = (true, rng.chance(60));
                }
                Some(Mark::Turned(_)) => in_turn = false,
                Some(_) if late.is_empty() && rng.chance(50) => order.extend(trims.drain(..)),
                None if in_turn && delay => {
                    let queue = if &*step.thread == "maintenance" { &mut late } else { &mut trims };
                    queue.push_back(place);
                    continue;
                }
                _ => {
                    while !late.is_empty() && rng.chance(60) {
                        order.extend(late.pop_front());
                    }
                }
            }
            order.push(place);
        }
        order.extend(late.drain(..).chain(trims.drain(..)));
        order
    }

    /// The moment after the first frame was written.
    pub fn first_frame(&self) -> Option<usize> {
        let steps = self.tape.steps();
        let opened = steps.iter().position(|step| self.mark(step) == Some(Mark::Opened))?;
        steps.iter().skip(opened).position(writes_log).map(|write| opened + write + 1)
    }

    /// Which states a cut before the step at `place` may leave: from the last one acknowledged to the last one begun.
    pub fn allowed(&self, place: usize) -> &[Arc<World>] {
        let (mut acknowledged, mut begun) = (0, 0);
        for step in self.tape.steps().iter().take(place) {
            match self.mark(step) {
                Some(Mark::Begun(step)) => begun = step + 1,
                Some(Mark::Answered(step)) => acknowledged = step + 1,
                _ => {}
            }
        }
        let last = begun.min(self.worlds.len() - 1);
        &self.worlds[acknowledged.min(last)..=last]
    }
}
