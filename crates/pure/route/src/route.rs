//! The routing machine: calls and replies in, requests and outcomes out.
//!
//! A call waits for one island at a time. If that island is away and a skeleton can answer the call, other
//! islands are asked. Otherwise the call waits for the island's return, or fails when the mount's patience
//! ends (`patience.rs`).

use std::collections::BTreeMap;

use atoll_core::{H3, IdMap, Ino, IslandId, Key, Name, SessionId, Table, VolumePath};
use atoll_posix::{Answer, Attr, Caller, DirEntry, Errno, Kind, NamedObject, Op, RequestOptions};
use atoll_proto::{ClientOp, Extras, Outcome, Reply, Request, Resolved};
use bytes::Bytes;

use crate::call::{Call, CallKind, Followed, Gathering, Sending, Stage, Waiter, call_of};
use crate::counters::Counters;
use crate::detour::{client_op, is_of_another};
use crate::dirs::Dirs;
use crate::fits::{MisfitAnswer, misfit, sends_on};
use crate::found::FoundNames;
use crate::hints::Hints;
use crate::homes::Homes;
use crate::lease::{LeaseClock, is_sign_of_life};
use crate::links::{DirLinks, leads_on};
use crate::out::{FinishedCall, IslandAnswer, OutgoingRequest, RouteOut};
use crate::peer::Peer;
use crate::stamps::SeenStamps;
use crate::synced::{UnsyncedChanges, changes};

/// Milliseconds after which an island that was not ready is asked again; each time twice as long.
const NOT_NOW_MS: u64 = 20;
/// How often that pause is doubled at most.
const NOT_NOW_DOUBLINGS: u32 = 4;
/// How often a name is looked up again if its file is gone from the home that the name tells.
const DANGLED_MAX: u32 = 8;
/// How often a call is sent on at once: to another island, or to the same with a newer table. Then there are pauses.
const SENT_ON_AT_ONCE: u32 = 8;
/// How often a call is sent on at all, which takes some seven seconds. An honest island has had its say by then.
const SENT_ON_MAX: u32 = 32;
/// Files without names that are released with one request.
pub(crate) const RELEASE_BATCH: usize = 512;
/// Milliseconds after which islands are told of released files.
const RELEASE_MS: u64 = 100;

/// How a client works.
#[derive(Debug, Clone)]
pub struct Config {
    /// The volume's seed.
    pub seed: u64,
    /// The table of owners.
    pub table: Table,
    /// All islands.
    pub islands: Vec<IslandId>,
    /// The session's number, drawn at random; never 0.
    pub session: SessionId,
    /// Whether the client is a mount, and not a tool.
    pub mount: bool,
    /// Whether it keeps answers, if it may.
    pub keeps: bool,
    /// Milliseconds that a call waits for an island that is away. None: without end (`hard`).
    pub patience_ms: Option<u64>,
    /// The directory that is all that the client sees, with what is below it, and its placement key; none: the whole tree.
    pub scope: Option<(Ino, Key)>,
}

impl Config {
    /// The island that owns a directory with this placement key.
    pub(crate) fn owner(&self, key: Key) -> IslandId {
        self.table.owner(key)
    }

    /// The uppermost directory that the client sees.
    pub(crate) fn root(&self) -> Ino {
        self.scope.map_or(Ino::ROOT, |(dir, _)| dir)
    }
}

/// The routing machine of one session. `T` is the caller's, handed back when a call ends.
#[derive(Debug)]
pub struct Route<T> {
    pub(crate) config: Config,
    pub(crate) h3: H3,
    pub(crate) dirs: Dirs,
    pub(crate) homes: Homes,
    /// How files were found, if that counts.
    pub(crate) names: FoundNames,
    pub(crate) hints: Hints,
    /// Symbolic links that were looked up: other islands may know them if their home is away.
    pub(crate) links: DirLinks,
    pub(crate) unsynced: UnsyncedChanges,
    pub(crate) peers: BTreeMap<IslandId, Peer>,
    pub(crate) calls: IdMap<u64, Call<T>>,
    pub(crate) next_id: u64,
    pub(crate) seen: SeenStamps,
    /// Files and directories without a name that the frontend still knows, with the island that keeps each: the home of
    /// a file, the owner of a directory.
    pub(crate) orphans: IdMap<Ino, IslandId>,
    /// Attributes of the root, as they were told last.
    pub(crate) root: Option<Attr>,
    /// Orphans to be released, by the island that keeps them.
    pub(crate) released: BTreeMap<IslandId, Vec<Ino>>,
    pub(crate) released_ms: u64,
    pub(crate) renew_ms: u64,
    pub(crate) retry: Vec<(u64, u64)>,
    /// Locks that may still be granted after their caller has gone, by the number of the request: at which island, and the
    /// operation that undoes each.
    pub(crate) unwanted: BTreeMap<u64, (IslandId, Op)>,
    /// Whether the frontend may keep anything.
    pub(crate) lease: LeaseClock,
    /// How many recalls the frontend has not answered yet.
    pub(crate) recalls: u32,
    /// Number of the last recall of single files and directories.
    pub(crate) last_recall_of: u64,
    pub(crate) now_ms: u64,
    pub(crate) counters: Counters,
}

