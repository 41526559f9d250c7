//! Names: lookups, new and removed names, renames, listings, and names for files that are removed while they
//! are known.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use atoll_core::{Ino, Name};
use atoll_posix::{Answer, Caller, DirEntry, Errno, Kind, NamedObject, Op, RenameMode, SetAttr, SetTime};
use nfs3_types::nfs3::*;

use crate::attrs;
use crate::files::{NfsFiles, locked};
use crate::table::{Silly, is_silly_name};

/// How long a removal of a directory waits until the silly names in it have gone.
const SWEEP_WITHIN: Duration = Duration::from_secs(5);

/// Pages of a listing that may have nothing for the frontend, one after another.
const EMPTY_PAGES_MAX: usize = 10_000;

/// Who uses a file that is about to lose a name.
enum Use {
    /// Somebody has it open.
    By(Ino),
    /// Nobody, and nobody opens it meanwhile.
    None(Ino),
    /// Nothing is asked or known.
    Unknown,
}

impl NfsFiles {
    pub(crate) fn lookup(&self, caller: &Caller, dir: Ino, name: &[u8]) -> Result<Answer, Errno> {
        self.look(caller, dir, name).map(|found| Answer::Found { found })
    }

    fn look(&self, caller: &Caller, dir: Ino, name: &[u8]) -> Result<NamedObject, Errno> {
        let args = LOOKUP3args { what: self.place(dir, name)? };
        let told = self.ask(|| self.client.lookup(caller, &args))?;
        let found = self.found(caller, told.object, told.obj_attributes)?;
        if let Ok(name) = Name::new(name) {
            locked(&self.table).note_name(dir, &name, found.attr.ino);
        }
        Ok(found)
    }

    /// What was made under a name. The server need not say.
    fn made(
        &self,
        caller: &Caller,
        (dir, name): (Ino, &Name),
        handle: post_op_fh3,
        attributes: post_op_attr,
    ) -> Result<NamedObject, Errno> {
        let made = match handle {
            Nfs3Option::Some(handle) => self.found(caller, handle, attributes),
            Nfs3Option::None => self.look(caller, dir, name.as_bytes()),
        };
        if let Ok(made) = &made {
            locked(&self.table).note_name(dir, name, made.attr.ino);
        }
        made.map_err(|why| match why {
            // It is not there any more, and nobody can say what it was like. Told ESTALE or ENOENT, Linux would make it once more, or
            // take it for not made.
            Errno::ENOENT | Errno::ESTALE => Errno::EIO,
            other => other,
        })
    }

    pub(crate) fn mkdir(&self, caller: &Caller, dir: Ino, name: &Name, mode: u32) -> Result<Answer, Errno> {
        let args =
            MKDIR3args { where_: self.place(dir, name.as_bytes())?, attributes: attrs::with_mode(mode) };
        let told = self.ask(|| self.client.mkdir(caller, &args))?;
        let found = self.made(caller, (dir, name), told.obj, told.obj_attributes)?;
        Ok(Answer::Found { found })
    }

    pub(crate) fn create(&self, caller: &Caller, op: &Op) -> Result<Answer, Errno> {
        let Op::Create { dir, name, kind, mode, umask, rdev, exclusive, target } = op else {
            return Err(Errno::EINVAL);
        };
        let at = (*dir, name);
        let attributes = attrs::with_mode(mode & !umask);
        let where_ = self.place(*dir, name.as_bytes())?;
        let device = || devicedata3 { dev_attributes: attributes.clone(), spec: attrs::nfs_device(*rdev) };
        let what = match kind {
            Kind::Regular => return self.create_file(caller, at, where_, mode & !umask, *exclusive),
            Kind::Directory => return Err(Errno::EINVAL),
            Kind::Symlink => {
                let symlink =
                    symlinkdata3 { symlink_attributes: attributes, symlink_data: target[..].into() };
                let args = SYMLINK3args { where_, symlink };
                let told = self.ask(|| self.client.symlink(caller, &args))?;
                let found = self.made(caller, at, told.obj, told.obj_attributes)?;
                return Ok(Answer::Found { found });
            }
            Kind::Fifo => mknoddata3::NF3FIFO(attributes),
            Kind::Socket => mknoddata3::NF3SOCK(attributes),
            Kind::CharDevice => mknoddata3::NF3CHR(device()),
            Kind::BlockDevice => mknoddata3::NF3BLK(device()),
        };
        let args = MKNOD3args { where_, what };
        let told = self.ask(|| self.client.mknod(caller, &args))?;
        let found = self.made(caller, at, told.obj, told.obj_attributes)?;
        Ok(Answer::Found { found })
    }

