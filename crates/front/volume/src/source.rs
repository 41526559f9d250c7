//! The source of a mount, as a user writes it: `HOST:PORT[,HOST:PORT...]:/VOLUME` or `unix:PATH:/VOLUME`.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use atoll_control::{Addresses, check_volume_name};
use atoll_core::{Ino, Key, NodeId};
use atoll_proto::{Control, ControlReply, VolumeConfig};
use atoll_rpc::{Address, ConnectError};

use crate::ask::{NoAnswer, QUESTION, strange, try_ask};
use crate::places::{MountPoint, SocketPlace, absolute, mount_socket, mounted_at};

/// Daemons to ask, in this order, and the volume that is wanted; none: the only one that there is.
#[derive(Debug)]
pub struct Source {
    /// The daemons.
    pub hosts: Vec<Address>,
    /// The volume's name.
    pub volume: Option<String>,
    /// The daemons as they were given.
    asked: String,
}

impl std::str::FromStr for Source {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        // A volume's name has no colon.
        let before = |text: &str| text.rsplit_once(":/").map_or("", |(hosts, _)| hosts).to_owned();
        let Some(rest) = text.strip_prefix("unix:") else {
            let Addresses { hosts, volume } = text.parse()?;
            return Ok(Self { hosts, volume: Some(volume), asked: before(text) });
        };
        let (path, volume) = rest.rsplit_once(":/").ok_or_else(|| {
            anyhow!(
                "\"{text}\" names no volume: \":/VOLUME\" is missing.\nWrite unix:/PATH/atoll.sock:/VOLUME."
            )
        })?;
        check_volume_name(volume)?;
        let host: Address = format!("unix:{path}").parse()?;
        Ok(Self { hosts: vec![host], volume: Some(volume.to_owned()), asked: before(text) })
    }
}

/// The part of a help text that says how to name the daemon to ask.
pub const WHOM: &str =
    "Name where a volume is mounted, or a node as HOST:PORT, or its data directory with --data.";

/// Atoll's mount on a directory that a user named instead of a daemon.
pub fn mount_point(named: &str) -> Result<MountPoint> {
    let path = absolute(Path::new(named))?;
    match mounted_at(&path)? {
        Some((mount, true)) => Ok(mount),
        _ if path.is_dir() => bail!("{} is not a mount of Atoll.\n{WHOM}", path.display()),
        _ => bail!("There is nothing mounted on \"{named}\", and no node is named.\n{WHOM}"),
    }
}

/// A volume, as the process of a mount tells it.
#[derive(Debug)]
pub struct Mounted {
    /// Its configuration.
    pub config: VolumeConfig,
    /// Where each of its nodes is reached.
    pub from: Vec<String>,
    /// The directory that is mounted, and its placement key, if it is not the volume's root.
    pub root: Option<(Ino, Key)>,
}

/// Asks the process that serves a mount for its volume, and where the volume's nodes are reached.
pub fn of_mount(mount: &MountPoint) -> Result<Mounted> {
    let socket = mount_socket(&mount.path)?;
    match try_ask(&socket.address, Control::Volume { name: String::new() }, QUESTION) {
        Ok(ControlReply::Volume { config, from, root, .. }) => Ok(Mounted { config: *config, from, root }),
        Ok(ControlReply::Refused { text }) => bail!("{text}"),
        Ok(_) => Err(strange(&socket.address)),
        Err(why) => Err(mount.not_ours().unwrap_or_else(|| {
            why.into_error()
                .context(format!("The process of the mount {} does not answer", mount.path.display()))
        })),
    }
}

/// A volume, as a daemon told it.
#[derive(Debug)]
pub struct Found {
    /// Its configuration.
    pub config: VolumeConfig,
    /// The daemon that told it, and its number in the volume.
    pub teller: Address,
    /// The teller's number in the volume, if it is a node of it.
    pub node: Option<NodeId>,
    /// The directory that this machine sees only, with what is below it, and its placement key; none: the whole volume.
    pub root: Option<(Ino, Key)>,
}

impl Source {
    /// One daemon, and the volume that is wanted; none: its only one.
    pub fn of_daemon(daemon: Address, volume: Option<String>) -> Self {
        Self { asked: daemon.to_string(), hosts: vec![daemon], volume }
    }

    /// The daemon of a data directory of this machine, in the same way.
    pub fn of_socket(socket: &SocketPlace, volume: Option<String>) -> Self {
        // Not the address: it may lead through a file that only this process has open.
        let asked = format!("unix:{}", socket.shown.display());
        Self { asked, ..Self::of_daemon(socket.address.clone(), volume) }
    }

