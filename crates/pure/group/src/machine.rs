//! The machine of one copy: takes an event and hands it to what the copy is doing. What it does in each role is in
//! `following.rs`, `claim.rs` and `leading.rs`; what follows from the record in `record.rs`.
//!
//! Invariants (PacificA): a copy leads only by the swap that it is making, with no promise in between (primary invariant);
//! what is committed every counted copy has, and nothing before the barrier is counted alone (commit invariant); only the
//! primary of an epoch changes its record, and only a member whose seat is good begins the next one (reconfiguration
//! invariant).

use std::collections::BTreeMap;

use atoll_core::planted::{Bug, planted};
use atoll_core::{NodeId, Position};
use atoll_proto::control::{CopyRole, GroupStatus};
use atoll_proto::{GroupMessage, GroupRecord, Host, NodeLife, Seat};

use crate::claim::{Resigned, Standing, VoidCopy};
use crate::epochs::Epochs;
use crate::event::{GroupEffect, GroupEvent, LeadBy, OpenedLog};
use crate::following::Following;
use crate::leading::Leading;
use crate::lease::{BEAT_MS, LATE_MS, Promise};
use crate::log::OwnLog;
use crate::progress::{Admission, GroupMember};
use crate::seat::SeatFile;
use crate::store::Store;

/// From one read of the record to the next, when nothing waits for it.
const READ_MS: u64 = 2_000;
/// A primary that is alone needs no promise, so it looks more often whether it was deposed by force.
const READ_ALONE_MS: u64 = 900;

/// So many boots of a node are remembered: a proof that an earlier process has ended is of one that has greeted lately.
const HOSTS_MAX: usize = 16;
/// Links of so many nodes are remembered, and those of the ring: a cluster has no more nodes.
pub const LINKS_MAX: usize = 1024;
/// For a copy that was not heard of for so long the log is held no more.
const GONE_MS: u64 = 30_000;

/// Of one copy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Config {
    /// This process.
    pub me: NodeLife,
    /// All nodes of the group, in the order in which they lead: first those that shall keep a copy, then those that keep theirs until
    /// these have one.
    pub ring: Vec<NodeId>,
    /// How many copies there shall be.
    pub wanted: u8,
    /// The least tenure of a copy that is made empty in a group that there was before: seconds of the clock, so that none is given twice.
    pub tenure_min: u32,
}

/// What a copy is doing, for status and for the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It has no seat.
    Void,
    /// It has a seat, and follows this primary.
    Following {
        /// The highest epoch that it has seen.
        epoch: u32,
        /// The primary, if it has heard of it.
        primary: Option<NodeId>,
    },
    /// It hears no primary, and looks whether it may lead.
    Standing,
    /// It swaps itself into the record.
    Claiming,
    /// It is the primary.
    Leading {
        /// Its epoch.
        epoch: u32,
        /// Its barrier is committed.
        begun: bool,
    },
    /// Its engine is being closed or cut back.
    Closing,
    /// Its disk has failed, or its primary has less than was promised here.
    Halted,
}

/// Bytes of room on a disk. Above it a primary hears with the next acknowledgement how much there is, below it at once.
const ROOM_TOLD_BELOW: u64 = 1 << 30;

/// What a copy is doing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Doing {
    Following(Following),
    Standing(Standing),
    Claiming { attempt: u32, by: LeadBy, since_ms: u64 },
    Leading(Box<Leading>),
    Closing,
    Halted,
}

