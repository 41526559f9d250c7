//! A cluster with certificates whose groups are in etcd: nodes and members of etcd are real processes.

#[path = "../../../io/etcd/tests/cluster/mod.rs"]
mod cluster;
mod common;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use atoll_ca::{Authority, Holder, Key, to_pem, valid_until};
use atoll_etcd::{EtcdAdmin, EtcdSource, Tls};
use atoll_needs::needs;
use atoll_rpc::{Credentials, Trust};
use cluster::Cluster as Etcd;
use common::{Daemon, Mounted, Scratch, atoll, bad, eventually, good, text};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// How long all of etcd is away while clients work: nobody waits for so long.
const AWAY_FOR: Duration = Duration::from_secs(6);

/// Nodes of a cluster.
struct Nodes {
    // Before the directory: a daemon whose files go away complains.
    nodes: Vec<Option<Daemon>>,
    addresses: Vec<String>,
    scratch: Scratch,
}

/// An address whose port is free, and the three ports behind it.
fn address() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    loop {
        let nth = LAST.fetch_add(4, Ordering::Relaxed) + std::process::id().wrapping_mul(388) % 20_000;
        let port = 11_000 + (nth % 20_000) as u16;
        let ports: Vec<_> = (port..port + 4).map(|port| TcpListener::bind(("127.0.0.1", port))).collect();
        if ports.iter().all(Result::is_ok) {
            return format!("127.0.0.1:{port}");
        }
    }
}

impl Nodes {
    /// The first one, made by `atoll init` with these arguments too.
    fn new(arguments: &[&str]) -> Self {
        let mut this = Self { nodes: vec![None], addresses: vec![address()], scratch: Scratch::new() };
        let (data, listen) = (this.data(1), this.addresses[0].clone());
        let init = ["init", "--data", text(&data), "--listen", &listen, "--no-start"];
        good(init.iter().chain(arguments));
        this.start(1);
        this
    }

    fn data(&self, node: usize) -> PathBuf {
        self.scratch.path(&format!("node{node}"))
    }

    fn start(&mut self, node: usize) {
        let (data, listen) = (self.data(node), self.addresses[node - 1].clone());
        let arguments = ["serve", "--data", text(&data), "--listen", &listen];
        self.nodes[node - 1] = Some(Daemon::start(arguments, "volumes"));
    }

    /// Kills all processes of a node.
    fn kill(&mut self, node: usize) {
        self.nodes[node - 1].take().expect("it runs").kill();
    }

    /// Stops a node, starts it at another address, and tells the cluster by node 3.
    fn moves(&mut self, node: usize) {
        self.nodes[node - 1].take().expect("it runs").stop();
        let (data, name) = (self.data(3), format!("node{node}"));
        self.addresses[node - 1] = address();
        let to = self.addresses[node - 1].clone();
        let order = ["node", "set-address", &name, &to, "--data", text(&data)].map(str::to_owned);
        let said = bad(&order);
        assert!(said.contains(&format!("Start {name} there first")), "{said}");
        self.start(node);
        good(&order);
    }

    /// Whether all nodes have all addresses, of the cluster and of its volume.
    fn know_addresses(&self) -> bool {
        (1..=self.nodes.len()).all(|node| {
            let listed = good(["node", "list", "--json", "--data", text(&self.data(node))]);
            let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
            let listed = listed.as_array().unwrap().iter().map(|node| node["address"].clone());
            let told = self.status(node);
            let of_volume = told["processes"][0]["volumes"][0]["volume"]["nodes"].as_array().unwrap().clone();
            listed.eq(self.addresses.iter().cloned())
                && of_volume.into_iter().eq(self.addresses.iter().cloned())
        })
    }

    fn join(&mut self) -> String {
        let line = good(["node", "invite", "--data", text(&self.data(1))]);
        let line = line.trim().strip_prefix("atoll join ").expect("the command to give").to_owned();
        self.addresses.push(address());
        self.nodes.push(None);
        let node = self.nodes.len();
        let (data, listen) = (self.data(node), self.addresses[node - 1].clone());
        let said = good(["join", &line, "--data", text(&data), "--listen", &listen, "--no-start"]);
        self.start(node);
        said
    }

