//! Members of a union that is shown, over simulated trees: how they are, and how they come and go.

use std::sync::Arc;

use atoll_core::Time;
use atoll_federal::Federation;
use atoll_member::{SimTree, Tree};
use atoll_union::{MemberState, Moment, Settings, Tag};

struct World {
    trees: Vec<Arc<SimTree>>,
    union: Arc<Federation>,
}

fn moment(ms: u64) -> Moment {
    Moment { ms: ms + 1, wall: Time { secs: 10_000, nanos: 0 }.plus_millis(ms) }
}

fn tree(n: u16) -> Arc<SimTree> {
    Arc::new(SimTree::new(u64::from(n), Time { secs: 1_000 + i64::from(n), nanos: 0 }))
}

impl World {
    /// A union whose clock stands until the test sets it.
    fn new(members: u16) -> Self {
        let trees: Vec<_> = (0..members).map(tree).collect();
        let opened =
            trees.iter().zip(1..).map(|(tree, n)| (Tag(n), false, Arc::clone(tree) as Arc<dyn Tree>));
        let union = Federation::stepped(Settings::default(), opened.collect(), moment(0));
        Self { trees, union }
    }
}

#[test]
fn it_is_known_since_when_a_member_is_away() {
    let world = World::new(2);
    let state = || {
        let machine = world.union.machine();
        let member = machine.members().get(Tag(2)).unwrap();
        (member.state, member.since)
    };
    assert_eq!(state(), (MemberState::Serving, moment(0).ms));
    world.trees[1].set_faults(|faults| faults.away = true);
    world.union.step(moment(300));
    assert_eq!(state(), (MemberState::Away, moment(300).ms));
    world.union.step(moment(900));
    assert_eq!(state(), (MemberState::Away, moment(300).ms), "it has been away since then");
}
