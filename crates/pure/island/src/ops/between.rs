//! Operations that span directories of several islands (`DESIGN` 6; Ursa Minor): rename, link and unlink. The
//! owner of the old name, or of the only one, coordinates. The owner of the new name lends it. The homes of
//! the files take part if they are other islands.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, IslandId, Name, Stamp, Time};
use atoll_posix::perm::ObjectPerms;
use atoll_posix::{Answer, Attr, Caller, Errno, Kind, NamedObject, RenameMode, mode};
use atoll_proto::{
    Chain, ClientOp, Dir, Entry, EntryRef, ParticipantWork, PeerMessage, RenameSpec, RequestResult,
    RowChange, Vote, VoteInfo, Within,
};

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::posts::Audience;
use crate::ctx::request::{Blocked, PendingRequest, Step, WaitFor};
use crate::island::Island;
use crate::look::Look;
use crate::look::Missing;
use crate::ops::names::is_meant;
use crate::rows::chains::VectorOrder;
use crate::rows::homes::LINKS_MAX;
use crate::rows::moves::{moves_parents, moving, replaced_dir};
use crate::rows::path::ok;
use crate::txn::coordinator::OwnPart;

impl Island {
    // --------------------------------------------------------------------- link

    pub(crate) fn link(
        &mut self,
        call: &PendingRequest,
        ino: Ino,
        dir: Ino,
        name: &Name,
    ) -> Result<Step, Blocked> {
        let parent = self.look().open_for_names(dir)?.clone();
        self.look().require_unlocked_name(dir, name)?;
        if self.look().named(dir, name)?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        self.look().may_change_names(call.caller(), dir, &parent)?;
        let at = EntryRef { dir, name: name.clone() };
        self.migration.is_not_about_to_arrive(&self.ctx, self.txns.locks(), ino)?;
        let Some(mut row) = self.look().homed(ino)?.cloned() else {
            if self.ctx.state.dir(ino)?.is_some() {
                return Err(Errno::EPERM.into());
            }
            let told = match &call.request.op {
                ClientOp::Link { home, .. } => *home,
                _ => ino.minted_by(),
            };
            // Whoever asks knows better, unless it thinks that it is still here.
            let gone = self.ctx.state.forward(ino).filter(|_| told == self.ctx.config.id);
            let home = gone.map_or(told, |forward| forward.to);
            if home == self.ctx.config.id || !self.ctx.config.islands.contains(&home) {
                // It may be elsewhere: a mount that began after it moved was not told.
                return Err(Errno::ESTALE.into());
            }
            self.ctx.room.take(0)?;
            let time = self.ctx.time();
            let chain = self.ctx.chain_to(dir)?;
            let by = || call.by.as_ref().map(|by| by.file.clone());
            let within = self.ctx.scope_of(call.session()).map(|scope| Within { scope, by: by() });
            let work = ParticipantWork::AddName { ino, at: at.clone(), time, chain, within };
            let names = vec![at.clone()];
            return self.txns.begin_txn(
                &mut self.ctx,
                call,
                None,
                names,
                OwnPart::Link { at, home, time, attr: None },
                vec![(home, work)],
            );
        };
        self.look().require_unlocked_file(ino)?;
        if row.attr.kind == Kind::Directory {
            return Err(Errno::EPERM.into());
        }
        if row.attr.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        if row.attr.nlink >= LINKS_MAX {
            return Err(Errno::EMLINK.into());
        }
        self.ctx.room.take(0)?;
        let now = self.ctx.time();
        row.attr.nlink += 1;
        row.attr.ctime = now;
        let attr = row.attr;
        let mut decision = Decision::new();
        decision.inode(row);
        Ok(self.ctx.name_linked(call, decision, &at, self.ctx.config.id, attr, now))
    }

    // ------------------------------------------------------------------- unlink

