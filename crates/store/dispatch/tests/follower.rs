//! A copy of an island that follows: it has what its primary has, whatever ends either, and can lead.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_core::{Ino, Name};
use atoll_disk::Disk;
use atoll_disk::sim::{Fault, SimDisk};
use atoll_dispatch::{Engine, Laying, NotShipped, NotTaken, Shipment, Shipped};
use atoll_group::LeadBy;
use atoll_island::Event;
use atoll_log::Position;
use atoll_posix::{Allocation, Answer, Kind, Op, SetAttr};
use atoll_proto::{ClientOp, Outcome, Record, RowChange};
use atoll_state::RowKey;
use bytes::Bytes;
use common::{Life, bodies, rows};

/// More than a record carries.
const LARGE: usize = 64 * 1024;

/// A primary with one follower, which gets everything at once.
struct Pair {
    primary: Life,
    follower: Life,
    disks: [SimDisk; 2],
    seq: u64,
    /// Up to which record the follower has said that it has them.
    has: u64,
    /// The last record that was shipped.
    shipped: Position,
    /// Everything that was.
    sent: Vec<Shipment>,
    /// The follower gets nothing yet.
    holds_back: bool,
    /// Bodies that the follower has found to differ when it started.
    differs: Vec<Ino>,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let disks = [SimDisk::new(seed), SimDisk::new(seed + 1)];
        let primary = Life::new(disks[0].clone(), true, 1);
        // What a primary decides when it is made goes to its copies, too: both are empty before.
        let follower = Life::following(disks[1].clone(), true, 2);
        primary.engine.begin_shipping();
        let mut pair = Self {
            primary,
            follower,
            disks,
            seq: 0,
            has: 0,
            shipped: Position::default(),
            sent: Vec::new(),
            holds_back: false,
            differs: Vec::new(),
        };
        pair.primary.engine.enter(Event::Tick { bytes_available: 1 << 40 });
        pair.primary.ask(0, ClientOp::Attach { mount: true }, &[]);
        pair.ship();
        pair
    }

    /// The follower takes what was shipped, unless that is held back.
    fn ship(&mut self) {
        loop {
            let shipment = self.primary.engine.shipment(self.shipped, usize::MAX).unwrap();
            let Some(last) = shipment.records.last() else { return };
            self.shipped = last.position;
            self.sent.push(shipment.clone());
            if !self.holds_back {
                self.follow(shipment);
                // The primary overwrites synced bytes only when all have synced that it is going to.
                let last = self.follower.engine.last().seq;
                let _ = self.follower.engine.sync_here(last, &[]);
            }
        }
    }

    /// The follower takes everything that was held back, in one piece.
    fn ship_all(&mut self) {
        if std::mem::take(&mut self.holds_back) {
            let last = self.follower.engine.last();
            let all = self.sent.iter().flat_map(|shipment| shipment.records.iter().cloned());
            let records = all.filter(|shipped| shipped.position > last).collect();
            self.follow(Shipment { after: last, records });
        }
    }

    fn follow(&mut self, shipment: Shipment) {
        let engine = &self.follower.engine;
        let taken = engine.take(shipment);
        if taken.is_ok() {
            self.has = engine.last().seq;
        }
        match taken.and_then(|()| engine.apply()) {
            Err(NotTaken::Halted(_)) if self.disks[1].is_dead() => {}
            taken => taken.unwrap(),
        }
    }

    /// The follower starts again, and is sent what it has not.
    fn restart_follower(&mut self, fault: Fault, must_have: u64) {
        self.disks[1] = self.disks[1].revive(fault);
        self.follower = Life::following(self.disks[1].clone(), false, 3);
        self.differs = self.follower.report.corrected.iter().map(|(ino, _)| *ino).collect();
        let last = self.follower.engine.last();
        assert!(last.seq >= must_have, "it has said that it has {must_have}, and has {last:?}");
        for mut shipment in self.sent.clone() {
            shipment.records.retain(|shipped| shipped.position > last);
            if shipment.after < last {
                shipment.after = last;
            }
            if !shipment.records.is_empty() {
                self.follow(shipment);
            }
        }
    }

    fn fs(&mut self, op: Op, data: &[u8]) -> Outcome {
        self.seq += 1;
        let (outcome, _) = self.primary.ask(self.seq, ClientOp::Fs { op }, data);
        assert!(matches!(outcome, Outcome::Ok { .. }), "{outcome:?}");
        self.ship();
        outcome
    }

    fn create(&mut self, name: &[u8]) -> Ino {
        self.make(name, Kind::Regular)
    }

    fn make(&mut self, name: &[u8], kind: Kind) -> Ino {
        let (name, target) = (Name::new(name).unwrap(), Bytes::new());
        let (mode, umask, rdev, exclusive) = (0o644, 0, 0, true);
        let op = Op::Create { dir: Ino::ROOT, name, kind, mode, umask, rdev, exclusive, target };
        match self.fs(op, &[]) {
            Outcome::Ok { answer: Answer::Found { found }, .. } => found.attr.ino,
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) {
        self.fs(Op::Write { ino, offset, append: false, kill_set_id: false }, bytes);
    }

    fn cut(&mut self, ino: Ino, len: u64) {
        let set = SetAttr { size: Some(len), ..SetAttr::default() };
        self.fs(Op::SetAttr { ino, set }, &[]);
    }

    /// Everything is synced at both, a checkpoint is made at both, and the trees are laid.
    fn rest(&mut self) {
        self.pass_marker();
        if !self.differs.is_empty() {
            // Its bytes do not come here, and it makes none by itself before.
            self.follower.engine.settle_rows().unwrap();
        }
    }

    /// Everything is synced at both, and a checkpoint is made by the primary, and by the follower if no blocks are missing there.
    fn pass_marker(&mut self) {
        self.primary.engine.reach().unwrap();
        self.ship();
        self.primary.engine.enter(Event::CheckpointWanted);
        for _ in 0..8 {
            self.primary.engine.tick();
            self.primary.engine.housekeep();
            self.ship();
            let last = self.follower.engine.last().seq;
            self.follower.engine.sync_here(last, &[]).unwrap();
            self.follower.engine.know_synced(last);
            self.follower.engine.housekeep();
        }
    }

    fn same(&self) {
        let [one, other] = [&self.primary, &self.follower].map(|life| rows(&life.engine));
        assert_eq!(one.len(), other.len());
        for (key, row) in &one {
            assert_eq!(Some(row), other.get(key), "{:?}", RowKey::from_bytes(key));
        }
        let [mut one, mut other] = [&self.disks[0], &self.disks[1]].map(bodies);
        // What differs after a power cut is known, and the primary has it.
        for ino in &self.differs {
            let path = atoll_body::path_of(b"bodies", *ino);
            one.remove(&path);
            other.remove(&path);
        }
        assert!(one == other, "{:?} and {:?}", names(&one), names(&other));
    }
}

