//! Buffers for what is sent, used again: to touch fresh memory for the first time costs more than to fill it.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// The buffers that are kept for the next one who needs one, and the largest that is.
const KEPT: usize = 4;
const KEPT_BYTES_MAX: usize = 2 << 20;

static FREE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// An empty buffer with room for so many bytes.
pub(crate) fn take(bytes: usize) -> Vec<u8> {
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
        if free.len() < KEPT && buffer.capacity() <= KEPT_BYTES_MAX {
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
        let mut shared = Vec::new();
        for round in 0..10_u8 {
            let mut buffer = take(1000);
            assert!(buffer.is_empty() && buffer.capacity() >= 1000);
            buffer.extend_from_slice(&[round; 1000]);
            shared.push(share(buffer));
            if round % 3 == 2 {
                shared.remove(0);
            }
        }
        assert!(shared.iter().all(|bytes| bytes.len() == 1000 && bytes.iter().all(|byte| Some(byte) == bytes.first())));
        assert!(FREE.lock().unwrap_or_else(PoisonError::into_inner).len() <= KEPT);
    }
}
