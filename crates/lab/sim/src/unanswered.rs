//! An island can send to another one that cannot answer, and no relay connects them. So the other one is
//! away, and no change of a directory waits for it.

use atoll_core::IslandId;
use atoll_posix::{Caller, Errno, Op, SetAttr};
use bytes::Bytes;

use crate::cause::Failure;
use crate::links::{Cut, Party};
use crate::scenario::Run;
use crate::votes::directory;
use crate::world::{Config, World};

/// By then both have noticed the cut, which ends their link at once.
const NOTICED_US: u64 = 1_000_000;
/// How long a change may take. What waits for an answer that cannot come is given up after 10 s.
const STALL_US_MAX: u64 = 3_000_000;

pub(crate) fn run(run: &mut Run) -> Result<(), Failure> {
    let config = Config::new(run.seed, 3);
    let world = run.world.insert(World::new(config.clone())?);
    let hearing = world.any_island();
    let mute = IslandId((hearing.0 + 1 + world.rng.index(2) as u16) % 3);
    let dir = directory(world, &config, mute)?;
    let mine = directory(world, &config, hearing)?;
    world.settle()?;
    // What is sent to the other one arrives; it cannot open a link to answer.
    let machine = |island| Party::Machine(world.machine_of(island));
    world.cut_way(machine(mute), machine(hearing), Cut::Opening { both: false });
    world.run_for(NOTICED_US)?;
    for mode in [0o700, 0o711] {
        let op = Op::SetAttr { ino: mine, set: SetAttr { mode: Some(mode), ..SetAttr::default() } };
        let token = world.call(0, &Caller::ROOT, op.clone(), Bytes::new(), 0);
        let until = world.now_us() + STALL_US_MAX;
        let done = loop {
            if let Some(done) = world.poll(0, token) {
                break done;
            }
            if world.now_us() > until {
                return Err(Failure::new(format!("{op:?} waits for an island that cannot answer")));
            }
            world.step()?;
        };
        // If the other one has its name, it cannot be asked.
        if !matches!(done, Ok(_) | Err(Errno::EIO)) {
            return Err(Failure::new(format!("{op:?}: {done:?}")));
        }
    }
    world.partition(|_| true);
    world.settle()?;
    let look = Op::GetAttr { ino: dir };
    if let Err(why) = world.run(0, &Caller::ROOT, look, Bytes::new())? {
        return Err(Failure::new(format!("the other one's directory: {why:?}")));
    }
    world.converge()
}
