//! The questions of a comparison to other islands about directories, and the use of their answers.

use std::collections::BTreeMap;

use atoll_core::{Ino, IslandId, Key};
use atoll_proto::{Ancestor, DirAnswer, DirQuestion, DirReport, PeerOp};

use super::answer::Knowledge;
use super::round::{AGAIN_MS, ASKS_PER_MESSAGE, Difference, Inquiry, NextQuestion, Round};
use crate::compare::AntiEntropy;
use crate::ctx::Config;
use crate::ctx::Ctx;
use crate::ctx::request::{Blocked, Next};
use crate::locks::names::NameLocks;
use crate::recovery::Recovery;
use crate::recovery::promised::PendingMove;

impl AntiEntropy {
    /// Asks questions that were not asked, or not answered for a while.
    pub(super) fn ask_open(
        ctx: &mut Ctx,
        locks: &NameLocks,
        recovery: &Recovery,
        comparing: &mut Round,
    ) -> Result<(), Blocked> {
        let (me, now) = (ctx.config.id, ctx.now.ms);
        let missed: Vec<IslandId> = comparing.upto.keys().copied().collect();
        let mut gone = Vec::new();
        for (ino, item) in &comparing.open {
            // It has been removed since, by a transaction.
            if !item.is_stub && !comparing.met.contains(ino) && ctx.state.dir(*ino)?.is_none() {
                gone.push(*ino);
            }
        }
        gone.iter().for_each(|ino| drop(comparing.open.remove(ino)));
        loop {
            let mut asks: BTreeMap<IslandId, Vec<DirQuestion>> = BTreeMap::new();
            for item in comparing.open.values() {
                if item.asked_ms.is_none_or(|asked| now >= asked + AGAIN_MS) {
                    let (to, ask) = (Knowledge { ctx, locks, recovery }).ask_for(item)?;
                    if to == me || ctx.peers.is_reachable(to) {
                        asks.entry(to).or_default().push(ask);
                    }
                }
            }
            let own = asks.remove(&me).unwrap_or_default();
            let own_told: Vec<(Ino, Option<DirAnswer>)> = own
                .iter()
                .map(|ask| Ok((ask.ino, (Knowledge { ctx, locks, recovery }).own_told(ask, &missed)?)))
                .collect::<Result<_, Blocked>>()?;
            let all = asks.values().flatten().map(|ask| ask.ino).chain(own_told.iter().map(|(ino, _)| *ino));
            for ino in all {
                comparing.open.get_mut(&ino).expect("just listed").asked_ms = Some(now);
            }
            for (to, asks) in asks {
                for part in asks.chunks(ASKS_PER_MESSAGE) {
                    let (round, missed, asks) = (comparing.round, missed.clone(), part.to_vec());
                    ctx.send(0, to, PeerOp::Compare { round, missed, asks });
                }
            }
            if own_told.is_empty() {
                return Ok(());
            }
            for told in own_told.into_iter().filter_map(|(_, told)| told) {
                (Knowledge { ctx, locks, recovery }).take_told(comparing, told)?;
            }
        }
    }

    pub(crate) fn on_compared(
        &mut self,
        ctx: &mut Ctx,
        locks: &NameLocks,
        recovery: &Recovery,
        round: u64,
        told: &[DirAnswer],
    ) {
        let Some(mut comparing) = self.round.take() else { return };
        let mut loads = Vec::new();
        if comparing.round == round && !comparing.takes {
            for told in told {
                ctx.state.begin_reads();
                if let Err(Blocked::Load(more)) =
                    (Knowledge { ctx, locks, recovery }).take_told(&mut comparing, told.clone())
                {
                    // It is asked again.
                    loads.extend(more);
                }
            }
        }
        self.round = Some(comparing);
        if loads.is_empty() { ctx.next(Next::Compare) } else { ctx.load(loads, Next::Compare) }
    }

    /// Asks unanswered questions again.
    pub(crate) fn ask_again(&mut self, ctx: &mut Ctx) {
        if self.round.is_some() {
            ctx.next(Next::Compare);
        }
        ctx.next(Next::CompareDoubts);
    }
}

