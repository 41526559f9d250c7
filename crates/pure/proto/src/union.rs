//! Orders to the process that shows a union, questions about it, and the answers. Only shapes.

use atoll_core::{Name, Time, VolumePath, wire_enum, wire_struct};
use atoll_posix::Kind;
use bytes::Bytes;

wire_enum! {
    /// What a command asks of the process that shows a union.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum UnionOrder {
        /// How are you, and how are your members? `UnionReply::Status`.
        1 => Status,
        /// Show this member, too. `UnionReply::Done`.
        2 => Join { /// It.
            member: NamedMember },
        /// Show this member no longer. `UnionReply::Done`.
        3 => Leave { /// Its directory.
            path: Bytes, /// Also if operations under way use it.
            force: bool },
        /// Who has this path, and which is shown? `UnionReply::Explained`.
        4 => Explain { /// The path.
            path: VolumePath },
        /// Which names of these directories do several members have with different contents? `UnionReply::Conflicts`.
        5 => Conflicts { /// They.
            dirs: Vec<VolumePath>, /// Where to go on in the first one; 0: at its beginning.
            after: u64 },
        /// Remove the files of this path in all members but one. `UnionReply::Resolved`.
        6 => Resolve { /// The path.
            path: VolumePath, /// The directory of the member that keeps its file.
            keep: Bytes },
        /// Copy the file back that has lost this path last. `UnionReply::Done`.
        7 => Undelete { /// The path.
            path: VolumePath },
    }
}

wire_enum! {
    /// What it answers.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum UnionReply {
        /// How it is.
        1 => Status { /// That.
            status: UnionStatus },
        /// It is as ordered.
        2 => Done,
        /// That is known of the path.
        3 => Explained { /// That.
            told: NameTold },
        /// These are such names.
        4 => Conflicts { /// Each with the number of its directory among those that were asked for.
            told: Vec<(u32, NameTold)>, /// Directories that could not be read, and why.
            unread: Vec<(u32, String)>, /// The directory and the place in it where to go on; none: that is all.
            next: Option<(u32, u64)> },
        /// It is resolved.
        5 => Resolved { /// The members from which a file was removed.
            removed: Vec<String> },
    }
}

wire_struct! {
    /// A directory that a user names as a member.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NamedMember {
        /// Its absolute path, without symbolic links.
        pub path: Bytes,
        /// Nothing is changed in it.
        pub read_only: bool,
        /// It may be empty although others are mounted file systems.
        pub empty_ok: bool,
        /// The file system that it must lie on.
        pub pin: Option<String>,
    }
}

wire_struct! {
    /// A name, as all members have it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NameTold {
        /// The name that the members have; none: the root.
        pub name: Option<Name>,
        /// What they have, in the union's order.
        pub homes: Vec<HomeTold>,
        /// Why one of them is shown.
        pub why: String,
        /// Members that cannot be asked, and why.
        pub unasked: Vec<(String, String)>,
        /// Members that have the directory in which it is; its anchor first.
        pub dir_homes: Vec<String>,
        /// Members that it would go to if it were new, best first.
        pub place: Vec<String>,
    }
}

wire_struct! {
    /// What a member has under a name.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct HomeTold {
        /// The member's directory.
        pub member: String,
        /// Type.
        pub kind: Kind,
        /// Bytes.
        pub size: u64,
        /// Last change of its content.
        pub mtime: Time,
        /// Last change of anything.
        pub ctime: Time,
        /// What of the name it is.
        pub role: RoleTold,
    }
}

wire_enum! {
    /// What of a name a member's file or directory is.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum RoleTold {
        /// This file is shown.
        1 => Shown,
        /// This directory is shown as one with the others.
        2 => Part,
        /// This file is shown beside, under another name.
        3 => Beside { /// That.
            name: Name },
        /// This file stands behind the one that is shown.
        4 => Behind,
        /// The same, and it is a copy of it.
        5 => Twin,
    }
}

wire_struct! {
    /// A union that is shown.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct UnionStatus {
        /// The name under which its definition is kept; none if it is not kept.
        pub name: Option<String>,
        /// Milliseconds since it began.
        pub up_ms: u64,
        /// Its settings, as users write them: what, and how.
        pub settings: Vec<(String, String)>,
        /// Which way the bytes of open files go.
        pub bytes_go: BytesGo,
        /// Its members, in their order.
        pub members: Vec<MemberStatus>,
    }
}

wire_enum! {
    /// Which way the bytes of open files go between programs and members.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum BytesGo {
        /// Directly: passthrough.
        1 => Directly,
        /// Through the union's process: nothing else was asked for.
        2 => Through,
        /// The same, because the kernel is too old.
        3 => OldKernel,
        /// The same, because the process may not tell the kernel of native files.
        4 => NotAllowed,
    }
}

wire_struct! {
    /// A member of a union that is shown.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MemberStatus {
        /// Its directory.
        pub path: String,
        /// Its number in ids of files.
        pub tag: u16,
        /// The number of its file system, as a user may name it behind the directory.
        pub file_system: String,
        /// Nothing is changed in it.
        pub read_only: bool,
        /// Whether it answers.
        pub state: MemberCondition,
        /// Milliseconds for which that is so.
        pub state_ms: u64,
        /// Bytes of its file system, and how many of them users may still use; none if it was not told yet.
        pub space: Option<(u64, u64)>,
        /// Directories whose names are known, and of whose changes the member tells.
        pub watched: u64,
        /// Directories whose names are known, and whose times are compared instead.
        pub checked: u64,
    }
}

wire_enum! {
    /// Whether a member answers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum MemberCondition {
        /// It does.
        1 => Serving,
        /// A native call hangs.
        2 => Stuck,
        /// Its disk is gone.
        3 => Away,
    }
}
