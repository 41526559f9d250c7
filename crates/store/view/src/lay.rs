//! Laying a set of ids and names: the order in which everything happens.

use std::collections::BTreeSet;
use std::io;

use atoll_core::map::{IdMap, IdSet};
use atoll_core::{Ino, Name, Time};
use atoll_disk::{Disk, FileKind};
use atoll_posix::Kind;

use crate::attributes::Want;
use crate::files::{Prepared, Wanted};
use crate::index::{DirMark, FileMark};
use crate::{Conflict, REFUSED_MAX, Report, Source, Subject, View, Whole, Why, is_absent, is_fatal, join};

/// The data of one laying.
#[derive(Default)]
struct Work {
    files: IdMap<Ino, Prepared>,
    /// Names that are to be links: directory, name, id.
    links: Vec<(Ino, Name, Ino)>,
    /// Names that are to be none; true if the state has a directory there.
    removals: Vec<(Ino, Name, bool)>,
    /// Directories whose rows changed.
    dirs: IdSet<Ino>,
    /// Ids that are gone.
    gone: Vec<Ino>,
    /// Files whose bytes have come, and which are laid with the names that they had before.
    arrived: Vec<Ino>,
    /// Directories whose native times laying has changed.
    touched: IdSet<Ino>,
    /// Files whose native change time laying has changed.
    restat: IdSet<Ino>,
    report: Report,
}

impl<D: Disk> View<D> {
    /// Makes these ids and names what they are in `source` now. All effects that the records behind
    /// them have on bodies must be done, and the records synced.
    ///
    /// An error is one of the disk: everything may be laid again later. What concerns single objects
    /// is in the report.
    pub fn lay(&mut self, inos: &[Ino], names: &[(Ino, Name)], source: &dyn Source) -> io::Result<Report> {
        self.tried_before = std::mem::take(&mut self.again);
        self.tried_names = std::mem::take(&mut self.again_names);
        let inos: Vec<Ino> = inos.iter().chain(self.tried_before.keys()).copied().collect();
        let names: Vec<(Ino, Name)> = names.iter().chain(&self.tried_names).cloned().collect();
        // The body of a file may be that of a later record than those behind this list, as in a copy that catches up. The names that
        // its older objects still have come with the next list.
        let remade = std::mem::take(&mut self.remade);
        let laid = self.lay_these(&inos, &names, source);
        let all_came = laid.is_ok() && !source.is_part();
        if all_came { &mut self.remade_before } else { &mut self.remade }.extend(remade);
        laid
    }

    /// The same without what is to be laid again.
    fn lay_these(&mut self, inos: &[Ino], names: &[(Ino, Name)], source: &dyn Source) -> io::Result<Report> {
        let mut work = Work::default();
        for name in names {
            self.refused_names.remove(name);
        }
        self.sort_out(inos, names.iter().collect(), source, &mut work)?;
        let dirs: Vec<Ino> = work.dirs.iter().copied().collect();
        let mut moves = Vec::new();
        for ino in dirs {
            moves.extend(self.plan_dir(ino, source)?);
        }
        // From here on everything of ours is known to be ours after a crash.
        self.index.save()?;
        for (dir, name, is_dir) in std::mem::take(&mut work.removals) {
            let Work { touched, restat, report, .. } = &mut work;
            source.rest();
            let done = self.remove_name(dir, &name, is_dir, source, touched, restat, report);
            refused(done, Subject::Name(dir, name), report)?;
        }
        // What is listed is looked at now.
        self.again.retain(|ino, _| !work.dirs.contains(ino));
        self.move_dirs(moves, source, &mut work.touched, &mut work.report)?;
        for (dir, name, ino) in std::mem::take(&mut work.links) {
            let native = work.files[&ino].stat.ino;
            let Work { touched, restat, report, .. } = &mut work;
            let met = report.conflicts.len();
            let done = self.link_name(dir, &name, (ino, native), source, touched, restat, report);
            // It went with all that was in it; or is back since, with names that are listed again too.
            if report.conflicts.get(met).is_some_and(|c| c.why == Why::NoParent)
                && (source.dir(dir)?.is_none() || source.waits(dir))
            {
                report.conflicts.truncate(met);
            }
            refused(done, Subject::Name(dir, name), report)?;
        }
        self.finish_files(source, &mut work)?;
        self.finish_dirs(source, &mut work)?;
        self.refresh_spills()?;
        for ino in work.arrived {
            self.index.forget_absent(ino)?;
        }
        for conflict in &work.report.conflicts {
            if let Conflict { subject: Subject::Name(dir, name), why: Why::Refused(_) } = conflict
                && self.refused_names.len() < REFUSED_MAX
            {
                self.refused_names.insert((*dir, name.clone()));
            }
        }
        Ok(work.report)
    }

