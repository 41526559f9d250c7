//! Names of files in one directory: lookup, create, unlink, link, rename, listing. One island each.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId, Key, Name};
use atoll_posix::perm;
use atoll_posix::{Answer, Attr, DirEntry, Errno, Kind, NamedObject, Op, RenameMode, acl};
use atoll_proto::{ClientOp, Entry, EntryRef, Inode, Outcome, RenameSpec, RequestResult, Xattrs};
use bytes::Bytes;

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, PendingRequest, Step};
use crate::island::Island;
use crate::look::Look;
use crate::look::guards::as_shown;
use crate::rows::path::{ok, owned_by};

/// Names in one answer to a listing.
const ENTRIES_PER_ANSWER: usize = 8192;
/// Bytes of a listing in one answer, however many are asked for: each name counts for more than it is encoded in.
const LISTED_BYTES_MAX: i64 = 512 << 10;
/// Longest target of a symbolic link in bytes.
const TARGET_BYTES_MAX: usize = 4095;

/// The answer to a request that was carried out before.
pub(crate) struct Again {
    pub(crate) outcome: Outcome,
    /// The change may have gone to all islands by the journal.
    pub(crate) is_posted: bool,
}

impl Island {
    pub(crate) fn lookup(&mut self, dir: Ino, name: &Name) -> Result<Step, Blocked> {
        self.look().owned(dir)?;
        self.look().require_decided_name(dir, name)?;
        let entry = self.look().shown(dir, name)?.ok_or(Blocked::Fail(Errno::ENOENT))?;
        let outcome = self.look().looked_up(&entry)?;
        if entry.kind == Kind::Symlink {
            let (ino, home) = (entry.ino, entry.home);
            self.links.link_used(&mut self.ctx, dir, name, ino, home);
        }
        Ok(Step::Looked(outcome))
    }

