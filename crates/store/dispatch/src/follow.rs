//! A copy that follows: takes the records of its primary into its log, rows and bodies. Never decides how far it may go.
//!
//! Bytes that a record names are in place before the record is appended, as at the primary: so no log has a record whose
//! bytes are missing, unless the power has failed. All other changes of bodies wait until their record is synced here.
//! Until then a power cut may take the record, and no recovery would look at the body. For the same reason named bytes wait
//! until the records are synced here by which a recovery looks at what they change. At a counted copy they are, because the
//! primary has waited for that. For a copy that comes back it has not. Nobody reads a body of a follower.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use atoll_body::{BodyError, Born};
use atoll_core::Ino;
use atoll_core::map::{IdMap, IdSet};
use atoll_core::planted::{Bug, planted};
use atoll_disk::Disk;
use atoll_island::Effect;
use atoll_log::{LogError, Position};
use atoll_posix::Kind;
use atoll_proto::{BodyBlocks, BodyChange, Inode, Record, RowChange};
use atoll_state::State;
use atoll_view::Source;
use bytes::Bytes;

use crate::engine::{Engine, Halted};
use crate::fetch::Asked;
use crate::lay::CommittedState;
use crate::open::{Touched, body_named_by};
use crate::perform::born_of;
use crate::role::Role;
use crate::ship::{Extent, Shipment, Shipped};
use crate::space::Lack;
use crate::walk::Walk;

/// Bytes of changes that may wait for a sync; with more, the copy syncs by itself.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// Why records of a primary were not taken.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// They do not follow the last record here.
    #[error("the records do not follow {last:?}")]
    Mismatch {
        /// The last record here.
        last: Position,
    },
    /// This copy leads by itself.
    #[error("this copy leads")]
    Leads,
    /// The disk has no space for this record, or for bytes that it names: it, and all behind it, can be sent again.
    #[error("no space for record {seq}")]
    NoSpace {
        /// The record.
        seq: u64,
    },
    /// Blocks of bodies differed from their checksums when the copy was opened, and it has taken records since. It leads when
    /// it has got their bytes, or is opened again.
    #[error("{0} blocks of bodies differ")]
    Differs(u32),
    /// Its rows are another copy's, and bytes are missing.
    #[error("it is being filled")]
    Filling,
    /// This copy has stopped.
    #[error(transparent)]
    Halted(#[from] Halted),
}

/// A change of a body that waits for the sync of its record.
pub(crate) struct Waiting {
    seq: u64,
    change: BodyChange,
    /// Length of the file before its record.
    size: u64,
    /// And behind it.
    size_after: u64,
    born: Option<Born>,
}

/// By which records a recovery looks at a body.
#[derive(Debug, Clone, Copy, Default)]
struct Named {
    /// The first one since this copy's last checkpoint: a recovery takes off what is behind the end of the file.
    first: Option<u64>,
    /// One that has announced an overwrite: a recovery compares the whole body.
    dirty: Option<u64>,
    /// The file was made since then. All its bytes came with records since, and as many of these as are left explain the body.
    is_new: bool,
}

/// What a follower has not done yet, and what its next checkpoint must sync.
#[derive(Default)]
pub(crate) struct Following {
    /// Records that are in the log, and whose rows are not changed yet.
    unapplied: Vec<(u64, Record)>,
    /// In the order of the records.
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Bodies that records have named since this copy's last checkpoint.
    named: IdMap<Ino, Named>,
    /// Bodies that were changed as records say, and that no sync has covered: a recovery does not redo what lies below bytes
    /// that a record names.
    carried: IdSet<Ino>,
    /// Bodies that the checkpoint under way is going to sync.
    syncing: IdSet<Ino>,
    /// A checkpoint of this copy is under way.
    makes_checkpoint: bool,
    /// It let a marker pass: the primary does not know any more what this copy has not synced.
    is_behind_marker: bool,
    /// It has taken records or bytes since it was opened.
    pub(crate) has_followed: bool,
    /// Blocks that differ from their checksums.
    pub(crate) missing: VecDeque<BodyBlocks>,
    /// The first of them, for which the primary was asked.
    pub(crate) asked: Option<Asked>,
    /// Bodies are compared with rows that are another copy's.
    pub(crate) walk: Option<Walk>,
    /// Records up to this one are synced at every member.
    synced: u64,
}

