//! The routing machine: calls in, requests out, replies in, outcomes out.
//!
//! A call waits for one island at a time. Where that island is away, a call that a skeleton can
//! answer goes to others; every other call waits for the island's return, or fails when the mount's
//! patience ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use atoll_core::{ClockVector, H3, IdMap, IdSet, Ino, IslandId, Key, Name, SessionId, Table, VolumePath};
use atoll_posix::{Answer, Caller, DirEntry, Errno, Op};
use atoll_proto::{ClientOp, Notice, Outcome, Reply, Request, Resolved};
use bytes::Bytes;

use crate::dirs::Dirs;
use crate::serial::Serial;

/// Milliseconds after which an island that was not ready is asked again.
const NOT_NOW_MS: u64 = 20;
/// Milliseconds between two signs of life.
const RENEW_MS: u64 = 3_000;
/// Milliseconds since the last answered sign of life for which answers may be kept. Together with
/// [`KEEP_MS`] it stays below the islands' lease of 15 s.
const FRESH_MS: u64 = 5_000;
/// Milliseconds for which a frontend may keep an answer at most.
pub const KEEP_MS: u64 = 6_000;
/// Files without names that are released with one request.
const RELEASE_BATCH: usize = 512;
/// Milliseconds after which released files are told of.
const RELEASE_MS: u64 = 100;

/// How a client works.
#[derive(Debug, Clone)]
pub struct Config {
    /// The volume's seed.
    pub seed: u64,
    /// Who owns what.
    pub table: Table,
    /// All islands.
    pub islands: Vec<IslandId>,
    /// Drawn at random; never 0.
    pub session: SessionId,
    /// It is a mount, and not a tool.
    pub mount: bool,
    /// Milliseconds that a call waits for an island that is away; none: for ever (`hard`).
    pub patience_ms: Option<u64>,
}

/// What a client has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls of the frontend.
    pub calls: u64,
    /// Requests to islands for them.
    pub requests: u64,
    /// Calls that were answered by one island with one request.
    pub one_island: u64,
}

/// A request to be sent.
#[derive(Debug)]
pub struct Sent {
    /// To whom.
    pub island: IslandId,
    /// Its number on the link.
    pub id: u64,
    /// What.
    pub request: Request,
    /// Bytes of a write.
    pub data: Bytes,
}

/// A call that has ended.
#[derive(Debug)]
pub struct Finished<T> {
    /// What the caller gave.
    pub token: T,
    /// How it ended.
    pub result: Result<Answer, Errno>,
    /// Bytes of `Answer::Data`, if the reply itself brought them; otherwise they came beside it.
    pub data: Option<Bytes>,
    /// Of a walked path.
    pub resolved: Option<Resolved>,
}

/// What is to be done.
#[derive(Debug)]
pub struct RouteOut<T> {
    /// Requests to send.
    pub send: Vec<Sent>,
    /// Calls that have ended.
    pub finished: Vec<Finished<T>>,
    /// Everything that was kept must go; then call [`Route::recalled`].
    pub recall: bool,
    /// Files that have lost their last name: does the frontend still know them? If not, call
    /// [`Route::forget`].
    pub orphans: Vec<Ino>,
}

impl<T> Default for RouteOut<T> {
    fn default() -> Self {
        Self { send: Vec::new(), finished: Vec::new(), recall: false, orphans: Vec::new() }
    }
}

/// What a call is about.
#[derive(Debug)]
enum What {
    Op(Op),
    /// A walk of a path from the root, for libraries and tools.
    Walk(VolumePath),
    /// The session itself, or orphans: no caller waits.
    Own(ClientOp),
}

/// A call under way.
#[derive(Debug)]
struct Call<T> {
    token: Option<T>,
    caller: Caller,
    what: What,
    data: Bytes,
    since_ms: u64,
    island: IslandId,
    seq: u64,
    requests: u32,
    /// Islands whose skeletons are still to be asked, when the one that knows is away.
    detour: Option<VecDeque<IslandId>>,
    /// Parts of a call that asks every island (statfs).
    gather: Option<Gather>,
}

