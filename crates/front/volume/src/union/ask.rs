//! Asks the processes that show unions of this machine, each by the socket of its mount.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use atoll_core::VolumePath;
use atoll_proto::union::{NameTold, UnionStatus};
use atoll_proto::{Control, ControlReply, UnionOrder, UnionReply, VolumeKind};

use super::MemberPath;
use super::named::{Definition, check_union_name};
use crate::ask::{ORDER, QUESTION, ask, strange};
use crate::places::{MountPoint, SocketPlace, absolute, mount_socket, mounted_at, mounts};
use crate::source::of_mount;
use crate::status::first_line;

/// How long a copy may take.
const COPY: Duration = Duration::from_secs(3_600);

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

/// What a user means by NAME or MOUNT.
enum Found {
    Mount(PathBuf),
    Named(String, Definition),
}

fn find(state: Option<&Path>, text: &Path) -> Result<Found> {
    // A path with a slash is no name, so a mount point can always be named.
    let name = text.to_str().filter(|name| check_union_name(name).is_ok());
    let Some(name) = name else { return Ok(Found::Mount(text.to_owned())) };
    match Definition::recall(state, name)? {
        Some(definition) => Ok(Found::Named(name.to_owned(), definition)),
        None if text.exists() => Ok(Found::Mount(text.to_owned())),
        None => bail!("There is no union {name}.\n\"atoll union status\" lists those that are shown."),
    }
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

    /// The union of this name, by its definition in the state folder; or the one on this mount point.
    pub fn named(state: Option<&Path>, text: &Path) -> Result<Self> {
        match find(state, text)? {
            Found::Mount(point) => Self::of(&point),
            Found::Named(name, definition) => match mounted_at(&definition.mount)? {
                Some((mount, true)) => Ok(Self { mount }),
                _ => bail!("Union {name} is not shown.\nShow it: atoll union start {name}"),
            },
        }
    }

    /// All unions of this machine, and how they are.
    pub fn all() -> Result<AllUnions> {
        let mut all = AllUnions::default();
        for mount in mounts()? {
            let told = of_mount(&mount).and_then(|told| {
                let union = (told.config.kind == VolumeKind::Union).then_some(Self { mount });
                union.map(|union| union.status().map(|status| (union, status))).transpose()
            });
            match told {
                Ok(union) => all.told.extend(union),
                Err(why) => all.silent.push(first_line(&why.to_string())),
            }
        }
        Ok(all)
    }

    /// Refuses a mount of another kind. One whose process does not answer is left to whoever takes the mount away.
    pub fn check(&self) -> Result<()> {
        match of_mount(&self.mount) {
            Ok(told) if told.config.kind != VolumeKind::Union => {
                bail!("{} is no union.\nTake it away with atoll umount.", self.mount.path.display())
            }
            _ => Ok(()),
        }
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
            _ => Err(strange(&self.socket()?.address)),
        }
    }

    /// Who has a path of it, and which is shown.
    pub fn explain(&self, path: &VolumePath) -> Result<NameTold> {
        match self.order(UnionOrder::Explain { path: path.clone() }, QUESTION)? {
            UnionReply::Explained { told } => Ok(told),
            _ => Err(strange(&self.socket()?.address)),
        }
    }

    /// Conflicts in directories of its mount. What could not be read is added to `unread`, a line each.
    pub fn conflicts(&self, dirs: &[PathBuf], unread: &mut Vec<String>) -> Result<Vec<(PathBuf, NameTold)>> {
        let paths = dirs.iter().map(|dir| {
            let inside = Path::new("/").join(dir.strip_prefix(&self.mount.path)?);
            Ok(VolumePath::parse(inside.as_os_str().as_bytes())?)
        });
        let paths: Vec<VolumePath> = paths.collect::<Result<_>>()?;
        let (mut conflicts, mut from) = (Vec::new(), (0, 0));
        loop {
            let order = UnionOrder::Conflicts { dirs: paths[from.0..].to_vec(), after: from.1 };
            let UnionReply::Conflicts { told, unread: more, next } = self.order(order, ORDER)? else {
                return Err(strange(&self.socket()?.address));
            };
            let dir = |at: u32| dirs.get(from.0 + at as usize).cloned().unwrap_or_default();
            conflicts.extend(told.into_iter().map(|(at, told)| (dir(at), told)));
            unread.extend(more.into_iter().map(|(at, why)| format!("{}: {why}", dir(at).display())));
            match next {
                Some((at, after)) if (from.0 + at as usize) < dirs.len() => {
                    from = (from.0 + at as usize, after)
                }
                _ => return Ok(conflicts),
            }
        }
    }

    /// Orders it to remove the files of a path in all members but one. The members from which one was removed.
    pub fn resolve(&self, path: VolumePath, keep: &Path) -> Result<Vec<String>> {
        let keep = keep.as_os_str().as_bytes().to_vec().into();
        match self.order(UnionOrder::Resolve { path, keep }, ORDER)? {
            UnionReply::Resolved { removed } => Ok(removed),
            _ => Err(strange(&self.socket()?.address)),
        }
    }

    /// Orders it to copy the file back that has lost a path last.
    pub fn undelete(&self, path: VolumePath) -> Result<()> {
        self.order(UnionOrder::Undelete { path }, COPY).map(drop)
    }

    /// Orders it to show a member, too.
    pub fn join(&self, member: MemberPath) -> Result<()> {
        self.order(UnionOrder::Join { member: member.into() }, ORDER).map(drop)
    }

    /// Orders it to show a member no longer.
    pub fn leave(&self, member: &Path, force: bool) -> Result<()> {
        let path = member.as_os_str().as_bytes().to_vec().into();
        self.order(UnionOrder::Leave { path, force }, ORDER).map(drop)
    }
}
