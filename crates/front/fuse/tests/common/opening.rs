//! The opens of the volume in memory: which there are, and what becomes of the next ones.

use atoll_core::Ino;
use atoll_posix::Errno;
use atoll_vfs::{OpenDone, OpenFor, Opened};
use std::sync::Mutex;

#[derive(Default)]
pub struct Opening {
    /// Whether the volume wants to hear of opens. Before it is mounted.
    pub hears: bool,
    /// What is open, by the number that the mount was given.
    pub open: Vec<(u64, Ino, OpenFor)>,
    /// Opens so far.
    pub opened: u64,
    /// Closes of what was not open.
    pub strange: Vec<(Ino, u64)>,
    /// Each open fails so.
    pub refused: Option<Errno>,
    /// Opens wait until `let_go`.
    pub put_off: bool,
    pub waiting: Vec<(Ino, OpenFor, OpenDone)>,
}

/// The outcome of an open now.
fn outcome(state: &Mutex<Opening>, ino: Ino, how: OpenFor) -> Result<Opened, Errno> {
    let mut state = state.lock().unwrap();
    if let Some(why) = state.refused {
        return Err(why);
    }
    state.opened += 1;
    let open = state.opened;
    state.open.push((open, ino, how));
    Ok(Opened { open, backing: None })
}

pub fn open(state: &Mutex<Opening>, ino: Ino, how: OpenFor, done: OpenDone) {
    {
        let mut state = state.lock().unwrap();
        if state.put_off {
            return state.waiting.push((ino, how, done));
        }
    }
    done(outcome(state, ino, how));
}

pub fn close(state: &Mutex<Opening>, ino: Ino, open: u64) {
    let mut state = state.lock().unwrap();
    let before = state.open.len();
    state.open.retain(|one| (one.0, one.1) != (open, ino));
    if state.open.len() == before {
        state.strange.push((ino, open));
    }
}

/// Completes every open that waits.
pub fn let_go(state: &Mutex<Opening>) {
    let waiting = {
        let mut state = state.lock().unwrap();
        state.put_off = false;
        std::mem::take(&mut state.waiting)
    };
    waiting.into_iter().for_each(|(ino, how, done)| done(outcome(state, ino, how)));
}
