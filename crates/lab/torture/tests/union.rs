//! A union of three members, ext4, XFS and tmpfs: suites and programs that others wrote, over the mount. Afterwards the
//! members have what the mount showed, and nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_needs::needs;
use atoll_torture::daemon::binary;
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
        let place = Place::new(name).unwrap();
        let kinds = [("ext4", DiskKind::Ext4), ("xfs", DiskKind::Xfs), ("tmpfs", DiskKind::Tmpfs)];
        let disk = |(name, kind): (&str, DiskKind)| {
            let disk = SmallDisk::new(kind, 400, &place.join(name)).unwrap();
            let member = place.join(name).join("member");
            std::fs::create_dir(&member).unwrap();
            (member, disk)
        };
        let members: Vec<_> = kinds.into_iter().map(disk).collect();
        let mount = place.join("mnt");
        std::fs::create_dir_all(&mount).unwrap();
        let mut command = Command::new(binary());
        command.arg("union").args(members.iter().map(|(path, _)| path)).arg(&mount);
        run(command.args(["-o", "suid,dev,allow_other"])).unwrap();
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
    // Not "worktrees", "packages" and "incremental", which rename directories: see docs/UNION.md.
    let names = ["fsx", "fio", "git", "sqlite", "make", "copy", "maildir", "vim"];
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mounts = [union.mount.clone()];
    programs::run_all(&mounts, union.place.path(), programs::Scale::Short, &names, &mut |line| {
        eprintln!("{line}")
    })
    .unwrap();
    union.end();
}
