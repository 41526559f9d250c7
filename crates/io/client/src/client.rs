//! The client: one lock around the routing machine, completions outside it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, Weak};
use std::time::{Duration, Instant};

use atoll_core::{Ino, IslandId, Key, Name, Table, VolumePath};
use atoll_handover::Gate;
use atoll_posix::{Answer, AnswerExtras, Caching, Caller, Errno, Kind, Op, RequestOptions};
use atoll_proto::{ClientOp, EntryRef, FileHandle, Notice, Outcome, Reply, Request, Resolved};
use atoll_route::{Config, Counters, RecallOf, Route, RouteOut};
use bytes::Bytes;

use crate::changed::{ChangedParts, add_changes, add_recall};
use crate::pending::Pending;
use crate::pieces::{Early, Next, Pieces, Range};

/// Pause between two times at which the routing machine is told the time.
const TICK: Duration = Duration::from_millis(20);

/// How long the end of a session waits for the islands.
const DETACH_MAX: Duration = Duration::from_millis(500);

/// Called once with the outcome of an operation, and the data beside it. If the outcome may be kept, that
/// promise may be passed on until this returns.
pub type Done = Box<dyn FnOnce(Result<Answer, Errno>, AnswerExtras<'_>) + Send>;
/// Called once with the end of a walk.
pub type Walked = Box<dyn FnOnce(Result<Resolved, Errno>) + Send>;
/// Called once with an island's answer to a question that only it can answer.
pub type Told = Box<dyn FnOnce(Result<Outcome, Errno>) + Send>;

/// The connection to an island.
pub trait Wire: Send + Sync + 'static {
    /// Sends a request; its reply comes to the [`Sink`], perhaps before this returns. A request that cannot
    /// be sent is dropped: the sink hears of the link's end, and the machine asks again.
    fn send(&self, island: IslandId, id: u64, request: Request, data: Bytes);
}

/// The receiver of an island's answers.
pub trait Sink: Send + Sync + 'static {
    /// The answer to request `id`, with the bytes of `Answer::Data`.
    fn reply(&self, island: IslandId, id: u64, reply: Reply, data: &[u8]);
    /// A notice, which is no answer.
    fn notice(&self, island: IslandId, notice: Notice);
    /// The link to the island has come up or gone down.
    fn reachable(&self, island: IslandId, up: bool);
    /// A new link to an island's node has replaced the old one.
    fn replaced(&self, island: IslandId);
    /// The node leads an island with several copies, since this epoch.
    fn leads(&self, island: IslandId, epoch: u32) {
        let _ = epoch;
        self.reachable(island, true);
    }
    /// The node has a configuration of the volume with this version.
    fn config(&self, version: u64) {
        let _ = version;
    }
}

/// The keeper of answers, which must be told when they are void.
pub trait Watcher: Send + Sync + 'static {
    /// Everything that was kept is void, and no promise is being passed on any more. Returns when kept
    /// answers can no longer be used, and soon: operations under way may wait for an island that the session
    /// is attached to only then.
    fn recall(&self);
    /// The same for what was kept of these files and directories, with their names: more than [`atoll_posix::CHANGED_MAX`] stand for
    /// everything.
    fn recall_of(&self, inos: &[Ino]);
    /// What was kept of these files and directories, and of these names, is void: more than [`atoll_posix::CHANGED_MAX`] stand for everything.
    /// Every promise that was given before has been passed on. Returns soon, and need not wait until no old answer can be used.
    fn changed(&self, inos: &[Ino], names: &[(Ino, Name)]);
    /// Whether this id is still known.
    fn knows(&self, ino: Ino) -> bool;
}

enum Token {
    Op(Done),
    Walk(Walked),
    Island(Told),
}

