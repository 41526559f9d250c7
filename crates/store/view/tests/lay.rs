//! Random changes laid in random batches: the tree is the state's at the end, whatever happened.

mod common;

use std::sync::Arc;

use atoll_body::Bodies;
use atoll_core::{Ino, Name};
use atoll_disk::Disk;
use atoll_disk::real::RealDisk;
use atoll_disk::sim::{Fault, SimDisk};
use atoll_posix::Kind;
use atoll_proto::{Dir, Entry, Inode, Xattrs};
use atoll_view::{Conflict, Finding, Report, Source, Spilled, View, Why, XATTRS, spill_path};
use bytes::Bytes;
use common::{Model, Rng, assert_laid, lay, name, open};

/// Without the ones about devices, which only root makes, and about what the disk does not hold and lies beside it.
fn conflicts(report: &Report) -> Vec<Conflict> {
    let is_one = |c: &&Conflict| c.why != Why::Device && !matches!(c.why, Why::Spilled(_));
    report.conflicts.iter().filter(is_one).cloned().collect()
}

/// So many bytes of extended attributes that of those of [`Model::xattr`] some do not fit.
const FEW_XATTRS: usize = 18;

fn run<D: Disk>(disk: &Arc<D>, root: bool, seed: u64, steps: usize) {
    let (mut bodies, mut view) = open(disk, root).unwrap();
    let (mut model, mut rng) = (Model::default(), Rng::new(seed));
    for step in 0..steps {
        model.step(&bodies, &mut rng).unwrap();
        let context = format!("seed {seed}, step {step}");
        if rng.below(6) == 0 {
            model.drop_bodies(&bodies).unwrap();
            assert_eq!(conflicts(&lay(&mut view, &model).unwrap()), [], "{context}");
            if rng.below(3) == 0 {
                view.settle().unwrap();
                model.settled();
            }
        }
        if rng.below(40) == 0 {
            drop((bodies, view));
            (bodies, view) = open(disk, root).unwrap();
        }
    }
    model.drop_bodies(&bodies).unwrap();
    assert_eq!(conflicts(&lay(&mut view, &model).unwrap()), [], "seed {seed}");
    assert_laid(&**disk, &view, &model, root, &format!("seed {seed}"));
    let report = lay(&mut view, &model).unwrap();
    assert_eq!((report.linked, report.unlinked, report.dirs), (0, 0, 0), "laid twice, seed {seed}");
    assert_laid(&**disk, &view, &model, root, &format!("seed {seed}, laid twice"));
    let report = view.lay_all(&model).unwrap();
    assert_eq!((report.linked, report.unlinked, report.dirs), (0, 0, 0), "all laid, seed {seed}");
    assert_laid(&**disk, &view, &model, root, &format!("seed {seed}, all laid"));
}

#[test]
fn the_tree_becomes_what_the_state_says_however_changes_are_batched() {
    for seed in 0..300 {
        run(&Arc::new(SimDisk::new(seed)), true, seed, 120);
    }
}

#[test]
fn so_it_does_where_the_native_file_system_holds_few_extended_attributes() {
    let mut spilled = 0;
    for seed in 0..100 {
        let disk = Arc::new(SimDisk::new(seed));
        disk.limit_xattrs(Some(FEW_XATTRS));
        run(&disk, true, seed, 200);
        spilled += disk.list(XATTRS).map_or(0, |names| names.len());
    }
    assert!(spilled > 30, "only {spilled} files and directories had some that did not fit");
}

/// Lays, and tells what is kept beside the tree and what was reported.
fn laid(disk: &SimDisk, view: &mut View<SimDisk>, model: &Model) -> (Vec<Vec<u8>>, Vec<Why>) {
    let report = lay(view, model).unwrap();
    let kept =
        disk.list(XATTRS).unwrap_or_default().into_iter().map(|(name, _)| [XATTRS, b"/", &name].concat());
    (kept.collect(), report.conflicts.into_iter().map(|conflict| conflict.why).collect())
}

