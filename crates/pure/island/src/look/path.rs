//! Finds directories and files: by name, by path, by id.

use std::borrow::Cow;

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, Key, VolumePath};
use atoll_posix::perm::{self, AccessMode};
use atoll_posix::{Answer, Caller, Errno, Kind, NamedObject, acl};
use atoll_proto::{Dir, Entry, Inode, KeyOverride, Outcome, Resolved, Stub};

use super::Look;
use crate::ctx::request::{Blocked, Step};
use crate::ctx::shown::{dir_attr, pointer_attr, stub_attr};
use crate::rows::hints::KeyOverrides;
use crate::rows::path::{ok, owned_by};

impl<'a> Look<'a> {
    /// A directory that is owned here. `ESTALE` tells a client to look the name up again.
    pub(crate) fn owned(self, ino: Ino) -> Result<&'a Dir, Blocked> {
        match self.ctx.state.dir(ino)? {
            Some(dir) if dir.owned.is_some() => Ok(dir),
            Some(dir) if self.ctx.config.owner(dir.key) != self.ctx.config.id => Err(Errno::ESTALE.into()),
            // Who had it made knows of it, and may not have told.
            _ if self.missing.may_have_lost(ino.minted_by()) && !planted(Bug::LostIsGone) => {
                Err(self.ctx.retry_or_fail([ino.minted_by()]))
            }
            _ => Err(Errno::ESTALE.into()),
        }
    }

    /// A directory that is owned here and may change. One whose mkdir is not known to have happened yet
    /// waits for that: if its coordinator lost it, so would be everything in it.
    pub(crate) fn open_for_names(self, ino: Ino) -> Result<&'a Dir, Blocked> {
        let dir = self.owned(ino)?;
        match dir.owned.as_ref().and_then(|o| o.sealed.or(o.adopted)) {
            Some(txn) if !planted(Bug::OpenBeforeCommit) => Err(Blocked::Txn(txn)),
            _ => Ok(dir),
        }
    }

    /// Whether `caller` may add or remove names.
    pub(crate) fn may_change_names(self, caller: &Caller, ino: Ino, dir: &Dir) -> Result<(), Blocked> {
        self.missing.is_not_removed(self.ctx, ino, dir)?;
        let acl = self.ctx.acl(ino, dir.has_acl, acl::ACCESS_XATTR)?;
        Ok(perm::may_create(caller, owned_by(&dir.fixed), acl.as_ref())?)
    }

    /// The answer to a lookup of a name.
    pub(crate) fn found(self, entry: &Entry) -> Result<(NamedObject, Option<Key>), Blocked> {
        let Some(stub) = &entry.stub else {
            if entry.home != self.ctx.config.id {
                return Ok((NamedObject { attr: pointer_attr(entry), attr_current: false }, None));
            }
            self.require_decided_file(entry.ino)?;
            let attr = self.shown_file(self.ctx.file(entry.ino)?);
            return Ok((NamedObject { attr, attr_current: true }, None));
        };
        let found = match self.local_dir(entry.ino, stub)? {
            Some(dir) => NamedObject { attr: self.shown_dir(entry.ino, dir), attr_current: true },
            None => NamedObject { attr: stub_attr(entry.ino, &stub.fixed, stub.time), attr_current: false },
        };
        Ok((found, Some(stub.key)))
    }

    /// As [`Look::found`], as it is answered.
    pub(crate) fn looked_up(self, entry: &Entry) -> Result<Outcome, Blocked> {
        let (found, key) = self.found(entry)?;
        if entry.stub.is_none() && !found.attr_current {
            return Ok(Outcome::Elsewhere { ino: entry.ino, kind: entry.kind, home: entry.home });
        }
        Ok(ok(Answer::Found { found }, key))
    }

    fn local_dir(self, ino: Ino, stub: &Stub) -> Result<Option<&'a Dir>, Blocked> {
        if self.ctx.config.owner(stub.key) != self.ctx.config.id {
            return Ok(None);
        }
        self.require_decided_dir(ino)?;
        Ok(self.ctx.state.dir(ino)?.filter(|dir| dir.owned.is_some()))
    }

    /// Walks from the root, with the caller's permissions, as far as the skeleton goes.
    pub(crate) fn resolve(self, caller: &Caller, path: &VolumePath) -> Result<Step, Blocked> {
        let mut at = Ino::ROOT;
        let mut dir = self.ctx.state.dir(at)?.ok_or(Blocked::Fail(Errno::ESTALE))?;
        let names = path.names();
        let mut key_overrides = KeyOverrides::default();
        for (depth, name) in (0u32..).zip(names) {
            let acl = self.ctx.acl(at, dir.has_acl, acl::ACCESS_XATTR)?;
            perm::check(caller, owned_by(&dir.fixed), AccessMode::EXEC, acl.as_ref())?;
            let entry = if dir.owned.is_some() {
                // As in a lookup: a rename that has happened, and is not recorded here, brings the name or takes it away.
                self.require_decided_name(at, name)?;
                self.shown(at, name)?
            } else {
                self.ctx.state.entry(at, name)?.map(Cow::Borrowed)
            };
            let Some(entry) = entry else {
                return Ok(Step::Looked(resolved(at, dir, depth, key_overrides.told)));
            };
            let next = if entry.kind == Kind::Directory { self.ctx.state.dir(entry.ino)? } else { None };
            match next {
                Some(next) => {
                    at = entry.ino;
                    dir = next;
                    key_overrides.step(&self.ctx.h3, depth + 1, name, dir);
                }
                // The end of what is known here: a file, or a directory of which only the stub is.
                None if dir.owned.is_some() => {
                    let whole = depth as usize + 1 == names.len();
                    if whole && entry.stub.is_none() && entry.home != self.ctx.config.id {
                        return Ok(Step::Looked(self.looked_up(&entry)?));
                    }
                    let (found, key) = self.found(&entry)?;
                    let is_final = key.is_none();
                    let depth = depth + 1;
                    let key_overrides = key_overrides.told;
                    return Ok(Step::Looked(Outcome::Resolved {
                        resolved: Resolved { found, key, depth, is_final, key_overrides },
                    }));
                }
                None => return Ok(Step::Looked(resolved(at, dir, depth, key_overrides.told))),
            }
        }
        Ok(Step::Looked(resolved(at, dir, names.len() as u32, key_overrides.told)))
    }

    /// A file that is homed here, and not only on its way.
    pub(crate) fn homed(self, ino: Ino) -> Result<Option<&'a Inode>, Blocked> {
        if self.locks.arriving(ino).is_some() {
            return Ok(None);
        }
        Ok(self.ctx.state.inode(ino)?)
    }

    /// Whether a directory that is owned here may go.
    pub(crate) fn may_seal(self, ino: Ino) -> Result<(), Blocked> {
        let dir = self.owned(ino)?;
        let owned = dir.owned.as_ref().expect("owned");
        if let Some(txn) = owned.sealed.or(owned.adopted) {
            return Err(Blocked::Txn(txn));
        }
        self.require_complete_dir(ino)?;
        // Nor may a directory have been made in it.
        self.missing.is_not_removed(self.ctx, ino, dir)?;
        if owned.entries > 0 && !planted(Bug::FullDirectoryGoes) {
            // Whatever is held: a name that goes is there until that is decided, which is done here. And it
            // may be the very rename that asks, whose name is in the directory that it would replace.
            return Err(Errno::ENOTEMPTY.into());
        }
        if planted(Bug::HeldNameIgnored) {
            return Ok(());
        }
        self.locks.in_dir(ino).map_or(Ok(()), |txn| Err(Blocked::Txn(txn)))
    }
}

fn resolved(ino: Ino, dir: &Dir, depth: u32, key_overrides: Vec<KeyOverride>) -> Outcome {
    let found = NamedObject { attr: dir_attr(ino, dir), attr_current: dir.owned.is_some() };
    Outcome::Resolved {
        resolved: Resolved { found, key: Some(dir.key), depth, is_final: dir.owned.is_some(), key_overrides },
    }
}
