//! A little state in memory with random changes, and a view over it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;

use atoll_body::{Bodies, Redo};
use atoll_core::{Ino, IslandId, Key, Name, Stamp, Time};
use atoll_disk::{Disk, DiskFile, FileKind};
use atoll_posix::{Attr, Kind};
use atoll_proto::{Dir, DirPlace, Entry, Inode, OwnedDir, PlaceVersion, StaticAttrs, Xattrs};
use atoll_view::plain::{Found, scan};
use atoll_view::{Options, Report, Source, View, Whole};
use bytes::Bytes;

pub const HERE: IslandId = IslandId(3);
pub const ELSEWHERE: IslandId = IslandId(4);

pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.below(from.len())].clone()) }
    }
}

pub fn name(bytes: &[u8]) -> Name {
    Name::new(bytes).unwrap()
}

/// The state, and what has changed in it since it was asked last.
#[derive(Clone)]
pub struct Model {
    pub inodes: BTreeMap<Ino, Inode>,
    /// Ids that are listed with all inodes although they are gone: a snapshot still has them.
    pub listed: Vec<Ino>,
    pub dirs: BTreeMap<Ino, Dir>,
    pub entries: BTreeMap<(Ino, Name), Entry>,
    pub xattrs: BTreeMap<Ino, Xattrs>,
    pub inos: HashSet<Ino>,
    pub names: HashSet<(Ino, Name)>,
    pub dropped: HashSet<Ino>,
    /// Files whose bytes are on their way.
    pub in_flux: HashSet<Ino>,
    next: u64,
    clock: i64,
}

impl Source for Model {
    fn inode(&self, ino: Ino) -> io::Result<Option<Inode>> {
        Ok(self.inodes.get(&ino).cloned())
    }
    fn dir(&self, ino: Ino) -> io::Result<Option<Dir>> {
        Ok(self.dirs.get(&ino).cloned())
    }
    fn entry(&self, dir: Ino, name: &Name) -> io::Result<Option<Entry>> {
        Ok(self.entries.get(&(dir, name.clone())).cloned())
    }
    fn xattrs(&self, ino: Ino) -> io::Result<Option<Xattrs>> {
        Ok(self.xattrs.get(&ino).cloned())
    }
    fn in_flux(&self, ino: Ino) -> bool {
        self.in_flux.contains(&ino)
    }
}

impl Whole for Model {
    fn inodes(&self) -> Box<dyn Iterator<Item = io::Result<Ino>> + '_> {
        Box::new(self.inodes.keys().chain(&self.listed).copied().map(Ok))
    }
    fn dirs(&self) -> Box<dyn Iterator<Item = io::Result<Ino>> + '_> {
        Box::new(self.dirs.keys().copied().map(Ok))
    }
    fn names(&self, dir: Ino) -> Box<dyn Iterator<Item = io::Result<(Name, Entry)>> + '_> {
        let mine = self.entries.iter().filter(move |((d, _), _)| *d == dir);
        Box::new(mine.map(|((_, name), entry)| Ok((name.clone(), entry.clone()))))
    }
}

impl Default for Model {
    fn default() -> Self {
        let mut model = Self {
            inodes: BTreeMap::new(),
            listed: Vec::new(),
            dirs: BTreeMap::new(),
            entries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            inos: HashSet::new(),
            names: HashSet::new(),
            in_flux: HashSet::new(),
            dropped: HashSet::new(),
            next: 16,
            clock: 1_000_000_000,
        };
        model.set_dir(Ino::ROOT, Ino::ROOT, None, true);
        model
    }
}

impl Model {
    pub fn now(&mut self) -> Time {
        self.clock += 7;
        Time { secs: self.clock, nanos: 123_000 }
    }

    fn mint(&mut self) -> Ino {
        self.next += 1;
        Ino::mint(HERE, self.next)
    }

    fn set_dir(&mut self, ino: Ino, parent: Ino, name: Option<Name>, is_owned: bool) {
        let now = self.now();
        let fixed = StaticAttrs { version: Stamp(0), mode: 0o755, uid: 5, gid: 6 };
        let owned = OwnedDir::empty(now);
        let row = Dir {
            key: Key(0),
            birth_bytes: 0,
            place: DirPlace { version: PlaceVersion::default(), parent, name },
            fixed,
            has_xattrs: false,
            has_acl: false,
            children: 0,
            foreign_names: 0,
            owned: is_owned.then_some(owned),
            beside: None,
        };
        self.dirs.insert(ino, row);
        self.inos.insert(ino);
    }

