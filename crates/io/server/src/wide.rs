//! A site of a wide volume, as a node serves it (`docs/design/023-wide.md`): its island, as that of a cluster volume, the machine beside
//! it, and its links to other sites. Never decides what sites tell each other.

mod told;

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use atoll_ca::SiteLine;
use atoll_causal::Writer;
use atoll_control::seconds_now;
use atoll_core::{Decode, Encode, Ino, IslandId, Malformed, NodeId};
use atoll_disk::Disk;
use atoll_dispatch::beside::SideRow;
use atoll_dispatch::{BesideMaker, Clock, Engine, Fills};
use atoll_island::{Beside, BesideEvent, BesideSays, Event, Island};
use atoll_posix::Errno;
use atoll_proto::control::{FillStage, FillStatus, IslandWeight, Trace};
use atoll_proto::{SiteCondition, SiteOrder, SiteReply, SiteSettings, SiteTold, VolumeConfig};
use atoll_rpc::{Address, Closed, Frame, Handler, Link};
use atoll_shown::COPIES_MAX;
use atoll_sites::{JoinAsk, Joined, SiteKey, SiteLinks, SiteVolume};
use atoll_wide::asks::{SiteAnswers, SiteAsks};
use atoll_wide::confirm::CONFIRM_MAX;
use atoll_wide::contents::FetchedBytes;
use atoll_wide::members::{NumberedSite, SiteMember, SiteStanding};
use atoll_wide::peers::Window;
use atoll_wide::peers::message::{Most, WideMessage};
use atoll_wide::rows::SiteId;
use atoll_wide::site::{Site, SiteConfig};
use bytes::Bytes;

use crate::answers::Answers;
use crate::cluster::{Cluster, Islands};
use crate::invites::Invites;
use crate::node::NodeError;
use crate::served::{LocalWay, Place, Serve, Served, ServedStatus};
use crate::volume::{VolumeError, VolumeOptions, WallClock, tell};

/// The island of each site.
const ISLAND: IslandId = IslandId(0);
/// How long a change of the list of sites may take until it is synced.
const KNOWN: Duration = Duration::from_secs(10);
/// Pause between two looks for an answer.
const LOOK: Duration = Duration::from_millis(5);
/// How long answers are waited for when it is asked who has something.
const CONFIRMED: Duration = Duration::from_secs(2);
/// Part of the disk that the trash may take.
const TRASH_PART: u64 = 10;
/// How long something that is asked about the trash may take.
const TRASH: Duration = Duration::from_secs(20);
/// A file beside the islands of a site that has no links before it is started.
const WAITS_FILE: &str = "waits";
/// Longest time for which a line holds, in seconds.
const LINE_S_MAX: u64 = 366 * 86_400;

/// A key, and the links by it.
type Keyed = (Arc<SiteKey>, Arc<SiteLinks>);

/// What all sites of a node share: their key and their links.
#[derive(Clone, Default)]
pub struct NodeSites(Arc<Mutex<Option<Keyed>>>);

impl std::fmt::Debug for NodeSites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeSites")
    }
}

impl NodeSites {
    /// The key in a data directory, and the links by it. `may_make`: there may be no key yet.
    pub(crate) fn of(&self, data: &Path, may_make: bool) -> Result<Keyed, String> {
        let mut inner = self.0.lock().expect("no panic while it is held");
        if let Some(there) = &*inner {
            return Ok(there.clone());
        }
        let key = if may_make { SiteKey::read_or_make(data) } else { SiteKey::read(data) };
        let key = key.map_err(|why| {
            format!("{why}.\nRestore {} from a backup: the other sites know this one by it.", SiteKey::FILE)
        })?;
        let key = Arc::new(key);
        let links = SiteLinks::new(Arc::clone(&key)).map_err(|why| why.to_string())?;
        let there = (key, Arc::new(links));
        *inner = Some(there.clone());
        Ok(there)
    }
}

/// Makes the machine of a site.
#[derive(Debug)]
struct SiteMaker {
    /// Its trash has no bound yet, and each machine that it makes gets a life of its own.
    config: SiteConfig,
    /// Where its island is.
    folder: PathBuf,
}

impl BesideMaker for SiteMaker {
    fn tables(&self) -> &[u8] {
        Site::TABLES
    }