impl Following {
    /// A copy whose log was applied up to `last`: no sync has covered these bodies, and these blocks differ.
    pub(crate) fn opened(
        touched: &[Touched],
        last: u64,
        missing: Vec<BodyBlocks>,
        walk: Option<Walk>,
    ) -> Self {
        let named = |body: &Touched| {
            // What announces an overwrite may be yet to come: then a recovery compares the whole body by that record only.
            let dirty = body.is_announced.then_some(last);
            (body.ino, Named { first: Some(last), dirty, is_new: body.is_new })
        };
        let is_behind_marker = !touched.is_empty();
        Self {
            carried: touched.iter().map(|body| body.ino).collect(),
            named: touched.iter().map(named).collect(),
            is_behind_marker,
            missing: missing.into(),
            walk,
            ..Self::default()
        }
    }

    /// The length of a body without the changes that wait; none if none waits.
    pub(crate) fn size_before_waiting(&self, ino: Ino) -> Option<u64> {
        self.waiting.iter().find(|waiting| waiting.is_of(ino)).map(|waiting| waiting.size)
    }

    /// A body was changed, and no sync has covered that.
    pub(crate) fn note_unsynced(&mut self, ino: Ino) {
        self.has_followed = true;
        self.named.entry(ino).or_default();
        self.carried.insert(ino);
    }

    /// Bodies that records have named since this copy's snapshot.
    fn all_named(&self) -> Vec<Ino> {
        let mut all: Vec<Ino> = self.named.keys().chain(&self.syncing).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn note_named(&mut self, ino: Ino, seq: u64) -> &mut Named {
        let named = self.named.entry(ino).or_default();
        named.first.get_or_insert(seq);
        named
    }

    /// Records up to this one must be synced here before bytes of a body are put in place: so a recovery looks at them whatever
    /// of the log a power cut takes. `last` is the last record that is here.
    fn synced_before_bytes(&self, ino: Ino, overwrites: bool, last: u64) -> u64 {
        let named = self.named.get(&ino);
        if named.is_some_and(|named| named.is_new) {
            return 0;
        }
        let looked_at = named.and_then(|named| if overwrites { named.dirty } else { named.first });
        let waiting =
            self.waiting.iter().rfind(|waiting| waiting.is_of(ino)).map_or(0, |waiting| waiting.seq);
        looked_at.unwrap_or(last).max(waiting)
    }
}

impl Waiting {
    pub(crate) fn is_of(&self, ino: Ino) -> bool {
        self.change.ino() == ino
    }
}

/// The row of what is no regular file.
fn is_without_bytes(change: &RowChange) -> bool {
    matches!(change, RowChange::Inode { row: Some(row), .. } if row.attr.kind != Kind::Regular)
}

const fn bytes_of(change: &BodyChange) -> usize {
    match change {
        BodyChange::Bytes { bytes, .. } => bytes.len(),
        _ => 0,
    }
}

impl<D: Disk> Engine<D> {
    /// Takes records of the primary into the log, with the bytes that they name. [`Engine::apply`] changes the rows; in between
    /// the primary can be told that they are here.
    pub fn take(&self, shipment: Shipment) -> Result<(), NotTaken> {
        let mut following = self.following.lock().expect("no panic while it is held");
        let last = self.lock_following()?.log.last();
        if last != shipment.after {
            return Err(NotTaken::Mismatch { last });
        }
        following.has_followed = true;
        let mut before = shipment.after;
        let mut no_space = None;
        for shipped in shipment.records {
            let Shipped { position, payload, placed } = shipped;
            let record = Record::decode_whole(&payload).map_err(|e| self.stop_following(&e.to_string()))?;
            if let Some((at, bytes)) = placed {
                // The record that announces the bytes must be in the log before they are in the body.
                if !self.write_upto(before.seq)? {
                    no_space = Some(position.seq);
                    break;
                }
                self.apply_all(&mut following)?;
                self.sync_before_bytes(&following, &record, before.seq)?;
                match self.place(&mut following, &record, at, &bytes) {
                    Err(error) if error.is_no_space() => {
                        no_space = Some(position.seq);
                        break;
                    }
                    placed => placed.map_err(|e| self.stop_following(&e.to_string()))?,
                }
            }
            if !self.append_followed(position, before, &payload)? {
                no_space = Some(position.seq);
                break;
            }
            if !record.bodies.is_empty() {
                self.lock().last_body = position.seq;
            }
            before = position;
            following.unapplied.push((position.seq, record));
        }
        if !self.write_upto(before.seq)? {
            no_space.get_or_insert(before.seq);
        }
        no_space.map_or(Ok(()), |seq| Err(NotTaken::NoSpace { seq }))
    }

