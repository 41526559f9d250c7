//! A client whose islands are played by the test.

use atoll_core::{IslandId, SessionId, Table};
use atoll_proto::{ClientOp, Lease, MayKeep, Outcome, Reply};
use atoll_route::{Config, OutgoingRequest, Route, RouteOut};

/// See the module.
pub(crate) struct Client {
    pub route: Route<u32>,
    pub out: RouteOut<u32>,
}

impl Client {
    /// A mount that is attached to islands 0 and up, and waits for so long for one that is away.
    pub(crate) fn new(islands: u16, patience_ms: Option<u64>) -> Self {
        let (session, mount, table) = (SessionId(7), true, Table::new(islands));
        let islands: Vec<IslandId> = (0..islands).map(IslandId).collect();
        let config = Config {
            seed: 1,
            table,
            islands: islands.clone(),
            session,
            mount,
            keeps: mount,
            patience_ms,
            scope: None,
        };
        let mut client = Self { route: Route::new(config), out: RouteOut::default() };
        for island in islands {
            client.route.reachable(island, true, &mut client.out);
        }
        client.attached();
        client.out = RouteOut::default();
        client
    }

    /// Answers what attaches the session; the other requests.
    pub(crate) fn attached(&mut self) -> Vec<OutgoingRequest> {
        let (attaching, others): (Vec<OutgoingRequest>, Vec<OutgoingRequest>) =
            std::mem::take(&mut self.out.send)
                .into_iter()
                .partition(|sent| matches!(sent.request.op, ClientOp::Attach { .. } | ClientOp::Dropped));
        for sent in attaching {
            self.reply(&sent, Outcome::Attached { lease: Lease::No, power: 1 });
        }
        others
    }

    /// The island that was asked answers.
    pub(crate) fn reply(&mut self, sent: &OutgoingRequest, outcome: Outcome) {
        self.reply_to_keep(sent, MayKeep::Yes, outcome);
    }

    /// The same, and says whether that may be kept.
    pub(crate) fn reply_to_keep(&mut self, sent: &OutgoingRequest, may_keep: MayKeep, outcome: Outcome) {
        let reply = Reply { vector: Vec::new(), may_keep, outcome };
        self.route.on_reply(0, sent.island, sent.id, reply, &mut self.out);
    }
}
