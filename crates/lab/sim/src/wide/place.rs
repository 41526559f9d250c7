//! One site: its disk, its process, and the user who works at it. Never judges.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use atoll_causal::Writer;
use atoll_core::{IslandId, Malformed, Name, SessionId, Table, VolumeId};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_dispatch::beside::SideRow;
use atoll_dispatch::{BesideMaker, Clock, Engine, Net, Setup, SpaceState};
use atoll_island::{Beside, BesideEvent, BesideSays, Event, LinkId};
use atoll_posix::{Answer, Caller, DirEntry, Errno, Op};
use atoll_proto::{ClientOp, Notice, Outcome, PeerMessage, Reply, Request};
use atoll_wide::members::{SiteMember, SiteStanding};
use atoll_wide::peers::Window;
use atoll_wide::rows::{FileBeside, SiteId};
use atoll_wide::site::{Site, SiteConfig};
use bytes::Bytes;

use crate::cause::Failure;
use crate::clocks::SimClock;

/// The island of each site.
pub(super) const ISLAND: IslandId = IslandId(0);
/// Who works at it.
const SESSION: SessionId = SessionId(1);
/// The volume.
const VOLUME: u64 = 1;
/// What other sites take away rests until it has so many bytes: no run makes that many.
const TRASH_BYTES: u64 = 1 << 30;
/// Microseconds between two looks for an answer.
const WAIT_US: u64 = 50_000;
/// An answer comes at the latest after so many.
const WAITS_MAX: u32 = 400;

/// What a process says.
#[derive(Debug, Default)]
struct Mouth {
    replies: Mutex<Vec<(u64, Outcome, Vec<u8>)>>,
    says: Mutex<Vec<BesideSays>>,
    troubles: Mutex<Vec<String>>,
}

impl Mouth {
    fn trouble(&self, why: &str) {
        self.troubles.lock().expect("no panic while it is held").push(why.to_owned());
    }
}

impl Net for Mouth {
    fn reply(&self, _: IslandId, _: LinkId, id: u64, reply: Reply, data: &[u8]) {
        self.replies.lock().expect("no panic while it is held").push((id, reply.outcome, data.to_vec()));
    }
    fn notice(&self, _: IslandId, _: LinkId, _: Notice) {}
    fn send(&self, _: IslandId, _: PeerMessage) {}
    fn beside(&self, _: IslandId, _: u64, says: BesideSays) {
        self.says.lock().expect("no panic while it is held").push(says);
    }
    fn halted(&self, _: IslandId, why: &str) {
        self.trouble(why);
    }
    fn space(&self, _: IslandId, _: SpaceState) {}
    fn damaged(&self, _: IslandId, why: &str) {
        self.trouble(why);
    }
}

/// Makes the machine of a site.
#[derive(Debug)]
struct Maker {
    config: SiteConfig,
    /// Machines that were made: each has a life of its own.
    lives: AtomicU64,
}

impl BesideMaker for Maker {
    fn tables(&self) -> &[u8] {
        Site::TABLES
    }

    fn begin(&self, position: u64, rows: Vec<SideRow>) -> Result<Box<dyn Beside>, Malformed> {
        let life = self.config.site.0 << 32 | self.lives.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Site::open(SiteConfig { life, ..self.config.clone() }, position, rows)?))
    }
}

/// How an operation of its user ended.
pub(super) type Done = Result<(Answer, Vec<u8>), Errno>;

/// See the module.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) number: usize,
    disk: SimDisk,
    clock: SimClock,
    mouth: Arc<Mouth>,
    engine: Option<Arc<Engine<SimDisk>>>,
    maker: Arc<Maker>,
    rows_max: usize,
    seed: u64,
    is_made: bool,
    life: u64,
    boot: u128,
    seq: u64,
    next_id: u64,
    /// What happens to it when its disk dies.
    fault: Option<Fault>,
    /// Its disk has little room, or had in this life of its process.
    is_full: bool,
    /// The last record before its process began, and the number of its last dot then.
    pub(super) opened: (u64, u64),
    /// What its disk was like once.
    backup: Option<SimDisk>,
    /// Its disk went back, or it has taken what one has made that went back, and the others go on without it.
    pub(super) is_out: bool,
}

/// The writer of a site.
const fn writer_of(number: usize) -> Writer {
    Writer(1 + number as u64)
}

