//! The crash model of the simulated disk keeps its promises, and breaks all others now and then.

use std::collections::BTreeSet;

use atoll_disk::sim::{Fault, SimDisk, is_died};
use atoll_disk::{Disk, DiskFile, OpenHow};
use rustix::io::Errno;

const NEW: OpenHow = OpenHow::CreateNew { mode: 0o600 };

fn read(disk: &SimDisk, path: &[u8]) -> Option<Vec<u8>> {
    let file = disk.open(path, OpenHow::Read).ok()?;
    let mut bytes = vec![0; file.stat().unwrap().size as usize];
    file.read_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

fn exists(disk: &SimDisk, path: &[u8]) -> bool {
    disk.stat(path).is_ok()
}

/// What can be seen after a power cut, over many seeds.
fn outcomes<T: Ord>(build: impl Fn(&SimDisk), look: impl Fn(&SimDisk) -> T) -> BTreeSet<T> {
    let cut = |seed| {
        let disk = SimDisk::new(seed);
        build(&disk);
        look(&disk.revive(Fault::PowerCut { seed }))
    };
    (0..400).map(cut).collect()
}

fn durable(disk: &SimDisk, path: &[u8], bytes: &[u8]) {
    let file = disk.open(path, NEW).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir(b"").unwrap();
}

#[test]
fn what_was_synced_survives_exactly() {
    let build = |disk: &SimDisk| {
        disk.mkdir(b"d", 0o711).unwrap();
        disk.sync_dir(b"").unwrap();
        let file = disk.open(b"d/f", NEW).unwrap();
        file.write_at(&[7; 5000], 100).unwrap();
        disk.set_mode(b"d/f", 0o640).unwrap();
        disk.set_xattr(b"d/f", b"user.x", Some(b"1")).unwrap();
        file.sync_all().unwrap();
        disk.sync_dir(b"d").unwrap();
    };
    let look = |disk: &SimDisk| {
        let stat = disk.stat(b"d/f").unwrap();
        (read(disk, b"d/f").unwrap(), stat.mode, stat.nlink, disk.xattrs(b"d/f").unwrap())
    };
    let want = ([vec![0; 100], vec![7; 5000]].concat(), 0o640, 1, vec![(b"user.x".to_vec(), b"1".to_vec())]);
    assert_eq!(outcomes(build, look), BTreeSet::from([want]));
}

#[test]
fn process_death_keeps_everything_and_syncs_nothing() {
    let disk = SimDisk::new(1);
    let file = disk.open(b"f", NEW).unwrap();
    file.write_at(b"bytes", 0).unwrap();
    let disk2 = disk.revive(Fault::ProcessDeath);
    assert_eq!(read(&disk2, b"f").unwrap(), b"bytes");
    assert!(is_died(&file.write_at(b"x", 0).unwrap_err()));
    assert!(is_died(&disk.stat(b"f").unwrap_err()));
    let lost = (0..50).any(|seed| {
        let disk = SimDisk::new(seed);
        disk.open(b"f", NEW).unwrap();
        let disk = disk.revive(Fault::ProcessDeath);
        !exists(&disk.revive(Fault::PowerCut { seed }), b"f")
    });
    assert!(lost, "a name that was never synced came through every power cut");
}

#[test]
fn the_dying_effect_is_done_or_not_or_torn_and_nothing_follows() {
    let mut lengths = BTreeSet::new();
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let file = disk.open(b"f", NEW).unwrap();
        disk.die_after(2);
        file.write_at(b"a", 0).unwrap();
        assert!(is_died(&file.write_at(&[b'b'; 9], 1).unwrap_err()));
        assert!(disk.is_dead());
        assert!(is_died(&file.sync().unwrap_err()));
        assert!(is_died(&file.read_at(&mut [0], 0).unwrap_err()));
        assert!(is_died(&disk.open(b"f", OpenHow::Read).unwrap_err()));
        assert_eq!(disk.effects(), 3);
        lengths.insert(read(&disk.revive(Fault::ProcessDeath), b"f").unwrap().len());
    }
    assert_eq!(lengths, (1..=10).collect());
}

