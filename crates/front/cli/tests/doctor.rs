//! `atoll doctor` finds what was broken on purpose, and says what to do.

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atoll_ca::{Authority, Holder, Key, LIFETIME_DAYS, to_pem};
use atoll_needs::needs;
use atoll_rpc::{Credentials, Peer, Trust};
use common::{Daemon, Scratch, eventually, free_port, good, run, script, text};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;

fn local() -> String {
    format!("127.0.0.1:{}", free_port())
}

fn serve(data: &Path, listen: &str) -> Daemon {
    Daemon::start(["serve", "--data", text(data), "--listen", listen], "volumes")
}

/// Makes the first node of a cluster with certificates, and starts it.
fn first(scratch: &Scratch) -> (PathBuf, Daemon) {
    let (data, listen) = (scratch.path("node1"), local());
    good(["init", "--data", text(&data), "--listen", &listen, "--no-start", "--control", "embedded"]);
    let daemon = serve(&data, &listen);
    (data, daemon)
}

/// One more node.
fn join(scratch: &Scratch, first: &Path) -> (PathBuf, Daemon) {
    let line = good(["node", "invite", "--data", text(first)]);
    let line = line.trim().strip_prefix("atoll join ").unwrap().to_owned();
    let (data, listen) = (scratch.path("node2"), local());
    good(["join", &line, "--data", text(&data), "--listen", &listen, "--no-start"]);
    let daemon = serve(&data, &listen);
    (data, daemon)
}

/// What the doctor says about a data directory: level, subject, text. Each finding that is not good comes with what to do.
fn examine(data: &Path) -> Vec<(String, String, String)> {
    let output = run(["doctor", "--json", "--data", text(data)]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("no JSON: {}", String::from_utf8_lossy(&output.stderr)));
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let all: Vec<_> = told.as_array().unwrap().iter().collect();
    for one in &all {
        assert_eq!(one["next"].is_null(), one["level"] == "good", "{one}");
    }
    let is_wrong = all.iter().any(|one| one["level"] == "wrong");
    assert_eq!(output.status.code(), Some(i32::from(is_wrong)), "{told}");
    all.iter().map(|one| (word(&one["level"]), word(&one["about"]), word(&one["what"]))).collect()
}

fn says(found: &[(String, String, String)], level: &str, about: &str, word: &str) {
    let is_it = |one: &&(String, String, String)| one.0 == level && one.1 == about && one.2.contains(word);
    assert!(found.iter().any(|one| is_it(&one)), "{level} {about} {word}: {found:#?}");
}

fn wrong(found: &[(String, String, String)]) -> Vec<&(String, String, String)> {
    found.iter().filter(|one| one.0 == "wrong").collect()
}

#[test]
fn a_sound_cluster_has_nothing_to_mend_and_a_node_that_is_away_is_named() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (data, mut one) = first(&scratch);
    says(&examine(&data), "advice", "CA key", "1 of 1 nodes");
    let (_, mut two) = join(&scratch, &data);
    eventually("both nodes know each other", || {
        examine(&data).iter().any(|one| one.2.contains("all 2 answer"))
    });
    let found = examine(&data);
    assert_eq!(wrong(&found), Vec::<&(String, String, String)>::new());
    for (about, word) in [
        ("CA key", "2 of 2 nodes"),
        ("certificate", "is valid for "),
        ("versions", "everything is atoll "),
        ("fuse", "can mount"),
    ] {
        says(&found, "good", about, word);
    }
    assert!(found.iter().any(|one| one.1 == "clock" && one.2.contains("1 other nodes have the same time")));
    assert!(found.iter().any(|one| one.1 == "disk" && one.2.contains("a sync of 4 KiB takes")));
    two.stop();
    says(&examine(&data), "wrong", "nodes", "node2 does not answer");
    one.stop();
    says(&examine(&data), "wrong", "node", "no daemon answers");
    // The same for people.
    let output = run(["doctor", "--data", text(&data)]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(told.contains("WRONG   node ") && told.contains("systemctl start atoll"), "{told}");
    assert!(told.contains("To be mended: 1."), "{told}");
    let left: Vec<_> = std::fs::read_dir(&data).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("doctor")), "{left:?}");
}

