//! What outlives a process: records, rows, configurations.

use atoll_core::{Ino, IslandId, Key, Stamp, Time};
use atoll_posix::locks::Locks;
use atoll_posix::{Caller, Errno, Kind, LockKind, LockRange, RenameMode};
use atoll_proto::{
    BodyChange, CarriedLink, Chain, DaemonLife, Dir, DirPlace, Entry, EntryRef, Forward, JournalEntry,
    KnownToOthers, LifeEnd, OwnedDir, ParticipantWork, Record, RenameSpec, RequestId, RequestResult,
    RowChange, Session, Stub, Txn, TxnPart, TxnStamps, TxnState, Within,
};
use bytes::Bytes;

use super::*;

pub const ORIGIN: RequestId = RequestId { session: SESSION, seq: 12 };

pub fn locks() -> Locks {
    let mut locks = Locks::default();
    let range = |start, end, kind, flock| LockRange { start, end, kind, owner: 5, pid: 99, flock };
    locks.set(SESSION, &range(10, 20, LockKind::Write, false)).unwrap();
    locks.set(SESSION, &range(0, u64::MAX, LockKind::Read, true)).unwrap();
    locks
}

pub fn owned() -> OwnedDir {
    OwnedDir {
        entries: 3,
        subdirs: 1,
        atime: TIME,
        mtime: TIME,
        ctime: TIME,
        btime: Time { secs: 1, nanos: 2 },
        sealed: None,
        others: KnownToOthers { ever_borrowed: true, has_pointers: true },
        adopted: Some(TXN),
    }
}

pub fn dir() -> Dir {
    Dir {
        key: Key(0x0102_0304),
        birth_bytes: 300,
        place: place(),
        fixed: fixed(),
        has_xattrs: true,
        has_acl: false,
        children: 2,
        foreign_names: 3,
        owned: Some(owned()),
        beside: None,
    }
}

fn skeleton() -> Dir {
    let root = DirPlace { parent: Ino::ROOT, name: None, ..place() };
    Dir { place: root, owned: None, ..dir() }
}

pub fn entry() -> Entry {
    Entry { ino: FILE, kind: Kind::Symlink, home: IslandId(1), stub: None }
}

pub fn link() -> CarriedLink {
    let names = vec![EntryRef { dir: DIR, name: name("link") }];
    let attr = Attr { kind: Kind::Symlink, ..attr() };
    CarriedLink { home: IslandId(1), attr, target: Bytes::from_static(b"../to"), names }
}

fn stub_entry() -> Entry {
    Entry { ino: DIR, kind: Kind::Directory, home: IslandId(1), stub: Some(Box::new(stub())) }
}

fn life() -> DaemonLife {
    DaemonLife { daemon: 0xab12, incarnation: 7 }
}

pub fn session() -> Session {
    let results = vec![
        (5, RequestResult::Done),
        (6, RequestResult::Ino { ino: FILE }),
        (7, RequestResult::Wrote { len: 100, offset: 200 }),
        (8, RequestResult::Removed { orphan: Some(FILE) }),
        (9, RequestResult::Attr { ino: DIR }),
    ];
    Session {
        mount: true,
        local: None,
        ending: false,
        results,
        acked: 5,
        held: vec![FILE],
        scope: None,
        keeps: false,
    }
}

fn forward() -> Forward {
    Forward { to: IslandId(2), moves: 3, sessions: vec![SESSION] }
}

fn txn() -> Txn {
    Txn { state: TxnState::Prepared, partner: IslandId(2), stamps: stamps(), part: part(adopt()) }
}

pub fn stamps() -> TxnStamps {
    TxnStamps { prepared: STAMP, committed: Stamp(8) }
}

pub fn part(work: ParticipantWork) -> TxnPart {
    TxnPart { request: ORIGIN, work }
}

pub fn seal() -> ParticipantWork {
    ParticipantWork::Seal { ino: DIR, parent: Ino::ROOT, name: name("gone") }
}

pub fn adopt() -> ParticipantWork {
    ParticipantWork::Adopt { dir: ancestor(), time: TIME, chain: vec![ancestor()] }
}

pub fn entry_ref(text: &str) -> EntryRef {
    EntryRef { dir: DIR, name: name(text) }
}

pub fn chain() -> Chain {
    Chain { vector: vec![(IslandId(2), STAMP)], dirs: vec![ancestor()] }
}

pub fn file_entry() -> Entry {
    Entry { ino: FILE, kind: Kind::Regular, home: IslandId(1), stub: None }
}

pub fn lend() -> ParticipantWork {
    let (from, to, mode) = (entry_ref("from"), entry_ref("to"), RenameMode::Exchange);
    let (file, there) = (file_entry(), Some(file_entry()));
    let renaming = Box::new(RenameSpec { from, to, file, there, mode, by: Some(1000), time: TIME });
    let caller = Caller { uid: 1000, gid: 100, groups: Some(vec![4]) };
    ParticipantWork::BorrowName {
        renaming,
        caller,
        new_meant: Some(DIR),
        denied: Some(Errno::EACCES),
        chain: Some(chain()),
        wants_chain: true,
        scope: Some(DIR),
    }
}

