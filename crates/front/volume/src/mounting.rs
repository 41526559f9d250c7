//! A mount in this process: checks the mount point, mounts, answers questions about the mount, and waits for
//! its end.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use atoll_fuse::{MountOptions, Mounted, Passthrough};
use atoll_proto::control::{Daemon, FuseCount, Metric, MountStatus};
use atoll_proto::union::BytesGo;
use atoll_proto::{Control, ControlReply, UnionReply};
use atoll_rpc::{ListenError, Listener, Options};
use atoll_server::{Counter, Desk};

use crate::kind::{Attached, AttachedStatus};
use crate::places;

/// Permission bits of a mount point that is made, and of the directories above it that are made.
const POINT_MODE: u32 = 0o755;
/// How long the process of a mount that was at the same directory may take to end, and how often that is looked at.
const BEFORE_ENDS: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// A mount and its source.
pub struct Mount {
    inner: Arc<Inner>,
    _status: Option<(Listener, places::SocketPlace)>,
}

struct Inner {
    mounted: Mounted,
    attached: Arc<dyn Attached>,
    point: PathBuf,
    started: std::time::Instant,
}

/// Finds out whether something can be mounted on `point`, and makes it, with the directories that it
/// lies in, if it may be made. Its absolute path.
pub fn check_point(point: &Path, make: bool) -> Result<PathBuf> {
    let path = places::absolute(point)?;
    if let Some((mount, true)) = places::mounted_at(&path)? {
        // Not `stat`, which the kernel may answer for the dead from what it kept.
        let dead = rustix::fs::statvfs(&path).is_err_and(|e| e == rustix::io::Errno::NOTCONN);
        if dead {
            // One of ours: it is cleared away when the new one is made.
            return Ok(path);
        }
        let (point, source) = (path.display(), mount.source);
        bail!("{point} is mounted already: {source}.\nUnmount it first: atoll umount {point}");
    }
    match std::fs::metadata(&path) {
        Ok(meta) if !meta.is_dir() => {
            bail!("The mount point {} is not a directory.\nChoose a directory that is empty.", path.display())
        }
        Ok(_) => {
            let mut names = std::fs::read_dir(&path)
                .with_context(|| format!("The mount point {} cannot be read", path.display()))?;
            if let Some(Ok(found)) = names.next() {
                bail!(
                    "The mount point {} is not empty: \"{}\" would be hidden.\nChoose a directory that is empty.",
                    path.display(),
                    found.file_name().display()
                );
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && make => {
            std::fs::DirBuilder::new()
                .mode(POINT_MODE)
                .recursive(true)
                .create(&path)
                .with_context(|| format!("The mount point {} cannot be made", path.display()))?;
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            bail!("The mount point {0} does not exist.\nMake it first: mkdir -p {0}", path.display())
        }
        // A dead mount of ours is cleared away when the new one is made.
        Err(e) if e.raw_os_error() == Some(libc::ENOTCONN) => {}
        Err(e) => bail!("The mount point {} cannot be used: {e}.", path.display()),
    }
    Ok(path)
}

impl Mount {
    /// Mounts the attached volume.
    pub fn new(
        attached: Arc<dyn Attached>,
        point: &Path,
        options: &MountOptions,
        config: atoll_fuse::Config,
    ) -> Result<Self> {
        let mounted = match Mounted::new(attached.files(), point, options, config) {
            Ok(mounted) => mounted,
            Err(why) => {
                attached.stop();
                return Err(why.into());
            }
        };
        let point = mounted.path().to_owned();
        let started = std::time::Instant::now();
        let inner = Arc::new(Inner { mounted, attached, point, started });
        // Without it there is no "atoll status" of this mount, which is no reason not to mount.
        let status = match listen(&inner) {
            Ok(status) => Some(status),
            Err(why) => {
                tracing::warn!("this mount cannot be asked for its status: {why:#}");
                None
            }
        };
        Ok(Self { inner, _status: status })
    }

    /// Where it is.
    pub fn point(&self) -> &Path {
        &self.inner.point
    }

    /// Which way the bytes of open files go.
    pub fn bytes_go(&self) -> BytesGo {
        self.inner.bytes_go()
    }

    /// Its numbers, whenever they are asked for.
    pub fn status(&self) -> impl Fn() -> MountStatus + Send + use<> {
        let inner = Arc::clone(&self.inner);
        move || inner.status()
    }

    /// Calls `ended` when it is unmounted, whoever does that.
    pub fn when_ended(&self, ended: impl FnOnce() + Send + 'static) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let wait = move || {
            inner.mounted.wait();
            drop(inner);
            ended();
        };
        std::thread::Builder::new().name("atoll-mount".into()).spawn(wait).context("no thread to be had")?;
        Ok(())
    }

    /// Unmounts, and ends the session.
    pub fn end(self) {
        self.inner.mounted.unmount();
        // Answers of requests under way, and what they still ask of islands, go first.
        let inner = Arc::clone(&self.inner);
        let (send, receive) = std::sync::mpsc::channel();
        let _ = std::thread::Builder::new().spawn(move || {
            inner.mounted.wait();
            let _ = send.send(());
        });
        let _ = receive.recv_timeout(std::time::Duration::from_secs(5));
        self.inner.attached.stop();
    }
}

impl Inner {
    fn bytes_go(&self) -> BytesGo {
        match self.mounted.passthrough() {
            Passthrough::On => BytesGo::Directly,
            Passthrough::NotOffered => BytesGo::Through,
            Passthrough::OldKernel => BytesGo::OldKernel,
            Passthrough::NotAllowed => BytesGo::NotAllowed,
        }
    }

    fn status(&self) -> MountStatus {
        let AttachedStatus { mut metrics, nodes } = self.attached.status();
        metrics.push(Metric::now("ids", self.mounted.nodes_known() as u64));
        let fuse = self.mounted.counters().into_iter().map(|count| FuseCount {
            operation: count.operation.to_owned(),
            requests: count.requests,
            errors: count.errors,
        });
        MountStatus {
            volume: self.attached.config().name.clone(),
            kind: self.attached.config().kind,
            point: self.point.display().to_string(),
            metrics,
            fuse: fuse.collect(),
            nodes,
        }
    }
}

/// Answers questions about a mount.
struct AboutMount(Arc<Inner>, Vec<String>);

impl Desk for AboutMount {
    fn answer(&self, order: Control) -> ControlReply {
        let inner = &self.0;
        let daemon = Daemon {
            daemon: 0,
            cluster: 0,
            incarnation: 0,
            pid: std::process::id(),
            up_ms: inner.started.elapsed().as_millis() as u64,
            software: concat!("atoll ", env!("CARGO_PKG_VERSION")).to_owned(),
            data: String::new(),
            addresses: self.1.clone(),
            links: 0,
            clock_ms: atoll_server::clock_ms(),
            certificate_until: None,
            control: String::new(),
        };
        match order {
            Control::Describe => ControlReply::Described { daemon, volumes: Vec::new() },
            Control::Status => ControlReply::Status {
                daemon,
                volumes: Vec::new(),
                mounts: vec![inner.status()],
                filling: None,
            },
            Control::Volume { name } if name.is_empty() || name == inner.attached.config().name => {
                let from = inner.attached.status().nodes.into_iter().map(|n| n.address).collect();
                let config = Box::new((*inner.attached.config()).clone());
                ControlReply::Volume { config, node: None, from, root: inner.attached.root() }
            }
            Control::Union { order } => match inner.attached.union_order(order, &inner.point) {
                Ok(mut reply) => {
                    if let UnionReply::Status { status } = &mut reply {
                        status.bytes_go = inner.bytes_go();
                    }
                    ControlReply::Union { reply }
                }
                Err(why) => ControlReply::Refused { text: format!("{why:#}") },
            },
            _ => ControlReply::Refused { text: "A mount takes no orders: ask a node.".to_owned() },
        }
    }
}

fn listen(inner: &Arc<Inner>) -> Result<(Listener, places::SocketPlace)> {
    places::sweep_sockets();
    let place = places::mount_socket(&inner.point)?;
    let shown = vec![format!("unix:{}", place.shown.display())];
    let desk = Arc::new(Counter(AboutMount(Arc::clone(inner), shown)));
    let until = Instant::now() + BEFORE_ENDS;
    loop {
        let desk = Arc::clone(&desk);
        match Listener::start(&place.address, desk, Options::default()) {
            // The mount that was here before is gone, and its process is about to end.
            Err(ListenError::SocketInUse { .. }) if Instant::now() < until => std::thread::sleep(LOOK),
            listener => return Ok((listener?, place)),
        }
    }
}
