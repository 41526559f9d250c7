//! Steps of the machine beside the island: records that it makes are decided between two requests, as those of a client without a mount.
//! Never judges what it does.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Ino, SessionId, Time};
use atoll_posix::{Caller, Errno, Op, RequestOptions};
use atoll_proto::{ClientOp, Outcome, Record, Request, RowChange};
use bytes::Bytes;

use crate::ctx::decision::Decision;
use crate::ctx::request::{Blocked, Next, PendingRequest};
use crate::ctx::{Beside, BesideRecord, BesideStep, BesideView, Ctx};
use crate::event::{BodyDone, BodyFault, BodyOpId, LinkId};
use crate::island::Island;

/// Records of the machine beside the island that are decided behind one event, and operations that are begun for it. The next event goes on.
const STEPS_PER_EVENT: usize = 8;
/// The session of its operations, which nobody has. As they have no number either, nothing is remembered of them.
const NO_SESSION: SessionId = SessionId(u64::MAX);

impl Island {
    /// The machine beside the island, if there is one, does what it can do now. It does so behind events of its own and at ticks.
    pub(crate) fn beside_acts(&mut self) {
        if self.ctx.beside.is_none() || !self.recovery.is_serving() {
            return;
        }
        let mut left = STEPS_PER_EVENT;
        self.ctx.beside_goes_on = false;
        while left > 0 && !self.ctx.beside_waits {
            let may_free =
                self.requests.decides() && !self.requests.is_log_stuck() && !self.quiesce.is_quiescing();
            let may_decide = may_free && self.ctx.room.is_left();
            let busy = self.bodies.undecided();
            match self.ctx.beside_step(|beside, view, mint| {
                beside.step(BesideView { may_decide, may_free, busy: &busy, ..view }, mint)
            }) {
                BesideStep::Rest | BesideStep::Refuse => break,
                BesideStep::Ids => {
                    self.ctx.reserve_ids();
                    left = 0;
                }
                BesideStep::Load(loads) => {
                    self.ctx.beside_waits = true;
                    self.ctx.load(loads, Next::Beside);
                    self.run_next();
                    break;
                }
                BesideStep::Say(says) => self.ctx.beside_says(says),
                BesideStep::Decide(record) => {
                    left -= 1;
                    self.decide_beside(record);
                    self.run_next();
                }
                BesideStep::Do { id, op, data } => {
                    left -= 1;
                    let call = self.beside_asks(id, op, data);
                    self.begin_beside(call);
                    self.run_next();
                }
            }
        }
        self.ctx.beside_goes_on = left == 0;
    }

    fn beside_asks(&self, id: u64, op: Op, data: Bytes) -> PendingRequest {
        let table = self.ctx.config.table.version();
        let (vector, caller, op) = (Vec::new(), Caller::ROOT, ClientOp::Fs { op });
        PendingRequest {
            link: LinkId::BESIDE,
            id,
            request: Request { session: NO_SESSION, seq: 0, acked: 0, table, vector, caller, op },
            options: RequestOptions::default(),
            by: None,
            data,
            since_ms: self.ctx.now.ms,
            attempts: 0,
            upto: self.ctx.state.seq(),
            again: false,
            asked: None,
            writes: None,
        }
    }

    /// Begins an operation of the machine beside the island, or lets it wait outside.
    pub(crate) fn begin_beside(&mut self, call: PendingRequest) {
        let op = call.request.op.operation().expect("it asks for nothing else");
        if !may_be_done(op) {
            return self.ctx.answer(&call, 0, Outcome::Failed { errno: Errno::EOPNOTSUPP });
        }
        if op.changes() && !self.requests.decides() {
            return self.requests.wait_outside(&mut self.ctx, call);
        }
        if op.changes() && self.requests.is_log_stuck() {
            return self.ctx.answer(&call, 0, Outcome::Failed { errno: Errno::ENOSPC });
        }
        self.start(call, false);
    }

