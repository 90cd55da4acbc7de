//! What a server does when it is killed, how it is brought to do that, and how often that has worked.

use std::collections::BTreeMap;
use std::fmt;

use crate::model::rng::Rng;
use crate::support::tracer::{Death, Moment, Site, Trap};

const MOMENTS: [Moment; 2] = [Moment::Entry, Moment::Exit];

/// What the server was about when it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    FirstStart,
    Start,
    Recovery,
    Puts,
    Flush,
    Trim,
    Sweep,
    Rewrite,
    Stop,
}

impl Phase {
    pub const ALL: [Phase; 9] = [
        Phase::FirstStart,
        Phase::Start,
        Phase::Recovery,
        Phase::Puts,
        Phase::Flush,
        Phase::Trim,
        Phase::Sweep,
        Phase::Rewrite,
        Phase::Stop,
    ];

    /// From which system call on it is in that phase.
    fn from(self) -> fn(&Site) -> bool {
        match self {
            Phase::FirstStart | Phase::Start | Phase::Recovery | Phase::Stop => |_| true,
            Phase::Puts => |site| site.call == "pwrite64" && site.path.starts_with("log/"),
            Phase::Flush | Phase::Sweep => |site| site.path == "base.redb",
            Phase::Trim => |site| site.call == "unlink" && site.path.starts_with("log/"),
            Phase::Rewrite => |site| site.path == "base.new",
        }
    }

    /// More system calls than this do not belong to it, where its end is not to be seen.
    fn longest(self) -> u64 {
        match self {
            Phase::Trim => 4,
            Phase::Puts | Phase::Flush => 40,
            _ => 400,
        }
    }
}

/// The kills so far, and what there is to be killed at.
#[derive(Default)]
pub struct Tally {
    /// How many of each system call a phase had, at most.
    seen: BTreeMap<(Phase, &'static str), u64>,
    kills: BTreeMap<(Phase, &'static str, Moment), u64>,
    /// How often each was aimed at; some are there only now and then.
    tried: BTreeMap<(Phase, &'static str, Moment), u64>,
    /// Times that the server was through before the system call came.
    missed: BTreeMap<Phase, u64>,
}

impl Tally {
    /// A trap for a phase: half of them anywhere, half of them where the fewest were.
    pub fn trap(&mut self, phase: Phase, rng: &mut Rng) -> Trap {
        let seen: Vec<_> = self.seen.iter().filter(|((of, _), _)| *of == phase).collect();
        let all: u64 = seen.iter().map(|(_, count)| **count).sum();
        let rarest = seen
            .iter()
            .flat_map(|((_, call), count)| MOMENTS.map(|moment| (*call, **count, moment)))
            .min_by_key(|(call, _, moment)| {
                let here = self.tried.get(&(phase, *call, *moment)).copied().unwrap_or(0);
                (here, self.kills(|_, of, at| of == *call && at == *moment))
            });
        let (call, count, moment) = match rarest {
            Some((call, count, moment)) if rng.chance(50) => {
                *self.tried.entry((phase, call, moment)).or_default() += 1;
                (Some(call), count, moment)
            }
            _ => (None, all.clamp(1, phase.longest()), *rng.pick(&MOMENTS)),
        };
        // The first ones are there more often than the last.
        let most = 1 + rng.below(count as usize);
        Trap { from: phase.from(), call, number: 1 + rng.below(most) as u64, moment }
    }

    /// Takes down what the server did from where a trap of the phase began to count.
    pub fn saw(&mut self, phase: Phase, counted: &BTreeMap<&'static str, u64>) {
        for (call, count) in counted {
            let most = self.seen.entry((phase, call)).or_default();
            *most = (*count).clamp(*most, phase.longest().max(*most));
        }
    }

    /// Counts a kill, or that there was none.
    pub fn count(&mut self, phase: Phase, death: Option<&Death>) {
        match death {
            Some(death) => *self.kills.entry((phase, death.site.call, death.moment)).or_default() += 1,
            None => *self.missed.entry(phase).or_default() += 1,
        }
    }

    /// How many kills there were that fit.
    pub fn kills(&self, fits: impl Fn(Phase, &'static str, Moment) -> bool) -> u64 {
        self.kills.iter().filter(|((phase, call, moment), _)| fits(*phase, call, *moment)).map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} kills; by phase, and those missed:", self.kills(|_, _, _| true))?;
        for phase in Phase::ALL {
            let missed = self.missed.get(&phase).copied().unwrap_or(0);
            write!(to, " {phase:?} {} ({missed})", self.kills(|of, _, _| of == phase))?;
        }
        write!(to, "; by system call, entry and exit:")?;
        let mut calls: Vec<_> = self.kills.keys().map(|(_, call, _)| *call).collect();
        calls.sort_unstable();
        calls.dedup();
        for call in calls {
            let [entry, exit] = MOMENTS.map(|moment| self.kills(|_, of, at| of == call && at == moment));
            write!(to, " {call} {entry}+{exit}")?;
        }
        Ok(())
    }
}
