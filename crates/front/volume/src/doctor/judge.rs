//! What the findings about a machine and its node mean, from numbers alone.

use std::path::Path;
use std::time::Duration;

use atoll_etcd::EtcdAlarm;
use atoll_proto::control::{Connection, IslandPhase, VolumeStatus};

use super::Diagnosis;
use crate::status::first_line;

const CLOCK: &str = "clock";
const DISK: &str = "disk";
const SPACE: &str = "space";
const FUSE: &str = "fuse";
const NODE: &str = "node";
const PORT: &str = "port";
const NODES: &str = "nodes";
const VERSIONS: &str = "versions";
const CA_KEY: &str = "CA key";
const CERTIFICATE: &str = "certificate";
const ETCD: &str = "etcd";

/// Clocks that differ by more are wrong: people and programs notice it in the times of files.
const OFFSET_MS_MAX: u64 = 5_000;

/// A sync that often takes longer makes every program wait that syncs.
const SYNC_GOOD: Duration = Duration::from_millis(50);

/// A sync that mostly takes longer is no use.
const SYNC_BAD: Duration = Duration::from_millis(500);

/// Less free space than this share of the disk is told in time.
const SPACE_GOOD: u64 = 10;

/// Atoll keeps a part of the disk for its logs: this share of it, and no more than so many bytes.
const RESERVE: (u64, u64) = (32, 256 << 20);

/// Fewer files than this are soon used up.
const FILES_GOOD: u64 = 100_000;

const DAY: u64 = 24 * 60 * 60;

/// A node renews its certificate when 30 days are left. If it has fewer, that does not work.
const RENEWAL_DAYS: u64 = 29;

/// A certificate that ends so soon is to be renewed now.
const SOON_DAYS: u64 = 7;

/// How far another clock is from the one here, in milliseconds. The way of the question and its answer is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offset {
    is_ahead: bool,
    ms: u64,
}

impl Offset {
    /// Of a clock that told `there` at a moment between two moments here.
    pub(super) fn between(before: u64, there: u64, after: u64) -> Self {
        let is_ahead = there > after;
        let ms = if is_ahead { there - after } else { before.saturating_sub(there) };
        Self { is_ahead, ms }
    }
}

pub(super) fn clock(is_synchronised: bool, others: &[(String, Offset)]) -> Diagnosis {
    let worst = others.iter().max_by_key(|(_, offset)| offset.ms);
    if let Some((name, Offset { is_ahead, ms })) = worst.filter(|(_, offset)| offset.ms > OFFSET_MS_MAX) {
        let way = if *is_ahead { "ahead of" } else { "behind" };
        return Diagnosis::wrong(
            CLOCK,
            format!("the clock of {name} is {:.1} s {way} the one here", *ms as f64 / 1000.0),
            "Have all machines synchronise their clocks: install chrony or systemd-timesyncd. Certificates and times of files depend on it.",
        );
    }
    let others = match others.len() {
        0 => String::new(),
        n => format!(", and {n} other nodes have the same time"),
    };
    match is_synchronised {
        true => Diagnosis::good(CLOCK, format!("it is synchronised{others}")),
        false => Diagnosis::advice(
            CLOCK,
            format!("nothing synchronises it{others}"),
            "Install chrony or systemd-timesyncd. In a virtual machine or container, see that the host does it.",
        ),
    }
}

/// How long syncs took.
#[derive(Debug)]
pub(super) struct Speed {
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) count: usize,
}

pub(super) fn sync(speed: &Speed) -> Diagnosis {
    let Speed { p50, p99, count } = speed;
    let ms = |time: &Duration| time.as_secs_f64() * 1000.0;
    let what =
        format!("a sync of 4 KiB takes {:.2} ms (p50) and {:.2} ms (p99 of {count})", ms(p50), ms(p99));
    if *p50 > SYNC_BAD {
        return Diagnosis::wrong(
            DISK,
            what,
            "Nothing that syncs can be used so. Is the disk failing (dmesg, smartctl), or does something else use it all?",
        );
    }
    if *p99 > SYNC_GOOD {
        return Diagnosis::advice(
            DISK,
            what,
            "Each fsync of a program waits at least so long. A disk with protection against power loss is faster. See what else uses it: iostat -x",
        );
    }
    Diagnosis::good(DISK, what)
}

pub(super) fn not_written(why: &anyhow::Error) -> Diagnosis {
    Diagnosis::wrong(
        DISK,
        format!("it cannot be written and synced: {why:#}"),
        "Is it full, read-only or failing? dmesg has what the kernel says. Only the data directory's owner may try it.",
    )
}

