//! The row of an island about itself.

use atoll_core::{Decode, Encode, Stamp, Time, wire_struct};

/// The version of the rows' layout that is written here.
const LAYOUT: u8 = 2;

wire_struct! {
    /// What an island must not forget about itself.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Meta {
        /// Log position that the snapshot stands for.
        pub seq: u64,
        /// Ids below this counter may have been minted.
        pub mint_limit: u64,
        /// The epoch of the island's group: higher with each start, and with each copy that begins to lead.
        pub incarnation: u32,
        /// The incarnation that began with the last power cut.
        pub power: u32,
        /// The last stamp that a record tells of. Later ones may have been given to what was never recorded.
        pub stamp: Stamp,
        /// The island was stopped in order, with nothing behind this position.
        pub clean: bool,
        /// The last time that a change was given: the greatest ctime that a record has set.
        pub time: Time,
        /// Version of the rows' layout: 1 since rows have a place for a machine beside the island, 2 since files may be absent.
        pub layout: u8,
    }
}

impl Default for Meta {
    fn default() -> Self {
        let (stamp, time) = (Stamp::default(), Time::default());
        Self { seq: 0, mint_limit: 0, incarnation: 0, power: 0, stamp, clean: false, time, layout: LAYOUT }
    }
}

impl Meta {
    /// Whether these bytes are the row of an older version. It has a lower version of the layout, or had less at its end.
    pub fn is_of_older_version(bytes: &[u8]) -> bool {
        if let Ok(meta) = Self::from_slice(bytes) {
            return meta.layout < LAYOUT;
        }
        let whole = Self::default().to_vec();
        let lacks = whole.len().saturating_sub(bytes.len());
        lacks > 0 && Self::from_slice(&[bytes, &whole[whole.len() - lacks..]].concat()).is_ok()
    }

    /// A record sets this ctime.
    pub(crate) fn changed_at(&mut self, time: Option<Time>) {
        self.time = time.map_or(self.time, |time| time.max(self.time));
    }
}
