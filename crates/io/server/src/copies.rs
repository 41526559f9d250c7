//! The copies of islands that a node keeps: what they say to other nodes, the beacons of this node, and the records of their
//! groups. Decides nothing: `GroupCopy` does.
//!
//! Threads. One tells the time, and sends beacons: it waits for nothing. One does what takes long and follows from that. One asks the
//! control store. One for each other node sends what could not be sent at once: beacons and their answers first. One has the islands
//! that begin or cease to be led here come and go, because whoever leads may hold what that needs. Of these
//! only the second one fills copies: that takes hours, and what the others do for other islands would wait.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use atoll_control::GroupStore;
use atoll_core::{IslandId, Malformed, NodeId, Position, VolumeId};
use atoll_disk::Disk;
use atoll_dispatch::seat::SeatStore;
use atoll_dispatch::{Clock, Fills, GroupCopy, GroupNet, GroupSetup, LeavesFilling};
use atoll_group::{BEAT_MS, Given, GroupEvent, SwapOutcome};
use atoll_proto::group::{Host, Revision, Swapped};
use atoll_proto::{Beacon, GroupMessage, GroupRecord, NodeLife, Promised};
use atoll_rpc::{Frame, FrameKind, Link, Remote, Role};
use bytes::Bytes;

use crate::abreast::abreast;
use crate::slots::Slots;
use crate::volume::{Volume, VolumeError, VolumeOptions, setup, tell_recovery};

/// Pause between two times that the copies are told the time.
const TICK: Duration = Duration::from_millis(50);
/// Beacons to a node of which the answer may still come.
const BEACONS_MAX: usize = 32;

/// Name of the file with the seat of a copy, in the folder of its volume.
pub(crate) fn seat_name(island: IslandId) -> Vec<u8> {
    format!("{island}.seat").into_bytes()
}

/// Notes that a log is about to be cut back.
pub(crate) type OnCut = Box<dyn Fn(IslandId, Position) + Send + Sync>;

/// What the copies of islands need beside their folders.
pub(crate) struct CopiesSetup<D: Disk> {
    /// The folder in which the files `seat` are.
    pub beside: Arc<D>,
    /// The store of the groups' records.
    pub store: Arc<dyn GroupStore>,
    /// Notes that the log of an island is about to be cut back.
    pub on_cut: OnCut,
    /// The copies of the node that are filled, or fill others.
    pub fills: Arc<Fills>,
}

/// A question to the control store.
enum Question {
    Read { island: IslandId, number: u64 },
    Swap { island: IslandId, number: u64, expect: u64, record: GroupRecord },
}

/// What changes of the islands that are led here.
enum Change {
    Leads(IslandId, u32),
    Ceases(IslandId),
}

/// A beacon that was sent.
struct Sent {
    token: u64,
    /// When it left, by the boot clock.
    at_ms: u64,
    islands: Vec<IslandId>,
}

/// The beacons of this node.
#[derive(Default)]
pub(crate) struct Beacons {
    last: u64,
    sent: BTreeMap<NodeId, VecDeque<Sent>>,
}

/// See the module.
pub(crate) struct Copies<D: Disk> {
    pub(crate) all: Slots<GroupCopy<D>>,
    /// Held while a copy is opened: it asks and leads before it is among them.
    opening: Mutex<()>,
    fills: Arc<Fills>,
    beside: Arc<D>,
    beacons: Mutex<Beacons>,
    port: Arc<Port<D>>,
    clock: Arc<dyn Clock>,
}

impl<D: Disk> Copies<D> {
    /// Where the seat of a copy is.
    fn seat(&self, island: IslandId) -> SeatStore<D> {
        SeatStore::new(Arc::clone(&self.beside), seat_name(island))
    }

    pub(crate) fn new(port: Arc<Port<D>>, clock: Arc<dyn Clock>, beside: Arc<D>, fills: Arc<Fills>) -> Self {
        let all = Slots::default();
        Self { all, opening: Mutex::default(), fills, beside, beacons: Mutex::default(), port, clock }
    }
}

