//! Sets the old states aside and puts the new ones in place. After a power cut at any moment the volume is
//! the old one, or does not open, or is the new one.
//!
//! The order makes this so. All logs go first: an island with a state and no log does not open. The new logs
//! come last, when every tree agrees with its state.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use atoll_body::Bodies;
use atoll_core::{Decode, Ino, IslandId, Name};
use atoll_disk::{Disk, DiskFile, FileKind, OpenHow};
use atoll_log::{Identity, Log, Position, scan_segment};
use atoll_proto::{Dir, Entry, Inode, VolumeConfig, Xattrs};
use atoll_snapshot::Snapshot;
use atoll_state::RowKey;
use atoll_view::{INDEX, Source, TREE, View, Whole, Why, spill_path};

use crate::plan::Plan;
use crate::unite::FileAt;
use crate::{BODIES, Disks, LOG, Options, Progress, RebuildError, STATE, STATE_NEW, Summary, at};

/// Log position that a new state stands for: not 0, so that no island without a log opens as new.
pub(crate) const FIRST_SEQ: u64 = 1;
/// Incarnations that are passed over: more than a lost end of a log can have had.
const INCARNATIONS_PASSED_OVER: u32 = 1000;
/// Bytes of the snapshot that stay in memory while the view reads it.
const CACHE_BYTES: usize = 32 << 20;
/// Rows that are read at once.
const PAGE: usize = 4096;

/// An incarnation above every one that the old log shows, however damaged it is.
pub(crate) fn next_incarnation<D: Disk>(island: IslandId, disk: &D) -> Result<u32, RebuildError> {
    let mut highest = 0;
    let mut folders: Vec<Vec<u8>> = disk
        .list(b"")
        .map_err(at(island, b""))?
        .into_iter()
        .filter(|(name, kind)| *kind == FileKind::Directory && is_log(name))
        .map(|(name, _)| name)
        .collect();
    folders.sort();
    for folder in folders {
        for (name, kind) in disk.list(&folder).map_err(at(island, &folder))? {
            if kind != FileKind::Regular || !name.ends_with(b".log") {
                continue;
            }
            let path = [&folder[..], b"/", &name].concat();
            let file = disk.open(&path, OpenHow::Read).map_err(at(island, &path))?;
            let size = file.stat().map_err(at(island, &path))?.size;
            if size > atoll_log::SEGMENT_BYTES_MAX {
                continue; // Nothing that was written as a segment.
            }
            let mut bytes = vec![0; size as usize];
            let mut done = 0;
            // A segment that cannot be read to its end tells what it can.
            while let Ok(n @ 1..) = file.read_at(&mut bytes[done..], done as u64) {
                done += n;
            }
            let scanned = scan_segment(&bytes[..done], u32::MAX, |_, _| {});
            if let Some((header, end)) = scanned {
                highest = highest.max(header.predecessor.epoch).max(end.last.epoch);
            }
        }
    }
    Ok(highest.saturating_add(INCARNATIONS_PASSED_OVER))
}

/// Files and directories of each island that must be laid again.
type Touched = BTreeMap<IslandId, BTreeSet<Ino>>;

/// The folder of a log, or of one that was set aside.
fn is_log(name: &[u8]) -> bool {
    name == LOG || name.starts_with(&[LOG, b".old-"].concat())
}

pub(crate) fn switch<D: Disk>(
    volume: &VolumeConfig,
    disks: &Disks<D>,
    options: &Options,
    plan: &Plan,
    summary: &mut Summary,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), RebuildError> {
    let n = free_number(disks)?;
    summary.set_aside = n;
    for (&island, disk) in disks {
        set_aside(&**disk, LOG, n).and_then(|()| disk.sync_dir(b"")).map_err(at(island, LOG))?;
    }
    for (&island, disk) in disks {
        put_in_place(&**disk, n).map_err(at(island, STATE))?;
    }
    for (&island, disk) in disks {
        lay(volume, island, disk, options, None, summary)?;
        progress(Progress::Laid { island });
    }
    for (island, inos) in clear(disks, plan)? {
        lay(volume, island, &disks[&island], options, Some(&inos), summary)?;
    }
    for (&island, disk) in disks {
        let identity = Identity { volume: volume.id.0, island: island.0 };
        let snapshot = open(island, &**disk)?;
        let meta: atoll_state::state::Meta = row(&snapshot, &RowKey::Meta)
            .and_then(|meta| meta.ok_or_else(|| io::Error::other("it has no row of itself")))
            .map_err(at(island, STATE))?;
        let base = Position { epoch: meta.incarnation, seq: meta.seq };
        Log::create(Arc::clone(disk), LOG, options.log, identity, base)
            .map_err(|e| RebuildError::Log(island, e))?;
    }
    Ok(())
}

