//! Names of files in one directory: lookup, create, unlink, link, rename, listing. One island each.

use atoll_core::{Ino, Name, Time};
use atoll_posix::perm::{self, Owned};
use atoll_posix::{Answer, Attr, DirEntry, Errno, Found, Kind, Op, RenameMode, acl};
use atoll_proto::{BodyChange, Change, ClientOp, Dir, Entry, Inode, Outcome, Remembered, Xattrs};
use bytes::Bytes;

use crate::data::blocks;
use crate::decision::Decision;
use crate::machine::{Call, Island, Step, Stop};
use crate::path::{ok, owned_by};

/// Names that one file may have: native file systems hold each as a hard link.
const LINKS_MAX: u32 = 60_000;
/// Names in one answer to a listing.
const ENTRIES_PER_ANSWER: usize = 8192;
/// Longest target of a symbolic link in bytes.
const TARGET_BYTES_MAX: usize = 4095;

impl Island {
    pub(crate) fn lookup(&self, dir: Ino, name: &Name) -> Result<Step, Stop> {
        self.owned(dir)?;
        let entry = self.state.entry(dir, name)?.ok_or(Stop::Fail(Errno::ENOENT))?;
        let (found, key) = self.found(entry)?;
        Ok(Step::Looked(ok(Answer::Found { found }, key)))
    }