    pub(crate) fn unlink(&mut self, call: &PendingRequest, dir: Ino, name: &Name) -> Result<Step, Blocked> {
        let parent = self.look().owned(dir)?.clone();
        self.look().require_unlocked_name(dir, name)?;
        let entry = self.look().named(dir, name)?.ok_or(Blocked::Fail(Errno::ENOENT))?.clone();
        let by = self.look().may_take(call.caller(), dir, &parent, &entry)?;
        if entry.kind == Kind::Directory {
            return Err(Errno::EISDIR.into());
        }
        let (ino, home) = (entry.ino, entry.home);
        if home != self.ctx.config.id {
            let at = EntryRef { dir, name: name.clone() };
            let time = self.ctx.time();
            let work = ParticipantWork::RemoveName { ino, at: at.clone(), by, had: true, time };
            let names = vec![at.clone()];
            return self.txns.begin_txn(
                &mut self.ctx,
                call,
                None,
                names,
                OwnPart::Unlink { at, time },
                vec![(home, work)],
            );
        }
        self.look().require_unlocked_file(ino)?;
        let row = self.ctx.file(ino)?.clone();
        self.ctx.openers_must_be_loaded(dir)?;
        let now = self.ctx.time();
        let mut decision = Decision::new();
        decision.entry(dir, name, None);
        self.ctx.change_names(&mut decision, dir, -1, 0, now);
        let orphan = self.ctx.drop_name(&mut decision, row, dir, Some(call.session()), now);
        decision.remember_for(call, RequestResult::Removed { orphan });
        self.ctx.decide(decision);
        Ok(Step::Decided(ok(Answer::Removed { orphan }, None)))
    }

    // ------------------------------------------------------------------- rename

    /// A rename into a directory of another island: that island lends the name.
    pub(crate) fn rename_away(
        &mut self,
        call: &PendingRequest,
        from: EntryRef,
        to: EntryRef,
        mode: RenameMode,
        (meant, new_meant): (Option<Ino>, Option<Ino>),
        owner: IslandId,
    ) -> Result<Step, Blocked> {
        let parent = self.look().open_for_names(from.dir)?.clone();
        self.look().require_unlocked_name(from.dir, &from.name)?;
        let file = self.look().named(from.dir, &from.name)?.ok_or(Blocked::Fail(Errno::ENOENT))?.clone();
        is_meant(meant, Some(&file))?;
        let is_dir = file.stub.is_some();
        if !is_dir && file.home == self.ctx.config.id {
            self.look().require_unlocked_file(file.ino)?;
        }
        // As Linux has it: what the names are comes before who asks.
        let (by, denied) = match self.look().may_take(call.caller(), from.dir, &parent, &file) {
            Ok(by) => (by, None),
            Err(Blocked::Fail(errno)) => (None, Some(errno)),
            Err(stop) => return Err(stop),
        };
        self.ctx.room.take(0)?;
        let exchange = mode == RenameMode::Exchange;
        let chain = if exchange { Some(self.ctx.chain_to(from.dir)?) } else { None };
        let knows = self.ctx.state.dir(to.dir)?.is_some();
        // The home of what is there may be a third island, which is told by this one.
        let wants_chain = is_dir || (file.home != owner && !(knows && file.home == self.ctx.config.id));
        let time = self.ctx.time();
        let renaming = RenameSpec { from: from.clone(), to, file, there: None, mode, by, time };
        let work = ParticipantWork::BorrowName {
            renaming: Box::new(renaming.clone()),
            caller: call.caller().clone(),
            new_meant,
            denied,
            chain,
            wants_chain,
            scope: self.ctx.scope_of(call.session()),
        };
        let plan = OwnPart::Rename { renaming: Box::new(renaming), lent: None };
        self.txns.begin_txn(&mut self.ctx, call, None, vec![from], plan, vec![(owner, work)])
    }

