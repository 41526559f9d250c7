//! What the simulator has found, each as the shortest sequence that shows it.

use atoll_core::{H3, Ino, Key, Name, NodeId, SessionId};
use atoll_disk::sim::Fault;
use atoll_model::{Step, Strictness};
use atoll_posix::{
    Allocation, Answer, Caller, Errno, Kind, LockKind, LockRange, Op, RenameMode, SetAttr, XattrMode,
};
use atoll_sim::{Config, Judge, Verdict, World, invariants};
use bytes::Bytes;

mod plain;

/// A world with its judge, and words for short sequences.
struct Bench {
    world: World,
    judge: Judge,
}

const USER: Caller = Caller { uid: 1000, gid: 1000, groups: Some(Vec::new()) };

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

impl Bench {
    fn new(config: Config) -> Self {
        let mut world = World::new(config).unwrap();
        let judge = Judge::new(&mut world).unwrap();
        Self { world, judge }
    }

    /// Runs an operation of a client; the world must do as the model does.
    fn by(&mut self, client: usize, caller: &Caller, op: Op, data: &[u8]) {
        let session = SessionId(client as u64 + 1);
        let data = Bytes::copy_from_slice(data);
        let step = Step { session, caller: caller.clone(), op, data };
        self.judge.run(&mut self.world, client, &step).unwrap_or_else(|e| panic!("{e}"));
    }

    fn root(&mut self, op: Op) {
        self.by(0, &Caller::ROOT, op, &[]);
    }

    fn mkdir(&mut self, dir: Ino, n: &str) -> Ino {
        self.root(Op::Mkdir { dir, name: name(n), mode: 0o755, umask: 0 });
        self.ino(dir, n)
    }

    fn file(&mut self, dir: Ino, n: &str, mode: u32) -> Ino {
        self.root(create(dir, n, mode));
        self.ino(dir, n)
    }

    fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) {
        let op = Op::Write { ino, offset, append: false, kill_set_id: false };
        self.by(0, &Caller::ROOT, op, data);
    }

    fn ino(&self, dir: Ino, n: &str) -> Ino {
        let n = name(n);
        self.judge.model.children(dir).find(|(other, _)| **other == n).map(|(_, ino)| ino).unwrap()
    }

    /// At rest the tree is the model's, and the rows hold together.
    fn end(mut self) {
        self.world.settle().unwrap();
        self.judge.compare_trees(&mut self.world, Strictness::FULL).unwrap_or_else(|e| panic!("{e}"));
        invariants(&mut self.world).unwrap_or_else(|e| panic!("{e}"));
    }
}

fn create(dir: Ino, n: &str, mode: u32) -> Op {
    let target = Bytes::new();
    Op::Create { dir, name: name(n), kind: Kind::Regular, mode, umask: 0, rdev: 0, exclusive: true, target }
}

fn rename(n: &str, new_name: &str, mode: RenameMode) -> Op {
    let (dir, new_dir) = (Ino::ROOT, Ino::ROOT);
    Op::Rename { dir, name: name(n), new_dir, new_name: name(new_name), mode, meant: None, new_meant: None }
}

fn lock(kind: LockKind, flock: bool) -> LockRange {
    LockRange { start: 0, end: u64::MAX, kind, owner: 1, pid: 1, flock }
}

/// A name in the root for a directory of which another island than the root's is the owner.
fn foreign(config: &Config, but: &[String]) -> String {
    let table = atoll_core::Table::new(config.islands);
    let h3 = H3::new(config.seed);
    let owner = |n: &str| table.owner(h3.path([&name(n)]).unwrap().key());
    let root = table.owner(Key(0));
    (0..).map(|i| format!("d{i}")).find(|n| owner(n) != root && !but.contains(n)).unwrap()
}

