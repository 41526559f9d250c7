//! Locks in a member's file system: against other unions, against programs that use the member directly, and waits for them.

mod common;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use atoll_core::Ino;
use atoll_federal::{Federation, LOCK_WAITS_MAX};
use atoll_member::{NativeTree, Tree};
use atoll_posix::{Answer, Errno, LockKind, LockRange, Op};
use atoll_union::{Settings, Tag};
use common::{Outcome, create, ino, lookup, moment, opened, request, tree};
use rustix::fs::{FlockOperation, flock};

/// Starts an operation on this thread; its number, and its outcome when it comes.
fn begin(union: &Federation, op: Op) -> (u64, Receiver<Outcome>) {
    let (send, outcome) = channel();
    // A test that ends does not wait for it.
    let done = move |told| _ = send.send(told);
    (union.submit(request(op, b""), Box::new(done)), outcome)
}

fn op(union: &Federation, op: Op) -> Outcome {
    begin(union, op).1.recv().unwrap()
}

fn found(union: &Federation, text: &str) -> Ino {
    ino(op(union, lookup(Ino::ROOT, text))).unwrap()
}

fn range(owner: u64, kind: LockKind, flock: bool) -> LockRange {
    let (start, end) = if flock { (0, u64::MAX) } else { (10, 19) };
    LockRange { start, end, kind, owner, pid: 7, flock }
}

fn set(ino: Ino, owner: u64, kind: LockKind, flock: bool, wait: bool) -> Op {
    Op::SetLock { ino, lock: range(owner, kind, flock), wait }
}

/// Whether a program that uses the file directly gets this lock; it lets it go at once.
fn direct(file: &File, kind: LockKind, is_flock: bool) -> bool {
    if is_flock {
        let how = match kind {
            LockKind::Read => FlockOperation::NonBlockingLockShared,
            _ => FlockOperation::NonBlockingLockExclusive,
        };
        let got = flock(file, how).is_ok();
        flock(file, FlockOperation::Unlock).unwrap();
        return got;
    }
    // SAFETY: plain numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_start, lock.l_len) = (15, 100);
    lock.l_type = if kind == LockKind::Read { libc::F_RDLCK } else { libc::F_WRLCK } as _;
    // SAFETY: the kernel reads one lock.
    let got = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0;
    lock.l_type = libc::F_UNLCK as _;
    // SAFETY: as above.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }, 0);
    got
}

/// Two unions of one directory, as two mounts have them, and the file `f` in it as a program opens it directly.
struct World {
    one: Arc<Federation>,
    two: Arc<Federation>,
    file: File,
    inos: [Ino; 2],
    _place: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("f"), [0; 200]).unwrap();
        let union = || {
            let tree: Arc<dyn Tree> = Arc::new(NativeTree::open(place.path()).unwrap());
            Federation::start(Settings::default(), vec![(Tag(1), false, tree)])
        };
        let (one, two) = (union(), union());
        let file = File::options().read(true).write(true).open(place.path().join("f")).unwrap();
        let inos = [found(&one, "f"), found(&two, "f")];
        Self { one, two, file, inos, _place: place }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        [&self.one, &self.two].into_iter().for_each(|union| union.stop());
    }
}

