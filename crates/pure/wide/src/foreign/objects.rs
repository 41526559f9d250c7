//! The rows of directories and files that change, and of what this machine keeps of them. Owns what is set in each.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{AttrState, DirHead, FileId, FileState};
use atoll_core::planted::{Bug, planted};
use atoll_core::{Encode, Ino, Name, Stamp};
use atoll_posix::acl::Acl;
use atoll_posix::xattr::Namespace;
use atoll_posix::{Attr, Kind};
use atoll_proto::{Dir, DirPlace, Entry, Inode, OwnedDir, PlaceVersion, Record, StaticAttrs, Stub, Xattrs};
use atoll_shown::{DirGroup, Objects, places};
use bytes::Bytes;

use super::affected::{Affected, depth};
use super::bodies::{NewBodies, NewBody, is_behind, latest, latest_bytes, mtime, of_equal, of_new, of_state};
use super::draft::RowDraft;
use super::judge::Judged;
use super::names::{Leads, ShownNames};
use super::numbers::Numbers;
use super::{Here, HereBodies, Mint};
use crate::contents::pieces::no_rows;
use crate::held::{HeldDir, HeldFile, HeldObjects, SiteRows};
use crate::rows::{
    BEHIND, BehindRow, BesideRow, COPIES, CopiesRow, DIRS, DirBeside, DirRow, FILES, FeedPlace, FeedRow,
    FileBeside, FileBytes, FileRow, KeptBody, MOVES, MoveRow, TrashCause, fed, set, stamp_key,
};

/// The twelve permission bits. Another site may say more.
const MODE_BITS: u32 = 0o7777;

/// See the module.
pub(super) struct Writing<'a> {
    pub(super) here: Here<'a>,
    pub(super) rows: &'a SiteRows<'a>,
    pub(super) before: &'a HeldObjects<'a>,
    pub(super) after: &'a HeldObjects<'a>,
    pub(super) judged: &'a Judged<'a>,
    pub(super) affected: &'a Affected,
    pub(super) numbers: &'a Numbers<'a>,
    pub(super) draft: RowDraft<'a>,
    /// Numbers of files that are shown here and were not.
    files: BTreeMap<FileId, Ino>,
    /// Files that had a number and have none any more.
    hidden: BTreeSet<FileId>,
    /// Bodies that files take over from others with the same bytes: by the files, and from which.
    taken: BTreeMap<FileId, Ino>,
    heirs: BTreeMap<Ino, FileId>,
    /// Copies that conflicts have made and that come with this record, by the files of which they are.
    copies: BTreeMap<FileId, BTreeSet<FileId>>,
    /// What is new in bodies.
    bodies: &'a NewBodies,
    /// Files in whose bodies somebody is.
    busy: &'a BTreeSet<Ino>,
    /// Files that are shown as one.
    together: Vec<Vec<FileId>>,
    /// Bodies that go rest, if they take at most so many bytes.
    pub(super) rest: Option<u64>,
    /// A file that goes and has bytes that no version has, or one that may have some: its body, and the files on whose account it goes.
    pub(super) unversioned: Option<(Ino, BTreeSet<FileId>)>,
}

impl<'a> Writing<'a> {
    pub(super) fn new(
        here: Here<'a>,
        rows: &'a SiteRows<'a>,
        (before, after): (&'a HeldObjects<'a>, &'a HeldObjects<'a>),
        judged: &'a Judged<'a>,
        affected: &'a Affected,
        numbers: &'a Numbers<'a>,
        HereBodies { new: bodies, busy, rest }: HereBodies<'a>,
    ) -> Self {
        Self {
            here,
            rows,
            before,
            after,
            judged,
            affected,
            numbers,
            draft: RowDraft::new(rows, here.now),
            files: BTreeMap::new(),
            hidden: BTreeSet::new(),
            taken: BTreeMap::new(),
            heirs: BTreeMap::new(),
            copies: BTreeMap::new(),
            bodies,
            busy,
            together: Vec::new(),
            rest,
            unversioned: None,
        }
    }