impl<T> Route<T> {
    /// A client that knows nothing but the volume.
    pub fn new(config: Config) -> Self {
        let peers = config.islands.iter().map(|i| (*i, Peer::default())).collect();
        Self {
            h3: H3::new(config.seed),
            dirs: Dirs::new(config.scope),
            names: FoundNames::new(config.scope.is_some()),
            homes: Homes::default(),
            hints: Hints::new(config.seed),
            links: DirLinks::default(),
            unsynced: UnsyncedChanges::default(),
            peers,
            calls: IdMap::default(),
            next_id: 1,
            seen: SeenStamps::default(),
            orphans: IdMap::default(),
            root: None,
            released: BTreeMap::new(),
            released_ms: 0,
            renew_ms: 0,
            retry: Vec::new(),
            unwanted: BTreeMap::new(),
            lease: LeaseClock::default(),
            recalls: 0,
            last_recall_of: 0,
            now_ms: 0,
            counters: Counters::default(),
            config,
        }
    }

    /// Its counters.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The table by which it routes.
    pub const fn table(&self) -> &Table {
        &self.config.table
    }

    /// The volume has this table: if it is newer than the one that is known, requests go by it from now on.
    pub fn take_table(&mut self, table: Table) {
        if table.version() > self.config.table.version() {
            self.config.table = table;
        }
    }

    /// Hints of renamed directories, for walks.
    pub const fn hints(&self) -> &Hints {
        &self.hints
    }

    /// The directories that it knows.
    pub const fn dirs(&self) -> &Dirs {
        &self.dirs
    }

    /// Its session.
    pub const fn session(&self) -> SessionId {
        self.config.session
    }

    /// Whether every island that can be reached knows the session, and has told whether answers may be kept.
    pub fn is_ready(&self) -> bool {
        self.peers.values().all(|p| (p.attached && (p.is_asked || !self.config.keeps)) || !p.up)
    }

    // -------------------------------------------------------------------- calls

    /// Begins an operation. Returns the number for [`Route::cancel`].
    pub fn call(
        &mut self,
        now_ms: u64,
        caller: &Caller,
        op: Op,
        data: Bytes,
        token: T,
        out: &mut RouteOut<T>,
    ) -> u64 {
        self.call_with_options(now_ms, caller, RequestOptions::default(), op, data, token, out)
    }

    /// The same as [`Route::call`], with options.
    pub fn call_with_options(
        &mut self,
        now_ms: u64,
        caller: &Caller,
        options: RequestOptions,
        op: Op,
        data: Bytes,
        token: T,
        out: &mut RouteOut<T>,
    ) -> u64 {
        self.counters.calls += 1;
        self.now_ms = self.now_ms.max(now_ms);
        let waiter = Some(Waiter { token, since_ms: now_ms });
        let call = Call { options, ..Call::new(waiter, caller.clone(), CallKind::Op(op), data, IslandId(0)) };
        self.begin_call(call, out)
    }

    /// Walks a path from the root with the caller's permissions.
    pub fn walk(
        &mut self,
        now_ms: u64,
        caller: &Caller,
        path: VolumePath,
        token: T,
        out: &mut RouteOut<T>,
    ) -> u64 {
        self.counters.calls += 1;
        self.now_ms = self.now_ms.max(now_ms);
        let waiter = Some(Waiter { token, since_ms: now_ms });
        self.begin(waiter, caller.clone(), CallKind::Walk(path), Bytes::new(), out)
    }

