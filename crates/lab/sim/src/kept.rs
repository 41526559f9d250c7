//! Answers that a mount keeps, as a kernel and a frontend do: it uses them without asking, as long as it may. A change of its own voids all.

use atoll_core::Ino;
use atoll_posix::{Answer, Op};

use crate::client::Done;

/// Most answers that are kept.
const KEPT_MAX: usize = 100;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    answers: Vec<(Op, Done, u64)>,
    /// Looks that are under way, and may be kept.
    asked: Vec<(u64, Op)>,
}

impl Kept {
    /// The answer to an operation, if it is kept at this time. Otherwise the operation is begun.
    pub(crate) fn answer(&mut self, token: u64, op: &Op, now_ms: u64) -> Option<Done> {
        if op.changes() {
            self.void();
            return None;
        }
        self.answers.retain(|(_, _, until_ms)| *until_ms > now_ms);
        let kept = self.usable(op, now_ms).cloned();
        if kept.is_none() {
            self.asked.push((token, op.clone()));
        }
        kept
    }

    /// What may be used at this time.
    pub(crate) fn usable(&self, op: &Op, now_ms: u64) -> Option<&Done> {
        let is_it = |(kept, _, until_ms): &&(Op, Done, u64)| kept == op && *until_ms > now_ms;
        self.answers.iter().find(is_it).map(|(_, done, _)| done)
    }

    /// An operation has ended. The answer may be kept until then; 0: not at all.
    pub(crate) fn ended(&mut self, token: u64, done: &Done, until_ms: u64) {
        let asked = self.asked.iter().position(|(of, _)| *of == token).map(|at| self.asked.swap_remove(at));
        if let Some((_, op)) = asked
            && until_ms > 0
            && is_kept(done)
            && self.answers.len() < KEPT_MAX
        {
            self.answers.push((op, done.clone(), until_ms));
        }
    }

    /// Its clock stands still for so long, and goes on.
    pub(crate) fn stands_still(&mut self, ms: u64) {
        self.answers.iter_mut().for_each(|(_, _, until_ms)| *until_ms += ms);
    }

    /// Nothing that is kept of these may be used.
    pub(crate) fn void_of(&mut self, inos: &[Ino]) {
        self.answers.retain(|(op, done, _)| !tells_of(op, done, inos));
    }

    /// Nothing that is kept, or under way, may be used.
    pub(crate) fn void(&mut self) {
        self.answers.clear();
        self.asked.clear();
    }
}

/// Whether an answer tells anything of these files and directories.
fn tells_of(op: &Op, done: &Done, inos: &[Ino]) -> bool {
    let is_one = |ino: &Ino| inos.contains(ino);
    op.subjects().iter().chain([&op.file()]).flatten().any(is_one)
        || match done {
            Ok((Answer::Found { found }, _)) => is_one(&found.attr.ino),
            Ok((Answer::Attr { attr }, _)) => is_one(&attr.ino),
            Ok((Answer::Entries { entries, .. }, _)) => {
                entries.iter().filter_map(|entry| entry.found.as_ref()).any(|found| is_one(&found.attr.ino))
            }
            _ => false,
        }
}

/// Whether a kernel keeps such an answer.
fn is_kept(done: &Done) -> bool {
    match done {
        Ok((Answer::Found { found }, _)) => found.attr_current,
        Ok((answer, _)) => matches!(answer, Answer::Attr { .. } | Answer::Data | Answer::Entries { .. }),
        Err(why) => *why == atoll_posix::Errno::ENOENT,
    }
}
