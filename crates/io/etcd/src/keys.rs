//! Keys, values and revisions, as they are in etcd. Only bytes: asks nobody.
//!
//! `<prefix>/<cluster>/store` has the [`Head`]; `<prefix>/<cluster>/group/<volume>/<island>` has the record of an island's group,
//! and `<prefix>/<cluster>/config/<volume>` the volume's configuration, if it was changed while the volume was in use.
//! Numbers are hexadecimal and of one length, so that the order of keys is that of islands.

use atoll_core::{IslandId, Malformed, VolumeId};
use atoll_proto::group::Revision;
use atoll_rpc::ClusterId;

/// Format of the keys and values.
pub(crate) const FORMAT: u16 = 1;

/// Bits of a [`Revision`] that are etcd's; the generation lies above them. At ten thousand changes a second they last for 890 years.
const REVISION_BITS: u32 = 48;

/// What all changes depend on: two numbers of 16 bits, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Format of all that is below the prefix.
    pub(crate) format: u16,
    /// How often the store was rebuilt. An etcd that was restored from a copy gives revisions a second time; those of another
    /// generation are others.
    pub(crate) generation: u16,
}

/// The keys of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str, cluster: ClusterId) -> Self {
        Self { prefix: format!("{}/{cluster}", prefix.trim_end_matches('/')) }
    }

    /// Of the [`Head`].
    pub(crate) fn head(&self) -> Vec<u8> {
        format!("{}/store", self.prefix).into_bytes()
    }

    pub(crate) fn group(&self, volume: VolumeId, island: IslandId) -> Vec<u8> {
        format!("{}/group/{:016x}/{:04x}", self.prefix, volume.0, island.0).into_bytes()
    }

    /// Of a volume's configuration, if it was changed while the volume was in use.
    pub(crate) fn config(&self, volume: VolumeId) -> Vec<u8> {
        format!("{}/config/{:016x}", self.prefix, volume.0).into_bytes()
    }

    /// The groups of a volume: their first key, and the one behind their last.
    pub(crate) fn groups(&self, volume: VolumeId) -> (Vec<u8>, Vec<u8>) {
        // "0" is the character behind "/".
        let of = |end| format!("{}/group/{:016x}{end}", self.prefix, volume.0).into_bytes();
        (of('/'), of('0'))
    }

    /// The groups of all volumes.
    pub(crate) fn all_groups(&self) -> (Vec<u8>, Vec<u8>) {
        let of = |end| format!("{}/group{end}", self.prefix).into_bytes();
        (of('/'), of('0'))
    }

    /// The island of a key of [`Keys::groups`].
    pub(crate) fn island(key: &[u8]) -> Result<IslandId, Malformed> {
        let digits = key.rsplit(|b| *b == b'/').next().and_then(|digits| std::str::from_utf8(digits).ok());
        let island =
            digits.filter(|digits| digits.len() == 4).and_then(|digits| u16::from_str_radix(digits, 16).ok());
        island.map(IslandId).ok_or(Malformed::new("the key of a group"))
    }
}

impl Head {
    pub(crate) const FIRST: Self = Self { format: FORMAT, generation: 0 };

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [self.format.to_le_bytes(), self.generation.to_le_bytes()].concat()
    }

    /// The head with these bytes. Each format begins with its number.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, BadHead> {
        let format = bytes.first_chunk().map(|format| u16::from_le_bytes(*format));
        match (format, bytes) {
            (Some(FORMAT), &[_, _, low, high]) => {
                Ok(Self { format: FORMAT, generation: u16::from_le_bytes([low, high]) })
            }
            (Some(theirs), _) if theirs > FORMAT => Err(BadHead::Newer(theirs)),
            _ => Err(BadHead::Malformed),
        }
    }
}

/// Bytes that are no head that this program knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadHead {
    Newer(u16),
    Malformed,
}

/// The revision of a change in a generation. What etcd has given never is 0.
pub(crate) fn revision(generation: u16, etcd: i64) -> Revision {
    let etcd = u64::try_from(etcd).expect("etcd's revisions are positive");
    assert!(etcd < 1 << REVISION_BITS, "etcd has made {etcd} changes");
    Revision(u64::from(generation) << REVISION_BITS | etcd)
}

/// Generation and etcd's own revision.
pub(crate) fn parts(revision: Revision) -> (u16, i64) {
    ((revision.0 >> REVISION_BITS) as u16, (revision.0 & ((1 << REVISION_BITS) - 1)) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(key: Vec<u8>) -> String {
        String::from_utf8(key).unwrap()
    }

    #[test]
    fn keys_are_as_documented_and_in_the_order_of_islands() {
        let keys = Keys::new("/atoll/", ClusterId(0xc1));
        let cluster = ClusterId(0xc1);
        assert_eq!(text(keys.head()), format!("/atoll/{cluster}/store"));
        let of = |island| keys.group(VolumeId(7), IslandId(island));
        assert_eq!(text(of(3)), format!("/atoll/{cluster}/group/0000000000000007/0003"));
        assert!(of(0) < of(9) && of(9) < of(10) && of(10) < of(u16::MAX));
        assert_eq!(Keys::island(&of(0xabcd)), Ok(IslandId(0xabcd)));
        let (first, end) = keys.groups(VolumeId(7));
        let inside = |key: &[u8]| *first <= *key && *key < *end;
        assert!(inside(&of(0)) && inside(&of(u16::MAX)));
        assert!(!inside(&keys.group(VolumeId(8), IslandId(0))) && !inside(&keys.head()));
        let (first, end) = keys.all_groups();
        let inside = |key: &[u8]| *first <= *key && *key < *end;
        assert!(
            inside(&of(0)) && inside(&keys.group(VolumeId(u64::MAX), IslandId(1))) && !inside(&keys.head())
        );
        for foreign in ["", "/", "/atoll/x/group/7/3", "/a/zzzz", "/a/00003"] {
            assert!(Keys::island(foreign.as_bytes()).is_err(), "{foreign}");
        }
    }

    #[test]
    fn a_head_is_four_bytes_and_a_newer_one_is_told_from_a_damaged_one() {
        let head = Head { format: FORMAT, generation: 0x0203 };
        assert_eq!(head.to_bytes(), [1, 0, 3, 2]);
        assert_eq!(Head::read(&[1, 0, 3, 2]), Ok(head));
        assert_eq!(Head::read(&[2, 0, 3, 2, 9, 9]), Err(BadHead::Newer(2)));
        for damaged in [&[][..], &[1], &[0, 0, 0, 0], &[1, 0, 3], &[1, 0, 3, 2, 1]] {
            assert_eq!(Head::read(damaged), Err(BadHead::Malformed), "{damaged:?}");
        }
    }

    #[test]
    fn revisions_of_a_later_generation_are_later() {
        assert!(revision(1, 1) > revision(0, i64::from(u32::MAX)));
        assert!(revision(0, 1) > Revision::NONE);
        assert_eq!(parts(revision(9, 77)), (9, 77));
        assert_eq!(parts(Revision::NONE), (0, 0));
        assert_eq!(parts(Revision(u64::MAX)), (u16::MAX, (1 << REVISION_BITS) - 1));
    }
}
