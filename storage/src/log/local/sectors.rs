//! How a frame lies on a disk that writes 512 bytes at once or not at all.
//!
//! Each sector is a tag byte and 511 bytes of the frame. No tag is zero, so a written sector is never all zero, whatever
//! the values in it: a sector of zeros was not written. A frame's first sector has a tag of its own, which no byte that a
//! client sent can take the place of: values cannot pass for frames.

/// The bytes that a disk writes as one.
pub(super) const SECTOR: usize = 512;
pub(super) const SECTOR_BYTES: u64 = 512;
/// The bytes of a frame in each sector.
pub(super) const DATA: usize = SECTOR - 1;

/// The tag of a segment's header. The three differ in at least four bits.
pub(super) const TAG_HEADER: u8 = 0x3c;
/// The tag of a frame's first sector.
pub(super) const TAG_FIRST: u8 = 0xa5;
/// The tag of each further sector.
pub(super) const TAG_NEXT: u8 = 0x5a;

static ZEROS: [u8; SECTOR] = [0; SECTOR];

/// What a sector can be taken for by its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Never written, or cut.
    Zero,
    /// A frame begins here.
    First,
    /// A frame goes on here.
    Next,
    /// Something that was never written.
    Damaged,
}

pub(super) fn kind(sector: &[u8]) -> Kind {
    match sector.first() {
        Some(&TAG_FIRST) => Kind::First,
        Some(&TAG_NEXT) => Kind::Next,
        _ if is_zero(sector) => Kind::Zero,
        _ => Kind::Damaged,
    }
}

pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(SECTOR).all(|chunk| ZEROS.starts_with(chunk))
}

/// The bytes on the disk of a frame of `len` bytes.
pub(super) fn stretch(len: usize) -> usize {
    len.div_ceil(DATA) * SECTOR
}

/// Lays a frame out, replacing what is in `out`.
pub(super) fn spread(frame: &[u8], out: &mut Vec<u8>) {
    out.clear();
    for piece in frame.chunks(DATA) {
        out.push(if out.is_empty() { TAG_FIRST } else { TAG_NEXT });
        out.extend_from_slice(piece);
    }
    out.resize(stretch(frame.len()), 0);
}

/// The frame of `len` bytes that `sectors` hold; tags and the padding at the end are verified.
pub(super) fn gather(sectors: &[u8], len: usize) -> Result<Vec<u8>, String> {
    let mut frame = Vec::with_capacity(sectors.len());
    for (number, sector) in sectors.chunks(SECTOR).enumerate() {
        let wanted = if number == 0 { TAG_FIRST } else { TAG_NEXT };
        match sector.split_first() {
            Some((&tag, data)) if tag == wanted => frame.extend_from_slice(data),
            _ if is_zero(sector) => return Err(format!("sector {number} of the frame was not written")),
            _ => return Err(format!("sector {number} of the frame has a wrong tag")),
        }
    }
    match frame.get(len..) {
        Some(padding) if is_zero(padding) => {}
        Some(_) => return Err("the padding after the frame is not zero".to_owned()),
        None => return Err("the frame is cut short".to_owned()),
    }
    frame.truncate(len);
    Ok(frame)
}
