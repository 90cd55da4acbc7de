//! Measurements on the real disk, for the numbers in the documentation; ignored unless asked for.