    fn begin(&self, position: u64, rows: Vec<SideRow>) -> Result<Box<dyn Beside>, Malformed> {
        let disk = rustix::fs::statvfs(&self.folder);
        let disk = disk.map_err(|_| Malformed::new("disk that tells its size"))?;
        let trash_bytes = disk.f_blocks.saturating_mul(disk.f_frsize) / TRASH_PART;
        let drawn = random_bytes().map_err(|_| Malformed::new("source of random numbers"))?;
        let config = SiteConfig { trash_bytes, life: u64::from_le_bytes(drawn), ..self.config.clone() };
        Ok(Box::new(Site::open(config, position, rows)?))
    }
}

/// Hears what the machine beside an island says.
pub(crate) trait Hears: Send + Sync {
    /// It is numbered in the order in which it was said.
    fn says(&self, number: u64, says: BesideSays);
}

/// What a machine has said, brought into order again: threads tell it as they come.
#[derive(Debug, Default)]
struct InOrder {
    next: u64,
    early: BTreeMap<u64, BesideSays>,
}

impl InOrder {
    /// What follows from here on.
    fn add(&mut self, number: u64, says: BesideSays) -> Vec<BesideSays> {
        self.early.insert(number, says);
        let mut ready = Vec::new();
        while let Some(next) = self.early.remove(&self.next) {
            ready.push(next);
            self.next += 1;
        }
        ready
    }
}

/// The way from a machine to its links, and to those of this node who have asked it.
struct ToLinks {
    volume: u64,
    links: Arc<SiteLinks>,
    answers: Arc<Answers>,
    said: Mutex<InOrder>,
}

impl Hears for ToLinks {
    fn says(&self, number: u64, says: BesideSays) {
        // What is ready leaves while the lock is held, or the next thread would overtake it.
        let mut said = self.said.lock().expect("no panic while it is held");
        for says in said.add(number, says) {
            match says {
                BesideSays::Send { peer, bytes } => {
                    let is_urgent = !WideMessage::encodes_bytes(&bytes);
                    self.links.send(self.volume, peer, bytes, is_urgent);
                }
                BesideSays::Answers { id, bytes } => self.answers.came(id, bytes),
                BesideSays::End { peer, why } => self.links.end(self.volume, peer, &why),
            }
        }
    }
}

/// Serves sites of wide volumes.
pub struct Wide<D: Disk> {
    /// Serves their islands.
    pub cluster: Cluster<D>,
    /// What all sites of the node share.
    pub sites: NodeSites,
}

impl<D: Disk> std::fmt::Debug for Wide<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wide").finish_non_exhaustive()
    }
}

/// A site, being served.
struct ServedSite<D: Disk> {
    islands: Arc<Islands<D>>,
    settings: SiteSettings,
    folder: PathBuf,
    key: Arc<SiteKey>,
    links: Arc<SiteLinks>,
    fills: Arc<Fills>,
    invites: Mutex<Invites>,
    /// It has links.
    is_started: AtomicBool,
    answers: Arc<Answers>,
    /// Itself, for its links.
    me: OnceLock<Weak<Self>>,
}

/// The sites that a configuration names.
fn hosts(settings: &SiteSettings) -> Result<Vec<(SiteId, SiteMember)>, Malformed> {
    let host = |bytes: &Bytes| {
        let NumberedSite { site, member } = NumberedSite::from_slice(bytes)?;
        Ok((SiteId(site), member))
    };
    settings.hosts.iter().map(host).collect()
}

/// How far a site is with the bytes that it gets; none if it has all.
fn filling(site: &Site) -> Option<FillStatus> {
    let FetchedBytes { files_left, bytes_left, files, bytes, .. } = site.fetched();
    let status = FillStatus {
        stage: FillStage::Bytes,
        files: files + files_left,
        bytes: bytes + bytes_left,
        files_left,
        bytes_left,
    };
    (files_left > 0).then_some(status)
}

/// What a site says of itself.
pub(crate) fn member(settings: &SiteSettings, key: &SiteKey) -> SiteMember {
    SiteMember {
        version: 1,
        state: SiteStanding::Active,
        writer: Writer(settings.site),
        name: settings.name.clone(),
        addresses: settings.addresses.clone(),
        key: Bytes::copy_from_slice(&key.digest()),
    }
}

