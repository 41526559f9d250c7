//! A copy that takes its rows from another one: pages of rows at the primary, the rows that have come, and the switch to them.
//!
//! Invariant: the mark `fill` is there from the switch on until all bodies are whole and synced (`walk.rs`). So whatever ends a
//! process, the next opening knows that something is missing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use atoll_core::planted::{Bug, planted};
use atoll_core::{Decode, Encode, Ino, IslandId, NodeId, Position, wire_enum};
use atoll_disk::Disk;
use atoll_log::{Identity, Log};
use atoll_snapshot::{Pin, Snapshot};
use atoll_state::RowKey;
use atoll_state::state::Meta;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::cut;
use crate::engine::Engine;
use crate::noted;
use crate::open::{OpenError, Setup};
use crate::walk::FillSize;

/// Bytes of rows in one answer, or one row.
const PAGE_BYTES: usize = 256 << 10;
/// A snapshot of which nobody wants rows for so long is read no more.
const PIN_MS: u64 = 30_000;
/// The log is held for others while this part of the disk is free.
const HELD_WHILE_FREE: u64 = 10;
/// Bytes of the database of the rows that come, in memory.
const CACHE_BYTES: usize = 4 << 20;

/// The rows that have come.
const ROWS: &[u8] = b"state.redb.fill";
const STATE: &[u8] = b"state.redb";
const LOG: &[u8] = b"log";
const MARK: &[u8] = b"fill";

wire_enum! {
    /// The content of the mark.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Mark {
        /// The rows that have come take the place of the own ones, and a log that begins behind them that of the own one.
        1 => Rows { /// They are as of this record.
            at: Position },
        /// Bodies with lower ids are whole, and synced.
        2 => Bytes { /// The first id that may not be.
            from: Ino, /// The boot in which others were written last.
            boot: u128 },
    }
}

/// What an opening learns of a copy that is being filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unfilled {
    /// The first id whose body may lack something.
    pub(crate) from: Ino,
    /// An earlier life has written bodies in this boot: what it has not synced may be in memory only.
    pub(crate) again: bool,
}

fn io(island: IslandId) -> impl Fn(std::io::Error) -> OpenError {
    move |error| OpenError::Io(island, error)
}

/// The mark of a copy.
fn mark<D: Disk>(disk: &D, island: IslandId) -> Result<Option<Mark>, OpenError> {
    let Some(content) = noted::read(disk, MARK, island)? else { return Ok(None) };
    Mark::from_slice(&content).map(Some).map_err(|_| noted::damaged(MARK, island))
}

/// Whether a copy is being filled: its bodies, or all of it, are yet to come from another copy.
///
/// # Errors
/// The mark is damaged, or cannot be read.
pub fn is_being_filled<D: Disk>(disk: &D, island: IslandId) -> Result<bool, OpenError> {
    Ok(mark(disk, island)?.is_some())
}

/// Bodies with lower ids are whole, and synced.
pub(crate) fn note_bytes<D: Disk>(disk: &D, from: Ino, boot: u128) -> std::io::Result<()> {
    noted::write(disk, MARK, &Mark::Bytes { from, boot }.to_vec())
}

/// All are.
pub(crate) fn note_whole<D: Disk>(disk: &D) -> std::io::Result<()> {
    noted::remove(disk, MARK)?;
    disk.sync_dir(b"")
}

/// Whether a folder has what an island has that was made once.
pub(crate) fn is_made<D: Disk>(disk: &D) -> bool {
    disk.stat(STATE).is_ok() && disk.stat(LOG).is_ok()
}

/// Removes rows and log of a copy, so that it can be made empty. Bodies stay: they are compared with the rows that come.
pub(crate) fn clear<D: Disk>(disk: &D, island: IslandId) -> Result<(), OpenError> {
    let remove = || {
        for name in [MARK, ROWS, STATE] {
            noted::remove(disk, name)?;
        }
        clear_log(disk)?;
        disk.sync_dir(b"")
    };
    remove().map_err(io(island))
}

fn clear_log<D: Disk>(disk: &D) -> std::io::Result<()> {
    let names = match disk.list(LOG) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        names => names?,
    };
    for (name, _) in names {
        disk.unlink(&[LOG, b"/", &name].concat())?;
    }
    disk.sync_dir(LOG)
}