    pub(crate) fn create(
        &mut self,
        call: &PendingRequest,
        dir: Ino,
        name: &Name,
        op: &Op,
    ) -> Result<Step, Blocked> {
        let Op::Create { kind, mode, umask, rdev, exclusive, target, .. } = op else {
            unreachable!("called for Op::Create")
        };
        if *kind == Kind::Directory || target.len() > TARGET_BYTES_MAX {
            return Err(Errno::EINVAL.into());
        }
        let parent = self.look().open_for_names(dir)?;
        self.look().require_decided_name(dir, name)?;
        if let Some(entry) = self.look().shown(dir, name)? {
            if *exclusive {
                return Err(Errno::EEXIST.into());
            }
            if entry.kind == Kind::Directory {
                return Err(Errno::EISDIR.into());
            }
            return Ok(Step::Looked(self.look().looked_up(&entry)?));
        }
        self.look().require_unlocked_name(dir, name)?;
        self.look().may_change_names(call.caller(), dir, parent)?;
        perm::may_make(call.caller(), *kind, *rdev)?;
        let default = self.ctx.acl(dir, parent.has_acl, acl::DEFAULT_XATTR)?;
        let born =
            perm::born(call.caller(), owned_by(&parent.fixed), default.as_ref(), *kind, *mode, *umask)?;
        let parent = parent.clone();
        self.ctx.room.take(0)?;
        let ino = self.ctx.mint()?;
        let now = self.ctx.time();
        let size = target.len() as u64;
        let attr = Attr {
            ino,
            kind: *kind,
            mode: born.mode,
            nlink: 1,
            uid: born.uid,
            gid: born.gid,
            rdev: if matches!(kind, Kind::CharDevice | Kind::BlockDevice) { *rdev } else { 0 },
            size,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        let mut decision = Decision::new();
        let mut xattrs = Xattrs::default();
        if let Some(access) = &born.acl {
            xattrs.set(Bytes::from_static(acl::ACCESS_XATTR), access.to_xattr().into());
        }
        decision.inode(Inode {
            attr,
            target: (*kind == Kind::Symlink).then(|| target.clone()),
            has_xattrs: born.acl.is_some(),
            has_acl: born.acl.is_some(),
            moves: 0,
            orphan_of: Vec::new(),
            beside: None,
            is_absent: false,
        });
        if born.acl.is_some() {
            decision.xattrs(ino, Some(xattrs));
        }
        let home = self.ctx.config.id;
        decision.entry(dir, name, Some(Entry { ino, kind: *kind, home, stub: None }));
        decision.names_changed(dir, &parent, 1, 0, (now, now));
        decision.remember_for(call, RequestResult::Ino { ino });
        self.ctx.state.new_file(ino);
        self.bodies.file_made(ino);
        self.ctx.decide(decision);
        Ok(Step::Decided(ok(Answer::Found { found: NamedObject { attr, attr_current: true } }, None)))
    }

    pub(crate) fn rename(
        &mut self,
        call: &PendingRequest,
        from: EntryRef,
        to: EntryRef,
        mode: RenameMode,
        (meant, new_meant): (Option<Ino>, Option<Ino>),
        key: Option<Key>,
    ) -> Result<Step, Blocked> {
        if from.dir != to.dir {
            let owner = key.map_or(self.ctx.config.id, |key| self.ctx.config.owner(key));
            if owner != self.ctx.config.id {
                return self.rename_away(call, from, to, mode, (meant, new_meant), owner);
            }
        }
        let parent = self.look().open_for_names(from.dir)?;
        self.look().require_unlocked_name(from.dir, &from.name)?;
        self.look().require_unlocked_name(to.dir, &to.name)?;
        let old = self.look().named(from.dir, &from.name)?.ok_or(Blocked::Fail(Errno::ENOENT))?;
        is_meant(meant, Some(old))?;
        let new_parent = self.look().open_for_names(to.dir)?;
        let new = self.look().named(to.dir, &to.name)?;
        is_meant(new_meant, new)?;
        // As Linux has it: what the names are comes before who asks.
        match (mode, new) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EEXIST.into()),
            (RenameMode::Exchange, None) => return Err(Errno::ENOENT.into()),
            (_, Some(new)) if new.ino == old.ino => {
                return Ok(Step::Looked(ok(Answer::Removed { orphan: None }, None)));
            }
            _ => {}
        }
        let by = self.look().may_take(call.caller(), from.dir, parent, old)?;
        let there_by = match new {
            Some(new) => self.look().may_take(call.caller(), to.dir, new_parent, new)?,
            None => {
                self.look().may_change_names(call.caller(), to.dir, new_parent)?;
                None
            }
        };
        let is_dir = |entry: &Entry| entry.stub.is_some();
        let (file, there) = (old.clone(), new.cloned());
        if let Some(new) = there.as_ref().filter(|_| mode != RenameMode::Exchange) {
            match (is_dir(&file), is_dir(new)) {
                (true, false) => return Err(Errno::ENOTDIR.into()),
                (false, true) => return Err(Errno::EISDIR.into()),
                _ => {}
            }
        }
        let time = self.ctx.time();
        self.rename_here(call, RenameSpec { from, to, file, there, mode, by, time }, there_by)
    }
}

