//! The cluster's own etcd: members that are supervised, grow from one to three, and are replaced.

mod cluster;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use atoll_control::GroupStore;
use atoll_control::conformance::record;
use atoll_core::{IslandId, VolumeId};
use atoll_etcd::{
    Beginning, EtcdAdmin, EtcdAlarm, EtcdCare, EtcdMember, EtcdSource, EtcdStore, Grown, Happened,
    MemberPlan, Supervised, VOTERS, grow,
};
use atoll_needs::needs;
use atoll_proto::group::{Revision, Swapped};
use atoll_rpc::ClusterId;
use rustix::process::{Pid, Signal, kill_process};

use cluster::{Cluster, LONG, certificates, plan, tls, wait_for};

const VOLUME: VolumeId = VolumeId(7);

fn source(plans: &[MemberPlan]) -> EtcdSource {
    EtcdSource::plain(plans.iter().map(|p| format!("127.0.0.1:{}", p.client_port).parse().unwrap()).collect())
}

/// Starts a member, as its caller does: until it is there.
fn start(member: &mut Supervised) {
    let happened = member.tend();
    assert!(matches!(happened[..], [Happened::Started { .. }]), "{happened:?}");
}

/// Makes the store, once etcd is there.
fn make(source: &EtcdSource) -> EtcdStore {
    let store = EtcdStore::open(source, ClusterId(1)).unwrap();
    wait_for("the store is made", || store.make().is_ok());
    store
}

fn swap(store: &EtcdStore, epoch: u32) -> Revision {
    let until = Instant::now() + LONG;
    loop {
        assert!(Instant::now() < until, "no swap is done");
        let Ok(found) = store.group(VOLUME, IslandId(0)) else { continue };
        if found.as_ref().is_some_and(|found| found.record.epoch == epoch) {
            return found.unwrap().revision;
        }
        let seen = found.map_or(Revision::NONE, |found| found.revision);
        if let Swapped::Done { revision } = store.swap_group(VOLUME, IslandId(0), seen, &record(epoch)) {
            return revision;
        }
    }
}

