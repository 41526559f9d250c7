//! Names whose file and directory are at two islands: the file's home lays them, with the directories above.

mod common;

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use atoll_body::Bodies;
use atoll_core::{Ino, Name};
use atoll_disk::Disk;
use atoll_disk::sim::{Fault, SimDisk};
use atoll_posix::Kind;
use atoll_proto::{Dir, Entry, Inode, Xattrs};
use atoll_view::{Finding, Source, View};
use common::{Model, assert_laid, lay, name, open};

struct World {
    disk: Arc<SimDisk>,
    bodies: Arc<Bodies<SimDisk>>,
    view: View<SimDisk>,
    model: Model,
}

impl World {
    fn new() -> Self {
        let disk = Arc::new(SimDisk::new(1));
        let (bodies, view) = open(&disk, true).unwrap();
        Self { disk, bodies, view, model: Model::default() }
    }

    #[track_caller]
    fn lay(&mut self, context: &str) {
        self.model.drop_bodies(&self.bodies).unwrap();
        assert_eq!(lay(&mut self.view, &self.model).unwrap().conflicts, [], "{context}");
        assert_laid(&*self.disk, &self.view, &self.model, true, context);
    }

    /// The process ends, and is started again.
    fn dies(self) -> Self {
        let Self { disk, mut model, view, bodies } = self;
        drop((view, bodies));
        let disk = Arc::new(disk.revive(Fault::ProcessDeath));
        let (bodies, view) = open(&disk, true).unwrap();
        model.recover_bodies(&bodies);
        Self { disk, bodies, view, model }
    }

    fn list(&self, path: &str) -> Vec<String> {
        let names = self.disk.list(path.as_bytes()).unwrap().into_iter();
        names.map(|(name, _)| String::from_utf8(name).unwrap()).collect()
    }

    fn native(&self, path: &str) -> u64 {
        self.disk.stat(path.as_bytes()).unwrap().ino
    }
}

/// `/file`, and its other name `/far/below/also`, in directories that another island owns.
fn linked() -> (World, Ino, Ino, Ino) {
    let mut w = World::new();
    let file = w.model.create(Ino::ROOT, &name(b"file"), Kind::Regular).unwrap();
    w.lay("before");
    let far = w.model.mkdir_elsewhere(Ino::ROOT, &name(b"far")).unwrap();
    let below = w.model.mkdir_elsewhere(far, &name(b"below")).unwrap();
    w.model.link(file, below, &name(b"also"));
    (w, file, far, below)
}

#[test]
fn a_name_elsewhere_is_laid_with_its_directories_and_they_go_with_it() {
    for settles in [false, true] {
        let (mut w, _, _, below) = linked();
        w.lay("linked");
        assert_eq!(w.native("tree/far/below/also"), w.native("tree/file"));
        if settles {
            w.view.settle().unwrap();
            w.model.settled();
        }
        assert!(w.model.remove(below, &name(b"also")));
        w.lay("removed");
        assert_eq!(w.list("tree"), ["file"]);
    }
}

#[test]
fn the_name_alone_is_enough_to_be_told_of_new_directories() {
    let (mut w, _, _, below) = linked();
    // As after a checkpoint that kept the name, while the directories were laid long ago and lost.
    let report = w.view.lay(&[], &[(below, name(b"also"))], &w.model).unwrap();
    assert_eq!(report.conflicts, []);
    assert_eq!(w.native("tree/far/below/also"), w.native("tree/file"));
    w.lay("all of it");
}

#[test]
fn a_skeleton_directory_that_moves_carries_the_names_in_it() {
    let (mut w, file, far, below) = linked();
    w.lay("linked");
    let owned = w.model.mkdir(Ino::ROOT, &name(b"owned")).unwrap();
    assert!(w.model.rename((Ino::ROOT, &name(b"far")), (owned, &name(b"moved"))));
    w.lay("moved");
    assert_eq!(w.native("tree/owned/moved/below/also"), w.native("tree/file"));
    // Moved and changed at once: one name goes, one comes, and the directory between them goes too.
    w.model.link(file, far, &name(b"third"));
    assert!(w.model.remove(below, &name(b"also")));
    assert!(w.model.rename((owned, &name(b"moved")), (Ino::ROOT, &name(b"back"))));
    w.lay("moved back");
    assert_eq!((w.list("tree/back"), w.list("tree/owned")), (vec!["third".to_owned()], vec![]));
}

