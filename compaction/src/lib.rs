//! Decides when and how much a keyspace is compacted.
