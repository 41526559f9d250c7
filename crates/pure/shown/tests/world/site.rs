//! One site of the small world: what it holds, what of that survives a power cut, and how it answers for what is shown.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use atoll_causal::{
    AttrState, Context, DirBirth, DirChange, DirHead, DirState, Dot, DotFun, EntryKey, EntryWord, FileChange,
    FileId, FileState, HybridClock, HybridStamp, Taken, Writer,
};
use atoll_core::{Name, Time};
use atoll_model::life::Seen;
use atoll_shown::{Life, Objects};

use super::name;

/// A change or a birth, as sites send it to each other.
pub struct Known {
    pub object: FileId,
    pub what: What,
    /// What a user did by it.
    pub events: Vec<usize>,
}

/// What a site sends of an object.
pub enum What {
    File(FileState),
    Dir(DirState),
    FileChange(FileChange),
    DirChange(DirChange),
}

/// A move of a directory to another parent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moved {
    pub dir: FileId,
    pub parent: FileId,
    pub name: Name,
}

/// What a site holds.
#[derive(Clone, Default)]
pub struct Held {
    pub files: BTreeMap<FileId, FileState>,
    pub dirs: BTreeMap<FileId, DirState>,
    /// Moves of directories, in the order of their stamps.
    pub moves: BTreeMap<(HybridStamp, FileId), Moved>,
    /// Events that were heard of, of each object.
    pub ghosts: BTreeMap<FileId, Seen>,
    pub log: Vec<Rc<Known>>,
}

/// A site.
pub struct Site {
    pub writer: Writer,
    pub clock: HybridClock,
    pub skew_us: u64,
    pub held: Held,
    /// The last dot. It survives a power cut: dots are reserved in synced blocks.
    n: u64,
    saved: Held,
    is_synced: bool,
    answers: RefCell<Option<Answers>>,
}

/// What follows from what is held, kept until that changes.
struct Answers {
    near: BTreeMap<FileId, BTreeSet<EntryKey>>,
    places: BTreeMap<FileId, (FileId, Name)>,
    lives: BTreeMap<FileId, Life>,
}

impl Site {
    /// A site that holds an empty root.
    pub fn new(writer: u64, skew_us: u64) -> Self {
        let mut held = Held::default();
        let birth = DirBirth { stamp: HybridStamp::ZERO, parent: FileId::ROOT };
        let attrs = AttrState::new(HybridStamp::ZERO, 0o755, 0, 0, Time::default());
        let root = DirState::new(birth, Dot { writer: Writer(u64::MAX), n: 1 }, attrs, name("root"));
        held.dirs.insert(FileId::ROOT, root);
        Self {
            writer: Writer(writer),
            clock: HybridClock::default(),
            skew_us,
            saved: held.clone(),
            held,
            n: 0,
            is_synced: true,
            answers: RefCell::new(None),
        }
    }

    /// A dot that was never given out.
    pub fn dot(&mut self) -> Dot {
        self.n += 1;
        Dot { writer: self.writer, n: self.n }
    }

    /// All objects.
    pub fn ids(&self) -> Vec<FileId> {
        self.held.files.keys().chain(self.held.dirs.keys()).copied().collect()
    }

    /// The latest stamp that an object has.
    pub fn latest(&self, id: FileId) -> HybridStamp {
        let moved = self.held.moves.iter().filter(|(_, moved)| moved.dir == id).map(|((stamp, _), _)| *stamp);
        let file = self.held.files.get(&id).map(FileState::latest);
        let dir = self.held.dirs.get(&id).map(|dir| dir.head.latest());
        moved.chain(file).chain(dir).max().unwrap_or(HybridStamp::ZERO)
    }

    /// Everything that is held survives a power cut from here on.
    pub fn sync(&mut self) {
        if !self.is_synced {
            self.saved = self.held.clone();
            self.is_synced = true;
        }
    }

    /// What was not synced is lost.
    pub fn lose_power(&mut self) {
        self.held = self.saved.clone();
        self.is_synced = true;
        self.answers.replace(None);
    }

    /// What is held has changed.
    pub fn forget(&mut self) {
        self.is_synced = false;
        self.answers.replace(None);
    }

    /// Something is in what is held now.
    pub fn note(&mut self, known: Known) {
        self.held.log.push(Rc::new(known));
        self.forget();
    }

    /// Takes in what another site sends.
    pub fn take(&mut self, known: &Rc<Known>) -> Taken {
        let id = known.object;
        let taken = match &known.what {
            What::File(state) => match self.held.files.get_mut(&id) {
                Some(file) => file.join(state),
                None => {
                    self.held.files.insert(id, state.clone());
                    Taken::Applied
                }
            },
            What::Dir(state) => match self.held.dirs.get_mut(&id) {
                Some(dir) => dir.join(state),
                None => {
                    self.held.dirs.insert(id, state.clone());
                    Taken::Applied
                }
            },
            What::FileChange(change) => {
                self.held.files.get_mut(&id).map_or(Taken::Gap, |file| file.apply(change))
            }
            What::DirChange(change) => {
                self.held.dirs.get_mut(&id).map_or(Taken::Gap, |dir| dir.apply(change))
            }
        };
        if taken == Taken::Applied {
            let ghost = self.held.ghosts.entry(id).or_default();
            known.events.iter().for_each(|event| ghost.add(*event));
            self.held.log.push(Rc::clone(known));
            self.forget();
        }
        taken
    }

