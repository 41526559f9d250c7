//! Judges concurrent histories of a file system: is there one order of all operations, each between its start and its end,
//! in which a POSIX tree would have given just these answers?
//!
//! Knows nothing of Atoll: a history may come from any file system. Reads, searches, explains; never runs an
//! operation itself but in [`live`], which records what a mounted directory does.
//!
//! `docs/design/007-histories.md` tells what is judged and how.

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

/// What is not held against a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lenience {
    /// Linux decides by where it has directories, and hears of another mount's renames only when it looks these up
    /// again. So it may say `ESTALE` to anything, trying again helps; and to a rename between directories that are held
    /// open `EINVAL` or `ENOTEMPTY`, as if the one were still below the other.
    pub stale: bool,
}

impl Lenience {
    /// This answer says nothing.
    fn lets_pass(self, record: &Record) -> bool {
        let Answer::Error(error) = &record.answer else { return false };
        let rename = matches!(record.op, Op::Rename { .. });
        self.stale && (error == "ESTALE" || rename && (error == "EINVAL" || error == "ENOTEMPTY"))
    }
}

/// Judges a history, with no lenience. Takes as long as there are operations, as a rule; where many that are under way at the
/// same time change the same names, the number of their orders counts.
pub fn check(history: &History) -> Verdict {
    check_with(history, Lenience::default())
}

/// The same, but for what is not held against it.
pub fn check_with(history: &History, lenience: Lenience) -> Verdict {
    let program = match compile::compile(history, lenience) {
        Ok(program) => program,
        Err(absurd) => {
            return Verdict::Broken(explain::absurd(history, &absurd));
        }
    };
    let hasty = run(history, &program, true);
    match hasty {
        // There may still be an order, with numbers given otherwise.
        Verdict::Broken(_) if program.has_unnumbered() => run(history, &program, false),
        verdict => verdict,
    }
}

fn run(history: &History, program: &compile::Program, hasty: bool) -> Verdict {
    let mut search = search::Search::new(program, hasty);
    for (_, event) in &program.events {
        if let Err(stuck) = search.advance(*event) {
            let why = explain::stuck(history, program, search.base(), &stuck);
            return if stuck.gave_up { Verdict::Undecided(why) } else { Verdict::Broken(why) };
        }
    }
    Verdict::Fits { widest: search.widest }
}
