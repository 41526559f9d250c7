//! Has the view follow the log: takes the changed rows, makes them as safe as the view needs them, and lays
//! them out. Runs on a thread of its own, and nothing waits for it.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use atoll_core::planted::{Bug, planted};
use atoll_core::{Decode, Ino, IslandId, Name, ShownPath};
use atoll_disk::Disk;
use atoll_proto::{Dir, Entry, Inode, Xattrs, names_of};
use atoll_snapshot::SnapshotError;
use atoll_state::{NotInMemory, RowKey, State, ToLay};
use atoll_view::{Conflict, Finding, Options, Report, Source, Subject, View, Why};

use crate::engine::Engine;

/// Milliseconds between two syncs of the plain tree.
const SETTLE_MS: u64 = 10_000;

/// Ids and names that are laid and not synced, at most. They are kept in memory until they are synced.
const LAID_MAX: usize = 1 << 15;
/// Ids and names that may wait before callers have to share the disk with laying them.
const COURTESY_MAX: usize = 1 << 12;
/// How long the disk is left to callers before each native object that is made or removed.
const REST: Duration = Duration::from_millis(5);
/// How often that happens in one round at most, so that the trees stay about a second behind.
const RESTS_MAX: u32 = 100;
/// Ids or names that are laid at once when more wait than memory may hold.
const PAGE_ROWS: usize = 1 << 12;

/// The view of one island at work.
pub struct Laying<D: Disk> {
    engine: Arc<Engine<D>>,
    options: Options,
    /// None if its disk has failed and it could not be opened again yet.
    view: Option<View<D>>,
    settled_ms: u64,
    /// What is laid when no later primary can cut its records off any more.
    taken: Option<Taken>,
    /// Conflicts of the laying of all, which the first round reports.
    met: Vec<Conflict>,
    /// Whether a caller waits for it.
    in_haste: bool,
    /// What was laid while its bytes changed, since the last settling, and what is gone and was kept by somebody inside of its body
    /// when this was to end. It is laid again, by the next process if this one ends: a change may end behind the last round.
    put_off: Vec<Ino>,
}

/// What is to be laid.
struct Taken {
    /// The position in the log that it needs.
    upto: u64,
    inos: Vec<Ino>,
    names: Vec<(Ino, Name)>,
    /// More waits.
    is_page: bool,
}

impl<D: Disk> std::fmt::Debug for Laying<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Laying").field("island", &self.engine.id()).finish_non_exhaustive()
    }
}

impl<D: Disk> Laying<D> {
    /// Opens the view of an island. If its index was lost, everything is laid again.
    pub fn open(engine: Arc<Engine<D>>, root: bool, devices: bool) -> io::Result<Self> {
        let options = Options { island: engine.id(), root, devices: root && devices };
        let mut view = View::open(Arc::clone(engine.disk()), Arc::clone(engine.bodies()), options)?;
        // Another view may have taken it, and is gone.
        engine.with_state(State::view_lost);
        let mut report = Report::default();
        if view.index_was_lost() {
            // Nothing may be laid of what is not true any more when the copy is opened again.
            let Some(_used) = engine.in_use() else { return Err(crate::whole::closed()) };
            report = view.lay_all(&crate::whole::WholeState(&engine))?;
        }
        // Each start tries them once more, and says which they are.
        let refused: Vec<(Ino, Name)> = view.refused().iter().cloned().collect();
        engine.with_state(|state| state.view_again(&[], &refused));
        let view = Some(view);
        let (met, put_off) = (Vec::new(), Vec::new());
        let mut laying =
            Self { engine, options, view, settled_ms: 0, taken: None, met, in_haste: false, put_off };
        laying.again(&mut report);
        laying.met = report.conflicts;
        Ok(laying)
    }

