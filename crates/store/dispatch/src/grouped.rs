//! An engine as a part of a copy that has a group: tells the group what it has decided, written and synced, and makes
//! syncs together with the other members. Never knows who they are.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use atoll_core::sum::BLOCK_BYTES;
use atoll_core::{Ino, Position};
use atoll_disk::Disk;
use atoll_group::{Group, GroupEvent, LeadBy};
use atoll_island::{BodyDone, BodyOpId, Event, HELLO_SOON_MS, PreviousEnd};
use atoll_proto::{BodyChange, RowChange};
use bytes::Bytes;

use crate::engine::{Engine, Halted};
use crate::follow::NotTaken;
use crate::membership::{Membership, Source};
use crate::role::{Corrected, Role};
use crate::ship::Window;
use crate::space::Lack;
use crate::work::Work;

/// Bytes of corrected blocks in one record, about.
const CORRECTED_BYTES: usize = 128 << 10;

/// The copy that an engine belongs to.
pub(crate) trait Owner: Send + Sync {
    /// Something has happened in the engine with this number. What follows from it is done, unless another thread is at it.
    fn tell(&self, engine: u64, event: GroupEvent);
    /// Does what takes long and waits for a thread.
    fn finish(&self);
}

/// See the module.
pub(crate) struct Grouped {
    pub(crate) number: u64,
    pub(crate) owner: Weak<dyn Owner>,
    pub(crate) place: Arc<Membership>,
}

/// Syncs that all members make together. A round without bodies is one of the log.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    last: u64,
    /// The round of the log that is under way.
    of_log: Option<u64>,
    /// Work of the machine that ends with a round.
    of_bodies: BTreeMap<u64, Vec<BodyOpId>>,
}

impl Rounds {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl<D: Disk> Engine<D> {
    /// Whether the island may have other copies.
    pub(crate) fn is_grouped(&self) -> bool {
        self.grouped.get().is_some()
    }

    /// Whether another copy of the island has all that this one has acknowledged.
    pub(crate) fn has_others_in_sync(&self) -> bool {
        let is_one = |group: &Group| group.record().is_some_and(|(_, record)| record.in_sync.len() > 1);
        self.grouped.get().is_some_and(|grouped| grouped.place.with_group(is_one))
    }

    /// Tells the group, if there is one. Not while a lock of the engine is held.
    pub(crate) fn tell_group(&self, event: GroupEvent) {
        if let Some(grouped) = self.grouped.get()
            && let Some(owner) = grouped.owner.upgrade()
        {
            owner.tell(grouped.number, event);
        }
    }

    /// Does what takes long for the group and waits for a thread. Not while a lock of the engine is held.
    pub(crate) fn finish(&self) {
        if let Some(owner) = self.grouped.get().and_then(|grouped| grouped.owner.upgrade()) {
            owner.finish();
        }
    }

    /// Tells the group, and leaves what follows to the next thread that does something for the copy.
    pub(crate) fn note_for_group(&self, event: GroupEvent) {
        if let Some(grouped) = self.grouped.get() {
            grouped.place.handle(Source::Engine(grouped.number), event, Vec::new());
        }
    }

    /// Tells the group how this copy's disk is.
    pub(crate) fn tell_disk(&self) {
        let (room, stuck, differs) = (self.room(), self.space.lacks(Lack::Record), self.differs());
        self.tell_group(GroupEvent::Disk { room, stuck, differs });
    }

    /// Tells the machine whether it may decide changes of clients, if that has changed.
    pub(crate) fn tell_decides(&self) -> Option<Work> {
        let grouped = self.grouped.get()?;
        let core = self.lock();
        let window = core.window.as_ref()?;
        let waits = !grouped.place.may_decide() || window.is_full();
        drop(core);
        let waited = self.waits_to_decide.swap(waits, Ordering::AcqRel);
        (waited != waits).then(|| self.begin(Event::Decides(!waits)))
    }

    /// Up to where all members have synced the log.
    pub(crate) fn synced_upto(&self) -> u64 {
        self.grouped.get().map_or_else(|| self.lock().log.synced_upto(), |grouped| grouped.place.synced())
    }

    /// The only copy has synced its log up to there: the machine hears of it.
    pub(crate) fn know_synced_alone(&self, upto: u64) {
        if !self.is_grouped() {
            self.enter(Event::Synced(upto));
        }
    }

    /// Begins a sync of the log at all members, unless one is under way: what it does not cover is asked for again when it has
    /// ended.
    pub(crate) fn sync_log_at_all(&self) {
        let mut rounds = self.rounds.lock().expect("no panic while it is held");
        if rounds.of_log.is_some() {
            return;
        }
        let number = rounds.next();
        rounds.of_log = Some(number);
        drop(rounds);
        self.begin_round(number, Vec::new());
    }

    /// Begins a sync of bodies, and of the log, at all members.
    pub(crate) fn sync_bodies_at_all(&self, tickets: Vec<BodyOpId>, bodies: Vec<Ino>) {
        let mut rounds = self.rounds.lock().expect("no panic while it is held");
        let number = rounds.next();
        rounds.of_bodies.insert(number, tickets);
        drop(rounds);
        self.begin_round(number, bodies);
    }

    fn begin_round(&self, number: u64, bodies: Vec<Ino>) {
        let seq = self.last().seq;
        self.tell_group(GroupEvent::SyncAll { number, seq, bodies });
    }

    /// A round has ended at all members: what the machine hears.
    pub(crate) fn round_done(&self, number: u64) -> Vec<Event> {
        let mut rounds = self.rounds.lock().expect("no panic while it is held");
        if rounds.of_log == Some(number) {
            rounds.of_log = None;
            drop(rounds);
            return vec![Event::Synced(self.synced_upto())];
        }
        let tickets = rounds.of_bodies.remove(&number).unwrap_or_default();
        tickets.into_iter().map(|ticket| Event::BodyDone(ticket, Ok(BodyDone::Done))).collect()
    }

