//! A volume in memory, mounted for real: what programs see through the kernel.

mod common;

use atoll_core::{Ino, Name};
use atoll_fuse::{AccessTimes, Config, Keep, MountError, MountOptions, Mounted};
use atoll_needs::needs;
use atoll_posix::{Kind, Op};
use atoll_vfs::Caching;
use common::{Memory, PATIENCE, Place, World, create, eventually, python};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

#[test]
fn files_are_made_written_read_renamed_and_removed() {
    needs!(Mounts);
    let world = World::new("basic");
    let (a, b) = (world.at("a"), world.at("b"));
    fs::write(&a, b"hello").unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"hello");
    fs::OpenOptions::new().append(true).open(&a).unwrap().write_all(b" world").unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"hello world");
    assert_eq!(fs::metadata(&a).unwrap().len(), 11);
    fs::write(&a, b"short").unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"short");
    fs::rename(&a, &b).unwrap();
    assert!(fs::metadata(&a).is_err());
    fs::hard_link(&b, &a).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().nlink(), 2);
    std::os::unix::fs::symlink("b", world.at("s")).unwrap();
    assert_eq!(fs::read_link(world.at("s")).unwrap().to_str(), Some("b"));
    assert_eq!(fs::read(world.at("s")).unwrap(), b"short");
    fs::create_dir(world.at("d")).unwrap();
    assert!(fs::create_dir(world.at("d")).is_err());
    fs::write(world.at("d/x"), b"").unwrap();
    assert_eq!(fs::remove_dir(world.at("d")).unwrap_err().raw_os_error(), Some(39));
    fs::remove_file(world.at("d/x")).unwrap();
    fs::remove_dir(world.at("d")).unwrap();
    fs::set_permissions(&b, fs::Permissions::from_mode(0o4711)).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().mode() & 0o7777, 0o4711);
    let file = fs::File::open(&b).unwrap();
    fs::remove_file(&a).unwrap();
    fs::remove_file(&b).unwrap();
    let mut text = String::new();
    (&file).read_to_string(&mut text).unwrap();
    assert_eq!(text, "short", "a removed file can be read while it is open");
}

#[test]
fn ten_thousand_names_are_listed_once_each_and_in_pieces() {
    needs!(Mounts, Programs(&["python3"]));
    let world = World::new("many");
    let dir = world.at("dir");
    fs::create_dir(&dir).unwrap();
    for at in 0..10_000 {
        fs::File::create(dir.join(format!("file-{at}"))).unwrap();
    }
    let mut seen: Vec<String> =
        fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 10_000);
    let walked = python(
        "import os,sys\nd=os.open(sys.argv[1]+'/dir',os.O_RDONLY)\n\
         print(len(os.listdir(d)), len([e for e in os.scandir(d) if e.stat().st_size == 0]))",
        &world.place.0,
    );
    assert_eq!(walked.trim(), "10000 10000");
    let all = Command::new("ls").arg("-a").arg(&dir).output().unwrap();
    assert_eq!(String::from_utf8(all.stdout).unwrap().lines().take(2).collect::<Vec<_>>(), [".", ".."]);
}

#[test]
fn large_writes_come_whole_and_in_large_pieces() {
    needs!(Mounts);
    let world = World::new("large");
    let data: Vec<u8> = (0..9_000_001u32).map(|i| (i * 7 % 251) as u8).collect();
    let file = fs::File::options().create_new(true).read(true).write(true).open(world.at("f")).unwrap();
    file.write_all_at(&data, 0).unwrap();
    file.sync_all().unwrap();
    assert!(world.requests("WRITE") <= 10, "{} writes", world.requests("WRITE"));
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    assert_eq!(fs::read(world.at("f")).unwrap(), data);
    assert!(world.requests("READ") <= 40, "{} reads", world.requests("READ"));
    let mut part = vec![0; 5000];
    file.read_exact_at(&mut part, 1_234_567).unwrap();
    assert_eq!(part, data[1_234_567..1_239_567]);
}

#[test]
fn a_mapped_file_can_be_changed_whether_or_not_pages_are_kept() {
    needs!(Mounts, Programs(&["python3"]));
    for caching in [Caching::UntilRecalled, Caching::Never] {
        let world = World::new("mapped");
        *world.files.caching.lock().unwrap() = caching;
        fs::write(world.at("f"), vec![b'.'; 10_000]).unwrap();
        python(
            "import mmap,sys\nf=open(sys.argv[1]+'/f','r+b')\nm=mmap.mmap(f.fileno(),0)\n\
             m[5000:5003]=b'abc'\nm.flush()\nassert m[4999:5004]==b'.abc.'",
            &world.place.0,
        );
        assert_eq!(&fs::read(world.at("f")).unwrap()[4999..5004], b".abc.");
    }
}

