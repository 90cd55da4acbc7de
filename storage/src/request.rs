//! What a caller asks of a keyspace: keys, ranges and operations, as facts already checked.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::types::LeaseId;

/// A key: one byte or more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key(Bytes);

impl Key {
    /// A key from its bytes. Errors: `KeyNotProvided` if there are none.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Key, Error> {
        let bytes = bytes.into();
        if bytes.is_empty() { Err(Error::KeyNotProvided) } else { Ok(Key(bytes)) }
    }

    /// The key's bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

/// Where a range ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RangeEnd {
    /// The range is the start key alone.
    SingleKey,
    /// Up to this key, which is not part of it. At or below the start: the range is empty.
    Before(Bytes),
    /// No end: every key from the start on.
    Open,
}

/// A set of keys: one, an interval, or everything from a key on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyRange {
    /// The first key.
    pub start: Key,
    /// Where it ends.
    pub end: RangeEnd,
}

impl KeyRange {
    /// One key.
    pub fn single(key: Key) -> KeyRange {
        KeyRange { start: key, end: RangeEnd::SingleKey }
    }

    /// The range as the etcd API spells it: an empty `end` means one key, a single zero byte no end.
    pub fn from_wire(start: Key, end: Bytes) -> KeyRange {
        let end = match end.as_ref() {
            [] => RangeEnd::SingleKey,
            [0] => RangeEnd::Open,
            _ => RangeEnd::Before(end),
        };
        KeyRange { start, end }
    }

    /// Every key that starts with `prefix`.
    pub fn prefix(prefix: Key) -> KeyRange {
        let mut end = prefix.bytes().to_vec();
        while let Some(last) = end.pop() {
            if last < 0xff {
                end.push(last + 1);
                return KeyRange { start: prefix, end: RangeEnd::Before(end.into()) };
            }
        }
        KeyRange { start: prefix, end: RangeEnd::Open }
    }

    /// Every key there is, from the single zero byte on.
    pub fn all() -> KeyRange {
        KeyRange { start: Key(Bytes::from_static(&[0])), end: RangeEnd::Open }
    }

    /// True if `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        let start = self.start.bytes().as_ref();
        match &self.end {
            RangeEnd::SingleKey => key == start,
            RangeEnd::Before(end) => key >= start && key < end.as_ref(),
            RangeEnd::Open => key >= start,
        }
    }

    /// True if no key can be in the range.
    pub fn is_empty(&self) -> bool {
        matches!(&self.end, RangeEnd::Before(end) if end <= self.start.bytes())
    }
}

/// The revision to read at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum At {
    /// The current revision.
    #[default]
    Latest,
    /// This revision, compared as it is with the compacted and the current one.
    Revision(i64),
}

/// How results are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SortOrder {
    /// Not asked for: ascending, and the limit is applied before sorting.
    #[default]
    None,
    /// Ascending.
    Ascend,
    /// Descending.
    Descend,
}

/// What results are ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SortTarget {
    /// The key.
    #[default]
    Key,
    /// The version.
    Version,
    /// The create revision.
    Create,
    /// The mod revision.
    Mod,
    /// The value.
    Value,
}

/// What of each key is returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Keys and values.
    #[default]
    Full,
    /// Keys with their revisions and version, neither value nor lease.
    KeysOnly,
    /// The count alone.
    CountOnly,
}

/// Inclusive bounds on revisions; 0 means no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filters {
    /// Lowest mod revision.
    pub min_mod_revision: i64,
    /// Highest mod revision.
    pub max_mod_revision: i64,
    /// Lowest create revision.
    pub min_create_revision: i64,
    /// Highest create revision.
    pub max_create_revision: i64,
}

/// A read of a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeRequest {
    /// The keys.
    pub range: KeyRange,
    /// The revision to read at.
    pub at: At,
    /// At most so many keys; 0 or less means all.
    pub limit: i64,
    /// The order.
    pub order: SortOrder,
    /// What the order is by.
    pub target: SortTarget,
    /// Bounds on revisions.
    pub filters: Filters,
    /// Keys with values, keys, or the count.
    pub content: Content,
}