#[test]
fn what_is_refused_lies_beside_the_tree_as_long_as_it_is_refused() {
    let disk = Arc::new(SimDisk::new(1));
    disk.limit_xattrs(Some(FEW_XATTRS));
    let (bodies, mut view) = open(&disk, true).unwrap();
    let mut model = Model::default();
    let dir = model.mkdir(Ino::ROOT, &name(b"d")).unwrap();
    let file = model.create(dir, &name(b"f"), Kind::Regular).unwrap();
    bodies.ensure(file, None).unwrap();
    let too_big = || Why::Spilled(7);
    model.set_xattr(file, b"user.a", b"short");
    assert_eq!(laid(&disk, &mut view, &model), (vec![], vec![]));
    model.set_xattr(file, b"user.a", &[b'x'; 100]);
    assert_eq!(laid(&disk, &mut view, &model), (vec![spill_path(file, false)], vec![too_big()]));
    assert_eq!(disk.xattrs(b"tree/d/f").unwrap(), [], "an older value would be a wrong one");
    assert_laid(&*disk, &view, &model, true, "a large value");
    // A directory is told by its path, wherever it goes.
    model.set_xattr(dir, b"user.a", &[b'y'; 100]);
    laid(&disk, &mut view, &model);
    assert_eq!(view.spilled(10), (2, vec![file, dir]));
    let above = model.mkdir(Ino::ROOT, &name(b"above")).unwrap();
    assert!(model.rename((Ino::ROOT, &name(b"d")), (above, &name(b"below"))));
    laid(&disk, &mut view, &model);
    model.settled();
    assert!(model.rename((Ino::ROOT, &name(b"above")), (Ino::ROOT, &name(b"moved"))));
    laid(&disk, &mut view, &model);
    let path = Spilled::read(&*disk, &spill_path(dir, true)).unwrap().unwrap().unwrap().path;
    assert_eq!(path, b"tree/moved/below");
    assert_laid(&*disk, &view, &model, true, "moved");
    // Another life knows of them.
    drop((bodies, view));
    let (bodies, mut view) = open(&disk, true).unwrap();
    model.set_xattr(file, b"user.a", b"short");
    assert_eq!(laid(&disk, &mut view, &model).0, [spill_path(dir, true)]);
    assert_eq!(disk.xattrs(b"tree/moved/below/f").unwrap(), [(b"user.a".to_vec(), b"short".to_vec())]);
    model.set_xattr(file, b"user.a", &[b'x'; 100]);
    laid(&disk, &mut view, &model);
    assert_eq!(view.spilled(1), (2, vec![file]));
    let below = name(b"below");
    for (parent, name) in [(dir, &name(b"f")), (above, &below)] {
        assert!(model.remove(parent, name));
    }
    model.drop_bodies(&bodies).unwrap();
    assert_eq!(laid(&disk, &mut view, &model), (vec![], vec![]));
    assert_eq!(view.spilled(10), (0, vec![]));
}

#[test]
fn names_that_are_refused_are_told_by_each_life_and_are_laid_under_others() {
    let disk = Arc::new(SimDisk::new(1));
    disk.refuse_names(Some(b':'));
    let (bodies, mut view) = open(&disk, true).unwrap();
    let mut model = Model::default();
    let dir = model.mkdir(Ino::ROOT, &name(b"d:")).unwrap();
    for (parent, called) in [(dir, &b"inside"[..]), (Ino::ROOT, b"f:"), (Ino::ROOT, b"plain")] {
        let file = model.create(parent, &name(called), Kind::Regular).unwrap();
        bodies.ensure(file, None).unwrap();
    }
    let invalid = || Why::Refused(22);
    assert_eq!(laid(&disk, &mut view, &model).1, [invalid(), invalid()]);
    let root = |called: &[u8]| (Ino::ROOT, name(called));
    assert_eq!(view.refused(), &[root(b"d:"), root(b"f:")].into());
    view.settle().unwrap();
    model.settled();
    drop((bodies, view));
    let (bodies, mut view) = open(&disk, true).unwrap();
    assert_eq!(view.refused(), &[root(b"d:"), root(b"f:")].into());
    assert_eq!(laid(&disk, &mut view, &model), (vec![], vec![]), "nothing has changed");
    for (from, to) in [(b"d:", b"d"), (b"f:", b"f")] {
        assert!(model.rename((Ino::ROOT, &name(from)), (Ino::ROOT, &name(to))));
    }
    assert_eq!(laid(&disk, &mut view, &model), (vec![], vec![]));
    assert!(view.refused().is_empty());
    assert_laid(&*disk, &view, &model, true, "under other names");
    assert!(model.rename((Ino::ROOT, &name(b"d")), (Ino::ROOT, &name(b"e:"))));
    assert_eq!(laid(&disk, &mut view, &model).1, [invalid()]);
    // It is not under a name that it no longer has. The disk is another one now.
    assert!(disk.stat(b"tree/d").is_err() && view.refused() == &[root(b"e:")].into());
    disk.refuse_names(None);
    model.names.insert(root(b"e:"));
    assert_eq!(laid(&disk, &mut view, &model), (vec![], vec![]));
    assert!(view.refused().is_empty());
    assert_laid(&*disk, &view, &model, true, "once more");
    view.settle().unwrap();
    model.settled();
    // Many are told, and as many remembered as have a bound.
    disk.refuse_names(Some(b':'));
    for n in 0..1_100 {
        let file = model.create(Ino::ROOT, &name(format!("n:{n}").as_bytes()), Kind::Regular).unwrap();
        bodies.ensure(file, None).unwrap();
    }
    assert_eq!(laid(&disk, &mut view, &model).1.len(), 1_100);
    assert_eq!(view.refused().len(), 1_024);
    view.settle().unwrap();
    drop((bodies, view));
    assert_eq!(open(&disk, true).unwrap().1.refused().len(), 1_024);
}

