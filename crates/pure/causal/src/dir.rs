//! The state of a directory: whether it was kept or removed, its name, its entries. Owns how two states are joined and what
//! local changes do. Never decides what is shown of it, or where it is: for its parent see `docs/design/023-wide.md`.

use std::collections::BTreeMap;

use atoll_core::{Decode, Encode, Malformed, Name, Reader, wire_enum, wire_struct};

use crate::attrs::{AttrPart, AttrState};
use crate::change::{ObjectChange, Taken};
use crate::context::Context;
use crate::dots::{DotMap, DotSet, Lww, NoValue};
use crate::id::{Dot, FileId};
use crate::stamp::HybridStamp;

wire_struct! {
    /// Where and when a directory was made.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct DirBirth {
        /// When.
        pub stamp: HybridStamp,
        /// In which directory; for the root itself.
        pub parent: FileId,
    }
}

wire_struct! {
    /// An entry of a directory: one object under one name.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    pub struct EntryKey {
        /// The name.
        pub name: Name,
        /// The object.
        pub child: FileId,
    }
}

wire_struct! {
    /// What an entry tells of an object that is not here yet. Later ones are higher.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct EntryWord {
        /// The stamp of the place that the entry copies.
        pub stamp: HybridStamp,
        /// Whether it is a directory.
        pub is_dir: bool,
    }
}

wire_enum! {
    /// What a change does to a directory.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum DirPart {
        /// The directory is kept, or removed.
        1 => Alive {
            /// The dots that were seen, and go.
            removed: Vec<Dot>,
            /// Whether the change's own dot keeps it.
            is_kept: bool,
        },
        /// It was removed by somebody who had seen this.
        2 => Buried { /// The changes that were seen.
            seen: Context },
        /// It has another name.
        3 => Renamed { /// The register.
            to: Lww<Name> },
        /// An entry is added, anew, or removed.
        4 => Entry {
            /// Which.
            key: EntryKey,
            /// The dots that were seen, and go.
            removed: Vec<Dot>,
            /// What the entry tells now.
            word: Option<EntryWord>,
            /// What was known of the child.
            based: Context,
        },
        /// An attribute.
        5 => Attr { /// Which, and to what.
            part: AttrPart },
    }
}

impl DirPart {
    fn removed(&self) -> &[Dot] {
        match self {
            Self::Alive { removed, .. } | Self::Entry { removed, .. } => removed,
            Self::Buried { .. } | Self::Renamed { .. } => &[],
            Self::Attr { part } => part.removed(),
        }
    }
}

/// A change of a directory.
pub type DirChange = ObjectChange<DirPart>;

/// All that is known of a directory but its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirHead {
    /// Where and when it was made.
    pub birth: DirBirth,
    /// The changes that are in this state, those of entries among them.
    pub context: Context,
    /// Attributes.
    pub attrs: AttrState,
    /// Its birth, renames, and what kept it, but for what a removal had seen. A later one stands for those that it had seen.
    pub alive: DotSet,
    /// What removals of it had seen, all together.
    pub buried: Context,
    /// Its name as it was last renamed in place.
    pub name: Lww<Name>,
}

impl DirHead {
    /// Whether it was removed by somebody who had seen all that kept it.
    pub const fn is_removed(&self) -> bool {
        self.alive.is_empty()
    }

    /// The latest stamp here: the next change gets a later one.
    pub fn latest(&self) -> HybridStamp {
        self.attrs.latest().max(self.name.stamp).max(self.birth.stamp)
    }

    /// The directory is kept.
    pub fn keep(&self) -> DirPart {
        DirPart::Alive { removed: self.alive.dots(), is_kept: true }
    }

    /// The directory has another name. Whoever removed it without having seen this removes it no more.
    pub fn rename(&self, stamp: HybridStamp, name: Name) -> Vec<DirPart> {
        vec![DirPart::Renamed { to: Lww::new(stamp, name) }, self.keep()]
    }

    /// The directory is removed with the change `dot`.
    pub fn remove(&self, dot: Dot) -> Vec<DirPart> {
        let mut seen = self.context.clone();
        seen.add(dot);
        vec![DirPart::Alive { removed: self.alive.dots(), is_kept: false }, DirPart::Buried { seen }]
    }

    /// A change of this directory by its parts.
    pub fn change(&self, dot: Dot, parts: Vec<DirPart>) -> DirChange {
        DirChange::new(&self.context, dot, parts)
    }

    /// Applies a change but for its entries. If it is applied, each entry gets its part by [`DotFun::apply`](crate::DotFun::apply).
    pub fn apply(&mut self, change: &DirChange) -> Taken {
        let removed = change.parts.iter().flat_map(|part| part.removed().iter().copied());
        let taken = change.judge(&self.context, removed);
        if taken != Taken::Applied {
            return taken;
        }
        self.context.add(change.dot);
        for part in &change.parts {
            match part {
                DirPart::Alive { removed, is_kept } => {
                    self.alive.apply(removed, change.dot, is_kept.then_some(NoValue {}));
                }
                DirPart::Buried { seen } => self.buried.join(seen),
                DirPart::Renamed { to } => self.name.join(to),
                DirPart::Entry { .. } => {}
                DirPart::Attr { part } => self.attrs.apply(change.dot, part),
            }
        }
        Taken::Applied
    }

