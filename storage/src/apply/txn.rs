//! Transactions: conditions on the state before, then checks, then changes that nothing but a disk can stop.

use std::cmp::Ordering;

use crate::apply::run::Run;
use crate::apply::{Outcome, Reply, State};
use crate::error::Error;
use crate::read::Sources;
use crate::read::range::RangeReader;
use crate::reply::{KeyValue, OpReply, TxnReply};
use crate::request::{At, Compare, CompareResult, CompareTarget, Op, RangeRequest, Txn};
use crate::types::{Revision, RevisionPair};

/// Which branch each transaction takes, itself and those within the branch taken.
pub(crate) struct Path {
    succeeded: bool,
    within: Vec<Path>,
}

impl State {
    pub(super) fn txn(&mut self, sources: &Sources, txn: &Txn) -> Outcome {
        let mut run = Run::new(sources, self.applied.revision);
        let path = choose(&run.reader(RevisionPair::MAX), txn)?;
        if !planted!(TxnUnchecked) {
            self.check_txn(&run, txn, &path)?;
        }
        let mut reply = execute(&mut run, txn, &path)?;
        self.applied.revision = run.revision();
        reply.revision = run.revision();
        Ok(Reply::Txn(reply))
    }

    fn check_txn(&self, run: &Run<'_>, txn: &Txn, path: &Path) -> Result<(), Error> {
        let mut within = path.within.iter();
        for op in branch(txn, path) {
            match op {
                Op::Range(request) => check_at(request.at, self.applied.compacted, self.applied.revision)?,
                Op::Put(put) => self.check_put(run, put)?,
                Op::DeleteRange(_) => {}
                Op::Txn(txn) => self.check_txn(run, txn, within.next().expect("one path per transaction within"))?,
            }
        }
        Ok(())
    }
}

/// Reads alone, at one revision: no state is needed beyond what the reader sees.
pub(crate) fn read_only(reader: &RangeReader<'_>, compacted: Revision, txn: &Txn) -> Result<TxnReply, Error> {
    let path = choose(reader, txn)?;
    let mut reply = TxnReply { revision: reader.current, succeeded: path.succeeded, responses: Vec::new() };
    let reads = || branch(txn, &path).iter().filter_map(|op| if let Op::Range(read) = op { Some(read) } else { None });
    for request in reads() {
        check_at(request.at, compacted, reader.current)?;
    }
    for request in reads() {
        let reader = RangeReader { at: place(request.at, reader.at), ..*reader };
        reply.responses.push(OpReply::Range(reader.range(request)?));
    }
    Ok(reply)
}

/// A revision must be readable: compared as it is, so that a negative one is compacted once anything was.
pub(crate) fn check_at(at: At, compacted: Revision, current: Revision) -> Result<(), Error> {
    match at {
        At::Latest => Ok(()),
        At::Revision(asked) if asked > current.0 => Err(Error::Future { asked, current: current.0 }),
        At::Revision(asked) if asked + i64::from(planted!(ReadBelowFloor)) < compacted.0 => {
            Err(Error::Compacted { asked, floor: compacted.0 })
        }
        At::Revision(_) => Ok(()),
    }
}

/// Where a read looks: 0 and below mean the newest.
pub(crate) fn place(at: At, newest: RevisionPair) -> RevisionPair {
    match at {
        At::Revision(revision) if revision > 0 => RevisionPair::last_of(Revision(revision)),
        _ => newest,
    }
}

fn branch<'t>(txn: &'t Txn, path: &Path) -> &'t [Op] {
    if path.succeeded { &txn.success } else { &txn.failure }
}

fn choose(reader: &RangeReader<'_>, txn: &Txn) -> Result<Path, Error> {
    let mut path = Path { succeeded: true, within: Vec::new() };
    for compare in &txn.compares {
        if !holds(reader, compare)? {
            path.succeeded = false;
            break;
        }
    }
    for op in branch(txn, &path) {
        if let Op::Txn(txn) = op {
            path.within.push(choose(reader, txn)?);
        }
    }
    Ok(path)
}

/// True if every key of the range fulfils the condition; a range without keys counts as one missing key.
fn holds(reader: &RangeReader<'_>, compare: &Compare) -> Result<bool, Error> {
    let (mut any, mut all) = (false, true);
    reader_visit(reader, compare, &mut |kv| {
        any = true;
        all = fulfils(compare, kv);
        all
    })?;
    let missing_fails = matches!(compare.target, CompareTarget::Value(_));
    Ok(if any { all } else { !missing_fails && fulfils(compare, &KeyValue::default()) })
}

fn reader_visit(
    reader: &RangeReader<'_>,
    compare: &Compare,
    visit: &mut dyn FnMut(&KeyValue) -> bool,
) -> Result<(), Error> {
    let needs_value = matches!(compare.target, CompareTarget::Value(_));
    let mut each = |found: crate::read::Found| {
        let kv = if needs_value { reader.sources.key_value(&found)? } else { found.without_value() };
        Ok(visit(&kv))
    };
    reader.visit(&compare.range, &mut each)
}

fn fulfils(compare: &Compare, kv: &KeyValue) -> bool {
    let ordering = match &compare.target {
        CompareTarget::Version(version) => kv.version.cmp(version),
        CompareTarget::Create(revision) => kv.create_revision.cmp(revision),
        CompareTarget::Mod(revision) => kv.mod_revision.cmp(revision),
        CompareTarget::Lease(lease) => kv.lease.cmp(lease),
        CompareTarget::Value(value) => kv.value.cmp(value),
        CompareTarget::Unknown => Ordering::Equal,
    };
    match compare.result {
        CompareResult::Equal => ordering.is_eq(),
        CompareResult::Greater => ordering.is_gt(),
        CompareResult::Less => ordering.is_lt(),
        CompareResult::NotEqual => ordering.is_ne(),
        CompareResult::Unknown => true,
    }
}

fn execute(run: &mut Run<'_>, txn: &Txn, path: &Path) -> Result<TxnReply, Error> {
    let mut within = path.within.iter();
    let mut responses = Vec::with_capacity(branch(txn, path).len());
    for op in branch(txn, path) {
        responses.push(match op {
            Op::Range(request) => OpReply::Range(read(run, request)?),
            Op::Put(put) => OpReply::Put(run.put(put)?),
            Op::DeleteRange(delete) => OpReply::DeleteRange(run.delete_range(delete)?),
            Op::Txn(txn) => OpReply::Txn(execute(run, txn, within.next().expect("one path per transaction within"))?),
        });
    }
    Ok(TxnReply { revision: run.revision(), succeeded: path.succeeded, responses })
}

fn read(run: &Run<'_>, request: &RangeRequest) -> Result<crate::reply::RangeReply, Error> {
    run.reader(place(request.at, RevisionPair::MAX)).range(request)
}
