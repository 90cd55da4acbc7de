//! Reading frames back.

use bytes::Bytes;

use crate::error::Error;
use crate::log::local::plan::place;
use crate::log::local::segment::FRAMES_AT;
use crate::log::local::window::Window;
use crate::log::local::{LocalLog, sectors};
use crate::log::{Log, StoredFrame};
use crate::types::Position;

impl LocalLog {
    /// The frames from `from` on, as `Log::read` gives them.
    pub(super) fn read_frames(&mut self, from: Position, max_bytes: usize) -> Result<Vec<StoredFrame>, Error> {
        if from < self.first() {
            let reason = format!("it was trimmed, the log begins at {}", self.first());
            return Err(Error::LogMismatch { position: from, reason });
        }
        let mut frames = Vec::new();
        let mut budget = max_bytes;
        let mut position = from;
        while position < self.end && (frames.is_empty() || budget > 0) {
            position = self.read_segment(position, &mut budget, &mut frames)?;
        }
        Ok(frames)
    }

    /// The segment that holds `position`, and where in it the frame lies.
    fn locate(&mut self, position: Position) -> Result<(usize, u64), Error> {
        let number = self.segments.partition_point(|segment| segment.header.first <= position).saturating_sub(1);
        if let Some((next, offset)) = self.cursor
            && next == position
        {
            return Ok((number, offset));
        }
        let first = self.segments.get(number).map_or(position, |segment| segment.header.first);
        let begin = self.begin.filter(|begin| begin.segment == first && begin.first <= position);
        let (mut at, mut offset) = begin.map_or((first, FRAMES_AT), |begin| (begin.first, begin.offset));
        let Some(mut window) = self.window(number)? else { return Ok((number, offset)) };
        while at < position {
            let head = window.head(offset)?.map_err(|reason| self.damage(number, offset, reason))?;
            offset += sectors::stretch(head.len) as u64;
            at = at.next();
        }
        self.bytes_read += window.bytes_read;
        Ok((number, offset))
    }

    fn window(&self, number: usize) -> Result<Option<Window>, Error> {
        self.segments.get(number).map(|segment| Window::new(segment.file.clone(), &segment.path)).transpose()
    }

    fn damage(&self, number: usize, offset: u64, reason: String) -> Error {
        let path = self.segments.get(number).map_or(self.dir.as_path(), |segment| segment.path.as_path());
        Error::corrupt(place(path, offset), reason)
    }

    /// Reads frames of one segment into `frames`; the position after the last.
    fn read_segment(
        &mut self,
        from: Position,
        budget: &mut usize,
        frames: &mut Vec<StoredFrame>,
    ) -> Result<Position, Error> {
        let (number, mut offset) = self.locate(from)?;
        let after = self.segments.get(number + 1).map_or(self.end, |next| next.header.first);
        let Some(mut window) = self.window(number)? else { return Ok(after) };
        let mut position = from;
        while position < after && (frames.is_empty() || *budget > 0) {
            let found = window.frame(offset)?.map_err(|reason| self.damage(number, offset, reason))?;
            if found.head.position != position || found.head.log != self.id {
                return Err(self.damage(number, offset, format!("frame {}, expected {position}", found.head.position)));
            }
            *budget = budget.saturating_sub(found.bytes.len());
            frames.push(StoredFrame { position, bytes: Bytes::from(found.bytes) });
            offset = found.next;
            position = position.next();
        }
        self.bytes_read += window.bytes_read;
        let next = if position < after { offset } else { FRAMES_AT };
        self.cursor = (position < self.end).then_some((position, next));
        Ok(position)
    }
}
