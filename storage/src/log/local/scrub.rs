//! Reads again what a log on this disk keeps, a piece at a time, while frames are appended and segments removed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::fs::{FileSystem, OpenMode};
use crate::log::local::plan::place;
use crate::log::local::recover;
use crate::log::local::sectors::SECTOR;
use crate::log::local::segment::{self, FRAMES_AT, Header, HeaderSector, error_at};
use crate::log::local::window::Window;
use crate::types::{Digest, LogId, Position};

/// A walk over the frames of a log, from its first segment to a position that is known to be durable.
#[derive(Debug)]
pub(crate) struct LogScrub {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    id: LogId,
    at: Option<Place>,
    /// Where the walk ends: what was durable when it began.
    upto: Position,
}

/// Where a walk goes on.
#[derive(Clone, Debug)]
struct Place {
    /// The segment's name.
    segment: Position,
    offset: u64,
    /// The frame that belongs there.
    next: Position,
    /// The chain up to there; none after damage, until a segment says what it is.
    digest: Option<Digest>,
}

/// What a step did.
#[derive(Debug, Default)]
pub(crate) struct LogScrubbed {
    pub(crate) frames: u64,
    pub(crate) bytes_read: u64,
    pub(crate) damage: Vec<LogDamage>,
    pub(crate) done: bool,
}

/// Something wrong with a log.
#[derive(Debug)]
pub(crate) struct LogDamage {
    /// The first frame that is concerned.
    pub(crate) from: Position,
    /// The last one that may be: behind a bad frame it is not known where the next one begins.
    pub(crate) upto: Position,
    pub(crate) error: Error,
}

impl LogScrub {
    pub(crate) fn new(fs: Arc<dyn FileSystem>, dir: &Path, id: LogId) -> LogScrub {
        LogScrub { fs, dir: dir.to_owned(), id, at: None, upto: Position(0) }
    }

    /// Reads about `bytes_max` of frames, up to `durable` as it was when the walk began. What is wrong is in the answer, what cannot be read too.
    pub(crate) fn step(&mut self, durable: Position, bytes_max: usize) -> LogScrubbed {
        let mut did = LogScrubbed::default();
        let at = self.at.take();
        if at.is_none() {
            self.upto = durable;
        }
        let upto = self.upto;
        match self.walk(at.clone(), upto, bytes_max, &mut did) {
            Ok(on) => self.at = on,
            // The rest is looked at another time.
            Err(error) => did.damage.push(LogDamage { from: at.map_or(Position(0), |at| at.next), upto, error }),
        }
        did.done = self.at.is_none();
        did
    }

    fn walk(
        &self,
        at: Option<Place>,
        upto: Position,
        bytes_max: usize,
        did: &mut LogScrubbed,
    ) -> Result<Option<Place>, Error> {
        let names = recover::list(&*self.fs, &self.dir)?;
        // A segment that was removed meanwhile is passed over: base holds it.
        let from = at.as_ref().map_or(Position(0), |at| at.segment);
        let mut rest = names.iter().copied().skip_while(|name| *name < from).peekable();
        let mut at = at.filter(|at| rest.peek() == Some(&at.segment));
        while let Some(name) = rest.next() {
            if name > upto {
                return Ok(None);
            }
            let end = rest.peek().copied().unwrap_or(Position(u64::MAX)).min(upto.next());
            match self.segment(name, at.take(), end, bytes_max, did)? {
                Walked::Over(digest) => at = rest.peek().map(|next| Place::of(*next, digest)),
                Walked::Pause(place) => return Ok(Some(place)),
            }
        }
        Ok(None)
    }

    /// The frames of one segment below `end`.
    fn segment(
        &self,
        name: Position,
        at: Option<Place>,
        end: Position,
        bytes_max: usize,
        did: &mut LogScrubbed,
    ) -> Result<Walked, Error> {
        let path = self.dir.join(segment::name(name));
        let file = match self.fs.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Walked::Over(None)),
            file => file.map_err(|error| error_at("opening", &path, &error))?,
        };
        let mut window = Window::new(file, &path)?;
        let mut at = at.unwrap_or(Place::of(name, None));
        if at.offset == FRAMES_AT {
            match self.header(&mut window, name, at.digest) {
                Ok(digest) => at.digest = Some(digest),
                Err(reason) => {
                    let error = Error::corrupt(place(&path, 0), reason);
                    did.damage.push(LogDamage { from: name, upto: name, error });
                    at.digest = None;
                }
            }
        }
        while at.next < end {
            if did.bytes_read + window.bytes_read >= bytes_max as u64 && did.frames > 0 {
                did.bytes_read += window.bytes_read;
                return Ok(Walked::Pause(at));
            }
            let found = window.frame(at.offset)?.and_then(|found| {
                let (log, position) = (found.head.log, found.head.position);
                let right = log == self.id && position == at.next;
                if right { Ok(found) } else { Err(format!("frame {position} of log {log}, expected {}", at.next)) }
            });
            match found {
                Ok(found) => {
                    at.digest = at.digest.map(|digest| digest.chain(&found.bytes));
                    at.next = at.next.next();
                    at.offset = found.next;
                    did.frames += 1;
                }
                Err(reason) => {
                    let error = Error::corrupt(place(&path, at.offset), reason);
                    let upto = Position(end.0.saturating_sub(1));
                    did.damage.push(LogDamage { from: at.next, upto, error });
                    at.digest = None;
                    break;
                }
            }
        }
        did.bytes_read += window.bytes_read;
        Ok(Walked::Over(at.digest))
    }

    /// A segment's header, which says how the chain goes on.
    fn header(&self, window: &mut Window, name: Position, chain: Option<Digest>) -> Result<Digest, String> {
        let sector = window.get(0, SECTOR).map_err(|error| error.to_string())?.map(Header::decode);
        match sector {
            Some(HeaderSector::Valid(header)) if header.log == self.id && header.first == name => match chain {
                Some(chain) if chain != header.digest => {
                    Err(format!("digest {:?}, the segments before it give {chain:?}", header.digest))
                }
                _ => Ok(header.digest),
            },
            Some(HeaderSector::Damaged(reason)) => Err(reason),
            _ => Err("its header is not what was written".to_owned()),
        }
    }
}

enum Walked {
    /// Everything asked for; the chain at the end, if it is known.
    Over(Option<Digest>),
    Pause(Place),
}

impl Place {
    fn of(segment: Position, digest: Option<Digest>) -> Place {
        Place { segment, offset: FRAMES_AT, next: segment, digest }
    }
}
