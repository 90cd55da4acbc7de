//! Reads, as callers see them: ranges, at once or by and by, and transactions of reads.

use crate::apply::txn::{place, read_only};
use crate::engine::shared::View;
use crate::error::Error;
use crate::keyspace::Keyspace;
use crate::read::listing::Listing;
use crate::read::range::RangeReader;
use crate::read::tally::Question;
use crate::reply::{RangeReply, TxnReply};
use crate::request::{At, RangeRequest, Txn};
use crate::types::RevisionPair;

impl Keyspace {
    /// Runs a transaction of reads alone (`Txn::is_read_only`), without the log; blocks on the disk. Errors: `Compacted`, `Future`.
    ///
    /// # Panics
    ///
    /// If the transaction may write.
    pub fn read_txn(&self, txn: &Txn) -> Result<TxnReply, Error> {
        assert!(txn.is_read_only(), "a transaction of only reads was expected");
        let view = self.inner.shared.view();
        let reply = read_only(&self.reader(&view, At::Latest), view.compacted, txn);
        reply.iter().for_each(|reply| self.inner.shared.meters.ran(reply));
        reply
    }

    /// Reads a range; blocks on the disk. Errors: `Compacted`, `Future`.
    pub fn range(&self, request: &RangeRequest) -> Result<RangeReply, Error> {
        self.list(request)?.into_reply()
    }

    /// Reads a range but for its values, which the listing fetches as they are taken; blocks on the disk. Errors: `Compacted`, `Future`.
    pub fn list(&self, request: &RangeRequest) -> Result<Listing, Error> {
        failpoint!(Read, Err);
        self.inner.shared.meters.ranges.add(1);
        let (view, question) = self.inner.shared.view_for(request)?;
        let known = question.as_ref().and_then(Question::known);
        let listing = RangeReader { known, ..self.reader(&view, request.at) }.list(request);
        if let Some(question) = &question {
            self.inner.shared.settle(question, listing.as_ref().ok().map(|listing| listing.count));
        }
        listing
    }

    fn reader<'a>(&'a self, view: &'a View, at: At) -> RangeReader<'a> {
        RangeReader {
            sources: &view.sources,
            at: place(at, if planted!(DirtyRead) { RevisionPair::MAX } else { RevisionPair::last_of(view.current) }),
            current: view.current,
            counts: Some(&self.inner.shared.counts),
            known: None,
        }
    }
}
