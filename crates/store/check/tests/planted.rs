//! A whole state has nothing wrong, and each thing that is broken in it is found, by its rule.

use std::collections::BTreeSet;

use atoll_check::{Rows, Rule, Volume, check};
use atoll_core::{H3, Ino, IslandId, Key, Name, SessionId, Stamp, Table, Time, TxnId};
use atoll_posix::{Attr, Caller, Kind, RenameMode};
use atoll_proto::{
    Ancestor, Chain, Dir, Entry, Inode, Moments, Origin, Owned, Part, Place, PlaceVersion, Renaming, Spot,
    Static, Stub, Txn, TxnState, Work, Xattrs,
};
use atoll_state::cookie_of;
use atoll_state::state::Meta;

const SEED: u64 = 7;
const HERE: IslandId = IslandId(0);
const THERE: IslandId = IslandId(1);

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn fixed() -> Static {
    Static { version: Stamp::default(), mode: 0o755, uid: 0, gid: 0 }
}

fn dir(key: Key, parent: Ino, called: Option<&str>, owned: Option<(u64, u32)>, below: u32) -> Dir {
    let time = Time::default();
    Dir {
        key,
        place: Place { version: PlaceVersion::default(), parent, name: called.map(name) },
        fixed: fixed(),
        has_xattrs: false,
        has_acl: false,
        below,
        homes: 0,
        owned: owned.map(|(entries, subdirs)| Owned {
            entries,
            subdirs,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            sealed: None,
            adopted: None,
            lent: false,
        }),
    }
}

fn file(ino: Ino, size: u64) -> Inode {
    let time = Time::default();
    let attr = Attr {
        ino,
        kind: Kind::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
    };
    Inode { attr, target: None, has_xattrs: false, has_acl: false, orphan_of: Vec::new() }
}

/// Two islands: the root is owned by one, `/sub` by the other, with a file in each; that of the root has
/// another name in `/sub`, "also".
struct World {
    volume: Volume,
    islands: Vec<Rows>,
    sub: Ino,
    in_root: Ino,
    in_sub: Ino,
}

impl World {
    fn new() -> Self {
        let table = Table::new(2);
        let h3 = H3::new(SEED);
        // A name whose directory falls to the other island; the root's key is 0.
        let called = (0..).map(|i| format!("sub{i}"));
        let key = |text: &String| h3.path([&name(text)]).unwrap().key();
        let called = called.into_iter().find(|text| table.owner(key(text)) != table.owner(Key(0))).unwrap();
        let key = key(&called);
        assert_eq!((table.owner(Key(0)), table.owner(key)), (HERE, THERE));
        let (sub, in_root, in_sub) = (Ino::mint(THERE, 16), Ino::mint(HERE, 16), Ino::mint(THERE, 17));
        let entry = |ino, home| Entry { ino, kind: Kind::Regular, home, stub: None };
        let cookie = |text: &str| cookie_of(SEED, text.as_bytes());
        let meta = Meta { seq: 9, mint_limit: 1000, incarnation: 1, stamp: Stamp::default(), clean: true };

        let mut here = Rows::new(HERE);
        here.meta = meta;
        here.dirs.insert(Ino::ROOT, dir(Key(0), Ino::ROOT, None, Some((2, 1)), 1));
        let stub = Stub { key, place: PlaceVersion::default(), fixed: fixed(), time: Time::default() };
        let of_sub = Entry { ino: sub, kind: Kind::Directory, home: THERE, stub: Some(Box::new(stub)) };
        let names = vec![
            (cookie(&called), name(&called), of_sub),
            (cookie("file"), name("file"), entry(in_root, HERE)),
        ];
        here.names.insert(Ino::ROOT, names);
        here.dirs.insert(sub, dir(key, Ino::ROOT, Some(&called), None, 0));
        here.dirs.get_mut(&sub).unwrap().homes = 1;
        here.names.insert(sub, vec![(cookie("also"), name("also"), entry(in_root, HERE))]);
        here.inodes.insert(in_root, file(in_root, 5000));
        here.inodes.get_mut(&in_root).unwrap().attr.nlink = 2;
        here.sums_end.insert(in_root, 2);

        let mut there = Rows::new(THERE);
        there.meta = meta;
        there.dirs.insert(Ino::ROOT, dir(Key(0), Ino::ROOT, None, None, 1));
        let skeleton = Entry { ino: sub, kind: Kind::Directory, home: THERE, stub: None };
        there.names.insert(Ino::ROOT, vec![(cookie(&called), name(&called), skeleton)]);
        there.dirs.insert(sub, dir(key, Ino::ROOT, Some(&called), Some((2, 0)), 0));
        let names = vec![
            (cookie("file"), name("file"), entry(in_sub, THERE)),
            (cookie("also"), name("also"), entry(in_root, HERE)),
        ];
        there.names.insert(sub, names);
        there.inodes.insert(in_sub, file(in_sub, 0));
        Self { volume: Volume { table, seed: SEED }, islands: vec![here, there], sub, in_root, in_sub }
    }