    /// Names that the native file system refused when they were laid last; 1,024 at most are remembered.
    pub fn refused(&self) -> &BTreeSet<(Ino, Name)> {
        &self.refused_names
    }

    /// Lays everything, and removes what is natively there of ours and in the state no more. For the
    /// first laying, after the index was lost, and on request.
    pub fn lay_all(&mut self, whole: &dyn Whole) -> io::Result<Report> {
        let (mut inos, mut gone) = (Vec::new(), Vec::new());
        let mut report = Report::default();
        for ino in self.index.all()? {
            if self.index.dir(ino)?.is_none() {
                if whole.inode(ino)?.is_none() {
                    gone.push(ino);
                }
                continue;
            }
            inos.push(ino);
            if whole.dir(ino)?.is_none() {
                // It can go when nothing is in it.
                let names: Vec<(Ino, Name)> = self.names_in(ino)?.map(|name| (ino, name)).collect();
                report.add(self.lay_these(&[], &names, whole)?);
            }
        }
        let dirs = whole.dirs().collect::<io::Result<Vec<Ino>>>()?;
        inos.extend(&dirs);
        report.add(self.lay_these(&inos, &[], whole)?);
        let mut files = Vec::new();
        for ino in whole.inodes() {
            let ino = ino?;
            // One that is listed although it has gone goes behind its names, as below.
            if whole.inode(ino)?.is_some() {
                files.push(ino);
            }
        }
        report.add(self.lay_these(&files, &[], whole)?);
        for dir in &dirs {
            let mut names: BTreeSet<Name> = BTreeSet::new();
            for name in whole.names(*dir) {
                names.insert(name?.0);
            }
            names.extend(self.names_in(*dir)?);
            let names: Vec<(Ino, Name)> = names.into_iter().map(|name| (*dir, name)).collect();
            report.add(self.lay_these(&[*dir], &names, whole)?);
        }
        // While a name leads to it, it must be known as ours. What had to be put off is tried again once: more would be in vain
        // while nothing is listed, and after some tries it would be given up.
        report.add(self.lay(&gone, &[], whole)?);
        self.index_was_lost = false;
        Ok(report)
    }

    /// What is there in a directory, but for other directories.
    fn names_in(&mut self, dir: Ino) -> io::Result<impl Iterator<Item = Name> + use<D>> {
        let there = match self.path(dir)? {
            Some(path) => self.disk.list(&path)?,
            None => Vec::new(),
        };
        let names = there.into_iter().filter(|(_, kind)| *kind != FileKind::Directory);
        Ok(names.filter_map(|(name, _)| Name::new(&name).ok()))
    }

