//! Orders of calls and answers that seeds have found, each with its name.

use atoll_core::Ino;
use atoll_posix::{Answer, DirEntry, Errno, Kind, Op, RenameMode};
use atoll_union::{Finished, NativeCall, PlaceRule, SameRule, Settings};
use bytes::Bytes;

use super::members::{Members, name};
use super::process::Process;
use super::rest::ask;

fn union(members: &mut Members, settings: Settings) -> Process {
    members.now_ns += 1_000_000_000;
    let of = (0..members.len()).map(|at| (at, false)).collect();
    Process::new(0, members, of, settings, true)
}

fn look(dir: Ino, text: &str) -> Op {
    Op::Lookup { dir, name: name(text) }
}

fn create(dir: Ino, text: &str) -> Op {
    let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
    Op::Create { dir, name: name(text), kind, mode, umask, rdev, exclusive, target: Bytes::new() }
}

fn rename(from: &str, to: &str) -> Op {
    let (dir, new_dir, mode) = (Ino::ROOT, Ino::ROOT, RenameMode::Replace);
    Op::Rename { dir, name: name(from), new_dir, new_name: name(to), mode, meant: None, new_meant: None }
}

fn list(dir: Ino, after: u64, bytes: u32) -> Op {
    Op::ReadDir { dir, after, bytes, plus: false }
}

fn entries(listed: Result<Finished, Errno>) -> (Vec<DirEntry>, bool) {
    match listed.map(|finished| finished.answer) {
        Ok(Answer::Entries { entries, eof }) => (entries, eof),
        other => panic!("{other:?}"),
    }
}

fn ino(found: Result<Finished, Errno>) -> Ino {
    match found.map(|finished| finished.answer) {
        Ok(Answer::Found { found }) => found.attr.ino,
        other => panic!("{other:?}"),
    }
}

/// Starts an operation and makes its first calls. Nothing is told of their answers yet.
fn begin(members: &mut Members, process: &mut Process, op: Op) -> u64 {
    let task = process.start(members, op, Bytes::new());
    for at in 0..process.calls.len() {
        if process.calls[at].task == task {
            process.make(members, at);
        }
    }
    task
}

/// Goes on with an operation until the first member has what it makes, and the machine was not told yet.
fn until_made(members: &mut Members, process: &mut Process, task: u64, path: &str) {
    while members.now(0).get(path).is_none() {
        let at = process.calls.iter().position(|call| call.task == task).expect("a call");
        if process.calls[at].answer.is_none() {
            process.make(members, at);
        } else {
            process.tell(members, at);
        }
    }
}

/// Tells of these answers, and does the rest.
fn end(members: &mut Members, process: &mut Process, task: u64) -> Result<Finished, Errno> {
    while let Some(at) = process.calls.iter().position(|call| call.task == task) {
        if process.calls[at].answer.is_none() {
            process.make(members, at);
        }
        process.tell(members, at);
    }
    let at = process.ended.iter().position(|(ended, _)| *ended == task).expect("it has ended");
    process.ended.remove(at).1
}

#[test]
fn a_name_that_is_made_while_its_directory_is_read_is_not_hidden() {
    let mut members = Members::new(1, 1_000);
    let mut process = union(&mut members, Settings::default());
    let listing = begin(&mut members, &mut process, list(Ino::ROOT, 0, 1_000));
    ask(&mut members, &mut process, create(Ino::ROOT, "a")).unwrap();
    end(&mut members, &mut process, listing).unwrap();
    ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
}

#[test]
fn a_name_that_a_program_makes_while_its_directory_is_read_is_seen_as_soon_as_it_is_told_of() {
    let mut members = Members::new(1, 1_000);
    let mut process = union(&mut members, Settings::default());
    let listing = begin(&mut members, &mut process, list(Ino::ROOT, 0, 1_000));
    members.put(0, "a", None).unwrap();
    process.keep_house(&mut members);
    end(&mut members, &mut process, listing).unwrap();
    ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
}

#[test]
fn a_listing_that_is_told_of_late_does_not_hide_what_was_read_since() {
    let mut members = Members::new(1, 1_000);
    // No member tells of changes, so what was read counts for a while.
    let mut process = Process::new(0, &members, vec![(0, false)], Settings::default(), false);
    let late = begin(&mut members, &mut process, list(Ino::ROOT, 0, 1_000));
    members.now_ns += 1_000_000_000;
    members.put(0, "a", None).unwrap();
    members.now_ns += 1_000_000_000;
    ask(&mut members, &mut process, list(Ino::ROOT, 0, 1_000)).unwrap();
    end(&mut members, &mut process, late).unwrap();
    ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
}

