//! What people do in `tree/` is reported and left alone; and what the view does at its edges.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_core::{Ino, Name};
use atoll_disk::real::RealDisk;
use atoll_disk::sim::SimDisk;
use atoll_disk::{Disk, DiskFile, FileKind, OpenHow};
use atoll_posix::Kind;
use atoll_view::plain::{self, Found};
use atoll_view::{Conflict, Finding, Report, Subject, View, Why};
use common::{Model, assert_laid, lay, name, open};

struct World {
    disk: Arc<SimDisk>,
    bodies: Arc<atoll_body::Bodies<SimDisk>>,
    view: View<SimDisk>,
    model: Model,
}

fn world() -> World {
    let disk = Arc::new(SimDisk::new(1));
    let (bodies, view) = open(&disk, true).unwrap();
    World { disk, bodies, view, model: Model::default() }
}

impl World {
    /// Lays what has changed and forgets it.
    fn lay(&mut self) -> Report {
        self.model.drop_bodies(&self.bodies).unwrap();
        let report = lay(&mut self.view, &self.model).unwrap();
        self.view.settle().unwrap();
        self.model.settled();
        report
    }

    fn file(&mut self, dir: Ino, name: &Name) -> Ino {
        self.model.create(dir, name, Kind::Regular).unwrap()
    }

    fn by_hand(&self, path: &[u8]) {
        let file = self.disk.open(path, OpenHow::CreateNew { mode: 0o644 }).unwrap();
        file.write_at(b"mine", 0).unwrap();
    }