#[test]
fn laying_again_what_is_refused_changes_nothing_natively() {
    let disk = Arc::new(SimDisk::new(1));
    disk.limit_xattrs(Some(FEW_XATTRS));
    let (bodies, mut view) = open(&disk, true).unwrap();
    let mut model = Model::default();
    let file = model.create(Ino::ROOT, &name(b"f"), Kind::Regular).unwrap();
    bodies.ensure(file, None).unwrap();
    model.set_xattr(file, b"user.a", &[b'x'; 100]);
    lay(&mut view, &model).unwrap();
    view.settle().unwrap();
    model.settled();
    let before = disk.stat(b"tree/f").unwrap();
    view.lay(&[], &[(Ino::ROOT, name(b"f"))], &model).unwrap();
    // What is not saved of the index is lost, and nothing is listed any more.
    drop(view);
    let view = View::open(Arc::clone(&disk), Arc::clone(&bodies), common::options(true)).unwrap();
    assert_eq!(disk.stat(b"tree/f").unwrap(), before);
    assert_eq!(view.audit(&model).unwrap(), []);
}

#[test]
fn what_is_kept_of_nobody_is_found_and_left() {
    let disk = Arc::new(SimDisk::new(1));
    let (_bodies, view) = open(&disk, true).unwrap();
    disk.mkdir(XATTRS, 0o700).unwrap();
    for path in [spill_path(Ino(99), false), b"xattrs/other".to_vec()] {
        disk.symlink(b"x", &path).unwrap();
    }
    let mut found = view.audit(&Model::default()).unwrap();
    found.retain(|finding| matches!(finding, Finding::OrphanXattrs { .. }));
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn on_a_real_disk_too() {
    let path = std::env::temp_dir().join(format!("atoll-view-{}", std::process::id()));
    for seed in 0..12 {
        let _ = std::fs::remove_dir_all(&path);
        let disk = Arc::new(RealDisk::create(&path).unwrap());
        // Not everything that root may lay can be tried by others.
        run(&disk, seed % 2 == 0 && rustix::process::geteuid().is_root(), seed, 120);
    }
    std::fs::remove_dir_all(&path).unwrap();
}

/// A state that goes on while it is laid: a directory has no extended attributes when it is looked at
/// first, and its own after some looks.
struct GoesOn<'a> {
    model: &'a Model,
    /// Looks that show none.
    looks: std::cell::Cell<u64>,
}

impl Source for GoesOn<'_> {
    fn inode(&self, ino: Ino) -> std::io::Result<Option<Inode>> {
        self.model.inode(ino)
    }
    fn dir(&self, ino: Ino) -> std::io::Result<Option<Dir>> {
        let mut row = self.model.dir(ino)?;
        if let Some(row) = row.as_mut().filter(|_| ino != Ino::ROOT) {
            row.has_xattrs &= self.looks.get() == 0;
            self.looks.set(self.looks.get().saturating_sub(1));
        }
        Ok(row)
    }
    fn entry(&self, dir: Ino, name: &Name) -> std::io::Result<Option<Entry>> {
        self.model.entry(dir, name)
    }
    fn xattrs(&self, ino: Ino) -> std::io::Result<Option<Xattrs>> {
        self.model.xattrs(ino)
    }
}

