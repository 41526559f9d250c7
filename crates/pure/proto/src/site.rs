//! What a site of a wide volume has in its configuration, orders to the node that has one, and the answers. Only shapes.

use atoll_core::{Ino, Name, wire_enum, wire_struct};
use bytes::Bytes;

wire_struct! {
    /// What a site is, from its beginning on. Each site has a configuration of its own of the volume, with itself as the only node.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct SiteSettings {
        /// Its number, which is that of its writer too.
        pub site: u64,
        /// Its name.
        pub name: String,
        /// Where it takes connections of other sites, as `HOST:PORT`; empty if it takes none.
        pub listen: String,
        /// Where other sites reach it.
        pub addresses: Vec<String>,
        /// Bytes that leave it for other sites in a second, at most; 0: no bound.
        pub bytes_per_s: u64,
        /// Owner of the volume's root when it was made,
        pub uid: u32,
        /// and its group: all sites begin with the same root.
        pub gid: u32,
        /// The sites that it knew when it came, as the messages between sites encode them.
        pub hosts: Vec<Bytes>,
    }
}

wire_enum! {
    /// What a command asks of the node that has a site.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum SiteOrder {
        /// A line by which another site may join, once. `SiteReply::Invited`.
        1 => Invite { /// The volume's name.
            volume: String, /// How many seconds it holds.
            for_s: u64 },
        /// Join the volume of a line, with a new site of this node. `SiteReply::Joined`.
        2 => Join {
            /// The line.
            line: String,
            /// The site's name.
            name: String,
            /// As in [`SiteSettings`],
            listen: String,
            /// also this,
            addresses: Vec<String>,
            /// and this.
            bytes_per_s: u64,
            /// It has no links before [`SiteOrder::Start`].
            waits: bool,
        },
        /// A site that waits has links from now on. `SiteReply::Done`.
        3 => Start { /// The volume's name.
            volume: String },
        /// Which sites are there, and how are they? `SiteReply::Sites`.
        4 => List { /// The volume's name.
            volume: String },
        /// The site of this node leaves: others do not wait for it any more. `SiteReply::Done`.
        5 => Leave { /// The volume's name.
            volume: String },
        /// The others go on without a site. `SiteReply::Done`.
        6 => Forget { /// The volume's name.
            volume: String, /// The site's name.
            site: String },
        /// Which sites have these files and directories durably, at this moment? `SiteReply::Confirmed`.
        7 => Confirm { /// The volume's name.
            volume: String, /// They, by their numbers at this site; at most 256.
            inos: Vec<Ino> },
        /// What have other sites taken away at this one, the oldest first? `SiteReply::Trash`.
        8 => TrashList { /// The volume's name.
            volume: String, /// From this key on.
            from: u128 },
        /// What rests gets a name again. `SiteReply::Done`.
        9 => TrashRestore { /// The volume's name.
            volume: String, /// Its key.
            key: u128, /// The directory, by its number at this site.
            dir: Ino, /// A name that is free there.
            name: Name },
        /// What rests goes for good. `SiteReply::Emptied`.
        10 => TrashEmpty { /// The volume's name.
            volume: String, /// Up to this key.
            upto: u128 },
        /// Which conflicts were settled at this site without a file beside a name, the oldest first? `SiteReply::Settled`.
        11 => Settled { /// The volume's name.
            volume: String, /// From this key on.
            from: u128 },
    }
}

wire_enum! {
    /// What it answers.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum SiteReply {
        /// It is as ordered.
        1 => Done,
        /// The line.
        2 => Invited { /// It.
            line: String },
        /// The site is here.
        3 => Joined { /// The volume's name.
            volume: String },
        /// These are the sites.
        4 => Sites { /// They, this one first.
            sites: Vec<SiteTold> },
        /// So much is where.
        5 => Confirmed { /// How many of what was asked for have changes that no other site can have yet.
            not_ready: u32, /// The other sites that take part, by their names, and how many of the rest they lack; none of one that was not reached.
            sites: Vec<(String, Option<u32>)> },
        /// This rests.
        6 => Trash { /// At most 1,000, the oldest first.
            entries: Vec<TrashTold>, /// The key from which on there are more.
            next: Option<u128> },
        /// So much is gone.
        7 => Emptied { /// Files and symbolic links.
            bodies: u64, /// Bytes that they took on the disk.
            bytes: u64 },
        /// These were settled.
        8 => Settled { /// At most 1,000, the oldest first.
            entries: Vec<SettledTold>, /// The key from which on there are more.
            next: Option<u128> },
    }
}