    fn create_file(
        &self,
        caller: &Caller,
        at: (Ino, &Name),
        where_: diropargs3<'_>,
        mode: u32,
        exclusive: bool,
    ) -> Result<Answer, Errno> {
        let by_verifier = exclusive && self.ways.exclusive;
        let how = match exclusive {
            true if by_verifier => createhow3::EXCLUSIVE(verifier()),
            true => createhow3::GUARDED(attrs::with_mode(mode)),
            false => createhow3::UNCHECKED(attrs::with_mode(mode)),
        };
        let args = CREATE3args { where_, how };
        let told = self.ask(|| self.client.create(caller, &args))?;
        let mut found = self.made(caller, at, told.obj, told.obj_attributes)?;
        if by_verifier {
            // The verifier is kept in some of its attributes.
            let now = Some(SetTime::Now);
            let set = SetAttr { mode: Some(mode), atime: now, mtime: now, ..SetAttr::default() };
            let args = SETATTR3args {
                object: self.handle(found.attr.ino)?,
                new_attributes: attrs::set(&set),
                guard: Nfs3Option::None,
            };
            let set =
                self.ask(|| self.client.setattr(caller, &args)).and_then(|told| match told.obj_wcc.after {
                    Nfs3Option::Some(after) => Ok(self.attr(&after)),
                    Nfs3Option::None => Ok(self.attr(&self.getattr(caller, &args.object)?)),
                });
            match set {
                Ok(attr) => found.attr = attr,
                // Somebody has removed it since. It was made all the same: told ESTALE, Linux would make it once more.
                Err(Errno::ESTALE) => found.attr.mode = mode,
                Err(why) => return Err(why),
            }
        }
        locked(&self.table).set_made(found.attr);
        Ok(Answer::Found { found })
    }

    /// This answer if the directory that the frontend believes to be gone by it is gone. See [`Ways::meant`](crate::Ways::meant).
    pub(crate) fn was_meant(&self, meant: Option<Ino>, done: Answer) -> Result<Answer, Errno> {
        let Some(ino) = meant.filter(|_| self.ways.meant) else { return Ok(done) };
        match self.handle(ino).and_then(|handle| self.getattr(&Caller::ROOT, &handle)) {
            Ok(there) if there.type_ == ftype3::NF3DIR => Err(Errno::EIO),
            _ => Ok(done),
        }
    }

    pub(crate) fn link(&self, caller: &Caller, ino: Ino, dir: Ino, name: &Name) -> Result<Answer, Errno> {
        let args = LINK3args { file: self.handle(ino)?, link: self.place(dir, name.as_bytes())? };
        let told = self.ask(|| self.client.link(caller, &args))?;
        Ok(Answer::Found { found: self.found(caller, args.file, told.file_attributes)? })
    }

    /// The file of this name is about to lose it: whether somebody may go on to use it then. If nobody does, nobody opens it until
    /// [`NfsFiles::ended`].
    fn used(&self, caller: &Caller, dir: Ino, name: &Name) -> Use {
        if !self.ways.silly {
            return Use::Unknown;
        }
        // The frontend goes by what it was told of the name, and may use nothing else.
        let mut table = locked(&self.table);
        if let Some(ino) = table.named(dir, name)
            && table.begin_removal(ino)
        {
            return Use::None(ino);
        }
        drop(table);
        let told = self.place(dir, name.as_bytes()).and_then(|what| {
            let args = LOOKUP3args { what };
            self.ask(|| self.client.lookup(caller, &args))
        });
        let Ok(LOOKUP3resok { obj_attributes: Nfs3Option::Some(of), .. }) = told else { return Use::Unknown };
        let mut table = locked(&self.table);
        let ino = table.ino(of.fileid);
        if of.nlink == 1 && of.type_ != ftype3::NF3DIR && table.uses(ino) {
            Use::By(ino)
        } else if of.type_ != ftype3::NF3DIR && table.begin_removal(ino) {
            Use::None(ino)
        } else {
            Use::Unknown
        }
    }

