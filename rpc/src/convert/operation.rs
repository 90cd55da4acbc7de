//! Writes of one key or one range: from the wire, checked.

use storage::{DeleteRange, Error, Key, KeyRange, LeaseId, Put, PutLease, PutValue};

use crate::pb::etcdserverpb as pb;

/// A put.
pub(crate) fn put(request: pb::PutRequest) -> Result<Put, Error> {
    let key = Key::new(request.key)?;
    let value = match (request.ignore_value, request.value.is_empty()) {
        (true, false) => return Err(Error::ValueProvided),
        (true, true) => PutValue::Keep,
        (false, _) => PutValue::Set(request.value),
    };
    let lease = match (request.ignore_lease, request.lease) {
        (true, 0) => PutLease::Keep,
        (true, _) => return Err(Error::LeaseProvided),
        (false, 0) => PutLease::Detach,
        (false, id) => PutLease::Attach(LeaseId(id)),
    };
    Ok(Put { key, value, lease, prev_kv: request.prev_kv })
}

/// A deletion.
pub(crate) fn delete_range(request: pb::DeleteRangeRequest) -> Result<DeleteRange, Error> {
    let start = Key::new(request.key)?;
    Ok(DeleteRange { range: KeyRange::from_wire(start, request.range_end), prev_kv: request.prev_kv })
}
