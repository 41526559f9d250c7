//! A repair that ends at any of its effects, by process death or power cut, and is run again; and repairs
//! of what chance has damaged.

#[path = "../../rebuild/tests/folder/mod.rs"]
mod folder;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use atoll_check::{Rows, Volume, check, paths};
use atoll_core::{Decode, Encode, Ino, IslandId, Key, Time};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_disk::{Disk, DiskFile, OpenHow};
use atoll_dispatch::{Clock, Engine, Laying, Nobody, Setup};
use atoll_island::Now;
use atoll_posix::Kind;
use atoll_proto::{Dir, Entry, Inode};
use atoll_repair::{Options, perform, plain_again, plan, read_rows, strays};
use atoll_snapshot::Snapshot;
use atoll_state::RowKey;
use folder::{Folder, ISLANDS, config, folder};

const LOG: atoll_log::Config = atoll_log::Config {
    segment_bytes: 64 << 10,
    record_bytes_max: 16 << 10,
    buffer_bytes_max: 64 << 10,
    keep_bytes: 0,
    boot: 0,
};

fn volume() -> Volume {
    Volume { table: config().table, seed: config().seed }
}

/// Time stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Now {
        Now { wall: Time { secs: 1000, nanos: 0 }, ms: 1000 }
    }
    fn boot_ms(&self) -> u64 {
        1000
    }
    fn pass(&self, _: Duration) {}
}

type Opened = (Arc<Engine<Folder>>, Laying<Folder>);

fn open(disk: &SimDisk, island: u16) -> Result<Opened, String> {
    let config = config();
    let setup = Setup {
        volume: config.id,
        island: atoll_island::Config::new(
            IslandId(island),
            config.seed,
            config.table.clone(),
            config.islands(),
        ),
        log: LOG,
        snapshot_cache_bytes: 1 << 20,
        root: true,
        is_new: false,
        reached: None,
        beside: None,
    };
    let opened = Engine::open(folder(disk, island), setup, Arc::new(Nobody), Arc::new(Still));
    let engine = Arc::new(opened.map_err(|e| e.to_string())?.0);
    let mut laying = Laying::open(Arc::clone(&engine), true, true).map_err(|e| e.to_string())?;
    laying.drain().map_err(|e| e.to_string())?;
    engine.stop().map_err(|e| e.to_string())?;
    Ok((engine, laying))
}

/// What a repair has done: how many things it mended, what is natively left, and what of the rows.
#[derive(Debug, PartialEq, Eq)]
struct Done {
    mended: usize,
    fixes: Vec<String>,
    native: Vec<String>,
    rows: Vec<String>,
}

/// Repairs as the command does it.
fn repair(disk: &SimDisk) -> Result<Done, String> {
    let text = |e: std::io::Error| e.to_string();
    let mut islands = (0..ISLANDS).map(|island| open(disk, island)).collect::<Result<Vec<_>, _>>()?;
    let engines: Vec<_> = islands.iter().map(|(engine, _)| Arc::clone(engine)).collect();
    let rows = |engines: &[Arc<Engine<Folder>>]| -> Result<Vec<Rows>, String> {
        engines.iter().map(|engine| read_rows(engine).map_err(text)).collect()
    };
    let mut bodies = Vec::new();
    for (engine, laying) in &islands {
        bodies.extend(strays(engine, &laying.audit().map_err(text)?).map_err(text)?);
    }
    let options = Options { now: Time { secs: 2000, nanos: 0 }, forget: false };
    let plan = plan(&volume(), rows(&engines)?, &engines, bodies, &options);
    perform(&engines, &plan).map_err(|e| e.to_string())?;
    let told = plan.fixes.iter().map(|fix| format!("{}: {:?} {}", fix.island, fix.ino, fix.what));
    let mut fixes: Vec<String> = told.collect();
    let (mut native, mut mended) = (Vec::new(), plan.fixes.len());
    for (engine, laying) in &mut islands {
        for _ in 0..2 {
            laying.drain().map_err(text)?;
            engine.stop().map_err(|e| e.to_string())?;
            let findings = laying.audit().map_err(text)?;
            let rows = read_rows(engine).map_err(text)?;
            let told = plain_again(engine, &rows, &findings, false);
            mended += told.len();
            fixes.extend(told.iter().map(|(ino, what)| format!("{}: {ino:?} {what}", engine.id())));
        }
        native.extend(laying.audit().map_err(text)?.iter().map(|finding| format!("{finding:?}")));
    }
    let rows = check(&volume(), &rows(&engines)?).iter().map(ToString::to_string).collect();
    Ok(Done { mended, fixes, native, rows })
}

