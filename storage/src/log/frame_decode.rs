//! From bytes back to a frame: total, every length checked before it is used.

use bytes::Bytes;

use crate::log::frame::{
    CRC_LEN, FORMAT, Frame, FrameHeader, HEADER_CRC_AT, HEADER_LEN, MAGIC, MAX_FRAME_LEN, RECORD_HEAD_LEN, Record,
};
use crate::types::{Digest, LogId, MemberId, Position, WriterId};

/// What a header says, its checksum verified: enough to find the frame's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) header: FrameHeader,
    pub(super) log: LogId,
    pub(super) position: Position,
    /// The whole frame's bytes, within the limit.
    pub(super) len: usize,
    records: u32,
}

/// Reads the header that `bytes` begins with; what follows it is not looked at.
pub(super) fn head(bytes: &[u8]) -> Result<Head, String> {
    let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
        return Err(format!("{} bytes, a header has {HEADER_LEN}", bytes.len()));
    };
    let (covered, crc) = header.split_last_chunk::<CRC_LEN>().ok_or("no header")?;
    if !covered.starts_with(&MAGIC) {
        return Err("no frame begins here".to_owned());
    }
    debug_assert_eq!(covered.len(), HEADER_CRC_AT);
    let (stored, computed) = (u32::from_le_bytes(*crc), crc32fast::hash(covered));
    if stored != computed {
        return Err(format!("the header's checksum is {computed:08x}, {stored:08x} is stored"));
    }
    fields(covered).ok_or("a header is cut short")?
}

fn fields(covered: &[u8]) -> Option<Result<Head, String>> {
    let mut rest = Reader(covered);
    let _magic: [u8; 4] = rest.take()?;
    let format = u16::from_le_bytes(rest.take()?);
    let reserved = u16::from_le_bytes(rest.take()?);
    let len = u32::from_le_bytes(rest.take()?);
    let records = u32::from_le_bytes(rest.take()?);
    let log = LogId(rest.take_u64()?);
    let position = Position(rest.take_u64()?);
    let header = FrameHeader {
        member: MemberId(rest.take_u64()?),
        generation: rest.take_u64()?,
        writer: WriterId(rest.take_u64()?),
        number: rest.take_u64()?,
        applied: Position(rest.take_u64()?),
        applied_digest: Digest(rest.take()?),
        time_ms: rest.take_u64()?,
    };
    if format != FORMAT {
        return Some(Err(format!("frame format {format}, this version reads {FORMAT}")));
    }
    if reserved != 0 {
        return Some(Err(format!("reserved bytes hold {reserved}")));
    }
    let len = usize::try_from(len).ok()?;
    if !(HEADER_LEN + CRC_LEN..=MAX_FRAME_LEN).contains(&len) {
        return Some(Err(format!("a frame of {len} bytes, at most {MAX_FRAME_LEN} are allowed")));
    }
    Some(Ok(Head { header, log, position, len, records }))
}

/// Verifies a whole frame without keeping its records.
pub(super) fn verify(bytes: &[u8]) -> Result<Head, String> {
    let head = head(bytes)?;
    let body = body(bytes, &head)?;
    walk(body, &head, |_, _| ())?;
    Ok(head)
}

pub(super) fn frame(bytes: &Bytes) -> Result<Frame, String> {
    let head = head(bytes)?;
    let body = body(bytes, &head)?;
    let mut records = Vec::new();
    walk(body, &head, |kind, payload| records.push(Record { kind, payload: bytes.slice_ref(payload) }))?;
    Ok(Frame { header: head.header, log: head.log, position: head.position, records })
}

/// The bytes of the records, the length and the last checksum verified.
fn body<'a>(bytes: &'a [u8], head: &Head) -> Result<&'a [u8], String> {
    if bytes.len() != head.len {
        return Err(format!("{} bytes, the header says {}", bytes.len(), head.len));
    }
    let (covered, crc) = bytes.split_last_chunk::<CRC_LEN>().ok_or("no checksum")?;
    let (stored, computed) = (u32::from_le_bytes(*crc), crc32fast::hash(covered));
    if stored != computed && !planted!(FrameUnchecked) {
        return Err(format!("the frame's checksum is {computed:08x}, {stored:08x} is stored"));
    }
    Ok(covered.get(HEADER_LEN..).ok_or("no header")?)
}

fn walk<'a>(body: &'a [u8], head: &Head, mut each: impl FnMut(u8, &'a [u8])) -> Result<(), String> {
    let mut rest = body;
    let mut found: u32 = 0;
    while !rest.is_empty() {
        let short = || format!("record {} is cut short", found + 1);
        let (record_head, after) = rest.split_first_chunk::<RECORD_HEAD_LEN>().ok_or_else(short)?;
        let [kind, length @ ..] = *record_head;
        let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_| short())?;
        let (payload, after) = after.split_at_checked(length).ok_or_else(short)?;
        each(kind, payload);
        rest = after;
        found += 1;
    }
    if found == head.records { Ok(()) } else { Err(format!("{found} records, the header says {}", head.records)) }
}

/// Takes fixed-size pieces off the front.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (piece, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*piece)
    }

    pub(super) fn take_u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}
