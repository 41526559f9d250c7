//! The state of a file: its links, its versions, what removals of it had seen. Owns how two states are joined and what local
//! changes do. Never decides what is shown of it.

use std::cmp::Ordering;

use atoll_core::planted::{Bug, planted};
use atoll_core::{Decode, Encode, Malformed, Name, Reader, Time, wire_enum, wire_struct};
use atoll_posix::Kind;
use bytes::Bytes;

use crate::attrs::{AttrPart, AttrState};
use crate::change::{ObjectChange, Taken};
use crate::context::Context;
use crate::dots::{DotFun, DotMap};
use crate::id::{Dot, FileId};
use crate::stamp::HybridStamp;

wire_struct! {
    /// What a file is from its birth on.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FileBirth {
        /// Its type; never a directory.
        pub kind: Kind,
        /// Device number of a device.
        pub rdev: u32,
        /// Target of a symbolic link, at most 4,095 bytes.
        pub target: Bytes,
        /// Of a copy that a conflict made: the file of which it is one.
        pub copy_of: Option<FileId>,
    }
}

wire_struct! {
    /// A place that a link was given. Later ones are higher.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    pub struct LinkPlace {
        /// When.
        pub stamp: HybridStamp,
        /// The directory.
        pub dir: FileId,
        /// The name there.
        pub name: Name,
        /// The change of the directory that added the entry.
        pub entry: Dot,
    }
}

wire_struct! {
    /// One version of the bytes of a file. Later ones are higher.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct FileVersion {
        /// When it was cut.
        pub stamp: HybridStamp,
        /// Bytes.
        pub size: u64,
        /// Last change of content.
        pub mtime: Time,
        /// Hash over the bytes, 128 bits of BLAKE3.
        pub root: u128,
    }
}

impl FileVersion {
    /// Whether both have the same bytes.
    pub fn is_equal(&self, other: &Self) -> bool {
        (self.size, self.root) == (other.size, other.root)
    }
}

wire_struct! {
    /// What those who removed names of a file had seen of it, and where its last name was.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FileGrave {
        /// The changes that they had seen, all together.
        pub seen: Context,
        /// When the last name was removed.
        pub stamp: HybridStamp,
        /// The directory of that name.
        pub dir: FileId,
        /// That name.
        pub name: Name,
    }
}

impl FileGrave {
    fn join(&mut self, other: &Self) {
        self.seen.join(&other.seen);
        if (other.stamp, other.dir, &other.name) > (self.stamp, self.dir, &self.name) {
            (self.stamp, self.dir, self.name) = (other.stamp, other.dir, other.name.clone());
        }
    }
}

wire_enum! {
    /// What a change does to a file.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum FilePart {
        /// A link gets a place, or is removed. A new link has the change's own dot as its name.
        1 => Link {
            /// Which link: the dot of the change that made it.
            link: Dot,
            /// Its places that were seen, and go.
            removed: Vec<Dot>,
            /// The new place.
            place: Option<LinkPlace>,
        },
        /// A version is written.
        2 => Version {
            /// The versions that were seen, and go.
            removed: Vec<Dot>,
            /// The new version.
            version: FileVersion,
        },
        /// A name was removed by somebody who had seen this.
        3 => Buried { /// The grave.
            grave: FileGrave },
        /// An attribute.
        4 => Attr { /// Which, and to what.
            part: AttrPart },
        /// Versions are settled in favour of a later one. A site that has not got that one yet must not apply this, or the file would
        /// have no bytes there.
        5 => Settled {
            /// The versions that go.
            removed: Vec<Dot>,
            /// The later one.
            kept: Dot,
        },
    }
}

impl FilePart {
    /// The dots that must be known before this can be applied.
    fn needs(&self) -> Vec<Dot> {
        match self {
            Self::Link { removed, .. } | Self::Version { removed, .. } => removed.clone(),
            Self::Buried { .. } => Vec::new(),
            Self::Attr { part } => part.removed().to_vec(),
            Self::Settled { removed, kept } => [removed, &[*kept][..]].concat(),
        }
    }
}