#[test]
fn unsynced_sectors_survive_each_by_itself_and_never_in_part() {
    let build = |disk: &SimDisk| {
        durable(disk, b"f", &[1; 1024]);
        disk.open(b"f", OpenHow::Write).unwrap().write_at(&[2; 1024], 0).unwrap();
    };
    let seen = outcomes(build, |disk| read(disk, b"f").unwrap());
    let sector = |a: u8, b: u8| [[a; 512], [b; 512]].concat();
    assert_eq!(seen, BTreeSet::from([sector(1, 1), sector(1, 2), sector(2, 1), sector(2, 2)]));
}

#[test]
fn a_sector_may_come_from_any_moment_since_the_sync() {
    let build = |disk: &SimDisk| {
        durable(disk, b"f", b"0");
        let file = disk.open(b"f", OpenHow::Write).unwrap();
        for version in [b"1", b"2", b"3"] {
            file.write_at(version, 0).unwrap();
        }
    };
    let seen = outcomes(build, |disk| read(disk, b"f").unwrap());
    assert_eq!(seen, [b"0", b"1", b"2", b"3"].map(|v| v.to_vec()).into());
}

#[test]
fn lengths_survive_apart_from_bytes() {
    let build = |disk: &SimDisk| {
        durable(disk, b"f", b"");
        disk.open(b"f", OpenHow::Write).unwrap().write_at(b"data", 0).unwrap();
    };
    let seen = outcomes(build, |disk| read(disk, b"f").unwrap());
    assert_eq!(seen, BTreeSet::from([b"".to_vec(), vec![0; 4], b"data".to_vec()]));
    let cut_back = |disk: &SimDisk| {
        durable(disk, b"f", b"12345678");
        disk.open(b"f", OpenHow::Write).unwrap().set_len(4).unwrap();
    };
    let seen = outcomes(cut_back, |disk| read(disk, b"f").unwrap());
    assert_eq!(seen, [&b"12345678"[..], b"1234\0\0\0\0", b"1234"].map(<[u8]>::to_vec).into());
}

#[test]
fn names_survive_each_by_itself_until_their_directory_is_synced() {
    let build = |disk: &SimDisk| {
        disk.open(b"a", NEW).unwrap();
        disk.open(b"b", NEW).unwrap();
    };
    let look = |disk: &SimDisk| (exists(disk, b"a"), exists(disk, b"b"));
    assert_eq!(outcomes(build, look).len(), 4);
    let synced_file_only = |disk: &SimDisk| disk.open(b"a", NEW).unwrap().sync_all().unwrap();
    assert_eq!(outcomes(synced_file_only, |disk| exists(disk, b"a")).len(), 2);
    let child_only = |disk: &SimDisk| {
        disk.mkdir(b"d", 0o755).unwrap();
        disk.open(b"d/f", NEW).unwrap();
        disk.sync_dir(b"d").unwrap();
    };
    assert_eq!(outcomes(child_only, |disk| (exists(disk, b"d"), exists(disk, b"d/f"))).len(), 2);
}

#[test]
fn a_rename_is_before_or_after_and_never_loses_either_file() {
    let build = |disk: &SimDisk| {
        durable(disk, b"old", b"old");
        durable(disk, b"new", b"new");
        disk.rename(b"new", b"old", true).unwrap();
    };
    let seen = outcomes(build, |disk| (read(disk, b"new"), read(disk, b"old").unwrap()));
    let before = (Some(b"new".to_vec()), b"old".to_vec());
    assert_eq!(seen, BTreeSet::from([before, (None, b"new".to_vec())]));
    // Replacing with what was never synced: the name may stand for an empty file.
    let careless = |disk: &SimDisk| {
        durable(disk, b"f", b"old");
        disk.open(b"t", NEW).unwrap().write_at(b"new", 0).unwrap();
        disk.rename(b"t", b"f", true).unwrap();
        disk.sync_dir(b"").unwrap();
    };
    assert!(outcomes(careless, |disk| read(disk, b"f").unwrap()).contains(&b""[..]));
}

#[test]
fn a_file_moved_between_directories_is_in_one_of_them() {
    let build = |disk: &SimDisk| {
        durable(disk, b"f", b"x");
        disk.mkdir(b"d", 0o755).unwrap();
        disk.mkdir(b"d/e", 0o755).unwrap();
        disk.rename(b"f", b"d/e/f", true).unwrap();
        disk.rename(b"d", b"g", true).unwrap();
        disk.rename(b"g/e/f", b"h", true).unwrap();
        disk.rmdir(b"g/e").unwrap();
    };
    let places = [&b"f"[..], b"d/e/f", b"g/e/f", b"h"];
    let seen = outcomes(build, |disk| places.map(|path| exists(disk, path)));
    assert!(seen.iter().all(|found| found.iter().filter(|f| **f).count() == 1), "{seen:?}");
    assert_eq!(seen.len(), 4);
}