    fn touch_dir(&mut self, dir: Ino) {
        let now = self.now();
        if let Some(owned) = self.dirs.get_mut(&dir).and_then(|d| d.owned.as_mut()) {
            (owned.mtime, owned.ctime) = (now, now);
        }
        self.inos.insert(dir);
    }

    /// The name now stands for this, or for nothing.
    fn set_entry(&mut self, dir: Ino, name: &Name, entry: Option<Entry>) {
        let key = (dir, name.clone());
        match entry {
            Some(entry) => self.entries.insert(key.clone(), entry),
            None => self.entries.remove(&key),
        };
        self.names.insert(key);
        self.touch_dir(dir);
    }

    fn count(&mut self, ino: Ino, by: i32) {
        let now = self.now();
        let Some(row) = self.inodes.get_mut(&ino) else { return };
        row.attr.nlink = row.attr.nlink.wrapping_add_signed(by);
        row.attr.ctime = now;
        if row.attr.nlink == 0 {
            self.inodes.remove(&ino);
            self.xattrs.remove(&ino);
            self.dropped.insert(ino);
        }
        self.inos.insert(ino);
    }

    pub fn mkdir(&mut self, parent: Ino, name: &Name) -> Option<Ino> {
        self.make_dir(parent, name, true)
    }

    /// A directory that another island owns comes into the skeleton. Something must come into it.
    pub fn mkdir_elsewhere(&mut self, parent: Ino, name: &Name) -> Option<Ino> {
        self.make_dir(parent, name, false)
    }

    fn make_dir(&mut self, parent: Ino, name: &Name, is_owned: bool) -> Option<Ino> {
        let ino = match self.entries.get(&(parent, name.clone())) {
            None => self.mint(),
            // It leaves the skeleton and comes back, and is who it was.
            Some(e) if e.kind == Kind::Directory && !is_owned && !self.dirs.contains_key(&e.ino) => e.ino,
            Some(_) => return None,
        };
        self.set_dir(ino, parent, Some(name.clone()), is_owned);
        self.set_entry(parent, name, Some(Entry { ino, kind: Kind::Directory, home: HERE, stub: None }));
        Some(ino)
    }