    /// All rows.
    pub(super) fn write(&mut self, mint: &mut Mint<'_>) {
        let mut groups: Vec<&DirGroup> = self.numbers.groups.values().collect();
        groups.sort_by_key(|group| depth(self.after, group.first()));
        groups.into_iter().for_each(|group| self.dir(group));
        self.numbers.gone.iter().for_each(|number| self.draft.drop_dir(*number));
        let was = |group: &DirGroup| self.rows.dir(group.first())?.number;
        let was = ShownNames::of(self.before, self.affected, was);
        let is = ShownNames::of(self.after, self.affected, |group| self.numbers.of(group));
        self.inherit(&was, &is);
        self.entries(&was, &is, mint);
        let number = |id: &FileId| self.rows.file(*id)?.ino;
        self.unversioned = is.together.iter().find_map(|files| {
            let ino = files.iter().filter_map(number).find(|ino| self.busy.contains(ino))?;
            Some((ino, files.iter().copied().collect()))
        });
        self.together = is.together;
        let changed = self.judged.changes.files.keys();
        let files = changed.chain(&was.files).chain(&is.files).chain(self.bodies.keys());
        let files: BTreeSet<FileId> = files.copied().collect();
        files.into_iter().for_each(|id| self.file(id));
        self.dir_rows();
        self.near();
        self.copies();
        self.feed();
        self.settled();
    }

    /// The record, and the numbers of files that are new.
    pub(super) fn finish(self) -> (Record, Vec<Ino>) {
        (self.draft.finish(), self.files.into_values().collect())
    }

    // -------------------------------------------------------------- directories

    /// The row of directories that are shown as one.
    fn dir(&mut self, group: &DirGroup) {
        let first = group.first();
        let (Some(number), Some(head)) = (self.numbers.of(group), self.after.dir(first)) else { return };
        let held = self.rows.dir(first);
        let is_new = self.numbers.new.contains(&number);
        let is_first = held.as_ref().is_some_and(|dir| dir.is_first && dir.number == Some(number));
        let is_changed = self.judged.is_changed(FeedRow::Dir { id: first });
        if let Some((parent, name)) = self.after.place(first) {
            let above = DirGroup::of(self.after, parent).and_then(|above| self.numbers.of(&above));
            let Some(above) = above else { return };
            if is_new {
                let Some(row) = self.new_dir(above, &name, &head) else { return };
                self.draft.make_dir(number, row);
            } else {
                self.draft.move_dir(number, above, &name);
            }
        }
        if !is_changed && is_first {
            return;
        }
        let had = held.as_ref().filter(|_| is_first).map(|dir| &dir.head.attrs);
        let beside = self
            .dir_at(first, held.as_deref())
            .map(|at| DirBeside { id: first, head: head.clone().into_owned(), at }.into_bytes());
        let now = self.here.now;
        let Some(row) = self.draft.dir(number) else { return };
        if had != Some(&head.attrs) {
            row.fixed = fixed(row.fixed.version, &head.attrs);
            if let Some(owned) = &mut row.owned {
                owned.ctime = owned.ctime.max(now);
                if is_new || had.is_some_and(|had| had.mtime != head.attrs.mtime) {
                    owned.mtime = head.attrs.mtime.value;
                }
            }
        }
        row.beside = beside;
        let had_xattrs = row.has_xattrs;
        let flags = self.draft.set_xattrs(number, had_xattrs, xattrs(&head.attrs, Kind::Directory));
        if let Some(row) = self.draft.dir(number) {
            (row.has_xattrs, row.has_acl) = flags;
        }
    }

