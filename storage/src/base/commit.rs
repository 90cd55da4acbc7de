//! The one function that commits to redb: always durable, always with quick repair.

use redb::{Database, Durability, WriteTransaction};

use super::fault::At;
use crate::error::Error;

/// Runs `work` in a transaction and commits it. If `work` fails nothing is written.
///
/// Quick repair is not a choice: one commit without it and the next open after a crash walks the whole file. An error of
/// the commit itself leaves open whether it took effect, so it is final for the caller.
pub(super) fn durably<T>(
    database: &Database,
    work: impl FnOnce(&WriteTransaction) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut txn = database.begin_write().at("begin")?;
    txn.set_durability(Durability::Immediate).map_err(redb::Error::from).at("begin")?;
    txn.set_quick_repair(true);
    let done = work(&txn)?;
    failpoint!(Commit, Err);
    txn.commit().at("commit")?;
    failpoint!(Committed, Err);
    Ok(done)
}