    fn rules(&self) -> BTreeSet<Rule> {
        check(&self.volume, &self.islands).into_iter().map(|finding| finding.rule).collect()
    }

    /// The skeleton directory at the home of the file with a name in it.
    fn sub_at_home(&mut self) -> &mut Dir {
        self.islands[0].dirs.get_mut(&self.sub).unwrap()
    }

    /// The name elsewhere, as the file's home has it.
    fn foreign(&mut self) -> &mut Entry {
        &mut self.islands[0].names.get_mut(&self.sub).unwrap()[0].2
    }

    /// The same as the directory's owner has it.
    fn pointer(&mut self) -> &mut Entry {
        &mut self.islands[1].names.get_mut(&self.sub).unwrap()[1].2
    }

    /// The home has lost it.
    fn forget_foreign(&mut self) {
        self.islands[0].names.remove(&self.sub);
        self.islands[0].dirs.remove(&self.sub);
        self.islands[0].dirs.get_mut(&Ino::ROOT).unwrap().below = 0;
        self.islands[0].inodes.get_mut(&self.in_root).unwrap().attr.nlink = 1;
    }

    /// The owner has lost it.
    fn forget_pointer(&mut self) {
        self.islands[1].names.get_mut(&self.sub).unwrap().pop();
        self.islands[1].dirs.get_mut(&self.sub).unwrap().owned.as_mut().unwrap().entries = 1;
    }

    fn spot(&self, called: &str) -> Spot {
        Spot { dir: self.sub, name: name(called) }
    }

    /// Has an island in the middle of a transaction.
    fn begin(&mut self, island: usize, state: TxnState, work: Work) {
        let origin = Origin { session: SessionId(1), seq: 1 };
        let partner = self.islands[1 - island].island;
        let moments = Moments::default();
        let part = Part { origin, work };
        let txn = TxnId { coordinator: partner, stamp: Stamp::new(1, 7) };
        self.islands[island].txns.insert(txn, Txn { state, partner, moments, part });
    }

    fn count(&self, called: &str) -> Work {
        let at = self.spot(called);
        Work::Count { ino: self.in_root, at, time: Time::default(), chain: self.chain() }
    }

    fn chain(&self) -> Chain {
        let row = &self.islands[1].dirs[&self.sub];
        let (key, place, fixed) = (row.key, row.place.clone(), row.fixed);
        let sub = Ancestor { ino: self.sub, key, place, fixed, xattrs: Xattrs::default() };
        Chain { vector: Vec::new(), dirs: vec![sub] }
    }
}

/// Breaks a whole world, and tells which rule must find it.
fn planted(rule: Rule, breaks: impl FnOnce(&mut World)) {
    let mut world = World::new();
    breaks(&mut world);
    let found = world.rules();
    assert!(found.contains(&rule), "{rule} was not found to be broken, only {found:?}");
}

#[test]
fn a_whole_state_has_nothing_wrong() {
    let world = World::new();
    assert_eq!(check(&world.volume, &world.islands), []);
}

