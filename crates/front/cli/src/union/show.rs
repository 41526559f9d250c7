//! Shows a union: mounts it and serves it, in the background unless told otherwise.

use std::ffi::OsStr;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use atoll_proto::union::BytesGo;
use atoll_union::{LockRule, Settings};
use atoll_volume::kind::Attached;
use atoll_volume::mounting::{Mount, check_point};
use atoll_volume::nfs::{self, Files, Rule, Server};
use atoll_volume::union::{Kept, MemberPath, UnionVolume, check_members, state_dir};

use crate::daemonize::{Waiting, in_background};
use crate::log::Log;
use crate::mount_options::Options;
use crate::say;

/// The name by which NFS clients mount a union.
pub(crate) const NFS_NAME: &str = "union";

/// A union that is about to be shown.
pub(crate) struct Showing {
    pub(super) members: Vec<MemberPath>,
    settings: Settings,
    pub(super) point: PathBuf,
    options: Options,
    /// Whether NFS clients may use it, too.
    pub(super) nfs: Option<Exported>,
}

/// How NFS clients use a union that is mounted here.
pub(crate) struct Exported {
    listener: TcpListener,
    rules: Vec<Rule>,
    key: Option<PathBuf>,
}

impl Exported {
    /// Takes the port.
    pub(super) fn new(listen: SocketAddr, rules: &[String], key: Option<PathBuf>) -> Result<Self> {
        Ok(Self { rules: nfs::rules(rules)?, listener: nfs::listener(listen)?, key })
    }
}

impl Showing {
    /// One of the directories that a user named, the mount point last.
    pub(crate) fn new(places: &[PathBuf], settings: Settings, options: Options) -> Result<Self> {
        let Some((point, members)) = places.split_last().filter(|(_, members)| !members.is_empty()) else {
            bail!("The directories to show, or the one to mount them on, are missing.\nWrite: DIR... MOUNT")
        };
        let members = members.iter().map(|text| MemberPath::parse(text)).collect::<Result<_>>()?;
        Self::of(members, point, settings, options)
    }

    /// One of these members.
    pub(super) fn of(
        members: Vec<MemberPath>,
        point: &Path,
        settings: Settings,
        options: Options,
    ) -> Result<Self> {
        // Before the mount point is looked at: it may be a member that is about to be hidden.
        check_members(&members, Some(&absolute(point)?))?;
        let point = check_point(point, false)?;
        Ok(Self { members, settings, point, options, nfs: None })
    }

    /// One of a source as it stands in fstab: `/DIR:/DIR`.
    pub(crate) fn of_source(
        source: &str,
        point: &Path,
        settings: Settings,
        options: Options,
    ) -> Result<Self> {
        let mut places = parts(source);
        places.push(point.to_owned());
        Self::new(&places, settings, options)
    }

    /// Shows it, and remembers it if it is a named one.
    pub(crate) fn show(
        self,
        state: Option<&Path>,
        kept: Option<Kept>,
        foreground: bool,
        log: &Log,
    ) -> Result<()> {
        let state = state_dir(state, &self.members)?;
        in_background(foreground, |parent| self.serve(&state, kept, parent, log))
    }

    fn serve(self, state: &Path, kept: Option<Kept>, parent: Option<&Waiting>, log: &Log) -> Result<()> {
        log.start(parent.is_some())?;
        let stop = crate::signals::block()?;
        crate::memory::keep_small();
        let Self { members, settings, point, options, nfs } = self;
        let paths: Vec<String> = members.iter().map(|member| member.path.display().to_string()).collect();
        let source = paths.join(":");
        let volume = Arc::new(match kept {
            Some(kept) => UnionVolume::open_named(kept, &members, settings, state)?,
            None => UnionVolume::open(source.clone(), &members, settings, state)?,
        });
        // Before the first operation: from then on it is known who was told of what.
        let session = nfs.map(|exported| volume.session().map(|files| (exported, files))).transpose()?;
        let attached = Arc::clone(&volume);
        let mount =
            Mount::new(attached, &point, &options.mount_options(&source), fuse_config(&options, &settings))?;
        // What could not be shown is not remembered.
        if let Err(why) = volume.remember() {
            mount.end();
            return Err(why);
        }
        let server = match session.map(|session| serve_nfs(&volume, session)).transpose() {
            Ok(server) => server,
            Err(why) => {
                mount.end();
                return Err(why);
            }
        };
        mount.when_ended(crate::signals::end_this_process)?;
        match parent {
            Some(parent) => parent.ready()?,
            None => {
                paths.iter().for_each(|path| say::line(format_args!("member   {path}")));
                say::line(format_args!("mounted  {}", mount.point().display()));
                say::line(format_args!("bytes    {}", passes(mount.bytes_go())));
                if let Some(server) = &server {
                    say::line(format_args!("nfs      {}", nfs::mount_line(server.address(), NFS_NAME)));
                }
                say::line(format_args!("stop     Ctrl-C, or: atoll umount {}", mount.point().display()));
            }
        }
        stop.wait();
        if let Some(server) = server {
            server.stop();
        }
        mount.end();
        Ok(())
    }
}

/// Which way the bytes of open files go.
pub(super) fn passes(bytes_go: BytesGo) -> &'static str {
    match bytes_go {
        BytesGo::Directly => "go directly between programs and the members (passthrough)",
        BytesGo::OldKernel => "go through this process: passthrough needs Linux 6.9",
        BytesGo::NotAllowed => "go through this process: passthrough needs root (CAP_SYS_ADMIN)",
        BytesGo::Through => "go through this process",
    }
}

fn serve_nfs(volume: &UnionVolume, (exported, files): (Exported, Arc<dyn Files>)) -> Result<Server> {
    let Exported { listener, rules, key } = exported;
    let key = nfs::signing_key(&key.map_or_else(nfs::state_key, Ok)?)?;
    nfs::serve_as(NFS_NAME, &volume.config(), files, key, rules, listener)
}

/// Where a path leads, as far as it exists.
fn absolute(path: &Path) -> Result<PathBuf> {
    Ok(std::fs::canonicalize(path).or_else(|_| std::path::absolute(path))?)
}

/// Nobody else has this union mounted, so the kernel keeps its locks if they need not hold against others.
fn fuse_config(options: &Options, settings: &Settings) -> atoll_fuse::Config {
    let locks = match settings.locks {
        LockRule::Local => atoll_fuse::Locks::Local,
        LockRule::Native => atoll_fuse::Locks::Shared,
    };
    atoll_fuse::Config { locks, ..options.fuse_config() }
}

/// The directories of a source. A colon stands before the slash of each but the first.
fn parts(source: &str) -> Vec<PathBuf> {
    let mut parts = Vec::new();
    let mut rest = source.as_bytes();
    while !rest.is_empty() {
        let end = rest.windows(2).position(|two| two == b":/").unwrap_or(rest.len());
        parts.push(PathBuf::from(OsStr::from_bytes(&rest[..end])));
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_names_directories_with_what_stands_behind_each() {
        let paths = |source| parts(source).iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
        assert_eq!(paths("/a"), ["/a"]);
        assert_eq!(paths("/a:ro:/b c:empty-ok:/d"), ["/a:ro", "/b c:empty-ok", "/d"]);
    }
}
