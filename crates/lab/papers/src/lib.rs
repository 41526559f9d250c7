//! The papers' analyses, run with Atoll's own code on real data.
//!
//! Measures and predicts; never serves a volume and never changes what it looks at.

pub mod imbalance;
pub mod walk;

pub use imbalance::{Options, Report, imbalance};
