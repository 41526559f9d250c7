//! Tests of what an island has lost and does again: in which order, and with what.

#[cfg(test)]
mod tests {
    use atoll_core::map::IdSet;
    use atoll_core::{Ino, IslandId, Key, SessionId, Stamp, Time, TxnId};
    use atoll_posix::{Caller, Kind, RenameMode};
    use atoll_proto::{
        DirPlace, Entry, EntryRef, JournalEntry, OwnedDir, ParticipantWork, PeerOp, RenameSpec, RequestId,
        StaticAttrs, Stub, Txn, TxnPart, TxnStamps, TxnState, Xattrs,
    };

    use crate::ctx::Ctx;
    use crate::ctx::decision::Decision;
    use crate::ctx::lost::{LostPart, LostRecord};
    use crate::event::{Event, Now};
    use crate::island::Island;
    use crate::recovery::start::PreviousEnd;
    use crate::rows::heard_late::tests::{ONE, OTHER, above, at, hears, island, loaded, name};
    use crate::rows::skeleton::new_row;

    /// A directory that is renamed, or whose attributes change.
    const DIR: Ino = Ino(72);

    fn fixed(n: u64, mode: u32) -> StaticAttrs {
        StaticAttrs { version: Stamp::new(1, n), mode, uid: 0, gid: 0 }
    }

    /// A directory's name, as its parent's owner has it.
    fn entry(ino: Ino, place: &DirPlace, fixed: StaticAttrs) -> Entry {
        let stub = Stub { key: Key(9), place: place.version, fixed, time: Time::default() };
        Entry { ino, kind: Kind::Directory, home: IslandId(0), stub: Some(Box::new(stub)) }
    }

    fn owned() -> Option<OwnedDir> {
        Some(OwnedDir { entries: 1, subdirs: 1, ..OwnedDir::empty(Time::default()) })
    }

    fn decide(ctx: &mut Ctx, rows: impl FnOnce(&mut Decision)) {
        let mut decision = Decision::new();
        rows(&mut decision);
        ctx.decide(decision);
    }

    /// A directory that is owned here, and a name in it, which is read.
    fn with_name(ctx: &mut Ctx, parent: Ino, called: &str, entry: Option<Entry>) {
        decide(ctx, |decision| {
            decision.dir(parent, new_row(&above(parent, at(Ino::ROOT, "p", 1), false), owned()))
        });
        let place = at(parent, called, 1);
        loaded(ctx, |ctx| ctx.entry_must_be_loaded(&place)).expect("rows are read");
        loaded(ctx, |ctx| ctx.child_must_be_loaded(&place, DIR)).expect("rows are read");
        decide(ctx, |decision| decision.entry(parent, &name(called), entry));
    }

    /// Has something done again until all that it reads is in memory.
    fn done(
        mut redo: impl FnMut(&mut Island) -> Result<bool, crate::ctx::request::Blocked>,
        on: &mut Island,
    ) -> bool {
        loop {
            match redo(on) {
                Err(crate::ctx::request::Blocked::Load(loads)) => {
                    for load in loads {
                        let nothing = load.nothing();
                        on.ctx.state.load(load, nothing).expect("well formed");
                    }
                }
                done => return done.expect("nothing is under way"),
            }
        }
    }

    fn part(work: ParticipantWork) -> TxnPart {
        TxnPart { request: RequestId { session: SessionId(5), seq: 1 }, work }
    }

    fn txn(coordinator: IslandId, n: u64) -> TxnId {
        TxnId { coordinator, stamp: Stamp::new(1, n) }
    }

    /// The directory moves to `to`.
    fn freeze(to: DirPlace) -> ParticipantWork {
        ParticipantWork::FreezeDir { ino: DIR, caller: Caller::ROOT, to, key: Key(9) }
    }

