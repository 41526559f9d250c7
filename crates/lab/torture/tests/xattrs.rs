//! Extended attributes that the native file system cannot hold: the mount has them, and the log says so once.

use std::fs;
use std::time::Duration;

use atoll_needs::needs;
use atoll_torture::daemon::Launch;
use atoll_torture::place::{DiskKind, Place, SmallDisk};
use rustix::fs::{XattrFlags, getxattr, setxattr};

#[test]
fn what_the_native_file_system_refuses_is_said_once_and_kept() {
    needs!(Mounts, Programs(&["mkfs.ext4"]));
    let place = Place::new("xattrs").unwrap();
    let _disk = SmallDisk::new(DiskKind::Ext4, 256, &place.join("disk")).unwrap();
    let mut launch = Launch::new(place.path());
    launch.data = place.join("disk/data");
    let daemon = launch.start().unwrap();
    let file = daemon.mount().join("large");
    fs::write(&file, b"some").unwrap();
    let value = vec![b'v'; 60_000];
    for round in 0..4 {
        setxattr(&file, "user.large", &value, XattrFlags::empty()).unwrap();
        fs::write(&file, format!("changed {round}")).unwrap();
        // The plain trees follow within about a second.
        std::thread::sleep(Duration::from_millis(1500));
    }
    let said = daemon.said();
    let lines = said.lines().filter(|line| line.contains("Argument list too long")).count();
    assert_eq!(lines, 1, "{said}");
    let mut read = vec![0; 70_000];
    let len = getxattr(&file, "user.large", &mut read[..]).unwrap();
    assert_eq!(read[..len], value, "the state has it");
    daemon.stop().unwrap();
}