    /// A volume over all nodes, mounted.
    fn mounted(&self) -> Mounted {
        let data = self.data(1);
        let said = good(["volume", "create", "home", "--replicas", "2", "--data", text(&data)]);
        assert!(said.contains("2 copies of each"), "{said}");
        assert_eq!(
            said.contains("control store"),
            self.status(1)["processes"][0]["groups_in"].is_null(),
            "{said}"
        );
        let credentials = self.scratch.path("desk.pem");
        good(["client", "add", "desk", "--out", text(&credentials), "--data", text(&data)]);
        let (source, point) = (format!("{}:/home", self.addresses.join(",")), self.scratch.dir("mount"));
        let mount = ["--credentials", text(&credentials), "mount", &source, text(&point)];
        eventually("the nodes have heard of the client", || atoll(mount).status().unwrap().success());
        Mounted(point)
    }

    fn status(&self, node: usize) -> serde_json::Value {
        serde_json::from_str(&good(["status", "--json", "--data", text(&self.data(node))])).unwrap()
    }
}

/// Writes and reads until `is_over`: the longest time that one round took.
fn works(folder: &Path, is_over: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    for nth in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let since = Instant::now();
        let file = folder.join(format!("file{}", nth % 50));
        std::fs::write(&file, format!("round {nth}")).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("round {nth}"));
        longest = longest.max(since.elapsed());
        // Work that leaves a busy machine time for copies that come back.
        std::thread::sleep(Duration::from_millis(40));
    }
    longest
}

/// Works in all folders while `what` is done.
fn while_working(folders: &[PathBuf], what: impl FnOnce()) -> Duration {
    /// The workers end, also if the test fails.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = folders.iter().map(|folder| scope.spawn(|| works(folder, &is_over))).collect();
        let over = Over(&is_over);
        what();
        drop(over);
        workers.into_iter().map(|worker| worker.join().unwrap()).max().unwrap()
    })
}

/// Directories of a mount, so many that each island has some.
fn folders(mount: &Mounted) -> Vec<PathBuf> {
    let all: Vec<PathBuf> = (0..12).map(|nth| mount.path(&format!("dir{nth}"))).collect();
    all.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    all
}

#[test]
fn an_etcd_that_was_there_before_is_named_once_and_all_nodes_use_it() {
    needs!(Mounts, Root, Programs(&["etcd", "etcdctl"]));
    let mut etcd = Etcd::start(3);
    let hosts: Vec<String> =
        etcd.members.iter().map(|m| format!("127.0.0.1:{}", m.plan.client_port)).collect();
    let place = format!("etcd://{}", hosts.join(","));
    let mut nodes = Nodes::new(&["--control", &place]);
    for _ in 0..2 {
        let said = nodes.join();
        assert!(said.contains(&format!("groups   in {place}")), "{said}");
    }
    let mount = nodes.mounted();
    let told = nodes.status(2);
    assert_eq!(told["processes"][0]["groups_in"], place.as_str());
    assert_eq!(told["processes"][0]["volumes"][0]["control_store"], serde_json::Value::Null);
    let folders = folders(&mount);
    let longest = while_working(&folders, || {
        let leader = etcd.leader();
        etcd.kill(leader);
        std::thread::sleep(Duration::from_millis(500));
        (0..3).filter(|nth| *nth != leader).for_each(|nth| etcd.kill(nth));
        // No client notices that all of it is away.
        std::thread::sleep(AWAY_FOR);
        (0..3).for_each(|nth| etcd.begin(nth));
        etcd.wait_until_healthy();
    });
    assert!(longest < AWAY_FOR, "{longest:?}");
    // It still changes groups: the node that is named first may die too.
    while_working(&folders, || {
        nodes.kill(1);
        std::thread::sleep(Duration::from_secs(2));
    });
    let data = nodes.data(2);
    let rebuild = ["control", "rebuild", "--data", text(&data)].map(str::to_owned);
    let said = bad(&rebuild);
    assert!(said.contains("All nodes must run"), "{said}");
    nodes.start(1);
    eventually("all copies are in sync again", || all_in_sync(&nodes, 1));
    // etcd loses everything, and gets it back from the copies.
    while_working(&folders, || {
        etcd.ctl(0, &["del", "--prefix", "/atoll/"]);
        std::thread::sleep(Duration::from_millis(500));
        let said = good(&rebuild);
        assert!(said.contains("rebuilt  3 records"), "{said}");
        eventually("all copies are in sync", || (1..=3).all(|node| all_in_sync(&nodes, node)));
        // It is not needed now, and does no harm.
        good(&rebuild);
        eventually("all copies are in sync", || (1..=3).all(|node| all_in_sync(&nodes, node)));
        nodes.kill(2);
        std::thread::sleep(Duration::from_secs(2));
    });
}