fn names(bodies: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<(String, usize)> {
    bodies.iter().map(|(path, bytes)| (path.escape_ascii().to_string(), bytes.len())).collect()
}

/// The follower leads.
fn promote(follower: &Life) -> Result<(), NotTaken> {
    let engine = &follower.engine;
    let mut work = engine.lead_epoch(engine.reached().incarnation + 1, LeadBy::Promotion, 0, true)?;
    while engine.go_on(&mut work) {}
    Ok(())
}

/// Small and large writes over each other, cuts, holes, and a file that goes.
fn work(pair: &mut Pair) -> Ino {
    let ino = pair.create(b"file");
    pair.write(ino, 0, b"small");
    pair.write(ino, 3, &[1; LARGE]);
    pair.write(ino, 100, b"small again");
    pair.cut(ino, 50_000);
    pair.write(ino, 40_000, &[2; LARGE]);
    pair.fs(Op::Fallocate { ino, offset: 10_000, len: 9_000, what: Allocation::PunchHole }, &[]);
    pair.write(ino, 10_001, b"in the hole");
    let gone = pair.create(b"gone");
    pair.write(gone, 0, &[3; LARGE]);
    pair.fs(Op::Unlink { dir: Ino::ROOT, name: Name::new(b"gone").unwrap() }, &[]);
    ino
}

#[test]
fn a_follower_has_the_rows_and_bodies_of_its_primary() {
    let mut pair = Pair::new(1);
    let ino = work(&mut pair);
    pair.rest();
    pair.same();
    // Behind a checkpoint, over bytes that are synced.
    pair.write(ino, 20_000, &[4; LARGE]);
    pair.write(ino, 21_000, b"once more");
    pair.cut(ino, 30_000);
    pair.rest();
    pair.same();
}

#[test]
fn a_follower_says_that_it_has_records_when_they_are_written() {
    let mut pair = Pair::new(1);
    work(&mut pair);
    assert_eq!(pair.has, pair.primary.engine.with_island(|island| island.state().seq()));
    // Nothing of it is lost by the death of the process.
    let disk = pair.disks[1].revive(Fault::ProcessDeath);
    let follower = Life::following(disk, false, 3);
    assert_eq!(follower.engine.last().seq, pair.has);
}

/// Runs the work with a follower whose disk ends at an effect; how many effects it took. `joined`: the follower gets
/// everything at once.
fn ends(at: Option<u64>, joined: bool, fault: Fault) -> u64 {
    let mut pair = Pair::new(1);
    pair.holds_back = joined;
    let before = pair.disks[1].effects();
    if let Some(n) = at {
        pair.follower.may_halt();
        pair.disks[1].die_after(n);
    }
    work(&mut pair);
    pair.ship_all();
    let last = pair.follower.engine.last().seq;
    let synced = pair.follower.engine.sync_here(last, &[]);
    let used = pair.disks[1].effects() - before;
    if at.is_some() {
        let must_have =
            if matches!(fault, Fault::ProcessDeath) { pair.has } else { synced.map_or(0, |()| last) };
        pair.restart_follower(fault, must_have);
    }
    pair.rest();
    pair.same();
    used
}

#[test]
fn a_follower_that_dies_anywhere_goes_on_with_what_it_has() {
    let all = ends(None, true, Fault::ProcessDeath);
    assert!(all > 10, "{all} effects");
    (1..=all).for_each(|n| _ = ends(Some(n), true, Fault::ProcessDeath));
}

#[test]
fn a_follower_that_loses_its_power_knows_which_bodies_differ() {
    let all = ends(None, false, Fault::ProcessDeath);
    (1..=all).for_each(|n| _ = ends(Some(n), false, Fault::PowerCut { seed: n }));
}

/// A follower ends while bytes that it has synced are overwritten, and leads with what it has; how many effects that took.
fn leads_alone(at: Option<u64>, joined: bool, fault: Fault) -> u64 {
    let mut pair = Pair::new(1);
    let ino = pair.create(b"file");
    pair.write(ino, 0, &[1; LARGE]);
    pair.rest();
    pair.holds_back = joined;
    let before = pair.disks[1].effects();
    if let Some(n) = at {
        pair.follower.may_halt();
        pair.disks[1].die_after(n);
    }
    pair.write(ino, 5_000, b"small");
    pair.write(ino, 100, &[2; LARGE / 2]);
    pair.write(ino, 300, b"small");
    pair.write(ino, LARGE as u64, &[3; LARGE]);
    pair.cut(ino, 20_000);
    pair.ship_all();
    let last = pair.follower.engine.last().seq;
    let _ = pair.follower.engine.sync_here(last, &[]);
    let used = pair.disks[1].effects() - before;
    if at.is_some() {
        let mut alone = Life::new(pair.disks[1].revive(fault), false, 3);
        alone.engine.enter(Event::Tick { bytes_available: 1 << 40 });
        alone.ask(0, ClientOp::Attach { mount: true }, &[]);
        let read = ClientOp::Fs { op: Op::Read { ino, offset: 0, len: 4 * LARGE as u32 } };
        let (outcome, _) = alone.ask(0, read, &[]);
        assert!(matches!(outcome, Outcome::Ok { .. } | Outcome::Data { .. }), "{at:?}: {outcome:?}");
        assert_eq!(alone.damage(), [""; 0]);
    }
    used
}

#[test]
fn a_follower_that_ends_anywhere_serves_every_byte_that_its_records_name() {
    for joined in [false, true] {
        let all = leads_alone(None, joined, Fault::ProcessDeath);
        for n in 1..=all {
            leads_alone(Some(n), joined, Fault::ProcessDeath);
            if !joined {
                (0..4).for_each(|seed| _ = leads_alone(Some(n), joined, Fault::PowerCut { seed }));
            }
        }
    }
}

#[test]
fn records_that_do_not_follow_are_not_taken() {
    let mut pair = Pair::new(1);
    pair.create(b"one");
    let last = pair.follower.engine.last();
    let again = pair.sent.last().unwrap().clone();
    let refused = pair.follower.engine.take(again);
    assert!(matches!(refused, Err(NotTaken::Mismatch { last: at }) if at == last), "{refused:?}");
    assert_eq!(pair.follower.engine.last(), last);
}

#[test]
fn a_follower_that_was_away_catches_up_from_the_log() {
    let mut pair = Pair::new(1);
    pair.holds_back = true;
    let ino = work(&mut pair);
    // Over what the records before have named, and a file that is gone.
    pair.write(ino, 10_000, &[7; LARGE]);
    pair.write(ino, 12_345, b"over that");
    pair.cut(ino, 70_000);
    // Nobody else needs it: only the log has it.
    pair.primary.engine.acknowledged(u64::MAX);
    pair.primary.engine.reach().unwrap();
    let mut pieces = 0;
    loop {
        let last = pair.follower.engine.last();
        let shipment = pair.primary.engine.shipment(last, 4_000).unwrap();
        if shipment.records.is_empty() {
            break;
        }
        pieces += 1;
        pair.follow(shipment);
    }
    assert!(pieces > 2, "{pieces} pieces");
    pair.holds_back = false;
    pair.shipped = pair.follower.engine.last();
    pair.rest();
    pair.same();
}

/// Otherwise a copy never catches up with clients that write as fast as segments are searched.
#[test]
fn a_follower_that_catches_up_is_not_searched_for_in_the_log_each_time() {
    let mut pair = Pair::new(1);
    pair.holds_back = true;
    let ino = work(&mut pair);
    pair.write(ino, 10_000, &[7; LARGE]);
    pair.primary.engine.acknowledged(u64::MAX);
    pair.primary.engine.reach().unwrap();
    let ship = |pair: &Pair| pair.primary.engine.shipment(pair.follower.engine.last(), 4_000).unwrap();
    let first = ship(&pair);
    pair.follow(first);
    // Whoever begins at the front of a segment fails now.
    for (name, _) in pair.disks[0].list(b"log").unwrap() {
        pair.disks[0].fail_reads(&[b"log/", &name[..]].concat(), 0..1).unwrap();
    }
    let mut pieces = 0;
    loop {
        let shipment = ship(&pair);
        if shipment.records.is_empty() {
            break;
        }
        pieces += 1;
        pair.follow(shipment);
    }
    assert!(pieces > 2, "{pieces} pieces");
    assert_eq!(pair.follower.engine.last(), pair.primary.engine.last());
}

#[test]
fn a_follower_leads_over_the_rows_that_it_has() {
    let mut pair = Pair::new(1);
    let ino = work(&mut pair);
    let before = pair.primary.engine.with_island(|island| island.state().meta().incarnation);
    let Pair { primary, mut follower, disks, seq, .. } = pair;
    drop(primary);
    promote(&follower).unwrap();
    let after = follower.engine.with_island(|island| island.state().meta().incarnation);
    assert_eq!(after, before + 1);
    follower.engine.enter(Event::Tick { bytes_available: 1 << 40 });
    // The client of the old primary comes with its session, and asks its last change again.
    follower.ask(0, ClientOp::Attach { mount: true }, &[]);
    let unlink = Op::Unlink { dir: Ino::ROOT, name: Name::new(b"gone").unwrap() };
    let (again, _) = follower.ask(seq, ClientOp::Fs { op: unlink }, &[]);
    assert!(matches!(again, Outcome::Ok { .. }), "its result is known: {again:?}");
    let (_, bytes) = follower.ask(0, ClientOp::Fs { op: Op::Read { ino, offset: 0, len: 1 << 20 } }, &[]);
    assert_eq!(bytes.len(), 40_000 + LARGE);
    assert_eq!(&bytes[10_001..10_012], b"in the hole");
    assert_eq!((bytes[40_000], bytes[39_999], bytes[10_000]), (2, 1, 0));
    // It goes on, and is opened again.
    let write = Op::Write { ino, offset: 5, append: false, kill_set_id: false };
    let (wrote, _) = follower.ask(seq + 1, ClientOp::Fs { op: write }, &[9; LARGE]);
    assert!(matches!(wrote, Outcome::Ok { .. }), "{wrote:?}");
    assert_eq!(follower.damage(), [""; 0]);
    drop(follower);
    let mut again = Life::new(disks[1].revive(Fault::ProcessDeath), false, 5);
    assert_eq!(again.report.corrected, []);
    again.engine.enter(Event::Tick { bytes_available: 1 << 40 });
    again.ask(0, ClientOp::Attach { mount: true }, &[]);
    let (_, bytes) = again.ask(0, ClientOp::Fs { op: Op::Read { ino, offset: 0, len: 1 << 20 } }, &[]);
    assert!(bytes[5..5 + LARGE].iter().all(|byte| *byte == 9) && again.damage().is_empty());
}

#[test]
fn a_follower_that_makes_a_checkpoint_leads_and_ends_it() {
    let mut pair = Pair::new(1);
    let ino = work(&mut pair);
    pair.primary.engine.enter(Event::CheckpointWanted);
    pair.write(ino, 7, b"behind the marker");
    let mut follower = pair.follower;
    promote(&follower).unwrap();
    follower.engine.enter(Event::Tick { bytes_available: 1 << 40 });
    follower.ask(0, ClientOp::Attach { mount: true }, &[]);
    // What that checkpoint is to sync, an fsync does not take for synced.
    let (synced, _) = follower.ask(0, ClientOp::Fs { op: Op::Fsync { ino } }, &[]);
    assert!(matches!(synced, Outcome::Ok { .. }), "{synced:?}");
    for _ in 0..4 {
        follower.engine.tick();
        follower.engine.housekeep();
    }
    assert_eq!(follower.engine.counters().checkpoints, 1, "the follower's");
    follower.engine.stop().unwrap();
    drop(follower);
    let mut again = Life::new(pair.disks[1].revive(Fault::PowerCut { seed: 3 }), false, 5);
    assert_eq!(again.report.corrected, []);
    again.engine.enter(Event::Tick { bytes_available: 1 << 40 });
    again.ask(0, ClientOp::Attach { mount: true }, &[]);
    let (_, bytes) = again.ask(0, ClientOp::Fs { op: Op::Read { ino, offset: 7, len: 17 } }, &[]);
    assert_eq!(bytes, b"behind the marker");
}

#[test]
fn a_follower_without_space_loses_nothing_and_takes_the_rest_when_there_is_some() {
    let mut pair = Pair::new(1);
    let ino = work(&mut pair);
    pair.rest();
    pair.holds_back = true;
    pair.write(ino, 300_000, b"small, far behind the end");
    pair.write(ino, 400_000, &[6; LARGE]);
    let other = pair.create(b"other");
    pair.write(other, 0, &[8; LARGE]);
    pair.write(other, 10, b"small");
    pair.disks[1].set_space(Some(pair.disks[1].used()));
    let last = pair.follower.engine.last();
    let shipment = pair.primary.engine.shipment(last, usize::MAX).unwrap();
    let taken = pair.follower.engine.take(shipment);
    assert!(matches!(taken, Err(NotTaken::NoSpace { .. })), "{taken:?}");
    pair.follower.engine.apply().unwrap();
    let led = promote(&pair.follower);
    assert!(matches!(led, Err(NotTaken::NoSpace { .. })), "bytes wait for space: {led:?}");
    pair.disks[1].set_space(None);
    pair.holds_back = false;
    let last = pair.follower.engine.last();
    let shipment = pair.primary.engine.shipment(last, usize::MAX).unwrap();
    pair.follow(shipment);
    pair.shipped = pair.follower.engine.last();
    pair.rest();
    pair.same();
}

#[test]
fn records_of_another_history_are_not_shipped() {
    let mut pair = Pair::new(1);
    pair.create(b"one");
    let last = pair.primary.engine.last();
    let other = Position { epoch: last.epoch + 1, ..last };
    let shipped = pair.primary.engine.shipment(other, usize::MAX);
    assert!(matches!(shipped, Err(NotShipped::Log(_))), "{shipped:?}");
    let beyond = Position { seq: last.seq + 1, ..last };
    assert!(pair.primary.engine.shipment(beyond, usize::MAX).is_err());
}

#[test]
fn each_copy_lays_the_same_tree() {
    let mut pair = Pair::new(1);
    work(&mut pair);
    pair.rest();
    let Pair { primary, follower, disks, .. } = pair;
    let trees = [primary, follower].map(|life| {
        let engine = Arc::new(life.engine);
        let mut laying = Laying::open(engine, false, false).unwrap();
        let report = laying.drain().unwrap();
        assert!(report.conflicts.is_empty(), "{:?}", report.conflicts);
    });
    let _ = trees;
    let list = |disk: &SimDisk| disk.list(b"tree").unwrap();
    assert_eq!(list(&disks[0]), list(&disks[1]));
    assert!(!list(&disks[0]).is_empty());
}

/// The engine of a follower that has laid its plain tree.
fn laid(follower: Life) -> Arc<Engine<SimDisk>> {
    let engine = Arc::new(follower.engine);
    Laying::open(Arc::clone(&engine), true, true).unwrap().drain().unwrap();
    engine
}

/// The primary ships a checkpoint behind the records up to `shipped`, and the follower makes it.
fn checkpoint(primary: &Life, shipped: Position, follower: &Engine<SimDisk>) {
    primary.engine.enter(Event::CheckpointWanted);
    primary.engine.tick();
    let shipment = primary.engine.shipment(shipped, usize::MAX).unwrap();
    let last = shipment.records.last().unwrap().position.seq;
    follower.take(shipment).unwrap();
    follower.apply().unwrap();
    follower.know_synced(last);
    follower.housekeep();
    assert!(!follower.is_halted(), "its checkpoint has failed");
}

/// The plain tree makes a FIFO where other files have their bytes: there is nothing to be synced.
#[test]
fn a_follower_syncs_no_body_of_a_fifo() {
    let mut pair = Pair::new(27);
    pair.make(b"fifo", Kind::Fifo);
    pair.primary.engine.reach().unwrap();
    pair.ship();
    let Pair { primary, follower, shipped, .. } = pair;
    checkpoint(&primary, shipped, &laid(follower));
}

/// Nor is there something to be synced of what goes.
#[test]
fn a_follower_syncs_no_body_of_a_fifo_that_goes() {
    let mut pair = Pair::new(29);
    pair.make(b"fifo", Kind::Fifo);
    pair.primary.engine.reach().unwrap();
    pair.ship();
    let Pair { mut primary, follower, shipped, seq, .. } = pair;
    let follower = laid(follower);
    let op = Op::Unlink { dir: Ino::ROOT, name: Name::new(b"fifo").unwrap() };
    primary.ask(seq + 1, ClientOp::Fs { op }, &[]);
    primary.engine.reach().unwrap();
    checkpoint(&primary, shipped, &follower);
}

#[test]
fn a_file_that_grows_by_space_is_as_long_at_a_follower() {
    let mut pair = Pair::new(28);
    let ino = pair.create(b"file");
    pair.write(ino, 0, b"small");
    let what = Allocation::Allocate { keep_size: false };
    pair.fs(Op::Fallocate { ino, offset: 31_253, len: 13_511, what }, &[]);
    pair.rest();
    pair.same();
}

/// A large write goes over a small one whose bytes wait, at a follower, for the sync of their record.
#[test]
fn carried_bytes_stay_below_an_extent() {
    let mut pair = Pair::new(19);
    let ino = pair.create(b"file");
    pair.holds_back = true;
    pair.write(ino, 100, b"small");
    pair.write(ino, 0, &[1; LARGE]);
    pair.ship_all();
    pair.rest();
    pair.same();
}

/// Only at a marker does everybody forget which bodies were announced: a follower makes no checkpoint of its own.
#[test]
pub(crate) fn followers_freeze_at_markers_only() {
    let mut pair = Pair::new(9);
    let ino = work(&mut pair);
    pair.rest();
    let before = rows(&pair.follower.engine);
    pair.write(ino, 5, b"behind it");
    let engine = &pair.follower.engine;
    engine.sync_here(engine.last().seq, &[ino]).unwrap();
    engine.know_synced(engine.last().seq);
    (0..100).for_each(|_| engine.housekeep());
    assert!(rows(engine) == before, "it has made a checkpoint by itself");
    pair.rest();
    assert!(rows(&pair.follower.engine) != before);
}

/// A copy lets a marker pass, because its last checkpoint is not done. When it leads, it knows no more bodies as announced than a
/// copy that has frozen there.
#[test]
fn a_new_primary_announces_again() {
    let mut pair = Pair::new(59);
    let ino = pair.create(b"file");
    pair.write(ino, 0, &[1; LARGE]);
    pair.rest();
    let marker = |pair: &mut Pair| {
        pair.primary.engine.enter(Event::CheckpointWanted);
        for _ in 0..4 {
            pair.primary.engine.tick();
            pair.primary.engine.housekeep();
        }
        pair.ship();
    };
    // The follower begins a checkpoint at the first, and is not done at the second.
    marker(&mut pair);
    pair.write(ino, 0, &[2; LARGE]);
    marker(&mut pair);
    let Pair { mut follower, seq, .. } = pair;
    promote(&follower).unwrap();
    follower.engine.enter(Event::Tick { bytes_available: 1 << 40 });
    follower.ask(0, ClientOp::Attach { mount: true }, &[]);
    let before = follower.engine.last();
    let op = Op::Write { ino, offset: 0, append: false, kill_set_id: false };
    follower.ask(seq + 1, ClientOp::Fs { op }, &[3; LARGE]);
    let records = follower.engine.shipment(before, usize::MAX).unwrap().records;
    let announces = |shipped: &Shipped| {
        let record = Record::decode_whole(&shipped.payload).unwrap();
        record.changes.iter().any(|change| matches!(change, RowChange::Dirty { .. }))
    };
    assert!(records.iter().any(announces), "synced bytes are overwritten unannounced");
}

/// Bytes were put in place under the old primary, and were not synced.
#[test]
fn an_fsync_after_a_promotion_syncs_the_body() {
    for seed in 0..8 {
        let mut pair = Pair::new(60);
        let ino = pair.create(b"file");
        pair.write(ino, 0, &[1; LARGE]);
        let Pair { mut follower, disks, .. } = pair;
        promote(&follower).unwrap();
        follower.engine.enter(Event::Tick { bytes_available: 1 << 40 });
        follower.ask(0, ClientOp::Attach { mount: true }, &[]);
        let (synced, _) = follower.ask(0, ClientOp::Fs { op: Op::Fsync { ino } }, &[]);
        assert!(matches!(synced, Outcome::Ok { .. }), "{synced:?}");
        drop(follower);
        let again = Life::new(disks[1].revive(Fault::PowerCut { seed }), false, 5);
        assert_eq!(again.report.corrected, [], "seed {seed}");
    }
}

/// Bytes that were fsynced are carried by a record, and lie below bytes that another record names, when the power fails. A recovery
/// puts the former in place only where the latter do not cover them.
#[test]
fn what_an_extent_covers_is_still_there() {
    for seed in 0..60 {
        let mut pair = Pair::new(20);
        let ino = pair.create(b"file");
        pair.write(ino, 0, &[1; LARGE]);
        pair.rest();
        pair.write(ino, 5_000, b"promised");
        pair.fs(Op::Fsync { ino }, &[]);
        pair.write(ino, 0, &[2; LARGE]);
        let mut alone = Life::new(pair.disks[1].revive(Fault::PowerCut { seed }), false, 3);
        alone.engine.enter(Event::Tick { bytes_available: 1 << 40 });
        alone.ask(0, ClientOp::Attach { mount: true }, &[]);
        let read = ClientOp::Fs { op: Op::Read { ino, offset: 5_000, len: 8 } };
        let (_, bytes) = alone.ask(0, read, &[]);
        assert!(bytes == b"promised" || bytes == [2; 8], "seed {seed}: {bytes:?}");
    }
}

/// A copy that comes back gets records that its primary had long synced, and the bytes that they name. Its power fails before it
/// has synced any of them, and takes the records: then nothing that they have changed may be left where its recovery does not look.
/// Found as `groups_rings --seed 171`.
#[test]
fn a_power_cut_of_a_copy_that_comes_back_leaves_no_bytes_that_no_record_explains() {
    const LEN: u64 = LARGE as u64;
    // Beside carried bytes that wait; over bytes that are synced.
    let changes: [fn(&mut Pair, Ino); 2] = [
        |pair, ino| {
            pair.write(ino, 100, b"small");
            pair.write(ino, LEN, &[2; LARGE]);
        },
        |pair, ino| pair.write(ino, 0, &[2; LARGE]),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        for seed in 0..40 {
            let mut pair = Pair::new(61);
            let ino = pair.create(b"file");
            pair.write(ino, 0, &[1; LARGE]);
            pair.rest();
            pair.holds_back = true;
            change(&mut pair, ino);
            pair.ship_all();
            let mut alone = Life::new(pair.disks[1].revive(Fault::PowerCut { seed }), false, 3);
            alone.engine.enter(Event::Tick { bytes_available: 1 << 40 });
            alone.ask(0, ClientOp::Attach { mount: true }, &[]);
            let read = ClientOp::Fs { op: Op::Read { ino, offset: 0, len: 2 * LARGE as u32 } };
            let (outcome, _) = alone.ask(0, read, &[]);
            assert!(matches!(outcome, Outcome::Ok { .. }), "{n}, seed {seed}: {outcome:?}");
            assert_eq!(alone.damage(), [""; 0], "{n}, seed {seed}");
        }
    }
}

/// The same of a copy that has started again behind a small change of the file: the record that announces the overwrite comes
/// later than the ones that it has. Found as `groups_fill --seed 402400`.
#[test]
fn a_copy_that_starts_again_knows_which_overwrites_its_records_announce() {
    for seed in 0..40 {
        let mut pair = Pair::new(63);
        let ino = pair.create(b"file");
        pair.write(ino, 0, &[1; LARGE]);
        pair.rest();
        pair.cut(ino, LARGE as u64 - 100);
        let last = pair.follower.engine.last().seq;
        pair.restart_follower(Fault::ProcessDeath, last);
        pair.holds_back = true;
        pair.write(ino, 0, &[2; LARGE]);
        pair.ship_all();
        let mut alone = Life::new(pair.disks[1].revive(Fault::PowerCut { seed }), false, 4);
        alone.engine.enter(Event::Tick { bytes_available: 1 << 40 });
        alone.ask(0, ClientOp::Attach { mount: true }, &[]);
        let read = ClientOp::Fs { op: Op::Read { ino, offset: 0, len: 2 * LARGE as u32 } };
        let (outcome, _) = alone.ask(0, read, &[]);
        assert!(matches!(outcome, Outcome::Ok { .. }), "seed {seed}: {outcome:?}");
        assert_eq!(alone.damage(), [""; 0], "seed {seed}");
    }
}

/// A copy whose body differs after a power cut passes a marker before the bytes have come, and dies. It must know that they are
/// missing. Found as `groups_all --seed 40652`.
#[test]
fn a_copy_makes_no_checkpoint_while_blocks_are_missing() {
    let mut seen = 0;
    for seed in 0..20 {
        let mut pair = Pair::new(62);
        let ino = pair.create(b"file");
        pair.write(ino, 0, &[1; LARGE]);
        let last = pair.follower.engine.last().seq;
        pair.follower.engine.sync_here(last, &[]).unwrap();
        pair.restart_follower(Fault::PowerCut { seed }, last);
        if !pair.differs.contains(&ino) {
            continue;
        }
        seen += 1;
        pair.pass_marker();
        pair.restart_follower(Fault::ProcessDeath, last);
        assert_eq!(pair.differs, [ino], "seed {seed}: it has forgotten that");
    }
    assert!(seen > 0, "no power cut took the bytes");
}
