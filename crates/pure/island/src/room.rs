//! Room on the disk: what is acknowledged always finds its place. Never asks the disk.

use atoll_posix::Errno;

use crate::machine::{Island, Stop};

impl Island {
    /// `ENOSPC` unless there is room for `bytes` more. Counts down between two looks at the disk.
    pub(crate) fn space(&mut self, bytes: u64) -> Result<(), Stop> {
        // In the log and in the body, and a row or two.
        let need = 2 * bytes + 4096;
        self.room = self.room.checked_sub(need).ok_or(Stop::Fail(Errno::ENOSPC))?;
        Ok(())
    }
}