/// A client of a volume: one session.
pub struct Client {
    route: Mutex<Route<Token>>,
    pieces: Pieces,
    wires: RwLock<BTreeMap<IslandId, Arc<dyn Wire>>>,
    watcher: OnceLock<Arc<dyn Watcher>>,
    /// The clock's time at its beginning.
    start: Duration,
    /// Answers may be kept until then, in milliseconds since `start`; 0: not at all.
    keep_until_ms: AtomicU64,
    /// An answer was told since the last recall that may be kept: without one there is nothing to drop.
    has_promised: AtomicBool,
    /// Passed by a recall when every promise that was given before has been passed on.
    promises: Gate,
    /// What has changed, and the watcher has not been told.
    changed: Pending<ChangedParts>,
    /// Recalls of single files and directories that the watcher has not been told.
    recalls_of: Pending<RecallOf>,
    /// Recalls for which there was no thread.
    recalls_due: AtomicU32,
    stopping: AtomicBool,
    me: Weak<Self>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// A client that reaches each island by its wire. Islands are out of reach until the sink is
    /// told otherwise.
    pub fn new(config: Config, wires: BTreeMap<IslandId, Arc<dyn Wire>>) -> Arc<Self> {
        let client = Arc::new_cyclic(|me| Self {
            route: Mutex::new(Route::new(config)),
            pieces: Pieces::default(),
            wires: RwLock::new(wires),
            watcher: OnceLock::new(),
            start: since_boot(),
            keep_until_ms: AtomicU64::new(0),
            has_promised: AtomicBool::new(false),
            promises: Gate::default(),
            changed: Pending::default(),
            recalls_of: Pending::default(),
            recalls_due: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
            me: Weak::clone(me),
        });
        let ticking = Arc::downgrade(&client);
        let tick = move || {
            while let Some(client) = ticking.upgrade().filter(|c| !c.stopping.load(Ordering::Acquire)) {
                client.with(|route, now, out| route.tick(now, out));
                for _ in 0..client.recalls_due.swap(0, Ordering::AcqRel) {
                    client.recall();
                }
                client.tell_changed();
                client.recall_of();
                drop(client);
                std::thread::sleep(TICK);
            }
        };
        // Without the thread nothing would be asked again: better not to start at all.
        std::thread::Builder::new().name("atoll-client".into()).spawn(tick).expect("no thread to be had");
        client
    }

    fn wire(&self, island: IslandId) -> Option<Arc<dyn Wire>> {
        self.wires.read().expect("no panic while it is held").get(&island).cloned()
    }

    /// An island is reached by this wire from now on. The sink is told that it is out of reach, and when it is not.
    pub(crate) fn set_wire(&self, island: IslandId, wire: Arc<dyn Wire>) {
        self.wires.write().expect("no panic while it is held").insert(island, wire);
    }

    /// The volume has this table, perhaps a newer one than the client knows.
    pub fn take_table(&self, table: Table) {
        self.lock().take_table(table);
    }

    /// Sets the keeper of answers. To be called once, before the first operation.
    pub fn set_watcher(&self, watcher: Arc<dyn Watcher>) {
        let _ = self.watcher.set(watcher);
    }

    /// Starts an operation; its number for [`Client::cancel`], or 0 if it has ended already.
    pub fn submit(&self, caller: &Caller, op: Op, data: Bytes, done: Done) -> u64 {
        self.start(caller, RequestOptions::default(), op, data, done)
    }

    /// The same as [`Client::submit`], with options.
    pub fn start(&self, caller: &Caller, options: RequestOptions, op: Op, data: Bytes, done: Done) -> u64 {
        if let Some(range) = Range::of(&op) {
            let ticket = self.pieces.begin(caller, options, range, done);
            self.go_on(ticket, self.pieces.next(ticket));
            return if self.pieces.is_under_way(ticket) { ticket } else { 0 };
        }
        let id = self.call(caller, options, op, data, done);
        if self.lock().is_under_way(id) { id } else { 0 }
    }

    fn call(&self, caller: &Caller, options: RequestOptions, op: Op, data: Bytes, done: Done) -> u64 {
        self.with(|route, now, out| {
            route.call_with_options(now, caller, options, op, data, Token::Op(done), out)
        })
    }