#[test]
fn an_etcd_of_yesterday_is_refused_and_told_and_a_rebuild_mends_it() {
    needs!(Mounts, Root, Programs(&["etcd", "etcdctl"]));
    let mut etcd = Etcd::start(1);
    let place = format!("etcd://127.0.0.1:{}", etcd.members[0].plan.client_port);
    let mut nodes = Nodes::new(&["--control", &place]);
    (0..2).for_each(|_| _ = nodes.join());
    let mount = nodes.mounted();
    let folders = folders(&mount);
    let backup = etcd.folder.path().join("backup.db");
    etcd.ctl(0, &["snapshot", "save", text(&backup)]);
    // Since then each island was led by another node, and a volume was made.
    while_working(&folders, || {
        for node in [1, 2] {
            nodes.kill(node);
            std::thread::sleep(Duration::from_secs(2));
            nodes.start(node);
            eventually("all copies are in sync", || (1..=3).all(|node| all_in_sync(&nodes, node)));
        }
    });
    good(["volume", "create", "later", "--replicas", "2", "--data", text(&nodes.data(1))]);
    folders.iter().for_each(|folder| std::fs::write(folder.join("kept"), "yes").unwrap());
    for node in 1..=3 {
        nodes.nodes[node - 1].take().unwrap().stop();
    }
    etcd.kill(0);
    std::fs::remove_dir_all(&etcd.members[0].plan.data).unwrap();
    etcd.restore(0, &backup);
    etcd.begin(0);
    etcd.wait_until_healthy();
    let records = |etcd: &Etcd| etcd.ctl(0, &["get", "--prefix", "/atoll/", "--write-out", "json"]);
    let yesterday: serde_json::Value = serde_json::from_str(&records(&etcd)).unwrap();
    let log = |node: usize| nodes.scratch.path(&format!("log{node}"));
    let (logs, data) = ([1, 2, 3].map(log), [1, 2, 3].map(|node| nodes.data(node)));
    for node in 1..=3 {
        let arguments = ["serve", "--data", text(&data[node - 1]), "--listen", &nodes.addresses[node - 1]];
        let log = std::fs::File::create(&logs[node - 1]).unwrap();
        nodes.nodes[node - 1] = Some(Daemon::start_with(arguments, "volumes", log.into()));
    }
    let says = |node: usize, what: &str| std::fs::read_to_string(&logs[node - 1]).unwrap().contains(what);
    eventually("all tell it", || {
        let words = ["the control store has epoch", "has no record of it", "atoll control rebuild"];
        (1..=3).all(|node| words.iter().all(|word| says(node, word)))
    });
    // After all the time that a copy waits for others nobody leads, and nothing was changed.
    std::thread::sleep(Duration::from_secs(5));
    for node in 1..=3 {
        let told = nodes.status(node);
        let volumes = told["processes"][0]["volumes"].as_array().unwrap();
        for island in volumes.iter().flat_map(|volume| volume["islands"].as_array().unwrap()) {
            assert_eq!(island["leads"], 0, "{told}");
        }
    }
    let now: serde_json::Value = serde_json::from_str(&records(&etcd)).unwrap();
    assert_eq!(now["kvs"], yesterday["kvs"]);
    let said = good(["control", "rebuild", "--data", text(&data[0])]);
    assert!(said.contains("rebuilt  6 records"), "{said}");
    eventually("all copies are in sync", || (1..=3).all(|node| all_in_sync(&nodes, node)));
    for folder in &folders {
        assert_eq!(std::fs::read_to_string(folder.join("kept")).unwrap(), "yes");
    }
    while_working(&folders, || {
        nodes.kill(2);
        std::thread::sleep(Duration::from_secs(2));
    });
}