fn write(disk: &SimDisk, path: &str, content: &[u8]) {
    disk.open(path.as_bytes(), OpenHow::Create { mode: 0o644 }).unwrap().write_at(content, 0).unwrap();
}

fn mkdir(disk: &SimDisk, path: &str) {
    disk.mkdir(path.as_bytes(), 0o755).unwrap();
}

fn snapshot(disk: &SimDisk, island: u16) -> Snapshot {
    Snapshot::open(&*folder(disk, island), b"state.redb", 1 << 20).unwrap()
}

/// A volume at rest, in which much is wrong.
fn world(seed: u64) -> SimDisk {
    let disk = whole(seed);
    break_it(&disk, config().table.owner(Key(0)).0);
    disk.sync_everything().unwrap();
    disk
}

/// A volume at rest.
fn whole(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    mkdir(&disk, "0");
    mkdir(&disk, "1");
    let owner = config().table.owner(Key(0)).0;
    for (island, names) in [(owner, ["a", "b"]), (1 - owner, ["c", "d"])] {
        mkdir(&disk, &format!("{island}/tree"));
        for name in names {
            mkdir(&disk, &format!("{island}/tree/{name}"));
            write(&disk, &format!("{island}/tree/{name}/file"), &[name.as_bytes()[0]; 5000]);
            let (old, new) = (format!("{island}/tree/{name}/file"), format!("{island}/tree/{name}/second"));
            disk.link(old.as_bytes(), new.as_bytes()).unwrap();
        }
    }
    // A name in another island's directory.
    mkdir(&disk, &format!("{}/tree/a", 1 - owner));
    let (old, new) = (format!("{}/tree/c/file", 1 - owner), format!("{}/tree/a/far", 1 - owner));
    disk.link(old.as_bytes(), new.as_bytes()).unwrap();
    let islands = (0..ISLANDS).map(|i| (IslandId(i), folder(&disk, i))).collect();
    let how = atoll_rebuild::Options { root: true, devices: true, log: LOG };
    atoll_rebuild::rebuild(&config(), &islands, &how, &mut |_| {}).unwrap();
    disk
}

fn break_it(disk: &SimDisk, owner: u16) {
    let rows = |snapshot: &Snapshot, tag: u8| snapshot.range(&[tag], &[tag + 1], usize::MAX).unwrap();
    let name = |key: &[u8]| match RowKey::from_bytes(key) {
        Some(RowKey::Entry(_, _, name)) => name.to_string(),
        _ => String::new(),
    };
    for island in 0..ISLANDS {
        let snapshot = snapshot(disk, island);
        let mut changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        // Counts, and every file of one island; of the other its names.
        for (key, row) in rows(&snapshot, b'd') {
            let mut row = Dir::from_slice(&row).unwrap();
            row.children += 1;
            changes.push((key, Some(row.to_vec())));
        }
        for (key, row) in rows(&snapshot, b'i') {
            let mut row = Inode::from_slice(&row).unwrap();
            row.attr.nlink += 1;
            changes.push((key, Some(row.to_vec()).filter(|_| island != owner)));
        }
        for (key, row) in rows(&snapshot, b'e') {
            let mut entry = Entry::from_slice(&row).unwrap();
            match name(&key).as_str() {
                // A directory loses its name, another its place to a file.
                "c" if island == owner => changes.push((key, None)),
                "d" if island == owner => {
                    let far = rows(&snapshot, b'e').into_iter().find(|(key, _)| name(key) == "far").unwrap();
                    entry = Entry::from_slice(&far.1).unwrap();
                    assert_eq!((entry.kind, entry.home.0), (Kind::Regular, 1 - owner));
                    changes.push((key, Some(entry.to_vec())));
                }
                // A file loses one name at its home, another both: they are found again.
                "far" if island != owner => changes.push((key, None)),
                "file" | "second" if island != owner && entry.ino.0 % 2 == 0 => changes.push((key, None)),
                _ => {}
            }
        }
        snapshot.commit(changes).unwrap();
    }
    // Bytes that no file has.
    let stray = Ino::mint(IslandId(owner), 900);
    let path = String::from_utf8(atoll_body::path_of(b"bodies", stray)).unwrap();
    let parent = format!("{owner}/{}", path.rsplit_once('/').unwrap().0);
    let _ = disk.mkdir(parent.as_bytes(), 0o700);
    write(disk, &format!("{owner}/{path}"), &[b'z'; 9000]);
}