    /// Goes on with an operation in pieces, as far as its pieces are answered at once.
    fn go_on(&self, ticket: u64, mut next: Next) {
        loop {
            next = match next {
                Next::Ask(caller, options, op) => {
                    let client = Weak::clone(&self.me);
                    // A client that is gone has no call left that could be answered.
                    let answered = move |result: Result<Answer, Errno>, _: AnswerExtras<'_>| {
                        if let Some(client) = client.upgrade() {
                            client.go_on(ticket, client.pieces.answered(ticket, result));
                        }
                    };
                    let call = self.call(&caller, options, op, Bytes::new(), Box::new(answered));
                    self.pieces.asked(ticket, call)
                }
                Next::Early(call, Early::Cancel) => return self.cancel(call),
                Next::Early(call, Early::Abandon) => return self.abandon(call),
                Next::End(done, result) => return done(result, AnswerExtras::default()),
                Next::Wait => return,
            };
        }
    }

    /// The handle of a file or directory; none for a directory that was neither found nor listed.
    pub fn handle_of(&self, ino: Ino, kind: Kind) -> Option<FileHandle> {
        self.lock().handle_of(ino, kind)
    }

    /// Notes which island to ask for the file or directory of a handle. Returns the id. `ESTALE` if this
    /// volume cannot have made the handle.
    pub fn know(&self, handle: &FileHandle) -> Result<Ino, Errno> {
        self.lock().know(handle)
    }

    /// Asks for the attributes of a handle's file or directory, at all islands if necessary; otherwise as
    /// [`Client::submit`].
    pub fn find(&self, handle: &FileHandle, done: Done) -> u64 {
        match self.with(|route, now, out| route.find(now, handle, Token::Op(done), out)) {
            Ok(id) => {
                if self.lock().is_under_way(id) {
                    return id;
                }
            }
            Err((errno, Token::Op(done))) => done(Err(errno), AnswerExtras::default()),
            Err(_) => unreachable!("it gives back what it was given"),
        }
        0
    }

    /// Walks a path from the root.
    pub fn walk(&self, caller: &Caller, path: VolumePath, walked: Walked) {
        self.with(|route, now, out| route.walk(now, caller, path, Token::Walk(walked), out));
    }

    /// Asks one island a question that only it can answer. Fails at once if it cannot be reached.
    pub fn ask(&self, island: IslandId, op: ClientOp, told: Told) {
        self.with(|route, now, out| route.ask_island(now, island, op, Token::Island(told), out));
    }

    /// A node is connected that has copies of these islands, and may lead them soon.
    pub(crate) fn may_return(&self, islands: &[IslandId]) {
        self.with(|route, now, _| {
            route.at(now);
            islands.iter().for_each(|island| route.may_return(*island));
        });
    }

    /// Ends an operation early, if it waits. A long zeroing ends with the piece that is under way: a part of it may be done.
    pub fn cancel(&self, id: u64) {
        if let Some(next) = self.pieces.end_early(id, Early::Cancel) {
            return self.go_on(id, next);
        }
        self.with(|route, _, out| route.cancel(id, out));
    }

    /// Ends an operation whose caller dies, unless its island answers.
    pub fn abandon(&self, id: u64) {
        if let Some(next) = self.pieces.end_early(id, Early::Abandon) {
            return self.go_on(id, next);
        }
        self.with(|route, _, out| route.abandon(id, out));
    }

    /// The frontend no longer knows these ids.
    pub fn forget(&self, inos: &[Ino]) {
        self.with(|route, now, out| route.forget(now, inos, out));
    }

    /// Calls `tell` with the time for which facts that are known without asking may be kept. The promise may
    /// be passed on until `tell` returns.
    pub fn keeping(&self, tell: &mut dyn FnMut(Caching)) {
        let _promise = self.promises.answer();
        tell(self.caching(self.now_ms()));
    }

    fn caching(&self, now_ms: u64) -> Caching {
        if self.keep_until_ms.load(Ordering::Acquire) <= now_ms {
            return Caching::Never;
        }
        if !self.has_promised.load(Ordering::Acquire) {
            self.has_promised.store(true, Ordering::Release);
        }
        Caching::UntilRecalled
    }

    /// Its counters.
    pub fn counters(&self) -> Counters {
        *self.lock().counters()
    }

    /// Directories that it knows.
    pub fn dirs_len(&self) -> usize {
        self.lock().dirs().len()
    }

    /// The placement key of a directory that it knows.
    pub fn key_of(&self, ino: Ino) -> Option<Key> {
        self.lock().dirs().get(ino).map(|known| known.key)
    }

    /// Waits until every island that can be reached knows the session, or the time is over.
    pub fn wait_ready(&self, time_max: Duration) -> bool {
        let until = Instant::now() + time_max;
        while Instant::now() < until {
            if self.lock().is_ready() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.lock().is_ready()
    }

    /// Ends the session: islands let go of its locks and orphans.
    pub fn stop(&self) {
        self.with(|route, _, out| route.detach(out));
        // A link that ends before the answers have come may take the requests with it.
        let until = Instant::now() + DETACH_MAX;
        while self.lock().is_detaching() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.stopping.store(true, Ordering::Release);
    }

    fn now_ms(&self) -> u64 {
        since_boot().saturating_sub(self.start).as_millis() as u64
    }

    fn lock(&self) -> MutexGuard<'_, Route<Token>> {
        self.route.lock().expect("the routing machine has panicked")
    }

    fn with<R>(&self, event: impl FnOnce(&mut Route<Token>, u64, &mut RouteOut<Token>) -> R) -> R {
        self.with_data(&[], event)
    }

    /// Takes an event to the machine, then does what the machine asks for. `data` came beside a reply.
    fn with_data<R>(
        &self,
        data: &[u8],
        event: impl FnOnce(&mut Route<Token>, u64, &mut RouteOut<Token>) -> R,
    ) -> R {
        let mut out = RouteOut::default();
        let now = self.now_ms();
        let (result, promise) = {
            let mut route = self.lock();
            let result = event(&mut route, now, &mut out);
            // Under the lock, so that whatever voids this answer comes later, and its recall waits for the completions.
            let ends = !out.finished.is_empty();
            (result, ends.then(|| (self.promises.answer(), self.caching(now))))
        };
        let caching = match &promise {
            Some((_, caching)) if !out.recall => *caching,
            _ => Caching::Never,
        };
        for sent in out.send {
            if let Some(wire) = self.wire(sent.island) {
                wire.send(sent.island, sent.id, sent.request, sent.data);
            }
        }
        if !out.orphans.is_empty() || !out.moved.is_empty() {
            // An orphan that nobody has open can go at once; so can what is known of a file that nobody knows.
            let watcher = self.watcher.get();
            let open = |ino: &Ino| watcher.is_some_and(|w| w.knows(*ino));
            let of_nobody = |ino: &Ino| watcher.is_some_and(|w| !w.knows(*ino));
            let moved = out.moved.into_iter().filter(of_nobody);
            let gone: Vec<Ino> = out.orphans.into_iter().filter(|ino| !open(ino)).chain(moved).collect();
            if !gone.is_empty() {
                self.forget(&gone);
            }
        }
        for misfit in out.misfits {
            // One kind of line, so that a server that always lies fills no log.
            let (island, what) = (misfit.island, misfit.what);
            tracing::warn!(%island, "an answer is not believed, and its operation fails: {what}");
        }
        for finished in out.finished {
            match finished.token {
                Token::Op(done) => {
                    let bytes = finished.data.as_deref().unwrap_or(data);
                    let caching = if finished.may_keep { caching } else { Caching::Never };
                    done(finished.result, AnswerExtras { bytes, caching, around: &finished.around });
                }
                Token::Walk(walked) => {
                    walked(finished.result.and_then(|_| finished.resolved.ok_or(Errno::EIO)));
                }
                Token::Island(told) => told(Err(finished.result.err().unwrap_or(Errno::EIO))),
            }
        }
        drop(promise);
        for told in out.told {
            if let Token::Island(tell) = told.token {
                tell(told.outcome);
            }
        }
        if out.recall {
            self.recall();
        }
        if let Some(recall) = out.recall_of {
            self.recalls_of.add(recall, add_recall);
            self.recall_of();
        }
        let (inos, names) = out.changed;
        if !inos.is_empty() || !names.is_empty() {
            let names = names.into_iter().map(|EntryRef { dir, name }| (dir, name)).collect();
            self.changed.add((inos, names), add_changes);
            self.tell_changed();
        }
        result
    }

    /// Has the watcher be told of what waits, on a thread of its own: that waits for answers which are being passed on, and for no
    /// operation. What comes meanwhile is told together.
    fn tell<T: Send + 'static>(&self, name: &str, pending: fn(&Self) -> &Pending<T>, tell: fn(&Self, T)) {
        if !pending(self).wants_thread() {
            return;
        }
        let client = self.me.upgrade();
        let run = move || {
            let Some(client) = client else { return };
            while let Some(told) = pending(&client).take() {
                // Answers of before that are told from now on may not be kept.
                client.promises.pass();
                tell(&client, told);
            }
        };
        if std::thread::Builder::new().name(name.into()).spawn(run).is_err() {
            // The next tick tries again.
            pending(self).has_no_thread();
        }
    }

    fn tell_changed(&self) {
        self.tell(
            "atoll-changed",
            |client| &client.changed,
            |client, (inos, names)| {
                if let Some(watcher) = client.watcher.get() {
                    watcher.changed(&inos, &names);
                }
            },
        );
    }

    /// Recalls of single files and directories, as [`Client::recall`].
    fn recall_of(&self) {
        self.tell(
            "atoll-recall-of",
            |client| &client.recalls_of,
            |client, RecallOf { number, inos }| {
                if let Some(watcher) = client.watcher.get() {
                    watcher.recall_of(&inos);
                }
                client.with(|route, _, out| route.dropped_of(number, out));
                client.note_keeping();
            },
        );
    }

    /// On a thread of its own: a recall must never wait for an operation that waits for it.
    fn recall(&self) {
        self.keep_until_ms.store(0, Ordering::Release);
        let Some(client) = self.me.upgrade() else { return };
        let recall = move || {
            let had_promised = client.has_promised.swap(false, Ordering::AcqRel);
            // What was being promised has been, behind this.
            client.promises.pass();
            if (client.has_promised.swap(false, Ordering::AcqRel) || had_promised)
                && let Some(watcher) = client.watcher.get()
            {
                watcher.recall();
            }
            client.with(|route, _, out| route.recalled(out));
        };
        if std::thread::Builder::new().name("atoll-recall".into()).spawn(recall).is_err() {
            // Until it is done nothing is kept, and no session is taken up again.
            self.recalls_due.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn note_keeping(&self) {
        // Under the lock: a link that breaks meanwhile has the last word.
        let route = self.lock();
        self.keep_until_ms.store(route.keep_until_ms(), Ordering::Release);
    }
}

/// The time since this machine was started. It counts the time for which the machine was suspended: islands
/// go on meanwhile, and a lease that they gave may be over.
fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

impl Sink for Client {
    fn reply(&self, island: IslandId, id: u64, reply: Reply, data: &[u8]) {
        let attached = matches!(reply.outcome, atoll_proto::Outcome::Attached { .. });
        self.with_data(data, |route, now, out| route.on_reply(now, island, id, reply, out));
        if attached {
            self.note_keeping();
        }
    }

    fn notice(&self, island: IslandId, notice: Notice) {
        self.with(|route, _, out| {
            if matches!(notice, Notice::Recall | Notice::RecallOf { .. }) {
                self.keep_until_ms.store(0, Ordering::Release);
            }
            route.on_notice(island, notice, out);
        });
    }

    fn reachable(&self, island: IslandId, up: bool) {
        self.with(|route, now, out| {
            if !up {
                self.keep_until_ms.store(0, Ordering::Release);
            }
            route.at(now);
            route.reachable(island, up, out);
        });
    }

    fn replaced(&self, island: IslandId) {
        self.with(|route, now, out| {
            self.keep_until_ms.store(0, Ordering::Release);
            route.at(now);
            route.replaced(island, out);
        });
    }
}