    /// The name in a directory of this island's is lent to a directory that comes from elsewhere.
    fn lend(to: EntryRef, file: Entry, there: Option<Entry>) -> ParticipantWork {
        let from = EntryRef { dir: Ino(80), name: name("old") };
        let (mode, by, time) = (RenameMode::Replace, None, Time::default());
        let renaming = Box::new(RenameSpec { from, to, file, there, mode, by, time });
        let (caller, new_meant, denied, chain, wants_chain) = (Caller::ROOT, None, None, None, false);
        let scope = None;
        ParticipantWork::BorrowName { renaming, caller, new_meant, denied, chain, wants_chain, scope }
    }

    fn stub_mode(ctx: &Ctx, parent: Ino, called: &str) -> Option<u32> {
        let entry = ctx.state.entry(parent, &name(called)).expect("it was read")?;
        entry.stub.as_ref().map(|stub| stub.fixed.mode)
    }

    #[test]
    fn a_hold_that_is_done_again_brings_the_attributes_of_now_to_where_the_directory_goes() {
        let (mut island, other) = island();
        let (old, to) = (at(OTHER, "old", 1), at(ONE, "new", 5));
        with_name(&mut island.ctx, ONE, "new", Some(entry(DIR, &to, fixed(1, 0o755))));
        let mut row = new_row(&above(DIR, old, false), owned());
        row.fixed = fixed(7, 0o700);
        decide(&mut island.ctx, |decision| decision.dir(DIR, row));
        let stamps = TxnStamps { prepared: Stamp::new(1, 3), committed: Stamp::new(1, 5) };
        let lost = LostPart { from: other, txn: txn(other, 2), stamps, part: part(freeze(to)) };
        let redo = |island: &mut Island| {
            island.recovery.redo_part(&mut island.ctx, island.txns.locks(), stamps.prepared, &lost)
        };
        assert!(done(redo, &mut island));
        assert_eq!(stub_mode(&island.ctx, ONE, "new"), Some(0o700));
    }

    #[test]
    fn attributes_that_are_done_again_go_to_where_the_directory_is_about_to_be() {
        let (mut island, other) = island();
        let (old, to) = (at(OTHER, "old", 1), at(ONE, "new", 5));
        with_name(&mut island.ctx, ONE, "new", Some(entry(DIR, &to, fixed(1, 0o755))));
        let mut row = new_row(&above(DIR, old.clone(), false), owned());
        row.fixed = fixed(1, 0o755);
        // It has gone there, and the journal that says so is not here yet.
        let stamps = TxnStamps { prepared: Stamp::new(1, 3), committed: Stamp::new(1, 5) };
        let moved = Txn { state: TxnState::Committed, partner: other, stamps, part: part(freeze(to)) };
        decide(&mut island.ctx, |decision| {
            decision.dir(DIR, row);
            decision.txn(txn(other, 2), Some(moved));
        });
        let redo = |island: &mut Island| {
            let (locks, late) = (island.txns.locks(), Stamp::new(1, 4));
            let (now, none) = (fixed(4, 0o700), Xattrs::default());
            island.recovery.redo_fixed(&mut island.ctx, locks, late, DIR, &old, &now, &none).map(|()| true)
        };
        assert!(done(redo, &mut island));
        assert_eq!(stub_mode(&island.ctx, ONE, "new"), Some(0o700));
    }

    /// A lend of this island's of the name to the directory, while the name leads to another.
    fn lost_lend(island: &mut Island, coordinator: IslandId) -> LostPart {
        let place = at(ONE, "n", 2);
        with_name(&mut island.ctx, ONE, "n", Some(entry(OTHER, &place, fixed(1, 0o755))));
        let to = EntryRef { dir: ONE, name: name("n") };
        let work = lend(to, entry(DIR, &at(Ino(80), "old", 1), fixed(1, 0o755)), None);
        let stamps = TxnStamps { prepared: Stamp::new(1, 6), committed: Stamp::new(1, 9) };
        LostPart { from: coordinator, txn: txn(coordinator, 4), stamps, part: part(work) }
    }