#[test]
fn attributes_that_come_while_a_directory_is_laid_go_when_they_are_removed() {
    // After each look, to meet the one between planning and finishing.
    for looks in 0..6 {
        let disk = Arc::new(SimDisk::new(looks));
        let (_bodies, mut view) = open(&disk, true).unwrap();
        let mut model = Model::default();
        let dir = model.mkdir(Ino::ROOT, &name(b"d")).unwrap();
        lay(&mut view, &model).unwrap();
        model.xattrs.insert(dir, Xattrs(vec![(Bytes::from_static(b"user.a"), Bytes::from_static(b"1"))]));
        model.dirs.get_mut(&dir).unwrap().has_xattrs = true;
        let changing = GoesOn { model: &model, looks: looks.into() };
        view.lay(&[dir], &[], &changing).unwrap();
        model.xattrs.remove(&dir);
        model.dirs.get_mut(&dir).unwrap().has_xattrs = false;
        lay(&mut view, &model).unwrap();
        assert_eq!(disk.xattrs(b"tree/d").unwrap(), [], "changed after look {looks}");
    }
}

#[test]
fn set_id_bits_that_a_change_of_owner_leaves_go_with_the_mode() {
    for (before, after) in [(0o2700, 0o700), (0o6755, 0o755), (0o2700, 0o2700), (0o4711, 0o2711)] {
        let disk = Arc::new(SimDisk::new(before.into()));
        let (_bodies, mut view) = open(&disk, true).unwrap();
        let mut model = Model::default();
        let dir = model.mkdir(Ino::ROOT, &name(b"d")).unwrap();
        let file = model.create(dir, &name(b"f"), Kind::Regular).unwrap();
        for (mode, uid) in [(before, 0), (after, 1000)] {
            let fixed = &mut model.dirs.get_mut(&dir).unwrap().fixed;
            (fixed.mode, fixed.uid) = (mode, uid);
            let attr = &mut model.inodes.get_mut(&file).unwrap().attr;
            (attr.mode, attr.uid) = (mode, uid);
            lay(&mut view, &model).unwrap();
            assert_laid(&*disk, &view, &model, true, &format!("{mode:o} of {uid}"));
        }
    }
}

#[test]
fn a_directory_goes_although_what_was_in_it_is_told_later() {
    for settles in [false, true] {
        let disk = Arc::new(SimDisk::new(1));
        let (bodies, mut view) = open(&disk, true).unwrap();
        let mut model = Model::default();
        let dir = model.mkdir(Ino::ROOT, &name(b"dir")).unwrap();
        let below = model.mkdir(dir, &name(b"below")).unwrap();
        let file = model.create(dir, &name(b"file"), Kind::Regular).unwrap();
        bodies.ensure(file, None).unwrap();
        lay(&mut view, &model).unwrap();
        for gone in [(dir, b"file".as_slice()), (dir, b"below"), (Ino::ROOT, b"dir")] {
            assert!(model.remove(gone.0, &name(gone.1)));
        }
        model.drop_bodies(&bodies).unwrap();
        let mut conflicts = view.lay(&[dir], &[(Ino::ROOT, name(b"dir"))], &model).unwrap().conflicts;
        assert!(view.is_behind());
        if settles {
            view.settle().unwrap();
        }
        conflicts.extend(view.lay(&[file], &[(dir, name(b"file"))], &model).unwrap().conflicts);
        conflicts.extend(view.lay(&[below], &[(dir, name(b"below"))], &model).unwrap().conflicts);
        assert_eq!((conflicts, view.is_behind()), (Vec::new(), false));
        assert_eq!(disk.list(b"tree").unwrap(), []);
    }
}

#[test]
fn a_directory_in_which_much_comes_and_goes_goes_at_last() {
    let disk = Arc::new(SimDisk::new(1));
    let (bodies, mut view) = open(&disk, true).unwrap();
    let mut model = Model::default();
    let n = name(b"dir");
    let dir = model.mkdir(Ino::ROOT, &n).unwrap();
    for round in 0..40 {
        let file = name(format!("file{round}").as_bytes());
        let ino = model.create(dir, &file, Kind::Regular).unwrap();
        bodies.ensure(ino, None).unwrap();
        assert_eq!(view.lay(&[dir, ino], &[(dir, file.clone())], &model).unwrap().conflicts, []);
        // While this is laid the directory is gone, and what came into it is not known to be; then it is there again.
        assert!(model.remove(dir, &file));
        let before = model.clone();
        assert!(model.remove(Ino::ROOT, &n));
        assert_eq!(view.lay(&[dir], &[], &model).unwrap().conflicts, [], "round {round}");
        if round < 39 {
            model = before;
        }
    }
    model.drop_bodies(&bodies).unwrap();
    for _ in 0..3 {
        assert_eq!(view.lay(&[], &[], &model).unwrap().conflicts, []);
    }
    assert!(!view.is_behind());
    assert_eq!(disk.list(b"tree").unwrap(), []);
}