    /// Takes in another state of the same directory but for its entries, which are to be joined before by [`DotFun::join`](crate::DotFun::join): with the
    /// contexts of before.
    fn join(&mut self, other: &Self) {
        self.birth = self.birth.max(other.birth);
        self.attrs.join(&self.context, &other.attrs, &other.context);
        self.alive.join(&self.context, &other.alive, &other.context);
        self.buried.join(&other.buried);
        self.name.join(&other.name);
        self.context.join(&other.context);
    }
}

/// All that is known of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirState {
    /// All but its entries.
    pub head: DirHead,
    /// Its entries: a copy of what its children say of their places.
    pub entries: DotMap<EntryKey, EntryWord>,
    /// For children whose entry was changed after their birth: what was known of the child by those who changed it. Who knows less of
    /// the child does not mend its entry.
    pub based: BTreeMap<FileId, Context>,
}

impl DirState {
    /// Entries of a directory, and children in [`Self::based`], in a state that comes from another site.
    pub const ENTRIES_MAX: usize = 1 << 26;

    /// A directory that is born with the change `dot`.
    pub fn new(birth: DirBirth, dot: Dot, attrs: AttrState, name: Name) -> Self {
        let head = DirHead {
            birth,
            context: Context::from_iter([dot]),
            attrs,
            alive: DotSet::of(dot, NoValue {}),
            buried: Context::default(),
            name: Lww::new(birth.stamp, name),
        };
        Self { head, entries: DotMap::default(), based: BTreeMap::new() }
    }

    /// An entry is added, or added anew. `based` is what is known of the child; nothing if the child is born with this.
    pub fn add_entry(&self, key: EntryKey, word: EntryWord, based: Context) -> DirPart {
        DirPart::Entry { removed: self.entries.dots(&key), key, word: Some(word), based }
    }

    /// An entry goes.
    pub fn remove_entry(&self, key: EntryKey, based: Context) -> DirPart {
        DirPart::Entry { removed: self.entries.dots(&key), key, word: None, based }
    }

    /// Applies a change, of this site or of another one. A change that is refused leaves everything as it was.
    pub fn apply(&mut self, change: &DirChange) -> Taken {
        let taken = self.head.apply(change);
        if taken != Taken::Applied {
            return taken;
        }
        for part in &change.parts {
            if let DirPart::Entry { key, removed, word, based } = part {
                self.entries.apply(key, removed, change.dot, *word);
                self.base_on(key.child, based);
            }
        }
        Taken::Applied
    }

    /// Takes in another state of the same directory. A state that is refused leaves everything as it was.
    pub fn join(&mut self, other: &Self) -> Taken {
        if !self.head.context.fits(&other.head.context) {
            return Taken::Full;
        }
        if self.head.context.includes(&other.head.context) {
            return Taken::Known;
        }
        self.entries.join(&self.head.context, &other.entries, &other.head.context);
        for (child, based) in &other.based {
            self.base_on(*child, based);
        }
        self.head.join(&other.head);
        Taken::Applied
    }

    fn base_on(&mut self, child: FileId, based: &Context) {
        if !based.is_empty() {
            self.based.entry(child).or_default().join(based);
        }
    }
}

impl Encode for DirHead {
    fn encode(&self, out: &mut Vec<u8>) {
        self.birth.encode(out);
        self.context.encode(out);
        self.attrs.encode(out);
        self.alive.encode(out);
        self.buried.encode(out);
        self.name.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.birth.encoded_len()
            + self.context.encoded_len()
            + self.attrs.encoded_len()
            + self.alive.encoded_len()
            + self.buried.encoded_len()
            + self.name.encoded_len()
    }
}

impl Decode for DirHead {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let head = Self {
            birth: DirBirth::decode(r)?,
            context: Context::decode(r)?,
            attrs: AttrState::decode(r)?,
            alive: DotSet::decode(r)?,
            buried: Context::decode(r)?,
            name: Lww::decode(r)?,
        };
        let is_covered = head.alive.is_covered(&head.context) && head.attrs.xattrs.is_covered(&head.context);
        if is_covered && !head.context.is_empty() { Ok(head) } else { Err(Malformed::new("directory state")) }
    }
}

impl Encode for DirState {
    fn encode(&self, out: &mut Vec<u8>) {
        self.head.encode(out);
        self.entries.encode(out);
        (self.based.len() as u32).encode(out);
        for (child, based) in &self.based {
            child.encode(out);
            based.encode(out);
        }
    }

    fn encoded_len(&self) -> usize {
        let based = self.based.iter().map(|(child, based)| child.encoded_len() + based.encoded_len());
        self.head.encoded_len() + self.entries.encoded_len() + size_of::<u32>() + based.sum::<usize>()
    }
}

impl Decode for DirState {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let malformed = Malformed::new("directory state");
        let head = DirHead::decode(r)?;
        let entries = DotMap::decode_most(r, Self::ENTRIES_MAX)?;
        let count = u32::decode(r)? as usize;
        if !entries.is_covered(&head.context) || count > Self::ENTRIES_MAX {
            return Err(malformed);
        }
        let mut based = BTreeMap::new();
        for _ in 0..count {
            let (child, known) = (FileId::decode(r)?, Context::decode(r)?);
            if known.is_empty() || based.last_key_value().is_some_and(|(last, _)| *last >= child) {
                return Err(malformed);
            }
            based.insert(child, known);
        }
        Ok(Self { head, entries, based })
    }
}