#[test]
fn the_doctor_says_how_etcd_is() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let mut etcd = Etcd::start(3);
    let host = |nth: usize| format!("127.0.0.1:{}", etcd.members[nth].plan.client_port);
    let hosts = [host(0), host(1), host(2)];
    let nodes = Nodes::new(&["--control", &format!("etcd://{}", hosts.join(","))]);
    let data = nodes.data(1);
    let says = || {
        let output = common::run(["doctor", "--json", "--data", text(&data)]);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = told.as_array().unwrap().iter().find(|one| one["about"] == "etcd").unwrap().clone();
        (found["level"].as_str().unwrap().to_owned(), found["what"].as_str().unwrap().to_owned())
    };
    let (level, what) = says();
    assert!(level == "good" && what.starts_with("all 3 members of etcd 3."), "{what}");
    etcd.kill(1);
    let (level, what) = says();
    assert!(level == "wrong" && what.contains("1 of 3") && what.contains(&hosts[1]), "{what}");
    (0..3).filter(|nth| *nth != 1).for_each(|nth| etcd.kill(nth));
    let (level, what) = says();
    assert!(level == "wrong" && what.contains("no member of etcd answers"), "{what}");
}

/// How long etcd is away in the test below, in seconds, if not 20: for the long form.
const AWAY: &str = "ATOLL_ETCD_AWAY_S";

#[test]
fn etcd_is_away_for_long_and_no_client_notices() {
    needs!(Mounts, Root, Programs(&["etcd", "etcdctl"]));
    let seconds = std::env::var(AWAY).map_or(20, |text| text.parse().expect("a number of seconds"));
    let mut etcd = Etcd::start(3);
    let hosts: Vec<String> =
        etcd.members.iter().map(|m| format!("127.0.0.1:{}", m.plan.client_port)).collect();
    let mut nodes = Nodes::new(&["--control", &format!("etcd://{}", hosts.join(","))]);
    (0..2).for_each(|_| _ = nodes.join());
    let mount = nodes.mounted();
    let folders = folders(&mount);
    eventually("all copies are in sync", || (1..=3).all(|node| all_in_sync(&nodes, node)));
    let epochs = |nodes: &Nodes| {
        let of = |node: usize| {
            let told = nodes.status(node);
            let islands = told["processes"][0]["volumes"][0]["islands"].as_array().unwrap().clone();
            islands.into_iter().map(|i| (i["island"].to_string(), i["copies"]["epoch"].to_string()))
        };
        (1..=3).flat_map(of).collect::<Vec<_>>()
    };
    let memory = |nodes: &Nodes| -> Vec<u64> {
        let of = |node: &Option<Daemon>| {
            let pid = node.as_ref().expect("it runs").children()[0];
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        nodes.nodes.iter().map(of).collect()
    };
    let (led, before) = (epochs(&nodes), memory(&nodes));
    let longest = while_working(&folders, || {
        (0..3).for_each(|nth| etcd.kill(nth));
        std::thread::sleep(Duration::from_secs(seconds));
        assert_eq!(epochs(&nodes), led, "no group has changed");
        println!("{seconds} s without etcd: kB of the nodes {before:?} before, {:?} after", memory(&nodes));
        (0..3).for_each(|nth| etcd.begin(nth));
        etcd.wait_until_healthy();
    });
    println!("the longest write and read took {longest:?}");
    assert!(longest < Duration::from_secs(seconds) / 2, "{longest:?}");
    // Groups change again.
    while_working(&folders, || {
        nodes.kill(3);
        std::thread::sleep(Duration::from_secs(2));
        nodes.start(3);
        eventually("all copies are in sync", || (1..=3).all(|node| all_in_sync(&nodes, node)));
    });
}

/// How the members of the cluster's own etcd are, as a node tells it: how many have a vote, and how many are silent.
fn members(nodes: &Nodes, node: usize) -> (usize, usize) {
    let told = good(["control", "status", "--json", "--data", text(&nodes.data(node))]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let all = told["members"].as_array().unwrap();
    let votes = |member: &&serde_json::Value| member["votes"] == true && member["has_leader"] == true;
    let is_silent = |member: &&serde_json::Value| !member["problem"].is_null();
    (all.iter().filter(votes).count(), all.iter().filter(is_silent).count())
}

/// The process of a node's member.
fn member_of(nodes: &Nodes, node: usize) -> Option<u32> {
    let daemon = nodes.nodes[node - 1].as_ref().expect("it runs");
    let is_etcd = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "etcd")
    };
    daemon.children().into_iter().find(is_etcd)
}