impl RangeRequest {
    /// All of a range, as it is now.
    pub fn new(range: KeyRange) -> RangeRequest {
        RangeRequest {
            range,
            at: At::Latest,
            limit: 0,
            order: SortOrder::None,
            target: SortTarget::Key,
            filters: Filters::default(),
            content: Content::Full,
        }
    }

    /// True if the answer's count takes in keys that the request has no other reason to read.
    pub(crate) fn counts_unread_keys(&self) -> bool {
        self.limit > 0 || self.content == Content::CountOnly
    }
}

/// The value that a put leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutValue {
    /// This one.
    Set(Bytes),
    /// The one that the key has; the key must exist.
    Keep,
}

/// The lease that a put leaves the key attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutLease {
    /// None: the key is detached.
    Detach,
    /// This one, which must exist.
    Attach(LeaseId),
    /// The one that the key has; the key must exist.
    Keep,
}

/// A write of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Put {
    /// The key.
    pub key: Key,
    /// Its value.
    pub value: PutValue,
    /// Its lease.
    pub lease: PutLease,
    /// Answer with what the key was before.
    pub prev_kv: bool,
}

/// A deletion of every key in a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteRange {
    /// The keys.
    pub range: KeyRange,
    /// Answer with what was deleted.
    pub prev_kv: bool,
}

/// What a compare looks at; a missing key has 0 everywhere and no value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CompareTarget {
    /// The version.
    Version(i64),
    /// The create revision.
    Create(i64),
    /// The mod revision.
    Mod(i64),
    /// The value; false for a missing key, whatever the result asked for.
    Value(Bytes),
    /// The lease id.
    Lease(i64),
    /// A target this version does not know: both sides count as equal.
    Unknown,
}

/// How the key's side must stand to the given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CompareResult {
    /// Equal.
    Equal,
    /// Greater.
    Greater,
    /// Less.
    Less,
    /// Not equal.
    NotEqual,
    /// A result this version does not know: always true.
    Unknown,
}

/// A condition on every key of a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compare {
    /// The keys.
    pub range: KeyRange,
    /// The relation.
    pub result: CompareResult,
    /// What is compared, and with what.
    pub target: CompareTarget,
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// A read.
    Range(RangeRequest),
    /// A write.
    Put(Put),
    /// A deletion.
    DeleteRange(DeleteRange),
    /// A transaction within.
    Txn(Txn),
}

/// If all compares hold, the success list, else the failure list; atomic, at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Txn {
    /// The conditions; none means true.
    pub compares: Vec<Compare>,
    /// What to do if they hold.
    pub success: Vec<Op>,
    /// What to do if not.
    pub failure: Vec<Op>,
}

/// Which alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AlarmKind {
    /// No room for more data.
    NoSpace,
    /// Data is damaged.
    Corrupt,
}

impl Txn {
    /// How deep transactions may be nested in each other, the outermost included: what is committed must be replayed by any thread.
    pub const NESTING_MAX: usize = 512;

    /// Errors: `TooManyOps` if transactions are nested deeper than `NESTING_MAX`.
    pub(crate) fn check_nesting(&self) -> Result<(), Error> {
        // Not by recursion: the nesting is the caller's choice, the stack is not.
        let mut open = vec![(self, 1)];
        while let Some((txn, depth)) = open.pop() {
            if depth > Txn::NESTING_MAX {
                return Err(Error::TooManyOps { found: depth, limit: Txn::NESTING_MAX });
            }
            let ops = txn.success.iter().chain(&txn.failure);
            open.extend(ops.filter_map(|op| if let Op::Txn(txn) = op { Some((txn, depth + 1)) } else { None }));
        }
        Ok(())
    }

    /// True if both branches hold only reads: such a transaction needs no log.
    pub fn is_read_only(&self) -> bool {
        self.success.iter().chain(&self.failure).all(|op| matches!(op, Op::Range(_)))
    }

    /// True if a branch, taken or not, holds a put at any depth.
    pub fn puts_anything(&self) -> bool {
        self.success.iter().chain(&self.failure).any(|op| match op {
            Op::Put(_) => true,
            Op::Txn(txn) => txn.puts_anything(),
            Op::Range(_) | Op::DeleteRange(_) => false,
        })
    }
}
