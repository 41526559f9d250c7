//! What crosses the wire: requests, replies, notices, messages of islands, questions of tools.

use atoll_core::{Ino, IslandId, Key, NodeId, Stamp, VolumeId, VolumePath};
use atoll_posix::op::Whence;
use atoll_posix::{
    Allocation, Answer, AtimeRule, AttrsAround, Caller, DirEntry, Errno, Kind, LockKind, LockRange, Op,
    Readings, RenameMode, RequestOptions, SetAttr, SetTime, XattrMode,
};
use atoll_proto::control::{
    Connection, CopyRole, Daemon, FillStage, FillStatus, Filling, FuseCount, GroupStatus, IslandPhase,
    IslandStatus, IslandWeight, Metric, MountStatus, NodeLink, ToldSeat, Trace, VolumeStatus, VolumeSummary,
};
use atoll_proto::group::{ChangedGroups, Revision, StoredGroup, Swapped};
use atoll_proto::union::{
    BytesGo, HomeTold, MemberCondition, MemberStatus, NameTold, NamedMember, RoleTold, UnionStatus,
};
use atoll_proto::{
    CertificateFor, ClientOp, Cluster, ClusterClient, ClusterNode, Control, ControlPlace, ControlReply,
    CutLost, DirAnswer, DirQuestion, DirReport, EntryRef, FileAt, FileHandle, FoundBy, Grant, Hint,
    Invitation, Issued, KeyOverride, Lease, LinkTarget, ListedName, MayKeep, Notice, Outcome, PeerMessage,
    PeerOp, PlaceVersion, Reply, Request, Resolved, SiteOrder, SiteReply, SiteTrace, StoredCluster, Subtree,
    UnionOrder, UnionReply, Vote, VoteInfo,
};
use bytes::Bytes;

use super::records::{
    ORIGIN, adopt, arrive, chain, count, drop_name, entry_ref, file_entry, hold, journal, journal_fixed,
    lend, link, part, renamed, seal, stamps, ticket,
};
use super::sites::{site_orders, site_replies};
use super::*;

const LOCK: LockRange =
    LockRange { start: 1, end: u64::MAX, kind: LockKind::Write, owner: 5, pid: 9, flock: true };

const ACCESS: Readings = Readings { first: TIME, last: TIME, rule: AtimeRule::Relative };

fn ops() -> Vec<(&'static str, Op)> {
    let n = || name("name");
    let bytes = Bytes::from_static;
    vec![
        ("lookup", Op::Lookup { dir: DIR, name: n() }),
        ("get attr", Op::GetAttr { ino: FILE }),
        ("set attr", Op::SetAttr { ino: FILE, set: set() }),
        (
            "create",
            Op::Create {
                dir: DIR,
                name: n(),
                kind: Kind::Symlink,
                mode: 0o777,
                umask: 0o22,
                rdev: 0,
                exclusive: true,
                target: bytes(b"to"),
            },
        ),
        ("mkdir", Op::Mkdir { dir: DIR, name: n(), mode: 0o755, umask: 0o77 }),
        ("unlink", Op::Unlink { dir: DIR, name: n() }),
        ("rmdir", Op::Rmdir { dir: DIR, name: n(), meant: Some(FILE) }),
        (
            "rename",
            Op::Rename {
                dir: DIR,
                name: n(),
                new_dir: Ino::ROOT,
                new_name: n(),
                mode: RenameMode::Exchange,
                meant: Some(FILE),
                new_meant: None,
            },
        ),
        ("link", Op::Link { ino: FILE, dir: DIR, name: n() }),
        ("readlink", Op::Readlink { ino: FILE }),
        ("read", Op::Read { ino: FILE, offset: 1, len: 2 }),
        ("write", Op::Write { ino: FILE, offset: 1, append: true, kill_set_id: false }),
        (
            "fallocate",
            Op::Fallocate { ino: FILE, offset: 1, len: 2, what: Allocation::ZeroRange { keep_size: true } },
        ),
        ("seek", Op::Seek { ino: FILE, offset: 1, whence: Whence::Hole }),
        ("copy range", Op::CopyRange { from: FILE, from_offset: 1, to: FILE, to_offset: 2, len: 3 }),
        ("fsync", Op::Fsync { ino: FILE }),
        ("fsync dir", Op::FsyncDir { dir: DIR }),
        ("read dir", Op::ReadDir { dir: DIR, after: 16, bytes: 4096, plus: true }),
        ("get xattr", Op::GetXattr { ino: FILE, name: bytes(b"user.a") }),
        (
            "set xattr",
            Op::SetXattr {
                ino: FILE,
                name: bytes(b"user.a"),
                value: bytes(b"v"),
                mode: XattrMode::Replace,
                kill_sgid: true,
            },
        ),
        ("list xattr", Op::ListXattr { ino: FILE }),
        ("remove xattr", Op::RemoveXattr { ino: FILE, name: bytes(b"user.a") }),
        ("statfs", Op::Statfs),
        ("get lock", Op::GetLock { ino: FILE, lock: LOCK }),
        ("set lock", Op::SetLock { ino: FILE, lock: LOCK, wait: true }),
        ("accessed", Op::Accessed { ino: FILE, access: ACCESS }),
        ("access", Op::Access { ino: FILE }),
        ("parent", Op::Parent { dir: DIR }),
        ("tmpfile", Op::Tmpfile { dir: DIR, mode: 0o600, umask: 0o22 }),
    ]
}

