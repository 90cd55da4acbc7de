//! The one function that commits to redb: always durable, always with quick repair.

use std::cell::RefCell;

use redb::{Database, Durability, WriteTransaction};

use super::fault::At;
use super::rows::TableId;
use super::scrub::Scrub;
use crate::error::Error;

/// A transaction, and the scrub whose sums have to follow what it changes.
pub(super) struct Txn<'a> {
    pub(super) redb: &'a WriteTransaction,
    pub(super) scrub: Option<&'a RefCell<Scrub>>,
}

impl<'a> Txn<'a> {
    /// A transaction on a file that no scrub walks over.
    pub(super) fn unseen(redb: &'a WriteTransaction) -> Txn<'a> {
        Txn { redb, scrub: None }
    }

    /// A row was written, replaced or removed.
    pub(super) fn changed(&self, table: TableId, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) {
        if let Some(scrub) = self.scrub {
            scrub.borrow_mut().changed(table, key, old, new);
        }
    }
}

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
