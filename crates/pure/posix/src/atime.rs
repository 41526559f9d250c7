//! When a read changes the access time: Linux's `relatime` and `strictatime` as a function of values.
//!
//! A mount notes the times of reads and tells them later. So an island gets the first and the last of several
//! reads, and the file may have been changed between them.

use atoll_core::{Time, wire_enum, wire_struct};

use crate::attr::Attr;

/// With [`AtimeRule::Relative`], an access time that is older than this is renewed in any case, in seconds.
const OLD_SECS: i64 = 24 * 60 * 60;

wire_enum! {
    /// Which reads change the access time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AtimeRule {
        /// `relatime`: the first one since the file was changed, and one a day.
        1 => Relative,
        /// `strictatime`: each read.
        2 => Strict,
    }
}

wire_struct! {
    /// Reads of one file or directory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Readings {
        /// When it was read first.
        pub first: Time,
        /// When it was read last.
        pub last: Time,
        /// Which reads count.
        pub rule: AtimeRule,
    }
}

impl Readings {
    /// The access time of a file with these attributes after these reads. It is never earlier than before.
    #[must_use]
    pub fn atime(&self, attr: &Attr) -> Time {
        [self.first, self.last].into_iter().fold(attr.atime, |atime, read| {
            let due = match self.rule {
                AtimeRule::Strict => true,
                AtimeRule::Relative => {
                    atime <= attr.mtime
                        || atime <= attr.ctime
                        || read.secs.saturating_sub(OLD_SECS) >= atime.secs
                }
            };
            if due { atime.max(read) } else { atime }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Kind;
    use atoll_core::Ino;

    fn at(secs: i64) -> Time {
        Time { secs, nanos: 0 }
    }

    fn attr(atime: i64, mtime: i64, ctime: i64) -> Attr {
        Attr { atime: at(atime), mtime: at(mtime), ctime: at(ctime), ..Attr::blank(Ino(9), Kind::Regular) }
    }

    fn after(rule: AtimeRule, (first, last): (i64, i64), attr: Attr) -> i64 {
        Readings { first: at(first), last: at(last), rule }.atime(&attr).secs
    }

    #[test]
    fn relatime_counts_the_first_reading_since_a_change_and_one_a_day() {
        let relative = |reads, attr| after(AtimeRule::Relative, reads, attr);
        assert_eq!(relative((105, 105), attr(100, 100, 100)), 105, "nobody has read it yet");
        assert_eq!(relative((120, 120), attr(110, 100, 100)), 110);
        assert_eq!(relative((120, 120), attr(110, 115, 100)), 120, "its bytes have changed");
        assert_eq!(relative((120, 120), attr(110, 100, 115)), 120, "its mode has changed");
        assert_eq!(relative((105, 125), attr(100, 100, 100)), 105, "the second reading changes nothing");
        assert_eq!(relative((105, 125), attr(100, 115, 115)), 125, "but for a change in between");
        assert_eq!(relative((110 + OLD_SECS - 1, 110 + OLD_SECS - 1), attr(110, 0, 0)), 110);
        assert_eq!(relative((110 + OLD_SECS, 110 + OLD_SECS), attr(110, 0, 0)), 110 + OLD_SECS);
    }

    #[test]
    fn strictatime_counts_the_last_reading_and_no_time_goes_back() {
        assert_eq!(after(AtimeRule::Strict, (120, 130), attr(110, 100, 100)), 130);
        assert_eq!(after(AtimeRule::Strict, (90, 95), attr(110, 120, 120)), 110);
        assert_eq!(after(AtimeRule::Relative, (90, 95), attr(110, 120, 120)), 110);
    }
}