impl<'a> Look<'a> {
    pub(crate) fn read_dir(self, dir: Ino, after: u64, bytes: u32, plus: bool) -> Result<Step, Blocked> {
        self.owned(dir)?;
        self.require_decided_names(dir)?;
        self.require_complete_dir(dir)?;
        let (rows, mut eof) = self.ctx.state.entries_after(dir, after)?;
        let known_to = if eof { u64::MAX } else { self.ctx.state.known_to(dir) };
        let shown = self.shown_names(dir, after.saturating_add(1)..known_to);
        let rows = as_shown(rows, &shown);
        let mut entries: Vec<DirEntry> = Vec::new();
        let mut keys = Vec::new();
        let mut missing = Vec::new();
        let mut room = i64::from(bytes).min(LISTED_BYTES_MAX);
        for (cookie, name, entry) in rows.skip(usize::from(after > 0 && planted(Bug::ListingSkips))) {
            // What shares a cookie with the last name must not be parted from it.
            let together = entries.last().is_some_and(|last| last.cookie == cookie);
            if (room <= 0 || entries.len() + missing.len() >= ENTRIES_PER_ANSWER) && !together {
                eof = false;
                break;
            }
            room -= name.as_bytes().len() as i64 + if plus { 160 } else { 32 };
            // Attributes of a file that is homed elsewhere are asked for there, when somebody wants them.
            let here = entry.stub.is_some() || entry.home == self.ctx.config.id;
            let found = match if plus && here { self.found(entry).map(Some) } else { Ok(None) } {
                Ok(found) => found,
                Err(Blocked::Load(loads)) => {
                    // One look at the snapshot for all that is not in memory.
                    missing.extend(loads);
                    continue;
                }
                Err(stop) => return Err(stop),
            };
            let (found, key) = found.map_or((None, None), |(f, k)| (Some(f), k));
            keys.extend(key);
            let (name, ino, kind) = (name.clone(), entry.ino, entry.kind);
            entries.push(DirEntry { name, ino, kind, cookie, found });
        }
        if !missing.is_empty() {
            return Err(Blocked::Load(missing));
        }
        if entries.is_empty() && !eof {
            // Nothing below what memory knows: the next page is needed.
            return Err(Blocked::Load(vec![atoll_state::RowLoad::Names {
                dir,
                from: self.ctx.state.known_to(dir),
            }]));
        }
        Ok(Step::Looked(Outcome::Ok { answer: Answer::Entries { entries, eof }, keys }))
    }

    /// The answer to a request that was carried out before.
    pub(crate) fn again(self, call: &PendingRequest, result: &RequestResult) -> Result<Again, Blocked> {
        let is_posted = self.may_be_posted(call)?;
        Ok(Again { outcome: self.told_again(call, result)?, is_posted })
    }

    /// Whether a change may have gone to all islands by the journal: one of a directory's place or static attributes. Of a
    /// rename nobody knows any more whether it moved a directory, and of what is not here whether it is one.
    fn may_be_posted(self, call: &PendingRequest) -> Result<bool, Blocked> {
        Ok(match call.request.op.operation() {
            Some(Op::Rename { .. }) => true,
            Some(Op::SetAttr { ino, .. } | Op::SetXattr { ino, .. } | Op::RemoveXattr { ino, .. }) => {
                self.ctx.state.inode(*ino)?.is_none_or(|row| row.attr.kind == Kind::Directory)
            }
            _ => false,
        })
    }

    fn told_again(self, call: &PendingRequest, result: &RequestResult) -> Result<Outcome, Blocked> {
        Ok(match result {
            RequestResult::Done => crate::rows::path::done(),
            RequestResult::Wrote { len, offset } => ok(Answer::Wrote { len: *len, offset: *offset }, None),
            RequestResult::Removed { orphan } => ok(Answer::Removed { orphan: *orphan }, None),
            RequestResult::Attr { ino } => {
                if self.homed(*ino)?.is_none() && self.ctx.state.dir(*ino)?.is_none() {
                    return Ok(self.ctx.gone_to(*ino, Kind::Regular, self.ctx.config.id));
                }
                match self.get_attr(*ino)? {
                    Step::Looked(outcome) => outcome,
                    _ => unreachable!("attributes are only looked at"),
                }
            }
            RequestResult::Ino { ino }
                if self.ctx.scope_of(call.session()).is_some() && !self.is_still_named(call, *ino)? =>
            {
                // It may be where the session does not see it: it is told as it was made.
                let made = call.request.op.operation().and_then(|op| made(*ino, op, call));
                made.unwrap_or(Outcome::Failed { errno: Errno::ESTALE })
            }
            RequestResult::Ino { ino } => {
                // A directory that was removed since is told of as one that is not here.
                if let Some(row) = self.homed(*ino)?.filter(|row| row.attr.kind != Kind::Directory) {
                    let found = NamedObject { attr: self.shown_file(row), attr_current: true };
                    return Ok(ok(Answer::Found { found }, None));
                }
                match self.ctx.state.dir(*ino)? {
                    Some(dir) => {
                        let attr = crate::ctx::shown::dir_attr(*ino, dir);
                        let found = NamedObject { attr, attr_current: dir.owned.is_some() };
                        ok(Answer::Found { found }, Some(dir.key))
                    }
                    // Its owner or home is another island: the name tells. Or it was made, and removed or
                    // moved by somebody else since.
                    None => match &call.request.op {
                        ClientOp::Fs { op } => self.made_before(call, op, *ino, ino.minted_by())?,
                        ClientOp::Link { op, home } => self.made_before(call, op, *ino, *home)?,
                        _ => Outcome::Failed { errno: Errno::ESTALE },
                    },
                }
            }
        })
    }

