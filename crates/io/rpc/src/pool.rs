//! Buffers for large frames, used again so that a megabyte is not mapped and cleared every time.
//!
//! Shared by all links of the process. Never blocks: an empty pool allocates, a full one frees.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::header::{FRAME_BYTES_MAX, HEADER_BYTES, META_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// Capacities of the buffers that are kept: one for reads of a kernel's usual read-ahead, one for
/// whatever else there is. Longer ones, of one long record between copies of an island, are rare and not kept.
const CLASS_BYTES: [usize; 2] = [160 * 1024, HEADER_BYTES + META_BYTES_MAX + PAYLOAD_BYTES_MAX];

/// Most free buffers that are kept, for each capacity.
const FREE_MAX: usize = 16;

static FREE: [Mutex<Vec<Vec<u8>>>; 2] = [const { Mutex::new(Vec::new()) }; 2];

fn class_of(bytes: usize) -> usize {
    usize::from(bytes > CLASS_BYTES[0])
}

/// An empty buffer with room for `bytes`.
pub(crate) fn take(bytes: usize) -> Vec<u8> {
    assert!(bytes <= FRAME_BYTES_MAX, "a frame of {bytes} bytes was let through");
    if bytes > CLASS_BYTES[1] {
        return Vec::with_capacity(bytes);
    }
    let class = class_of(bytes);
    let kept = FREE[class].lock().unwrap_or_else(PoisonError::into_inner).pop();
    kept.unwrap_or_else(|| Vec::with_capacity(CLASS_BYTES[class]))
}

/// The buffer's bytes; it returns to the pool when the last slice of them is gone.
pub(crate) fn freeze(buffer: Vec<u8>) -> Bytes {
    Bytes::from_owner(Pooled(buffer))
}

struct Pooled(Vec<u8>);

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        buffer.clear();
        // An allocator may give more than was asked for: what counts is what surely fits.
        let class = usize::from(buffer.capacity() >= CLASS_BYTES[1]);
        if buffer.capacity() > 2 * CLASS_BYTES[1] {
            return;
        }
        let mut free = FREE[class].lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < FREE_MAX {
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_slice_is_gone() {
        let mut buffer = take(CLASS_BYTES[1]);
        buffer.extend_from_slice(b"left over");
        let place = buffer.as_ptr();
        let whole = freeze(buffer);
        let slice = whole.slice(5..);
        drop(whole);
        assert_eq!(&slice[..], b"over");
        drop(slice);
        let again = take(CLASS_BYTES[1]);
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), place);
    }

    #[test]
    fn no_more_are_kept_than_the_bound_says() {
        let many: Vec<_> = (0..FREE_MAX * 2).map(|_| freeze(take(1))).collect();
        drop(many);
        assert!(FREE[0].lock().unwrap().len() <= FREE_MAX);
    }
}
