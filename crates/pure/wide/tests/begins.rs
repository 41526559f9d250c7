//! A site that begins anew: what it says first, and when.

use std::collections::BTreeSet;

use atoll_causal::Writer;
use atoll_core::{IslandId, Time};
use atoll_island::{Beside, BesideEvent, BesideSays, BesideStep, BesideView, Now};
use atoll_state::State;
use atoll_wide::members::{SiteMember, SiteStanding};
use atoll_wide::peers::Window;
use atoll_wide::rows::SiteId;
use atoll_wide::site::{Site, SiteConfig};

#[test]
fn a_site_says_nothing_before_all_that_it_begins_with_is_synced() {
    let (site, island, window) = (SiteId(1), IslandId(0), Window::MOST);
    let (copies_max, trash_bytes) = (10, 0);
    let (name, key) = ("a".to_owned(), vec![1; 32].into());
    let (state, writer, addresses) = (SiteStanding::Active, Writer(1), Vec::new());
    let me = SiteMember { version: 1, state, writer, name, addresses, key };
    let members = vec![(site, me)];
    let life = 1;
    let config = SiteConfig { volume: 1, site, island, life, members, window, copies_max, trash_bytes };
    let mut site = Site::open(config, 5, []).unwrap();
    site.hear(BesideEvent::Link { peer: 2, up: true });
    let state = State::new(1);
    let now = Now { wall: Time { secs: 1, nanos: 0 }, ms: 1 };
    let mut step = |synced| {
        let (room, busy) = (Some(1 << 40), BTreeSet::new());
        let (may_decide, may_free) = (false, false);
        let view = BesideView { state: &state, now, synced, may_decide, may_free, room, busy: &busy };
        site.step(view, &mut || None)
    };
    assert!(matches!(step(4), BesideStep::Rest));
    assert!(matches!(step(5), BesideStep::Say(BesideSays::Send { peer: 2, .. })));
}
