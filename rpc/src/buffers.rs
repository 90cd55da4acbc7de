//! Buffers for what is sent, used again: to touch fresh memory for the first time costs more than to fill it.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// The buffers that are kept for the next one who needs one, and the smallest and the largest that are: a small answer that nobody reads
/// must not hold a large buffer.
const KEPT: usize = 4;
const KEPT_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=2 << 20;

static FREE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// An empty buffer with room for so many bytes.
pub(crate) fn take(bytes: usize) -> Vec<u8> {
    if bytes < *KEPT_BYTES.start() {
        return Vec::with_capacity(bytes);
    }
    let kept = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut buffer = kept.unwrap_or_default();
    buffer.reserve(bytes);
    buffer
}

/// What is in a buffer; once nobody needs that any more, the buffer can be taken again.
pub(crate) fn share(buffer: Vec<u8>) -> Bytes {
    Bytes::from_owner(Lent(buffer))
}

struct Lent(Vec<u8>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT && KEPT_BYTES.contains(&buffer.capacity()) {
            buffer.clear();
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_empty_whoever_had_it_before() {
        const LEN: usize = 100_000;
        let mut shared = Vec::new();
        for round in 0..10_u8 {
            let mut buffer = take(LEN);
            assert!(buffer.is_empty() && buffer.capacity() >= LEN);
            buffer.extend_from_slice(&[round; LEN]);
            shared.push(share(buffer));
            if round % 3 == 2 {
                shared.remove(0);
            }
        }
        assert!(shared.iter().all(|bytes| bytes.len() == LEN && bytes.iter().all(|byte| Some(byte) == bytes.first())));
        assert!(take(1000).capacity() < LEN, "a large one for a small answer");
        assert!(FREE.lock().unwrap_or_else(PoisonError::into_inner).len() <= KEPT);
    }
}