fn kill(member: &Supervised) {
    kill_process(Pid::from_raw(member.pid().unwrap() as i32).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn a_member_that_was_killed_is_started_again_with_its_data_and_ends_with_its_parent() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path(), "m0", None);
    let source = source(std::slice::from_ref(&plan));
    let mut member = Supervised::new(plan.clone());
    assert!(member.due().unwrap() <= Instant::now());
    start(&mut member);
    assert_eq!((member.due(), member.tend().len()), (None, 0), "nothing is to be done while it runs");
    let store = make(&source);
    let at = swap(&store, 1);

    // A daemon is forked from its parent, and ends.
    // SAFETY: the child only drops its copy of the member, and ends without a destructor.
    let daemon = unsafe { libc::fork() };
    if daemon == 0 {
        drop(member);
        // SAFETY: it ends this process.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is a place for the status of a child of this process.
    assert_eq!(unsafe { libc::waitpid(daemon, &mut status, 0) }, daemon);
    assert_eq!(status, 0);
    sleep(Duration::from_millis(300));
    assert!(member.tend().is_empty(), "the member is not the daemon's");

    kill(&member);
    let mut happened = Vec::new();
    wait_for("it is started again", || {
        happened.append(&mut member.tend());
        happened.len() == 2
    });
    assert!(matches!(happened[..], [Happened::Died { .. }, Happened::Started { .. }]), "{happened:?}");
    wait_for("it answers", || store.group(VOLUME, IslandId(0)).is_ok());
    assert_eq!(store.group(VOLUME, IslandId(0)).unwrap().unwrap().revision, at);

    // A snapshot of it is one that etcd's own command takes.
    let snapshot = folder.path().join("snapshot.db");
    let admin = EtcdAdmin::open(&source).unwrap();
    let care =
        EtcdCare::start(EtcdAdmin::open(&source).unwrap(), snapshot.clone(), Duration::from_secs(3600))
            .unwrap();
    wait_for("the first snapshot", || snapshot.exists());
    assert_eq!(std::fs::metadata(&snapshot).unwrap().permissions().mode() & 0o777, 0o600);
    drop(care);
    admin.snapshot(&snapshot).unwrap();
    let mut other = Cluster::start(1);
    other.kill(0);
    fs::remove_dir_all(&other.members[0].plan.data).unwrap();
    other.restore(0, &snapshot);
    other.begin(0);
    let restored = EtcdStore::open(&other.source(), ClusterId(1)).unwrap();
    wait_for("the other one answers", || restored.group(VOLUME, IslandId(0)).is_ok());
    assert_eq!(restored.group(VOLUME, IslandId(0)).unwrap().unwrap().revision, at);
    assert!(admin.snapshot(&folder.path().join("nowhere/snapshot.db")).is_err());

    member.stop().unwrap();
    assert!(member.pid().is_none());
    // For the kernel the parent is the thread that started it.
    let mut member = thread::spawn(move || {
        let mut member = Supervised::new(plan);
        start(&mut member);
        wait_for("it answers", || store.group(VOLUME, IslandId(0)).is_ok());
        member
    })
    .join()
    .unwrap();
    // At once: in order it takes seconds, in which the next one finds its port in use.
    let killed = |happened: &[Happened]| matches!(happened, [Happened::Died { status, .. }, ..] if status.signal() == Some(libc::SIGKILL));
    wait_for("it is killed", || killed(&member.tend()));
}

#[test]
fn a_member_that_cannot_be_started_is_tried_again_later_and_later() {
    let folder = tempfile::tempdir().unwrap();
    let good = plan(folder.path(), "m0", None);
    for bad in [
        MemberPlan { program: "/nonexistent/etcd".into(), ..good.clone() },
        MemberPlan { data: "/nonexistent/disk/etcd".into(), ..good },
    ] {
        let mut member = Supervised::new(bad);
        let happened = member.tend();
        assert!(matches!(&happened[..], [Happened::NotStarted { .. }]), "{happened:?}");
        assert!(member.pid().is_none() && member.due().unwrap() > Instant::now());
        assert!(member.tend().is_empty(), "not before its time");
        sleep(member.due().unwrap().saturating_duration_since(Instant::now()));
        assert!(
            matches!(&member.tend()[..], [Happened::NotStarted { pause, .. }] if *pause > Duration::from_millis(150))
        );
    }
}

#[test]
fn one_member_grows_to_three_survives_the_loss_of_one_and_has_it_replaced() {
    needs!(Programs(&["etcd", "etcdctl", "openssl"]));
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let plans: Vec<MemberPlan> =
        (0..4).map(|nth| plan(folder.path(), &format!("m{nth}"), Some(folder.path()))).collect();
    let tls = Some(tls(folder.path(), "ca.pem", Some("client")));
    let source = EtcdSource { tls, ..source(&plans) };
    let mut places: Vec<(String, String)> =
        plans.iter().map(|plan| (plan.name.clone(), plan.peer_url())).collect();
    let mut running: Vec<Option<Supervised>> = plans.iter().map(|_| None).collect();
    let first = running[0].insert(Supervised::new(plans[0].clone()));
    start(first);
    let store = make(&source);
    let admin = EtcdAdmin::open(&source).unwrap();
    let mut epoch = 1;
    swap(&store, epoch);

    // As a daemon does it, whenever it has time for it.
    let mut grow_to = |nodes: &[(String, String)], running: &mut Vec<Option<Supervised>>| {
        let until = Instant::now() + LONG;
        loop {
            assert!(Instant::now() < until, "{:?}", admin.members());
            match grow(&admin, nodes) {
                Ok(Grown::Done) => break,
                Ok(Grown::Changed) => {}
                Ok(Grown::Add { peer_url, others }) => {
                    let nth = plans.iter().position(|plan| plan.peer_url() == peer_url).unwrap();
                    if running[nth].is_none() {
                        let plan = MemberPlan { beginning: Beginning::Joins(others), ..plans[nth].clone() };
                        start(running[nth].insert(Supervised::new(plan)));
                    }
                }
                // An election, or a learner that has not got everything.
                Ok(Grown::Waits { .. }) | Err(_) => sleep(Duration::from_millis(50)),
            }
            // The store goes on meanwhile.
            epoch += 1;
            swap(&store, epoch);
        }
        admin.members().unwrap()
    };
    assert_eq!(grow_to(&places[..1], &mut running).len(), 1);
    assert_eq!(grow_to(&places[..2], &mut running).len(), 1, "two are worse than one");
    let three = grow_to(&places[..3], &mut running);
    assert_eq!(three.len(), VOTERS);
    assert!(three.iter().all(|member| !member.is_learner && !member.name.is_empty()), "{three:?}");

    // One is reached elsewhere: it keeps its data, and its number.
    let elsewhere = plan(folder.path(), "elsewhere", Some(folder.path())).peer_port;
    let moved = MemberPlan { peer_port: elsewhere, ..plans[2].clone() };
    places[2].1 = moved.peer_url();
    let member = running[2].as_mut().unwrap();
    let was = member.pid();
    member.set_plan(moved).unwrap();
    wait_for("it runs there", || {
        member.tend();
        member.pid().is_some_and(|pid| Some(pid) != was)
    });
    let after = grow_to(&places[..3], &mut running);
    let of = |all: &[EtcdMember]| all.iter().map(|member| member.id).collect::<Vec<_>>();
    assert_eq!(of(&after), of(&three));
    assert!(after.iter().any(|member| member.peer_urls == [places[2].1.clone()]), "{after:?}");

    // Any one of them may go for good.
    let lost = running[0].take().unwrap();
    kill(&lost);
    drop(lost);
    let gone = places.remove(0).1;
    let rest = &places;
    let replaced = grow_to(rest, &mut running);
    assert_eq!(replaced.len(), VOTERS);
    assert!(replaced.iter().all(|member| !member.peer_urls.contains(&gone)), "{replaced:?}");
    let status = admin.status();
    assert_eq!(status.iter().filter(|(_, told)| told.is_ok()).count(), VOTERS, "{status:?}");
    let leaders: Vec<u64> = status.iter().filter_map(|(_, told)| told.as_ref().ok()?.leader).collect();
    assert!(leaders.windows(2).all(|pair| pair[0] == pair[1]), "{status:?}");
    let found = store.group(VOLUME, IslandId(0)).unwrap().unwrap();
    swap(&store, found.record.epoch + 1);
}

#[test]
fn a_full_database_says_so_and_its_alarm_is_noticed() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let folder = tempfile::tempdir().unwrap();
    let plan = MemberPlan { quota_bytes: Some(64 * 1024), ..plan(folder.path(), "m0", None) };
    let source = source(std::slice::from_ref(&plan));
    let mut member = Supervised::new(plan);
    start(&mut member);
    let store = make(&source);
    let until = Instant::now() + LONG;
    let why = loop {
        let seen = store.group(VOLUME, IslandId(0)).unwrap().map_or(Revision::NONE, |found| found.revision);
        match store.swap_group(VOLUME, IslandId(0), seen, &record(1)) {
            Swapped::Unknown { why } => break why,
            _ => assert!(Instant::now() < until, "it is never full"),
        }
    };
    assert!(why.contains("database space exceeded"), "{why}");
    assert!(store.group(VOLUME, IslandId(0)).is_ok(), "it is read all the same");
    let admin = EtcdAdmin::open(&source).unwrap();
    let snapshot = folder.path().join("snapshot.db");
    let care = EtcdCare::start(EtcdAdmin::open(&source).unwrap(), snapshot, Duration::from_secs(60)).unwrap();
    wait_for("the alarm", || matches!(care.alarms()[..], [(_, EtcdAlarm::NoSpace)]));
    assert_eq!(admin.alarms().unwrap(), care.alarms());
}