    /// A file that was made before, or was homed at `home` when it got a name, and is not here.
    fn made_before(
        self,
        call: &PendingRequest,
        op: &Op,
        ino: Ino,
        home: IslandId,
    ) -> Result<Outcome, Blocked> {
        let there = match op {
            Op::Create { dir, name, .. } | Op::Mkdir { dir, name, .. } | Op::Link { dir, name, .. } => {
                self.ctx.state.entry(*dir, name)?.filter(|entry| entry.ino == ino)
            }
            _ => None,
        };
        Ok(match (op, there) {
            (Op::Mkdir { .. }, Some(entry)) => self.looked_up(entry)?,
            (_, Some(entry)) => Outcome::DoneTo { ino, kind: entry.kind, home: entry.home },
            (Op::Link { .. }, None) => self.ctx.gone_to(ino, Kind::Regular, home),
            (Op::Create { kind, .. }, None) if self.ctx.state.forward(ino).is_some() => {
                self.ctx.gone_to(ino, *kind, self.ctx.config.id)
            }
            _ => made(ino, op, call).unwrap_or(Outcome::Failed { errno: Errno::ESTALE }),
        })
    }
}

impl Ctx {
    pub(crate) fn readlink(&mut self, ino: Ino) -> Result<Step, Blocked> {
        let row = self.file(ino)?;
        let target = row.target.clone().ok_or(Blocked::Fail(Errno::EINVAL))?;
        Ok(Step::Looked(Outcome::Data { data: target }))
    }

    /// It was done to a file that was homed there then: its attributes are its home's to tell, wherever that is.
    fn gone_to(&self, ino: Ino, kind: Kind, home: IslandId) -> Outcome {
        let home = self.state.forward(ino).map_or(home, |forward| forward.to);
        Outcome::DoneTo { ino, kind, home }
    }
}

/// Whether a name leads to the file that the caller means. Another mount may have moved that file since the
/// caller's kernel looked. The kernel would then treat its own directory as removed.
pub(crate) fn is_meant(meant: Option<Ino>, there: Option<&Entry>) -> Result<(), Errno> {
    match meant {
        Some(ino) if there.is_none_or(|entry| entry.ino != ino) => Err(Errno::ESTALE),
        _ => Ok(()),
    }
}

/// A file was made and is gone when its maker, who has not got the answer, asks again. The answer tells the
/// file as it was made. After `ESTALE` it would be made once more, although others have seen it come and go.
fn made(ino: Ino, op: &Op, call: &PendingRequest) -> Option<Outcome> {
    let (kind, mode, umask, rdev, size) = match op {
        Op::Create { kind, mode, umask, rdev, target, .. } => {
            (*kind, *mode, *umask, *rdev, target.len() as u64)
        }
        Op::Mkdir { mode, umask, .. } => (Kind::Directory, *mode, *umask, 0, 0),
        _ => return None,
    };
    let caller = call.caller();
    let nlink = if kind == Kind::Directory { 2 } else { 1 };
    let (mode, uid, gid) = (mode & !umask & 0o7777, caller.uid, caller.gid);
    let attr = Attr { mode, nlink, uid, gid, rdev, size, ..Attr::blank(ino, kind) };
    // Nobody knows more of it.
    Some(ok(Answer::Found { found: NamedObject { attr, attr_current: true } }, None))
}
