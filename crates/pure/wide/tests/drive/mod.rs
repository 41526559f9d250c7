//! Random operations on the island of a site and on the model, which do the same.

#![allow(
    dead_code,
    clippy::disallowed_methods,
    reason = "each test uses a part, and may read its environment"
)]

use atoll_core::{Ino, SessionId, Time};
use atoll_island::Beside;
use atoll_model::{AtimeRule, Dump, Model, Outcome, Rng, Step, Strictness, Weights, Workload};
use atoll_posix::acl::ACCESS_XATTR;
use atoll_posix::{Answer, AtimeRule as MarksReads, Caller, Errno, Op, Readings};
use atoll_wide::watch::Happened;
use bytes::Bytes;

use crate::site::{Memory, Site};

/// The clients of [`Workload::new`].
const SESSIONS: [SessionId; 4] = [SessionId(1), SessionId(2), SessionId(3), SessionId(4)];
/// Files without a name that the clients have open at most.
const ORPHANS_MAX: usize = 12;

/// Mostly changes. The bodies of the test tell of no holes.
const WEIGHTS: Weights = Weights {
    lookup: 1,
    get_attr: 1,
    set_attr: 12,
    create: 14,
    mkdir: 7,
    unlink: 8,
    rmdir: 4,
    rename: 18,
    link: 6,
    read: 3,
    write: 14,
    fallocate: 5,
    copy_range: 3,
    fsync: 2,
    read_dir: 1,
    set_xattr: 6,
    remove_xattr: 3,
    set_lock: 2,
    ..Weights::NONE
};

/// What an operation did, and when.
pub(crate) struct Done {
    pub(crate) op: Op,
    pub(crate) told: Vec<Happened>,
    pub(crate) now: Time,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Driver {
    pub(crate) site: Site,
    pub(crate) model: Model,
    workload: Workload,
    pub(crate) rng: Rng,
    is_mount: bool,
}

impl Driver {
    pub(crate) fn new(seed: u64, memory: Memory, beside: Option<Box<dyn Beside>>) -> Self {
        // As mounts, the clients have files and directories open that lose their names.
        let is_mount = !seed.is_multiple_of(3);
        let site = Site::new(memory, &SESSIONS, is_mount, beside);
        let row = site.state().dir(Ino::ROOT).unwrap().unwrap();
        let made = row.owned.as_ref().unwrap().btime;
        let model = Model::new(made, AtimeRule::Never).walked();
        let workload = Workload::new(seed, WEIGHTS).with_meaning();
        Self { site, model, workload, rng: Rng::new(!seed), is_mount }
    }

    /// What comes next is drawn by another seed.
    pub(crate) fn drawn_by(&mut self, seed: u64) {
        self.workload = Workload::new(seed, WEIGHTS).with_meaning();
        self.rng = Rng::new(!seed);
    }

    fn step(&mut self) -> Step {
        let mut step = self.workload.next(&self.model);
        if let Op::SetXattr { name, kill_sgid, .. } = &mut step.op {
            // A kernel asks for this with an access ACL only.
            *kill_sgid &= name == ACCESS_XATTR;
        }
        if !self.rng.percent(4) {
            return step;
        }
        let all: Vec<Ino> = self.model.inos().collect();
        let (ino, now) = (*self.rng.pick(&all), self.site.now());
        let access = Readings { first: now, last: now, rule: MarksReads::Strict };
        Step { op: Op::Accessed { ino, access }, data: Bytes::new(), ..step }
    }

    /// One operation, of the island and of the model, and what was watched of it.
    pub(crate) fn operation(&mut self) -> Done {
        let Step { session, caller, op, data } = self.step();
        let got = self.site.run(session, &caller, op.clone(), data.clone());
        let now = self.site.now();
        let told = self.site.take_happened();
        if let Ok((Answer::Found { found }, _)) = &got
            && matches!(op, Op::Create { .. } | Op::Mkdir { .. })
            && self.model.attr(found.attr.ino).is_none()
        {
            self.model.set_next_ino(found.attr.ino);
        }
        let expected = self.model.apply(now, session, &caller, &op, &data);
        agree(&op, &got, &expected);
        if got.is_err() || !changes_tree(&op) {
            assert_eq!(told, [], "{op:?} changes nothing");
        }
        Done { op, told, now }
    }

    /// What has no name goes: at once if nobody may have it open, otherwise some time.
    pub(crate) fn let_go(&mut self) {
        let nameless = |ino: &Ino| self.model.attr(*ino).is_some_and(|attr| attr.nlink == 0);
        let mut orphans: Vec<Ino> = self.model.inos().filter(nameless).collect();
        if self.is_mount {
            if orphans.len() <= ORPHANS_MAX {
                return;
            }
            orphans.truncate(1 + self.rng.index(ORPHANS_MAX));
            self.site.release(&orphans);
            assert_eq!(self.site.take_happened(), [], "nobody saw {orphans:?} any more");
        }
        orphans.iter().for_each(|ino| self.model.forget(*ino));
    }

    /// Goes back to what was there at another time. What comes next is drawn as if nothing had happened.
    pub(crate) fn go_back(&mut self, to: Self) {
        let Self { site, model, .. } = to;
        (self.site, self.model) = (site, model);
    }

    /// The island's tree is the model's.
    pub(crate) fn compare_all(&mut self) {
        let site = &mut self.site;
        let mut run = |op: &Op| {
            let (answer, data) = site.run(SESSIONS[0], &Caller::ROOT, op.clone(), Bytes::new())?;
            Ok((answer, data.to_vec()))
        };
        let got = Dump::walk(&mut run).expect("a tree that can be read");
        let strict = Strictness { apart_ns: 100, ..Strictness::FULL };
        assert_eq!(Dump::of(&self.model).differences(&got, strict), [""; 0]);
        assert_eq!(self.site.take_happened(), [], "nothing has changed");
    }
}

/// The island does what the model does: otherwise nothing is said of what was watched. With which error it refuses, and what it
/// answers to questions that a kernel does not ask, is judged by the simulator.
fn agree(op: &Op, got: &Result<(Answer, Bytes), Errno>, expected: &Result<Outcome, Errno>) {
    match (got, expected) {
        (Ok((_, data)), Ok(Outcome::Answered(_, bytes))) if matches!(op, Op::Read { .. }) => {
            assert!(data[..] == bytes[..], "{op:?} reads other bytes");
        }
        // The model only finds the directory that is there.
        (Err(Errno::EISDIR), Ok(_)) if matches!(op, Op::Create { exclusive: false, .. }) => {}
        _ if changes_tree(op) => {
            assert_eq!(got.is_ok(), expected.is_ok(), "{op:?}: {got:?}, {expected:?}")
        }
        _ => {}
    }
}

/// Whether an operation can change what is watched.
const fn changes_tree(op: &Op) -> bool {
    op.changes() && !matches!(op, Op::SetLock { .. })
}

/// A number from the environment.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