    pub(crate) fn create(&mut self, call: &Call, dir: Ino, name: &Name, op: &Op) -> Result<Step, Stop> {
        let Op::Create { kind, mode, umask, rdev, exclusive, target, .. } = op else {
            unreachable!("called for Op::Create")
        };
        if *kind == Kind::Directory || target.len() > TARGET_BYTES_MAX {
            return Err(Errno::EINVAL.into());
        }
        let parent = self.open_for_names(dir)?;
        if let Some(entry) = self.state.entry(dir, name)? {
            if *exclusive {
                return Err(Errno::EEXIST.into());
            }
            if entry.kind == Kind::Directory {
                return Err(Errno::EISDIR.into());
            }
            let (found, key) = self.found(entry)?;
            return Ok(Step::Looked(ok(Answer::Found { found }, key)));
        }
        self.name_is_free(dir, name)?;
        self.may_change_names(call.caller(), dir, parent)?;
        perm::may_make(call.caller(), *kind, *rdev)?;
        let default = self.acl(dir, parent.has_acl, acl::DEFAULT_XATTR)?;
        let born =
            perm::born(call.caller(), owned_by(&parent.fixed), default.as_ref(), *kind, *mode, *umask)?;
        let parent = parent.clone();
        self.space(0)?;
        let ino = self.mint()?;
        let now = self.time();
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
            orphan_of: Vec::new(),
        });
        if born.acl.is_some() {
            decision.xattrs(ino, Some(xattrs));
        }
        let home = self.config.id;
        decision.entry(dir, name, Some(Entry { ino, kind: *kind, home, stub: None }));
        decision.names_changed(dir, &parent, 1, 0, now);
        self.remember(&mut decision, call, Remembered::Ino { ino });
        self.state.new_file(ino);
        self.fresh.insert(ino);
        self.decide(decision);
        Ok(Step::Decided(ok(Answer::Found { found: Found { attr, attr_current: true } }, None)))
    }

    pub(crate) fn link(&mut self, call: &Call, ino: Ino, dir: Ino, name: &Name) -> Result<Step, Stop> {
        let parent = self.open_for_names(dir)?.clone();
        if self.state.entry(dir, name)?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        self.name_is_free(dir, name)?;
        self.may_change_names(call.caller(), dir, &parent)?;
        let Some(mut row) = self.state.inode(ino)?.cloned() else {
            // Homed elsewhere, or a directory: both are for the other kinds of link.
            let dir = self.state.dir(ino)?.is_some();
            return Err(if dir { Errno::EPERM } else { Errno::EXDEV }.into());
        };
        if row.attr.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        if row.attr.nlink >= LINKS_MAX {
            return Err(Errno::EMLINK.into());
        }
        self.space(0)?;
        let now = self.time();
        row.attr.nlink += 1;
        row.attr.ctime = now;
        let attr = row.attr;
        let mut decision = Decision::new();
        decision.inode(row);
        let entry = Entry { ino, kind: attr.kind, home: self.config.id, stub: None };
        decision.entry(dir, name, Some(entry));
        decision.names_changed(dir, &parent, 1, 0, now);
        self.remember(&mut decision, call, Remembered::Ino { ino });
        self.decide(decision);
        Ok(Step::Decided(ok(Answer::Found { found: Found { attr, attr_current: true } }, None)))
    }

    pub(crate) fn unlink(&mut self, call: &Call, dir: Ino, name: &Name) -> Result<Step, Stop> {
        let parent = self.owned(dir)?;
        self.name_is_free(dir, name)?;
        let entry = self.state.entry(dir, name)?.ok_or(Stop::Fail(Errno::ENOENT))?;
        if entry.kind == Kind::Directory {
            self.may_delete(call.caller(), dir, parent, self.owner_of(entry)?)?;
            return Err(Errno::EISDIR.into());
        }
        let row = self.file(entry.ino)?;
        self.may_delete(call.caller(), dir, parent, Owned::from(&row.attr))?;
        let (row, parent) = (row.clone(), parent.clone());
        let now = self.time();
        let mut decision = Decision::new();
        decision.entry(dir, name, None);
        decision.names_changed(dir, &parent, -1, 0, now);
        let orphan = self.drop_name(&mut decision, row, call, now);
        self.remember(&mut decision, call, Remembered::Removed { orphan });
        self.decide(decision);
        Ok(Step::Decided(ok(Answer::Removed { orphan }, None)))
    }

    /// A file loses a name. If it was the last one, the file goes, or stays as an orphan while a
    /// mount may have it open. Tells which orphan was left.
    pub(crate) fn drop_name(
        &mut self,
        decision: &mut Decision,
        mut row: Inode,
        call: &Call,
        now: Time,
    ) -> Option<Ino> {
        let ino = row.attr.ino;
        row.attr.nlink -= 1;
        row.attr.ctime = now;
        if row.attr.nlink > 0 {
            decision.inode(row);
            return None;
        }
        let holders = self.mounts();
        if holders.is_empty() {
            self.drop_file(decision, &row);
            return None;
        }
        for session in &holders {
            decision.push(Change::Held { session: *session, ino, on: true });
        }
        self.tell_orphan(&holders, call.session(), ino);
        let mine = holders.contains(&call.session());
        row.orphan_of = holders;
        decision.inode(row);
        mine.then_some(ino)
    }

    /// A file goes for good.
    pub(crate) fn drop_file(&mut self, decision: &mut Decision, row: &Inode) {
        let ino = row.attr.ino;
        decision.no_inode(ino);
        if row.has_xattrs {
            decision.xattrs(ino, None);
        }
        if row.attr.kind == Kind::Regular && row.attr.size > 0 {
            decision.push(Change::SumsCut { ino, first: 0, end: blocks(row.attr.size) });
        }
        self.drop_locks(decision, ino);
        decision.body(BodyChange::Drop { ino });
        let seq = self.state.seq() + 1;
        self.drop_body(ino, seq);
    }

    pub(crate) fn rename(
        &mut self,
        call: &Call,
        dir: Ino,
        name: &Name,
        new_dir: Ino,
        new_name: &Name,
        mode: RenameMode,
    ) -> Result<Step, Stop> {
        if dir != new_dir {
            return Err(Errno::EXDEV.into());
        }
        let parent = self.open_for_names(dir)?;
        self.name_is_free(dir, name)?;
        self.name_is_free(dir, new_name)?;
        let old = self.state.entry(dir, name)?.ok_or(Stop::Fail(Errno::ENOENT))?;
        let new = self.state.entry(dir, new_name)?;
        // As Linux has it: what the names are comes before who asks.
        match (mode, new) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EEXIST.into()),
            (RenameMode::Exchange, None) => return Err(Errno::ENOENT.into()),
            (_, Some(new)) if new.ino == old.ino => {
                return Ok(Step::Looked(ok(Answer::Removed { orphan: None }, None)));
            }
            _ => {}
        }
        self.may_delete(call.caller(), dir, parent, self.owner_of(old)?)?;
        match new {
            Some(new) => self.may_delete(call.caller(), dir, parent, self.owner_of(new)?)?,
            None => self.may_change_names(call.caller(), dir, parent)?,
        }
        let (parent, old, new) = (parent.clone(), old.clone(), new.cloned());
        match (mode, new) {
            (RenameMode::Exchange, Some(new)) => {
                self.exchange(call, dir, &parent, (name, old), (new_name, new))
            }
            (_, Some(new)) => match (old.kind == Kind::Directory, new.kind == Kind::Directory) {
                (true, false) => Err(Errno::ENOTDIR.into()),
                (false, true) => Err(Errno::EISDIR.into()),
                (true, true) => self.replace_dir(call, dir, &parent, (name, old), (new_name, new)),
                (false, false) => {
                    let replaced = self.file(new.ino)?.clone();
                    self.rename_file(call, dir, &parent, (name, old), new_name, Some(replaced))
                }
            },
            (_, None) if old.kind == Kind::Directory => {
                self.move_dir(call, Decision::new(), dir, &parent, (name, old), (new_name, None))
            }
            (_, None) => self.rename_file(call, dir, &parent, (name, old), new_name, None),
        }
    }

    fn rename_file(
        &mut self,
        call: &Call,
        dir: Ino,
        parent: &Dir,
        (name, old): (&Name, Entry),
        new_name: &Name,
        replaced: Option<Inode>,
    ) -> Result<Step, Stop> {
        let mut row = self.file(old.ino)?.clone();
        let now = self.time();
        let mut decision = Decision::new();
        decision.entry(dir, name, None);
        decision.entry(dir, new_name, Some(old));
        row.attr.ctime = now;
        decision.inode(row);
        let gone = replaced.is_some();
        decision.names_changed(dir, parent, if gone { -1 } else { 0 }, 0, now);
        let orphan = replaced.and_then(|r| self.drop_name(&mut decision, r, call, now));
        self.remember(&mut decision, call, Remembered::Removed { orphan });
        self.decide(decision);
        Ok(Step::Decided(ok(Answer::Removed { orphan }, None)))
    }

    pub(crate) fn readlink(&mut self, ino: Ino) -> Result<Step, Stop> {
        let row = self.file(ino)?;
        let target = row.target.clone().ok_or(Stop::Fail(Errno::EINVAL))?;
        Ok(Step::Looked(Outcome::Data { data: target }))
    }

    // ------------------------------------------------------------------ listing

    pub(crate) fn read_dir(&self, dir: Ino, after: u64, bytes: u32, plus: bool) -> Result<Step, Stop> {
        self.owned(dir)?;
        let (rows, mut eof) = self.state.entries_after(dir, after)?;
        let mut entries: Vec<DirEntry> = Vec::new();
        let mut keys = Vec::new();
        let mut missing = Vec::new();
        let mut room = i64::from(bytes);
        for (cookie, name, entry) in rows {
            // What shares a cookie with the last name must not be parted from it.
            let together = entries.last().is_some_and(|last| last.cookie == cookie);
            if (room <= 0 || entries.len() + missing.len() >= ENTRIES_PER_ANSWER) && !together {
                eof = false;
                break;
            }
            room -= name.as_bytes().len() as i64 + if plus { 160 } else { 32 };
            let found = match if plus { self.found(entry).map(Some) } else { Ok(None) } {
                Ok(found) => found,
                Err(Stop::Load(loads)) => {
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
            return Err(Stop::Load(missing));
        }
        if entries.is_empty() && !eof {
            // Nothing below what memory knows: the next page is needed.
            return Err(Stop::Load(vec![atoll_state::Load::Names { dir, from: self.state.known_to(dir) }]));
        }
        Ok(Step::Looked(Outcome::Ok { answer: Answer::Entries { entries, eof }, keys }))
    }

    // --------------------------------------------------------- repeated requests

    /// The answer to a request that was carried out before.
    pub(crate) fn again(&self, call: &Call, result: &Remembered) -> Result<Outcome, Stop> {
        Ok(match result {
            Remembered::Done => crate::path::done(),
            Remembered::Wrote { len, offset } => ok(Answer::Wrote { len: *len, offset: *offset }, None),
            Remembered::Removed { orphan } => ok(Answer::Removed { orphan: *orphan }, None),
            Remembered::Attr { ino } => match self.get_attr(*ino)? {
                Step::Looked(outcome) => outcome,
                _ => unreachable!("attributes are only looked at"),
            },
            Remembered::Ino { ino } => {
                if let Some(row) = self.state.inode(*ino)? {
                    let found = Found { attr: row.attr, attr_current: true };
                    return Ok(ok(Answer::Found { found }, None));
                }
                match self.state.dir(*ino)? {
                    Some(dir) => {
                        let attr = crate::path::dir_attr(*ino, dir);
                        let found = Found { attr, attr_current: dir.owned.is_some() };
                        ok(Answer::Found { found }, Some(dir.key))
                    }
                    // Its owner is another island: the name tells. Or it was made, and removed or
                    // moved by somebody else since.
                    None => match &call.request.op {
                        ClientOp::Fs { op: Op::Mkdir { dir, name, .. } } => {
                            match self.state.entry(*dir, name)?.filter(|entry| entry.ino == *ino) {
                                Some(entry) => {
                                    let (found, key) = self.found(entry)?;
                                    ok(Answer::Found { found }, key)
                                }
                                None => Outcome::Failed { errno: Errno::ESTALE },
                            }
                        }
                        _ => Outcome::Failed { errno: Errno::ESTALE },
                    },
                }
            }
        })
    }
}
