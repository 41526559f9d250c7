//! A row of the snapshot that cannot be read: it is told once, what needs it fails, and the island goes on.

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
