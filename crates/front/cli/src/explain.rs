//! `atoll explain`: where a file or directory is, and why there.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;

use anyhow::{Result, anyhow, bail};
use atoll_core::{H3, Ino, IslandId, Key, Name, VolumePath};
use atoll_posix::{Answer, Caller, Errno, Kind, Op};
use atoll_proto::control::Trace;
use atoll_proto::{Control, ControlReply, VolumeConfig};
use atoll_rpc::Address;
use bytes::Bytes;
use serde_json::json;

use crate::say;
use atoll_volume::ask::{QUESTION, ask_all};
use atoll_volume::cluster::attach::{Attached, Manner, Other, attach};
use atoll_volume::places::{self, SocketPlace};
use atoll_volume::source::of_mount;

/// Milliseconds that a question about a name waits for a node that is away.
const PATIENCE_MS: u64 = 2_000;

/// Arguments of `atoll explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// A file or directory in a mounted volume
    path: PathBuf,
    /// Explain whatever has this id, below the path: all its directories are read to find it
    #[arg(long, value_name = "ID")]
    id: Option<u64>,
    /// For programs
    #[arg(long)]
    json: bool,
}

/// A step of the path: a name and what it names.
struct Reached {
    ino: Ino,
    kind: Kind,
    /// Of a directory.
    key: Option<Key>,
}

impl Explain {
    pub(crate) fn run(self) -> Result<()> {
        let Some(id) = self.id else {
            let report = Self::look(&self.path)?;
            match self.json {
                true => say::json(&report.json()),
                false => report.show(),
            }
            return Ok(());
        };
        let (found, unread) = find(&self.path, id);
        let reports = found.iter().map(|path| Self::look(path)).collect::<Result<Vec<_>>>()?;
        if self.json {
            say::json(&json!(reports.iter().map(Report::json).collect::<Vec<_>>()));
        } else {
            reports.iter().for_each(Report::show);
        }
        match (reports.len(), unread) {
            (0, 0) => bail!(
                "Nothing below {} has the id {id}.\nIt may be gone, or only open: \"atoll check\" tells more.",
                self.path.display()
            ),
            (_, 0) => Ok(()),
            (n, unread) => bail!(
                "{n} paths of id {id} were found, but {unread} directories could not be read.\n\
                \"atoll status\" shows which nodes are down."
            ),
        }
    }

    fn look(path: &Path) -> Result<Report> {
        let path = places::absolute_nofollow(path)?;
        let mount = places::mount_of(&path)?.ok_or_else(|| {
            anyhow!(
                "{} is in no mounted volume of Atoll.\n\"atoll status\" lists what is mounted.",
                path.display()
            )
        })?;
        let inside = path.strip_prefix(&mount.path).expect("the mount was found by it");
        let absolute = Path::new("/").join(inside);
        let names = VolumePath::parse(absolute.as_os_str().as_bytes())
            .map_err(|e| anyhow!("{} cannot be a path of a volume: {e}.", inside.display()))?;
        let (config, from) = of_mount(&mount)?;
        let ways: Vec<SocketPlace> =
            from.iter().filter(|a| !a.is_empty()).map(|a| places::reach(a)).collect::<Result<_>>()?;
        let addresses: Vec<Address> = ways.iter().map(|w| w.address.clone()).collect();
        let alive: Vec<bool> =
            ask_all(&addresses, &Control::Describe, QUESTION).iter().map(Result::is_ok).collect();
        let nodes = config.nodes.iter().map(|n| n.node);
        let others: Vec<Other> = nodes
            .zip(&addresses)
            .zip(&alive)
            .map(|((node, address), alive)| Other { node, address: address.clone(), alive: *alive })
            .collect();
        let manner = Manner { mount: false, patience_ms: Some(PATIENCE_MS) };
        let attached = attach(config, None, others, manner)?;
        let steps = walk(&attached, &names, &mount.path);
        attached.stop();
        Report::new(&attached.config, &names, &steps?, &addresses, &path)
    }
}