    /// What [`NfsFiles::used`] was asked for has been done, or not.
    fn ended(&self, of: &Use) {
        if let Use::None(ino) = of {
            locked(&self.table).end_removal(*ino);
            self.swept.notify_all();
        }
    }

    pub(crate) fn unlink(&self, caller: &Caller, dir: Ino, name: &Name) -> Result<Answer, Errno> {
        let used = self.used(caller, dir, name);
        if let Use::By(ino) = used {
            let silly = locked(&self.table).silly_name(ino);
            let args = RENAME3args {
                from: self.place(dir, name.as_bytes())?,
                to: self.place(dir, silly.as_bytes())?,
            };
            self.ask(|| self.client.rename(caller, &args))?;
            let silly = Silly { dir, name: silly, caller: caller.clone() };
            locked(&self.table).set_silly(ino, silly);
            return Ok(Answer::Removed { orphan: Some(ino) });
        }
        locked(&self.table).forget_name(dir, name);
        let removed = self.place(dir, name.as_bytes()).and_then(|object| {
            let args = REMOVE3args { object };
            self.ask(|| self.client.remove(caller, &args))
        });
        self.ended(&used);
        removed.map(|_| Answer::Removed { orphan: None })
    }

    /// Nobody uses a removed file any more: it goes.
    pub(crate) fn sweep(&self, ino: Ino, silly: &Silly) {
        locked(&self.unstable).take(ino);
        let removed = self.place(silly.dir, silly.name.as_bytes()).and_then(|object| {
            let args = REMOVE3args { object };
            self.ask(|| self.client.remove(&silly.caller, &args))
        });
        // Root may always, if it is root there: the caller may have lost the right since.
        if removed.is_err_and(|why| why == Errno::EACCES || why == Errno::EPERM)
            && let Ok(object) = self.place(silly.dir, silly.name.as_bytes())
        {
            let args = REMOVE3args { object };
            if let Err(why) = self.ask(|| self.client.remove(&Caller::ROOT, &args)) {
                eprintln!("atoll-lab-nfs: {:?} stays: {why}", silly.name);
            }
        }
        locked(&self.table).end_silly(ino);
        self.swept.notify_all();
    }

    /// Tries what a directory with silly names in it refuses again when they have gone.
    fn when_swept<T>(
        &self,
        dir: Option<Ino>,
        mut call: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let until = Instant::now() + SWEEP_WITHIN;
        loop {
            // Before the call: a name that goes meanwhile must not be missed.
            let waits = dir.is_some_and(|dir| locked(&self.table).has_silly_in(dir));
            match call() {
                Err(Errno::ENOTEMPTY | Errno::EEXIST) if waits && Instant::now() < until => {
                    let table = locked(&self.table);
                    let wait = self.swept.wait_timeout(table, Duration::from_millis(20));
                    drop(wait.unwrap_or_else(PoisonError::into_inner));
                }
                outcome => return outcome,
            }
        }
    }

    pub(crate) fn rmdir(&self, caller: &Caller, dir: Ino, name: &Name) -> Result<Answer, Errno> {
        let args = RMDIR3args { object: self.place(dir, name.as_bytes())? };
        let call = || self.ask(|| self.client.rmdir(caller, &args));
        match call() {
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {
                let removed = self.look(caller, dir, name.as_bytes()).ok().map(|found| found.attr.ino);
                self.when_swept(removed, call)?;
            }
            outcome => _ = outcome?,
        }
        Ok(Answer::Done)
    }