/// Messages to the copies on another node that could not be sent at once. A thread of its own sends them: a node that does not
/// read must stop nobody.
#[derive(Default)]
struct Lane {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// What copies here say to those on another node.
enum Said {
    Beacon(Beacon),
    Promised(Promised),
    /// To the copy of an island, with its payload.
    Group(IslandId, GroupMessage, Bytes),
}

#[derive(Default)]
struct Waiting {
    /// Beacons and their answers go first, so that a long frame delays no lease by more than itself.
    urgent: VecDeque<Said>,
    messages: VecDeque<Said>,
    /// Of the messages.
    bytes: usize,
    /// The thread sends one.
    is_sending: bool,
}

impl Waiting {
    fn next(&mut self) -> Option<Said> {
        let next = self.urgent.pop_front().or_else(|| self.messages.pop_front());
        if let Some(Said::Group(_, _, payload)) = &next {
            self.bytes -= payload.len() + MESSAGE_BYTES;
        }
        next
    }
}

/// Beacons and answers that wait for a node at most. Beyond it the oldest goes: a later one says more.
const URGENT_MAX: usize = 8;
/// Bytes that wait for a node at most; what is more is dropped, and said again when it matters.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// What one message costs beside its records.
const MESSAGE_BYTES: usize = 256;
/// Records with more bytes than these are left to the thread of their node: a longer frame waits for one that is being sent.
const AT_ONCE_BYTES_MAX: usize = 3 << 10;
/// The thread of a node looks so often whether the volume has gone.
const LANE_LOOK: Duration = Duration::from_secs(1);

impl Lane {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no panic while it is held")
    }

    /// Puts a message behind those that wait, unless there are too many.
    fn push(&self, island: IslandId, message: GroupMessage, payload: Bytes) {
        let mut waiting = self.lock();
        let bytes = payload.len() + MESSAGE_BYTES;
        if waiting.bytes + bytes <= WAITING_BYTES_MAX {
            waiting.bytes += bytes;
            waiting.messages.push_back(Said::Group(island, message, payload));
            self.changed.notify_one();
        }
    }

    fn push_urgent(&self, urgent: Said) {
        let mut waiting = self.lock();
        if waiting.urgent.len() == URGENT_MAX {
            waiting.urgent.pop_front();
        }
        waiting.urgent.push_back(urgent);
        self.changed.notify_one();
    }

    fn is_idle(&self) -> bool {
        let waiting = self.lock();
        waiting.messages.is_empty() && waiting.urgent.is_empty() && !waiting.is_sending
    }

    /// Sends what waits, until the volume is gone.
    fn run<D: Disk>(&self, volume: &Weak<Volume<D>>, to: NodeId) {
        loop {
            let mut waiting = self.lock();
            waiting.is_sending = false;
            let Some(said) = waiting.next() else {
                let (guard, _) =
                    self.changed.wait_timeout(waiting, LANE_LOOK).expect("no panic while it is held");
                drop(guard);
                if volume.upgrade().is_none_or(|volume| volume.is_stopping()) {
                    return;
                }
                continue;
            };
            waiting.is_sending = true;
            drop(waiting);
            let Some(volume) = volume.upgrade() else { return };
            volume.send_said(to, &said);
        }
    }
}

/// What the copies of a volume say, on its way to whoever it is for.
pub(crate) struct Port<D: Disk> {
    volume: Weak<Volume<D>>,
    name: String,
    lanes: Mutex<BTreeMap<NodeId, Arc<Lane>>>,
    questions: Sender<Question>,
    changes: Sender<Change>,
    on_cut: OnCut,
}

/// The other ends of a [`Port`]'s channels.
pub(crate) struct Ends {
    questions: Receiver<Question>,
    changes: Receiver<Change>,
}

impl<D: Disk> Port<D> {
    pub(crate) fn new(volume: &Arc<Volume<D>>, on_cut: OnCut) -> (Arc<Self>, Ends) {
        let ((questions, asked), (changes, changed)) = (channel(), channel());
        let name = volume.name().to_owned();
        let (volume, lanes) = (Arc::downgrade(volume), Mutex::default());
        let port = Self { volume, name, lanes, questions, changes, on_cut };
        (Arc::new(port), Ends { questions: asked, changes: changed })
    }

    /// Sends a beacon or its answer, at once or before all that waits.
    fn tell_urgent(&self, to: NodeId, urgent: Said) {
        let Some(volume) = self.volume.upgrade() else { return };
        if volume.has_room_to(to) {
            volume.send_said(to, &urgent);
        } else {
            self.lane(&volume, to).push_urgent(urgent);
        }
    }

