//! A site of a wide volume on a disk that cannot store all names: those that it refuses are not in the plain tree, of two that it takes for
//! one only one is, and everything else is as at other sites. The disk is a union of one directory behind a layer that refuses names, as NTFS
//! (`windows_names`) and eCryptfs do, or folds them.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use atoll_core::{Ino, Name};
use atoll_fuse::{Config, Locks, MountOptions, Mounted};
use atoll_needs::needs;
use atoll_posix::{Caller, Errno, Kind, Op};
use atoll_union::Settings;
use atoll_vfs::{
    AnswerExtras, Caching, Done, Files, Handle, OpenDone, OpenFor, RequestOptions, Ticket, Watcher,
};
use atoll_volume::kind::Attached;
use atoll_volume::union::{MemberPath, UnionVolume, state_dir};
use bytes::Bytes;
use common::sites::{Sites, names, tree};
use common::{Cluster, Scratch, eventually, free_port, good, run, text};

/// Bytes of a name, at most, that the disk takes.
const NAME_BYTES_MAX: usize = 143;

/// What is special about names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    /// Some are refused.
    Refused,
    /// Upper and lower case are the same, and what is stored is in lower case.
    Folded,
}

/// Refuses to give things names that it cannot store, or stores others.
struct Picky(Arc<dyn Files>, Names);

impl Picky {
    fn folded(mut op: Op) -> Op {
        let fold = |name: &mut Name| *name = Name::new(&name.as_bytes().to_ascii_lowercase()).unwrap();
        match &mut op {
            Op::Lookup { name, .. }
            | Op::Create { name, .. }
            | Op::Mkdir { name, .. }
            | Op::Unlink { name, .. }
            | Op::Rmdir { name, .. }
            | Op::Link { name, .. } => fold(name),
            Op::Rename { name, new_name, .. } => {
                fold(name);
                fold(new_name);
            }
            _ => {}
        }
        op
    }

    fn refuses(name: &Name) -> Option<Errno> {
        let bytes = name.as_bytes();
        if bytes.len() > NAME_BYTES_MAX {
            return Some(Errno::ENAMETOOLONG);
        }
        (bytes.iter().any(|byte| b"\"*:<>?|\\".contains(byte)) || bytes.ends_with(b"."))
            .then_some(Errno::EINVAL)
    }
}

impl Files for Picky {
    fn start(&self, caller: &Caller, options: RequestOptions, op: Op, data: Bytes, done: Done) -> Ticket {
        if self.1 == Names::Folded {
            return self.0.start(caller, options, Self::folded(op), data, done);
        }
        let new = match &op {
            Op::Create { name, .. } | Op::Mkdir { name, .. } | Op::Link { name, .. } => Some(name),
            Op::Rename { new_name, .. } => Some(new_name),
            _ => None,
        };
        match new.and_then(Self::refuses) {
            Some(errno) => {
                done(Err(errno), AnswerExtras::default());
                Ticket::default()
            }
            None => self.0.start(caller, options, op, data, done),
        }
    }

    fn cancel(&self, ticket: Ticket) {
        self.0.cancel(ticket);
    }

    fn abandon(&self, ticket: Ticket) {
        self.0.abandon(ticket);
    }

    fn forget(&self, inos: &[Ino]) {
        self.0.forget(inos);
    }

    fn handle_of(&self, ino: Ino, kind: Kind) -> Option<Handle> {
        self.0.handle_of(ino, kind)
    }

    fn known(&self, handle: &Handle) -> Result<Ino, Errno> {
        self.0.known(handle)
    }

    fn find(&self, handle: &Handle, done: Done) -> Ticket {
        self.0.find(handle, done)
    }

    fn keeping(&self, ino: Ino, tell: &mut dyn FnMut(Caching)) {
        self.0.keeping(ino, tell);
    }

    fn hears_opens(&self) -> bool {
        self.0.hears_opens()
    }

    fn open(&self, caller: &Caller, ino: Ino, how: OpenFor, done: OpenDone) {
        self.0.open(caller, ino, how, done);
    }

    fn close(&self, ino: Ino, open: u64) {
        self.0.close(ino, open);
    }