    fn content(&self, path: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        self.disk.open(path, OpenHow::Read).unwrap().read_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn findings(&self) -> Vec<Finding> {
        self.view.audit(&self.model).unwrap()
    }
}

fn one(subject: Subject, why: Why) -> Vec<Conflict> {
    vec![Conflict { subject, why }]
}

#[test]
fn a_name_that_somebody_took_by_hand_is_left_and_reported() {
    let (mut w, a) = (world(), name(b"a"));
    w.lay();
    w.by_hand(b"tree/a");
    let ino = w.file(Ino::ROOT, &a);
    assert_eq!(w.lay().conflicts, one(Subject::Name(Ino::ROOT, a.clone()), Why::Taken));
    assert_eq!(w.content(b"tree/a"), b"mine");
    assert_eq!(w.findings(), [Finding::WrongObject { path: b"tree/a".to_vec(), ino }]);
    // When it is out of the way, the name is laid.
    w.disk.rename(b"tree/a", b"tree/b", false).unwrap();
    w.model.names.insert((Ino::ROOT, a));
    assert_eq!(w.lay().conflicts, []);
    assert_eq!(w.findings(), [Finding::ForeignName { path: b"tree/b".to_vec() }]);
}

#[test]
fn a_file_that_an_editor_replaced_survives_its_removal() {
    let (mut w, a) = (world(), name(b"a"));
    w.file(Ino::ROOT, &a);
    w.lay();
    w.by_hand(b"tree/a~");
    w.disk.rename(b"tree/a~", b"tree/a", true).unwrap();
    assert!(w.findings().iter().any(|f| matches!(f, Finding::WrongObject { .. })), "{:?}", w.findings());
    w.model.remove(Ino::ROOT, &a);
    assert_eq!(w.lay().conflicts, one(Subject::Name(Ino::ROOT, a), Why::Replaced));
    assert_eq!(w.content(b"tree/a"), b"mine");
}

#[test]
fn a_removed_directory_in_which_somebody_put_a_file_stays_with_it() {
    let (mut w, d) = (world(), name(b"d"));
    let dir = w.model.mkdir(Ino::ROOT, &d).unwrap();
    w.lay();
    w.by_hand(b"tree/d/x");
    w.model.remove(Ino::ROOT, &d);
    assert_eq!(w.lay().conflicts, one(Subject::Id(dir), Why::NotEmpty));
    assert_eq!(w.content(b"tree/d/x"), b"mine");
    assert_eq!(w.findings(), [Finding::ForeignName { path: b"tree/d".to_vec() }]);
    // A new one of that name takes over what is there.
    w.model.mkdir(Ino::ROOT, &d).unwrap();
    assert_eq!(w.lay().conflicts, []);
    assert_eq!(w.findings(), [Finding::ForeignName { path: b"tree/d/x".to_vec() }]);
}

#[test]
fn bytes_and_attributes_changed_by_hand_are_noticed() {
    let (mut w, a) = (world(), name(b"a"));
    let ino = w.file(Ino::ROOT, &a);
    w.lay();
    assert_eq!(w.findings(), []);
    w.disk.open(b"tree/a", OpenHow::Write).unwrap().write_at(b"mine", 0).unwrap();
    w.disk.set_mode(b"tree/a", 0o777).unwrap();
    let found = w.findings();
    for what in ["size", "mode", "mtime"] {
        assert!(found.contains(&Finding::Attribute { ino, what }), "{what}: {found:?}");
    }
    assert!(found.contains(&Finding::ChangedByHand { ino }), "{found:?}");
    // Laid again for another reason: attributes are put right, with a word about it.
    w.model.inos.insert(ino);
    assert_eq!(w.lay().conflicts, one(Subject::Id(ino), Why::ChangedByHand));
    assert_eq!(w.content(b"tree/a"), b"mine");
    assert_eq!(w.findings(), [Finding::Attribute { ino, what: "size" }]);
}

#[test]
fn bytes_that_come_into_place_while_a_file_is_laid_are_no_change_by_hand() {
    let (mut w, a) = (world(), name(b"a"));
    let ino = w.file(Ino::ROOT, &a);
    // Laid ahead of its bytes, and then with them.
    w.model.in_flux.insert(ino);
    w.lay();
    w.disk.open(b"tree/a", OpenHow::Write).unwrap().write_at(b"late", 0).unwrap();
    w.model.in_flux.clear();
    w.model.inos.insert(ino);
    assert_eq!(w.lay().conflicts, []);
    // Laid while bytes come ahead of their record.
    w.disk.open(b"tree/a", OpenHow::Write).unwrap().write_at(b"soon", 0).unwrap();
    w.model.in_flux.insert(ino);
    w.model.inos.insert(ino);
    assert_eq!(w.lay().conflicts, []);
}

#[test]
fn what_is_missing_is_named() {
    let mut w = world();
    let (file, dir) = (w.file(Ino::ROOT, &name(b"f")), w.model.mkdir(Ino::ROOT, &name(b"d")).unwrap());
    let gone = w.file(dir, &name(b"g"));
    w.lay();
    w.disk.unlink(b"tree/f").unwrap();
    w.disk.unlink(&w.bodies.path(gone)).unwrap();
    w.by_hand(b"bodies/00/stray");
    let mut found = w.findings();
    let orphan = Finding::OrphanBody { path: b"bodies/00/stray".to_vec() };
    let missing = Finding::MissingName { path: b"tree/f".to_vec(), ino: file };
    for finding in [orphan, missing, Finding::BodyMissing { ino: gone }] {
        assert!(found.contains(&finding), "{finding:?} in {found:?}");
    }
    w.disk.rename(b"tree/d", b"tree/e", false).unwrap();
    found = w.findings();
    assert!(found.contains(&Finding::MissingName { path: b"tree/d".to_vec(), ino: dir }), "{found:?}");
    assert!(found.contains(&Finding::ForeignName { path: b"tree/e".to_vec() }), "{found:?}");
}

#[test]
fn a_link_put_in_the_place_of_a_directory_leads_nowhere() {
    let (mut w, d) = (world(), name(b"d"));
    let dir = w.model.mkdir(Ino::ROOT, &d).unwrap();
    w.lay();
    w.disk.mkdir(b"outside", 0o755).unwrap();
    w.disk.rmdir(b"tree/d").unwrap();
    w.disk.symlink(b"../outside", b"tree/d").unwrap();
    w.file(dir, &name(b"f"));
    assert!(!w.lay().conflicts.is_empty());
    assert_eq!(w.disk.list(b"outside").unwrap(), []);
    assert_eq!(w.disk.stat(b"tree/d").unwrap().kind, FileKind::Symlink);
}

#[test]
fn files_that_came_and_went_between_two_layings_cost_no_native_effect() {
    let (mut w, tmp) = (world(), name(b"tmp"));
    w.file(Ino::ROOT, &name(b"kept"));
    w.lay();
    let before = w.disk.effects();
    for _ in 0..10 {
        w.file(Ino::ROOT, &tmp);
        w.model.remove(Ino::ROOT, &tmp);
    }
    lay(&mut w.view, &w.model).unwrap();
    assert!(
        w.disk.effects() - before <= 1,
        "{} effects, one may set the directory's times",
        w.disk.effects() - before
    );
}

#[test]
fn a_new_plain_file_costs_a_link_and_its_times() {
    let mut w = world();
    for i in 0..50 {
        let ino = w.file(Ino::ROOT, &name(format!("f{i}").as_bytes()));
        let row = &w.model.inodes[&ino].attr;
        let born = atoll_body::Born { mode: row.mode, uid: row.uid, gid: row.gid };
        w.bodies.write(ino, 0, b"x", 0, Some(born)).unwrap();
        w.model.inodes.get_mut(&ino).unwrap().attr.size = 1;
    }
    // The index costs the same for fifty as for five thousand.
    let (before, index) = (w.disk.effects(), 20);
    lay(&mut w.view, &w.model).unwrap();
    let each = (w.disk.effects() - before).saturating_sub(index) / 50;
    assert!(each <= 2, "{each} effects a file");
    assert_laid(&*w.disk, &w.view, &w.model, true, "");
}

#[test]
fn paths_longer_than_a_system_call_takes_are_laid_moved_and_removed() {
    let path = std::env::temp_dir().join(format!("atoll-view-deep-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let disk = Arc::new(RealDisk::create(&path).unwrap());
    let (_bodies, mut view) = open(&disk, false).unwrap();
    let mut model = Model::default();
    let long = name(&[b'x'; 250]);
    let (mut dir, mut dirs) = (Ino::ROOT, Vec::new());
    for _ in 0..40 {
        dir = model.mkdir(dir, &long).unwrap();
        dirs.push(dir);
    }
    model.create(dir, &long, Kind::Regular).unwrap();
    assert_eq!(lay(&mut view, &model).unwrap().conflicts, []);
    assert_eq!(view.audit(&model).unwrap(), []);
    model.rename((Ino::ROOT, &long), (Ino::ROOT, &name(b"short")));
    assert_eq!(lay(&mut view, &model).unwrap().conflicts, []);
    assert_laid(&*disk, &view, &model, false, "moved");
    // A new life finds the way down again.
    view.settle().unwrap();
    drop(view);
    let (_bodies, mut view) = open(&disk, false).unwrap();
    model.remove(dir, &long);
    for above in dirs[..dirs.len() - 1].iter().rev() {
        assert!(model.remove(*above, &long));
    }
    assert!(model.remove(Ino::ROOT, &name(b"short")));
    assert_eq!(lay(&mut view, &model).unwrap().conflicts, []);
    assert_eq!(disk.list(b"tree").unwrap(), []);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn two_directories_change_places_and_a_parent_goes_below_its_child() {
    let mut w = world();
    let (a, b) = (name(b"a"), name(b"b"));
    let x = w.model.mkdir(Ino::ROOT, &a).unwrap();
    let y = w.model.mkdir(Ino::ROOT, &b).unwrap();
    w.file(x, &a);
    w.lay();
    assert!(w.model.exchange((Ino::ROOT, &a), (Ino::ROOT, &b)));
    assert_eq!(w.lay().conflicts, []);
    assert_laid(&*w.disk, &w.view, &w.model, true, "exchanged");
    // b = x, a = y: y goes into x, then x's name becomes y's old one, all in one batch.
    assert!(w.model.rename((Ino::ROOT, &a), (x, &b)));
    assert!(w.model.rename((x, &b), (Ino::ROOT, &name(b"c"))));
    assert!(w.model.rename((Ino::ROOT, &b), (y, &b)));
    assert_eq!(w.lay().conflicts, []);
    assert_laid(&*w.disk, &w.view, &w.model, true, "turned over");
}

#[test]
fn a_scan_gives_back_all_that_the_tree_says() {
    let mut w = world();
    let dir = w.model.mkdir(Ino::ROOT, &name(b"d\xff")).unwrap();
    let file = w.file(dir, &name(b"f"));
    w.model.link(file, Ino::ROOT, &name(b"g"));
    let link = w.model.create(dir, &name(b"s"), Kind::Symlink).unwrap();
    let mut rng = common::Rng::new(1);
    w.model.write(&w.bodies, file, &mut rng).unwrap();
    w.model.xattrs.entry(file).or_default().set("user.k".into(), "v".into());
    w.model.inodes.get_mut(&file).unwrap().has_xattrs = true;
    w.lay();
    w.bodies.write(Ino(0xabc), 0, b"open, without a name", 0, None).unwrap();
    w.by_hand(b"tree/mine");
    let (mut dirs, mut files, mut nameless) = (Vec::new(), BTreeMap::new(), Vec::new());
    plain::scan(&*w.disk, b"bodies", None, &mut |found| {
        match found {
            Found::Dir { path, .. } => dirs.push(path.join(&b'/')),
            Found::File { path, ino, stat, xattrs, target } => {
                files.insert(path.join(&b'/'), (ino, stat, xattrs, target));
            }
            Found::Nameless { ino, .. } => nameless.push(ino),
            Found::Limbo { .. } | Found::Stray { .. } => panic!("nothing is in limbo, or kept of nobody"),
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(dirs, [&b""[..], b"d\xff"]);
    let ids: Vec<_> = files.iter().map(|(path, f)| (&path[..], f.0)).collect();
    let expected: [(&[u8], Option<Ino>); 4] =
        [(b"d\xff/f", Some(file)), (b"d\xff/s", Some(link)), (b"g", Some(file)), (b"mine", None)];
    assert_eq!(ids, expected);
    assert_eq!(files[&b"g"[..]].1, files[&b"d\xff/f"[..]].1);
    assert_eq!(files[&b"g"[..]].1.size, w.model.inodes[&file].attr.size);
    assert_eq!(files[&b"g"[..]].2, [(b"user.k".to_vec(), b"v".to_vec())]);
    assert_eq!(files[&b"d\xff/s"[..]].3.as_deref(), Some(&b"../some/where"[..]));
    assert_eq!(nameless, [Ino(0xabc)]);
}
