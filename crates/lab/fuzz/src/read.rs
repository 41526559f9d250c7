//! Messages, records, rows, segments and texts, from any bytes.

use std::cell::RefCell;
use std::path::PathBuf;

use atoll_control::{Addresses, DataDir};
use atoll_core::{Decode, Encode, Ino, Name, Stamp, Table};
use atoll_log::{HEADER_BYTES, RECORD_HEADER_BYTES, scan_segment};
use atoll_posix::locks::Locks;
use atoll_proto::{
    Beacon, CarriedLink, Control, ControlReply, Dir, Entry, GroupMessage, GroupRecord, Inode, JournalEntry,
    Notice, PeerMessage, Promised, Record, Reply, Request, RowChange, Session, Txn, VolumeConfig, Xattrs,
};
use atoll_rpc::{Address, Goodbye, Hello, HelloOk};
use atoll_state::state::Meta;
use atoll_state::{LoadedRows, RowKey, RowLoad, State};

/// Longest record payload that a log takes.
const RECORD_BYTES_MAX: u32 = atoll_core::limits::RECORD_BYTES_MAX as u32;

/// What is read must be written again as it was: there is one way to write each value.
pub(crate) fn same<T: Decode + Encode>(bytes: &[u8]) -> Option<T> {
    let value = T::from_slice(bytes).ok()?;
    assert_eq!(value.to_vec(), bytes, "written as it was read");
    assert_eq!(value.encoded_len(), bytes.len(), "as long as it says");
    Some(value)
}

/// The meta part of any frame: the first byte says of which kind.
pub fn message(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 12 {
        0 => drop(same::<Request>(bytes)),
        1 => drop(same::<Reply>(bytes)),
        2 => drop(same::<Notice>(bytes)),
        3 => drop(same::<PeerMessage>(bytes)),
        4 => drop(same::<Control>(bytes)),
        5 => drop(same::<ControlReply>(bytes)),
        6 => drop(same::<Hello>(bytes)),
        7 => drop(same::<HelloOk>(bytes)),
        8 => drop(same::<Goodbye>(bytes)),
        9 => drop(same::<GroupMessage>(bytes)),
        10 => drop(same::<Beacon>(bytes)),
        _ => drop(same::<Promised>(bytes)),
    }
}

/// The payload of a log record, and what it does to a state that has nothing.
pub fn record(bytes: &[u8]) {
    let Ok(record) = Record::decode_whole(bytes) else { return };
    let mut again = Vec::new();
    let carried: Vec<u8> = record.encode_head(&mut again).flatten().copied().collect();
    again.extend(carried);
    assert_eq!(again, bytes, "written as it was read");
    let mut state = State::new(7);
    for change in &record.changes {
        // A recovery applies whatever a record with a right checksum says.
        if is_huge(change) {
            continue;
        }
        while let Some(RowLoad::Row(key)) = state.needs(change) {
            state.load(RowLoad::Row(key), LoadedRows::Row(None)).expect("an absent row");
        }
        state.apply(1, change);
        if let RowChange::Delivered { island, .. } = change {
            assert!(state.outbox(*island).count() <= record.changes.len());
        }
    }
    state.freeze();
}

/// A change that takes work without bound by its nature: a checkpoint removes a row for each chunk
/// of a file of 16 EiB.
fn is_huge(change: &RowChange) -> bool {
    const BLOCKS_MAX: u64 = 1 << 24;
    match change {
        RowChange::SumsCut { first, end, .. } => {
            end.saturating_sub(*first) > BLOCKS_MAX || *end > u64::MAX / 2
        }
        RowChange::Sums { first, .. } => *first > u64::MAX / 2,
        _ => false,
    }
}

/// What a control store has of a volume and of the groups of its islands.
pub fn volume(bytes: &[u8]) {
    if let Some(config) = same::<VolumeConfig>(bytes) {
        for island in config.islands() {
            config.group_of(island).into_iter().for_each(|node| drop(config.islands_at(node)));
        }
        lookups(&config.table);
    }
    if let Some(table) = same::<Table>(bytes) {
        lookups(&table);
    }
    if let Some(group) = same::<GroupRecord>(bytes) {
        assert_eq!(group.check(), Ok(()));
    }
}

fn lookups(table: &Table) {
    for key in [0, 1, u32::MAX / 3, u32::MAX] {
        table.owner(atoll_core::Key(key));
    }
}

/// A segment of the log. With the first byte's lowest bit, checksums are put right first, so that
/// what is behind them is reached.
pub fn segment(bytes: &[u8]) {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let mut segment = bytes.to_vec();
    if how & 1 != 0 {
        mend_segment(&mut segment);
    }
    let mut end = HEADER_BYTES;
    let mut last = None;
    let scanned = scan_segment(&segment, RECORD_BYTES_MAX, |at, record| {
        assert_eq!(at, end, "records follow each other");
        end = (at + RECORD_HEADER_BYTES + record.payload.len()).next_multiple_of(8);
        assert_eq!(record.position.seq, record.predecessor.seq + 1);
        last = Some(record.position);
    });
    if let Some((header, scan)) = scanned {
        assert_eq!(scan.last, last.unwrap_or(header.predecessor));
        assert_eq!(scan.end, end.min(segment.len()));
    }
}

