//! Faults that can be planted, one at a time: each is a line or two at the place where it would be made.

macro_rules! planted {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Planted {
            $($(#[$doc])* $name,)*
        }

        impl Planted {
            /// All of them.
            pub const ALL: [Planted; [$(Planted::$name),*].len()] = [$(Planted::$name),*];
        }
    };
}

planted! {
    /// A frame counts as durable once it is written; it is synced before the next one.
    AckBeforeSync,
    /// Frames are never synced.
    SkipSync,
    /// A new segment's name is not made durable.
    SkipDirectorySync,
    /// A start relies on the last frame as it was read, which may lie in the system's cache only.
    LastFrameTrusted,
    /// A torn frame is cut in memory, not on the disk.
    TornFrameLeft,
    /// A frame's checksum is not checked.
    FrameUnchecked,
    /// The log's digest is not compared with base's.
    ChainUnchecked,
    /// The digest that a frame's writer had is not compared with the state's.
    WriterUnchecked,
    /// A frame that was applied before is applied again.
    FrameAppliedTwice,
    /// The log is trimmed up to what is applied instead of what is in base.
    TrimTooFar,
    /// Replay goes on with what it looked up in base before a part arrived there.
    LookedUpTooEarly,
    /// Now and then a frame is answered, and published with the next one.
    AnswerBeforePublish,
    /// A transaction makes its first changes before it has checked the others.
    TxnUnchecked,
    /// One revision below the compacted one can be read.
    ReadBelowFloor,
    /// A key that is put without its lease stays attached to it.
    LeaseKeepsKey,
    /// Leases run out a second early.
    LeaseEarly,
    /// An expiry takes a lease that was renewed meanwhile.
    ExpiryUnjudged,
    /// The time between two processes counts for a lease.
    DowntimeCounts,
    /// A part's position is committed before its data.
    MarkBeforeData,
    /// A part says that it reaches as far as the log is applied when it is flushed.
    PartFromLiveState,
    /// A part is forgotten before readers have the base that holds it.
    PartInvisible,
    /// A flush drops the newest version at or below the compacted revision too.
    FlushDropsFloor,
    /// A flush drops a deletion although older versions of the key stay.
    TombstoneTooSoon,
    /// The sweep's cursor goes on to the compacted revision, past what is in base.
    SweepPastFlushed,
    /// The sweep drops a deletion at exactly the compacted revision.
    SweepTakesFloor,
    /// The sweep leaves out a revision after each step.
    SweepSkipsRevision,
    /// The sweep removes a version from `index` alone.
    HistoryRowLeft,
    /// What a put replaces still counts as live.
    TotalsDrift,
    /// A row's checksum is not checked.
    RowUnchecked,
    /// A copy of base lacks the first revision that came while it was made.
    RewriteSkipsRevision,
    /// The name of a new base is not made durable.
    RenameUnsynced,
    /// A read sees what is not published.
    DirtyRead,
    /// A long read takes from base what a part holds newer.
    HorizonIgnored,
    /// A count that is kept up to date forgets deletions.
    CountForgets,
    /// The last change of a step of the hub is not delivered.
    DropLastEvent,
    /// The changes of one revision are delivered one by one.
    SplitRevision,
    /// What a key was before is read no lower than at the compacted revision.
    PrevKvAtFloor,
    /// A watch starts after the store's revision although the hub has not got there.
    WatchFromStore,
    /// An event that does not fit into a queue is dropped, and the watch is not told to catch up.
    FullQueueDrops,
    /// A watch that caught up rejoins although the hub has gone on meanwhile.
    RejoinTooSoon,
    /// A watch whose next revision was compacted reads on with what is left.
    CompactionUntold,
    /// Progress is told although a watch of the stream is behind.
    ProgressTooSoon,
    /// Progress is told with the store's revision, not the hub's.
    ProgressOfStore,
    /// A snapshot holds changes that came after it was begun.
    SnapshotTooNew,
    /// A restore leaves leases out.
    RestoreForgetsLeases,
}