#[test]
fn an_old_lookup_does_not_undo_that_a_name_was_made() {
    let mut members = Members::new(1, 1_000);
    let mut process = union(&mut members, Settings::default());
    ask(&mut members, &mut process, list(Ino::ROOT, 0, 1_000)).unwrap();
    // The name must be looked at: a program has made and removed it.
    members.put(0, "a", None).unwrap();
    members.remove(0, "a").unwrap();
    process.keep_house(&mut members);
    let lookup = begin(&mut members, &mut process, look(Ino::ROOT, "a"));
    ask(&mut members, &mut process, create(Ino::ROOT, "a")).unwrap();
    // Either answer is right: the lookup began before the name was made.
    let _ = end(&mut members, &mut process, lookup);
    ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
}

#[test]
fn an_old_lookup_does_not_take_a_directory_from_the_member_where_it_was_made_since() {
    let mut members = Members::new(2, 1_000);
    members.mkdir(1, "a", 0o755).unwrap();
    let mut process = union(&mut members, Settings { place: PlaceRule::First, ..Settings::default() });
    let dir = ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
    members.now_ns += 600_000_000;
    let lookup = begin(&mut members, &mut process, look(Ino::ROOT, "a"));
    // The first member gets the directory now, with this file in it.
    let making = begin(&mut members, &mut process, create(dir, "b"));
    until_made(&mut members, &mut process, making, "a/b");
    assert_eq!(ino(end(&mut members, &mut process, lookup)), dir);
    ino(end(&mut members, &mut process, making));
}

#[test]
fn a_name_that_no_member_can_take_now_is_refused_because_of_the_disk() {
    let mut members = Members::new(2, 1_000);
    members.mkdir(0, "a", 0o755).unwrap();
    let mut process = union(&mut members, Settings { place: PlaceRule::Existing, ..Settings::default() });
    let dir = ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
    ask(&mut members, &mut process, list(dir, 0, 1_000)).unwrap();
    members.set_away(0, true);
    process.keep_house(&mut members);
    assert_eq!(ask(&mut members, &mut process, create(dir, "b")), Err(Errno::EIO));
}

#[test]
fn an_open_file_that_a_program_removed_is_not_the_one_that_gets_its_number() {
    let mut members = Members::new(1, 1_000);
    members.put(0, "a", None).unwrap();
    let mut process = union(&mut members, Settings::default());
    let old = ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
    let number = members.now(0).get("a").map(|node| node.stat.id.ino);
    members.remove(0, "a").unwrap();
    members.now_ns += 2_000_000_000;
    members.put(0, "b", None).unwrap();
    assert_eq!(members.now(0).get("b").map(|node| node.stat.id.ino), number, "the number is used again");
    let new = ino(ask(&mut members, &mut process, look(Ino::ROOT, "b")));
    assert_ne!(old, new);
    let read = |ino| Op::Read { ino, offset: 0, len: 100 };
    assert_eq!(ask(&mut members, &mut process, read(old)), Err(Errno::ESTALE));
    ask(&mut members, &mut process, read(new)).unwrap();
    process.forget(&mut members, &[old]);
    assert_eq!(ino(ask(&mut members, &mut process, look(Ino::ROOT, "b"))), new, "it keeps its id");
}

#[test]
fn a_directory_stays_open_as_long_as_one_that_is_known_has_it() {
    let mut members = Members::new(2, 1_000);
    members.mkdir(0, "b", 0o755).unwrap();
    members.mkdir(1, "a", 0o755).unwrap();
    let mut process = union(&mut members, Settings::default());
    let renamed = ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
    let replaced = ino(ask(&mut members, &mut process, look(Ino::ROOT, "b")));
    // The empty directory that is replaced cannot be removed, so both are one from now on.
    members.all[0].tree.set_faults(|faults| faults.read_only = true);
    ask(&mut members, &mut process, rename("a", "b")).unwrap();
    members.now_ns += 600_000_000;
    assert_eq!(ino(ask(&mut members, &mut process, look(Ino::ROOT, "b"))), replaced);
    process.forget(&mut members, &[renamed]);
    assert_eq!(ask(&mut members, &mut process, look(replaced, "c")), Err(Errno::ENOENT));
}

#[test]
fn an_old_lookup_does_not_hide_what_a_listing_has_found_since() {
    let mut members = Members::new(2, 1_000);
    let mut process = union(&mut members, Settings::default());
    let late = begin(&mut members, &mut process, look(Ino::ROOT, "a"));
    // Nobody tells of this: the directory is not watched yet.
    members.mkdir(0, "a", 0o755).unwrap();
    members.now_ns += 100_000_000;
    assert_eq!(entries(ask(&mut members, &mut process, list(Ino::ROOT, 0, 1_000))).0.len(), 1);
    // Either answer is right: the lookup began before the directory was made.
    let _ = end(&mut members, &mut process, late);
    assert_eq!(entries(ask(&mut members, &mut process, list(Ino::ROOT, 0, 1_000))).0.len(), 1);
}

