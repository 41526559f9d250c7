//! Random calls give the same answers and the same tree on the real and the simulated disk, and on an overlay, whatever of them was
//! done below it before.

mod common;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use atoll_disk::overlay::Overlay;
use atoll_disk::sim::SimDisk;
use atoll_disk::{Disk, DiskFile, FileKind, OpenHow};
use proptest::prelude::*;
use rustix::io::Errno;

#[derive(Debug, Clone)]
enum Call {
    Mkdir(usize, u32),
    Write(usize, u64, usize),
    SetLen(usize, u64),
    Rmdir(usize),
    Unlink(usize),
    Link(usize, usize),
    Rename(usize, usize, bool),
    Symlink(usize),
    Fifo(usize),
    Mode(usize, u32),
    Owner(usize, u32),
    Xattr(usize, bool),
    Punch(usize, u64, u64),
    Copy(usize, usize, u64),
}

/// Few enough to meet often: two directories deep, two wide, and a file in each.
const PATHS: [&[u8]; 10] =
    [b"a", b"b", b"a/a", b"a/b", b"b/a", b"a/a/a", b"a/a/b", b"b/a/a", b"a/b/a", b"b/b"];

fn call() -> impl Strategy<Value = Call> {
    let path = || 0..PATHS.len();
    let offset = || 0..20_000u64;
    prop_oneof![
        3 => (path(), 0..0o10000u32).prop_map(|(p, m)| Call::Mkdir(p, m)),
        3 => (path(), offset(), 0..9000usize).prop_map(|(p, o, n)| Call::Write(p, o, n)),
        1 => (path(), offset()).prop_map(|(p, n)| Call::SetLen(p, n)),
        1 => path().prop_map(Call::Rmdir),
        1 => path().prop_map(Call::Unlink),
        2 => (path(), path()).prop_map(|(a, b)| Call::Link(a, b)),
        4 => (path(), path(), any::<bool>()).prop_map(|(a, b, r)| Call::Rename(a, b, r)),
        1 => path().prop_map(Call::Symlink),
        1 => path().prop_map(Call::Fifo),
        1 => (path(), 0..0o10000u32).prop_map(|(p, m)| Call::Mode(p, m)),
        1 => (path(), 0..9u32).prop_map(|(p, id)| Call::Owner(p, id)),
        1 => (path(), any::<bool>()).prop_map(|(p, set)| Call::Xattr(p, set)),
        1 => (path(), offset(), offset()).prop_map(|(p, o, n)| Call::Punch(p, o, n)),
        1 => (path(), path(), offset()).prop_map(|(a, b, o)| Call::Copy(a, b, o)),
    ]
}

fn perform(disk: &impl Disk, call: &Call) -> io::Result<()> {
    match *call {
        Call::Mkdir(p, mode) => disk.mkdir(PATHS[p], mode | 0o700),
        Call::Write(p, offset, n) => {
            let file = disk.open(PATHS[p], OpenHow::Create { mode: 0o644 })?;
            file.write_at(&vec![(n % 255) as u8 + 1; n], offset)
        }
        Call::SetLen(p, len) => disk.open(PATHS[p], OpenHow::Write)?.set_len(len),
        Call::Rmdir(p) => disk.rmdir(PATHS[p]),
        Call::Unlink(p) => disk.unlink(PATHS[p]),
        Call::Link(a, b) => disk.link(PATHS[a], PATHS[b]),
        Call::Rename(a, b, replace) => disk.rename(PATHS[a], PATHS[b], replace),
        Call::Symlink(p) => disk.symlink(b"target", PATHS[p]),
        Call::Fifo(p) => disk.mknod(PATHS[p], FileKind::Fifo, 0o600, 0),
        Call::Mode(p, mode) => disk.set_mode(PATHS[p], mode | 0o700),
        Call::Owner(p, id) => disk.set_owner(PATHS[p], id, id),
        Call::Xattr(p, set) => disk.set_xattr(PATHS[p], b"trusted.x", set.then_some(b"value")),
        Call::Punch(p, offset, n) => disk.open(PATHS[p], OpenHow::Write)?.punch(offset, n),
        Call::Copy(a, b, offset) => {
            let (a, b) = (disk.open(PATHS[a], OpenHow::Read)?, disk.open(PATHS[b], OpenHow::Write)?);
            a.copy_to(offset, &b, offset / 2, 3000).map(|_| ())
        }
    }
}

type Dump = BTreeMap<Vec<u8>, (FileKind, u32, u32, u32, u64, usize, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>)>;

/// All that both disks must agree on; inodes by the order in which the walk meets them.
fn dump(disk: &impl Disk) -> Dump {
    let (mut all, mut inos) = (Dump::new(), Vec::new());
    let mut dirs = vec![Vec::new()];
    while let Some(dir) = dirs.pop() {
        let mut list = disk.list(&dir).unwrap();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, kind) in list {
            let path = if dir.is_empty() { name } else { [&dir[..], b"/", &name].concat() };
            let stat = disk.stat(&path).unwrap();
            assert_eq!(stat.kind, kind);
            let content = match kind {
                FileKind::Regular => {
                    let mut bytes = vec![0; stat.size as usize];
                    let file = disk.open(&path, OpenHow::Read).unwrap();
                    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
                    bytes
                }
                FileKind::Symlink => disk.readlink(&path).unwrap(),
                _ => Vec::new(),
            };
            let nth = inos.iter().position(|ino| *ino == stat.ino).unwrap_or_else(|| {
                inos.push(stat.ino);
                inos.len() - 1
            });
            let xattrs = disk.xattrs(&path).unwrap();
            all.insert(path.clone(), (kind, stat.mode, stat.uid, stat.gid, stat.nlink, nth, content, xattrs));
            if kind == FileKind::Directory {
                dirs.push(path);
            }
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_calls_have_the_same_outcome_on_both(calls in prop::collection::vec(call(), 1..60)) {
        let (real, sim) = (common::Folder::new(), SimDisk::new(7));
        for (n, call) in calls.iter().enumerate() {
            let errno = |result: io::Result<()>| result.map_err(|e| Errno::from_io_error(&e).unwrap());
            let (a, b) = (errno(perform(&real.disk, call)), errno(perform(&sim, call)));
            prop_assert_eq!(a, b, "call {} was {:?}", n, call);
        }
        prop_assert_eq!(dump(&real.disk), dump(&sim));
    }
    #[test]
    fn an_overlay_answers_as_the_disk_would_that_was_changed(
        calls in prop::collection::vec(call(), 1..60),
        below in 0..60usize,
    ) {
        let (sim, base) = (SimDisk::new(7), SimDisk::new(7));
        let below = below.min(calls.len());
        for call in &calls[..below] {
            _ = perform(&sim, call);
            _ = perform(&base, call);
        }
        let (was, effects) = (dump(&base), base.effects());
        let overlay = Overlay::new(Arc::new(base.clone()));
        for (n, call) in calls[below..].iter().enumerate() {
            let errno = |result: io::Result<()>| result.map_err(|e| Errno::from_io_error(&e).unwrap());
            let (a, b) = (errno(perform(&sim, call)), errno(perform(&overlay, call)));
            prop_assert_eq!(a, b, "call {} was {:?}", n, call);
        }
        prop_assert_eq!(dump(&sim), dump(&overlay));
        prop_assert_eq!((dump(&base), base.effects()), (was, effects), "nothing is changed below");
    }
}