/// Paths below `top` that have the id, and how many directories could not be read.
fn find(top: &Path, id: u64) -> (Vec<PathBuf>, u64) {
    use std::os::unix::fs::{DirEntryExt, MetadataExt};
    let (mut found, mut unread) = (Vec::new(), 0);
    if std::fs::symlink_metadata(top).is_ok_and(|about| about.ino() == id) {
        found.push(top.to_owned());
    }
    let mut left = vec![top.to_owned()];
    while let Some(dir) = left.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else {
            unread += 1;
            continue;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                unread += 1;
                break;
            };
            if entry.ino() == id {
                found.push(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
            }
        }
    }
    found.sort();
    (found, unread)
}

/// Looks each name up in turn, as the superuser: it is about where things are, not what is in them.
fn walk(attached: &Attached, names: &VolumePath, root: &Path) -> Result<Vec<Reached>> {
    let mut at = root.to_owned();
    let h3 = H3::new(attached.config.seed);
    let mut reached = vec![Reached { ino: Ino::ROOT, kind: Kind::Directory, key: Some(Key(0)) }];
    if let Some(key) = h3.path(std::iter::empty::<&Name>()) {
        reached[0].key = Some(key.key());
    }
    for name in names.names() {
        let dir = reached.last().expect("the root is there").ino;
        let (send, receive) = sync_channel(1);
        let op = Op::Lookup { dir, name: name.clone() };
        let done = Box::new(move |result: Result<Answer, Errno>, _: &[u8]| {
            let _ = send.send(result);
        });
        attached.client.submit(&Caller::ROOT, op, Bytes::new(), done);
        let shown = String::from_utf8_lossy(name.as_bytes()).into_owned();
        match receive.recv().unwrap_or(Err(Errno::EIO)) {
            Ok(Answer::Found { found }) => {
                let key = attached.client.key_of(found.attr.ino);
                reached.push(Reached { ino: found.attr.ino, kind: found.attr.kind, key });
            }
            Ok(_) | Err(Errno::EIO) => bail!(
                "\"{shown}\" cannot be looked up: the island that knows it is away.\n\"atoll status\" shows which nodes are down."
            ),
            Err(Errno::ENOENT) => bail!("There is no \"{shown}\" in {}.", at.display()),
            Err(Errno::ENOTDIR) => {
                bail!("{} is no directory, so there is no \"{shown}\" in it.", at.display())
            }
            Err(why) => {
                let why = std::io::Error::from_raw_os_error(why.0);
                bail!("\"{shown}\" in {} cannot be looked up: {why}.", at.display())
            }
        }
        at.push(std::ffi::OsStr::from_bytes(name.as_bytes()));
    }
    Ok(reached)
}

struct Report {
    path: PathBuf,
    ino: Ino,
    kind: Kind,
    /// Of the directory itself, or of the one that a file is in.
    key: Key,
    bucket: u32,
    owner: IslandId,
    /// Of a file: not always the owner of its directory.
    home: Option<IslandId>,
    place: Option<(u16, String)>,
    plain: Option<PathBuf>,
    body: Option<String>,
    skeletons: Vec<IslandId>,
    away: Vec<IslandId>,
}

