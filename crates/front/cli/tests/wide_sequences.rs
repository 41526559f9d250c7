//! Dangerous sequences of wide volumes that need more than a cut link: a site that the others have forgotten, a power cut, a clock that is
//! off. With real nodes, mounts and disks.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use atoll_needs::needs;
use common::sites::{Sites, names, tree};
use common::{Cluster, eventually, free_port, good, text};

fn shell(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

// ------------------------------------------------------------------- 5: a site that was forgotten

/// How a site says in `site list` that it is not connected with the first one.
fn refused(sites: &Sites, site: usize) -> String {
    sites.told(site, 0)["why"].as_str().unwrap_or_default().to_owned()
}

/// A new site at the node of the site `site`, in place of that one.
fn joins_anew(sites: &mut Sites, site: usize, name: &str, folder: &Path) {
    sites.stop(site);
    let data = sites.data(site);
    fs::remove_dir_all(&data).unwrap();
    sites.nodes.start(site);
    let line = sites.line();
    good(["site", "join", &line, "--data", text(&data), "--name", name, "--adopt", text(folder)]);
    sites.mount(site);
}

/// Sequence 5. The laptop is away and works on; the others forget it, and remove the directory in which it has changed one file.
#[test]
fn a_site_that_was_forgotten_harms_nobody_and_its_work_is_adopted_by_another_one() {
    let mut sites = Sites::new(3);
    let dir = sites.path(0, "d");
    fs::create_dir_all(dir.join("e")).unwrap();
    for name in ["d/edited", "d/e/removed", "d/also-removed", "changed", "same"] {
        fs::write(sites.path(0, name), name).unwrap();
    }
    sites.settle();
    let begun = SystemTime::now();
    std::thread::sleep(Duration::from_millis(20));
    // Nobody is at home while the laptop works.
    sites.stop(0);
    fs::write(sites.path(2, "d/edited"), "by the laptop").unwrap();
    sites.is_cut(2);
    sites.stop(2);
    sites.start(0);
    eventually("the second one is connected", || sites.is_connected(0, 1));
    good(["site", "forget", "s2", "--data", text(&sites.data(0))]);
    fs::remove_dir_all(sites.path(1, "d")).unwrap();
    fs::write(sites.path(1, "changed"), "by the second").unwrap();
    for site in [0, 1] {
        eventually("the others have removed it", || names(&sites.path(site, "")) == ["changed", "same"]);
        sites.has(site, "changed", b"by the second");
    }
    let others = tree(&sites.path(0, ""));

    sites.start(2);
    eventually("the laptop says why it is refused", || refused(&sites, 2).contains("forgotten"));
    let said = good(["site", "list", "--data", text(&sites.data(2))]);
    assert!(said.contains("atoll site join"), "what its users can do: {said}");
    assert_eq!(sites.told(0, 2)["condition"], "forgotten");
    assert_eq!(fs::read(sites.path(2, "d/edited")).unwrap(), b"by the laptop", "it keeps its files");
    fs::write(sites.path(2, "later"), "it works on").unwrap();
    std::thread::sleep(Duration::from_secs(3));
    for site in [0, 1] {
        assert_eq!(tree(&sites.path(site, "")), others, "nothing of it comes here");
    }

    // What it has changed since it was away is put aside, as docs/WIDE.md says.
    let point = sites.path(2, "");
    let kept = sites.data(2).with_extension("kept");
    fs::create_dir(&kept).unwrap();
    let all = sites.data(2).with_extension("all");
    shell(&["cp", "-a", text(&point), text(&all)]);
    let since = begun.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let copy = format!(
        "cd {} && find . -type f -newermt @{since:.3} -exec cp -a --parents {{}} {} \\;",
        text(&point),
        text(&kept)
    );
    shell(&["sh", "-c", &copy]);
    assert_eq!(tree(&kept).into_keys().collect::<Vec<_>>(), ["d", "d/edited", "later"]);
    joins_anew(&mut sites, 2, "laptop", &kept);
    for site in 0..3 {
        eventually("all have its work, and nothing that was removed", || {
            let shown = tree(&sites.path(site, ""));
            let expected = ["changed", "d", "d/edited", "later", "same"];
            shown.keys().eq(expected.iter()) && shown["d/edited"].as_deref() == Some(b"by the laptop")
        });
        sites.has(site, "changed", b"by the second");
    }

    // Who adopts the whole folder wants all of it: what was removed is back, and what was changed meanwhile has the old one beside it.
    joins_anew(&mut sites, 2, "whole", &all);
    for site in 0..3 {
        eventually("the whole folder is there", || {
            let shown = tree(&sites.path(site, ""));
            let marked = shown.keys().filter(|name| name.contains(".~")).count();
            let plain: Vec<&str> = shown.keys().map(String::as_str).filter(|n| !n.contains(".~")).collect();
            let expected =
                ["changed", "d", "d/also-removed", "d/e", "d/e/removed", "d/edited", "later", "same"];
            let versions: Vec<&[u8]> = shown
                .iter()
                .filter(|(name, _)| name.starts_with("changed"))
                .filter_map(|(_, bytes)| bytes.as_deref())
                .collect();
            plain == expected
                && marked == 1
                && versions.contains(&&b"by the second"[..])
                && versions.contains(&&b"changed"[..])
        });
    }
}

// ------------------------------------------------------------------- 8: a power cut

/// A file system of its own, whose power can be cut: what was not synced is gone.
struct PowerDisk(PathBuf);

impl PowerDisk {
    fn new(point: &Path) -> Self {
        let image = point.with_extension("img");
        File::create(&image).unwrap().set_len(512 << 20).unwrap();
        shell(&["mkfs.ext4", "-q", "-F", "-m", "0", text(&image)]);
        fs::create_dir_all(point).unwrap();
        let disk = Self(point.to_owned());
        disk.mount();
        disk
    }

    fn mount(&self) {
        let image = self.0.with_extension("img");
        shell(&["mount", "-o", "loop", text(&image), text(&self.0)]);
    }

    /// Nothing reaches the disk any more, also nothing of its journal.
    fn cut(&self) {
        shell(&["xfs_io", "-x", "-c", "shutdown", text(&self.0)]);
    }

    /// It is mounted again, by those who use it no more.
    fn restored(&self) {
        // Whoever was killed may not be gone for a moment.
        eventually("nobody uses it", || {
            Command::new("umount").arg(&self.0).output().is_ok_and(|told| told.status.success())
        });
        self.mount();
    }
}

impl Drop for PowerDisk {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// Sequence 8. A site's power is cut behind the fsync of one file, and between the answers of other operations and their sync. Its dots were
/// told to nobody then, and are given again to other changes.
#[test]
fn what_a_power_cut_takes_behind_an_fsync_was_told_to_nobody_and_sites_agree() {
    needs!(Mounts, LoopDevices, Programs(&["mkfs.ext4", "mount", "xfs_io"]));
    let mut nodes = Cluster::bare(1);
    let disk = PowerDisk::new(&nodes.data(1));
    nodes.nodes.push(None);
    nodes.addresses.push(format!("127.0.0.1:{}", free_port()));
    nodes.start(1);
    let mut sites = Sites::at(nodes);
    for name in ["here", "there", "here/moved"] {
        fs::create_dir(sites.path(1, name)).unwrap();
    }
    fs::write(sites.path(1, "here/moved/file"), "moves along").unwrap();
    fs::write(sites.path(1, "grows"), "").unwrap();
    sites.settle();
    let mut lost = Vec::new();
    for (round, wait) in [20, 50, 100, 300, 1500].into_iter().enumerate() {
        let at = |name: &str| sites.path(1, &format!("{name}-{round}"));
        fs::write(at("before"), format!("before {round}")).unwrap();
        let mut synced = File::create(at("synced")).unwrap();
        write!(synced, "synced {round}").unwrap();
        synced.sync_all().unwrap();
        // Answered, and not synced by anybody who waits for that.
        fs::hard_link(at("before"), at("linked")).unwrap();
        let sides = ["here", "there"].map(|side| sites.path(1, side).join("moved"));
        let (from, to) = if sides[0].exists() { (&sides[0], &sides[1]) } else { (&sides[1], &sides[0]) };
        fs::rename(from, to).unwrap();
        let mut grows = OpenOptions::new().append(true).open(sites.path(1, "grows")).unwrap();
        write!(grows, "{round};").unwrap();
        fs::write(sites.path(0, &format!("meanwhile-{round}")), "by the first").unwrap();
        let top = sites.path(1, "");
        let user = std::thread::spawn(move || {
            (0..).take_while(|n| fs::create_dir(top.join(format!("dir-{round}-{n}"))).is_ok()).count()
        });
        std::thread::sleep(Duration::from_millis(wait));
        disk.cut();
        sites.stop(1);
        let answered = user.join().unwrap();
        disk.restored();
        sites.start(1);
        let at = |name: &str| sites.path(1, &format!("{name}-{round}"));
        assert_eq!(fs::read_to_string(at("synced")).unwrap(), format!("synced {round}"));
        // The others have seen none of those that are gone, and get others under the same dots.
        let there =
            (0..answered).take_while(|n| at("dir").with_file_name(format!("dir-{round}-{n}")).exists());
        let there = there.count();
        lost.push(answered - there);
        fs::write(at("again"), format!("again {round}")).unwrap();
        fs::create_dir(at("other-dir")).unwrap();
        eventually("they are connected", || sites.is_connected(0, 1) && sites.is_connected(1, 0));
        sites.settle();
        let both = [0, 1].map(|site| tree(&sites.path(site, "")));
        assert_eq!(both[0], both[1], "round {round}");
        let marked: Vec<&String> = both[0].keys().filter(|name| name.contains(".~")).collect();
        assert!(marked.is_empty(), "nothing was changed at both: {marked:?}");
        let dirs = both[0].keys().filter(|name| name.starts_with(&format!("dir-{round}-"))).count();
        assert!(
            (there..=there + 1).contains(&dirs),
            "{dirs} of {answered}, the first {there}, and none behind them"
        );
        let has = |name: &str| both[0].get(&format!("{name}-{round}")).cloned().flatten();
        assert_eq!(has("synced"), Some(format!("synced {round}").into_bytes()));
        assert_eq!(has("again"), Some(format!("again {round}").into_bytes()));
        assert_eq!(has("meanwhile"), Some(b"by the first".to_vec()));
        let places = ["here/moved/file", "there/moved/file"].map(|path| both[0].contains_key(path));
        assert!(places[0] != places[1], "the moved directory is at one place: {places:?}");
        assert!(both[0].contains_key(&format!("other-dir-{round}")));
    }
    assert!(lost.iter().any(|lost| *lost > 0), "no power cut took anything: {lost:?}");
    drop(sites);
}

// ------------------------------------------------------------------- 15: a clock that is off

/// A library that shifts the time of day of a program that loads it before all others.
fn shifted_clock(dir: &Path, seconds: i64) -> PathBuf {
    let [source, library] = ["c", "so"].map(|end| dir.join(format!("clock{seconds}.{end}")));
    let code = format!(
        "#define _GNU_SOURCE\n#include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n\
         int clock_gettime(clockid_t id, struct timespec *told) {{\n\
         \x20   int failed = syscall(SYS_clock_gettime, id, told);\n\
         \x20   if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) told->tv_sec += {seconds}L;\n\
         \x20   return failed;\n}}\n"
    );
    fs::write(&source, code).unwrap();
    shell(&["cc", "-shared", "-fPIC", "-o", text(&library), text(&source)]);
    library
}

const DAY_S: i64 = 24 * 3600;

/// A site goes on with a clock that is off by so much.
fn goes_on_with_clock(sites: &mut Sites, site: usize, off_s: i64) {
    sites.stop(site);
    match off_s {
        0 => drop(sites.nodes.preloads.remove(&site)),
        off_s => {
            let library = shifted_clock(sites.data(site).parent().unwrap(), off_s);
            sites.nodes.preloads.insert(site, library);
        }
    }
    sites.start(site);
    eventually("they are connected", || sites.is_connected(0, 1) && sites.is_connected(1, 0));
}

/// What the second site's line says at the first one, in `site list` and in `status`.
fn lines(sites: &Sites) -> [String; 2] {
    let data = sites.data(0);
    [good(["site", "list", "--data", text(&data)]), good(["status", "--data", text(&data)])].map(|said| {
        let mut lines =
            said.lines().filter(|line| line.trim_start().trim_start_matches("site ").starts_with("s1"));
        lines.next().unwrap_or_else(|| panic!("no line of the site: {said}")).to_owned()
    })
}

/// Each site writes this file while they are cut off, the second one first. What it has then, and its copies.
fn both_write(sites: &Sites, name: &str) -> (Vec<u8>, usize) {
    sites.cut();
    fs::write(sites.path(1, name), "by the second").unwrap();
    sites.is_cut(1);
    std::thread::sleep(Duration::from_millis(50));
    fs::write(sites.path(0, name), "by the first, later").unwrap();
    sites.is_cut(0);
    sites.heal();
    sites.settle();
    let both = [0, 1].map(|site| tree(&sites.path(site, "")));
    assert_eq!(both[0], both[1]);
    let copies = both[0].keys().filter(|path| path.starts_with(&format!("{name}.~"))).count();
    (both[0][name].clone().unwrap(), copies)
}

/// Sequence 15, at a site whose clock is two days ahead for a while.
#[test]
fn a_site_whose_clock_is_days_ahead_is_named_and_wins_only_what_was_changed_at_once() {
    needs!(Mounts, Programs(&["cc"]));
    let mut sites = Sites::behind_a_relay(2);
    for name in ["one", "two", "three"] {
        fs::write(sites.path(0, name), "before").unwrap();
    }
    for name in ["a", "b", "c"] {
        fs::create_dir(sites.path(0, name)).unwrap();
    }
    sites.settle();
    assert!(lines(&sites).iter().all(|line| !line.contains("clock")), "{:?}", lines(&sites));
    goes_on_with_clock(&mut sites, 1, 2 * DAY_S);
    eventually("it is named", || lines(&sites).iter().all(|line| line.contains("its clock is 17")));
    let lines_of = lines(&sites);
    assert!(lines_of.iter().all(|line| line.contains(" s ahead")), "{lines_of:?}");
    assert!(sites.told(1, 0)["clock_behind_ms"].as_u64().unwrap() > 170_000_000);

    // Of what is changed at once it wins, though the first one was later. Nothing is lost by that.
    assert_eq!(both_write(&sites, "one"), (b"by the second".to_vec(), 1));
    // Who has seen what it did wins over that, with a clock of today.
    fs::write(sites.path(0, "one"), "by the first, who saw it").unwrap();
    fs::rename(sites.path(1, "a"), sites.path(1, "b/a")).unwrap();
    fs::write(sites.path(1, "two"), "by the second").unwrap();
    sites.has(1, "one", b"by the first, who saw it");
    sites.has(0, "two", b"by the second");
    eventually("the move is there", || sites.path(0, "b/a").exists());
    fs::rename(sites.path(0, "b/a"), sites.path(0, "c/a")).unwrap();
    fs::remove_file(sites.path(0, "two")).unwrap();
    sites.settle();
    for site in 0..2 {
        sites.has(site, "one", b"by the first, who saw it");
        assert!(sites.path(site, "c/a").exists() && !sites.path(site, "b/a").exists());
        assert!(!sites.path(site, "two").exists());
    }

    // The clock is right again.
    goes_on_with_clock(&mut sites, 1, 0);
    eventually("it is not named any more", || lines(&sites).iter().all(|line| !line.contains("clock")));
    fs::write(sites.path(1, "one"), "by the second, again").unwrap();
    sites.has(0, "one", b"by the second, again");
    // Who keeps the name is as in "one" for two days: its own clock is behind what it has given (known fault 30 of the design).
    assert_eq!(both_write(&sites, "three").1, 1, "both versions are there");
}

/// A clock that is years off, such as that of a machine whose battery is empty: nothing hangs, and nothing is lost.
#[test]
fn a_site_whose_clock_is_years_off_works_on_and_nothing_is_lost() {
    needs!(Mounts, Programs(&["cc"]));
    let mut sites = Sites::behind_a_relay(2);
    sites.settle();
    for (nth, years) in [30_i64, -40].into_iter().enumerate() {
        goes_on_with_clock(&mut sites, 1, years * 365 * DAY_S);
        let word = if years > 0 { " s ahead" } else { " s behind" };
        eventually("it is named", || lines(&sites).iter().all(|line| line.contains(word)));
        let [own, both, dir] = ["own", "both", "dir"].map(|name| format!("{name}{nth}"));
        fs::write(sites.path(1, &own), "by the second").unwrap();
        fs::create_dir(sites.path(1, &dir)).unwrap();
        fs::write(sites.path(0, &both), "before").unwrap();
        sites.has(0, &own, b"by the second");
        sites.has(1, &both, b"before");
        let (_, copies) = both_write(&sites, &both);
        assert_eq!(copies, 1, "both versions are there");
        fs::write(sites.path(0, &own), "by the first").unwrap();
        sites.has(1, &own, b"by the first");
        fs::rename(sites.path(0, &own), sites.path(0, &format!("{dir}/moved"))).unwrap();
        sites.has(1, &format!("{dir}/moved"), b"by the first");
        fs::remove_dir_all(sites.path(1, &dir)).unwrap();
        eventually("it is removed", || !sites.path(0, &dir).exists());
    }
    goes_on_with_clock(&mut sites, 1, 0);
    fs::write(sites.path(1, "after"), "by the second").unwrap();
    sites.has(0, "after", b"by the second");
    sites.settle();
    assert_eq!(tree(&sites.path(0, "")), tree(&sites.path(1, "")));
}