#[test]
fn bytes_are_copied_within_one_file() {
    let mut bench = Bench::new(Config::new(1, 1));
    let ino = bench.file(Ino::ROOT, "f", 0o644);
    bench.write(ino, 0, &[7; 9000]);
    bench.root(Op::CopyRange { from: ino, from_offset: 0, to: ino, to_offset: 20_000, len: 5000 });
    bench.write(ino, 100, b"the body is free again");
    bench.end();
}

#[test]
fn zeroing_past_the_end_leaves_right_checksums() {
    let mut bench = Bench::new(Config::new(1, 1));
    let ino = bench.file(Ino::ROOT, "f", 0o644);
    bench.write(ino, 0, &[7; 5000]);
    let what = Allocation::ZeroRange { keep_size: false };
    bench.root(Op::Fallocate { ino, offset: 0, len: 12_736, what });
    bench.write(ino, 79, b"reads the block that it changes");
    bench.root(Op::Read { ino, offset: 0, len: 20_000 });
    bench.end();
}

#[test]
fn changes_of_bytes_by_others_than_root_take_set_id_bits() {
    let mut bench = Bench::new(Config::new(1, 1));
    let ino = bench.file(Ino::ROOT, "f", 0o6777);
    bench.write(ino, 0, &[7; 9000]);
    let copy = Op::CopyRange { from: ino, from_offset: 0, to: ino, to_offset: 20_000, len: 5000 };
    let allocate = |what| Op::Fallocate { ino, offset: 0, len: 5000, what };
    let keep_size = true;
    for op in [copy, allocate(Allocation::Allocate { keep_size }), allocate(Allocation::PunchHole)] {
        bench.root(Op::SetAttr { ino, set: SetAttr { mode: Some(0o6777), ..SetAttr::default() } });
        bench.by(0, &USER, op, &[]);
        bench.root(Op::GetAttr { ino });
    }
    bench.end();
}

/// The time of change of a removed directory is by the clock of the island that owned it, and not of the one that removed the name.
#[test]
fn taking_away_an_acl_that_a_removed_directory_has_not_changes_nothing() {
    let mut config = Config::new(1, 2);
    config.mounts = true;
    let n = foreign(&config, &[]);
    let mut bench = Bench::new(config);
    let ino = bench.mkdir(Ino::ROOT, &n);
    bench.root(Op::Rmdir { dir: Ino::ROOT, name: name(&n), meant: None });
    let step = |op| Step { session: SessionId(1), caller: Caller::ROOT, op, data: Bytes::new() };
    let remove = step(Op::RemoveXattr { ino, name: Bytes::from_static(b"system.posix_acl_access") });
    let verdict = bench.judge.run(&mut bench.world, 0, &remove).unwrap_or_else(|e| panic!("{e}"));
    assert!(matches!(verdict, Verdict::Same), "it was not asked");
    bench.end();
}

#[test]
fn static_attributes_reach_a_stub_whose_island_has_counted_further() {
    let config = Config::new(1, 2);
    let child = foreign(&config, &[]);
    let mut bench = Bench::new(config);
    for i in 0..5 {
        // The root's owner gives stamps; the directory's owner has given none.
        bench.mkdir(Ino::ROOT, &format!("x{i}"));
    }
    let ino = bench.mkdir(Ino::ROOT, &child);
    bench.root(Op::SetAttr { ino, set: SetAttr { mode: Some(0o700), ..SetAttr::default() } });
    bench.root(Op::Lookup { dir: Ino::ROOT, name: name(&child) });
    bench.end();
}

#[test]
fn a_rename_says_what_is_there_before_who_may() {
    let mut bench = Bench::new(Config::new(1, 1));
    bench.file(Ino::ROOT, "a", 0o644);
    bench.file(Ino::ROOT, "b", 0o644);
    bench.by(0, &USER, rename("a", "b", RenameMode::NoReplace), &[]);
    bench.by(0, &USER, rename("a", "c", RenameMode::Exchange), &[]);
    bench.by(0, &USER, rename("a", "a", RenameMode::Replace), &[]);
    bench.by(0, &USER, rename("a", "b", RenameMode::Replace), &[]);
    bench.end();
}

