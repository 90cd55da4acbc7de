//! Translates redb's errors: damage into `Corrupt`, everything else into `Io`, both with the table's name.

use std::io::ErrorKind;

use crate::error::Error;

/// Says where a redb call failed.
pub(super) trait At<T> {
    /// `place` is a table's name, or what was being done.
    fn at(self, place: &str) -> Result<T, Error>;
}

impl<T, E: Into<redb::Error>> At<T> for Result<T, E> {
    fn at(self, place: &str) -> Result<T, Error> {
        self.map_err(|error| fault(place, error.into()))
    }
}

pub(super) fn fault(place: &str, error: redb::Error) -> Error {
    let reason = error.to_string();
    if is_damage(&error) {
        Error::corrupt(place, reason)
    } else {
        Error::Io { doing: format!("base, {place}"), reason }
    }
}

fn is_damage(error: &redb::Error) -> bool {
    match error {
        // A file that ends before a page that it must hold, or that is not redb's.
        redb::Error::Io(error) => matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData),
        redb::Error::Corrupted(_)
        | redb::Error::UpgradeRequired(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::TableIsNotMultimap(_)
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::TableDoesNotExist(_) => true,
        _ => false,
    }
}
