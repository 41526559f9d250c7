//! Parts of a listing of everything, as of a cut.

use atoll_core::{Ino, IslandId, Key, Name, wire_enum, wire_struct};
use atoll_posix::{Attr, Kind};

wire_struct! {
    /// A file as it was at a cut.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FileAt {
        /// What `stat` shows.
        pub attr: Attr,
        /// Target of a symbolic link.
        pub target: Option<bytes::Bytes>,
    }
}

wire_struct! {
    /// A name as it was at a cut.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ListedName {
        /// The name.
        pub name: Name,
        /// The id that it leads to.
        pub ino: Ino,
        /// The type of that file.
        pub kind: Kind,
        /// The home of a file.
        pub home: IslandId,
        /// The key of a directory.
        pub key: Option<Key>,
        /// The attributes of a file that is homed where it is listed.
        pub file: Option<FileAt>,
    }
}

wire_enum! {
    /// Why an island cannot list any more as of a cut.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CutLost {
        /// It does not know the cut: it has started again since, or the listing has paused for too long.
        1 => Unknown,
        /// More has changed since than it keeps.
        2 => TooMuchChanged,
        /// The row before a change is not known.
        3 => Unseen,
    }
}
