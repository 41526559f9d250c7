//! What the feed of a native member tells: changes that others make, and only these.

use std::path::PathBuf;

use atoll_core::Name;
use atoll_member::{NativeTree, Tree};
use atoll_posix::{Errno, Kind};
use atoll_union::{NativeCall, NativeReply, NativeStat, Who};
use bytes::Bytes;

struct Fixture {
    path: PathBuf,
    tree: NativeTree,
}

impl Fixture {
    /// A directory whose root is watched; None where this machine cannot watch it.
    fn watched(test: &str) -> Option<Self> {
        let path = std::env::temp_dir().join(format!("atoll-feed-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let tree = NativeTree::open(&path).unwrap();
        let it = Self { path, tree };
        let watched = it.call(&NativeCall::Watch { dir: it.tree.root().id });
        (watched == Ok(NativeReply::Watched(true))).then_some(it)
    }

    fn call(&self, call: &NativeCall) -> Result<NativeReply, Errno> {
        self.tree.call(&Who::Daemon, call, &[])
    }

    fn make(&self, text: &str) -> Result<NativeStat, Errno> {
        let (dir, name, target) = (self.tree.root().id, name(text), Bytes::new());
        let call =
            NativeCall::Make { dir, name, kind: Kind::Regular, mode: 0o644, umask: 0, rdev: 0, target };
        match self.call(&call)? {
            NativeReply::Stat(stat) => Ok(stat),
            other => panic!("{other:?}"),
        }
    }

    fn told(&self) -> Vec<String> {
        let told = self.tree.changes();
        assert!(!told.lost);
        let names = told.dirs.into_iter().flat_map(|changed| changed.names);
        names.map(|name| name.to_string()).collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).unwrap();
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

#[test]
fn a_change_of_somebody_else_is_told_also_of_a_name_that_was_made_here() {
    let Some(it) = Fixture::watched("others") else { return };
    it.make("f").unwrap();
    std::fs::remove_file(it.path.join("f")).unwrap();
    std::fs::write(it.path.join("g"), b"").unwrap();
    assert_eq!(it.told(), ["f", "g"]);
    let file = it.make("f").unwrap();
    std::fs::rename(it.path.join("g"), it.path.join("f")).unwrap();
    assert_eq!(it.told(), ["f", "g"]);
    let call = NativeCall::Unlink { dir: it.tree.root().id, name: name("f"), id: file.id };
    assert_eq!(it.call(&call), Err(Errno::ESTALE), "another one has the name");
    std::fs::remove_file(it.path.join("f")).unwrap();
    assert_eq!(it.told(), ["f"], "a call that failed takes nothing away");
}

#[test]
fn what_is_made_here_a_hundred_times_is_never_told() {
    let Some(it) = Fixture::watched("own") else { return };
    let dir = it.tree.root().id;
    for _ in 0..100 {
        let id = it.make("f").unwrap().id;
        it.call(&NativeCall::Unlink { dir, name: name("f"), id }).unwrap();
    }
    assert_eq!(it.told(), Vec::<String>::new());
}
