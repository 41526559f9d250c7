//! What a million names cost: one directory of a member has them, and the union keeps them after a listing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;

use atoll_core::{Ino, Name, Time};
use atoll_federal::Federation;
use atoll_member::{Tree, TreeState};
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RequestOptions};
use atoll_union::{
    Changes, Moment, NativeCall, NativeEntry, NativeId, NativeReply, NativeStat, Settings, Tag, UnionRequest,
    Who,
};
use bytes::Bytes;

/// Counts what is allocated, as glibc does: in steps of 16 bytes, with 8 in front.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

const fn taken(bytes: usize) -> usize {
    let bytes = (bytes + 8).next_multiple_of(16);
    if bytes < 32 { 32 } else { bytes }
}

// SAFETY: the system's allocator does it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(taken(layout.size()), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(taken(layout.size()), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NAMES: u64 = 1_000_000;
const BYTES_MAX: usize = 120 << 20;

/// A member whose root has a million files, and which keeps none of them in memory.
struct Wide;

impl Tree for Wide {
    fn call(&self, _: &Who, call: &NativeCall, _: &[u8]) -> Result<NativeReply, Errno> {
        let NativeCall::List { from, .. } = call else { return Ok(NativeReply::Watched(true)) };
        let to = (from + 10_000).min(NAMES);
        let entry = |n: u64| {
            let name = Name::new(format!("photo-{n:08}.jpg").as_bytes()).unwrap();
            NativeEntry { name, ino: n + 10, kind: Kind::Regular }
        };
        let names = (*from..to).map(entry).collect();
        Ok(NativeReply::Names { names, next: (to < NAMES).then_some(to), dir: self.root() })
    }

    fn root(&self) -> NativeStat {
        let time = Time { secs: 1_000, nanos: 0 };
        NativeStat {
            id: NativeId { ino: 2, btime: time },
            kind: Kind::Directory,
            mode: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    fn changes(&self) -> Changes {
        Changes::default()
    }

    fn backing(&self, _: u64) -> Option<Arc<OwnedFd>> {
        None
    }

    fn state(&self) -> TreeState {
        TreeState::Serving
    }

    fn reopen(&self) -> Result<bool, Errno> {
        Ok(true)
    }
}

#[test]
fn a_million_names_are_kept_in_120_mib() {
    let now = Moment { ms: 1, wall: Time { secs: 10_000, nanos: 0 } };
    let union = Federation::stepped(Settings::default(), vec![(Tag(1), false, Arc::new(Wide))], now);
    let before = ALLOCATED.load(Relaxed);
    let (mut listed, mut after) = (0, 0);
    loop {
        let (send, receive) = sync_channel(1);
        let op = Op::ReadDir { dir: Ino::ROOT, after, bytes: 1 << 20, plus: false };
        let options = RequestOptions::default();
        let request = UnionRequest { caller: Caller::ROOT, options, op, bytes: Bytes::new() };
        union.submit(request, Box::new(move |outcome| send.send(outcome).unwrap()));
        let told = receive.recv().unwrap().unwrap();
        let Answer::Entries { entries, eof } = told.answer else { panic!("{:?}", told.answer) };
        after = entries.last().map_or(after, |entry| entry.cookie);
        listed += entries.len() as u64;
        if eof {
            break;
        }
    }
    let kept = ALLOCATED.load(Relaxed) - before;
    println!("{NAMES} names: {} MiB, {} bytes each", kept >> 20, kept as u64 / NAMES);
    assert_eq!(listed, NAMES);
    let machine = union.machine();
    let told = machine.known().names_bytes();
    assert!(kept <= BYTES_MAX, "{kept}");
    assert!(told >= kept / 10 * 9, "what is counted, {told}, is what is there, {kept}");
}
