//! What is true only at rest: a whole state at rest has nothing wrong, and each thing that is under way, or has not
//! been heard of, is found by its rule.

mod common;

use std::collections::BTreeSet;

use atoll_check::{Rule, check, check_at_rest};
use atoll_core::cookie_of;
use atoll_core::{Ino, SessionId, Stamp};
use atoll_posix::Kind;
use atoll_proto::{Entry, Forward, PlaceVersion, Session, TxnState, Xattrs};
use common::{AT_REST, Break, HERE, LINK, SEED, THERE, World, broken_links, name, plants};

fn rules(world: &World) -> BTreeSet<Rule> {
    check_at_rest(&world.volume, &world.islands).into_iter().map(|finding| finding.rule).collect()
}

fn session(held: Vec<Ino>) -> Session {
    Session { held, ..common::session() }
}

/// Each thing that is fine while something is under way, and the rule that it breaks at rest.
fn not_at_rest() -> Vec<(&'static str, Rule, Break)> {
    vec![
        ("a transaction", Rule::TxnEnded, |w| {
            let work = w.count("also");
            w.begin(0, TxnState::Committed, work);
        }),
        ("a directory that is sealed", Rule::TxnEnded, |w| {
            let work = w.count("also");
            w.begin(1, TxnState::Prepared, work);
            let txn = *w.islands[1].txns.first_key_value().unwrap().0;
            w.islands[1].dirs.get_mut(&w.sub).unwrap().owned.as_mut().unwrap().sealed = Some(txn);
            w.islands[1].txns.clear();
        }),
        ("a journal entry that is kept", Rule::JournalDelivered, |w| {
            w.islands[0].journals.outbox.insert(Stamp::new(1, 3));
        }),
        ("a journal entry that its sender may lose", Rule::JournalDelivered, |w| {
            w.islands[0].journals.inbox.insert((THERE, Stamp::new(1, 3)));
        }),
        ("an island that has skipped and not caught up", Rule::JournalDelivered, |w| {
            w.islands[0].journals.skipped.insert(THERE, Stamp::new(1, 3));
            w.islands[0].journals.delivered.insert(THERE, Stamp::new(1, 2));
        }),
        ("an island that is behind", Rule::JournalDelivered, |w| {
            w.islands[0].clocks.raise(HERE, Stamp::new(1, 3));
        }),
        ("a file that is here and has gone", Rule::ForwardKnown, |w| {
            w.islands[0].forwards.insert(w.in_root, forward(Vec::new()));
        }),
        ("a file that has gone, and a client that is not known", Rule::ForwardKnown, |w| {
            w.islands[0].forwards.insert(Ino::mint(HERE, 99), forward(vec![SessionId(4)]));
        }),
        ("a name that leads below, where nothing is", Rule::SkeletonNamed, |w| {
            let entry = Entry { ino: Ino::mint(THERE, 99), kind: Kind::Directory, home: THERE, stub: None };
            w.islands[1].names.get_mut(&Ino::ROOT).unwrap().push((cookie_of(SEED, b"x"), name("x"), entry));
        }),
        ("a skeleton directory without its name", Rule::SkeletonNamed, |w| {
            drop(w.islands[1].names.remove(&Ino::ROOT));
        }),
        ("a copy of attributes that is on its way", Rule::CopyCurrent, |w| {
            w.islands[1].dirs.get_mut(&w.sub).unwrap().fixed.version = Stamp::new(1, 3);
        }),
        ("a stub that is on its way", Rule::StubAgrees, |w| {
            let version = PlaceVersion { moves: 0, stamp: Stamp::new(1, 4) };
            w.islands[0].names.get_mut(&Ino::ROOT).unwrap()[0].2.stub.as_mut().unwrap().place = version;
        }),
        ("an ACL that is on its way", Rule::CopyCurrent, |w| {
            let values = Xattrs(vec![(atoll_posix::acl::DEFAULT_XATTR.into(), "".into())]);
            w.islands[1].xattrs.insert(w.sub, values);
            let dir = w.islands[1].dirs.get_mut(&w.sub).unwrap();
            (dir.has_xattrs, dir.has_acl) = (true, true);
        }),
        ("a file that a client holds for nothing", Rule::HeldForCause, |w| {
            let held = vec![w.in_root];
            w.islands[0].sessions.insert(SessionId(4), session(held));
        }),
    ]
}

fn forward(sessions: Vec<SessionId>) -> Forward {
    Forward { to: THERE, moves: 1, sessions }
}

#[test]
fn a_whole_state_at_rest_has_nothing_wrong() {
    for world in [World::new(), World::with_link()] {
        assert_eq!(check_at_rest(&world.volume, &world.islands), []);
    }
}

#[test]
fn what_is_not_at_rest_is_found_by_its_rule() {
    for (what, rule, breaks) in not_at_rest() {
        let mut world = World::new();
        breaks(&mut world);
        assert!(rules(&world).contains(&rule), "{what}: {rule} was not found, only {:?}", rules(&world));
    }
    let planted: BTreeSet<Rule> = not_at_rest().iter().map(|(_, rule, _)| *rule).collect();
    assert!(AT_REST.iter().all(|rule| planted.contains(rule)), "nothing is planted for one of {AT_REST:?}");
}

#[test]
fn at_rest_everything_is_found_that_is_found_otherwise() {
    for plant in plants() {
        let mut world = World::new();
        (plant.breaks)(&mut world);
        assert!(rules(&world).is_superset(&world.rules()), "{}", plant.what);
    }
}

#[test]
fn links_are_known_to_all_whoever_has_ended_uncleanly() {
    for (rule, breaks) in broken_links() {
        let mut world = World::with_link();
        world.islands.iter_mut().for_each(|rows| rows.meta.clean = false);
        breaks(&mut world);
        assert!(rules(&world).contains(&rule), "{rule} was not found");
    }
    // Of which one has not heard yet: fine, but not at rest.
    let mut world = World::with_link();
    world.islands[0].links.remove(&LINK);
    world.islands[1].links_told.clear();
    assert_eq!(check(&world.volume, &world.islands), []);
    assert_eq!(rules(&world), BTreeSet::from([Rule::LinksAgree]));
}
