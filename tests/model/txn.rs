//! How the model runs a transaction: choose the path, check all of it, then change.

use super::expected::{Expected, ExpectedTxn};
use super::op::{Refusal, header};
use super::state::Model;
use super::wire::*;

/// The way through a transaction and those within it, chosen before anything is changed.
struct Path<'a> {
    succeeded: bool,
    steps: Vec<Step<'a>>,
}

enum Step<'a> {
    Range(&'a RangeRequest),
    Put(&'a PutRequest),
    DeleteRange(&'a DeleteRangeRequest),
    Txn(Path<'a>),
}

impl Model {
    /// Runs a transaction whose shape was found valid.
    pub fn txn(&mut self, request: &TxnRequest) -> Result<Expected, Refusal> {
        let path = self.choose(request);
        self.check_path(&path)?;
        let mut done = self.run_path(&path);
        done.revision = self.commit();
        Ok(Expected::Txn(done))
    }

    fn choose<'a>(&self, request: &'a TxnRequest) -> Path<'a> {
        let succeeded = request.compare.iter().all(|compare| self.holds(compare));
        let list = if succeeded { &request.success } else { &request.failure };
        let steps = list.iter().filter_map(|op| match &op.request {
            None => None,
            Some(TxnOp::Range(request)) => Some(Step::Range(request)),
            Some(TxnOp::Put(request)) => Some(Step::Put(request)),
            Some(TxnOp::DeleteRange(request)) => Some(Step::DeleteRange(request)),
            Some(TxnOp::Txn(request)) => Some(Step::Txn(self.choose(request))),
        });
        Path { succeeded, steps: steps.collect() }
    }

    fn holds(&self, compare: &Compare) -> bool {
        let found = self.scan(&compare.key, &compare.range_end, i64::MAX);
        if found.is_empty() {
            // A value that is not there compares as false, everything else as zero.
            return compare.target != 3 && relation(compare, &KeyValue::default());
        }
        found.iter().all(|kv| relation(compare, kv))
    }

    fn check_path(&self, path: &Path<'_>) -> Result<(), Refusal> {
        for step in &path.steps {
            match step {
                Step::Range(request) if request.revision > self.revision => return Err(Refusal::Future),
                // Unlike a plain read, a negative revision is compared as it is.
                Step::Range(request) if request.revision != 0 && request.revision < self.compacted => {
                    return Err(Refusal::Compacted);
                }
                Step::Put(request) => self.check_put(request)?,
                Step::Txn(path) => self.check_path(path)?,
                Step::Range(_) | Step::DeleteRange(_) => {}
            }
        }
        Ok(())
    }

    /// What a put needs of the state before the request.
    pub fn check_put(&self, request: &PutRequest) -> Result<(), Refusal> {
        if request.lease != 0 && !self.leases.contains_key(&request.lease) {
            return Err(Refusal::LeaseNotFound);
        }
        let keeps = request.ignore_value || request.ignore_lease;
        if keeps && self.get(&request.key, i64::MAX).is_none() { Err(Refusal::KeyNotFound) } else { Ok(()) }
    }

    fn run_path(&mut self, path: &Path<'_>) -> ExpectedTxn {
        let responses = path.steps.iter().map(|step| match step {
            Step::Range(request) => Expected::Range(self.read(request)),
            Step::Put(request) => Expected::Put(self.run_put(request)),
            Step::DeleteRange(request) => Expected::DeleteRange(self.run_delete(request)),
            Step::Txn(path) => Expected::Txn(self.run_path(path)),
        });
        let responses = responses.collect();
        ExpectedTxn { revision: 0, succeeded: path.succeeded, responses }
    }

    /// Puts a key.
    pub fn run_put(&mut self, request: &PutRequest) -> PutResponse {
        let prev = self.get(&request.key, i64::MAX);
        let kept = prev.clone().unwrap_or_default();
        if (request.ignore_value || request.ignore_lease) && prev.is_none() {
            // The key was there before the transaction, which has deleted it since.
            self.undefined = true;
        }
        let value = if request.ignore_value { kept.value } else { request.value.clone() };
        let lease = if request.ignore_lease { kept.lease } else { request.lease };
        self.put_record(&request.key, value, lease);
        PutResponse { header: header(self.visible_revision()), prev_kv: prev.filter(|_| request.prev_kv) }
    }

    /// Deletes the keys of a range.
    pub fn run_delete(&mut self, request: &DeleteRangeRequest) -> DeleteRangeResponse {
        let prev_kvs = self.scan(&request.key, &request.range_end, i64::MAX);
        for kv in &prev_kvs {
            self.delete_record(&kv.key);
        }
        DeleteRangeResponse {
            header: header(self.visible_revision()),
            deleted: prev_kvs.len() as i64,
            prev_kvs: if request.prev_kv { prev_kvs } else { Vec::new() },
        }
    }
}

/// Whether one key stands to the given number or value as asked; a union of another kind counts as zero or empty.
fn relation(compare: &Compare, kv: &KeyValue) -> bool {
    use std::cmp::Ordering;
    let ordering = match (compare.target, &compare.union) {
        (0, Some(Union::Version(given))) => kv.version.cmp(given),
        (0, _) => kv.version.cmp(&0),
        (1, Some(Union::Create(given))) => kv.create_revision.cmp(given),
        (1, _) => kv.create_revision.cmp(&0),
        (2, Some(Union::Mod(given))) => kv.mod_revision.cmp(given),
        (2, _) => kv.mod_revision.cmp(&0),
        (3, Some(Union::Value(given))) => kv.value.cmp(given),
        (3, _) => kv.value.cmp(&Blob::new()),
        (4, Some(Union::Lease(given))) => kv.lease.cmp(given),
        (4, _) => kv.lease.cmp(&0),
        _ => Ordering::Equal,
    };
    match compare.result {
        0 => ordering == Ordering::Equal,
        1 => ordering == Ordering::Greater,
        2 => ordering == Ordering::Less,
        3 => ordering != Ordering::Equal,
        _ => true,
    }
}