/// Begins the switch to the rows that have come: an opening ends it.
pub(crate) fn begin<D: Disk>(disk: &D, island: IslandId, at: Position) -> Result<(), OpenError> {
    noted::write(disk, MARK, &Mark::Rows { at }.to_vec()).map_err(io(island))
}

/// Ends a switch that was begun; what the copy lacks. Each step may have been done before.
pub(crate) fn go_on<D: Disk>(disk: &Arc<D>, setup: &Setup) -> Result<Option<Unfilled>, OpenError> {
    let id = setup.island.id;
    let boot = setup.log.boot;
    let at = match mark(&**disk, id)? {
        None => {
            // Rows that came and were not all.
            noted::remove(&**disk, ROWS).map_err(io(id))?;
            return Ok(None);
        }
        Some(Mark::Bytes { from, boot: before }) => {
            if before != boot {
                note_bytes(&**disk, from, boot).map_err(io(id))?;
            }
            return Ok(Some(Unfilled { from, again: before == boot }));
        }
        Some(Mark::Rows { at }) => at,
    };
    let take_rows = || {
        if disk.stat(ROWS).is_ok() {
            disk.rename(ROWS, STATE, true)?;
            disk.sync_dir(b"")?;
        }
        atoll_view::lay_again(&**disk)?;
        clear_log(&**disk)
    };
    take_rows().map_err(io(id))?;
    cut::forget(&**disk, id)?;
    let identity = Identity { volume: setup.volume.0, island: id.0 };
    drop(Log::create(Arc::clone(disk), LOG, setup.log, identity, at).map_err(|e| OpenError::Log(id, e))?);
    let from = Ino(0);
    if planted(Bug::MissingForgotten) {
        note_whole(&**disk).map_err(io(id))?;
    } else {
        note_bytes(&**disk, from, boot).map_err(io(id))?;
    }
    Ok(Some(Unfilled { from, again: false }))
}

/// Whether each copy has such rows of its own.
fn is_own(key: &[u8]) -> bool {
    matches!(key.first(), Some(b'v' | b'w'))
}

/// A page of rows.
#[derive(Debug)]
pub(crate) struct Page {
    /// The record that they are as of.
    pub(crate) at: Position,
    /// The key behind which they begin.
    pub(crate) after: Vec<u8>,
    pub(crate) rows: Bytes,
    pub(crate) last: bool,
}

/// Bytes in front of a row: lengths of key and value.
const HEAD_BYTES: usize = 8;