/// The certificate in a file as one that was issued so many days ago. `of`: the data directory of a node with the CA's private key.
fn certificate_of_etcd(of: &Path, file: &Path, days: u64) -> Vec<u8> {
    let node =
        Credentials::from_pem(&std::fs::read(file.with_file_name("credentials.pem")).unwrap()).unwrap();
    let Trust::Ca(ca) = &node.trust else { panic!("it names its CA") };
    let ca_key = PrivateKeyDer::from_pem_slice(&std::fs::read(of.join("ca.key")).unwrap()).unwrap();
    let then = SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
    let authority = Authority::from_parts(ca, ca_key.secret_der()).unwrap().of_etcd(then).unwrap();
    let key = Key::from_der(node.key.secret_der()).unwrap();
    let old = authority.issue(Holder::Etcd("127.0.0.1"), &key.public(), then).unwrap();
    to_pem("CERTIFICATE", &old).into_bytes()
}

/// For how many days more the certificate in a file is valid, if there is one.
fn days_left(file: &Path) -> Option<u64> {
    let certificate = CertificateDer::from_pem_slice(&std::fs::read(file).unwrap()).ok()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    Some(valid_until(&certificate)?.saturating_sub(now) / (24 * 60 * 60))
}

#[test]
fn a_cluster_runs_its_own_etcd_which_grows_to_three_members_and_survives_any_node() {
    needs!(Mounts, Root, Programs(&["etcd"]));
    let mut nodes = Nodes::new(&[]);
    eventually("the first member answers", || members(&nodes, 1) == (1, 0));
    nodes.join();
    nodes.join();
    eventually("there are three voters", || members(&nodes, 3) == (3, 0));
    let mount = nodes.mounted();
    let folders = folders(&mount);
    // A member dies: its parent starts it again. Then all at once.
    let died = member_of(&nodes, 2).expect("it has a member");
    while_working(&folders, || {
        common::signal(died, rustix::process::Signal::KILL);
        eventually("it runs again", || member_of(&nodes, 2).is_some_and(|pid| pid != died));
        (1..=3).filter_map(|node| member_of(&nodes, node)).for_each(|pid| {
            common::signal(pid, rustix::process::Signal::KILL);
        });
        eventually("all run again", || members(&nodes, 1) == (3, 0));
    });
    // A certificate of etcd that ends soon, or is damaged, is made anew while the node runs.
    let certificate = nodes.data(2).join("etcd-cert.pem");
    for old in [certificate_of_etcd(&nodes.data(1), &certificate, 70), b"not one".to_vec()] {
        std::fs::write(&certificate, &old).unwrap();
        eventually("it is new", || days_left(&certificate).is_some_and(|days| days > 80));
        assert_eq!(members(&nodes, 1), (3, 0));
    }
    // The certificate of a mount opens no etcd, and neither does none.
    let (node, desk) = (nodes.data(1), nodes.scratch.path("desk.pem"));
    let opens = |own: Option<(PathBuf, PathBuf)>| {
        let port = nodes.addresses[0].rsplit_once(':').unwrap().1.parse::<u16>().unwrap() + 2;
        let tls = Some(Tls { ca: node.join("etcd-ca.pem"), own, name: None });
        let source =
            EtcdSource { tls, ..EtcdSource::plain(vec![format!("127.0.0.1:{port}").parse().unwrap()]) };
        EtcdAdmin::open(&source).unwrap().check()
    };
    opens(Some((node.join("etcd-cert.pem"), node.join("credentials.pem")))).unwrap();
    opens(Some((desk.clone(), desk))).unwrap_err();
    opens(None).unwrap_err();
    // The node that was first, and keeps the list.
    while_working(&folders, || {
        nodes.kill(1);
        std::thread::sleep(Duration::from_secs(3));
    });
    assert_eq!(members(&nodes, 2), (2, 1));
    nodes.start(1);
    eventually("three voters again", || members(&nodes, 1) == (3, 0));
    // In order: the member ends after its daemon.
    let member = member_of(&nodes, 3).expect("it has a member");
    nodes.nodes[2].take().unwrap().stop();
    assert!(!common::is_alive(member));
}