/// A power cut may take the removal and keep the second coming: two native directories would be of one id, and the
/// name in the older one would not be known to be ours.
#[test]
fn a_skeleton_directory_that_comes_back_elsewhere_leaves_nothing_behind_after_a_power_cut() {
    for seed in 0..300 {
        let (mut w, file, far, below) = linked();
        w.lay("linked");
        w.view.settle().unwrap();
        w.model.settled();
        assert!(w.model.rename((far, &name(b"below")), (Ino::ROOT, &name(b"below"))));
        w.lay("empty");
        assert!(!w.model.dirs.contains_key(&far), "its owner is another island");
        assert!(w.model.rename((Ino::ROOT, &name(b"far")), (Ino::ROOT, &name(b"moved"))));
        assert_eq!(w.model.mkdir_elsewhere(Ino::ROOT, &name(b"moved")), Some(far));
        w.model.link(file, far, &name(b"third"));
        assert!(w.model.rename((Ino::ROOT, &name(b"below")), (far, &name(b"below"))));
        w.lay("back");
        assert_eq!(w.list("tree/moved/below"), ["also"]);
        let World { disk, mut model, view, bodies } = w;
        drop((view, bodies));
        let disk = Arc::new(disk.revive(Fault::PowerCut { seed }));
        let (bodies, view) = open(&disk, true).unwrap();
        model.recover_bodies(&bodies);
        let mut w = World { disk, bodies, view, model };
        w.lay(&format!("after power cut {seed}"));
        w.view.settle().unwrap();
        assert!(w.list("limbo").is_empty() && w.model.dirs.contains_key(&below));
    }
}

#[test]
fn a_name_goes_to_the_home_of_the_file_that_takes_it() {
    let mut w = World::new();
    let (a, b) = (name(b"a"), name(b"b"));
    let dir = w.model.mkdir(Ino::ROOT, &name(b"dir")).unwrap();
    w.model.create(dir, &a, Kind::Regular).unwrap();
    w.lay("its own");
    w.model.pointer(dir, &b);
    w.lay("a pointer beside it");
    assert_eq!(w.list("tree/dir"), ["a"]);
    // Another island's file takes the name of one that is homed here.
    assert!(w.model.rename((dir, &b), (dir, &a)));
    w.lay("a pointer in its place");
    assert_eq!(w.list("tree/dir"), [""; 0]);
    // And the other way round: a file that is homed here, in the place of a pointer.
    let file = w.model.create(Ino::ROOT, &name(b"file"), Kind::Regular).unwrap();
    assert!(w.model.rename((Ino::ROOT, &name(b"file")), (dir, &a)));
    w.lay("in the place of a pointer");
    assert_eq!(w.native("tree/dir/a"), w.native(std::str::from_utf8(&w.bodies.path(file)).unwrap()));
}

#[test]
fn an_audit_finds_a_name_elsewhere_that_is_missing_or_too_many() {
    let (mut w, file, _, below) = linked();
    w.lay("linked");
    let path = b"tree/far/below/also".to_vec();
    w.disk.rename(&path, b"tree/far/below/else", false).unwrap();
    let audit = |w: &World| {
        let mut found = w.view.audit(&w.model).unwrap();
        // A hand that moves a name changes the time of its file.
        found.retain(|finding| !matches!(finding, Finding::ChangedByHand { .. }));
        found
    };
    let missing = Finding::MissingName { path: path.clone(), ino: file };
    let foreign = Finding::ForeignName { path: b"tree/far/below/else".to_vec() };
    assert_eq!(audit(&w), [missing, foreign]);
    w.disk.rename(b"tree/far/below/else", &path, false).unwrap();
    assert_eq!(audit(&w), []);
    // What the state has no more stays until it is laid.
    assert!(w.model.remove(below, &name(b"also")));
    assert_eq!(audit(&w), [Finding::ForeignName { path: b"tree/far".to_vec() }]);
}

/// A state that goes on while it is laid: directories leave the skeleton after some looks at them, and are
/// back after some more.
struct GoesAndComes<'a> {
    model: &'a Model,
    dirs: Vec<Ino>,
    looks: Cell<u64>,
    gone: std::ops::Range<u64>,
}

impl Source for GoesAndComes<'_> {
    fn inode(&self, ino: Ino) -> io::Result<Option<Inode>> {
        self.model.inode(ino)
    }
    fn dir(&self, ino: Ino) -> io::Result<Option<Dir>> {
        if !self.dirs.contains(&ino) {
            return self.model.dir(ino);
        }
        let look = self.looks.replace(self.looks.get() + 1);
        if self.gone.contains(&look) { Ok(None) } else { self.model.dir(ino) }
    }
    fn entry(&self, dir: Ino, name: &Name) -> io::Result<Option<Entry>> {
        self.model.entry(dir, name)
    }
    fn xattrs(&self, ino: Ino) -> io::Result<Option<Xattrs>> {
        self.model.xattrs(ino)
    }
    fn waits(&self, ino: Ino) -> bool {
        self.dirs.contains(&ino) && self.looks.get() >= self.gone.end
    }
}