#[test]
fn a_rename_says_who_may_write_a_directory_before_what_is_in_its_way() {
    let mut bench = Bench::new(Config::new(1, 1));
    let open = |bench: &mut Bench, n: &str| {
        let ino = bench.mkdir(Ino::ROOT, n);
        bench.root(Op::SetAttr { ino, set: SetAttr { mode: Some(0o777), ..SetAttr::default() } });
        ino
    };
    let (dir, new_dir) = (open(&mut bench, "from"), open(&mut bench, "to"));
    bench.mkdir(dir, "d");
    let there = bench.mkdir(new_dir, "d");
    bench.file(there, "f", 0o644);
    let mode = RenameMode::Replace;
    let rename =
        Op::Rename { dir, name: name("d"), new_dir, new_name: name("d"), mode, meant: None, new_meant: None };
    bench.by(0, &USER, rename.clone(), &[]);
    bench.root(rename);
    bench.end();
}

/// A kernel refuses to put something over a directory above it with `ENOTEMPTY`, before it looks at who asks. If another
/// mount has just moved that directory there, the kernel does not know, and the island says what it sees first.
#[test]
fn a_rename_over_a_directory_above_it_may_be_told_first_who_may_not_or_what_is_there() {
    let mut bench = Bench::new(Config::new(1, 1));
    let dir = bench.mkdir(Ino::ROOT, "d");
    bench.file(dir, "f", 0o644);
    bench.mkdir(dir, "below");
    let over = |from: &str| {
        let (name, new_dir, new_name) = (name(from), Ino::ROOT, name("d"));
        Op::Rename { dir, name, new_dir, new_name, mode: RenameMode::Replace, meant: None, new_meant: None }
    };
    let mode = |bench: &mut Bench, ino, mode| {
        bench.root(Op::SetAttr { ino, set: SetAttr { mode: Some(mode), ..SetAttr::default() } });
    };
    // The modes of the old directory and of the new one, and what the island says of the file and of the directory.
    for (old_mode, new_mode, of_file, of_dir) in [
        (0o755, 0o755, Errno::EACCES, Errno::EACCES),
        (0o777, 0o755, Errno::EACCES, Errno::EACCES),
        (0o777, 0o1777, Errno::EPERM, Errno::EPERM),
        (0o777, 0o777, Errno::EISDIR, Errno::EACCES),
    ] {
        mode(&mut bench, dir, old_mode);
        mode(&mut bench, Ino::ROOT, new_mode);
        for (from, says) in [("f", of_file), ("below", of_dir)] {
            bench.by(0, &USER, over(from), &[]);
            let got = bench.world.run(0, &USER, over(from), Bytes::new()).unwrap();
            assert_eq!(got, Err(says), "{from}, modes {old_mode:o} and {new_mode:o}");
        }
    }
    bench.root(over("f"));
    bench.root(over("below"));
    bench.end();
}

#[test]
fn acls_are_set_and_removed_whether_or_not_they_are_there() {
    const ACL: &[u8] = &[
        2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 232, 3, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255,
        16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 1, 0, 255, 255, 255, 255,
    ];
    let mut bench = Bench::new(Config::new(1, 1));
    let dir = bench.mkdir(Ino::ROOT, "d");
    let acl = Bytes::from_static(b"system.posix_acl_access");
    let set = |mode| Op::SetXattr {
        ino: dir,
        name: Bytes::from_static(b"system.posix_acl_access"),
        value: Bytes::from_static(ACL),
        mode,
        kill_sgid: false,
    };
    bench.root(Op::RemoveXattr { ino: dir, name: acl });
    bench.root(Op::GetAttr { ino: dir });
    bench.root(set(XattrMode::Replace));
    bench.root(set(XattrMode::Create));
    bench.end();
}

