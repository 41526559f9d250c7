//! Makes the first site of a volume, lets others join, and asks a node about its sites.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use atoll_control::check_volume_name;
use atoll_core::{IslandId, NodeId, Table, VolumeId};
use atoll_proto::control::{Daemon, VolumeSummary};
use atoll_proto::{
    Control, ControlReply, NodeConfig, SiteOrder, SiteReply, SiteSettings, VolumeConfig, VolumeKind,
};
use atoll_rpc::{Address, Security};
use atoll_server::check_site;

use crate::ask::{ORDER, QUESTION, strange, try_ask};
use crate::kind::{Manner, attach};
use crate::node::random;
use crate::places::{self, SocketPlace, data_socket, mount_of};
use crate::reach::InMount;
use crate::source::{Mounted, Source, of_mount};
use crate::status::explain_down;
use crate::wide::adopt::{Adopted, adopt, check_lengths};

/// Milliseconds that an operation of adopting waits for the node.
const PATIENCE_MS: u64 = 60_000;
/// How long joining may take: both sites wait for disks, and the network may be slow.
const JOINING: Duration = Duration::from_secs(60);

/// What a new site is to be.
#[derive(Debug, Clone, Default)]
pub struct SiteWish {
    /// Its name; none: that of this machine.
    pub name: Option<String>,
    /// Where it takes connections of other sites; none: at the port of its first address.
    pub listen: Option<String>,
    /// Where other sites reach it.
    pub addresses: Vec<String>,
    /// Bytes that leave it in a second, at most; 0: no bound.
    pub bytes_per_s: u64,
}

/// Where a site is.
#[derive(Debug)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Where it listens; empty if it does not.
    pub listen: String,
}

/// The name of this machine, as a site may have it.
pub fn host_name() -> String {
    let name = rustix::system::uname();
    let name = String::from_utf8_lossy(name.nodename().to_bytes()).into_owned();
    let first = name.split('.').next().unwrap_or_default();
    let good = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = first.chars().filter(good).take(32).collect();
    if name.starts_with(|c: char| c.is_ascii_alphanumeric()) { name } else { "site".to_owned() }
}

impl SiteWish {
    /// What is wished, checked.
    fn place(&self) -> Result<Place> {
        let name = self.name.clone().unwrap_or_else(host_name);
        let of_address = |address: &String| match address.parse() {
            Ok(Address::Tcp { port, .. }) => format!("0.0.0.0:{port}"),
            _ => String::new(),
        };
        let listen =
            self.listen.clone().or_else(|| self.addresses.first().map(of_address)).unwrap_or_default();
        check_site(&name, &listen, &self.addresses).map_err(|why| anyhow!("{why}"))?;
        Ok(Place { name, listen })
    }
}

/// A node that is asked about its sites.
#[derive(Debug)]
pub struct SiteAsk {
    place: SocketPlace,
    /// Its data directory, if it is asked by that.
    data: Option<PathBuf>,
}

impl SiteAsk {
    /// The node of this machine that has a data directory.
    pub fn of_data(data: &Path) -> Result<Self> {
        Ok(Self { place: data_socket(data)?, data: Some(data.to_owned()) })
    }

    /// The node that serves what is at a path of a mount, and the volume.
    pub fn of_mount(path: &InMount) -> Result<(Self, VolumeConfig)> {
        let Mounted { config, from, .. } = of_mount(&path.mount)?;
        let shown = from.into_iter().find(|shown| !shown.is_empty());
        let shown = shown.ok_or_else(|| anyhow!("The mount {} has no node.", path.mount.path.display()))?;
        Ok((Self { place: places::reach(&shown)?, data: None }, config))
    }

    fn control(&self, order: Control, patience: Duration) -> Result<ControlReply> {
        match try_ask(&self.place.address, order, patience) {
            Ok(ControlReply::Refused { text }) => bail!("{text}"),
            Ok(reply) => Ok(reply),
            Err(why) => Err(explain_down(why.into_error(), self.data.as_deref())),
        }
    }

    pub(super) fn strange(&self) -> anyhow::Error {
        strange(&self.place.address)
    }

    /// Gives an order.
    pub fn order(&self, order: SiteOrder) -> Result<SiteReply> {
        let patience = if matches!(order, SiteOrder::Join { .. }) { JOINING } else { ORDER };
        match self.control(Control::Site { order }, patience)? {
            ControlReply::Site { reply } => Ok(reply),
            _ => Err(self.strange()),
        }
    }

    fn describe(&self) -> Result<(Daemon, Vec<VolumeSummary>)> {
        match self.control(Control::Describe, QUESTION)? {
            ControlReply::Described { daemon, volumes } => Ok((daemon, volumes)),
            _ => Err(self.strange()),
        }
    }

    /// The volume that is meant: the one that is named, or the only one of the kind wide.
    pub fn volume(&self, named: Option<String>) -> Result<String> {
        if let Some(named) = named {
            return Ok(named);
        }
        let (_, volumes) = self.describe()?;
        let wide = volumes.into_iter().filter(|volume| volume.kind == VolumeKind::Wide);
        match &wide.map(|volume| volume.name).collect::<Vec<_>>()[..] {
            [one] => Ok(one.clone()),
            [] => bail!(
                "The node of {} has no site of a wide volume.\n\
                Make one: atoll volume create NAME --kind wide. Or join one: atoll site join LINE",
                self.data.as_deref().unwrap_or(&self.place.shown).display()
            ),
            several => bail!(
                "The node has sites of several volumes: {}.\nName the one that is meant: --volume NAME",
                several.join(", ")
            ),
        }
    }
}

