//! A world whose islands own one directory each, and words for sequences: operations, faults, and what must
//! be there afterwards.

use atoll_core::{H3, Ino, IslandId, Name, NodeId, Table};
use atoll_disk::sim::Fault;
use atoll_posix::{Answer, Caller, Errno, Kind, Op, RenameMode};
use atoll_proto::{ParticipantWork, TxnState};
use atoll_sim::{Config, Done, World, invariants};
use bytes::Bytes;

/// Islands by what they are in a sequence: owner of the old name, of the new one, home of the file, and
/// somebody else. The root's owner is whichever the table says.
pub(crate) const S: usize = 0;
pub(crate) const T: usize = 1;
pub(crate) const H: usize = 2;
pub(crate) const R: usize = 3;

/// The island of this number.
pub(crate) const fn id(island: usize) -> IslandId {
    IslandId(island as u16)
}

/// The machine that has the island of this number: each has one.
pub(crate) const fn node(island: usize) -> NodeId {
    NodeId(island as u16)
}

/// Bytes of every file.
pub(crate) const CONTENT: [u8; 5000] = [7; 5000];
/// Longer than a starting island waits for others.
pub(crate) const HELLO_US: u64 = 4_000_000;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A name below this path, with this prefix, whose directory an island of so many will own.
pub(crate) fn owned_by(islands: u16, seed: u64, above: &[Name], prefix: &str, owner: usize) -> Name {
    let (table, h3) = (Table::new(islands), H3::new(seed));
    let key = |n: &Name| h3.path(above.iter().chain([n])).unwrap().key();
    let mut names = (0..).map(|i| name(&format!("{prefix}{i}")));
    names.find(|n| usize::from(table.owner(key(n)).0) == owner).unwrap()
}

/// Each island owns one directory in the root.
pub(crate) struct Bench {
    pub(crate) world: World,
    pub(crate) dirs: Vec<Ino>,
    pub(crate) names: Vec<Name>,
}

impl Bench {
    pub(crate) fn new(seed: u64, islands: u16) -> Self {
        let mut config = Config::new(seed, islands);
        (config.clients, config.delay_us_max) = (2, 300);
        Self::with(config)
    }

    pub(crate) fn with(config: Config) -> Self {
        let (islands, seed) = (config.islands, config.seed);
        let of = |island| owned_by(islands, seed, &[], &format!("d{island}-"), island);
        let names: Vec<Name> = (0..usize::from(islands)).map(of).collect();
        let clients = config.clients;
        let world = World::new(config).unwrap();
        let mut bench = Self { world, dirs: Vec::new(), names: names.clone() };
        for name in names {
            let mkdir = Op::Mkdir { dir: Ino::ROOT, name: name.clone(), mode: 0o755, umask: 0 };
            let Ok((Answer::Found { found }, _)) = bench.run(0, mkdir) else { panic!("no {name}") };
            bench.dirs.push(found.attr.ino);
            for client in 1..clients {
                bench.run(client, Op::Lookup { dir: Ino::ROOT, name: name.clone() }).unwrap();
            }
        }
        bench
    }

    /// Everything so far survives.
    pub(crate) fn rest(&mut self) {
        self.world.settle().unwrap();
        self.world.checkpoint_all().unwrap();
        self.world.settle().unwrap();
    }

    // ---------------------------------------------------------------- operations

    pub(crate) fn run(&mut self, client: usize, op: Op) -> Done {
        self.world.run(client, &Caller::ROOT, op, Bytes::new()).unwrap_or_else(|e| panic!("{e}"))
    }

    pub(crate) fn ok(&mut self, op: Op) {
        let done = self.run(0, op.clone());
        assert!(done.is_ok(), "{op:?}: {done:?}");
    }

    pub(crate) fn call(&mut self, client: usize, op: Op) -> u64 {
        self.world.call(client, &Caller::ROOT, op, Bytes::new(), 0)
    }

    pub(crate) fn file(&mut self, island: usize, n: &str) -> Ino {
        let (dir, target) = (self.dirs[island], Bytes::new());
        let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
        let create = Op::Create { dir, name: name(n), kind, mode, umask, rdev, exclusive, target };
        let Ok((Answer::Found { found }, _)) = self.run(0, create) else { panic!("{n} is not made") };
        let ino = found.attr.ino;
        let write = Op::Write { ino, offset: 0, append: false, kill_set_id: false };
        self.world.run(0, &Caller::ROOT, write, Bytes::from_static(&CONTENT)).unwrap().unwrap();
        ino
    }

    /// A file that is homed at an island, and named in the directories of others only.
    pub(crate) fn pointer(&mut self, home: usize, at: usize, n: &str) -> Ino {
        let ino = self.file(home, &format!("first-{n}"));
        self.ok(self.link(ino, at, n));
        self.ok(self.unlink(home, &format!("first-{n}")));
        ino
    }

    pub(crate) fn link(&self, ino: Ino, island: usize, n: &str) -> Op {
        Op::Link { ino, dir: self.dirs[island], name: name(n) }
    }

    pub(crate) fn unlink(&self, island: usize, n: &str) -> Op {
        Op::Unlink { dir: self.dirs[island], name: name(n) }
    }

