//! Attributes of files and directories: a register each, and extended attributes by name. Knows nothing of permissions.

use atoll_core::{Decode, Encode, Malformed, Reader, Time, wire_enum};
use atoll_posix::xattr::{NAME_BYTES_MAX, VALUE_BYTES_MAX};
use bytes::Bytes;

use crate::context::Context;
use crate::dots::{DotMap, Lww};
use crate::id::Dot;
use crate::stamp::HybridStamp;

/// The name of an extended attribute: 1 to 255 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct XattrName(Bytes);

impl XattrName {
    /// The name of these bytes, if they can be one.
    pub fn new(bytes: Bytes) -> Option<Self> {
        (1..=NAME_BYTES_MAX).contains(&bytes.len()).then_some(Self(bytes))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Encode for XattrName {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl Decode for XattrName {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::new(Bytes::decode(r)?).ok_or(Malformed::new("xattr name"))
    }
}

/// The value of an extended attribute: at most 64 KiB.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct XattrValue(Bytes);

impl XattrValue {
    /// The value of these bytes, if they can be one.
    pub fn new(bytes: Bytes) -> Option<Self> {
        (bytes.len() <= VALUE_BYTES_MAX).then_some(Self(bytes))
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

impl Encode for XattrValue {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }
}

impl Decode for XattrValue {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::new(Bytes::decode(r)?).ok_or(Malformed::new("xattr value"))
    }
}

/// The attributes of a file or directory that travel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttrState {
    /// The twelve permission bits.
    pub mode: Lww<u32>,
    /// Owner.
    pub uid: Lww<u32>,
    /// Group.
    pub gid: Lww<u32>,
    /// The time of the last change that somebody set. A later version of the file has its own.
    pub mtime: Lww<Time>,
    /// Extended attributes. One that was set and removed by two who did not know of each other stays.
    pub xattrs: DotMap<XattrName, Lww<XattrValue>>,
}

wire_enum! {
    /// What a change does to the attributes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum AttrPart {
        /// chmod.
        1 => Mode { /// The register.
            to: Lww<u32> },
        /// chown.
        2 => Uid { /// The register.
            to: Lww<u32> },
        /// chown to another group.
        3 => Gid { /// The register.
            to: Lww<u32> },
        /// utimensat.
        4 => Mtime { /// The register.
            to: Lww<Time> },
        /// setxattr, or removexattr if there is no value.
        5 => Xattr {
            /// Which.
            name: XattrName,
            /// The values that were seen, and go.
            removed: Vec<Dot>,
            /// The new value.
            value: Option<Lww<XattrValue>>,
        },
    }
}

impl AttrPart {
    /// The dots that it removes.
    pub(crate) fn removed(&self) -> &[Dot] {
        match self {
            Self::Xattr { removed, .. } => removed,
            Self::Mode { .. } | Self::Uid { .. } | Self::Gid { .. } | Self::Mtime { .. } => &[],
        }
    }
}

impl AttrState {
    /// Extended attributes of one object. Each name has a byte at least, so a site has far fewer (`XATTR_LIST_MAX`).
    pub const XATTRS_MAX: usize = 65_536;

    /// The attributes of a new object.
    pub fn new(stamp: HybridStamp, mode: u32, uid: u32, gid: u32, mtime: Time) -> Self {
        Self {
            mode: Lww::new(stamp, mode),
            uid: Lww::new(stamp, uid),
            gid: Lww::new(stamp, gid),
            mtime: Lww::new(stamp, mtime),
            xattrs: DotMap::default(),
        }
    }

    /// The change that sets or removes an extended attribute.
    pub fn set_xattr(&self, name: XattrName, value: Option<Lww<XattrValue>>) -> AttrPart {
        AttrPart::Xattr { removed: self.xattrs.dots(&name), name, value }
    }

    pub(crate) fn apply(&mut self, dot: Dot, part: &AttrPart) {
        match part {
            AttrPart::Mode { to } => self.mode.join(to),
            AttrPart::Uid { to } => self.uid.join(to),
            AttrPart::Gid { to } => self.gid.join(to),
            AttrPart::Mtime { to } => self.mtime.join(to),
            AttrPart::Xattr { name, removed, value } => {
                self.xattrs.apply(name, removed, dot, value.clone());
            }
        }
    }

    pub(crate) fn join(&mut self, own: &Context, other: &Self, others: &Context) {
        self.mode.join(&other.mode);
        self.uid.join(&other.uid);
        self.gid.join(&other.gid);
        self.mtime.join(&other.mtime);
        self.xattrs.join(own, &other.xattrs, others);
    }

    /// The latest stamp in it.
    pub(crate) fn latest(&self) -> HybridStamp {
        let xattrs = self.xattrs.iter().flat_map(|(_, store)| store.iter().map(|(_, value)| value.stamp));
        let registers = [self.mode.stamp, self.uid.stamp, self.gid.stamp, self.mtime.stamp];
        registers.into_iter().chain(xattrs).fold(HybridStamp::ZERO, HybridStamp::max)
    }
}

impl Encode for AttrState {
    fn encode(&self, out: &mut Vec<u8>) {
        self.mode.encode(out);
        self.uid.encode(out);
        self.gid.encode(out);
        self.mtime.encode(out);
        self.xattrs.encode(out);
    }

    fn encoded_len(&self) -> usize {
        let registers = self.mode.encoded_len() + self.uid.encoded_len() + self.gid.encoded_len();
        registers + self.mtime.encoded_len() + self.xattrs.encoded_len()
    }
}

impl Decode for AttrState {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            mode: Lww::decode(r)?,
            uid: Lww::decode(r)?,
            gid: Lww::decode(r)?,
            mtime: Lww::decode(r)?,
            xattrs: DotMap::decode_most(r, Self::XATTRS_MAX)?,
        })
    }
}