    /// The source that the system's table of mounts shows: the text that was given, or an equivalent one.
    pub fn shown(&self, volume: &str) -> String {
        format!("{}:/{volume}", self.asked)
    }

    /// Asks the daemons in turn for the volume; those that are down are passed over.
    pub fn find(&self) -> Result<Found> {
        let (mut down, mut refused, mut untrusted) = (Vec::new(), None, None);
        for host in &self.hosts {
            let name = match &self.volume {
                Some(name) => name.clone(),
                None => match only_volume(host) {
                    Ok(name) => name,
                    Err(Failure::Down(why)) => {
                        down.push(why);
                        continue;
                    }
                    Err(Failure::Other(why)) => return Err(why),
                },
            };
            match try_ask(host, Control::Volume { name }, QUESTION) {
                Ok(ControlReply::Volume { config, node, root, .. }) => {
                    return Ok(Found { config: *config, teller: host.clone(), node, root });
                }
                // Another node may know it.
                Ok(ControlReply::Refused { text }) => refused = Some((host, text)),
                Ok(_) => return Err(strange(host)),
                // That says more than that others are down.
                Err(NoAnswer::Unreachable(why @ ConnectError::NotTrusted { .. })) => {
                    untrusted.get_or_insert(why);
                }
                Err(NoAnswer::Unreachable(why)) => down.push(why.to_string()),
                Err(NoAnswer::Unknown(why)) => down.push(why),
            }
        }
        if let Some((host, text)) = refused {
            let what = text.lines().next().unwrap_or_default();
            bail!("{what}\n\"atoll volume list {host}\" shows those that {host} has.");
        }
        if let Some(why) = untrusted {
            bail!("{why}");
        }
        match down.as_slice() {
            [one] => bail!("{one}"),
            [first, ..] => {
                let first = first.lines().next().unwrap_or_default();
                bail!(
                    "None of the {} nodes answers. The first: {first}\nAre their daemons running? Start one with \"atoll serve\".",
                    down.len()
                )
            }
            [] => bail!("No node was named."),
        }
    }
}

enum Failure {
    Down(String),
    Other(anyhow::Error),
}

/// The name of the only volume that a daemon has.
fn only_volume(host: &Address) -> Result<String, Failure> {
    match try_ask(host, Control::Describe, QUESTION) {
        Ok(ControlReply::Described { volumes, .. }) => match volumes.as_slice() {
            [one] => Ok(one.name.clone()),
            [] => Err(Failure::Other(anyhow!(
                "The daemon has no volume yet.\nMake one: atoll volume create NAME --nodes ADDRESS"
            ))),
            many => {
                let names: Vec<_> = many.iter().map(|v| v.name.as_str()).collect();
                Err(Failure::Other(anyhow!(
                    "The daemon has several volumes: {}.\nSay which with --volume.",
                    names.join(", ")
                )))
            }
        },
        Ok(_) => Err(Failure::Other(strange(host))),
        Err(NoAnswer::Unreachable(why)) => Err(Failure::Down(why.to_string())),
        Err(NoAnswer::Unknown(why)) => Err(Failure::Down(why)),
    }
}

impl Found {
    /// The address at which each node of the volume is reached. For the teller it is the address that was
    /// used: the best one, and the only one if it has no other.
    pub fn addresses(&self) -> Result<Vec<(NodeId, Address)>> {
        self.config
            .nodes
            .iter()
            .map(|n| {
                if Some(n.node) == self.node
                    && (n.address.is_empty() || matches!(self.teller, Address::Unix { .. }))
                {
                    return Ok((n.node, self.teller.clone()));
                }
                if n.address.is_empty() {
                    bail!(
                        "Volume {} is served on one machine only, by process-local node {}.\n\
                        Start it with \"atoll up --listen HOST:PORT\" and ask that address.",
                        self.config.name,
                        n.node
                    );
                }
                Ok((n.node, n.address.parse()?))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_told_from_hosts() {
        let source: Source = "unix:/run/a:/b/atoll.sock:/home".parse().unwrap();
        assert_eq!(source.hosts, ["unix:/run/a:/b/atoll.sock".parse().unwrap()]);
        assert_eq!(source.volume.as_deref(), Some("home"));
        assert_eq!(source.shown("home"), "unix:/run/a:/b/atoll.sock:/home");
        let source: Source = "a:1,b:2:/home".parse().unwrap();
        assert_eq!(source.hosts.len(), 2);
        assert_eq!(source.shown("home"), "a:1,b:2:/home");
        for bad in ["unix:/run/atoll.sock", "unix:relative:/home", "a:/home", "unix:/run/s:/.x"] {
            let error = bad.parse::<Source>().unwrap_err().to_string();
            assert!(error.lines().count() <= 3, "{error}");
        }
    }
}