    /// The view. One whose disk has failed, as it does when it is full, is opened again.
    fn view(&mut self) -> io::Result<&mut View<D>> {
        let engine = &self.engine;
        if self.view.take_if(|view| view.has_failed() && !planted(Bug::ViewStaysBroken)).is_some() {
            engine.with_state(State::view_lost);
        }
        if self.view.is_none() {
            let view = View::open(Arc::clone(engine.disk()), Arc::clone(engine.bodies()), self.options)?;
            if view.index_was_lost() {
                return Err(io::Error::other("its index was lost: all is laid again at the next start"));
            }
            self.view = Some(view);
        }
        Ok(self.view.as_mut().expect("just opened"))
    }

    /// Whether it lays what this engine has.
    pub fn is_of(&self, engine: &Arc<Engine<D>>) -> bool {
        Arc::ptr_eq(&self.engine, engine)
    }

    /// The island.
    pub fn island(&self) -> IslandId {
        self.engine.id()
    }

    /// The subject of a conflict, for people: the path as far as this island knows it.
    pub fn shown(&self, subject: &Subject) -> String {
        let (ino, last) = match subject {
            Subject::Id(ino) => (*ino, None),
            Subject::Name(dir, name) => (*dir, Some(name)),
        };
        let source = CommittedState::new(&self.engine);
        let names = names_of(ino, |at| Ok::<_, io::Error>(source.dir(at)?.map(|row| row.place)));
        match names.ok().flatten() {
            Some(mut names) => {
                names.extend(last.cloned());
                ShownPath(&names).to_string()
            }
            None => format!("id {ino}{}", last.map(|name| format!("/{name}")).unwrap_or_default()),
        }
    }

    /// How many files and directories have extended attributes that the native file system refused, and the first `most`
    /// of them.
    pub fn spilled(&self, most: usize) -> (usize, Vec<Ino>) {
        self.view.as_ref().map_or((0, Vec::new()), |view| view.spilled(most))
    }

    /// How many names the native file system refuses.
    pub fn refused(&self) -> usize {
        self.view.as_ref().map_or(0, |view| view.refused().len())
    }

    /// Lays everything that has changed since the last round.
    pub fn round(&mut self) -> io::Result<Report> {
        let engine = Arc::clone(&self.engine);
        let Some(_used) = engine.in_use() else { return Ok(Report::default()) };
        if engine.is_halted() || self.is_drained() {
            return Ok(Report::default());
        }
        self.view()?;
        let taken = match self.taken.take() {
            Some(taken) => taken,
            None => self.take()?,
        };
        if !self.in_haste && !engine.stays(taken.upto) {
            self.taken = Some(taken);
            return Ok(Report::default());
        }
        let laid = self.lay(&taken);
        engine.with_state(State::view_laid);
        let mut report = laid.inspect_err(|_| {
            engine.with_state(|state| state.view_again(&taken.inos, &taken.names));
        })?;
        if taken.is_page {
            self.again(&mut report);
        }
        report.conflicts.append(&mut self.met);
        let laid = engine.with_state(|state| state.view_laid_len());
        if engine.clock.now().ms >= self.settled_ms + SETTLE_MS || laid > LAID_MAX {
            self.settle()?;
        }
        Ok(report)
    }

    fn lay(&mut self, taken: &Taken) -> io::Result<Report> {
        let Taken { upto, inos, names, is_page } = taken;
        // A name must not outlive its record, nor be laid before the bytes behind it are there.
        self.engine.sync_upto(*upto).map_err(io::Error::other)?;
        self.engine.settle_bodies().map_err(io::Error::other)?;
        let engine = Arc::clone(&self.engine);
        let (is_part, in_haste) = (*is_page, self.in_haste);
        let source = CommittedState { is_part, in_haste, ..CommittedState::new(&engine) };
        if !self.in_haste && inos.len() + names.len() < COURTESY_MAX {
            source.rests_left.set(RESTS_MAX);
        }
        let laid = self.view()?.lay(inos, names, &source);
        self.put_off.append(&mut source.take_put_off());
        laid
    }

    /// Whether more waits than one round lays.
    pub fn is_far_behind(&self) -> bool {
        !self.engine.is_halted()
            && self.taken.is_none()
            && self.engine.with_state(|state| state.view_page_wanted().is_some())
    }

