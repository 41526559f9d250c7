//! That something was read is told to its island later: it moves one time, and nothing else.

use atoll_core::{Ino, Time};
use atoll_posix::{Answer, AtimeRule, Attr, Errno, Op, Readings};

use crate::bench::{Bench, H, T};

fn attr(bench: &mut Bench, client: usize, ino: Ino) -> Attr {
    match bench.run(client, Op::GetAttr { ino }) {
        Ok((Answer::Attr { attr }, _)) => attr,
        other => panic!("{other:?}"),
    }
}

fn accessed(ino: Ino, time: Time) -> Op {
    Op::Accessed { ino, access: Readings { first: time, last: time, rule: AtimeRule::Relative } }
}

#[test]
fn a_reading_that_is_told_moves_the_time_of_access_and_nothing_else() {
    let mut bench = Bench::new(1, 3);
    let file = bench.file(T, "f");
    // One whose name is at another island than the file.
    let elsewhere = bench.pointer(H, T, "g");
    let dir = bench.dirs[H];
    bench.rest();
    for ino in [file, elsewhere, dir] {
        let before = attr(&mut bench, 0, ino);
        bench.wait(1_000_000);
        let read = Time { secs: before.ctime.secs, nanos: before.ctime.nanos }.next();
        bench.ok(accessed(ino, read));
        let after = attr(&mut bench, 1, ino);
        assert_eq!(after, Attr { atime: read, ..before }, "{ino}");
        // Nothing has changed since: it does not count. Nor does what is told late, or twice.
        bench.ok(accessed(ino, read.next()));
        bench.ok(accessed(ino, before.ctime));
        assert_eq!(attr(&mut bench, 1, ino), after, "{ino}");
    }
    // A clock that is ahead gives no time that is not yet.
    let far = Time { secs: i64::MAX, nanos: 0 };
    bench.ok(Op::Accessed { ino: file, access: Readings { first: far, last: far, rule: AtimeRule::Strict } });
    let atime = attr(&mut bench, 0, file).atime;
    assert!(atime.secs < far.secs && atime > attr(&mut bench, 0, elsewhere).atime);
    assert_eq!(bench.run(0, accessed(Ino(1 << 40), far)).map(|_| ()), Err(Errno::ESTALE));
    bench.settle();
}

#[test]
fn a_reading_that_is_told_survives_an_orderly_restart() {
    let mut bench = Bench::new(2, 3);
    let file = bench.file(T, "f");
    bench.rest();
    let before = attr(&mut bench, 0, file);
    bench.wait(1_000_000);
    let read = before.ctime.next();
    bench.ok(accessed(file, read));
    bench.wait(2_000_000);
    bench.restart(T, atoll_disk::sim::Fault::ProcessDeath);
    bench.rest();
    assert_eq!(attr(&mut bench, 0, file).atime, read);
}
