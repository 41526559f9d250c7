//! The place of a record in the log of an island.

crate::wire_struct! {
    /// The place of a record in the log of an island. It names one content, because in an epoch one process appends.
    /// Positions are ordered as records follow each other.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct Position {
        /// Epoch of the island's group in which it was appended: the incarnation of the island.
        pub epoch: u32,
        /// Its number: one more than its predecessor's. The first record is 1.
        pub seq: u64,
    }
}