    /// Changes the rows as the records say that were taken, and the bodies as far as the records are synced here.
    pub fn apply(&self) -> Result<(), NotTaken> {
        let mut following = self.following.lock().expect("no panic while it is held");
        self.apply_all(&mut following)?;
        Ok(self.catch_up(&mut following).map_err(|why| self.stop_following(&why))?)
    }

    /// Writes the log up to this record, by this thread or another. False if it finds no space.
    fn write_upto(&self, seq: u64) -> Result<bool, Halted> {
        loop {
            self.flush().map_err(|why| self.stop_following(&why))?;
            let core = self.lock();
            if core.log.written_upto() >= seq {
                return Ok(true);
            }
            if core.log.is_stuck() {
                return Ok(false);
            }
            drop(core);
            std::thread::yield_now();
        }
    }

    /// The last record here, written or not.
    pub fn last(&self) -> Position {
        self.lock().log.last()
    }

    /// Records up to `seq` are synced at every member.
    pub fn know_synced(&self, seq: u64) {
        let mut following = self.following.lock().expect("no panic while it is held");
        following.synced = following.synced.max(seq);
    }

    /// Bodies that records have named since this copy's snapshot.
    pub(crate) fn all_named(&self) -> Vec<Ino> {
        let following = self.following.lock().expect("no panic while it is held");
        following.all_named()
    }

    /// Does what a follower has not done yet, before it leads: whoever reads a body finds all that its records say. Whether
    /// records were taken since the copy was opened.
    pub(crate) fn prepare_to_lead(&self) -> Result<bool, NotTaken> {
        let mut following = self.following.lock().expect("no panic while it is held");
        if following.walk.is_some() {
            return Err(NotTaken::Filling);
        }
        following.forget_question();
        self.apply_all(&mut following)?;
        let last = self.lock_following()?.log.last().seq;
        self.sync_upto(last).map_err(|why| self.stop_following(&why))?;
        self.catch_up(&mut following).map_err(|why| self.stop_following(&why))?;
        if let Some(waiting) = following.waiting.front() {
            return Err(NotTaken::NoSpace { seq: waiting.seq });
        }
        let mut core = self.lock_following()?;
        let Role::Following(follower) = &mut core.role else { return Err(NotTaken::Leads) };
        let differs = following.differs();
        if following.has_followed {
            if differs > 0 {
                return Err(NotTaken::Differs(differs));
            }
            // All that differed has come.
            follower.corrections.clear();
        }
        follower.touched = following.all_named();
        follower.makes_checkpoint = following.makes_checkpoint;
        let has_followed = following.has_followed;
        *following = Following { synced: following.synced.min(last), ..Following::default() };
        self.differs.store(0, Ordering::Release);
        Ok(has_followed)
    }

    /// The lock of a copy that follows and has not stopped.
    fn lock_following(&self) -> Result<std::sync::MutexGuard<'_, crate::engine::Core<D>>, NotTaken> {
        if self.is_halted() {
            return Err(self.stop_following("it has stopped").into());
        }
        let core = self.lock();
        if matches!(core.role, Role::Leading(_)) { Err(NotTaken::Leads) } else { Ok(core) }
    }