    fn lane(&self, volume: &Arc<Volume<D>>, to: NodeId) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().expect("no panic while it is held");
        let lane = lanes.entry(to).or_insert_with(|| {
            let lane = Arc::<Lane>::default();
            let (runs, of) = (Arc::clone(&lane), Arc::downgrade(volume));
            drop(volume.start("atoll-lane", move || runs.run(&of, to)));
            lane
        });
        Arc::clone(lane)
    }
}

impl<D: Disk> GroupNet for Port<D> {
    fn tell(&self, island: IslandId, to: NodeId, message: GroupMessage, payload: Bytes) {
        let Some(volume) = self.volume.upgrade() else { return };
        let lane = self.lane(&volume, to);
        if payload.len() <= AT_ONCE_BYTES_MAX && lane.is_idle() && volume.has_room_to(to) {
            volume.send_said(to, &Said::Group(island, message, payload));
        } else {
            lane.push(island, message, payload);
        }
    }

    fn read(&self, island: IslandId, number: u64) {
        // Its thread ends with the volume.
        let _ = self.questions.send(Question::Read { island, number });
    }

    fn swap(&self, island: IslandId, number: u64, expect: u64, record: GroupRecord) {
        let _ = self.questions.send(Question::Swap { island, number, expect, record });
    }

    fn cut(&self, island: IslandId, to: Position) {
        (self.on_cut)(island, to);
    }

    fn leads(&self, island: IslandId, epoch: Option<u32>) {
        let change = epoch.map_or(Change::Ceases(island), |epoch| Change::Leads(island, epoch));
        let _ = self.changes.send(change);
    }

    fn trouble(&self, island: IslandId, why: String) {
        tracing::warn!(volume = %self.name, %island, "{why}");
    }
}

/// Asks the store what the copies want to know, one question after the other.
fn ask_store<D: Disk>(
    volume: &Weak<Volume<D>>,
    id: VolumeId,
    store: &dyn GroupStore,
    questions: &Receiver<Question>,
) {
    let _leaves = LeavesFilling::begin();
    while let Ok(question) = questions.recv() {
        let (Question::Read { island, .. } | Question::Swap { island, .. }) = &question;
        let island = *island;
        let Some(volume) = volume.upgrade() else { return };
        // One that is here no more waits for no answer.
        let Some(copy) = volume.copy_or_opening(island) else { continue };
        let name = volume.config().name.clone();
        drop(volume);
        match question {
            Question::Read { number, .. } => {
                let found = store.group(id, island).ok();
                let found = found.map(|group| match group {
                    Some(group) => (group.revision.0, Some(group.record)),
                    None => {
                        let remembered = copy.with_group(|group| group.seat().record.as_ref().map(|r| r.1.epoch));
                        if let Some(epoch) = remembered {
                            tracing::warn!(
                                volume = %name, %island,
                                "the control store has no record of it, and epoch {epoch} was seen: it was put back, and nobody leads the \
                                 island. If it is etcd, \"atoll control rebuild\" makes its records anew"
                            );
                        }
                        (Revision::NONE.0, None)
                    }
                });
                copy.read_done(number, found);
            }
            Question::Swap { number, expect, record, .. } => {
                let outcome = match store.swap_group(id, island, Revision(expect), &record) {
                    Swapped::Done { revision } => SwapOutcome::Done(revision.0),
                    Swapped::Conflict => SwapOutcome::Conflict,
                    Swapped::Unknown { .. } => SwapOutcome::Unknown,
                };
                copy.swapped(number, outcome);
            }
        }
    }
}

impl<D: Disk> Volume<D> {
    /// Islands have several copies from now on, of which none is open yet.
    pub(crate) fn make_copies(self: &Arc<Self>, setup: CopiesSetup<D>, clock: Arc<dyn Clock>) -> Ends {
        let CopiesSetup { beside, store, on_cut, fills } = setup;
        let (port, ends) = Port::new(self, on_cut);
        assert!(self.copies.set(Copies::new(port, clock, beside, fills)).is_ok(), "copies are begun once");
        let _ = self.store.set(store);
        ends
    }

    /// Opens the copy of an island, which takes part in its group from then on if the others do. One that is not there is made empty.
    pub(crate) fn open_copy(
        self: &Arc<Self>,
        options: &VolumeOptions,
        island: IslandId,
        disk_of: &mut impl FnMut(IslandId) -> Result<Arc<D>, VolumeError>,
    ) -> Result<(), VolumeError> {
        self.open_copies(options, [island], disk_of).into_iter().next().map_or(Ok(()), |(_, why)| Err(why))
    }

