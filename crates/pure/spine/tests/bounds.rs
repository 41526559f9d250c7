//! Each bound is reached, and bytes of sites that keep no rule are refused.

mod sites;

use atoll_causal::{FileId, HybridStamp, Writer};
use atoll_core::{Decode, Encode};
use atoll_model::Rng;
use atoll_spine::{Evidence, MoveRefused, MovedDir, NotTaken, Spine, SpineMove, SpinePlace};
use sites::{ROOT, at, born, cut, decides, dir, hears, moves, name, to};

/// A chain of so many directories, each in the one before, with the same name.
fn chain(spine: &mut Spine, count: u128, text: &str) -> FileId {
    for n in 1..=count {
        let since = at(1 + u64::try_from(n).expect("small"), 1);
        spine.born(dir(n), SpinePlace { parent: dir(n - 1), name: name(text), since });
    }
    dir(count)
}

#[test]
fn one_record_moves_so_many_directories() {
    let most = SpineMove::DIRS_MAX as u128;
    let mut spine = Spine::default();
    let dirs: Vec<(FileId, FileId)> = (1..=most + 2).map(|n| (dir(n), ROOT)).collect();
    born(&mut spine, &dirs);
    let target = dir(most + 2);
    let all: Vec<MovedDir> = (1..=most + 1).map(|n| to(dir(n), target)).collect();
    assert_eq!(decides(&spine, at(100, 1), &all), Err(MoveRefused::TooMany));
    let record = moves(&mut spine, at(100, 1), &all[1..]);
    assert_eq!(record.dirs().len(), SpineMove::DIRS_MAX);
    let known: Vec<FileId> = dirs.iter().map(|(dir, _)| *dir).collect();
    let evidence = spine.evidence(&known).expect("few directories");
    let of = |dirs: &[MovedDir]| SpineMove::from_slice(&bytes_of(&at(101, 1), dirs, &evidence));
    assert!(of(&all[1..]).is_ok() && of(&all).is_err());
}

#[test]
fn evidence_has_so_many_directories() {
    let mut spine = Spine::default();
    let last = chain(&mut spine, Evidence::DIRS_MAX as u128, "d");
    let record = decides(&spine, at(10_000, 1), &[to(last, ROOT)]).expect("as many as may be");
    assert_eq!(record.evidence().dirs().len(), Evidence::DIRS_MAX);
    assert_eq!(SpineMove::from_slice(&record.to_vec()), Ok(record));
    let one_more = dir(Evidence::DIRS_MAX as u128 + 1);
    spine.born(one_more, SpinePlace { parent: last, name: name("d"), since: at(9_000, 1) });
    assert_eq!(decides(&spine, at(10_000, 1), &[to(one_more, ROOT)]), Err(MoveRefused::Busy));
    assert_eq!(spine.evidence(&[one_more]), None);
    // A cut does not help here, since no move is to blame. A directory that is less deep can move.
    assert!(decides(&spine, at(10_000, 1), &[to(dir(9), ROOT)]).is_ok());
}

#[test]
fn a_record_has_so_many_bytes() {
    let mut spine = Spine::default();
    let long = "x".repeat(255);
    let last = chain(&mut spine, 900, &long);
    assert_eq!(decides(&spine, at(10_000, 1), &[to(last, ROOT)]), Err(MoveRefused::Busy));
    let most = (1..900).rev().find(|n| decides(&spine, at(10_000, 1), &[to(dir(*n), ROOT)]).is_ok());
    let record = decides(&spine, at(10_000, 1), &[to(dir(most.expect("one")), ROOT)]).expect("it was");
    let bytes = record.to_vec();
    assert_eq!(bytes.len(), record.encoded_len());
    assert!((SpineMove::BYTES_MAX - 400..=SpineMove::BYTES_MAX).contains(&bytes.len()));
    let evidence = spine.evidence(&[last]).expect("few directories");
    let bytes = bytes_of(&record.stamp(), &[to(last, ROOT)], &evidence);
    assert!(SpineMove::from_slice(&bytes).is_err(), "too long by its evidence");
}

