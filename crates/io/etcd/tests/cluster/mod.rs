//! Real members of etcd for a test: in a folder of its own, on free ports, gone with the test.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use atoll_etcd::{Beginning, EtcdSource, MemberPlan, MemberTls, Tls};
use atoll_needs::free_port;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// The name of certificates that may ask.
pub(crate) const NAME: &str = "etcd.atoll";
/// Longest time that anything here may take.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Waits until something is so.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within {LONG:?}");
        sleep(Duration::from_millis(20));
    }
}

/// Has the kernel kill the program when the thread that starts it ends.
pub(crate) fn ends_with_the_test(command: &mut Command) -> &mut Command {
    // SAFETY: one system call, which takes no lock and no memory.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) }
}

pub(crate) struct Member {
    pub(crate) plan: MemberPlan,
    child: Option<Child>,
}

/// A member with data in this folder, on ports that are free.
pub(crate) fn plan(folder: &Path, name: &str, certificates: Option<&Path>) -> MemberPlan {
    let (client_port, peer_port) = (free_port(), free_port());
    let tls = certificates.map(|folder| MemberTls {
        ca: folder.join("ca.pem"),
        certificate: folder.join("peer.pem"),
        key: folder.join("peer.key"),
        name: Some(NAME.to_owned()),
    });
    MemberPlan {
        program: "etcd".into(),
        name: name.to_owned(),
        cluster: "test".to_owned(),
        data: folder.join(name),
        host: "127.0.0.1".to_owned(),
        listen: "127.0.0.1".to_owned(),
        client_port,
        peer_port,
        tls,
        beginning: Beginning::First,
        quota_bytes: None,
        log: Some(folder.join(format!("{name}.log"))),
    }
}

pub(crate) struct Cluster {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) members: Vec<Member>,
    certificates: Option<PathBuf>,
    /// Whom etcd's own command names, with the password.
    pub(crate) user: Option<String>,
}

impl Cluster {
    /// Members that have elected a leader.
    pub(crate) fn start(number: usize) -> Self {
        Self::with(number, None)
    }

    /// With `certificates` (a folder that [`certificates`] has filled) clients must show one that its CA has signed.
    pub(crate) fn with(number: usize, certificates: Option<PathBuf>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let plan = |nth: usize| plan(folder.path(), &format!("m{nth}"), certificates.as_deref());
        let plans: Vec<MemberPlan> = (0..number).map(plan).collect();
        let of = |nth: usize| {
            let others = plans.iter().enumerate().filter(|(other, _)| *other != nth);
            let others = others.map(|(_, plan)| (plan.name.clone(), plan.peer_url())).collect();
            Member {
                plan: MemberPlan { beginning: Beginning::Joins(others), ..plans[nth].clone() },
                child: None,
            }
        };
        let members = (0..number).map(of).collect();
        let mut cluster = Self { folder, members, certificates, user: None };
        (0..number).for_each(|nth| cluster.begin(nth));
        cluster.wait_until_healthy();
        cluster
    }

    /// Starts a member that does not run.
    pub(crate) fn begin(&mut self, nth: usize) {
        let Member { plan, child } = &mut self.members[nth];
        let log =
            std::fs::File::options().create(true).append(true).open(plan.log.as_ref().unwrap()).unwrap();
        let mut command = Command::new(&plan.program);
        // All are made at once here.
        let new = |argument: String| argument.replace("state=existing", "state=new");
        command
            .args(plan.arguments().into_iter().map(new))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        *child = Some(ends_with_the_test(&mut command).spawn().unwrap());
    }

    pub(crate) fn wait_until_healthy(&self) {
        let running = self.members.iter().filter(|m| m.child.is_some());
        for member in running {
            wait_for("a member is healthy", || self.ctl_at(member, &["endpoint", "health"]).is_some());
        }
    }

    fn pid(&self, nth: usize) -> Pid {
        Pid::from_child(self.members[nth].child.as_ref().unwrap())
    }

