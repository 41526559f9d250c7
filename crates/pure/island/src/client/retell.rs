//! Tells a mount again, on its next link, what it may not have heard when a link broke: which files without a
//! name are kept for it, and which of its files have moved. The mount answers which of them it has closed,
//! and which moves it knows.
//!
//! A bounded number is told at each tick, so the messages that wait to be sent stay few, however much a mount
//! holds.

use atoll_core::{Ino, SessionId};
use atoll_proto::{Forward, Notice};

use crate::client::sessions::Sessions;
use crate::ctx::Ctx;
use crate::event::Effect;
use crate::migration::Migration;

/// Notices of one mount between two ticks.
pub(crate) const NOTICES_MAX: usize = 1024;

/// How far a mount is with being told once more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoticeRepeats {
    /// It was told of orphans up to this id,
    orphans: Ino,
    /// and of moved files up to this one.
    moves: Ino,
}

impl NoticeRepeats {
    /// Nothing was told yet.
    pub(crate) const START: Self = Self { orphans: Ino(0), moves: Ino(0) };
}

impl Sessions {
    /// Tells a mount more of what it may not have heard.
    pub(crate) fn tell_more_again(&mut self, ctx: &mut Ctx, migration: &Migration, session: SessionId) {
        let Some(mut again) = self.again_of(session) else { return };
        let Some(link) = ctx.replies.link_of(session) else { return };
        let held = ctx.state.session(session).map_or(&[][..], |row| &row.held);
        let from = held.partition_point(|ino| *ino <= again.orphans);
        let orphans: Vec<Ino> = held[from..].iter().take(NOTICES_MAX).copied().collect();
        again.orphans = orphans.last().copied().unwrap_or(again.orphans);
        let moves = migration.unheard_moves(ctx, session, again.moves, NOTICES_MAX - orphans.len());
        again.moves = moves.last().map_or(again.moves, |(ino, _)| *ino);
        let is_over = orphans.len() + moves.len() < NOTICES_MAX;
        for ino in orphans {
            ctx.durability.after_commit(ctx.state.seq(), Effect::Notice(link, Notice::Orphan { ino }));
        }
        for (ino, Forward { to, moves, .. }) in moves {
            ctx.durability.emit(Effect::Notice(link, Notice::Moved { ino, to, moves }));
        }
        self.set_again(session, (!is_over).then_some(again));
    }

    /// All mounts are told more.
    pub(crate) fn tick_again(&mut self, ctx: &mut Ctx, migration: &Migration) {
        for session in self.told_again() {
            self.tell_more_again(ctx, migration, session);
        }
    }
}
