//! A process that may have few descriptors serves many directories and files: each is opened again when it is asked for.

#[allow(dead_code, reason = "shared with tests that need more of it")]
mod common;

use std::os::unix::process::CommandExt;
use std::path::Path;

use atoll_core::Name;
use atoll_member::{NativeTree, Tree};
use atoll_needs::needs;
use atoll_posix::{Errno, Kind};
use atoll_union::{At, NativeCall, NativeId, NativeReply, NativeStat, Who};
use bytes::Bytes;
use common::{Disk, FileSystem};
use rustix::process::{Resource, Rlimit, setrlimit};

const FOLDER: &str = "ATOLL_MEMBER_FOLDER";
const DIRS: usize = 300;
const DESCRIPTORS: u64 = 64;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn stat(tree: &NativeTree, call: &NativeCall) -> Result<NativeStat, Errno> {
    match tree.call(&Who::Daemon, call, &[])? {
        NativeReply::Stat(stat) => Ok(stat),
        other => panic!("{other:?}"),
    }
}

fn mkdir(tree: &NativeTree, dir: NativeId, text: &str) -> NativeId {
    stat(tree, &NativeCall::Mkdir { dir, name: name(text), mode: 0o755, umask: 0 }).unwrap().id
}

#[test]
#[ignore = "a process that another test starts"]
fn with_few_descriptors() {
    let limit = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let folder = std::env::var_os(FOLDER).unwrap();
    let tree = NativeTree::open(folder.as_ref()).unwrap();
    let top = mkdir(&tree, tree.root().id, "top");
    let mut dirs = vec![top];
    for nth in 0..DIRS {
        // A comb: each second directory is one deeper, the others lie beside it.
        let above = if nth % 2 == 0 { dirs[dirs.len() / 2] } else { *dirs.last().unwrap() };
        dirs.push(mkdir(&tree, above, &format!("d{nth}")));
    }
    let mut files = Vec::new();
    for dir in &dirs {
        let call = NativeCall::Make {
            dir: *dir,
            name: name("f"),
            kind: Kind::Regular,
            mode: 0o644,
            umask: 0,
            rdev: 0,
            target: Bytes::new(),
        };
        let file = stat(&tree, &call).unwrap();
        let of = At { id: file.id, seen: Some((*dir, name("f"))) };
        let write = NativeCall::Write { of: of.clone(), offset: 0, append: false, kill_set_id: false };
        tree.call(&Who::Daemon, &write, &file.id.ino.to_le_bytes()).unwrap();
        files.push(of);
    }
    // We rename the top: everything below it is found at its new place.
    let (dir, id) = (tree.root().id, top);
    let call = NativeCall::Rename {
        dir,
        name: name("top"),
        id,
        new_dir: dir,
        new_name: name("renamed"),
        new_id: None,
        mode: atoll_posix::RenameMode::Replace,
    };
    tree.call(&Who::Daemon, &call, &[]).unwrap();
    for of in files.iter().rev() {
        let read = NativeCall::Read { of: of.clone(), offset: 0, len: 100 };
        let told = tree.call(&Who::Daemon, &read, &[]).unwrap();
        assert_eq!(told, NativeReply::Data(Bytes::copy_from_slice(&of.id.ino.to_le_bytes())));
    }
    let open =
        (0..DESCRIPTORS).filter(|fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok()).count();
    assert!((open as u64) < DESCRIPTORS, "{open} descriptors");
    // Somebody else removes one and puts another one in its place: that is noticed, not acted on.
    let gone = dirs.pop().unwrap();
    let place = tree.call(&Who::Daemon, &NativeCall::PlaceOf { dir: gone }, &[]).unwrap();
    let NativeReply::Placed { path: Some(path), .. } = place else { panic!("{place:?}") };
    let path = path.iter().fold(Path::new(&folder).to_owned(), |at, name| {
        at.join(std::str::from_utf8(name.as_bytes()).unwrap())
    });
    std::fs::remove_file(path.join("f")).unwrap();
    std::fs::remove_dir(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    for dir in &dirs {
        // All descriptors are those of others by now.
        let _other = stat(&tree, &NativeCall::Look { dir: *dir, name: name("f") });
    }
    let look = stat(&tree, &NativeCall::Look { dir: gone, name: name("f") });
    assert!(matches!(look, Err(Errno::ESTALE | Errno::ENOENT)), "{look:?}");
}

fn serves_with_few_descriptors(user: Option<u32>, file_system: FileSystem) {
    let disk = Disk::new(file_system);
    let folder = disk.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, user, user).unwrap();
    let mut command = std::process::Command::new("/proc/self/exe");
    command.args(["--exact", "with_few_descriptors", "--ignored"]).env(FOLDER, &folder).current_dir("/");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    disk.unmount();
}

#[test]
fn root_finds_directories_again_by_their_handles() {
    needs!(Root, LoopDevices, Programs(&["mkfs.ext4", "mount"]));
    serves_with_few_descriptors(None, FileSystem::Ext4);
}

#[test]
fn a_user_finds_directories_again_by_their_names() {
    needs!(Root);
    serves_with_few_descriptors(Some(5_000), FileSystem::Tmpfs);
}