    /// A rename whose two names are owned here, while the homes of files and the owners of directories may be
    /// others.
    pub(crate) fn rename_here(
        &mut self,
        call: &PendingRequest,
        renaming: RenameSpec,
        there_by: Option<u32>,
    ) -> Result<Step, Blocked> {
        self.look().check_dirs(call.caller(), &renaming, &Chain::default())?;
        self.ctx.moves_must_be_allowed(&renaming)?;
        let mut others = self.ctx.works_elsewhere(&renaming, there_by, None)?;
        // What only takes the place of an empty directory beside it needs no room.
        let needs_room = !others.is_empty() || renaming.from.dir != renaming.to.dir;
        others.extend(self.ctx.dir_works(call.caller(), &renaming, &Chain::default())?);
        let plan = OwnPart::Rename { renaming: Box::new(renaming), lent: Some(Chain::default()) };
        if others.is_empty() {
            let early = self.ctx.stamps_before_commit(&plan);
            return self.commit_between(call, Decision::new(), &plan, &early);
        }
        let OwnPart::Rename { renaming, .. } = &plan else { unreachable!("just made") };
        if needs_room {
            self.ctx.room.take(0)?;
        }
        let names = vec![renaming.from.clone(), renaming.to.clone()];
        self.txns.begin_txn(&mut self.ctx, call, None, names, plan, others)
    }

    /// Whether the owner of the new name can lend it.
    pub(crate) fn prepare_lend(
        &mut self,
        decision: &mut Decision,
        message: &PeerMessage,
        work: &mut ParticipantWork,
    ) -> Result<Result<VoteInfo, Vote>, Blocked> {
        let ParticipantWork::BorrowName { renaming, caller, new_meant, denied, chain, wants_chain, scope } =
            work
        else {
            unreachable!("called for Work::Lend")
        };
        let refused = |errno| Ok(Err(Vote::No { errno }));
        let (to, mode) = (renaming.to.clone(), renaming.mode);
        // Before anything is told of what is there.
        if let Some(scope) = *scope
            && !planted(Bug::LentToScope)
        {
            self.look().is_dir_inside(to.dir, scope)?;
        }
        let parent = self.look().open_for_names(to.dir)?.clone();
        self.look().require_unlocked_name(to.dir, &to.name)?;
        let there = self.look().named(to.dir, &to.name)?.cloned();
        if let Err(errno) = is_meant(*new_meant, there.as_ref()) {
            return refused(errno);
        }
        match (mode, &there) {
            (RenameMode::NoReplace, Some(_)) => return refused(Errno::EEXIST),
            (RenameMode::Exchange, None) => return refused(Errno::ENOENT),
            (_, Some(there)) if there.ino == renaming.file.ino => return Ok(Err(Vote::Same)),
            _ => {}
        }
        if let Some(errno) = denied {
            return refused(*errno);
        }
        let by = match &there {
            Some(there) => self.look().may_take(caller, to.dir, &parent, there)?,
            None => {
                self.look().may_change_names(caller, to.dir, &parent)?;
                None
            }
        };
        if let Some(there) = there.as_ref().filter(|_| mode != RenameMode::Exchange) {
            match (renaming.file.stub.is_some(), there.stub.is_some()) {
                (true, false) => return refused(Errno::ENOTDIR),
                (false, true) => return refused(Errno::EISDIR),
                _ => {}
            }
        }
        self.ctx.room.take(0)?;
        let told = if *wants_chain { Some(self.ctx.chain_to(to.dir)?) } else { None };
        renaming.there.clone_from(&there);
        if let Some(file) = self.ctx.homed_here(Some(&renaming.file)) {
            let row = self.ctx.file(file.ino)?;
            if renaming.by.is_some_and(|by| row.attr.uid != by) {
                return refused(Errno::EPERM);
            }
        }
        // The file that goes the other way is homed here, and its new name will be elsewhere.
        let from = renaming.from.clone();
        let comes = mode == RenameMode::Exchange && self.ctx.homed_here(there.as_ref()).is_some();
        let chain = chain.clone().unwrap_or_default();
        if self.ctx.claims(work).into_iter().any(|(ino, _)| self.look().is_claimed(ino, work)) {
            return Ok(Err(Vote::Busy));
        }
        if !self.ctx.knows(work)? {
            // Somebody who is away may know how it came by that name.
            return if self.recovery.is_incomplete() { Ok(Err(Vote::Busy)) } else { refused(Errno::EIO) };
        }
        let mut row = parent;
        let owned = row.owned.as_mut().expect("owned");
        if !owned.others.ever_borrowed {
            owned.others.ever_borrowed = true;
            decision.dir(to.dir, row);
        }
        if comes && !self.reserve_name(decision, message, &from, &chain)? {
            return Ok(Err(Vote::Behind));
        }
        Ok(Ok(VoteInfo::Name { there, by, chain: told }))
    }