    pub(crate) fn rename(&self, from: (usize, &str), to: (usize, &str)) -> Op {
        let (dir, new_dir) = (self.dirs[from.0], self.dirs[to.0]);
        let mode = RenameMode::Replace;
        Op::Rename {
            dir,
            name: name(from.1),
            new_dir,
            new_name: name(to.1),
            mode,
            meant: None,
            new_meant: None,
        }
    }

    pub(crate) fn lookup(&self, island: usize, n: &str) -> Op {
        Op::Lookup { dir: self.dirs[island], name: name(n) }
    }

    // -------------------------------------------------------------------- faults

    /// Steps until `until`; false if that does not come to pass within `us`.
    pub(crate) fn step_until(&mut self, us: u64, until: impl Fn(&World) -> bool) -> bool {
        let end = self.world.now_us() + us;
        while !until(&self.world) {
            if self.world.now_us() >= end {
                return false;
            }
            self.world.step().unwrap_or_else(|e| panic!("{e}"));
        }
        true
    }

    pub(crate) fn wait(&mut self, us: u64) {
        self.world.run_for(us).unwrap_or_else(|e| panic!("{e}"));
    }

    /// Waits for an answer.
    pub(crate) fn answer(&mut self, client: usize, token: u64) -> Done {
        let end = self.world.now_us() + 60_000_000;
        loop {
            if let Some(done) = self.world.poll(client, token) {
                return done;
            }
            assert!(self.world.now_us() < end, "never answered");
            self.world.step().unwrap_or_else(|e| panic!("{e}"));
        }
    }

    /// The power of an island fails, and it stays away, longer than anything is on its way to it.
    pub(crate) fn lose(&mut self, island: usize, seed: u64) {
        self.world.stay_away(node(island), Fault::PowerCut { seed });
        self.wait(30_000);
    }

    /// An island dies, and starts again when nothing is on its way to it any more.
    pub(crate) fn restart(&mut self, island: usize, fault: Fault) {
        self.world.stay_away(node(island), fault);
        self.wait(30_000);
        self.world.come_back(node(island));
    }

    /// An island comes back, and serves.
    pub(crate) fn back(&mut self, island: usize) {
        self.world.come_back(node(island));
        assert!(self.step_until(HELLO_US, |world| world.serves(id(island))), "island {island} never serves");
    }

    /// An island comes back, dies at that effect of its new life, and comes back once more.
    pub(crate) fn dies_again(&mut self, island: usize, effect: u64, fault: Fault) {
        self.world.arm(node(island), effect, fault);
        self.world.come_back(node(island));
        self.step_until(20_000, |world| world.is_up(node(island)));
        self.step_until(1_500_000, |world| !world.is_up(node(island)));
        self.restart(island, fault);
    }

    // ------------------------------------------------------------------ judging

    /// What a name leads to.
    pub(crate) fn at(&mut self, island: usize, n: &str) -> Result<Ino, Errno> {
        match self.run(0, self.lookup(island, n)) {
            Ok((Answer::Found { found }, _)) => Ok(found.attr.ino),
            Ok(other) => panic!("{other:?}"),
            Err(errno) => Err(errno),
        }
    }

    pub(crate) fn nlink(&mut self, ino: Ino) -> u32 {
        match self.run(0, Op::GetAttr { ino }) {
            Ok((Answer::Attr { attr }, _)) => attr.nlink,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn read(&mut self, client: usize, ino: Ino) {
        let done = self.run(client, Op::Read { ino, offset: 0, len: 10_000 });
        assert_eq!(done.map(|(_, bytes)| bytes), Ok(CONTENT.to_vec()));
    }

    /// A file is there whole under this name, with so many names.
    pub(crate) fn has(&mut self, island: usize, n: &str, ino: Ino, nlink: u32) {
        assert_eq!(self.at(island, n), Ok(ino), "{n} at {island}");
        assert_eq!(self.nlink(ino), nlink, "{n} at {island}");
        self.read(0, ino);
    }

    pub(crate) fn has_not(&mut self, island: usize, n: &str) {
        assert_eq!(self.at(island, n), Err(Errno::ENOENT), "{n} at {island}");
    }

    /// Comes to rest, and the rows hold together.
    pub(crate) fn settle(&mut self) {
        self.world.settle().unwrap_or_else(|e| panic!("{e}"));
        invariants(&mut self.world).unwrap_or_else(|e| panic!("{e}"));
    }
}

pub(crate) fn power(seed: u64) -> Fault {
    Fault::PowerCut { seed }
}

/// Whether an island has a work of this kind in this state.
pub(crate) fn has_work(
    world: &World,
    island: usize,
    state: TxnState,
    is: impl Fn(&ParticipantWork) -> bool,
) -> bool {
    world.works(id(island)).iter().any(|(s, work)| *s == state && is(work))
}

pub(crate) const fn is_lend(work: &ParticipantWork) -> bool {
    matches!(work, ParticipantWork::BorrowName { .. })
}

pub(crate) const fn is_home(work: &ParticipantWork) -> bool {
    matches!(
        work,
        ParticipantWork::AddName { .. }
            | ParticipantWork::RemoveName { .. }
            | ParticipantWork::MoveName { .. }
    )
}