#[test]
fn locks_go_with_what_they_were_on() {
    let mut config = Config::new(1, 1);
    config.clients = 2;
    let mut bench = Bench::new(config);
    let (file, dir) = (bench.file(Ino::ROOT, "f", 0o644), bench.mkdir(Ino::ROOT, "d"));
    bench.root(create(Ino::ROOT, "other", 0o644));
    for ino in [file, dir] {
        bench.root(Op::SetLock { ino, lock: lock(LockKind::Write, true), wait: false });
    }
    bench.root(Op::Unlink { dir: Ino::ROOT, name: name("f") });
    bench.root(Op::Rmdir { dir: Ino::ROOT, name: name("d"), meant: None });
    bench.end();
}

#[test]
fn a_lock_that_was_given_up_for_another_kind_is_not_held() {
    let mut config = Config::new(1, 1);
    config.clients = 2;
    let mut bench = Bench::new(config);
    let ino = bench.file(Ino::ROOT, "f", 0o644);
    for client in [0, 1] {
        let op = Op::SetLock { ino, lock: lock(LockKind::Read, true), wait: false };
        bench.by(client, &Caller::ROOT, op, &[]);
    }
    // The other one's stands in the way; the own one is gone all the same.
    bench.root(Op::SetLock { ino, lock: lock(LockKind::Write, true), wait: false });
    bench.end();
}

#[test]
fn an_orphan_that_one_mount_closes_keeps_no_lock_of_it() {
    let mut config = Config::new(1, 1);
    (config.clients, config.mounts, config.rows_max) = (2, true, 1);
    let mut bench = Bench::new(config);
    let ino = bench.file(Ino::ROOT, "f", 0o644);
    let op = Op::SetLock { ino, lock: lock(LockKind::Read, false), wait: false };
    bench.by(1, &Caller::ROOT, op, &[]);
    bench.root(Op::Unlink { dir: Ino::ROOT, name: name("f") });
    bench.world.forget(1, &[ino]);
    bench.world.run_for(500_000).unwrap();
    invariants(&mut bench.world).unwrap_or_else(|e| panic!("{e}"));
    bench.judge.close_orphans(&mut bench.world);
    bench.world.run_for(500_000).unwrap();
    bench.end();
}

#[test]
fn an_island_that_died_confirms_the_journal_that_it_had_applied() {
    let mut bench = Bench::new(Config::new(1, 2));
    let set = SetAttr { mode: Some(0o711), ..SetAttr::default() };
    bench.root(Op::SetAttr { ino: Ino::ROOT, set });
    for node in [0, 1] {
        bench.world.kill(NodeId(node), Fault::ProcessDeath);
    }
    // It settles only when no journal entry waits to be confirmed.
    bench.end();
}