    // ------------------------------------------- the coordinator's commit record

    /// All participants said yes. `early`: [`Ctx::stamps_before_commit`].
    pub(crate) fn commit_between(
        &mut self,
        call: &PendingRequest,
        mut decision: Decision,
        plan: &OwnPart,
        early: &[Stamp],
    ) -> Result<Step, Blocked> {
        let alone = decision.record.changes.is_empty();
        match plan {
            OwnPart::Dirs | OwnPart::Ship => unreachable!("committed elsewhere"),
            OwnPart::Link { at, home, time, attr } => {
                self.look().owned(at.dir)?;
                self.ctx.name_must_be_loaded(at)?;
                let attr = attr.expect("told with the vote");
                Ok(self.ctx.name_linked(call, decision, at, *home, attr, *time))
            }
            OwnPart::Unlink { at, time } => {
                self.look().owned(at.dir)?;
                self.ctx.name_must_be_loaded(at)?;
                decision.entry(at.dir, &at.name, None);
                self.ctx.change_names(&mut decision, at.dir, -1, 0, *time);
                decision.remember_for(call, RequestResult::Removed { orphan: None });
                self.ctx.decide(decision);
                Ok(Step::Decided(ok(Answer::Removed { orphan: None }, None)))
            }
            OwnPart::Rename { renaming, lent } => {
                self.look().owned(renaming.from.dir)?;
                let renaming = &*self.ctx.with_stubs_of_now(renaming)?;
                self.ctx.renaming_must_be_loaded(renaming)?;
                let chain = lent.clone().unwrap_or_default();
                self.ctx.chain_must_be_loaded(&chain)?;
                self.look().moves_must_be_loaded(renaming)?;
                for entry in [Some(&renaming.file), renaming.there.as_ref()] {
                    if let Some(entry) = self.ctx.homed_here(entry) {
                        self.look().require_unlocked_file(entry.ino)?;
                    }
                }
                // What is homed here, or in the skeleton, needs the directory that it comes to.
                if self.ctx.homed_here(Some(&renaming.file)).is_some() || self.ctx.moves_here(renaming) {
                    match self.ctx.order_of_chain(&chain)? {
                        VectorOrder::Same if chain.dirs.is_empty() => {
                            // It was known when the name was asked for; it may have been pruned since.
                            if self.ctx.state.dir(renaming.to.dir)?.is_none() {
                                return Err(Blocked::NotNow);
                            }
                        }
                        // Whatever else it misses, it must know if the directory is below one of these.
                        VectorOrder::Same if moves_parents(renaming) => {
                            self.ctx.merge_ancestors(&mut decision, &chain.dirs);
                        }
                        VectorOrder::Same => {
                            self.ctx.merge_ancestors_if_applied(&mut decision, &chain);
                        }
                        VectorOrder::Older | VectorOrder::Newer { .. } => return Err(Blocked::NotNow),
                    }
                }
                if let Some(there) = self.ctx.homed_here(renaming.there.as_ref())
                    && !self.ctx.knows_name(there.ino, &renaming.to)?
                {
                    // As a home that is asked.
                    let missed = self.recovery.is_incomplete();
                    return Err(if missed { Blocked::NotNow } else { Errno::EIO.into() });
                }
                // What leaves the new name's directory must not take the skeleton along that what comes needs.
                let pins =
                    self.ctx.dir_now(&decision, renaming.to.dir).is_some_and(|dir| dir.owned.is_none());
                if pins {
                    self.ctx.count_homes(&mut decision, renaming.to.dir, 1);
                }
                let gated = !alone || moves_parents(renaming);
                let orphan = self.ctx.apply_renaming(&mut decision, renaming, true, Some(call));
                if moves_parents(renaming) && self.ctx.owns_root() {
                    let (me, before) = (self.ctx.config.id, self.ctx.stamp());
                    decision.push(RowChange::Moved { island: me, stamp: before });
                }
                let audience = if gated { Audience::All } else { self.audience_of_place(renaming)? };
                let posted = self.ctx.move_dirs(&mut decision, renaming, &chain, early, audience, gated);
                if pins {
                    self.ctx.release_name(&mut decision, &renaming.to);
                }
                decision.remember_for(call, RequestResult::Removed { orphan });
                self.ctx.decide(decision);
                let outcome = ok(Answer::Removed { orphan }, None);
                let Some(stamp) = posted else { return Ok(Step::Decided(outcome)) };
                if gated {
                    self.ctx.want_sync();
                }
                Ok(Step::Wait(WaitFor::Applied(stamp, outcome)))
            }
        }
    }