/// A state in which somebody is inside the body of a file.
struct Uses<'a> {
    model: &'a Model,
    ino: Ino,
}

impl Source for Uses<'_> {
    fn inode(&self, ino: Ino) -> std::io::Result<Option<Inode>> {
        self.model.inode(ino)
    }
    fn dir(&self, ino: Ino) -> std::io::Result<Option<Dir>> {
        self.model.dir(ino)
    }
    fn entry(&self, dir: Ino, name: &Name) -> std::io::Result<Option<Entry>> {
        self.model.entry(dir, name)
    }
    fn xattrs(&self, ino: Ino) -> std::io::Result<Option<Xattrs>> {
        self.model.xattrs(ino)
    }
    fn keeps(&self, ino: Ino) -> bool {
        ino == self.ino
    }
}

#[test]
fn a_file_that_is_gone_keeps_its_body_while_somebody_is_inside() {
    let disk = Arc::new(SimDisk::new(1));
    let (bodies, mut view) = open(&disk, true).unwrap();
    let mut model = Model::default();
    let file = model.create(Ino::ROOT, &name(b"file"), Kind::Regular).unwrap();
    bodies.ensure(file, None).unwrap();
    lay(&mut view, &model).unwrap();
    model.settled();
    assert!(model.remove(Ino::ROOT, &name(b"file")));
    let (inos, names) = model.lists();
    view.lay(&inos, &names, &Uses { model: &model, ino: file }).unwrap();
    assert_eq!(disk.list(b"tree").unwrap(), []);
    assert!(bodies.file(file).unwrap().is_some(), "whoever reads it would find it damaged");
    // It is listed again.
    view.lay(&[file], &[], &model).unwrap();
    assert!(bodies.file(file).unwrap().is_none());
}

/// A state in which a file is removed while it is laid: when it was looked at, and then a directory.
struct Drops<'a> {
    model: &'a Model,
    bodies: &'a Bodies<SimDisk>,
    ino: Ino,
    looked: std::cell::Cell<bool>,
    dropped: std::cell::Cell<bool>,
}

impl Source for Drops<'_> {
    fn inode(&self, ino: Ino) -> std::io::Result<Option<Inode>> {
        if ino != self.ino {
            return self.model.inode(ino);
        }
        self.looked.set(true);
        if self.dropped.get() { Ok(None) } else { self.model.inode(ino) }
    }
    fn dir(&self, ino: Ino) -> std::io::Result<Option<Dir>> {
        if self.looked.get() && !self.dropped.replace(true) {
            self.bodies.drop_body(self.ino)?;
        }
        self.model.dir(ino)
    }
    fn entry(&self, dir: Ino, name: &Name) -> std::io::Result<Option<Entry>> {
        self.model.entry(dir, name)
    }
    fn xattrs(&self, ino: Ino) -> std::io::Result<Option<Xattrs>> {
        self.model.xattrs(ino)
    }
}

#[test]
fn a_file_that_is_removed_while_it_takes_a_name_leaves_the_name_to_nobody() {
    for existed in [false, true] {
        let disk = Arc::new(SimDisk::new(1));
        let (bodies, mut view) = open(&disk, true).unwrap();
        let mut model = Model::default();
        let dir = model.mkdir(Ino::ROOT, &name(b"dir")).unwrap();
        let (old, new) = (name(b"old"), name(b"new"));
        let first = model.create(dir, &old, Kind::Regular).unwrap();
        bodies.ensure(first, None).unwrap();
        lay(&mut view, &model).unwrap();
        model.settled();
        let second = model.create(dir, &new, Kind::Regular).unwrap();
        bodies.ensure(second, None).unwrap();
        if existed {
            lay(&mut view, &model).unwrap();
            model.settled();
        }
        assert!(model.rename((dir, &new), (dir, &old)));
        model.drop_bodies(&bodies).unwrap();
        let (mut inos, names) = model.lists();
        inos.push(dir);
        let (looked, dropped) = (false.into(), false.into());
        let drops = Drops { model: &model, bodies: &bodies, ino: second, looked, dropped };
        view.lay(&inos, &names, &drops).unwrap();
        assert!(drops.dropped.get());
        assert!(model.remove(dir, &old));
        let report = lay(&mut view, &model).unwrap();
        assert_eq!(report.conflicts, [], "existed: {existed}");
        assert_eq!(disk.list(b"tree/dir").unwrap(), [], "existed: {existed}");
    }
}