    fn take(&self) -> io::Result<Taken> {
        let (upto, (inos, names), is_page) = self.take_rows()?;
        Ok(Taken { upto, inos, names, is_page })
    }

    fn take_rows(&self) -> io::Result<(u64, ToLay, bool)> {
        let engine = &self.engine;
        let all = engine.with_state(|state| match state.view_page_wanted() {
            None => Ok((state.seq(), state.take_view(), false)),
            Some(page) => Err(page),
        });
        let (from, to) = match all {
            Ok(all) => return Ok(all),
            Err(page) => page,
        };
        let rows = engine.snapshot().range(&from, &to, PAGE_ROWS).map_err(io::Error::other)?;
        let more = rows.len() == PAGE_ROWS;
        engine.with_state(|state| {
            let page = state.take_view_page(&rows, more).map_err(io::Error::other)?;
            Ok((state.seq(), page, true))
        })
    }

    /// Lays again what met an obstacle, because the obstacle may have gone with a later page. Only obstacles
    /// that are left then are reported.
    fn again(&self, report: &mut Report) {
        let (mut inos, mut names) = ToLay::default();
        for conflict in std::mem::take(&mut report.conflicts) {
            match (&conflict.why, conflict.subject) {
                (Why::Taken | Why::Replaced | Why::NotEmpty | Why::NoParent, Subject::Id(ino)) => {
                    inos.push(ino)
                }
                (Why::Taken | Why::Replaced | Why::NotEmpty | Why::NoParent, Subject::Name(dir, name)) => {
                    names.push((dir, name));
                }
                (_, subject) => report.conflicts.push(Conflict { subject, why: conflict.why }),
            }
        }
        if !inos.is_empty() || !names.is_empty() {
            self.engine.with_state(|state| state.view_again(&inos, &names));
        }
    }

    fn is_drained(&self) -> bool {
        let follows = |view: &View<D>| !view.has_failed() && !view.is_behind();
        self.taken.is_none()
            && self.met.is_empty()
            && self.view.as_ref().is_some_and(follows)
            && self.engine.with_state(|state| state.view_is_drained())
    }

    /// Makes everything that was laid survive a power cut.
    pub fn settle(&mut self) -> io::Result<()> {
        let engine = Arc::clone(&self.engine);
        let Some(_used) = engine.in_use() else { return Ok(()) };
        self.settled_ms = engine.clock.now().ms;
        let is_drained = self.is_drained();
        let view = self.view()?;
        if is_drained {
            view.all_is_laid();
        }
        view.settle()?;
        let (mut inos, names) = view.behind();
        inos.append(&mut self.put_off);
        let taken = self.taken.take();
        self.engine.with_state(|state| {
            // What is to be laid, or laid again, is kept until it was.
            state.view_again(&inos, &names);
            if let Some(Taken { inos, names, .. }) = taken {
                state.view_again(&inos, &names);
            }
            state.view_settled();
        });
        Ok(())
    }

    /// Compares the plain tree and the bodies with the state. Everything must have been laid, and
    /// nothing may change meanwhile.
    pub fn audit(&self) -> io::Result<Vec<Finding>> {
        let closed = || io::Error::other("its index could not be opened again");
        self.view.as_ref().ok_or_else(closed)?.audit(&crate::whole::WholeState(&self.engine))
    }

    /// Lays until nothing waits, and settles: before the island stops.
    pub fn drain(&mut self) -> io::Result<Report> {
        self.in_haste = true;
        let drained = self.lay_all_that_waits();
        self.in_haste = false;
        let last = drained?;
        self.settle()?;
        Ok(last)
    }

    fn lay_all_that_waits(&mut self) -> io::Result<Report> {
        let mut last = Report::default();
        while !self.engine.is_halted() && !self.is_drained() {
            last = self.round()?;
        }
        Ok(last)
    }
}

