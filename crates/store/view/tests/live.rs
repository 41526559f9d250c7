//! A state that goes on changing while it is laid, in part and whole, as that of a copy does. When it stands still, the tree is
//! the state's, and nothing of ours was taken for somebody else's.

mod common;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use atoll_body::Bodies;
use atoll_core::{Ino, Name};
use atoll_disk::sim::SimDisk;
use atoll_proto::{Dir, Entry, Inode, Xattrs};
use atoll_view::{Conflict, Source, Subject, View, Whole, Why};
use common::{Model, Rng, assert_laid, name, open};

/// Changes while one laying runs.
const CHANGES_MAX: usize = 12;

/// Ids and names.
type Taken = (BTreeSet<Ino>, BTreeSet<(Ino, Name)>);

/// The state: it changes now and then when it is asked something.
struct Live {
    bodies: Arc<Bodies<SimDisk>>,
    model: RefCell<Model>,
    rng: RefCell<Rng>,
    /// One of so many questions finds another change.
    pace: usize,
    /// So many changes more, or the state would grow faster than it is laid.
    left: Cell<usize>,
    questions: Cell<usize>,
    /// At this question these go.
    goes: (usize, Vec<(Ino, Name)>),
    /// What was taken to be laid since the last settling.
    taken: RefCell<Taken>,
}

impl Live {
    fn goes_on(&self) {
        self.questions.set(self.questions.get() + 1);
        if self.goes.0 == self.questions.get() {
            let mut model = self.model.borrow_mut();
            self.goes.1.iter().for_each(|(dir, name)| assert!(model.remove(*dir, name)));
        }
        let mut rng = self.rng.borrow_mut();
        if self.left.get() > 0 && rng.below(self.pace) == 0 {
            self.left.set(self.left.get() - 1);
            let mut model = self.model.borrow_mut();
            model.step(&self.bodies, &mut rng).unwrap();
            model.drop_bodies(&self.bodies).unwrap();
        }
    }

    /// Fewer than so many changes.
    fn changes(&self, most: usize) {
        let mut rng = self.rng.borrow_mut();
        for _ in 0..rng.below(most.max(1)) {
            let mut model = self.model.borrow_mut();
            model.step(&self.bodies, &mut rng).unwrap();
            model.drop_bodies(&self.bodies).unwrap();
        }
    }

    /// What has changed since this was asked last.
    fn take(&self) -> (Vec<Ino>, Vec<(Ino, Name)>) {
        let mut model = self.model.borrow_mut();
        let lists = model.lists();
        model.settled();
        let mut taken = self.taken.borrow_mut();
        taken.0.extend(&lists.0);
        taken.1.extend(lists.1.iter().cloned());
        lists
    }

    fn again(&self, inos: impl IntoIterator<Item = Ino>, names: impl IntoIterator<Item = (Ino, Name)>) {
        let mut model = self.model.borrow_mut();
        model.inos.extend(inos);
        model.names.extend(names);
    }

    fn settled(&self, view: &mut View<SimDisk>) {
        view.settle().unwrap();
        let (inos, names) = view.behind();
        self.again(inos, names);
        *self.taken.borrow_mut() = Taken::default();
    }

    /// The view has ended without being settled.
    fn lost(&self) {
        let (inos, names) = std::mem::take(&mut *self.taken.borrow_mut());
        self.again(inos, names);
    }
}

impl Source for Live {
    fn inode(&self, ino: Ino) -> io::Result<Option<Inode>> {
        self.goes_on();
        self.model.borrow().inode(ino)
    }
    fn dir(&self, ino: Ino) -> io::Result<Option<Dir>> {
        self.goes_on();
        self.model.borrow().dir(ino)
    }
    fn entry(&self, dir: Ino, name: &Name) -> io::Result<Option<Entry>> {
        self.goes_on();
        self.model.borrow().entry(dir, name)
    }
    fn xattrs(&self, ino: Ino) -> io::Result<Option<Xattrs>> {
        self.goes_on();
        self.model.borrow().xattrs(ino)
    }
    fn waits(&self, ino: Ino) -> bool {
        self.goes_on();
        self.model.borrow().inos.contains(&ino)
    }
    fn in_flux(&self, ino: Ino) -> bool {
        self.model.borrow().inos.contains(&ino)
    }
}