fn encode(rows: &[(Vec<u8>, Vec<u8>)]) -> Bytes {
    let bytes = rows.iter().map(|(key, value)| HEAD_BYTES + key.len() + value.len()).sum();
    let mut out = BytesMut::with_capacity(bytes);
    for (key, value) in rows {
        out.put_u32_le(key.len() as u32);
        out.put_u32_le(value.len() as u32);
        out.put_slice(key);
        out.put_slice(value);
    }
    out.freeze()
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Rows of a page, which rise behind `after`.
fn decode(after: &[u8], payload: &Bytes) -> Result<Rows, String> {
    let mut left = payload.clone();
    let mut rows: Rows = Vec::new();
    while !left.is_empty() {
        if left.len() < HEAD_BYTES {
            return Err("a row is cut off".to_owned());
        }
        let (key, value) = (left.get_u32_le() as usize, left.get_u32_le() as usize);
        if left.len() < key.saturating_add(value) {
            return Err("a row is cut off".to_owned());
        }
        let (key, value) = (Vec::from(&left.split_to(key)[..]), Vec::from(&left.split_to(value)[..]));
        let before = rows.last().map_or(after, |(key, _)| key);
        if key.as_slice() <= before || is_own(&key) || RowKey::from_bytes(&key).is_none() {
            return Err(format!("row {} has no place there", key.escape_ascii()));
        }
        rows.push((key, value));
    }
    Ok(rows)
}

/// A snapshot that copies are filled from.
pub(crate) struct Pinned {
    at: Position,
    pin: Pin,
    asked_ms: u64,
}

/// By whom they are wanted.
pub(crate) type Pins = Mutex<BTreeMap<NodeId, Pinned>>;

impl<D: Disk> Engine<D> {
    /// Rows for a copy that has those up to `after` of the snapshot `at`. They begin anew if that is another one. None: there is
    /// nothing to be had now.
    pub(crate) fn page(&self, to: NodeId, at: Position, after: Vec<u8>) -> Result<Option<Page>, String> {
        let Some(_used) = self.in_use() else { return Ok(None) };
        let now = self.clock.boot_ms();
        let mut pins = self.pins.lock().expect("no panic while it is held");
        if pins.get(&to).is_none_or(|pinned| pinned.at != at) || planted(Bug::RowsOfTwoCommits) {
            let pin = self.snapshot.pin().map_err(|e| e.to_string())?;
            let Some(meta) = meta_of(&pin)? else { return Ok(None) };
            let at = Position { epoch: meta.incarnation, seq: meta.seq };
            pins.insert(to, Pinned { at, pin, asked_ms: now });
        }
        let pinned = pins.get_mut(&to).expect("it was put there");
        pinned.asked_ms = now;
        let is_same = pinned.at == at || planted(Bug::RowsOfTwoCommits);
        let after = if is_same { after } else { Vec::new() };
        let from = [&after[..], &[0]].concat();
        let read = |from: &[u8], to: &[u8]| pinned.pin.range(from, to, PAGE_BYTES).map_err(|e| e.to_string());
        let page = match read(&from, b"v")? {
            // Between the two lie rows of the copy's own.
            Some(rows) if rows.is_empty() => read(from.as_slice().max(b"x"), &[u8::MAX])?,
            page => page,
        };
        let Some(mut rows) = page else {
            pins.remove(&to);
            return Ok(None);
        };
        for (key, value) in &mut rows {
            if RowKey::from_bytes(key) == Some(RowKey::Meta) {
                let mut meta = Meta::from_slice(value).map_err(|e| e.to_string())?;
                meta.clean = false;
                *value = meta.to_vec();
            }
        }
        let last = rows.is_empty();
        Ok(Some(Page { at: pinned.at, after, rows: encode(&rows), last }))
    }

    /// How much a copy gets that is filled from here; `rest` is called now and then. None: the snapshot was given up meanwhile.
    pub(crate) fn fill_size(&self, rest: impl FnMut()) -> Result<Option<FillSize>, String> {
        let Some(_used) = self.in_use() else { return Ok(None) };
        let pin = self.snapshot.pin().map_err(|e| e.to_string())?;
        let size = FillSize::count(&pin, Ino(0), rest).map_err(|e| e.to_string())?;
        Ok(size.map(|(all, _)| all))
    }

    /// The first record of the log that a copy is going to need which is filled from here, or comes back. A disk of which less than
    /// a tenth is free holds nothing for others: what the log is configured to keep must be enough then.
    pub(crate) fn held_from(&self) -> u64 {
        let Some(grouped) = self.grouped.get() else { return u64::MAX };
        let pins = self.pins.lock().expect("no panic while it is held");
        let pinned = pins.values().map(|pinned| pinned.at.seq + 1).min().unwrap_or(u64::MAX);
        drop(pins);
        let held = pinned.min(grouped.place.needed());
        let is_short =
            || self.disk.space().map_or(true, |space| space.bytes_available < space.bytes / HELD_WHILE_FREE);
        if held == u64::MAX || is_short() { u64::MAX } else { held }
    }

    /// Gives up snapshots of which nobody wants more.
    pub(crate) fn give_up_pins(&self) {
        let now = self.clock.boot_ms();
        let mut pins = self.pins.lock().expect("no panic while it is held");
        pins.retain(|_, pinned| now < pinned.asked_ms + PIN_MS);
    }
}

fn meta_of(pin: &Pin) -> Result<Option<Meta>, String> {
    let key = RowKey::Meta.to_bytes();
    let rows = pin.range(&key, &[&key[..], &[0]].concat(), 1).map_err(|e| e.to_string())?;
    let Some((_, value)) = rows.and_then(|rows| rows.into_iter().next()) else { return Ok(None) };
    Meta::from_slice(&value).map(Some).map_err(|e| e.to_string())
}

/// Rows that come, page by page.
pub(crate) struct Taking {
    /// They are as of this record.
    pub(crate) at: Position,
    /// The last key that is there.
    pub(crate) after: Vec<u8>,
    /// Files whose rows are there.
    pub(crate) files: u64,
    rows: Snapshot,
}

/// What came of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is here, and more are to come.
    More,
    /// All are here.
    All,
    /// It is none that was asked for, or the disk has no space for it: it is asked for again.
    Not,
}

