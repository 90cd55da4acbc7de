//! Reads: from the wire, checked in the order that clients can observe.

use storage::{At, Content, Error, Filters, Key, KeyRange, RangeRequest, SortOrder, SortTarget};
use tonic::Status;

use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::range_request as wire;
use crate::status;

/// A read. A revision of 0 or less means the current one.
pub(crate) fn range(request: pb::RangeRequest) -> Result<RangeRequest, Error> {
    let at = if request.revision <= 0 { At::Latest } else { At::Revision(request.revision) };
    checked(request, at)
}

/// A read within a transaction, where only a revision of 0 means the current one.
pub(super) fn range_in_txn(request: pb::RangeRequest) -> Result<RangeRequest, Error> {
    let at = if request.revision == 0 { At::Latest } else { At::Revision(request.revision) };
    checked(request, at)
}

/// A read that is answered in pieces, which neither sorts nor filters.
pub(crate) fn range_stream(request: pb::RangeRequest) -> Result<RangeRequest, Status> {
    let mut request = range(request).map_err(|error| status::of(&error))?;
    match (request.order, request.target) {
        // Without an order the target is not looked at, and pieces follow each other by key.
        (SortOrder::None, _) => request.target = SortTarget::Key,
        (SortOrder::Ascend, SortTarget::Key) => {}
        (SortOrder::Ascend | SortOrder::Descend, _) => return Err(status::stream_without_sort()),
    }
    if request.filters != Filters::default() {
        return Err(status::stream_without_filters());
    }
    Ok(request)
}

fn checked(request: pb::RangeRequest, at: At) -> Result<RangeRequest, Error> {
    let start = Key::new(request.key)?;
    Ok(RangeRequest {
        range: KeyRange::from_wire(start, request.range_end),
        at,
        limit: request.limit,
        order: order(request.sort_order)?,
        target: target(request.sort_target)?,
        filters: Filters {
            min_mod_revision: request.min_mod_revision,
            max_mod_revision: request.max_mod_revision,
            min_create_revision: request.min_create_revision,
            max_create_revision: request.max_create_revision,
        },
        content: match (request.count_only, request.keys_only) {
            (true, _) => Content::CountOnly,
            (false, true) => Content::KeysOnly,
            (false, false) => Content::Full,
        },
    })
}

fn order(number: i32) -> Result<SortOrder, Error> {
    match wire::SortOrder::try_from(number) {
        Ok(wire::SortOrder::None) => Ok(SortOrder::None),
        Ok(wire::SortOrder::Ascend) => Ok(SortOrder::Ascend),
        Ok(wire::SortOrder::Descend) => Ok(SortOrder::Descend),
        Err(_) => Err(Error::InvalidSortOption),
    }
}

fn target(number: i32) -> Result<SortTarget, Error> {
    match wire::SortTarget::try_from(number) {
        Ok(wire::SortTarget::Key) => Ok(SortTarget::Key),
        Ok(wire::SortTarget::Version) => Ok(SortTarget::Version),
        Ok(wire::SortTarget::Create) => Ok(SortTarget::Create),
        Ok(wire::SortTarget::Mod) => Ok(SortTarget::Mod),
        Ok(wire::SortTarget::Value) => Ok(SortTarget::Value),
        Err(_) => Err(Error::InvalidSortOption),
    }
}