fn set() -> SetAttr {
    SetAttr {
        mode: Some(0o600),
        uid: Some(1),
        gid: None,
        size: Some(9),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::To { time: TIME }),
        opened: true,
        kill_set_id: false,
    }
}

fn answers() -> Vec<(&'static str, Answer)> {
    let listed = DirEntry { name: name("n"), ino: FILE, kind: Kind::Fifo, cookie: 77, found: Some(found()) };
    vec![
        ("done", Answer::Done),
        ("found", Answer::Found { found: found() }),
        ("attr", Answer::Attr { attr: attr() }),
        ("data", Answer::Data),
        ("wrote", Answer::Wrote { len: 1, offset: 2 }),
        ("offset", Answer::Offset { offset: 3 }),
        ("entries", Answer::Entries { entries: vec![listed], eof: true }),
        (
            "statfs",
            Answer::Statfs {
                bytes: 1,
                bytes_free: 2,
                bytes_available: 3,
                inodes: 4,
                inodes_free: 5,
                fs_id: 6,
            },
        ),
        ("lock", Answer::Lock { lock: LOCK }),
        ("removed", Answer::Removed { orphan: Some(FILE) }),
        ("access", Answer::Access { granted: 5 }),
    ]
}

fn client_ops() -> Vec<(&'static str, ClientOp)> {
    vec![
        ("fs", ClientOp::Fs { op: Op::Statfs }),
        ("attach", ClientOp::Attach { mount: true }),
        ("attach within", ClientOp::AttachWithin { mount: true, scope: DIR }),
        ("detach", ClientOp::Detach),
        ("resolve", ClientOp::Resolve { path: VolumePath::parse(b"/a/b").unwrap() }),
        ("skeleton", ClientOp::Skeleton { parent: DIR, name: name("n") }),
        ("skeleton attr", ClientOp::SkeletonAttr { ino: DIR }),
        ("release", ClientOp::Release { inos: vec![FILE, DIR] }),
        ("renew", ClientOp::Renew),
        ("lease", ClientOp::Lease),
        ("dropped of", ClientOp::DroppedOf { recall: 9 }),
        ("cancel", ClientOp::Cancel { request: 8 }),
        ("dropped", ClientOp::Dropped),
        ("rename", ClientOp::Rename { op: Op::Statfs, key: Key(7) }),
        ("link", ClientOp::Link { op: Op::Statfs, home: IslandId(2) }),
        ("hold", ClientOp::Hold { cut: 3, again: true }),
        ("cut", ClientOp::Cut { cut: 3 }),
        ("list at", ClientOp::ListAt { cut: 3, dir: DIR, after: 77 }),
        ("entry at", ClientOp::EntryAt { cut: 3, dir: DIR, name: name("n") }),
        ("files at", ClientOp::FilesAt { cut: 3, inos: vec![FILE] }),
        ("end cut", ClientOp::EndCut { cut: 3 }),
        ("hints", ClientOp::Hints { after: DIR }),
        ("skeleton target", ClientOp::SkeletonTarget { ino: FILE }),
        (
            "wished",
            ClientOp::WithOptions {
                options: RequestOptions { unchecked: true, attributes: false },
                op: Op::Statfs,
                key: Some(Key(7)),
                home: Some(IslandId(2)),
            },
        ),
        (
            "found",
            ClientOp::Found {
                by: FoundBy { file: entry_ref("to"), from: Some(entry_ref("from")) },
                options: RequestOptions { unchecked: false, attributes: true },
                op: Op::Statfs,
                key: Some(Key(7)),
                home: Some(IslandId(2)),
            },
        ),
    ]
}