    pub(crate) fn rename(
        &self,
        caller: &Caller,
        (dir, name): (Ino, &Name),
        (new_dir, new_name): (Ino, &Name),
        mode: RenameMode,
    ) -> Result<Answer, Errno> {
        // As Linux's client: programs then do without.
        if mode != RenameMode::Replace {
            return Err(Errno::EINVAL);
        }
        let args = RENAME3args {
            from: self.place(dir, name.as_bytes())?,
            to: self.place(new_dir, new_name.as_bytes())?,
        };
        // A second name keeps it, and unlike a rename leaves the name always there.
        let used = self.used(caller, new_dir, new_name);
        let replaced = if let Use::By(ino) = used { Some(ino) } else { None };
        let kept = replaced.and_then(|ino| {
            let silly = locked(&self.table).silly_name(ino);
            let file = self.handle(ino).ok()?;
            let link = LINK3args { file, link: self.place(new_dir, silly.as_bytes()).ok()? };
            self.ask(|| self.client.link(caller, &link)).ok()?;
            Some((ino, Silly { dir: new_dir, name: silly, caller: caller.clone() }))
        });
        let call = || self.ask(|| self.client.rename(caller, &args));
        {
            let mut table = locked(&self.table);
            table.forget_name(dir, name);
            table.forget_name(new_dir, new_name);
        }
        let mut outcome = call();
        if matches!(outcome, Err(Errno::ENOTEMPTY | Errno::EEXIST)) {
            let replaced = self.look(caller, new_dir, new_name.as_bytes()).ok().map(|found| found.attr.ino);
            outcome = self.when_swept(replaced, call);
        }
        self.ended(&used);
        let Some((ino, silly)) = kept else {
            return outcome.map(|_| Answer::Removed { orphan: None });
        };
        // Both names may be of one file: then a rename does nothing.
        let replaced = outcome.is_ok()
            && self.look(caller, new_dir, new_name.as_bytes()).map_or(true, |found| found.attr.ino != ino);
        if replaced {
            locked(&self.table).set_silly(ino, silly);
            return Ok(Answer::Removed { orphan: Some(ino) });
        }
        self.sweep(ino, &silly);
        outcome.map(|_| Answer::Removed { orphan: None })
    }

    pub(crate) fn read_dir(
        &self,
        caller: &Caller,
        dir: Ino,
        after: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<Answer, Errno> {
        let handle = self.handle(dir)?;
        let mut after = after;
        for _ in 0..EMPTY_PAGES_MAX {
            let verifier =
                if after == 0 { cookieverf3::default() } else { locked(&self.table).verifier(dir) };
            let maxcount = bytes.clamp(4096, self.limits.list_bytes);
            let args = READDIRPLUS3args {
                dir: handle.clone(),
                cookie: after,
                cookieverf: verifier,
                dircount: maxcount,
                maxcount,
            };
            let told = self.ask(|| self.client.readdirplus(caller, &args))?;
            locked(&self.table).set_verifier(dir, told.cookieverf);
            let (listed, eof) = (told.reply.entries.into_inner(), told.reply.eof);
            let Some(last) = listed.last().map(|entry| entry.cookie) else {
                // Neither names nor the end.
                return if eof { Ok(Answer::Entries { entries: Vec::new(), eof }) } else { Err(Errno::EIO) };
            };
            let mut entries = Vec::with_capacity(listed.len());
            for entry in listed {
                if !matches!(entry.name.as_ref(), b"." | b"..") && !is_silly_name(entry.name.as_ref()) {
                    entries.extend(self.entry(caller, dir, entry, plus)?);
                }
            }
            if eof || !entries.is_empty() {
                return Ok(Answer::Entries { entries, eof });
            }
            after = last;
        }
        Err(Errno::EIO)
    }

    /// A name of a listing; none if it has gone since.
    fn entry(
        &self,
        caller: &Caller,
        dir: Ino,
        of: entryplus3<'_>,
        plus: bool,
    ) -> Result<Option<DirEntry>, Errno> {
        let name = Name::new(of.name.as_ref()).map_err(|_| Errno::EIO)?;
        let (found, attr) = match (of.name_attributes, of.name_handle) {
            (Nfs3Option::Some(told), Nfs3Option::Some(handle)) if plus => {
                let found = self.found(caller, handle, Nfs3Option::Some(told))?;
                (Some(found.clone()), found.attr)
            }
            (Nfs3Option::Some(told), _) => (None, self.attr(&told)),
            // Its type is needed. The server may leave it out, as for names on which something is mounted.
            _ => match self.look(caller, dir, name.as_bytes()) {
                Ok(found) => (None, found.attr),
                Err(Errno::ENOENT) => return Ok(None),
                Err(why) => return Err(why),
            },
        };
        Ok(Some(DirEntry { name, ino: attr.ino, kind: attr.kind, cookie: of.cookie, found }))
    }
}

/// A verifier that no other create has.
fn verifier() -> createverf3 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let unique = (since.as_nanos() as u64) ^ NEXT.fetch_add(1, Ordering::Relaxed).rotate_left(48);
    createverf3(unique.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
}