/// How a life went and ended.
struct Life {
    died: bool,
    disk: Arc<SimDisk>,
    model: Model,
    rng: Rng,
}

/// One life with a crash at the `effect`-th effect.
fn life(seed: u64, effect: u64, cut: bool) -> Life {
    let disk = Arc::new(SimDisk::new(seed));
    disk.limit_xattrs((seed % 2 == 1).then_some(FEW_XATTRS));
    let (mut model, mut rng) = (Model::default(), Rng::new(seed));
    // The folders are made before: making 256 of them is not what is tried here.
    drop(open(&disk, true).unwrap());
    disk.die_after(effect);
    let mut live = || -> std::io::Result<()> {
        let (bodies, mut view) = open(&disk, true)?;
        for _ in 0..40 {
            model.step(&bodies, &mut rng)?;
            if rng.below(5) == 0 {
                model.drop_bodies(&bodies)?;
                lay(&mut view, &model)?;
                if rng.below(3) == 0 {
                    view.settle()?;
                    model.settled();
                }
            }
        }
        Ok(())
    };
    let died = live().is_err();
    let fault = if cut { Fault::PowerCut { seed: seed ^ effect } } else { Fault::ProcessDeath };
    Life { died, disk: Arc::new(disk.revive(fault)), model, rng }
}

/// A life with a crash, and what comes after; true if it came so far.
fn crash(seed: u64, effect: u64, cut: bool) -> bool {
    let Life { died, disk, mut model, mut rng } = life(seed, effect, cut);
    let context = format!("crash({seed}, {effect}, {cut})");
    let (bodies, mut view) = open(&disk, true).unwrap();
    // More may have happened that the log has and nobody laid.
    for _ in 0..rng.below(8) {
        model.step(&bodies, &mut rng).unwrap();
    }
    model.recover_bodies(&bodies);
    let report = lay(&mut view, &model).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert_eq!(conflicts(&report), [], "{context}");
    assert_laid(&*disk, &view, &model, true, &context);
    view.settle().unwrap();
    model.settled();
    assert_laid(&*disk, &view, &model, true, &context);
    died
}

#[test]
fn after_a_crash_at_any_effect_laying_again_makes_the_tree_right() {
    for seed in 0..4 {
        for cut in [false, true] {
            let mut effect = 1;
            while crash(seed, effect, cut) {
                effect += 1;
            }
            assert!(effect > 100, "only {effect} effects in a life");
        }
    }
}

#[test]
fn after_many_power_cuts_too() {
    for seed in 100..400 {
        crash(seed, 1 + seed * 31 % 400, true);
    }
}

/// What only the lost index could have told to be ours.
const fn is_foreign(finding: &Finding) -> bool {
    matches!(finding, Finding::ForeignName { .. } | Finding::OrphanBody { .. } | Finding::OrphanXattrs { .. })
}

#[test]
fn a_lost_index_costs_nothing_but_names_of_files_that_are_gone() {
    let mut unclear = 0;
    for seed in 0..200 {
        let (effect, cut) = (50 + seed * 17 % 300, seed % 2 == 0);
        let Life { disk, mut model, .. } = life(seed, effect, cut);
        let context = format!("life({seed}, {effect}, {cut})");
        let _ = disk.unlink(b"view.redb");
        let (bodies, mut view) = open(&disk, true).unwrap();
        model.recover_bodies(&bodies);
        let report = view.lay_all(&model).unwrap();
        let findings = view.audit(&model).unwrap();
        if findings.iter().any(|f| !is_foreign(f)) {
            // A name that such a link holds is wanted by something else: it was told so.
            assert!(report.conflicts.iter().any(|c| c.why == Why::Taken), "{context}: {findings:?}");
            unclear += 1;
        }
    }
    assert!(unclear < 40, "{unclear} of 200 lost indexes left something undone");
}

