//! The status of nodes, islands and mounts: asks processes, and the other nodes that they name.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use atoll_proto::control::{Daemon, Filling, MountStatus, VolumeStatus, VolumeSummary};
use atoll_proto::{Control, ControlReply, SiteOrder, SiteReply, SiteTold, VolumeKind};
use atoll_rpc::Address;

use crate::ask::{NoAnswer, QUESTION, ask, ask_all, strange, try_ask};
use crate::places::{self, SocketPlace, data_socket, mount_socket};
use crate::source::{mount_point, of_mount};

/// The answer of one process.
pub struct Told {
    /// The process.
    pub daemon: Daemon,
    /// Volumes that it serves.
    pub volumes: Vec<VolumeStatus>,
    /// Mounts that it serves.
    pub mounts: Vec<MountStatus>,
    /// How far its copies are that are filled; none if none is.
    pub filling: Option<Filling>,
    /// Of its wide volumes: their names, and the sites of each.
    pub sites: Vec<(String, Vec<SiteTold>)>,
}

/// The answers of many processes.
#[derive(Default)]
pub struct Collected {
    /// Those that answered.
    pub told: Vec<Told>,
    /// Nodes that did not answer, and why.
    pub down: Vec<(Address, String)>,
    /// Why mounts of this machine did not answer, a line each.
    pub silent: Vec<String>,
}

impl Told {
    /// Asks the process about the sites of its wide volumes. What does not answer now has answered a moment ago.
    fn ask_for_sites(&mut self) {
        let wide = self.volumes.iter().map(|volume| &volume.volume);
        let wide = wide.filter(|volume| volume.kind == VolumeKind::Wide && volume.problem.is_none());
        let places = || self.daemon.addresses.iter().find_map(|shown| places::reach(shown).ok());
        for volume in wide {
            let order = SiteOrder::List { volume: volume.name.clone() };
            if let Some(place) = places()
                && let Ok(ControlReply::Site { reply: SiteReply::Sites { sites } }) =
                    try_ask(&place.address, Control::Site { order }, QUESTION)
            {
                self.sites.push((volume.name.clone(), sites));
            }
        }
    }
}

impl Collected {
    /// Asks the daemon of a data directory of this machine.
    pub fn of_data(data: &Path) -> Result<Self> {
        let socket = data_socket(data)?;
        let told = told(&socket.address).map_err(|why| explain_down(why, Some(data)))?;
        Ok(Self { told: vec![told], ..Self::default() }.with_others())
    }

    /// Asks the process of a mount, or a node by its address.
    pub fn of(target: &str) -> Result<Self> {
        Ok(Self { told: vec![ask_target(target)?], ..Self::default() }.with_others())
    }

    /// Asks the processes of all mounts of this machine.
    pub fn of_mounts() -> Result<Self> {
        let mut all = Self::default();
        for mount in places::mounts()? {
            match mount_socket(&mount.path).and_then(|s| told(&s.address)) {
                Ok(told) => all.told.push(told),
                Err(_) => all.silent.push(match mount.not_ours() {
                    Some(why) => first_line(&why.to_string()),
                    None => format!("the mount {} does not answer.", mount.path.display()),
                }),
            }
        }
        Ok(all.with_others())
    }

    /// Asks the other nodes of the volumes that were told of.
    fn with_others(mut self) -> Self {
        let mut asked: Vec<String> = self.told.iter().flat_map(|t| t.daemon.addresses.clone()).collect();
        let mut wanted: Vec<String> = Vec::new();
        for told in &self.told {
            for volume in &told.volumes {
                let nodes = volume.volume.nodes.iter().enumerate();
                wanted.extend(
                    nodes.filter(|(at, _)| *at != usize::from(volume.node.0)).map(|(_, a)| a.clone()),
                );
            }
            wanted.extend(told.mounts.iter().flat_map(|m| m.nodes.iter().map(|n| n.address.clone())));
        }
        let mut places: Vec<SocketPlace> = Vec::new();
        for text in wanted.into_iter().filter(|text| !text.is_empty()) {
            if !asked.contains(&text) {
                places.extend(places::reach(&text));
                asked.push(text);
            }
        }
        let addresses: Vec<Address> = places.iter().map(|p| p.address.clone()).collect();
        for (address, answer) in addresses.iter().zip(ask_all(&addresses, &Control::Status, QUESTION)) {
            match answer {
                Ok(ControlReply::Status { daemon, volumes, mounts, filling }) => {
                    let known = |t: &Told| t.daemon.daemon == daemon.daemon && daemon.daemon != 0;
                    if !self.told.iter().any(known) {
                        self.told.push(Told { daemon, volumes, mounts, filling, sites: Vec::new() });
                    }
                }
                Ok(_) => self.down.push((address.clone(), "it answers something else".to_owned())),
                Err(NoAnswer::Unreachable(why)) => {
                    self.down.push((address.clone(), first_line(&why.to_string())))
                }
                Err(NoAnswer::Unknown(why)) => self.down.push((address.clone(), first_line(&why))),
            }
        }
        self.told.iter_mut().for_each(Told::ask_for_sites);
        self
    }
}

/// A mount point, or else an address.
fn ask_target(target: &str) -> Result<Told> {
    let path = places::absolute(Path::new(target))?;
    if let Some((mount, true)) = places::mounted_at(&path)? {
        let socket = mount_socket(&path)?;
        return told(&socket.address).map_err(|_| {
            mount.not_ours().unwrap_or_else(|| {
                anyhow!(
                    "The process of the mount {} does not answer.\nWas it killed? Then mount anew.",
                    path.display()
                )
            })
        });
    }
    if path.is_dir() {
        bail!("{} is not a mount of Atoll.\nNothing is mounted there, or something else is.", path.display());
    }
    told(&target.parse()?)
}

/// Tells the usual reason why a data directory's daemon does not answer.
pub fn explain_down(why: anyhow::Error, data: Option<&Path>) -> anyhow::Error {
    match data {
        Some(data) if why.to_string().contains("cannot be reached") => anyhow!(
            "No daemon runs on the data directory {0}.\nStart it: atoll serve --data {0} --listen HOST:PORT, or atoll up",
            data.display()
        ),
        _ => why,
    }
}

fn told(address: &Address) -> Result<Told> {
    match ask(address, Control::Status, QUESTION)? {
        ControlReply::Status { daemon, volumes, mounts, filling } => {
            Ok(Told { daemon, volumes, mounts, filling, sites: Vec::new() })
        }
        _ => Err(strange(address)),
    }
}

/// The first line of a text.
pub fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// The volumes of the nodes of a mounted volume, from the first node that answers.
pub fn volumes_of_mount(point: &str) -> Result<Vec<VolumeSummary>> {
    let from = of_mount(&mount_point(point)?)?.from;
    let mut why = None;
    for address in from.iter().filter(|address| !address.is_empty()) {
        match places::reach(address).and_then(|place| volumes_of(&place.address)) {
            Ok(volumes) => return Ok(volumes),
            Err(error) => why = Some(error),
        }
    }
    Err(why.unwrap_or_else(|| anyhow!("The nodes of {point} have no address.")))
}

/// The volumes of a daemon.
pub fn volumes_of(address: &Address) -> Result<Vec<VolumeSummary>> {
    match ask(address, Control::Describe, QUESTION)? {
        ControlReply::Described { volumes, .. } => Ok(volumes),
        _ => Err(strange(address)),
    }
}
