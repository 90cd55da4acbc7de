//! Power cuts, failing disks and rotten bits under the whole keyspace: histories that follow from a seed, and what every image of them holds.
//!
//! A history is a chain of lives (`life`). Each is recorded by the simulated disk; then images of power cuts at random moments are built
//! and examined (`images`): each opens by itself and holds exactly one of the states (`world`) between the last step that was
//! acknowledged and the last that was begun. One of the images is where the next life begins.
//!
//! Beside that, every operation of the disk fails once (`errors`), and files rot (`rot`).
//!
//! Everything follows from the seed, also the threads: the maintenance thread works when it is given a turn, and what it did is laid
//! over the requests that followed in another order. A failure names the seed and the image that show it again.

pub mod damage;
pub mod errors;
pub mod images;
pub mod life;
pub mod over;
pub mod restoring;
pub mod rot;
pub mod run;
mod suite;
pub mod world;