/// All paths of all files, and what is in them.
fn seen(disk: &SimDisk) -> BTreeMap<String, u8> {
    let mut seen = BTreeMap::new();
    let opened: Vec<_> = (0..ISLANDS).map(|island| open(disk, island).unwrap()).collect();
    let all: Vec<Rows> = opened.iter().map(|(engine, _)| read_rows(engine).unwrap()).collect();
    for ((engine, _), rows) in opened.iter().zip(&all) {
        let wanted: BTreeSet<Ino> = rows.inodes.keys().copied().collect();
        for (ino, names) in paths(&all, &wanted) {
            let file = engine.disk().open(&engine.bodies().path(ino), OpenHow::Read).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, 0).unwrap();
            seen.extend(names.into_iter().map(|name| (name, byte[0])));
        }
    }
    seen
}

fn crashes(fault: Fault) {
    let calm = world(1);
    let before = calm.effects();
    let done = repair(&calm).unwrap();
    assert!(done.mended > 20, "{done:?}");
    assert_eq!(done.rows, [""; 0]);
    // What the plain trees still have of the names that the rows have lost is nobody's but people's.
    assert!(done.native.iter().all(|f| f.contains("ForeignName") || f.contains("WrongObject")), "{done:?}");
    let effects = calm.effects() - before;
    let done = Done { mended: 0, fixes: Vec::new(), ..done };
    assert_eq!(repair(&calm).unwrap(), done, "a second repair does nothing");
    let want = seen(&calm);
    let letters: BTreeSet<u8> = want.values().copied().collect();
    assert_eq!(letters, b"abcdz".iter().copied().collect(), "{want:?}");
    let step = (effects / 30).max(1);
    for seed in 0..effects / step {
        let n = seed * step + 1 + seed % step;
        let disk = world(1);
        disk.die_after(n);
        let _ = repair(&disk);
        let disk = disk.revive(fault);
        let context = format!("effect {n} of {effects}, {fault:?}");
        let again = repair(&disk).unwrap_or_else(|error| panic!("{error}: {context}"));
        assert_eq!(Done { mended: 0, fixes: Vec::new(), ..again }, done, "{context}");
        assert_eq!(repair(&disk).unwrap(), done, "{context}");
        assert_eq!(seen(&disk), want, "{context}");
    }
}

#[test]
fn a_repair_that_was_killed_anywhere_can_be_run_again() {
    crashes(Fault::ProcessDeath);
}

#[test]
fn a_repair_that_lost_its_power_anywhere_can_be_run_again() {
    crashes(Fault::PowerCut { seed: 3 });
    crashes(Fault::PowerCut { seed: 4 });
}

/// Damages some rows, as a page of the snapshot that was lost or overwritten would.
fn flip(disk: &SimDisk, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    for _ in 0..=draw(4) {
        let snapshot = snapshot(disk, draw(usize::from(ISLANDS)) as u16);
        let all = snapshot.range(&[], &[0xff], usize::MAX).unwrap();
        let mut rows: Vec<_> = all.into_iter().filter(|(key, _)| b"idexs".contains(&key[0])).collect();
        let (key, mut row) = rows.swap_remove(draw(rows.len()));
        let change = match draw(4) {
            0 => (key, None),
            // As another row of its kind.
            1 => {
                rows.retain(|(other, _)| other[0] == key[0]);
                let other = if rows.is_empty() { row } else { rows.swap_remove(draw(rows.len())).1 };
                (key, Some(other))
            }
            _ => {
                let at = draw(row.len().max(1));
                if let Some(byte) = row.get_mut(at) {
                    *byte ^= 1 << draw(8);
                }
                (key, Some(row))
            }
        };
        snapshot.commit([change]).unwrap();
    }
}

#[test]
fn whatever_chance_damages_is_mended_or_left_without_a_loss_and_once_is_enough() {
    let files = |disk: &SimDisk| -> BTreeSet<Ino> {
        let all = (0..ISLANDS).flat_map(|island| {
            let rows = snapshot(disk, island).range(b"i", b"j", usize::MAX).unwrap();
            rows.into_iter().map(|(key, _)| key)
        });
        all.filter_map(|key| match RowKey::from_bytes(&key) {
            Some(RowKey::Inode(ino)) => Some(ino),
            _ => None,
        })
        .collect()
    };
    let (mut clean, mut all) = (0, 0);
    for seed in 0..60 {
        let disk = whole(1);
        flip(&disk, seed);
        let before = files(&disk);
        // A row that every island reads when it opens may be damaged.
        let Ok(done) = repair(&disk) else { continue };
        let context = format!("seed {seed}: {done:#?}");
        assert!(before.is_subset(&files(&disk)), "a file is gone: {context}");
        let again = repair(&disk).unwrap();
        let again_is_whole = again.rows.is_empty();
        assert_eq!(again, Done { mended: 0, fixes: Vec::new(), ..done }, "{context}");
        all += 1;
        clean += usize::from(again_is_whole);
    }
    assert!(all > 40 && clean > all / 2, "{clean} of {all} are whole afterwards");
}
