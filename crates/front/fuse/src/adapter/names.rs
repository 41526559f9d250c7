//! Requests about names: lookups, new and removed names, renames, and ids that the kernel forgets.

use super::{Core, Job, Shape};
use crate::abi::{self, Out, open};
use crate::places::Place;
use crate::request::Header;
use crate::settle::{self, Moved};
use atoll_core::{Ino, Name};
use atoll_posix::{Answer, Errno, Kind, NamedObject, Op, RenameMode, mode};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn lookup(dir: Ino, name: Name) -> Job {
    let shape = Shape::Looked(Place { dir, name: name.clone() });
    (Op::Lookup { dir, name }, Bytes::new(), shape)
}

/// The kernel forgets ids: pairs of an id and how many times.
pub(super) fn forget(core: &Core, pairs: impl Iterator<Item = (Ino, u64)>) {
    let gone: Vec<Ino> = pairs.filter(|&(ino, count)| core.lower(ino, count)).map(|(ino, _)| ino).collect();
    if !gone.is_empty() {
        core.files.forget(&gone);
    }
}

/// The pairs of a BATCH_FORGET.
pub(super) fn pairs(list: &[u8]) -> impl Iterator<Item = (Ino, u64)> {
    let number = |b: &[u8]| u64::from_ne_bytes(b.try_into().expect("half of sixteen bytes"));
    list.chunks_exact(16)
        .map(|pair| pair.split_at(8))
        .map(move |(ino, count)| (Ino(number(ino)), number(count)))
}

pub(super) fn symlink(dir: Ino, name: Name, target: &[u8]) -> Job {
    let (kind, target) = (Kind::Symlink, Bytes::copy_from_slice(target));
    let op = Op::Create { dir, name, kind, mode: 0o777, umask: 0, rdev: 0, exclusive: true, target };
    (op, Bytes::new(), Shape::New)
}

pub(super) fn mknod(dir: Ino, name: Name, st_mode: u32, umask: u32, rdev: u32) -> Result<Job, Errno> {
    // No type at all means a regular file.
    let format = if st_mode & !mode::ALL == 0 { Kind::Regular.format_bits() } else { st_mode };
    let kind = Kind::from_format_bits(format).filter(|k| *k != Kind::Directory).ok_or(Errno::EINVAL)?;
    let (mode, target) = (st_mode & mode::ALL, Bytes::new());
    let op = Op::Create { dir, name, kind, mode, umask, rdev, exclusive: true, target };
    Ok((op, Bytes::new(), Shape::New))
}

pub(super) fn mkdir(dir: Ino, name: Name, st_mode: u32, umask: u32) -> Job {
    let shape = Shape::Made(Place { dir, name: name.clone() });
    (Op::Mkdir { dir, name, mode: st_mode & mode::ALL, umask }, Bytes::new(), shape)
}

pub(super) fn rmdir(core: &Core, header: &Header, dir: Ino, name: Name) -> Job {
    let place = Place { dir, name: name.clone() };
    let meant = core.meant(header.pid, &place);
    (Op::Rmdir { dir, name, meant }, Bytes::new(), Shape::RemovedDir { place, meant })
}

pub(super) fn rename(core: &Core, header: &Header, flags: u32, [from, to]: [Place; 2]) -> Result<Job, Errno> {
    let mode = match flags {
        0 => RenameMode::Replace,
        1 => RenameMode::NoReplace,
        2 => RenameMode::Exchange,
        _ => return Err(Errno::EINVAL),
    };
    let [meant, new_meant] = [&from, &to].map(|place| core.meant(header.pid, place));
    // Else the kernel, which knows of nothing there, is told that it is taken.
    let new_meant = new_meant.filter(|_| mode != RenameMode::NoReplace);
    let (dir, name, new_dir, new_name) = (from.dir, from.name.clone(), to.dir, to.name.clone());
    let shape = Shape::Renamed { from, to, mode, meant: [meant, new_meant] };
    Ok((Op::Rename { dir, name, new_dir, new_name, mode, meant, new_meant }, Bytes::new(), shape))
}

pub(super) fn create(dir: Ino, name: Name, st_mode: u32, umask: u32, flags: u32) -> Job {
    let (kind, mode, target) = (Kind::Regular, st_mode & mode::ALL, Bytes::new());
    // Always exclusive: only the kernel can judge whether a file that is there may be
    // opened and truncated. ESTALE is its answer then, which makes it look again and do so.
    let op = Op::Create { dir, name, kind, mode, umask, rdev: 0, exclusive: true, target };
    (op, Bytes::new(), Shape::Created { flags, exclusive: flags & open::EXCLUSIVE != 0 })
}