fn old_name(name: &[u8], n: u32) -> Vec<u8> {
    [name, format!(".old-{n}").as_bytes()].concat()
}

/// The first number that nothing was set aside with.
fn free_number<D: Disk>(disks: &Disks<D>) -> Result<u32, RebuildError> {
    let mut names = Vec::new();
    for (island, disk) in disks {
        names.extend(disk.list(b"").map_err(at(*island, b""))?.into_iter().map(|(name, _)| name));
    }
    let is_free = |n: &u32| [LOG, STATE, INDEX].iter().all(|name| !names.contains(&old_name(name, *n)));
    Ok((1..u32::MAX).find(is_free).expect("fewer files than numbers"))
}

fn set_aside<D: Disk>(disk: &D, name: &[u8], n: u32) -> io::Result<()> {
    match disk.rename(name, &old_name(name, n), false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn put_in_place<D: Disk>(disk: &D, n: u32) -> io::Result<()> {
    // Never a moment without a state: an island that has neither state nor log would open as new.
    match disk.link(STATE, &old_name(STATE, n)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    disk.sync_dir(b"")?;
    disk.rename(STATE_NEW, STATE, true)?;
    // The view takes the tree as it is, as after the loss of its index.
    set_aside(disk, INDEX, n)?;
    disk.sync_dir(b"")
}

fn open<D: Disk>(island: IslandId, disk: &D) -> Result<Snapshot, RebuildError> {
    Snapshot::open(disk, STATE, CACHE_BYTES).map_err(|e| RebuildError::Snapshot(island, e))
}

/// Makes the view's index, and the tree what the state says: it changes only what has moved. Or lays
/// only some files and directories again.
fn lay<D: Disk>(
    volume: &VolumeConfig,
    island: IslandId,
    disk: &Arc<D>,
    options: &Options,
    some: Option<&BTreeSet<Ino>>,
    summary: &mut Summary,
) -> Result<(), RebuildError> {
    let state = Stored { snapshot: open(island, &**disk)?, seed: volume.seed };
    let bodies = atoll_body::Options { root: options.root, ..Default::default() };
    let bodies = Bodies::open(Arc::clone(disk), BODIES, bodies).map_err(at(island, BODIES))?;
    let how = atoll_view::Options { island, root: options.root, devices: options.root && options.devices };
    let mut view = View::open(Arc::clone(disk), Arc::new(bodies), how).map_err(at(island, INDEX))?;
    let report = match some {
        None => view.lay_all(&state),
        Some(inos) => view.lay(&inos.iter().copied().collect::<Vec<_>>(), &[], &state),
    };
    let report = report.and_then(|report| view.settle().map(|()| report));
    let conflicts = report.map_err(at(island, TREE))?.conflicts;
    // What is kept beside the tree is laid as well as it can be.
    for conflict in conflicts.into_iter().filter(|conflict| !matches!(conflict.why, Why::Spilled(_))) {
        summary.not_laid.push(format!("island {island}: {:?}: {}", conflict.subject, conflict.why));
    }
    Ok(())
}

/// Removes native files from places where they do not belong any more; they are in their new places now.
/// Returns the files and directories of each island whose native times this has changed.
fn clear<D: Disk>(disks: &Disks<D>, plan: &Plan) -> Result<Touched, RebuildError> {
    let mut touched = Touched::new();
    let ids: HashMap<FileAt, Ino> = plan.files.iter().map(|file| (file.file, file.ino)).collect();
    for (file_at, dir, name) in &plan.left_names {
        let file = &plan.tree.files[*file_at];
        let path = plan.tree.native(*dir, name.as_bytes());
        let disk = &disks[&file.island];
        match disk.stat(&path) {
            // The view may have put something else there.
            Ok(stat) if stat.ino == file.stat.ino => {
                disk.unlink(&path).map_err(at(file.island, &path))?;
                let touched = touched.entry(file.island).or_default();
                touched.extend(ids.get(file_at));
                touched.extend(plan.dirs[*dir].id_at(file.island));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(at(file.island, &path)(error));
            }
            _ => {}
        }
    }
    for (file_at, body) in &plan.left_bodies {
        let island = plan.tree.files[*file_at].island;
        for path in [atoll_body::path_of(BODIES, *body), spill_path(*body, false)] {
            match disks[&island].unlink(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(at(island, &path)(error));
                }
                _ => touched.entry(island).or_default().extend(ids.get(file_at)),
            }
        }
    }
    // Directories have other ids now, under which what the native file system refuses of them was kept again.
    for seen in plan.tree.dirs.iter().flat_map(|node| &node.seen) {
        for path in seen.spilled.iter().map(|ino| spill_path(*ino, true)) {
            match disks[&seen.island].unlink(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(at(seen.island, &path)(error));
                }
                _ => {}
            }
        }
    }
    // From the bottom up. What still holds something stays.
    for (at_dir, dir) in plan.dirs.iter().enumerate().rev() {
        let node = &plan.tree.dirs[at_dir];
        for seen in node.seen.iter().filter(|seen| !dir.skeleton.contains(&seen.island)) {
            if disks[&seen.island].rmdir(&plan.tree.native(at_dir, b"")).is_ok() {
                touched.entry(seen.island).or_default().extend(plan.dirs[node.parent].id_at(seen.island));
            }
        }
    }
    for (island, disk) in disks {
        disk.sync_everything().map_err(at(*island, TREE))?;
    }
    Ok(touched)
}

fn row<T: Decode>(snapshot: &Snapshot, key: &RowKey) -> io::Result<Option<T>> {
    let bytes = snapshot.get(&key.to_bytes())?;
    bytes.map(|bytes| T::from_slice(&bytes)).transpose().map_err(io::Error::other)
}

/// A new state, as the view reads it.
struct Stored {
    snapshot: Snapshot,
    seed: u64,
}

impl Stored {
    /// All rows from one key up to another.
    fn rows(&self, from: Vec<u8>, to: Vec<u8>) -> impl Iterator<Item = io::Result<(RowKey, Vec<u8>)>> + '_ {
        let mut from = Some(from);
        let pages = std::iter::from_fn(move || {
            let start = from.take()?;
            let page = self.snapshot.range(&start, &to, PAGE);
            if let Ok(rows) = &page
                && rows.len() == PAGE
            {
                from = rows.last().map(|(last, _)| [&last[..], &[0]].concat());
            }
            Some(page)
        });
        pages.flat_map(|page| {
            let (rows, error) = match page {
                Ok(rows) => (rows, None),
                Err(error) => (Vec::new(), Some(Err(error.into()))),
            };
            let rows = rows.into_iter().map(|(key, row)| {
                let key = RowKey::from_bytes(&key).ok_or_else(|| io::Error::other("a key that is none"))?;
                Ok((key, row))
            });
            rows.chain(error)
        })
    }

    fn ids(&self, tag: u8) -> Box<dyn Iterator<Item = io::Result<Ino>> + '_> {
        Box::new(self.rows(vec![tag], vec![tag + 1]).map(|row| match row?.0 {
            RowKey::Inode(ino) | RowKey::Dir(ino) => Ok(ino),
            _ => Err(io::Error::other("a row of another kind")),
        }))
    }
}