/// A site of the volume.
fn member(number: usize) -> (SiteId, SiteMember) {
    let (writer, name) = (writer_of(number), format!("s{number}"));
    let (version, state, addresses) = (1, SiteStanding::Active, Vec::new());
    let key = Bytes::from(vec![number as u8; 32]);
    (SiteId(writer.0), SiteMember { version, state, writer, name, addresses, key })
}

impl Place {
    pub(super) fn new(
        number: usize,
        clock: SimClock,
        window: Window,
        (rows_max, copies_max): (usize, usize),
        seed: u64,
    ) -> Self {
        // The others it hears of.
        let members = BTreeSet::from([0, number]).into_iter().map(member).collect();
        let (site, island, trash_bytes) = (SiteId(writer_of(number).0), ISLAND, TRASH_BYTES);
        let life = 0;
        let config =
            SiteConfig { volume: VOLUME, site, island, life, members, window, copies_max, trash_bytes };
        Self {
            number,
            disk: SimDisk::new(seed ^ number as u64),
            clock,
            mouth: Arc::default(),
            engine: None,
            maker: Arc::new(Maker { config, lives: AtomicU64::new(1) }),
            rows_max,
            seed,
            is_made: false,
            life: 0,
            boot: 1,
            seq: 0,
            next_id: 0,
            fault: None,
            is_full: false,
            opened: (0, 0),
            backup: None,
            is_out: false,
        }
    }

    pub(super) const fn is_up(&self) -> bool {
        self.engine.is_some()
    }

    /// The engine of its process.
    pub(super) fn engine(&self) -> Option<&Arc<Engine<SimDisk>>> {
        self.engine.as_ref()
    }

    /// No power cut takes anything that it has decided.
    pub(super) fn is_synced(&self) -> bool {
        self.engine
            .as_ref()
            .is_some_and(|engine| engine.reached().seq == engine.with_state(|state| state.seq()))
    }

    /// Its process starts. False if its disk died meanwhile.
    pub(super) fn start(&mut self) -> Result<bool, Failure> {
        if self.is_out {
            return Ok(false);
        }
        self.life += 1;
        self.clock.begin_life(self.life);
        self.mouth = Arc::default();
        let limits = atoll_log::Config {
            segment_bytes: 1 << 20,
            record_bytes_max: 768 << 10,
            buffer_bytes_max: 4 << 20,
            boot: self.boot,
            ..atoll_log::Config::default()
        };
        let setup = Setup {
            volume: VolumeId(VOLUME),
            island: atoll_island::Config {
                rows_max: self.rows_max,
                ..atoll_island::Config::new(ISLAND, self.seed, Table::new(1), vec![ISLAND])
            },
            log: limits,
            snapshot_cache_bytes: 1 << 20,
            root: false,
            is_new: !self.is_made,
            reached: None,
            beside: Some(Arc::clone(&self.maker) as _),
        };
        let (net, clock) = (Arc::clone(&self.mouth) as _, Arc::new(self.clock.clone()) as Arc<dyn Clock>);
        match Engine::open(Arc::new(self.disk.clone()), setup, net, clock) {
            Ok((engine, _)) => {
                self.is_made = true;
                self.engine = Some(Arc::new(engine));
                self.opened = self.with_site(Site::began).unwrap_or_default();
            }
            Err(_) if self.disk.is_dead() || self.is_full => {}
            Err(why) => return Err(Failure::new(format!("site {} cannot be opened: {why}", self.number))),
        }
        // A user comes with each process, when that knows how much room its disk has.
        self.tick()?;
        if self.is_up() {
            self.attach()?;
        }
        self.look()?;
        Ok(self.is_up())
    }

    fn attach(&mut self) -> Result<(), Failure> {
        let Some(id) = self.ask(0, ClientOp::Attach { mount: true }, &[]) else { return Ok(()) };
        match self.answer(id)? {
            None | Some((Outcome::Attached { .. }, _)) => Ok(()),
            Some((Outcome::Failed { errno: Errno::ENOSPC }, _)) if self.is_full => {
                self.die(Fault::ProcessDeath);
                Ok(())
            }
            Some((other, _)) => Err(Failure::new(format!("site {}: attach gave {other:?}", self.number))),
        }
    }

    /// Its disk dies at the `n`-th effect from now.
    pub(super) fn dies_after(&mut self, n: u64, fault: Fault) {
        self.fault = Some(fault);
        self.disk.die_after(n);
    }

