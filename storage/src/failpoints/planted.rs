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
    /// A part's position is committed before its data.
    MarkBeforeData,
    /// A part says that it reaches as far as the log is applied when it is flushed.
    PartFromLiveState,
    /// The log is trimmed up to what is applied instead of what is in base.
    TrimTooFar,
    /// The last change of a step of the hub is not delivered.
    DropLastEvent,
    /// The changes of one revision are delivered one by one.
    SplitRevision,
    /// What a key was before is read no lower than at the compacted revision.
    PrevKvAtFloor,
    /// A watch starts after the store's revision although the hub has not got there.
    WatchFromStore,
}
