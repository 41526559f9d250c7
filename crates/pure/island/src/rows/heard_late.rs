//! Tests of messages that an island hears late, in another order than their events, or from an island that
//! has died since.

#[cfg(test)]
pub(crate) mod tests {
    use atoll_core::{Ino, IslandId, Key, Name, Stamp, Table, Time};
    use atoll_posix::{Errno, Kind};
    use atoll_proto::{
        Ancestor, Chain, DirPlace, Entry, EntryRef, JournalEntry, OwnedDir, PeerMessage, PeerOp,
        PlaceVersion, StaticAttrs, Xattrs,
    };
    use atoll_state::State;

    use crate::ctx::decision::Decision;
    use crate::ctx::posts::is_pair;
    use crate::ctx::request::Blocked;
    use crate::ctx::{Config, Ctx};
    use crate::event::{Effect, Event, Now};
    use crate::island::Island;
    use crate::recovery::start::PreviousEnd;
    use crate::rows::skeleton::new_row;

    pub(crate) const ONE: Ino = Ino(70);
    pub(crate) const OTHER: Ino = Ino(71);

    /// One of two islands, which does not own the root; and the one that does.
    pub(crate) fn island() -> (Island, IslandId) {
        let (table, islands) = (Table::new(2), vec![IslandId(0), IslandId(1)]);
        let of = |me| Config::new(me, 1, table.clone(), islands.clone());
        let owner = of(IslandId(0)).owner(Key(0));
        let me = islands.iter().copied().find(|island| *island != owner).expect("there are two");
        let config = of(me);
        (Island::new(config, State::new(1), PreviousEnd::Orderly, Now::default()), owner)
    }

