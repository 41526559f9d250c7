//! Spines by hand: short words for what sites do, with stamps that the test chooses.

#![allow(dead_code, reason = "each test uses a part of it")]

use atoll_causal::{FileId, HybridStamp, Writer};
use atoll_core::{Decode, Encode, Name};
use atoll_spine::{Evidence, MoveRefused, MovedDir, NotTaken, Spine, SpineCut, SpineMove, SpinePlace};

pub(crate) const ROOT: FileId = FileId::ROOT;

pub(crate) const fn dir(n: u128) -> FileId {
    FileId(n)
}

pub(crate) const fn at(time_us: u64, writer: u64) -> HybridStamp {
    HybridStamp { time_us, writer: Writer(writer) }
}

/// A cut at a time, with the latest time that anybody had given.
pub(crate) const fn cut(upto_us: u64, horizon_us: u64) -> SpineCut {
    SpineCut { upto: at(upto_us, u64::MAX), horizon: at(horizon_us, u64::MAX) }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// Makes directories, each with its parent, at the times 1, 2, 3...
pub(crate) fn born(spine: &mut Spine, dirs: &[(FileId, FileId)]) {
    for (time_us, (dir, parent)) in (1..).zip(dirs) {
        spine.born(*dir, SpinePlace { parent: *parent, name: name("d"), since: at(time_us, 1) });
    }
}

pub(crate) fn to(dir: FileId, parent: FileId) -> MovedDir {
    MovedDir { dir, parent, name: name("d") }
}

/// A move that is decided and made at a site, at exactly this stamp.
pub(crate) fn moves(spine: &mut Spine, stamp: HybridStamp, dirs: &[MovedDir]) -> SpineMove {
    let record = decides(spine, stamp, dirs).expect("a move that may be");
    spine.receive(record.clone()).expect("its own move");
    spine.check();
    record
}

pub(crate) fn decides(
    spine: &Spine,
    stamp: HybridStamp,
    dirs: &[MovedDir],
) -> Result<SpineMove, MoveRefused> {
    spine.decide(stamp.writer, dirs.to_vec(), |above| {
        assert!(above < stamp, "{above:?} is not before {stamp:?}");
        stamp
    })
}

/// Receives a record, as its bytes.
pub(crate) fn hears(spine: &mut Spine, record: &SpineMove) -> Vec<FileId> {
    let record = SpineMove::from_slice(&record.to_vec()).expect("a record");
    let changed = spine.receive(record).expect("a record of a site that keeps the rules");
    spine.check();
    changed
}

/// Fetches directories from another site, at a time of that one, and holds them with all above.
pub(crate) fn fetches(spine: &mut Spine, from: &Spine, made_us: u64, dirs: &[FileId]) {
    fetched(spine, made_us, &from.evidence(dirs).expect("few directories"), dirs).expect("not too late");
}

pub(crate) fn fetched(
    spine: &mut Spine,
    made_us: u64,
    evidence: &Evidence,
    dirs: &[FileId],
) -> Result<(), NotTaken> {
    let evidence = Evidence::from_slice(&evidence.to_vec()).expect("evidence");
    spine.learn(at(made_us, 99), &evidence)?;
    for dir in dirs {
        let way: Vec<FileId> = spine.up(*dir).map(|(dir, _)| dir).collect();
        way.into_iter().for_each(|dir| spine.hold(dir));
    }
    spine.check();
    Ok(())
}

pub(crate) fn parent(spine: &Spine, dir: FileId) -> FileId {
    spine.place(dir).expect("a known directory").parent
}