impl<D: Disk> Serve for Wide<D> {
    fn serve(&self, at: &Place<'_>) -> Result<Arc<dyn Served>, NodeError> {
        let volume = || at.config.name.clone();
        let bad = |why: String| NodeError::Kind { volume: volume(), why };
        let settings = at.config.site.clone();
        let settings =
            settings.ok_or_else(|| bad("its configuration does not say which site it is.".to_owned()))?;
        let (key, links) = self.sites.of(at.data, at.is_new).map_err(bad)?;
        let mut members =
            hosts(&settings).map_err(|why| bad(format!("its configuration is damaged: {why}")))?;
        let site = SiteId(settings.site);
        members.retain(|(host, _)| *host != site);
        members.push((site, member(&settings, &key)));
        let volume_id = at.config.id.0;
        let config = SiteConfig {
            volume: volume_id,
            site,
            island: ISLAND,
            life: 0,
            members,
            window: Window::MOST,
            copies_max: COPIES_MAX,
            trash_bytes: 0,
        };
        let maker = SiteMaker { config, folder: at.folder.join(ISLAND.to_string()) };
        let cluster = Cluster {
            options: VolumeOptions {
                beside: Some(Arc::new(maker)),
                owner: (settings.uid, settings.gid),
                ..self.cluster.options.clone()
            },
            shelf: Arc::clone(&self.cluster.shelf),
            beside: Arc::clone(&self.cluster.beside),
            fills: Arc::clone(&self.cluster.fills),
        };
        let islands = cluster.islands(at)?;
        let answers = Arc::new(Answers::new());
        let to_links = ToLinks {
            volume: volume_id,
            links: Arc::clone(&links),
            answers: Arc::clone(&answers),
            said: Mutex::default(),
        };
        islands.volume.switch().set_beside(Arc::new(to_links));
        let folder = at.folder.to_owned();
        let invites = Invites::read(&folder).map_err(|why| NodeError::Folder {
            volume: volume(),
            folder: folder.clone(),
            why: why.to_string(),
        })?;
        let served = Arc::new(ServedSite {
            islands,
            settings,
            folder,
            key,
            links,
            fills: Arc::clone(&self.cluster.fills),
            invites: Mutex::new(invites),
            is_started: AtomicBool::new(false),
            answers,
            me: OnceLock::new(),
        });
        _ = served.me.set(Arc::downgrade(&served));
        Ok(served)
    }
}

impl<D: Disk> ServedSite<D> {
    fn engine(&self) -> Option<Arc<Engine<D>>> {
        self.islands.volume.engine(ISLAND)
    }

    /// Looks at its machine; none if its island is not open.
    fn with_site<R>(&self, look: impl FnOnce(&Site) -> R) -> Option<R> {
        self.with_island(|site, _| look(site))
    }

    /// The same, beside its island.
    fn with_island<R>(&self, look: impl FnOnce(&Site, &Island) -> R) -> Option<R> {
        let engine = self.engine().filter(|engine| engine.is_leading())?;
        engine.with_island(|island| island.beside::<Site>().map(|site| look(site, island)))
    }

    fn waits_file(&self) -> PathBuf {
        self.folder.join(WAITS_FILE)
    }

    /// Begins its links.
    fn start(&self) -> Result<(), String> {
        if self.is_started.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let listened = match self.settings.listen.as_str() {
            "" => Ok(()),
            listen => resolve(listen).and_then(|at| {
                let bound = self.links.listen(at);
                bound.map(drop).map_err(|why| {
                    format!(
                        "Other sites cannot connect to this one: {listen} cannot be listened on: {why}.\n\
                        Is the port free, and the address this machine's?"
                    )
                })
            }),
        };
        if let Some(me) = self.me.get().and_then(Weak::upgrade) {
            self.links.add(me, self.settings.bytes_per_s);
        }
        listened
    }

    /// Asks the machine; none if it does not answer in this time. With the number of the question.
    fn ask(&self, asks: &SiteAsks, within: Duration) -> Result<(u64, Option<SiteAnswers>), String> {
        let engine = self.engine().ok_or("The site is not open yet.")?;
        let waits = self.answers.open();
        let waits = waits.ok_or("The site is asked for too much at once.\nTry again in a moment.")?;
        let bytes = asks.to_vec().into();
        tell(&engine, Event::Beside(BesideEvent::Asked { id: waits.id, bytes }));
        let until = Instant::now() + within;
        loop {
            // It may wait for a sync. On a full disk there is none, and what makes room is done all the same.
            _ = engine.reach();
            if let Some(bytes) = waits.answer(LOOK) {
                let answer = SiteAnswers::from_slice(&bytes).map_err(|why| why.to_string())?;
                return Ok((waits.id, Some(answer)));
            }
            if Instant::now() > until {
                return Ok((waits.id, None));
            }
        }
    }