#[test]
fn appends_from_two_processes_never_overwrite_each_other() {
    needs!(Mounts, Programs(&["python3"]));
    let world = World::new("append");
    python(
        "import os,sys\nfor i in range(4):\n  if os.fork()==0:\n    f=os.open(sys.argv[1]+'/f',os.O_CREAT|os.O_WRONLY|os.O_APPEND)\n\
         \x20   for j in range(200): os.write(f,b'%d'%i*7+b'\\n')\n    os._exit(0)\nfor i in range(4): assert os.wait()[1]==0",
        &world.place.0,
    );
    let text = fs::read_to_string(world.at("f")).unwrap();
    assert_eq!(text.lines().count(), 800);
    assert!(text.lines().all(|l| l.len() == 7 && l.bytes().all(|b| b == l.as_bytes()[0])));
}

#[test]
fn extended_attributes_and_space_are_shown() {
    needs!(Mounts, Programs(&["python3"]));
    let world = World::new("xattr");
    fs::write(world.at("f"), b"").unwrap();
    python(
        "import os,sys,errno\nf=sys.argv[1]+'/f'\nos.setxattr(f,'user.a',b'x'*1000)\nos.setxattr(f,'user.b',b'')\n\
         assert os.getxattr(f,'user.a')==b'x'*1000\nassert os.getxattr(f,'user.b')==b''\n\
         assert sorted(os.listxattr(f))==['user.a','user.b']\nos.removexattr(f,'user.a')\n\
         try: os.getxattr(f,'user.a'); assert 0\nexcept OSError as e: assert e.errno==errno.ENODATA\n\
         s=os.statvfs(f)\nassert s.f_blocks*s.f_frsize==1<<40 and s.f_bavail*s.f_frsize==1<<38 and s.f_files==1000 and s.f_namemax==255",
        &world.place.0,
    );
}

#[test]
fn what_the_kernel_forgets_is_forgotten_and_the_volume_told() {
    needs!(Mounts);
    let world = World::new("forget");
    fs::create_dir(world.at("d")).unwrap();
    for at in 0..500 {
        fs::write(world.at(&format!("d/{at}")), b"x").unwrap();
    }
    // While they are open the kernel forgets none, however much memory is asked of it elsewhere.
    let mut files: Vec<_> =
        (0..500).map(|at| fs::File::open(world.at(&format!("d/{at}"))).unwrap()).collect();
    for _ in 0..3 {
        let sizes = fs::read_dir(world.at("d")).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
        assert_eq!(sizes.sum::<u64>(), 500);
    }
    assert_eq!(world.mounted().nodes_known(), 501);
    let told =
        |from: usize| world.files.forgotten.lock().unwrap()[from..].iter().copied().collect::<BTreeSet<_>>();
    let file = files.swap_remove(7);
    let open = Ino(file.metadata().unwrap().ino());
    let opened = world.files.forgotten.lock().unwrap().len();
    drop(files);
    eventually(|| {
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        // The open file and the directory that its name is in.
        world.mounted().nodes_known() == 2
    });
    eventually(|| told(opened).len() == 499);
    assert!(!told(opened).contains(&open));
    drop(file);
    eventually(|| {
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        world.mounted().nodes_known() == 0
    });
    eventually(|| told(opened).len() == 501);
}