impl Knowledge<'_> {
    /// What this island itself is asked for.
    pub(super) fn own_told(
        self,
        ask: &DirQuestion,
        missed: &[IslandId],
    ) -> Result<Option<DirAnswer>, Blocked> {
        let known = match self.promised(ask.ino).filter(|hint| ask.parent == Some(hint.place.parent)) {
            // Its name is lent for what has happened: there it will be.
            Some(PendingMove { place, owner, .. }) => Some(DirReport::Moves { place, owner }),
            None => self.known(ask, missed)?,
        };
        Ok(known.map(|known| DirAnswer { ino: ask.ino, parent: ask.parent, known }))
    }

    pub(super) fn ask_for(self, item: &Inquiry) -> Result<(IslandId, DirQuestion), Blocked> {
        let Ancestor { ino, key, place, fixed, .. } = &item.dir;
        let (parent, name) = (Some(place.parent), place.name.clone());
        let (ino, fixed, version) = (*ino, fixed.version, place.version);
        let mut ask = DirQuestion { ino, parent, name, after: 0, place: version, fixed, wants_chain: false };
        let NextQuestion::There { owner, after } = item.question else {
            (ask.parent, ask.name, ask.wants_chain) = (None, None, item.question == NextQuestion::Where);
            return Ok((self.ctx.config.owner(*key), ask));
        };
        let mut to = owner;
        match self.promised(ino).filter(|hint| hint.place.version.moves > version.moves) {
            Some(hint) => {
                (to, ask.parent, ask.name) = (hint.owner, Some(hint.place.parent), hint.place.name);
            }
            None => ask.after = after,
        }
        let parent = ask.parent.expect("just set");
        ask.wants_chain = to != self.ctx.config.id && self.ctx.state.dir(parent)?.is_none();
        Ok((to, ask))
    }

    pub(super) fn take_told(self, comparing: &mut Round, told: DirAnswer) -> Result<(), Blocked> {
        let Some(item) = comparing.open.get(&told.ino) else { return Ok(()) };
        let mut item = item.clone();
        let asked = self.ask_for(&item)?;
        if asked.1.parent != told.parent {
            return Ok(());
        }
        let mut above = Vec::new();
        let mut done = false;
        match (item.question, told.known) {
            (NextQuestion::There { .. }, DirReport::Same) => done = !item.next(),
            // Said by this island itself.
            (NextQuestion::There { .. }, DirReport::Moves { place, .. }) => {
                item.goes(place);
                done = !item.next();
            }
            (NextQuestion::There { .. }, DirReport::Differs { dir, chain }) => {
                item.goes(dir.place);
                above = chain;
                done = !item.next();
            }
            (NextQuestion::There { owner, .. }, DirReport::NotUpTo { after }) => {
                item.question = NextQuestion::There { owner, after };
                item.asked_ms = None;
            }
            (NextQuestion::There { .. }, DirReport::Gone) => {
                // Its own owner knows where it has gone; if that is this island, whoever has moved it tells.
                if self.ctx.config.owner(item.dir.key) != self.ctx.config.id {
                    (item.question, item.asked_ms) = (NextQuestion::Where, None);
                } else if asked.0 == self.ctx.config.id {
                    // It is replaced by what is about to take its name: it goes with that.
                    comparing.open.remove(&told.ino);
                    return Ok(());
                } else if let NextQuestion::There { after, .. } = &mut item.question {
                    *after = 0;
                }
            }
            (NextQuestion::Where, DirReport::Differs { dir, chain }) => {
                let Some(owner) = chain.last().map(|last| self.ctx.config.owner(last.key)) else {
                    return Ok(());
                };
                // Told again, if its owner has not heard of it yet.
                let heard = dir.place.parent != item.dir.place.parent;
                item.question = NextQuestion::there(owner);
                if heard {
                    item.asked_ms = None;
                }
                if dir.place.version >= item.dir.place.version {
                    item.differs |= dir.place != item.dir.place;
                    item.dir.place = dir.place;
                }
                above = chain;
            }
            (NextQuestion::Where, DirReport::Moves { place, owner }) => {
                (item.question, item.asked_ms) = (NextQuestion::there(owner), None);
                item.goes(place);
            }
            (NextQuestion::Fixed, DirReport::Differs { dir, .. }) => {
                if dir.fixed.version > item.dir.fixed.version {
                    (item.dir.fixed, item.dir.xattrs) = (dir.fixed, dir.xattrs);
                    item.differs = true;
                }
                done = true;
            }
            (NextQuestion::Fixed, DirReport::Same) => done = true,
            // It is gone, and what is below it here goes by what is told otherwise.
            (NextQuestion::Where | NextQuestion::Fixed, _) => {
                comparing.open.remove(&told.ino);
                return Ok(());
            }
        }
        for new in above {
            if self.ctx.state.dir(new.ino)?.is_none() && comparing.met.insert(new.ino) {
                // Nothing is known of it here: whatever is told is news, and is compared like all else.
                let at = new.place.parent;
                let key = match self.ctx.state.dir(at)? {
                    Some(dir) => Some(dir.key),
                    None => comparing.key_of(at),
                };
                let root = self.ctx.config.owner(Key(0));
                let owner = key.map_or(root, |key| self.ctx.config.owner(key));
                let item = Inquiry { differs: true, ..Inquiry::new(new, NextQuestion::there(owner), true) };
                comparing.open.insert(item.dir.ino, item);
            }
        }
        if done {
            comparing.open.remove(&told.ino);
            if item.differs {
                comparing.found.insert(told.ino, Difference { dir: item.dir, is_stub: item.is_stub });
            }
        } else {
            comparing.open.insert(told.ino, item);
        }
        Ok(())
    }
}

impl Round {
    /// Whether changes of the attributes of directories with this key may have been missed.
    pub(super) fn missed(&self, config: &Config, key: Key) -> bool {
        let owner = config.owner(key);
        owner != config.id && (self.upto.contains_key(&owner) || self.upto.contains_key(&config.id))
    }

    /// The placement key of a directory that was met.
    pub(super) fn key_of(&self, dir: Ino) -> Option<Key> {
        let open = self.open.get(&dir).map(|item| item.dir.key);
        open.or_else(|| self.found.get(&dir).map(|found| found.dir.key))
    }
}
