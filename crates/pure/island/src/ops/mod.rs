//! Operations of clients and of other islands: turns a request and the present rows into a decision, or
//! begins a transaction. Keeps nothing.

pub(crate) mod attrs;
mod beside;
pub(crate) mod between;
mod clear;
pub(crate) mod commit;
pub(crate) mod dirs;
mod fits;
pub(crate) mod names;
mod opening;
pub(crate) mod peers;
pub(crate) mod prepare;
pub(crate) mod rows;
pub(crate) mod run;
mod scope;
pub(crate) mod skeleton;
pub(crate) mod unchecked;
