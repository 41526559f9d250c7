//! A whole state has nothing wrong, and each thing that is broken in it is found, by its rule.

use std::collections::BTreeSet;

use atoll_check::{Rows, Rule, Volume, check};
use atoll_core::{H3, Ino, IslandId, Key, Name, Stamp, Table, Time};
use atoll_posix::{Attr, Kind};
use atoll_proto::{Dir, Entry, Inode, Owned, Place, Static, Stub, Xattrs};
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
        place: Place { version: Stamp::default(), parent, name: called.map(name) },
        fixed: fixed(),
        has_xattrs: false,
        has_acl: false,
        below,
        owned: owned.map(|(entries, subdirs)| Owned {
            entries,
            subdirs,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            sealed: None,
            adopted: None,
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

/// Two islands: the root is owned by one, `/sub` by the other, with a file in each.
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
        here.dirs.insert(Ino::ROOT, dir(Key(0), Ino::ROOT, None, Some((2, 1)), 0));
        let stub = Stub { key, place: Stamp::default(), fixed: fixed(), time: Time::default() };
        let of_sub = Entry { ino: sub, kind: Kind::Directory, home: THERE, stub: Some(Box::new(stub)) };
        let names = vec![
            (cookie(&called), name(&called), of_sub),
            (cookie("file"), name("file"), entry(in_root, HERE)),
        ];
        here.names.insert(Ino::ROOT, names);
        here.inodes.insert(in_root, file(in_root, 5000));
        here.sums_end.insert(in_root, 2);

        let mut there = Rows::new(THERE);
        there.meta = meta;
        there.dirs.insert(Ino::ROOT, dir(Key(0), Ino::ROOT, None, None, 1));
        let skeleton = Entry { ino: sub, kind: Kind::Directory, home: THERE, stub: None };
        there.names.insert(Ino::ROOT, vec![(cookie(&called), name(&called), skeleton)]);
        there.dirs.insert(sub, dir(key, Ino::ROOT, Some(&called), Some((1, 0)), 0));
        there.names.insert(sub, vec![(cookie("file"), name("file"), entry(in_sub, THERE))]);
        there.inodes.insert(in_sub, file(in_sub, 0));
        Self { volume: Volume { table, seed: SEED }, islands: vec![here, there], sub, in_root, in_sub }
    }

    fn rules(&self) -> BTreeSet<Rule> {
        check(&self.volume, &self.islands).into_iter().map(|finding| finding.rule).collect()
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
    entry.stub.as_mut().unwrap().place = Stamp::new(1, 5);
    let cookie = cookie_of(SEED, b"renamed");
    world.islands[0].names.get_mut(&Ino::ROOT).unwrap()[0].0 = cookie;
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
    planted(Rule::SkeletonsAgree, |w| w.islands[1].dirs.get_mut(&Ino::ROOT).unwrap().fixed.uid = 5);
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
    assert_eq!(paths[&in_root], ["/file"]);
    assert_eq!(paths[&in_sub], [format!("/{called}/file")]);
    assert_eq!(paths.len(), 4);
    // A directory in itself has no path, and neither has what is in it.
    world.islands[1].dirs.get_mut(&sub).unwrap().place.parent = sub;
    let paths = atoll_check::paths(&world.islands, &wanted);
    assert_eq!(paths.keys().copied().collect::<Vec<_>>(), [Ino::ROOT, in_root]);
}