#[test]
fn a_rename_that_its_directory_has_not_heard_of_yet_is_nothing_wrong() {
    let mut world = World::new();
    let (_, called, entry) = &mut world.islands[0].names.get_mut(&Ino::ROOT).unwrap()[0];
    *called = name("renamed");
    entry.stub.as_mut().unwrap().place = PlaceVersion { moves: 0, stamp: Stamp::new(1, 5) };
    let cookie = cookie_of(SEED, b"renamed");
    world.islands[0].names.get_mut(&Ino::ROOT).unwrap()[0].0 = cookie;
    // The island that renames it has it so in its own skeleton at once.
    let place = Place {
        version: PlaceVersion { moves: 0, stamp: Stamp::new(1, 5) },
        parent: Ino::ROOT,
        name: Some(name("renamed")),
    };
    world.sub_at_home().place = place;
    assert_eq!(check(&world.volume, &world.islands), []);
}

#[test]
fn one_island_alone_is_not_blamed_for_what_others_know() {
    for keep in 0..2 {
        let mut world = World::new();
        world.islands.remove(1 - keep);
        assert_eq!(check(&world.volume, &world.islands), []);
    }
}

#[test]
fn what_is_broken_is_found_by_its_rule() {
    planted(Rule::RowReadable, |w| w.islands[0].take(b"i12345678", b"short"));
    planted(Rule::RowReadable, |w| w.islands[0].take(b"?", b""));
    planted(Rule::RootThere, |w| drop(w.islands[0].dirs.remove(&Ino::ROOT)));
    planted(Rule::SkeletonWhole, |w| w.islands[1].dirs.get_mut(&w.sub).unwrap().place.parent = Ino(999));
    planted(Rule::BelowCounted, |w| w.islands[1].dirs.get_mut(&Ino::ROOT).unwrap().below = 2);
    planted(Rule::NamesOwned, |w| drop(w.islands[1].dirs.remove(&w.sub)));
    planted(Rule::CookieOfName, |w| w.islands[0].names.get_mut(&Ino::ROOT).unwrap()[1].0 += 1);
    planted(Rule::NamesCounted, |w| drop(w.islands[0].names.get_mut(&Ino::ROOT).unwrap().pop()));
    planted(Rule::StubThere, |w| w.islands[0].names.get_mut(&Ino::ROOT).unwrap()[0].2.stub = None);
    planted(Rule::StubAgrees, |w| w.islands[1].dirs.get_mut(&w.sub).unwrap().fixed.mode = 0o700);
    planted(Rule::DirThere, |w| drop(w.islands[1].dirs.remove(&w.sub)));
    planted(Rule::FileThere, |w| drop(w.islands[0].inodes.remove(&w.in_root)));
    planted(Rule::LinksCounted, |w| w.islands[1].inodes.get_mut(&w.in_sub).unwrap().attr.nlink = 2);
    planted(Rule::KindAgrees, |w| w.islands[1].inodes.get_mut(&w.in_sub).unwrap().attr.kind = Kind::Fifo);
    planted(Rule::SumsFit, |w| w.islands[0].sums_end.extend([(w.in_root, 3)]));
    planted(Rule::IdMinted, |w| w.islands[0].meta.mint_limit = 16);
    planted(Rule::XattrsAnnounced, |w| {
        let some = Xattrs(vec![("user.x".into(), "".into())]);
        w.islands[0].xattrs.insert(w.in_root, some);
    });
    planted(Rule::XattrsAnnounced, |w| w.islands[0].inodes.get_mut(&w.in_root).unwrap().has_acl = true);
    planted(Rule::OrphanHeld, |w| {
        let orphan = Ino::mint(HERE, 99);
        let mut row = file(orphan, 0);
        row.attr.nlink = 0;
        w.islands[0].inodes.insert(orphan, row);
    });
    planted(Rule::OwnerByTable, |w| {
        w.islands[1].dirs.get_mut(&w.sub).unwrap().owned = None;
    });
    planted(Rule::SkeletonNeeded, |w| {
        let idle = Ino::mint(THERE, 200);
        w.islands[0].dirs.insert(idle, dir(Key(u32::MAX), Ino::ROOT, Some("idle"), None, 0));
    });
    planted(Rule::DirNamedOnce, |w| {
        w.islands[1].dirs.get_mut(&w.sub).unwrap().place.name = Some(name("elsewhere"));
    });
    planted(Rule::NamesOwned, |w| w.foreign().home = THERE);
    planted(Rule::HomesCounted, |w| w.sub_at_home().homes = 2);
    planted(Rule::HomesCounted, |w| w.sub_at_home().homes = 0);
    planted(Rule::HomesCounted, |w| w.islands[1].dirs.get_mut(&w.sub).unwrap().homes = 1);
    planted(Rule::SkeletonNeeded, |w| {
        w.islands[0].names.remove(&w.sub);
        w.sub_at_home().homes = 0;
    });
    planted(Rule::SkeletonWhole, |w| w.sub_at_home().place.parent = Ino(999));
    planted(Rule::LinksCounted, |w| w.islands[0].inodes.get_mut(&w.in_root).unwrap().attr.nlink = 1);
    planted(Rule::NameAtHome, World::forget_foreign);
    planted(Rule::NameAtHome, |w| {
        let (cookie, called, _) = &mut w.islands[0].names.get_mut(&w.sub).unwrap()[0];
        (*cookie, *called) = (cookie_of(SEED, b"other"), name("other"));
    });
    planted(Rule::NameAtHome, |w| w.foreign().ino = Ino::mint(HERE, 17));
    planted(Rule::NameAtOwner, World::forget_pointer);
    planted(Rule::NameAtOwner, |w| w.pointer().home = THERE);
    planted(Rule::NameAtOwner, |w| w.pointer().ino = Ino::mint(HERE, 17));
    planted(Rule::NameAtOwner, |w| w.pointer().kind = Kind::Symlink);
    planted(Rule::KindAgrees, |w| w.pointer().kind = Kind::Symlink);
    planted(Rule::FileThere, |w| {
        w.forget_foreign();
        w.pointer().ino = Ino::mint(HERE, 17);
    });
    planted(Rule::SkeletonsAgree, |w| w.islands[1].dirs.get_mut(&Ino::ROOT).unwrap().fixed.uid = 5);
}