#[test]
fn moving_directories_into_each_other_never_makes_a_loop() {
    for seed in 0..500 {
        let disk = SimDisk::new(seed);
        for dir in [&b"a"[..], b"b", b"a/c"] {
            disk.mkdir(dir, 0o755).unwrap();
        }
        disk.sync_dir(b"").unwrap();
        disk.sync_dir(b"a").unwrap();
        disk.rename(b"a/c", b"b/c", true).unwrap();
        disk.rename(b"a", b"b/c/a", true).unwrap();
        disk.rename(b"b/c/a", b"a", true).unwrap();
        disk.rename(b"b", b"a/b", true).unwrap();
        let disk = disk.revive(Fault::PowerCut { seed });
        let found =
            [&b"a"[..], b"b", b"a/b", b"b/c/a", b"a/c", b"b/c", b"a/b/c"].map(|path| exists(&disk, path));
        assert_eq!(found.iter().filter(|f| **f).count(), 3, "seed {seed}: {found:?}");
    }
}

/// Random moves of a few directories and synced files: whatever survives, each file is in exactly
/// one place, with its bytes.
#[test]
fn synced_files_survive_any_storm_of_unsynced_renames() {
    let mut dice = 1u64;
    let mut roll = |n: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % n
    };
    for seed in 0..400 {
        let disk = SimDisk::new(seed);
        for name in [&b"f"[..], b"g"] {
            durable(&disk, name, name);
        }
        let mut paths = vec![b"f".to_vec(), b"g".to_vec()];
        for n in 0..30 {
            let mut all = vec![Vec::new()];
            let mut at = 0;
            while at < all.len() {
                if let Ok(list) = disk.list(&all[at]) {
                    let dir = all[at].clone();
                    let join =
                        |name: Vec<u8>| if dir.is_empty() { name } else { [&dir[..], b"/", &name].concat() };
                    all.extend(list.into_iter().map(|(name, _)| join(name)));
                }
                at += 1;
            }
            let pick = |i: u64| all[(i % all.len() as u64) as usize].clone();
            let (from, to) = (pick(roll(1000)), pick(roll(1000)));
            let under =
                |dir: &[u8]| if dir.is_empty() { vec![b'a' + n] } else { [dir, b"/", &[b'a' + n]].concat() };
            // Most fail (a file is no directory, a directory is not empty): that is fine too.
            let _ = match roll(6) {
                0 | 1 => disk.mkdir(&under(&to), 0o755),
                2 => disk.rmdir(&from),
                3 => disk.sync_dir(&from),
                _ => disk.rename(&from, &under(&to), false),
            };
        }
        let disk = disk.revive(Fault::PowerCut { seed });
        let mut found = Vec::new();
        let mut dirs = vec![Vec::new()];
        while let Some(dir) = dirs.pop() {
            for (name, kind) in disk.list(&dir).unwrap() {
                let path = if dir.is_empty() { name } else { [&dir[..], b"/", &name].concat() };
                match kind {
                    atoll_disk::FileKind::Directory => dirs.push(path),
                    _ => found.push(read(&disk, &path).unwrap()),
                }
            }
        }
        found.sort();
        paths.sort();
        assert_eq!(found, paths, "seed {seed}");
    }
}

#[test]
fn attributes_survive_each_by_itself_and_not_with_a_data_sync() {
    let build = |disk: &SimDisk| {
        durable(disk, b"f", b"x");
        disk.set_mode(b"f", 0o777).unwrap();
        disk.set_xattr(b"f", b"user.x", Some(b"1")).unwrap();
        disk.open(b"f", OpenHow::Write).unwrap().sync().unwrap();
    };
    let look = |disk: &SimDisk| (disk.stat(b"f").unwrap().mode, disk.xattrs(b"f").unwrap().len());
    assert_eq!(outcomes(build, look).len(), 4);
    let of_a_dir = |disk: &SimDisk| {
        disk.mkdir(b"d", 0o755).unwrap();
        disk.set_mode(b"d", 0o711).unwrap();
        disk.sync_dir(b"d").unwrap();
        disk.sync_dir(b"").unwrap();
    };
    assert_eq!(outcomes(of_a_dir, |disk| disk.stat(b"d").unwrap().mode), BTreeSet::from([0o711]));
}

