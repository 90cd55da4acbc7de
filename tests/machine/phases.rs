//! What a server does when it is killed, how it is brought to do that, and how often that has worked.

use std::collections::BTreeMap;
use std::fmt;

use crate::support::tracer::{Death, Moment, Site, Trap};

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
    pub fn from(self) -> fn(&Site) -> bool {
        match self {
            Phase::FirstStart | Phase::Start | Phase::Recovery | Phase::Stop => |_| true,
            Phase::Puts => |site| site.call == "pwrite64" && site.path.starts_with("log/"),
            Phase::Flush | Phase::Sweep => |site| site.path == "base.redb",
            Phase::Trim => |site| site.call == "unlink" && site.path.starts_with("log/"),
            Phase::Rewrite => |site| site.path == "base.new",
        }
    }

    /// About so many of them belong to it, as far as that is not found out by looking.
    pub fn length(self) -> usize {
        match self {
            Phase::FirstStart | Phase::Start | Phase::Recovery => 60,
            Phase::Puts => 60,
            Phase::Flush => 30,
            Phase::Trim => 4,
            Phase::Sweep => 16,
            Phase::Rewrite => 40,
            Phase::Stop => 30,
        }
    }

    pub fn trap(self, number: u64, moment: Moment) -> Trap {
        Trap { from: self.from(), number, moment }
    }
}

/// The kills so far.
#[derive(Default)]
pub struct Tally {
    by_phase: BTreeMap<Phase, u64>,
    by_call: BTreeMap<(&'static str, Moment), u64>,
    /// Times that the server was through before the system call came.
    pub missed: u64,
}

impl Tally {
    pub fn count(&mut self, phase: Phase, death: &Death) {
        *self.by_phase.entry(phase).or_default() += 1;
        *self.by_call.entry((death.site.call, death.moment)).or_default() += 1;
    }

    pub fn kills(&self) -> u64 {
        self.by_phase.values().sum()
    }

    pub fn of(&self, phase: Phase) -> u64 {
        self.by_phase.get(&phase).copied().unwrap_or(0)
    }

    /// Kills at one of the two moments.
    pub fn at(&self, moment: Moment) -> u64 {
        self.by_call.iter().filter(|((_, at), _)| *at == moment).map(|(_, count)| count).sum()
    }

    /// The system calls at which it was killed.
    pub fn calls(&self) -> Vec<&'static str> {
        let mut calls: Vec<_> = self.by_call.keys().map(|(call, _)| *call).collect();
        calls.dedup();
        calls
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} kills, {} missed; by phase:", self.kills(), self.missed)?;
        for (phase, count) in &self.by_phase {
            write!(to, " {phase:?} {count}")?;
        }
        write!(to, "; by system call, entry and exit:")?;
        for call in self.calls() {
            let at = |moment| self.by_call.get(&(call, moment)).copied().unwrap_or(0);
            write!(to, " {call} {}+{}", at(Moment::Entry), at(Moment::Exit))?;
        }
        Ok(())
    }
}