    /// Has the machine beside the island decide what comes before a request, if that changes something.
    pub(crate) fn beside_prepares(&mut self, call: &PendingRequest) -> Result<(), Blocked> {
        if call.is_of_beside() {
            // It comes from the machine.
            return Ok(());
        }
        let Some(op) = call.request.op.operation().filter(|op| op.changes()) else { return Ok(()) };
        while self.ctx.beside.is_some() {
            match self.ctx.beside_step(|beside, view, mint| beside.prepare(view, op, mint)) {
                BesideStep::Rest => break,
                BesideStep::Load(loads) => return Err(Blocked::Load(loads)),
                BesideStep::Ids => {
                    self.ctx.reserve_ids();
                    return Err(Blocked::Ids);
                }
                BesideStep::Refuse => return Err(Errno::EBUSY.into()),
                BesideStep::Say(_) | BesideStep::Do { .. } => unreachable!("it prepares an operation"),
                BesideStep::Decide(record) => {
                    self.decide_beside(record);
                    self.settle();
                }
            }
        }
        Ok(())
    }

    /// Something is done in a body. If an operation is decided behind that, what came before it is out of date: what other sites have
    /// made may have been decided meanwhile.
    pub(crate) fn body_done(&mut self, ticket: BodyOpId, result: Result<BodyDone, BodyFault>) {
        if result.is_ok()
            && self.ctx.beside.is_some()
            && let Some(call) = self.bodies.undecided_call(ticket).cloned()
        {
            match self.beside_prepares(&call) {
                Ok(()) => {}
                Err(Blocked::Load(loads)) => return self.ctx.load(loads, Next::BodyDone(ticket, result)),
                // The body is changed already, so the operation goes on. It changes bytes and attributes of a file, which the machine
                // can tell of whatever is derived at its names.
                Err(_) => {}
            }
        }
        self.bodies.body_done(&mut self.ctx, ticket, result);
    }

    fn decide_beside(&mut self, BesideRecord { record, made }: BesideRecord) {
        self.ctx.hides_nothing(&record, &self.bodies.undecided());
        for ino in made {
            self.ctx.state.new_file(ino);
            self.bodies.file_made(ino);
        }
        let decision = self.ctx.of_beside(record);
        self.ctx.decide(decision);
        // Not before: it decides a record, and this one was made for its position.
        self.ctx.reserve_ids();
    }
}

