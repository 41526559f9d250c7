//! The new state's rows, written into a fresh snapshot beside the old one. Touches nothing else.

use atoll_core::cookie_of;
use atoll_core::{Encode, Ino, IslandId, Name, Stamp, Time};
use atoll_disk::{Disk, FileKind, OpenHow, Stat};
use atoll_posix::acl::{ACCESS_XATTR, DEFAULT_XATTR};
use atoll_posix::{Attr, Kind};
use atoll_proto::{
    Dir, DirPlace, Entry, Inode, KnownToOthers, OwnedDir, PlaceVersion, StaticAttrs, Stub, VolumeConfig,
    Xattrs,
};
use atoll_snapshot::Snapshot;
use atoll_state::RowKey;
use atoll_state::state::Meta;

use crate::plan::{FilePlan, Plan};
use crate::read::sums_of;
use crate::switch::FIRST_SEQ;
use crate::unite::{DirAt, Seen};
use crate::{BODIES, Disks, Progress, RebuildError, STATE_NEW, Summary, at};

/// Bytes of rows that are committed at once.
const BATCH_BYTES: usize = 8 << 20;
/// Bytes of the snapshot that stay in memory meanwhile.
const CACHE_BYTES: usize = 32 << 20;
/// The version of everything that was never changed since: whatever comes is newer.
const VERSION: Stamp = Stamp(0);

/// Writes the rows of all islands.
pub(crate) fn write<D: Disk>(
    volume: &VolumeConfig,
    disks: &Disks<D>,
    plan: &Plan,
    summary: &mut Summary,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), RebuildError> {
    let mut files_done = 0;
    for (&island, disk) in disks {
        let snapshot =
            Snapshot::open(&**disk, STATE_NEW, CACHE_BYTES).map_err(|e| RebuildError::Snapshot(island, e))?;
        let mut out = Rows { island, snapshot, batch: Vec::new(), bytes: 0, time: Time::default() };
        for dir in 0..plan.dirs.len() {
            if plan.dirs[dir].skeleton.binary_search(&island).is_ok() {
                directory(volume, plan, dir, &mut out)?;
            }
        }
        for file in plan.files.iter().filter(|file| file.home == island) {
            out.file(&**disk, plan, file, summary)?;
            files_done += 1;
            let (of_files, bytes) = (plan.files.len() as u64, summary.bytes);
            progress(Progress::Read { files: files_done, of_files, bytes });
        }
        let incarnation = crate::switch::next_incarnation(island, &**disk)?;
        let meta = Meta {
            seq: FIRST_SEQ,
            mint_limit: plan.mint_limits[&island],
            incarnation,
            // As after a power cut: what was not in the plain trees is lost.
            power: incarnation,
            stamp: Stamp::default(),
            clean: true,
            time: out.time,
            ..Meta::default()
        };
        out.put(&RowKey::Meta, &meta)?;
        out.commit()?;
    }
    Ok(())
}

