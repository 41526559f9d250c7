//! How each effect is performed on this machine.

use atoll_body::{Bodies, BodyError, Born};
use atoll_core::planted::{Bug, planted};
use atoll_core::{Ino, Name};
use atoll_disk::Disk;
use atoll_group::GroupEvent;
use atoll_handover::slow;
use atoll_island::event::BodyAttr;
use atoll_island::{BesideEvent, BodyDone, BodyFault, BodyOp, BodyOpId, Effect, Event, LinkId};
use atoll_posix::{Attr, Errno, Whence};
use atoll_proto::{Outcome, Reply, RowChange};
use atoll_state::{CheckpointRows, LoadedRows, RowKey, RowLoad};
use bytes::Bytes;
use std::cell::RefCell;
use std::sync::atomic::Ordering;

use crate::engine::{DROPS_MAX, Engine};
use crate::space::Lack;

thread_local! {
    /// Bytes of the read under way: kept, so that a read allocates nothing.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

const fn born(attr: BodyAttr) -> Option<Born> {
    Some(Born { mode: attr.mode, uid: attr.uid, gid: attr.gid })
}

/// As what a file of these attributes is made.
pub(crate) const fn born_of(attr: &Attr) -> Born {
    Born { mode: attr.mode, uid: attr.uid, gid: attr.gid }
}

/// Files whose damage is reported, and other damage; then the log of the daemon has said enough.
const REPORTED_MAX: usize = 1000;

impl<D: Disk> Engine<D> {
    fn fault(&self, error: &BodyError) -> BodyFault {
        BodyFault(match error.errno() {
            Some(28) => Errno::ENOSPC,
            Some(27) => Errno::EFBIG,
            Some(122) => Errno::EDQUOT,
            Some(95) => Errno::EOPNOTSUPP,
            _ => {
                let mut known = self.damaged.lock().expect("no panic while it is held");
                if error.ino().is_some_and(|ino| known.len() < REPORTED_MAX && known.insert(ino)) {
                    self.net.damaged(self.id, &error.to_string());
                }
                Errno::EIO
            }
        })
    }

    /// Performs an effect; the event that ends it, if one does.
    pub(crate) fn perform(&self, effect: Effect) -> Option<Event> {
        let _used = self.in_use()?;
        match effect {
            Effect::Append(..) => unreachable!("taken out under the lock"),
            Effect::Sync => {
                self.disk_uses.fetch_add(1, Ordering::Relaxed);
                if self.is_grouped() {
                    self.sync_log_at_all();
                    return None;
                }
                self.sync().map(Event::Synced)
            }
            // It does not leave: the machine beside the island hears it.
            Effect::Reply { link: LinkId::BESIDE, id, reply, data } => {
                Some(Event::Beside(BesideEvent::did(id, reply.outcome, data)))
            }
            Effect::Reply { .. } | Effect::Notice(..) | Effect::Send(..) | Effect::Beside(..) => {
                self.leave(effect);
                None
            }
            Effect::Damaged(damage) => {
                let mut known = self.damage.lock().expect("no panic while it is held");
                if known.len() < REPORTED_MAX && known.insert(damage.clone()) {
                    self.net.damaged(self.id, &damage.to_string());
                }
                None
            }
            Effect::Load { load, generation } => match self.load(&load) {
                Ok(loaded) => Some(Event::Loaded { load, generation, loaded }),
                Err(why) => {
                    self.halt(&why);
                    None
                }
            },
            Effect::Body(ticket, BodyOp::Drop { ino }) => {
                let mut drops = self.drops.lock().expect("no panic while it is held");
                if drops.len() < DROPS_MAX {
                    drops.push_back((ticket, ino));
                    return None;
                }
                // More go than the background thread can remove: a checkpoint waits for them all.
                drop(drops);
                slow();
                self.drop_body(ticket, ino)
            }
            Effect::Body(ticket, op) => {
                if !matches!(op, BodyOp::Write { old: None, .. }) {
                    self.disk_uses.fetch_add(1, Ordering::Relaxed);
                }
                self.body(ticket, op)
            }
            Effect::Checkpoint { .. } => {
                self.background.lock().expect("no panic while it is held").push_back(effect);
                None
            }
        }
    }

    /// Rows of the snapshot.
    pub fn load(&self, load: &RowLoad) -> Result<LoadedRows, String> {
        load_from(&self.snapshot, load)
    }

    /// Loads the rows that must be in memory before this change is applied. Only where nobody else changes rows meanwhile.
    pub(crate) fn load_needed(&self, change: &RowChange) -> Result<(), String> {
        while let Some(missing) = self.with_state(|state| state.needs(change)) {
            let loaded = self.load(&missing)?;
            self.with_state(|state| state.load(missing, loaded)).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    pub(crate) fn perform_background(&self, effect: Effect) -> Option<Event> {
        let Effect::Checkpoint { frozen, bodies } = effect else {
            unreachable!("only checkpoints wait here")
        };
        if !self.may_write_checkpoint(frozen.seq) {
            self.stays(frozen.seq);
            let effect = Effect::Checkpoint { frozen, bodies };
            self.background.lock().expect("no panic while it is held").push_front(effect);
            return None;
        }
        let made = self.checkpoint(frozen, &bodies);
        if made.is_ok() {
            self.note_space(Lack::Checkpoint, matches!(made, Ok(Some(_))));
        }
        match made {
            Ok(None) => {
                self.followed_checkpoint_done();
                Some(Event::CheckpointDone)
            }
            Ok(Some(frozen)) => {
                let effect = Effect::Checkpoint { frozen, bodies };
                self.background.lock().expect("no panic while it is held").push_front(effect);
                None
            }
            Err(why) => {
                self.halt(&why);
                None
            }
        }
    }

    /// Gives the rows back if it has to wait: bytes that find no space are in the log, which it lets go of.
    fn checkpoint(&self, frozen: CheckpointRows, bodies: &[Ino]) -> Result<Option<CheckpointRows>, String> {
        // The snapshot is never ahead of the synced log, nor of the bodies that it speaks of.
        self.sync_upto(frozen.seq)?;
        let settled = self.behind.settle_older(&self.bodies, u64::MAX).and_then(|()| self.settle_followed());
        match settled {
            Err(error) if error.is_no_space() => return Ok(Some(frozen)),
            settled => settled.map_err(|e| e.to_string())?,
        }
        if !planted(Bug::CheckpointWithoutBodies) {
            self.bodies.sync_many(bodies).map_err(|e| e.to_string())?;
        }
        let rows = frozen.rows.iter().map(|(key, row)| (key, row.as_ref()));
        if !self.snapshot.commit_if_space(&*self.disk, rows).map_err(|e| e.to_string())? {
            return Ok(Some(frozen));
        }
        let held = self.held_from();
        let removal = {
            let mut core = self.lock();
            core.log.hold(held);
            core.log.keep(self.grouped.get().map_or(u64::MAX, |grouped| grouped.place.keep()));
            core.log.release(frozen.seq)
        };
        if let Some(removal) = removal {
            let removed = removal.perform();
            // What could not be removed goes when the log is opened.
            let _ = self.lock().log.removed(removed);
        }
        let (checkpoint, (_, first)) = (frozen.seq, self.log_ends());
        self.tell_group(GroupEvent::Kept { checkpoint, first });
        Ok(None)
    }

    fn body(&self, ticket: BodyOpId, op: BodyOp) -> Option<Event> {
        let result = match op {
            BodyOp::Read { link, id, reply, ino, offset, len, size, sums } => {
                if let Some(bytes) = self.behind.read(ino, offset, len) {
                    self.answer(link, id, reply, &bytes);
                    return Some(Event::BodyDone(ticket, Ok(BodyDone::Done)));
                }
                // The bytes may have to come from the disk.
                slow();
                // A reply may bring the next request in on this thread: the buffer is taken out.
                let mut buffer = BUFFER.take();
                let read = self
                    .settled(ino)
                    .and_then(|bodies| bodies.read(ino, offset, u64::from(len), size, &sums, &mut buffer));
                match read {
                    Ok(range) => self.answer(link, id, reply, &buffer[range]),
                    Err(error) => {
                        let BodyFault(errno) = self.fault(&error);
                        let reply = Reply { outcome: Outcome::Failed { errno }, ..reply };
                        self.answer(link, id, reply, &[]);
                    }
                }
                BUFFER.set(buffer);
                Ok(BodyDone::Done)
            }
            BodyOp::Write { ino, offset, data, size, attr, old: None, .. } => {
                let now = self.clock.now().ms;
                let done = self.behind.put(&self.bodies, now, (ino, offset, data, size, born(attr)));
                return self.decided(ticket, done);
            }
            op @ (BodyOp::Cut { ino, .. } | BodyOp::Zero { ino, .. }) => {
                let mut waiting = self.waiting_bodies.lock().expect("no panic while it is held");
                if waiting.iter().any(|(_, before)| changed(before) == ino) {
                    waiting.push_back((ticket, op));
                    return None;
                }
                drop(waiting);
                return self.change_body(ticket, op).unwrap_or_else(|why| {
                    self.halt(&why);
                    None
                });
            }
            BodyOp::Sync { .. } => unreachable!("bodies are synced together"),
            other => self.ask(other),
        };
        if let Err(error) = &result
            && self.another_can_do_it(error)
        {
            self.halt(&error.to_string());
            return None;
        }
        Some(Event::BodyDone(ticket, result.map_err(|e| self.fault(&e))))
    }

    /// Whether a disk has failed where that of another copy has not: that one leads when this one has stopped, and whoever asks
    /// is told nothing of it.
    fn another_can_do_it(&self, error: &BodyError) -> bool {
        const OF_THE_DISK: [Errno; 2] = [Errno::EIO, Errno::EROFS];
        let is_of_disk = |errno| OF_THE_DISK.contains(&Errno(errno));
        error.errno().is_some_and(is_of_disk) && self.has_others_in_sync()
    }

    /// Cuts or zeros a body as a record says. It waits for space if what must be in place first finds none, or if
    /// something before it waits.
    pub(crate) fn change_body(&self, ticket: BodyOpId, op: BodyOp) -> Result<Option<Event>, String> {
        let done = match op {
            BodyOp::Cut { ino, len, size, attr } => {
                // What goes needs no space.
                self.behind.cut(ino, len);
                self.settled(ino).and_then(|bodies| bodies.cut(ino, len, size, born(attr)))
            }
            BodyOp::Zero { ino, offset, len, size } => {
                slow();
                self.settled(ino).and_then(|bodies| bodies.zero(ino, offset, len, size))
            }
            _ => unreachable!("only these change a body as a record says"),
        };
        match done {
            Ok(()) => Ok(Some(Event::BodyDone(ticket, Ok(BodyDone::Done)))),
            Err(error) if error.is_no_space() => {
                self.waiting_bodies.lock().expect("no panic while it is held").push_front((ticket, op));
                self.note_space(Lack::Bodies, true);
                Ok(None)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    pub(crate) fn drop_body(&self, ticket: BodyOpId, ino: Ino) -> Option<Event> {
        self.behind.discard(ino);
        self.decided(ticket, self.bodies.drop_body(ino))
    }

    /// The bodies, with everything that waits for this one in place.
    fn settled(&self, ino: Ino) -> Result<&Bodies<D>, BodyError> {
        self.behind.settle(&self.bodies, ino)?;
        Ok(&self.bodies)
    }

    /// Work that a record has decided cannot fail: its bytes are acknowledged.
    fn decided(&self, ticket: BodyOpId, done: Result<(), BodyError>) -> Option<Event> {
        match done {
            Ok(()) => Some(Event::BodyDone(ticket, Ok(BodyDone::Done))),
            Err(error) => {
                self.halt(&error.to_string());
                None
            }
        }
    }

    /// Syncs bodies together, each with everything that waits for it in place. The events that end it; those of syncs that other copies
    /// make too come later.
    pub(crate) fn sync_bodies(&self, syncs: &[(BodyOpId, Ino)]) -> Vec<Event> {
        let Some(_used) = self.in_use() else { return Vec::new() };
        self.disk_uses.fetch_add(1, Ordering::Relaxed);
        slow();
        let (mut done, mut tickets, mut inos) = (Vec::new(), Vec::new(), Vec::new());
        for (ticket, ino) in syncs {
            match self.settled_to_sync(*ino) {
                Ok(_) => {
                    tickets.push(*ticket);
                    inos.push(*ino);
                }
                Err(error) => done.push(Event::BodyDone(*ticket, Err(self.fault(&error)))),
            }
        }
        if tickets.is_empty() {
            return done;
        }
        if self.is_grouped() {
            self.sync_bodies_at_all(tickets, inos);
            return done;
        }
        let synced = self.unless_unsynced(self.bodies.sync_many(&inos)).map_err(|error| self.fault(&error));
        done.extend(
            tickets.into_iter().map(|ticket| Event::BodyDone(ticket, synced.map(|()| BodyDone::Done))),
        );
        done
    }

    fn sync_body(&self, ino: Ino) -> Result<(), BodyError> {
        let bodies = self.settled_to_sync(ino)?;
        self.unless_unsynced(bodies.sync(ino))
    }

    /// The bodies, with everything that waits for this one in place. For want of space it may not be: the log has it, whoever asked is
    /// told, and nothing is lost.
    fn settled_to_sync(&self, ino: Ino) -> Result<&Bodies<D>, BodyError> {
        let halts = |error: &BodyError| {
            if !error.is_no_space() {
                self.halt(&error.to_string())
            }
        };
        self.settled(ino).inspect_err(halts)
    }

    /// After a failed sync nothing more is promised.
    fn unless_unsynced(&self, done: Result<(), BodyError>) -> Result<(), BodyError> {
        done.inspect_err(|error| self.halt(&error.to_string()))
    }

    /// A file that is neither old nor new must not be served: only a recovery can take it as it is.
    fn unless_torn(&self, done: Result<(), BodyError>) -> Result<(), BodyError> {
        done.inspect_err(|error| {
            if matches!(error, BodyError::Torn { .. }) {
                self.halt(&error.to_string());
            }
        })
    }

    /// Work on whose result the decision depends.
    fn ask(&self, op: BodyOp) -> Result<BodyDone, BodyError> {
        match op {
            BodyOp::SumsAfter { ino, offset, data, size, old } => {
                self.settled(ino)?.sums_after(ino, offset, &data, size, &old).map(BodyDone::Sums)
            }
            BodyOp::Write { ino, offset, data, size, attr, old: Some(old), sync_first } => {
                slow();
                let bodies = self.settled(ino)?;
                if sync_first {
                    self.sync_body(ino)?;
                }
                let sums = bodies.sums_after(ino, offset, &data, size, &old)?;
                let done = bodies.write_in_place(ino, offset, &data, size, &old, born(attr));
                self.unless_torn(done)?;
                Ok(BodyDone::Sums(sums))
            }
            BodyOp::SumAfterCut { ino, len, size, old } => {
                let edge = self.settled(ino)?.sum_after_cut(ino, len, size, old)?;
                Ok(BodyDone::Edges(edge.into_iter().collect()))
            }
            BodyOp::SumsAfterZero { ino, offset, len, size, old } => {
                self.settled(ino)?.sums_after_zero(ino, offset, len, size, &old).map(BodyDone::Edges)
            }
            BodyOp::Allocate { ino, offset, len, keep_size, size, attr } => {
                slow();
                self.settled(ino)?.allocate(ino, offset, len, keep_size, size, born(attr))?;
                Ok(BodyDone::Done)
            }
            BodyOp::Copy { from, to, len, attr, sync_first } => {
                slow();
                self.settled(from.0)?;
                let bodies = self.settled(to.0)?;
                if sync_first {
                    self.sync_body(to.0)?;
                }
                let mut buffer = BUFFER.take();
                let source = (from.0, from.1, from.2, from.3.as_slice());
                let target = (to.0, to.1, to.2, &to.3);
                let done =
                    bodies.sums_after_copy(source, target, len, &mut buffer).and_then(|(sums, range)| {
                        let bytes = &buffer[range];
                        let done = bodies.write_in_place(to.0, to.1, bytes, to.2, &to.3, born(attr));
                        self.unless_torn(done)?;
                        let bytes = if self.ships() { Bytes::copy_from_slice(bytes) } else { Bytes::new() };
                        Ok(BodyDone::Copied(sums, bytes))
                    });
                BUFFER.set(buffer);
                done
            }
            BodyOp::Seek { ino, offset, whence, size } => {
                self.settled(ino)?.seek(ino, offset, whence == Whence::Hole, size).map(BodyDone::Offset)
            }
            BodyOp::Fetch { ino, offset, len, size, sums } => {
                slow();
                let mut buffer = BUFFER.take();
                let bodies = self.settled(ino)?;
                let read = bodies.read(ino, offset, u64::from(len), size, &sums, &mut buffer);
                let bytes = read.map(|range| Bytes::copy_from_slice(&buffer[range]));
                BUFFER.set(buffer);
                bytes.map(BodyDone::Bytes)
            }
            BodyOp::Sync { .. }
            | BodyOp::Read { .. }
            | BodyOp::Write { old: None, .. }
            | BodyOp::Cut { .. }
            | BodyOp::Zero { .. }
            | BodyOp::Drop { .. } => unreachable!("performed by the caller"),
        }
    }
}

/// Whose body a change is of that waits for space.
fn changed(op: &BodyOp) -> Ino {
    match op {
        BodyOp::Cut { ino, .. } | BodyOp::Zero { ino, .. } => *ino,
        _ => unreachable!("only these wait"),
    }
}

/// A row of the snapshot.
pub(crate) fn load_from(snapshot: &atoll_snapshot::Snapshot, load: &RowLoad) -> Result<LoadedRows, String> {
    let failed = |e: atoll_snapshot::SnapshotError| e.to_string();
    match load {
        RowLoad::Row(key) => Ok(LoadedRows::Row(snapshot.get(&key.to_bytes()).map_err(failed)?)),
        RowLoad::Names { dir, from } => {
            let limit = atoll_state::state::NAMES_PER_PAGE;
            let end = RowKey::entries_from(Ino(dir.0 + 1), 0);
            let rows = snapshot.range(&RowKey::entries_from(*dir, *from), &end, limit).map_err(failed)?;
            let full = rows.len() == limit;
            let mut names: Vec<(u64, Name, Vec<u8>)> = rows
                .into_iter()
                .filter_map(|(key, row)| match RowKey::from_bytes(&key)? {
                    RowKey::Entry(_, cookie, name) => Some((cookie, name, row)),
                    _ => None,
                })
                .collect();
            let to = match names.last() {
                // Names that share the last cookie may go on behind this page: leave it out.
                Some((last, ..)) if full => {
                    let last = *last;
                    names.retain(|(cookie, ..)| *cookie < last);
                    last
                }
                _ => u64::MAX,
            };
            Ok(LoadedRows::Names { names, to })
        }
        RowLoad::Dirs { from } => {
            let limit = atoll_state::state::NAMES_PER_PAGE;
            let (first, end) = (RowKey::Dir(*from), RowKey::Dir(Ino(u64::MAX)));
            let rows = snapshot.range(&first.to_bytes(), &end.to_bytes(), limit).map_err(failed)?;
            let more = rows.len() == limit;
            let dirs = rows.into_iter().filter_map(|(key, row)| match RowKey::from_bytes(&key)? {
                RowKey::Dir(ino) => Some((ino, row)),
                _ => None,
            });
            Ok(LoadedRows::Dirs { dirs: dirs.collect(), more })
        }
        RowLoad::Sides { table, from } => {
            let limit = atoll_state::state::NAMES_PER_PAGE;
            // The highest id is given to no row.
            let (first, end) = (RowKey::Side(*table, *from), RowKey::Side(*table, u128::MAX));
            let rows = snapshot.range(&first.to_bytes(), &end.to_bytes(), limit).map_err(failed)?;
            let is_full = rows.len() == limit;
            let rows: Vec<(u128, Vec<u8>)> = rows
                .into_iter()
                .filter_map(|(key, row)| match RowKey::from_bytes(&key)? {
                    RowKey::Side(_, id) => Some((id, row)),
                    _ => None,
                })
                .collect();
            let to = rows.last().map_or(u128::MAX, |(last, _)| if is_full { *last } else { u128::MAX });
            Ok(LoadedRows::Sides { rows, to })
        }
    }
}

#[cfg(test)]
mod tests {
    use atoll_disk::sim::SimDisk;
    use atoll_snapshot::Snapshot;

    use super::*;

    #[test]
    fn pages_of_a_table_beside_the_island_follow_each_other_and_have_nothing_of_other_tables() {
        let snapshot = Snapshot::open(&SimDisk::new(1), b"state.redb", 1 << 20).unwrap();
        let count = atoll_state::state::NAMES_PER_PAGE as u128 + 5;
        let keys = (0..count)
            .map(|id| RowKey::Side(b'n', id << 64))
            .chain([RowKey::Side(b'm', 1), RowKey::Side(b'o', 1)]);
        let keys: Vec<Vec<u8>> = keys.map(|key| key.to_bytes()).collect();
        snapshot.commit(keys.iter().map(|key| (key, Some(key)))).unwrap();
        let (mut from, mut found) = (0, Vec::new());
        loop {
            let load = RowLoad::Sides { table: b'n', from };
            let Ok(LoadedRows::Sides { rows, to }) = load_from(&snapshot, &load) else { panic!("{load:?}") };
            found.extend(rows);
            if to == u128::MAX {
                break;
            }
            from = to + 1;
        }
        assert_eq!(found.len() as u128, count);
        assert!(found.iter().enumerate().all(|(n, (id, row))| (*id, row) == ((n as u128) << 64, &keys[n])));
    }
}
