//! Sites of wide volumes, with real nodes and mounts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::relay::Relay;
use super::{Cluster, Mounted, eventually, free_port, good, run, text};

/// How long sites that are connected may take for all that they have done.
pub const SETTLED: Duration = Duration::from_secs(60);

/// Sites of one volume, each at a node of its own.
pub struct Sites {
    pub nodes: Cluster,
    pub mounts: Vec<Option<Mounted>>,
    /// What the others reach the first one through, if they can be cut off.
    relay: Option<Relay>,
}

impl Sites {
    /// The first one can be reached, and the others join it.
    pub fn new(count: usize) -> Self {
        Self::at(Cluster::bare(count))
    }

    /// The same at nodes that have no volume.
    pub fn at(nodes: Cluster) -> Self {
        Self::reached(nodes, &["--at", &format!("127.0.0.1:{}", free_port())], None)
    }

    /// The same, and so many bytes leave the first one in a second.
    pub fn with_rate(count: usize, rate: &str) -> Self {
        let at = format!("127.0.0.1:{}", free_port());
        Self::reached(Cluster::bare(count), &["--at", &at, "--rate", rate], None)
    }

    /// The same, and all sites can be cut off from each other: the others reach the first one through a relay.
    pub fn behind_a_relay(count: usize) -> Self {
        let listen = format!("127.0.0.1:{}", free_port());
        let relay = Relay::to(listen.parse().unwrap());
        let at = relay.at.to_string();
        Self::reached(Cluster::bare(count), &["--at", &at, "--site-listen", &listen], Some(relay))
    }

    fn reached(nodes: Cluster, words: &[&str], relay: Option<Relay>) -> Self {
        let count = nodes.nodes.len();
        let data = nodes.data(0);
        let create = ["volume", "create", "docs", "--kind", "wide", "--data", text(&data), "--site", "s0"];
        good(create.iter().chain(words));
        let mut sites = Self { nodes, mounts: (0..count).map(|_| None).collect(), relay };
        for site in 1..count {
            sites.join(site);
        }
        (0..count).for_each(|site| sites.mount(site));
        sites
    }

    fn others(&self) -> std::ops::Range<usize> {
        1..self.mounts.len()
    }

    /// Cuts all sites off from each other.
    pub fn cut(&self) {
        self.relay.as_ref().expect("they are behind a relay").cut();
        eventually("all are away", || {
            self.others().all(|site| !self.is_connected(0, site) && !self.is_connected(site, 0))
        });
    }

    /// They meet again.
    pub fn heal(&self) {
        self.relay.as_ref().expect("they are behind a relay").heal();
        eventually("all are connected", || {
            self.others().all(|site| self.is_connected(0, site) && self.is_connected(site, 0))
        });
    }

    /// Whether the sites that are connected have told each other all.
    pub fn are_even(&self) -> bool {
        self.others().all(|site| self.told(0, site)["even"] == true && self.told(site, 0)["even"] == true)
    }

    pub fn data(&self, site: usize) -> PathBuf {
        self.nodes.data(site)
    }

    pub fn line(&self) -> String {
        let said = good(["site", "invite", "--data", text(&self.data(0))]);
        said.trim().strip_prefix("atoll site join ").expect("a command").to_owned()
    }

    pub fn join(&self, site: usize) {
        let (line, name) = (self.line(), format!("s{site}"));
        good(["site", "join", &line, "--data", text(&self.data(site)), "--name", &name]);
    }

    pub fn mount(&mut self, site: usize) {
        let source = format!("{}:/docs", self.nodes.addresses[site]);
        let point = self.data(site).with_file_name(format!("point{site}"));
        fs::create_dir_all(&point).unwrap();
        self.mounts[site] = Some(Mounted::new(&source, point, ""));
    }

    pub fn path(&self, site: usize, name: &str) -> PathBuf {
        self.mounts[site].as_ref().expect("it is mounted").path(name)
    }

    /// How site `of` is for `site`.
    pub fn told(&self, site: usize, of: usize) -> Value {
        let said = good(["site", "list", "--json", "--data", text(&self.data(site))]);
        let told: Value = serde_json::from_str(&said).unwrap();
        let name = format!("s{of}");
        let found = told["sites"].as_array().unwrap().iter().find(|told| told["name"] == name.as_str());
        found.cloned().unwrap_or(Value::Null)
    }

    pub fn is_connected(&self, site: usize, of: usize) -> bool {
        self.told(site, of)["condition"] == "connected"
    }

    /// Waits until a site has no bytes that are in no version.
    pub fn is_cut(&self, site: usize) {
        let root = self.path(site, "");
        eventually("all bytes are in versions", || {
            let told = run(["confirm", "--wait", "0", "--json", text(&root)]);
            let said = String::from_utf8_lossy(&told.stderr);
            let told: Value =
                serde_json::from_slice(&told.stdout).unwrap_or_else(|why| panic!("{why}: {said}"));
            told["not_ready"] == 0
        });
    }

    /// Waits until all sites have all that was done, and have nothing more to say.
    pub fn settle(&self) {
        let until = Instant::now() + SETTLED;
        let all = 0..self.mounts.len();
        let mut rests = 0;
        while rests < 2 {
            let has_all =
                |site: usize| run(["confirm", "--wait", "0", text(&self.path(site, ""))]).status.success();
            if self.are_even() && all.clone().all(has_all) && self.are_even() {
                rests += 1;
            } else {
                rests = 0;
                let said = |site: usize| {
                    let confirmed = run(["confirm", "--wait", "0", text(&self.path(site, ""))]);
                    let list = good(["site", "list", "--data", text(&self.data(site))]);
                    let [said, why] =
                        [confirmed.stdout, confirmed.stderr].map(|said| String::from_utf8(said).unwrap());
                    format!("{list}{said}{why}")
                };
                // Such as that there is no room: a site keeps a twentieth of its disk free for users.
                let told = || all.clone().map(said).collect::<Vec<_>>().join("\n");
                assert!(Instant::now() < until, "the sites do not become even:\n{}", told());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Stops a site: as by `kill -9` of its node, and its mount goes.
    pub fn stop(&mut self, site: usize) {
        self.mounts[site] = None;
        self.nodes.kill(site);
    }

    /// Starts one that was stopped.
    pub fn start(&mut self, site: usize) {
        self.nodes.start(site);
        self.mount(site);
    }

    /// Waits until a file at a site has these bytes.
    pub fn has(&self, site: usize, name: &str, bytes: &[u8]) {
        let path = self.path(site, name);
        eventually(&format!("{} has its bytes", path.display()), || {
            fs::read(&path).is_ok_and(|there| there == bytes)
        });
    }
}

pub fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// All files below a directory, with their bytes, and all directories, by their paths below it.
pub fn tree(top: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let (mut found, mut dirs) = (BTreeMap::new(), vec![top.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for path in fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()) {
            let bytes = (!path.is_dir()).then(|| fs::read(&path).unwrap());
            found.insert(text(path.strip_prefix(top).unwrap()).to_owned(), bytes);
            if path.is_dir() {
                dirs.push(path);
            }
        }
    }
    found
}