#[test]
fn nodes_that_move_keep_their_identity_and_everybody_finds_them() {
    needs!(Mounts, Root, Programs(&["etcd"]));
    let mut nodes = Nodes::new(&[]);
    (0..2).for_each(|_| _ = nodes.join());
    eventually("there are three voters", || members(&nodes, 3) == (3, 0));
    let mount = nodes.mounted();
    let folders = folders(&mount);
    let third = nodes.data(3);
    let said = bad(["node", "set-address", "node2", &nodes.addresses[0], "--data", text(&third)]);
    assert!(said.contains("is the address of node node1"), "{said}");
    // The one that keeps the list of the cluster is the last one: nobody could ask it where it is.
    for node in [2, 1] {
        while_working(&folders, || {
            nodes.moves(node);
            eventually("all know where it is", || nodes.know_addresses());
            eventually("its member of etcd is there too", || members(&nodes, 3) == (3, 0));
            eventually("all copies are in sync", || (1..=3).all(|node| all_in_sync(&nodes, node)));
        });
    }
    // The mount was told of the addresses of before, and groups change.
    while_working(&folders, || {
        nodes.kill(3);
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(members(&nodes, 1), (2, 1));
    });
}

#[test]
fn the_only_node_moves_to_another_host_with_its_etcd() {
    needs!(Programs(&["etcd"]));
    let mut nodes = Nodes::new(&[]);
    eventually("its member answers", || members(&nodes, 1) == (1, 0));
    let data = nodes.data(1);
    let made = ["volume", "create", "home", "--data", text(&data), "--nodes", &nodes.addresses[0]];
    good(made);
    nodes.nodes[0].take().unwrap().stop();
    nodes.addresses[0] = address().replace("127.0.0.1", "127.0.0.2");
    nodes.start(1);
    good(["node", "set-address", "node1", &nodes.addresses[0], "--data", text(&data)]);
    eventually("its volume knows where it is", || nodes.know_addresses());
    // At another host it needs another certificate.
    eventually("its member answers there", || members(&nodes, 1) == (1, 0));
    let told = good(["control", "status", "--data", text(&data)]);
    assert!(told.contains("member   127.0.0.2:"), "{told}");
    nodes.nodes[0].take().unwrap().stop();
    nodes.start(1);
    eventually("its member answers again", || members(&nodes, 1) == (1, 0));
}

#[test]
fn the_node_with_the_records_moves_and_the_others_follow() {
    needs!(Mounts, Root);
    let mut nodes = Nodes::new(&["--control", "embedded"]);
    (0..2).for_each(|_| _ = nodes.join());
    let mount = nodes.mounted();
    let folders = folders(&mount);
    while_working(&folders, || {
        nodes.moves(1);
        eventually("all know where it is", || nodes.know_addresses());
        eventually("all copies are in sync", || (2..=3).all(|node| all_in_sync(&nodes, node)));
    });
    // A copy asks it for the record, and begins to lead.
    while_working(&folders, || {
        nodes.kill(2);
        std::thread::sleep(Duration::from_secs(2));
    });
    // One that was away is told when it comes back.
    nodes.moves(1);
    nodes.start(2);
    eventually("all know where it is", || nodes.know_addresses());
    eventually("all copies are in sync", || (2..=3).all(|node| all_in_sync(&nodes, node)));
}

#[test]
fn the_records_of_a_cluster_that_is_there_are_moved_into_its_own_etcd() {
    needs!(Mounts, Root, Programs(&["etcd"]));
    let mut nodes = Nodes::new(&["--control", "embedded"]);
    nodes.join();
    nodes.join();
    let mount = nodes.mounted();
    let folders = folders(&mount);
    let (first, second) = (nodes.data(1), nodes.data(2));
    let move_at = |data: &Path| {
        ["control", "move", "own", "--listen", "127.0.0.1:0", "--data", text(data)].map(str::to_owned)
    };
    let said = bad(move_at(&first));
    assert!(said.contains("in use by"), "{said}");
    nodes.nodes[1].take().unwrap().stop();
    let said = bad(move_at(&second));
    assert!(said.contains("node1 keeps the list"), "{said}");
    nodes.nodes[0].take().unwrap().stop();
    let said = bad(move_at(&first));
    assert!(said.contains("All other nodes must run"), "{said}");
    assert!(!first.join("etcd").exists());
    nodes.start(1);
    nodes.start(2);
    eventually("both copies are in sync", || all_in_sync(&nodes, 3));
    while_working(&folders, || {
        nodes.nodes[0].take().unwrap().stop();
        let said = good(move_at(&first));
        assert!(said.contains("moved    2 records") && said.contains("node2, node3"), "{said}");
        let said = bad(move_at(&first));
        assert!(said.contains("already"), "{said}");
        nodes.start(1);
        assert!(nodes.status(1)["processes"][0]["groups_in"].is_string());
        for node in [2, 3] {
            eventually("both copies are in sync", || all_in_sync(&nodes, 5 - node));
            nodes.nodes[node - 1].take().unwrap().stop();
            nodes.start(node);
            assert!(nodes.status(node)["processes"][0]["groups_in"].is_string());
        }
        eventually("both copies are in sync", || all_in_sync(&nodes, 2));
    });
}

