//! What an operation reads: rows, and the machines that can hold it back. A look changes nothing.

use crate::ctx::Ctx;
use crate::recovery::start::Recovery;
use crate::txn::locks::Holds;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look<'a> {
    pub(crate) ctx: &'a Ctx,
    pub(crate) locks: &'a Holds,
    pub(crate) recovery: &'a Recovery,
}