#[test]
fn a_skeleton_directory_that_goes_and_comes_back_while_it_is_laid_is_no_conflict() {
    let mut met = 0;
    for (was_there, both) in [(false, false), (false, true), (true, false), (true, true)] {
        for (from, to) in (0..12).flat_map(|from| [1, 3, 9].map(|looks| (from, from + looks))) {
            let context = format!("there {was_there}, both {both}, gone from look {from} to {to}");
            let (mut w, file, far, mut below) = linked();
            if was_there {
                w.lay("linked");
                assert!(w.model.remove(below, &name(b"also")));
                w.lay("removed");
                assert_eq!(w.model.mkdir_elsewhere(Ino::ROOT, &name(b"far")), Some(far));
                below = w.model.mkdir_elsewhere(far, &name(b"below")).unwrap();
                w.model.link(file, below, &name(b"also"));
            }
            let dirs = if both { vec![far, below] } else { vec![below] };
            let (inos, names) = w.model.lists();
            let source = GoesAndComes { model: &w.model, dirs, looks: 0.into(), gone: from..to };
            let report = w.view.lay(&inos, &names, &source).unwrap();
            assert_eq!(report.conflicts, [], "{context}");
            met += u32::from(w.disk.stat(b"tree/far/below/also").is_err());
            w.lay(&context);
        }
    }
    assert!(met > 20, "only {met} times it was gone when it counted");
}

#[test]
fn a_directory_whose_name_is_held_by_one_that_must_wait_comes_into_its_place_after_that() {
    let (root, mut met) = (Ino::ROOT, 0);
    let [a, b, far] = [b"a".as_slice(), b"b", b"far"].map(name);
    for look in 0..12 {
        let context = format!("gone at look {look}");
        let mut w = World::new();
        w.model.mkdir(root, &a).unwrap();
        w.model.mkdir(root, &b).unwrap();
        w.lay("where they begin");
        w.model.settled();
        // One goes into a directory that is not there at the moment, the other takes its name.
        let above = w.model.mkdir(root, &far).unwrap();
        assert!(w.model.rename((root, &b), (above, &b)) && w.model.rename((root, &a), (root, &b)));
        let (inos, names) = w.model.lists();
        let source =
            GoesAndComes { model: &w.model, dirs: vec![above], looks: 0.into(), gone: look..look + 1 };
        let report = w.view.lay(&inos, &names, &source).unwrap();
        assert_eq!(report.conflicts, [], "{context}");
        met += u32::from(w.disk.stat(b"tree/far/b").is_err());
        // Only what has changed since is listed again.
        w.model.settled();
        w.model.inos.insert(above);
        w.lay(&context);
    }
    assert!(met > 0, "it was never gone when it counted");
}

#[test]
fn a_lost_index_costs_no_name_elsewhere() {
    let (mut w, ..) = linked();
    w.lay("linked");
    w.view.settle().unwrap();
    let World { disk, model, .. } = w;
    let disk = Arc::new(disk.revive(Fault::ProcessDeath));
    disk.unlink(b"view.redb").unwrap();
    let (_, mut view) = open(&disk, true).unwrap();
    assert!(view.index_was_lost());
    assert_eq!(view.lay_all(&model).unwrap().conflicts, []);
    assert_laid(&*disk, &view, &model, true, "all laid again");
}

/// The same with a file that takes the name.
#[test]
fn a_file_that_was_kept_out_comes_when_the_directory_that_has_its_name_goes() {
    for dies in [false, true] {
        let mut w = World::new();
        let (a, b) = (name(b"a"), name(b"b"));
        let goes = w.model.mkdir(Ino::ROOT, &a).unwrap();
        let comes = w.model.create(Ino::ROOT, &b, Kind::Regular).unwrap();
        w.lay("both");
        let sealed = w.model.dirs[&goes].clone();
        assert!(w.model.remove(Ino::ROOT, &a) && w.model.rename((Ino::ROOT, &b), (Ino::ROOT, &a)));
        w.model.dirs.insert(goes, sealed);
        let names = [(Ino::ROOT, a.clone()), (Ino::ROOT, b)];
        assert_eq!(w.view.lay(&[comes], &names, &w.model).unwrap().conflicts, []);
        assert_eq!(w.list("tree"), ["a"]);
        w.view.settle().unwrap();
        w.model.settled();
        if dies {
            w = w.dies();
        }
        w.model.dirs.remove(&goes);
        w.view.lay(&[goes], &[], &w.model).unwrap();
        assert!(w.view.is_behind());
        w.lay("the one has gone");
        assert_eq!((w.list("tree"), w.view.is_behind()), (vec!["a".to_owned()], false));
    }
}