/// The record as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct KnownRecord {
    pub(crate) revision: u64,
    pub(crate) record: GroupRecord,
    /// When its epoch was seen first; 0: it was there when this process started.
    pub(crate) since_ms: u64,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Group {
    pub(crate) me: NodeLife,
    /// The nodes that shall keep the island, as this copy was told, in the order in which they lead. The first [`Self::wanted`] of
    /// them are to have a copy each; those behind them keep theirs until all of these are in sync.
    named: Vec<NodeId>,
    /// The same, and behind them whoever has a seat all the same.
    pub(crate) ring: Vec<NodeId>,
    pub(crate) wanted: u8,
    pub(crate) tenure_min: u32,
    pub(crate) now: u64,
    pub(crate) start_ms: u64,
    /// What this process, or one before it, has promised by then is not known any more.
    pub(crate) quiet_ms: u64,
    /// Since when time passes for this machine without a gap.
    pub(crate) awake_ms: u64,
    pub(crate) seat: SeatFile,
    pub(crate) log: OwnLog,
    /// Of the group, as far as it is known here.
    pub(crate) committed: u64,
    pub(crate) synced: u64,
    /// The log is kept from this record on, because a copy that is not in sync may need what follows.
    pub(crate) keep: u64,
    pub(crate) known: Option<KnownRecord>,
    pub(crate) store: Store,
    pub(crate) state: Doing,
    /// The last link of each node, also of one that the ring does not name: the record may name it later, and a link is told once.
    links: BTreeMap<NodeId, (u64, NodeLife)>,
    /// The highest life that has greeted from each host.
    pub(crate) lives: BTreeMap<(NodeId, Host), u32>,
    pub(crate) resigned: Option<Resigned>,
    /// Copies that have said in this life that they may have lost something.
    pub(crate) voids: BTreeMap<NodeId, VoidCopy>,
    /// What others that stand have, and when they said so.
    pub(crate) standing: BTreeMap<NodeId, (Position, u64)>,
    pub(crate) attempts: u32,
    /// Until when an order to lead whatever is lost holds.
    pub(crate) forced_until_ms: u64,
    pub(crate) must_fill: bool,
    /// The log of the primary has less than was promised here: this copy is not filled from it.
    pub(crate) is_apart: bool,
    /// Its log may have lost something before this process.
    pub(crate) is_lost: bool,
}

impl Group {
    /// A copy whose log was opened.
    pub fn new(
        config: Config,
        mut seat: SeatFile,
        log: OpenedLog,
        promise: &mut Promise,
        now_ms: u64,
        out: &mut Vec<GroupEffect>,
    ) -> Self {
        let is_lost = !log.whole || seat.was_moved(config.me.host);
        if is_lost && !planted(Bug::SeatAfterPower) {
            seat.tenure += 1;
        }
        if seat.grouped && planted(Bug::NotedBeforeTenure) {
            out.push(GroupEffect::NoteWhole);
        }
        if is_lost || seat.host != Some(config.me.host) {
            seat.host = Some(config.me.host);
            out.push(GroupEffect::SaveSeat(seat.clone()));
        }
        let recorded = seat.record.as_ref().map_or(0, |(_, record)| record.epoch);
        promise.seen = promise.seen.max(seat.seen).max(log.epochs.last().epoch).max(recorded);
        promise.recorded = promise.seen;
        // Later epochs than that of a primary that still runs may have been led, and this copy may have lost what it knew of them.
        // Only the record tells.
        promise.is_blind = seat.record.is_none();
        promise.ticked_ms = now_ms;
        let mut group = Self {
            me: config.me,
            named: config.ring.clone(),
            ring: config.ring,
            wanted: config.wanted,
            tenure_min: config.tenure_min,
            now: now_ms,
            start_ms: now_ms,
            quiet_ms: now_ms,
            awake_ms: now_ms,
            seat,
            log: OwnLog::new(log),
            committed: 0,
            synced: 0,
            keep: 0,
            known: None,
            store: Store::default(),
            state: Doing::Following(Following::default()),
            links: BTreeMap::new(),
            lives: BTreeMap::new(),
            resigned: None,
            voids: BTreeMap::new(),
            standing: BTreeMap::new(),
            attempts: 0,
            forced_until_ms: 0,
            must_fill: false,
            is_apart: false,
            is_lost,
        };
        group.note_known(promise);
        group.synced = group.log.checkpoint;
        group.committed = group.log.checkpoint;
        if group.seat.grouped {
            // The tenure tells what was lost. Without one only the first record does, when it is synced.
            out.push(GroupEffect::NoteWhole);
            group.store.read(now_ms, out);
        } else {
            let by = if is_lost { LeadBy::PowerCut } else { LeadBy::Restart };
            group.lead(promise, promise.seen + 1, by, out);
        }
        group.check(promise);
        group
    }