    /// The row of a directory that is made here, without names.
    fn new_dir(&mut self, parent: Ino, name: &Name, head: &DirHead) -> Option<Dir> {
        let above = self.draft.dir(parent)?.key;
        let version = PlaceVersion::default();
        Some(Dir {
            key: self.rows.key_below(above, name),
            birth_bytes: 0,
            place: DirPlace { version, parent, name: Some(name.clone()) },
            fixed: fixed(Stamp::default(), &head.attrs),
            has_xattrs: false,
            has_acl: false,
            children: 0,
            foreign_names: 0,
            owned: Some(OwnedDir::empty(self.here.now)),
            beside: None,
        })
    }

    /// Where each directory is that may be shown elsewhere, or has changed.
    fn dir_rows(&mut self) {
        let members = self.numbers.groups.values().flat_map(|group| group.members());
        let dirs: BTreeSet<FileId> = members.chain(&self.affected.dirs).copied().collect();
        for id in dirs.into_iter().filter(|id| *id != FileId::ROOT) {
            let Some(head) = self.after.dir(id) else { continue };
            let held = self.rows.dir(id);
            let known = held.as_ref().and_then(|dir| dir.base.clone());
            let base = known.or_else(|| self.here.spine.base(id).cloned());
            let base = base.or_else(|| self.judged.base(id).cloned());
            let (Some(base), Some(at)) = (base, self.dir_at(id, held.as_deref())) else { continue };
            let group = DirGroup::of(self.after, id);
            let number = group.as_ref().and_then(|group| self.numbers.of(group));
            let is_first = group.is_some_and(|group| group.first() == id);
            let row = match number.filter(|_| is_first) {
                Some(ino) => DirRow::Shown { ino, base },
                None => DirRow::Hidden { head: Box::new(head.into_owned()), base, at, within: number },
            };
            if held.as_deref().and_then(dir_row) != Some(row.clone()) {
                self.draft.sides.push(set(DIRS, id.0, &row));
            }
        }
    }

    fn dir_at(&self, id: FileId, held: Option<&HeldDir>) -> Option<FeedPlace> {
        self.feed_place(FeedRow::Dir { id }).or_else(|| held?.at)
    }

    // ------------------------------------------------------------------ entries

    fn entries(&mut self, was: &ShownNames, is: &ShownNames, mint: &mut Mint<'_>) {
        let names: BTreeSet<&(Ino, Name)> = was.entries.keys().chain(is.entries.keys()).collect();
        for at in names {
            let (dir, name) = at;
            let is_new = self.numbers.new.contains(dir);
            let have = if is_new { None } else { self.rows.entry(*dir, name) };
            let want = is.entries.get(at).and_then(|leads| self.wanted(*leads, have, mint));
            let is_same = was.entries.get(at) == is.entries.get(at);
            if have != want.as_ref() {
                self.draft.set_entry(*dir, name, have, want, is_same);
            }
        }
    }

    fn wanted(&mut self, leads: Leads, have: Option<&Entry>, mint: &mut Mint<'_>) -> Option<Entry> {
        let home = self.here.island;
        match leads {
            Leads::Dir(first) => {
                let number = DirGroup::of(self.after, first).and_then(|group| self.numbers.of(&group))?;
                let row = self.draft.dir(number)?;
                let had = have.filter(|entry| entry.ino == number).and_then(|entry| entry.stub.as_ref());
                let time = had.map_or(self.here.now, |stub| stub.time);
                let stub = Stub { key: row.key, place: row.place.version, fixed: row.fixed, time };
                Some(Entry { ino: number, kind: Kind::Directory, home, stub: Some(Box::new(stub)) })
            }
            Leads::File(id) => {
                let kind = self.after.file(id)?.birth.kind;
                let ino = match self.body_of(id) {
                    Some(ino) => ino,
                    None => *self.files.entry(id).or_insert_with(|| mint.next()),
                };
                Some(Entry { ino, kind, home, stub: None })
            }
        }
    }

    // -------------------------------------------------------------------- files