#[derive(Debug)]
struct Gather {
    left: BTreeSet<IslandId>,
    sums: BTreeMap<u64, [u64; 5]>,
}

/// What is known of an island.
#[derive(Debug, Default)]
struct Peer {
    up: bool,
    /// It knows the session.
    attached: bool,
    attaching: bool,
    sole: bool,
    renewed_ms: u64,
    serial: Serial,
    told_version: u64,
    /// Calls that wait for it.
    waiting: Vec<u64>,
}

/// The routing machine of one session. `T` is the caller's, handed back when a call ends.
#[derive(Debug)]
pub struct Route<T> {
    config: Config,
    h3: H3,
    dirs: Dirs,
    peers: BTreeMap<IslandId, Peer>,
    calls: IdMap<u64, Call<T>>,
    next_id: u64,
    vector: ClockVector,
    vector_version: u64,
    /// Orphans that the frontend still knows.
    orphans: IdSet<Ino>,
    /// Orphans to be released, by their homes.
    released: BTreeMap<IslandId, Vec<Ino>>,
    released_ms: u64,
    renew_ms: u64,
    retry: Vec<(u64, u64)>,
    counters: Counters,
}

impl<T> Route<T> {
    /// A client that knows nothing but the volume.
    pub fn new(config: Config) -> Self {
        let peers = config.islands.iter().map(|i| (*i, Peer::default())).collect();
        Self {
            h3: H3::new(config.seed),
            dirs: Dirs::default(),
            peers,
            calls: IdMap::default(),
            next_id: 1,
            vector: ClockVector::default(),
            vector_version: 1,
            orphans: IdSet::default(),
            released: BTreeMap::new(),
            released_ms: 0,
            renew_ms: 0,
            retry: Vec::new(),
            counters: Counters::default(),
            config,
        }
    }

    /// What it has done.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The table by which it routes.
    pub const fn table(&self) -> &Table {
        &self.config.table
    }

    /// The directories that it knows.
    pub const fn dirs(&self) -> &Dirs {
        &self.dirs
    }

    /// Whether what is answered now may be kept for up to [`KEEP_MS`].
    pub fn may_keep(&self, now_ms: u64) -> bool {
        self.peers.values().all(|p| p.attached && p.sole && p.renewed_ms + FRESH_MS > now_ms)
    }

    /// Whether every island that can be reached knows the session.
    pub fn is_ready(&self) -> bool {
        self.peers.values().all(|p| p.attached || !p.up)
    }

    // -------------------------------------------------------------------- calls

    /// Begins an operation. Its number, for [`Route::cancel`].
    pub fn call(
        &mut self,
        now_ms: u64,
        caller: &Caller,
        op: Op,
        data: Bytes,
        token: T,
        out: &mut RouteOut<T>,
    ) -> u64 {
        self.counters.calls += 1;
        self.begin(now_ms, caller.clone(), What::Op(op), data, Some(token), out)
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
        self.begin(now_ms, caller.clone(), What::Walk(path), Bytes::new(), Some(token), out)
    }