/// Whether all copies of the islands of which a node keeps one are in sync.
fn all_in_sync(nodes: &Nodes, node: usize) -> bool {
    are_in_sync(nodes, node, 2)
}

/// The same of so many copies.
fn are_in_sync(nodes: &Nodes, node: usize, copies: usize) -> bool {
    let told = nodes.status(node);
    let islands = told["processes"][0]["volumes"][0]["islands"].as_array().unwrap().clone();
    islands.iter().all(|i| i["copies"]["in_sync"].as_array().is_some_and(|all| all.len() == copies))
}

#[test]
fn an_etcd_that_cannot_be_used_makes_no_cluster() {
    needs!(Programs(&["etcd"]));
    let scratch = Scratch::new();
    let data = scratch.path("node");
    // The port of the cluster's own etcd is taken.
    let listen = address();
    let port: u16 = listen.rsplit_once(':').unwrap().1.parse().unwrap();
    let taken = TcpListener::bind(("127.0.0.1", port + 3)).unwrap();
    let said = bad(["init", "--data", text(&data), "--listen", &listen, "--no-start"]);
    assert!(said.contains(&format!("cannot listen on 127.0.0.1:{}", port + 3)) && !data.exists(), "{said}");
    drop(taken);
    // It is not installed: that is an error only for whoever wants it.
    let without = |control: &[&str]| {
        let arguments = ["init", "--data", text(&data), "--listen", &listen, "--no-start"];
        let output = atoll(arguments.iter().chain(control)).env("PATH", "/nonexistent").output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (done, said) = without(&["--control", "own"]);
    assert!(!done && said.contains("etcd-server") && !data.exists(), "{said}");
    let (done, said) = without(&[]);
    assert!(done && said.contains("etcd is not installed here") && said.lines().count() == 1, "{said}");
    let data = scratch.path("other");
    let nowhere = format!("etcd://{}", address());
    for (control, why) in [
        (nowhere.as_str(), "does not answer"),
        ("etcd://ann:secret@127.0.0.1:1", "password-file=FILE"),
        ("etcd://127.0.0.1:1?ca=ca.pem", "by their whole paths"),
    ] {
        let listen = address();
        let said =
            bad(["init", "--data", text(&data), "--listen", &listen, "--control", control, "--no-start"]);
        assert!(said.contains(why) && !said.contains("secret"), "{said}");
        assert!(!data.exists(), "{control}: it is as before");
    }
}

#[test]
fn with_etcd_any_node_is_drained_also_the_one_that_is_named_first() {
    needs!(Mounts, Root, Programs(&["etcd", "etcdctl"]));
    let etcd = Etcd::start(1);
    let mut nodes =
        Nodes::new(&["--control", &format!("etcd://127.0.0.1:{}", etcd.members[0].plan.client_port)]);
    (0..2).for_each(|_| _ = nodes.join());
    let mount = nodes.mounted();
    let folders = folders(&mount);
    let data = nodes.data(2);
    nodes.join();
    while_working(&folders, || {
        good(["volume", "set", "home", "--replicas", "3", "--data", text(&data)]);
        eventually("three copies are in sync", || are_in_sync(&nodes, 2, 3));
        good(["node", "drain", "node1", "--data", text(&data)]);
        eventually("its files are gone", || {
            (0..3).all(|island| !nodes.data(1).join(format!("islands/home/{island}")).exists())
        });
    });
    // It has the list of the cluster still. Whoever has not can be taken out.
    let said = bad(["node", "remove", "node1", "--data", text(&data)]);
    assert!(said.contains("keeps the list"), "{said}");
    let said = bad(["node", "drain", "node3", "--data", text(&data)]);
    assert!(said.contains("3 copies need 3 nodes") && said.contains("--add HOST:PORT"), "{said}");
    while_working(&folders, || {
        good(["volume", "set", "home", "--replicas", "2", "--data", text(&data)]);
        good(["node", "drain", "node3", "--data", text(&data)]);
        good(["node", "remove", "node3", "--data", text(&data)]);
    });
    eventually("two copies are in sync", || all_in_sync(&nodes, 2));
}