pub fn count() -> ParticipantWork {
    let within = Some(Within { scope: DIR, by: Some(entry_ref("old")) });
    ParticipantWork::AddName { ino: FILE, at: entry_ref("new"), time: TIME, chain: chain(), within }
}

pub fn drop_name() -> ParticipantWork {
    ParticipantWork::RemoveName { ino: FILE, at: entry_ref("gone"), by: Some(1000), had: true, time: TIME }
}

pub fn renamed() -> ParticipantWork {
    ParticipantWork::MoveName {
        ino: FILE,
        from: entry_ref("old"),
        to: entry_ref("new"),
        by: None,
        had: true,
        time: TIME,
        chain: chain(),
    }
}

pub fn hold() -> ParticipantWork {
    let (caller, key) = (Caller { uid: 1000, gid: 100, groups: None }, atoll_core::Key(77));
    let version = PlaceVersion { moves: 3, stamp: Stamp::default() };
    let to = DirPlace { version, parent: DIR, name: Some(entry_ref("there").name) };
    ParticipantWork::FreezeDir { ino: DIR, caller, to, key }
}

pub fn ticket() -> ParticipantWork {
    ParticipantWork::PermitMove {
        moved: vec![DIR],
        above: vec![Ino::ROOT],
        owners: vec![IslandId(2)],
        seen: vec![chain()],
        exchange: false,
    }
}

pub fn arrive() -> ParticipantWork {
    let (file, xattrs) = (Box::new(inode()), Some(super::xattrs()));
    ParticipantWork::ReceiveFile { at: entry_ref("here"), file, xattrs, mounts: vec![SESSION] }
}

pub fn journal() -> JournalEntry {
    let (place, from, chain) = (place(), entry_ref("old"), chain());
    JournalEntry::Place { ino: DIR, place, from, replaced: Some(Ino(9)), chain, time: TIME }
}

pub fn journal_fixed(xattrs: bool) -> JournalEntry {
    let xattrs = if xattrs { super::xattrs() } else { Xattrs::default() };
    JournalEntry::StaticAttrs { ino: DIR, place: place(), fixed: fixed(), xattrs }
}

fn changes() -> Vec<(&'static str, RowChange)> {
    vec![
        ("inode", RowChange::Inode { ino: FILE, row: Some(Box::new(inode())) }),
        ("inode gone", RowChange::Inode { ino: FILE, row: None }),
        ("dir", RowChange::Dir { ino: DIR, row: Some(Box::new(dir())) }),
        ("entry", RowChange::Entry { dir: DIR, name: name("n\u{e9}"), row: Some(entry()) }),
        ("xattrs", RowChange::Xattrs { ino: FILE, row: Some(xattrs()) }),
        ("sums", RowChange::Sums { ino: FILE, first: 3, sums: vec![0, 0x1234_5678] }),
        ("sums cut", RowChange::SumsCut { ino: FILE, first: 2, end: 9 }),
        ("locks", RowChange::Locks { ino: FILE, row: Some(locks()) }),
        ("txn", RowChange::Txn { txn: TXN, row: Some(Box::new(txn())) }),
        ("session", RowChange::Session { session: SESSION, row: Some(session()) }),
        ("result", RowChange::Result { session: SESSION, seq: 7, acked: 6, result: RequestResult::Done }),
        ("posted", RowChange::Posted { stamp: STAMP, entry: journal() }),
        ("taken back", RowChange::TakenBack { session: SESSION, seq: 12 }),
        ("received", RowChange::Received { island: IslandId(2), stamp: STAMP, entry: journal() }),
        ("unreceived", RowChange::Unreceived { island: IslandId(2), upto: STAMP }),
        ("clock", RowChange::Clock { island: IslandId(3), stamp: STAMP }),
        ("mint limit", RowChange::MintLimit { limit: 1 << 20 }),
        ("incarnation", RowChange::Incarnation { incarnation: 3, ended: LifeEnd::PowerCut }),
        ("promoted", RowChange::Incarnation { incarnation: 4, ended: LifeEnd::Promoted }),
        ("checkpoint", RowChange::Checkpoint { clean: true }),
        ("skipped", RowChange::Skipped { island: IslandId(2), upto: STAMP }),
        ("link", RowChange::Link { ino: FILE, row: Some(Box::new(link())) }),
        ("links told", RowChange::LinksTold { island: IslandId(2), digest: 77 }),
        ("no link", RowChange::Link { ino: FILE, row: None }),
        ("renamed", RowChange::Renamed { ino: DIR }),
        ("side row", RowChange::Side { table: b'f', id: 7 << 64 | 9, row: Some("row".into()) }),
        ("no side row", RowChange::Side { table: b'f', id: 9, row: None }),
        ("private clock", RowChange::PrivateClock { island: IslandId(3), stamp: STAMP }),
        ("moved", RowChange::Moved { island: IslandId(3), stamp: STAMP }),
        ("forward", RowChange::Forward { ino: FILE, row: Some(forward()) }),
        ("gone", RowChange::Forward { ino: FILE, row: None }),
        ("dirty", RowChange::Dirty { ino: FILE }),
        ("stamp", RowChange::Stamp { stamp: STAMP }),
        ("ending", RowChange::Ending { session: SESSION }),
        ("keeps", RowChange::Keeps { session: SESSION, on: true }),
        ("held", RowChange::Held { session: SESSION, ino: FILE, on: true }),
        ("delivered", RowChange::Delivered { island: IslandId(3), upto: STAMP }),
        ("unposted", RowChange::Unposted { upto: STAMP }),
    ]
}

