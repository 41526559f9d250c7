//! Orders to the process that shows a union, questions about it, and the answers. Only shapes.

use atoll_core::{wire_enum, wire_struct};
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
    /// A union that is shown.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct UnionStatus {
        /// The name under which its definition is kept; none if it is not kept.
        pub name: Option<String>,
        /// Milliseconds since it began.
        pub up_ms: u64,
        /// Its settings, as users write them: what, and how.
        pub settings: Vec<(String, String)>,
        /// Its members, in their order.
        pub members: Vec<MemberStatus>,
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
