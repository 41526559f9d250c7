//! What an operation reads: rows, and the machines that can hold it back. A look changes nothing.

use crate::ctx::Ctx;
use crate::recovery::Recovery;
use crate::txn::Txns;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look<'a> {
    pub(crate) ctx: &'a Ctx,
    pub(crate) txns: &'a Txns,
    pub(crate) recovery: &'a Recovery,
}
