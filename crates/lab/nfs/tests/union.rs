//! Our server over a union of two plain folders, through the client.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use atoll_core::{Ino, Name};
use atoll_fuse::{Config, Locks, MountOptions, Mounted};
use atoll_lab_nfs::{Export, NfsFiles, Ways};
use atoll_needs::needs;
use atoll_nfs::{Served, Server, SigningKey, serve};
use atoll_posix::{Answer, Caller, Errno, Op, RenameMode};
use atoll_torture::pjdfstest::{self, Expecting};
use atoll_torture::place::Place;
use atoll_union::Settings;
use atoll_vfs::Files;
use atoll_volume::kind::Attached;
use atoll_volume::union::{MemberPath, UnionVolume, state_dir};
use bytes::Bytes;

/// A run in which fewer pass has not tested what it should: NFSv3 has two tests less than a volume.
const PASSED_MIN: usize = 394;

/// A server as a new process would have it: it knows nothing but the members and the key.
struct OverUnion {
    members: Vec<PathBuf>,
    volume: UnionVolume,
    server: Server,
}

impl OverUnion {
    fn start(place: &Place, members: &[PathBuf], start: u64, at: SocketAddr) -> Self {
        let paths = members.to_vec();
        let members: Vec<MemberPath> = members.iter().map(|path| MemberPath::parse(path).unwrap()).collect();
        let state = state_dir(Some(&place.join("state")), &members).unwrap();
        let volume = UnionVolume::open("union".to_owned(), &members, Settings::default(), &state).unwrap();
        let rules = vec!["127.0.0.1(no_root_squash)".parse().unwrap()];
        let id = volume.config().id.0;
        let key = SigningKey::new([7; 16]);
        let served = Served { id, kind: 2, name: "union".to_owned(), key, rules, start };
        let until = Instant::now() + Duration::from_secs(60);
        let listener = loop {
            match TcpListener::bind(at) {
                Ok(listener) => break listener,
                Err(why) => assert!(Instant::now() < until, "{why}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let server = serve(volume.files(), served, listener).unwrap();
        Self { members: paths, volume, server }
    }

    /// Ends it. Its members have nothing that no user made.
    fn end(self) {
        self.server.stop();
        self.volume.stop();
        assert_eq!(atoll_needs::left_in(&self.members).unwrap(), Vec::<String>::new());
    }
}

fn members(place: &Place) -> Vec<PathBuf> {
    let member = |name: &str| {
        let path = place.join(name);
        fs::create_dir_all(path.join("d")).unwrap();
        path
    };
    vec![member("one"), member("two")]
}

fn mounted(at: SocketAddr, point: &Path) -> Mounted {
    let export = Export { nfs: at, mount: at, path: "/union".to_owned() };
    let files = Arc::new(NfsFiles::connect(&export, Ways::default()).unwrap());
    let options = MountOptions { set_id: true, devices: true, ..MountOptions::new("nfs") };
    fs::create_dir_all(point).unwrap();
    Mounted::new(files, point, &options, Config { locks: Locks::Local, ..Config::default() }).unwrap()
}

#[test]
fn a_client_goes_on_by_its_handles_when_the_server_has_started_again() {
    needs!(Mounts);
    let place = Place::new("nfs-union").unwrap();
    let members = members(&place);
    let server = OverUnion::start(&place, &members, 1, "127.0.0.1:0".parse().unwrap());
    let at = server.server.address();
    let mount = mounted(at, &place.join("mnt"));
    let dir = mount.path().join("d");
    fs::write(dir.join("f"), "before").unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(dir.join("f")).unwrap();
    server.end();
    // Moved meanwhile: the handle follows it.
    let home = members.iter().find(|member| member.join("d/f").exists()).unwrap();
    fs::rename(home.join("d/f"), home.join("g")).unwrap();
    let server = OverUnion::start(&place, &members, 2, at);
    std::os::unix::fs::FileExt::write_at(&file, b"behind", 6).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read_to_string(home.join("g")).unwrap(), "beforebehind");
    fs::write(dir.join("new"), "x").unwrap();
    assert!(members.iter().any(|member| member.join("d/new").exists()));
    // A file that is made anew under the name of one that is gone is another file.
    fs::remove_file(home.join("g")).unwrap();
    fs::write(home.join("g"), "another one").unwrap();
    let read = std::os::unix::fs::FileExt::read_at(&file, &mut [0; 5], 0);
    assert_eq!(read.unwrap_err().raw_os_error(), Some(rustix::io::Errno::STALE.raw_os_error()));
    drop(mount);
    server.end();
}

/// Stands between a client and a server, and passes everything on. When it is told to, it loses one answer and the connection with it.
struct Between {
    address: SocketAddr,
    loses: Arc<AtomicBool>,
    connections: Arc<AtomicUsize>,
}

impl Between {
    fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (loses, connections) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (lose, count) = (Arc::clone(&loses), Arc::clone(&connections));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (mut client, mut server) = (client.unwrap(), TcpStream::connect(server).unwrap());
                count.fetch_add(1, SeqCst);
                let (mut calls, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut calls, &mut to));
                let lose = Arc::clone(&lose);
                std::thread::spawn(move || {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(read @ 1..) = server.read(&mut bytes) {
                        if lose.swap(false, SeqCst) || client.write_all(&bytes[..read]).is_err() {
                            break;
                        }
                    }
                    // The client may have gone already.
                    let _gone = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, loses, connections }
    }
}

/// Runs an operation. Over NFS it ends before this returns.
fn run(files: &NfsFiles, op: Op) -> Result<Answer, Errno> {
    let (send, outcome) = std::sync::mpsc::channel();
    files.submit(&Caller::ROOT, op, Bytes::new(), Box::new(move |told, _| send.send(told).unwrap()));
    outcome.recv().unwrap()
}

#[test]
fn a_rename_whose_answer_is_lost_is_answered_the_same_by_another_connection() {
    let place = Place::new("nfs-union").unwrap();
    let members = members(&place);
    let server = OverUnion::start(&place, &members, 1, "127.0.0.1:0".parse().unwrap());
    let between = Between::new(server.server.address());
    let export = Export { nfs: between.address, mount: between.address, path: "/union".to_owned() };
    let files = NfsFiles::connect(&export, Ways::default()).unwrap();
    let name = |text: &str| Name::new(text.as_bytes()).unwrap();
    let lookup = |text: &str| Op::Lookup { dir: Ino::ROOT, name: name(text) };
    // One name is in one member only, the other one in both.
    fs::write(members[0].join("f"), "f").unwrap();
    for (old, new) in [("f", "g"), ("d", "e")] {
        let Ok(Answer::Found { found }) = run(&files, lookup(old)) else { panic!("{old} is not there") };
        let (before, mode) = (between.connections.load(SeqCst), RenameMode::Replace);
        let (dir, new_dir) = (Ino::ROOT, Ino::ROOT);
        let (meant, new_meant) = (None, None);
        let rename =
            Op::Rename { dir, name: name(old), new_dir, new_name: name(new), mode, meant, new_meant };
        between.loses.store(true, SeqCst);
        run(&files, rename.clone()).unwrap();
        assert!(!between.loses.load(SeqCst) && between.connections.load(SeqCst) > before);
        // It was done once: another one finds nothing.
        assert_eq!(run(&files, rename), Err(Errno::ENOENT));
        let Ok(Answer::Found { found: moved }) = run(&files, lookup(new)) else {
            panic!("{new} is not there")
        };
        assert_eq!(moved.attr.ino, found.attr.ino);
    }
    server.end();
}

#[test]
fn pjdfstest_over_nfs_over_a_union_finds_only_what_nfs_cannot_do() {
    needs!(Mounts, Programs(&["pjdfstest"]));
    let place = Place::new("nfs-union").unwrap();
    let server = OverUnion::start(&place, &members(&place), 1, "127.0.0.1:0".parse().unwrap());
    let mount = mounted(server.server.address(), &place.join("mnt"));
    let list = include_str!("../pjdfstest-expected.txt");
    let expecting = Expecting { list, passed_min: PASSED_MIN, tick_ms: 20 };
    let report = pjdfstest::run_expecting(mount.path(), place.path(), None, &expecting).unwrap();
    assert!(report.is_expected(), "{report}");
    drop(mount);
    server.end();
}

#[test]
fn a_mount_and_nfs_clients_share_one_union() {
    needs!(Mounts);
    let place = Place::new("nfs-union").unwrap();
    let server = OverUnion::start(&place, &members(&place), 1, "127.0.0.1:0".parse().unwrap());
    let remote = mounted(server.server.address(), &place.join("mnt"));
    let options = MountOptions { set_id: true, devices: true, ..MountOptions::new("union") };
    fs::create_dir_all(place.join("here")).unwrap();
    let config = Config { locks: Locks::Local, ..Config::default() };
    let here = Mounted::new(server.volume.session().unwrap(), &place.join("here"), &options, config).unwrap();
    let [here_f, remote_f] = [&here, &remote].map(|mount| mount.path().join("d/f"));
    fs::write(&here_f, "one").unwrap();
    let ino = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    assert_eq!(fs::read_to_string(&remote_f).unwrap(), "one");
    assert_eq!(ino(&here_f), ino(&remote_f));
    // The mount's kernel has kept the name and the size. It is told at once.
    let open = fs::File::open(&here_f).unwrap();
    fs::write(&remote_f, "longer").unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while fs::metadata(&here_f).unwrap().len() != 6 || fs::read_to_string(&here_f).unwrap() != "longer" {
        assert!(Instant::now() < until, "the mount never sees it");
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::remove_file(&remote_f).unwrap();
    while here_f.exists() {
        assert!(Instant::now() < until, "the mount never sees that it is gone");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut bytes = [0; 6];
    std::os::unix::fs::FileExt::read_exact_at(&open, &mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"longer", "it is open here, whatever NFS clients know");
    drop((open, here, remote));
    server.end();
}