    pub fn create(&mut self, dir: Ino, name: &Name, kind: Kind) -> Option<Ino> {
        if self.entries.contains_key(&(dir, name.clone())) {
            return None;
        }
        let (ino, now) = (self.mint(), self.now());
        let target = (kind == Kind::Symlink).then(|| Bytes::from_static(b"../some/where"));
        let attr = Attr {
            ino,
            kind,
            mode: 0o640,
            nlink: 1,
            uid: 7,
            gid: 8,
            rdev: if kind == Kind::CharDevice { 0x103 } else { 0 },
            size: target.as_ref().map_or(0, |t| t.len() as u64),
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        let row = Inode {
            attr,
            target,
            has_xattrs: false,
            has_acl: false,
            moves: 0,
            orphan_of: Vec::new(),
            beside: None,
            is_absent: false,
        };
        self.inodes.insert(ino, row);
        self.inos.insert(ino);
        self.set_entry(dir, name, Some(Entry { ino, kind, home: HERE, stub: None }));
        Some(ino)
    }

    /// A file whose bytes are not here yet.
    pub fn create_absent(&mut self, dir: Ino, name: &Name) -> Option<Ino> {
        let ino = self.create(dir, name, Kind::Regular)?;
        self.inodes.get_mut(&ino).expect("just made").is_absent = true;
        Some(ino)
    }

    /// They are here now.
    pub fn arrives(&mut self, ino: Ino) {
        self.inodes.get_mut(&ino).expect("it is there").is_absent = false;
        self.inos.insert(ino);
    }

    fn is_owned(&self, dir: Ino) -> bool {
        self.dirs[&dir].owned.is_some()
    }

    pub fn pointer(&mut self, dir: Ino, name: &Name) {
        if self.is_owned(dir) && !self.entries.contains_key(&(dir, name.clone())) {
            let ino = Ino::mint(ELSEWHERE, self.next);
            self.set_entry(dir, name, Some(Entry { ino, kind: Kind::Regular, home: ELSEWHERE, stub: None }));
        }
    }

    pub fn link(&mut self, ino: Ino, dir: Ino, name: &Name) {
        let kind = self.inodes[&ino].attr.kind;
        if !self.entries.contains_key(&(dir, name.clone())) {
            self.set_entry(dir, name, Some(Entry { ino, kind, home: HERE, stub: None }));
            self.count(ino, 1);
        }
    }

    fn is_empty(&self, dir: Ino) -> bool {
        !self.entries.keys().any(|(d, _)| *d == dir)
    }

    /// A directory that others own leaves the skeleton with the last thing in it that is of here. Where
    /// its parent is owned its name stays, and leads nowhere here.
    fn prune(&mut self, mut dir: Ino) {
        while !self.is_owned(dir) && self.is_empty(dir) {
            let place = self.dirs.remove(&dir).expect("a directory of the model").place;
            self.xattrs.remove(&dir);
            self.inos.insert(dir);
            if self.is_owned(place.parent) {
                return;
            }
            self.set_entry(place.parent, &place.name.expect("not the root"), None);
            dir = place.parent;
        }
    }

    fn prune_all(&mut self) {
        for dir in self.dirs.keys().copied().collect::<Vec<_>>() {
            if self.dirs.contains_key(&dir) {
                self.prune(dir);
            }
        }
    }

    /// A file gets a name in a directory that comes into the skeleton for it, below `dir`.
    fn name_elsewhere(&mut self, dir: Ino, name: &Name, rng: &mut Rng) {
        let Some(mut below) = self.mkdir_elsewhere(dir, name) else { return };
        for _ in 0..rng.below(3) {
            below = self.mkdir_elsewhere(below, name).expect("it is empty");
        }
        let files: Vec<Ino> = self.inodes.keys().copied().collect();
        match rng.pick(&files) {
            Some(ino) if rng.below(2) == 0 => self.link(ino, below, name),
            _ => drop(self.create(below, name, Kind::Regular)),
        }
    }

    /// Unlinks or removes; false if a directory is not empty.
    pub fn remove(&mut self, dir: Ino, name: &Name) -> bool {
        let removed = self.take(dir, name);
        if removed {
            self.prune(dir);
        }
        removed
    }

    fn take(&mut self, dir: Ino, name: &Name) -> bool {
        let Some(entry) = self.entries.get(&(dir, name.clone())).cloned() else { return false };
        if entry.kind == Kind::Directory {
            if !self.is_empty(entry.ino) {
                return false;
            }
            self.dirs.remove(&entry.ino);
            self.xattrs.remove(&entry.ino);
            self.inos.insert(entry.ino);
        }
        self.set_entry(dir, name, None);
        self.count(entry.ino, -1);
        true
    }

    fn is_below(&self, mut dir: Ino, above: Ino) -> bool {
        loop {
            if dir == above {
                return true;
            }
            if dir == Ino::ROOT {
                return false;
            }
            dir = self.dirs[&dir].place.parent;
        }
    }

    fn put(&mut self, dir: Ino, name: &Name, entry: Entry) {
        let is_here = match entry.kind {
            Kind::Directory => self.dirs.contains_key(&entry.ino),
            _ => entry.home == HERE,
        };
        if !is_here && !self.is_owned(dir) {
            return self.set_entry(dir, name, None);
        }
        if let Some(row) = self.dirs.get_mut(&entry.ino) {
            row.place.parent = dir;
            row.place.name = Some(name.clone());
            self.inos.insert(entry.ino);
        }
        self.set_entry(dir, name, Some(entry));
    }

    pub fn rename(&mut self, from: (Ino, &Name), to: (Ino, &Name)) -> bool {
        let Some(entry) = self.entries.get(&(from.0, from.1.clone())).cloned() else { return false };
        if from == to || (entry.kind == Kind::Directory && self.is_below(to.0, entry.ino)) {
            return false;
        }
        if let Some(old) = self.entries.get(&(to.0, to.1.clone())) {
            let same_kind = (old.kind == Kind::Directory) == (entry.kind == Kind::Directory);
            if old.ino == entry.ino || !same_kind || !self.take(to.0, to.1) {
                return false;
            }
        }
        self.set_entry(from.0, from.1, None);
        self.put(to.0, to.1, entry);
        self.prune_all();
        true
    }

    pub fn exchange(&mut self, a: (Ino, &Name), b: (Ino, &Name)) -> bool {
        let get = |at: (Ino, &Name)| self.entries.get(&(at.0, at.1.clone())).cloned();
        let (Some(x), Some(y)) = (get(a), get(b)) else { return false };
        let into = |e: &Entry, dir: Ino| e.kind == Kind::Directory && self.is_below(dir, e.ino);
        if a == b || into(&x, b.0) || into(&y, a.0) {
            return false;
        }
        self.put(a.0, a.1, y);
        self.put(b.0, b.1, x);
        self.prune_all();
        true
    }

    pub fn attributes(&mut self, ino: Ino, rng: &mut Rng) {
        let (now, mode) = (self.now(), (rng.next() % 0o10000) as u32);
        self.inos.insert(ino);
        if let Some(row) = self.inodes.get_mut(&ino) {
            if row.attr.kind != Kind::Symlink {
                row.attr.mode = mode;
            }
            (row.attr.uid, row.attr.gid) = (rng.below(4) as u32, rng.below(4) as u32);
            row.attr.mtime = Time { secs: -5 + rng.below(10) as i64, nanos: 5000 };
            row.attr.ctime = now;
        } else if let Some(row) = self.dirs.get_mut(&ino) {
            row.fixed.mode = mode;
            row.fixed.uid = rng.below(4) as u32;
        }
    }

    pub fn xattr(&mut self, ino: Ino, rng: &mut Rng) {
        let kind = self.inodes.get(&ino).map(|row| row.attr.kind);
        if kind.is_some_and(|kind| kind != Kind::Regular) {
            return;
        }
        let mut row = self.xattrs.remove(&ino).unwrap_or_default();
        let key = Bytes::from(format!("user.a{}", rng.below(3)));
        if rng.below(3) == 0 {
            row.remove(&key);
        } else {
            row.set(key, Bytes::from(vec![b'x'; rng.below(20)]));
        }
        self.keep_xattrs(ino, row);
    }

    pub fn set_xattr(&mut self, ino: Ino, key: &'static [u8], value: &[u8]) {
        let mut row = self.xattrs.remove(&ino).unwrap_or_default();
        row.set(Bytes::from_static(key), Bytes::copy_from_slice(value));
        self.keep_xattrs(ino, row);
    }

    fn keep_xattrs(&mut self, ino: Ino, xattrs: Xattrs) {
        let has = !xattrs.0.is_empty();
        if has {
            self.xattrs.insert(ino, xattrs);
        }
        let now = self.now();
        self.inos.insert(ino);
        if let Some(row) = self.inodes.get_mut(&ino) {
            row.has_xattrs = has;
            row.attr.ctime = now;
        } else if let Some(row) = self.dirs.get_mut(&ino) {
            row.has_xattrs = has;
        }
    }

    pub fn write<D: Disk>(&mut self, bodies: &Bodies<D>, ino: Ino, rng: &mut Rng) -> io::Result<()> {
        let now = self.now();
        let row = self.inodes.get_mut(&ino).expect("a file of the model");
        if row.attr.kind != Kind::Regular {
            return Ok(());
        }
        let (size, n) = (row.attr.size, 1 + rng.below(300));
        // A recovery has looked at it also if the process dies in between.
        self.inos.insert(ino);
        bodies.write(ino, size, &vec![7; n], size, None)?;
        row.attr.size += n as u64;
        (row.attr.mtime, row.attr.ctime) = (now, now);
        Ok(())
    }

    /// One random change. An error is the disk's.
    pub fn step<D: Disk>(&mut self, bodies: &Bodies<D>, rng: &mut Rng) -> io::Result<()> {
        let pool: Vec<Name> =
            [&b"a"[..], b"b", b"c", b"d", b"\xff\n", b"n"].iter().map(|n| name(n)).collect();
        let dirs: Vec<Ino> = self.dirs.keys().copied().collect();
        let files: Vec<Ino> = self.inodes.keys().copied().collect();
        let taken: Vec<(Ino, Name)> = self.entries.keys().cloned().collect();
        let dir = rng.pick(&dirs).unwrap();
        let free = rng.pick(&pool).unwrap();
        let kinds = [
            Kind::Regular,
            Kind::Regular,
            Kind::Regular,
            Kind::Symlink,
            Kind::Fifo,
            Kind::Socket,
            Kind::CharDevice,
        ];
        let some = rng.pick(&taken).unwrap_or((Ino::ROOT, free.clone()));
        let other = rng.pick(&taken).unwrap_or((Ino::ROOT, free.clone()));
        match rng.below(29) {
            25 | 26 => drop(self.create_absent(dir, &free)),
            27 | 28 => {
                let absent = files.into_iter().filter(|ino| self.inodes[ino].is_absent);
                if let Some(ino) = rng.pick(&absent.collect::<Vec<_>>()) {
                    self.arrives(ino);
                }
            }
            0..=3 => drop(self.create(dir, &free, rng.pick(&kinds).unwrap())),
            4..=6 => drop(self.mkdir(dir, &free)),
            7..=9 => drop(self.remove(some.0, &some.1)),
            10..=12 => drop(self.rename((some.0, &some.1), (dir, &free))),
            13 => drop(self.rename((some.0, &some.1), (other.0, &other.1))),
            14 => drop(self.exchange((some.0, &some.1), (other.0, &other.1))),
            15 => {
                if let Some(ino) = rng.pick(&files) {
                    self.link(ino, dir, &free);
                }
            }
            16 => self.attributes(rng.pick(&[files, dirs].concat()).unwrap(), rng),
            17 => self.xattr(rng.pick(&[files, dirs].concat()).unwrap(), rng),
            18 => self.pointer(dir, &free),
            19..=21 => self.name_elsewhere(dir, &free, rng),
            _ => {
                if let Some(ino) = rng.pick(&files) {
                    self.write(bodies, ino, rng)?;
                }
            }
        }
        Ok(())
    }

    /// What the machine's effects do to bodies that are gone.
    pub fn drop_bodies<D: Disk>(&self, bodies: &Bodies<D>) -> io::Result<()> {
        for ino in &self.dropped {
            bodies.drop_body(*ino)?;
        }
        Ok(())
    }

    /// Recovery of bodies, as the island does it before anything else.
    pub fn recover_bodies<D: Disk>(&mut self, bodies: &Bodies<D>) {
        self.drop_bodies(bodies).unwrap();
        for row in self.inodes.values().filter(|row| row.attr.kind == Kind::Regular) {
            let (ino, size) = (row.attr.ino, row.attr.size);
            // A lost tail of the log: cutting the body changes its native times.
            if bodies.file(ino).unwrap().is_some_and(|file| file.stat().unwrap().size != size) {
                self.inos.insert(ino);
            }
            let what =
                Redo { ino, ops: &[], ends: &[], old_size: size, size, dirty: true, cut: false, born: None };
            let corrected = bodies.redo(what, |_, n| Ok::<_, io::Error>(vec![0; n as usize])).unwrap();
            // So does writing blocks again; the island's row changes then, too.
            if !corrected.is_empty() {
                self.inos.insert(ino);
            }
        }
    }

    pub fn lists(&self) -> (Vec<Ino>, Vec<(Ino, Name)>) {
        let mut inos: Vec<Ino> = self.inos.iter().copied().collect();
        let mut names: Vec<(Ino, Name)> = self.names.iter().cloned().collect();
        inos.sort();
        names.sort();
        (inos, names)
    }

    pub fn settled(&mut self) {
        self.inos.clear();
        self.names.clear();
        self.dropped.clear();
    }
}

pub fn options(root: bool) -> Options {
    Options { island: HERE, root, devices: root }
}

pub fn open<D: Disk>(disk: &Arc<D>, root: bool) -> io::Result<(Arc<Bodies<D>>, View<D>)> {
    let bodies = atoll_body::Options { root, ..atoll_body::Options::default() };
    let bodies = Arc::new(Bodies::open(Arc::clone(disk), b"bodies", bodies)?);
    let view = View::open(Arc::clone(disk), Arc::clone(&bodies), options(root))?;
    Ok((bodies, view))
}

pub fn lay<D: Disk>(view: &mut View<D>, model: &Model) -> io::Result<Report> {
    let (inos, names) = model.lists();
    view.lay(&inos, &names, model)
}

/// Every name that should be in `tree/`, walked without the view: path, and what it is.
pub fn expected(model: &Model, devices: bool) -> BTreeMap<Vec<u8>, Ino> {
    fn walk(model: &Model, dir: Ino, path: &[u8], devices: bool, out: &mut BTreeMap<Vec<u8>, Ino>) {
        for ((_, name), entry) in model.entries.iter().filter(|((d, _), _)| *d == dir) {
            let path = [path, b"/", name.as_bytes()].concat();
            if entry.kind == Kind::Directory {
                if !model.dirs.contains_key(&entry.ino) {
                    continue;
                }
                walk(model, entry.ino, &path, devices, out);
            } else if entry.home != HERE
                || model.inodes.get(&entry.ino).is_some_and(|row| row.is_absent)
                || (entry.kind == Kind::CharDevice && !devices)
            {
                continue;
            }
            out.insert(path, entry.ino);
        }
    }
    let mut out = BTreeMap::new();
    walk(model, Ino::ROOT, b"tree", devices, &mut out);
    out
}

/// Every name in `tree/`, with the id that its native object has among the bodies.
pub fn found<D: Disk>(disk: &D, model: &Model, devices: bool) -> BTreeMap<Vec<u8>, Ino> {
    let native = |ino: &Ino| Some((disk.stat(&atoll_body::path_of(b"bodies", *ino)).ok()?.ino, *ino));
    let ids: BTreeMap<u64, Ino> = model.inodes.keys().filter_map(native).collect();
    let wanted = expected(model, devices);
    let mut out = BTreeMap::new();
    let mut left = vec![b"tree".to_vec()];
    while let Some(dir) = left.pop() {
        for (name, kind) in disk.list(&dir).unwrap() {
            let path = [&dir[..], b"/", &name].concat();
            // A directory has no identity but its place.
            let ino = if kind == FileKind::Directory { wanted.get(&path).copied() } else { None };
            let ino = ino.or_else(|| ids.get(&disk.stat(&path).unwrap().ino).copied());
            out.insert(path.clone(), ino.unwrap_or(Ino(u64::MAX)));
            if kind == FileKind::Directory {
                left.push(path);
            }
        }
    }
    out
}

/// Extended attributes as whoever has nothing but the plain files finds them, by path.
pub fn scanned_xattrs<D: Disk>(disk: &D) -> BTreeMap<Vec<u8>, Xattrs> {
    let mut all = BTreeMap::new();
    scan(disk, b"bodies", None, &mut |found| {
        let (path, plain) = match found {
            Found::Dir { path, xattrs, .. } | Found::File { path, xattrs, .. } => (path, xattrs),
            Found::Limbo { .. } | Found::Nameless { .. } => return Ok(()),
            Found::Stray { path, why } => panic!("{}: {why}", path.escape_ascii()),
        };
        let mut xattrs = Xattrs::default();
        plain.into_iter().for_each(|(name, value)| xattrs.set(name.into(), value.into()));
        if !xattrs.0.is_empty() {
            all.insert(
                path.iter().fold(b"tree".to_vec(), |path, name| [&path, &b"/"[..], name].concat()),
                xattrs,
            );
        }
        Ok(())
    })
    .unwrap();
    all
}

#[track_caller]
pub fn assert_laid<D: Disk>(disk: &D, view: &View<D>, model: &Model, devices: bool, context: &str) {
    assert_eq!(found(disk, model, devices), expected(model, devices), "{context}");
    assert_eq!(view.audit(model).unwrap(), [], "{context}");
    let mut wanted = expected(model, devices);
    wanted.insert(b"tree".to_vec(), Ino::ROOT);
    let wanted = wanted.into_iter().filter_map(|(path, ino)| Some((path, model.xattrs.get(&ino)?.clone())));
    assert_eq!(scanned_xattrs(disk), wanted.collect(), "{context}");
    for (name, _) in disk.list(b"limbo").unwrap() {
        // Until the view is settled a directory that is gone stays there, empty.
        let gone = name.strip_prefix(b"d").and_then(atoll_body::ino_of);
        let is_gone = gone.is_some_and(|ino| !model.dirs.contains_key(&ino));
        let path = [b"limbo/", &name[..]].concat();
        assert!(is_gone && disk.list(&path).unwrap().is_empty(), "{context}: left in limbo: {name:?}");
    }
}
