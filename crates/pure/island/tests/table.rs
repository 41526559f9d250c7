//! A table that changes while an island serves: who is told of it, and what may not change yet.

use atoll_core::table::Bucket;
use atoll_core::{Ino, IslandId, SessionId, Table, Time};
use atoll_island::{Config, Effect, Event, Island, LinkId, Now, PreviousEnd};
use atoll_posix::{Caller, Op};
use atoll_proto::{ClientOp, Outcome, Request};
use atoll_state::State;
use bytes::Bytes;

const LINK: LinkId = LinkId(1);
const SESSION: SessionId = SessionId(7);

struct World {
    island: Island,
    outcomes: Vec<Outcome>,
}

impl World {
    fn new(table: Table) -> Self {
        let config = Config::new(IslandId(0), 1, table, vec![IslandId(0)]);
        let island = Island::new(config, State::new(1), PreviousEnd::PowerCut, Now::default());
        let mut world = Self { island, outcomes: Vec::new() };
        world.event(Event::Tick { bytes_available: 1 << 40 });
        world
    }

    fn event(&mut self, event: Event) {
        let mut out = Vec::new();
        self.island.handle(Now { wall: Time::default(), ms: 100 }, event, &mut out);
        self.island.check();
        for effect in out {
            match effect {
                Effect::Append(seq, ..) => self.event(Event::Committed(seq)),
                Effect::Sync => self.event(Event::Synced(self.island.state().seq())),
                Effect::Reply { reply, .. } => self.outcomes.push(reply.outcome),
                Effect::Load { load, generation } => {
                    let loaded = load.nothing();
                    self.event(Event::Loaded { load, generation, loaded });
                }
                other => unreachable!("{other:?}: nobody else is there, and no file"),
            }
        }
    }

    /// What a client that knows this version of the table is answered.
    fn ask(&mut self, table: u64, op: ClientOp) -> Outcome {
        let (session, vector, caller) = (SESSION, Vec::new(), Caller::ROOT);
        let request = Request { session, seq: 0, acked: 0, table, vector, caller, op };
        self.event(Event::Request { link: LINK, id: 1, request, data: Bytes::new() });
        self.outcomes.pop().expect("it is answered at once")
    }
}

fn stat() -> ClientOp {
    ClientOp::Fs { op: Op::GetAttr { ino: Ino::ROOT } }
}

#[test]
fn a_client_with_the_old_table_is_told_the_new_one_and_served_when_it_has_it() {
    let first = Table::new(1);
    let mut world = World::new(first.clone());
    world.ask(1, ClientOp::Attach { mount: false });
    assert!(matches!(world.ask(1, stat()), Outcome::Ok { .. }));
    let second = first.doubled();
    world.event(Event::Table(second.clone()));
    assert_eq!(world.ask(1, stat()), Outcome::StaleTable { table: second.clone() });
    assert!(matches!(world.ask(2, stat()), Outcome::Ok { .. }));
    // An older table that comes late, and the same one again, change nothing.
    world.event(Event::Table(first));
    world.event(Event::Table(second.clone()));
    assert_eq!(world.island.config().table, second);
    assert!(matches!(world.ask(2, stat()), Outcome::Ok { .. }));
}

#[test]
#[should_panic(expected = "table 2 gives directories to others than table 1")]
fn a_table_that_gives_a_directory_to_another_island_stops_the_node() {
    let table = Table::new(1);
    let mut world = World::new(table.clone());
    world.event(Event::Table(table.reassigned([(Bucket(3), IslandId(1))])));
}
