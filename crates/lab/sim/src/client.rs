//! A client: the product's routing machine with a token for each call. It knows until when it could use what it might have kept, and in some
//! scenarios keeps answers.

use std::collections::{BTreeMap, BTreeSet};

use atoll_core::{Ino, IslandId, Key, SessionId};
use atoll_posix::{Answer, AttrsAround, Errno};
use atoll_proto::{ClientOp, FileHandle, Outcome};
use atoll_route::{KEEP_MS, OutgoingRequest, RecallOf, Route, RouteOut};

use crate::clocks::Pace;
use crate::kept::Kept;
use crate::leaders::Leader;
use crate::links::Party;
use crate::net::{Frame, ToClient};
use crate::world::{Short, World};

/// How an operation ended, with the bytes beside its answer.
pub type Done = Result<(Answer, Vec<u8>), Errno>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) route: Route<u64>,
    pub(crate) pace: Pace,
    next_token: u64,
    /// Operations that have begun and not ended.
    under_way: u64,
    done: BTreeMap<u64, Done>,
    /// What islands have answered to questions that were asked of them alone.
    pub(crate) told: Vec<(u64, Result<Outcome, Errno>)>,
    /// The last reply was `EIO`, and ended an operation.
    pub(crate) refused: bool,
    /// Files without a name of which an island has told that this mount may have them open.
    pub(crate) orphans: Vec<Ino>,
    /// What it has closed, so that it knows an orphan no more of which it is told late.
    pub(crate) closed: BTreeSet<Ino>,
    /// Files that it has looked up.
    pub(crate) looked_up: BTreeSet<Ino>,
    /// Its machine is suspended until then, by true time; 0: it runs.
    pub(crate) asleep_until_us: u64,
    /// What has come meanwhile, and is read when it runs again.
    pub(crate) unread: Vec<(usize, Frame<ToClient>)>,
    /// How often it has given a sign of life.
    pub(crate) renewals: u64,
    /// Until then, by its own clock, an answer that it was told may be used; 0: it has dropped all.
    pub(crate) kept_until_ms: u64,
    pub(crate) kept: Kept,
    /// Who leads each island that has several copies, as it has heard.
    pub(crate) leaders: BTreeMap<IslandId, Leader>,
    /// Counts how often that has changed.
    pub(crate) moves: u64,
    /// What was told of the attributes around the last operation that has ended.
    pub(crate) around: Vec<AttrsAround>,
    /// The directory that it sees only, with what is below it, and its key.
    pub(crate) scope: Option<(Ino, Key)>,
}

impl Client {
    pub(crate) fn new(route: Route<u64>, pace: Pace) -> Self {
        Self {
            route,
            pace,
            next_token: 0,
            under_way: 0,
            done: BTreeMap::new(),
            told: Vec::new(),
            refused: false,
            orphans: Vec::new(),
            closed: BTreeSet::new(),
            looked_up: BTreeSet::new(),
            asleep_until_us: 0,
            unread: Vec::new(),
            renewals: 0,
            kept_until_ms: 0,
            kept: Kept::default(),
            leaders: BTreeMap::new(),
            moves: 0,
            around: Vec::new(),
            scope: None,
        }
    }

    pub(crate) const fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// The token of an operation that begins.
    pub(crate) const fn begin(&mut self) -> u64 {
        self.under_way += 1;
        self.token()
    }

    /// Operations that have begun and not ended.
    pub(crate) const fn under_way(&self) -> u64 {
        self.under_way
    }

    /// An operation is answered by what is kept.
    pub(crate) fn answers(&mut self, token: u64, done: Done) {
        self.under_way -= 1;
        self.around = Vec::new();
        self.done.insert(token, done);
    }

    /// Nothing is kept any more.
    pub(crate) fn drops_all(&mut self) {
        self.kept_until_ms = 0;
        self.kept.void();
    }

    pub(crate) fn take(&mut self, token: u64) -> Option<Done> {
        self.done.remove(&token)
    }

    /// What it keeps of these is gone, and it says so.
    pub(crate) fn drops_of(&mut self, recall: &RecallOf, out: &mut RouteOut<u64>) {
        self.kept.void_of(&recall.inos);
        self.route.dropped_of(recall.number, out);
    }