    #[test]
    fn a_lend_waits_for_earlier_changes_of_directories_there_if_the_name_is_not_as_it_was() {
        for earlier in [false, true] {
            let (mut island, other) = island();
            let lost = lost_lend(&mut island, other);
            if earlier {
                // The directory that has the name has left it, which is not done again yet.
                let place = at(ONE, "elsewhere", 5);
                let from = EntryRef { dir: ONE, name: name("n") };
                let (replaced, time) = (None, Time::default());
                let chain = atoll_proto::Chain::default();
                let left = JournalEntry::Place { ino: OTHER, place, from, replaced, chain, time };
                island.recovery.redo.push(Stamp::new(1, 5), LostRecord::Entry(left));
            }
            let redo = |island: &mut Island| {
                island.recovery.redo_part(&mut island.ctx, island.txns.locks(), lost.stamps.prepared, &lost)
            };
            assert_eq!(done(redo, &mut island), !earlier);
        }
    }

    #[test]
    fn a_rename_within_a_directory_waits_for_an_earlier_lend_of_its_new_name() {
        let (mut island, other) = island();
        let lost = lost_lend(&mut island, other);
        let place = at(ONE, "n", 8);
        let from = EntryRef { dir: ONE, name: name("was") };
        let (replaced, time, chain) = (None, Time::default(), atoll_proto::Chain::default());
        let renamed = JournalEntry::Place { ino: DIR, place: place.clone(), from, replaced, chain, time };
        let fits = |island: &Island| loaded_now(island, &renamed);
        let was = at(ONE, "was", 1);
        loaded(&mut island.ctx, |ctx| ctx.entry_must_be_loaded(&was)).expect("rows are read");
        decide(&mut island.ctx, |decision| {
            decision.entry(ONE, &name("was"), Some(entry(DIR, &was, fixed(1, 0o755))));
        });
        assert!(!fits(&island), "the name leads to another directory");
        assert!(!island.recovery.is_preceded(&island.ctx, Stamp::new(1, 8), ONE));
        let prepared =
            Txn { state: TxnState::Prepared, partner: other, stamps: lost.stamps, part: lost.part.clone() };
        decide(&mut island.ctx, |decision| decision.txn(lost.txn, Some(prepared)));
        assert!(island.recovery.is_preceded(&island.ctx, Stamp::new(1, 8), ONE));
        island.recovery.redo.push(Stamp::new(1, 8), LostRecord::Entry(renamed));
        let Island { ctx, recovery, txns, .. } = &mut island;
        // All that doing it again reads is in memory.
        loaded(ctx, |ctx| ctx.rows_of_move_must_be_loaded(DIR, ONE, &mut IdSet::default()))
            .expect("rows are read");
        loaded(ctx, |ctx| ctx.free_beside(ONE, &name("n"), DIR)).expect("rows are read");
        recovery.waiting.clear();
        recovery.redo_lost(ctx, txns.locks());
        assert_eq!(recovery.redo.entries().count(), 1, "it waits");
    }

    fn loaded_now(island: &Island, entry: &JournalEntry) -> bool {
        island.recovery.place_fits(&island.ctx, entry).expect("rows were read")
    }

    #[test]
    fn a_lend_that_was_not_lost_is_not_done_again_when_it_is_told_once_more() {
        for (n, is_lost) in [(3, false), (6, true)] {
            let (mut first, other) = island();
            // The last stamp of the first life that its log has.
            decide(&mut first.ctx, |decision| decision.stamp(Stamp::new(1, 4)));
            let (config, state) = (first.ctx.config.clone(), first.ctx.state.clone());
            let mut island = Island::new(config, state, PreviousEnd::PowerCut, Now::default());
            let lost = lost_lend(&mut island, other);
            let stamps = TxnStamps { prepared: Stamp::new(1, n), ..lost.stamps };
            assert_eq!(island.ctx.state.lost(stamps.prepared), is_lost);
            island.handle(Now::default(), Event::PeerReachable { island: other, up: true }, &mut Vec::new());
            let part = Some(Box::new(lost.part));
            hears(&mut island, other, 1, PeerOp::Decided { txn: lost.txn, stamps: Some(stamps), part });
            assert_eq!(island.recovery.redo.parts().count(), usize::from(is_lost));
        }
    }
}