    /// Takes an event. The caller holds the lock of the promise, which the thread that answers beacons takes too.
    pub fn handle(
        &mut self,
        promise: &mut Promise,
        now_ms: u64,
        event: GroupEvent,
        out: &mut Vec<GroupEffect>,
    ) {
        self.now = self.now.max(now_ms);
        self.note_known(promise);
        let may_end_a_primary = matches!(
            event,
            GroupEvent::Link { .. } | GroupEvent::Heard { message: GroupMessage::Resign { .. }, .. }
        );
        match event {
            GroupEvent::Tick => self.tick(promise, out),
            GroupEvent::Link { who, link } => self.on_link(who, link, out),
            GroupEvent::Heard { from, link, message } => self.on_message(promise, from, link, message, out),
            GroupEvent::Promised { node, sent_ms } => self.on_promised(node, sent_ms),
            GroupEvent::RefusedBeacon { epoch } => self.on_refused(epoch, out),
            GroupEvent::ReadDone { number, found } => self.on_read(promise, number, found, out),
            GroupEvent::Swapped { number, outcome } => {
                let end = self.store.swapped(self.now, number, outcome, out);
                self.swap_ended(promise, end, out);
            }
            GroupEvent::RecordChanged => _ = self.store.read(self.now, out),
            GroupEvent::Decided { seq } => self.on_decided(seq, out),
            GroupEvent::NoRoomToLead => self.resign(promise, None, out),
            GroupEvent::NotTaken { last } => self.on_not_taken(promise, last, out),
            GroupEvent::Written { seq, last_body } => {
                self.log.wrote(seq, last_body);
                self.own_log_moved(out);
            }
            GroupEvent::Synced { seq } => {
                self.log.synced(seq);
                self.own_log_moved(out);
            }
            GroupEvent::SyncDone { epoch, number, seq } => self.on_sync_done(epoch, (number, seq), out),
            GroupEvent::SyncAll { number, seq, bodies } => self.sync_all(number, seq, bodies, out),
            GroupEvent::Disk { room, stuck, differs } => {
                let is_news = (self.log.stuck, self.log.differs) != (stuck, differs)
                    || (self.log.room != room && self.log.room.min(room) < ROOM_TOLD_BELOW);
                (self.log.room, self.log.stuck, self.log.differs) = (room, stuck, differs);
                if is_news {
                    self.own_log_moved(out);
                }
            }
            GroupEvent::Kept { checkpoint, first } => {
                self.log.checkpoint = self.log.checkpoint.max(checkpoint);
                self.log.first = self.log.first.max(first);
            }
            GroupEvent::Opened { log } => self.on_opened(promise, log, out),
            GroupEvent::Filled => self.on_filled(out),
            GroupEvent::Wanted { copies, ring } => {
                self.wanted = copies;
                self.named = ring;
                self.set_ring();
            }
            GroupEvent::Leave { to } => self.leave(to),
            GroupEvent::Stopped => self.stop(promise, out),
            GroupEvent::Force => self.force(promise),
        }
        if may_end_a_primary && matches!(self.state, Doing::Following(_)) {
            // Not at the next tick: calls wait.
            self.stand_if_may(promise, out);
        }
        self.advance(promise, out);
        if self.led().is_some() && self.is_full() {
            self.keep = self.synced + 1;
        }
        self.check(promise);
    }

    /// Whoever has a seat is of the group until that has gone, whatever else was told: it has what is committed.
    pub(crate) fn set_ring(&mut self) {
        self.ring.clone_from(&self.named);
        let seats = self.known.iter().flat_map(|known| &known.record.in_sync);
        let others = seats.map(|seat| seat.node).filter(|node| !self.named.contains(node));
        self.ring.extend(others);
    }

    /// The place of a node in the ring. Of so many copies that are wanted the first places keep one each.
    pub(crate) fn ring_place(&self, node: NodeId) -> usize {
        self.ring.iter().position(|other| *other == node).unwrap_or(usize::MAX)
    }

    /// What the store has had at the least: the first read of a process is held against what `seat` remembers.
    fn note_known(&mut self, promise: &Promise) {
        let read = self.known.as_ref().map_or(0, |known| known.revision);
        let remembered = self.seat.record.as_ref().map_or(0, |(revision, _)| *revision);
        self.store.knows(read.max(remembered), promise.seen);
    }