    pub(crate) fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).expect("a name")
    }

    /// A name in a directory, which was given then.
    pub(crate) fn at(parent: Ino, called: &str, n: u64) -> DirPlace {
        let version = PlaceVersion { moves: 0, stamp: Stamp::new(1, n) };
        DirPlace { version, parent, name: Some(name(called)) }
    }

    /// A directory that is told of as one above another.
    pub(crate) fn above(ino: Ino, place: DirPlace, suspected: bool) -> Ancestor {
        let fixed = StaticAttrs { version: Stamp(0), mode: 0o755, uid: 0, gid: 0 };
        Ancestor { ino, key: Key(9), birth_bytes: 0, place, fixed, xattrs: Xattrs::default(), suspected }
    }

    /// Reads until all is in memory; there is nothing in any row that is not.
    pub(crate) fn loaded<T>(ctx: &mut Ctx, read: impl Fn(&Ctx) -> Result<T, Blocked>) -> Result<T, Blocked> {
        loop {
            match read(ctx) {
                Err(Blocked::Load(loads)) => {
                    for load in loads {
                        let nothing = load.nothing();
                        ctx.state.load(load, nothing).expect("well formed");
                    }
                }
                done => return done,
            }
        }
    }

    /// A directory comes to the skeleton. Whether all are to be compared then, as some may be old.
    fn comes(ctx: &mut Ctx, dir: &Ancestor) -> bool {
        loaded(ctx, |ctx| ctx.entry_must_be_loaded(&dir.place)).expect("rows are read");
        let before = ctx.state.skipped(ctx.config.id);
        let mut decision = Decision::new();
        ctx.add_skeleton(&mut decision, dir, None);
        ctx.decide(decision);
        ctx.state.skipped(ctx.config.id) > before
    }

    fn named(ctx: &Ctx, called: &str) -> Option<Ino> {
        ctx.state.entry(Ino::ROOT, &name(called)).expect("it was read").map(|entry| entry.ino)
    }

    pub(crate) fn hears(island: &mut Island, from: IslandId, incarnation: u32, peer: PeerOp) -> Vec<Effect> {
        let (message, mut out) =
            (PeerMessage { from, incarnation, vector: Vec::new(), op: peer }, Vec::new());
        island.handle(Now::default(), Event::Peer(message), &mut out);
        out
    }

    #[test]
    fn what_its_sender_doubts_is_compared() {
        let (mut island, _) = island();
        assert!(!comes(&mut island.ctx, &above(ONE, at(Ino::ROOT, "sure", 1), false)));
        assert!(comes(&mut island.ctx, &above(OTHER, at(Ino::ROOT, "doubted", 1), true)));
    }

    #[test]
    fn a_name_is_of_the_directory_that_got_it_last_and_the_other_one_is_compared() {
        for (first, second) in [(5, 9), (9, 5)] {
            let (mut island, _) = island();
            assert!(!comes(&mut island.ctx, &above(ONE, at(Ino::ROOT, "n", first), false)));
            assert!(comes(&mut island.ctx, &above(OTHER, at(Ino::ROOT, "n", second), false)));
            assert_eq!(named(&island.ctx, "n"), Some(if first > second { ONE } else { OTHER }));
        }
    }

    #[test]
    fn a_file_has_its_name_again_when_a_directory_on_its_way_leaves_that() {
        let (mut island, _) = island();
        let (ctx, place) = (&mut island.ctx, at(Ino::ROOT, "n", 5));
        loaded(ctx, |ctx| ctx.entry_must_be_loaded(&place)).expect("rows are read");
        let mut decision = Decision::new();
        let file = Entry { ino: OTHER, kind: Kind::Regular, home: ctx.config.id, stub: None };
        decision.entry(Ino::ROOT, &name("n"), Some(file));
        ctx.decide(decision);
        comes(ctx, &above(ONE, place.clone(), false));
        assert_eq!(named(ctx, "n"), Some(ONE));
        let mut decision = Decision::new();
        ctx.skeleton_name(&mut decision, &place, ONE, false);
        ctx.decide(decision);
        assert_eq!(named(ctx, "n"), Some(OTHER));
    }

    #[test]
    fn a_directory_that_came_before_its_parent_was_owned_again_has_a_stub_and_is_counted_then() {
        let (mut island, _) = island();
        let ctx = &mut island.ctx;
        let (parent, below) =
            (above(ONE, at(Ino::ROOT, "a", 1), false), above(OTHER, at(ONE, "b", 2), false));
        comes(ctx, &parent);
        comes(ctx, &below);
        let mut decision = Decision::new();
        ctx.add_skeleton(&mut decision, &parent, Some(OwnedDir::empty(Time::default())));
        ctx.decide(decision);
        for _ in 0..2 {
            let mut decision = Decision::new();
            ctx.name_ancestor(&mut decision, &below, Time::default());
            ctx.decide(decision);
            let entry = ctx.state.entry(ONE, &name("b")).expect("it was read").expect("it is there");
            assert!(entry.stub.is_some());
            let owned = ctx.in_memory(ONE).and_then(|row| row.owned).expect("it is owned");
            assert_eq!((owned.entries, owned.subdirs), (1, 1));
        }
    }

    #[test]
    fn ancestors_in_a_circle_are_read_as_others_are() {
        let (mut island, _) = island();
        let ctx = &mut island.ctx;
        let mut decision = Decision::new();
        decision.dir(ONE, new_row(&above(ONE, at(OTHER, "a", 1), false), None));
        decision.dir(OTHER, new_row(&above(OTHER, at(ONE, "b", 1), false), None));
        ctx.decide(decision);
        let read = loaded(ctx, |ctx| ctx.skeleton_must_be_loaded(ONE));
        assert!(read.is_ok(), "{read:?}");
    }

    #[test]
    fn a_chain_whose_first_directory_leaves_a_circle_is_there_whole() {
        let (mut island, _) = island();
        let ctx = &mut island.ctx;
        const THIRD: Ino = Ino(72);
        let (one, other) = (above(ONE, at(Ino::ROOT, "now", 9), false), above(OTHER, at(ONE, "b", 1), false));
        let mut decision = Decision::new();
        for (ino, place) in [(ONE, at(THIRD, "a", 1)), (OTHER, at(ONE, "b", 1)), (THIRD, at(OTHER, "c", 1))] {
            let mut row = new_row(&above(ino, place, false), None);
            row.children = 1;
            decision.dir(ino, row);
        }
        ctx.decide(decision);
        loaded(ctx, |ctx| ctx.entry_must_be_loaded(&one.place)).expect("rows are read");
        loaded(ctx, |ctx| ctx.skeleton_must_be_loaded(ONE)).expect("rows are read");
        let root = ctx.chain(Ino::ROOT).expect("in memory").remove(0);
        let mut decision = Decision::new();
        ctx.merge_ancestors(&mut decision, &[root, one, other]);
        ctx.decide(decision);
        let parents = [ONE, OTHER, THIRD].map(|ino| ctx.in_memory(ino).map(|row| row.place.parent));
        assert_eq!(parents, [Some(Ino::ROOT), Some(ONE), Some(OTHER)]);
        ctx.prune_rest();
        assert!(ctx.in_memory(THIRD).is_none(), "nothing below it is known here");
    }

    #[test]
    fn ancestors_of_a_place_that_a_directory_has_left_are_not_kept() {
        let (mut island, _) = island();
        let ctx = &mut island.ctx;
        comes(ctx, &above(OTHER, at(Ino::ROOT, "now", 9), false));
        let root = ctx.chain(Ino::ROOT).expect("in memory").remove(0);
        let chain =
            [root, above(ONE, at(Ino::ROOT, "before", 1), false), above(OTHER, at(ONE, "then", 2), false)];
        for dir in &chain[1..] {
            loaded(ctx, |ctx| ctx.entry_must_be_loaded(&dir.place)).expect("rows are read");
        }
        let mut decision = Decision::new();
        ctx.merge_ancestors(&mut decision, &chain);
        ctx.decide(decision);
        assert!(ctx.in_memory(ONE).is_none(), "nothing below it is known here");
    }

    #[test]
    fn a_name_is_read_before_it_changes_where_listings_may_still_ask_for_it() {
        let (mut island, _) = island();
        let mut decision = Decision::new();
        let owned = OwnedDir { entries: 5, ..OwnedDir::empty(Time::default()) };
        decision.dir(ONE, new_row(&above(ONE, at(Ino::ROOT, "d", 1), false), Some(owned)));
        island.ctx.decide(decision);
        let read = island.ctx.name_must_be_loaded(&EntryRef { dir: ONE, name: name("f") });
        assert!(matches!(read, Err(Blocked::Load(_))), "{read:?}");
    }

    #[test]
    fn directories_change_places_by_two_renames_of_one_moment_only() {
        let renamed = |ino, from: &str, to: &str, ms| JournalEntry::Place {
            ino,
            place: at(Ino::ROOT, to, 1),
            from: EntryRef { dir: Ino::ROOT, name: name(from) },
            replaced: None,
            chain: Chain::default(),
            time: Time::default().plus_millis(ms),
        };
        assert!(is_pair(&renamed(ONE, "a", "b", 7), &renamed(OTHER, "b", "a", 7)));
        // The one had left its name for another, and somebody came to it later.
        assert!(!is_pair(&renamed(ONE, "a", "b", 7), &renamed(OTHER, "b", "a", 8)));
    }

    #[test]
    fn what_others_are_about_to_tell_is_waited_for_unless_one_is_away() {
        let (mut island, other) = island();
        island.ctx.peers.set_reachable(other, true);
        assert!(matches!(island.ctx.retry_or_fail([other]), Blocked::Unheard));
        island.ctx.peers.set_reachable(other, false);
        assert!(matches!(island.ctx.retry_or_fail([other]), Blocked::Fail(Errno::EIO)));
    }

    #[test]
    fn nothing_is_told_over_a_link_that_is_not_up_yet() {
        let (mut island, other) = island();
        let mut out = Vec::new();
        for event in [Event::Committed, Event::Synced] {
            let seq = island.state().seq();
            island.handle(Now::default(), event(seq), &mut out);
        }
        let told = |out: Vec<Effect>| out.iter().any(|effect| matches!(effect, Effect::Send(..)));
        assert!(!told(hears(&mut island, other, 1, PeerOp::Hello)));
        island.handle(Now::default(), Event::PeerReachable { island: other, up: true }, &mut out);
        assert!(told(hears(&mut island, other, 1, PeerOp::Hello)));
    }

    #[test]
    fn which_links_an_island_has_said_that_it_has_is_forgotten_in_its_next_life() {
        let (mut island, other) = island();
        island.handle(Now::default(), Event::PeerReachable { island: other, up: true }, &mut Vec::new());
        hears(&mut island, other, 1, PeerOp::LinksHeld { digest: 7 });
        assert!(!island.links_are_told(), "it has others than this one has");
        hears(&mut island, other, 1, PeerOp::Hello);
        assert!(!island.links_are_told());
        hears(&mut island, other, 2, PeerOp::Hello);
        assert!(island.links_are_told(), "what it said in its last life counts");
    }
}