/// A directory takes the name of one that is about to go, which its owner has not decided yet. Nobody tells of the first
/// again when the second goes, however long that takes, or after whatever end of the process.
#[test]
fn a_directory_that_was_kept_out_comes_when_the_one_that_has_its_name_goes() {
    for dies in [false, true] {
        let mut w = World::new();
        let (a, b) = (name(b"a"), name(b"b"));
        let goes = w.model.mkdir(Ino::ROOT, &a).unwrap();
        let comes = w.model.mkdir(Ino::ROOT, &b).unwrap();
        w.lay("both");
        let sealed = w.model.dirs[&goes].clone();
        assert!(w.model.rename((Ino::ROOT, &b), (Ino::ROOT, &a)));
        w.model.dirs.insert(goes, sealed);
        w.view.lay(&[comes], &[], &w.model).unwrap();
        assert_eq!(w.list("tree"), ["a"]);
        w.view.settle().unwrap();
        w.model.settled();
        if dies {
            w = w.dies();
        }
        w.model.dirs.remove(&goes);
        w.view.lay(&[goes], &[], &w.model).unwrap();
        w.lay("the one has gone");
        assert_eq!(w.list("tree"), ["a"]);
    }
}

/// The same with a file that has the name, and gives it away a moment later. Then only of the names is told.
#[test]
fn a_directory_that_was_kept_out_comes_when_the_file_that_has_its_name_has_another() {
    for dies in [false, true] {
        let mut w = World::new();
        let (a, b) = (name(b"a"), name(b"b"));
        let goes = w.model.create(Ino::ROOT, &a, Kind::Regular).unwrap();
        let comes = w.model.mkdir(Ino::ROOT, &b).unwrap();
        w.lay("both");
        let names = [(Ino::ROOT, a.clone()), (Ino::ROOT, b.clone())];
        let before = w.model.entries.clone();
        assert!(w.model.exchange((Ino::ROOT, &a), (Ino::ROOT, &b)));
        let after = std::mem::replace(&mut w.model.entries, before);
        w.model.entries.remove(&names[1]);
        let report = w.view.lay(&[comes], &names[1..], &w.model).unwrap();
        assert_eq!((report.conflicts.len(), w.list("tree")), (1, vec!["a".to_owned()]));
        w.view.settle().unwrap();
        w.model.settled();
        if dies {
            w = w.dies();
        }
        w.model.entries = after;
        assert_eq!(w.view.lay(&[goes], &names, &w.model).unwrap().conflicts, []);
        assert_laid(&*w.disk, &w.view, &w.model, true, "each has the other's name");
    }
}

/// A primary may have decided more than it has written, and a view lays names as they are: when all of that is gone, nobody lists
/// the directory that it has made.
#[test]
fn a_directory_whose_record_is_gone_leaves_its_name() {
    for another in [false, true] {
        let (root, a) = (Ino::ROOT, name(b"a"));
        let mut w = World::new();
        w.model.mkdir(root, &name(b"other")).unwrap();
        w.lay("before");
        w.view.settle().unwrap();
        w.model.settled();
        let before = w.model.clone();
        let gone = w.model.mkdir(root, &a).unwrap();
        w.model.inos.clear();
        w.lay("a name is listed, and its directory comes with it");
        assert_eq!(w.list("tree"), ["a", "other"]);
        w.model = before;
        assert!(!w.model.dirs.contains_key(&gone));
        w.model.names.insert((root, a.clone()));
        if another {
            // Its id is another one.
            w.model.mkdir(root, &name(b"given")).unwrap();
            assert!(w.model.remove(root, &name(b"given")) && w.model.inos.remove(&gone));
            w.model.mkdir(root, &a).unwrap();
        }
        let (inos, names) = w.model.lists();
        assert_eq!(w.view.lay(&inos, &names, &w.model).unwrap().conflicts, []);
        w.lay("the record is gone");
        assert_eq!(w.list("tree").len(), 1 + usize::from(another));
    }
}