#[test]
fn a_listing_that_has_left_names_out_does_not_end_as_if_it_were_whole() {
    let mut members = Members::new(2, 1_000);
    members.put(0, "d", None).unwrap();
    members.put(1, "c", None).unwrap();
    let mut process = union(&mut members, Settings::default());
    members.set_hangs(0, true);
    members.now_ns += 3_000_000_000;
    process.keep_house(&mut members);
    let (names, eof) = entries(ask(&mut members, &mut process, list(Ino::ROOT, 0, 1_000)));
    let last = names.last().expect("the name of the member that answers");
    assert!(!eof && last.name == name("c"));
    members.set_hangs(0, false);
    process.keep_house(&mut members);
    // In the order of listings, the other name comes before it.
    assert_eq!(ask(&mut members, &mut process, list(Ino::ROOT, last.cookie, 1_000)), Err(Errno::EIO));
    let (names, eof) = entries(ask(&mut members, &mut process, list(Ino::ROOT, 0, 1_000)));
    assert!(eof && names.len() == 2, "one that begins anew is whole");
}

#[test]
fn a_file_does_not_get_a_name_at_which_a_hidden_file_would_be_shown() {
    let mut members = Members::new(3, 1_000);
    [0, 1].into_iter().for_each(|member| members.put(member, "b", None).unwrap());
    members.put(2, "a", None).unwrap();
    for same in [SameRule::First, SameRule::Both, SameRule::Newest] {
        let mut process = union(&mut members, Settings { same, ..Settings::default() });
        let from = ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
        let done = ask(&mut members, &mut process, rename("a", "b"));
        if same == SameRule::Newest {
            done.unwrap();
            assert_eq!(ino(ask(&mut members, &mut process, look(Ino::ROOT, "b"))), from);
        } else {
            assert_eq!(done, Err(Errno::EOPNOTSUPP));
            assert_eq!(
                ino(ask(&mut members, &mut process, look(Ino::ROOT, "a"))),
                from,
                "nothing has changed"
            );
        }
    }
}

#[test]
fn a_directory_that_has_the_number_of_a_removed_one_is_found() {
    let mut members = Members::new(1, 1_000);
    members.mkdir(0, "a", 0o755).unwrap();
    // No member tells of changes.
    members.now_ns += 1_000_000_000;
    let mut process = Process::new(0, &members, vec![(0, false)], Settings::default(), false);
    ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
    let before = members.now(0).get("a").map(|node| node.stat.id).unwrap();
    // What the union had open of the disk keeps the number no longer.
    members.set_away(0, true);
    process.keep_house(&mut members);
    members.remove(0, "a").unwrap();
    members.set_away(0, false);
    process.keep_house(&mut members);
    members.mkdir(0, "a", 0o755).unwrap();
    let now = members.now(0).get("a").map(|node| node.stat.id).unwrap();
    assert!(before.ino == now.ino && before != now);
    members.now_ns += 1_000_000_000;
    // A listing tells no more than the number.
    entries(ask(&mut members, &mut process, list(Ino::ROOT, 0, 1_000)));
    let dir = ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
    ino(ask(&mut members, &mut process, create(dir, "b")));
}

#[test]
fn a_directory_that_is_found_while_it_is_made_has_one_id() {
    let mut members = Members::new(1, 1_000);
    let mut process = union(&mut members, Settings::default());
    let make = Op::Mkdir { dir: Ino::ROOT, name: name("a"), mode: 0o755, umask: 0 };
    let making = process.start(&members, make, Bytes::new());
    until_made(&mut members, &mut process, making, "a");
    let found = ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
    assert_eq!(ino(end(&mut members, &mut process, making)), found);
}

#[test]
fn a_directory_of_which_two_homes_cannot_be_read_is_listed_all_the_same() {
    let mut members = Members::new(3, 1_000);
    (0..3).for_each(|member| members.mkdir(member, "a", 0o755).unwrap());
    members.put(2, "a/b", None).unwrap();
    let mut process = union(&mut members, Settings::default());
    let dir = ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
    let task = process.start(&members, list(dir, 0, 1_000), Bytes::new());
    // Two of them go one after another while it is read.
    members.remove(0, "a").unwrap();
    for calls in 0.. {
        assert!(calls < 100, "the listing never ends");
        let Some(at) = process.calls.iter().position(|call| call.task == task) else { break };
        process.make(&mut members, at);
        process.tell(&members, at);
        if calls == 3 {
            members.remove(1, "a").unwrap();
        }
    }
}

/// Orders that chance has found: an operation opens a directory in a member and then has no use for it.
#[test]
fn a_directory_that_was_opened_for_nothing_is_closed() {
    let scenario = crate::scenario::Scenario::named("union_two").expect("it is there");
    for seed in [7_176, 501_843, 502_337, 503_773] {
        let failure = crate::scenario::run(scenario, seed, None).failure;
        assert!(failure.is_none(), "{seed}: {failure:?}");
    }
}

