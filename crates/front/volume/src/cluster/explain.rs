//! Where a file or directory of a cluster volume is: key, bucket, owner, home, plain path, skeletons.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;

use anyhow::{Result, anyhow, bail};
use atoll_control::rfc3339;
use atoll_core::{H3, Ino, IslandId, Key, Name, NodeId, VolumePath};
use atoll_posix::{Answer, Caller, Errno, Kind, Op};
use atoll_proto::SiteTrace;
use atoll_proto::control::{CopyRole, Trace};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::attach::ClusterVolume;
use crate::explain::Explanation;
use crate::group;
use crate::kind::Attached as _;

/// Explains a path.
pub(super) fn explain(attached: &ClusterVolume, names: &VolumePath, root: &Path) -> Result<Explanation> {
    let steps = walk(attached, names, root)?;
    Ok(Report::new(attached, names, &steps)?.explanation())
}

/// A step of the path: a name and what it names.
struct Reached {
    ino: Ino,
    kind: Kind,
    /// Of a directory.
    key: Option<Key>,
}

/// Looks each name up in turn, as the superuser: the answer is about places, not about contents.
fn walk(attached: &ClusterVolume, names: &VolumePath, root: &Path) -> Result<Vec<Reached>> {
    let mut at = root.to_owned();
    let h3 = H3::new(attached.config().seed);
    let of_root = h3.path(std::iter::empty::<&Name>()).map_or(Key(0), |hash| hash.key());
    let (ino, key) = attached.root().unwrap_or((Ino::ROOT, of_root));
    let mut reached = vec![Reached { ino, kind: Kind::Directory, key: Some(key) }];
    for name in names.names() {
        let dir = reached.last().expect("the root is there").ino;
        let (send, receive) = sync_channel(1);
        let op = Op::Lookup { dir, name: name.clone() };
        let done = Box::new(move |result: Result<Answer, Errno>, _: atoll_posix::AnswerExtras<'_>| {
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

/// A directory, and its placement key. `shown` is how the user named it.
pub(super) fn directory(attached: &ClusterVolume, names: &VolumePath, shown: &str) -> Result<(Ino, Key)> {
    let reached = walk(attached, names, Path::new("/"))?;
    match reached.last() {
        Some(Reached { ino, kind: Kind::Directory, key: Some(key) }) => Ok((*ino, *key)),
        Some(Reached { kind: Kind::Symlink, .. }) => {
            bail!("{shown} is a symbolic link.\nName the directory that it leads to.")
        }
        _ => bail!("{shown} is no directory."),
    }
}

/// Facts about the last name.
struct Report {
    ino: Ino,
    kind: Kind,
    /// Of the directory itself, or of the one that a file is in.
    key: Key,
    bucket: u32,
    owner: IslandId,
    /// Of a file: not always the owner of its directory.
    home: Option<IslandId>,
    place: Option<(u16, String)>,
    /// The nodes that shall keep copies of its island, if that has several.
    copies: Vec<NodeId>,
    /// What those of them have that answer.
    traces: Vec<Trace>,
    /// The path in the volume.
    names: PathBuf,
    plain: Option<PathBuf>,
    body: Option<String>,
    skeletons: Vec<IslandId>,
    away: Vec<IslandId>,
    /// What the site of a wide volume knows of it.
    site: Option<SiteTrace>,
}

impl Report {
    fn new(attached: &ClusterVolume, names: &VolumePath, steps: &[Reached]) -> Result<Self> {
        let config = attached.config();
        let last = steps.last().expect("the root is there");
        let is_dir = last.kind == Kind::Directory;
        let dir = if is_dir { last } else { &steps[steps.len() - 2] };
        let key = dir.key.ok_or_else(|| anyhow!("The key of a directory was not told."))?;
        let owner = config.owner(key);
        let mut traces: Vec<Trace> = Vec::new();
        let mut site = None;
        // The islands of the directory, whose skeletons tell; those of the file, where its body is.
        for ino in if is_dir { vec![last.ino] } else { vec![dir.ino, last.ino] } {
            for mut trace in attached.traces(ino) {
                let told = trace.site.take();
                site = site.or(told.filter(|_| ino == last.ino));
                match traces.iter_mut().find(|t| (t.island, t.node) == (trace.island, trace.node)) {
                    Some(known) => {
                        known.home |= trace.home;
                        known.body = known.body.take().or(trace.body);
                    }
                    None => traces.push(trace),
                }
            }
        }
        traces.sort_by_key(|t| (t.island, t.node));
        // What the islands themselves have: copies that follow may lack what was done last.
        let leads =
            |island| traces.iter().filter(move |t| t.island == island && does_lead(t)).max_by_key(epoch);
        let led: Vec<&Trace> = config.islands().into_iter().filter_map(leads).collect();
        // Whoever has the file says so. Of one whose home is away the id tells where it was made.
        let told = || led.iter().find(|t| t.home).map(|t| t.island);
        let home = (!is_dir).then(|| told().unwrap_or_else(|| last.ino.minted_by()));
        let at = home.unwrap_or(owner);
        let here = led.iter().find(|t| t.island == at);
        let names: PathBuf =
            names.names().iter().map(|n| std::ffi::OsStr::from_bytes(n.as_bytes())).collect();
        let islands = config.islands();
        Ok(Self {
            ino: last.ino,
            kind: last.kind,
            key,
            bucket: config.table.bucket(key).0,
            owner,
            home,
            place: attached.node_of(at).map(|n| (n.node.0, n.address)),
            copies: config.copies.as_ref().map_or(Vec::new(), |copies| copies.group_of(at).to_vec()),
            plain: here.map(|t| below(&t.tree, &names)),
            body: here.and_then(|t| t.body.clone()),
            skeletons: led.iter().filter(|t| t.skeleton).map(|t| t.island).collect(),
            site,
            away: islands.into_iter().filter(|i| !led.iter().any(|t| t.island == *i)).collect(),
            traces: traces.into_iter().filter(|t| t.island == at && t.group.is_some()).collect(),
            names,
        })
    }

    /// The one of its copies that leads, as far as that is known.
    fn leader(&self) -> Option<&Trace> {
        self.traces.iter().max_by_key(|t| (does_lead(t), epoch(t)))
    }

    fn explanation(&self) -> Explanation {
        let mut rows = Vec::new();
        let mut row = |what, value: &dyn std::fmt::Display| rows.push((what, value.to_string()));
        let is_dir = self.kind == Kind::Directory;
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
            // A volume without other nodes has no address.
            let shown = if address.is_empty() { node.to_string() } else { format!("{node}  {address}") };
            row("node", &shown);
        }
        if !self.copies.is_empty() {
            let nodes: Vec<String> = self.copies.iter().map(ToString::to_string).collect();
            row("copies", &format_args!("nodes {}", nodes.join(",")));
        }
        if let Some(status) = self.leader().and_then(|t| t.group.as_ref()) {
            row("group", &group::of_island(status));
        }
        for trace in &self.traces {
            let does = trace.group.as_ref().map_or(String::new(), |status| group::role(status.role));
            row(
                "copy",
                &format_args!("node {}  {does}  {}", trace.node, below(&trace.tree, &self.names).display()),
            );
        }
        if let Some(plain) = &self.plain {
            row("plain", &plain.display());
        }
        if let Some(body) = &self.body {
            row("body", body);
        }
        row("skeleton", &format_args!("islands {}", list(&self.skeletons)));
        if let Some(site) = &self.site {
            row("changed", &changed(site));
            if let Some(shown) = self.shown_as(site) {
                row("shown", &shown);
            }
        }
        if !self.away.is_empty() {
            row("away", &format_args!("islands {}", list(&self.away)));
        }
        Explanation { rows, json: self.json() }
    }

    /// Why something in a wide volume is shown as it is, if that needs a reason.
    fn shown_as(&self, site: &SiteTrace) -> Option<String> {
        let is_dir = self.kind == Kind::Directory;
        let shown = self.names.file_name().filter(|_| !is_dir);
        let is_other = |shown: &std::ffi::OsStr| site.names.iter().all(|own| own[..] != *shown.as_bytes());
        if let Some(own) = site.names.first().filter(|_| shown.is_some_and(is_other)) {
            let own = String::from_utf8_lossy(own);
            return Some(format!("beside \"{own}\", which is its own name and another one has"));
        }
        let why = match (site.is_rescued, is_dir) {
            (true, true) => "still: the site that removed it did not know of something in it",
            (true, false) => "still: the site that removed it did not know of its latest version",
            (false, _) if site.copy_of.is_some() => {
                "a copy: two sites changed one file without knowing of each other"
            }
            (false, _) => return None,
        };
        Some(why.to_owned())
    }

    fn trace_json(&self, trace: &Trace) -> Value {
        json!({
            "node": trace.node.0,
            "role": trace.group.as_ref().map(|status| group::role(status.role)),
            "plain": below(&trace.tree, &self.names).display().to_string(),
            "body": trace.body,
            "is_there": trace.home || trace.skeleton,
        })
    }

    fn json(&self) -> Map<String, Value> {
        let ids = |all: &[IslandId]| all.iter().map(|i| i.0).collect::<Vec<_>>();
        let json = json!({
            "id": self.ino.0,
            "kind": format!("{:?}", self.kind).to_lowercase(),
            "key": format!("{:08x}", self.key.0),
            "bucket": self.bucket,
            "owner": self.owner.0,
            "home": self.home.map(|h| h.0),
            "pointer": self.home.is_some_and(|home| home != self.owner),
            "node": self.place.as_ref().map(|p| p.0),
            "address": self.place.as_ref().map(|p| p.1.clone()),
            "copies": self.copies.iter().map(|node| node.0).collect::<Vec<_>>(),
            "group": self.leader().and_then(|t| t.group.as_ref()).map(group::to_json),
            "traces": self.traces.iter().map(|t| self.trace_json(t)).collect::<Vec<_>>(),
            "plain": self.plain.as_ref().map(|p| p.display().to_string()),
            "body": self.body,
            "skeleton": ids(&self.skeletons),
            "away": ids(&self.away),
            "site": self.site.as_ref().map(site_json),
        });
        match json {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }
}

/// Who has last changed it, when, and what is to come.
fn changed(site: &SiteTrace) -> String {
    let mut told = format!("{}  by site {}", rfc3339(site.changed_ms / 1_000), site.by);
    if site.is_uncut {
        told.push_str("  and here since, which other sites hear soon");
    }
    if site.is_behind {
        told.push_str("  whose bytes are not here yet");
    }
    if site.versions > 1 {
        told.push_str(&format!("  beside {} other versions, which become copies", site.versions - 1));
    }
    told
}

fn site_json(site: &SiteTrace) -> Value {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    json!({
        "object": format!("{:032x}", site.object),
        "by": site.by,
        "changed_ms": site.changed_ms,
        "is_behind": site.is_behind,
        "is_uncut": site.is_uncut,
        "versions": site.versions,
        "is_rescued": site.is_rescued,
        "names": site.names.iter().map(text).collect::<Vec<_>>(),
        "copy_of": site.copy_of.map(|of| format!("{of:032x}")),
    })
}

/// Whether the island itself has told this, and not a copy that follows.
fn does_lead(trace: &Trace) -> bool {
    trace.group.as_ref().is_none_or(|group| matches!(group.role, CopyRole::Leads | CopyRole::Waits))
}

fn epoch(trace: &&Trace) -> u32 {
    trace.group.as_ref().map_or(0, |group| group.epoch)
}

/// A path in a plain tree.
fn below(tree: &str, names: &Path) -> PathBuf {
    // Nothing to add for the root, which would end in a slash.
    if names.as_os_str().is_empty() { PathBuf::from(tree) } else { Path::new(tree).join(names) }
}

fn list(islands: &[IslandId]) -> String {
    let all: Vec<String> = islands.iter().map(ToString::to_string).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(",") }
}
