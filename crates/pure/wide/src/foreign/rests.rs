//! Bodies that rest in the trash of this site: what a change of another one takes away. Owns which bodies rest, and what is remembered of
//! them. Never removes one.

use atoll_causal::{FileId, Writer};
use atoll_core::Encode;
use atoll_posix::Kind;
use atoll_proto::Inode;
use atoll_shown::{Objects, places};

use super::objects::Writing;
use crate::author::micros;
use crate::held::HeldObjects;
use crate::rows::{BesideRow, BodyVersion, FileBytes, Rested, TRASH, TrashCause, TrashRow, set, trash_key};

/// Bytes of the unit in which a row counts what a file takes.
const UNIT_BYTES: u64 = 512;

impl Writing<'_> {
    /// Whether a body that goes rests: if it has bytes, or is a symbolic link, and is not more than all of the trash.
    pub(super) fn rests(&self, row: &Inode, bytes: &FileBytes) -> bool {
        let Some(bytes_max) = self.rest else { return false };
        let has_some = match row.attr.kind {
            Kind::Regular => bytes.has.is_some() && !row.is_absent && row.attr.size > 0,
            kind => kind == Kind::Symlink,
        };
        has_some && takes(row) <= bytes_max
    }

    /// A body rests from here on.
    pub(super) fn rest(
        &mut self,
        file: FileId,
        mut row: Inode,
        version: Option<BodyVersion>,
        (why, by): (TrashCause, Writer),
    ) {
        let (path, size, takes) = (path(self.before, file).into(), row.attr.size, takes(&row));
        let rested = Box::new(Rested { file, version, path, by, why, size, takes });
        let key = trash_key(micros(self.here.now), row.attr.ino);
        self.draft.sides.push(set(TRASH, key, &TrashRow::Rests { rested }));
        row.attr.nlink = 0;
        row.attr.ctime = row.attr.ctime.max(self.here.now);
        row.beside = Some(BesideRow::Nameless { of: file }.to_vec().into());
        self.draft.set_inode(row);
    }
}

/// A path at which a file or directory is: its lowest names, as many as fit.
pub(super) fn path(held: &HeldObjects<'_>, object: FileId) -> Vec<u8> {
    let mut at = match held.file(object) {
        Some(state) => places(object, &state).into_iter().next().map(|place| (place.dir, place.name)),
        None => held.place(object),
    };
    let mut names = Vec::new();
    let mut len = 0;
    while let Some((dir, name)) = at {
        len += 1 + name.as_bytes().len();
        if len > Rested::PATH_BYTES_MAX {
            break;
        }
        names.push(name);
        at = held.place(dir);
    }
    names.reverse();
    let path = names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>().join(&b'/');
    if len > Rested::PATH_BYTES_MAX { path } else { [&b"/"[..], &path].concat() }
}

fn takes(row: &Inode) -> u64 {
    row.attr.blocks.saturating_mul(UNIT_BYTES)
}