impl Report {
    fn new(
        config: &VolumeConfig,
        names: &VolumePath,
        steps: &[Reached],
        addresses: &[Address],
        path: &Path,
    ) -> Result<Self> {
        let last = steps.last().expect("the root is there");
        let is_dir = last.kind == Kind::Directory;
        let dir = if is_dir { last } else { &steps[steps.len() - 2] };
        let key = dir.key.ok_or_else(|| anyhow!("The key of a directory was not told."))?;
        let owner = config.table.owner(key);
        let mut traces: Vec<Trace> = Vec::new();
        // The islands of the directory, whose skeletons tell; those of the file, where its body is.
        for ino in if is_dir { vec![last.ino] } else { vec![dir.ino, last.ino] } {
            let order = Control::Trace { volume: config.id, ino };
            for answer in ask_all(addresses, &order, QUESTION) {
                let Ok(ControlReply::Traces { traces: more }) = answer else { continue };
                for trace in more {
                    match traces.iter_mut().find(|t| t.island == trace.island) {
                        Some(known) => {
                            known.home |= trace.home;
                            known.body = known.body.take().or(trace.body);
                        }
                        None => traces.push(trace),
                    }
                }
            }
        }
        traces.sort_by_key(|t| t.island);
        // Whoever has the file says so. Of one whose home is away the id tells where it was made.
        let told = || traces.iter().find(|t| t.home).map(|t| t.island);
        let home = (!is_dir).then(|| told().unwrap_or_else(|| last.ino.minted_by()));
        let at = home.unwrap_or(owner);
        let here = traces.iter().find(|t| t.island == at);
        let plain = here.map(|t| {
            let below = names.names().iter().map(|n| std::ffi::OsStr::from_bytes(n.as_bytes()));
            below.fold(PathBuf::from(&t.tree), |path, name| path.join(name))
        });
        let islands = config.islands();
        Ok(Self {
            path: path.to_owned(),
            ino: last.ino,
            kind: last.kind,
            key,
            bucket: config.table.bucket(key).0,
            owner,
            home,
            place: config.node_of(at).map(|n| (n.node.0, n.address.clone())),
            plain,
            body: here.and_then(|t| t.body.clone()),
            skeletons: traces.iter().filter(|t| t.skeleton).map(|t| t.island).collect(),
            away: islands.into_iter().filter(|i| !traces.iter().any(|t| t.island == *i)).collect(),
        })
    }

    fn show(&self) {
        let row = |what: &str, value: &dyn std::fmt::Display| say::line(format_args!("{what:<9}{value}"));
        let is_dir = self.kind == Kind::Directory;
        row("path", &self.path.display());
        row("id", &format_args!("{} ({:?})", self.ino, self.kind).to_string().to_lowercase());
        let of = if is_dir { "" } else { "  (of its directory)" };
        row("key", &format_args!("{:08x}{of}", self.key.0));
        row("bucket", &self.bucket);
        row(
            "owner",
            &format_args!("island {}  {}", self.owner, if is_dir { "has its names" } else { "has its name" }),
        );
        if let Some(home) = self.home {
            let points = if home == self.owner { "" } else { ": the name points there" };
            row("home", &format_args!("island {home}  has its bytes{points}"));
        }
        if let Some((node, address)) = &self.place {
            row("node", &format_args!("{node}  {address}"));
        }
        if let Some(plain) = &self.plain {
            row("plain", &plain.display());
        }
        if let Some(body) = &self.body {
            row("body", body);
        }
        row("skeleton", &format_args!("islands {}", list(&self.skeletons)));
        if !self.away.is_empty() {
            row("away", &format_args!("islands {}", list(&self.away)));
        }
    }

    fn json(&self) -> serde_json::Value {
        let ids = |all: &[IslandId]| all.iter().map(|i| i.0).collect::<Vec<_>>();
        json!({
            "path": self.path.display().to_string(),
            "id": self.ino.0,
            "kind": format!("{:?}", self.kind).to_lowercase(),
            "key": format!("{:08x}", self.key.0),
            "bucket": self.bucket,
            "owner": self.owner.0,
            "home": self.home.map(|h| h.0),
            "pointer": self.home.is_some_and(|home| home != self.owner),
            "node": self.place.as_ref().map(|p| p.0),
            "address": self.place.as_ref().map(|p| p.1.clone()),
            "plain": self.plain.as_ref().map(|p| p.display().to_string()),
            "body": self.body,
            "skeleton": ids(&self.skeletons),
            "away": ids(&self.away),
        })
    }
}

fn list(islands: &[IslandId]) -> String {
    let all: Vec<String> = islands.iter().map(ToString::to_string).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(",") }
}