/// The state as the view reads it, row by row, without bringing rows into memory.
pub(crate) struct CommittedState<'a, D: Disk> {
    engine: &'a Engine<D>,
    rests_left: Cell<u32>,
    /// The number of uses of the disk by callers at the last look.
    uses_seen: Cell<u64>,
    /// More waits than is laid with it.
    is_part: bool,
    /// What is laid is the last of this process.
    in_haste: bool,
    /// To be laid again later: files whose bytes were being changed when they were laid, and in haste those that are kept.
    put_off: RefCell<Vec<Ino>>,
}

impl<'a, D: Disk> CommittedState<'a, D> {
    pub(crate) fn new(engine: &'a Engine<D>) -> Self {
        let (rests_left, uses_seen, put_off) = (Cell::default(), Cell::default(), RefCell::default());
        Self { engine, rests_left, uses_seen, is_part: false, in_haste: false, put_off }
    }

    /// What is to be laid again later.
    pub(crate) fn take_put_off(&self) -> Vec<Ino> {
        self.put_off.take()
    }

    fn row<T: Decode + Clone>(
        &self,
        key: RowKey,
        look: impl FnOnce(&atoll_state::State) -> Result<Option<T>, NotInMemory>,
    ) -> io::Result<Option<T>> {
        if let Ok(row) = self.engine.with_state(|state| look(state)) {
            return Ok(row);
        }
        let bytes =
            self.engine.snapshot().get(&key.to_bytes()).map_err(|e: SnapshotError| io::Error::other(e))?;
        bytes.map(|b| T::from_slice(&b)).transpose().map_err(io::Error::other)
    }
}

impl<D: Disk> Source for CommittedState<'_, D> {
    fn inode(&self, ino: Ino) -> io::Result<Option<Inode>> {
        self.row(RowKey::Inode(ino), |state| Ok(state.inode(ino)?.cloned()))
    }

    fn dir(&self, ino: Ino) -> io::Result<Option<Dir>> {
        self.row(RowKey::Dir(ino), |state| Ok(state.dir(ino)?.cloned()))
    }

    fn entry(&self, dir: Ino, name: &Name) -> io::Result<Option<Entry>> {
        let cookie = self.engine.with_state(|state| state.cookie(name.as_bytes()));
        self.row(RowKey::Entry(dir, cookie, name.clone()), |state| Ok(state.entry(dir, name)?.cloned()))
    }

    fn xattrs(&self, ino: Ino) -> io::Result<Option<Xattrs>> {
        self.row(RowKey::Xattrs(ino), |state| Ok(state.xattrs(ino)?.cloned()))
    }

    fn lays(&self, ino: Ino) {
        self.engine.with_state(|state| state.view_takes(ino));
    }

    fn waits(&self, ino: Ino) -> bool {
        self.engine.with_state(|state| state.view_waits_for(ino))
    }

    fn is_part(&self) -> bool {
        self.is_part
    }

    fn keeps(&self, ino: Ino) -> bool {
        let keeps = self.engine.is_body_used(ino);
        if keeps && self.in_haste {
            // Whoever is inside may wait for a copy that is away, and an orderly stop waits for nobody.
            self.put_off.borrow_mut().push(ino);
        } else if keeps {
            self.engine.with_state(|state| state.view_again(&[ino], &[]));
        }
        keeps
    }

    fn in_flux(&self, ino: Ino) -> bool {
        // In this order: a change that ends in between is waited for by the view.
        let changes = self.engine.is_body_changing(ino);
        if changes {
            self.put_off.borrow_mut().push(ino);
        }
        changes || self.engine.with_state(|state| state.view_waits_for(ino) || state.view_is_disturbed(ino))
    }

    fn looks_at(&self, ino: Ino) {
        self.engine.with_state(|state| state.view_looks_at(ino));
    }

    fn rest(&self) {
        let uses = self.engine.disk_uses.load(Ordering::Relaxed);
        if self.rests_left.get() > 0 && self.uses_seen.replace(uses) != uses {
            self.rests_left.set(self.rests_left.get() - 1);
            self.engine.clock.pass(REST);
        }
    }
}
