//! The places, from a command's way in to its way out.

macro_rules! points {
    ($($(#[$doc:meta])* $name:ident $fails:literal,)*) => {
        /// A place in the code; `can_fail` says whether a call can fail there.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Point {
            $($(#[$doc])* $name,)*
        }

        impl Point {
            /// All of them.
            pub const ALL: [Point; [$(Point::$name),*].len()] = [$(Point::$name),*];

            /// True if a call can be made to fail there.
            pub fn can_fail(self) -> bool {
                match self {
                    $(Point::$name => $fails,)*
                }
            }
        }
    };
}

points! {
    /// The first start: log and base exist, the identity does not say so yet.
    Creating true,
    /// The log is about to be read.
    OpenLog true,
    /// A log was read and judged; a torn end is about to be cut.
    CutTail true,
    /// Base is about to be opened.
    OpenBase true,
    /// Frames were read for replay.
    Replay true,
    /// A frame is about to be replayed.
    ReplayFrame true,
    /// Everything is replayed; the threads are about to be started.
    Start true,
    /// A command is about to be queued.
    Queue true,
    /// Commands are about to be taken from the queue.
    Take false,
    /// Leases that have run out are about to be looked for.
    Due false,
    /// A frame is encoded; nothing of it is in the log.
    Append true,
    /// A segment is about to be made.
    Segment true,
    /// A segment has its blocks, but no name that would survive.
    SegmentName true,
    /// A frame is about to be written.
    Write true,
    /// A frame is written, not synced.
    Sync true,
    /// A frame is durable; nothing of it was applied.
    Durable false,
    /// A frame is about to be applied.
    Apply true,
    /// A command of a frame is about to be applied.
    ApplyCommand true,
    /// A request is between two of its changes.
    Change false,
    /// A frame was applied, nothing of it is visible.
    Publish false,
    /// Half of what is published has changed; the lock is held.
    PublishHalf false,
    /// A frame is visible; nobody was answered.
    Answer false,
    /// A part is about to be frozen.
    Freeze false,
    /// The log is about to be trimmed.
    Trim true,
    /// A segment is removed, the directory not synced.
    TrimSync true,
    /// Room for a part is about to be looked for.
    Reserve true,
    /// A part is about to be written.
    Flush true,
    /// The versions of a part are in `index`, not in `history`.
    FlushHistory true,
    /// The versions of a part are written, its small tables are not.
    FlushSmall true,
    /// Everything of a part is written but the position.
    FlushMeta true,
    /// A transaction is about to be committed.
    Commit true,
    /// A transaction is committed; nobody knows.
    Committed true,
    /// A part is in base; readers have the old one.
    FlushPublish true,
    /// A step of the sweep is about to begin.
    Sweep true,
    /// A step of the sweep has removed something, its cursor is where it was.
    SweepCursor true,
    /// A rewrite of base is about to begin.
    RewriteBegin true,
    /// A step of a rewrite is about to copy rows.
    RewriteRows true,
    /// A step of a rewrite is about to copy changes.
    RewriteChanges true,
    /// A rewrite is about to copy the small tables.
    RewriteFinish true,
    /// A copy is complete and about to get base's name.
    Rename true,
    /// A copy has base's name, the directory is not synced.
    Renamed true,
    /// A copy has base's name for good; readers have the old one.
    Replace true,
    /// A range is about to be read.
    Read true,
    /// The hub is about to take a step.
    HubStep true,
    /// The hub is between two revisions of a step; its lock is held.
    HubRevision true,
    /// A watch is about to be registered; locks are held.
    WatchCreate false,
    /// A step of catching up is about to begin.
    CatchUp true,
    /// A step of catching up was read, not queued.
    CaughtUp true,
    /// A piece of a snapshot is about to be made.
    SnapshotPiece true,
    /// A version is about to be added to a new data directory.
    Import true,
    /// A new data directory is complete but for its identity.
    ImportFinish true,
    /// The committer has no more commands and is about to bring the rest to base.
    Finish true,
}