    /// The same of several copies. Those that cannot be opened, and why.
    pub(crate) fn open_copies(
        self: &Arc<Self>,
        options: &VolumeOptions,
        islands: impl IntoIterator<Item = IslandId>,
        mut disk_of: impl FnMut(IslandId) -> Result<Arc<D>, VolumeError>,
    ) -> Vec<(IslandId, VolumeError)> {
        let copies = self.copies.get().expect("copies were begun");
        let _opening = copies.opening.lock().expect("no panic while it is held");
        let disks: Vec<_> = islands.into_iter().map(|island| (island, disk_of(island))).collect();
        let open = |(island, disk)| (island, self.opened_copy(copies, options, island, disk));
        let mut all = (*copies.all.all()).clone();
        let mut unopened = Vec::new();
        for (island, outcome) in abreast(disks, open) {
            match outcome {
                Ok(copy) => drop(all.insert(island, copy)),
                Err(why) => unopened.push((island, why)),
            }
        }
        copies.all.set(all);
        unopened
    }

    fn opened_copy(
        self: &Arc<Self>,
        copies: &Copies<D>,
        options: &VolumeOptions,
        island: IslandId,
        disk: Result<Arc<D>, VolumeError>,
    ) -> Result<Arc<GroupCopy<D>>, VolumeError> {
        let (config, disk) = (self.config(), disk?);
        let mut setup = setup(&config, self.node(), island, &*disk, options);
        setup.log.keep_bytes = atoll_log::KEEP_BYTES;
        let ring = config.group_of(island);
        let wanted = config.copies.as_ref().map_or(1, |copies| copies.wanted);
        let tenure_min = u32::try_from(copies.clock.now().wall.secs).unwrap_or(0);
        let me = NodeLife { node: self.node(), life: options.incarnation, host: self.host };
        let group = atoll_group::Config { me, ring, wanted, tenure_min };
        let group = GroupSetup { group, in_steps: false, fills: Arc::clone(&copies.fills) };
        let seats = copies.seat(island);
        let net: Arc<dyn atoll_dispatch::Net> = Arc::clone(&self.switch) as _;
        let nets = (net, Arc::clone(&copies.port) as Arc<dyn GroupNet>);
        let (copy, report) = GroupCopy::open(disk, seats, setup, group, nets, Arc::clone(&copies.clock))?;
        tell_recovery(self.name(), island, &report);
        Ok(copy)
    }

    /// A copy takes no part in its group any more, and nobody finds it. None if it is not there.
    pub(crate) fn take_copy(&self, island: IslandId) -> Option<Arc<GroupCopy<D>>> {
        let copies = self.copies.get()?;
        let mut all = (*copies.all.all()).clone();
        let copy = all.remove(&island)?;
        copies.all.set(all);
        self.change_islands(|islands| _ = islands.remove(&island));
        Some(copy)
    }

    /// The copy of an island here, if it has others.
    pub(crate) fn copy(&self, island: IslandId) -> Option<Arc<GroupCopy<D>>> {
        self.copies.get()?.all.now().get(&island).cloned()
    }

    /// The same of a copy that has said something, and so may be one that is being opened.
    fn copy_or_opening(&self, island: IslandId) -> Option<Arc<GroupCopy<D>>> {
        if let Some(copy) = self.copy(island) {
            return Some(copy);
        }
        drop(self.copies.get()?.opening.lock().expect("no panic while it is held"));
        self.copy(island)
    }

    /// The copies of islands here that have others.
    pub(crate) fn copies(&self) -> impl Iterator<Item = Arc<GroupCopy<D>>> + use<D> {
        let all = self.copies.get().map(|copies| copies.all.all());
        all.map_or(Vec::new(), |all| all.values().cloned().collect()).into_iter()
    }

