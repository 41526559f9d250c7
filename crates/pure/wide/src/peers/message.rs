//! The messages by which two sites tell each other what they have: their form and their bounds. Never decides when one is sent.

use std::ops::Deref;

use atoll_causal::{Context, Dot, FileId, Writer};
use atoll_core::limits::RECORD_BYTES_MAX;
use atoll_core::{Decode, Encode, Malformed, Reader, wire_enum, wire_struct};

use crate::author::{Bundle, BundleChange};
use crate::confirm::{CONFIRM_MAX, QuestionId};
use crate::lives::{ALL_LIVES_MAX, LIVES_MAX, OwnLife, WriterLife};
use crate::members::NumberedSite;
use crate::rows::FeedRow;
use crate::watch::ByteRanges;

/// Writers in a [`Hello`].
pub const WRITERS_MAX: usize = 4_096;
/// Objects in one message.
pub const NEWS_MAX: usize = 1_024;
/// Bytes of states in one message, if there are several: one state goes alone if it is longer.
pub const STATE_BYTES_MAX: usize = 1 << 20;
/// Bytes of what is asked for in one message.
pub const WANT_BYTES_MAX: usize = 256 << 10;

/// Sites in one message.
pub const SITES_MAX: usize = 64;
/// Hashes of pieces in one message.
pub const PLAN_MAX: usize = 4_096;

/// A list of at most `N` items. What is longer is refused when it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Most<T, const N: usize>(Vec<T>);

impl<T, const N: usize> Most<T, N> {
    /// These items.
    pub fn new(items: Vec<T>) -> Self {
        assert!(items.len() <= N, "{} items of at most {N}", items.len());
        Self(items)
    }

    /// The items.
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }
}

impl<T, const N: usize> Default for Most<T, N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const N: usize> Deref for Most<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Encode, const N: usize> Encode for Most<T, N> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl<T: Decode, const N: usize> Decode for Most<T, N> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let items = Vec::decode(r)?;
        if items.len() <= N { Ok(Self(items)) } else { Err(Malformed::new("items of a message")) }
    }
}

wire_struct! {
    /// What a site says first. Nothing else is taken before this is judged.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Hello {
        /// The volume.
        pub volume: u64,
        /// The sender's writer.
        pub writer: Writer,
        /// The number of its last dot.
        pub n: u64,
        /// Its lives, in order.
        pub own: Most<OwnLife, LIVES_MAX>,
        /// Of other writers the highest number of a dot that was taken at this site.
        pub writers: Most<(Writer, u64), WRITERS_MAX>,
        /// The lives that have given these dots, and earlier ones.
        pub lives: Most<WriterLife, ALL_LIVES_MAX>,
        /// The sender has all of the receiver's feed up to this position, synced.
        pub has: u64,
        /// The receiver's life that has made this position, as the receiver has said.
        pub life: Option<u64>,
        /// Up to where the sender may tell of its feed: what is synced, and nothing behind its start before that has a life.
        pub synced: u64,
    }
}

wire_struct! {
    /// An object or a move, and what is known of it; of a move that is nothing.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct KnownObject {
        /// Which.
        pub object: FeedRow,
        /// The changes of it that are known.
        pub known: Context,
    }
}

wire_struct! {
    /// A site that knows of a version, and has not got its bytes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SiteWithout {
        /// The site's writer.
        pub site: Writer,
        /// It has bytes of an earlier version.
        pub has_earlier: bool,
    }
}

wire_enum! {
    /// How a site gets the bytes of a version from the sender.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum ContentsPlan {
        /// Not from this one.
        1 => Gone { /// The sites that have not got them, as far as the sender knows; none if it may have them later.
            without: Most<SiteWithout, SITES_MAX> },
        /// By pieces.
        2 => Pieces { /// The hashes of pieces, from the one on that was asked for; a file may have more.
            hashes: Most<u128, PLAN_MAX> },
        /// By what has changed since the version that the asker has.
        3 => Since { /// The bytes that may differ.
            ranges: ByteRanges, /// The hashes of the pieces in which they are.
            hashes: Most<u128, PLAN_MAX> },
    }
}