#[test]
fn a_sync_that_began_before_a_directory_was_made_for_a_file_does_not_count_for_it() {
    let mut members = Members::new(2, 1_000);
    members.mkdir(1, "a", 0o755).unwrap();
    let mut process = union(&mut members, Settings { place: PlaceRule::First, ..Settings::default() });
    let dir = ino(ask(&mut members, &mut process, look(Ino::ROOT, "a")));
    let syncs = |members: &mut Members, process: &mut Process, ino| {
        let task = process.start(members, Op::Fsync { ino }, Bytes::new());
        let is_dir = |call: &super::process::Call| matches!(call.call, NativeCall::FsyncDir { .. });
        let syncs = process.calls.iter().filter(|call| call.task == task && is_dir(call)).count();
        end(members, process, task).unwrap();
        syncs
    };
    let early = begin(&mut members, &mut process, Op::FsyncDir { dir: Ino::ROOT });
    let file = ino(ask(&mut members, &mut process, create(dir, "b")));
    assert!(members.now(0).is_dir("a"), "it was made for the file");
    end(&mut members, &mut process, early).unwrap();
    assert_eq!([(); 2].map(|()| syncs(&mut members, &mut process, file)), [1, 0]);
}

/// Renames `a` of the second member over `b` of the first one. Listings and lookups that begin behind any step of it see all of it,
/// or nothing.
fn is_seen_whole(mut members: Members) {
    let settings = Settings { same: SameRule::First, ..Settings::default() };
    let mut process = union(&mut members, settings);
    let mut found = |process: &mut Process, text| ino(ask(&mut members, process, look(Ino::ROOT, text)));
    let (moved, replaced) = (found(&mut process, "a"), found(&mut process, "b"));
    // What `a` and `b` lead to.
    let (before, after) = ([Some(moved), Some(replaced)], [None, Some(moved)]);
    let seen = |ended: Result<Finished, Errno>| {
        let (entries, _) = entries(ended);
        ["a", "b"].map(|text| entries.iter().find(|entry| entry.name == name(text)).map(|entry| entry.ino))
    };
    let looked = |ended: Result<Finished, Errno>| match ended {
        Err(Errno::ENOENT) => None,
        found => Some(ino(found)),
    };
    let renaming = begin(&mut members, &mut process, rename("a", "b"));
    let (mut waiting, mut steps) = (Vec::new(), 0);
    while let Some(at) = process.calls.iter().position(|call| call.task == renaming) {
        if process.calls[at].answer.is_none() {
            process.make(&mut members, at);
        } else {
            process.tell(&members, at);
        }
        steps += 1;
        let mut at_once = |op| {
            let asking = begin(&mut members, &mut process, op);
            while let Some(at) = process.calls.iter().position(|call| call.task == asking) {
                process.make(&mut members, at);
                process.tell(&members, at);
            }
            let ended = process.ended.iter().position(|(ended, _)| *ended == asking);
            if ended.is_none() {
                waiting.push(asking);
            }
            ended.map(|at| process.ended.remove(at).1)
        };
        if let Some(listed) = at_once(list(Ino::ROOT, 0, 1_000)).map(seen) {
            assert!(listed == before || listed == after, "behind step {steps}: {listed:?}, not {before:?}");
        }
        let (a, b) = (at_once(look(Ino::ROOT, "a")), at_once(look(Ino::ROOT, "b")));
        if let (Some(a), Some(b)) = (a, b) {
            let found = [looked(a), looked(b)];
            assert!(found == before || found == after, "behind step {steps}: {found:?}, not {before:?}");
        }
    }
    end(&mut members, &mut process, renaming).unwrap();
    for asking in waiting {
        let ended = end(&mut members, &mut process, asking);
        if matches!(&ended, Ok(Finished { answer: Answer::Entries { .. }, .. })) {
            assert_eq!(seen(ended), after);
        } else {
            assert!(after.contains(&looked(ended)));
        }
    }
    assert!(members.now(0).get("b").is_none() && members.now(1).get("b").is_some(), "it was made");
}

#[test]
fn a_rename_over_a_file_of_another_member_is_seen_whole() {
    let mut members = Members::new(2, 1_000);
    members.put(0, "b", None).unwrap();
    members.put(1, "a", None).unwrap();
    is_seen_whole(members);
}

#[test]
fn a_rename_over_an_empty_directory_of_another_member_is_seen_whole() {
    let mut members = Members::new(2, 1_000);
    members.mkdir(0, "b", 0o755).unwrap();
    members.mkdir(1, "a", 0o755).unwrap();
    is_seen_whole(members);
}
