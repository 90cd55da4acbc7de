//! The file systems, held against what the seam promises.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "tests may panic")]

mod ballast;
mod both;
mod sim;
mod tape;