    fn stop_following(&self, why: &str) -> Halted {
        self.halt(why);
        Halted { island: self.id(), why: why.to_owned() }
    }

    /// False if the log finds no space.
    fn append_followed(
        &self,
        position: Position,
        before: Position,
        payload: &[u8],
    ) -> Result<bool, NotTaken> {
        loop {
            let appended = self.lock().log.append_at(position, before, &[payload]);
            match appended {
                Ok(()) => return Ok(true),
                Err(LogError::Full) if !self.write_upto(before.seq)? => return Ok(false),
                Err(LogError::Full) => {}
                Err(LogError::Mismatch { last }) => return Err(NotTaken::Mismatch { last }),
                Err(error) => return Err(self.stop_following(&error.to_string()).into()),
            }
        }
    }

    /// Syncs the log as far as it must be before bytes are put in place that a record is going to name.
    fn sync_before_bytes(&self, following: &Following, record: &Record, last: u64) -> Result<(), Halted> {
        let Some(Extent { ino, offset, .. }) = Extent::of(record) else { return Ok(()) };
        let overwrites = self.row_of(ino).is_some_and(|row| offset < row.attr.size);
        let seq = following.synced_before_bytes(ino, overwrites, last);
        if self.lock().log.synced_upto() >= seq {
            return Ok(());
        }
        self.sync_upto(seq).map_err(|why| self.stop_following(&why))
    }

    /// Puts bytes in place that a record is going to name.
    fn place(
        &self,
        following: &mut Following,
        record: &Record,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), BodyError> {
        let Some(Extent { ino, promised, .. }) = Extent::of(record) else { return Ok(()) };
        if following.is_asked(ino) {
            // An answer that is under way may be older.
            following.forget_question();
        }
        // At the primary they were in place before these bytes: whatever they had to wait for has come.
        self.do_waiting(following, |waiting| waiting.change.ino() == ino)?;
        let is_unsynced = following.carried.contains(&ino) || following.syncing.contains(&ino);
        if is_unsynced && (promised || following.is_behind_marker) {
            self.bodies.sync(ino)?;
            following.carried.remove(&ino);
        }
        let row = self.row_of(ino);
        let (size, born) = row.map_or((0, None), |row| (row.attr.size, Some(born_of(&row.attr))));
        if size == 0 && planted(Bug::UnknownIsSkipped) {
            return Ok(());
        }
        if planted(Bug::HasBeforePlaced) {
            let seq = self.lock().log.last().seq + 1;
            let change = BodyChange::Bytes { ino, offset, bytes: Bytes::copy_from_slice(bytes) };
            following.waiting_bytes += bytes.len();
            following.waiting.push_back(Waiting { seq, change, size, size_after: size, born });
            return Ok(());
        }
        if offset < size {
            // What a full disk has no room for must not be found out when half of it is there.
            self.bodies.allocate(ino, offset, bytes.len() as u64, true, size, born)?;
        }
        // The plain tree must not take it for a change by hand.
        self.with_state(|state| state.view_disturbed(ino));
        self.bodies.write(ino, offset, bytes, size, born)
    }

    /// The row of a file, if it is one and can be read.
    pub(crate) fn row_of(&self, ino: Ino) -> Option<Inode> {
        CommittedState::new(self).inode(ino).ok().flatten()
    }

    pub(crate) fn apply_all(&self, following: &mut Following) -> Result<(), NotTaken> {
        for (seq, record) in std::mem::take(&mut following.unapplied) {
            self.apply_one(following, seq, record).map_err(|why| self.stop_following(&why))?;
        }
        Ok(())
    }