    /// Whether another file gets this body of a file, which gets no other one for it.
    fn is_given(&self, ino: Ino, of: FileId) -> bool {
        let to_another = |(id, body): (&FileId, &NewBody)| *id != of && body.ino == Some(ino);
        let has_new = self.bodies.get(&of).is_some_and(|body| body.ino.is_some());
        !has_new && !self.taken.contains_key(&of) && self.bodies.iter().any(to_another)
    }

    /// The body that a file has from here on; none if it has none yet.
    fn body_of(&self, id: FileId) -> Option<Ino> {
        let new = self.bodies.get(&id).and_then(|body| body.ino);
        let new = new.or_else(|| self.taken.get(&id).copied());
        new.or_else(|| self.files.get(&id).copied()).or_else(|| self.rows.file(id)?.body)
    }

    /// The first of files that are shown as one, if it has no bytes here, gets the body of another of them that is shown no more: they have
    /// the same bytes, and somebody may be about to write there.
    fn inherit(&mut self, was: &ShownNames, is: &ShownNames) {
        for files in &is.together {
            let Some((heir, others)) = files.split_first() else { continue };
            let Some(state) = self.after.file(*heir) else { continue };
            let lacks = |file: &HeldFile| !file.bytes.is_uncut && of_state(&file.bytes, &state).has.is_none();
            let has_none = self.rows.file(*heir).is_none_or(|file| file.body.is_none() || lacks(&file));
            if !has_none || self.bodies.contains_key(heir) || self.taken.contains_key(heir) {
                continue;
            }
            let from = others.iter().find_map(|other| {
                let is_given = |ino: Ino| self.bodies.values().any(|body| body.ino == Some(ino));
                let is_free = |ino: &Ino| !self.heirs.contains_key(ino) && !is_given(*ino);
                let ino = self.leaves(*other, was, is).filter(is_free)?;
                let has = self.rows.file(*other)?.bytes.has?;
                let is_equal = latest(&state).is_some_and(|(_, version)| has.is_equal(&version));
                (is_equal && self.rows.inode(ino)?.attr.kind == state.birth.kind).then_some((*other, ino))
            });
            if let Some((other, ino)) = from {
                self.taken.insert(*heir, ino);
                self.heirs.insert(ino, other);
            }
        }
    }

    /// The body of a file that has no name any more.
    fn leaves(&self, id: FileId, was: &ShownNames, is: &ShownNames) -> Option<Ino> {
        let held = self.rows.file(id)?;
        let ino = held.body?;
        let leads = Leads::File(id);
        let names = was.entries.values().filter(|at| **at == leads).count();
        let are_all = self.rows.inode(ino)?.attr.nlink as usize == names;
        (are_all && is.entries.values().all(|at| *at != leads)).then_some(ino)
    }

