//! A union of three members, ext4, XFS and tmpfs: suites and programs that others wrote, over the mount. Afterwards the
//! members have what the mount showed, and nothing else.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use atoll_needs::needs;
use atoll_torture::daemon::{PATIENCE, binary};
use atoll_torture::pjdfstest::{self, Expecting};
use atoll_torture::place::{DiskKind, Place, SmallDisk, run};
use atoll_torture::programs;

/// A union, which ends with the test.
struct Union {
    place: Place,
    mount: PathBuf,
    members: Vec<(PathBuf, SmallDisk)>,
}

impl Union {
    fn new(name: &str) -> Self {
        Self::with(name, [400; 3], "place=dir", &|_| {})
    }

    /// With disks of so many MiB, by this rule, and with what is put on them.
    fn with(name: &str, sizes: [u64; 3], rule: &str, fill: &dyn Fn(&Path)) -> Self {
        let place = Place::new(name).unwrap();
        let kinds = [("ext4", DiskKind::Ext4), ("xfs", DiskKind::Xfs), ("tmpfs", DiskKind::Tmpfs)];
        let disk = |((name, kind), size): ((&str, DiskKind), u64)| {
            let disk = SmallDisk::new(kind, size, &place.join(name)).unwrap();
            let member = place.join(name).join("member");
            std::fs::create_dir(&member).unwrap();
            fill(&member);
            (member, disk)
        };
        let members: Vec<_> = kinds.into_iter().zip(sizes).map(disk).collect();
        let mount = place.join("mnt");
        std::fs::create_dir_all(&mount).unwrap();
        let mut command = Command::new(binary());
        command.arg("union").args(members.iter().map(|(path, _)| path)).arg(&mount);
        run(command
            .args(["-o", &format!("suid,dev,allow_other,{rule}"), "--state"])
            .arg(place.join("state")))
        .unwrap();
        Self { place, mount, members }
    }

    fn paths(below: &Path) -> Vec<String> {
        let listed = run(Command::new("find").args([".", "-mindepth", "1"]).current_dir(below)).unwrap();
        let mut paths: Vec<String> = listed.lines().map(str::to_owned).collect();
        paths.sort();
        paths
    }

    /// Ends it. What the mount showed last is what the members have.
    fn end(self) {
        let shown = Self::paths(&self.mount);
        run(Command::new(binary()).arg("umount").arg(&self.mount)).unwrap();
        let mut there: Vec<String> = self.members.iter().flat_map(|(path, _)| Self::paths(path)).collect();
        there.sort();
        there.dedup();
        assert_eq!(there, shown);
    }
}

impl Drop for Union {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // A disk that the test has pulled is not looked at.
            let there = self.members.iter().map(|(path, _)| path).filter(|path| path.is_dir());
            let left = atoll_needs::left_in(&there.collect::<Vec<_>>()).unwrap();
            assert_eq!(left, Vec::<String>::new(), "members have what no user made");
        }
        let _ = rustix::mount::unmount(&self.mount, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn pjdfstest_finds_only_what_is_expected_over_a_union() {
    needs!(Mounts, LoopDevices, Programs(&["pjdfstest", "mkfs.ext4", "mkfs.xfs", "mount"]));
    let union = Union::new("union-pjdfstest");
    // The times are those of the members' file systems, whose clocks tick so slowly.
    let expecting = Expecting { tick_ms: 20, ..Expecting::default() };
    let report = pjdfstest::run_expecting(&union.mount, union.place.path(), None, &expecting).unwrap();
    assert!(report.is_expected(), "{report}");
    union.end();
}

#[test]
fn programs_that_people_use_work_over_a_union() {
    needs!(Mounts, LoopDevices, Programs(&["mkfs.ext4", "mkfs.xfs", "mount"]));
    let union = Union::new("union-programs");
    let names = ["fsx", "fio", "git", "sqlite", "make", "copy", "maildir", "vim"];
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mounts = [union.mount.clone()];
    programs::run_all(&mounts, union.place.path(), programs::Scale::Short, &names, &mut |line| {
        eprintln!("{line}")
    })
    .unwrap();
    union.end();
}

/// Where the programs of `what_programs_move_and_link_...` work, when it has started itself again below strace.
const TRACED: &str = "ATOLL_TRACED_MOUNT";

/// As Sonarr imports a download (a hard link, and then a rename of the folder), and as a person moves things.
const IMPORT: &str = r#"set -e
mkdir -p downloads/show library/show/season
for n in 1 2 3 4 5 6; do mkdir -p downloads/show/$n library/show/season/$n; echo $n >downloads/show/$n/f; done
for n in 1 2 3 4 5 6; do ln downloads/show/$n/f library/show/season/$n/.f.partial; mv library/show/season/$n/.f.partial library/show/season/$n/f; done
mv library/show/season library/show/01
mv downloads/show done
mv done/3/f library/show/01/3/f2
mv library "the library"
test "$(cat "the library/show/01/5/f")" = 5 && test "$(cat "the library/show/01/3/f2")" = 3
test "$(find . -type f | wc -l)" = 12
"#;

#[test]
fn what_programs_move_and_link_never_spans_file_systems() {
    if let Some(mount) = std::env::var_os(TRACED) {
        let mount = PathBuf::from(mount);
        run(Command::new("sh").args(["-c", IMPORT]).current_dir(&mount)).unwrap();
        let names = ["worktrees", "packages", "npm", "incremental", "cargo", "snapshots", "saves"];
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let outside = mount.parent().unwrap().to_owned();
        let say = &mut |line: &str| eprintln!("{line}");
        return programs::run_all(&[mount], &outside, programs::Scale::Short, &names, say).unwrap();
    }
    needs!(
        Mounts,
        LoopDevices,
        Programs(&["mkfs.ext4", "mkfs.xfs", "mount", "strace", "rsync", "git", "npm"])
    );
    let union = Union::new("union-moves");
    let log = union.place.join("calls");
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "--seccomp-bpf", "-e", "trace=rename,renameat,renameat2,link,linkat", "-o"])
        .arg(&log);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "--nocapture"]);
    command.arg("what_programs_move_and_link_never_spans_file_systems").env(TRACED, &union.mount);
    run(&mut command).unwrap();
    let calls = std::fs::read_to_string(&log).unwrap();
    let ours = |line: &&str| !line.contains("exited with") && !line.contains("+++");
    assert!(calls.lines().filter(ours).count() > 100, "it has seen what was renamed:\n{calls}");
    let spanned: Vec<&str> = calls.lines().filter(|line| line.contains("EXDEV")).collect();
    assert!(spanned.is_empty(), "{}", spanned.join("\n"));
    union.end();
}