    /// The copies begin to take part in their groups.
    pub(crate) fn begin_copies(self: &Arc<Self>, ends: Ends) {
        let (volume, id) = (Arc::downgrade(self), self.id());
        let store = Arc::clone(self.store.get().expect("copies have one"));
        let Ends { questions, changes } = ends;
        // These two end when the copies are gone, with whoever sends to them.
        drop(self.start("atoll-store", move || ask_store(&volume, id, &*store, &questions)));
        let volume = Arc::downgrade(self);
        drop(self.start("atoll-leads", move || {
            while let Ok(change) = changes.recv() {
                let Some(volume) = volume.upgrade() else { return };
                volume.change_led(&change);
            }
        }));
        let volume = Arc::downgrade(self);
        let worker = self.start("atoll-work", move || {
            while let Some(volume) = volume.upgrade().filter(|volume| !volume.is_stopping()) {
                let mut more = false;
                volume.copies().for_each(|copy| more |= copy.run_tasks());
                drop(volume);
                if !more {
                    std::thread::park_timeout(TICK);
                }
            }
        });
        let volume = Arc::downgrade(self);
        drop(self.start("atoll-beat", move || {
            let mut next_beat = Instant::now();
            while let Some(volume) = volume.upgrade().filter(|volume| !volume.is_stopping()) {
                volume.copies().for_each(|copy| copy.tick());
                if volume.copies().any(|copy| copy.has_tasks()) {
                    worker.thread().unpark();
                }
                if Instant::now() >= next_beat {
                    next_beat = Instant::now() + Duration::from_millis(BEAT_MS);
                    volume.send_beacons();
                }
                drop(volume);
                std::thread::sleep(TICK);
            }
        }));
        for (link, who) in self.group_links() {
            self.tell_link(link, who);
        }
    }

    /// Before an orderly end, while links are up: other copies lead, and wait for none of this node. All begin before one is
    /// waited for.
    pub(crate) fn leave(&self) {
        let _leaves = LeavesFilling::begin();
        self.copies().for_each(|copy| copy.tell(GroupEvent::Leave { to: None }));
        self.copies().for_each(|copy| copy.leave());
    }

    fn change_led(&self, change: &Change) {
        match change {
            // It has heard late that it won that epoch, and gives it up soon. Nobody would say again who leads now.
            Change::Leads(island, epoch) if self.has_later_epoch(*island, *epoch) => {}
            Change::Leads(island, epoch) => {
                let Some(engine) = self.copy_or_opening(*island).and_then(|copy| copy.engine()) else {
                    return;
                };
                if self.engine(*island).is_some_and(|known| Arc::ptr_eq(&known, &engine)) {
                    return self.switch().tell_primary(*island, *epoch);
                }
                tracing::info!(volume = %self.name(), %island, epoch, "this node leads the island");
                self.change_islands(|islands| {
                    // It may have been taken away meanwhile.
                    if self.copy(*island).is_some() {
                        islands.insert(*island, engine);
                    }
                });
            }
            Change::Ceases(island) if self.holds(*island) => {
                tracing::info!(volume = %self.name(), %island, "this node does not lead the island any more");
                self.change_islands(|islands| _ = islands.remove(island));
            }
            Change::Ceases(_) => {}
        }
    }

    /// Whether a small frame to a node makes its thread wait for nothing.
    fn has_room_to(&self, node: NodeId) -> bool {
        self.outgoing_to(node).and_then(|outgoing| outgoing.link()).is_some_and(|link| link.has_room())
    }

    /// What cannot be sent is said again when it matters.
    fn send_said(&self, to: NodeId, said: &Said) {
        let Some(outgoing) = self.outgoing_to(to) else { return };
        let none = IslandId(0);
        let (island, sent) = match said {
            Said::Beacon(beacon) => (none, outgoing.send(FrameKind::Beacon, none, 0, beacon, &[])),
            Said::Promised(promised) => (none, outgoing.send(FrameKind::Promised, none, 0, promised, &[])),
            Said::Group(island, message, payload) => {
                (*island, outgoing.send(FrameKind::Group, *island, 0, message, payload))
            }
        };
        self.switch().is_too_long(island, "a message to another copy", sent);
    }

    // -------------------------------------------------------------------- beacons

    fn send_beacons(&self) {
        let Some(copies) = self.copies.get() else { return };
        let mut leads: BTreeMap<NodeId, Vec<(IslandId, u32)>> = BTreeMap::new();
        for (island, copy) in &*copies.all.all() {
            let Some(epoch) = copy.named() else { continue };
            for node in copy.beacons_to() {
                leads.entry(node).or_default().push((*island, epoch));
            }
        }
        for (node, leads) in leads {
            let mut beacons = copies.beacons.lock().expect("no panic while it is held");
            beacons.last += 1;
            let token = beacons.last;
            let sent = beacons.sent.entry(node).or_default();
            let islands = leads.iter().map(|(island, _)| *island).collect();
            sent.push_back(Sent { token, at_ms: copies.clock.boot_ms(), islands });
            if sent.len() > BEACONS_MAX {
                sent.pop_front();
            }
            drop(beacons);
            let leads = leads.into_iter().map(|lead| (self.id(), lead)).collect();
            copies.port.tell_urgent(node, Said::Beacon(Beacon { token, leads }));
        }
    }

