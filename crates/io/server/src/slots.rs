//! Which islands are at this node: a value for each, which may come and go while others use them. Never says what that means
//! to anybody.
//!
//! Whoever looks takes no lock, because every request looks. Whoever changes it makes a new map.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use atoll_core::IslandId;

/// The islands at one time.
pub(crate) type Islands<T> = BTreeMap<IslandId, Arc<T>>;

/// See the module.
pub(crate) struct Slots<T: ?Sized>(ArcSwap<Islands<T>>);

impl<T: ?Sized> Default for Slots<T> {
    fn default() -> Self {
        Self(ArcSwap::default())
    }
}

impl<T: ?Sized> Slots<T> {
    /// The islands that are here now. Held for as long as they are used.
    pub(crate) fn now(&self) -> Guard<Arc<Islands<T>>> {
        self.0.load()
    }

    /// The same, to be kept.
    pub(crate) fn all(&self) -> Arc<Islands<T>> {
        self.0.load_full()
    }

    /// These are here from now on. Returns those that were. Whoever has begun with one of these goes on with it.
    pub(crate) fn set(&self, islands: Islands<T>) -> Arc<Islands<T>> {
        self.0.swap(Arc::new(islands))
    }
}