    /// Asks one island a question that only it can answer. Fails if it cannot be reached now.
    pub fn ask_island(
        &mut self,
        now_ms: u64,
        island: IslandId,
        op: ClientOp,
        token: T,
        out: &mut RouteOut<T>,
    ) {
        self.now_ms = self.now_ms.max(now_ms);
        let waiter = Some(Waiter { token, since_ms: now_ms });
        self.begin_at(waiter, Caller::ROOT, CallKind::Island(op), island, Bytes::new(), out);
    }

    pub(crate) fn begin(
        &mut self,
        waiter: Option<Waiter<T>>,
        caller: Caller,
        what: CallKind,
        data: Bytes,
        out: &mut RouteOut<T>,
    ) -> u64 {
        self.begin_at(waiter, caller, what, IslandId(0), data, out)
    }

    fn begin_at(
        &mut self,
        waiter: Option<Waiter<T>>,
        caller: Caller,
        what: CallKind,
        island: IslandId,
        data: Bytes,
        out: &mut RouteOut<T>,
    ) -> u64 {
        self.begin_call(Call::new(waiter, caller, what, data, island), out)
    }

    pub(crate) fn begin_call(&mut self, mut call: Call<T>, out: &mut RouteOut<T>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        if matches!(call.what, CallKind::Op(Op::Statfs)) {
            let left = self.peers.keys().copied().collect();
            call.stage = Stage::Gathering(Gathering { left, sums: BTreeMap::new() });
        }
        match self.route(&call) {
            Ok(island) => {
                call.island = island;
                self.calls.insert(id, call);
                self.ask(id, out);
            }
            Err(errno) => Self::end(call, Err(errno), None, None, out),
        }
        id
    }

    /// The island that decides a call.
    pub(crate) fn route(&self, call: &Call<T>) -> Result<IslandId, Errno> {
        let owner = |dir: Ino| -> Result<IslandId, Errno> {
            self.dirs.get(dir).map(|d| self.config.owner(d.key)).ok_or(Errno::ESTALE)
        };
        // A directory is one that was looked up as such.
        let home = |ino: Ino| owner(ino).unwrap_or_else(|_| self.homes.of(ino));
        if let Some(followed) = call.followed() {
            return Ok(self.homes.of(followed.file));
        }
        if matches!(call.stage, Stage::Searching { .. }) {
            return Ok(call.island);
        }
        Ok(match &call.what {
            CallKind::Walk(path) => self.walk_owner(path),
            CallKind::Own(_) | CallKind::Island(_) => call.island,
            CallKind::Op(op) => match op {
                Op::Statfs => match &call.stage {
                    Stage::Gathering(gathering) => gathering.left.first().copied().ok_or(Errno::EIO)?,
                    _ => return Err(Errno::EIO),
                },
                op => match op.dirs() {
                    [Some(dir), _] => owner(dir)?,
                    [None, _] => op.file().map(home).ok_or(Errno::EIO)?,
                },
            },
        })
    }

    /// Sends a call's request, or has it wait until its island can be asked.
    pub(crate) fn ask(&mut self, id: u64, out: &mut RouteOut<T>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let Some(peer) = self.peers.get_mut(&call.island) else {
            let call = self.calls.remove(&id).expect("looked at");
            return Self::end(call, Err(Errno::EIO), None, None, out);
        };
        let own = match &call.what {
            CallKind::Own(ClientOp::Attach { .. } | ClientOp::AttachWithin { .. }) => true,
            CallKind::Own(ClientOp::Dropped) => peer.attaching,
            _ => false,
        };
        if !peer.up || !(peer.attached || own) {
            if !peer.up && matches!(call.what, CallKind::Island(_)) {
                let call = self.calls.remove(&id).expect("looked at");
                return Self::end(call, Err(Errno::EIO), None, None, out);
            }
            if !peer.up && self.detour(id, out) {
                return;
            }
            return self.wait(id, out);
        }
        let mut op = client_op(call, &self.dirs, &self.homes, &self.config);
        let extras = self.names.extras(call);
        if extras != Extras::default() {
            op = op.with_extras(extras);
        }
        if call.seq == 0 && call.followed().is_none() && changes(&call.what) {
            call.seq = peer.serial.begin();
        }
        let vector = if peer.told_version == self.seen.version() {
            Vec::new()
        } else {
            peer.told_version = self.seen.version();
            self.seen.iter().collect()
        };
        if let (CallKind::Op(Op::Link { ino, .. }), Stage::Deciding { linked_home }) =
            (&call.what, &mut call.stage)
        {
            *linked_home = Some(self.homes.of(*ino));
        }
        call.note_sent(self.now_ms, self.seen.replies());
        if call.waiter.is_some() {
            self.counters.requests += 1;
        }
        let request = Request {
            session: self.config.session,
            seq: call.seq,
            acked: peer.serial.acked(),
            table: self.config.table.version(),
            vector,
            caller: call.caller.clone(),
            op,
        };
        let (island, interrupted, number) = (call.island, call.interrupted, call.number(id));
        out.send.push(OutgoingRequest { island, id: number, request, data: call.data.clone() });
        if interrupted {
            // What was said of it on an earlier link, or to another island, is not known here.
            self.own(island, ClientOp::Cancel { request: number }, out);
        }
    }