#[test]
fn the_log_has_so_many_bytes_of_one_writer() {
    let mut spine = Spine::default();
    let last = chain(&mut spine, 700, &"x".repeat(255));
    spine.born(dir(5_000), SpinePlace { parent: ROOT, name: name("d"), since: at(5_000, 1) });
    let mut other = spine.clone();
    let mut records = Vec::new();
    let mut time_us = 10_000;
    // Each move brings the whole chain.
    let refused = loop {
        time_us += 1;
        let parent = if time_us % 2 == 0 { ROOT } else { last };
        match decides(&spine, at(time_us, 1), &[to(dir(5_000), parent)]) {
            Ok(record) => {
                spine.receive(record.clone()).expect("its own");
                records.push(record);
            }
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, MoveRefused::Busy);
    let bytes: usize = records.iter().map(Encode::encoded_len).sum();
    assert!(bytes <= Spine::LOG_BYTES_MAX && bytes + SpineMove::BYTES_MAX > Spine::LOG_BYTES_MAX);
    // Another writer has a share of its own.
    assert!(decides(&spine, at(time_us, 2), &[to(dir(5_000), ROOT)]).is_ok());
    // This site folds and goes on. One that has not folded yet takes no more of it until it does.
    spine.fold(cut(time_us, time_us));
    time_us += 1;
    let next = moves(&mut spine, at(time_us, 1), &[to(last, ROOT)]);
    records.iter().for_each(|record| drop(other.receive(record.clone()).expect("a record")));
    assert_eq!(other.receive(next.clone()), Err(NotTaken::TooMany));
    other.fold(cut(time_us - 1, time_us - 1));
    assert_eq!(hears(&mut other, &next), [last]);
}

#[test]
fn a_stamp_at_the_end_of_time_blocks_only_what_was_moved_there() {
    let mut spine = Spine::default();
    born(&mut spine, &[(dir(1), ROOT), (dir(2), ROOT), (dir(3), ROOT)]);
    let end = SpineMove::TIME_US_MAX;
    let last = moves(&mut spine, at(end, 9), &[to(dir(1), dir(2))]);
    let next = |above: HybridStamp| at(above.time_us + 1, 1);
    assert_eq!(spine.decide(Writer(1), vec![to(dir(1), dir(3))], next), Err(MoveRefused::Busy));
    assert!(spine.decide(Writer(1), vec![to(dir(3), dir(2))], next).is_ok());
    let bytes = bytes_of(&at(end + 1, 9), last.dirs(), last.evidence());
    assert!(SpineMove::from_slice(&bytes).is_err());
    let born = |time_us| vec![(dir(4), vec![place(ROOT, at(time_us, 9))])];
    assert!(Evidence::from_slice(&Encode::to_vec(&born(end))).is_ok());
    assert!(Evidence::from_slice(&Encode::to_vec(&born(end + 1))).is_err());
}

/// A record as bytes, whatever its parts are.
fn bytes_of(stamp: &HybridStamp, dirs: &[MovedDir], evidence: &impl Encode) -> Vec<u8> {
    let mut bytes = stamp.to_vec();
    dirs.to_vec().encode(&mut bytes);
    evidence.encode(&mut bytes);
    bytes
}

fn place(parent: FileId, since: HybridStamp) -> SpinePlace {
    SpinePlace { parent, name: name("d"), since }
}

#[test]
fn records_that_no_site_sends_are_refused() {
    type Dirs = Vec<(FileId, Vec<SpinePlace>)>;
    let root = |time_us| vec![place(ROOT, at(time_us, 1))];
    let good = vec![(dir(1), root(1)), (dir(2), root(2))];
    let accepts = |stamp, dirs: &[MovedDir], evidence: &Dirs| {
        SpineMove::from_slice(&bytes_of(&stamp, dirs, evidence)).is_ok()
    };
    let (one, other) = (to(dir(1), dir(2)), to(dir(2), dir(1)));
    assert!(accepts(at(10, 1), std::slice::from_ref(&one), &good));
    let refused: &[(&str, HybridStamp, Vec<MovedDir>, Dirs)] = &[
        ("moves nothing", at(10, 1), vec![], good.clone()),
        ("not sorted", at(10, 1), vec![other.clone(), one.clone()], good.clone()),
        ("twice", at(10, 1), vec![one.clone(), one.clone()], good.clone()),
        ("the root", at(10, 1), vec![to(ROOT, dir(1))], good.clone()),
        ("into itself", at(10, 1), vec![to(dir(1), dir(1))], good.clone()),
        ("before a birth", at(2, 1), vec![one.clone()], good.clone()),
        ("no evidence of the parent", at(10, 1), vec![one.clone()], good[..1].to_vec()),
        ("no evidence of the directory", at(10, 1), vec![one.clone()], good[1..].to_vec()),
        ("evidence not sorted", at(10, 1), vec![one.clone()], vec![good[1].clone(), good[0].clone()]),
        ("evidence of the root", at(10, 1), vec![to(dir(1), ROOT)], vec![(ROOT, root(1)), good[0].clone()]),
        ("nowhere", at(10, 1), vec![one.clone()], vec![(dir(1), vec![]), good[1].clone()]),
        (
            "places not sorted",
            at(10, 1),
            vec![one.clone()],
            vec![(dir(1), [root(3), root(2)].concat()), good[1].clone()],
        ),
        (
            "a parent without evidence",
            at(10, 1),
            vec![one],
            vec![(dir(1), vec![place(dir(7), at(1, 1))]), good[1].clone()],
        ),
    ];
    for (what, stamp, dirs, evidence) in refused {
        assert!(!accepts(*stamp, dirs, evidence), "{what}");
    }
}

#[test]
fn evidence_that_leads_round_a_circle_is_refused_and_changes_nothing() {
    let circle = vec![(dir(1), vec![place(dir(2), at(1, 1))]), (dir(2), vec![place(dir(1), at(2, 1))])];
    let record = SpineMove::from_slice(&bytes_of(&at(10, 1), &[to(dir(1), ROOT)], &circle));
    let mut spine = Spine::default();
    let refused = spine.receive(record.expect("it has the form of a move"));
    assert!(matches!(refused, Err(NotTaken::Malformed(_))));
    let evidence = Evidence::from_slice(&Encode::to_vec(&circle)).expect("it has the form of evidence");
    assert!(matches!(spine.learn(at(10, 1), &evidence), Err(NotTaken::Malformed(_))));
    assert_eq!((spine.known(), spine.records().len()), (0, 0));
}

#[test]
fn a_move_before_the_birth_that_is_known_here_is_refused() {
    let mut spine = Spine::default();
    spine.born(dir(1), place(ROOT, at(50, 1)));
    let record = SpineMove::from_slice(&bytes_of(
        &at(10, 2),
        &[to(dir(1), dir(2))],
        &vec![(dir(1), vec![place(ROOT, at(5, 1))]), (dir(2), vec![place(ROOT, at(6, 1))])],
    ));
    let refused = spine.receive(record.expect("it has the form of a move"));
    assert!(matches!(refused, Err(NotTaken::Malformed(_))));
    assert_eq!(spine.known(), 1);
    spine.check();
}

#[test]
fn whatever_bytes_come_the_spine_stays_whole() {
    let mut rng = Rng::new(7);
    let mut spine = Spine::default();
    let dirs: Vec<(FileId, FileId)> = (1..=6).map(|n| (dir(n), dir(n / 2))).collect();
    born(&mut spine, &dirs);
    let mut seen = spine.clone();
    let records = [
        moves(&mut seen, at(20, 1), &[to(dir(4), dir(3))]),
        moves(&mut seen, at(21, 2), &[to(dir(5), dir(6)), to(dir(2), dir(4))]),
        moves(&mut seen, at(22, 1), &[to(dir(3), ROOT)]),
    ];
    let mut taken = 0;
    for _ in 0..20_000 {
        let mut bytes = rng.pick(&records).to_vec();
        for _ in 0..=rng.below(3) {
            let at = rng.index(bytes.len());
            // Small numbers, so that ids and stamps often are those of others.
            bytes[at] = if rng.percent(50) { rng.below(8) as u8 } else { rng.bits() as u8 };
        }
        let Ok(record) = SpineMove::from_slice(&bytes) else { continue };
        taken += u32::from(spine.receive(record).is_ok());
        if spine.records().len() > 20 {
            spine.check();
            let middle = spine.records().nth(10).expect("one of them").stamp();
            spine.fold(atoll_spine::SpineCut { upto: middle, horizon: middle });
            spine.check();
            // Once a forged stamp is folded, nothing else would be taken.
            if middle.time_us > 1_000 {
                spine = Spine::default();
                born(&mut spine, &dirs);
            }
        }
    }
    assert!(taken > 500, "{taken} forged records were taken");
}
