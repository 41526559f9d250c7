//! Bounded queues inside an island: so many entries at most, and so many bytes. A caller that brings more is
//! told so, and must say what becomes of the entry.

use atoll_core::Encode;
use atoll_proto::PeerMessage;

use super::request::{Next, PendingRequest};

/// Requests and messages that wait for one thing.
const WAITING_MAX: usize = 4096;
/// Bytes of these, as they came.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Something that has come over a link.
pub(crate) trait EncodedBytes {
    /// Bytes that it takes about.
    fn bytes(&self) -> usize;
}

impl EncodedBytes for PeerMessage {
    fn bytes(&self) -> usize {
        self.encoded_len()
    }
}

impl EncodedBytes for PendingRequest {
    fn bytes(&self) -> usize {
        self.request.encoded_len() + self.data.len()
    }
}

impl EncodedBytes for Next {
    fn bytes(&self) -> usize {
        match self {
            Self::Start(call) => call.bytes(),
            Self::Peer(message) => message.bytes(),
            _ => 0,
        }
    }
}

impl<K, T: EncodedBytes> EncodedBytes for (K, T) {
    fn bytes(&self) -> usize {
        self.1.bytes()
    }
}

/// See the module. In the order in which they came.
#[derive(Debug, Clone)]
pub(crate) struct Bounded<T> {
    items: Vec<T>,
    bytes: usize,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self { items: Vec::new(), bytes: 0 }
    }
}

impl<T: EncodedBytes> Bounded<T> {
    pub(crate) const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Takes one more. The same comes back if there is no room for it.
    pub(crate) fn push(&mut self, item: T) -> Result<(), T> {
        let bytes = self.bytes + item.bytes();
        if self.items.len() >= WAITING_MAX || bytes > WAITING_BYTES_MAX {
            return Err(item);
        }
        self.items.push(item);
        self.bytes = bytes;
        Ok(())
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// All of them.
    pub(crate) fn take(&mut self) -> Vec<T> {
        self.bytes = 0;
        std::mem::take(&mut self.items)
    }

    /// Those of which `which` says so.
    pub(crate) fn take_if(&mut self, mut which: impl FnMut(&T) -> bool) -> Vec<T> {
        let taken: Vec<T> = self.items.extract_if(.., |item| which(item)).collect();
        self.bytes -= taken.iter().map(T::bytes).sum::<usize>();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Item(usize);

    impl EncodedBytes for Item {
        fn bytes(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn neither_more_items_nor_more_bytes_wait_than_may() {
        let mut bounded = Bounded::default();
        let large = WAITING_BYTES_MAX / 4;
        assert!((0..4).all(|_| bounded.push(Item(large)).is_ok()));
        assert!(bounded.push(Item(1)).is_err_and(|item| item.0 == 1), "the bytes are used up");
        let mut at = 0;
        let second = |_: &Item| {
            at += 1;
            at == 2
        };
        assert_eq!(bounded.take_if(second).len(), 1);
        assert!(bounded.push(Item(large)).is_ok() && bounded.push(Item(1)).is_err());
        assert_eq!(bounded.take().len(), 4);
        assert!((0..WAITING_MAX).all(|_| bounded.push(Item(0)).is_ok()));
        assert!(bounded.push(Item(0)).is_err(), "so many wait");
    }
}