    fn file(&mut self, id: FileId) {
        let Some(state) = self.after.file(id) else { return };
        let state = state.into_owned();
        let held = self.rows.file(id);
        let is_changed = self.judged.is_changed(FeedRow::File { id });
        let at = self.feed_place(FeedRow::File { id }).or_else(|| held.as_ref().map(|file| file.at));
        let Some(at) = at else { return };
        if let Some(of) = state.birth.copy_of.filter(|_| held.is_none() && !places(id, &state).is_empty()) {
            self.copies.entry(of).or_default().insert(id);
        }
        let new = self.bodies.get(&id);
        let had = held.as_ref().and_then(|file| file.body);
        if had.is_some_and(|ino| self.heirs.get(&ino) == Some(&id) || self.is_given(ino, id)) {
            // Another file has its body now.
            self.hidden.insert(id);
            let row = FileRow::Hidden { state: Box::new(state), at, kept: None };
            self.draft.sides.push(set(FILES, id.0, &row));
            return;
        }
        let Some(ino) = self.body_of(id) else {
            if is_changed {
                let row = FileRow::Hidden { state: Box::new(state), at, kept: None };
                self.draft.sides.push(set(FILES, id.0, &row));
            }
            return;
        };
        let by = self.draft.links(ino);
        let is_new = had != Some(ino);
        if !is_changed && by.is_none() && new.is_none() && !is_new {
            return;
        }
        let row = if had == Some(ino) || new.is_some() || self.heirs.contains_key(&ino) {
            self.rows.inode(ino).cloned()
        } else {
            Some(self.new_file(ino, &state))
        };
        let Some(mut row) = row else { return };
        let before = (row.attr, row.is_absent);
        let links = i64::from(row.attr.nlink) + by.unwrap_or(0);
        row.attr.nlink = u32::try_from(links).expect("links are counted");
        let bytes = match (new, self.heirs.get(&ino).and_then(|from| self.rows.file(*from))) {
            (Some(body), _) => body.bytes.clone(),
            // It is the later one of equal versions here, too.
            (None, Some(from)) => FileBytes { has: of_equal(&from.bytes, &state), ..from.bytes.clone() },
            (None, None) => match &held {
                // Somebody writes there: they are gathered elsewhere.
                Some(file) if self.busy.contains(&ino) => file.bytes.clone(),
                Some(file) if had.is_some() => of_state(&file.bytes, &state),
                _ => of_new(&state),
            },
        };
        if row.attr.nlink == 0 {
            let was_shown = held.as_ref().is_some_and(|file| file.ino.is_some());
            return self.hide(id, state, at, row, bytes, was_shown);
        }
        if let Some(old) = held.as_ref().and_then(|file| file.ino).filter(|old| *old != ino) {
            // It is the same file to users.
            let Some(old) = self.rows.inode(old) else { return };
            (row.attr.atime, row.attr.btime) = (old.attr.atime, old.attr.btime);
        }
        let attrs = &state.attrs;
        row.attr.mode = attrs.mode.value & MODE_BITS;
        (row.attr.uid, row.attr.gid) = (attrs.uid.value, attrs.gid.value);
        let is_latest = !bytes.is_uncut && !is_behind(&state, &bytes);
        let is_set = held.as_ref().is_some_and(|file| file.state.attrs.mtime != attrs.mtime);
        if is_set || is_latest && is_changed || new.is_some() && is_latest {
            row.attr.mtime = mtime(&state);
        }
        if row.attr.kind == Kind::Regular && bytes.has.is_none() && !bytes.is_uncut {
            row.is_absent = true;
        } else if bytes.has.is_some() {
            row.is_absent = false;
        }
        let now = xattrs(attrs, row.attr.kind);
        (row.has_xattrs, row.has_acl) = self.draft.set_xattrs(ino, row.has_xattrs, now);
        // That a version was cut is no change to users.
        let has_other_attrs = held.as_ref().is_none_or(|file| file.state.attrs != *attrs);
        if is_new || by.is_some() || has_other_attrs || before != (row.attr, row.is_absent) {
            row.attr.ctime = row.attr.ctime.max(self.here.now);
        }
        if is_behind(&state, &bytes) {
            self.is_to_be_looked_at(id, latest_bytes(&state));
        }
        row.beside = Some(FileBeside { id, state, at, bytes }.into_bytes());
        self.draft.set_inode(row);
        if is_new || held.as_ref().is_some_and(|file| file.ino.is_none()) {
            self.draft.sides.push(set(FILES, id.0, &FileRow::Shown { ino }));
        }
        // Its old body goes, if no other file gets it.
        if let Some(old) = had.filter(|old| *old != ino)
            && !self.bodies.values().any(|body| body.ino == Some(old))
        {
            let (Some(held), Some(row)) = (&held, self.rows.inode(old)) else { return };
            self.draft.sides.extend(no_rows(old, held.bytes.has));
            if self.rests(row, &held.bytes) && !planted(Bug::ReplacedGoes) {
                let by = self.after.file(id).and_then(|state| latest(&state)).map(|(dot, _)| dot.writer);
                let by = by.expect("a version has replaced it");
                self.rest(id, row.clone(), held.bytes.has, (TrashCause::Replaced {}, by));
            } else {
                self.draft.drop_file(old);
            }
        }
    }

