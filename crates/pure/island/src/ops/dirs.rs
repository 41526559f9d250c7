//! Directories as names: mkdir and rmdir. The parent's owner decides about the name. If another island owns
//! the directory, this is a transaction.

use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, Name, Stamp, Time, TxnId};
use atoll_posix::perm;
use atoll_posix::{Answer, Errno, Kind, NamedObject, Op, acl};
use atoll_proto::{
    Ancestor, ClientOp, Dir, DirPlace, Entry, EntryRef, OwnedDir, ParticipantWork, PlaceVersion,
    RequestResult, StaticAttrs, Stub, Vote, VoteInfo, Xattrs,
};
use bytes::Bytes;

use crate::ctx::Ctx;
use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, PendingRequest, Step};
use crate::ctx::staged_dir;
use crate::island::Island;
use crate::ops::names::is_meant;
use crate::rows::path::{done, ok, owned_by};
use crate::rows::skeleton::new_row;
use crate::txn::coordinator::OwnPart;

impl Island {
    pub(crate) fn mkdir(
        &mut self,
        call: &PendingRequest,
        dir: Ino,
        name: &Name,
        mode: u32,
        umask: u32,
    ) -> Result<Step, Blocked> {
        let parent = self.look().open_for_names(dir)?;
        if self.look().named(dir, name)?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        self.look().require_unlocked_name(dir, name)?;
        self.look().may_change_names(call.caller(), dir, parent)?;
        let default = self.ctx.acl(dir, parent.has_acl, acl::DEFAULT_XATTR)?;
        let of = owned_by(&parent.fixed);
        let born = perm::born(call.caller(), of, default.as_ref(), Kind::Directory, mode, umask)?;
        self.ctx.room.take(0)?;
        let (key, birth_bytes) = self.ctx.key_of_child(dir, name)?;
        let owner = self.ctx.config.owner(key);
        let chain = if owner == self.ctx.config.id { Vec::new() } else { self.ctx.chain(dir)? };
        let mut xattrs = Xattrs::default();
        for (which, acl) in [(acl::ACCESS_XATTR, &born.acl), (acl::DEFAULT_XATTR, &born.default_acl)] {
            if let Some(acl) = acl {
                xattrs.set(Bytes::from_static(which), acl.to_xattr().into());
            }
        }
        let ino = self.ctx.mint()?;
        let stamp = self.ctx.stamp();
        let time = self.ctx.time();
        let new = Ancestor {
            ino,
            key,
            birth_bytes,
            place: DirPlace {
                version: PlaceVersion { moves: 0, stamp },
                parent: dir,
                name: Some(name.clone()),
            },
            // The first of its owner's versions: stamps of two islands cannot be compared.
            fixed: StaticAttrs { version: Stamp::default(), mode: born.mode, uid: born.uid, gid: born.gid },
            xattrs,
            suspected: false,
        };
        if owner == self.ctx.config.id {
            let mut decision = Decision::new();
            decision.stamp(stamp);
            self.ctx.adopt(&mut decision, &new, &[], time, None);
            self.recovery.note_adopted(ino);
            return Ok(self.ctx.name_new_dir(call, decision, &new, time));
        }
        let work = ParticipantWork::Adopt { dir: new, time, chain };
        let names = vec![EntryRef { dir, name: name.clone() }];
        self.txns.begin_txn(&mut self.ctx, call, Some(stamp), names, OwnPart::Dirs, vec![(owner, work)])
    }

    // -------------------------------------------------------------------- rmdir

    pub(crate) fn rmdir(
        &mut self,
        call: &PendingRequest,
        dir: Ino,
        name: &Name,
        meant: Option<Ino>,
    ) -> Result<Step, Blocked> {
        let parent = self.look().owned(dir)?;
        self.look().require_unlocked_name(dir, name)?;
        let entry = self.look().named(dir, name)?.ok_or(Blocked::Fail(Errno::ENOENT))?;
        is_meant(meant, Some(entry))?;
        self.look().may_take(call.caller(), dir, parent, entry)?;
        let Some(stub) = &entry.stub else { return Err(Errno::ENOTDIR.into()) };
        let (ino, key, parent) = (entry.ino, stub.key, parent.clone());
        let owner = self.ctx.config.owner(key);
        if owner == self.ctx.config.id {
            self.look().may_seal(ino)?;
            self.ctx.openers_must_be_loaded(ino)?;
            let now = self.ctx.time();
            let mut decision = Decision::new();
            self.ctx.remove_named_dir(&mut decision, ino, now);
            let parent = staged_dir(&decision, dir).unwrap_or(parent);
            return Ok(self.ctx.unname_dir(call, decision, dir, &parent, name, now));
        }
        let work = ParticipantWork::Seal { ino, parent: dir, name: name.clone() };
        let names = vec![EntryRef { dir, name: name.clone() }];
        self.txns.begin_txn(&mut self.ctx, call, None, names, OwnPart::Dirs, vec![(owner, work)])
    }