wire_enum! {
    /// What one site tells another one. At most [`Self::BYTES_MAX`] bytes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum WideMessage {
        /// The first message of a link.
        1 => Hello { /// It.
            hello: Hello },
        /// What a record of the sender's users has changed. With this the receiver has the sender's feed up to the position of the record.
        2 => Bundle { /// It.
            bundle: Bundle },
        /// What else has changed at the sender up to a position of its feed.
        3 => Feed {
            /// The position.
            upto: u64,
            /// What has changed, with what the sender knows of it.
            news: Most<KnownObject, NEWS_MAX>,
        },
        /// The sender has all of the receiver's feed up to this position, synced.
        4 => Ack { /// The position.
            upto: u64 },
        /// States are asked for. One [`Self::State`] is the answer.
        5 => Want { /// Of these, with what the sender knows of them.
            objects: Most<KnownObject, NEWS_MAX> },
        /// The answer to a [`Self::Want`], or to the beginning of it: what is not named is to be asked for again.
        6 => State {
            /// Whole states, as births, and moves.
            changes: Most<BundleChange, NEWS_MAX>,
            /// The receiver knows all of these that the sender knows.
            known: Most<FeedRow, NEWS_MAX>,
            /// These are not here.
            unknown: Most<FeedRow, NEWS_MAX>,
        },
        /// How are the bytes of a version to be had? One [`Self::Plan`] is the answer.
        7 => WantPlan {
            /// The file.
            file: FileId,
            /// The change that made the version.
            dot: Dot,
            /// The hash over the bytes that the sender has.
            base: Option<u128>,
            /// The first piece of which it wants the hash, if not by what has changed.
            from: u32,
        },
        /// The answer.
        8 => Plan {
            /// The file.
            file: FileId,
            /// The change that made the version.
            dot: Dot,
            /// How.
            plan: ContentsPlan,
        },
        /// Bytes are asked for, at most those of a piece. One [`Self::Bytes`] is the answer.
        9 => WantBytes {
            /// Of this file.
            file: FileId,
            /// Of the version that this change made.
            dot: Dot,
            /// The first one.
            offset: u64,
            /// How many.
            len: u32,
        },
        /// The answer.
        10 => Bytes {
            /// The file.
            file: FileId,
            /// The change that made the version.
            dot: Dot,
            /// The first byte.
            offset: u64,
            /// They; none if they are not to be had here.
            bytes: Option<Vec<u8>>,
        },
        /// The sites of the volume, as the sender knows them: first on each link, and when there is news of one.
        11 => Sites { /// They.
            sites: Most<NumberedSite, SITES_MAX> },
        /// Who has these durably? [`Self::Confirmed`] is the answer, of each site that the question reaches.
        12 => Confirm { /// The question.
            question: QuestionId, /// What, with what the one who asks knows of it.
            objects: Most<KnownObject, CONFIRM_MAX> },
        /// The answer of a site.
        13 => Confirmed { /// To this question.
            question: QuestionId, /// Of this site.
            site: u64, /// So many of the objects are not there, or in part.
            lacks: u32 },
        /// Lives have begun, or have become known to the sender. Nothing that these have given was told before.
        14 => Lives { /// Of its own writer.
            own: Most<OwnLife, LIVES_MAX>, /// Of other ones.
            others: Most<WriterLife, ALL_LIVES_MAX> },
    }
}

impl WideMessage {
    /// Whether it is about bytes of files.
    pub const fn is_about_bytes(&self) -> bool {
        matches!(
            self,
            Self::WantPlan { .. } | Self::Plan { .. } | Self::WantBytes { .. } | Self::Bytes { .. }
        )
    }

    /// The same of an encoded one.
    pub const fn encodes_bytes(encoded: &[u8]) -> bool {
        matches!(encoded.first(), Some(7..=10))
    }

    /// Bytes of one message, encoded. What is in a record goes into a message: a state is in the row of its object.
    pub const BYTES_MAX: usize = RECORD_BYTES_MAX + (64 << 10);
}

#[cfg(test)]
mod tests {
    use atoll_causal::{Dot, FileId, HybridStamp};

    use super::*;
    use crate::members::{SiteMember, SiteStanding};
    use crate::rows::root_head;

    fn known() -> KnownObject {
        let dot = Dot { writer: Writer(3), n: 4 };
        KnownObject { object: FeedRow::Dir { id: FileId(5) }, known: Context::from_iter([dot]) }
    }

    fn numbered() -> NumberedSite {
        let (name, addresses, key) = ("a".to_owned(), vec!["b:1".to_owned()], vec![3; 32].into());
        let member =
            SiteMember { version: 1, state: SiteStanding::Active, writer: Writer(2), name, addresses, key };
        NumberedSite { site: 4, member }
    }

    fn own_life() -> OwnLife {
        OwnLife { position: 1, n: 2, life: 3 }
    }

    fn other_life() -> WriterLife {
        WriterLife { writer: Writer(2), n: 3, life: 4 }
    }

    fn born() -> BundleChange {
        BundleChange::DirBorn { id: FileId::ROOT, head: Box::new(root_head(0o755, 1, 2)) }
    }

