//! Sites of a wide volume, each one island on a simulated disk with the product's machine beside it, and links between them that break.
//! Users change names and attributes at every site; processes die, power fails at any effect, and clocks are hours off.
//!
//! Judged: no site is ever taken for one that has gone back; at rest all sites know and show the same, by the rules of
//! `store/check`; a link that all sites had at rest before is there unless somebody has removed it; and what was gone at rest never comes back.

mod place;
mod rest;
mod run;
mod ways;

pub(crate) use run::run;