    /// Sorts ids and names by what has to be done, and makes native objects that are missing.
    fn sort_out(
        &mut self,
        inos: &[Ino],
        names: BTreeSet<&(Ino, Name)>,
        source: &dyn Source,
        work: &mut Work,
    ) -> io::Result<()> {
        let mut files = IdSet::default();
        for &ino in inos {
            if source.dir(ino)?.is_some() || self.index.dir(ino)?.is_some() {
                work.dirs.insert(ino);
            } else {
                files.insert(ino);
            }
        }
        let mut waited = Vec::new();
        for &ino in &files {
            let before = self.index.absent(ino)?;
            if !before.is_empty() && source.inode(ino)?.is_none_or(|row| !row.is_absent) {
                waited.extend(before);
                work.arrived.push(ino);
            }
        }
        let mut wanted = IdSet::default();
        let mut names = names;
        names.extend(&waited);
        for (dir, name) in names {
            if !self.settled_once {
                // A power cut may have left the name as it is to be, and not the times that were set behind it.
                work.touched.insert(*dir);
            }
            match self.wanted(*dir, name, source)? {
                Wanted::File(ino) => {
                    source.lays(ino);
                    wanted.insert(ino);
                    work.links.push((*dir, name.clone(), ino));
                    self.want_dir(*dir, source, work)?;
                }
                Wanted::Directory(ino) => {
                    work.removals.push((*dir, name.clone(), true));
                    // It may have been kept out until now by a file that had the name.
                    if source.dir(ino)?.is_some() {
                        work.dirs.insert(ino);
                    }
                }
                Wanted::Nothing => work.removals.push((*dir, name.clone(), false)),
            }
        }
        let mut absent = IdSet::default();
        for ino in files.union(&wanted) {
            match source.inode(*ino)? {
                // A file of zeros, or of a part of its bytes, must not look like it.
                Some(row) if row.is_absent => drop(absent.insert(*ino)),
                Some(row) => {
                    source.rest();
                    if let Some(file) = self.prepare(*ino, row, wanted.contains(ino), &mut work.report)? {
                        work.files.insert(*ino, file);
                    }
                }
                None => work.gone.push(*ino),
            }
        }
        // Where no object can be linked, the one that had the name must not keep it.
        let mut waiting: IdMap<Ino, Vec<(Ino, Name)>> = IdMap::default();
        for (dir, name, ino) in std::mem::take(&mut work.links) {
            if work.files.contains_key(&ino) {
                work.links.push((dir, name, ino));
            } else {
                if absent.contains(&ino) {
                    waiting.entry(ino).or_default().push((dir, name.clone()));
                }
                work.removals.push((dir, name, false));
            }
        }
        waiting.into_iter().try_for_each(|(ino, names)| self.wait_for(ino, names, source))
    }

    /// Remembers names of an absent file: when its bytes are here, nobody else tells them.
    fn wait_for(&mut self, ino: Ino, more: Vec<(Ino, Name)>, source: &dyn Source) -> io::Result<()> {
        let mut names = self.index.absent(ino)?;
        let known: BTreeSet<&(Ino, Name)> = names.iter().collect();
        let more: Vec<_> = more.into_iter().filter(|at| !known.contains(at)).collect();
        if more.is_empty() {
            return Ok(());
        }
        let before = names.len();
        names.extend(more);
        // Those that it has lost go now and then, so that there are about as many as it has.
        if names.len().checked_ilog2() != before.checked_ilog2() {
            let all = std::mem::take(&mut names);
            for (dir, name) in all {
                if matches!(self.wanted(dir, &name, source)?, Wanted::File(of) if of == ino) {
                    names.push((dir, name));
                }
            }
        }
        self.index.set_absent(ino, &names);
        Ok(())
    }

    /// A directory in which a name will be laid, and all above it that are not there yet.
    fn want_dir(&mut self, mut dir: Ino, source: &dyn Source, work: &mut Work) -> io::Result<()> {
        while dir != Ino::ROOT && !work.dirs.contains(&dir) && self.locate(dir)?.is_none() {
            let Some(row) = source.dir(dir)? else { return Ok(()) };
            work.dirs.insert(dir);
            dir = row.place.parent;
        }
        Ok(())
    }