#[test]
fn what_is_kept_is_used_until_recalled_and_not_after() {
    needs!(Mounts);
    let world = World::new("recall");
    assert!(world.mounted().protocol_minor() >= 44, "this kernel cannot drop names; nothing is kept");
    fs::create_dir(world.at("sub")).unwrap();
    fs::write(world.at("f"), b"old").unwrap();
    let open = fs::File::open(world.at("f")).unwrap();
    let inside = Command::new("sleep").arg("60").current_dir(world.at("sub")).spawn();
    let mut inside = inside.unwrap();
    assert_eq!(fs::read(world.at("f")).unwrap(), b"old");
    assert!(fs::metadata(world.at("absent")).is_err());
    assert_eq!(fs::read_dir(&world.place.0).unwrap().count(), 2);
    let lookups = world.requests("LOOKUP");
    for _ in 0..10 {
        assert_eq!(fs::read(world.at("f")).unwrap(), b"old");
        assert!(fs::metadata(world.at("absent")).is_err());
        assert_eq!(fs::read_dir(&world.place.0).unwrap().count(), 2);
    }
    assert_eq!(world.requests("LOOKUP"), lookups, "names and absent names are kept");

    let write = Op::Write { ino: world.files.id("f"), offset: 0, append: false, kill_set_id: false };
    world.files.behind(write, b"new bytes");
    world.files.behind(create("absent"), b"");
    assert!(fs::metadata(world.at("absent")).is_err(), "the kernel still believes what it keeps");

    world.files.recall();
    assert!(fs::metadata(world.at("absent")).is_ok());
    assert_eq!(fs::read_dir(&world.place.0).unwrap().count(), 3);
    assert_eq!(fs::metadata(world.at("f")).unwrap().len(), 9);
    assert_eq!(fs::read(world.at("f")).unwrap(), b"new bytes");
    let mut text = String::new();
    (&open).read_to_string(&mut text).unwrap();
    assert_eq!(text, "new bytes", "a file that was open sees the change too");
    let cwd = fs::read_link(format!("/proc/{}/cwd", inside.id())).unwrap();
    assert_eq!(cwd, world.at("sub"), "a working directory keeps its path");
    inside.kill().unwrap();
    inside.wait().unwrap();

    // From here on every change is seen at once.
    let remove = Op::Unlink { dir: Ino::ROOT, name: name("absent") };
    world.files.behind(remove, b"");
    assert!(fs::metadata(world.at("absent")).is_err());
    let write = Op::Write { ino: world.files.id("f"), offset: 0, append: false, kill_set_id: false };
    world.files.behind(write, b"NEWER");
    assert_eq!(fs::read(world.at("f")).unwrap(), b"NEWERytes");
    world.files.behind(create("later"), b"");
    assert!(fs::metadata(world.at("later")).is_ok());
    assert_eq!(fs::read_dir(&world.place.0).unwrap().count(), 3);
}

#[test]
fn a_recall_ends_while_requests_keep_coming() {
    needs!(Mounts);
    let world = World::new("storm");
    for at in 0..200 {
        fs::write(world.at(&format!("{at}")), vec![1; 100_000]).unwrap();
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        for part in 0..3 {
            let (world, stop) = (&world, &stop);
            s.spawn(move || {
                while !stop.load(SeqCst) {
                    for at in (part..200).step_by(3) {
                        assert_eq!(fs::read(world.at(&format!("{at}"))).unwrap().len(), 100_000);
                    }
                }
            });
        }
        let begun = Instant::now();
        for _ in 0..20 {
            *world.files.caching.lock().unwrap() = Caching::UntilRecalled;
            std::thread::sleep(Duration::from_millis(10));
            world.files.recall();
        }
        stop.store(true, SeqCst);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    });
}

#[test]
fn open_with_create_of_a_file_that_appeared_meanwhile_opens_it_with_its_permissions() {
    needs!(Mounts, Programs(&["python3"]));
    let world = World::new("appeared");
    fs::set_permissions(&world.place.0, fs::Permissions::from_mode(0o777)).unwrap();
    for file in ["f", "g"] {
        // The kernel keeps that they are absent.
        assert!(fs::metadata(world.at(file)).is_err());
        let create = Op::Create {
            dir: Ino::ROOT,
            name: name(file),
            kind: Kind::Regular,
            mode: 0o600,
            umask: 0,
            rdev: 0,
            exclusive: true,
            target: bytes::Bytes::new(),
        };
        world.files.behind(create, b"");
        let write = Op::Write { ino: world.files.id(file), offset: 0, append: false, kill_set_id: false };
        world.files.behind(write, b"secret");
    }
    python(
        "import os,sys,errno\nos.setuid(65534)\n\
         try: os.open(sys.argv[1]+'/f',os.O_CREAT|os.O_RDWR|os.O_TRUNC,0o666); assert 0\n\
         except PermissionError: pass",
        &world.place.0,
    );
    let mut file =
        fs::File::options().create(true).truncate(false).read(true).write(true).open(world.at("f")).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "secret");
    let file = fs::File::options().create(true).truncate(true).write(true).open(world.at("g")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    let again = fs::File::options().create_new(true).write(true).open(world.at("g"));
    assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
}