impl Ctx {
    fn beside_step(
        &mut self,
        step: impl FnOnce(&mut dyn Beside, BesideView<'_>, &mut dyn FnMut() -> Option<Ino>) -> BesideStep,
    ) -> BesideStep {
        let now = self.now_of_beside();
        let synced = self.durability.synced();
        let Self { beside: Some(beside), state, issuer, config, room, .. } = self else {
            return BesideStep::Rest;
        };
        let (room, busy) = (room.left(), BTreeSet::new());
        let view = BesideView { state, now, synced, may_decide: true, may_free: true, room, busy: &busy };
        step(&mut **beside, view, &mut || issuer.mint(config.id))
    }

    /// Whether the bytes that an operation uses may be used by who asks for it. Those of an absent file are nobody's but the machine's.
    /// That one changes no others but those of files that have no name: users would see a half of what it brings, and lose what they
    /// have made of a file that was absent when the operation was begun.
    pub(crate) fn may_use_bytes(&self, call: &PendingRequest, op: &Op) -> Result<(), Blocked> {
        if call.is_of_beside() {
            let row = changes_bytes(op).map_or(Ok(None), |ino| self.state.inode(ino))?;
            let is_of_users = row.is_some_and(|row| !row.is_absent && row.attr.nlink > 0);
            return if is_of_users { Err(Errno::ESTALE.into()) } else { Ok(()) };
        }
        for ino in uses_bytes(op).into_iter().flatten() {
            if self.state.inode(ino)?.is_some_and(|row| row.is_absent) {
                return Err(Blocked::NotNow);
            }
        }
        Ok(())
    }

    /// Panics if a record of the machine hides bytes that users have, or that are about to be theirs.
    fn hides_nothing(&self, record: &Record, busy: &BTreeSet<Ino>) {
        for change in &record.changes {
            let RowChange::Inode { ino, row: Some(row) } = change else { continue };
            let before = self.state.inode(*ino).ok().flatten().filter(|before| !before.is_absent);
            if let Some(before) = before.filter(|_| row.is_absent) {
                let is_empty = before.attr.nlink == 0 || before.attr.size == 0;
                assert!(is_empty && !busy.contains(ino), "{ino} has bytes and becomes absent");
            }
        }
    }

    /// The decision of such a record. What it removes may be open at mounts, as what a client removes.
    fn of_beside(&mut self, record: Record) -> Decision {
        // It was taken to be there when this was made.
        let _ = self.room.take(0);
        let (now, before) = (self.time(), Names::of(self, &record));
        let mut decision = Decision { is_of_beside: true, ..Decision::new() };
        decision.record.bodies = record.bodies;
        for change in record.changes {
            match change {
                RowChange::Inode { ino, row: None } => self.file_goes(&mut decision, ino, &before, now),
                RowChange::Dir { ino, row: None } => self.dir_goes(&mut decision, ino, now),
                RowChange::Inode { ino, row: Some(mut row) } if row.attr.nlink > 0 => {
                    self.nobody_keeps(&mut decision, &mut row);
                    decision.push(RowChange::Inode { ino, row: Some(row) });
                }
                other => decision.push(other),
            }
        }
        decision
    }

    fn file_goes(&mut self, decision: &mut Decision, ino: Ino, before: &Names, now: Time) {
        let row = self.state.inode(ino).ok().flatten().expect("what goes was looked at");
        // Mounts may have it open. If a user changes it, the machine is to know what it was.
        let mut row = row.clone();
        let holders: BTreeSet<SessionId> = if row.attr.nlink > 0 {
            before.dirs_of(ino).flat_map(|dir| self.possible_openers(dir)).collect()
        } else if row.is_absent {
            // It never had a name.
            BTreeSet::new()
        } else {
            // It had one, nobody knows where.
            self.mounts().into_iter().filter(|mount| !self.replies.is_ending(*mount)).collect()
        };
        row.attr.nlink = 0;
        row.attr.ctime = row.attr.ctime.max(now);
        self.file_without_name(decision, row, holders.into_iter().collect(), None);
    }

    fn dir_goes(&mut self, decision: &mut Decision, ino: Ino, now: Time) {
        let row = self.state.dir(ino).ok().flatten().expect("what goes was looked at").clone();
        decision.no_dir(ino);
        let holders = self.possible_openers(ino);
        if !holders.is_empty() {
            return self.keep_removed(decision, ino, &row, holders, now);
        }
        self.drop_locks(decision, ino);
        if row.has_xattrs {
            decision.xattrs(ino, None);
        }
    }
}

/// Files whose bytes an operation reads or changes. `setattr` tells by itself, when it knows whether its caller may do so.
const fn uses_bytes(op: &Op) -> [Option<Ino>; 2] {
    match op {
        Op::Read { ino, .. } | Op::Write { ino, .. } | Op::Fallocate { ino, .. } | Op::Seek { ino, .. } => {
            [Some(*ino), None]
        }
        Op::CopyRange { from, to, .. } => [Some(*from), Some(*to)],
        _ => [None; 2],
    }
}

/// The file whose bytes an operation changes.
const fn changes_bytes(op: &Op) -> Option<Ino> {
    match op {
        Op::Write { ino, .. } | Op::Fallocate { ino, .. } | Op::CopyRange { to: ino, .. } => Some(*ino),
        Op::SetAttr { ino, set } if set.size.is_some() => Some(*ino),
        _ => None,
    }
}

/// Whether the machine beside the island has such an operation done. Names and locks it sets by records.
const fn may_be_done(op: &Op) -> bool {
    matches!(
        op,
        Op::Read { .. }
            | Op::Write { .. }
            | Op::Seek { .. }
            | Op::CopyRange { .. }
            | Op::Fallocate { .. }
            | Op::GetAttr { .. }
            | Op::SetAttr { .. }
            | Op::Fsync { .. }
    )
}

/// The directories in which files lose a name.
#[derive(Default)]
struct Names {
    of: BTreeMap<Ino, BTreeSet<Ino>>,
    /// Directories in which a name changes of which it is not known what it led to.
    unknown: BTreeSet<Ino>,
}

impl Names {
    fn of(ctx: &Ctx, record: &Record) -> Self {
        let mut names = Self::default();
        for change in &record.changes {
            let RowChange::Entry { dir, name, .. } = change else { continue };
            match ctx.state.entry(*dir, name) {
                Ok(Some(entry)) => drop(names.of.entry(entry.ino).or_default().insert(*dir)),
                Ok(None) => {}
                Err(_) => drop(names.unknown.insert(*dir)),
            }
        }
        names
    }

    /// Where a file that goes may have been found.
    fn dirs_of(&self, ino: Ino) -> impl Iterator<Item = Ino> {
        self.of.get(&ino).into_iter().flatten().chain(&self.unknown).copied()
    }
}
