//! Symbolic links to directories, which every island knows, so that paths lead through them while their home
//! or the owner of their directory is away (`docs/design/006-symlinks.md`). Islands tell each other of them
//! after the answer: no request waits for it. Never decides about a name: a client that can reach the name's
//! owner asks that one.
//!
//! Invariant: an island's rows of another island's links are those that the other island has told, all of
//! them or up to a change.

mod targets;

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::map::IdMap;
use atoll_core::planted::{Bug, planted};
use atoll_core::{Encode, Ino, IslandId, Name};
use atoll_posix::{Answer, Errno, Kind, NamedObject};
use atoll_proto::{CarriedLink, Entry, EntryRef, Outcome, PeerOp, Record, RowChange};
use atoll_state::State;

use crate::ctx::Config;
use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, Next, Step};
use crate::rows::path::ok;

/// Links that an island tells the others of.
const LINKS_MAX: u64 = 16_384;
/// Names of a link that are told of.
const NAMES_MAX: usize = 16;
/// Links that may wait to be looked at, and how many are at once.
const PENDING_MAX: usize = 4096;
const LOOKS_AT_ONCE: usize = 64;
/// Links whose targets others are being asked for.
const ASKING_MAX: usize = 256;
/// Milliseconds after which such a question is given up.
const ASKING_MS: u64 = 10_000;
/// Milliseconds after which a link that leads to no directory is looked at again, if it is used.
const CHECK_AGAIN_MS: u64 = 10_000;
/// Links of which that time is known.
const CHECKED_MAX: usize = 4096;
/// Milliseconds between two tries to tell an island that does not say that it has all.
const TELL_MS: u64 = 500;
/// Bytes of links in one message; the last link may lie beyond. One has 10 KiB at most: a target of 4,095 bytes and
/// 16 names of 255.
const PAGE_BYTES: usize = 256 << 10;

/// A link whose target another island is asked for.
#[derive(Debug, Clone)]
pub(crate) struct TargetQuestion {
    pub(crate) island: IslandId,
    pub(crate) names: BTreeSet<EntryRef>,
    pub(crate) hops: u32,
    since_ms: u64,
}

/// Work under way about links of this island.
#[derive(Debug, Clone, Default)]
pub(crate) struct CarriedLinks {
    /// To be looked at, with names that they may have.
    pending: BTreeMap<Ino, BTreeSet<EntryRef>>,
    asking: BTreeMap<Ino, TargetQuestion>,
    /// When links that lead to no directory were last looked at.
    checked: IdMap<Ino, u64>,
    /// The digest of this island's links that each has said it has.
    told: BTreeMap<IslandId, u64>,
    tell_ms: u64,
}

impl CarriedLinks {
    /// A record was decided: links that it concerns are looked at in a moment.
    pub(crate) fn record_decided(&mut self, config: &Config, state: &State, record: &Record) {
        let me = config.id;
        if config.islands.len() < 2 {
            return;
        }
        for change in &record.changes {
            match change {
                RowChange::Entry { dir, name, row } => {
                    let was = state.carried_at(*dir, name).filter(|(_, link)| link.home == me);
                    let was = was.map(|(ino, _)| ino);
                    if let Some(ino) = was.filter(|ino| row.as_ref().is_none_or(|row| row.ino != *ino)) {
                        self.look_at(ino, None);
                    }
                    if let Some(Entry { ino, kind: Kind::Symlink, home, .. }) = row
                        && *home == me
                    {
                        self.look_at(*ino, Some(EntryRef { dir: *dir, name: name.clone() }));
                    }
                }
                RowChange::Inode { ino, .. } if is_carried(config, state, *ino) => {
                    self.look_at(*ino, None);
                }
                _ => {}
            }
        }
    }

    fn look_at(&mut self, ino: Ino, name: Option<EntryRef>) {
        if self.pending.len() < PENDING_MAX || self.pending.contains_key(&ino) {
            self.pending.entry(ino).or_default().extend(name);
        }
    }

