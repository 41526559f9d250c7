//! Data directories on a real disk: made once, held by one, refused with words that help.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use atoll_control::{DataDir, DataDirError};
use atoll_needs::needs;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change, mount_remount};
use rustix::thread::UnshareFlags;

fn refused(result: Result<DataDir, DataDirError>) -> String {
    let text = result.expect_err("it must be refused").to_string();
    let lines = text.lines().count();
    assert!((2..=3).contains(&lines), "{lines} lines:\n{text}");
    text
}

fn both(path: &Path) -> [String; 2] {
    [refused(DataDir::open(path)), refused(DataDir::open_or_create(path))]
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_directory_keeps_its_identity_and_counts_its_starts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let first = DataDir::open_or_create(&path).unwrap();
    let identity = first.identity();
    assert!(identity.node.0 != 0 && identity.cluster.0 != 0 && identity.incarnation == 0);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(names(&path), ["lock", "node.toml"]);
    drop(first);
    let mut again = DataDir::open_or_create(&path).unwrap();
    assert_eq!(again.identity(), identity);
    assert_eq!(again.begin_incarnation().unwrap(), 1);
    assert_eq!(again.begin_incarnation().unwrap(), 2);
    drop(again);
    assert_eq!(DataDir::open(&path).unwrap().identity().incarnation, 2);
    let other = DataDir::open_or_create(&folder.path().join("other")).unwrap();
    assert_ne!(other.identity().node, identity.node);
}

#[test]
fn a_directory_in_use_names_the_process_that_holds_it() {
    let folder = tempfile::tempdir().unwrap();
    let held = DataDir::open_or_create(folder.path()).unwrap();
    for text in both(folder.path()) {
        assert!(text.contains(&format!("in use by process {}", std::process::id())), "{text}");
    }
    drop(held);
    DataDir::open(folder.path()).unwrap();
}

#[test]
fn a_killed_process_leaves_no_lock_behind() {
    const HOLD: &str = "ATOLL_TEST_HOLD";
    if let Some(path) = std::env::var_os(HOLD) {
        let _held = DataDir::open_or_create(Path::new(&path)).unwrap();
        println!("\nholds it");
        std::thread::sleep(std::time::Duration::from_secs(60));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_process_leaves_no_lock_behind", "--nocapture"])
        .env(HOLD, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    assert!(out.lines().any(|line| line.unwrap() == "holds it"), "the other process could not take it");
    let text = refused(DataDir::open(folder.path()));
    assert!(text.contains(&format!("in use by process {}", child.id())), "{text}");
    child.kill().unwrap();
    child.wait().unwrap();
    DataDir::open(folder.path()).unwrap();
}

#[test]
fn a_lock_that_this_process_gives_back_while_it_is_waited_for_names_it_whole() {
    let folder = tempfile::tempdir().unwrap();
    let held = DataDir::open_or_create(folder.path()).unwrap();
    let gives_back = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(held);
    });
    let _again = DataDir::open(folder.path()).unwrap();
    gives_back.join().unwrap();
    let text = std::fs::read_to_string(folder.path().join("lock")).unwrap();
    assert_eq!(text, format!("{}\n", std::process::id()));
}

/// A process that has ended, and of whose end nobody has asked yet.
fn ended() -> std::process::Child {
    let child = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    child
}

#[test]
fn a_directory_whose_process_is_gone_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    for asked in [true, false] {
        let mut gone = ended();
        if asked {
            gone.wait().unwrap();
        }
        let held = DataDir::open_or_create_for(folder.path(), gone.id()).unwrap();
        let text = fs::read_to_string(folder.path().join("lock")).unwrap();
        assert_eq!(text, format!("{}\n", gone.id()));
        let ends = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            drop(held);
        });
        DataDir::await_free(folder.path()).unwrap();
        ends.join().unwrap();
        DataDir::open(folder.path()).unwrap();
        gone.wait().unwrap();
    }
}

#[test]
fn a_directory_whose_process_is_gone_is_not_waited_for_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut gone = ended();
    gone.wait().unwrap();
    let held = DataDir::open_or_create_for(folder.path(), gone.id()).unwrap();
    let text = refused(DataDir::open(folder.path()));
    assert!(text.contains(&format!("the killed process {} has left behind", gone.id())), "{text}");
    drop(held);
    DataDir::open(folder.path()).unwrap();
}