    fn may_hang(&self) -> bool {
        self.0.may_hang()
    }

    fn losses(&self, ino: Ino) -> u64 {
        self.0.losses(ino)
    }

    fn set_watcher(&self, watcher: Arc<dyn Watcher>) {
        self.0.set_watcher(watcher);
    }
}

/// The disk, mounted.
struct PickyDisk {
    // Before the union: it uses it.
    mounted: Option<Mounted>,
    union: UnionVolume,
    _scratch: Scratch,
}

impl PickyDisk {
    fn new(point: &Path, names: Names) -> Self {
        let scratch = Scratch::new();
        let members = [MemberPath::parse(&scratch.dir("member")).unwrap()];
        let state = state_dir(Some(&scratch.path("state")), &members).unwrap();
        let union = UnionVolume::open("picky".to_owned(), &members, Settings::default(), &state).unwrap();
        fs::create_dir_all(point).unwrap();
        let options = MountOptions { set_id: true, devices: true, ..MountOptions::new("picky") };
        let config = Config { locks: Locks::Local, ..Config::default() };
        let mounted = Mounted::new(Arc::new(Picky(union.files(), names)), point, &options, config).unwrap();
        Self { mounted: Some(mounted), union, _scratch: scratch }
    }
}

impl Drop for PickyDisk {
    fn drop(&mut self) {
        drop(self.mounted.take());
        self.union.stop();
    }
}

/// Two sites, the data directory of the second one on such a disk.
fn on_disk(names: Names) -> (PickyDisk, Sites) {
    let mut nodes = Cluster::bare(1);
    let disk = PickyDisk::new(&nodes.data(1), names);
    nodes.nodes.push(None);
    nodes.addresses.push(format!("127.0.0.1:{}", free_port()));
    nodes.start(1);
    (disk, Sites::at(nodes))
}

/// How many names `atoll status` says that the second site's disk refuses.
fn refused(sites: &Sites) -> usize {
    let said = good(["status", "--data", text(&sites.data(1))]);
    let line = said.lines().find(|line| line.contains("NAMES that the native file system refuses"));
    let count = line.and_then(|line| line.split(": ").nth(1)?.split(';').next()?.parse().ok());
    count.unwrap_or(0)
}