/// Takes a page.
pub(crate) fn take<D: Disk>(
    disk: &D,
    taking: &mut Option<Taking>,
    (at, after, last): (Position, &[u8], bool),
    payload: &Bytes,
) -> Result<Taken, String> {
    let rows = decode(after, payload)?;
    if taking.as_ref().is_none_or(|taking| taking.at != at)
        && !(taking.is_some() && planted(Bug::RowsOfTwoCommits))
    {
        if !after.is_empty() {
            return Ok(Taken::Not);
        }
        // Rows of an earlier snapshot are of no use.
        drop(taking.take());
        noted::remove(disk, ROWS).map_err(|e| e.to_string())?;
        let made = match Snapshot::open(disk, ROWS, CACHE_BYTES) {
            Err(error) if error.is_no_space() => return give_up(disk, taking),
            made => made.map_err(|e| e.to_string())?,
        };
        *taking = Some(Taking { at, after: Vec::new(), files: 0, rows: made });
    }
    let Some(now) = taking.as_mut().filter(|taking| taking.after == after) else { return Ok(Taken::Not) };
    now.at = at;
    let commit = rows.iter().map(|(key, value)| (key, Some(value)));
    if !rows.is_empty() {
        match now.rows.commit_if_space(disk, commit) {
            Ok(true) => {}
            Ok(false) => return Ok(Taken::Not),
            // Not even for opening them again.
            Err(error) if error.is_no_space() => return give_up(disk, taking),
            Err(error) => return Err(error.to_string()),
        }
    }
    if let Some((key, _)) = rows.last() {
        now.after.clone_from(key);
    }
    now.files += rows.iter().filter(|(key, _)| key.first() == Some(&b'i')).count() as u64;
    if !last {
        return Ok(Taken::More);
    }
    let meta = now.rows.get(&RowKey::Meta.to_bytes()).map_err(|e| e.to_string())?;
    let meta = meta.ok_or("the rows of the primary have no position")?;
    let meta = Meta::from_slice(&meta).map_err(|e| e.to_string())?;
    if (Position { epoch: meta.incarnation, seq: meta.seq }) != at && !planted(Bug::RowsOfTwoCommits) {
        return Err(format!("the rows of the primary are as of {} and not of {at:?}", meta.seq));
    }
    Ok(Taken::All)
}

/// There is no room for the rows that come. They begin anew when they are asked for again, and take none until then.
fn give_up<D: Disk>(disk: &D, taking: &mut Option<Taking>) -> Result<Taken, String> {
    drop(taking.take());
    noted::remove(disk, ROWS).map_err(|e| e.to_string())?;
    Ok(Taken::Not)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tag: u8, n: u64) -> Vec<u8> {
        [&[tag][..], &n.to_be_bytes()].concat()
    }

    #[test]
    fn the_bytes_of_the_mark_are_these() {
        let rows = Mark::Rows { at: Position { epoch: 7, seq: 0x0102 } };
        assert_eq!(rows.to_vec(), [1, 7, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        let bytes = Mark::Bytes { from: Ino(0x0304), boot: 5 };
        let mut told = vec![2, 4, 3, 0, 0, 0, 0, 0, 0, 5];
        told.resize(25, 0);
        assert_eq!(bytes.to_vec(), told);
        for mark in [rows, bytes] {
            assert_eq!(Mark::from_slice(&mark.to_vec()), Ok(mark));
        }
    }

    #[test]
    fn rows_come_back_as_they_went_and_others_are_refused() {
        let rows = vec![(key(b'i', 1), vec![1; 3]), (key(b'i', 2), Vec::new()), (b"m".to_vec(), vec![7])];
        assert_eq!(decode(b"", &encode(&rows)), Ok(rows.clone()));
        assert!(decode(&key(b'i', 1), &encode(&rows)).is_err(), "it has that one");
        let whole = encode(&rows);
        for len in 1..whole.len() {
            let cut = decode(b"", &whole.slice(..len));
            assert!(cut.is_err() || cut.is_ok_and(|cut| cut.len() < rows.len()));
        }
        for foreign in [key(b'v', 1), key(b'?', 1), Vec::new()] {
            assert!(decode(b"", &encode(&[(foreign, Vec::new())])).is_err());
        }
    }
}