pub(super) fn memory(is_in_memory: bool) -> Diagnosis {
    match is_in_memory {
        true => Diagnosis::wrong(
            DISK,
            "the data directory is in memory, so everything in it is lost when the machine stops",
            "Give the node a data directory on a disk.",
        ),
        false => Diagnosis::good(DISK, "the data directory is on a disk"),
    }
}

/// The room on a disk.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) bytes: u64,
    pub(super) bytes_free: u64,
    pub(super) files: u64,
    pub(super) files_free: u64,
}

pub(super) fn space(space: &Space) -> Diagnosis {
    let Space { bytes, bytes_free, files, files_free } = space;
    let mib = |bytes: &u64| bytes >> 20;
    let what = format!("{} MiB of {} are free", mib(bytes_free), mib(bytes));
    // Some file systems have no bound of files, and say 0.
    if *files > 0 && *files_free == 0 {
        let next = "Remove files, or use a file system with more inodes. No file can be made.";
        return Diagnosis::wrong(SPACE, format!("{what}, and the file system has no free inode"), next);
    }
    if *bytes_free <= (bytes / RESERVE.0).min(RESERVE.1) {
        let next = "Remove files or snapshots, or what other programs keep there. Only what makes room is possible until then.";
        return Diagnosis::wrong(SPACE, format!("{what}: no more than Atoll keeps for its logs"), next);
    }
    if *files > 0 && *files_free < FILES_GOOD {
        let next = "Remove files, or use a file system with more inodes.";
        return Diagnosis::advice(SPACE, format!("{what}, and {files_free} free inodes"), next);
    }
    if *bytes_free < bytes / SPACE_GOOD {
        return Diagnosis::advice(SPACE, what, "Make room before it is full.");
    }
    Diagnosis::good(SPACE, what)
}

/// Whether this user can mount.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fuse {
    /// There is no device.
    Missing,
    /// This user may not open it.
    Closed,
    /// Users other than root need a program that is missing.
    NoHelper,
    /// Yes.
    Ready,
}

pub(super) fn fuse(found: &Fuse) -> Diagnosis {
    match found {
        Fuse::Missing => Diagnosis::wrong(
            FUSE,
            "there is no /dev/fuse, so nothing can be mounted here",
            "Load the kernel module (modprobe fuse), or give the device to the container. \"atoll nfs\" works without it.",
        ),
        Fuse::Closed => Diagnosis::wrong(
            FUSE,
            "this user may not open /dev/fuse",
            "Mount as root, or have udev give the device mode 0666, as most systems do.",
        ),
        Fuse::NoHelper => Diagnosis::wrong(
            FUSE,
            "fusermount3 is missing, which users other than root need to mount",
            "Install the package fuse3, or mount as root.",
        ),
        Fuse::Ready => Diagnosis::good(FUSE, "this user can mount"),
    }
}

pub(super) fn daemon_down(data: &Path, why: &str) -> Diagnosis {
    Diagnosis::wrong(
        NODE,
        format!("no daemon answers on the data directory {}: {why}", data.display()),
        "Start it: systemctl start atoll. Its log says why it has ended: journalctl -u atoll. Other nodes were not asked.",
    )
}

pub(super) fn own_port(address: &str, why: &str) -> Diagnosis {
    Diagnosis::wrong(
        PORT,
        format!("this node cannot be reached at {address}, where others look for it: {why}"),
        "Does the daemon listen there (--listen), and does a firewall let it through? If the node has moved, tell the others: atoll node set-address NODE HOST:PORT",
    )
}

pub(super) fn other_at_own(address: &str) -> Diagnosis {
    Diagnosis::wrong(
        PORT,
        format!("another daemon answers at {address}, where others look for this node"),
        "Stop the other daemon, or give it another port. Two machines may have the same address.",
    )
}

pub(super) fn node_down(name: &str, why: &str) -> Diagnosis {
    Diagnosis::wrong(
        NODES,
        format!("{name} does not answer: {why}"),
        "Start its daemon, and see that its port can be reached from here. \"atoll doctor\" there says more.",
    )
}

/// The ways by which another node reaches this one, for each volume of both.
pub(super) fn way(name: &str, ways: &[Connection]) -> Option<Diagnosis> {
    if ways.contains(&Connection::Down) {
        return Some(Diagnosis::wrong(
            PORT,
            format!("{name} cannot reach this node"),
            "Open this node's port for it in the firewalls of both machines and between them.",
        ));
    }
    ways.contains(&Connection::Relayed).then(|| {
        Diagnosis::advice(
            PORT,
            format!("{name} reaches this node only through a third one"),
            "Open this node's port for it: a direct way is faster.",
        )
    })
}