fn request(op: ClientOp) -> Request {
    Request {
        session: SESSION,
        seq: 9,
        acked: 8,
        table: 3,
        vector: vec![(IslandId(1), STAMP)],
        caller: Caller { uid: 1000, gid: 100, groups: Some(vec![4, 24]) },
        op,
    }
}

fn elsewhere() -> LinkTarget {
    LinkTarget::Elsewhere { key: Key(7), path: VolumePath::parse(b"/a").unwrap() }
}

fn outcomes() -> Vec<(&'static str, Outcome)> {
    let file = FileAt { attr: attr(), target: Some(Bytes::from_static(b"to")) };
    let listed = ListedName {
        name: name("n"),
        ino: FILE,
        kind: Kind::Symlink,
        home: IslandId(2),
        key: Some(Key(5)),
        file: Some(file.clone()),
    };
    let born = KeyOverride { depth: 1, key: Key(4), birth_bytes: 7 };
    let resolved =
        Resolved { found: found(), key: Some(Key(5)), depth: 2, is_final: false, key_overrides: vec![born] };
    let hint = Hint { path: VolumePath::parse(b"/a/b").unwrap(), key: Key(5), birth_bytes: 9 };
    vec![
        ("ok", Outcome::Ok { answer: Answer::Done, keys: vec![Key(1), Key(2)] }),
        ("failed", Outcome::Failed { errno: Errno::ENOENT }),
        ("need groups", Outcome::NeedGroups),
        ("stale table", Outcome::StaleTable { table: table() }),
        ("not now", Outcome::NotNow),
        ("resolved", Outcome::Resolved { resolved }),
        ("attached", Outcome::Attached { lease: Lease::Whole, power: 4 }),
        ("no session", Outcome::NoSession),
        ("data", Outcome::Data { data: Bytes::from_static(b"target") }),
        ("elsewhere", Outcome::Elsewhere { ino: FILE, kind: Kind::Symlink, home: IslandId(2) }),
        ("done to", Outcome::DoneTo { ino: FILE, kind: Kind::Symlink, home: IslandId(2) }),
        ("moved", Outcome::Moved { to: IslandId(2), moves: 3 }),
        (
            "observed",
            Outcome::Observed {
                around: vec![AttrsAround::new(Some(&attr()), attr()), AttrsAround::new(None, attr())],
                answer: Box::new(Answer::Done),
                keys: vec![Key(1)],
            },
        ),
        ("held", Outcome::Held { quiet: true, incarnation: 4, keeps: vec![(IslandId(1), 3)] }),
        ("cut made", Outcome::CutMade { made: true }),
        ("listed at", Outcome::ListedAt { attr: Some(attr()), names: vec![listed], next: Some(9) }),
        ("files at", Outcome::FilesAt { files: vec![None, Some(file)] }),
        ("cut lost", Outcome::CutLost { why: CutLost::TooMuchChanged }),
        ("hints", Outcome::Hints { hints: vec![hint], next: Some(DIR) }),
    ]
}