#[test]
fn an_unlinked_name_may_come_back_with_its_synced_bytes() {
    let build = |disk: &SimDisk| {
        durable(disk, b"f", b"kept");
        disk.unlink(b"f").unwrap();
    };
    assert_eq!(outcomes(build, |disk| read(disk, b"f")), BTreeSet::from([None, Some(b"kept".to_vec())]));
}

#[test]
fn a_failed_sync_is_told_once_and_loses_bytes_for_good() {
    let build = |disk: &SimDisk| {
        durable(disk, b"f", b"old");
        let file = disk.open(b"f", OpenHow::Write).unwrap();
        file.write_at(b"new", 0).unwrap();
        disk.fail_next_sync();
        assert_eq!(Errno::from_io_error(&file.sync().unwrap_err()), Some(Errno::IO));
        file.sync().unwrap();
        assert_eq!(read(disk, b"f").unwrap(), b"new");
    };
    let seen = outcomes(build, |disk| read(disk, b"f").unwrap());
    assert_eq!(seen, BTreeSet::from([b"old".to_vec(), b"new".to_vec()]));
}

#[test]
fn a_full_disk_takes_what_fits_and_gets_space_back() {
    let disk = SimDisk::new(1);
    let file = disk.open(b"f", NEW).unwrap();
    let base = disk.used();
    disk.set_space(Some(base + 2 * 4096 + 100));
    assert_eq!(Errno::from_io_error(&file.write_at(&[1; 10_000], 0).unwrap_err()), Some(Errno::NOSPC));
    assert_eq!(file.stat().unwrap().size, 8192);
    assert!(disk.mkdir(b"d", 0o755).is_err());
    assert!(file.allocate(8192, 1, false).is_err());
    file.write_at(&[2; 8192], 0).unwrap();
    file.punch(0, 4096).unwrap();
    file.write_at(&[3; 1], 8192).unwrap();
    assert_eq!(disk.space().unwrap().bytes_free, 100);
    disk.unlink(b"f").unwrap();
    assert_eq!(disk.space().unwrap().bytes_free, 100, "an open file keeps its space");
    drop(file);
    assert_eq!(disk.used(), base - 512);
}

#[test]
fn space_is_counted_the_same_after_a_power_cut() {
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        disk.mkdir(b"d", 0o755).unwrap();
        let file = disk.open(b"d/f", NEW).unwrap();
        file.write_at(&[1; 9000], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&[1; 9000], 90_000).unwrap();
        let disk = disk.revive(Fault::PowerCut { seed });
        let inodes = [&b"d"[..], b"d/f"].iter().filter(|path| exists(&disk, path)).count() as u64;
        let blocks = disk.stat(b"d/f").map_or(0, |stat| stat.blocks);
        assert_eq!(disk.used(), 512 * (1 + inodes) + 512 * blocks);
    }
}

#[test]
fn bits_rot_and_sectors_go_bad_on_demand() {
    let disk = SimDisk::new(1);
    durable(&disk, b"f", &[0; 600]);
    assert!(disk.flip(b"f", 512, 3).unwrap());
    assert!(!disk.flip(b"f", 600, 0).unwrap());
    assert_eq!(read(&disk, b"f").unwrap()[512], 8);
    let disk = disk.revive(Fault::PowerCut { seed: 1 });
    assert_eq!(read(&disk, b"f").unwrap()[512], 8);
    disk.fail_reads(b"f", 512..513).unwrap();
    let file = disk.open(b"f", OpenHow::Read).unwrap();
    assert_eq!(Errno::from_io_error(&file.read_at(&mut [0; 88], 512).unwrap_err()), Some(Errno::IO));
    assert_eq!(file.read_at(&mut [0; 512], 0).unwrap(), 512);
    disk.heal_reads(b"f").unwrap();
    assert_eq!(file.read_at(&mut [0; 88], 512).unwrap(), 88);
}

#[test]
fn one_seed_gives_one_outcome() {
    let run = |seed| {
        let disk = SimDisk::new(seed);
        for n in 0..20u8 {
            let file = disk.open(&[b'a' + n], NEW).unwrap();
            file.write_at(&[n; 2000], u64::from(n) * 100).unwrap();
        }
        let disk = disk.revive(Fault::PowerCut { seed });
        (0..20u8).map(|n| read(&disk, &[b'a' + n])).collect::<Vec<_>>()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