pub(super) fn all_answer(count: usize) -> Diagnosis {
    match count {
        0 => Diagnosis::good(NODES, "no other node is known"),
        n => Diagnosis::good(NODES, format!("all {n} answer, this one included")),
    }
}

/// Names of nodes with their programs, and the program that asks.
pub(super) fn versions(told: &[(String, String)], own: &str) -> Diagnosis {
    let other: Vec<String> = told
        .iter()
        .filter(|(_, software)| software != own)
        .map(|(name, software)| format!("{name} has {software}"))
        .collect();
    if other.is_empty() {
        return Diagnosis::good(VERSIONS, format!("everything is {own}"));
    }
    Diagnosis::advice(
        VERSIONS,
        format!("this program is {own}, and {}", other.join(", ")),
        "Finish the upgrade: install the same version everywhere, and restart node after node.",
    )
}

pub(super) fn ca_key(keepers: usize, nodes: usize) -> Diagnosis {
    let what = format!("{keepers} of {nodes} nodes keep the CA's private key");
    match (keepers, nodes) {
        (0, _) => Diagnosis::wrong(
            CA_KEY,
            what,
            "Restore ca.key in the data directory of a node from a backup: without it no certificate can be renewed.",
        ),
        (1, 1) => Diagnosis::advice(
            CA_KEY,
            what,
            "Let a second node join, or back up ca.key of the data directory, and keep it secret.",
        ),
        (1, _) => Diagnosis::wrong(
            CA_KEY,
            what,
            "If that node is lost, nobody can join and no certificate can be renewed. Let another node join, or back up its ca.key.",
        ),
        _ => Diagnosis::good(CA_KEY, what),
    }
}

/// A member of the etcd with the records of groups.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) host: String,
    /// Its version, and whether it knows a leader; or why it does not answer.
    pub(super) told: Result<(String, bool), String>,
}

