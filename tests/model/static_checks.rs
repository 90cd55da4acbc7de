//! What a request is refused for before the store is looked at.

use std::collections::BTreeSet;

use super::op::{Refusal, in_range};
use super::state::Model;
use super::wire::*;

/// Looks at a range.
pub fn range(request: &RangeRequest) -> Result<(), Refusal> {
    provided(&request.key)?;
    let known = (0..=2).contains(&request.sort_order) && (0..=4).contains(&request.sort_target);
    if known { Ok(()) } else { Err(Refusal::InvalidSort) }
}

/// Looks at a put.
pub fn put(request: &PutRequest) -> Result<(), Refusal> {
    provided(&request.key)?;
    if request.ignore_value && !request.value.is_empty() {
        return Err(Refusal::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Refusal::LeaseProvided);
    }
    Ok(())
}

/// Looks at a key.
pub fn provided(key: &[u8]) -> Result<(), Refusal> {
    if key.is_empty() { Err(Refusal::KeyNotProvided) } else { Ok(()) }
}

/// Looks at a transaction and at all within it.
pub fn txn(request: &TxnRequest) -> Result<(), Refusal> {
    operations(request, Model::MAX_TXN_OPS)?;
    overlaps(&request.success)?;
    overlaps(&request.failure)?;
    Ok(())
}

fn operations(request: &TxnRequest, limit: usize) -> Result<(), Refusal> {
    let longest = request.compare.len().max(request.success.len()).max(request.failure.len());
    if longest > limit {
        return Err(Refusal::TooManyOps);
    }
    for compare in &request.compare {
        provided(&compare.key)?;
    }
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            None => return Err(Refusal::KeyNotFound),
            Some(TxnOp::Range(request)) => range(request)?,
            Some(TxnOp::Put(request)) => put(request)?,
            Some(TxnOp::DeleteRange(request)) => provided(&request.key)?,
            Some(TxnOp::Txn(request)) => operations(request, limit - longest)?,
        }
    }
    Ok(())
}

/// The keys that a list puts and the ranges that it deletes, those of transactions within included.
#[derive(Default)]
struct Touched {
    puts: BTreeSet<Blob>,
    deletes: Vec<(Blob, Blob)>,
}

impl Touched {
    /// A deletion without end is taken as its raw bytes spell it, and so covers nothing.
    fn deletes(&self, key: &[u8]) -> bool {
        let covers = |(start, end): &(Blob, Blob)| end.as_slice() != [0] && in_range(key, start, end);
        self.deletes.iter().any(covers)
    }

    fn put(&mut self, key: &[u8], allowed: &BTreeSet<Blob>) -> Result<(), Refusal> {
        let again = self.puts.contains(key) && !allowed.contains(key);
        if again || self.deletes(key) {
            return Err(Refusal::DuplicateKey);
        }
        self.puts.insert(key.to_vec());
        Ok(())
    }
}

fn overlaps(list: &[RequestOp]) -> Result<Touched, Refusal> {
    let nothing = BTreeSet::new();
    let mut touched = Touched::default();
    for op in list {
        if let Some(TxnOp::DeleteRange(request)) = &op.request {
            touched.deletes.push((request.key.clone(), request.range_end.clone()));
        }
    }
    for op in list {
        if let Some(TxnOp::Txn(request)) = &op.request {
            let success = overlaps(&request.success)?;
            let failure = overlaps(&request.failure)?;
            for key in &success.puts {
                touched.put(key, &nothing)?;
            }
            for key in &failure.puts {
                touched.put(key, &success.puts)?;
            }
            touched.deletes.extend(success.deletes);
            touched.deletes.extend(failure.deletes);
        }
    }
    for op in list {
        if let Some(TxnOp::Put(request)) = &op.request {
            touched.put(&request.key, &nothing)?;
        }
    }
    Ok(touched)
}