    /// Whether a call has not ended yet.
    pub fn is_under_way(&self, id: u64) -> bool {
        self.calls.contains_key(&id)
    }

    // ------------------------------------------------------------------ replies

    /// A reply to request `of` has come. The bytes beside it belong to the call that ends with `Answer::Data`.
    pub fn on_reply(&mut self, now_ms: u64, island: IslandId, of: u64, reply: Reply, out: &mut RouteOut<T>) {
        let id = call_of(of);
        self.now_ms = self.now_ms.max(now_ms);
        self.look_at_lease(now_ms, out);
        if let Some(peer) = self.peers.get_mut(&island) {
            peer.heard_ms = now_ms;
            peer.given_up = false;
        }
        let renewed = self.calls.get(&id).filter(|call| call.island == island && is_sign_of_life(&call.what));
        let asked_after = renewed.map(|call| call.asked_after);
        let known = reply.vector.into_iter().filter(|(other, _)| self.peers.contains_key(other));
        self.seen.told(island, known, asked_after);
        // A late reply of an island that was given up, or a second one: the call is gone. Or one on a link that is lost, and it was
        // asked again since.
        let may_keep = self.allows(reply.may_keep);
        let is_last = |call: &&mut Call<T>| call.island == island && call.number(id) == of;
        let Some(call) = self.calls.get_mut(&id).filter(is_last) else {
            return self.too_late(island, of, &reply.outcome, out);
        };
        call.sending = Sending::Waiting;
        call.may_keep &= may_keep;
        // It may be about to be asked again, because another link has replaced the one on which this comes.
        if let Some(peer) = self.peers.get_mut(&island) {
            peer.waiting.retain(|waiting| *waiting != id);
        }
        self.retry.retain(|(_, retried)| *retried != id);
        if let Some(what) =
            misfit(call, &reply.outcome, &self.peers).filter(|_| !matches!(call.what, CallKind::Island(_)))
        {
            out.misfits.push(MisfitAnswer { island, what });
            return self.disbelieve(now_ms, id, out);
        }
        if sends_on(&reply.outcome) {
            call.sent_on += 1;
            if call.sent_on > SENT_ON_MAX {
                out.misfits.push(MisfitAnswer { island, what: "a call is sent on without end" });
                return self.disbelieve(now_ms, id, out);
            }
        }
        let outcome = match reply.outcome {
            Outcome::Observed { around, answer, keys } => {
                call.around.extend(around);
                Outcome::Ok { answer: *answer, keys }
            }
            outcome => outcome,
        };
        let settled = !matches!(
            outcome,
            Outcome::StaleTable { .. } | Outcome::NotNow | Outcome::NoSession | Outcome::NeedGroups
        );
        // These say nothing of what was sent before and lost: it may have been carried out.
        call.doubtful &= matches!(outcome, Outcome::StaleTable { .. } | Outcome::NoSession);
        if settled && let Some(peer) = self.peers.get_mut(&island) {
            peer.serial.done(call.seq);
        }
        if settled && matches!(call.what, CallKind::Island(_)) {
            let call = self.take(id);
            out.told.extend(call.waiter.map(|of| IslandAnswer { token: of.token, outcome: Ok(outcome) }));
            return;
        }
        match outcome {
            Outcome::Ok { answer, keys } => self.succeed(id, answer, &keys, out),
            Outcome::Data { data } => {
                let call = self.take(id);
                Self::end(call, Ok(Answer::Data), Some(data), None, out);
            }
            Outcome::Elsewhere { ino, kind, home } => {
                self.links.note(ino, kind);
                if is_of_another(call, ino) {
                    return self.next_detour(id, out);
                }
                self.follow(id, Followed { file: ino, done: None }, home, out);
            }
            Outcome::DoneTo { ino, kind, home } => {
                self.follow(id, Followed::done(ino, kind), home, out);
            }
            Outcome::Moved { to, moves } => {
                let file = call.followed().map(|followed| followed.file).or(match &call.what {
                    CallKind::Op(op) => op.file(),
                    _ => None,
                });
                if matches!(call.stage, Stage::Searching { .. }) {
                    // Whoever forwards it knows more than a search.
                    call.stage = Stage::Deciding { linked_home: None };
                }
                if let Some(ino) = file {
                    self.homes.moved(ino, to, moves, self.next_id);
                }
                self.send_on(now_ms, id, out);
            }
            Outcome::Failed { errno } => self.fail(id, errno, out),
            Outcome::NeedGroups => {
                // The frontend looks the groups up and calls again.
                let call = self.take(id);
                Self::end(call, Err(Errno::EACCES), None, None, out);
            }
            Outcome::StaleTable { table } => {
                self.take_table(table);
                self.send_on(now_ms, id, out);
            }
            Outcome::NotNow => {
                let pause = NOT_NOW_MS << call.refusals.min(NOT_NOW_DOUBLINGS);
                call.refusals += 1;
                call.sending = Sending::Paused;
                self.retry.push((now_ms + pause, id));
                self.ask_where_linked_is(id, out);
            }
            Outcome::Resolved { resolved } => self.walked(id, resolved, out),
            Outcome::Attached { lease, power } => self.on_attached(now_ms, id, island, lease, power, out),
            Outcome::Hints { hints, next } => {
                let CallKind::Own(ClientOp::Hints { after }) = call.what else {
                    return self.fail(id, Errno::EIO, out);
                };
                self.calls.remove(&id);
                hints.iter().for_each(|hint| self.hints.learn(hint));
                if let Some(next) = next.filter(|next| *next > after) {
                    self.own(island, ClientOp::Hints { after: next }, out);
                }
            }
            Outcome::NoSession => self.on_no_session(id, island, out),
            // Asked for by nobody who waits here; or looked into above.
            Outcome::Observed { .. }
            | Outcome::Held { .. }
            | Outcome::CutMade { .. }
            | Outcome::ListedAt { .. }
            | Outcome::FilesAt { .. }
            | Outcome::CutLost { .. } => self.fail(id, Errno::EIO, out),
        }
    }