fn peers() -> Vec<(&'static str, PeerOp)> {
    vec![
        ("hello", PeerOp::Hello),
        ("hello done", PeerOp::HelloDone { to: 3 }),
        ("prepare", PeerOp::Prepare { txn: TXN, origin: ORIGIN, work: adopt() }),
        ("voted no", PeerOp::Voted { txn: TXN, vote: Vote::No { errno: Errno::ENOTEMPTY } }),
        (
            "voted yes",
            PeerOp::Voted { txn: TXN, vote: Vote::Yes { prepared: STAMP, seen: VoteInfo::Nothing } },
        ),
        ("voted name", PeerOp::Voted { txn: TXN, vote: Vote::Yes { prepared: STAMP, seen: seen_name() } }),
        (
            "voted file",
            PeerOp::Voted {
                txn: TXN,
                vote: Vote::Yes { prepared: STAMP, seen: VoteInfo::File { attr: attr() } },
            },
        ),
        (
            "voted dir",
            PeerOp::Voted {
                txn: TXN,
                vote: Vote::Yes { prepared: STAMP, seen: VoteInfo::Dir { fixed: fixed() } },
            },
        ),
        ("prepare hold", PeerOp::Prepare { txn: TXN, origin: ORIGIN, work: hold() }),
        ("prepare ticket", PeerOp::Prepare { txn: TXN, origin: ORIGIN, work: ticket() }),
        ("want chain", PeerOp::WantChain { dir: DIR }),
        ("happened", PeerOp::ProvisionalCommit { txn: TXN }),
        ("links", PeerOp::Links { before: 5, links: vec![(FILE, Some(link())), (DIR, None)], after: 6 }),
        ("links held", PeerOp::LinksHeld { digest: 6 }),
        ("want links", PeerOp::WantLinks { after: FILE }),
        ("all links", PeerOp::AllLinks { after: DIR, upto: FILE, links: vec![(FILE, link())] }),
        ("leads", PeerOp::Leads { link: FILE, path: VolumePath::parse(b"/a/b").unwrap() }),
        ("leads to a directory", PeerOp::LeadsTo { link: FILE, led: LinkTarget::Directory }),
        ("leads to nothing", PeerOp::LeadsTo { link: FILE, led: LinkTarget::Nothing }),
        ("link used", PeerOp::LinkUsed { link: FILE, at: link().names.remove(0) }),
        ("leads elsewhere", PeerOp::LeadsTo { link: FILE, led: elsewhere() }),
        ("chain of", PeerOp::ChainOf { dir: DIR, chain: Some(chain()) }),
        ("voted same", PeerOp::Voted { txn: TXN, vote: Vote::Same }),
        ("voted moved", PeerOp::Voted { txn: TXN, vote: Vote::Moved }),
        ("voted need groups", PeerOp::Voted { txn: TXN, vote: Vote::NeedGroups }),
        ("prepare lend", PeerOp::Prepare { txn: TXN, origin: ORIGIN, work: lend() }),
        ("prepare count", PeerOp::Prepare { txn: TXN, origin: ORIGIN, work: count() }),
        ("prepare drop", PeerOp::Prepare { txn: TXN, origin: ORIGIN, work: drop_name() }),
        ("prepare renamed", PeerOp::Prepare { txn: TXN, origin: ORIGIN, work: renamed() }),
        ("prepare arrive", PeerOp::Prepare { txn: TXN, origin: ORIGIN, work: arrive() }),
        ("decided", PeerOp::Decided { txn: TXN, stamps: Some(stamps()), part: Some(Box::new(part(seal()))) }),
        ("aborted", PeerOp::Decided { txn: TXN, stamps: None, part: None }),
        ("stable", PeerOp::Stable { txns: vec![(TXN, STAMP)] }),
        ("ask", PeerOp::AskOutcome { txn: TXN }),
        (
            "journal",
            PeerOp::Journal {
                after: Stamp(1),
                entries: vec![
                    (STAMP, journal()),
                    (STAMP, journal_fixed(true)),
                    (STAMP, journal_fixed(false)),
                ],
                private: true,
            },
        ),
        ("applied", PeerOp::Applied { upto: STAMP, synced: true }),
        ("resend", PeerOp::Resend { after: STAMP }),
        ("want_end", PeerOp::WantJournalEnd { ask: 7 }),
        ("end", PeerOp::JournalEnd { ask: 7, upto: STAMP }),
        ("carried", PeerOp::CarriedOut { txn: TXN, stamps: stamps(), part: Box::new(part(adopt())) }),
        ("returned", PeerOp::ReturnedJournal { entries: vec![(STAMP, journal())] }),
        ("kept", PeerOp::JournalDurable { upto: STAMP }),
        ("skipped", PeerOp::JournalSkipped { upto: STAMP }),
        ("compare", PeerOp::Compare { round: 3, missed: vec![IslandId(2)], asks: vec![ask()] }),
        ("compared", PeerOp::Compared { round: 3, told: told() }),
        ("pull", PeerOp::Pull { txn: TXN, offset: 4096 }),
        ("chunk", PeerOp::Chunk { txn: TXN, offset: 4096, bytes: Bytes::from_static(b"bytes") }),
    ]
}

