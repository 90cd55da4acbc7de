//! A batch: the commands of one frame, and what becomes of them.

use crate::apply::Outcome;
use crate::command::Command;
use crate::engine::queue::Queued;
use crate::error::Error;
use crate::types::Position;

/// Why a batch was not committed.
pub(super) enum Refused {
    Full,
    Final(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Final(error)
    }
}

/// The commands of one frame and what became of them.
pub(super) struct Batch {
    pub(super) commands: Vec<Queued>,
    pub(super) expiries: Vec<Command>,
    pub(super) outcomes: Option<Vec<Outcome>>,
}

impl Batch {
    /// The commands as apply takes them; they are not needed again.
    pub(super) fn take_commands(&mut self) -> Vec<Command> {
        let mut commands = Vec::with_capacity(self.commands.len() + self.expiries.len());
        for queued in &mut self.commands {
            commands.push(std::mem::replace(&mut queued.command, Command::Compact(0)));
        }
        commands.append(&mut self.expiries);
        commands
    }

    /// The frame is in the log and was applied. If it had no effect, the state knows a later process of the same member.
    pub(super) fn settled(&self, position: Position) -> Result<(), Refused> {
        if self.outcomes.is_some() {
            return Ok(());
        }
        let reason = "another process writes as this member".to_owned();
        Err(Refused::Final(Error::LogMismatch { position, reason }))
    }

    pub(super) fn answer(self) {
        let outcomes = self.outcomes.unwrap_or_default();
        for (queued, outcome) in self.commands.into_iter().zip(outcomes) {
            answer(queued, outcome);
        }
    }

    pub(super) fn refuse(self, error: &Error) {
        self.commands.into_iter().for_each(|queued| answer(queued, Err(error.clone())));
    }
}

pub(super) fn answer(queued: Queued, outcome: Outcome) {
    if let Some(reply) = queued.reply {
        // Nobody may be waiting any more; the command counts all the same.
        drop(reply.send(outcome));
    }
}
