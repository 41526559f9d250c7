//! A rebuild that ends at any of its effects, by process death or power cut, and is run again.

mod folder;

use std::collections::{BTreeMap, BTreeSet};

use atoll_check::{Rows, Volume as Checked, check, paths};
use atoll_core::{Ino, IslandId, Key};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_disk::{Disk, DiskFile, FileKind, OpenHow};
use atoll_log::{Identity, Log, Position};
use atoll_proto::Xattrs;
use atoll_rebuild::{Options, Summary, rebuild};
use atoll_snapshot::Snapshot;
use atoll_view::{Spilled, spill_path};
use folder::{ISLANDS, config, folder};

const LOG: atoll_log::Config = atoll_log::Config {
    segment_bytes: 64 << 10,
    record_bytes_max: 4 << 10,
    buffer_bytes_max: 64 << 10,
    keep_bytes: 0,
    boot: 0,
};

fn run(disk: &SimDisk) -> Result<Summary, atoll_rebuild::RebuildError> {
    let islands = (0..ISLANDS).map(|i| (IslandId(i), folder(disk, i))).collect();
    let options = Options { root: true, devices: true, log: LOG };
    rebuild(&config(), &islands, &options, &mut |_| {})
}

fn write(disk: &SimDisk, path: &str, content: &[u8]) {
    disk.open(path.as_bytes(), OpenHow::Create { mode: 0o644 }).unwrap().write_at(content, 0).unwrap();
}

fn mkdir(disk: &SimDisk, path: &str) {
    disk.mkdir(path.as_bytes(), 0o755).unwrap();
}

/// A volume at rest, into whose trees hands have reached since.
fn world(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    mkdir(&disk, "0");
    mkdir(&disk, "1");
    let owner = config().table.owner(Key(0)).0;
    let other = 1 - owner;
    for (island, names) in [(owner, ["a", "b"]), (other, ["c", "d"])] {
        mkdir(&disk, &format!("{island}/tree"));
        for name in names {
            mkdir(&disk, &format!("{island}/tree/{name}"));
            write(&disk, &format!("{island}/tree/{name}/file"), name.as_bytes());
            disk.link(
                format!("{island}/tree/{name}/file").as_bytes(),
                format!("{island}/tree/{name}/second").as_bytes(),
            )
            .unwrap();
        }
    }
    run(&disk).unwrap();
    // Misplaced: one that has a body, with all its names, one that has none, one of several names.
    disk.mkdir(format!("{other}/tree/a").as_bytes(), 0o700).unwrap();
    disk.mkdir(format!("{other}/tree/b").as_bytes(), 0o700).unwrap();
    write(&disk, &format!("{other}/tree/a/stray"), b"stray");
    for name in ["file", "second"] {
        disk.rename(
            format!("{other}/tree/c/{name}").as_bytes(),
            format!("{other}/tree/{name}").as_bytes(),
            false,
        )
        .unwrap();
    }
    disk.link(format!("{other}/tree/d/file").as_bytes(), format!("{other}/tree/split").as_bytes()).unwrap();
    write(&disk, &format!("{owner}/tree/a/by hand"), &[7; 9000]);
    // A copy of a file, in the tree of another island: one of the two is enough.
    write(&disk, &format!("{other}/tree/b/file"), b"b");
    // What the native file system refuses, of a directory, of a file that moves, and of nobody.
    disk.limit_xattrs(Some(10));
    let of = |island, content: &[u8]| {
        let all = rows(&disk, island);
        let is_it = |ino: &&Ino| {
            let path = [format!("{island}/").as_bytes(), &atoll_body::path_of(b"bodies", **ino)].concat();
            content == disk_read(&disk, &path)
        };
        *all.inodes.keys().find(is_it).unwrap()
    };
    for (island, path, ino, is_dir) in [
        (owner, "tree/a", Ino(0x77), true),
        (owner, "", of(owner, b"a"), false),
        (other, "", of(other, b"c"), false),
        (other, "tree/gone", Ino(0x78), true),
    ] {
        let at = [format!("{island}/").as_bytes(), &spill_path(ino, is_dir)].concat();
        let _ = disk.mkdir(format!("{island}/xattrs").as_bytes(), 0o700);
        let spilled = Spilled { path: path.as_bytes().to_vec(), xattrs: large() };
        disk.open(&at, OpenHow::Create { mode: 0o600 }).unwrap().write_at(&spilled.to_file(), 0).unwrap();
    }
    disk.sync_everything().unwrap();
    disk
}

/// More than the disk holds of one file.
fn large() -> Xattrs {
    let mut xattrs = Xattrs::default();
    xattrs.set((&b"user.large"[..]).into(), vec![b'v'; 100].into());
    xattrs
}

fn disk_read(disk: &SimDisk, path: &[u8]) -> Vec<u8> {
    let file = disk.open(path, OpenHow::Read).unwrap();
    let mut content = vec![0; file.stat().unwrap().size as usize];
    assert_eq!(file.read_at(&mut content, 0).unwrap(), content.len());
    content
}