/// Runs an operation on a directory while its client's links break at each moment of it.
fn broken_at_each_moment(islands: u16, op: impl Fn(&Config) -> Op, good: impl Fn(&Answer) -> bool) {
    for at in 0..60 {
        let mut config = Config::new(7, islands);
        (config.rows_max, config.delay_us_max) = (1, 400);
        let op = op(&config);
        let mut bench = Bench::new(config);
        let token = bench.world.call(0, &Caller::ROOT, op, Bytes::new(), 0);
        bench.world.run_for(at * 60).unwrap();
        bench.world.break_client_links(0);
        let until = bench.world.now_us() + 30_000_000;
        let done = loop {
            if let Some(done) = bench.world.poll(0, token) {
                break done;
            }
            assert!(
                bench.world.now_us() < until,
                "{islands} islands, broken after {} us: no answer",
                at * 60
            );
            bench.world.step().unwrap();
        };
        let fine = done.as_ref().is_ok_and(|(answer, _)| good(answer));
        assert!(fine, "{islands} islands, broken after {} us: {done:?}", at * 60);
        bench.world.settle().unwrap();
        invariants(&mut bench.world).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn a_mkdir_is_carried_out_once_whenever_its_link_breaks() {
    for islands in [1, 3] {
        let mkdir = |config: &Config| {
            let n = if islands == 1 { "d".to_owned() } else { foreign(config, &[]) };
            Op::Mkdir { dir: Ino::ROOT, name: name(&n), mode: 0o755, umask: 0 }
        };
        let made =
            |answer: &Answer| matches!(answer, Answer::Found { found } if found.attr.kind == Kind::Directory);
        broken_at_each_moment(islands, mkdir, made);
    }
}

#[test]
fn a_repeated_request_is_answered_where_its_repetition_came_from() {
    let set = SetAttr { mode: Some(0o711), ..SetAttr::default() };
    let chmod = |_: &Config| Op::SetAttr { ino: Ino::ROOT, set };
    broken_at_each_moment(3, chmod, |answer| matches!(answer, Answer::Attr { attr } if attr.mode == 0o711));
}

#[test]
fn a_file_that_was_fsynced_keeps_its_directory_whose_name_was_not() {
    for seed in 0..30 {
        let config = Config::new(seed, 2);
        let (n, owner) = (foreign(&config, &[]), atoll_core::Table::new(config.islands).owner(Key(0)));
        let mut bench = Bench::new(config);
        let dir = bench.mkdir(Ino::ROOT, &n);
        let file = bench.file(dir, "f", 0o644);
        bench.write(file, 0, b"kept");
        bench.root(Op::Fsync { ino: file });
        // The root's owner has the name; it was never asked to sync it.
        bench.world.kill(NodeId(owner.0), Fault::PowerCut { seed });
        bench.end();
    }
}

#[test]
fn a_change_of_a_directory_that_others_have_applied_is_brought_back() {
    for seed in 0..30 {
        let config = Config::new(seed, 3);
        let one = foreign(&config, &[]);
        let mut bench = Bench::new(config);
        let dir = bench.mkdir(Ino::ROOT, &one);
        bench.mkdir(dir, "below");
        let set = SetAttr { mode: Some(0o711), ..SetAttr::default() };
        bench.root(Op::SetAttr { ino: dir, set });
        let (name_of, new_name) = (name(&one), name("renamed"));
        let mode = RenameMode::Replace;
        bench.root(Op::Rename {
            dir: Ino::ROOT,
            name: name_of,
            new_dir: Ino::ROOT,
            new_name,
            mode,
            meant: None,
            new_meant: None,
        });
        for node in 0..3 {
            bench.world.kill(NodeId(node), Fault::PowerCut { seed: seed + u64::from(node) });
            bench.world.settle().unwrap();
        }
        bench.end();
    }
}

#[test]
fn a_deep_tree_goes_while_islands_still_hear_of_what_was_below() {
    for seed in 0..60 {
        let mut config = Config::new(seed, 4);
        config.delay_us_max = 4_000;
        let mut bench = Bench::new(config);
        let mut dirs = vec![Ino::ROOT];
        for _ in 0..14 {
            let last = *dirs.last().unwrap();
            dirs.push(bench.mkdir(last, "d"));
        }
        for dir in dirs.iter().rev().skip(1) {
            bench.root(Op::Rmdir { dir: *dir, name: name("d"), meant: None });
        }
        bench.end();
    }
}

#[test]
fn synced_bytes_below_a_write_that_is_lost_are_there() {
    const OLD: u8 = 7;
    const NEW: u8 = 9;
    for seed in 0..40 {
        let mut bench = Bench::new(Config::new(seed, 1));
        let ino = bench.file(Ino::ROOT, "f", 0o644);
        bench.write(ino, 0, &[OLD; 1000]);
        bench.root(Op::Fsync { ino });
        bench.write(ino, 66, &[NEW; 40_000]);
        bench.world.kill(NodeId(0), Fault::PowerCut { seed });
        bench.world.settle().unwrap();
        let read = Op::Read { ino, offset: 0, len: 1000 };
        let got = bench.world.run(0, &Caller::ROOT, read, Bytes::new()).unwrap().unwrap().1;
        assert_eq!(got.len(), 1000);
        let wrong = (0..1000).find(|i| got[*i] != OLD && (*i < 66 || got[*i] != NEW));
        assert_eq!(wrong, None, "seed {seed}: {}", got[wrong.unwrap_or(0)]);
        invariants(&mut bench.world).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// What a process that died has put into bodies is in the kernel's memory only. The next life must sync it before
/// it says that it is safe, and before a checkpoint lets go of the log.
#[test]
fn what_a_process_had_put_in_place_when_it_died_is_synced_by_the_next_one() {
    for (seed, checkpoint) in (0..40).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut bench = Bench::new(Config::new(seed, 1));
        let (carried, large) =
            (bench.file(Ino::ROOT, "carried", 0o644), bench.file(Ino::ROOT, "large", 0o644));
        bench.write(carried, 0, &[1; 9000]);
        bench.write(large, 0, &[2; 90_000]);
        let fsync = |bench: &mut Bench| {
            bench.root(Op::Fsync { ino: carried });
            bench.root(Op::Fsync { ino: large });
        };
        if checkpoint {
            fsync(&mut bench);
        }
        bench.world.kill(NodeId(0), Fault::ProcessDeath);
        bench.world.settle().unwrap();
        if checkpoint {
            bench.world.checkpoint_all().unwrap();
        } else {
            fsync(&mut bench);
        }
        bench.world.kill(NodeId(0), Fault::PowerCut { seed });
        bench.world.settle().unwrap();
        bench.root(Op::Read { ino: carried, offset: 0, len: 9000 });
        bench.root(Op::Read { ino: large, offset: 0, len: 90_000 });
        invariants(&mut bench.world).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

/// After a failed sync the kernel has what it has lost, until the power fails.
#[test]
fn what_a_failed_sync_has_lost_is_written_again_by_the_next_life() {
    for seed in 0..40 {
        let mut bench = Bench::new(Config::new(seed, 1));
        let file = bench.file(Ino::ROOT, "f", 0o644);
        bench.write(file, 0, &[1; 90_000]);
        bench.root(Op::Fsync { ino: file });
        bench.write(file, 100, &[2; 70_000]);
        bench.world.fail_disk(NodeId(0), 1, false);
        // The sync fails, the island halts, starts again, and is asked again.
        bench.root(Op::Fsync { ino: file });
        bench.world.kill(NodeId(0), Fault::PowerCut { seed });
        bench.world.settle().unwrap();
        bench.root(Op::Read { ino: file, offset: 0, len: 90_000 });
    }
}

#[test]
fn a_directory_whose_owner_is_away_is_never_told_as_another() {
    let mut config = Config::new(3, 3);
    config.clients = 2;
    let (first, second) = (foreign(&config, &[]), "second".to_owned());
    let seed_table = atoll_core::Table::new(config.islands);
    let owner = seed_table.owner(H3::new(config.seed).path([&name(&first)]).unwrap().key());
    let mut bench = Bench::new(config);
    let ino = bench.mkdir(Ino::ROOT, &first);
    bench.mkdir(Ino::ROOT, &second);
    // The second client learns the directory under its first name, which then becomes another's.
    bench.by(1, &Caller::ROOT, Op::Lookup { dir: Ino::ROOT, name: name(&first) }, &[]);
    bench.root(rename(&first, "moved", RenameMode::Replace));
    bench.root(rename(&second, &first, RenameMode::Replace));
    bench.world.hold_down(NodeId(owner.0));
    bench.world.run_for(1_000_000).unwrap();
    let token = bench.world.call(1, &Caller::ROOT, Op::GetAttr { ino }, Bytes::new(), 0);
    bench.world.run_for(1_000_000).unwrap();
    // Nobody else has a skeleton of it: the client waits for the owner, and is told the truth.
    bench.world.settle().unwrap();
    match bench.world.poll(1, token) {
        Some(Ok((Answer::Attr { attr }, _))) => assert_eq!(attr.ino, ino),
        other => assert_eq!(other, Some(Err(Errno::EIO))),
    }
    bench.end();
}