fn directory(volume: &VolumeConfig, plan: &Plan, at: DirAt, out: &mut Rows) -> Result<(), RebuildError> {
    let (node, dir) = (&plan.tree.dirs[at], &plan.dirs[at]);
    let seen = attributes(plan, at);
    let island = out.island;
    let owns = dir.owner == island;
    let is_here = |below: &DirAt| plan.dirs[*below].skeleton.binary_search(&island).is_ok();
    let subdirs = || node.children.iter().filter_map(|(name, child)| Some((name, child.dir?)));
    let below = subdirs().filter(|(_, below)| is_here(below)).count() as u32;
    let names = &plan.names[at];
    let at_home = |file: usize| plan.files[file].home == island;
    let homes = names.iter().filter(|(_, file)| !owns && at_home(*file)).count() as u32;
    let subdir_count = subdirs().count();
    let owned = seen.map_or_else(OwnedDir::none, |seen| OwnedDir::of(&seen.stat));
    let xattrs =
        if owns { all_xattrs(plan, at) } else { seen.map_or_else(Xattrs::default, |s| s.xattrs.acls()) };
    let row = Dir {
        key: dir.key,
        birth_bytes: if dir.key == node.hash.key() { node.hash.bytes() } else { 0 },
        place: place(plan, at),
        fixed: fixed(plan, at),
        has_xattrs: !xattrs.0.is_empty(),
        has_acl: has(&xattrs, ACCESS_XATTR) || has(&xattrs, DEFAULT_XATTR),
        children: below,
        foreign_names: homes,
        owned: owns.then(|| OwnedDir {
            entries: (names.len() + subdir_count) as u64,
            subdirs: subdir_count as u32,
            others: KnownToOthers {
                has_pointers: names.iter().any(|(_, file)| !at_home(*file)),
                ..owned.others
            },
            ..owned
        }),
        beside: None,
    };
    if let Some(owned) = &row.owned {
        out.time = out.time.max(owned.ctime);
    }
    out.put(&RowKey::Dir(dir.ino), &row)?;
    if row.has_xattrs {
        out.put(&RowKey::Xattrs(dir.ino), &xattrs)?;
    }
    let entry = |name: &Name| RowKey::Entry(dir.ino, cookie_of(volume.seed, name.as_bytes()), name.clone());
    // Where a directory is not owned, the names of what is below are kept for walking only.
    for (name, child) in subdirs().filter(|(_, child)| owns || is_here(child)) {
        let time = attributes(plan, child).map_or(Time::default(), |seen| time(seen.stat.mtime));
        let below = &plan.dirs[child];
        let stub = Stub { key: below.key, place: PlaceVersion::default(), fixed: fixed(plan, child), time };
        let stub = owns.then(|| Box::new(stub));
        let row = Entry { ino: below.ino, kind: Kind::Directory, home: island, stub };
        out.put(&entry(name), &row)?;
    }
    // Files of here have their names here too, whoever owns the directory.
    for (name, file) in names.iter().filter(|(_, file)| owns || at_home(*file)) {
        let file = &plan.files[*file];
        let kind = kind_of(plan.tree.files[file.file].stat.kind);
        out.put(&entry(name), &Entry { ino: file.ino, kind, home: file.home, stub: None })?;
    }
    Ok(())
}

/// Where a directory's attributes are taken from: its owner's tree, else where they changed last.
fn attributes(plan: &Plan, at: DirAt) -> Option<&Seen> {
    let (seen, owner) = (&plan.tree.dirs[at].seen, plan.dirs[at].owner);
    seen.iter().max_by_key(|seen| (seen.island == owner, seen.stat.ctime))
}

/// Extended attributes of a directory at its owner. Only the island that owned it before has laid others than ACLs.
fn all_xattrs(plan: &Plan, at: DirAt) -> Xattrs {
    let (seen, owner) = (&plan.tree.dirs[at].seen, plan.dirs[at].owner);
    let others = seen.iter().filter(|seen| !seen.xattrs.has_only_acls());
    let others = others.max_by_key(|seen| (seen.island == owner, seen.stat.ctime));
    match (attributes(plan, at), others) {
        (Some(seen), Some(others)) => others.xattrs.with_acls_of(&seen.xattrs),
        (Some(seen), None) => seen.xattrs.clone(),
        (None, _) => Xattrs::default(),
    }
}

fn fixed(plan: &Plan, at: DirAt) -> StaticAttrs {
    let stat = attributes(plan, at).map(|seen| &seen.stat);
    stat.map_or(StaticAttrs { version: VERSION, mode: 0o755, uid: 0, gid: 0 }, |stat| StaticAttrs {
        version: VERSION,
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
    })
}

fn place(plan: &Plan, at: DirAt) -> DirPlace {
    let node = &plan.tree.dirs[at];
    DirPlace { version: PlaceVersion::default(), parent: plan.dirs[node.parent].ino, name: node.name.clone() }
}

fn has(xattrs: &Xattrs, name: &[u8]) -> bool {
    xattrs.get(name).is_some()
}