#[test]
fn in_a_copied_folder_all_is_laid_again_until_that_was_settled() {
    let Life { disk, mut model, .. } = life(7, 200, false);
    {
        let (bodies, mut view) = open(&disk, true).unwrap();
        model.recover_bodies(&bodies);
        view.lay_all(&model).unwrap();
        view.settle().unwrap();
    }
    assert!(!open(&disk, true).unwrap().1.index_was_lost());
    // The file of a copy is another one.
    disk.unlink(b"view.origin").unwrap();
    for _ in 0..2 {
        let (_, mut view) = open(&disk, true).unwrap();
        assert!(view.index_was_lost(), "it was not settled yet");
        view.lay_all(&model).unwrap();
    }
    let (_, mut view) = open(&disk, true).unwrap();
    view.lay_all(&model).unwrap();
    view.settle().unwrap();
    assert_eq!(view.audit(&model).unwrap(), []);
    drop(view);
    assert!(!open(&disk, true).unwrap().1.index_was_lost());
}

#[test]
fn a_file_that_is_listed_and_gone_is_ours_until_its_names_are_taken_away() {
    let disk = Arc::new(SimDisk::new(1));
    let (bodies, mut view) = open(&disk, true).unwrap();
    let mut model = Model::default();
    let file = model.create(Ino::ROOT, &name(b"f"), Kind::Regular).unwrap();
    bodies.ensure(file, None).unwrap();
    lay(&mut view, &model).unwrap();
    view.settle().unwrap();
    model.settled();
    drop(view);
    assert!(model.remove(Ino::ROOT, &name(b"f")));
    model.listed.push(file);
    // Nobody lists what has changed.
    atoll_view::lay_again(&*disk).unwrap();
    let (_, mut view) = open(&disk, true).unwrap();
    assert_eq!(view.lay_all(&model).unwrap().conflicts, []);
    assert!(disk.stat(b"tree/f").is_err(), "the name of a file that is gone");
    assert_eq!(view.audit(&model).unwrap(), []);
}

/// As in the folder of a copy that was empty, and took its rows from another one.
#[test]
fn an_empty_tree_is_laid_when_that_is_told_until_it_was_settled() {
    for had_index in [false, true] {
        let disk = Arc::new(SimDisk::new(1));
        if had_index {
            drop(open(&disk, true).unwrap());
        }
        let mut model = Model::default();
        let file = model.create(Ino::ROOT, &name(b"f"), Kind::Regular).unwrap();
        atoll_view::lay_again(&*disk).unwrap();
        for _ in 0..2 {
            let (bodies, view) = open(&disk, true).unwrap();
            bodies.ensure(file, None).unwrap();
            assert!(view.index_was_lost(), "nothing of it is there");
        }
        let (_, mut view) = open(&disk, true).unwrap();
        assert_eq!(view.lay_all(&model).unwrap().conflicts, []);
        view.settle().unwrap();
        assert!(disk.stat(b"tree/f").is_ok());
        drop(view);
        assert!(!open(&disk, true).unwrap().1.index_was_lost());
    }
}

/// A file may be forgotten and come back under its id, to its home or because the record that removed it is gone.
#[test]
fn a_file_that_goes_and_comes_back_leaves_no_name_behind_after_a_power_cut() {
    let mut came_back = 0;
    for seed in 0..100 {
        let disk = Arc::new(SimDisk::new(seed));
        let (bodies, mut view) = open(&disk, true).unwrap();
        let mut model = Model::default();
        let file = model.create(Ino::ROOT, &name(b"before"), Kind::Regular).unwrap();
        let (row, entry) =
            (model.inodes[&file].clone(), model.entries[&(Ino::ROOT, name(b"before"))].clone());
        lay(&mut view, &model).unwrap();
        view.settle().unwrap();
        model.settled();
        assert!(model.remove(Ino::ROOT, &name(b"before")));
        lay(&mut view, &model).unwrap();
        model.dropped.clear();
        model.inodes.insert(file, row);
        let key = (Ino::ROOT, name(b"after"));
        model.entries.insert(key.clone(), entry);
        model.names.insert(key);
        model.inos.insert(file);
        lay(&mut view, &model).unwrap();
        drop((view, bodies));
        let disk = Arc::new(disk.revive(Fault::PowerCut { seed }));
        came_back += u32::from(disk.stat(b"tree/before").is_ok());
        let (bodies, mut view) = open(&disk, true).unwrap();
        model.recover_bodies(&bodies);
        assert_eq!(lay(&mut view, &model).unwrap().conflicts, [], "seed {seed}");
        assert_laid(&*disk, &view, &model, true, &format!("seed {seed}"));
    }
    assert!(came_back > 5, "the name came back {came_back} times only");
}

