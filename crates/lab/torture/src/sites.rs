//! Sites of a wide volume on this machine, each a node with a mount, and users who change files at one of them without a pause
//! while programs are run at another. Whatever becomes of a test, all of it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use atoll_model::Rng;
use atoll_needs::free_port;
use serde_json::Value;

use crate::cluster::listens;
use crate::daemon::{Mount, atoll, binary};
use crate::process::{LIFE_MAX, PATIENCE, Process};
use crate::tree::{Detail, Tree, differences, list};

/// The volume's name.
const VOLUME: &str = "docs";
/// The folder in which the others work.
const BESIDE: &str = "beside";
/// Pause between two changes there.
const PAUSE: Duration = Duration::from_millis(15);
/// Files there, and the bytes of one.
const FILES: u64 = 60;
const BYTES_MAX: u64 = 300_000;

/// One site.
#[derive(Debug)]
struct OneSite {
    // First, so that it goes before the node.
    mount: Mount,
    node: Process,
    data: PathBuf,
}

/// Sites that run, and their mounts. Killed and unmounted when this is dropped.
#[derive(Debug)]
pub struct Sites(Vec<OneSite>);

impl Sites {
    /// Starts this many, linked through the first one, everything in the folder `top`.
    pub fn start(top: &Path, sites: usize) -> Result<Self> {
        let at = format!("127.0.0.1:{}", free_port());
        let mut all = Self(Vec::new());
        for site in 0..sites {
            let (data, address) = (top.join(format!("data-{site}")), format!("127.0.0.1:{}", free_port()));
            let log = |what: &str| top.join(format!("{what}-{site}.log"));
            let mut serve = Command::new(binary());
            serve.arg("serve").arg("--data").arg(&data).args(["--listen", &address]);
            let mut node = Process::spawn(&mut serve, log("node"), LIFE_MAX)?;
            node.wait_until("it listens", PATIENCE, listens)?;
            let name = format!("s{site}");
            let told = path(&data)?;
            if site == 0 {
                let create = ["volume", "create", VOLUME, "--kind", "wide", "--data", told];
                atoll(&[&create[..], &["--site", &name, "--at", &at]].concat())?;
            } else {
                let said = atoll(&["site", "invite", "--data", path(&all.0[0].data)?])?;
                let line = said.trim().strip_prefix("atoll site join ").context("no command to join by")?;
                atoll(&["site", "join", line, "--data", told, "--name", &name])?;
            }
            let point = top.join(format!("mnt-{site}"));
            fs::create_dir_all(&point)?;
            let mut mount = Command::new(binary());
            mount.arg("mount").arg(format!("{address}:/{VOLUME}")).arg(&point).arg("--foreground");
            let process = Process::spawn(&mut mount, log("mnt"), LIFE_MAX)?;
            let mut mount = Mount { point, process };
            mount.wait_mounted(PATIENCE).context("a mount")?;
            all.0.push(OneSite { mount, node, data });
        }
        Ok(all)
    }

    /// Where a site's volume is mounted.
    pub fn mount(&self, site: usize) -> &Path {
        &self.0[site].mount.point
    }

    /// The data directory of a site's node.
    pub fn data(&self, site: usize) -> &Path {
        &self.0[site].data
    }

    /// Does something at the other sites while users of a site change files there. How many changes they have made.
    pub fn while_changing<T>(
        &self,
        site: usize,
        seed: u64,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<(T, u64)> {
        let (dir, stop) = (self.mount(site).join(BESIDE), AtomicBool::new(false));
        fs::create_dir_all(&dir)?;
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| -> Result<u64> {
                let mut rng = Rng::new(seed);
                let mut changes = 0;
                while !stop.load(Ordering::SeqCst) {
                    change(&dir, &mut rng).with_context(|| format!("change {changes} at site {site}"))?;
                    changes += 1;
                    std::thread::sleep(PAUSE);
                }
                Ok(changes)
            });
            let result = act();
            stop.store(true, Ordering::SeqCst);
            let changes = changes.join().expect("it does not panic")?;
            Ok((result?, changes))
        })
    }

    /// Waits until all sites have told each other everything, and all bytes are everywhere. Then all trees must be the same.
    pub fn agree(&self, time_max: Duration) -> Result<Tree> {
        let until = std::time::Instant::now() + time_max;
        // Twice: what one site is told while another one is asked is not seen at once.
        while !(self.are_even()? && self.are_even()?) {
            ensure!(std::time::Instant::now() < until, "they are not even after {} s", time_max.as_secs());
            std::thread::sleep(Duration::from_millis(200));
        }
        let first = self.tree(0)?;
        for site in 1..self.0.len() {
            let other = self.tree(site)?;
            let differ = differences(&first, &other);
            ensure!(differ.is_empty(), "sites 0 and {site} differ:\n{}", differ.join("\n"));
        }
        Ok(first)
    }

    fn tree(&self, site: usize) -> Result<Tree> {
        Ok(list(self.mount(site), Detail { bytes: false, atime: false })?)
    }

    fn are_even(&self) -> Result<bool> {
        let mut are = true;
        for site in &self.0 {
            let told = atoll(&["site", "list", "--json", "--data", path(&site.data)?])?;
            let told: Value = serde_json::from_str(&told)?;
            let sites = told["sites"].as_array().context("no sites are told")?;
            are &= sites.iter().all(|told| told["even"] == true && told["files_behind"] == 0);
        }
        Ok(are)
    }

    /// Stops all in order.
    pub fn stop(self) -> Result<()> {
        for OneSite { mut mount, mut node, .. } in self.0 {
            mount.stop().context("a mount")?;
            node.stop().context("a node")?;
        }
        Ok(())
    }
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

/// A user makes, overwrites, appends to, renames, links, marks or removes a file, or makes a directory and removes it.
fn change(dir: &Path, rng: &mut Rng) -> Result<()> {
    let mut name = || dir.join(format!("f{}", rng.below(FILES)));
    let (one, two) = (name(), name());
    let bytes = vec![b'a' + rng.below(26) as u8; rng.below(BYTES_MAX) as usize];
    let is_there = one.exists();
    match rng.below(8) {
        0..=2 => fs::write(&one, &bytes)?,
        3 => {
            let mut file = fs::File::options().append(true).create(true).open(&one)?;
            std::io::Write::write_all(&mut file, &bytes[..bytes.len() / 20])?;
        }
        4 if is_there => fs::rename(&one, &two)?,
        5 if is_there && !two.exists() => fs::hard_link(&one, &two)?,
        6 if is_there => fs::remove_file(&one)?,
        _ => {
            let sub = dir.join(format!("d{}", rng.below(5)));
            match fs::create_dir(&sub) {
                Ok(()) => fs::write(sub.join("in"), &bytes)?,
                Err(_) => fs::remove_dir_all(&sub)?,
            }
        }
    }
    Ok(())
}