pub(super) fn tmpfile(dir: Ino, st_mode: u32, umask: u32, flags: u32) -> Job {
    let op = Op::Tmpfile { dir, mode: st_mode & mode::ALL, umask };
    (op, Bytes::new(), Shape::Created { flags, exclusive: true })
}

/// Answers that a name is absent, if that is known.
pub(super) fn is_absent(core: &Core, header: &Header, dir: Ino, name: &Name) -> bool {
    let lacks = || core.known.fresh.lacks(dir, name).then_some(());
    let tell = |(), kept| {
        core.kept_names.tell(dir, name, false);
        absent(core, header, &Place { dir, name: name.clone() }, kept);
    };
    !core.settling.is_busy() && core.answers_alone(dir, lacks, tell)
}

/// The volume is about to be asked for this, which may give a name.
pub(super) fn note(core: &Core, op: &Op) {
    match op {
        Op::Create { dir, name, .. }
        | Op::Mkdir { dir, name, .. }
        | Op::Link { dir, name, .. }
        | Op::Rename { new_dir: dir, new_name: name, .. } => core.known.fresh.names(*dir, name),
        _ => {}
    }
}

/// The names of which the kernel learns by the answer to this.
pub(super) fn learnt(op: &Op) -> [Option<Place>; 2] {
    let place = |dir: &Ino, name: &Name| Some(Place { dir: *dir, name: name.clone() });
    match op {
        Op::Lookup { dir, name }
        | Op::Create { dir, name, .. }
        | Op::Mkdir { dir, name, .. }
        | Op::Link { dir, name, .. } => [place(dir, name), None],
        Op::Rename { dir, name, new_dir, new_name, .. } => [place(dir, name), place(new_dir, new_name)],
        _ => [None, None],
    }
}

/// The volume is asked for an operation by which the kernel learns of these names. Of a rename it will keep the new names as long as it
/// would have kept the old ones. A recall that names a directory finds both now, and waits until the kernel has renamed, or has all names
/// go. Whether the kernel may keep a name that is moved.
pub(super) fn note_asked(core: &Core, op: &Op, places: &[Option<Place>; 2]) -> bool {
    let [Some(from), Some(to)] = places else { return false };
    let both = [from, to];
    let exchanges = matches!(op, Op::Rename { mode: RenameMode::Exchange, .. });
    let moved = both.into_iter().take(if exchanges { 2 } else { 1 });
    let is_kept = moved.into_iter().any(|place| core.kept_names.has(place.dir, &place.name));
    let is_dir = both.into_iter().any(|place| core.places.at(place).is_some());
    both.into_iter().for_each(|place| core.kept_names.may_be_renamed(place.dir, &place.name, is_dir));
    is_kept
}

/// The kernel is about to hear the answer to such an operation. `may_keep`: until it is recalled.
pub(super) fn note_answered(
    core: &Core,
    (places, was_kept): (&[Option<Place>; 2], bool),
    outcome: &Result<Answer, Errno>,
    may_keep: bool,
) {
    let is_dir = match outcome {
        Ok(Answer::Found { found }) => found.attr.kind == Kind::Directory,
        Ok(_) | Err(Errno::ENOENT) => false,
        Err(_) => return,
    };
    let mut places = places.iter().flatten();
    // Who has told any name of each directory that may be kept recalls the directory.
    let is_recalled = || was_kept && places.clone().all(|place| core.kept_names.has_any(place.dir));
    if may_keep || is_recalled() {
        places.for_each(|place| core.kept_names.tell(place.dir, &place.name, is_dir));
    } else if was_kept && outcome.is_ok() {
        // Nobody would, and the kernel would keep the name that was moved.
        core.device.drop_all_names();
    } else if is_dir && let Some(place) = places.next() {
        // It may be in the list as an absent name.
        core.kept_names.may_be_renamed(place.dir, &place.name, true);
    }
}

/// A lookup found nothing, which the kernel may keep for so long.
pub(super) fn absent(core: &Core, header: &Header, place: &Place, kept: Duration) {
    core.told.tell(header.pid, place.clone(), None);
    if kept.is_zero() {
        return core.fail(header, Errno::ENOENT);
    }
    let mut out = Out::with_capacity(abi::ENTRY_OUT);
    core.ok(header, &out.absent(kept).0);
}

/// A lookup found this.
pub(super) fn looked(core: &Arc<Core>, header: &Header, found: &NamedObject, place: Place, kept: Duration) {
    if found.attr.kind == Kind::Directory {
        core.told.tell(header.pid, place.clone(), Some(found.attr.ino));
        looked_dir(core, header, found, place, kept);
    } else {
        core.told.tell(header.pid, place, None);
        entry(core, header, found, kept);
    }
}

