//! The changes of every table that are not yet in base.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::change::Change;
use crate::request::AlarmKind;
use crate::tables::{Applied, LeaseRow, WriterRow};
use crate::types::{LeaseId, MemberId, Revision};

/// What one part of `recent` holds: changes since the part before it, of every table.
#[derive(Debug, Default)]
pub struct PartData {
    /// Per key its changes, oldest first.
    pub keys: BTreeMap<Bytes, Vec<Arc<Change>>>,
    /// All changes, in order.
    pub changes: Vec<Arc<Change>>,
    /// Leases granted or altered (`Some`) and gone (`None`).
    pub leases: BTreeMap<LeaseId, Option<LeaseRow>>,
    /// Keys attached to (`true`) and detached from (`false`) a lease.
    pub lease_keys: BTreeMap<(LeaseId, Bytes), bool>,
    /// Alarms raised (`true`) and cleared (`false`).
    pub alarms: BTreeMap<(MemberId, AlarmKind), bool>,
    /// Writers' last frames.
    pub writers: BTreeMap<MemberId, WriterRow>,
    /// Wall-clock milliseconds to revision.
    pub marks: BTreeMap<u64, Revision>,
    /// How far the log was applied when the part was frozen.
    pub applied: Applied,
    /// The memory that the part takes, in bytes.
    pub weight: usize,
}
