//! Space on the disk: every acknowledged byte always finds its place. Never asks the disk.

use atoll_posix::Errno;

use super::request::Blocked;

/// Bytes that may still be used up before only deletes are let through.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Room {
    bytes: u64,
    /// The disk has been looked at.
    is_known: bool,
}

impl Room {
    /// So many are free by the last look at the disk.
    pub(crate) const fn set(&mut self, bytes: u64) {
        *self = Self { bytes, is_known: true };
    }

    /// Whether there is room for a record without bytes.
    pub(crate) const fn is_left(&self) -> bool {
        self.bytes >= 4096
    }

    /// How many are left; none before the first look at the disk.
    pub(crate) fn left(self) -> Option<u64> {
        self.is_known.then_some(self.bytes)
    }

    /// `ENOSPC` unless there is room for `bytes` more. Counts down between two looks at the disk.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), Blocked> {
        // In the log and in the body, and a row or two.
        let need = 2 * bytes + 4096;
        self.bytes = self.bytes.checked_sub(need).ok_or(Blocked::Fail(Errno::ENOSPC))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_uses_none() {
        let mut room = Room::default();
        room.set(12_000);
        assert!(room.take(1_000).is_ok());
        assert!(matches!(room.take(4_000), Err(Blocked::Fail(Errno::ENOSPC))));
        assert!(room.take(500).is_ok(), "the one that was refused has used nothing");
    }
}