#[test]
fn a_slow_read_does_not_keep_others_waiting() {
    needs!(Mounts);
    let world = World::new("slow");
    *world.files.caching.lock().unwrap() = Caching::Never;
    for at in 0..8 {
        fs::write(world.at(&format!("{at}")), b"x").unwrap();
    }
    *world.files.held.lock().unwrap() = (0..8).map(|at| world.files.id(&format!("{at}"))).collect();
    let (sender, looked) = std::sync::mpsc::channel();
    std::thread::scope(|s| {
        for at in 0..8 {
            let world = &world;
            s.spawn(move || assert_eq!(fs::read(world.at(&format!("{at}"))).unwrap(), b"x"));
        }
        // All of them are asked for at once, and a look is answered meanwhile. The times only catch a request that
        // would wait for the reads.
        let until = Instant::now() + PATIENCE;
        while world.files.holding.load(SeqCst) < 8 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let held = world.files.holding.load(SeqCst);
        let world = &world;
        s.spawn(move || sender.send(fs::metadata(world.at("none")).is_err()).unwrap());
        let looked = looked.recv_timeout(PATIENCE);
        world.files.held.lock().unwrap().clear();
        assert_eq!((held, looked), (8, Ok(true)));
    });
}

#[test]
fn groups_are_looked_up_only_for_who_is_refused() {
    needs!(Mounts, Programs(&["python3"]));
    let world = World::new("groups");
    world.files.guarded_group.store(4242, SeqCst);
    fs::create_dir(world.at("d")).unwrap();
    std::os::unix::fs::chown(world.at("d"), None, Some(4242)).unwrap();
    fs::set_permissions(world.at("d"), fs::Permissions::from_mode(0o770)).unwrap();
    python(
        "import os,sys\nos.setgroups([4242,17]); os.setgid(65534); os.setuid(65534)\nos.mkdir(sys.argv[1]+'/d/in')",
        &world.place.0,
    );
    assert_eq!(fs::metadata(world.at("d/in")).unwrap().uid(), 65534);
    let refused = Command::new("python3")
        .args([
            "-c",
            "import os,sys\nos.setgroups([4243]);os.setgid(4242);os.setuid(65534)\nos.mkdir(sys.argv[1])",
        ])
        .arg(world.at("d/out"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("PermissionError"));
}

#[test]
fn an_operation_that_a_volume_lacks_is_asked_for_again() {
    needs!(Mounts);
    let world = World::new("lacking");
    let file = fs::File::create(world.at("f")).unwrap();
    world.files.broken.store(true, SeqCst);
    assert!(file.sync_all().is_err(), "a false fsync would lose data");
    world.files.broken.store(false, SeqCst);
    let syncs = world.requests("FSYNC");
    file.sync_all().unwrap();
    assert_eq!(world.requests("FSYNC"), syncs + 1);
}

#[test]
fn birth_times_are_shown_if_wanted() {
    needs!(Mounts);
    let config = Config { birth_times: true, ..Config::default() };
    let world = World::with("birth", Arc::new(Memory::default()), config);
    fs::write(world.at("f"), b"x").unwrap();
    let meta = fs::metadata(world.at("f")).unwrap();
    assert!(meta.created().unwrap().elapsed().unwrap() < Duration::from_secs(60));
    assert_eq!((meta.len(), meta.mode() & 0o170_000), (1, 0o100_000));
    let plain = World::new("no-birth");
    fs::write(plain.at("f"), b"x").unwrap();
    assert!(fs::metadata(plain.at("f")).unwrap().created().is_err());
}

#[test]
fn an_unmount_leaves_nothing_even_while_files_are_open() {
    needs!(Mounts);
    let mut world = World::new("gone");
    let path = world.place.0.clone();
    fs::write(world.at("f"), b"x").unwrap();
    let open = fs::File::open(world.at("f")).unwrap();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(mounts().contains(path.to_str().unwrap()) && mounts().contains("fuse.atoll gone "));
    world.mounted().unmount();
    world.mounted().unmount();
    assert!(!mounts().contains(path.to_str().unwrap()));
    world.mounted().wait();
    assert!(open.read_at(&mut [0], 0).is_err() || open.metadata().is_ok());
    assert_eq!(world.files.forgotten.lock().unwrap().len(), 1, "the volume hears that all is forgotten");
    world.mounted.take();
    assert!(fs::read_dir(&path).unwrap().next().is_none());
    // Nothing holds the volume any more, once the last thread has left.
    eventually(|| Arc::strong_count(&world.files) == 1);
}

#[test]
fn a_mount_that_was_removed_by_others_is_noticed_and_what_follows_there_left_alone() {
    needs!(Mounts);
    let world = World::new("others");
    fs::write(world.at("f"), b"x").unwrap();
    assert!(Command::new("umount").arg(&world.place.0).status().unwrap().success());
    world.mounted().wait();
    let second = Mounted::new(
        Arc::new(Memory::default()),
        &world.place.0,
        &MountOptions::new("second"),
        Config::default(),
    );
    let second = second.unwrap();
    world.mounted().unmount();
    assert!(mounted_at(&world.place.0));
    drop(second);
    assert!(!mounted_at(&world.place.0));
}

#[test]
fn fusermount_mounts_too() {
    needs!(Mounts);
    let place = Place::new("helper");
    let files = Arc::new(Memory::default());
    let mounted =
        Mounted::by_helper(files, &place.0, &MountOptions::new("a:1,b\\c:1:/h, suid"), Config::default())
            .unwrap();
    fs::write(place.0.join("f"), b"x").unwrap();
    assert_eq!(fs::read(place.0.join("f")).unwrap(), b"x");
    // The helper cuts its options at commas: those of the source are not meant.
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(table.contains("fuse.atoll a:1,b\\134c:1:/h,\\040suid "), "{table}");
    drop(mounted);
    // What the kernel knows by flags, it is told by words.
    let options = MountOptions {
        no_exec: true,
        sync: true,
        access_times: AccessTimes::NEVER,
        ..MountOptions::new("w")
    };
    let files = Arc::new(Memory::default());
    let mounted = Mounted::by_helper(files, &place.0, &options, Config::default()).unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains("fuse.atoll w ")).unwrap();
    for word in ["noexec", "noatime", "sync"] {
        assert!(line.contains(word), "{word} is missing: {line}");
    }
    drop(mounted);
    assert!(fs::read_dir(&place.0).unwrap().next().is_none());
    let full = Mounted::by_helper(
        Arc::new(Memory::default()),
        std::path::Path::new("/proc"),
        &MountOptions::new("h"),
        Config::default(),
    );
    assert!(matches!(full, Err(MountError::NotEmpty(_))));
}