#[test]
fn what_a_transaction_is_about_may_be_seen_half() {
    let renamed = |w: &World| Work::Renamed {
        ino: w.in_root,
        from: w.spot("before"),
        to: w.spot("also"),
        by: None,
        had: true,
        time: Time::default(),
        chain: w.chain(),
    };
    let lend = |w: &World| Work::Lend {
        renaming: Box::new(Renaming {
            from: Spot { dir: Ino::ROOT, name: name("before") },
            to: w.spot("also"),
            file: Entry { ino: w.in_root, kind: Kind::Regular, home: HERE, stub: None },
            there: None,
            mode: RenameMode::Replace,
            by: None,
            time: Time::default(),
        }),
        caller: Caller::ROOT,
        denied: None,
        chain: None,
        wants_chain: false,
    };
    let dropped = |w: &World| Work::Drop {
        ino: w.in_root,
        at: w.spot("also"),
        by: None,
        had: true,
        time: Time::default(),
    };
    // Told at one of the two: the other is behind, or has lost it in a power cut.
    for half in [World::forget_foreign, World::forget_pointer] {
        for (island, state) in [
            (0, TxnState::Prepared),
            (0, TxnState::Committed),
            (1, TxnState::Prepared),
            (1, TxnState::Committed),
        ] {
            for work in
                [&|w: &World| w.count("also"), &renamed, &lend, &dropped] as [&dyn Fn(&World) -> Work; 4]
            {
                let mut world = World::new();
                half(&mut world);
                assert!(!check(&world.volume, &world.islands).is_empty());
                let work = work(&world);
                world.begin(island, state, work);
                assert_eq!(check(&world.volume, &world.islands), [], "island {island}, {state:?}");
            }
        }
    }
    // What it is not about is as wrong as ever.
    for half in [World::forget_foreign, World::forget_pointer] {
        let mut world = World::new();
        half(&mut world);
        let other = Work::Drop {
            ino: world.in_sub,
            at: world.spot("file"),
            by: None,
            had: true,
            time: Time::default(),
        };
        world.begin(1, TxnState::Prepared, other);
        assert!(!world.rules().is_empty());
    }
}