fn bodies() -> Vec<(&'static str, BodyChange)> {
    vec![
        ("bytes", BodyChange::Bytes { ino: FILE, offset: 9, bytes: Bytes::from_static(b"some") }),
        ("extent", BodyChange::Extent { ino: FILE, offset: 4096, len: 1 << 20, promised: true }),
        ("cut", BodyChange::Cut { ino: FILE, len: 77 }),
        ("zero", BodyChange::Zero { ino: FILE, offset: 1, len: u64::MAX }),
        ("allocate", BodyChange::Allocate { ino: FILE, offset: 0, len: 5 }),
        ("drop", BodyChange::Drop { ino: FILE }),
    ]
}

/// The payload of a log record.
fn payload(record: &Record) -> Vec<u8> {
    let mut payload = Vec::new();
    let carried: Vec<u8> = record.encode_head(&mut payload).flatten().copied().collect();
    payload.extend(carried);
    payload
}

fn record() -> Samples {
    let of = |changes: Vec<RowChange>, bodies: Vec<BodyChange>| payload(&Record { changes, bodies });
    let plain: Vec<RowChange> = changes().into_iter().map(|(_, change)| change).collect();
    let all_bodies: Vec<BodyChange> = bodies().into_iter().map(|(_, change)| change).collect();
    let samples = vec![
        ("empty".to_owned(), of(Vec::new(), Vec::new())),
        ("bodies".to_owned(), of(Vec::new(), [all_bodies.clone(), all_bodies].concat())),
        ("changes".to_owned(), of(plain, Vec::new())),
        ("both".to_owned(), of(vec![RowChange::Dirty { ino: FILE }], vec![BodyChange::Drop { ino: FILE }])),
    ];
    let again = |bytes: &[u8]| Record::decode_whole(bytes).ok().map(|record| payload(&record));
    Samples { file: "record", samples, again, tags: Vec::new() }
}

pub fn all() -> Vec<Samples> {
    vec![
        record(),
        samples("change", (1..=24).chain([27]).chain(30..=32).chain(40..=42), changes()),
        samples("body_change", 1..=6, bodies()),
        samples(
            "inode",
            [],
            vec![
                ("file", inode()),
                ("link", Inode { target: Some("to".into()), ..inode() }),
                ("absent", Inode { beside: Some("state".into()), is_absent: true, ..inode() }),
            ],
        ),
        samples("dir", [], vec![("owned", dir()), ("skeleton", skeleton())]),
        samples("entry", [], vec![("file", entry()), ("directory", stub_entry())]),
        samples("link", [], vec![("link", link())]),
        samples("stub", [], vec![("stub", Stub { ..stub() })]),
        samples("xattrs", [], vec![("two", xattrs()), ("none", Xattrs::default())]),
        samples("locks", [], vec![("both kinds", locks()), ("none", Locks::default())]),
        samples(
            "txn",
            1..=2,
            vec![
                ("prepared", txn()),
                ("committed", Txn { state: TxnState::Committed, part: part(seal()), ..txn() }),
            ],
        ),
        samples("forward", [], vec![("to", forward())]),
        samples(
            "session",
            [],
            vec![
                ("mount", session()),
                ("ending", Session { local: Some(life()), ending: true, ..session() }),
                ("within", Session { scope: Some(DIR), ..session() }),
                ("keeps", Session { keeps: true, ..session() }),
            ],
        ),
        samples(
            "journal",
            1..=3,
            vec![
                ("place", journal()),
                ("fixed", journal_fixed(true)),
                ("no xattrs", journal_fixed(false)),
                ("onward", JournalEntry::ClockBump),
            ],
        ),
        samples("sums", [], vec![("chunk", vec![1u32, 0, 0xffff_ffff])]),
        samples("clock", [], vec![("stamp", STAMP)]),
        samples("vector", [], vec![("one", vector())]),
        samples("group", [], vec![("group", group()), ("first", first_group())]),
        samples(
            "volume",
            [],
            vec![
                ("config", config()),
                ("union", of_kind(VolumeKind::Union)),
                ("wide", of_kind(VolumeKind::Wide)),
                ("of a newer version", of_kind(VolumeKind::Unknown(250))),
                ("with daemons", with_daemons()),
                ("with copies", with_copies()),
                ("with site", with_site()),
                ("with changed copies", changed_copies()),
            ],
        ),
        samples("table", [], vec![("of three", table()), ("doubled", table().doubled())]),
    ]
}
