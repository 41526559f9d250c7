//! A volume that lies: every answer is set to extreme values in one field at a time, and sometimes is one to another
//! question. The mount answers with errors, and lives.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use atoll_core::{Decode, Encode, Ino};
use atoll_fuse::{Config, MountOptions, Mounted};
use atoll_needs::needs;
use atoll_posix::{Answer, Caller, Errno, Kind, Op};
use atoll_vfs::{AnswerExtras, Caching, Done, Files, Handle, RequestOptions, Ticket, Watcher};
use bytes::Bytes;
use common::{Memory, Place};

/// What bytes of a field are replaced by.
const EXTREMES: [u8; 5] = [0x00, 0x01, 0x7f, 0x80, 0xff];
const ROUNDS: u64 = 60;

/// A volume in memory whose answers are changed on their way.
#[derive(Default)]
struct Liar {
    honest: Memory,
    lies: AtomicBool,
    /// A counter from which every lie follows.
    state: Arc<AtomicU64>,
    /// How many lies were told, by the first byte of the answer: its kind.
    told: Arc<Mutex<BTreeMap<u8, u64>>>,
}

/// Drawn from a counter, so that a run repeats itself as far as the kernel does.
fn draw(state: &AtomicU64) -> u64 {
    let mut z = state.fetch_add(1, SeqCst).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 31)
}

/// The answer with one field set to something extreme, if it is still an answer.
fn lie(state: &AtomicU64, answer: &Answer) -> Option<Answer> {
    let mut bytes = answer.to_vec();
    let width = [1, 2, 4, 8][(draw(state) % 4) as usize].min(bytes.len());
    let at = (draw(state) % (bytes.len() - width + 1) as u64) as usize;
    bytes[at..at + width].fill(EXTREMES[(draw(state) % 5) as usize]);
    Answer::from_slice(&bytes).ok()
}

impl Files for Liar {
    fn start(&self, caller: &Caller, options: RequestOptions, op: Op, data: Bytes, done: Done) -> Ticket {
        if !self.lies.load(SeqCst) {
            return self.honest.start(caller, options, op, data, done);
        }
        let (state, told) = (Arc::clone(&self.state), Arc::clone(&self.told));
        let lying: Done = Box::new(move |outcome, beside| {
            let caching = if draw(&state).is_multiple_of(2) { Caching::Never } else { beside.caching };
            let beside = AnswerExtras { caching, ..beside };
            let other = draw(&state).is_multiple_of(16);
            let changed = match &outcome {
                // Of another kind altogether.
                Ok(_) if other => Some(Answer::Wrote { len: u64::MAX, offset: u64::MAX }),
                Err(_) if other => Some(Answer::Data),
                Ok(answer) => (0..8).find_map(|_| lie(&state, answer)),
                Err(_) => None,
            };
            let Some(changed) = changed else { return done(outcome, beside) };
            *told.lock().unwrap().entry(changed.to_vec()[0]).or_default() += 1;
            let long = vec![b'x'; 70_000];
            match draw(&state) % 8 {
                0 => done(Ok(changed), AnswerExtras { bytes: &long, ..beside }),
                1 => done(Ok(changed), AnswerExtras { bytes: &[], ..beside }),
                _ => done(Ok(changed), beside),
            }
        });
        self.honest.start(caller, options, op, data, lying)
    }

    fn cancel(&self, ticket: Ticket) {
        self.honest.cancel(ticket);
    }

    fn forget(&self, inos: &[Ino]) {
        self.honest.forget(inos);
    }

    fn handle_of(&self, ino: Ino, kind: Kind) -> Option<Handle> {
        self.honest.handle_of(ino, kind)
    }

    fn known(&self, handle: &Handle) -> Result<Ino, Errno> {
        self.honest.known(handle)
    }

    fn find(&self, handle: &Handle, done: Done) -> Ticket {
        self.honest.find(handle, done)
    }

    fn keeping(&self, ino: Ino, tell: &mut dyn FnMut(Caching)) {
        let never = self.lies.load(SeqCst) && draw(&self.state).is_multiple_of(2);
        self.honest.keeping(ino, &mut |caching| tell(if never { Caching::Never } else { caching }));
    }

    fn set_watcher(&self, watcher: Arc<dyn Watcher>) {
        self.honest.set_watcher(watcher);
    }
}

/// What programs do with a tree. Nothing of it needs to succeed.
fn use_it(dir: &Path, round: u64) {
    let at = |name: &str| dir.join(format!("{name}{round}"));
    let _ = fs::write(at("f"), vec![7; 9000]);
    let _ = fs::read(at("f"));
    if let Ok(file) = fs::File::options().read(true).write(true).open(at("f")) {
        let _ = file.write_at(b"abc", 100);
        let _ = file.read_at(&mut [0; 100], 50);
        let _ = file.set_len(10);
        let _ = file.sync_all();
        let _ = file.metadata();
        let _ = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0));
        let _ = rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        let _ = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        let _ = rustix::fs::fstatvfs(&file);
    }
    let _ = fs::create_dir(at("d"));
    let _ = fs::write(at("d").join("inside"), b"x");
    let _ = symlink("target", at("l"));
    let _ = fs::read_link(at("l"));
    let _ = fs::hard_link(at("f"), at("h"));
    let _ = fs::rename(at("h"), at("g"));
    let _ = fs::set_permissions(at("g"), PermissionsExt::from_mode(0o640));
    let mut value = [0; 100];
    let _ = rustix::fs::setxattr(at("f"), "user.a", b"value", rustix::fs::XattrFlags::empty());
    let _ = rustix::fs::getxattr(at("f"), "user.a", &mut value);
    let _ = rustix::fs::listxattr(at("f"), &mut value);
    for dir in [dir.to_owned(), at("d")] {
        for entry in fs::read_dir(dir).into_iter().flatten().take(500).flatten() {
            let _ = entry.metadata().map(|meta| meta.ino());
        }
    }
    let _ = fs::metadata(dir);
    let _ = fs::copy(at("f"), at("c"));
    for name in ["f", "g", "h", "l", "c"] {
        let _ = fs::remove_file(at(name));
    }
    let _ = fs::remove_dir_all(at("d"));
}

#[test]
fn a_mount_outlives_a_volume_that_lies_in_every_field() {
    needs!(Mounts);
    let place = Place::new("liar");
    let files = Arc::new(Liar::default());
    let options = MountOptions::new("liar");
    let mounted =
        Mounted::new(Arc::clone(&files) as Arc<dyn Files>, &place.0, &options, Config::default()).unwrap();
    for round in 0..ROUNDS {
        files.lies.store(true, SeqCst);
        use_it(&place.0, round);
        files.lies.store(false, SeqCst);
        // Honest again, it is a file system like any other: with names that were not lied about.
        let name = place.0.join(format!("honest{round}"));
        let mut wrote = fs::write(&name, b"content");
        for _ in 0..200 {
            // The kernel may have been told for a while that the directory is something else.
            if wrote.is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            wrote = fs::write(&name, b"content");
        }
        wrote.unwrap_or_else(|why| panic!("round {round}: {why}"));
        assert_eq!(fs::read(&name).unwrap(), b"content", "round {round}");
    }
    let told = files.told.lock().unwrap();
    let kinds = told.len();
    assert!(kinds >= 8 && told.values().sum::<u64>() > 20 * ROUNDS, "{told:?}");
    drop(told);
    drop(mounted);
}
