//! Small histories by hand: what is allowed, what is not, and what is said about it.

use atoll_history::{Answer, Found, History, Kind, Lenience, Op, Record, Verdict, check, check_with};

const ROOT: u64 = 1;

/// Operations of clients, each with start, end and answer.
#[derive(Default)]
struct Story {
    records: Vec<Record>,
}

impl Story {
    fn did(mut self, client: u32, (start, end): (u64, u64), op: Op, answer: Answer) -> Self {
        // Milliseconds, so that the times can be read in what is printed.
        let ms = 1_000_000;
        self.records.push(Record { client, start: start * ms, end: Some(end * ms), op, answer });
        self
    }

    fn never_heard(mut self, client: u32, start: u64, op: Op) -> Self {
        let start = start * 1_000_000;
        self.records.push(Record { client, start, end: None, op, answer: Answer::Unknown });
        self
    }

    fn verdict(self) -> Verdict {
        check(&History { root: ROOT, records: self.records })
    }

    /// Whether it fits with this lenience, though it does not fit without.
    fn passes_with(self, lenience: Lenience) -> bool {
        let history = History { root: ROOT, records: self.records };
        assert!(!check(&history).fits());
        check_with(&history, lenience).fits()
    }
}

fn make(name: &str, kind: Kind) -> Op {
    Op::Make { dir: ROOT, name: name.into(), kind, exclusive: true, mode: None }
}

fn lookup(name: &str) -> Op {
    Op::Lookup { dir: ROOT, name: name.into() }
}

fn unlink(name: &str) -> Op {
    Op::Unlink { dir: ROOT, name: name.into() }
}

fn rename(name: &str, new_name: &str) -> Op {
    let how = Default::default();
    Op::Rename { dir: ROOT, name: name.into(), new_dir: ROOT, new_name: new_name.into(), how }
}

fn is(id: u64) -> Answer {
    Answer::Found(Found::only(id))
}

fn error(name: &str) -> Answer {
    Answer::Error(name.into())
}

#[test]
fn a_name_that_is_seen_again_after_it_was_seen_gone_is_explained() {
    let verdict = Story::default()
        .did(0, (1, 2), make("a", Kind::File), is(10))
        .did(1, (3, 9), unlink("a"), Answer::Ok)
        .did(2, (4, 5), lookup("a"), error("ENOENT"))
        .did(3, (6, 7), lookup("a"), is(10))
        .verdict();
    let text = "no order of the operations explains this:
  client 3: lookup /a = #10   [0.005000 to 0.006000 s]
It does not fit: nothing was at /a, by
  client 1: unlink /a = ok   [0.002000 to 0.008000 s]
Nothing that ran beside it touches that.";
    assert_eq!(verdict.to_string(), text);
}

#[test]
fn a_rename_that_is_seen_half_is_explained() {
    let verdict = Story::default()
        .did(0, (1, 2), make("a", Kind::File), is(10))
        .did(1, (3, 9), rename("a", "b"), Answer::Ok)
        .did(2, (4, 5), lookup("b"), is(10))
        .did(2, (6, 7), lookup("a"), is(10))
        .verdict();
    let text = verdict.to_string();
    assert!(text.contains("lookup /a = #10"), "{text}");
    assert!(text.contains("nothing was at /a, by\n  client 1: rename /a to /b = ok"), "{text}");
}

#[test]
fn a_rename_is_never_seen_twice_nor_not_at_all() {
    let seen = |first: (&str, Answer), second: (&str, Answer)| {
        Story::default()
            .did(0, (1, 2), make("a", Kind::File), is(10))
            .did(1, (3, 9), rename("a", "b"), Answer::Ok)
            .did(2, (4, 5), lookup(first.0), first.1)
            .did(2, (6, 7), lookup(second.0), second.1)
            .verdict()
            .fits()
    };
    assert!(seen(("a", is(10)), ("b", is(10))));
    assert!(seen(("a", error("ENOENT")), ("b", is(10))));
    assert!(!seen(("a", error("ENOENT")), ("b", error("ENOENT"))));
    assert!(!seen(("b", is(10)), ("a", is(10))));
}

#[test]
fn what_was_never_answered_may_happen_once_at_any_later_time() {
    let story = |looks: [bool; 3]| {
        let mut story =
            Story::default().did(0, (1, 2), make("a", Kind::File), is(10)).never_heard(1, 3, unlink("a"));
        for (at, there) in (0..).zip(looks) {
            let answer = if there { is(10) } else { error("ENOENT") };
            story = story.did(2, (10 + 2 * at, 11 + 2 * at), lookup("a"), answer);
        }
        story.verdict().fits()
    };
    assert!(story([true, true, true]));
    assert!(story([true, true, false]));
    assert!(story([false, false, false]));
    assert!(!story([false, true, true]));
}

#[test]
fn what_was_made_without_an_answer_is_one_object_wherever_it_goes() {
    let moved_to = |id| {
        Story::default()
            .never_heard(0, 1, make("a", Kind::File))
            .did(1, (3, 4), lookup("a"), is(20))
            .did(1, (5, 6), rename("a", "b"), Answer::Ok)
            .did(1, (7, 8), lookup("b"), is(id))
            .verdict()
            .fits()
    };
    assert!(moved_to(20));
    assert!(!moved_to(21));
}

#[test]
fn an_error_without_a_cause_is_a_fault() {
    let verdict = Story::default().did(0, (1, 2), lookup("a"), error("ENOTEMPTY")).verdict();
    assert!(verdict.to_string().contains("ENOTEMPTY has no cause here"), "{verdict}");
    assert!(Story::default().did(0, (1, 2), make("a", Kind::File), error("ENOSPC")).verdict().fits());
}