/// A change of a file.
pub type FileChange = ObjectChange<FilePart>;

/// All that is known of a file but its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileState {
    /// What it is from its birth on.
    pub birth: FileBirth,
    /// The changes that are in this state.
    pub context: Context,
    /// Attributes.
    pub attrs: AttrState,
    /// For each link the places that it was given; of several the highest counts.
    pub links: DotMap<Dot, LinkPlace>,
    /// Versions. More than one: a conflict.
    pub versions: DotFun<FileVersion>,
    /// What removals of its names had seen.
    pub grave: Option<FileGrave>,
}

impl FileState {
    /// Links of one file that a site makes. Two sites that did not know of each other may make more together, which is why
    /// [`Self::LINKS_TAKEN_MAX`] is higher.
    pub const LINKS_MAX: usize = 65_000;
    /// Links of one file in a state that comes from another site.
    pub const LINKS_TAKEN_MAX: usize = 8 * Self::LINKS_MAX;
    /// Bytes of the target of a symbolic link (`PATH_MAX`, without the NUL).
    pub const TARGET_BYTES_MAX: usize = 4095;

    /// A file that is born with the change `dot`, at its first place. A file without content, as a device or a symbolic link is,
    /// has a version of no bytes too: by this it is seen whether a removal knew of it.
    pub fn new(birth: FileBirth, dot: Dot, attrs: AttrState, place: LinkPlace, version: FileVersion) -> Self {
        let mut links = DotMap::default();
        links.apply(&dot, &[], dot, Some(place));
        Self {
            birth,
            context: Context::from_iter([dot]),
            attrs,
            links,
            versions: DotFun::of(dot, version),
            grave: None,
        }
    }

    /// The links, each with its place.
    pub fn places(&self) -> impl Iterator<Item = (Dot, &LinkPlace)> {
        self.links.iter().filter_map(|(link, places)| Some((*link, places.highest()?.1)))
    }

    /// The versions that no removal has seen.
    pub fn unburied(&self) -> impl Iterator<Item = (Dot, &FileVersion)> {
        let seen = self.grave.as_ref().map(|grave| &grave.seen);
        let has_seen = |seen: &Context, dot: Dot| seen.covers(dot) || planted(Bug::RemovalSeesAll);
        self.versions.iter().filter(move |(dot, _)| seen.is_none_or(|seen| !has_seen(seen, *dot)))
    }

    /// The latest stamp in the state: the next change gets a later one.
    pub fn latest(&self) -> HybridStamp {
        let places = self.links.iter().flat_map(|(_, places)| places.iter().map(|(_, place)| place.stamp));
        let versions = self.versions.iter().map(|(_, version)| version.stamp);
        let grave = self.grave.iter().map(|grave| grave.stamp);
        places.chain(versions).chain(grave).fold(self.attrs.latest(), HybridStamp::max)
    }

    /// A new link. `dot` is that of the change that it is part of.
    pub const fn link(dot: Dot, place: LinkPlace) -> FilePart {
        FilePart::Link { link: dot, removed: Vec::new(), place: Some(place) }
    }

    /// Another place for a link.
    pub fn relink(&self, link: Dot, place: LinkPlace) -> FilePart {
        FilePart::Link { link, removed: self.links.dots(&link), place: Some(place) }
    }

    /// A link goes. Whoever removes it also [buries](Self::bury) the file, even if another link is left: that one may be removed
    /// by somebody who has not seen this.
    pub fn unlink(&self, link: Dot) -> FilePart {
        FilePart::Link { link, removed: self.links.dots(&link), place: None }
    }

    /// What somebody had seen who removes the name `name` in `dir` with the change `dot`.
    pub fn bury(&self, dot: Dot, stamp: HybridStamp, dir: FileId, name: Name) -> FilePart {
        let mut seen = self.context.clone();
        seen.add(dot);
        FilePart::Buried { grave: FileGrave { seen, stamp, dir, name } }
    }