impl Source for Stored {
    fn inode(&self, ino: Ino) -> io::Result<Option<Inode>> {
        row(&self.snapshot, &RowKey::Inode(ino))
    }

    fn dir(&self, ino: Ino) -> io::Result<Option<Dir>> {
        row(&self.snapshot, &RowKey::Dir(ino))
    }

    fn entry(&self, dir: Ino, name: &Name) -> io::Result<Option<Entry>> {
        let cookie = atoll_core::cookie_of(self.seed, name.as_bytes());
        row(&self.snapshot, &RowKey::Entry(dir, cookie, name.clone()))
    }

    fn xattrs(&self, ino: Ino) -> io::Result<Option<Xattrs>> {
        row(&self.snapshot, &RowKey::Xattrs(ino))
    }
}

impl Whole for Stored {
    fn inodes(&self) -> Box<dyn Iterator<Item = io::Result<Ino>> + '_> {
        self.ids(b'i')
    }

    fn dirs(&self) -> Box<dyn Iterator<Item = io::Result<Ino>> + '_> {
        self.ids(b'd')
    }

    fn names(&self, dir: Ino) -> Box<dyn Iterator<Item = io::Result<(Name, Entry)>> + '_> {
        let from = RowKey::entries_from(dir, 0);
        let to = [&RowKey::entries_from(dir, u64::MAX)[..], &[0xff; 2]].concat();
        Box::new(self.rows(from, to).map(|row| match row? {
            (RowKey::Entry(_, _, name), row) => {
                Ok((name, Entry::from_slice(&row).map_err(io::Error::other)?))
            }
            _ => Err(io::Error::other("a row of another kind")),
        }))
    }
}