    fn tick(&mut self, promise: &mut Promise, out: &mut Vec<GroupEffect>) {
        if self.now >= promise.ticked_ms + LATE_MS {
            self.awake_ms = self.now;
        }
        promise.ticked_ms = self.now;
        if self.seat.grouped {
            let is_old = self.known.as_ref().is_none_or(|known| known.record.epoch < promise.seen);
            let wants = matches!(self.state, Doing::Standing(_)) || is_old;
            let is_alone = matches!(self.state, Doing::Leading(_)) && self.counted().len() == 1;
            let period = if is_alone { READ_ALONE_MS } else { READ_MS };
            self.store.tick(self.now, wants, period, out);
        }
        match self.state {
            Doing::Following(_) => self.tick_following(promise, out),
            Doing::Standing(_) | Doing::Claiming { .. } => self.tick_claim(promise, out),
            Doing::Leading(_) => self.tick_leading(promise, out),
            Doing::Closing | Doing::Halted => {}
        }
    }

    fn on_link(&mut self, who: NodeLife, link: u64, out: &mut Vec<GroupEffect>) {
        let is_new = !self.links.contains_key(&who.node);
        if is_new && self.links.len() >= LINKS_MAX && !self.ring.contains(&who.node) {
            return;
        }
        if let Some((last, known)) = self.links.get(&who.node) {
            if *last >= link {
                return;
            }
            // A boot brings another host and a higher life. A lower one from another host is a second machine.
            if known.host != who.host && known.life >= who.life {
                out.push(GroupEffect::TwoHosts { node: who.node });
            }
        }
        self.links.insert(who.node, (link, who));
        let life = self.lives.entry((who.node, who.host)).or_default();
        *life = (*life).max(who.life);
        let hosts = self.lives.iter().filter(|((node, _), _)| *node == who.node);
        if hosts.clone().count() > HOSTS_MAX
            && let Some((oldest, _)) = hosts.min_by_key(|(_, life)| **life)
        {
            let oldest = *oldest;
            self.lives.remove(&oldest);
        }
        self.member_linked(who.node, out);
    }

    fn on_message(
        &mut self,
        promise: &mut Promise,
        from: NodeId,
        link: u64,
        message: GroupMessage,
        out: &mut Vec<GroupEffect>,
    ) {
        // What comes on an earlier link was said by who knew less: a copy that was put back may have followed.
        let Some((last, who)) = self.links.get(&from).copied() else { return };
        if link < last || !self.ring.contains(&from) {
            return;
        }
        match message {
            GroupMessage::Append { epoch, after, ends, commit, synced, keep } => {
                self.on_append(promise, from, epoch, (after, &ends), (commit, synced, keep), out);
            }
            GroupMessage::Has { epoch, tenure, written, synced, room, stuck, differs } => {
                self.on_has(from, epoch, tenure, (written, synced), (room, stuck, differs));
            }
            GroupMessage::SyncTo { epoch, number, seq, bodies } => {
                self.on_sync_to(epoch, number, seq, bodies, out);
            }
            GroupMessage::SyncedTo { epoch, tenure, number, seq } => {
                self.on_synced_to(from, epoch, tenure, (number, seq));
            }
            GroupMessage::Join { tenure, checkpoint, epochs } => {
                self.on_join(from, tenure, checkpoint, epochs, out)
            }
            GroupMessage::Released { epoch, common } => self.on_released(from, epoch, common, out),
            GroupMessage::Refused { epoch } => self.on_refused(epoch, out),
            GroupMessage::Standing { last, tenure, void, cut, asks } => {
                self.on_standing(from, last, VoidCopy { tenure, last, cut }, (void, asks), out);
            }
            GroupMessage::Resign { epoch, to, last } => {
                self.resigned = Some(Resigned { who, epoch, to, last, at_ms: self.now });
                self.store.read(self.now, out);
            }
            GroupMessage::Halted { .. } => self.on_halted(from),
            // Rows and bytes of bodies are the engine's.
            GroupMessage::Fetch { .. }
            | GroupMessage::Fetched { .. }
            | GroupMessage::FillFrom { .. }
            | GroupMessage::Rows { .. }
            | GroupMessage::Weigh
            | GroupMessage::Weight { .. } => {}
        }
    }

