//! What somebody of the same node asks a site: it is answered when it is so, or says why it is not.

mod bytes;
mod site;

use atoll_core::Decode;
use atoll_island::BesideEvent;
use atoll_posix::Errno;
use atoll_wide::asks::{SiteAnswers, SiteAsks};
use atoll_wide::members::{MemberRow, NumberedSite, SiteMember, SiteStanding};
use atoll_wide::peers::message::Most;
use atoll_wide::rows::{MEMBERS, SiteId};
use bytes::World;

/// A site that takes part, as it is known.
fn known(world: &World) -> SiteMember {
    world.machine(0).members().get(SiteId(2)).expect("all know it").clone()
}

fn know(site: u64, member: SiteMember) -> SiteAsks {
    SiteAsks::Know { sites: Most::new(vec![NumberedSite { site, member }]) }
}

fn failed(errno: Errno) -> SiteAnswers {
    SiteAnswers::Failed { errno }
}

#[test]
fn that_sites_are_such_is_answered_when_their_rows_say_so() {
    let mut world = World::new(2);
    world.rest();
    let forgotten = SiteMember { version: 2, state: SiteStanding::Forgotten, ..known(&world) };
    world.sites[0].decides(false);
    world.asks(0, 1, &know(2, forgotten.clone()));
    world.passes(5);
    assert_eq!(world.answers.get(&1), None, "it is not decided");
    world.sites[0].decides(true);
    world.passes(5);
    assert_eq!(world.answers.get(&1), Some(&SiteAnswers::Known));
    let row = MemberRow::from_slice(&world.sites[0].sides()[&(MEMBERS, 2)]).expect("it is a row");
    assert_eq!(row, MemberRow::Member { member: forgotten.clone() });
    assert_eq!(world.ask(0, &know(2, forgotten)), SiteAnswers::Known, "nothing has to be written");
}

#[test]
fn what_cannot_be_so_is_refused_at_once() {
    let mut world = World::new(2);
    world.rest();
    let member = SiteMember { version: 2, ..known(&world) };
    let too_long = SiteMember { name: "x".repeat(33), ..member.clone() };
    assert_eq!(world.ask(0, &know(2, too_long)), failed(Errno::EINVAL));
    let other = SiteMember { name: "other".to_owned(), ..member.clone() };
    assert_eq!(world.ask(0, &know(2, other.clone())), failed(Errno::EEXIST), "names stay");
    assert_eq!(world.ask(0, &know(9_999, other)), failed(Errno::ENOSPC), "there are as many as may be");
    world.sites[0].hear(BesideEvent::Asked { id: 1, bytes: ::bytes::Bytes::from_static(b"\xff") });
    world.passes(1);
    assert_eq!(world.answers.get(&1), Some(&failed(Errno::EINVAL)), "nobody knows this question");
    world.put(0, "a", b"and all goes on");
    world.rest();
    world.all_have(&[("a", b"and all goes on")]);
}

#[test]
fn who_asks_for_too_much_at_once_is_told_so() {
    let mut world = World::new(2);
    world.rest();
    world.sites[0].decides(false);
    let member = SiteMember { version: 2, state: SiteStanding::Left, ..known(&world) };
    for id in 0..65 {
        world.asks(0, id, &know(2, member.clone()));
    }
    world.passes(5);
    assert_eq!(world.answers.get(&64), Some(&failed(Errno::EAGAIN)));
    assert_eq!(world.answers.len(), 1);
    world.sites[0].decides(true);
    world.passes(20);
    assert_eq!(world.answers.len(), 65);
    assert_eq!(world.answers.get(&63), Some(&SiteAnswers::Known));
}