#[test]
fn names_that_a_sites_disk_cannot_store_are_in_its_mount_and_not_in_its_plain_tree() {
    needs!(Mounts);
    let (disk, mut sites) = on_disk(Names::Refused);
    let plain = sites.data(1).join("islands/docs/0/tree");
    let long = "n".repeat(NAME_BYTES_MAX + 40);

    // Files, a directory with something in it, a link, a symbolic link, a rename.
    fs::write(sites.path(0, "a:b"), "colon").unwrap();
    fs::write(sites.path(0, &long), "long").unwrap();
    fs::write(sites.path(0, "plain"), "plain").unwrap();
    fs::create_dir_all(sites.path(0, "what?/sub")).unwrap();
    fs::write(sites.path(0, "what?/inside"), "inside").unwrap();
    fs::write(sites.path(0, "what?/sub/deep"), "deep").unwrap();
    fs::hard_link(sites.path(0, "plain"), sites.path(0, "plain:2")).unwrap();
    std::os::unix::fs::symlink("plain", sites.path(0, "link:")).unwrap();
    fs::write(sites.path(0, "fine"), "renamed").unwrap();
    sites.settle();
    fs::rename(sites.path(0, "fine"), sites.path(0, "not fine.")).unwrap();
    sites.settle();
    let all = tree(&sites.path(0, ""));
    assert_eq!(tree(&sites.path(1, "")), all, "users see all names at both");
    eventually("the rest is in the plain tree", || names(&plain) == ["plain"]);
    eventually("it says how many are not", || refused(&sites) == 6);

    // They are used there as elsewhere.
    fs::write(sites.path(1, "a:b"), "changed at the second").unwrap();
    fs::write(sites.path(1, "own?"), "made at the second").unwrap();
    fs::write(sites.path(1, "what?/inside"), "changed inside").unwrap();
    sites.has(0, "a:b", b"changed at the second");
    sites.has(0, "own?", b"made at the second");
    sites.has(0, "what?/inside", b"changed inside");
    fs::write(sites.path(0, "a:b"), "changed at the first").unwrap();
    sites.has(1, "a:b", b"changed at the first");
    eventually("one more is refused", || refused(&sites) == 7);

    // The site begins anew: it had stopped in order, so it lays nothing again.
    sites.settle();
    sites.mounts[1] = None;
    sites.nodes.nodes[1].take().unwrap().stop();
    let told = run(["check", "--data", text(&sites.data(1))]);
    let said = String::from_utf8(told.stdout).unwrap();
    for name in ["a:b", "own?", "what?", "plain:2", "link:", "not fine.", &long] {
        assert!(said.contains(&format!("tree/{name} is missing [plain-name]")), "{name}: {said}");
    }
    sites.start(1);
    eventually("they are connected", || sites.is_connected(0, 1) && sites.is_connected(1, 0));
    let all = tree(&sites.path(0, ""));
    assert_eq!(tree(&sites.path(1, "")), all);
    eventually("it still says how many are not", || refused(&sites) == 7);

    // Under other names they are in the plain tree, with all that is in them.
    for (from, to) in
        [("a:b", "a"), (&long[..], "short"), ("what?", "what"), ("link:", "link"), ("not fine.", "fine")]
    {
        fs::rename(sites.path(0, from), sites.path(0, to)).unwrap();
    }
    fs::remove_file(sites.path(0, "plain:2")).unwrap();
    fs::remove_file(sites.path(0, "own?")).unwrap();
    sites.settle();
    let all = tree(&sites.path(0, ""));
    assert_eq!(all["what/inside"].as_deref(), Some(&b"changed inside"[..]));
    eventually("all of it is in the plain tree", || tree(&plain) == all);
    eventually("nothing is refused", || refused(&sites) == 0);
    drop(sites);
    drop(disk);
}

#[test]
fn names_that_a_sites_disk_takes_for_one_are_two_in_its_mount() {
    needs!(Mounts);
    let (disk, mut sites) = on_disk(Names::Folded);
    for (dir, word) in [("d", "lower"), ("D", "upper")] {
        fs::create_dir(sites.path(0, dir)).unwrap();
        fs::write(sites.path(0, &format!("{dir}/{word}")), word).unwrap();
    }
    fs::write(sites.path(0, "readme"), "lower").unwrap();
    fs::write(sites.path(0, "README"), "upper").unwrap();
    sites.settle();
    let are_alike = |sites: &Sites, paths: &[&str]| {
        let both = [0, 1].map(|site| tree(&sites.path(site, "")));
        assert!(both[0] == both[1] && both[0].keys().eq(paths), "{both:?}");
    };
    are_alike(&sites, &["D", "D/upper", "README", "d", "d/lower", "readme"]);
    fs::write(sites.path(1, "readme"), "lower, changed").unwrap();
    fs::write(sites.path(1, "D/more"), "more").unwrap();
    sites.settle();
    are_alike(&sites, &["D", "D/more", "D/upper", "README", "d", "d/lower", "readme"]);
    assert_eq!(fs::read(sites.path(1, "README")).unwrap(), b"upper");
    sites.mounts[1] = None;
    sites.nodes.nodes[1].take().unwrap().stop();
    let said = String::from_utf8(run(["check", "--data", text(&sites.data(1))]).stdout).unwrap();
    // Which of the two has the name there depends on which came first.
    for names in [["tree/README", "tree/readme"], ["tree/D", "tree/d"]] {
        let is_told =
            |name: &str| said.contains(&format!("{name} is something else than it should be [plain-name]"));
        assert!(names.into_iter().any(is_told), "{names:?}: {said}");
    }
    sites.start(1);
    eventually("they are connected", || sites.is_connected(0, 1) && sites.is_connected(1, 0));
    fs::remove_file(sites.path(0, "readme")).unwrap();
    fs::remove_dir_all(sites.path(0, "d")).unwrap();
    sites.settle();
    are_alike(&sites, &["D", "D/more", "D/upper", "README"]);
    drop(sites);
    drop(disk);
}