#[test]
fn an_address_that_leads_nowhere_or_to_another_daemon_is_told() {
    let scratch = Scratch::new();
    let (data, nowhere) = (scratch.path("node"), local());
    let listen = local();
    good([
        "init",
        "--data",
        text(&data),
        "--listen",
        &listen,
        "--address",
        &nowhere,
        "--no-start",
        "--control",
        "embedded",
    ]);
    let _daemon = serve(&data, &listen);
    says(&examine(&data), "wrong", "port", &format!("cannot be reached at {nowhere}"));
    // Without certificates: another daemon has taken the port.
    let (plain, port) = (scratch.path("plain"), local());
    let (mut daemon, other) = (serve(&plain, &port), serve(&scratch.path("second"), "127.0.0.1:0"));
    let second = other.told("listens").to_owned();
    good(["volume", "create", "home", "--nodes", &format!("{port},{second}")]);
    assert_eq!(wrong(&examine(&plain)), Vec::<&(String, String, String)>::new());
    daemon.stop();
    let _moved = serve(&plain, &local());
    says(&examine(&plain), "wrong", "port", &format!("cannot be reached at {port}"));
    says(&examine(&plain), "wrong", "port", &format!("{second} cannot reach this node"));
    let _other = serve(&scratch.path("other"), &port);
    says(&examine(&plain), "wrong", "port", &format!("another daemon answers at {port}"));
}

#[test]
fn a_certificate_that_has_ended_or_is_damaged_is_told() {
    let scratch = Scratch::new();
    let data = scratch.path("node1");
    good(["init", "--data", text(&data), "--listen", &local(), "--no-start", "--control", "embedded"]);
    let file = data.join("credentials.pem");
    let credentials = Credentials::from_pem(&std::fs::read(&file).unwrap()).unwrap();
    let (Trust::Ca(ca), Ok(Peer::Node(node))) = (&credentials.trust, credentials.peer()) else {
        panic!("a node's credentials");
    };
    let ca_key = PrivateKeyDer::from_pem_slice(&std::fs::read(data.join("ca.key")).unwrap()).unwrap();
    let authority = Authority::from_parts(ca, ca_key.secret_der()).unwrap();
    let key = Key::from_der(credentials.key.secret_der()).unwrap();
    let issued = |days_ago: u64| {
        let then = SystemTime::now() - Duration::from_secs((days_ago * 24 + 1) * 60 * 60);
        let certificate = authority.issue(Holder::Node(node), &key.public(), then).unwrap();
        let parts = [to_pem("CERTIFICATE", &certificate), to_pem("CERTIFICATE", ca)];
        std::fs::write(&file, parts.concat() + &to_pem("PRIVATE KEY", &key.der())).unwrap();
    };
    let days = u64::from(LIFETIME_DAYS);
    issued(days - 20);
    says(&examine(&data), "advice", "certificate", "19 more days");
    issued(days - 5);
    says(&examine(&data), "wrong", "certificate", "4 more days");
    issued(days + 1);
    says(&examine(&data), "wrong", "certificate", "has ended");
    std::fs::write(&file, "nothing").unwrap();
    says(&examine(&data), "wrong", "certificate", "has no credentials");
}

#[test]
fn a_data_directory_in_memory_that_is_full_is_told_twice() {
    needs!(Root);
    let scratch = Scratch::new();
    let point = scratch.dir("memory");
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64m", "none", text(&point)])
        .status()
        .unwrap();
    assert!(mount.success());
    let data = point.join("data");
    good(["init", "--data", text(&data), "--listen", &local(), "--no-start", "--control", "embedded"]);
    says(&examine(&data), "wrong", "disk", "is in memory");
    // What does not fit is not written.
    let _ = std::fs::write(point.join("film"), vec![0; 64 << 20]);
    let found = examine(&data);
    says(&found, "wrong", "space", "no more than Atoll keeps for its logs");
    says(&found, "wrong", "disk", "cannot be written and synced");
}

#[test]
fn a_machine_that_cannot_mount_is_told_why() {
    needs!(Root, Programs(&["unshare", "setpriv"]));
    let scratch = Scratch::new();
    let program = env!("CARGO_BIN_EXE_atoll");
    let told = script(
        &scratch,
        &format!("mount -t tmpfs none /dev\n{program} doctor --data /no-such-node && exit 1 || true\n"),
    );
    assert!(told.contains("WRONG   fuse ") && told.contains("there is no /dev/fuse"), "{told}");
    assert!(told.contains("no node has its data in /no-such-node"), "{told}");
    // A user who may read the program.
    let copy = scratch.path("atoll");
    std::fs::copy(program, &copy).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(copy.parent().unwrap(), open).unwrap();
    let output = std::process::Command::new("/usr/bin/setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", text(&copy), "doctor"])
        .args(["--data", "/no-such-node"])
        .env("PATH", "/no-such-folder")
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let why = ["may not open /dev/fuse", "fusermount3 is missing"];
    assert!(why.iter().any(|why| told.contains(why)), "{told}{}", String::from_utf8_lossy(&output.stderr));
}