wire_struct! {
    /// A conflict that was settled without a file beside a name.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SettledTold {
        /// When that was, in milliseconds since 1970.
        pub time_ms: u64,
        /// A path at which the file or directory was then. If it does not begin with a slash, directories above are left out.
        pub path: Bytes,
        /// How.
        pub outcome: SettledOutcome,
        /// The name of the site whose change counts; none if it is not known,
        pub kept: Option<String>,
        /// and of the one whose change does not.
        pub other: Option<String>,
    }
}

wire_enum! {
    /// What has become of two changes that did not know of each other.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SettledOutcome {
        /// A file that one site removed is there with what the other one wrote.
        1 => Kept,
        /// A directory that one site removed is there with what the other one put into it.
        2 => Revived,
        /// Both gave a file another name. It has that of the later change.
        3 => Renamed,
        /// A move of a directory has no effect: with that of the other site it would be below itself.
        4 => NotMoved,
    }
}

wire_struct! {
    /// A body that rests in the trash of the site that was asked.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TrashTold {
        /// By which it is meant.
        pub key: u128,
        /// Since when it rests, in milliseconds since 1970.
        pub since_ms: u64,
        /// A path at which it was. If it does not begin with a slash, directories above are left out.
        pub path: Bytes,
        /// It is a symbolic link, and else a regular file.
        pub is_link: bool,
        /// A later version has replaced it, and else it was removed.
        pub is_replaced: bool,
        /// The name of the site that has done so.
        pub by: String,
        /// Its length,
        pub size: u64,
        /// and bytes that it takes on the disk.
        pub takes: u64,
    }
}

wire_enum! {
    /// How a site is, for another one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SiteCondition {
        /// It is the one that was asked.
        1 => Here,
        /// There is a link to it.
        2 => Connected,
        /// There is none.
        3 => Away,
        /// It has left the volume.
        4 => Left,
        /// The others go on without it.
        5 => Forgotten,
        /// It is the one that was asked, and has no links before it is started.
        6 => Waits,
    }
}

wire_struct! {
    /// A site, as the one that was asked knows it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SiteTold {
        /// Its number.
        pub site: u64,
        /// Its name.
        pub name: String,
        /// Where others reach it.
        pub addresses: Vec<String>,
        /// How it is.
        pub condition: SiteCondition,
        /// Since when that is so, in milliseconds since 1970; none if it was not connected since the node began.
        pub since_ms: Option<u64>,
        /// Why there is no link.
        pub why: Option<String>,
        /// It has all that this site has synced, and all of its own is here.
        pub is_even: bool,
        /// Of this site: files whose latest bytes are not here.
        pub files_behind: u64,
        /// and those bytes,
        pub bytes_behind: u64,
        /// and how many of those files there is no room for.
        pub files_without_room: u64,
        /// Bytes that were sent to it since the node began,
        pub sent: u64,
        /// and received.
        pub received: u64,
        /// By how many milliseconds its clock is ahead of that of the site that was asked,
        pub clock_ahead_ms: u64,
        /// and by how many it is behind.
        pub clock_behind_ms: u64,
    }
}

wire_struct! {
    /// What a site knows of a file or directory.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SiteTrace {
        /// Its id, which is the same at all sites.
        pub object: u128,
        /// The name of the site that has made its latest version; of what has no bytes, the one that has last changed it.
        pub by: String,
        /// When, in milliseconds since 1970, by the clock of that site.
        pub changed_ms: u64,
        /// The bytes of that version are not here, or not all.
        pub is_behind: bool,
        /// Users of this site have changed its bytes since, and no version has that yet.
        pub is_uncut: bool,
        /// Versions that did not know of each other and are not settled.
        pub versions: u32,
        /// Of a file: the names that it has by its own word, without directories. It is shown under others if these are taken.
        pub names: Vec<Bytes>,
        /// It was removed by a site that did not know of its latest version, or of what is in it: so it is still there.
        pub is_rescued: bool,
        /// It is a copy that a conflict has made of this object, or the file in which somebody went on who had that one open.
        pub copy_of: Option<u128>,
    }
}