    fn apply_one(&self, following: &mut Following, seq: u64, record: Record) -> Result<(), String> {
        let mut marker = false;
        let sizes: Vec<u64> =
            record.bodies.iter().map(|c| self.row_of(c.ino()).map_or(0, |row| row.attr.size)).collect();
        for change in &record.changes {
            self.load_needed(change)?;
            marker |= matches!(change, RowChange::Checkpoint { .. });
            // The plain tree may have made a FIFO or a device under the id of what has no bytes.
            if let Some(ino) = body_named_by(change).filter(|_| !is_without_bytes(change)) {
                let is_new = matches!(change, RowChange::Inode { .. }) && self.row_of(ino).is_none();
                let named = following.note_named(ino, seq);
                named.is_new |= is_new && named.first == Some(seq);
                if matches!(change, RowChange::Dirty { .. }) {
                    named.dirty.get_or_insert(seq);
                }
            }
            self.with_state(|state| state.apply(seq, change));
        }
        for (change, size) in record.bodies.into_iter().zip(sizes) {
            let ino = change.ino();
            if matches!(change, BodyChange::Drop { .. }) {
                // What goes needs no sync, and may be a symbolic link in the plain tree.
                following.named.remove(&ino);
            } else {
                following.note_named(ino, seq);
            }
            if !matches!(change, BodyChange::Extent { .. }) {
                let row = self.row_of(ino);
                let born = row.as_ref().map(|row| born_of(&row.attr));
                let size_after = row.map_or(0, |row| row.attr.size);
                following.waiting_bytes += bytes_of(&change);
                following.waiting.push_back(Waiting { seq, change, size, size_after, born });
            }
        }
        // Which blocks are missing only the records behind the snapshot tell, if this process dies: these stay until all have come.
        // What is filled has its mark for that.
        let would_forget = !following.missing.is_empty() && following.walk.is_none();
        if marker && would_forget {
            following.is_behind_marker = true;
        } else if marker || planted(Bug::OwnCheckpoints) {
            self.take_marker(following);
        }
        Ok(())
    }

    /// A checkpoint of this copy begins here, unless the last one is not done.
    fn take_marker(&self, following: &mut Following) {
        if following.makes_checkpoint {
            following.is_behind_marker = true;
            return;
        }
        let frozen = self.with_state(State::freeze);
        let mut bodies: Vec<Ino> = following.named.drain().map(|(ino, _)| ino).collect();
        bodies.sort_unstable();
        following.syncing = bodies.iter().copied().collect();
        following.carried.clear();
        following.makes_checkpoint = true;
        following.is_behind_marker = false;
        let checkpoint = Effect::Checkpoint { frozen, bodies };
        self.background.lock().expect("no panic while it is held").push_back(checkpoint);
    }

    /// The same, whatever records say.
    pub(crate) fn begin_checkpoint(&self) {
        let mut following = self.following.lock().expect("no panic while it is held");
        self.take_marker(&mut following);
    }

    /// A checkpoint may be written: what it stands for is synced at every member, so that no later primary cuts it off.
    pub(crate) fn may_write_checkpoint(&self, seq: u64) -> bool {
        let following = self.following.lock().expect("no panic while it is held");
        following.synced >= seq
            || planted(Bug::SnapshotAhead)
            || self.lock().role.island().is_some_and(|island| island.is_synced(seq))
    }

    /// No later primary cuts records up to `seq` off: they are synced at every member. If they are not, a primary begins to have
    /// them synced. The only copy of an island has nobody who could.
    pub(crate) fn stays(&self, seq: u64) -> bool {
        if !self.is_grouped() || self.may_write_checkpoint(seq) {
            return true;
        }
        if self.leads() {
            // Nobody else may ask for it.
            self.sync_log_at_all();
        }
        false
    }

    /// A checkpoint of a follower is in its snapshot.
    pub(crate) fn followed_checkpoint_done(&self) {
        let mut following = self.following.lock().expect("no panic while it is held");
        let mut core = self.lock();
        if let Role::Following(follower) = &mut core.role {
            follower.state.thaw();
            follower.state.sweep(follower.config.rows_max);
        }
        drop(core);
        following.makes_checkpoint = false;
        following.syncing.clear();
    }

    /// Does the changes of bodies whose records are synced here.
    pub(crate) fn settle_followed(&self) -> Result<(), BodyError> {
        let mut following = self.following.lock().expect("no panic while it is held");
        following.forget_question();
        self.do_synced(&mut following)
    }

