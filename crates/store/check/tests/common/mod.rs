//! Two islands with a directory and two files, whole: what tests break.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::collections::BTreeSet;

use atoll_check::{Rows, Rule, Volume, check};
use atoll_core::cookie_of;
use atoll_core::{H3, Ino, IslandId, Key, Name, SessionId, Stamp, Table, Time, TxnId};
use atoll_posix::locks::Locks;
use atoll_posix::{Attr, Kind, LockKind, LockRange};
use atoll_proto::{
    Ancestor, CarriedLink, Chain, Dir, DirPlace, Entry, EntryRef, Inode, OwnedDir, ParticipantWork,
    PlaceVersion, RequestId, RowChange, Session, StaticAttrs, Stub, Txn, TxnPart, TxnStamps, TxnState,
    Xattrs,
};
use atoll_state::links::digest_of;
use atoll_state::state::Meta;

pub const SEED: u64 = 7;
pub const HERE: IslandId = IslandId(0);
pub const THERE: IslandId = IslandId(1);

/// Rules that hold at rest only.
pub const AT_REST: [Rule; 5] =
    [Rule::TxnEnded, Rule::JournalDelivered, Rule::ForwardKnown, Rule::SkeletonNamed, Rule::HeldForCause];

/// What [`World::with_link`] adds.
pub const LINK: Ino = Ino((1 << 48) + 40);

/// What is done to a whole world.
pub type Break = fn(&mut World);