    /// Routes a call anew that an island has sent on; after a pause if that has happened often.
    fn send_on(&mut self, now_ms: u64, id: u64, out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        match call.sent_on.checked_sub(SENT_ON_AT_ONCE) {
            None => self.again(id, out),
            Some(more) => {
                call.sending = Sending::Paused;
                self.retry.push((now_ms + (NOT_NOW_MS << more.min(NOT_NOW_DOUBLINGS)), id));
            }
        }
    }

    /// The answer to a call does not fit it. Nobody knows whether the call had an effect.
    fn disbelieve(&mut self, now_ms: u64, id: u64, out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        if matches!(call.what, CallKind::Own(_)) {
            // Nobody waits for it, and without it the island would never be attached to.
            let pause = NOT_NOW_MS << NOT_NOW_DOUBLINGS;
            call.sending = Sending::Paused;
            self.retry.push((now_ms + pause, id));
            return;
        }
        if let Some(peer) = self.peers.get_mut(&call.island) {
            peer.serial.done(call.seq);
        }
        let call = self.take(id);
        Self::end(call, Err(Errno::EIO), None, None, out);
    }

    pub(crate) fn take(&mut self, id: u64) -> Call<T> {
        let call = self.calls.remove(&id).expect("looked at by the caller");
        if call.requests == 1 && call.waiter.is_some() {
            self.counters.one_island += 1;
        }
        call
    }