    /// Somebody is inside a body: it must not go.
    pub(crate) fn is_body_used(&self, ino: Ino) -> bool {
        self.lock().role.island().is_some_and(|island| island.is_body_used(ino))
    }

    /// The bytes of a file are being changed, or are to be, as a record says.
    pub(crate) fn is_body_changing(&self, ino: Ino) -> bool {
        let following = self.following.lock().expect("no panic while it is held");
        following.waiting.iter().any(|waiting| waiting.change.ino() == ino)
            || self.lock().role.island().is_some_and(|island| island.is_body_changing(ino))
    }

    fn catch_up(&self, following: &mut Following) -> Result<(), String> {
        if following.waiting_bytes > WAITING_BYTES_MAX {
            following.forget_question();
            let last = self.lock().log.last().seq;
            self.sync_upto(last)?;
        }
        let done = self.do_synced(following);
        let is_full = matches!(&done, Err(error) if error.is_no_space());
        self.note_space(Lack::Bodies, is_full);
        // What found no space waits on: the log has it.
        if is_full { Ok(()) } else { done.map_err(|e| e.to_string()) }
    }

    pub(crate) fn do_synced(&self, following: &mut Following) -> Result<(), BodyError> {
        let synced = self.lock().log.synced_upto();
        let goes_early = |change: &BodyChange| {
            matches!(change, BodyChange::Drop { .. }) && planted(Bug::DropsUnsyncedAtOthers)
        };
        self.do_waiting(following, |waiting| waiting.seq <= synced || goes_early(&waiting.change))
    }

    /// Does these of the changes that wait, in order. If one finds no space, it goes on waiting, and with it the later ones of
    /// its body; others may need none, or make room.
    pub(crate) fn do_waiting(
        &self,
        following: &mut Following,
        is_due: impl Fn(&Waiting) -> bool,
    ) -> Result<(), BodyError> {
        let mut done = Ok(());
        let mut full = IdSet::default();
        let mut rest = VecDeque::new();
        for waiting in std::mem::take(&mut following.waiting) {
            let ino = waiting.change.ino();
            let is_over = matches!(&done, Err(error) if !BodyError::is_no_space(error));
            if is_over || full.contains(&ino) || following.is_asked(ino) || !is_due(&waiting) {
                rest.push_back(waiting);
                continue;
            }
            match self.change(following, &waiting) {
                Ok(()) => following.waiting_bytes -= bytes_of(&waiting.change),
                Err(error) => {
                    full.insert(ino);
                    rest.push_back(waiting);
                    done = Err(error);
                }
            }
        }
        following.waiting = rest;
        done
    }

    fn change(&self, following: &mut Following, waiting: &Waiting) -> Result<(), BodyError> {
        let Waiting { change, size, size_after, born, .. } = waiting;
        let ino = change.ino();
        following.carried.insert(ino);
        match change {
            BodyChange::Bytes { offset, bytes, .. } => {
                self.bodies.write(ino, *offset, bytes, *size, *born)?
            }
            BodyChange::Cut { len, .. } => self.bodies.cut(ino, *len, *size, *born)?,
            BodyChange::Zero { offset, len, .. } => self.bodies.zero(ino, *offset, *len, *size)?,
            BodyChange::Drop { .. } => {
                self.bodies.drop_body(ino)?;
                following.carried.remove(&ino);
            }
            BodyChange::Allocate { offset, len, .. } => {
                // A promise of space that cannot be kept here is the primary's to keep.
                match self.bodies.allocate(ino, *offset, *len, true, *size, *born) {
                    Err(error) if !error.is_no_space() => return Err(error),
                    // The file may have grown by it, with a hole.
                    _ if size_after > size => self.bodies.cut(ino, *size_after, *size, *born)?,
                    _ => {}
                }
            }
            BodyChange::Extent { .. } => unreachable!("it is in place"),
        }
        self.with_state(|state| {
            // A correction changes bytes, and no time.
            state.view_disturbed(ino);
            state.view_again(&[ino], &[]);
        });
        Ok(())
    }
}
