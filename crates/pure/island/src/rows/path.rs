//! Places of directories: ancestors, path hashes, walking a path through the skeleton.

use atoll_core::limits::{MESSAGE_BYTES_MAX, RECORD_BYTES_MAX};
use atoll_core::{Encode, Ino, Key, Name, PathHash};
use atoll_posix::perm::{self, ObjectPerms};
use atoll_posix::{Answer, Caller, Errno, Kind, acl};
use atoll_proto::{Ancestor, Dir, Entry, Outcome, StaticAttrs, Xattrs};

use crate::ctx::Ctx;
pub(crate) use crate::ctx::DEPTH_MAX;
use crate::ctx::request::Blocked;

/// A successful outcome with the placement keys of the directories in it.
pub(crate) fn ok(answer: Answer, key: Option<Key>) -> Outcome {
    Outcome::Ok { answer, keys: key.into_iter().collect() }
}

/// A successful outcome that only says so.
pub(crate) fn done() -> Outcome {
    ok(Answer::Done, None)
}

/// Bytes of a directory's ancestors as they are told to other islands: more than 1,000 levels with the longest
/// names. Whatever has to tell of more is refused (`ENAMETOOLONG`) before it is decided. A message holds two of
/// these, a record eight: two chains that come with an exchange of directories, and for each of their
/// directories its row, its name and the new count of the one above.
pub(crate) const CHAIN_BYTES_MAX: usize = 384 << 10;
const _: () = assert!(2 * CHAIN_BYTES_MAX + (128 << 10) <= MESSAGE_BYTES_MAX);
const _: () = assert!(8 * CHAIN_BYTES_MAX + (512 << 10) <= RECORD_BYTES_MAX);

impl Ctx {
    pub(crate) fn acl(&self, ino: Ino, has_acl: bool, which: &[u8]) -> Result<Option<acl::Acl>, Blocked> {
        if !has_acl {
            return Ok(None);
        }
        let Some(xattrs) = self.state.xattrs(ino)? else { return Ok(None) };
        match xattrs.get(which) {
            Some(value) => Ok(acl::Acl::parse(value)?),
            None => Ok(None),
        }
    }

    /// Whether `caller` may take away the name of something with these owners.
    pub(crate) fn may_delete(
        &self,
        caller: &Caller,
        ino: Ino,
        dir: &Dir,
        victim: ObjectPerms,
    ) -> Result<(), Blocked> {
        let acl = self.acl(ino, dir.has_acl, acl::ACCESS_XATTR)?;
        Ok(perm::may_delete(caller, owned_by(&dir.fixed), acl.as_ref(), victim)?)
    }

    /// The user and the group that own the file or directory of an entry.
    pub(crate) fn owner_of(&self, entry: &Entry) -> Result<ObjectPerms, Blocked> {
        match &entry.stub {
            Some(stub) => Ok(owned_by(&stub.fixed)),
            None => Ok(ObjectPerms::from(&self.file(entry.ino)?.attr)),
        }
    }

    /// A file that is homed here.
    pub(crate) fn file(&self, ino: Ino) -> Result<&atoll_proto::Inode, Blocked> {
        self.state.inode(ino)?.ok_or(Blocked::Fail(Errno::ESTALE))
    }

    /// The directory and everything above it, from the root down. `ELOOP` if that has no end.
    pub(crate) fn ancestors(&self, ino: Ino) -> Result<Vec<(Ino, &Dir)>, Blocked> {
        let mut chain = Vec::new();
        let mut at = ino;
        loop {
            let dir = self.state.dir(at)?.ok_or(Blocked::Fail(Errno::ESTALE))?;
            chain.push((at, dir));
            if at == Ino::ROOT {
                break;
            }
            if chain.len() == DEPTH_MAX {
                return Err(Errno::ELOOP.into());
            }
            at = dir.place.parent;
        }
        chain.reverse();
        Ok(chain)
    }

    /// The ancestors that another island needs to build its skeleton down to `ino`. `ENAMETOOLONG` if they
    /// are more than [`CHAIN_BYTES_MAX`].
    pub(crate) fn chain(&self, ino: Ino) -> Result<Vec<Ancestor>, Blocked> {
        let mut bytes = 0;
        let ancestor = |(ino, dir)| {
            let ancestor = self.ancestor(ino, dir)?;
            bytes += ancestor.encoded_len();
            if bytes > CHAIN_BYTES_MAX { Err(Errno::ENAMETOOLONG.into()) } else { Ok(ancestor) }
        };
        self.ancestors(ino)?.into_iter().map(ancestor).collect()
    }

    /// The same, or as much of its end as is not too long. The other island asks for the rest when it has
    /// that.
    pub(crate) fn end_of_chain(&self, ino: Ino) -> Result<Vec<Ancestor>, Blocked> {
        let (mut bytes, mut chain) = (0, Vec::new());
        for (ino, dir) in self.ancestors(ino)?.into_iter().rev() {
            let ancestor = self.ancestor(ino, dir)?;
            bytes += ancestor.encoded_len();
            if bytes > CHAIN_BYTES_MAX && !chain.is_empty() {
                break;
            }
            chain.push(ancestor);
        }
        chain.reverse();
        Ok(chain)
    }

    pub(crate) fn ancestor(&self, ino: Ino, dir: &Dir) -> Result<Ancestor, Blocked> {
        let xattrs = if dir.has_acl { self.state.xattrs(ino)?.map(Xattrs::acls) } else { None };
        Ok(Ancestor {
            ino,
            key: dir.key,
            birth_bytes: dir.birth_bytes,
            place: dir.place.clone(),
            fixed: dir.fixed,
            xattrs: xattrs.unwrap_or_default(),
            suspected: dir.owned.is_none() && ino != Ino::ROOT && self.has_journal_gap(self.config.id),
        })
    }

    /// The placement key of a directory that is made as `name` in `dir`: the hash of its path, of so many
    /// bytes.
    pub(crate) fn key_of_child(&self, dir: Ino, name: &Name) -> Result<(Key, u16), Blocked> {
        let chain = self.ancestors(dir)?;
        let names = chain.iter().filter_map(|(_, d)| d.place.name.as_ref());
        let hash = self.h3.path(names).and_then(|at: PathHash| self.h3.child(at, name));
        Ok(hash.map_or_else(
            || {
                // Deeper than a path can name: no client computes this key, any one will do.
                let above = chain.last().map_or(0, |(_, d)| d.key.0);
                (Key(above.rotate_left(7) ^ (self.state.cookie(name.as_bytes()) as u32)), 0)
            },
            |hash| (hash.key(), hash.bytes()),
        ))
    }
}

/// The facts of a directory's static attributes that permission rules need.
pub(crate) const fn owned_by(fixed: &StaticAttrs) -> ObjectPerms {
    ObjectPerms { uid: fixed.uid, gid: fixed.gid, mode: fixed.mode, kind: Kind::Directory }
}