    /// A frame between copies, or a beacon or its answer, has come on a link that a node has opened.
    pub(crate) fn take_group_frame(&self, link: &Link, frame: Frame) -> Result<(), Malformed> {
        let Some(who) = self.life_of(link) else { return Err(Malformed::new("a node that is none")) };
        let number = self.link_used(link.id(), who);
        match frame.kind {
            FrameKind::Group => {
                let message = frame.decode::<GroupMessage>()?;
                if let Some(copy) = self.copy(frame.island) {
                    copy.hear(who.node, number, message, &frame.payload);
                }
            }
            FrameKind::Beacon => {
                let beacon = frame.decode::<Beacon>()?;
                let mut refused = Vec::new();
                for (volume, (island, epoch)) in beacon.leads {
                    let copy = self.copy(island).filter(|_| volume == self.id());
                    match copy.map(|copy| copy.beacon(who, epoch)) {
                        Some(Given::Promise) => {}
                        Some(Given::Refused(seen)) => refused.push((volume, (island, seen))),
                        None => refused.push((volume, (island, 0))),
                    }
                }
                if let Some(copies) = self.copies.get() {
                    let promised = Promised { token: beacon.token, refused };
                    copies.port.tell_urgent(who.node, Said::Promised(promised));
                }
            }
            _ => self.promised(who.node, &frame.decode::<Promised>()?),
        }
        Ok(())
    }

    fn promised(&self, node: NodeId, promised: &Promised) {
        let Some(copies) = self.copies.get() else { return };
        let mut beacons = copies.beacons.lock().expect("no panic while it is held");
        let Some(sent) = beacons.sent.get_mut(&node) else { return };
        let Some(at) = sent.iter().position(|sent| sent.token == promised.token) else { return };
        let Some(Sent { at_ms, islands, .. }) = sent.remove(at) else { return };
        drop(beacons);
        for island in islands {
            let Some(copy) = self.copy(island) else { continue };
            let refused = promised.refused.iter().find(|(_, (of, _))| *of == island);
            match refused {
                None => copy.tell(GroupEvent::Promised { node, sent_ms: at_ms }),
                Some((_, (_, epoch))) => copy.tell(GroupEvent::RefusedBeacon { epoch: *epoch }),
            }
        }
    }

    // ---------------------------------------------------------------------- links

    /// The process of another node that has opened a link.
    pub(crate) fn life_of(&self, link: &Link) -> Option<NodeLife> {
        let Remote::Accepted(hello) = link.remote() else { return None };
        let Role::Node { incarnation, boot, directory, members, .. } = &hello.role else { return None };
        let (_, node) = members.iter().find(|(volume, _)| *volume == self.id())?;
        let host = Host { boot: *boot, inode: *directory };
        Some(NodeLife { node: *node, life: *incarnation, host })
    }

    /// A link of another node is up: its copies speak on it from now on.
    pub(crate) fn tell_link(&self, link: u64, who: NodeLife) {
        let _leaves = LeavesFilling::begin();
        for copy in self.copies() {
            copy.tell(GroupEvent::Link { who, link });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{Alone, COMES, HERE};

    #[test]
    fn an_island_that_is_led_while_another_one_goes_stays() {
        let alone = Alone::new();
        alone.opens(COMES);
        let volume = &alone.volume;
        let goes_and_comes = |island| {
            let engine = volume.engine(island).unwrap();
            for round in 0..200 {
                volume.change_islands(|islands| _ = islands.remove(&island));
                assert!(!volume.holds(island), "{island} is back in round {round}");
                volume.change_islands(|islands| _ = islands.insert(island, engine.clone()));
                assert!(volume.holds(island), "{island} is lost in round {round}");
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| goes_and_comes(HERE));
            scope.spawn(|| goes_and_comes(COMES));
        });
        volume.stop().unwrap();
    }
}