fn ask() -> DirQuestion {
    let (parent, name) = (Some(Ino::ROOT), Some(name("n")));
    DirQuestion {
        ino: DIR,
        parent,
        name,
        after: 9,
        place: PlaceVersion::default(),
        fixed: STAMP,
        wants_chain: true,
    }
}

fn told() -> Vec<DirAnswer> {
    let ancestors = chain().dirs;
    let is = DirReport::Differs { dir: ancestors[0].clone(), chain: ancestors.clone() };
    let goes = DirReport::Moves { place: ancestors[0].place.clone(), owner: IslandId(2) };
    let all = [DirReport::Same, is, DirReport::Gone, DirReport::NotUpTo { after: 9 }, goes];
    all.into_iter().map(|known| DirAnswer { ino: DIR, parent: None, known }).collect()
}

fn notices() -> Vec<(&'static str, Notice)> {
    let moved = Notice::Moved { ino: FILE, to: IslandId(2), moves: 3 };
    let changed =
        Notice::Changed { inos: vec![FILE, DIR], names: vec![EntryRef { dir: DIR, name: name("n") }] };
    let orphan = Notice::Orphan { ino: FILE };
    let recall_of = Notice::RecallOf { recall: 9, inos: vec![FILE, DIR] };
    vec![
        ("recall", Notice::Recall),
        ("orphan", orphan),
        ("moved", moved),
        ("changed", changed),
        ("recall of", recall_of),
    ]
}

fn seen_name() -> VoteInfo {
    VoteInfo::Name { there: Some(file_entry()), by: Some(1000), chain: Some(chain()) }
}

fn message(peer: PeerOp) -> PeerMessage {
    PeerMessage { from: IslandId(1), incarnation: 2, vector: vec![(IslandId(0), STAMP)], op: peer }
}

fn daemon() -> Daemon {
    Daemon {
        daemon: 1,
        cluster: 2,
        incarnation: 3,
        pid: 4,
        up_ms: 5,
        software: "atoll".to_owned(),
        data: "/data".to_owned(),
        addresses: vec!["a:1".to_owned()],
        links: 6,
        clock_ms: 7,
        certificate_until: Some(8),
        control: "etcd://e:1".to_owned(),
    }
}

fn summary() -> VolumeSummary {
    VolumeSummary {
        id: VolumeId(7),
        name: "home".to_owned(),
        kind: VolumeKind::Cluster,
        table: 1,
        islands: 3,
        nodes: vec!["a:1".to_owned(), String::new()],
        problem: Some("why".to_owned()),
    }
}

fn group_status() -> GroupStatus {
    GroupStatus {
        role: CopyRole::Leads,
        epoch: 3,
        primary: Some(NodeId(2)),
        in_sync: vec![NodeId(1), NodeId(2)],
        wanted: 3,
        joining: vec![(NodeId(4), 77)],
        epoch_ms: Some(1_000),
    }
}