    /// Looks at all links of this island when it starts, because it may have lost what it had told.
    pub(crate) fn resume(&mut self, ctx: &Ctx) {
        let own = ctx.state.links_of(ctx.config.id, Ino(0));
        self.pending = own.map(|(ino, _)| (ino, BTreeSet::new())).collect();
    }

    /// An island is away: nobody knows which links it will have when it is back.
    pub(crate) fn forget_told(&mut self, island: IslandId) {
        self.told.remove(&island);
    }

    /// Tells an island that may have lost something which of its own links are kept here. If there are none,
    /// nothing is sent.
    pub(crate) fn compare_links(&mut self, ctx: &mut Ctx, island: IslandId) {
        self.tell_ms = 0;
        let digest = ctx.state.links_digest(island);
        if digest != 0 {
            ctx.send(ctx.state.links_seq(), island, PeerOp::LinksHeld { digest });
        }
    }

    /// Links wait to be looked at.
    pub(crate) fn looks_at_links(&self) -> bool {
        !self.pending.is_empty()
    }

    fn has_told(&self, ctx: &Ctx, island: IslandId) -> bool {
        let told = self.told.get(&island).copied().unwrap_or(0);
        told == ctx.state.links_digest(ctx.config.id)
    }

    /// A client uses a link. If the link led to nothing before, it may lead to a directory by now.
    pub(crate) fn link_used(&mut self, ctx: &mut Ctx, dir: Ino, name: &Name, ino: Ino, home: IslandId) {
        if ctx.config.islands.len() < 2
            || ctx.state.carried(ino).is_some()
            || self.asking.contains_key(&ino)
            || self.checked.get(&ino).is_some_and(|at| ctx.now.ms < at + CHECK_AGAIN_MS)
        {
            return;
        }
        let at = EntryRef { dir, name: name.clone() };
        if home == ctx.config.id {
            return self.look_at(ino, Some(at));
        }
        self.checked(ctx, ino);
        ctx.send(ctx.state.seq(), home, PeerOp::LinkUsed { link: ino, at });
    }

    pub(crate) fn tick(&mut self, ctx: &mut Ctx) {
        let now = ctx.now.ms;
        self.asking.retain(|_, asking| now < asking.since_ms + ASKING_MS);
        let inos: Vec<Ino> = self.pending.keys().copied().take(LOOKS_AT_ONCE).collect();
        for ino in inos {
            let names = self.pending.remove(&ino).expect("just listed");
            ctx.state.begin_reads();
            if let Err(Blocked::Load(loads)) = self.look_at_link(ctx, ino, &names) {
                self.pending.insert(ino, names);
                ctx.load(loads, Next::Nothing);
            }
        }
        if now >= self.tell_ms + TELL_MS {
            self.tell_ms = now;
            self.tell_links(ctx);
        }
    }

    /// Compares what was told of a link of this island with the link.
    fn look_at_link(&mut self, ctx: &mut Ctx, ino: Ino, names: &BTreeSet<EntryRef>) -> Result<(), Blocked> {
        let is_carried = is_carried(&ctx.config, &ctx.state, ino);
        match ctx.link_now(ino, names)? {
            None if is_carried => ctx.tell_of(ino, None),
            None => {}
            Some(_) if !is_carried => self.look_where(ctx, ino, names)?,
            Some(now) => {
                let told = ctx.state.carried(ino).expect("just looked at");
                let mut attr = now.attr;
                attr.atime = told.attr.atime;
                if (attr, &now.target, &now.names) != (told.attr, &told.target, &told.names) {
                    ctx.tell_of(ino, Some(now));
                }
            }
        }
        Ok(())
    }

    /// It was looked at, and is not worth telling of now.
    pub(crate) fn checked(&mut self, ctx: &Ctx, ino: Ino) {
        if self.checked.len() >= CHECKED_MAX {
            self.checked.clear();
        }
        self.checked.insert(ino, ctx.now.ms);
    }

