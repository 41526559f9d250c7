//! Files of intents: what survives, what is left to whom, and writes that were cut off.

use std::fs;
use std::path::{Path, PathBuf};

use atoll_core::{Time, VolumePath};
use atoll_intents::{IntentMember, Intents, KeptIntents, left_in};
use atoll_union::{Direction, Intent, IntentStep, NativeId, Tag};
use bytes::Bytes;

fn intent(n: u64) -> Intent {
    let id = |ino| Some(NativeId { ino, btime: Time { secs: 7, nanos: 9 } });
    Intent {
        old: VolumePath::parse(b"/a/old").unwrap(),
        new: VolumePath::parse(format!("/b/new{n}").as_bytes()).unwrap(),
        replaces: true,
        steps: vec![
            IntentStep { tag: Tag(1), from: id(n), to: None },
            IntentStep { tag: Tag(2), from: id(n + 1), to: id(n + 2) },
        ],
        direction: Some(Direction::Forward),
    }
}

fn members() -> Vec<IntentMember> {
    let member = |tag, path: &'static str| {
        let part = |text: &'static str| Bytes::from_static(text.as_bytes());
        IntentMember {
            tag: Tag(tag),
            path: part(path),
            file_system: part("fs"),
            root: part("r"),
            host: part("h"),
        }
    };
    vec![member(1, "/disk1"), member(2, "/disk2")]
}

/// The only file in a folder.
fn file(dir: &Path) -> PathBuf {
    let mut names = fs::read_dir(dir).unwrap();
    let path = names.next().expect("there is a file").unwrap().path();
    assert!(names.next().is_none());
    path
}

/// What a process that wrote `intents` and died has left: the bytes of its file.
fn died(intents: &[(u64, Intent)], over: &[u64]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let kept = KeptIntents::new(dir.path().join("intents"), members());
    intents.iter().for_each(|(id, intent)| kept.keep(*id, intent).unwrap());
    over.iter().for_each(|id| kept.over(*id));
    let mut bytes = fs::read(file(&dir.path().join("intents"))).unwrap();
    // Behind the records there are zeros, and none of these records ends with one.
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1);
    bytes
}

#[test]
fn an_intent_is_left_until_it_is_over_and_to_nobody_while_its_process_lives() {
    let dir = tempfile::tempdir().unwrap();
    let kept = KeptIntents::new(dir.path().to_owned(), members());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "a union that renames nothing writes nothing");
    kept.keep(1, &intent(1)).unwrap();
    kept.keep(2, &intent(2)).unwrap();
    kept.over(1);
    assert!(left_in(dir.path()).unwrap().is_empty(), "its process lives");
    assert!(fs::read(file(dir.path())).unwrap().starts_with(&died(&[(1, intent(1)), (2, intent(2))], &[])));
    drop(kept);
    let left = left_in(dir.path()).unwrap();
    assert_eq!((left[0].intents(), left[0].members()), (vec![(2, intent(2))], &members()[..]));
    assert!(left_in(dir.path()).unwrap().is_empty(), "somebody settles it");
}

#[test]
fn what_is_settled_is_gone_and_a_decision_stays() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("9-0.intents"), died(&[(1, intent(1)), (2, intent(2))], &[])).unwrap();
    let mut left = left_in(dir.path()).unwrap().pop().unwrap();
    let decided = Intent { direction: Some(Direction::Back), ..intent(2) };
    left.over(1).unwrap();
    left.keep(2, &decided).unwrap();
    left.end();
    let mut left = left_in(dir.path()).unwrap().pop().unwrap();
    assert_eq!(left.intents(), [(2, decided)]);
    left.over(2).unwrap();
    left.end();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_union_that_ends_orderly_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let kept = KeptIntents::new(dir.path().to_owned(), members());
    kept.keep(1, &intent(1)).unwrap();
    kept.over(1);
    drop(kept);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_write_that_was_cut_off_at_any_byte_leaves_what_was_written_before() {
    let (one, two) = (died(&[(1, intent(1))], &[]), died(&[(1, intent(1)), (2, intent(2))], &[]));
    assert_eq!(two[..one.len()], one);
    for (len, zeros) in (0..two.len()).flat_map(|len| [(len, 0), (len, 1 << 16)]) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("9-0.intents"), [&two[..len], &vec![0; zeros]].concat()).unwrap();
        let left = left_in(dir.path()).unwrap();
        let found: Vec<u64> = left.iter().flat_map(|left| left.intents()).map(|(id, _)| id).collect();
        assert_eq!(found, if len < one.len() { vec![] } else { vec![1] }, "{len} bytes");
        // A record behind the torn one is found.
        for mut left in left {
            left.keep(3, &intent(3)).unwrap();
            drop(left);
            let left = left_in(dir.path()).unwrap();
            assert_eq!(left[0].intents(), [(1, intent(1)), (3, intent(3))], "{len} bytes");
        }
    }
}

#[test]
fn flipped_bytes_never_give_another_intent() {
    let two = died(&[(1, intent(1)), (2, intent(2))], &[]);
    for at in 0..two.len() {
        for bit in [1, 0x80] {
            let dir = tempfile::tempdir().unwrap();
            let mut bytes = two.clone();
            bytes[at] ^= bit;
            fs::write(dir.path().join("9-0.intents"), &bytes).unwrap();
            let Ok(left) = left_in(dir.path()) else { continue };
            for (id, found) in left.iter().flat_map(|left| left.intents()) {
                assert_eq!(found, intent(id), "byte {at}");
            }
        }
    }
}

#[test]
fn a_file_of_something_else_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("other.intents"), b"something that somebody else wrote").unwrap();
    let error = left_in(dir.path()).err().unwrap().to_string();
    assert!(error.contains("other.intents"), "{error}");
    fs::write(dir.path().join("other.intents"), b"ATOLINT\x09").unwrap();
    let error = left_in(dir.path()).err().unwrap().to_string();
    assert!(error.contains("another version"), "{error}");
    assert!(left_in(&dir.path().join("none")).unwrap().is_empty());
}

#[test]
fn a_long_life_of_renames_keeps_the_file_short() {
    let dir = tempfile::tempdir().unwrap();
    let kept = KeptIntents::new(dir.path().to_owned(), members());
    for id in 0..1_000 {
        kept.keep(id, &intent(id)).unwrap();
        kept.over(id);
    }
    assert!(fs::metadata(file(dir.path())).unwrap().len() < 1 << 17);
}

#[test]
fn members_that_come_and_go_are_in_the_file_with_what_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let kept = KeptIntents::new(dir.path().join("intents"), members());
    kept.keep(1, &intent(1)).unwrap();
    let third = IntentMember { tag: Tag(3), path: Bytes::from_static(b"/disk3"), ..members().remove(0) };
    let all = [members(), vec![third.clone()]].concat();
    kept.set_members(all.clone()).unwrap();
    let left = |bytes: Vec<u8>| {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("1-0.intents"), bytes).unwrap();
        let mut left = left_in(dir.path()).unwrap();
        left.pop().map(|left| (left.members().to_vec(), left.intents()))
    };
    let bytes = || fs::read(file(&dir.path().join("intents"))).unwrap();
    assert_eq!(left(bytes()), Some((all, vec![(1, intent(1))])));
    kept.over(1);
    kept.set_members(vec![third.clone()]).unwrap();
    assert_eq!(left(bytes()), None, "nothing is open");
    kept.keep(2, &intent(2)).unwrap();
    assert_eq!(left(bytes()), Some((vec![third], vec![(2, intent(2))])));
}