/// Makes a volume with its first site, at the node of this machine that has a data directory.
pub fn create(data: &Path, name: &str, wish: &SiteWish) -> Result<(VolumeConfig, Place)> {
    check_volume_name(name).map_err(|e| anyhow!("\"{}\" cannot name a volume: {}.", e.text, e.why))?;
    let place = wish.place()?;
    let ask = SiteAsk::of_data(data)?;
    let (daemon, _) = ask.describe()?;
    // Where mounts of other machines reach the node; none if it listens to this machine alone.
    let address = daemon.addresses.iter().find(|address| !address.starts_with("unix:"));
    let settings = SiteSettings {
        site: random()?,
        name: place.name.clone(),
        listen: place.listen.clone(),
        addresses: wish.addresses.clone(),
        bytes_per_s: wish.bytes_per_s,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        hosts: Vec::new(),
    };
    let config = VolumeConfig {
        id: VolumeId(random()?),
        name: name.to_owned(),
        seed: random()?,
        table: Table::new(1),
        nodes: vec![NodeConfig {
            daemon: if Security::of_process().is_some() { daemon.daemon } else { 0 },
            node: NodeId(0),
            address: address.cloned().unwrap_or_default(),
            islands: vec![IslandId(0)],
        }],
        kind: VolumeKind::Wide,
        copies: None,
        site: Some(settings),
    };
    let id = config.id;
    ask.control(Control::Prepare { config: Box::new(config.clone()), node: NodeId(0) }, ORDER)?;
    ask.control(Control::Activate { volume: id }, ORDER)?;
    Ok((config, place))
}

/// Has the node of this machine that has a data directory join a volume with a new site. The volume's name.
pub fn join(data: &Path, line: &str, wish: &SiteWish, waits: bool) -> Result<(String, Place)> {
    let place = wish.place()?;
    let order = SiteOrder::Join {
        line: line.to_owned(),
        name: place.name.clone(),
        listen: place.listen.clone(),
        addresses: wish.addresses.clone(),
        bytes_per_s: wish.bytes_per_s,
        waits,
    };
    let ask = SiteAsk::of_data(data)?;
    match ask.order(order)? {
        SiteReply::Joined { volume } => Ok((volume, place)),
        _ => Err(ask.strange()),
    }
}

/// How far adopting a folder is.
#[derive(Debug, Clone, Copy)]
pub enum Adopting {
    /// Its files are being copied.
    Copies(Adopted),
    /// Their bytes are being read, so that they can be compared with those of other sites.
    Compares,
}

/// How often it is asked whether all has been read.
const LOOK: Duration = Duration::from_millis(250);

/// The same with all that is in a folder. The site has links when that is copied.
pub fn join_and_adopt(
    data: &Path,
    line: &str,
    wish: &SiteWish,
    from: &Path,
    told: &mut dyn FnMut(Adopting),
) -> Result<(String, Place, Adopted)> {
    check_folder(data, from)?;
    let (volume, place) = join(data, line, wish, true)?;
    let next = |why: anyhow::Error| {
        why.context(format!(
            "Volume {volume} was joined, and has no links: the folder {} was not copied whole",
            from.display()
        ))
    };
    let adopted = copy(data, &volume, from, told).map_err(next)?;
    let ask = SiteAsk::of_data(data)?;
    told(Adopting::Compares);
    loop {
        let SiteReply::Sites { sites } = ask.order(SiteOrder::List { volume: volume.clone() })? else {
            return Err(ask.strange());
        };
        if sites.first().is_some_and(|here| here.is_even) {
            break;
        }
        std::thread::sleep(LOOK);
    }
    ask.order(SiteOrder::Start { volume: volume.clone() })?;
    Ok((volume, place, adopted))
}

fn copy(data: &Path, volume: &str, from: &Path, told: &mut dyn FnMut(Adopting)) -> Result<Adopted> {
    let socket = data_socket(data)?;
    let found = Source::of_socket(&socket, Some(volume.to_owned())).find()?;
    let attached = attach(found.reach(None)?, Manner::tool(PATIENCE_MS))?;
    let copied = adopt(&*attached.files(), from, &mut |adopted| told(Adopting::Copies(adopted)));
    attached.stop();
    copied
}

/// Whether a folder can be adopted: it exists, is no part of a data directory, no volume of Atoll, and has no file that is too long.
fn check_folder(data: &Path, from: &Path) -> Result<()> {
    let path = std::fs::canonicalize(from)
        .with_context(|| format!("The folder {} cannot be adopted", from.display()))?;
    if !path.is_dir() {
        bail!("{} is no directory.\nName the folder whose files are to be adopted.", from.display());
    }
    let is_data = |dir: &Path| dir.join("node.toml").exists();
    if path.ancestors().any(is_data) || std::fs::canonicalize(data).is_ok_and(|data| data.starts_with(&path))
    {
        bail!(
            "{} is a part of a data directory of Atoll, or has one in it: another site may hold it.\n\
            Adopt a folder of ordinary files.",
            from.display()
        );
    }
    if mount_of(&path)?.is_some() {
        bail!(
            "{} is in a mounted volume of Atoll: another site may hold it.\nAdopt a folder of ordinary files.",
            from.display()
        );
    }
    check_lengths(&path)
}
