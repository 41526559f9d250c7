//! Links between the sites of wide volumes (`docs/design/023-wide.md`, "Links"): who is at the other end, two connections a pair, and
//! what is sent first. Carries messages, and never knows what one means.
//!
//! [`SiteKey`] is by what others know a site. [`SiteLinks`] listens, connects, and keeps the links of all volumes of a node; each volume
//! is there as a [`SiteVolume`]. [`join`] asks a site to be let into its volume.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod greeting;
mod join;
mod key;
mod lane;
mod links;
mod rate;
mod tls;

pub use greeting::{JoinAsk, Joined};
pub use join::{JoinError, join};
pub use key::{KeyError, SiteKey};
pub use links::{SiteLinkState, SiteLinks, SiteVolume};
pub use rate::Rate;