    /// Asks another island; false if too much is asked already.
    pub(crate) fn ask_where(
        &mut self,
        ctx: &Ctx,
        ino: Ino,
        island: IslandId,
        names: &BTreeSet<EntryRef>,
        hops: u32,
    ) -> bool {
        let room = self.asking.len() < ASKING_MAX;
        if room {
            let asking = TargetQuestion { island, names: names.clone(), hops, since_ms: ctx.now.ms };
            self.asking.insert(ino, asking);
        }
        room
    }

    /// Tells islands that may lack links the digest that they should have. They ask for missing links.
    fn tell_links(&mut self, ctx: &mut Ctx) {
        let digest = ctx.state.links_digest(ctx.config.id);
        let (others, need) = (ctx.config.others(), ctx.state.links_seq());
        for island in others.filter(|island| ctx.peers.is_reachable(*island)).collect::<Vec<_>>() {
            if !self.has_told(ctx, island) {
                let links = Vec::new();
                ctx.send(need, island, PeerOp::Links { before: digest, links, after: digest });
            }
        }
    }

    pub(crate) fn on_links_held(&mut self, ctx: &mut Ctx, from: IslandId, digest: u64) {
        self.told.insert(from, digest);
        if ctx.state.links_told(from) != digest {
            let mut decision = Decision::new();
            decision.push(RowChange::LinksTold { island: from, digest });
            ctx.decide(decision);
        }
    }

    /// Nothing about links is under way, and all reachable islands have them.
    pub(crate) fn are_told(&self, ctx: &Ctx) -> bool {
        let mut reached = ctx.config.others().filter(|island| ctx.peers.is_reachable(*island));
        self.pending.is_empty() && self.asking.is_empty() && reached.all(|island| self.has_told(ctx, island))
    }
}

/// This island tells of a link.
fn is_carried(config: &Config, state: &State, ino: Ino) -> bool {
    state.carried(ino).is_some_and(|link| link.home == config.id)
}

impl Ctx {
    /// A link leads to a directory: all are told.
    pub(crate) fn leads_to_directory(&mut self, ino: Ino, names: &BTreeSet<EntryRef>) -> Result<(), Blocked> {
        if let Some(link) = self.link_now(ino, names)?
            && self.state.links_count(self.config.id) < LINKS_MAX
        {
            self.tell_of(ino, Some(link));
        }
        Ok(())
    }

    fn tell_of(&mut self, ino: Ino, link: Option<CarriedLink>) {
        let before = self.state.links_digest(self.config.id);
        let mut decision = Decision::new();
        decision.push(RowChange::Link { ino, row: link.clone().map(Box::new) });
        let seq = self.decide(decision);
        let after = self.state.links_digest(self.config.id);
        for island in
            self.config.others().filter(|island| self.peers.is_reachable(*island)).collect::<Vec<_>>()
        {
            let links = vec![(ino, link.clone())];
            self.send(seq, island, PeerOp::Links { before, links, after });
        }
    }

    /// Another's links have changed.
    pub(crate) fn on_links(
        &mut self,
        from: IslandId,
        before: u64,
        links: &[(Ino, Option<CarriedLink>)],
        after: u64,
    ) {
        let digest = self.state.links_digest(from);
        if digest != after {
            if digest != before {
                return self.send(0, from, PeerOp::WantLinks { after: Ino(0) });
            }
            self.keep_links(from, links.iter().map(|(ino, link)| (*ino, link.as_ref())));
        }
        let digest = self.state.links_digest(from);
        self.send(0, from, PeerOp::LinksHeld { digest });
    }

