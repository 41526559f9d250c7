//! A mount that keeps answers is suspended with its machine, or one of its links is reset and only the island
//! sees that. Another mount makes a change meanwhile: from then on the first uses nothing that it kept before.

use atoll_core::Ino;
use atoll_posix::{Answer, Caller, Op, SetAttr};
use bytes::Bytes;

use crate::cause::Failure;
use crate::client::Done;
use crate::links::{Party, SILENCE_US};
use crate::recalls::alone;
use crate::scenario::Run;
use crate::world::{Config, Happening, World};

/// A machine is suspended for so long at most, in microseconds.
const SLEEP_US_MAX: u64 = 60_000_000;
/// The mode that the other mount gives the file.
const CHANGED: u32 = 0o600;
/// Before the other mount comes, at most.
const PAUSE_US: u64 = 8_000_000;
/// By then it is let in, whatever the first one does.
const PATIENCE_US: u64 = 60_000_000;
/// What the first mount keeps after that is seen to.
const AFTER_US: u64 = 20_000_000;
/// A mount asks for attributes as often as this.
const ASK_US: u64 = 300_000;

impl World {
    /// Something between a client and its islands ends their links, and only the islands see that. The client
    /// notices when it has heard nothing for a while.
    pub fn reset_at_islands(&mut self, client: usize) {
        self.note(format_args!("client {client}: its links are reset at the islands"));
        let now_ms = self.now_us() / 1000;
        for conn in 0..self.conns.len() {
            let c = &mut self.conns[conn];
            if c.from == Party::Client(client) && std::mem::take(&mut c.whole) {
                c.dialer.closed(now_ms);
                let (to, generation) = (c.to, c.generation);
                c.broken = (generation, 0, 0);
                let life = self.machines[to].life;
                self.faults += 1;
                self.injected.breaks += 1;
                self.schedule(1, Happening::LinkGone { conn, generation, life, ended: true });
                self.schedule(SILENCE_US, Happening::Closed { conn, generation });
            }
        }
    }

    /// The answer to a look that a client may use now without asking. None while it stands still.
    fn kept_by(&self, client: usize, look: &Op) -> Option<Done> {
        let kept = &self.clients[client].kept;
        kept.usable(look, self.client_ms(client)).filter(|_| !self.is_asleep(client)).cloned()
    }

    /// How often a client has given a sign of life.
    pub fn renewals(&self, client: usize) -> u64 {
        self.clients[client].renewals
    }
}

/// What happens to the mount that is alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// Its machine is suspended for so many microseconds, with a sign of life and a question under way.
    Suspended(u64),
    /// Its links are reset, which only the islands see.
    ResetAtIslands,
}

pub(crate) fn run(run: &mut Run) -> Result<(), Failure> {
    let mut config = Config::new(run.seed, 1 + (run.seed % 3) as u16);
    config.drifts = true;
    let (world, ino) = alone(config)?;
    let world = run.world.insert(world);
    let mishap = if world.rng.percent(50) {
        Mishap::Suspended(world.rng.below(SLEEP_US_MAX))
    } else {
        Mishap::ResetAtIslands
    };
    let pause_us = world.rng.below(PAUSE_US);
    happens(world, ino, mishap, pause_us)
}

/// What happens to the first mount, which keeps a file as it is, and then another one, which was cut off, changes
/// that file: so long after the mishap it can attach.
pub fn happens(world: &mut World, ino: Ino, mishap: Mishap, pause_us: u64) -> Result<(), Failure> {
    let ask = Op::GetAttr { ino };
    world.run(0, &Caller::ROOT, ask.clone(), Bytes::new())?.map_err(unseen)?;
    if let Mishap::Suspended(_) = mishap {
        // Its next sign of life is on its way when it falls asleep.
        let renewals = world.renewals(0);
        while world.renewals(0) == renewals {
            world.step()?;
        }
    }
    if !world.keeps(0) {
        return Err(Failure::new("who is alone keeps nothing"));
    }
    // Whether each was asked behind the change.
    let mut asked = vec![(world.call(0, &Caller::ROOT, ask.clone(), Bytes::new(), 0), false)];
    match mishap {
        Mishap::Suspended(us) => {
            world.run_for(1)?;
            world.suspend(0, us);
            // Its kernel's time for what it keeps stands still. Only here, where it drops all at once: a kernel may use it until then.
            let us_of = |us| world.clients[0].pace.ms(us);
            let slept_ms = us_of(world.now_us() + us) - us_of(world.now_us());
            world.clients[0].kept.stands_still(slept_ms);
        }
        Mishap::ResetAtIslands => world.reset_at_islands(0),
    }
    world.run_for(pause_us)?;
    let set = SetAttr { mode: Some(CHANGED), ..SetAttr::default() };
    let change = world.call(1, &Caller::ROOT, Op::SetAttr { ino, set }, Bytes::new(), 0);
    world.heal();
    let (mut until, mut next_us, mut changed) = (world.now_us() + PATIENCE_US, world.now_us(), false);
    loop {
        if let Some(done) = world.poll(1, change) {
            done.map_err(|why| Failure::new(format!("the change fails: {why:?}")))?;
            changed = true;
            until = world.now_us() + AFTER_US;
        }
        if changed && !world.is_asleep(0) {
            until = until.max(world.clients[0].asleep_until_us + AFTER_US);
        }
        if world.now_us() > until {
            break;
        }
        if changed && let Some(kept) = world.kept_by(0, &ask).filter(|kept| !shows_change(kept)) {
            return Err(Failure::new(format!(
                "a mount may use what it kept after another one has changed it: {kept:?}"
            )));
        }
        // It goes on asking all the time, also while an island does not answer.
        for (token, is_behind) in std::mem::take(&mut asked) {
            match world.poll(0, token) {
                Some(done) if is_behind && !shows_change(&done) => {
                    return Err(Failure::new(format!("a mount is told what is long changed: {done:?}")));
                }
                Some(_) => {}
                None => asked.push((token, is_behind)),
            }
        }
        if !world.is_asleep(0) && world.now_us() >= next_us {
            next_us = world.now_us() + ASK_US;
            asked.push((world.call(0, &Caller::ROOT, ask.clone(), Bytes::new(), 0), changed));
        }
        world.step()?;
    }
    if !changed {
        return Err(Failure::new("the second mount is never let in"));
    }
    world.converge()
}

/// Whether this is how the file is behind the change.
fn shows_change(done: &Done) -> bool {
    matches!(done, Ok((Answer::Attr { attr }, _)) if attr.mode & 0o777 == CHANGED)
}

fn unseen(why: atoll_posix::Errno) -> Failure {
    Failure::new(format!("who is alone sees nothing: {why:?}"))
}