#[test]
fn a_name_that_is_promised_counts_until_its_outcome_is_known() {
    for (state, wrong) in [(TxnState::Prepared, false), (TxnState::Committed, true)] {
        let mut world = World::new();
        world.sub_at_home().homes = 2;
        let count = world.count("third");
        world.begin(0, state, count);
        assert_eq!(world.rules().contains(&Rule::HomesCounted), wrong, "{state:?}");
        // Never fewer than there are.
        world.sub_at_home().homes = 0;
        assert!(world.rules().contains(&Rule::HomesCounted));
    }
    // Pinned for a name that is not there yet.
    let mut world = World::new();
    world.forget_foreign();
    world.forget_pointer();
    let mut pinned = world.islands[1].dirs[&world.sub].clone();
    (pinned.owned, pinned.homes) = (None, 1);
    world.islands[0].dirs.insert(world.sub, pinned);
    world.islands[0].dirs.get_mut(&Ino::ROOT).unwrap().below = 1;
    assert_eq!(world.rules(), BTreeSet::from([Rule::HomesCounted]));
    let count = world.count("also");
    world.begin(0, TxnState::Prepared, count);
    assert_eq!(check(&world.volume, &world.islands), []);
}

#[test]
fn a_name_that_another_file_took_counts_until_its_loss_is_carried_out() {
    let mut world = World::new();
    let third = Ino::mint(HERE, 17);
    world.islands[0].inodes.insert(third, file(third, 0));
    (world.foreign().ino, world.pointer().ino) = (third, third);
    world.sub_at_home().homes = 2;
    assert_eq!(world.rules(), BTreeSet::from([Rule::HomesCounted, Rule::LinksCounted]));
    let work =
        Work::Drop { ino: world.in_root, at: world.spot("also"), by: None, had: true, time: Time::default() };
    world.begin(0, TxnState::Prepared, work);
    assert_eq!(check(&world.volume, &world.islands), []);
    world.islands[0].inodes.get_mut(&world.in_root).unwrap().attr.nlink = 0;
    assert!(world.rules().contains(&Rule::LinksCounted), "more names than it counts");
}

#[test]
fn every_rule_has_a_name_of_its_own() {
    let names: BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    assert_eq!(names.len(), Rule::ALL.len());
    assert!(Rule::ALL.iter().all(|rule| !rule.text().is_empty()));
}

#[test]
fn files_and_directories_are_found_by_their_paths_and_what_leads_nowhere_has_none() {
    let mut world = World::new();
    let (sub, in_root, in_sub) = (world.sub, world.in_root, world.in_sub);
    let wanted = BTreeSet::from([Ino::ROOT, sub, in_root, in_sub, Ino::mint(HERE, 99)]);
    let paths = atoll_check::paths(&world.islands, &wanted);
    let called = world.islands[1].dirs[&sub].place.name.clone().unwrap();
    assert_eq!(paths[&Ino::ROOT], ["/"]);
    assert_eq!(paths[&sub], [format!("/{called}")]);
    let elsewhere = format!("/{called}/also");
    assert_eq!(paths[&in_root], ["/file".to_owned(), elsewhere]);
    assert_eq!(paths[&in_sub], [format!("/{called}/file")]);
    assert_eq!(paths.len(), 4);
    // A directory in itself has no path, and neither has what is in it.
    for island in &mut world.islands {
        island.dirs.get_mut(&sub).unwrap().place.parent = sub;
    }
    let paths = atoll_check::paths(&world.islands, &wanted);
    assert_eq!(paths.keys().copied().collect::<Vec<_>>(), [Ino::ROOT, in_root]);
}