fn mend_segment(segment: &mut [u8]) {
    let Some(header) = segment.get(..60) else { return };
    let seed = crc32c::crc32c(header);
    let Some(place) = segment.get_mut(60..64) else { return };
    place.copy_from_slice(&seed.to_le_bytes());
    let mut at = HEADER_BYTES;
    while let Some(len) = segment.get(at..at + 4) {
        let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
        let Some(whole) = segment.get(at + 8..at + RECORD_HEADER_BYTES + len) else { return };
        let crc = crc32c::crc32c_append(seed, whole);
        segment[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
        at = (at + RECORD_HEADER_BYTES + len).next_multiple_of(8);
    }
}

/// A row of the state: a byte that says how long the key is, the key, the row.
pub fn row(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first() else { return };
    let Some((key_bytes, row)) = rest.split_at_checked(usize::from(*len)) else { return };
    let Some(key) = RowKey::from_bytes(key_bytes) else { return };
    assert_eq!(key.to_bytes(), key_bytes, "a key is written as it was read");
    let mut state = State::new(7);
    let is_kept = state.open_row(&key, row);
    if is_kept == Ok(true) {
        // The first things that an island does with what it has opened.
        let island = if let RowKey::Delivered(island) = key { island } else { atoll_core::IslandId(1) };
        assert!(state.outbox(island).count() <= 1);
        state.freeze();
    }
    let _ = state.load(RowLoad::Row(key.clone()), LoadedRows::Row(Some(row.to_vec())));
    let _ = state.load(RowLoad::Row(key.clone()), LoadedRows::Row(None));
    if let RowKey::Entry(dir, cookie, name) = &key {
        names(&mut state, *dir, *cookie, name, row);
    }
    match key {
        RowKey::Inode(_) => drop(same::<Inode>(row)),
        RowKey::Dir(_) => drop(same::<Dir>(row)),
        RowKey::Entry(..) => drop(same::<Entry>(row)),
        RowKey::Xattrs(_) => drop(same::<Xattrs>(row)),
        RowKey::Sums(..) => drop(same::<Vec<u32>>(row)),
        RowKey::Locks(_) => drop(same::<Locks>(row)),
        RowKey::Txn(_) => drop(same::<Txn>(row)),
        RowKey::Session(_) => drop(same::<Session>(row)),
        RowKey::Link(_) => drop(same::<CarriedLink>(row)),
        RowKey::Meta => drop(same::<Meta>(row)),
        _ => {
            let _ = same::<JournalEntry>(row);
            let _ = same::<Stamp>(row);
        }
    }
}

fn names(state: &mut State, dir: Ino, cookie: u64, name: &Name, row: &[u8]) {
    let page = vec![(cookie, name.clone(), row.to_vec())];
    let loaded = LoadedRows::Names { names: page, to: u64::MAX };
    if state.load(RowLoad::Names { dir, from: 0 }, loaded).is_ok() {
        let listed = state.entries_after(dir, 0).map(|(rows, _)| rows.count());
        assert!(listed.is_ok_and(|n| n <= 1), "a directory that was loaded is there");
    }
}

thread_local! {
    /// A data directory of this thread; removed by whoever clears the folder of temporary files.
    static DATA: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// `node.toml` of a data directory.
pub fn node_file(bytes: &[u8]) {
    DATA.with_borrow_mut(|data| {
        let folder = data.get_or_insert_with(|| {
            let name = format!("atoll-fuzz-{}-{:?}", std::process::id(), std::thread::current().id());
            let shm = PathBuf::from("/dev/shm");
            let folder = if shm.is_dir() { shm } else { std::env::temp_dir() }.join(name);
            std::fs::create_dir_all(&folder).expect("a folder for a data directory");
            folder
        });
        std::fs::write(folder.join("node.toml"), bytes).expect("a file is written");
        match DataDir::open(folder) {
            Ok(dir) => assert!(dir.identity().node.0 != 0 && dir.identity().cluster.0 != 0),
            Err(why) => assert!(why.to_string().lines().count() <= 3, "{why}"),
        }
    });
}

/// Removes what [`node_file`] has made on this thread.
pub fn forget_node_file() {
    DATA.with_borrow_mut(|data| {
        if let Some(folder) = data.take() {
            let _ = std::fs::remove_dir_all(folder);
        }
    });
}

/// What a mount is made from, and an address.
pub fn source(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<Addresses>() {
        Ok(source) => assert_eq!(source.to_string().parse::<Addresses>(), Ok(source)),
        Err(why) => assert!(why.to_string().lines().count() <= 3, "{why}"),
    }
    if let Ok(address) = text.parse::<Address>() {
        assert_eq!(address.to_string().parse::<Address>(), Ok(address));
    }
}

/// A call of an NFS client: its head, credentials and arguments; and an export rule.
pub fn nfs(bytes: &[u8]) {
    atoll_nfs::read_call(bytes);
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Err(why) = text.parse::<atoll_nfs::Rule>()
    {
        assert!(!why.to_string().is_empty());
    }
}
