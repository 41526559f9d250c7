//! What the kernel tells of changes in watched directories. Owns one inotify descriptor; never waits for events, and says that
//! some are lost rather than leave one out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Mutex;

use atoll_core::Name;
use atoll_posix::Errno;
use atoll_union::{Changed, Changes, NativeId};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::{NativeTree, ProcPath, lock, os, read};
use crate::who;

/// Bytes of events that are read at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Most names that one answer tells; past that it says that some are lost.
const NAMES_MAX: usize = 65_536;

/// File systems that others change without this kernel's knowledge: nfs, cifs, smb2, fuse, 9p, ceph, afs, overlay.
const REMOTE: &[u32] =
    &[0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997, 0x00c3_6400, 0x5346_414f, 0x794c_7630];

/// Whether all changes of a file system are made by this kernel.
pub(super) fn is_local(dir: &OwnedFd) -> Result<bool, Errno> {
    // SAFETY: `statfs` is plain numbers, and the kernel fills it.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::fstatfs(dir.as_raw_fd(), &raw mut stat) } != 0 {
        return Err(who::last());
    }
    Ok(!REMOTE.contains(&(stat.f_type as u32)))
}

/// The watches of a tree.
#[derive(Debug, Default)]
pub(super) struct Feed(Mutex<Watches>);

#[derive(Debug, Default)]
struct Watches {
    /// Made with the first watch.
    inotify: Option<OwnedFd>,
    by_dir: HashMap<NativeId, i32>,
    by_watch: HashMap<i32, NativeId>,
    /// Something was missed since the last answer.
    lost: bool,
}

/// Half of what the user may watch, over all trees.
fn watches_max() -> usize {
    let told = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap_or_default();
    let trees = super::TREES.load(std::sync::atomic::Ordering::Relaxed).max(1);
    told.trim().parse::<usize>().unwrap_or(8_192) / 2 / trees
}

impl Feed {
    pub(super) fn unwatch(&self, dir: NativeId) {
        let mut watches = lock(&self.0);
        if let Some(watch) = watches.by_dir.remove(&dir) {
            watches.by_watch.remove(&watch);
            if let Some(inotify) = &watches.inotify {
                // The kernel has dropped the watch of a removed directory itself.
                let _gone = inotify::remove_watch(inotify, watch);
            }
        }
    }

    /// Every watch is gone with the file system.
    pub(super) fn lose(&self) {
        *lock(&self.0) = Watches { lost: true, ..Watches::default() };
    }

    pub(super) fn changes(&self) -> Changes {
        let mut watches = lock(&self.0);
        let mut lost = std::mem::take(&mut watches.lost);
        let mut dirs: BTreeMap<NativeId, (BTreeSet<Name>, bool)> = BTreeMap::new();
        let mut names = 0;
        let Some(inotify) = watches.inotify.take() else { return Changes { lost, dirs: Vec::new() } };
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut events = inotify::Reader::new(inotify.as_fd(), &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => {
                    lost = true;
                    break;
                }
            };
            let what = event.events();
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                lost = true;
                continue;
            }
            let Some(&dir) = watches.by_watch.get(&event.wd()) else { continue };
            let of_dir = dirs.entry(dir).or_default();
            match event.file_name().and_then(|name| Name::new(name.to_bytes()).ok()) {
                Some(name) => names += usize::from(of_dir.0.insert(name)),
                None => of_dir.1 = true,
            }
            if what.contains(ReadFlags::IGNORED) {
                watches.by_watch.remove(&event.wd());
                watches.by_dir.remove(&dir);
            }
            if names > NAMES_MAX {
                lost = true;
                break;
            }
        }
        watches.inotify = Some(inotify);
        let told = dirs.into_iter().flat_map(|(dir, (names, itself))| {
            let names: Vec<Name> = names.into_iter().collect();
            let named = (!names.is_empty()).then_some(Changed { dir, names });
            [named, itself.then_some(Changed { dir, names: Vec::new() })].into_iter().flatten()
        });
        Changes { lost, dirs: told.collect() }
    }
}

impl NativeTree {
    pub(super) fn watch(&self, dir: NativeId) -> Result<bool, Errno> {
        who::daemon();
        let fd = self.dir(dir)?;
        if !read(&self.mount).local {
            return Ok(false);
        }
        let mut watches = lock(&self.feed.0);
        if watches.by_dir.contains_key(&dir) {
            return Ok(true);
        }
        if watches.by_dir.len() >= watches_max() {
            return Ok(false);
        }
        if watches.inotify.is_none() {
            let made = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
            match made {
                Ok(inotify) => watches.inotify = Some(inotify),
                Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => return Ok(false),
                Err(e) => return Err(os(e)),
            }
        }
        let Some(inotify) = &watches.inotify else { return Ok(false) };
        let what = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        match inotify::add_watch(inotify, ProcPath::of(fd.as_fd()).as_c_str(), what) {
            Ok(watch) => {
                watches.by_dir.insert(dir, watch);
                watches.by_watch.insert(watch, dir);
                Ok(true)
            }
            // Not readable for us, or too many of this user: the directory's times must be looked at.
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM) => Ok(false),
            Err(e) => Err(os(e)),
        }
    }
}