    /// If its disk was going to die, that happens now.
    pub(super) fn dies_now(&mut self) {
        if self.fault.is_some() {
            self.end();
        }
    }

    /// Its process ends now.
    pub(super) fn die(&mut self, fault: Fault) {
        self.fault = Some(fault);
        self.end();
    }

    /// Its disk has room for so many bytes more than are there.
    pub(super) fn fill(&mut self, left: u64) {
        self.disk.set_space(Some(self.disk.used() + left));
        self.is_full = true;
    }

    /// Its disk has room again. What was refused is told with the next life, or a moment later.
    pub(super) fn empty(&mut self) {
        self.disk.set_space(None);
    }

    /// Somebody makes a backup of its disk, whatever the site does meanwhile.
    pub(super) fn back_up(&mut self) {
        self.backup = self.is_made.then(|| self.disk.image());
    }

    /// Whether its disk may be replaced by a backup.
    pub(super) const fn has_backup(&self) -> bool {
        self.backup.is_some() && !self.is_out
    }

    /// Its disk is replaced by the backup, as a machine finds it that had lost its power then. False if there is none.
    pub(super) fn restore_backup(&mut self, seed: u64) -> bool {
        let Some(backup) = self.backup.take() else { return false };
        self.die(Fault::ProcessDeath);
        self.disk = backup;
        // Also if the other one was full when the backup was made.
        self.disk.set_space(None);
        self.die(Fault::PowerCut { seed });
        self.is_full = false;
        true
    }

