//! What an island lets mounts keep of what they are told.

use atoll_core::wire_enum;

wire_enum! {
    /// Whether a mount may keep an answer, if all islands let it keep something.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum MayKeep {
        /// No: somebody is changing what it tells.
        0 => No,
        /// Yes. It is recalled before another client changes anything of what it tells.
        1 => Yes,
        /// If each island has told that its lease is [`Lease::Whole`]: the answer tells also what another island decides on.
        2 => IfWhole,
    }
}

wire_enum! {
    /// What an island lets a mount keep of what it is told, until it is recalled.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Lease {
        /// Nothing.
        #[default]
        0 => No,
        /// What answers say may be kept ([`MayKeep`]). The island notes what they tell, and recalls the mount before another client changes it.
        1 => Noted,
        /// The same. The island notes nothing, and recalls the mount before another client changes anything.
        2 => Whole,
    }
}
