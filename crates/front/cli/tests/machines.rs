//! Several machines: a cluster with certificates, who joins it, and who does not.

mod common;

use std::io::{Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use atoll_ca::{Authority, Holder, JoinLine, Key, to_pem, valid_until};
use atoll_needs::needs;
use atoll_rpc::{Credentials, Peer, Trust};
use common::{
    Daemon, Mounted, PATIENCE, Scratch, atoll, bad, detach, eventually, free_port, good, script, signal, text,
};

use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;

/// Nodes of a cluster with certificates, each a process.
struct Secured {
    // Before the directory: a daemon whose files go away complains.
    nodes: Vec<Daemon>,
    scratch: Scratch,
}

impl Secured {
    /// A first node, and so many that have joined it.
    fn new(joined: usize) -> Self {
        let scratch = Scratch::new();
        let listen = local();
        let data = scratch.path("node1");
        good(["init", "--data", text(&data), "--listen", &listen, "--no-start", "--control", "embedded"]);
        let nodes = vec![serve(&scratch.path("node1"), &listen)];
        let mut this = Self { nodes, scratch };
        (0..joined).for_each(|_| this.join());
        this
    }

    fn data(&self, node: usize) -> PathBuf {
        self.scratch.path(&format!("node{node}"))
    }

    /// A line to join by.
    fn line(&self) -> String {
        let line = good(["node", "invite", "--data", text(&self.data(1))]);
        line.trim().strip_prefix("atoll join ").expect("the command to give").to_owned()
    }

    /// One more node joins, and serves.
    fn join(&mut self) {
        let (data, listen) = (self.data(self.nodes.len() + 1), local());
        good(["join", &self.line(), "--data", text(&data), "--listen", &listen, "--no-start"]);
        self.nodes.push(serve(&data, &listen));
    }

    fn listed(&self, of: usize) -> Vec<(String, String)> {
        let told = good(["node", "list", "--json", "--data", text(&self.data(of))]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        let word = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        told.as_array().unwrap().iter().map(|node| (word(&node["name"]), word(&node["address"]))).collect()
    }

    /// Where a node listens.
    fn address(&self, node: usize) -> String {
        self.nodes[node - 1].told("listens").to_owned()
    }

    /// A volume over the nodes with these numbers.
    fn volume(&self, name: &str, nodes: &[usize]) {
        let addresses: Vec<String> = nodes.iter().map(|node| self.address(*node)).collect();
        good(["volume", "create", name, "--data", text(&self.data(1)), "--nodes", &addresses.join(",")]);
    }

    /// The credentials of a new client.
    fn client(&self, name: &str, limits: &[&str]) -> PathBuf {
        let file = self.scratch.path(&format!("{name}.pem"));
        let data = self.data(1);
        let arguments = ["client", "add", name, "--out", text(&file), "--data", text(&data)];
        good(arguments.iter().chain(limits));
        file
    }

    /// A mount by these credentials.
    fn mount(&self, volume: &str, name: &str, credentials: &Path) -> Mounted {
        let point = self.scratch.dir(name);
        let source = format!("{}:/{volume}", self.address(1));
        let arguments = ["--credentials", text(credentials), "mount", &source, text(&point)];
        // Also a node that has not heard of the client yet.
        good(arguments);
        Mounted(point)
    }
}

fn local() -> String {
    format!("127.0.0.1:{}", free_port())
}

fn serve(data: &Path, listen: &str) -> Daemon {
    Daemon::start(["serve", "--data", text(data), "--listen", listen], "volumes")
}

/// The error number of a call.
fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

#[test]
fn machines_join_by_one_line_each_and_everybody_knows_them() {
    let mut cluster = Secured::new(1);
    let line = cluster.line();
    let third = cluster.scratch.path("node3");
    let listen = local();
    let said =
        good(["join", &line, "--data", text(&third), "--listen", &listen, "--name", "store-3", "--no-start"]);
    assert!(said.contains("(3 nodes)") && said.contains(&format!("store-3 at {listen}")), "{said}");
    // The line was used.
    let fourth = cluster.scratch.path("node4");
    let said = bad(["join", &line, "--data", text(&fourth), "--listen", &local(), "--no-start"]);
    assert!(said.contains("used already, by another node"), "{said}");
    assert!(!fourth.exists(), "it is as before");
    cluster.nodes.push(serve(&third, &listen));
    for node in 1..=3 {
        let names: Vec<String> = cluster.listed(node).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["node1", "node2", "store-3"]);
    }
    good(["node", "rename", "store-3", "node3", "--data", text(&cluster.data(2))]);
    assert_eq!(cluster.listed(1)[2], ("node3".to_owned(), listen));
    let said = bad(["node", "rename", "node3", "node1", "--data", text(&cluster.data(2))]);
    assert!(said.contains("There is a node node1 already"), "{said}");
    // All nodes of the cluster, with copies.
    let said = good(["volume", "create", "home", "--replicas", "2", "--data", text(&cluster.data(3))]);
    assert!(said.contains("on 3 nodes, 2 copies of each"), "{said}");
    let said = bad(["node", "remove", "node3", "--data", text(&cluster.data(1))]);
    assert!(said.contains("keeps copies of 2 islands of volume home"), "{said}");
    assert!(said.contains("atoll node drain node3"), "{said}");
    let said = bad(["node", "remove", "node9", "--data", text(&cluster.data(1))]);
    assert!(said.contains("There is no node node9"), "{said}");
}

#[test]
fn files_go_over_encrypted_links_and_a_client_has_its_limits() {
    needs!(Mounts, Root);
    let cluster = Secured::new(1);
    cluster.volume("home", &[1, 2]);
    cluster.volume("other", &[1]);
    let whole = cluster.mount("home", "whole", &cluster.client("desk", &[]));
    std::fs::write(whole.path("secret"), vec![7; 3_000_000]).unwrap();
    std::fs::set_permissions(whole.path("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(whole.path("public"), b"hello").unwrap();
    let reader = cluster.mount("home", "reader", &cluster.client("reader", &["--ro", "--volume", "home"]));
    assert_eq!(std::fs::read(reader.path("secret")).unwrap(), vec![7; 3_000_000]);
    assert_eq!(errno(std::fs::write(reader.path("mine"), b"x")), Some(libc::EROFS));
    assert_eq!(errno(std::fs::remove_file(reader.path("public"))), Some(libc::EROFS));
    assert_eq!(errno(std::fs::write(reader.path("public"), b"x")), Some(libc::EROFS));
    let squashed = cluster.mount("home", "squashed", &cluster.client("squashed", &["--squash", "1000:1000"]));
    assert_eq!(std::fs::read(squashed.path("public")).unwrap(), b"hello");
    assert_eq!(errno(std::fs::read(squashed.path("secret"))), Some(libc::EACCES), "as root of its machine");
    // A volume that is not its own is none.
    let credentials = cluster.scratch.path("reader.pem");
    let source = format!("{}:/other", cluster.address(1));
    let point = cluster.scratch.dir("none");
    let said = bad(["--credentials", text(&credentials), "mount", &source, text(&point)]);
    assert!(said.contains("There is no volume \"other\""), "{said}");
    // It is taken away while it is mounted.
    good(["client", "remove", "reader", "--data", text(&cluster.data(2))]);
    let said = good(["client", "list", "--data", text(&cluster.data(1))]);
    assert!(said.contains("squash 1000:1000") && !said.contains("reader"), "{said}");
    eventually("nobody lets it in", || {
        let source = format!("{}:/home", cluster.address(1));
        let output =
            atoll(["--credentials", text(&credentials), "mount", &source, text(&point)]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        !output.status.success() && said.contains("not in the list of the cluster")
    });
    detach(&reader.0);
}

/// Names in a directory, in order.
fn names(dir: &Path) -> Vec<String> {
    let entries =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

#[test]
fn a_client_of_a_subtree_sees_that_as_its_whole_tree_and_nothing_else() {
    needs!(Mounts, Root);
    let cluster = Secured::new(1);
    cluster.volume("home", &[1, 2]);
    let whole = cluster.mount("home", "whole", &cluster.client("desk", &[]));
    // Of several islands.
    let dirs: Vec<String> = (0..6).map(|n| format!("d{n}")).collect();
    for dir in &dirs {
        for above in ["in", "out"] {
            std::fs::create_dir_all(whole.path(above).join(dir)).unwrap();
            std::fs::write(whole.path(above).join(dir).join("f"), format!("{above}/{dir}")).unwrap();
        }
    }
    std::os::unix::fs::symlink("in", whole.path("link")).unwrap();
    // What cannot be a subtree makes no client.
    let refused = |named: &str, word: &str| {
        let said = bad(["client", "add", "app", "--volume", named, "--data", text(&cluster.data(1))]);
        assert!(said.contains(word), "{said}");
        assert!(!good(["client", "list", "--data", text(&cluster.data(1))]).contains("app"));
    };
    refused("home:/none", "There is no \"none\" in /");
    refused("home:/in/d0/f", "home:/in/d0/f is no directory");
    refused("home:/link", "is a symbolic link");
    refused("home:in", "write VOLUME:/PATH");
    refused("none:/in", "There is no volume \"none\"");
    let mount = cluster.mount("home", "app", &cluster.client("app", &["--volume", "home:/in"]));
    let said = good(["client", "list", "--data", text(&cluster.data(1))]);
    assert!(said.contains(":/in") && !said.contains("which is gone"), "{said}");
    // It is the whole tree.
    assert_eq!(names(&mount.0), dirs);
    for dir in &dirs {
        assert_eq!(std::fs::read_to_string(mount.path(dir).join("f")).unwrap(), format!("in/{dir}"));
        std::fs::write(mount.path(dir).join("new"), vec![7; 300_000]).unwrap();
        assert_eq!(std::fs::read(whole.path("in").join(dir).join("new")).unwrap(), vec![7; 300_000]);
        std::fs::create_dir(mount.path(dir).join("sub")).unwrap();
        std::fs::hard_link(mount.path(dir).join("new"), mount.path(dir).join("sub/more")).unwrap();
        std::fs::rename(mount.path(dir).join("new"), mount.path(&format!("from-{dir}"))).unwrap();
        assert_eq!(std::fs::metadata(mount.path(dir).join("sub/more")).unwrap().len(), 300_000);
        std::fs::remove_file(mount.path(dir).join("sub/more")).unwrap();
        std::fs::rename(mount.path(dir).join("sub"), mount.path("d0").join(format!("sub-{dir}"))).unwrap();
    }
    // Links lead nowhere outside: the client's kernel follows them in its own tree. And no other mount is within reach of a rename.
    std::os::unix::fs::symlink("../out/d0/f", whole.path("in/way")).unwrap();
    assert_eq!(errno(std::fs::read(mount.path("way"))), Some(libc::ENOENT));
    assert_eq!(errno(std::fs::rename(mount.path("d1/f"), whole.path("out/stolen"))), Some(libc::EXDEV));
    assert_eq!(errno(std::fs::hard_link(whole.path("out/d1/f"), mount.path("stolen"))), Some(libc::EXDEV));
    // Its commands.
    let credentials = cluster.scratch.path("app.pem");
    let said = bad(["--credentials", text(&credentials), "ls", "--atomic", text(&mount.path("d0"))]);
    assert!(said.contains("sees a part of volume home only"), "{said}");
    let said = good(["--credentials", text(&credentials), "explain", text(&mount.path("d0/f"))]);
    assert!(said.contains("island"), "{said}");
    assert!(rustix::fs::statvfs(&mount.0).unwrap().f_blocks > 0);

    // What others do inside.
    let mut open = std::fs::File::open(mount.path("d2/f")).unwrap();
    let mut again = |word: &str| {
        open.seek(SeekFrom::Start(0)).unwrap();
        let mut content = String::new();
        let outcome = open.read_to_string(&mut content).map(|_| content);
        assert_eq!(outcome.as_deref().ok(), Some("in/d2"), "{word}: {outcome:?}");
    };
    again("as it was opened");
    std::fs::rename(whole.path("in/d2/f"), whole.path("in/d3/elsewhere")).unwrap();
    again("another mount has renamed it");
    std::fs::hard_link(whole.path("out/d4/f"), whole.path("in/shown")).unwrap();
    assert_eq!(std::fs::read_to_string(mount.path("shown")).unwrap(), "out/d4", "one of its names is inside");
    std::fs::remove_file(whole.path("in/d3/elsewhere")).unwrap();
    again("it has no name any more");
    let mut left = std::fs::File::open(mount.path("d5/f")).unwrap();
    std::fs::rename(whole.path("in/d5/f"), whole.path("out/left")).unwrap();
    assert_eq!(errno(left.read(&mut [0; 9])), Some(libc::ESTALE), "it was moved out");
    std::fs::rename(whole.path("in/d5"), whole.path("out/d5-moved")).unwrap();
    assert_eq!(errno(std::fs::metadata(mount.path("d5"))), Some(libc::ENOENT));

    // With the other limits at once.
    let limits = ["--volume", "home:/in", "--ro", "--squash", "1000:1000"];
    let guest = cluster.mount("home", "guest", &cluster.client("guest", &limits));
    std::fs::set_permissions(whole.path("in/d0/f"), PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(errno(std::fs::read(guest.path("d0/f"))), Some(libc::EACCES), "as root of its machine");
    assert_eq!(std::fs::read_to_string(guest.path("d1/f")).unwrap(), "in/d1");
    assert_eq!(errno(std::fs::write(guest.path("d1/f"), "x")), Some(libc::EROFS));

    // The directory goes on being seen where it is moved to, and another one at its place is not it.
    std::fs::rename(whole.path("in"), whole.path("out/inner")).unwrap();
    std::fs::create_dir(whole.path("in")).unwrap();
    std::fs::write(whole.path("in/other"), "other").unwrap();
    assert_eq!(std::fs::read_to_string(mount.path("d1/f")).unwrap(), "in/d1");
    assert!(!names(&mount.0).contains(&"other".to_owned()));
    std::fs::remove_dir_all(whole.path("out/inner")).unwrap();
    let listed = std::fs::read_dir(&mount.0).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    assert_eq!(errno(listed), Some(libc::ESTALE));
    assert_eq!(errno(std::fs::write(mount.path("x"), "x")), Some(libc::ESTALE));
    let point = cluster.scratch.dir("again");
    let source = format!("{}:/home", cluster.address(1));
    let said = bad(["--credentials", text(&credentials), "mount", &source, text(&point)]);
    assert!(said.contains("does not exist any more"), "{said}");
    let said = good(["client", "list", "--data", text(&cluster.data(1))]);
    assert_eq!(said.matches("which is gone").count(), 2, "{said}");
}

#[test]
fn a_line_of_fstab_names_several_nodes_and_the_credentials() {
    needs!(Mounts, Root);
    let cluster = Secured::new(1);
    cluster.volume("home", &[1, 2]);
    let (one, other) = (cluster.client("one", &[]), cluster.client("other", &["--ro"]));
    // The first node of the line is away.
    let source = format!("{},{},{}:/home", local(), cluster.address(1), cluster.address(2));
    let (scratch, point) = (&cluster.scratch, cluster.scratch.dir("point"));
    let fstab = scratch.path("fstab");
    for client in [&one, &other] {
        let second = format!("{}:/home", cluster.address(2));
        eventually("the second node has heard of the client", || {
            atoll(["--credentials", text(client), "mount", &second, text(&point)]).status().unwrap().success()
        });
        good(["umount", text(&point)]);
    }
    let said = script(
        scratch,
        &format!(
            "echo '{source} {point} atoll _netdev,nofail,credentials={one} 0 0' > {fstab}\n\
             mount --bind {fstab} /etc/fstab\n\
             mount {point}\n\
             echo hello > {point}/file\n\
             mount -o remount,ro,credentials={other} {point}\n\
             umount {point}\n\
             mount -t atoll {source} {point} && exit 1 || true\n\
             mount -t atoll -o credentials={fstab} {source} {point} && exit 1 || true\n\
             mount -t atoll -o credentials={other} {source} {point}\n\
             cat {point}/file\n\
             echo more > {point}/file && exit 1 || true\n\
             umount {point}\n",
            point = text(&point),
            fstab = text(&fstab),
            one = text(&one),
            other = text(&other),
        ),
    );
    assert!(said.contains("hello"), "{said}");
    assert!(said.contains("stays as it was when it was mounted"), "{said}");
    assert!(said.contains("it wants TLS, and this program has no credentials"), "{said}");
    assert!(said.contains("has no credentials: "), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
    // The same word for atoll mount.
    let option = format!("credentials={}", text(&one));
    let again = Mounted::new(&format!("{}:/home", cluster.address(2)), point, &option);
    assert_eq!(std::fs::read(again.path("file")).unwrap(), b"hello\n");
}

#[test]
fn without_credentials_or_with_those_of_another_cluster_there_is_nothing() {
    let (cluster, other) = (Secured::new(0), Secured::new(0));
    let address = cluster.address(1);
    let of_other = other.client("c", &[]);
    let none = cluster.scratch.path("none");
    std::fs::write(&none, b"nothing").unwrap();
    let said = bad(["status", &address]);
    assert!(said.contains("it wants TLS, and this program has no credentials"), "{said}");
    let said = bad(["--credentials", text(&of_other), "status", &address]);
    assert!(said.contains("of another cluster"), "{said}");
    let said = bad(["--credentials", text(&none), "status", &address]);
    assert!(said.contains("has no credentials"), "{said}");
    let said = bad(["--credentials", text(&cluster.scratch.path("absent")), "status", &address]);
    assert!(said.contains("cannot be read"), "{said}");
    // A client gives no orders.
    let client = cluster.client("c", &[]);
    let said = bad(["--credentials", text(&client), "status", &address]);
    assert!(said.contains("for nodes and administrators"), "{said}");
    let said = bad(["client", "add", "c", "--data", text(&cluster.data(1))]);
    assert!(said.contains("There is a client c already"), "{said}");
    let said = bad(["client", "add", "d", "--out", text(&client), "--data", text(&cluster.data(1))]);
    assert!(said.contains("is there already"), "{said}");
    assert_eq!(std::fs::metadata(&client).unwrap().permissions().mode() & 0o777, 0o600);
    // And a node without certificates is told from one with them.
    let plain = Scratch::new();
    let daemon = serve(&plain.path("data"), "127.0.0.1:0");
    let said = bad(["--credentials", text(&client), "status", daemon.told("listens")]);
    assert!(said.contains("it does not speak TLS"), "{said}");
    let said = bad(["node", "list", "--data", text(&plain.path("data"))]);
    assert!(said.contains("in no cluster with certificates"), "{said}");
}

#[test]
fn a_line_that_is_not_good_makes_nothing() {
    let cluster = Secured::new(0);
    let good_line = cluster.line();
    let data = cluster.scratch.path("new");
    let join = |line: &str, listen: &str| {
        bad(["join", line, "--data", text(&data), "--listen", listen, "--no-start"])
    };
    let line: JoinLine = good_line.parse().unwrap();
    let altered = good_line.replace(&good_line[20..24], "AAAA");
    let expired = JoinLine { until: 1000, secret: [1; 16], ..line.clone() };
    let unknown = JoinLine { secret: [1; 16], ..line.clone() };
    let wrong_ca = JoinLine { ca: [1; 32], ..line.clone() };
    let nowhere = JoinLine { addresses: vec![local().parse().unwrap()], ..line };
    for (line, word) in [
        ("hello".to_owned(), "no line to join by"),
        (altered, "was altered"),
        (expired.to_string(), "has expired"),
        (unknown.to_string(), "does not know this line"),
        (wrong_ca.to_string(), "of another cluster"),
        (nowhere.to_string(), "cannot be reached"),
    ] {
        let said = join(&line, &local());
        assert!(said.contains(word), "{word}: {said}");
        assert!(!data.exists(), "{word}");
    }
    // Neither the port nor the directory is free.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let said = join(&good_line, &taken.local_addr().unwrap().to_string());
    assert!(said.contains("is in use by another program") && !data.exists(), "{said}");
    let of_node = cluster.data(1);
    let said = bad(["join", &good_line, "--data", text(&of_node), "--listen", &local(), "--no-start"]);
    assert!(said.contains("in use by"), "{said}");
    let other = Secured::new(0);
    let mut nodes = other.nodes;
    nodes.iter_mut().for_each(Daemon::stop);
    let of_other = other.scratch.path("node1");
    let said = bad(["join", &good_line, "--data", text(&of_other), "--listen", &local(), "--no-start"]);
    assert!(said.contains("is one of a node already"), "{said}");
    let said =
        bad(["init", "--data", text(&of_other), "--listen", &local(), "--no-start", "--control", "embedded"]);
    assert!(said.contains("is one of a node already"), "{said}");
    let photos = cluster.scratch.dir("photos");
    std::fs::write(photos.join("a.jpg"), b"mine").unwrap();
    let said = bad(["join", &good_line, "--data", text(&photos), "--listen", &local(), "--no-start"]);
    assert!(said.contains("is not a data directory"), "{said}");
    assert_eq!(std::fs::read_dir(&photos).unwrap().count(), 1);
    // The line is as good as before.
    good(["join", &good_line, "--data", text(&data), "--listen", &local(), "--no-start"]);
    // Credentials that are lost are not taken for a node that needs none.
    std::fs::remove_file(data.join("credentials.pem")).unwrap();
    let said = bad(["serve", "--data", text(&data), "--listen", &local(), "--no-restart"]);
    assert!(said.contains("credentials.pem is damaged: it is missing"), "{said}");
}

#[test]
fn a_node_that_was_removed_is_told_so_and_serves_nothing() {
    let mut cluster = Secured::new(2);
    let listen = cluster.address(3);
    good(["node", "remove", "node3", "--data", text(&cluster.data(2))]);
    assert_eq!(cluster.listed(1).len(), 2);
    cluster.nodes[2].stop();
    let said = bad(["serve", "--data", text(&cluster.data(3)), "--listen", &listen, "--no-restart"]);
    assert!(said.contains("was removed from its cluster"), "{said}");
    let said = bad(["node", "remove", "node1", "--data", text(&cluster.data(2))]);
    assert!(said.contains("keeps the list"), "{said}");
    // It is known of those that are left while the one that keeps the list is away.
    cluster.nodes[0].stop();
    assert_eq!(cluster.listed(2).len(), 2);
    cluster.nodes[1].stop();
    cluster.nodes[1] = serve(&cluster.data(2), cluster.nodes[1].told("listens"));
    assert_eq!(cluster.listed(2).len(), 2);
}

/// Whether both copies of two islands are in sync, as those say that lead and those that follow.
fn both_in_sync(cluster: &Secured) -> bool {
    let told = good([
        "--credentials",
        text(&cluster.data(1).join("credentials.pem")),
        "status",
        &cluster.address(1),
        "--json",
    ]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let all = |value: &serde_json::Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let volumes = all(&told, "processes").into_iter().flat_map(|process| all(&process, "volumes"));
    let islands: Vec<_> = volumes.flat_map(|volume| all(&volume, "islands")).collect();
    let are_two = |role: &str| {
        let of_role = islands.iter().filter(|island| island["copies"]["role"] == role);
        of_role.filter(|island| island["copies_in_sync"] == 2 && island["copies_wanted"] == 2).count() == 2
    };
    are_two("leads") && are_two("follows")
}

/// Files of a mount that is used, each with its bytes.
fn some_files(mount: &Mounted, round: usize) -> Vec<(PathBuf, Vec<u8>)> {
    let file = |n: usize| {
        let dir = mount.path(&format!("dir{}", n % 7));
        std::fs::create_dir_all(&dir).unwrap();
        let (path, bytes) = (dir.join(format!("{round}-{n}")), vec![n as u8; 1 + n * 997 % 60_000]);
        std::fs::write(&path, &bytes).unwrap();
        (path, bytes)
    };
    (0..60).map(file).collect()
}

fn are_as_written(files: &[(PathBuf, Vec<u8>)]) {
    for (path, bytes) in files {
        assert!(std::fs::read(path).unwrap() == *bytes, "{} is another one", path.display());
    }
}

/// Two copies of each island on the first three nodes, and a mount of them.
fn mounted_home(cluster: &Secured) -> Mounted {
    let nodes: Vec<String> = (1..=3).map(|node| cluster.address(node)).collect();
    let data = cluster.data(1);
    good(["volume", "create", "home", "--replicas", "2", "--data", text(&data), "--nodes", &nodes.join(",")]);
    cluster.mount("home", "mount", &cluster.client("desk", &[]))
}

/// An order about nodes, given at a node.
fn of_nodes(data: &Path, words: &[&str]) -> Vec<String> {
    ["node"].iter().chain(words).chain(&["--data", text(data)]).map(ToString::to_string).collect()
}

#[test]
fn a_node_is_drained_while_its_volume_is_used_and_may_be_removed_then() {
    needs!(Mounts, Root);
    let mut cluster = Secured::new(3);
    let mount = mounted_home(&cluster);
    let mut files = some_files(&mount, 0);
    let data = cluster.data(1);
    let node = |words: &[&str]| of_nodes(&data, words);
    let said = bad(node(&["remove", "node2"]));
    assert!(said.contains("keeps copies of 2 islands of volume home"), "{said}");
    let said = bad(node(&["drain", "node1"]));
    assert!(said.contains("control store of volume home") && said.contains("atoll control move"), "{said}");
    let said = bad(node(&["drain", "node9"]));
    assert!(said.contains("There is no node node9"), "{said}");
    // It goes on by itself, and is watched by the same command.
    let said = good(node(&["drain", "node2", "--no-wait"]));
    assert!(said.contains("node2 keeps"), "{said}");
    files.extend(some_files(&mount, 1));
    let said = good(node(&["drain", "node2", "--json"]));
    let last: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((&last["node"], &last["left"]), (&"node2".into(), &serde_json::json!([])), "{said}");
    let listed: serde_json::Value = serde_json::from_str(&good(node(&["list", "--json"]))).unwrap();
    let drained: Vec<_> = (0..4).map(|nth| listed[nth]["drained"].clone()).collect();
    assert_eq!(serde_json::json!(drained), serde_json::json!([[], ["home"], [], []]));
    assert!(good(node(&["list"])).lines().nth(1).unwrap().ends_with("DRAINED of home"));
    files.extend(some_files(&mount, 2));
    eventually("the files of its copies are gone", || {
        let folder = cluster.data(2).join("islands/home");
        (0..2).all(|island| !folder.join(format!("{island}")).exists())
    });
    eventually("two copies are in sync, and know it", || both_in_sync(&cluster));
    good(node(&["remove", "node2"]));
    assert_eq!(cluster.listed(1).len(), 3);
    eventually("it has forgotten the volume", || !cluster.data(2).join("islands/home").exists());
    are_as_written(&files);
    // What it kept is on node 4, which came to the volume for that.
    let home = cluster.address(3);
    cluster.nodes[2].kill();
    are_as_written(&files);
    let data3 = cluster.data(3);
    cluster.nodes[2] = serve(&data3, &home);
    eventually("node 3 is back", || both_in_sync(&cluster));
    // An order that is taken back: the new copy goes, or the old one has gone.
    good(node(&["drain", "node3", "--no-wait"]));
    let said = good(node(&["drain", "node3", "--undo"]));
    assert!(said.contains("node3"), "{said}");
    eventually("two copies are in sync", || both_in_sync(&cluster));
    are_as_written(&files);
}

#[test]
fn a_node_that_never_comes_back_is_replaced_and_refused() {
    needs!(Mounts, Root);
    let mut cluster = Secured::new(4);
    let mount = mounted_home(&cluster);
    let mut files = some_files(&mount, 0);
    let data = cluster.data(1);
    let node = |words: &[&str]| of_nodes(&data, words);
    let said = bad(node(&["remove", "--lost", "node2"]));
    assert!(
        said.contains("node2 answers: it is not lost") && said.contains("atoll node drain node2"),
        "{said}"
    );
    let listen = cluster.address(2);
    cluster.nodes[1].kill();
    files.extend(some_files(&mount, 1));
    good(node(&["remove", "--lost", "node2"]));
    eventually("another node has its copies", || both_in_sync(&cluster));
    let said = bad(["serve", "--data", text(&cluster.data(2)), "--listen", &listen, "--no-restart"]);
    assert!(said.contains("was removed from its cluster"), "{said}");
    // Now the islands are on nodes 3 and another one. That one falls out, and then the good one is lost: what it had alone is named.
    let others: Vec<usize> =
        (4..=5).filter(|node| cluster.data(*node).join("islands/home/0").exists()).collect();
    let [other] = others[..] else { panic!("{others:?} keep island 0") };
    let (there, address) = (cluster.data(other), cluster.address(other));
    cluster.nodes[other - 1].kill();
    files.extend(some_files(&mount, 2));
    cluster.nodes[2].kill();
    cluster.nodes[other - 1] = serve(&there, &address);
    let said = bad(node(&["remove", "--lost", "node3"]));
    assert!(said.contains("only node3 had everything") && said.contains("islands 0, 1"), "{said}");
    assert!(said.contains("--lost --yes node3"), "{said}");
    good(node(&["remove", "--lost", "--yes", "node3"]));
    eventually("two copies are in sync again", || both_in_sync(&cluster));
    are_as_written(&files[..120]);
}

#[test]
fn a_daemon_that_init_has_started_serves_when_the_command_ends() {
    let scratch = Scratch::new();
    // It was there before, and is open to others.
    let (data, listen) = (scratch.dir("node"), local());
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o755)).unwrap();
    let said = good(["init", "--data", text(&data), "--listen", &listen, "--control", "embedded"]);
    assert!(said.contains("join     atoll join atoll-join-1."), "{said}");
    let told: serde_json::Value =
        serde_json::from_str(&good(["status", "--data", text(&data), "--json"])).unwrap();
    let pid = told["processes"][0]["pid"].as_u64().unwrap() as u32;
    let parent = Command::new("ps").args(["-o", "ppid=", "-p", &pid.to_string()]).output().unwrap();
    let parent: u32 = String::from_utf8(parent.stdout).unwrap().trim().parse().unwrap();
    signal(parent, rustix::process::Signal::TERM);
    eventually("it has stopped", || !common::is_alive(parent));
    assert!(PATIENCE.as_secs() > 0);
    let log = data.join("daemon.log");
    assert!(std::fs::read_to_string(&log).unwrap().is_empty(), "nothing to complain of");
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Credentials in a file as they were so many days ago. `of`: the data directory of a node that keeps the CA's private key.
fn aged(file: &Path, of: &Path, days: u64) {
    let now = Credentials::from_pem(&std::fs::read(file).unwrap()).unwrap();
    let Trust::Ca(ca) = &now.trust else { panic!("it names its CA") };
    let ca_key = PrivateKeyDer::from_pem_slice(&std::fs::read(of.join("ca.key")).unwrap()).unwrap();
    let authority = Authority::from_parts(ca, ca_key.secret_der()).unwrap();
    let key = Key::from_der(now.key.secret_der()).unwrap();
    let holder = match now.peer().unwrap() {
        Peer::Node(node) => Holder::Node(node),
        Peer::Client(client) => Holder::Client(client),
        Peer::Guest(_) => panic!("a guest has no certificate of the CA"),
    };
    let then = SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
    let old = authority.issue(holder, &key.public(), then).unwrap();
    let text = to_pem("CERTIFICATE", &old) + &to_pem("CERTIFICATE", ca) + &to_pem("PRIVATE KEY", &key.der());
    std::fs::write(file, text).unwrap();
}

/// For how many days more the certificate in a file is valid.
fn days_left(file: &Path) -> u64 {
    let credentials = Credentials::from_pem(&std::fs::read(file).unwrap()).unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    valid_until(&credentials.certificate).unwrap().saturating_sub(now) / (24 * 60 * 60)
}

#[test]
fn certificates_are_renewed_by_those_who_have_them() {
    needs!(Mounts);
    let mut cluster = Secured::new(1);
    cluster.volume("home", &[1, 2]);
    // Nodes, with and without the CA's key at hand.
    std::fs::remove_file(cluster.data(2).join("ca.key")).unwrap();
    for node in [1, 2] {
        let file = cluster.data(node).join("credentials.pem");
        aged(&file, &cluster.data(1), 70);
        assert!(days_left(&file) < 21);
        cluster.nodes[node - 1].stop();
        let listen = cluster.address(node);
        cluster.nodes[node - 1] = serve(&cluster.data(node), &listen);
        eventually("the node has a new certificate", || days_left(&file) > 80);
        // It looks while it runs, too.
        aged(&file, &cluster.data(1), 70);
        eventually("the node has a new certificate again", || days_left(&file) > 80);
    }
    // A client, while it is mounted.
    let file = cluster.client("desk", &[]);
    aged(&file, &cluster.data(1), 70);
    let mount = cluster.mount("home", "mount", &file);
    eventually("the mount has a new certificate", || days_left(&file) > 80);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::write(mount.path("file"), b"content").unwrap();
    // One that knows a node only that does not keep the CA's key.
    cluster.volume("far", &[2]);
    let lone = cluster.client("lone", &[]);
    aged(&lone, &cluster.data(1), 70);
    let source = format!("{}:/far", cluster.address(2));
    let point = cluster.scratch.dir("far");
    good(["--credentials", text(&lone), "mount", &source, text(&point)]);
    let _far = Mounted(point);
    eventually("its node has passed the request on", || days_left(&lone) > 80);
    // One that is young enough stays as it is.
    let other = cluster.client("other", &[]);
    aged(&other, &cluster.data(1), 10);
    let before = std::fs::read(&other).unwrap();
    let _second = cluster.mount("home", "second", &other);
    assert_eq!(std::fs::read(&other).unwrap(), before);
    // What is not valid any more is told so.
    aged(&other, &cluster.data(1), 91);
    let said = bad(["--credentials", text(&other), "volume", "list", &cluster.address(1)]);
    assert!(said.contains("not valid now") && said.contains("clocks"), "{said}");
}

#[test]
fn where_systemd_has_a_unit_for_the_node_it_runs_the_daemon() {
    needs!(Root, Networks, Programs(&["unshare", "ip", "setsid"]));
    let scratch = Scratch::new();
    let (tools, state) = (scratch.dir("tools"), scratch.dir("state"));
    // A systemctl that knows one unit, or none. The unit's file has options for its daemon.
    let systemctl = format!(
        "#!/bin/sh\necho \"$*\" >> {log}\n\
         case \"$1\" in\n\
         cat) [ -e {unit} ];;\n\
         enable) setsid {atoll} serve --data /var/lib/atoll --listen 0.0.0.0:7100 $(cat {unit}) >/dev/null 2>&1 & echo $! > {pid};;\n\
         show) if kill -0 $(cat {pid}) 2>/dev/null; then echo success; else echo exit-code; fi;;\n\
         esac\n",
        log = text(&scratch.path("asked")),
        unit = text(&scratch.path("unit")),
        pid = text(&scratch.path("pid")),
        atoll = env!("CARGO_BIN_EXE_atoll"),
    );
    std::fs::write(tools.join("systemctl"), systemctl).unwrap();
    std::fs::set_permissions(tools.join("systemctl"), PermissionsExt::from_mode(0o755)).unwrap();
    let init = |unit: Option<&str>| {
        let _ = std::fs::remove_file(scratch.path("unit"));
        unit.into_iter().for_each(|options| std::fs::write(scratch.path("unit"), options).unwrap());
        std::fs::remove_dir_all(&state).unwrap();
        std::fs::create_dir(&state).unwrap();
        std::fs::write(scratch.path("asked"), "").unwrap();
        let lines = format!(
            "set -u\nexport PATH={tools}:$PATH\n\
             mkdir -p /var/lib/atoll && mount --bind {state} /var/lib/atoll\n\
             mount -t tmpfs none /run && mkdir -p /run/systemd/system\n\
             ip link set lo up\n\
             {atoll} init --address 127.0.0.1:7100; echo code $?\n\
             {atoll} status --data /var/lib/atoll --json | grep -m1 -o '\"pid\": [0-9]*' | cut -d' ' -f2 > {pid}-serves\n\
             for pid in $(cat {pid}-serves); do kill $(ps -o ppid= -p $pid); done\n\
             while ss -xl | grep -q /var/lib/atoll; do sleep 0.05; done\n",
            tools = text(&tools),
            state = text(&state),
            pid = text(&scratch.path("pid")),
            atoll = env!("CARGO_BIN_EXE_atoll"),
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--propagation", "private", "bash", "-c", &lines]);
        let output = command.output().unwrap();
        let asked = std::fs::read_to_string(scratch.path("asked")).unwrap();
        (String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(), asked)
    };
    let (said, asked) = init(Some(""));
    assert!(said.contains("log      journalctl -u atoll.service") && said.contains("code 0"), "{said}");
    assert!(said.contains("atoll join atoll-join-1."), "{said}");
    assert!(asked.contains("enable --now --quiet atoll.service"), "{asked}");
    assert!(!state.join("daemon.log").exists(), "no other daemon was begun");
    // Its daemon does not start.
    let (said, _) = init(Some("--no-such-option"));
    assert!(said.contains("ended at once (exit-code)") && said.contains("code 1"), "{said}");
    // There is no unit.
    let (said, asked) = init(None);
    assert!(said.contains("log      /var/lib/atoll/daemon.log") && said.contains("code 0"), "{said}");
    assert_eq!(asked, "cat atoll.service\n");
}
