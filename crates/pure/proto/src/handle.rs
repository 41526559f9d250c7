//! The handles of a cluster volume.

use atoll_core::{Ino, IslandId, Key, wire_enum};

wire_enum! {
    /// Names a file or directory for years, to clients of frontends (`docs/design/015-files.md`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum FileHandle {
        /// Anything but a directory.
        1 => File { /// It.
            ino: Ino, /// Its home when the handle was made.
            home: IslandId },
        /// A directory.
        2 => Dir { /// It.
            ino: Ino, /// Its placement key.
            key: Key },
    }
}