/// Ways in which it may not be as all were told, and the rule that finds each.
pub fn broken_links() -> Vec<(Rule, Break)> {
    vec![
        // At its home: the name, the target or all of it is gone.
        (Rule::LinkThere, |w| w.link(1).names[0].name = name("other")),
        (Rule::LinkThere, |w| w.link(1).target = "elsewhere".into()),
        // Elsewhere.
        (Rule::LinksAgree, |w| drop(w.islands[0].links.remove(&LINK))),
        (Rule::LinksAgree, |w| w.link(0).target = "elsewhere".into()),
        (Rule::LinksAgree, |w| w.link(0).names.clear()),
        (Rule::LinksAgree, |w| {
            let more = w.link(0).clone();
            w.islands[0].links.insert(Ino(LINK.0 + 1), more);
        }),
    ]
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn fixed() -> StaticAttrs {
    StaticAttrs { version: Stamp::default(), mode: 0o755, uid: 0, gid: 0 }
}

pub fn dir(key: Key, parent: Ino, called: Option<&str>, owned: Option<(u64, u32)>, below: u32) -> Dir {
    let time = Time::default();
    Dir {
        key,
        birth_bytes: 0,
        place: DirPlace { version: PlaceVersion::default(), parent, name: called.map(name) },
        fixed: fixed(),
        has_xattrs: false,
        has_acl: false,
        children: below,
        foreign_names: 0,
        owned: owned.map(|(entries, subdirs)| OwnedDir { entries, subdirs, ..OwnedDir::empty(time) }),
        beside: None,
    }
}

pub fn file(ino: Ino, size: u64) -> Inode {
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
    Inode {
        attr,
        target: None,
        has_xattrs: false,
        has_acl: false,
        moves: 0,
        orphan_of: Vec::new(),
        beside: None,
        is_absent: false,
    }
}

/// A directory that was removed, and that no client has open.
pub fn removed_dir(ino: Ino) -> Inode {
    let mut row = file(ino, 0);
    (row.attr.kind, row.attr.nlink) = (Kind::Directory, 0);
    row
}

/// Two islands: the root is owned by one, `/sub` by the other, with a file in each; that of the root has
/// another name in `/sub`, "also".
#[derive(Clone)]
pub struct World {
    pub volume: Volume,
    pub islands: Vec<Rows>,
    pub sub: Ino,
    pub in_root: Ino,
    pub in_sub: Ino,
}

impl World {
    pub fn new() -> Self {
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
        let meta = Meta {
            seq: 9,
            mint_limit: 1000,
            incarnation: 1,
            power: 0,
            stamp: Stamp::default(),
            clean: true,
            time: Time::default(),
            ..Meta::default()
        };

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
        here.dirs.get_mut(&sub).unwrap().foreign_names = 1;
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

    pub fn rules(&self) -> BTreeSet<Rule> {
        check(&self.volume, &self.islands).into_iter().map(|finding| finding.rule).collect()
    }

    /// The skeleton directory at the home of the file with a name in it.
    pub fn sub_at_home(&mut self) -> &mut Dir {
        self.islands[0].dirs.get_mut(&self.sub).unwrap()
    }

    /// The name elsewhere, as the file's home has it.
    pub fn foreign(&mut self) -> &mut Entry {
        &mut self.islands[0].names.get_mut(&self.sub).unwrap()[0].2
    }

    /// The same as the directory's owner has it.
    pub fn pointer(&mut self) -> &mut Entry {
        &mut self.islands[1].names.get_mut(&self.sub).unwrap()[1].2
    }

    /// The home has lost it.
    pub fn forget_foreign(&mut self) {
        self.islands[0].names.remove(&self.sub);
        self.islands[0].dirs.remove(&self.sub);
        self.islands[0].dirs.get_mut(&Ino::ROOT).unwrap().children = 0;
        self.islands[0].inodes.get_mut(&self.in_root).unwrap().attr.nlink = 1;
    }

    /// The owner has lost it.
    pub fn forget_pointer(&mut self) {
        self.islands[1].names.get_mut(&self.sub).unwrap().pop();
        self.islands[1].dirs.get_mut(&self.sub).unwrap().owned.as_mut().unwrap().entries = 1;
    }

    /// With a symbolic link to a directory, which the island that owns `/sub` has told the other of.
    pub fn with_link() -> Self {
        let mut world = Self::new();
        let there = &mut world.islands[1];
        let mut row = file(LINK, 2);
        (row.attr.kind, row.target) = (Kind::Symlink, Some("..".into()));
        let entry = Entry { ino: LINK, kind: Kind::Symlink, home: THERE, stub: None };
        there.names.get_mut(&world.sub).unwrap().push((cookie_of(SEED, b"link"), name("link"), entry));
        there.dirs.get_mut(&world.sub).unwrap().owned.as_mut().unwrap().entries += 1;
        let names = vec![EntryRef { dir: world.sub, name: name("link") }];
        let link = CarriedLink { home: THERE, attr: row.attr, target: "..".into(), names };
        there.inodes.insert(LINK, row);
        let digest = digest_of(SEED, [(LINK, &link)].into_iter());
        there.links_told.insert(HERE, digest);
        world.islands.iter_mut().for_each(|rows| drop(rows.links.insert(LINK, link.clone())));
        world
    }

    pub fn link(&mut self, island: usize) -> &mut CarriedLink {
        self.islands[island].links.get_mut(&LINK).unwrap()
    }

    pub fn entry_ref(&self, called: &str) -> EntryRef {
        EntryRef { dir: self.sub, name: name(called) }
    }

    /// Has an island in the middle of a transaction.
    pub fn begin(&mut self, island: usize, state: TxnState, work: ParticipantWork) {
        let origin = RequestId { session: SessionId(1), seq: 1 };
        let partner = self.islands[1 - island].island;
        let stamps = TxnStamps::default();
        let part = TxnPart { request: origin, work };
        let txn = TxnId { coordinator: partner, stamp: Stamp::new(1, 7) };
        self.islands[island].txns.insert(txn, Txn { state, partner, stamps, part });
    }

    pub fn count(&self, called: &str) -> ParticipantWork {
        let at = self.entry_ref(called);
        ParticipantWork::AddName {
            ino: self.in_root,
            at,
            time: Time::default(),
            chain: self.chain(),
            within: None,
        }
    }

    pub fn chain(&self) -> Chain {
        let row = &self.islands[1].dirs[&self.sub];
        let (key, place, fixed) = (row.key, row.place.clone(), row.fixed);
        let sub = Ancestor {
            ino: self.sub,
            key,
            birth_bytes: 0,
            place,
            fixed,
            xattrs: Xattrs::default(),
            suspected: false,
        };
        Chain { vector: Vec::new(), dirs: vec![sub] }
    }
}

/// One thing that is wrong with a world.
pub struct Plant {
    /// What, for people.
    pub what: &'static str,
    /// The rules that find it.
    pub finds: &'static [Rule],
    pub breaks: Break,
}

const fn plant(what: &'static str, finds: &'static [Rule], breaks: Break) -> Plant {
    Plant { what, finds, breaks }
}

/// A transaction of the second island's.
pub fn txn_there() -> TxnId {
    TxnId { coordinator: THERE, stamp: Stamp::new(1, 7) }
}

/// Everything that a whole world can have wrong, one at a time.
pub fn plants() -> Vec<Plant> {
    use Rule::*;
    vec![
        plant("a row that is too short", &[RowReadable, FileThere], |w| {
            let key = atoll_state::RowKey::Inode(w.in_root).to_bytes();
            w.islands[0].inodes.remove(&w.in_root);
            w.islands[0].take(&key, b"short");
            w.islands[0].sums_end.clear();
        }),
        plant("a row of another file", &[RowReadable, FileThere], |w| {
            let row = atoll_core::Encode::to_vec(&file(Ino::mint(HERE, 17), 0));
            let key = atoll_state::RowKey::Inode(w.in_root).to_bytes();
            w.islands[0].inodes.remove(&w.in_root);
            w.islands[0].take(&key, &row);
            w.islands[0].sums_end.clear();
        }),
        plant("permissions that are none", &[RowReadable, DirNamedOnce, BelowCounted, DirThere], |w| {
            let mut row = w.islands[1].dirs.remove(&w.sub).unwrap();
            row.fixed.mode |= 0o10000;
            let key = atoll_state::RowKey::Dir(w.sub).to_bytes();
            w.islands[1].take(&key, &atoll_core::Encode::to_vec(&row));
            w.islands[1].names.remove(&w.sub);
            w.islands[1].inodes.clear();
            w.forget_foreign();
        }),
        plant("a row of no kind", &[RowReadable], |w| w.islands[0].take(b"?", b"")),
        plant("no root at its owner", &[RootThere, NamesOwned, LinksCounted, DirThere], |w| {
            w.islands[0].dirs.remove(&Ino::ROOT);
        }),
        plant("no root elsewhere", &[RootThere, NamesOwned], |w| {
            w.islands[1].dirs.remove(&Ino::ROOT);
        }),
        plant(
            "an owned directory with another parent",
            &[SkeletonWhole, BelowCounted, DirNamedOnce, SkeletonsAgree],
            |w| {
                w.islands[1].dirs.get_mut(&w.sub).unwrap().place.parent = Ino(999);
            },
        ),
        plant(
            "a skeleton directory with another parent",
            &[SkeletonWhole, BelowCounted, DirNamedOnce, SkeletonsAgree],
            |w| {
                w.sub_at_home().place.parent = Ino(999);
            },
        ),
        plant(
            "a directory below itself",
            &[SkeletonWhole, BelowCounted, DirNamedOnce, DirNamed, SkeletonsAgree],
            |w| {
                w.islands[1].dirs.get_mut(&w.sub).unwrap().place.parent = w.sub;
            },
        ),
        plant("a directory that says another name", &[DirNamedOnce, DirNamed, SkeletonsAgree], |w| {
            w.islands[1].dirs.get_mut(&w.sub).unwrap().place.name = Some(name("elsewhere"));
        }),
        plant("too many directories below", &[BelowCounted], |w| {
            w.islands[1].dirs.get_mut(&Ino::ROOT).unwrap().children = 2;
        }),
        plant(
            "a stub without a directory",
            &[DirThere, DirNamedOnce, NamesOwned, NameAtOwner, LinksCounted, BelowCounted],
            |w| {
                w.islands[1].dirs.remove(&w.sub);
            },
        ),
        plant("a directory without a stub", &[DirNamed, NamesCounted], |w| {
            w.islands[0].names.get_mut(&Ino::ROOT).unwrap().remove(0);
        }),
        plant("a directory whose name a file has", &[DirNamed], |w| {
            let taken = Entry { ino: w.in_root, kind: Kind::Regular, home: HERE, stub: None };
            w.islands[0].names.get_mut(&Ino::ROOT).unwrap()[0].2 = taken;
            w.islands[0].inodes.get_mut(&w.in_root).unwrap().attr.nlink = 3;
            w.islands[0].dirs.get_mut(&Ino::ROOT).unwrap().owned.as_mut().unwrap().subdirs = 0;
        }),
        plant("a directory under two names", &[DirNamedOnce], |w| {
            let row = w.islands[0].names_of(Ino::ROOT)[0].2.clone();
            w.islands[0]
                .apply(SEED, &RowChange::Entry { dir: Ino::ROOT, name: name("twin"), row: Some(row) });
            let owned = w.islands[0].dirs.get_mut(&Ino::ROOT).unwrap().owned.as_mut().unwrap();
            (owned.entries, owned.subdirs) = (3, 2);
        }),
        plant("a name that the skeleton has twice", &[DirNamedOnce], |w| {
            let row = w.islands[1].names_of(Ino::ROOT)[0].2.clone();
            w.islands[1]
                .apply(SEED, &RowChange::Entry { dir: Ino::ROOT, name: name("twin"), row: Some(row) });
        }),
        plant("another's cookie", &[CookieOfName], |w| {
            w.islands[0].names.get_mut(&Ino::ROOT).unwrap()[1].0 += 1;
        }),
        plant("a lost name", &[NamesCounted, LinksCounted], |w| {
            w.islands[0].names.get_mut(&Ino::ROOT).unwrap().pop();
        }),
        plant("a file's only name lost", &[NamesCounted, LinksCounted], |w| {
            w.islands[1].names.get_mut(&w.sub).unwrap().remove(0);
        }),
        plant("wrong counts of names", &[NamesCounted], |w| {
            w.islands[1].dirs.get_mut(&w.sub).unwrap().owned.as_mut().unwrap().entries = 7;
        }),
        plant("no stub", &[StubThere], |w| w.islands[0].names.get_mut(&Ino::ROOT).unwrap()[0].2.stub = None),
        plant("a stub that is too many", &[StubThere], |w| {
            let stub = w.islands[0].names_of(Ino::ROOT)[0].2.stub.clone();
            w.islands[0].names.get_mut(&Ino::ROOT).unwrap()[1].2.stub = stub;
        }),
        plant("other attributes at the same version", &[StubAgrees, SkeletonsAgree], |w| {
            w.islands[1].dirs.get_mut(&w.sub).unwrap().fixed.mode = 0o700;
        }),
        plant("other attributes of the root", &[SkeletonsAgree], |w| {
            w.islands[1].dirs.get_mut(&Ino::ROOT).unwrap().fixed.uid = 5;
        }),
        plant("another key in the stub", &[StubAgrees], |w| {
            // Of the same bucket.
            let key = Key(w.islands[1].dirs[&w.sub].key.0 ^ 1);
            w.islands[0].names.get_mut(&Ino::ROOT).unwrap()[0].2.stub.as_mut().unwrap().key = key;
        }),
        plant("stale attributes", &[CopyCurrent], |w| {
            w.islands[1].dirs.get_mut(&w.sub).unwrap().fixed =
                StaticAttrs { version: Stamp::new(1, 3), mode: 0o711, uid: 1, gid: 2 };
            w.islands[1].clocks.raise(THERE, Stamp::new(1, 3));
            w.islands[0].clocks.raise(THERE, Stamp::new(1, 3));
        }),
        plant("a stale place", &[CopyCurrent], |w| {
            let version = PlaceVersion { moves: 0, stamp: Stamp::new(1, 4) };
            w.islands[0].names.get_mut(&Ino::ROOT).unwrap()[0].2.stub.as_mut().unwrap().place = version;
            w.sub_at_home().place.version = version;
            w.islands[0].clocks.raise(HERE, Stamp::new(1, 4));
            w.islands[1].clocks.raise(HERE, Stamp::new(1, 4));
        }),
        plant(
            "not owned by its owner",
            &[OwnerByTable, DirThere, NamesOwned, NameAtOwner, HomesCounted, SkeletonNeeded],
            |w| {
                w.islands[1].dirs.get_mut(&w.sub).unwrap().owned = None;
            },
        ),
        plant("owned by another too", &[OwnerByTable, NameAtHome], |w| {
            let owned = w.islands[1].dirs[&w.sub].owned.clone().map(|owned| OwnedDir { entries: 1, ..owned });
            let dir = w.sub_at_home();
            (dir.owned, dir.foreign_names) = (owned, 0);
        }),
        plant("a key of another island's", &[OwnerByTable, StubAgrees, SkeletonsAgree], |w| {
            w.islands[1].dirs.get_mut(&w.sub).unwrap().key = Key(0);
        }),
        plant("a file that is gone", &[FileThere, SumsFit], |w| drop(w.islands[0].inodes.remove(&w.in_root))),
        plant("a dangling pointer", &[FileThere], |w| {
            w.forget_foreign();
            w.pointer().ino = Ino::mint(HERE, 17);
        }),
        plant("a pointer to another id", &[FileThere, NameAtOwner], |w| {
            w.pointer().ino = Ino::mint(HERE, 17)
        }),
        plant("a pointer to the wrong island", &[FileThere, NameAtOwner], |w| w.pointer().home = THERE),
        plant("a pointer to no island", &[FileThere, NameAtOwner], |w| w.pointer().home = IslandId(9)),
        plant("a pointer of another type", &[KindAgrees, NameAtOwner], |w| w.pointer().kind = Kind::Symlink),
        plant("a name of another type", &[KindAgrees], |w| {
            w.islands[1].inodes.get_mut(&w.in_sub).unwrap().attr.kind = Kind::Fifo;
        }),
        plant("a link too many", &[LinksCounted], |w| {
            w.islands[1].inodes.get_mut(&w.in_sub).unwrap().attr.nlink = 2;
        }),
        plant("a link too few", &[LinksCounted], |w| {
            w.islands[0].inodes.get_mut(&w.in_root).unwrap().attr.nlink = 1;
        }),
        plant("a name that its home does not know", &[NameAtHome], World::forget_foreign),
        plant("a name that its home has otherwise", &[NameAtHome, NameAtOwner], |w| {
            let (cookie, called, _) = &mut w.islands[0].names.get_mut(&w.sub).unwrap()[0];
            (*cookie, *called) = (cookie_of(SEED, b"other"), name("other"));
        }),
        plant("another file at home", &[FileThere, LinksCounted, NameAtHome, NameAtOwner], |w| {
            w.foreign().ino = Ino::mint(HERE, 17);
        }),
        plant("a name that only its home knows", &[NameAtOwner], World::forget_pointer),
        plant("a name of neither", &[NamesOwned, LinksCounted, HomesCounted, NameAtHome], |w| {
            w.foreign().home = THERE
        }),
        plant("too many names of files from here", &[HomesCounted], |w| w.sub_at_home().foreign_names = 2),
        plant("too few names of files from here", &[HomesCounted, SkeletonNeeded], |w| {
            w.sub_at_home().foreign_names = 0
        }),
        plant("names of files from here where it is owned", &[HomesCounted], |w| {
            w.islands[1].dirs.get_mut(&w.sub).unwrap().foreign_names = 1;
        }),
        plant("a skeleton directory for nothing", &[SkeletonNeeded, LinksCounted, NameAtHome], |w| {
            w.islands[0].names.remove(&w.sub);
            w.sub_at_home().foreign_names = 0;
        }),
        plant("a skeleton directory that nobody has", &[SkeletonNeeded, BelowCounted, DirThere], |w| {
            let idle = Ino::mint(THERE, 200);
            w.islands[0].dirs.insert(idle, dir(Key(u32::MAX), Ino::ROOT, Some("idle"), None, 0));
        }),
        plant("an orphan that nobody holds", &[OrphanHeld], |w| {
            let orphan = Ino::mint(HERE, 99);
            let mut row = file(orphan, 0);
            row.attr.nlink = 0;
            w.islands[0].inodes.insert(orphan, row);
        }),
        plant("a removed directory that nobody holds", &[OrphanHeld], |w| {
            let removed = Ino::mint(HERE, 99);
            w.islands[0].inodes.insert(removed, removed_dir(removed));
        }),
        plant("a removed directory that is there too", &[OrphanHeld], |w| {
            w.islands[1].inodes.insert(w.sub, removed_dir(w.sub));
        }),
        plant("an orphan with a name", &[OrphanHeld], |w| {
            w.islands[0].inodes.get_mut(&w.in_root).unwrap().orphan_of = vec![SessionId(4)];
        }),
        plant("checksums beyond the end", &[SumsFit], |w| w.islands[0].sums_end.extend([(w.in_root, 3)])),
        plant("unannounced attributes", &[XattrsAnnounced], |w| {
            w.islands[0].xattrs.insert(w.in_root, Xattrs(vec![("user.x".into(), "".into())]));
        }),
        plant("an ACL that is not there", &[XattrsAnnounced], |w| {
            w.islands[0].inodes.get_mut(&w.in_root).unwrap().has_acl = true;
        }),
        plant("a directory's attributes that are not there", &[XattrsAnnounced], |w| {
            w.islands[1].dirs.get_mut(&w.sub).unwrap().has_xattrs = true;
        }),
        plant("attributes of nothing", &[XattrsAnnounced], |w| {
            w.islands[0].xattrs.insert(Ino::mint(HERE, 99), Xattrs(vec![("user.x".into(), "".into())]));
        }),
        plant("locks of a client that is gone", &[LocksHeld], |w| {
            w.islands[0].locks.insert(w.in_root, locks());
        }),
        plant("locks on a file that is gone", &[LocksHeld], |w| {
            w.islands[0].locks.insert(Ino::mint(HERE, 99), locks());
        }),
        plant("a lock that its client does not know", &[LocksHeld], |w| {
            w.islands[0].locks.insert(w.in_root, locks());
            w.islands[0].sessions.insert(SessionId(4), session());
        }),
        plant("ids beyond the limit", &[IdMinted], |w| w.islands[0].meta.mint_limit = 16),
        plant("a seal without a transaction", &[TxnCaused], |w| {
            w.islands[1].dirs.get_mut(&w.sub).unwrap().owned.as_mut().unwrap().sealed = Some(txn_there());
        }),
        plant("adopted for a transaction that is not there", &[TxnCaused], |w| {
            w.islands[1].dirs.get_mut(&w.sub).unwrap().owned.as_mut().unwrap().adopted = Some(txn_there());
        }),
        plant("a transaction with the wrong island", &[TxnCaused], |w| {
            let work = w.count("third");
            w.begin(0, TxnState::Prepared, work);
            w.islands[0].txns.values_mut().for_each(|txn| txn.partner = IslandId(9));
        }),
        plant("a transaction with itself", &[TxnCaused], |w| {
            let work = w.count("third");
            w.begin(0, TxnState::Committed, work);
            w.islands[0].txns.values_mut().for_each(|txn| txn.partner = HERE);
        }),
        plant("a coordinator that waits for an outcome", &[TxnCaused], |w| {
            let work = w.count("third");
            w.begin(0, TxnState::Prepared, work);
            let (id, txn) = w.islands[0].txns.pop_first().unwrap();
            w.islands[0].txns.insert(TxnId { coordinator: HERE, ..id }, txn);
        }),
    ]
}

pub(crate) fn session() -> Session {
    Session {
        mount: true,
        local: None,
        ending: false,
        results: Vec::new(),
        acked: 0,
        held: Vec::new(),
        scope: None,
        keeps: false,
    }
}

fn locks() -> Locks {
    let mut locks = Locks::default();
    let lock = LockRange { start: 0, end: 9, kind: LockKind::Write, owner: 1, pid: 1, flock: false };
    locks.set(SessionId(4), &lock).unwrap();
    locks
}