    /// Has the machine know of these sites, and waits until that is synced.
    fn make_known(&self, sites: Vec<NumberedSite>) -> Result<(), String> {
        let (_, answer) = self.ask(&SiteAsks::Know { sites: Most::new(sites) }, KNOWN)?;
        let errno = match answer {
            Some(SiteAnswers::Known) => return Ok(()),
            Some(SiteAnswers::Failed { errno }) => errno,
            _ => return Err("The list of sites cannot be changed now: is the disk full?".to_owned()),
        };
        Err(match errno {
            Errno::ENOSPC => {
                "The volume has 64 sites, as many as there may be. Those that have left count.".to_owned()
            }
            Errno::EEXIST => "The volume has another site of this name or number.".to_owned(),
            Errno::EINVAL => "A site cannot be such: are its name and its addresses too long?".to_owned(),
            other => format!("The list of sites cannot be changed now: {other}.\nTry again in a moment."),
        })
    }

    fn invite(&self, for_s: u64) -> Result<SiteReply, String> {
        let addresses: Vec<Address> =
            self.settings.addresses.iter().filter_map(|address| address.parse().ok()).collect();
        if addresses.is_empty() {
            return Err(format!(
                "Site {} has no address at which another one could reach it.\n\
                Make the line at a site that has one: atoll site list shows them.",
                self.settings.name
            ));
        }
        let until = seconds_now() + for_s.clamp(1, LINE_S_MAX);
        let secret = random_bytes().map_err(|why| why.to_string())?;
        let mut invites = self.invites.lock().expect("no panic while it is held");
        invites
            .add(&self.folder, &secret, until, seconds_now())
            .map_err(|why| format!("The line cannot be noted in {}: {why}", self.folder.display()))?;
        let line = SiteLine { addresses, secret, key: self.key.digest(), until };
        Ok(SiteReply::Invited { line: line.to_string() })
    }

    fn list(&self) -> SiteReply {
        let volume = self.islands.volume.config().id.0;
        let me = self.settings.site;
        let known = self.with_island(|site, island| {
            let (all, position) = (site.members().all(), island.state().seq());
            let told = |(id, member): (SiteId, &SiteMember)| {
                let is_even =
                    if id.0 == me { site.has_all_bytes() } else { site.peers().is_even(id, position) };
                (id, member.clone(), is_even)
            };
            (all.map(told).collect::<Vec<_>>(), site.fetched())
        });
        let (mut all, fetched) = known.unwrap_or_default();
        all.sort_by_key(|(id, member, _)| (id.0 != me, member.name.clone()));
        let ms = |time: SystemTime| {
            time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
        };
        let told = |(id, member, is_even): (SiteId, SiteMember, bool)| {
            let link = self.links.state(volume, id.0);
            let ahead_ms = link.clock_ahead_us / 1_000;
            let condition = match member.state {
                SiteStanding::Left => SiteCondition::Left,
                SiteStanding::Forgotten => SiteCondition::Forgotten,
                SiteStanding::Active if id.0 == me && !self.is_started.load(Ordering::SeqCst) => {
                    SiteCondition::Waits
                }
                SiteStanding::Active if id.0 == me => SiteCondition::Here,
                SiteStanding::Active if link.is_up => SiteCondition::Connected,
                SiteStanding::Active => SiteCondition::Away,
            };
            SiteTold {
                site: id.0,
                name: member.name,
                addresses: member.addresses,
                condition,
                since_ms: link.since.map(ms),
                why: link.why.filter(|_| condition == SiteCondition::Away),
                is_even,
                files_behind: if id.0 == me { fetched.files_left } else { 0 },
                bytes_behind: if id.0 == me { fetched.bytes_left } else { 0 },
                files_without_room: if id.0 == me { fetched.files_without_room } else { 0 },
                sent: link.sent,
                received: link.received,
                clock_ahead_ms: ahead_ms.max(0) as u64,
                clock_behind_ms: (-ahead_ms).max(0) as u64,
            }
        };
        SiteReply::Sites { sites: all.into_iter().map(told).collect() }
    }

