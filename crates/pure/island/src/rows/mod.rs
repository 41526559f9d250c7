//! Changes of rows, whichever machine decides them: functions on a decision that is being made. None of them
//! decides, sends or waits.

pub(crate) mod chains;
pub(crate) mod files;
#[cfg(test)]
pub(crate) mod heard_late;
pub(crate) mod hints;
pub(crate) mod homes;
pub(crate) mod moves;
pub(crate) mod path;
mod places;
mod removed_dirs;
mod renaming;
pub(crate) mod skeleton;
mod txns;