    /// Routes a call anew.
    pub(crate) fn again(&mut self, id: u64, out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        if call.is_confirming() {
            call.stage = Stage::Deciding { linked_home: None };
        }
        let call = self.calls.get(&id).expect("looked at");
        match self.route(call) {
            Ok(island) => {
                let call = self.calls.get_mut(&id).expect("looked at");
                if call.island != island {
                    call.island = island;
                    call.seq = 0;
                }
                self.ask(id, out);
            }
            Err(errno) => {
                let call = self.take(id);
                Self::end(call, Err(errno), None, None, out);
            }
        }
    }

    fn succeed(&mut self, id: u64, answer: Answer, keys: &[Key], out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        if matches!(call.stage, Stage::Gathering(_)) {
            return self.gather(id, &answer, out);
        }
        if matches!(call.what, CallKind::Op(Op::Fsync { .. } | Op::FsyncDir { .. })) {
            return self.synced(id, out);
        }
        if let Answer::Found { found } = &answer
            && is_of_another(call, found.attr.ino)
        {
            return self.next_detour(id, out);
        }
        if let Answer::Found { found } = &answer
            && leads_on(&self.peers, self.homes.of(found.attr.ino), found)
        {
            let (file, home) = (found.attr.ino, self.homes.of(found.attr.ino));
            let done = call.followed().and_then(|followed| followed.done);
            return self.follow(id, Followed { file, done }, home, out);
        }
        let answer = match (call.take_followed(), answer) {
            (Some(_), Answer::Attr { attr }) if !matches!(call.what, CallKind::Op(Op::SetAttr { .. })) => {
                Answer::Found { found: NamedObject { attr, attr_current: true } }
            }
            (_, answer) => answer,
        };
        if let (CallKind::Walk(path), Answer::Found { found }) = (&call.what, &answer) {
            let depth = path.names().len() as u32;
            let key_overrides = Vec::new();
            let resolved = Resolved { found: found.clone(), key: None, depth, is_final: true, key_overrides };
            let call = self.take(id);
            return Self::end(call, Ok(answer), None, Some(resolved), out);
        }
        let mut keys = keys.iter().copied();
        if let (Stage::Searching { .. }, Answer::Attr { attr }) = (&call.stage, &answer) {
            self.homes.answered(attr.ino, call.island, id);
        }
        if let CallKind::Op(op) = &call.what {
            if let (Op::Parent { .. }, Answer::Found { found }, Some(key)) =
                (op, &answer, keys.clone().next())
            {
                self.dirs.learn_key(found.attr.ino, key);
            }
            if let Answer::Found { found } = &answer {
                self.links.note(found.attr.ino, found.attr.kind);
                let tells = found.attr_current && found.attr.kind != Kind::Directory && !call.falls_back();
                if tells && matches!(op, Op::Lookup { .. } | Op::Create { .. }) {
                    // Its home has answered.
                    self.homes.answered(found.attr.ino, call.island, id);
                }
            }
            let mut learn = |ino: Ino, parent: Ino, name: &Name| {
                if let Some(key) = keys.next() {
                    self.dirs.learn(ino, key, parent, name);
                }
            };
            match (op, &answer) {
                (Op::Lookup { dir, name } | Op::Mkdir { dir, name, .. }, Answer::Found { found }) => {
                    learn(found.attr.ino, *dir, name);
                }
                (Op::ReadDir { dir, .. }, Answer::Entries { entries, .. }) => {
                    entries.iter().for_each(|e| self.links.note(e.ino, e.kind));
                    for entry in entries.iter().filter(|e: &&DirEntry| e.found.is_some()) {
                        match entry.kind {
                            Kind::Directory => learn(entry.ino, *dir, &entry.name),
                            // Only its home tells of it, and the kernel may never look it up.
                            _ => self.homes.answered(entry.ino, call.island, id),
                        }
                    }
                }
                (Op::Unlink { .. } | Op::Rename { .. }, Answer::Removed { orphan: Some(ino) }) => {
                    self.orphans.insert(*ino, call.island);
                    out.orphans.push(*ino);
                }
                _ => {}
            }
        }
        let call = self.take(id);
        if let CallKind::Op(op) = &call.what {
            self.note(op, call.island, &answer);
            self.names.answered(op, &answer);
        }
        // What a skeleton says of a directory is not all: its size and times are only known ones.
        let answer = match answer {
            Answer::Found { found } if matches!(call.what, CallKind::Op(Op::GetAttr { .. })) => {
                Answer::Attr { attr: found.attr }
            }
            Answer::Found { mut found } if call.falls_back() => {
                found.attr_current = false;
                Answer::Found { found }
            }
            other => other,
        };
        if let (CallKind::Op(Op::GetAttr { ino }), Answer::Attr { attr }) = (&call.what, &answer)
            && *ino == self.config.root()
        {
            self.root = Some(*attr);
        }
        Self::end(call, Ok(answer), None, None, out);
    }