    /// The part of a round that is this copy's: `bodies`, and the log up to `seq`.
    pub fn sync_here(&self, seq: u64, bodies: &[Ino]) -> Result<(), Halted> {
        let halted = |why: String| {
            self.halt(&why);
            Halted { island: self.id(), why }
        };
        let Some(_used) = self.in_use() else { return Err(halted("it is closed".to_owned())) };
        self.bodies.sync_many(bodies).map_err(|e| halted(e.to_string()))?;
        self.sync_upto(seq).map_err(halted)?;
        self.settle_followed().or_else(|error| {
            // What found no space waits on: the log has it.
            if error.is_no_space() { Ok(()) } else { Err(halted(error.to_string())) }
        })
    }

    /// Makes all that this copy has survive a power cut, whatever others have.
    pub(crate) fn sync_all_here(&self) -> Result<(), Halted> {
        self.disk().sync_everything().map_err(|e| Halted { island: self.id(), why: e.to_string() })?;
        self.sync_here(self.last().seq, &[])
    }

    /// Begins to lead in an epoch. What comes of it begins with the first record of the epoch, the barrier. `soon`: no other
    /// island has taken this one for away.
    pub fn lead_epoch(&self, epoch: u32, by: LeadBy, synced: u64, soon: bool) -> Result<Work, NotTaken> {
        let has_followed = self.prepare_to_lead()?;
        let given_way = self.given_way().map_err(|why| {
            self.halt(&why);
            NotTaken::Halted(Halted { island: self.id(), why })
        })?;
        let mut core = self.lock();
        let last = core.log.last();
        let Role::Following(follower) = &mut core.role else { return Err(NotTaken::Leads) };
        follower.given_way = given_way;
        follower.config.epoch = Some(epoch);
        if soon {
            follower.config.hello_ms = HELLO_SOON_MS;
        }
        match by {
            LeadBy::Promotion => follower.ended = PreviousEnd::Promoted { synced: synced.min(last.seq) },
            LeadBy::Restart if has_followed => {
                follower.ended = PreviousEnd::Promoted { synced: synced.min(last.seq) };
            }
            // It knows how its last life has ended.
            LeadBy::Restart => {}
            LeadBy::PowerCut => follower.ended = PreviousEnd::PowerCut,
        }
        core.window = Some(Window::behind(last));
        let led = self.begin_to_lead(&mut core.role);
        drop(core);
        led.map_err(|why| {
            self.halt(&why);
            NotTaken::Halted(Halted { island: self.id(), why })
        })?;
        // The barrier goes to the log.
        Ok(self.begin(self.time()))
    }

    /// Takes the corrections of rows that gave way to bodies when the copy was opened, each with the bytes that these have: the
    /// bodies of other copies may be as the rows were.
    fn given_way(&self) -> Result<Vec<Corrected>, String> {
        let corrections = match &mut self.lock().role {
            Role::Following(follower) => std::mem::take(&mut follower.corrections),
            Role::Leading(_) => return Ok(Vec::new()),
        };
        let mut sizes: BTreeMap<Ino, u64> = BTreeMap::new();
        for change in &corrections {
            if let RowChange::Inode { ino, row: Some(row) } = change {
                sizes.insert(*ino, row.attr.size);
            }
        }
        let (mut all, mut bytes, mut is_cut) = (Vec::new(), 0, false);
        let (mut one, mut last_block) = (Corrected::default(), None);
        for change in corrections {
            // A file that is cut has several rows, which belong together.
            let begins = matches!(change, RowChange::SumsCut { .. } | RowChange::Sums { .. }) && !is_cut;
            if begins && bytes >= CORRECTED_BYTES {
                all.push(std::mem::take(&mut one));
                bytes = 0;
            }
            match &change {
                RowChange::SumsCut { .. } => is_cut = true,
                RowChange::Inode { ino, row: Some(row) } => {
                    one.bodies.push(BodyChange::Cut { ino: *ino, len: row.attr.size });
                    one.bodies.extend(last_block.take());
                    is_cut = false;
                }
                RowChange::Sums { ino, first, sums } => {
                    let size = sizes.get(ino).copied().or_else(|| self.row_of(*ino).map(|row| row.attr.size));
                    let (offset, len) = (first * BLOCK_BYTES, sums.len() as u64 * BLOCK_BYTES);
                    let mut buffer = Vec::new();
                    let read = self.bodies.read(*ino, offset, len, size.unwrap_or(0), sums, &mut buffer);
                    let range = read.map_err(|error| error.to_string())?;
                    let bytes_now = Bytes::copy_from_slice(&buffer[range]);
                    bytes += bytes_now.len();
                    let now = BodyChange::Bytes { ino: *ino, offset, bytes: bytes_now };
                    if is_cut {
                        last_block = Some(now);
                    } else {
                        one.bodies.push(now);
                    }
                }
                _ => {}
            }
            one.changes.push(change);
        }
        all.push(one);
        Ok(all)
    }

    /// Notes that nothing is missing from the log, as of this boot.
    pub(crate) fn note_whole(&self) {
        let Some(_used) = self.in_use() else { return };
        let note = self.lock().log.note_whole();
        let noted =
            note.map_err(|e| e.to_string()).and_then(|note| note.perform().map_err(|e| e.to_string()));
        if let Err(why) = noted {
            self.halt(&why);
        }
    }

    /// The last record of the log and the one before the first that can be sent.
    pub(crate) fn log_ends(&self) -> (Position, u64) {
        let core = self.lock();
        (core.log.last(), core.log.first_seq())
    }
}