const fn time((secs, nanos): (i64, u32)) -> Time {
    Time { secs, nanos }
}

/// Native objects do not tell when they were made through the disk: the earliest that is known.
fn born(stat: &Stat) -> Time {
    time(stat.mtime.min(stat.ctime))
}

trait FromStat {
    fn of(stat: &Stat) -> Self;
    fn none() -> Self;
}

impl FromStat for OwnedDir {
    fn of(stat: &Stat) -> Self {
        Self {
            atime: time(stat.atime),
            mtime: time(stat.mtime),
            ctime: time(stat.ctime),
            btime: born(stat),
            ..Self::none()
        }
    }

    fn none() -> Self {
        Self::empty(Time::default())
    }
}

const fn kind_of(kind: FileKind) -> Kind {
    match kind {
        FileKind::Regular => Kind::Regular,
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::CharDevice => Kind::CharDevice,
        FileKind::BlockDevice => Kind::BlockDevice,
    }
}

/// Rows on their way into an island's snapshot.
struct Rows {
    island: IslandId,
    snapshot: Snapshot,
    batch: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    bytes: usize,
    /// The greatest time of a change among them.
    time: Time,
}

impl Rows {
    fn put(&mut self, key: &RowKey, row: &impl Encode) -> Result<(), RebuildError> {
        let (key, row) = (key.to_bytes(), row.to_vec());
        self.bytes += key.len() + row.len();
        self.batch.push((key, Some(row)));
        if self.bytes >= BATCH_BYTES { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<(), RebuildError> {
        self.bytes = 0;
        let rows = std::mem::take(&mut self.batch);
        self.snapshot.commit(rows).map_err(|e| RebuildError::Snapshot(self.island, e))
    }

    fn file<D: Disk>(
        &mut self,
        disk: &D,
        plan: &Plan,
        file: &FilePlan,
        summary: &mut Summary,
    ) -> Result<(), RebuildError> {
        let node = &plan.tree.files[file.file];
        let stat = &node.stat;
        let kind = kind_of(stat.kind);
        if kind == Kind::Regular {
            self.sums(disk, file.ino, stat.size)?;
            summary.bytes += stat.size;
        }
        let rdev = if matches!(kind, Kind::CharDevice | Kind::BlockDevice) { stat.rdev } else { 0 };
        let attr = Attr {
            ino: file.ino,
            kind,
            mode: stat.mode,
            nlink: file.nlink,
            uid: stat.uid,
            gid: stat.gid,
            rdev,
            size: if matches!(kind, Kind::Regular | Kind::Symlink) { stat.size } else { 0 },
            blocks: stat.blocks,
            atime: time(stat.atime),
            mtime: time(stat.mtime),
            ctime: time(stat.ctime),
            btime: born(stat),
        };
        let row = Inode {
            attr,
            target: node.target.clone(),
            has_xattrs: !node.xattrs.0.is_empty(),
            has_acl: has(&node.xattrs, ACCESS_XATTR),
            moves: 0,
            orphan_of: Vec::new(),
            beside: None,
            is_absent: false,
        };
        self.time = self.time.max(attr.ctime);
        self.put(&RowKey::Inode(file.ino), &row)?;
        if row.has_xattrs {
            self.put(&RowKey::Xattrs(file.ino), &node.xattrs)?;
        }
        Ok(())
    }

    fn sums<D: Disk>(&mut self, disk: &D, ino: Ino, size: u64) -> Result<(), RebuildError> {
        let path = atoll_body::path_of(BODIES, ino);
        let open = disk.open(&path, OpenHow::Read).map_err(at(self.island, &path))?;
        let mut failed = None;
        let whole = sums_of(&open, size, |chunk, sums| {
            if failed.is_none() {
                failed = self.put(&RowKey::Sums(ino, chunk), &sums).err();
            }
        })
        .map_err(at(self.island, &path))?;
        match failed {
            Some(error) => Err(error),
            None if !whole => Err(RebuildError::Changed { island: self.island, path }),
            None => Ok(()),
        }
    }
}