    /// Its process stops in order.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        if let Some(engine) = &self.engine {
            engine.enter(Event::Stopping);
            let stopped = engine.stop();
            self.look()?;
            if let (Err(why), true) = (stopped, self.is_up() && !self.is_full) {
                return Err(Failure::new(format!("site {} cannot stop: {why}", self.number)));
            }
            self.end();
        }
        Ok(())
    }

    fn end(&mut self) {
        self.engine = None;
        // What it had to say nobody hears.
        self.mouth = Arc::default();
        let fault = self.fault.take().unwrap_or(Fault::ProcessDeath);
        if matches!(fault, Fault::PowerCut { .. }) {
            self.boot += 1;
            self.clock.begin_boot();
        }
        self.disk = self.disk.revive(fault);
    }

    /// Whether its process has ended by itself, as it does when its disk has died.
    pub(super) fn look(&mut self) -> Result<(), Failure> {
        if self.disk.is_dead() {
            self.end();
            return Ok(());
        }
        let troubles = std::mem::take(&mut *self.mouth.troubles.lock().expect("no panic while it is held"));
        match troubles.first() {
            Some(why) => Err(Failure::new(format!("site {}: {why}", self.number))),
            None => Ok(()),
        }
    }

    /// Time has passed.
    pub(super) fn tick(&mut self) -> Result<(), Failure> {
        if let Some(engine) = &self.engine {
            engine.tick();
            engine.housekeep();
        }
        self.look()
    }

    /// Some time passes at this site.
    pub(super) fn pass(&mut self) -> Result<(), Failure> {
        self.clock.passes(WAIT_US);
        self.tick()
    }

    /// Something happens to its island.
    pub(super) fn enter(&mut self, event: Event) -> Result<(), Failure> {
        if let Some(engine) = &self.engine {
            engine.enter(event);
        }
        self.look()
    }

    /// Something comes from another site.
    pub(super) fn hear(&mut self, event: BesideEvent) -> Result<(), Failure> {
        self.enter(Event::Beside(event))
    }

    /// What it has said to other sites since the last call.
    pub(super) fn take_said(&mut self) -> Vec<BesideSays> {
        std::mem::take(&mut *self.mouth.says.lock().expect("no panic while it is held"))
    }

    /// Looks at the machine of the site.
    pub(super) fn with_site<R>(&self, look: impl FnOnce(&Site) -> R) -> Option<R> {
        let engine = self.engine.as_ref()?;
        Some(engine.with_island(|island| look(island.beside::<Site>().expect("each site has one"))))
    }

    fn ask(&mut self, seq: u64, op: ClientOp, data: &[u8]) -> Option<u64> {
        let engine = Arc::clone(self.engine.as_ref()?);
        self.next_id += 1;
        let (id, table, caller) = (self.next_id, 1, Caller::ROOT);
        let request = Request {
            session: SESSION,
            seq,
            acked: seq.saturating_sub(1),
            table,
            vector: Vec::new(),
            caller,
            op,
        };
        let data = Bytes::copy_from_slice(data);
        engine.enter(Event::Request { link: LinkId(self.life), id, request, data });
        Some(id)
    }

    /// The answer to a request; none if the process has ended before it.
    fn answer(&mut self, id: u64) -> Result<Option<(Outcome, Vec<u8>)>, Failure> {
        for _ in 0..WAITS_MAX {
            self.look()?;
            let mut replies = self.mouth.replies.lock().expect("no panic while it is held");
            if let Some(at) = replies.iter().position(|(of, ..)| *of == id) {
                let (_, outcome, data) = replies.remove(at);
                return Ok(Some((outcome, data)));
            }
            drop(replies);
            if !self.is_up() {
                return Ok(None);
            }
            self.pass()?;
        }
        if self.is_full {
            // Nothing is written while the log has no room: its user ends the process.
            self.die(Fault::ProcessDeath);
            return Ok(None);
        }
        Err(Failure::new(format!("site {} does not answer", self.number)))
    }

    /// Does an operation of the user. None if the process has ended before it was answered.
    pub(super) fn run(&mut self, op: Op) -> Result<Option<Done>, Failure> {
        self.run_with(op, &[])
    }

    /// The same, with bytes. What waits for bytes of another site fails: no user here has patience.
    pub(super) fn run_with(&mut self, op: Op, data: &[u8]) -> Result<Option<Done>, Failure> {
        let seq = if op.changes() {
            self.seq += 1;
            self.seq
        } else {
            0
        };
        let Some(id) = self.ask(seq, ClientOp::Fs { op }, data) else { return Ok(None) };
        Ok(match self.answer(id)? {
            None => None,
            Some((Outcome::Ok { answer, .. }, data)) => Some(Ok((answer, data))),
            Some((Outcome::Data { data }, _)) => Some(Ok((Answer::Data, data.to_vec()))),
            Some((Outcome::Failed { errno }, _)) => Some(Err(errno)),
            Some((Outcome::NotNow, _)) => Some(Err(Errno::EAGAIN)),
            Some((other, _)) => return Err(Failure::new(format!("site {}: {other:?}", self.number))),
        })
    }

    /// The bytes of a file; none if they are not to be had.
    pub(super) fn bytes(&mut self, ino: atoll_core::Ino) -> Result<Option<Vec<u8>>, Failure> {
        let mut all = Vec::new();
        loop {
            let op = Op::Read { ino, offset: all.len() as u64, len: 1 << 20 };
            match self.run(op)? {
                Some(Ok((_, data))) if data.is_empty() => return Ok(Some(all)),
                Some(Ok((_, data))) => all.extend(data),
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }

    /// What the site knows of a file that it shows.
    pub(super) fn known(&self, ino: atoll_core::Ino) -> Option<FileBeside> {
        let engine = self.engine.as_ref()?;
        let beside = engine.with_state(|state| state.inode(ino).ok().flatten()?.beside.clone())?;
        FileBeside::read(&beside).ok()
    }

    /// Its user has closed a file.
    pub(super) fn release(&mut self, ino: atoll_core::Ino) -> Result<(), Failure> {
        let Some(id) = self.ask(0, ClientOp::Release { inos: vec![ino] }, &[]) else { return Ok(()) };
        match self.answer(id)? {
            None | Some((Outcome::Ok { .. }, _)) => Ok(()),
            Some((other, _)) => Err(Failure::new(format!("site {}: release gave {other:?}", self.number))),
        }
    }

    /// The names of a directory; none if the process has ended, or the directory has gone.
    pub(super) fn list(&mut self, dir: atoll_core::Ino) -> Result<Option<Vec<DirEntry>>, Failure> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let Some(done) = self.run(Op::ReadDir { dir, after, bytes: 1 << 16, plus: false })? else {
                return Ok(None);
            };
            let Ok((Answer::Entries { entries, eof }, _)) = done else { return Ok(None) };
            after = entries.last().map_or(after, |entry| entry.cookie);
            all.extend(entries);
            if eof {
                return Ok(Some(all));
            }
        }
    }

    /// Its time of day.
    pub(super) fn now(&self) -> atoll_core::Time {
        self.clock.wall()
    }
}

/// The name of these bytes.
pub(super) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("it is a name")
}
