//! One type for every number: revisions, positions, identities, digests.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

number!(
    /// A main revision of the store: 1 when empty, one more per request that changes something.
    Revision(i64), "{}"
);
number!(
    /// A lease's id, chosen by the client or by the store; never 0.
    LeaseId(i64), "{:016x}"
);
number!(
    /// The place of a frame in a log: 1 for the first frame, one more per frame.
    Position(u64), "{}"
);
number!(
    /// Which log a frame belongs to.
    LogId(u64), "{:016x}"
);
number!(
    /// A member of the cluster: who writes frames, who raised an alarm.
    MemberId(u64), "{:016x}"
);
number!(
    /// One process's claim to write as a member, random per process.
    WriterId(u64), "{:016x}"
);
number!(
    /// A watch on a stream; negative ids are allowed except -1.
    WatchId(i64), "{}"
);

impl Revision {
    /// The revision of an empty store.
    pub const FIRST: Revision = Revision(1);

    /// The revision after this one.
    pub fn next(self) -> Revision {
        Revision(self.0 + 1)
    }
}

impl Position {
    /// The position after this one.
    pub fn next(self) -> Position {
        Position(self.0 + 1)
    }
}

/// A change's place in the total order: its revision and its number within that revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RevisionPair {
    /// The main revision.
    pub main: Revision,
    /// 0 for the first change of the revision.
    pub sub: i64,
}

impl RevisionPair {
    /// Above every change.
    pub const MAX: RevisionPair = RevisionPair { main: Revision(i64::MAX), sub: i64::MAX };

    /// The last possible change of `main`.
    pub fn last_of(main: Revision) -> RevisionPair {
        RevisionPair { main, sub: i64::MAX }
    }
}

/// The hash chain over frames up to and including one: equal digests mean equal history.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// The digest after `frame`, all of its bytes as the log holds them.
    pub fn chain(self, frame: &[u8]) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        hasher.update(frame);
        let mut short = [0; 16];
        hasher.finalize_xof().fill(&mut short);
        Digest(short)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