    /// A file is shown nowhere. If it is not dead, it keeps what is in its body: it may be shown again, and nobody else may have that. What
    /// is kept of a file that dies goes later, since this may be with the record of a user, which removes nothing else.
    fn hide(
        &mut self,
        id: FileId,
        state: FileState,
        at: FeedPlace,
        mut row: Inode,
        bytes: FileBytes,
        was_shown: bool,
    ) {
        let ino = row.attr.ino;
        let is_dead = places(id, &state).is_empty();
        let has_more = bytes.is_uncut || self.busy.contains(&ino);
        if has_more && self.unversioned.is_none() {
            let others = self.together.iter().filter(|files| files.contains(&id)).flatten();
            self.unversioned = Some((ino, others.copied().chain([id]).collect()));
        }
        self.hidden.insert(id);
        let has_some = match row.attr.kind {
            Kind::Regular => bytes.has.is_some(),
            // It has no bytes. If it dies before it is shown again, it is to rest.
            kind => kind == Kind::Symlink,
        };
        let is_kept = !was_shown || has_some && !is_dead;
        if let Some(grave) = state.grave.as_ref().filter(|_| is_dead && self.rests(&row, &bytes)) {
            self.draft.sides.extend(no_rows(ino, bytes.has));
            self.rest(id, row, bytes.has, (TrashCause::Removed {}, grave.stamp.writer));
            let row = FileRow::Hidden { state: Box::new(state), at, kept: None };
            self.draft.sides.push(set(FILES, id.0, &row));
            return;
        }
        if is_dead && !was_shown {
            self.is_to_be_looked_at(id, 0);
        } else if is_kept {
            row.beside = Some(BesideRow::Nameless { of: id }.to_vec().into());
            self.draft.set_inode(row);
        } else {
            self.draft.sides.extend(no_rows(ino, bytes.has));
            self.draft.drop_file(ino);
        }
        let kept = is_kept.then_some(KeptBody { ino, bytes });
        let row = FileRow::Hidden { state: Box::new(state), at, kept };
        self.draft.sides.push(set(FILES, id.0, &row));
    }

    /// Something is to be done for the bytes of a file, behind this record: its latest version has so many.
    fn is_to_be_looked_at(&mut self, id: FileId, bytes: u64) {
        let noted = self.rows.behind(id);
        let staged = noted.and_then(|BehindRow::Behind { staged, .. }| staged);
        let row = BehindRow::Behind { staged, bytes };
        if noted != Some(row) {
            self.draft.sides.push(set(BEHIND, id.0, &row));
        }
    }

    /// The row of a file that is shown here and was not, without its names.
    fn new_file(&self, ino: Ino, state: &FileState) -> Inode {
        let (kind, attrs, now) = (state.birth.kind, &state.attrs, self.here.now);
        let target = (kind == Kind::Symlink).then(|| state.birth.target.clone());
        let attr = Attr {
            ino,
            kind,
            mode: attrs.mode.value & MODE_BITS,
            nlink: 0,
            uid: attrs.uid.value,
            gid: attrs.gid.value,
            rdev: if matches!(kind, Kind::CharDevice | Kind::BlockDevice) { state.birth.rdev } else { 0 },
            size: target.as_ref().map_or(0, |target| target.len() as u64),
            blocks: 0,
            atime: attrs.mtime.value,
            mtime: attrs.mtime.value,
            ctime: now,
            btime: now,
        };
        let (has_xattrs, has_acl, moves, orphan_of, beside) = (false, false, 0, Vec::new(), None);
        Inode { attr, target, has_xattrs, has_acl, moves, orphan_of, beside, is_absent: false }
    }