    /// A node has seen a higher epoch than the one that is led here: the record says who leads.
    fn on_refused(&mut self, epoch: u32, out: &mut Vec<GroupEffect>) {
        if matches!(&self.state, Doing::Leading(leading) if epoch > leading.epoch) {
            self.store.read(self.now, out);
        }
    }

    /// Follows whoever leads.
    pub(crate) fn follow(&mut self, promise: &mut Promise) {
        promise.allow();
        self.state = Doing::Following(Following::default());
    }

    /// A primary that is one no more: everything that it has decided and not told is dropped with its engine.
    pub(crate) fn step_down(&mut self, promise: &mut Promise, out: &mut Vec<GroupEffect>) {
        promise.allow();
        self.state = Doing::Closing;
        out.push(GroupEffect::Close);
    }

    fn on_opened(&mut self, promise: &mut Promise, log: OpenedLog, out: &mut Vec<GroupEffect>) {
        if !matches!(self.state, Doing::Closing) {
            return;
        }
        if !log.whole {
            self.seat.tenure += 1;
            out.push(GroupEffect::SaveSeat(self.seat.clone()));
        }
        out.push(GroupEffect::NoteWhole);
        self.log = OwnLog::new(log);
        let (last, checkpoint) = (self.log.last().seq, self.log.checkpoint);
        // No snapshot is ahead of what all members have synced.
        self.committed = self.committed.min(last).max(checkpoint);
        self.synced = self.synced.min(last).max(checkpoint);
        self.must_fill = false;
        self.follow(promise);
    }

    /// The own disk has failed, or the process is about to end.
    fn stop(&mut self, promise: &mut Promise, out: &mut Vec<GroupEffect>) {
        let was = std::mem::replace(&mut self.state, Doing::Halted);
        promise.allow();
        promise.refuse();
        match was {
            Doing::Leading(leading) => {
                out.push(GroupEffect::Close);
                self.tell_resigned(leading.epoch, None, out);
            }
            Doing::Following(Following { epoch, primary: Some(primary), .. }) => {
                out.push(GroupEffect::Tell { to: primary, message: GroupMessage::Halted { epoch } });
            }
            _ => {}
        }
    }

    /// This copy's place, if it had one.
    pub(crate) fn own_seat(&self) -> Seat {
        Seat { node: self.me.node, tenure: self.seat.tenure }
    }

