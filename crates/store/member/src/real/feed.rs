//! What the kernel tells of changes that others make in watched directories. Owns one inotify descriptor; never waits for events,
//! and says that some are lost rather than leave one out.
//!
//! The kernel tells of this process's own calls, too. So a call is noted before it is made, and its event is left out. What has
//! come to a name by a rename is told all the same: the kernel makes one event of two that follow each other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, OnceLock};

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
    /// Events that own calls have made or are about to make, and how many.
    own: HashMap<(i32, Name, Event), u32>,
    /// Names that others have changed and that were taken for own changes.
    mistaken: Vec<(NativeId, Name)>,
    /// Something was missed since the last answer.
    lost: bool,
}

/// What an event says of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// It was made.
    Made,
    /// It was removed.
    Removed,
    /// What had it has another one now.
    MovedAway,
}

impl Event {
    /// None for events that are told whoever made them.
    fn of(what: ReadFlags) -> Option<Self> {
        let kinds = [
            (ReadFlags::CREATE, Self::Made),
            (ReadFlags::DELETE, Self::Removed),
            (ReadFlags::MOVED_FROM, Self::MovedAway),
        ];
        kinds.into_iter().find(|(flag, _)| what.contains(*flag)).map(|(_, event)| event)
    }
}

/// An own call that is about to change a name. If it is dropped before it is [`OwnChange::made`], the call has failed.
pub(super) struct OwnChange<'a> {
    feed: &'a Feed,
    key: Option<(i32, Name, Event)>,
}

impl OwnChange<'_> {
    /// The call was made.
    pub(super) fn made(mut self) {
        self.key = None;
    }
}

impl Drop for OwnChange<'_> {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        let mut watches = lock(&self.feed.0);
        if !watches.take_own(&key)
            && let Some(dir) = watches.by_watch.get(&key.0).copied()
        {
            watches.mistaken.push((dir, key.1));
        }
    }
}

/// Half of what the user may watch, over all trees.
fn watches_max() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    let limit = LIMIT.get_or_init(|| {
        let told = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap_or_default();
        told.trim().parse().unwrap_or(8_192)
    });
    let trees = super::TREES.load(std::sync::atomic::Ordering::Relaxed).max(1);
    limit / 2 / trees
}

impl Watches {
    /// Whether this is an own change, which is told once.
    fn take_own(&mut self, key: &(i32, Name, Event)) -> bool {
        let Some(count) = self.own.get_mut(key) else { return false };
        *count -= 1;
        if *count == 0 {
            self.own.remove(key);
        }
        true
    }

    fn ended(&mut self, watch: i32) {
        self.own.retain(|(of, ..), _| *of != watch);
    }
}

impl Feed {
    pub(super) fn unwatch(&self, dir: NativeId) {
        let mut watches = lock(&self.0);
        if let Some(watch) = watches.by_dir.remove(&dir) {
            watches.by_watch.remove(&watch);
            watches.ended(watch);
            if let Some(inotify) = &watches.inotify {
                // The kernel has dropped the watch of a removed directory itself.
                let _gone = inotify::remove_watch(inotify, watch);
            }
        }
    }

    /// A call is about to change a name in a directory.
    pub(super) fn own(&self, dir: NativeId, name: &Name, event: Event) -> OwnChange<'_> {
        let mut watches = lock(&self.0);
        let watch = watches.by_dir.get(&dir).copied().filter(|_| watches.own.len() < NAMES_MAX);
        let key = watch.map(|watch| (watch, name.clone(), event));
        if let Some(key) = &key {
            *watches.own.entry(key.clone()).or_default() += 1;
        }
        OwnChange { feed: self, key }
    }

    /// Every watch is gone with the file system.
    pub(super) fn lose(&self) {
        *lock(&self.0) = Watches { lost: true, ..Watches::default() };
    }

    pub(super) fn changes(&self) -> Changes {
        let mut watches = lock(&self.0);
        let mut lost = std::mem::take(&mut watches.lost);
        let mut dirs: BTreeMap<NativeId, BTreeSet<Name>> = BTreeMap::new();
        let mut names = 0;
        for (dir, name) in std::mem::take(&mut watches.mistaken) {
            names += usize::from(dirs.entry(dir).or_default().insert(name));
        }
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
                watches.own.clear();
                continue;
            }
            let watch = event.wd();
            let Some(&dir) = watches.by_watch.get(&watch) else { continue };
            if let Some(name) = event.file_name().and_then(|name| Name::new(name.to_bytes()).ok()) {
                let own = Event::of(what).map(|event| (watch, name.clone(), event));
                if !own.is_some_and(|key| watches.take_own(&key)) {
                    names += usize::from(dirs.entry(dir).or_default().insert(name));
                }
            }
            if what.contains(ReadFlags::IGNORED) {
                watches.by_watch.remove(&watch);
                watches.by_dir.remove(&dir);
                watches.ended(watch);
            }
            if names > NAMES_MAX {
                lost = true;
                break;
            }
        }
        watches.inotify = Some(inotify);
        let told = dirs.into_iter().map(|(dir, names)| Changed { dir, names: names.into_iter().collect() });
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
