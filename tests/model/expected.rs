//! What the model expects as an answer, and how a real one is held against it.

use std::collections::BTreeMap;

use super::op::{Refusal, Reply};
use super::wire::*;
use super::wire_more::*;

/// An expected answer.
#[derive(Clone, Debug)]
pub enum Expected {
    Range(ExpectedRange),
    Put(PutResponse),
    DeleteRange(DeleteRangeResponse),
    Txn(ExpectedTxn),
    Done(i64),
    Grant(LeaseGrantResponse),
    KeepAlive(LeaseKeepAliveResponse),
    TimeToLive(LeaseTimeToLiveResponse),
    Leases { revision: i64, ids: Vec<i64> },
}

/// An expected list: all that could be in it, in order, and where it is cut.
#[derive(Clone, Debug)]
pub struct ExpectedRange {
    pub revision: i64,
    pub count: i64,
    pub more: bool,
    pub sorted: Vec<KeyValue>,
    pub cut: usize,
    pub target: i32,
    pub keys_only: bool,
}

/// An expected transaction.
#[derive(Clone, Debug)]
pub struct ExpectedTxn {
    pub revision: i64,
    pub succeeded: bool,
    pub responses: Vec<Expected>,
}

/// What results are sorted by, in an order that Rust knows.
pub fn sort_key(kv: &KeyValue, target: i32) -> (i64, Blob) {
    match target {
        1 => (kv.version, Blob::new()),
        2 => (kv.create_revision, Blob::new()),
        3 => (kv.mod_revision, Blob::new()),
        4 => (0, kv.value.clone()),
        _ => (0, kv.key.clone()),
    }
}

impl ExpectedRange {
    /// The record as it is delivered.
    fn delivered(&self, kv: &KeyValue) -> KeyValue {
        let mut kv = kv.clone();
        if self.keys_only {
            kv.value.clear();
            if self.target != 4 {
                kv.lease = 0;
            }
        }
        kv
    }

    fn check(&self, got: &RangeResponse) -> Result<(), String> {
        let revision = got.header.as_ref().map(|header| header.revision);
        same("revision", &Some(self.revision), &revision)?;
        same("count", &self.count, &got.count)?;
        same("more", &self.more, &got.more)?;
        same("number of keys", &self.cut, &got.kvs.len())?;
        let mut left: BTreeMap<&[u8], &KeyValue> = self.sorted.iter().map(|kv| (kv.key.as_slice(), kv)).collect();
        for (expected, kv) in self.sorted.iter().zip(&got.kvs) {
            let full =
                left.remove(kv.key.as_slice()).ok_or_else(|| format!("{kv:?} is not expected, or comes twice"))?;
            same("key", &self.delivered(full), kv)?;
            same("order", &sort_key(expected, self.target), &sort_key(full, self.target))?;
        }
        Ok(())
    }
}

impl Expected {
    /// Holds a real outcome against an expected one.
    pub fn check(expected: &Result<Expected, Refusal>, got: &Result<Reply, Refusal>) -> Result<(), String> {
        match (expected, got) {
            (Ok(expected), Ok(got)) => expected.check_reply(got),
            (Err(expected), Err(got)) => same("refusal", expected, got),
            _ => Err(format!("expected {expected:?}\n     got {got:?}")),
        }
    }

    fn check_reply(&self, got: &Reply) -> Result<(), String> {
        match (self, got) {
            (Expected::Range(expected), Reply::Range(got)) => expected.check(got),
            (Expected::Put(expected), Reply::Put(got)) => same("put", expected, got),
            (Expected::DeleteRange(expected), Reply::DeleteRange(got)) => same("deletion", expected, got),
            (Expected::Txn(expected), Reply::Txn(got)) => expected.check(got, Some(expected.revision)),
            (Expected::Done(expected), Reply::Done(got)) => same("revision", expected, got),
            (Expected::Grant(expected), Reply::Grant(got)) => same("grant", expected, got),
            (Expected::KeepAlive(expected), Reply::KeepAlive(got)) => same("renewal", expected, got),
            (Expected::TimeToLive(expected), Reply::TimeToLive(got)) => check_time_to_live(expected, got),
            (Expected::Leases { revision, ids }, Reply::Leases(got)) => {
                same("revision", &super::op::header(*revision), &got.header)?;
                let mut real: Vec<i64> = got.leases.iter().map(|lease| lease.id).collect();
                real.sort_unstable();
                same("leases", ids, &real)
            }
            _ => Err(format!("expected {self:?}\n     got {got:?}")),
        }
    }
}

impl ExpectedTxn {
    /// The header of a transaction within another is there, and all zero.
    fn check(&self, got: &TxnResponse, revision: Option<i64>) -> Result<(), String> {
        same("revision", &super::op::header(revision.unwrap_or(0)), &got.header)?;
        same("succeeded", &self.succeeded, &got.succeeded)?;
        same("number of responses", &self.responses.len(), &got.responses.len())?;
        for (index, (expected, got)) in self.responses.iter().zip(&got.responses).enumerate() {
            check_response(expected, got).map_err(|wrong| format!("response {index}: {wrong}"))?;
        }
        Ok(())
    }
}

fn check_response(expected: &Expected, got: &ResponseOp) -> Result<(), String> {
    match (expected, &got.response) {
        (Expected::Range(expected), Some(TxnReply::Range(got))) => expected.check(got),
        (Expected::Put(expected), Some(TxnReply::Put(got))) => same("put", expected, got),
        (Expected::DeleteRange(expected), Some(TxnReply::DeleteRange(got))) => same("deletion", expected, got),
        (Expected::Txn(expected), Some(TxnReply::Txn(got))) => expected.check(got, None),
        _ => Err(format!("expected {expected:?}\n     got {got:?}")),
    }
}

/// The time left is whatever the clock says, up to a second of grace after a restart or two.
fn check_time_to_live(expected: &LeaseTimeToLiveResponse, got: &LeaseTimeToLiveResponse) -> Result<(), String> {
    let mut got = got.clone();
    got.keys.sort();
    let most = expected.granted_ttl + 2;
    let plausible = if expected.ttl < 0 {
        got.ttl == expected.ttl
    } else {
        got.ttl <= most && got.ttl >= expected.granted_ttl - 900
    };
    if !plausible {
        return Err(format!("{} s left of {}", got.ttl, expected.granted_ttl));
    }
    got.ttl = expected.ttl;
    same("time to live", expected, &got)
}

/// Fails with both sides if they differ.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, got: &T) -> Result<(), String> {
    if expected == got { Ok(()) } else { Err(format!("{what}: expected {expected:?}\n     got {got:?}")) }
}