    fn finish_files(&mut self, source: &dyn Source, work: &mut Work) -> io::Result<()> {
        for (ino, file) in std::mem::take(&mut work.files) {
            work.restat.remove(&ino);
            match self.finish_file(&file, source, &mut work.report) {
                // Dropped since it was prepared: the record that did it is laid next.
                Err(error) if is_absent(&error) && source.inode(ino)?.is_none() => {}
                done => refused(done, Subject::Id(ino), &mut work.report)?,
            }
        }
        for ino in std::mem::take(&mut work.gone) {
            work.restat.remove(&ino);
            // What went while this is being laid may have names that are not taken away yet: while they
            // are there, its object must be known as ours.
            if !source.waits(ino) && !source.keeps(ino) {
                source.rest();
                self.remove_object(ino)?;
            }
        }
        for ino in std::mem::take(&mut work.restat) {
            // A name of it came or went; nothing else.
            if let (Some(mark), Some(stat)) = (self.index.file(ino)?, self.look(&self.bodies.path(ino))?)
                && mark.native == stat.ino
            {
                let now = FileMark::of(&stat, mark.state_ctime, mark.xattrs);
                self.index.set_file(ino, &FileMark { older: mark.older, ..now })?;
            }
        }
        Ok(())
    }

    fn finish_file(&mut self, file: &Prepared, source: &dyn Source, report: &mut Report) -> io::Result<()> {
        let attr = &file.row.attr;
        let xattrs = if file.row.has_xattrs { source.xattrs(file.ino)? } else { None };
        if let Some(mark) = &file.mark
            && self.settled_once
            && mark.state_ctime == attr.ctime
            && mark.differs(&file.stat)
            && !source.in_flux(file.ino)
        {
            report.conflict(Subject::Id(file.ino), Why::ChangedByHand);
        }
        let want = Want {
            kind: attr.kind,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            times: Some((attr.atime, attr.mtime)),
            xattrs: xattrs.as_ref(),
            // One that was never laid has none, as far as the index goes.
            had_xattrs: file.mark.as_ref().map_or(self.index_was_lost, |mark| mark.xattrs),
        };
        let may_have_xattrs = xattrs.is_some() || want.had_xattrs;
        let path = self.bodies.path(file.ino);
        let refused = self.lay_attributes(&path, &file.stat, want)?;
        if !refused.xattrs.0.is_empty() {
            report.conflict(Subject::Id(file.ino), Why::Spilled(refused.errno));
        }
        self.spill(file.ino, None, refused.xattrs)?;
        source.looks_at(file.ino);
        let stat = self.disk.stat(&path)?;
        let older = self.index.file(file.ino)?.map(|mark| mark.older).unwrap_or_default();
        // What is on its way is no change by hand: it is laid again, and then known.
        let state_ctime = if source.in_flux(file.ino) { Time::default() } else { attr.ctime };
        let now = FileMark::of(&stat, state_ctime, may_have_xattrs);
        self.index.set_file(file.ino, &FileMark { older, ..now })?;
        refused.other.map_or(Ok(()), Err)
    }

    fn finish_dirs(&mut self, source: &dyn Source, work: &mut Work) -> io::Result<()> {
        let changed = std::mem::take(&mut work.dirs);
        for ino in changed.union(&work.touched) {
            let done = self.finish_dir(*ino, changed.contains(ino), source, &mut work.report);
            refused(done, Subject::Id(*ino), &mut work.report)?;
        }
        Ok(())
    }