    fn begin(
        &mut self,
        now_ms: u64,
        caller: Caller,
        what: What,
        data: Bytes,
        token: Option<T>,
        out: &mut RouteOut<T>,
    ) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let gather = matches!(what, What::Op(Op::Statfs))
            .then(|| Gather { left: self.peers.keys().copied().collect(), sums: BTreeMap::new() });
        let mut call = Call {
            token,
            caller,
            what,
            data,
            since_ms: now_ms,
            island: IslandId(0),
            seq: 0,
            requests: 0,
            detour: None,
            gather,
        };
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
    fn route(&self, call: &Call<T>) -> Result<IslandId, Errno> {
        let owner = |dir: Ino| -> Result<IslandId, Errno> {
            self.dirs.get(dir).map(|d| self.config.table.owner(d.key)).ok_or(Errno::ESTALE)
        };
        // A file's home is read off its id; a directory is one that was looked up as such.
        let home = |ino: Ino| owner(ino).unwrap_or_else(|_| ino.minted_by());
        Ok(match &call.what {
            What::Walk(path) => self.walk_owner(path),
            What::Own(_) => call.island,
            What::Op(op) => match op {
                Op::Lookup { dir, .. }
                | Op::Create { dir, .. }
                | Op::Mkdir { dir, .. }
                | Op::Unlink { dir, .. }
                | Op::Rmdir { dir, .. }
                | Op::Rename { dir, .. }
                | Op::Link { dir, .. }
                | Op::FsyncDir { dir }
                | Op::ReadDir { dir, .. } => owner(*dir)?,
                Op::GetAttr { ino }
                | Op::SetAttr { ino, .. }
                | Op::Readlink { ino }
                | Op::Read { ino, .. }
                | Op::Write { ino, .. }
                | Op::Fallocate { ino, .. }
                | Op::Seek { ino, .. }
                | Op::Fsync { ino }
                | Op::GetXattr { ino, .. }
                | Op::SetXattr { ino, .. }
                | Op::ListXattr { ino }
                | Op::RemoveXattr { ino, .. }
                | Op::GetLock { ino, .. }
                | Op::SetLock { ino, .. }
                | Op::CopyRange { to: ino, .. } => home(*ino),
                Op::Statfs => call
                    .gather
                    .as_ref()
                    .and_then(|g| g.left.first().copied())
                    .ok_or(Errno::EIO)?,
            },
        })
    }

    /// A path is asked of the owner of its last directory: the only final answer.
    fn walk_owner(&self, path: &VolumePath) -> IslandId {
        let above = path.split_last().map_or(&[][..], |(above, _)| above);
        let key = self.h3.path(above).map_or(Key(0), |hash| hash.key());
        self.config.table.owner(key)
    }