    /// Whether the record has a place for this copy's data.
    pub(crate) fn has_seat(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.record.in_sync.contains(&self.own_seat()))
    }

    /// Whether some beats could have come since time passes again.
    pub(crate) fn is_awake(&self) -> bool {
        self.awake_ms == self.start_ms || self.now >= self.awake_ms + 2 * BEAT_MS
    }

    /// What this copy is doing.
    pub fn role(&self, promise: &Promise) -> Role {
        match &self.state {
            Doing::Following(following) if self.has_seat() => {
                Role::Following { epoch: promise.seen, primary: following.primary }
            }
            Doing::Following(_) => Role::Void,
            Doing::Standing(_) => Role::Standing,
            Doing::Claiming { .. } => Role::Claiming,
            Doing::Leading(leading) => {
                Role::Leading { epoch: leading.epoch, begun: self.committed >= leading.barrier }
            }
            Doing::Closing => Role::Closing,
            Doing::Halted => Role::Halted,
        }
    }

    /// The primary that this copy follows, and its epoch.
    pub const fn follows(&self) -> Option<(NodeId, u32)> {
        match &self.state {
            Doing::Following(Following { epoch, primary: Some(primary), .. }) => Some((*primary, *epoch)),
            _ => None,
        }
    }

    /// What an administrator wants to know of the group.
    pub fn status(&self, promise: &Promise) -> GroupStatus {
        let record = self.known.as_ref().map(|known| &known.record);
        let last = self.log.last().seq;
        let joining = self.led().into_iter().flat_map(|leading| &leading.progress.members);
        let joining = joining.filter(|(_, member)| member.admission != Admission::Seated && !member.lost);
        let role = match self.role(promise) {
            Role::Leading { begun: true, .. } => match self.lease_until() {
                Some(until) if until > self.now => CopyRole::Leads,
                _ => CopyRole::Waits,
            },
            Role::Leading { .. } | Role::Claiming => CopyRole::Begins,
            Role::Following { .. } => CopyRole::Follows,
            _ if self.is_apart => CopyRole::Lacks,
            _ if self.must_fill || self.seat.lacks => CopyRole::Fills,
            Role::Void | Role::Closing => CopyRole::ComesBack,
            Role::Standing => CopyRole::Stands,
            Role::Halted => CopyRole::Halted,
        };
        GroupStatus {
            role,
            epoch: record.map_or(0, |record| record.epoch),
            primary: record.and_then(|record| record.primary).map(|primary| primary.node),
            in_sync: record
                .map_or(Vec::new(), |record| record.in_sync.iter().map(|seat| seat.node).collect()),
            wanted: record.map_or(self.wanted, |record| record.wanted),
            joining: joining.map(|(node, member)| (*node, last.saturating_sub(member.has))).collect(),
            // The record of a process that has just started is as old as that at least.
            epoch_ms: self
                .known
                .as_ref()
                .map(|known| self.now.saturating_sub(known.since_ms.max(self.start_ms))),
        }
    }

    /// The log is kept from this record on for copies that are not in sync: the primary decides it, and the others hear of it.
    pub const fn keep(&self) -> u64 {
        self.keep
    }

    /// Whether all copies that there shall be are in sync, as far as is known here.
    pub fn is_full(&self) -> bool {
        let Some(record) = self.known.as_ref().map(|known| &known.record) else { return false };
        let wanted = usize::from(record.wanted);
        let mut keepers = self.ring.iter().take(wanted);
        record.in_sync.len() >= wanted && keepers.all(|node| record.seat_of(*node).is_some())
    }

    /// What the copy remembers.
    pub const fn seat(&self) -> &SeatFile {
        &self.seat
    }

    /// The record as it is known, with its revision.
    pub fn record(&self) -> Option<(u64, &GroupRecord)> {
        self.known.as_ref().map(|known| (known.revision, &known.record))
    }

    /// Up to where the group has committed and synced, as far as it is known here.
    pub const fn reached(&self) -> (u64, u64) {
        (self.committed, self.synced)
    }

    /// The own log's last record.
    pub fn last(&self) -> Position {
        self.log.last()
    }

    /// The epochs of the own log.
    pub const fn epochs(&self) -> &Epochs {
        &self.log.epochs
    }

    /// This copy cannot follow from its own log.
    pub const fn must_be_filled(&self) -> bool {
        self.must_fill
    }

    /// The first record of the log that a copy still needs which comes back, or is filled; none if there is none that lives.
    pub fn needed_from(&self) -> Option<u64> {
        let members = self.led().into_iter().flat_map(|leading| leading.progress.members.values());
        let comes = |member: &&GroupMember| {
            member.admission != Admission::Seated
                && !member.lost
                && self.now < member.heard_ms(self.awake_ms) + GONE_MS
        };
        members.filter(comes).map(|member| member.joined.max(member.received) + 1).min()
    }

    /// The primary that fills this copy, and its epoch.
    pub fn fills_from(&self) -> Option<(NodeId, u32)> {
        self.follows().filter(|_| self.must_fill && !self.is_apart && !self.seat.is_nameless())
    }

    /// Stops the node if the machine contradicts itself.
    pub(crate) fn check(&self, promise: &Promise) {
        assert!(self.synced <= self.committed, "synced to {}, committed to {}", self.synced, self.committed);
        assert!(self.log.synced <= self.log.written, "synced before written");
        assert!(self.log.written <= self.log.last().seq, "written before appended");
        let refuses = matches!(
            self.state,
            Doing::Standing(_) | Doing::Claiming { .. } | Doing::Leading(_) | Doing::Halted
        );
        assert!(promise.refusing == refuses, "a promise is given beside {:?}", self.state);
        assert!(promise.is_blind == self.seat.record.is_none(), "a promise is given without a record");
        assert!(
            promise.leads.is_some() == matches!(self.state, Doing::Leading(_)),
            "leads {:?}",
            promise.leads
        );
        self.check_leading();
    }
}