    pub(crate) fn on_all_links(
        &mut self,
        from: IslandId,
        after: Ino,
        upto: Ino,
        links: &[(Ino, CarriedLink)],
    ) {
        let there: BTreeSet<Ino> = links.iter().map(|(ino, _)| *ino).collect();
        let here = self.state.links_of(from, after).map(|(ino, _)| ino).take_while(|ino| *ino <= upto);
        let gone: Vec<Ino> = here.filter(|ino| !there.contains(ino)).collect();
        let rows = gone.into_iter().map(|ino| (ino, None));
        self.keep_links(from, rows.chain(links.iter().map(|(ino, link)| (*ino, Some(link)))));
        if upto < Ino(u64::MAX) && after < upto {
            return self.send(0, from, PeerOp::WantLinks { after: upto });
        }
        let digest = self.state.links_digest(from);
        self.send(0, from, PeerOp::LinksHeld { digest });
    }

    /// Keeps the links that a home tells of, if they are its own.
    fn keep_links<'a>(
        &mut self,
        from: IslandId,
        links: impl Iterator<Item = (Ino, Option<&'a CarriedLink>)>,
    ) {
        let mut decision = Decision::new();
        for (ino, link) in links {
            let is_its = |row: &CarriedLink| row.home == from;
            let was = self.state.carried(ino);
            if was.is_none_or(is_its) && link.is_none_or(is_its) && was != link {
                decision.push(RowChange::Link { ino, row: link.cloned().map(Box::new) });
            }
        }
        self.decide(decision);
    }

    /// A link as it is, with those of its names that it has; none if it is none of this island's, or has none.
    fn link_now(&self, ino: Ino, names: &BTreeSet<EntryRef>) -> Result<Option<CarriedLink>, Blocked> {
        let Some(row) = self.state.inode(ino)? else { return Ok(None) };
        let Some(target) = row.target.clone().filter(|_| row.attr.nlink > 0) else { return Ok(None) };
        let (home, attr) = (self.config.id, row.attr);
        let told = self.state.carried(ino).map_or(&[][..], |link| &link.names);
        let mut there = BTreeSet::new();
        for entry_ref in told.iter().chain(names) {
            if self.state.entry(entry_ref.dir, &entry_ref.name)?.is_some_and(|entry| entry.ino == ino) {
                there.insert(entry_ref.clone());
            }
        }
        let names: Vec<EntryRef> = there.into_iter().take(NAMES_MAX).collect();
        Ok((!names.is_empty()).then_some(CarriedLink { home, attr, target, names }))
    }

    pub(crate) fn on_want_links(&mut self, from: IslandId, after: Ino) {
        let (mut links, mut bytes, mut upto) = (Vec::new(), 0, Ino(u64::MAX));
        for (ino, link) in self.state.links_of(self.config.id, after) {
            if bytes >= PAGE_BYTES && planted(Bug::LinksCutShort) {
                break;
            }
            if bytes >= PAGE_BYTES {
                upto = links.last().map_or(upto, |(ino, _): &(Ino, CarriedLink)| *ino);
                break;
            }
            bytes += link.encoded_len();
            links.push((ino, link.clone()));
        }
        self.send(self.state.links_seq(), from, PeerOp::AllLinks { after, upto, links });
    }

    /// A name whose owner is away: that of a symbolic link to a directory, as far as is known here.
    pub(crate) fn skeleton_link(&self, dir: Ino, name: &Name) -> Result<Step, Blocked> {
        let link = self.state.link_at(dir, name).ok_or(Blocked::Fail(Errno::ESTALE))?;
        let found = NamedObject { attr: link.attr, attr_current: false };
        Ok(Step::Looked(ok(Answer::Found { found }, None)))
    }

    pub(crate) fn skeleton_link_attr(&self, ino: Ino) -> Result<Step, Blocked> {
        let link = self.state.link(ino).ok_or(Blocked::Fail(Errno::ESTALE))?;
        Ok(Step::Looked(ok(Answer::Attr { attr: link.attr }, None)))
    }

    pub(crate) fn skeleton_target(&self, ino: Ino) -> Result<Step, Blocked> {
        let link = self.state.link(ino).ok_or(Blocked::Fail(Errno::ESTALE))?;
        Ok(Step::Looked(Outcome::Data { data: link.target.clone() }))
    }
}
