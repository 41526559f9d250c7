//! Asks the processes that show unions of this machine, each by the socket of its mount.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use atoll_proto::union::UnionStatus;
use atoll_proto::{Control, ControlReply, UnionOrder, UnionReply, VolumeKind};

use crate::ask::{QUESTION, ask, strange};
use crate::places::{MountPoint, SocketPlace, absolute, mount_socket, mounted_at, mounts};
use crate::source::of_mount;
use crate::status::first_line;

/// A union that is mounted on this machine.
#[derive(Debug, Clone)]
pub struct ShownUnion {
    /// Where.
    pub mount: MountPoint,
}

/// The unions of this machine.
#[derive(Debug, Default)]
pub struct AllUnions {
    /// Those that answer, and how they are.
    pub told: Vec<(ShownUnion, UnionStatus)>,
    /// Why other mounts do not answer, a line each.
    pub silent: Vec<String>,
}

impl ShownUnion {
    /// The union on a directory that a user named.
    pub fn of(named: &Path) -> Result<Self> {
        let path = absolute(named)?;
        match mounted_at(&path)? {
            Some((mount, true)) => Ok(Self { mount }),
            _ => bail!(
                "No union is mounted on {}.\n\"atoll union status\" lists those that are shown.",
                path.display()
            ),
        }
    }

    /// All unions of this machine, and how they are.
    pub fn all() -> Result<AllUnions> {
        let mut all = AllUnions::default();
        for mount in mounts()? {
            let told = of_mount(&mount).and_then(|(config, _)| {
                let union = (config.kind == VolumeKind::Union).then_some(Self { mount });
                union.map(|union| union.status().map(|status| (union, status))).transpose()
            });
            match told {
                Ok(union) => all.told.extend(union),
                Err(why) => all.silent.push(first_line(&why.to_string())),
            }
        }
        Ok(all)
    }

    fn socket(&self) -> Result<SocketPlace> {
        mount_socket(&self.mount.path)
    }

    /// Orders something of its process, or asks it.
    pub fn order(&self, order: UnionOrder, time_max: Duration) -> Result<UnionReply> {
        let socket = self.socket()?;
        match ask(&socket.address, Control::Union { order }, time_max) {
            Ok(ControlReply::Union { reply }) => Ok(reply),
            Ok(_) => Err(strange(&socket.address)),
            Err(why) => Err(self.mount.not_ours().unwrap_or(why)),
        }
    }

    /// How it is.
    pub fn status(&self) -> Result<UnionStatus> {
        match self.order(UnionOrder::Status, QUESTION)? {
            UnionReply::Status { status } => Ok(status),
        }
    }
}