/// What is wrong with members.
pub(super) fn etcd_members(members: &[Member]) -> Vec<Diagnosis> {
    let silent: Vec<String> = members
        .iter()
        .filter_map(|member| Some(format!("{}: {}", member.host, member.told.as_ref().err()?)))
        .collect();
    if silent.len() == members.len() {
        return vec![Diagnosis::wrong(
            ETCD,
            format!("no member of etcd answers: {}", silent.join("; ")),
            "Start it: files are served, but no other copy can begin to lead until it is back. Of the cluster's own etcd, etcd.log in the data directory of its nodes says why it does not run.",
        )];
    }
    let mut all = Vec::new();
    if !silent.is_empty() {
        all.push(Diagnosis::wrong(
            ETCD,
            format!(
                "{} of {} members of etcd do not answer: {}",
                silent.len(),
                members.len(),
                silent.join("; ")
            ),
            "Start them: if one more fails, groups may not change any more.",
        ));
    }
    let told = || members.iter().filter_map(|member| member.told.as_ref().ok());
    if told().any(|(_, has_leader)| !has_leader) {
        all.push(Diagnosis::wrong(
            ETCD,
            "etcd has no leader, so no group can change",
            "More than half of its members must run and reach each other: atoll control status",
        ));
    }
    let mut versions: Vec<&str> = told().map(|(version, _)| version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() > 1 {
        all.push(Diagnosis::advice(
            ETCD,
            format!("its members have the versions {}", versions.join(", ")),
            "Finish the upgrade: the same version on all, one member after the other.",
        ));
    }
    all
}

pub(super) fn etcd_alarm(alarm: EtcdAlarm) -> Diagnosis {
    match alarm {
        EtcdAlarm::NoSpace => Diagnosis::wrong(
            ETCD,
            "etcd is full, and takes no change: no group can change",
            "Make room there: etcdctl compact, etcdctl defrag, etcdctl alarm disarm. A greater --quota-backend-bytes helps if other programs use it too.",
        ),
        EtcdAlarm::Corrupt => Diagnosis::wrong(
            ETCD,
            "the data of a member of etcd differs from that of the others",
            "Take that member out and add it anew with empty data: etcdctl alarm list, etcdctl member remove, etcdctl member add",
        ),
        EtcdAlarm::Other(number) => Diagnosis::wrong(
            ETCD,
            format!("etcd has the alarm {number}, which this program does not know"),
            "See what it means: etcdctl alarm list",
        ),
    }
}

/// So many members have a vote, and all is well with them.
pub(super) fn etcd_voters(voters: usize, version: &str, is_own: bool) -> Diagnosis {
    let what = match voters {
        1 => format!("etcd {version} answers, and has one member"),
        n => format!("all {n} members of etcd {version} answer, and have a leader"),
    };
    let next = match (voters, is_own) {
        (3.., _) => return Diagnosis::good(ETCD, what),
        (_, true) => {
            "If the machine of one member is lost the records of groups are too, and are made anew by hand (atoll control rebuild). With three nodes that have etcd installed there are three members."
        }
        (_, false) => "Let it have three members: with fewer the loss of one is that of all.",
    };
    Diagnosis::advice(ETCD, what, next)
}

/// A certificate that ends at `until`, in seconds since 1970.
pub(super) fn certificate(file: &Path, until: u64, now: u64, is_node: bool) -> Diagnosis {
    let (file, days) = (file.display(), until.saturating_sub(now) / DAY);
    let next = match is_node {
        true => {
            "The node renews it by itself if its daemon runs and reaches a node with the CA's key. Its log says why it does not."
        }
        false => "Make another one on a node: atoll client add NAME --out FILE",
    };
    if until <= now {
        return Diagnosis::wrong(CERTIFICATE, format!("{file} has ended: nobody lets this machine in"), next);
    }
    let what = format!("{file} is valid for {days} more days");
    if days < SOON_DAYS {
        return Diagnosis::wrong(CERTIFICATE, what, next);
    }
    if days < RENEWAL_DAYS {
        return Diagnosis::advice(CERTIFICATE, what, next);
    }
    Diagnosis::good(CERTIFICATE, what)
}

/// What a node says of its part of a volume.
pub(super) fn volume(volume: &VolumeStatus) -> Vec<Diagnosis> {
    let name = &volume.volume.name;
    let mut all = Vec::new();
    if let Some(problem) = &volume.volume.problem {
        all.push(Diagnosis::wrong(
            NODE,
            format!("volume {name} is not served: {}", first_line(problem)),
            "See the log of the node, and: atoll check --data DATA (while the node is stopped)",
        ));
    }
    for island in &volume.islands {
        if let Some(why) = &island.halted
            && island.phase == IslandPhase::Opening
        {
            let next: Vec<&str> = why.lines().skip(1).map(str::trim).collect();
            all.push(Diagnosis::wrong(
                NODE,
                format!("island {} of volume {name} is not served: {}", island.island, first_line(why)),
                next.join(" "),
            ));
        } else if let Some(why) = &island.halted {
            all.push(Diagnosis::wrong(
                NODE,
                format!("island {} of volume {name} has halted: {}", island.island, first_line(why)),
                "Mend its disk, and restart the node: every change that was acknowledged is there.",
            ));
        }
        if let Some((lack, _)) = &island.read_only {
            all.push(Diagnosis::wrong(
                SPACE,
                format!(
                    "island {} of volume {name} is read-only: the disk has no space for {lack}",
                    island.island
                ),
                "Make room on the disk. The island goes on by itself.",
            ));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level::{self, Advice, Good, Wrong};

    #[test]
    fn etcd_is_well_with_three_members_that_have_a_leader_and_no_alarm() {
        let member = |told: Result<(&str, bool), &str>| Member {
            host: "n:7102".to_owned(),
            told: told.map(|(version, leads)| (version.to_owned(), leads)).map_err(str::to_owned),
        };
        let (well, away) = (|| member(Ok(("3.4.23", true))), || member(Err("no answer")));
        assert_eq!(etcd_members(&[well(), well(), well()]), []);
        for (members, level, word) in [
            (vec![away(), away()], Level::Wrong, "no member of etcd answers: n:7102: no answer; n:7102"),
            (vec![well(), away(), well()], Level::Wrong, "1 of 3 members of etcd do not answer: n:7102"),
            (vec![member(Ok(("3.4.23", false))), well()], Level::Wrong, "no leader"),
            (vec![member(Ok(("3.5.1", true))), well()], Level::Advice, "3.4.23, 3.5.1"),
        ] {
            let found = etcd_members(&members);
            assert!(
                matches!(&found[..], [one] if one.level == level && one.what.contains(word)),
                "{found:?}"
            );
        }
        assert!(etcd_alarm(EtcdAlarm::NoSpace).what.contains("is full"));
        assert!(etcd_alarm(EtcdAlarm::Corrupt).what.contains("differs"));
        assert!(etcd_alarm(EtcdAlarm::Other(7)).what.contains("alarm 7"));
        let level = |voters| etcd_voters(voters, "3.4.23", true).level;
        assert_eq!([1, 2, 3, 5].map(level), [Level::Advice, Level::Advice, Level::Good, Level::Good]);
    }

    fn of(diagnosis: &Diagnosis) -> Level {
        assert_eq!(diagnosis.next.is_empty(), diagnosis.level == Good, "{diagnosis:?}");
        diagnosis.level
    }

    #[test]
    fn a_clock_is_compared_with_the_moments_between_which_it_was_asked() {
        let offset = |there| Offset::between(100_000, there, 103_000);
        assert_eq!(offset(101_000).ms, 0);
        assert_eq!(offset(104_000), Offset { is_ahead: true, ms: 1_000 });
        assert_eq!(offset(93_000), Offset { is_ahead: false, ms: 7_000 });
        let clock = |there| clock(true, &[("a".into(), offset(101_000)), ("b".into(), offset(there))]);
        assert_eq!(of(&clock(107_000)), Good);
        let found = clock(109_500);
        assert_eq!((of(&found), &*found.what), (Wrong, "the clock of b is 6.5 s ahead of the one here"));
        let found = clock(93_000);
        assert_eq!((of(&found), &*found.what), (Wrong, "the clock of b is 7.0 s behind the one here"));
        assert_eq!(of(&super::clock(false, &[])), Advice);
    }

    #[test]
    fn a_slow_disk_is_told() {
        let speed = |p50, p99| {
            let (p50, p99) = (Duration::from_millis(p50), Duration::from_millis(p99));
            of(&sync(&Speed { p50, p99, count: 200 }))
        };
        assert_eq!(speed(1, 50), Good);
        assert_eq!(speed(1, 51), Advice);
        assert_eq!(speed(501, 600), Wrong);
        assert_eq!((of(&memory(false)), of(&memory(true))), (Good, Wrong));
    }

    #[test]
    fn a_disk_that_fills_is_told_before_it_is_full() {
        let of = |bytes_free, files_free| {
            of(&space(&Space { bytes: 100 << 30, bytes_free, files: 1 << 20, files_free }))
        };
        assert_eq!(of(10 << 30, 1 << 20), Good);
        assert_eq!(of((10 << 30) - 1, 1 << 20), Advice);
        assert_eq!(of(256 << 20, 1 << 20), Wrong);
        assert_eq!(of(50 << 30, 99_999), Advice);
        assert_eq!(of(50 << 30, 0), Wrong);
        let unbounded = Space { bytes: 10, bytes_free: 5, files: 0, files_free: 0 };
        assert_eq!(space(&unbounded).level, Good);
    }

    #[test]
    fn each_reason_why_nobody_can_mount_has_its_remedy() {
        for found in [Fuse::Missing, Fuse::Closed, Fuse::NoHelper] {
            assert_eq!(of(&fuse(&found)), Wrong, "{found:?}");
        }
        assert_eq!(of(&fuse(&Fuse::Ready)), Good);
    }

    #[test]
    fn the_key_of_the_ca_lies_on_more_than_one_node() {
        let level = |keepers, nodes| of(&ca_key(keepers, nodes));
        assert_eq!((level(1, 1), level(1, 2), level(2, 2), level(3, 9)), (Advice, Wrong, Good, Good));
        assert_eq!(level(0, 3), Wrong);
    }

    #[test]
    fn a_certificate_that_ends_soon_is_told() {
        let now = 1_000 * DAY;
        let level = |until, is_node| of(&certificate(Path::new("/c"), until, now, is_node));
        assert_eq!(level(now + 90 * DAY, true), Good);
        // It is renewed when 30 days are left, and that may take a while.
        assert_eq!(level(now + 29 * DAY, true), Good);
        assert_eq!(level(now + 29 * DAY - 1, true), Advice);
        assert_eq!(level(now + 7 * DAY - 1, false), Wrong);
        assert_eq!(level(now, true), Wrong);
    }

    #[test]
    fn a_way_that_is_cut_or_leads_through_a_third_node_is_told() {
        let level = |ways: &[Connection]| way("b", ways).map(|found| of(&found));
        assert_eq!(level(&[]), None);
        assert_eq!(level(&[Connection::Direct]), None);
        assert_eq!(level(&[Connection::Direct, Connection::Relayed]), Some(Advice));
        assert_eq!(level(&[Connection::Relayed, Connection::Down]), Some(Wrong));
    }

    #[test]
    fn other_versions_are_named() {
        let told = |other: &str| [("a".into(), "atoll 1".into()), ("b".into(), other.to_owned())];
        assert_eq!(of(&versions(&told("atoll 1"), "atoll 1")), Good);
        let found = versions(&told("atoll 2"), "atoll 1");
        assert_eq!((of(&found), &*found.what), (Advice, "this program is atoll 1, and b has atoll 2"));
    }
}