    /// Sends a call's request, or has it wait until its island can be asked.
    fn ask(&mut self, id: u64, out: &mut RouteOut<T>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let Some(peer) = self.peers.get_mut(&call.island) else {
            let call = self.calls.remove(&id).expect("looked at");
            return Self::end(call, Err(Errno::EIO), None, None, out);
        };
        let own = matches!(&call.what, What::Own(ClientOp::Attach { .. }));
        if !peer.up || !(peer.attached || own) {
            if !peer.up && self.detour(id, out) {
                return;
            }
            let call = self.calls.get(&id).expect("looked at");
            let peer = self.peers.get_mut(&call.island).expect("looked at");
            peer.waiting.push(id);
            return;
        }
        let op = client_op(call, &self.dirs, &self.config.table);
        if call.seq == 0 && changes(&call.what) {
            call.seq = peer.serial.begin();
        }
        let vector = if peer.told_version == self.vector_version {
            Vec::new()
        } else {
            peer.told_version = self.vector_version;
            self.vector.iter().collect()
        };
        call.requests += 1;
        if call.token.is_some() {
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
        out.send.push(Sent { island: call.island, id, request, data: call.data.clone() });
    }

    /// Whether somebody else can answer for an island that is away, and if so, asks.
    fn detour(&mut self, id: u64, out: &mut RouteOut<T>) -> bool {
        let Some(call) = self.calls.get_mut(&id) else { return false };
        if let Some(gather) = &mut call.gather {
            // The space of an island that is away is unknown: the sum over the others is shown.
            gather.left.remove(&call.island);
            match gather.left.first().copied() {
                Some(next) => {
                    call.island = next;
                    self.ask(id, out);
                }
                None => self.gathered(id, out),
            }
            return true;
        }
        let first = match &call.what {
            What::Op(Op::Lookup { dir, name }) => self
                .dirs
                .key_by_path(&self.h3, *dir, name)
                .map(|key| self.config.table.owner(key)),
            What::Op(Op::GetAttr { ino }) if self.dirs.get(*ino).is_some() => {
                stub_of(&self.dirs, &self.config.table, *ino).map(|(owner, ..)| owner)
            }
            What::Walk(_) => None,
            _ => return false,
        };
        if call.detour.is_none() {
            let away = call.island;
            let up: Vec<IslandId> = self.peers.iter().filter(|(_, p)| p.up).map(|(i, _)| *i).collect();
            let mut others: VecDeque<IslandId> = up.into_iter().filter(|i| *i != away).collect();
            if let Some(first) = first
                && let Some(at) = others.iter().position(|i| *i == first)
            {
                others.swap(0, at);
            }
            call.detour = Some(others);
        }
        self.next_detour(id, out);
        true
    }

    fn next_detour(&mut self, id: u64, out: &mut RouteOut<T>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        match call.detour.as_mut().and_then(VecDeque::pop_front) {
            Some(next) => {
                call.island = next;
                self.ask(id, out);
            }
            None => {
                // Nobody who can be reached knows it. That does not prove that it is not there.
                let call = self.calls.remove(&id).expect("looked at");
                Self::end(call, Err(Errno::EIO), None, None, out);
            }
        }
    }

    /// Whether a call has not ended yet.
    pub fn is_under_way(&self, id: u64) -> bool {
        self.calls.contains_key(&id)
    }

    /// Ends a call early, if it waits for an island to return; tells an island of one that it runs.
    pub fn cancel(&mut self, id: u64, out: &mut RouteOut<T>) {
        let Some(call) = self.calls.get(&id) else { return };
        let island = call.island;
        let Some(peer) = self.peers.get_mut(&island) else { return };
        if let Some(at) = peer.waiting.iter().position(|w| *w == id)
            && call.requests == 0
        {
            peer.waiting.remove(at);
            let call = self.calls.remove(&id).expect("looked at");
            return Self::end(call, Err(Errno::EINTR), None, None, out);
        }
        self.own(island, ClientOp::Cancel { request: id }, out);
    }

    // ------------------------------------------------------------------ replies

    /// A reply has come. The bytes beside it belong to the call that ends with `Answer::Data`.
    pub fn on_reply(&mut self, now_ms: u64, island: IslandId, id: u64, reply: Reply, out: &mut RouteOut<T>) {
        for (of, stamp) in reply.vector {
            if self.vector.raise(of, stamp) {
                self.vector_version += 1;
            }
        }
        // A late reply of an island that was given up, or a second one: the call is gone.
        let Some(call) = self.calls.get(&id).filter(|call| call.island == island) else { return };
        let settled = !matches!(
            reply.outcome,
            Outcome::StaleTable { .. } | Outcome::NotNow | Outcome::NoSession | Outcome::NeedGroups
        );
        if settled && let Some(peer) = self.peers.get_mut(&island) {
            peer.serial.done(call.seq);
        }
        match reply.outcome {
            Outcome::Ok { answer, keys } => self.succeed(id, answer, &keys, out),
            Outcome::Data { data } => {
                let call = self.take(id);
                Self::end(call, Ok(Answer::Data), Some(data), None, out);
            }
            Outcome::Failed { errno } => self.fail(id, errno, out),
            Outcome::NeedGroups => {
                // The frontend looks the groups up and calls again.
                let call = self.take(id);
                Self::end(call, Err(Errno::EACCES), None, None, out);
            }
            Outcome::StaleTable { table } => {
                if table.version() > self.config.table.version() {
                    self.config.table = table;
                }
                self.again(id, out);
            }
            Outcome::NotNow => self.retry.push((now_ms + NOT_NOW_MS, id)),
            Outcome::Resolved { resolved } => self.walked(id, resolved, out),
            Outcome::Attached { sole, .. } => self.on_attached(now_ms, id, island, sole, out),
            Outcome::NoSession => {
                let peer = self.peers.get_mut(&island).expect("a reply of a known island");
                peer.attached = false;
                peer.waiting.push(id);
                self.attach(island, out);
            }
        }
    }

    fn take(&mut self, id: u64) -> Call<T> {
        let call = self.calls.remove(&id).expect("looked at by the caller");
        if call.requests == 1 && call.token.is_some() {
            self.counters.one_island += 1;
        }
        call
    }

    /// Routes a call anew.
    fn again(&mut self, id: u64, out: &mut RouteOut<T>) {
        let call = self.calls.get(&id).expect("looked at by the caller");
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
        if call.gather.is_some() {
            return self.gather(id, &answer, out);
        }
        if let (What::Op(Op::GetAttr { ino }), Answer::Found { found }) = (&call.what, &answer)
            && found.attr.ino != *ino
        {
            // The name under which it was known is another one's by now.
            return self.next_detour(id, out);
        }
        let mut keys = keys.iter().copied();
        if let What::Op(op) = &call.what {
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
                    let dirs = entries.iter().filter(|e: &&DirEntry| e.kind == atoll_posix::Kind::Directory);
                    for entry in dirs.filter(|e| e.found.is_some()) {
                        learn(entry.ino, *dir, &entry.name);
                    }
                }
                (Op::Unlink { .. } | Op::Rename { .. }, Answer::Removed { orphan: Some(ino) }) => {
                    self.orphans.insert(*ino);
                    out.orphans.push(*ino);
                }
                _ => {}
            }
        }
        let call = self.take(id);
        // What a skeleton says of a directory is not all: its size and times are only known ones.
        let answer = match answer {
            Answer::Found { found } if matches!(call.what, What::Op(Op::GetAttr { .. })) => {
                Answer::Attr { attr: found.attr }
            }
            Answer::Found { mut found } if call.detour.is_some() => {
                found.attr_current = false;
                Answer::Found { found }
            }
            other => other,
        };
        Self::end(call, Ok(answer), None, None, out);
    }

    fn fail(&mut self, id: u64, errno: Errno, out: &mut RouteOut<T>) {
        let call = self.calls.get(&id).expect("looked at by the caller");
        if call.detour.is_some() {
            // This skeleton does not have it: that proves nothing.
            return self.next_detour(id, out);
        }
        let call = self.take(id);
        Self::end(call, Err(errno), None, None, out);
    }

    fn walked(&mut self, id: u64, resolved: Resolved, out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        let What::Walk(path) = &call.what else { return };
        let depth = resolved.depth as usize;
        if let (Some(key), Some(name)) = (resolved.key, depth.checked_sub(1).and_then(|i| path.names().get(i))) {
            // Its parent is not told; the name serves for the path of what is below.
            self.dirs.learn(resolved.found.attr.ino, key, Ino::ROOT, name);
        }
        let whole = depth == path.names().len();
        if whole && (resolved.is_final || resolved.key.is_none() || resolved.found.attr_current) {
            let call = self.take(id);
            let answer = Answer::Found { found: resolved.found.clone() };
            return Self::end(call, Ok(answer), None, Some(resolved), out);
        }
        if resolved.is_final && !whole {
            let errno = if resolved.key.is_some() { Errno::ENOENT } else { Errno::ENOTDIR };
            let call = self.take(id);
            return Self::end(call, Err(errno), None, Some(resolved), out);
        }
        // The walk went as far as this skeleton: the owner of where it ended knows more.
        let next = resolved.key.map(|key| self.config.table.owner(key));
        match next {
            Some(next) if next != call.island && call.requests < 64 => {
                call.island = next;
                self.ask(id, out);
            }
            _ => {
                let call = self.take(id);
                Self::end(call, Err(Errno::EIO), None, Some(resolved), out);
            }
        }
    }

    // ------------------------------------------------------------------- statfs

    fn gather(&mut self, id: u64, answer: &Answer, out: &mut RouteOut<T>) {
        let call = self.calls.get_mut(&id).expect("looked at by the caller");
        let gather = call.gather.as_mut().expect("looked at by the caller");
        if let Answer::Statfs { bytes, bytes_free, bytes_available, inodes, inodes_free, fs_id } = answer {
            // Islands that share a native file system share its space.
            let row = [*bytes, *bytes_free, *bytes_available, *inodes, *inodes_free];
            gather.sums.insert(*fs_id, row);
        }
        gather.left.remove(&call.island);
        match gather.left.first().copied() {
            Some(next) => {
                call.island = next;
                self.ask(id, out);
            }
            None => self.gathered(id, out),
        }
    }

    fn gathered(&mut self, id: u64, out: &mut RouteOut<T>) {
        let call = self.calls.remove(&id).expect("looked at by the caller");
        let gather = call.gather.as_ref().expect("looked at by the caller");
        if gather.sums.is_empty() {
            return Self::end(call, Err(Errno::EIO), None, None, out);
        }
        let mut sum = [0u64; 5];
        for row in gather.sums.values() {
            sum.iter_mut().zip(row).for_each(|(s, r)| *s = s.saturating_add(*r));
        }
        let [bytes, bytes_free, bytes_available, inodes, inodes_free] = sum;
        let answer = Answer::Statfs { bytes, bytes_free, bytes_available, inodes, inodes_free, fs_id: 0 };
        Self::end(call, Ok(answer), None, None, out);
    }

    // ----------------------------------------------------------------- sessions

    /// An island can be reached, or not.
    pub fn reachable(&mut self, island: IslandId, up: bool, out: &mut RouteOut<T>) {
        let Some(peer) = self.peers.get_mut(&island) else { return };
        peer.up = up;
        if up {
            if !peer.attaching {
                self.attach(island, out);
            }
            return;
        }
        // What was on the way may or may not have arrived: it is asked again, with its number.
        peer.attached = false;
        peer.attaching = false;
        peer.sole = false;
        peer.told_version = 0;
        let mut lost: Vec<u64> =
            self.calls.iter().filter(|(_, c)| c.island == island).map(|(id, _)| *id).collect();
        lost.sort_unstable();
        self.peers.get_mut(&island).expect("looked at").waiting.clear();
        for id in lost {
            if matches!(self.calls.get(&id).map(|c| &c.what), Some(What::Own(_))) {
                self.calls.remove(&id);
            } else {
                self.ask(id, out);
            }
        }
    }

    fn attach(&mut self, island: IslandId, out: &mut RouteOut<T>) {
        let mount = self.config.mount;
        let peer = self.peers.get_mut(&island).expect("known to the caller");
        peer.attaching = true;
        self.own(island, ClientOp::Attach { mount }, out);
    }

    fn own(&mut self, island: IslandId, op: ClientOp, out: &mut RouteOut<T>) {
        let id = self.next_id;
        self.next_id += 1;
        let call = Call {
            token: None,
            caller: Caller::ROOT,
            what: What::Own(op),
            data: Bytes::new(),
            since_ms: u64::MAX,
            island,
            seq: 0,
            requests: 0,
            detour: None,
            gather: None,
        };
        self.calls.insert(id, call);
        self.ask(id, out);
    }

    fn on_attached(&mut self, now_ms: u64, id: u64, island: IslandId, sole: bool, out: &mut RouteOut<T>) {
        self.calls.remove(&id);
        let peer = self.peers.get_mut(&island).expect("a reply of a known island");
        peer.attaching = false;
        peer.sole = sole;
        peer.renewed_ms = now_ms;
        if !peer.attached {
            peer.attached = true;
            for id in std::mem::take(&mut peer.waiting) {
                self.ask(id, out);
            }
        }
    }

    /// An island tells something unasked.
    pub fn on_notice(&mut self, island: IslandId, notice: Notice, out: &mut RouteOut<T>) {
        match notice {
            Notice::Recall => {
                if let Some(peer) = self.peers.get_mut(&island) {
                    // From here on no answer is kept; what was kept goes.
                    peer.sole = false;
                }
                out.recall = true;
            }
            Notice::Orphan { ino } => {
                self.orphans.insert(ino);
                out.orphans.push(ino);
            }
        }
    }

    /// Everything that was kept is gone.
    pub fn recalled(&mut self, out: &mut RouteOut<T>) {
        let up: Vec<IslandId> = self.peers.iter().filter(|(_, p)| p.attached).map(|(i, _)| *i).collect();
        for island in up {
            self.own(island, ClientOp::Renew, out);
        }
    }

    /// Ends the session everywhere.
    pub fn detach(&mut self, out: &mut RouteOut<T>) {
        let up: Vec<IslandId> = self.peers.iter().filter(|(_, p)| p.attached).map(|(i, _)| *i).collect();
        for island in up {
            self.own(island, ClientOp::Detach, out);
        }
    }

    /// Whether an island has yet to answer that the session has ended.
    pub fn is_detaching(&self) -> bool {
        self.calls.values().any(|call| matches!(call.what, What::Own(ClientOp::Detach)))
    }

    /// The frontend no longer knows these ids.
    pub fn forget(&mut self, now_ms: u64, inos: &[Ino], out: &mut RouteOut<T>) {
        for ino in inos {
            self.dirs.forget(*ino);
            if !self.orphans.is_empty() && self.orphans.remove(ino) {
                if self.released.is_empty() {
                    self.released_ms = now_ms;
                }
                let home = ino.minted_by();
                let list = self.released.entry(home).or_default();
                list.push(*ino);
                if list.len() >= RELEASE_BATCH {
                    let inos = std::mem::take(list);
                    self.own(home, ClientOp::Release { inos }, out);
                }
            }
        }
    }

    // --------------------------------------------------------------------- time

    /// Time has passed.
    pub fn tick(&mut self, now_ms: u64, out: &mut RouteOut<T>) {
        let (ready, wait) = std::mem::take(&mut self.retry).into_iter().partition(|(at, _)| *at <= now_ms);
        self.retry = wait;
        let ready: Vec<(u64, u64)> = ready;
        for (_, id) in ready {
            self.ask(id, out);
        }
        if now_ms >= self.renew_ms + RENEW_MS {
            self.renew_ms = now_ms;
            self.recalled(out);
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

    /// Ends calls whose island has been away for too long.
    fn end_impatient(&mut self, now_ms: u64, out: &mut RouteOut<T>) {
        let Some(patience) = self.config.patience_ms else { return };
        let late = now_ms.saturating_sub(patience);
        for peer in self.peers.values_mut().filter(|p| !p.attached) {
            let calls = &mut self.calls;
            peer.waiting.retain(|id| {
                let Some(call) = calls.get(id) else { return false };
                if call.since_ms >= late {
                    return true;
                }
                let call = calls.remove(id).expect("looked at");
                // Whether a request that was on the way took effect is not known: its number is
                // never used again, and stays open until the session ends.
                Self::end(call, Err(Errno::EIO), None, None, out);
                false
            });
        }
    }

    fn end(
        call: Call<T>,
        result: Result<Answer, Errno>,
        data: Option<Bytes>,
        resolved: Option<Resolved>,
        out: &mut RouteOut<T>,
    ) {
        if let Some(token) = call.token {
            out.finished.push(Finished { token, result, data, resolved });
        }
    }
}

/// Whether a call changes something, so that its result must be remembered.
const fn changes(what: &What) -> bool {
    match what {
        What::Op(op) => matches!(
            op,
            Op::SetAttr { .. }
                | Op::Create { .. }
                | Op::Mkdir { .. }
                | Op::Unlink { .. }
                | Op::Rmdir { .. }
                | Op::Rename { .. }
                | Op::Link { .. }
                | Op::Write { .. }
                | Op::Fallocate { .. }
                | Op::CopyRange { .. }
                | Op::SetXattr { .. }
                | Op::RemoveXattr { .. }
                | Op::SetLock { .. }
        ),
        What::Walk(_) => false,
        // Releasing twice does no harm.
        What::Own(_) => false,
    }
}

fn client_op<T>(call: &Call<T>, dirs: &Dirs, table: &Table) -> ClientOp {
    match &call.what {
        What::Own(op) => op.clone(),
        What::Walk(path) => ClientOp::Resolve { path: path.clone() },
        What::Op(op) => match (op, &call.detour) {
            (Op::Lookup { dir, name }, Some(_)) => {
                ClientOp::Skeleton { parent: *dir, name: name.clone() }
            }
            (Op::GetAttr { ino }, Some(_)) => match stub_of(dirs, table, *ino) {
                // The parent owner has a stub of it, whether or not its skeleton has it.
                Some((owner, dir, name)) if owner == call.island => {
                    ClientOp::Fs { op: Op::Lookup { dir, name } }
                }
                _ => ClientOp::SkeletonAttr { ino: *ino },
            },
            (op, _) => ClientOp::Fs { op: op.clone() },
        },
    }
}

/// Who has the stub of a directory, and under which name.
fn stub_of(dirs: &Dirs, table: &Table, ino: Ino) -> Option<(IslandId, Ino, Name)> {
    let known = dirs.get(ino)?;
    let parent = dirs.get(known.parent)?;
    Some((table.owner(parent.key), known.parent, known.name.clone()?))
}