fn status() -> ControlReply {
    let island = IslandStatus {
        island: IslandId(1),
        phase: IslandPhase::Normal,
        halted: None,
        read_only: Some(("a checkpoint".to_owned(), 10)),
        spilled: vec!["/d".to_owned()],
        metrics: vec![Metric::count(("requests", 1)), Metric::now("sessions", 6)],
        group: Some(group_status()),
        fill: Some(FillStatus {
            stage: FillStage::Bytes,
            files: 100,
            bytes: 1 << 30,
            files_left: 40,
            bytes_left: 1 << 29,
        }),
    };
    let volume = VolumeStatus {
        volume: summary(),
        node: NodeId(0),
        store: Some(NodeId(1)),
        islands: vec![island],
        others: vec![(NodeId(1), Connection::Down)],
        bytes: 8,
        bytes_available: 9,
    };
    let mount = MountStatus {
        volume: "home".to_owned(),
        kind: VolumeKind::Cluster,
        point: "/mnt".to_owned(),
        metrics: vec![Metric::count(("calls", 1)), Metric::now("directories", 4)],
        fuse: vec![FuseCount { operation: "LOOKUP".to_owned(), requests: 6, errors: 7 }],
        nodes: vec![NodeLink {
            node: NodeId(1),
            address: "b:2".to_owned(),
            islands: vec![IslandId(2)],
            connection: Connection::Direct,
        }],
    };
    let filling = Filling {
        copies: 3,
        copies_left: 2,
        files: 300,
        bytes: 1 << 31,
        files_left: 40,
        bytes_left: 1 << 29,
        done: 812,
        bytes_per_s: 1 << 24,
        left_ms: Some(32_000),
    };
    ControlReply::Status {
        daemon: daemon(),
        volumes: vec![volume],
        mounts: vec![mount],
        filling: Some(filling),
    }
}

fn union_orders() -> Vec<(&'static str, UnionOrder)> {
    let member = NamedMember {
        path: Bytes::from_static(b"/disk2"),
        read_only: true,
        empty_ok: false,
        pin: Some("ab-cd".to_owned()),
    };
    let path = VolumePath::parse(b"/a/b").unwrap();
    vec![
        ("status", UnionOrder::Status),
        ("join", UnionOrder::Join { member }),
        ("leave", UnionOrder::Leave { path: Bytes::from_static(b"/disk2"), force: true }),
        ("explain", UnionOrder::Explain { path: path.clone() }),
        ("conflicts", UnionOrder::Conflicts { dirs: vec![path.clone()], after: 7 }),
        ("resolve", UnionOrder::Resolve { path: path.clone(), keep: Bytes::from_static(b"/disk2") }),
        ("undelete", UnionOrder::Undelete { path }),
    ]
}

fn union_replies() -> Vec<(&'static str, UnionReply)> {
    let home = |role| HomeTold {
        member: "/disk1".to_owned(),
        kind: Kind::Regular,
        size: 3,
        mtime: TIME,
        ctime: TIME,
        role,
    };
    let name = Name::new(b"f.atoll-1").unwrap();
    let told = NameTold {
        name: Some(Name::new(b"f").unwrap()),
        homes: [RoleTold::Shown, RoleTold::Part, RoleTold::Beside { name }, RoleTold::Behind, RoleTold::Twin]
            .map(home)
            .to_vec(),
        why: "it was changed last".to_owned(),
        unasked: vec![("/disk3".to_owned(), "EIO".to_owned())],
        dir_homes: vec!["/disk1".to_owned()],
        place: vec!["/disk2".to_owned(), "/disk1".to_owned()],
    };
    vec![
        ("status", UnionReply::Status { status: union_status() }),
        ("done", UnionReply::Done),
        ("explained", UnionReply::Explained { told: told.clone() }),
        (
            "conflicts",
            UnionReply::Conflicts {
                told: vec![(2, told)],
                unread: vec![(1, "EIO".to_owned())],
                next: Some((3, 9)),
            },
        ),
        ("resolved", UnionReply::Resolved { removed: vec!["/disk2".to_owned()] }),
    ]
}

fn union_status() -> UnionStatus {
    let member = MemberStatus {
        path: "/disk1".to_owned(),
        tag: 7,
        file_system: "ab-cd".to_owned(),
        read_only: true,
        state: MemberCondition::Stuck,
        state_ms: 9,
        space: Some((100, 50)),
        watched: 3,
        checked: 2,
    };
    let settings = vec![("place".to_owned(), "dir".to_owned())];
    UnionStatus {
        name: Some("media".to_owned()),
        up_ms: 5,
        settings,
        bytes_go: BytesGo::NotAllowed,
        members: vec![member],
    }
}