    /// Takes in the whole state of an object, and the moves of directories.
    pub fn take_state(&mut self, from: &Held, id: FileId) {
        if let Some(state) = from.files.get(&id) {
            match self.held.files.get_mut(&id) {
                Some(file) => drop(file.join(state)),
                None => drop(self.held.files.insert(id, state.clone())),
            }
        }
        if let Some(state) = from.dirs.get(&id) {
            match self.held.dirs.get_mut(&id) {
                Some(dir) => drop(dir.join(state)),
                None => drop(self.held.dirs.insert(id, state.clone())),
            }
        }
        if let Some(ghost) = from.ghosts.get(&id) {
            self.held.ghosts.entry(id).or_default().join(ghost);
        }
        self.held.moves.extend(from.moves.iter().map(|(stamp, moved)| (*stamp, moved.clone())));
        self.forget();
    }

    fn answers<T>(&self, ask: impl FnOnce(&Answers) -> T) -> T {
        if self.answers.borrow().is_none() {
            let places = self.places();
            let mut near: BTreeMap<FileId, BTreeSet<EntryKey>> = BTreeMap::new();
            let mut put = |dir: FileId, name: &Name, child: FileId| {
                near.entry(dir).or_default().insert(EntryKey { name: name.clone(), child });
            };
            for (id, dir) in &self.held.dirs {
                dir.entries.iter().for_each(|(key, _)| put(*id, &key.name, key.child));
            }
            places.iter().for_each(|(id, (parent, name))| put(*parent, name, *id));
            for (id, file) in &self.held.files {
                file.places().for_each(|(_, place)| put(place.dir, &place.name, *id));
                file.grave.iter().for_each(|grave| put(grave.dir, &grave.name, *id));
            }
            self.answers.replace(Some(Answers { near, places, lives: BTreeMap::new() }));
        }
        ask(self.answers.borrow().as_ref().expect("they were made"))
    }

    /// Parents and names of directories: the moves in the order of their stamps, but for those that would put a directory below
    /// itself at that point. Slow and plain, in the place of the spine.
    fn places(&self) -> BTreeMap<FileId, (FileId, Name)> {
        let not_root = self.held.dirs.iter().filter(|(id, _)| **id != FileId::ROOT);
        let mut parents: BTreeMap<FileId, FileId> =
            not_root.map(|(id, dir)| (*id, dir.head.birth.parent)).collect();
        let mut renamed: BTreeMap<FileId, (HybridStamp, &Name)> = BTreeMap::new();
        for ((stamp, _), moved) in &self.held.moves {
            let mut above = Some(moved.parent);
            while above.is_some_and(|dir| dir != moved.dir) {
                above = above.and_then(|dir| parents.get(&dir).copied());
            }
            if above.is_none() {
                parents.insert(moved.dir, moved.parent);
                renamed.insert(moved.dir, (*stamp, &moved.name));
            }
        }
        let mut places = BTreeMap::new();
        for (id, dir) in self.held.dirs.iter().filter(|(id, _)| **id != FileId::ROOT) {
            let own = (dir.head.name.stamp, &dir.head.name.value);
            let (_, name) = renamed.get(id).map_or(own, |moved| own.max(*moved));
            places.insert(*id, (parents[id], name.clone()));
        }
        places
    }
}

impl Objects for Site {
    fn file(&self, id: FileId) -> Option<Cow<'_, FileState>> {
        self.held.files.get(&id).map(Cow::Borrowed)
    }

    fn dir(&self, id: FileId) -> Option<Cow<'_, DirHead>> {
        self.held.dirs.get(&id).map(|dir| Cow::Borrowed(&dir.head))
    }

    fn place(&self, dir: FileId) -> Option<(FileId, Name)> {
        self.answers(|answers| answers.places.get(&dir).cloned())
    }

    fn entry(&self, dir: FileId, key: &EntryKey) -> Option<Cow<'_, DotFun<EntryWord>>> {
        self.held.dirs.get(&dir)?.entries.get(key).map(Cow::Borrowed)
    }

    fn based(&self, dir: FileId, child: FileId) -> Option<Cow<'_, Context>> {
        self.held.dirs.get(&dir)?.based.get(&child).map(Cow::Borrowed)
    }

    fn near(&self, dir: FileId, name: Option<&Name>) -> Vec<EntryKey> {
        self.answers(|answers| {
            let Some(all) = answers.near.get(&dir) else { return Vec::new() };
            let Some(name) = name else { return all.iter().cloned().collect() };
            let from = EntryKey { name: name.clone(), child: FileId(0) };
            all.range(from..).take_while(|key| key.name == *name).cloned().collect()
        })
    }

    fn site(&self, writer: Writer) -> Cow<'_, str> {
        Cow::Owned(format!("s{}", writer.0))
    }

    fn life(&self, dir: FileId) -> Life {
        if let Some(life) = self.answers(|answers| answers.lives.get(&dir).copied()) {
            return life;
        }
        let life = atoll_shown::life(self, dir);
        if let Some(answers) = self.answers.borrow_mut().as_mut() {
            answers.lives.insert(dir, life);
        }
        life
    }
}