#[test]
fn locks_hold_against_other_unions_and_against_programs_that_use_the_member() {
    let world = World::new();
    let [a, b] = world.inos;
    for is_flock in [false, true] {
        op(&world.one, set(a, 1, LockKind::Write, is_flock, false)).unwrap();
        assert!(!direct(&world.file, LockKind::Read, is_flock));
        assert_eq!(op(&world.two, set(b, 1, LockKind::Read, is_flock, false)), Err(Errno::EAGAIN));
        assert_eq!(op(&world.one, set(a, 2, LockKind::Read, is_flock, false)), Err(Errno::EAGAIN));
        let asked = Op::GetLock { ino: b, lock: range(1, LockKind::Read, is_flock) };
        match op(&world.two, asked).unwrap().answer {
            Answer::Lock { lock } => assert_eq!(lock.kind, LockKind::Write),
            other => panic!("{other:?}"),
        }
        op(&world.one, set(a, 1, LockKind::Read, is_flock, false)).unwrap();
        assert!(
            direct(&world.file, LockKind::Read, is_flock) && !direct(&world.file, LockKind::Write, is_flock)
        );
        op(&world.one, set(a, 1, LockKind::Unlock, is_flock, false)).unwrap();
        assert!(direct(&world.file, LockKind::Write, is_flock));
        op(&world.two, set(b, 1, LockKind::Write, is_flock, false)).unwrap();
        op(&world.two, set(b, 1, LockKind::Unlock, is_flock, false)).unwrap();
    }
    // The two kinds do not see each other.
    op(&world.one, set(a, 1, LockKind::Write, true, false)).unwrap();
    op(&world.two, set(b, 1, LockKind::Write, false, false)).unwrap();
}

#[test]
fn whoever_waits_gets_the_lock_when_it_is_free_however_it_was_held() {
    let world = World::new();
    let [a, b] = world.inos;
    for is_flock in [false, true] {
        op(&world.one, set(a, 1, LockKind::Write, is_flock, false)).unwrap();
        let (_, same) = begin(&world.one, set(a, 2, LockKind::Read, is_flock, true));
        let (_, other) = begin(&world.two, set(b, 1, LockKind::Read, is_flock, true));
        let (id, cancelled) = begin(&world.two, set(b, 2, LockKind::Read, is_flock, true));
        assert!([&same, &other, &cancelled].iter().all(|outcome| outcome.try_recv().is_err()));
        world.two.cancel(id);
        assert_eq!(cancelled.recv().unwrap(), Err(Errno::EINTR));
        op(&world.one, set(a, 1, LockKind::Unlock, is_flock, false)).unwrap();
        assert!(same.recv().unwrap().is_ok() && other.recv().unwrap().is_ok());
        // Another process waits for these to end.
        op(&world.one, set(a, 2, LockKind::Unlock, is_flock, false)).unwrap();
        op(&world.two, set(b, 1, LockKind::Unlock, is_flock, false)).unwrap();
        assert!(
            direct(&world.file, LockKind::Write, is_flock),
            "nothing was granted to whoever was cancelled"
        );
    }
    flock(&world.file, FlockOperation::LockExclusive).unwrap();
    let (_, waits) = begin(&world.one, set(a, 1, LockKind::Write, true, true));
    assert!(waits.try_recv().is_err());
    flock(&world.file, FlockOperation::Unlock).unwrap();
    waits.recv().unwrap().unwrap();
}

#[test]
fn waits_are_bounded_and_asked_again_in_their_order() {
    let union = Federation::stepped(Settings::default(), opened(&[Arc::new(tree(0))]), moment(0));
    let f = ino(op(&union, create(Ino::ROOT, "f"))).unwrap();
    op(&union, set(f, 1, LockKind::Write, false, false)).unwrap();
    let wait = |nth: usize| begin(&union, set(f, 2 + nth as u64, LockKind::Write, false, true));
    let waits: Vec<_> = (0..LOCK_WAITS_MAX).map(wait).collect();
    assert_eq!(wait(LOCK_WAITS_MAX).1.recv().unwrap(), Err(Errno::ENOLCK));
    assert!(waits.iter().all(|(_, outcome)| outcome.try_recv().is_err()));
    op(&union, set(f, 1, LockKind::Unlock, false, false)).unwrap();
    union.step(moment(2));
    assert!(waits[0].1.try_recv().unwrap().is_ok() && waits[1].1.try_recv().is_err());
    for (id, outcome) in &waits[1..] {
        union.cancel(*id);
        assert_eq!(outcome.try_recv().unwrap(), Err(Errno::EINTR));
    }
}