fn controls() -> Vec<(&'static str, Control)> {
    vec![
        ("describe", Control::Describe),
        ("volume", Control::Volume { name: "home".to_owned() }),
        ("prepare", Control::Prepare { config: Box::new(config()), node: NodeId(1) }),
        ("activate", Control::Activate { volume: VolumeId(7) }),
        ("discard", Control::Discard { volume: VolumeId(7) }),
        ("status", Control::Status),
        ("trace", Control::Trace { volume: VolumeId(7), ino: FILE }),
        ("site", Control::Site { order: SiteOrder::List { volume: "docs".to_owned() } }),
        ("union", Control::Union { order: UnionOrder::Status }),
        ("group", Control::Group { volume: VolumeId(7), island: IslandId(1) }),
        (
            "swap group",
            Control::SwapGroup {
                volume: VolumeId(7),
                island: IslandId(1),
                expected: Revision(0x0102),
                next: group(),
            },
        ),
        ("groups", Control::Groups { volume: VolumeId(7), since: Revision(3), wait_ms: 2000 }),
        ("move island", Control::MoveIsland { volume: VolumeId(7), island: IslandId(1), to: NodeId(2) }),
        ("weigh", Control::Weigh { volume: VolumeId(7) }),
        ("cluster", Control::Cluster),
        ("swap cluster", Control::SwapCluster { expected: Revision(6), next: Box::new(cluster()) }),
        (
            "join",
            certify(CertificateFor::Join { daemon: 9, name: "n2".to_owned(), address: ":7100".to_owned() }),
        ),
        ("renewal", certify(CertificateFor::Renewal)),
        ("certificate of a client", certify(CertificateFor::Client { client: 5 })),
        ("seats", Control::Seats { volume: VolumeId(7) }),
        ("config", Control::Config { volume: VolumeId(7) }),
        ("swap config", Control::SwapConfig { expected: 6, next: Box::new(changed_copies()) }),
        ("certificate of etcd", certify(CertificateFor::Etcd)),
        ("list at", Control::ListAt { address: "10.0.0.9:7100".to_owned() }),
        ("force island", Control::ForceIsland { volume: VolumeId(7), island: IslandId(1), node: NodeId(2) }),
    ]
}

fn certify(purpose: CertificateFor) -> Control {
    Control::Certify { purpose, key: Bytes::from_static(b"key") }
}

fn cluster() -> Cluster {
    let key = Bytes::from_static(b"key");
    let node = ClusterNode {
        daemon: 9,
        name: "n1".to_owned(),
        address: "10.0.0.1:7100".to_owned(),
        joined: 0x0102,
        key: key.clone(),
        has_ca_key: true,
    };
    let path = VolumePath::parse(b"/a/b").unwrap();
    let subtree = Some(Subtree { dir: DIR, key: Key(7), path });
    let grant = Grant { volume: Some(VolumeId(7)), read_only: true, squash: Some((1000, 100)), subtree };
    Cluster {
        id: 3,
        store: 9,
        nodes: vec![node],
        clients: vec![ClusterClient { client: 5, name: "laptop".to_owned(), added: 0x0103, grant }],
        invitations: vec![Invitation { guest: key, until: 0x0104, used_by: Some(9) }],
        control: ControlPlace::Etcd { text: "etcd://e:1".to_owned() },
    }
}

fn stored_cluster() -> StoredCluster {
    StoredCluster { revision: Revision(6), cluster: cluster() }
}

fn stored() -> StoredGroup {
    StoredGroup { island: IslandId(1), revision: Revision(0x0102), record: group() }
}