    /// A site is such from now on.
    fn stands(&self, site: SiteId, standing: SiteStanding) -> Result<SiteReply, String> {
        let known = self.with_site(|machine| machine.members().get(site).cloned()).flatten();
        let known = known.ok_or("The site is not open yet.")?;
        let member = SiteMember { version: known.version + 1, state: standing, ..known };
        self.make_known(vec![NumberedSite { site: site.0, member }])?;
        Ok(SiteReply::Done)
    }

    /// Asks who has these files and directories, and waits a little for answers.
    fn confirm(&self, inos: Vec<Ino>) -> Result<SiteReply, String> {
        let engine = self.engine().ok_or("The site is not open yet.")?;
        if inos.len() > CONFIRM_MAX {
            return Err(format!("At most {CONFIRM_MAX} files and directories are asked about at once."));
        }
        // What was not synced could still be lost here.
        engine.reach().map_err(|why| why.to_string())?;
        let (number, answer) = self.ask(&SiteAsks::Confirm { inos: Most::new(inos) }, CONFIRMED)?;
        match answer {
            Some(SiteAnswers::Asking { .. }) => {}
            Some(SiteAnswers::Failed { errno: Errno::EPERM }) => {
                return Err("This site does not take part in the volume any more.".to_owned());
            }
            _ => return Err("The site does not answer now: is its disk full?".to_owned()),
        }
        let (until, me) = (Instant::now() + CONFIRMED, SiteId(self.settings.site));
        loop {
            let told = self.with_site(|site| {
                let answer = site.confirmed(number).cloned()?;
                let others = site.members().all().filter(|(id, member)| *id != me && member.is_active());
                let has = |(id, member): (SiteId, &SiteMember)| {
                    (member.name.clone(), answer.lacks.get(&id).copied())
                };
                let sites: Vec<(String, Option<u32>)> = others.map(has).collect();
                Some((answer.not_ready, sites))
            });
            if let Some((not_ready, sites)) = told.flatten()
                && (sites.iter().all(|(_, lacks)| lacks.is_some()) || Instant::now() > until)
            {
                return Ok(SiteReply::Confirmed { not_ready, sites });
            }
            if Instant::now() > until {
                return Err("The site does not answer now: is its disk full?".to_owned());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Asks about the trash, or about conflicts that were settled.
    fn trash(&self, asks: &SiteAsks) -> Result<SiteReply, String> {
        let (_, answer) = self.ask(asks, TRASH)?;
        let errno = match answer {
            Some(SiteAnswers::TrashList { entries, next }) => {
                let entries = told::trash(entries, self.writer_names());
                return Ok(SiteReply::Trash { entries, next });
            }
            Some(SiteAnswers::Settled { entries, next }) => {
                let entries = told::settled(entries, self.writer_names());
                return Ok(SiteReply::Settled { entries, next });
            }
            Some(SiteAnswers::Restored { .. }) => {
                let engine = self.engine().ok_or("The site is not open any more.")?;
                engine.reach().map_err(|why| why.to_string())?;
                return Ok(SiteReply::Done);
            }
            Some(SiteAnswers::Emptied { bodies, bytes }) => return Ok(SiteReply::Emptied { bodies, bytes }),
            Some(SiteAnswers::Failed { errno }) => errno,
            _ => return Err("The site does not answer now: is its disk full?".to_owned()),
        };
        Err(match errno {
            Errno::ENOENT => {
                "It does not rest at this site, or there is no such directory.\n\"atoll trash list\" shows what rests."
            }
            Errno::EEXIST => "The name is taken. Name another one.",
            Errno::EBUSY | Errno::EAGAIN => "That cannot be done at this moment.\nTry again.",
            _ => "The site does not do that.",
        }
        .to_owned())
    }

    /// The name of each writer's site.
    fn writer_names(&self) -> impl Fn(Writer) -> String {
        let names = self.with_site(|site| {
            let all = site.members().all();
            all.map(|(_, member)| (member.writer, member.name.clone())).collect::<BTreeMap<_, _>>()
        });
        let names = names.unwrap_or_default();
        move |writer| names.get(&writer).cloned().unwrap_or_else(|| format!("{:x}", writer.0))
    }

    fn forget(&self, name: &str) -> Result<SiteReply, String> {
        let found = self.with_site(|machine| {
            let mut all = machine.members().all().filter(|(_, member)| member.is_active());
            all.find(|(_, member)| member.name == name).map(|(site, _)| site)
        });
        match found.flatten() {
            Some(site) if site.0 == self.settings.site => Err(format!(
                "{name} is the site of this node, and a site cannot forget itself.\n\
                To leave the volume: atoll site leave"
            )),
            Some(site) => self.stands(site, SiteStanding::Forgotten),
            None => Err(format!("There is no site {name} that takes part.\nSee \"atoll site list\".")),
        }
    }
}

/// Where to listen.
pub(crate) fn resolve(listen: &str) -> Result<SocketAddr, String> {
    let mut found = listen
        .to_socket_addrs()
        .map_err(|why| format!("{listen} is no address to listen on: {why}.\nWrite it as HOST:PORT."))?;
    found.next().ok_or_else(|| format!("{listen} is no address to listen on.\nWrite it as HOST:PORT."))
}

/// Bytes that nobody can guess.
pub(crate) fn random_bytes<const N: usize>() -> std::io::Result<[u8; N]> {
    use std::io::Read;
    let mut bytes = [0; N];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl<D: Disk> SiteVolume for ServedSite<D> {
    fn volume(&self) -> u64 {
        self.islands.volume.config().id.0
    }

    fn me(&self) -> u64 {
        self.settings.site
    }

    fn sites(&self) -> Vec<NumberedSite> {
        let numbered =
            |(site, member): (SiteId, &SiteMember)| NumberedSite { site: site.0, member: member.clone() };
        self.with_site(|site| site.members().all().map(numbered).collect()).unwrap_or_default()
    }

    fn link(&self, site: u64, up: bool) {
        let (volume, name) = (&self.islands.volume.config().name, self.name_of(site));
        tracing::info!(%volume, site = %name, "{}", if up { "connected" } else { "not connected any more" });
        if let Some(engine) = self.engine() {
            tell(&engine, Event::Beside(BesideEvent::Link { peer: site, up }));
        }
    }

    fn heard(&self, site: u64, bytes: Bytes) {
        if let Some(engine) = self.engine() {
            tell(&engine, Event::Beside(BesideEvent::Message { peer: site, bytes }));
        }
    }

    fn let_in(&self, ask: JoinAsk, key: [u8; 32]) -> Result<Joined, String> {
        let secret = ask.secret.to_le_bytes();
        let mut invites = self.invites.lock().expect("no panic while it is held");
        let earlier = invites.find(&secret, key, seconds_now())?;
        let JoinAsk { site: NumberedSite { site, member }, .. } = ask;
        let site = earlier.unwrap_or(site);
        if earlier.is_none() {
            let all = self.sites();
            if all.iter().any(|known| known.site == site || known.member.name == member.name) {
                return Err(format!(
                    "The volume has a site {} already.\nChoose another name: atoll site join LINE --name NAME",
                    member.name
                ));
            }
            let member = SiteMember {
                version: 1,
                state: SiteStanding::Active,
                writer: Writer(site),
                key: Bytes::copy_from_slice(&key),
                ..member
            };
            self.make_known(vec![NumberedSite { site, member }])?;
            let noted = invites.used(&self.folder, &secret, key, site);
            noted.map_err(|why| format!("The site cannot note that a line was used: {why}."))?;
        }
        let config = self.islands.volume.config();
        let sites = self.sites().into_iter().filter(|known| known.site != site).collect();
        Ok(Joined {
            name: config.name.clone(),
            volume: config.id.0,
            seed: config.seed,
            site,
            uid: self.settings.uid,
            gid: self.settings.gid,
            sites: Most::new(sites),
        })
    }
}

impl<D: Disk> ServedSite<D> {
    fn name_of(&self, site: u64) -> String {
        let name = self.with_site(|machine| machine.members().get(SiteId(site)).map(|is| is.name.clone()));
        name.flatten().unwrap_or_else(|| format!("{site:x}"))
    }
}

impl<D: Disk> Handler for ServedSite<D> {
    fn opened(&self, link: &Arc<Link>) {
        self.islands.opened(link);
    }

    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        self.islands.frame(link, frame);
    }

    fn closed(&self, link: &Arc<Link>, why: &Closed) {
        self.islands.closed(link, why);
    }
}

impl<D: Disk> Served for ServedSite<D> {
    fn config(&self) -> Arc<VolumeConfig> {
        Served::config(&*self.islands)
    }

    fn may_take(&self, next: &VolumeConfig) -> Result<bool, VolumeError> {
        self.islands.may_take(next)
    }

    fn take_config(&self, next: &VolumeConfig) -> Result<bool, VolumeError> {
        self.islands.take_config(next)
    }

    /// The bytes that it gets of other sites are an island's copy that is filled.
    fn care(&self, is_for_all: bool) -> Option<VolumeConfig> {
        let of = (self.islands.volume.config().id, ISLAND, self.islands.node());
        self.fills.note_bytes(WallClock::default().boot_ms(), of, self.with_site(filling).flatten());
        self.islands.care(is_for_all)
    }

    fn node(&self) -> NodeId {
        self.islands.node()
    }

    fn islands(&self) -> Vec<IslandId> {
        Served::islands(&*self.islands)
    }

    fn open(&self) -> Result<(), NodeError> {
        self.islands.open()
    }

    fn begin(&self) -> std::io::Result<()> {
        self.islands.begin()?;
        if self.waits_file().exists() {
            return Ok(());
        }
        if let Err(why) = self.start() {
            let volume = &self.config().name;
            tracing::error!(%volume, "{why}");
        }
        Ok(())
    }

    fn has_other(&self, node: NodeId) -> bool {
        self.islands.has_other(node)
    }

    fn direct_address(&self, to: NodeId) -> Option<Address> {
        self.islands.direct_address(to)
    }

    fn local(&self) -> Arc<dyn LocalWay> {
        self.islands.local()
    }

    fn status(&self) -> ServedStatus {
        self.islands.status()
    }

    fn order_site(&self, order: SiteOrder) -> Result<SiteReply, String> {
        match order {
            SiteOrder::Invite { for_s, .. } => self.invite(for_s),
            SiteOrder::List { .. } => Ok(self.list()),
            SiteOrder::Leave { .. } => self.stands(SiteId(self.settings.site), SiteStanding::Left),
            SiteOrder::Forget { site, .. } => self.forget(&site),
            SiteOrder::Confirm { inos, .. } => self.confirm(inos),
            SiteOrder::TrashList { from, .. } => self.trash(&SiteAsks::TrashList { from }),
            SiteOrder::TrashRestore { key, dir, name, .. } => {
                self.trash(&SiteAsks::TrashRestore { key, dir, name })
            }
            SiteOrder::Settled { from, .. } => self.trash(&SiteAsks::Settled { from }),
            SiteOrder::TrashEmpty { upto, .. } => self.trash(&SiteAsks::TrashEmpty { upto }),
            SiteOrder::Start { .. } => {
                match std::fs::remove_file(self.waits_file()) {
                    Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                        return Err(format!("{} cannot be removed: {why}", self.waits_file().display()));
                    }
                    _ => {}
                }
                self.start().map(|()| SiteReply::Done)
            }
            SiteOrder::Join { .. } => Err("The site has joined already.".to_owned()),
        }
    }

    fn trace(&self, ino: Ino) -> Vec<Trace> {
        let site = self.with_island(|site, island| site.trace(island.state(), ino)).flatten();
        self.islands.trace(ino).into_iter().map(|trace| Trace { site: site.clone(), ..trace }).collect()
    }

    fn weigh(&self) -> Vec<IslandWeight> {
        self.islands.weigh()
    }

    fn leave(&self) {
        self.islands.leave();
    }

    fn stop(&self) -> Vec<String> {
        self.links.remove(self.volume());
        self.islands.stop()
    }
}

/// Notes in the folder of a volume that its site waits to be started.
pub(crate) fn note_waits(folder: &Path) -> std::io::Result<()> {
    std::fs::File::create(folder.join(WAITS_FILE))?.sync_all()?;
    std::fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_tell_in_another_order_is_in_order_again() {
        let says = |peer| BesideSays::Send { peer, bytes: Bytes::new() };
        let mut said = InOrder::default();
        assert_eq!(said.add(1, says(1)), []);
        assert_eq!(said.add(2, says(2)), []);
        assert_eq!(said.add(0, says(0)), [says(0), says(1), says(2)]);
        assert_eq!(said.add(3, says(3)), [says(3)]);
    }
}
