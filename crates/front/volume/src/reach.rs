//! A volume, and the addresses at which this process reaches its nodes.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use atoll_core::{Ino, Key, NodeId, VolumePath};
use atoll_proto::{Control, VolumeConfig};
use atoll_rpc::Address;
use atoll_server::Served;

use crate::ask::{QUESTION, ask_all};
use crate::places::{self, MountPoint, SocketPlace};
use crate::source::{Found, Mounted, of_mount};

/// A volume that was found, before it is opened.
pub struct Reached {
    /// The volume.
    pub config: VolumeConfig,
    /// The part of it that this process serves, if it is a node of it.
    pub here: Option<Here>,
    /// Its other nodes.
    pub others: Vec<Other>,
    /// The directory that is seen only, with what is below it, and its placement key; none: the whole volume.
    pub root: Option<(Ino, Key)>,
}

/// A node's part of a volume in this process.
pub struct Here {
    /// The part.
    pub served: Arc<dyn Served>,
    /// The address at which other processes reach it.
    pub address: String,
}

/// A node that is in another process.
#[derive(Debug)]
pub struct Other {
    /// Its number in the volume.
    pub node: NodeId,
    /// Where it is reached from here.
    pub address: Address,
    /// Whether it answered a moment ago, so that waiting for it makes sense.
    pub alive: bool,
    /// Keeps the folder open through which the address may lead.
    pub place: Option<SocketPlace>,
}

/// Which of these daemons answer.
fn alive<'a>(addresses: impl Iterator<Item = &'a Address>) -> Vec<bool> {
    let all: Vec<Address> = addresses.cloned().collect();
    ask_all(&all, &Control::Describe, QUESTION).into_iter().map(|answer| answer.is_ok()).collect()
}

impl Found {
    /// The addresses of the nodes. `here` is the teller's part, if the teller is this process.
    pub fn reach(self, here: Option<Here>) -> Result<Reached> {
        let mut addresses = self.addresses()?;
        addresses.retain(|(node, _)| here.as_ref().is_none_or(|here| here.served.node() != *node));
        let alive = alive(addresses.iter().map(|(_, address)| address));
        let others = addresses.into_iter().zip(alive);
        let others = others.map(|((node, address), alive)| Other { node, address, alive, place: None });
        Ok(Reached { others: others.collect(), config: self.config, here, root: self.root })
    }
}

/// A path in a volume that is mounted on this machine.
#[derive(Debug)]
pub struct InMount {
    /// The mount.
    pub mount: MountPoint,
    /// The path, absolute.
    pub path: PathBuf,
    /// The names that lead to it from the volume's root.
    pub names: VolumePath,
}

impl InMount {
    /// Finds the mount that a path is in. Its last part is not followed if it is a link.
    pub fn of(path: &Path) -> Result<Self> {
        let path = places::absolute_nofollow(path)?;
        let mount = places::mount_of(&path)?.ok_or_else(|| {
            anyhow!(
                "{} is in no mounted volume of Atoll.\n\"atoll status\" lists what is mounted.",
                path.display()
            )
        })?;
        let inside = Path::new("/").join(path.strip_prefix(&mount.path).expect("the mount was found by it"));
        let names = VolumePath::parse(inside.as_os_str().as_bytes())
            .map_err(|e| anyhow!("{} cannot be a path of a volume: {e}.", inside.display()))?;
        Ok(Self { mount, path, names })
    }

    /// The addresses of the volume's nodes, as the mount reaches them.
    pub fn reach(&self) -> Result<Reached> {
        let Mounted { config, from, root } = of_mount(&self.mount)?;
        let mut others = Vec::new();
        for (node, shown) in config.nodes.iter().zip(&from).filter(|(_, shown)| !shown.is_empty()) {
            let place = places::reach(shown)?;
            let address = place.address.clone();
            others.push(Other { node: node.node, address, alive: false, place: Some(place) });
        }
        let alive = alive(others.iter().map(|other| &other.address));
        others.iter_mut().zip(alive).for_each(|(other, alive)| other.alive = alive);
        Ok(Reached { config, here: None, others, root })
    }
}