fn control_replies() -> Vec<(&'static str, ControlReply)> {
    let trace = Trace {
        island: IslandId(1),
        node: NodeId(2),
        owns: true,
        skeleton: false,
        home: true,
        tree: "/tree".to_owned(),
        body: Some("/body".to_owned()),
        group: Some(group_status()),
        site: None,
    };
    let of_site = SiteTrace {
        object: 7 << 64,
        by: "s1".to_owned(),
        changed_ms: 1_700_000_000_000,
        is_behind: true,
        is_uncut: false,
        versions: 2,
        names: vec![Bytes::from_static(b"a")],
        is_rescued: true,
        copy_of: Some(6 << 64),
    };
    let at_site = Trace { site: Some(of_site), ..trace.clone() };
    vec![
        ("done", ControlReply::Done),
        ("refused", ControlReply::Refused { text: "no".to_owned() }),
        ("described", ControlReply::Described { daemon: daemon(), volumes: vec![summary()] }),
        (
            "volume",
            ControlReply::Volume {
                config: Box::new(config()),
                node: Some(NodeId(1)),
                from: vec!["a:1".to_owned()],
                root: Some((DIR, Key(7))),
            },
        ),
        ("status", status()),
        ("traces", ControlReply::Traces { traces: vec![trace] }),
        ("traces at a site", ControlReply::Traces { traces: vec![at_site] }),
        ("union", ControlReply::Union { reply: UnionReply::Status { status: union_status() } }),
        ("site", ControlReply::Site { reply: SiteReply::Done }),
        ("group", ControlReply::Group { group: Some(stored()) }),
        ("no group", ControlReply::Group { group: None }),
        ("swapped", ControlReply::Swapped { swapped: Swapped::Done { revision: Revision(4) } }),
        ("conflict", ControlReply::Swapped { swapped: Swapped::Conflict }),
        ("cluster", ControlReply::Cluster { cluster: Some(Box::new(stored_cluster())) }),
        (
            "weights",
            ControlReply::Weights {
                weights: vec![IslandWeight { island: IslandId(1), dirs: 0x0203, files: 4, bytes: 5 }],
            },
        ),
        ("no cluster", ControlReply::Cluster { cluster: None }),
        (
            "seats",
            ControlReply::Seats {
                seats: vec![ToldSeat { island: IslandId(1), seen: 9, record: Some(stored()) }],
            },
        ),
        (
            "issued",
            ControlReply::Issued {
                issued: Box::new(Issued {
                    certificate: Bytes::from_static(b"leaf"),
                    ca: Bytes::from_static(b"ca"),
                    ca_key: Bytes::from_static(b"secret"),
                    cluster: stored_cluster(),
                }),
            },
        ),
        ("unknown", ControlReply::Swapped { swapped: Swapped::Unknown { why: "its disk".to_owned() } }),
        (
            "groups",
            ControlReply::Groups { changed: ChangedGroups { upto: Revision(5), groups: vec![stored()] } },
        ),
    ]
}

pub fn all() -> Vec<Samples> {
    let mut requests: Vec<(&str, Request)> = Vec::new();
    requests.extend(client_ops().into_iter().map(|(name, op)| (name, request(op))));
    let plain = |op| Request { vector: Vec::new(), caller: Caller::ROOT, ..request(ClientOp::Fs { op }) };
    requests.extend(ops().into_iter().map(|(name, op)| (name, plain(op))));
    let mut replies: Vec<(&str, Reply)> = Vec::new();
    let vector = || vec![(IslandId(1), STAMP)];
    replies.extend(
        outcomes()
            .into_iter()
            .map(|(name, outcome)| (name, Reply { vector: vector(), may_keep: MayKeep::Yes, outcome })),
    );
    replies.extend(answers().into_iter().map(|(name, answer)| {
        (
            name,
            Reply {
                vector: Vec::new(),
                may_keep: MayKeep::Yes,
                outcome: Outcome::Ok { answer, keys: Vec::new() },
            },
        )
    }));
    vec![
        samples("client_op", (1..=12).chain(15..=20).chain(30..=36), client_ops()),
        samples("op", 1..=29, ops()),
        samples("request", [], requests),
        samples("outcome", (1..=11).chain([13]).chain(20..=24).chain([30]), outcomes()),
        samples("answer", 1..=11, answers()),
        samples("reply", [], replies),
        samples("notice", 1..=5, notices()),
        samples(
            "handle",
            1..=2,
            vec![
                ("file", FileHandle::File { ino: FILE, home: IslandId(2) }),
                ("directory", FileHandle::Dir { ino: DIR, key: Key(7) }),
            ],
        ),
        samples("peer", (1..=18).chain(30..=36).chain(40..=42), peers()),
        samples(
            "peer_message",
            [],
            vec![("hello", message(PeerOp::Hello)), ("ask", message(PeerOp::AskOutcome { txn: TXN }))],
        ),
        samples("control", 1..=22, controls()),
        samples("control_reply", 1..=15, control_replies()),
        samples("site_order", 1..=11, site_orders()),
        samples("site_reply", 1..=8, site_replies()),
        samples("union_order", 1..=7, union_orders()),
        samples("union_reply", 1..=5, union_replies()),
    ]
}