    pub(crate) fn kill(&mut self, nth: usize) {
        let mut child = self.members[nth].child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn freeze(&self, nth: usize) {
        kill_process(self.pid(nth), Signal::STOP).unwrap();
    }

    pub(crate) fn thaw(&self, nth: usize) {
        kill_process(self.pid(nth), Signal::CONT).unwrap();
    }

    fn ctl_at(&self, member: &Member, args: &[&str]) -> Option<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(args);
        if let Some(user) = &self.user {
            command.env("ETCDCTL_USER", user);
        }
        command.args(["--endpoints", &member.plan.client_url()]);
        command.args(["--dial-timeout=1s", "--command-timeout=2s"]);
        if let Some(folder) = &self.certificates {
            let of = |name: &str| folder.join(name).to_str().unwrap().to_owned();
            command.args([
                "--cacert",
                &of("ca.pem"),
                "--cert",
                &of("client.pem"),
                "--key",
                &of("client.key"),
            ]);
        }
        let output = command.output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// Makes the data of a member, which has none, from a snapshot.
    pub(crate) fn restore(&self, nth: usize, snapshot: &Path) {
        let member = &self.members[nth];
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["snapshot", "restore", snapshot.to_str().unwrap()]);
        let plan = &member.plan;
        command.args(["--name", &plan.name, "--data-dir", plan.data.to_str().unwrap()]);
        command.args(["--initial-cluster", &format!("{}={}", plan.name, plan.peer_url())]);
        command.args(["--initial-advertise-peer-urls", &plan.peer_url()]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// What etcd's own command says at a member.
    pub(crate) fn ctl(&self, nth: usize, args: &[&str]) -> String {
        self.ctl_at(&self.members[nth], args).unwrap_or_else(|| panic!("etcdctl {args:?} failed"))
    }

    /// The member that leads.
    pub(crate) fn leader(&self) -> usize {
        let mut leader = None;
        wait_for("a leader", || {
            // Columns: address, id, version, size, whether it leads, ...
            let leads = |m: &Member| {
                let status = self.ctl_at(m, &["endpoint", "status"]).unwrap_or_default();
                status.split(", ").nth(4) == Some("true")
            };
            leader = self.members.iter().position(|m| m.child.is_some() && leads(m));
            leader.is_some()
        });
        leader.unwrap()
    }

    /// All members, as a store names them: the first one first.
    pub(crate) fn source(&self) -> EtcdSource {
        self.source_from(0)
    }

    /// The same; this one first.
    pub(crate) fn source_from(&self, first: usize) -> EtcdSource {
        let mut hosts: Vec<_> = self
            .members
            .iter()
            .map(|m| format!("127.0.0.1:{}", m.plan.client_port).parse().unwrap())
            .collect();
        hosts.rotate_left(first);
        let mut source = EtcdSource::plain(hosts);
        source.tls = self.certificates.as_deref().map(|folder| tls(folder, "ca.pem", Some("client")));
        source
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut child) = member.child.take() {
                // It may have ended by itself.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        if std::thread::panicking() {
            for nth in 0..self.members.len() {
                let log = std::fs::read_to_string(self.folder.path().join(format!("m{nth}.log")));
                let log = log.unwrap_or_default();
                let lines: Vec<&str> = log.lines().rev().take(5).collect();
                eprintln!("m{nth} said last: {lines:#?}");
            }
        }
    }
}

/// Certificates of a folder that [`certificates`] has filled.
pub(crate) fn tls(folder: &Path, ca: &str, own: Option<&str>) -> Tls {
    let of = |name: String| folder.join(name);
    let own = own.map(|name| (of(format!("{name}.pem")), of(format!("{name}.key"))));
    Tls { ca: of(ca.to_owned()), own, name: None }
}

/// Puts two CAs into a folder, `ca` and `other`, and certificates of the first: `peer` of a member, `client` of who may ask, and
/// `mount` of who may not. `stranger` is of the other one.
pub(crate) fn certificates(folder: &Path) {
    let openssl = |args: &str| {
        let output = Command::new("openssl").args(args.split(' ')).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    for ca in ["ca", "other"] {
        openssl(&format!("req -x509 {key} -days 2 -subj /CN={ca} -keyout {ca}.key -out {ca}.pem"));
    }
    for (name, ca, usage, names) in [
        ("peer", "ca", "serverAuth,clientAuth", "IP:127.0.0.1,DNS:etcd.atoll"),
        ("client", "ca", "clientAuth", "DNS:etcd.atoll"),
        ("mount", "ca", "clientAuth", "DNS:mount.atoll"),
        ("stranger", "other", "clientAuth", "DNS:etcd.atoll"),
    ] {
        let text = format!("extendedKeyUsage={usage}\nsubjectAltName={names}\n");
        std::fs::write(folder.join("extensions"), text).unwrap();
        openssl(&format!("req -new {key} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA {ca}.pem -CAkey {ca}.key -CAcreateserial -days 2 -extfile extensions -out {name}.pem"
        ));
    }
}