/// Answers a lookup that found a directory, when the kernel can put it to this place.
fn looked_dir(core: &Arc<Core>, header: &Header, found: &NamedObject, place: Place, kept: Duration) {
    let ino = found.attr.ino;
    // Before it is learnt, so that what is forgotten meanwhile does not take the place away.
    core.nodes.raise(ino);
    let Some(old) = core.places.learn(found, &place) else {
        return core.found(header, found, kept);
    };
    if core.lower(ino, 1) {
        // Forgotten just now: so it is nowhere.
        return core.found_dir(header, found, &place, kept);
    }
    let (mine, header, found, new) = (Arc::clone(core), *header, found.clone(), place.clone());
    // Nothing that may be kept: a recall does not wait for an answer that is put off.
    let answer = move || mine.found_dir(&header, &found, &place, Duration::ZERO);
    settle::answer(core, header.pid, Moved { ino, old, new }, Box::new(answer));
}

/// A name leads to this file.
pub(super) fn entry(core: &Core, header: &Header, found: &NamedObject, kept: Duration) {
    core.nodes.raise(found.attr.ino);
    core.found(header, found, kept);
}

/// A file was made, which is not open.
pub(super) fn new_entry(core: &Core, header: &Header, found: &NamedObject, kept: Duration) {
    core.nodes.raise_new(found.attr.ino);
    core.found(header, found, kept);
}

/// A directory was made.
pub(super) fn made(core: &Core, header: &Header, found: &NamedObject, place: &Place, kept: Duration) {
    core.told.tell(header.pid, place.clone(), Some(found.attr.ino));
    core.nodes.raise_new(found.attr.ino);
    let _ = core.places.learn(found, place);
    core.found(header, found, kept);
}

/// A file was made, which is counted already, and is open: by this handle, and as the flags say. False if the
/// kernel did not take the answer.
pub(super) fn created(
    core: &Core,
    header: &Header,
    found: &NamedObject,
    kept: Duration,
    (handle, open_flags, backing): (u64, u32, u32),
) -> bool {
    let mut out = Out::with_capacity(abi::SMALL_OUT);
    // Its maker needs them at once, to be let in. Nothing can be stored in an empty file through a mapping, and whatever makes it
    // longer first, by a write or a request, voids what is kept here.
    let is_new = found.attr.size == 0 && core.passed.is_open_once(found.attr.ino);
    let attr_kept = if is_new { kept } else { core.attr_kept(found.attr.ino, kept) };
    let generation = core.nodes.generation(found.attr.ino);
    out.entry(&found.attr, generation, kept, if found.attr_current { attr_kept } else { Duration::ZERO });
    out.open_out(handle, open_flags, backing);
    core.ok(header, &out.0)
}

/// The kernel did not take the answer that told it of these ids.
pub(crate) fn untold(core: &Core, inos: &[Ino]) {
    forget(core, inos.iter().map(|&ino| (ino, 1)));
}

impl Core {
    /// Tells the kernel of a name's id, which is counted already.
    fn found(&self, header: &Header, found: &NamedObject, kept: Duration) {
        let mut out = Out::with_capacity(abi::ENTRY_OUT);
        let attr = self.accesses.shown(&found.attr);
        let attr_kept = self.attr_kept(attr.ino, kept);
        let generation = self.nodes.generation(attr.ino);
        out.entry(&attr, generation, kept, if found.attr_current { attr_kept } else { Duration::ZERO });
        if !self.ok(header, &out.0) {
            untold(self, &[found.attr.ino]);
        }
    }

    /// Counts a directory, and tells the kernel of it at this place, wherever it had it before.
    fn found_dir(&self, header: &Header, found: &NamedObject, place: &Place, kept: Duration) {
        self.nodes.raise(found.attr.ino);
        let _ = self.places.learn(found, place);
        self.found(header, found, kept);
    }

    /// The directory that a thread means by a name, as far as it is known.
    fn meant(&self, thread: u32, place: &Place) -> Option<Ino> {
        self.told.take(thread, place).unwrap_or_else(|| self.places.at(place))
    }

    /// The kernel forgets an id so many times. True if it does not know it any more.
    fn lower(&self, ino: Ino, count: u64) -> bool {
        let gone = self.nodes.lower(ino, count);
        // Told of it again meanwhile, it has a place.
        if gone && !self.nodes.knows(ino) {
            self.known.forget(ino);
            self.places.forgotten(ino);
        }
        gone
    }
}