/// Found by groups_fill 101136: a copy lays what it had, and has the bodies of later records already.
#[test]
fn an_object_that_a_file_had_before_is_ours_until_the_change_that_takes_its_name_is_laid() {
    let disk = Arc::new(SimDisk::new(1));
    let (bodies, mut view) = open(&disk, true).unwrap();
    let mut model = Model::default();
    let file = model.create(Ino::ROOT, &name(b"before"), Kind::Regular).unwrap();
    let entry = model.entries[&(Ino::ROOT, name(b"before"))].clone();
    bodies.ensure(file, None).unwrap();
    lay(&mut view, &model).unwrap();
    view.settle().unwrap();
    disk.link(b"tree/before", b"kept").unwrap();
    // It has left its home, and come back under another name.
    bodies.drop_body(file).unwrap();
    bodies.ensure(file, None).unwrap();
    model.entries.remove(&(Ino::ROOT, name(b"before")));
    model.entries.insert((Ino::ROOT, name(b"after")), entry);
    for names in [&[][..], &[(Ino::ROOT, name(b"before")), (Ino::ROOT, name(b"after"))]] {
        assert_eq!(view.lay(&[file], names, &model).unwrap().conflicts, []);
        view.settle().unwrap();
    }
    assert_eq!(view.audit(&model).unwrap(), []);
    // Nobody needs to know the older object any more.
    disk.link(b"kept", b"tree/by-hand").unwrap();
    let laid = view.lay(&[], &[(Ino::ROOT, name(b"by-hand"))], &model).unwrap();
    assert!(matches!(laid.conflicts[..], [Conflict { why: Why::Replaced, .. }]), "{laid:?}");
    assert!(disk.stat(b"tree/by-hand").is_ok());
}

#[test]
fn an_absent_file_is_laid_with_all_its_names_when_its_bytes_are_here() {
    let disk = Arc::new(SimDisk::new(7));
    let (mut bodies, mut view) = open(&disk, true).unwrap();
    let mut model = Model::default();
    let dir = model.mkdir(Ino::ROOT, &name(b"dir")).unwrap();
    model.create(dir, &name(b"taken"), Kind::Regular).unwrap();
    assert_eq!(conflicts(&lay(&mut view, &model).unwrap()), []);
    let laid = |path: &[u8]| disk.stat(path).is_ok();
    assert!(laid(b"tree/dir/taken"));
    // It takes the name of a file that is there, and has another one.
    model.remove(dir, &name(b"taken"));
    let ino = model.create_absent(dir, &name(b"taken")).unwrap();
    model.link(ino, Ino::ROOT, &name(b"other"));
    let gone = model.create_absent(Ino::ROOT, &name(b"gone")).unwrap();
    model.drop_bodies(&bodies).unwrap();
    // What has come so far lies among the bodies.
    bodies.write(ino, 0, b"half", 4, None).unwrap();
    bodies.write(gone, 0, b"half", 4, None).unwrap();
    lay(&mut view, &model).unwrap();
    assert!(!laid(b"tree/dir/taken") && !laid(b"tree/other") && !laid(b"tree/gone"));
    assert_laid(&*disk, &view, &model, true, "absent");
    view.settle().unwrap();
    model.settled();
    drop((bodies, view));
    (bodies, view) = open(&disk, true).unwrap();
    model.rename((Ino::ROOT, &name(b"other")), (dir, &name(b"moved")));
    model.remove(Ino::ROOT, &name(b"gone"));
    model.drop_bodies(&bodies).unwrap();
    lay(&mut view, &model).unwrap();
    view.settle().unwrap();
    model.settled();
    assert_laid(&*disk, &view, &model, true, "moved and removed while absent");
    drop((bodies, view));
    (bodies, view) = open(&disk, true).unwrap();
    // Only the file is listed now.
    model.inodes.get_mut(&ino).unwrap().attr.size = 4;
    model.arrives(ino);
    assert!(model.names.is_empty());
    let report = lay(&mut view, &model).unwrap();
    assert_eq!((conflicts(&report), report.linked), (Vec::new(), 2));
    assert!(laid(b"tree/dir/taken") && laid(b"tree/dir/moved"));
    assert_laid(&*disk, &view, &model, true, "here");
    view.settle().unwrap();
    model.settled();
    model.arrives(ino);
    let report = lay(&mut view, &model).unwrap();
    assert_eq!((report.linked, report.unlinked), (0, 0), "nothing is left to be laid");
    drop(bodies);
}