impl Whole for Live {
    fn inodes(&self) -> Box<dyn Iterator<Item = io::Result<Ino>> + '_> {
        let all: Vec<Ino> = self.model.borrow().inodes.keys().copied().collect();
        Box::new(all.into_iter().map(Ok))
    }
    fn dirs(&self) -> Box<dyn Iterator<Item = io::Result<Ino>> + '_> {
        let all: Vec<Ino> = self.model.borrow().dirs.keys().copied().collect();
        Box::new(all.into_iter().map(Ok))
    }
    fn names(&self, dir: Ino) -> Box<dyn Iterator<Item = io::Result<(Name, Entry)>> + '_> {
        let model = self.model.borrow();
        let all = model.names(dir).collect::<Vec<_>>();
        Box::new(all.into_iter())
    }
}

fn conflicts(all: Vec<Conflict>) -> Vec<Conflict> {
    all.into_iter().filter(|c| !matches!(c.why, Why::Device | Why::Spilled(_) | Why::ChangedByHand)).collect()
}

impl Live {
    fn new(bodies: Arc<Bodies<SimDisk>>, seed: u64, pace: usize) -> Self {
        Self {
            bodies,
            model: RefCell::default(),
            rng: RefCell::new(Rng::new(seed)),
            pace,
            left: Cell::new(0),
            questions: Cell::new(0),
            goes: (0, Vec::new()),
            taken: RefCell::default(),
        }
    }

    /// Lays all. What met an obstacle is laid again, because the obstacle may have gone with a change that is laid next.
    fn all(&self, view: &mut View<SimDisk>) {
        for conflict in view.lay_all(self).unwrap().conflicts {
            match conflict.subject {
                Subject::Id(ino) => self.again([ino], []),
                Subject::Name(dir, name) => self.again([], [(dir, name)]),
            }
        }
    }

    /// Nothing changes any more, and everything is laid.
    fn rests(&self, disk: &SimDisk, view: &mut View<SimDisk>, context: &str) {
        let mut rounds = 0;
        while view.is_behind()
            || !self.model.borrow().inos.is_empty()
            || !self.model.borrow().names.is_empty()
        {
            rounds += 1;
            assert!(rounds < 30, "{context} comes to no rest: {:?}", view.behind());
            let (inos, names) = self.take();
            let report = view.lay(&inos, &names, self).unwrap();
            assert_eq!(conflicts(report.conflicts), [], "{context}, at rest");
        }
        assert_laid(disk, view, &self.model.borrow(), true, &format!("{context}, at rest"));
    }
}

fn run(seed: u64, pace: usize) {
    let disk = Arc::new(SimDisk::new(seed));
    let (bodies, mut view) = open(&disk, true).unwrap();
    let mut live = Live::new(bodies, seed, pace);
    for round in 0..40 {
        let context = format!("seed {seed}, round {round}");
        live.changes(12);
        live.left.set(CHANGES_MAX);
        let what = live.rng.borrow_mut().below(12);
        match what {
            0..3 => live.settled(&mut view),
            3 => {
                drop(view);
                live.lost();
                if live.rng.borrow_mut().below(2) == 0 {
                    atoll_view::lay_again(&*disk).unwrap();
                }
                (live.bodies, view) = open(&disk, true).unwrap();
                if view.index_was_lost() {
                    live.all(&mut view);
                }
            }
            _ => {
                let (inos, names) = live.take();
                // What was taken may have to wait until nothing can take it back.
                live.changes([0, 40][round % 2]);
                let report = view.lay(&inos, &names, &live).unwrap();
                assert_eq!(conflicts(report.conflicts), [], "{context}");
            }
        }
    }
    live.left.set(0);
    live.rests(&disk, &mut view, &format!("seed {seed}"));
}

#[test]
fn the_tree_becomes_what_the_state_says_although_it_changes_meanwhile() {
    for seed in 0..60 {
        run(seed, [4, 12, 40][seed as usize % 3]);
    }
}

/// There are more directories than times that a directory is tried again.
#[test]
fn directories_that_go_while_all_is_laid_are_ours_until_that_is_laid_too() {
    let [above, below] = [&b"above"[..], b"below"].map(name);
    for question in 0..150 {
        let disk = Arc::new(SimDisk::new(1));
        let (bodies, mut view) = open(&disk, true).unwrap();
        let mut live = Live::new(bodies, 1, 1);
        let model = live.model.get_mut();
        let dir = model.mkdir(Ino::ROOT, &above).unwrap();
        for other in 0..20 {
            model.mkdir(Ino::ROOT, &name(format!("other{other}").as_bytes())).unwrap();
        }
        // All is laid in the order of ids: the one above goes long before this one is looked at.
        model.mkdir(dir, &below).unwrap();
        model.settled();
        live.goes = (question, vec![(dir, below.clone()), (Ino::ROOT, above.clone())]);
        live.all(&mut view);
        live.rests(&disk, &mut view, &format!("gone at question {question}"));
    }
}
