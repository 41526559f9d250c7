//! The group records of islands in etcd (`docs/design/021-etcd.md`), and the etcd that a cluster runs for itself.
//!
//! One thread with an asynchronous runtime of its own speaks to etcd; everybody else calls and waits. No leases of etcd are used.
//! Never decides what a group does: it compares, swaps, and tells what it is not certain of.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod admin;
mod api;
mod care;
mod child;
mod client;
mod control;
mod endpoint;
mod grow;
mod keys;
mod plan;
mod plan_file;
mod source;
mod store;
mod watch;

pub use admin::{EtcdAdmin, EtcdAlarm, EtcdError, EtcdMember, MemberStatus};
pub use care::{EtcdCare, SNAPSHOT_EVERY};
pub use child::{Happened, Supervised};
pub use control::EtcdControl;
pub use grow::{Grown, grow};
pub use plan::{Beginning, MemberPlan, MemberStep, MemberTls, Restarts, VOTERS, next_step, wanted_members};
pub use plan_file::PlanFileError;
pub use source::{ETCD_HOSTS_MAX, ETCD_PREFIX, EtcdSource, EtcdSourceError, Password, Tls};
pub use store::EtcdStore;