    /// A version over all that were seen.
    pub fn write(&self, version: FileVersion) -> FilePart {
        FilePart::Version { removed: self.versions.dots(), version }
    }

    /// Versions go in favour of a later one.
    pub const fn settle(removed: Vec<Dot>, kept: Dot) -> FilePart {
        FilePart::Settled { removed, kept }
    }

    /// A change of this file by its parts.
    pub fn change(&self, dot: Dot, parts: Vec<FilePart>) -> FileChange {
        FileChange::new(&self.context, dot, parts)
    }

    /// Applies a change, of this site or of another one. A change that is refused leaves everything as it was.
    pub fn apply(&mut self, change: &FileChange) -> Taken {
        let taken = change.judge(&self.context, change.parts.iter().flat_map(FilePart::needs));
        if taken != Taken::Applied {
            return taken;
        }
        self.context.add(change.dot);
        for part in &change.parts {
            match part {
                FilePart::Link { link, removed, place } => {
                    self.links.apply(link, removed, change.dot, place.clone());
                }
                FilePart::Version { removed, version } => {
                    self.versions.apply(removed, change.dot, Some(*version));
                }
                FilePart::Settled { removed, .. } => self.versions.apply(removed, change.dot, None),
                FilePart::Buried { grave } => self.bury_with(grave),
                FilePart::Attr { part } => self.attrs.apply(change.dot, part),
            }
        }
        Taken::Applied
    }

    /// Takes in another state of the same file. A state that is refused leaves everything as it was.
    pub fn join(&mut self, other: &Self) -> Taken {
        if !self.context.fits(&other.context) {
            return Taken::Full;
        }
        // Not by their contexts: copies that two sites have made of one version have the same.
        let before = self.clone();
        self.links.join(&self.context, &other.links, &other.context);
        self.versions.join(&self.context, &other.versions, &other.context);
        self.attrs.join(&self.context, &other.attrs, &other.context);
        if let Some(grave) = &other.grave {
            self.bury_with(grave);
        }
        // Both are the same but for bytes of a hostile site, and even then all sites must agree.
        if other.birth.to_vec().cmp(&self.birth.to_vec()) == Ordering::Greater {
            self.birth = other.birth.clone();
        }
        self.context.join(&other.context);
        if *self == before { Taken::Known } else { Taken::Applied }
    }

    fn bury_with(&mut self, grave: &FileGrave) {
        match &mut self.grave {
            Some(own) => own.join(grave),
            None => self.grave = Some(grave.clone()),
        }
    }

    fn is_sound(&self) -> bool {
        let is_covered = self.links.is_covered(&self.context)
            && self.versions.is_covered(&self.context)
            && self.attrs.xattrs.is_covered(&self.context);
        let is_born = self.birth.kind != Kind::Directory
            && self.birth.target.len() <= Self::TARGET_BYTES_MAX
            && !self.context.is_empty();
        is_covered && is_born
    }
}

impl Encode for FileState {
    fn encode(&self, out: &mut Vec<u8>) {
        self.birth.encode(out);
        self.context.encode(out);
        self.attrs.encode(out);
        self.links.encode(out);
        self.versions.encode(out);
        self.grave.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.birth.encoded_len()
            + self.context.encoded_len()
            + self.attrs.encoded_len()
            + self.links.encoded_len()
            + self.versions.encoded_len()
            + self.grave.encoded_len()
    }
}

impl Decode for FileState {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let state = Self {
            birth: FileBirth::decode(r)?,
            context: Context::decode(r)?,
            attrs: AttrState::decode(r)?,
            links: DotMap::decode_most(r, Self::LINKS_TAKEN_MAX)?,
            versions: DotFun::decode(r)?,
            grave: Option::decode(r)?,
        };
        if state.is_sound() { Ok(state) } else { Err(Malformed::new("file state")) }
    }
}
