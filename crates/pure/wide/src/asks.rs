//! What people and programs of a node ask its site, and what it answers. Only shapes: the island does not know them.

use atoll_core::{Ino, Name, wire_enum};
use atoll_posix::Errno;

use crate::confirm::CONFIRM_MAX;
use crate::members::NumberedSite;
use crate::peers::message::{Most, SITES_MAX};
use crate::settled::SettledEntry;
use crate::trash::TrashEntry;

wire_enum! {
    /// What somebody of this node asks a site for.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum SiteAsks {
        /// What rests in the trash, the oldest first.
        1 => TrashList {
            /// From this key on.
            from: u128,
        },
        /// A body that rests gets a name, as a new file that all sites get.
        2 => TrashRestore {
            /// Its key.
            key: u128,
            /// The directory.
            dir: Ino,
            /// A name that is free there.
            name: Name,
        },
        /// What rests goes for good.
        3 => TrashEmpty {
            /// Up to this key.
            upto: u128,
        },
        /// These sites are such from now on.
        4 => Know {
            /// They.
            sites: Most<NumberedSite, SITES_MAX>,
        },
        /// Which sites have these durably? What they answer is found by the number of the question (`Site::confirmed`).
        5 => Confirm {
            /// Files and directories, by their numbers here.
            inos: Most<Ino, CONFIRM_MAX>,
        },
        /// Which conflicts were settled here without a file beside a name, the oldest first?
        6 => Settled {
            /// From this key on.
            from: u128,
        },
    }
}

wire_enum! {
    /// What a site answers.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum SiteAnswers {
        /// What rests.
        1 => TrashList {
            /// At most 1,000 bodies, the oldest first.
            entries: Vec<TrashEntry>,
            /// The key from which on there are more.
            next: Option<u128>,
        },
        /// The body has a name.
        2 => Restored {
            /// The number of the file.
            ino: Ino,
        },
        /// What was to go is gone.
        3 => Emptied {
            /// How many bodies.
            bodies: u64,
            /// Bytes that they took on the disk.
            bytes: u64,
        },
        /// It is not done.
        4 => Failed {
            /// Why.
            errno: Errno,
        },
        /// The rows of the sites say so, and are synced.
        5 => Known,
        /// The other sites are asked.
        6 => Asking {
            /// Of how many they are not, since no site can have them yet.
            not_ready: u32,
        },
        /// These were settled.
        7 => Settled {
            /// At most 1,000, the oldest first.
            entries: Vec<SettledEntry>,
            /// The key from which on there are more.
            next: Option<u128>,
        },
    }
}
