//! A node whose cluster has its groups in a real etcd: fail-overs while etcd fails too, and what is served while it is away. The
//! other nodes are the test.

#[path = "../../etcd/tests/cluster/mod.rs"]
mod cluster;
mod common;

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use atoll_control::GroupStore;
use atoll_core::{IslandId, NodeId};
use atoll_etcd::{EtcdControl, EtcdStore};
use atoll_group::{Rebuilt, SLOT_BYTES, SeatFile, rebuilt};
use atoll_needs::needs;
use atoll_proto::group::{Host, Primary, Revision, Seat, Swapped};
use atoll_proto::{ClientOp, Copies, GroupRecord, IslandGroup, VolumeConfig};
use atoll_rpc::{ClusterId, FrameKind, Listener};
use atoll_server::Node;
use cluster::Cluster;
use common::node::{LONG, Other, VOLUME, config, listen, node_with, shelf};

const ISLAND: IslandId = IslandId(0);
/// Which life of node 1 leads.
const LIFE: u32 = 5;
const BEAT: Duration = Duration::from_millis(150);

/// Node 0, which keeps a copy of the only island. Its control store is etcd, and the volume names node 1 for it, which has none.
struct Keeps {
    node: Arc<Node>,
    listener: Listener,
    store: EtcdStore,
    /// Node 1, as it speaks to node 0.
    other: Option<Other>,
    epoch: u32,
    token: u64,
    data: tempfile::TempDir,
}

impl Keeps {
    fn new(etcd: &Cluster) -> Self {
        let data = tempfile::tempdir().unwrap();
        let open = || EtcdStore::open(&etcd.source(), ClusterId(1)).unwrap();
        let node =
            node_with(data.path(), 1, shelf(), |own| Arc::new(EtcdControl::new(Box::new(own), open())));
        let nodes = vec![NodeId(1), NodeId(0)];
        let groups = vec![IslandGroup { island: ISLAND, nodes }];
        let copies = Copies { wanted: 2, store: NodeId(1), groups, racks: Vec::new(), ..Copies::default() };
        let store = open();
        store.make().unwrap();
        store.create_groups(VOLUME, &[(ISLAND, copies.first_record(&copies.groups[0]))]).unwrap();
        let config = VolumeConfig { copies: Some(copies), ..config([&[], &[0]], "127.0.0.1:1") };
        node.prepare(&config, NodeId(0)).unwrap();
        node.activate(config.id).unwrap();
        let listener = listen(&node);
        Self { node, listener, store, other: None, epoch: 0, token: 0, data }
    }

    fn record(&self) -> Option<GroupRecord> {
        self.store.group(VOLUME, ISLAND).ok()?.map(|found| found.record)
    }

    /// Node 1 leads from now on.
    fn is_led(&mut self) {
        let found = self.store.group(VOLUME, ISLAND).unwrap().expect("it was made with the volume");
        self.epoch = found.record.epoch + 1;
        let host = Host { boot: 1, inode: 1 };
        let primary = Some(Primary { node: NodeId(1), life: LIFE, host, attempt: self.epoch });
        let tenure = found.record.in_sync.first().map_or(1, |seat| seat.tenure);
        let in_sync = [0, 1].map(|node| Seat { node: NodeId(node), tenure }).to_vec();
        let record = GroupRecord { epoch: self.epoch, primary, in_sync, ..found.record };
        let swapped = self.store.swap_group(VOLUME, ISLAND, found.revision, &record);
        assert!(matches!(swapped, Swapped::Done { .. }), "{swapped:?}");
        self.other = Some(Other::node(self.listener.address(), LIFE));
        self.beacons(1_000);
    }

    /// Node 1 lives for so long.
    fn beacons(&mut self, ms: u64) {
        let until = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < until {
            self.token += 1;
            self.other.as_ref().unwrap().beacon(self.token, ISLAND, self.epoch);
            sleep(BEAT);
        }
    }

    /// Waits until node 0 leads.
    fn leads(&self) -> Option<GroupRecord> {
        let until = Instant::now() + LONG;
        loop {
            let record = self.record().filter(|record| record.epoch > self.epoch);
            if record.is_some() {
                return record;
            }
            assert!(Instant::now() < until, "it never leads");
            sleep(Duration::from_millis(5));
        }
    }

    /// What the copy remembers in its file.
    fn seat(&self) -> SeatFile {
        let islands = self.data.path().join("islands/home");
        let found = std::fs::read(islands.join(format!("{ISLAND}.seat"))).unwrap();
        let slots = found.chunks_exact(SLOT_BYTES).filter_map(|slot| SeatFile::from_slot(slot).ok());
        slots.max_by_key(|(number, _)| *number).expect("it has a seat").1
    }

    fn end(mut self) {
        self.listener.stop();
        assert!(self.node.stop().is_empty());
    }
}

