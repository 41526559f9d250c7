//! Disks that others fill to the last byte: an island takes what makes room, and goes on by itself afterwards.

use atoll_core::Ino;
use atoll_posix::{Answer, Errno, Kind, Op, SetAttr};
use bytes::Bytes;

use crate::bench::{Bench, S, id, name, node};

fn create(bench: &mut Bench, n: &str) -> Result<Ino, Errno> {
    let (dir, target) = (bench.dirs[S], Bytes::new());
    let (kind, mode, umask, rdev, exclusive) = (Kind::Regular, 0o644, 0, 0, true);
    let op = Op::Create { dir, name: name(n), kind, mode, umask, rdev, exclusive, target };
    match bench.run(0, op) {
        Ok((Answer::Found { found }, _)) => Ok(found.attr.ino),
        Ok(other) => panic!("{other:?}"),
        Err(errno) => Err(errno),
    }
}

fn chmod(bench: &mut Bench, ino: Ino, mode: u32) {
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    bench.ok(Op::SetAttr { ino, set });
}

#[test]
fn an_island_whose_checkpoint_finds_no_space_takes_deletes_and_goes_on_when_there_is_some() {
    let mut bench = Bench::new(1, 1);
    let files: Vec<Ino> = (0..400).map(|n| create(&mut bench, &format!("f{n}")).unwrap()).collect();
    bench.rest();
    bench.world.fill_disk(node(S), 0);
    bench.wait(100_000);
    files.iter().for_each(|ino| chmod(&mut bench, *ino, 0o600));
    bench.world.checkpoint(id(S));
    bench.wait(3_000_000);
    assert_eq!(bench.world.injected.read_only, 1, "the checkpoint found space: the test needs more rows");
    assert_eq!(create(&mut bench, "more"), Err(Errno::ENOSPC));
    for n in 0..200 {
        bench.ok(bench.unlink(S, &format!("f{n}")));
    }
    bench.world.free_disk(node(S));
    bench.wait(3_000_000);
    create(&mut bench, "more").unwrap();
    bench.settle();
    assert_eq!(bench.world.injected.deaths, 0, "nobody has started it again");
    bench.has_not(S, "f199");
    assert_eq!(bench.at(S, "f200"), Ok(files[200]));
}

#[test]
fn changes_go_on_on_a_full_disk_for_longer_than_a_segment_of_the_log() {
    let mut bench = Bench::new(2, 1);
    let ino = create(&mut bench, "f").unwrap();
    bench.rest();
    bench.world.fill_disk(node(S), 0);
    bench.wait(100_000);
    // Two segments and more, of a mebibyte each.
    for n in 0..9_000 {
        chmod(&mut bench, ino, 0o600 + n % 8);
    }
    bench.world.free_disk(node(S));
    bench.wait(3_000_000);
    create(&mut bench, "more").unwrap();
    bench.settle();
    assert_eq!(bench.world.injected.deaths, 0, "nobody has started it again");
}

#[test]
fn a_file_whose_bytes_find_no_space_can_be_cut_and_removed() {
    let mut bench = Bench::new(3, 1);
    let ino = create(&mut bench, "f").unwrap();
    bench.rest();
    let write = Op::Write { ino, offset: 0, append: false, kill_set_id: false };
    bench.world.run(0, &atoll_posix::Caller::ROOT, write, Bytes::from(vec![7; 20_000])).unwrap().unwrap();
    // They are in the log, and not yet in the body.
    bench.world.fill_disk(node(S), 0);
    bench.wait(2_000_000);
    let set = SetAttr { size: Some(8_192), ..SetAttr::default() };
    bench.ok(Op::SetAttr { ino, set });
    bench.wait(2_000_000);
    bench.world.free_disk(node(S));
    let (_, bytes) = bench.run(0, Op::Read { ino, offset: 0, len: 30_000 }).unwrap();
    assert_eq!(bytes, vec![7; 8_192]);
    bench.ok(bench.unlink(S, "f"));
    bench.settle();
    assert_eq!(bench.world.injected.deaths, 0, "nobody has started it again");
}
