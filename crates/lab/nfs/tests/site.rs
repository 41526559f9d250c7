//! A site of a wide volume that `atoll nfs` serves, through the client: what another site changes is read, and what is written is everywhere.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_fuse::{Config, Locks, MountOptions, Mounted};
use atoll_lab_nfs::{Export, NfsFiles, Ways};
use atoll_needs::{free_port, needs};
use atoll_torture::daemon::binary;
use atoll_torture::place::Place;
use atoll_torture::process::{LIFE_MAX, PATIENCE, Process};
use atoll_torture::sites::Sites;
use atoll_torture::tree::{Detail, differences, list};

/// How long a change may take to the other site.
const SEEN: Duration = Duration::from_secs(60);

/// The server of a site's volume: a process of its own beside the node.
fn serves(sites: &Sites, site: usize, place: &Place) -> (Process, Export) {
    let at = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(binary());
    command.arg("nfs").arg("--data").arg(sites.data(site)).args(["--listen", &at]);
    command.args(["--export", "127.0.0.1(no_root_squash)"]);
    let mut server = Process::spawn(&mut command, place.join("nfs.log"), LIFE_MAX).unwrap();
    let is_ready = |server: &Process| server.said().lines().any(|line| line.starts_with("stop"));
    server.wait_until("it serves", PATIENCE, is_ready).unwrap();
    (server, Export::parse(&format!("{at}/docs")).unwrap())
}

/// Mounts it through the client, which keeps nothing.
fn mounts(export: &Export, point: &Path) -> Mounted {
    fs::create_dir_all(point).unwrap();
    let files = Arc::new(NfsFiles::connect(export, Ways::default()).unwrap());
    let options = MountOptions { set_id: true, devices: true, ..MountOptions::new("nfs") };
    Mounted::new(files, point, &options, Config { locks: Locks::Local, ..Config::default() }).unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + SEEN;
    while !holds() {
        assert!(Instant::now() < until, "it never came true: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn has(path: &Path, bytes: &[u8]) {
    until(&format!("{} has its bytes", path.display()), || fs::read(path).is_ok_and(|there| there == bytes));
}

fn bytes(len: u32, seed: u32) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8).collect()
}

/// What a user of NFS does in a directory, all of it over the wire.
fn works(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for n in 0..40_u32 {
        let path = dir.join(format!("f{n}"));
        fs::write(&path, bytes(n * 2000, n)).unwrap();
        match n % 5 {
            0 => fs::rename(&path, dir.join(format!("renamed{n}"))).unwrap(),
            1 => fs::remove_file(&path).unwrap(),
            2 => fs::hard_link(&path, dir.join(format!("linked{n}"))).unwrap(),
            3 => OpenOptions::new().append(true).open(&path).unwrap().write_all(b"appended").unwrap(),
            _ => fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap(),
        }
    }
    fs::create_dir(dir.join("sub")).unwrap();
    fs::rename(dir.join("renamed0"), dir.join("sub/moved")).unwrap();
    std::os::unix::fs::symlink("sub/moved", dir.join("link")).unwrap();
}

#[test]
fn a_site_is_served_to_nfs_clients_who_see_and_make_changes_of_all_sites() {
    needs!(Mounts);
    let place = Place::new("nfs-site").unwrap();
    let sites = Sites::start(place.path(), 2).unwrap();
    let (mut server, export) = serves(&sites, 1, &place);
    let point = place.join("nfs");
    let mounted = mounts(&export, &point);
    let far = |name: &str| sites.mount(0).join(name);
    let here = |name: &str| -> PathBuf { point.join(name) };

    // What the other site makes, changes, renames and removes.
    fs::create_dir(far("d")).unwrap();
    fs::write(far("d/a"), "made far away").unwrap();
    let large = bytes(3_000_000, 1);
    fs::write(far("large"), &large).unwrap();
    has(&here("d/a"), b"made far away");
    has(&here("large"), &large);
    let (mut open, mut removed) = (File::open(here("d/a")).unwrap(), File::open(here("large")).unwrap());
    fs::write(far("d/a"), "changed far away").unwrap();
    has(&here("d/a"), b"changed far away");
    fs::rename(far("d"), far("e")).unwrap();
    fs::set_permissions(far("e/a"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(far("large")).unwrap();
    until("the rename and the removal", || {
        here("e/a").exists() && !here("d").exists() && !here("large").exists()
    });
    until("the mode", || fs::metadata(here("e/a")).is_ok_and(|meta| meta.mode() & 0o777 == 0o600));
    // A handle of what other bytes have replaced, or what was removed, is of those bytes or of nothing: never of others.
    let mut said = String::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    if open.read_to_string(&mut said).is_ok() {
        assert!(["made far away", "changed far away"].contains(&said.as_str()), "{said}");
    }
    let mut read = Vec::new();
    if removed.read_to_end(&mut read).is_ok() {
        assert!(read == large, "{} bytes of what was removed", read.len());
    }
    drop((open, removed));

    // What the client makes.
    works(&here("mine"));
    let mut synced = File::create(here("synced")).unwrap();
    synced.write_all(&large).unwrap();
    synced.sync_all().unwrap();
    has(&far("synced"), &large);
    has(&far("mine/sub/moved"), b"");
    // In place, in the middle: what is left of the file stays.
    let mut inside = OpenOptions::new().write(true).open(here("synced")).unwrap();
    inside.seek(SeekFrom::Start(1_000_000)).unwrap();
    inside.write_all(b"inside").unwrap();
    drop(inside);
    let mut expected = large.clone();
    expected[1_000_000..1_000_006].copy_from_slice(b"inside");
    has(&far("synced"), &expected);
    // One after the other, each of them having seen the other one's: no conflict.
    for n in 0..4 {
        let [one, other] =
            if n % 2 == 0 { [here("turns"), far("turns")] } else { [far("turns"), here("turns")] };
        let word = format!("turn {n}");
        fs::write(one, &word).unwrap();
        has(&other, word.as_bytes());
    }

    // Both at once.
    let (_, changes) = sites
        .while_changing(0, 9, || {
            (0..5).for_each(|n| works(&here(&format!("busy{n}"))));
            Ok(())
        })
        .unwrap();
    assert!(changes > 20, "{changes}");
    let tree = sites.agree(Duration::from_secs(120)).unwrap();
    let names = || tree.keys().map(|path| String::from_utf8_lossy(path));
    assert!(
        names().all(|path| !path.contains(".~")),
        "nothing was changed at both: {:?}",
        names().collect::<Vec<_>>()
    );
    let over_nfs = list(&point, Detail { bytes: true, atime: false }).unwrap();
    let at_the_far_site = list(sites.mount(0), Detail { bytes: true, atime: false }).unwrap();
    let differ = differences(&over_nfs, &at_the_far_site);
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    drop(mounted);
    server.stop().unwrap();
    sites.stop().unwrap();
}
