//! Two sites of a wide volume at the hosts of a link, with nodes and mounts of their own. Whatever becomes of a measurement, all
//! of it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use atoll_torture::cluster::listens;
use atoll_torture::daemon::{Mount, binary};
use atoll_torture::place::run;
use atoll_torture::process::{PATIENCE, Process};
use serde_json::Value;

use crate::pair::{Pair, wait};
use crate::wire::Wire;

/// Nodes are killed after this: some measurements take hours.
const LIFE_MAX: Duration = Duration::from_secs(12 * 3600);
/// Where a node serves its own host, and where the first site is reached.
const LISTEN: &str = "127.0.0.1:7100";
const SITE_PORT: u16 = 7200;

/// What a station has of the processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// As much as others.
    Equal,
    /// What others leave. It stands for another machine, whose work takes nothing from this one.
    Rest,
}

/// A node at a host of a link, with a volume that is mounted there.
#[derive(Debug)]
pub struct Station {
    host: usize,
    share: Share,
    name: String,
    data: PathBuf,
    // First, so that it goes before the node.
    mount: Option<Mount>,
    node: Option<Process>,
    point: PathBuf,
}

impl Station {
    /// Starts a node at a host, with data, mount point and logs of this name in the folder `top`.
    pub fn start(
        wire: &Wire,
        (host, share): (usize, Share),
        top: &Path,
        name: &str,
        listen: &str,
    ) -> Result<Self> {
        let (data, point) = (top.join(name), top.join(format!("{name}.mnt")));
        fs::create_dir_all(&point)?;
        let mut station = Self { host, share, name: name.to_owned(), data, mount: None, node: None, point };
        station.start_node(wire, listen)?;
        Ok(station)
    }

    /// An `atoll` that works for it.
    fn serving(&self, wire: &Wire) -> Command {
        match self.share {
            Share::Equal => wire.command(self.host, binary()),
            Share::Rest => {
                let mut command = wire.command(self.host, Path::new("nice"));
                command.args(["-n", "19"]).arg(binary());
                command
            }
        }
    }

    /// Starts its node, which does not run.
    pub fn start_node(&mut self, wire: &Wire, listen: &str) -> Result<()> {
        let mut command = self.serving(wire);
        command.args(["serve", "--no-restart", "--listen", listen, "--data"]).arg(&self.data);
        let log = (0..).map(|life| self.data.with_extension(format!("{life}.log"))).find(|log| !log.exists());
        let mut node = Process::spawn(&mut command, log.context("no name for a log")?, LIFE_MAX)?;
        node.wait_until("it listens", PATIENCE, listens)?;
        self.node = Some(node);
        Ok(())
    }

    /// `kill -9` of its node.
    pub fn kill9_node(&mut self) -> Result<()> {
        self.node.take().context("it does not run")?.kill9().map(drop)
    }

    /// Its node does nothing from now on, or goes on.
    pub fn freeze(&self, is_frozen: bool) {
        self.node.iter().for_each(|node| node.freeze(is_frozen));
    }

    /// An `atoll` for this node's data directory, with these words.
    pub fn atoll(&self, wire: &Wire, words: &[&str]) -> Result<String> {
        let mut command = wire.command(self.host, binary());
        command.args(words).arg("--data").arg(&self.data);
        Ok(run(&mut command)?.trim().to_owned())
    }

    /// Mounts its volume.
    pub fn mount(&mut self, wire: &Wire) -> Result<()> {
        let mut command = self.serving(wire);
        command.args(["mount", "--foreground", "--data"]).arg(&self.data).arg(&self.point);
        let process = Process::spawn(&mut command, self.point.with_extension("mnt.log"), LIFE_MAX)?;
        let mut mount = Mount { point: self.point.clone(), process };
        mount.wait_mounted(PATIENCE)?;
        self.mount = Some(mount);
        Ok(())
    }

    /// Where its volume is mounted.
    pub fn point(&self) -> &Path {
        &self.point
    }
}

/// The two sites. The second one may come later.
#[derive(Debug)]
pub struct Sites {
    /// Each site's node.
    pub stations: Vec<Station>,
    wire: Wire,
    top: PathBuf,
    /// That of the second one.
    share: Share,
}

impl Sites {
    /// The first site, mounted, in the folder `top`.
    pub fn first(wire: Wire, top: &Path) -> Result<Self> {
        let mut first = Station::start(&wire, (0, Share::Equal), top, "s0", LISTEN)?;
        let at = format!("{}:{SITE_PORT}", Wire::address(0));
        let words = ["volume", "create", "docs", "--kind", "wide", "--site", "s0", "--at", &at];
        first.atoll(&wire, &words)?;
        first.mount(&wire)?;
        Ok(Self { stations: vec![first], wire, top: top.to_owned(), share: Share::Equal })
    }

    /// Both, mounted.
    pub fn both(wire: Wire, top: &Path) -> Result<Self> {
        Self::both_with(wire, top, Share::Equal)
    }

    /// Both, mounted. The second one has this share of the processors.
    pub fn both_with(wire: Wire, top: &Path, share: Share) -> Result<Self> {
        let mut sites = Self { share, ..Self::first(wire, top)? };
        sites.join("s1")?;
        sites.stations[1].mount(&sites.wire)?;
        wait("linked", PATIENCE, Duration::from_millis(100), || sites.is_even())?;
        Ok(sites)
    }

    /// A new second site joins, in place of the one that was there. It is not mounted.
    pub fn join(&mut self, name: &str) -> Result<()> {
        self.stations.truncate(1);
        let second = Station::start(&self.wire, (1, self.share), &self.top, name, LISTEN)?;
        let line = self.stations[0].atoll(&self.wire, &["site", "invite"])?;
        let line = line.strip_prefix("atoll site join ").context("an invitation")?.to_owned();
        second.atoll(&self.wire, &["site", "join", &line, "--name", name])?;
        self.stations.push(second);
        Ok(())
    }

    /// Starts the second site's node, which was killed.
    pub fn start_second(&mut self) -> Result<()> {
        self.stations[1].start_node(&self.wire, LISTEN)
    }

    /// Mounts the second site's volume.
    pub fn mount_second(&mut self) -> Result<()> {
        self.stations[1].mount(&self.wire)
    }

    /// What a site says of all sites, itself first.
    pub fn told(&self, site: usize) -> Result<Vec<Value>> {
        let said = self.stations[site].atoll(&self.wire, &["site", "list", "--json"])?;
        let told: Value = serde_json::from_str(&said)?;
        Ok(told["sites"].as_array().cloned().unwrap_or_default())
    }

    /// Whether a site is connected with the other one.
    pub fn is_connected(&self, site: usize) -> Result<bool> {
        let other = &self.stations[1 - site].name;
        Ok(self.told(site)?.iter().any(|told| told["name"] == **other && told["condition"] == "connected"))
    }
}

impl Pair for Sites {
    fn name(&self) -> &'static str {
        "Atoll"
    }

    fn wire(&self) -> &Wire {
        &self.wire
    }

    fn folder(&self, host: usize) -> &Path {
        self.stations[host].point()
    }

    fn is_even(&self) -> Result<bool> {
        for site in 0..2 {
            let told = self.told(site)?;
            let is_even = |name: &str| told.iter().any(|of| of["name"] == name && of["even"] == true);
            if !self.is_connected(site)? || !self.stations.iter().all(|station| is_even(&station.name)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
