//! What is recorded: requests, outcomes, watches, the journal.

/// Bytes of a key or a value.
pub type Blob = Vec<u8>;

/// A key with its value and its numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Blob,
    /// The value; empty where only keys were asked for.
    pub value: Blob,
    /// The revision of the put that created it.
    pub create_revision: i64,
    /// The revision of its last put.
    pub mod_revision: i64,
    /// 1 when created, one more per put.
    pub version: i64,
    /// The lease it is attached to; 0 if none.
    pub lease: i64,
}

/// Keys, as etcd spells them: an empty end means one key, a single zero byte no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first key.
    pub key: Blob,
    /// The end, which is not part of it.
    pub end: Blob,
}

impl Span {
    /// One key.
    pub fn one(key: impl Into<Blob>) -> Span {
        Span { key: key.into(), end: Blob::new() }
    }

    /// Every key.
    pub fn all() -> Span {
        Span { key: vec![0], end: vec![0] }
    }

    /// Every key that begins with `prefix`, whose last byte is below 255.
    pub fn prefix(prefix: impl Into<Blob>) -> Span {
        let key = prefix.into();
        let mut end = key.clone();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Span { key, end }
    }

    /// True if the key is in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self.end.as_slice() {
            [] => key == self.key.as_slice(),
            [0] => key >= self.key.as_slice(),
            end => key >= self.key.as_slice() && key < end,
        }
    }
}

/// A read, in key order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The keys.
    pub span: Span,
    /// The revision; 0 for the current one.
    pub revision: i64,
    /// May be answered from what was current before.
    pub serializable: bool,
    /// At most so many keys; 0 for all.
    pub limit: i64,
    /// Keys without values.
    pub keys_only: bool,
    /// The count alone.
    pub count_only: bool,
}

impl Range {
    /// All of it, now.
    pub fn new(span: Span) -> Range {
        Range { span, revision: 0, serializable: false, limit: 0, keys_only: false, count_only: false }
    }
}

/// A write of one key; no other request writes the same value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: Blob,
    /// The value.
    pub value: Blob,
    /// The lease; 0 for none.
    pub lease: i64,
    /// Answer with what the key was.
    pub prev_kv: bool,
}

/// A deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// The keys.
    pub span: Span,
    /// Answer with what they were.
    pub prev_kv: bool,
}

/// What a compare looks at; a missing key has 0 everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The revision of its last put.
    Mod(i64),
    /// The revision that created it.
    Create(i64),
    /// Its version.
    Version(i64),
    /// Its value; false for a missing key.
    Value(Blob),
    /// Its lease.
    Lease(i64),
}

/// A condition of equality on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The key.
    pub key: Blob,
    /// What must be equal.
    pub target: Target,
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A read.
    Range(Range),
    /// A write.
    Put(Put),
    /// A deletion.
    Delete(Delete),
}

/// If all compares hold the first list, else the second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// The conditions.
    pub compares: Vec<Compare>,
    /// What is done if they hold.
    pub success: Vec<Op>,
    /// What is done if not.
    pub failure: Vec<Op>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A read.
    Range(Range),
    /// A write.
    Put(Put),
    /// A deletion.
    Delete(Delete),
    /// A transaction.
    Txn(Txn),
    /// Compaction to a revision.
    Compact(i64),
    /// A lease: its id, its TTL in seconds.
    Grant(i64, i64),
    /// The end of a lease.
    Revoke(i64),
    /// A lease's renewal.
    KeepAlive(i64),
}

/// What a reply holds beside its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Of a read.
    Range {
        /// The keys.
        kvs: Vec<KeyValue>,
        /// How many there are without the limit.
        count: i64,
        /// True if the limit cut some off.
        more: bool,
    },
    /// Of a put: what the key was, if asked for.
    Put(Option<KeyValue>),
    /// Of a deletion: how many, and what they were, if asked for.
    Delete(i64, Vec<KeyValue>),
    /// Of a transaction: whether the compares held, and the answers.
    Txn(bool, Vec<Body>),
    /// Of a lease: its TTL in seconds; 0 if there is no such lease.
    Lease(i64),
    /// Nothing.
    Done,
}

/// Why a request was refused for certain: it had no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The revision was compacted.
    Compacted,
    /// The revision does not exist yet.
    Future,
    /// There is no such lease.
    NoLease,
    /// There is such a lease.
    LeaseExists,
    /// Something that is always allowed: a full queue, a server that stops before it begins.
    Busy,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered, with the header's revision.
    Ok(i64, Body),
    /// Refused for certain.
    Refused(Refusal),
    /// Nobody knows.
    Unknown,
}

/// A moment: its number in the order of all moments, and the recorder's clock in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The number; no two moments have the same.
    pub order: u64,
    /// The clock.
    pub ms: u64,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who asked; a client asks one thing at a time.
    pub client: u32,
    /// When the request was begun.
    pub call: Moment,
    /// When it was answered, or given up.
    pub back: Moment,
    /// The request.
    pub request: Request,
    /// The outcome.
    pub outcome: Outcome,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub revision: i64,
    /// The key.
    pub key: Blob,
    /// The key after a put; `None` for a deletion.
    pub kv: Option<KeyValue>,
    /// The key before the revision, where it was asked for.
    pub prev: Option<KeyValue>,
}

/// What a watch is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It exists since this revision.
    Created(i64),
    /// Changes, with the header's revision; parts of one message are put together.
    Events(i64, Vec<Event>),
    /// Nothing at or below this revision follows.
    Progress(i64),
    /// It ended because this was compacted.
    Compacted(i64),
    /// It ended.
    Canceled,
}

/// A watch, from its creation to its end or to where its stream broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The keys.
    pub span: Span,
    /// The first revision; 0 for the one after the current.
    pub start: i64,
    /// Without puts.
    pub no_put: bool,
    /// Without deletions.
    pub no_delete: bool,
    /// With what the keys were before.
    pub prev_kv: bool,
    /// When it was asked for.
    pub call: Moment,
    /// True if its end was asked for.
    pub cancel_asked: bool,
    /// What it was told, in order.
    pub told: Vec<(Moment, Told)>,
}

/// Everything that was recorded of one store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Every change from revision 2 on, in order.
    pub journal: Vec<Event>,
    /// What clients did, in any order.
    pub operations: Vec<Operation>,
    /// What watches were told.
    pub watches: Vec<Watch>,
}

impl History {
    /// Ends the record at a revision that no operation was told more than: forgets what the journal and watches have beyond.
    pub fn end_at(&mut self, last: i64) {
        self.journal.retain(|event| event.revision <= last);
        for watch in &mut self.watches {
            let beyond = watch.told.iter().position(|(_, told)| match told {
                Told::Created(revision) | Told::Progress(revision) | Told::Events(revision, _) => *revision > last,
                Told::Compacted(_) | Told::Canceled => false,
            });
            watch.told.truncate(beyond.unwrap_or(watch.told.len()));
        }
    }
}