    /// Takes in what the machine put out; what is to be sent is handed back, and whether what is kept
    /// must go, or what of it, which is done here if it takes no time. `data` came beside the reply that caused it.
    pub(crate) fn perform(
        &mut self,
        now_ms: u64,
        mut out: RouteOut<u64>,
        data: &[u8],
        drops_at_once: bool,
    ) -> (Vec<(IslandId, OutgoingRequest)>, bool, Option<RecallOf>) {
        let mut send = Vec::new();
        loop {
            let is_renewal = |sent: &&OutgoingRequest| sent.request.op == ClientOp::Lease;
            self.renewals += out.send.iter().filter(is_renewal).count() as u64;
            send.extend(out.send.drain(..).map(|sent| (sent.island, sent)));
            self.orphans.append(&mut out.orphans);
            self.told.extend(out.told.drain(..).map(|told| (told.token, told.outcome)));
            for finished in out.finished.drain(..) {
                self.under_way -= 1;
                self.around = finished.around;
                if self.route.may_keep(now_ms) {
                    self.kept_until_ms = now_ms + KEEP_MS;
                }
                let result = finished.result.map(|answer| {
                    let bytes = match (&answer, finished.data) {
                        (Answer::Data, Some(bytes)) => bytes.to_vec(),
                        (Answer::Data, None) => data.to_vec(),
                        _ => Vec::new(),
                    };
                    (answer, bytes)
                });
                let may_keep = finished.may_keep && self.route.may_keep(now_ms) && !out.recall;
                self.kept.ended(finished.token, &result, if may_keep { now_ms + KEEP_MS } else { 0 });
                self.done.insert(finished.token, result);
            }
            let (recall, recall_of) = (std::mem::take(&mut out.recall), out.recall_of.take());
            if !drops_at_once || (!recall && recall_of.is_none()) {
                return (send, recall, recall_of);
            }
            if let Some(recall_of) = recall_of {
                self.drops_of(&recall_of, &mut out);
            }
            if recall {
                self.drops_all();
                self.route.recalled(&mut out);
            }
        }
    }
}

impl World {
    /// A frontend of which only a handle is left looks for the file. Ends when [`World::poll`] says so.
    pub fn find(&mut self, client: usize, handle: &FileHandle) -> u64 {
        let (now_ms, token) = (self.client_ms(client), self.clients[client].begin());
        self.note(format_args!("client {client}: find {token} {handle:?}"));
        self.with_client(client, &[], |route, out| {
            route.find(now_ms, handle, token, out).expect("this volume has made it");
        });
        token
    }

    pub(crate) fn route_of(&self, session: SessionId, scope: Option<(Ino, Key)>) -> Route<u64> {
        Route::new(atoll_route::Config {
            seed: self.config.seed,
            table: self.table.clone(),
            islands: self.islands(),
            session,
            mount: self.config.mounts,
            keeps: self.config.mounts,
            patience_ms: None,
            scope,
        })
    }

    /// A process of a client begins in the place of one that has ended. The session of that one.
    pub(crate) fn begin_client(&mut self, client: usize, session: SessionId) -> SessionId {
        let scope = self.clients[client].scope;
        let new = Client { scope, ..Client::new(self.route_of(session, scope), self.clients[client].pace) };
        let old = std::mem::replace(&mut self.clients[client], new);
        old.route.session()
    }

    /// How many files an island holds for a session; none if it has none.
    pub fn held_by(&self, island: IslandId, session: SessionId) -> Option<usize> {
        let engine = self.engine_of(island)?;
        engine.with_island(|i| i.state().session(session).map(|row| row.held.len()))
    }

    /// A client reads what an island has sent.
    pub(crate) fn client_takes(&mut self, conn: usize, frame: Frame<ToClient>) {
        let Party::Client(client) = self.conns[conn].from else { return };
        let (Frame { island, message }, now_ms) = (frame, self.client_ms(client));
        self.note(format_args!("client {client}: from {island}: {}", Short(&message)));
        match message {
            ToClient::Reply { id, reply, data } => {
                let failed = matches!(reply.outcome, Outcome::Failed { errno: Errno::EIO });
                let under_way = self.clients[client].under_way();
                self.with_client(client, &data, |route, out| route.on_reply(now_ms, island, id, reply, out));
                let client = &mut self.clients[client];
                client.refused = failed && client.under_way() < under_way;
            }
            ToClient::Notice(notice) => {
                self.with_client(client, &[], |route, out| route.on_notice(island, notice, out));
            }
            ToClient::Leads { epoch } => self.client_hears(conn, client, island, epoch),
        }
    }
}