    // ------------------------------------------- the coordinator's commit record

    /// All participants said yes: decides the record that makes it happen.
    pub(crate) fn commit_work(
        &mut self,
        call: &PendingRequest,
        decision: Decision,
        work: &ParticipantWork,
    ) -> Result<Step, Blocked> {
        let ClientOp::Fs { op } = &call.request.op else { unreachable!("transactions serve operations") };
        match (op, work) {
            (Op::Mkdir { .. }, ParticipantWork::Adopt { dir, time, .. }) => {
                self.ctx.entry_must_be_loaded(&dir.place)?;
                Ok(self.ctx.name_new_dir(call, decision, dir, *time))
            }
            (Op::Rmdir { dir, name, .. }, ParticipantWork::Seal { .. }) => {
                let parent = self.look().owned(*dir)?.clone();
                self.ctx.state.entry(*dir, name)?;
                let now = self.ctx.time();
                Ok(self.ctx.unname_dir(call, decision, *dir, &parent, name, now))
            }
            _ => unreachable!("{op:?} has no such transaction"),
        }
    }

    // ------------------------------------------------------ the participant's part

    /// Prepares the making or sealing of a directory, if this island can.
    pub(crate) fn prepare_dir(
        &mut self,
        decision: &mut Decision,
        txn: TxnId,
        work: &ParticipantWork,
    ) -> Result<Result<VoteInfo, Vote>, Blocked> {
        match work {
            ParticipantWork::Adopt { dir, time, chain } => {
                for above in chain {
                    self.ctx.acls_must_be_loaded(above.ino)?;
                    if let Some(name) = &above.place.name {
                        self.ctx.state.entry(above.place.parent, name)?;
                    }
                }
                if self.ctx.config.owner(dir.key) != self.ctx.config.id {
                    return Ok(Err(Vote::Busy));
                }
                self.ctx.adopt(decision, dir, chain, *time, Some(txn));
                self.recovery.note_adopted(dir.ino);
            }
            ParticipantWork::Seal { ino, .. } => {
                self.look().may_seal(*ino)?;
                let mut row = self.look().owned(*ino)?.clone();
                row.owned.as_mut().expect("owned").sealed = Some(txn).filter(|_| !planted(Bug::NotSealed));
                decision.dir(*ino, row);
            }
            _ => unreachable!("called for directories"),
        }
        Ok(Ok(VoteInfo::Nothing))
    }
}

impl Ctx {
    /// The parent owner's part of a mkdir: the name, and the answer.
    pub(crate) fn name_new_dir(
        &mut self,
        call: &PendingRequest,
        mut decision: Decision,
        new: &Ancestor,
        time: Time,
    ) -> Step {
        let (dir, name) = (new.place.parent, new.place.name.as_ref().expect("only the root has no name"));
        let stub = Stub { key: new.key, place: new.place.version, fixed: new.fixed, time };
        let entry =
            Entry { ino: new.ino, kind: Kind::Directory, home: self.config.id, stub: Some(Box::new(stub)) };
        decision.entry(dir, name, Some(entry));
        // Its row may have changed in this same decision: the count of directories below.
        let parent = self.dir_now(&decision, dir).expect("locked by the name");
        decision.names_changed(dir, &parent, 1, 1, (time, time));
        decision.remember_for(call, RequestResult::Ino { ino: new.ino });
        self.decide(decision);
        let row = new_row(new, Some(OwnedDir::empty(time)));
        let found = NamedObject { attr: crate::ctx::shown::dir_attr(new.ino, &row), attr_current: true };
        Step::Decided(ok(Answer::Found { found }, Some(new.key)))
    }

    /// The parent owner's part of an rmdir: the name goes, and the answer.
    fn unname_dir(
        &mut self,
        call: &PendingRequest,
        mut decision: Decision,
        dir: Ino,
        parent: &Dir,
        name: &Name,
        now: Time,
    ) -> Step {
        decision.entry(dir, name, None);
        decision.names_changed(dir, parent, -1, -1, (now, now));
        decision.remember_for(call, RequestResult::Done);
        self.decide(decision);
        Step::Decided(done())
    }
}