#[test]
fn a_directory_is_free_if_nobody_holds_it_and_nothing_is_made_to_find_out() {
    let folder = tempfile::tempdir().unwrap();
    DataDir::await_free(&folder.path().join("data")).unwrap();
    assert!(names(folder.path()).is_empty());
    let holds = Command::new("sleep").arg("60").spawn().unwrap();
    let holds = Killed(holds);
    let held = DataDir::open_or_create_for(folder.path(), holds.0.id()).unwrap();
    let text = DataDir::await_free(folder.path()).unwrap_err().to_string();
    assert!(text.contains(&format!("in use by process {}", holds.0.id())), "{text}");
    drop(held);
    DataDir::await_free(folder.path()).unwrap();
}

struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_folder_with_other_files_is_left_untouched() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thesis.tex"), "precious").unwrap();
    for text in both(folder.path()) {
        assert!(text.contains("it holds \"thesis.tex\""), "{text}");
    }
    assert_eq!(names(folder.path()), ["thesis.tex"]);
}

#[test]
fn a_fresh_file_system_and_an_attempt_that_was_cut_short_are_as_good_as_empty() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("lost+found")).unwrap();
    fs::write(folder.path().join("node.toml.new"), "format = 1\nno").unwrap();
    fs::write(folder.path().join("lock"), "123456789 and more than fits").unwrap();
    DataDir::open_or_create(folder.path()).unwrap();
    assert_eq!(names(folder.path()), ["lock", "lost+found", "node.toml"]);
    assert_eq!(fs::read_to_string(folder.path().join("lock")).unwrap(), format!("{}\n", std::process::id()));
}

#[test]
fn a_newer_format_is_refused_with_both_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let newer = "format = 3\nsomething = \"new\"\n";
    fs::write(folder.path().join("node.toml"), newer).unwrap();
    for text in both(folder.path()) {
        assert!(text.contains("has format 3; this program knows formats up to 2"), "{text}");
    }
    assert_eq!(fs::read_to_string(folder.path().join("node.toml")).unwrap(), newer);
}

#[test]
fn a_damaged_identity_is_refused_and_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    for damage in [&b""[..], b"format = 1\n", b"\xff\xfe\x00", b"format = one"] {
        fs::write(folder.path().join("node.toml"), damage).unwrap();
        for text in both(folder.path()) {
            assert!(text.contains("node.toml is damaged"), "{text}");
        }
        assert_eq!(fs::read(folder.path().join("node.toml")).unwrap(), damage);
    }
}

#[test]
fn what_is_not_there_and_what_is_no_directory_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("data");
    assert!(refused(DataDir::open(&missing)).contains("There is no data directory"));
    assert!(!missing.exists());
    let text = refused(DataDir::open(folder.path()));
    assert!(text.contains("is empty: it holds no data of Atoll"), "{text}");
    let text = refused(DataDir::open_or_create(&folder.path().join("disk/data")));
    assert!(text.contains("disk does not exist") && text.contains("mkdir -p"), "{text}");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let nowhere = folder.path().join("link");
    std::os::unix::fs::symlink("/nonexistent/place", &nowhere).unwrap();
    for text in both(&file).into_iter().chain([
        refused(DataDir::open_or_create(&file.join("data"))),
        refused(DataDir::open_or_create(&nowhere)),
    ]) {
        assert!(text.contains("is not a directory"), "{text}");
    }
}

#[test]
fn a_read_only_disk_says_so() {
    needs!(Root);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    // Mounts are this thread's own.
    let thread = std::thread::spawn(move || {
        // SAFETY: only file-system context and mounts of a thread that ends with this.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.unwrap();
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
        mount("none", &path, "tmpfs", MountFlags::empty(), None).unwrap();
        DataDir::open_or_create(&path.join("data")).unwrap();
        mount_remount(&path, MountFlags::RDONLY, c"").unwrap();
        for name in ["data", "new"] {
            let text = refused(DataDir::open_or_create(&path.join(name)));
            assert!(text.contains(&format!("{name} is on a read-only file system")), "{text}");
        }
    });
    thread.join().unwrap();
}

#[test]
fn a_full_disk_says_so_and_the_old_identity_stays() {
    needs!(Root);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let thread = std::thread::spawn(move || {
        // SAFETY: as above.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.unwrap();
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
        mount("none", &path, "tmpfs", MountFlags::empty(), Some(c"size=64k")).unwrap();
        let mut dir = DataDir::open_or_create(&path).unwrap();
        dir.begin_incarnation().unwrap();
        let _ = fs::write(path.join("ballast"), vec![0; 128 * 1024]);
        let text = dir.begin_incarnation().unwrap_err().to_string();
        assert!(text.contains("No space is left"), "{text}");
        drop(dir);
        fs::remove_file(path.join("ballast")).unwrap();
        assert_eq!(DataDir::open(&path).unwrap().identity().incarnation, 1);
    });
    thread.join().unwrap();
}