/// Run by the test below in a process of its own, which is killed.
#[test]
#[ignore = "half of another test"]
fn a_daemon_to_be_killed() {
    let Ok(path) = std::env::var("ATOLL_FUSE_KILLED_AT") else { return };
    let files = Arc::new(Memory::default());
    let options = MountOptions::new("killed");
    let _mounted = Mounted::new(files, path.as_ref(), &options, Config::default()).unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn what_a_killed_daemon_left_is_cleared_by_the_next_mount() {
    needs!(Mounts);
    let place = Place::new("killed");
    let mut daemon = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "a_daemon_to_be_killed"])
        .env("ATOLL_FUSE_KILLED_AT", &place.0)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    eventually(|| mounted_at(&place.0));
    fs::write(place.0.join("f"), b"x").unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert_eq!(fs::metadata(&place.0).unwrap_err().raw_os_error(), Some(107), "the mount is dead");
    let options = MountOptions::new("next");
    let next = Mounted::new(Arc::new(Memory::default()), &place.0, &options, Config::default()).unwrap();
    fs::write(place.0.join("g"), b"y").unwrap();
    drop(next);
    assert!(!mounted_at(&place.0));
}

fn mounted_at(path: &std::path::Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().contains(path.to_str().unwrap())
}

#[test]
fn pages_survive_own_writes_only_where_nobody_else_can_write() {
    needs!(Mounts);
    for (keep, again) in [(Keep::Alone, false), (Keep::Recallable, true), (Keep::Nothing, true)] {
        let world = World::with("pages", Arc::new(Memory::default()), Config { keep, ..Config::default() });
        fs::write(world.at("f"), vec![b'.'; 100_000]).unwrap();
        assert_eq!(fs::read(world.at("f")).unwrap().len(), 100_000);
        let reads = world.requests("READ");
        let file = fs::File::options().read(true).write(true).open(world.at("f")).unwrap();
        file.write_all_at(b"own", 50_000).unwrap();
        let mut seen = [0; 5];
        file.read_exact_at(&mut seen, 49_999).unwrap();
        assert_eq!(&seen, b".own.");
        assert_eq!(world.requests("READ") > reads, again, "{keep:?}");
    }
}

#[test]
fn what_others_mounted_below_is_detached_by_a_recall_when_it_is_walked() {
    needs!(Mounts);
    let world = World::new("below");
    fs::create_dir(world.at("d")).unwrap();
    let tmpfs = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(world.at("d")).status();
    assert!(tmpfs.unwrap().success() && mounted_at(&world.at("d")));
    world.files.recall();
    assert!(fs::metadata(world.at("d")).is_ok());
    assert!(!mounted_at(&world.at("d")), "the kernel has learnt to keep it: say so in KERNEL.md");
}