    fn finish_dir(
        &mut self,
        ino: Ino,
        changed: bool,
        source: &dyn Source,
        report: &mut Report,
    ) -> io::Result<()> {
        let (Some(row), Some(path)) = (source.dir(ino)?, self.path(ino)?) else { return Ok(()) };
        let Some(stat) = self.look(&path)?.filter(|stat| stat.kind == FileKind::Directory) else {
            return Ok(());
        };
        let mark = self.index.dir(ino)?;
        let had_xattrs = mark.as_ref().is_none_or(|mark| mark.xattrs);
        let xattrs = if row.has_xattrs { source.xattrs(ino)? } else { None };
        if changed
            && xattrs.is_some()
            && !had_xattrs
            && let Some(mark) = mark
        {
            // It got its first ones since it was planned: noted before they are there, or they would
            // stay when they are removed.
            self.index.set_dir(ino, &DirMark { xattrs: true, ..mark })?;
            self.index.save()?;
        }
        let times = row.owned.as_ref().map(|owned| (owned.atime, owned.mtime));
        let want = Want {
            kind: Kind::Directory,
            mode: row.fixed.mode,
            uid: row.fixed.uid,
            gid: row.fixed.gid,
            times,
            xattrs: xattrs.as_ref().filter(|_| changed),
            had_xattrs: changed && had_xattrs,
        };
        let refused = self.lay_attributes(&path, &stat, want)?;
        if changed {
            if !refused.xattrs.0.is_empty() {
                report.conflict(Subject::Id(ino), Why::Spilled(refused.errno));
            }
            self.spill(ino, Some(&path), refused.xattrs)?;
        }
        refused.other.map_or(Ok(()), Err)
    }
}

/// Puts a refusal that concerns one object into the report; other errors end the laying.
fn refused(done: io::Result<()>, subject: Subject, report: &mut Report) -> io::Result<()> {
    match done {
        Err(error) if !is_fatal(&error) => {
            report.conflict(subject, Why::Refused(error.raw_os_error().unwrap_or_default()));
            Ok(())
        }
        done => done,
    }
}

/// The path of a name in a directory with this path.
pub(crate) fn name_path(dir: &[u8], name: &Name) -> Vec<u8> {
    join(dir, name.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use atoll_body::Bodies;
    use atoll_core::IslandId;
    use atoll_disk::sim::SimDisk;
    use atoll_proto::{Dir, Entry, Inode, Xattrs};

    use super::*;
    use crate::Options;

    /// Only names in the root.
    #[derive(Default)]
    struct Names(RefCell<IdMap<Ino, Vec<Name>>>);

    impl Source for Names {
        fn inode(&self, _: Ino) -> io::Result<Option<Inode>> {
            Ok(None)
        }
        fn dir(&self, _: Ino) -> io::Result<Option<Dir>> {
            Ok(None)
        }
        fn entry(&self, _: Ino, name: &Name) -> io::Result<Option<Entry>> {
            let names = self.0.borrow();
            let leads_to = names.iter().find(|(_, names)| names.contains(name)).map(|(ino, _)| *ino);
            Ok(leads_to.map(|ino| Entry { ino, kind: Kind::Regular, home: IslandId(0), stub: None }))
        }
        fn xattrs(&self, _: Ino) -> io::Result<Option<Xattrs>> {
            Ok(None)
        }
    }

    #[test]
    fn of_an_absent_file_that_is_renamed_all_the_time_few_names_are_remembered() {
        let disk = Arc::new(SimDisk::new(1));
        let bodies = Bodies::open(Arc::clone(&disk), b"bodies", atoll_body::Options::default());
        let options = Options { island: IslandId(0), root: false, devices: false };
        let mut view = View::open(disk, Arc::new(bodies.expect("it opens")), options).expect("it opens");
        let (ino, source) = (Ino(77), Names::default());
        let named = |n: u32| Name::new(n.to_string().as_bytes()).expect("it is a name");
        for n in 0..1_000 {
            // It has three names, and each goes after a while.
            let has: Vec<Name> = (n..n + 3).map(named).collect();
            let at: Vec<(Ino, Name)> = has.iter().map(|name| (Ino::ROOT, name.clone())).collect();
            source.0.borrow_mut().insert(ino, has);
            view.wait_for(ino, at.clone(), &source).expect("it is remembered");
            let known = view.index.absent(ino).expect("it is read");
            assert!(known.len() <= 8, "{} names", known.len());
            assert!(at.iter().all(|at| known.contains(at)));
        }
    }
}