/// The paths of files and directories whose extended attributes are in a state, and how many lie beside the trees.
fn spilled(disk: &SimDisk, all: &[Rows]) -> (BTreeSet<String>, usize) {
    let with: BTreeSet<Ino> =
        all.iter().flat_map(|r| &r.xattrs).filter(|(_, x)| **x == large()).map(|(ino, _)| *ino).collect();
    let kept = (0..ISLANDS).map(|i| disk.list(format!("{i}/xattrs").as_bytes()).unwrap().len());
    (paths(all, &with).into_values().flatten().collect(), kept.sum())
}

fn united(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for island in 0..ISLANDS {
        let mut left = vec![(format!("{island}/tree"), String::new())];
        while let Some((native, shown)) = left.pop() {
            for (name, kind) in disk.list(native.as_bytes()).unwrap() {
                let name = String::from_utf8(name).unwrap();
                let (native, shown) = (format!("{native}/{name}"), format!("{shown}/{name}"));
                if kind == FileKind::Directory {
                    left.push((native, shown.clone()));
                    all.insert(shown, Vec::new());
                    continue;
                }
                all.insert(shown, disk_read(disk, native.as_bytes()));
            }
        }
    }
    all
}

/// The names of each file, by the rows: a directory's id is another one each time, so by its path.
fn files(all: &[Rows]) -> BTreeSet<BTreeSet<String>> {
    let wanted = all.iter().flat_map(|rows| rows.inodes.keys().copied()).collect();
    paths(all, &wanted).into_values().map(|names| names.into_iter().collect()).collect()
}

fn rows(disk: &SimDisk, island: u16) -> Rows {
    let snapshot = Snapshot::open(&*folder(disk, island), b"state.redb", 1 << 20).unwrap();
    let mut rows = Rows::new(IslandId(island));
    for (key, row) in snapshot.range(&[], &[0xff], usize::MAX).unwrap() {
        rows.take(&key, &row);
    }
    rows
}

/// Opens as a daemon would open it.
fn opens(disk: &SimDisk, island: u16) -> bool {
    let meta = rows(disk, island).meta;
    assert!(meta.seq > 0, "an island that would open as a new one");
    let identity = Identity { volume: 5, island };
    let checkpoint = Position { epoch: meta.incarnation, seq: meta.seq };
    let folder = folder(disk, island);
    Log::open(folder, b"log", LOG, identity, checkpoint, 0, &mut |_| Ok(())).is_ok()
}

fn states(disk: &SimDisk) -> Vec<u32> {
    (0..ISLANDS).map(|island| rows(disk, island).meta.incarnation).collect()
}

fn crashes(fault: Fault) {
    let calm = world(1);
    let want = united(&calm);
    let before = calm.effects();
    run(&calm).unwrap();
    let effects = calm.effects() - before;
    assert_eq!(united(&calm), want);
    let all: Vec<Rows> = (0..ISLANDS).map(|island| rows(&calm, island)).collect();
    let want_files = files(&all);
    let with_xattrs = ["/a", "/a/file", "/a/second", "/file", "/second"].map(str::to_owned);
    // And what nobody has, which stays.
    let want_spilled = (BTreeSet::from(with_xattrs), 4);
    assert_eq!(spilled(&calm, &all), want_spilled);
    for names in [&["/d/file", "/d/second", "/split"][..], &["/file", "/second"], &["/b/file", "/b/second"]] {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        assert!(want_files.contains(&names), "{names:?} is not one file: {want_files:?}");
    }
    let step = (effects / 25).max(1);
    for seed in 0..effects / step {
        let n = seed * step + 1 + seed % step;
        let disk = world(seed);
        let old = states(&disk);
        disk.die_after(n);
        let _ = run(&disk);
        let disk = disk.revive(fault);
        let context = format!("seed {seed}, effect {n}, {fault:?}");
        if (0..ISLANDS).all(|island| opens(&disk, island)) {
            let now = states(&disk);
            let is_new = now.iter().zip(&old).all(|(now, old)| now > old);
            assert!(now == old || is_new, "old and new states together: {context}");
        }
        run(&disk).unwrap_or_else(|error| panic!("{error}: {context}"));
        assert_eq!(united(&disk), want, "{context}");
        let all: Vec<Rows> = (0..ISLANDS).map(|island| rows(&disk, island)).collect();
        let findings = check(&Checked { table: config().table, seed: 9 }, &all);
        assert!(findings.is_empty(), "{context}: {findings:#?}");
        assert!((0..ISLANDS).all(|island| opens(&disk, island)), "{context}");
        let names: usize = all.iter().flat_map(|r| r.inodes.values()).map(|r| r.attr.nlink as usize).sum();
        assert_eq!(files(&all), want_files, "{context}");
        assert_eq!(spilled(&disk, &all), want_spilled, "{context}");
        assert_eq!(names, want.values().filter(|content| !content.is_empty()).count(), "{context}");
    }
}

#[test]
fn a_rebuild_that_was_killed_anywhere_can_be_run_again() {
    crashes(Fault::ProcessDeath);
}

#[test]
fn a_rebuild_that_lost_its_power_anywhere_can_be_run_again() {
    crashes(Fault::PowerCut { seed: 3 });
    crashes(Fault::PowerCut { seed: 4 });
}