/// By the rule of the paper files of one directory lie in all members, so every directory does.
#[test]
fn programs_work_where_every_directory_lies_in_all_members() {
    needs!(Mounts, LoopDevices, Programs(&["mkfs.ext4", "mkfs.xfs", "mount", "git", "npm"]));
    let union = Union::with("union-spread", [400; 3], "place=manager", &|_| {});
    let names =
        ["worktrees", "packages", "npm", "incremental", "snapshots", "saves", "git", "maildir", "copy"];
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mounts = [union.mount.clone()];
    let say = &mut |line: &str| eprintln!("{line}");
    programs::run_all(&mounts, union.place.path(), programs::Scale::Short, &names, say).unwrap();
    union.end();
}

#[test]
fn a_disk_that_is_pulled_is_an_error_and_rsync_deletes_nothing() {
    needs!(Mounts, LoopDevices, Programs(&["mkfs.ext4", "mkfs.xfs", "mount", "xfs_io", "rsync"]));
    let union = Union::new("union-pulled");
    let (ext4, tmpfs) = (&union.members[0].0, &union.members[2].0);
    for (member, file) in [(ext4, "d/on-ext4"), (tmpfs, "d/on-tmpfs")] {
        std::fs::create_dir_all(member.join("d")).unwrap();
        std::fs::write(member.join(file), file).unwrap();
    }
    let (from, copy) = (union.mount.join("d"), union.place.join("copy"));
    let rsync = |delete: &[&str]| {
        let mut command = Command::new("rsync");
        command.arg("-a").args(delete).arg(format!("{}/", from.display())).arg(&copy).output().unwrap()
    };
    // The folder was made directly a moment ago.
    let until = Instant::now() + PATIENCE;
    while std::fs::read_dir(&from).map_or(0, Iterator::count) < 2 {
        assert!(Instant::now() < until, "the files are not seen");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(rsync(&[]).status.success());
    run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(ext4)).unwrap();
    // A change is refused at once, which tells that the disk is gone.
    let until = Instant::now() + PATIENCE;
    while rsync(&["--delete"]).status.success() {
        assert!(copy.join("on-ext4").exists(), "it was taken for deleted");
        assert!(Instant::now() < until, "the missing disk is not noticed");
        let _refused = std::fs::OpenOptions::new()
            .append(true)
            .open(from.join("on-ext4"))
            .map(|mut file| file.write_all(b"x").and_then(|()| file.sync_all()));
    }
    assert!(copy.join("on-ext4").exists() && copy.join("on-tmpfs").exists());
    let eio = Some(rustix::io::Errno::IO.raw_os_error());
    // The kernel may keep what it was told for 900 ms.
    let looked = loop {
        match std::fs::metadata(from.join("on-ext4")) {
            Err(why) => break why,
            Ok(_) => assert!(Instant::now() < until, "a file of the missing disk is shown"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(looked.raw_os_error(), eio);
    let listed: Result<Vec<_>, _> = std::fs::read_dir(&from).unwrap().collect();
    assert_eq!(listed.unwrap_err().raw_os_error(), eio, "the listing has no end");
    assert_eq!(std::fs::read_to_string(from.join("on-tmpfs")).unwrap(), "d/on-tmpfs");
}

/// A log that grows past the end of its disk goes on, on another one.
#[test]
fn a_file_that_grows_on_a_full_disk_goes_on_elsewhere() {
    needs!(Mounts, LoopDevices, Programs(&["mkfs.ext4", "mkfs.xfs", "mount"]));
    let union = Union::with("union-full", [16, 320, 8], "place=dir", &|member| {
        if member.ends_with("tmpfs/member") {
            std::fs::write(member.join("log"), "").unwrap();
            // Files of a disk with room are written by the kernel itself, and stay.
            std::fs::write(member.join("more"), vec![1; 7_900 << 10]).unwrap();
        }
    });
    let tmpfs = &union.members[2].0;
    let path = union.mount.join("log");
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    let ino = file.metadata().unwrap().ino();
    let line = |n: usize| format!("{n:>1023}\n");
    for n in 0..40 << 10 {
        file.write_all(line(n).as_bytes()).unwrap();
    }
    file.sync_all().unwrap();
    assert!(!tmpfs.join("log").exists() && union.members[1].0.join("log").exists());
    assert_eq!((file.metadata().unwrap().ino(), std::fs::metadata(&path).unwrap().ino()), (ino, ino));
    let content = std::fs::read_to_string(&path).unwrap();
    let wrong = content.lines().enumerate().find(|(n, text)| text.trim() != n.to_string());
    assert!(wrong.is_none() && content.lines().count() == 40 << 10, "{wrong:?}");
    drop(file);
    union.end();
}