    /// The number of a file here; none if it is hidden.
    pub(super) fn file_number(&self, id: FileId) -> Option<Ino> {
        if self.hidden.contains(&id) {
            return None;
        }
        self.body_of(id)
    }

    /// The names that an object has by its own word, if it is not dead.
    pub(super) fn names_of(&self, id: FileId) -> Vec<(FileId, Name)> {
        if let Some(state) = self.after.file(id) {
            return places(id, &state).into_iter().map(|place| (place.dir, place.name)).collect();
        }
        let is_dead = self.after.life(id) == atoll_shown::Life::Dead;
        self.after.place(id).filter(|_| !is_dead).into_iter().collect()
    }

    /// The rows of files of which there are more copies.
    fn copies(&mut self) {
        for (of, mut ids) in std::mem::take(&mut self.copies) {
            ids.extend(self.rows.copies(of));
            let row = CopiesRow::Copies { ids: ids.into_iter().collect() };
            self.draft.sides.push(set(COPIES, of.0, &row));
        }
    }

    // --------------------------------------------------------------------- feed

    /// The place in the feed of an object that changes.
    fn feed_place(&self, object: FeedRow) -> Option<FeedPlace> {
        let number = self.judged.changed.iter().position(|changed| *changed == object)?;
        Some(FeedPlace { position: self.here.position, number: number as u64 })
    }

    fn feed(&mut self) {
        for object in &self.judged.changed {
            let before = match object {
                FeedRow::File { id } => self.rows.file(*id).map(|file| file.at),
                FeedRow::Dir { id } => self.rows.dir(*id).and_then(|dir| dir.at),
                FeedRow::Move { .. } => unreachable!("moves are not among objects"),
            };
            let at = self.feed_place(*object).expect("it changes");
            self.draft.sides.extend(fed(before, at, *object));
        }
        for (record, number) in self.judged.moves.iter().zip(self.judged.changed.len() as u64..) {
            let (stamp, row) = (record.stamp(), MoveRow::Logged { record: record.clone() });
            let at = FeedPlace { position: self.here.position, number };
            self.draft.sides.extend(fed(None, at, FeedRow::Move { stamp }));
            self.draft.sides.push(set(MOVES, stamp_key(stamp), &row));
        }
    }
}

/// The row of a directory as it is.
fn dir_row(dir: &HeldDir) -> Option<DirRow> {
    let base = dir.base.clone()?;
    Some(match dir.number.filter(|_| dir.is_first) {
        Some(ino) => DirRow::Shown { ino, base },
        None => DirRow::Hidden { head: Box::new(dir.head.clone()), base, at: dir.at?, within: dir.number },
    })
}

const fn fixed(version: Stamp, attrs: &AttrState) -> StaticAttrs {
    let (mode, uid, gid) = (attrs.mode.value & MODE_BITS, attrs.uid.value, attrs.gid.value);
    StaticAttrs { version, mode, uid, gid }
}

/// The extended attributes that users see: of several values of one the highest. What an island would not store is left out.
fn xattrs(attrs: &AttrState, kind: Kind) -> Xattrs {
    let is_acl = |value: &[u8]| matches!(Acl::parse(value), Ok(Some(_)));
    let fits = |name: &[u8], value: &[u8]| match Namespace::of(name) {
        Ok(Namespace::AccessAcl) => is_acl(value),
        Ok(Namespace::DefaultAcl) => kind == Kind::Directory && is_acl(value),
        Ok(Namespace::Unknown) | Err(_) => false,
        Ok(_) => true,
    };
    let values = attrs.xattrs.iter().filter_map(|(name, values)| {
        let (_, value) = values.highest()?;
        let (name, value) = (name.as_bytes(), value.value.as_bytes());
        fits(name, value).then(|| (Bytes::copy_from_slice(name), value.clone()))
    });
    Xattrs(values.collect())
}