/// How long a client waits when node 1 falls silent and etcd's leader dies at the same moment.
fn fails_over(etcd: &mut Cluster) -> Duration {
    let mut keeps = Keeps::new(etcd);
    keeps.is_led();
    let client = Other::client(keeps.listener.address());
    client.ask(0, 5, ClientOp::Attach { mount: false });
    assert_eq!(client.next(), (FrameKind::Gone, 0, 0));
    let leader = etcd.leader();
    keeps.beacons(200);
    let since = Instant::now();
    etcd.kill(leader);
    let word = std::iter::repeat_with(|| client.next()).find(|word| word.0 != FrameKind::Gone);
    assert_eq!(word.map(|word| (word.0, word.1)), Some((FrameKind::Primary, 0)));
    let took = since.elapsed();
    let record = keeps.leads().unwrap();
    assert_eq!(
        (record.epoch, record.primary.map(|primary| primary.node)),
        (keeps.epoch + 1, Some(NodeId(0)))
    );
    etcd.begin(leader);
    keeps.end();
    etcd.ctl(leader, &["del", "--prefix", "/atoll/"]);
    took
}

#[test]
fn an_island_fails_over_though_the_leader_of_etcd_dies_at_the_same_moment() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let mut etcd = Cluster::start(3);
    let took = fails_over(&mut etcd);
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
#[ignore = "a measurement: cargo test -p atoll-server --test etcd -- --ignored --nocapture"]
fn how_long_a_fail_over_takes_when_the_leader_of_etcd_dies_too() {
    const TIMES: usize = 30;
    needs!(Programs(&["etcd", "etcdctl"]));
    let mut etcd = Cluster::start(3);
    let mut took: Vec<u128> = (0..TIMES)
        .map(|_| {
            etcd.wait_until_healthy();
            fails_over(&mut etcd).as_millis()
        })
        .collect();
    took.sort_unstable();
    eprintln!("ms: median {}, longest {}; all {took:?}", took[TIMES / 2], took[TIMES - 1]);
}

#[test]
fn while_etcd_is_away_nothing_changes_and_afterwards_the_copy_leads() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let mut etcd = Cluster::start(3);
    let mut keeps = Keeps::new(&etcd);
    keeps.is_led();
    (0..3).for_each(|nth| etcd.kill(nth));
    // A copy that hears its primary needs no store.
    keeps.beacons(2_000);
    // Now its primary is silent too: it may not lead.
    sleep(Duration::from_secs(2));
    let client = Other::client(keeps.listener.address());
    client.ask(0, 5, ClientOp::Attach { mount: false });
    assert_eq!(client.next(), (FrameKind::Gone, 0, 0));
    (0..3).for_each(|nth| etcd.begin(nth));
    let record = keeps.leads().unwrap();
    assert_eq!(
        (record.epoch, record.primary.map(|primary| primary.node)),
        (keeps.epoch + 1, Some(NodeId(0)))
    );
    keeps.end();
}

#[test]
fn a_copy_believes_no_etcd_of_yesterday_and_goes_on_when_it_was_rebuilt() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let mut etcd = Cluster::start(1);
    let mut keeps = Keeps::new(&etcd);
    let backup = etcd.folder.path().join("backup.db");
    etcd.ctl(0, &["snapshot", "save", backup.to_str().unwrap()]);
    keeps.is_led();
    let led = keeps.leads().unwrap();
    let remembered = wait_for_seat(&keeps, led.epoch);
    etcd.kill(0);
    std::fs::remove_dir_all(&etcd.members[0].plan.data).unwrap();
    etcd.restore(0, &backup);
    etcd.begin(0);
    etcd.wait_until_healthy();
    // The record of yesterday has no primary. The copy does not take its place, and is not led by whoever does.
    let yesterday = keeps.record().unwrap();
    assert!(yesterday.epoch < led.epoch, "{yesterday:?}");
    sleep(Duration::from_secs(4));
    assert_eq!(keeps.record().as_ref(), Some(&yesterday));
    assert_eq!(keeps.seat(), remembered);
    // From what both copies remember. Node 1 has heard of nothing since.
    let none = SeatFile::of_a_new_member();
    let missing = rebuilt(&[NodeId(0), NodeId(1)], &[(NodeId(0), remembered.clone())].into());
    assert!(missing.is_err(), "{missing:?}");
    let seats = [(NodeId(0), remembered), (NodeId(1), none)].into();
    let Rebuilt { record, above } = rebuilt(&[NodeId(0), NodeId(1)], &seats).unwrap();
    assert_eq!(record.epoch, led.epoch + 1);
    keeps.store.rebuild(Revision(above), &[(VOLUME, ISLAND, record)]).unwrap();
    keeps.epoch = led.epoch + 1;
    let again = keeps.leads().unwrap();
    assert_eq!((again.epoch, again.primary.map(|p| p.node)), (led.epoch + 2, Some(NodeId(0))));
    keeps.end();
}

/// Waits until the copy has written down that it has seen this epoch.
fn wait_for_seat(keeps: &Keeps, epoch: u32) -> SeatFile {
    let until = Instant::now() + LONG;
    loop {
        let seat = keeps.seat();
        if seat.record.as_ref().is_some_and(|(_, record)| record.epoch == epoch) {
            return seat;
        }
        assert!(Instant::now() < until, "{seat:?}");
        sleep(Duration::from_millis(20));
    }
}
