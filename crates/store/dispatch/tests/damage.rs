//! What an island finds on its disk that is not as it should be: a row of the snapshot that cannot be read, and what is left of a start
//! for which there was no room.

mod common;

use atoll_core::Ino;
use atoll_disk::sim::SimDisk;
use atoll_posix::{Errno, Op};
use atoll_proto::{ClientOp, Outcome};
use atoll_state::RowKey;
use common::{ISLAND, Life};

const FILE: Ino = Ino::mint(ISLAND, 77);

#[test]
fn a_damaged_row_is_told_once_and_what_needs_it_fails() {
    let mut life = Life::new(SimDisk::new(1), true, 1);
    life.engine.snapshot().commit([(RowKey::Inode(FILE).to_bytes(), Some(vec![0xff; 3]))]).unwrap();
    assert!(life.report.corrected.is_empty());
    let mut ask = |op| life.ask(0, op, &[]).0;
    ask(ClientOp::Attach { mount: false });
    for _ in 0..3 {
        let outcome = ask(ClientOp::Fs { op: Op::GetAttr { ino: FILE } });
        assert!(matches!(outcome, Outcome::Failed { errno: Errno::EIO }), "{outcome:?}");
    }
    let root = ask(ClientOp::Fs { op: Op::GetAttr { ino: Ino::ROOT } });
    assert!(matches!(root, Outcome::Ok { .. }), "it goes on: {root:?}");
    let damage = life.damage();
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].contains("snapshot is damaged") && damage[0].contains("EIO"), "{damage:?}");
}

/// Wherever the first start of an island finds no room, a later one begins anew: nothing was ever in what it has left.
#[test]
fn an_island_that_found_no_room_to_begin_begins_when_there_is_some() {
    let whole = SimDisk::new(1);
    Life::new(whole.clone(), true, 1);
    let mut failed = 0;
    for space in (0..whole.used()).step_by(4096) {
        let disk = SimDisk::new(1);
        disk.set_space(Some(space));
        for _ in 0..2 {
            if Life::open(disk.clone(), true).is_err() {
                failed += 1;
            }
        }
        disk.set_space(None);
        let life = Life::open(disk, true)
            .unwrap_or_else(|error| panic!("with room for {space} bytes first: {error}"));
        assert_eq!(life.report, Default::default());
    }
    assert!(failed > 20, "{failed}");
}
