//! Judges concurrent histories of a file system: is there one order of all operations, each between its start
//! and its end, in which a POSIX tree would have given just these answers?
//!
//! Knows nothing of Atoll: a history may come from any file system. Reads, searches, explains. Only [`live`]
//! runs operations itself, and records the answers of a mounted directory.
//!
//! `docs/design/007-histories.md` says what is judged and how.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod cell;
mod compile;
mod explain;
pub mod history;
pub mod live;
mod reach;
mod search;
mod step;

use std::fmt;

pub use crate::history::{Answer, Found, History, How, Id, Kind, Listed, Op, Record};

/// What was found out about a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order.
    Fits {
        /// Between how many trees it was open at the worst moment, in one place.
        widest: usize,
    },
    /// There is none.
    Broken(Explanation),
    /// There are too many that would have to be tried.
    Undecided(Explanation),
}

impl Verdict {
    /// Whether there is an order.
    pub fn fits(&self) -> bool {
        matches!(self, Self::Fits { .. })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fits { .. } => write!(f, "some order of the operations explains all answers"),
            Self::Broken(why) => write!(f, "no order of the operations explains this:\n{why}"),
            Self::Undecided(why) => write!(f, "too many orders are possible to try them all:\n{why}"),
        }
    }
}

/// Why there is no order, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The record that has no place, by its position in the history.
    pub record: usize,
    /// The operations, the paths, and why no order fits.
    pub text: String,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Renames that are tried as ones that had nothing left to do, for each operation that does not fit.
const TRIED_MAX: usize = 8;

/// What is not held against a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lenience {
    /// Linux decides by where it has directories, and hears of another mount's renames only when it looks these up
    /// again. So it may say `ESTALE` to anything, trying again helps; `ELOOP` to anything that finds a directory below
    /// where it has that; and to a rename between directories that are held open `EINVAL` or `ENOTEMPTY`, as if the one
    /// were still below the other.
    pub stale: bool,
    /// Through several mounts: Linux looks the two names of a rename up one after the other, and judges by what each was
    /// then. So it may say `EISDIR` or `ENOTDIR` though they never were such two at once; and where another mount does
    /// the same in between, by one rename or several, it finds the same file twice, which makes it say that all is done.
    pub apart: bool,
}

impl Lenience {
    /// This answer says nothing.
    fn lets_pass(self, record: &Record) -> bool {
        let Answer::Error(error) = &record.answer else { return false };
        let rename = matches!(record.op, Op::Rename { .. });
        let error = error.as_str();
        let by_place =
            matches!(error, "ESTALE" | "ELOOP") || rename && matches!(error, "EINVAL" | "ENOTEMPTY");
        let by_count = matches!(record.op, Op::Link { .. }) && error == "ENOENT";
        self.stale && (by_place || by_count) || self.apart && rename && matches!(error, "EISDIR" | "ENOTDIR")
    }
}

/// Judges a history, with no lenience. Takes as long as there are operations, as a rule; where many that are under way at the
/// same time change the same names, the number of their orders counts.
pub fn check(history: &History) -> Verdict {
    check_with(history, Lenience::default())
}

/// The same, but for what is not held against it.
pub fn check_with(history: &History, lenience: Lenience) -> Verdict {
    let mut program = match compile::compile(history, lenience) {
        Ok(program) => program,
        Err(absurd) => {
            return Verdict::Broken(explain::absurd(history, &absurd));
        }
    };
    let (mut verdict, mut reached) = decide(history, &program);
    let mut others = if lenience.apart { compile::done_by_others(history) } else { Vec::new() };
    // Which of them had nothing left to do is found by trying: those that began last before it did not fit.
    while matches!(verdict, Verdict::Broken(_)) {
        let stuck_at = program.events.get(reached).map_or(u64::MAX, |(time, _)| *time);
        let mut near: Vec<usize> =
            others.iter().copied().filter(|at| history.records[*at].start <= stuck_at).collect();
        near.sort_by_key(|at| std::cmp::Reverse(history.records[*at].start));
        let better = near.into_iter().take(TRIED_MAX).find_map(|at| {
            let without = program.without(at);
            let (verdict, further) = decide(history, &without);
            (further > reached).then_some((at, without, verdict, further))
        });
        let Some((at, without, next, further)) = better else { break };
        others.retain(|other| *other != at);
        (program, verdict, reached) = (without, next, further);
    }
    verdict
}

/// The verdict, and how many events fit.
fn decide(history: &History, program: &compile::Program) -> (Verdict, usize) {
    let hasty = run(history, program, true);
    match hasty.0 {
        // There may still be an order, with numbers given otherwise.
        Verdict::Broken(_) if program.has_unnumbered() => run(history, program, false),
        _ => hasty,
    }
}

fn run(history: &History, program: &compile::Program, hasty: bool) -> (Verdict, usize) {
    let mut search = search::Search::new(program, hasty);
    for (at, (_, event)) in program.events.iter().enumerate() {
        if let Err(stuck) = search.advance(*event) {
            let why = explain::stuck(history, program, search.base(), &stuck);
            return (if stuck.gave_up { Verdict::Undecided(why) } else { Verdict::Broken(why) }, at);
        }
    }
    (Verdict::Fits { widest: search.widest }, program.events.len())
}