    /// Who must know the new place of a directory that is renamed within one that is owned here. Of another island's this one does
    /// not know who has anything of it.
    fn audience_of_place(&self, renaming: &RenameSpec) -> Result<Audience, Blocked> {
        let moving = moving(renaming);
        let ([dir], None) = (&moving[..], replaced_dir(renaming)) else { return Ok(Audience::All) };
        let row = self.ctx.state.dir(dir.entry.ino)?;
        let is_leaf = row.is_some_and(|row| self.look().is_leaf(dir.entry.ino, row));
        Ok(if is_leaf { Audience::Only(None) } else { Audience::All })
    }
}

impl<'a> Look<'a> {
    /// Whether `caller` may remove this name, as far as this island can tell. For a file with another home it
    /// returns the user who must own the file because the directory is sticky.
    pub(crate) fn may_take(
        self,
        caller: &Caller,
        dir: Ino,
        parent: &Dir,
        entry: &Entry,
    ) -> Result<Option<u32>, Blocked> {
        if entry.stub.is_some() {
            // Others may know that it has gone from here, and that is lost: it would get a second name.
            self.require_complete_dir(dir)?;
        }
        if entry.stub.is_some() || entry.home == self.ctx.config.id {
            self.ctx.may_delete(caller, dir, parent, self.ctx.owner_of(entry)?)?;
            return Ok(None);
        }
        let owned = |uid| ObjectPerms { uid, gid: 0, mode: 0, kind: entry.kind };
        self.ctx.may_delete(caller, dir, parent, owned(caller.uid))?;
        let sticky = parent.fixed.mode & mode::STICKY != 0;
        let asks = sticky && caller.uid != parent.fixed.uid && !caller.acts_as_owner(&owned(!caller.uid));
        Ok(asks.then_some(caller.uid))
    }
}

impl Ctx {
    /// The owner's part of a link: the name, and the answer.
    fn name_linked(
        &mut self,
        call: &PendingRequest,
        mut decision: Decision,
        at: &EntryRef,
        home: IslandId,
        attr: Attr,
        now: Time,
    ) -> Step {
        let ino = attr.ino;
        decision.entry(at.dir, &at.name, Some(Entry { ino, kind: attr.kind, home, stub: None }));
        self.change_names(&mut decision, at.dir, 1, 0, now);
        decision.remember_for(call, RequestResult::Ino { ino });
        self.decide(decision);
        Step::Decided(ok(Answer::Found { found: NamedObject { attr, attr_current: true } }, None))
    }
}