    fn samples() -> Vec<WideMessage> {
        let (writers, life) = (Most::new(vec![(Writer(2), 3)]), Some(6));
        let (own, lives) = (Most::new(vec![own_life()]), Most::new(vec![other_life()]));
        let hello =
            Hello { volume: 1, writer: Writer(7), n: 8, own, writers, lives, has: 4, life, synced: 5 };
        let stamp = HybridStamp { time_us: 6, writer: Writer(7) };
        let moved = KnownObject { object: FeedRow::Move { stamp }, known: Context::default() };
        let question = QuestionId { site: 1, number: 2 };
        let (file, dot) = (FileId(11), Dot { writer: Writer(12), n: 13 });
        let without = SiteWithout { site: Writer(14), has_earlier: true };
        let mut ranges = ByteRanges::default();
        ranges.add(3..4);
        vec![
            WideMessage::Hello { hello },
            WideMessage::Bundle { bundle: Bundle { position: 8, changes: vec![born()] } },
            WideMessage::Feed { upto: 9, news: Most::new(vec![known(), moved]) },
            WideMessage::Ack { upto: 10 },
            WideMessage::Want { objects: Most::new(vec![known()]) },
            WideMessage::State {
                changes: Most::new(vec![born()]),
                known: Most::new(vec![known().object]),
                unknown: Most::new(vec![FeedRow::File { id: FileId(6) }]),
            },
            WideMessage::WantPlan { file, dot, base: Some(3), from: 4 },
            WideMessage::Plan { file, dot, plan: ContentsPlan::Gone { without: Most::new(vec![without]) } },
            WideMessage::Plan { file, dot, plan: ContentsPlan::Pieces { hashes: Most::new(vec![1, 2]) } },
            WideMessage::Plan { file, dot, plan: ContentsPlan::Since { ranges, hashes: Most::new(vec![1]) } },
            WideMessage::WantBytes { file, dot, offset: 5, len: 6 },
            WideMessage::Bytes { file, dot, offset: 5, bytes: Some(vec![7, 8]) },
            WideMessage::Bytes { file, dot, offset: 5, bytes: None },
            WideMessage::Sites { sites: Most::new(vec![numbered()]) },
            WideMessage::Confirm { question, objects: Most::new(vec![known()]) },
            WideMessage::Confirmed { question, site: 3, lacks: 4 },
            WideMessage::Lives { own: Most::new(vec![own_life()]), others: Most::new(vec![other_life()]) },
        ]
    }

    #[test]
    fn a_message_comes_back_as_it_went() {
        for message in samples() {
            let bytes = message.to_vec();
            assert_eq!(bytes.len(), message.encoded_len());
            assert_eq!(WideMessage::encodes_bytes(&bytes), message.is_about_bytes());
            assert_eq!(WideMessage::from_slice(&bytes), Ok(message));
        }
    }

    #[test]
    fn bytes_that_no_site_writes_are_refused_or_read_as_what_they_are() {
        for message in samples() {
            let bytes = message.to_vec();
            for at in 0..bytes.len() {
                assert!(WideMessage::from_slice(&bytes[..at]).is_err(), "{at} bytes of {message:?}");
                for value in [0, 1, 2, 127, 255] {
                    let mut other = bytes.clone();
                    other[at] = value;
                    if let Ok(read) = WideMessage::from_slice(&other) {
                        assert_eq!(read.to_vec(), other);
                    }
                }
            }
        }
    }

    /// Reads a message whose list has so many items.
    fn is_read(head: &[u8], item: &[u8], count: usize, tail: &[u8]) -> bool {
        let items = item.repeat(count);
        WideMessage::from_slice(&[head, &(count as u32).to_le_bytes(), &items, tail].concat()).is_ok()
    }

    #[test]
    fn each_list_has_a_bound() {
        let (known, born) = (known().to_vec(), born().to_vec());
        let (object, position, none) =
            (FeedRow::File { id: FileId(6) }.to_vec(), 7_u64.to_vec(), 0_u32.to_vec());
        let head = |tag: u8, parts: &[&[u8]]| [&[tag][..], &parts.concat()].concat();
        let lists = [
            (
                head(1, &[&[1; 24]]),
                &own_life().to_vec()[..],
                LIVES_MAX,
                [&none[..], &none, &position, &[0], &position].concat(),
            ),
            (
                head(1, &[&[1; 24], &none]),
                &[1; 16][..],
                WRITERS_MAX,
                [&none[..], &position, &[0], &position].concat(),
            ),
            (
                head(1, &[&[1; 24], &none, &none]),
                &other_life().to_vec(),
                ALL_LIVES_MAX,
                [&position[..], &[0], &position].concat(),
            ),
            (head(3, &[&position]), &known, NEWS_MAX, Vec::new()),
            (head(5, &[]), &known, NEWS_MAX, Vec::new()),
            (head(6, &[]), &born, NEWS_MAX, [&none[..], &none].concat()),
            (head(6, &[&none]), &object, NEWS_MAX, none.clone()),
            (head(6, &[&none, &none]), &object, NEWS_MAX, Vec::new()),
            (head(8, &[&[1; 32], &[1]]), &[1; 9], SITES_MAX, Vec::new()),
            (head(8, &[&[1; 32], &[2]]), &[3; 16], PLAN_MAX, Vec::new()),
            (head(11, &[]), &numbered().to_vec(), SITES_MAX, Vec::new()),
            (head(12, &[&[1; 16]]), &known, CONFIRM_MAX, Vec::new()),
            (head(14, &[]), &own_life().to_vec(), LIVES_MAX, none.clone()),
            (head(14, &[&none]), &other_life().to_vec(), ALL_LIVES_MAX, Vec::new()),
        ];
        for (head, item, most, tail) in lists {
            assert!(is_read(&head, item, most, &tail), "{head:?}");
            assert!(!is_read(&head, item, most + 1, &tail), "{head:?}");
        }
    }
}