#[test]
fn what_linux_says_by_where_it_has_directories_passes_if_asked_for() {
    let stale = Lenience { stale: true, ..Lenience::default() };
    for (op, errno) in [(lookup("a"), "ELOOP"), (lookup("a"), "ESTALE"), (rename("a", "b"), "EINVAL")] {
        assert!(Story::default().did(0, (1, 2), op, error(errno)).passes_with(stale), "{errno}");
    }
    let link = |name: &str| Op::Link { file: 10, dir: ROOT, name: name.into() };
    let counts = Story::default().did(0, (1, 2), make("a", Kind::File), is(10));
    assert!(counts.did(0, (3, 4), link("b"), error("ENOENT")).passes_with(stale));
    assert!(!Story::default().did(0, (1, 2), lookup("a"), error("EINVAL")).passes_with(stale));
}

#[test]
fn a_rename_whose_names_are_looked_up_apart_may_be_anothers_if_asked_for() {
    let apart = Lenience { apart: true, ..Lenience::default() };
    let story = |second: (u64, u64)| {
        Story::default()
            .did(0, (1, 2), make("a", Kind::File), is(10))
            .did(1, (3, 6), rename("a", "b"), Answer::Ok)
            .did(2, second, rename("a", "b"), Answer::Ok)
            .did(0, (20, 21), lookup("b"), is(10))
    };
    assert!(story((4, 9)).passes_with(apart));
    assert!(!story((7, 9)).passes_with(apart), "the other one was over");
    let in_turn = |second: (u64, u64)| {
        Story::default()
            .did(0, (1, 2), make("a", Kind::Directory), Answer::Ok)
            .did(1, (3, 9), rename("a", "b"), Answer::Ok)
            .did(2, (4, 5), rename("a", "c"), Answer::Ok)
            .did(2, second, rename("c", "b"), Answer::Ok)
    };
    assert!(in_turn((6, 7)).passes_with(apart));
    assert!(!in_turn((10, 11)).passes_with(apart), "it was not there yet");
    let kinds = Story::default().did(0, (1, 2), rename("a", "a"), error("ENOTDIR"));
    assert!(kinds.passes_with(apart));
    // Only that nothing was left to do: it is no rename of something else.
    let other = story((4, 9)).did(0, (22, 23), lookup("b"), error("ENOENT"));
    assert!(!other.passes_with(apart));
    let alone = Story::default().did(0, (1, 2), make("b", Kind::File), is(10));
    assert!(!alone.did(1, (3, 6), rename("a", "b"), Answer::Ok).passes_with(apart), "nobody else did it");
}

#[test]
fn a_directory_is_removed_only_while_it_is_empty() {
    let inside = Op::Make { dir: 10, name: "x".into(), kind: Kind::File, exclusive: true, mode: None };
    let removed = Op::Rmdir { dir: ROOT, name: "d".into() };
    let story = |made: (u64, u64), gone: (u64, u64)| {
        Story::default()
            .did(0, (1, 2), make("d", Kind::Directory), is(10))
            .did(1, made, inside.clone(), is(11))
            .did(2, gone, removed.clone(), Answer::Ok)
            .verdict()
    };
    // Whichever of the two came first, the other one would have failed.
    assert!(!story((3, 6), (4, 5)).fits());
    let text = story((3, 4), (5, 6)).to_string();
    assert!(text.contains("/d had 1 names in it, by\n  client 1: make file /d/x"), "{text}");
}

#[test]
fn a_read_sees_all_of_a_write_or_nothing() {
    let write = |data: [u64; 2]| Op::Write { file: 10, at: 0, data: data.to_vec() };
    let read = |data: [u64; 2]| {
        Story::default()
            .did(0, (1, 2), make("a", Kind::File), is(10))
            .did(0, (3, 4), write([1, 1]), Answer::Ok)
            .did(1, (5, 9), write([2, 2]), Answer::Ok)
            .did(2, (6, 7), Op::Read { file: 10, at: 0, len: 2 }, Answer::Data(data.to_vec()))
            .verdict()
    };
    assert!(read([1, 1]).fits() && read([2, 2]).fits());
    let text = read([2, 1]).to_string();
    assert!(text.contains("client 2: read #10 blocks 0 to 2 = [2 1]"), "{text}");
    assert!(text.contains("No order of these, which ran beside it, helps"), "{text}");
}

#[test]
fn a_history_is_read_as_it_was_written() {
    let records = vec![
        Record { client: 3, start: 1, end: Some(2), op: make("ä \"x\"", Kind::Symlink), answer: Answer::Ok },
        Record { client: 4, start: 5, end: None, op: rename("a", "b"), answer: Answer::Unknown },
        Record {
            client: 4,
            start: 6,
            end: Some(7),
            op: Op::Read { file: 10, at: 0, len: 2 },
            answer: Answer::Data(vec![u64::MAX, 0]),
        },
    ];
    let history = History { root: ROOT, records };
    let mut text = Vec::new();
    history.write(&mut text).unwrap();
    assert_eq!(History::read(text.as_slice()).unwrap(), history);
    let line = String::from_utf8(text).unwrap().lines().nth(2).unwrap().to_owned();
    let same = r#"{"client":4,"start":5,"op":"rename","dir":1,"name":"a","new_dir":1,"new_name":"b","how":"replace","answer":"unknown"}"#;
    assert_eq!(line, same);
    let why = History::read("{\"root\":1}\n\n{\"client\":1}\n".as_bytes()).unwrap_err().to_string();
    assert!(why.starts_with("line 3: not an operation"), "{why}");
    assert!(History::read("".as_bytes()).unwrap_err().to_string().contains("the root is missing"));
}
