//! A daemon that is not root: everything works for its user, and the true modes are kept although its
//! plain files must stay readable for it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use atoll_needs::needs;
use atoll_torture::daemon::{Daemon, Launch};
use atoll_torture::place::{Place, run, user};
use atoll_torture::worker::{Rules, Worker};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{Gid, Uid};
use rustix::thread::UnshareFlags;

/// Acts as a user on a thread of its own: the rest of the process stays root.
fn as_user<T: Send>((uid, gid): (u32, u32), act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let acting = || {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            act()
        };
        scope.spawn(acting).join().unwrap()
    })
}

/// Waits as the user, the only one whom the mount lets in.
fn start(launch: &Launch) -> Daemon {
    let mut daemon = launch.spawn().unwrap();
    as_user(launch.user.unwrap(), || daemon.wait_mounted(std::time::Duration::from_secs(60))).unwrap();
    daemon
}

fn stop(daemon: Daemon) {
    as_user(daemon.launch().user.unwrap(), || daemon.stop()).unwrap();
}

/// Lays a device that everyone may open over `/dev/fuse`, where it is closed to users: for this thread and what it
/// starts, in a mount namespace of their own.
fn open_device(place: &Place) -> rustix::io::Result<()> {
    let device = Path::new("/dev/fuse");
    let meta = rustix::fs::stat(device)?;
    if meta.st_mode & 0o006 == 0o006 {
        return Ok(());
    }
    // SAFETY: only file-system context and mounts of this thread, which ends with the test.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let (path, mode) = (place.join("fuse"), Mode::from_raw_mode(0o666));
    mknodat(CWD, &path, FileType::CharacterDevice, mode, meta.st_rdev)?;
    rustix::fs::chmod(&path, mode)?;
    mount_bind(&path, device)
}

#[test]
fn a_daemon_of_a_user_serves_that_user_and_keeps_true_modes() {
    needs!(Mounts, Programs(&["fusermount3", "setfattr"]));
    let owner = user("nobody").unwrap();
    let place = Place::new("user").unwrap();
    if let Err(why) = open_device(&place) {
        eprintln!("/dev/fuse cannot be opened for everyone: {why}");
    }
    needs!(FuseForAll);
    let mut launch = Launch::new(place.path());
    launch.user = Some(owner);
    for name in ["data", "mnt"] {
        std::os::unix::fs::chown(place.join(name), Some(owner.0), Some(owner.1)).unwrap();
    }
    let daemon = start(&launch);
    let mount = daemon.mount().to_owned();
    assert!(fs::read_dir(&mount).is_err(), "root was not asked in");
    let mut worker = Worker::new(7, owner, Rules { root: false, xattrs: true });
    as_user(owner, || {
        fs::write(mount.join("secret"), b"nobody reads this").unwrap();
        fs::write(mount.join("program"), b"#!/bin/sh\necho ran\n").unwrap();
        fs::create_dir(mount.join("closed")).unwrap();
        fs::write(mount.join("closed/below"), b"below").unwrap();
        for (name, mode) in [("secret", 0), ("program", 0o755), ("closed", 0o300)] {
            fs::set_permissions(mount.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        assert_eq!(fs::read(mount.join("secret")).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        assert!(fs::read_dir(mount.join("closed")).is_err());
        assert!(std::os::unix::fs::chown(mount.join("program"), Some(0), None).is_err());
        fs::create_dir(mount.join("work")).unwrap();
        for _ in 0..800 {
            worker.step(&mount.join("work")).unwrap();
        }
    });
    let ran = run(Command::new(mount.join("program")).uid(owner.0).gid(owner.1)).unwrap();
    assert_eq!(ran, "ran\n");
    stop(daemon);
    let daemon = start(&launch);
    as_user(owner, || {
        let meta = |name: &str| fs::metadata(mount.join(name)).unwrap();
        assert_eq!((meta("secret").mode() & 0o7777, meta("secret").uid()), (0, owner.0));
        assert_eq!(meta("closed").mode() & 0o7777, 0o300);
        let wrong = worker.verify(&mount.join("work")).unwrap();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        for (name, mode) in [("secret", 0o400), ("closed", 0o500)] {
            fs::set_permissions(mount.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        assert_eq!(fs::read(mount.join("secret")).unwrap(), b"nobody reads this");
        assert_eq!(fs::read(mount.join("closed/below")).unwrap(), b"below");
    });
    stop(daemon);
    let plain = |name: &str| -> Vec<fs::Metadata> {
        let trees = atoll_torture::plain::trees(&launch.data).unwrap();
        trees
            .iter()
            .filter_map(|tree: &std::path::PathBuf| fs::metadata(Path::new(tree).join(name)).ok())
            .collect()
    };
    // The plain file is the daemon's user's, who must be able to read it.
    let found = plain("secret");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].mode() & 0o777, found[0].uid()), (0o600, owner.0));
}