    /// A name leads to a file with another home, which is asked next.
    fn follow(&mut self, id: u64, followed: Followed, home: IslandId, out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        if home != call.island {
            self.homes.pointed(followed.file, home);
        }
        call.island = self.homes.of(followed.file);
        call.stage = Stage::Following(followed);
        call.seq = 0;
        self.ask(id, out);
    }

    fn fail(&mut self, id: u64, errno: Errno, out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        if errno == Errno::ESTALE
            && let Stage::Searching { rest } = &mut call.stage
            && let Some(next) = rest.pop_front()
        {
            call.island = next;
            return self.ask(id, out);
        }
        if !call.falls_back()
            && let Some(followed) = call.take_followed()
            && errno == Errno::ESTALE
            && call.dangled < DANGLED_MAX
        {
            let ino = followed.file;
            let home = self.homes.of(ino);
            if let Some(kind) = followed.done {
                return match home == call.island {
                    true => self.done_to(id, ino, kind, out),
                    false => self.follow(id, followed, home, out),
                };
            }
            // It lost its name meanwhile, or moved: only the name's owner can say that there is none.
            self.homes.forget(ino);
            call.dangled += 1;
            return self.again(id, out);
        }
        if errno == Errno::ESTALE
            && matches!(&call.what, CallKind::Op(op) if op.file().is_some() && !call.falls_back())
        {
            // It may have moved since this was sent, and the island forgotten it.
            let call = self.calls.get(&id).expect("looked at");
            if self.route(call).is_ok_and(|island| island != call.island) {
                return self.again(id, out);
            }
        }
        if let Some(call) = self.calls.get_mut(&id)
            && let CallKind::Op(Op::Link { ino, .. }) = &call.what
            && matches!(errno, Errno::ENOENT | Errno::ESTALE)
            && let Stage::Deciding { linked_home: Some(home) } = call.stage
            && home != self.homes.of(*ino)
        {
            // So may the file that gets a name: the name's owner asks the home that it was told of.
            call.seq = 0;
            return self.again(id, out);
        }
        let call = self.calls.get(&id).expect("looked at by the caller");
        if call.falls_back() {
            // This skeleton does not have it: that proves nothing.
            return self.next_detour(id, out);
        }
        let call = self.take(id);
        Self::end(call, Err(errno), None, None, out);
    }

    // --------------------------------------------------------------------- time

    /// Sets the time. Events without a time happen at the last time that was set.
    pub fn at(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ms: u64, out: &mut RouteOut<T>) {
        self.now_ms = self.now_ms.max(now_ms);
        self.look_at_lease(now_ms, out);
        let (ready, wait) = std::mem::take(&mut self.retry).into_iter().partition(|(at, _)| *at <= now_ms);
        self.retry = wait;
        let ready: Vec<(u64, u64)> = ready;
        for (_, id) in ready {
            self.ask(id, out);
        }
        if now_ms >= self.renew_ms + self.pause_ms() {
            self.renew_ms = now_ms;
            self.renew(out);
        }
        if !self.released.is_empty() && now_ms >= self.released_ms + RELEASE_MS {
            for (island, inos) in std::mem::take(&mut self.released) {
                if !inos.is_empty() {
                    self.own(island, ClientOp::Release { inos }, out);
                }
            }
        }
        self.end_impatient(now_ms, out);
    }

    pub(crate) fn end(
        call: Call<T>,
        result: Result<Answer, Errno>,
        data: Option<Bytes>,
        resolved: Option<Resolved>,
        out: &mut RouteOut<T>,
    ) {
        let Some(Waiter { token, .. }) = call.waiter else { return };
        match call.what {
            CallKind::Island(_) => {
                let outcome = Err(result.err().unwrap_or(Errno::EIO));
                out.told.push(IslandAnswer { token, outcome });
            }
            _ => {
                let around = if result.is_ok() { call.around } else { Vec::new() };
                let may_keep = call.may_keep;
                out.finished.push(FinishedCall { token, result, data, around, resolved, may_keep });
            }
        }
    }
}
