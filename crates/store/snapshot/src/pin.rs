//! A commit that is read on while later ones are made. Whoever closes the file takes it away.
//!
//! Invariant: who reads a pinned commit holds its lock, so the database is not closed meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::contain::contained;
use crate::{Row, Rows, SnapshotError, checked};

type Slot = Mutex<Option<Arc<Rows>>>;

/// See [`crate::Snapshot::pin`].
pub struct Pin(Arc<Slot>);

/// All that there are of a snapshot.
#[derive(Default)]
pub(crate) struct Pins(Mutex<Vec<Weak<Slot>>>);

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pin").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind it is whole at any time.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pins {
    pub(crate) fn add(&self, rows: Arc<Rows>) -> Pin {
        let slot = Arc::new(Mutex::new(Some(rows)));
        let mut pins = lock(&self.0);
        pins.retain(|pin| pin.strong_count() > 0);
        pins.push(Arc::downgrade(&slot));
        Pin(slot)
    }

    /// Takes all of them away, when whoever reads has ended.
    pub(crate) fn give_up(&self) {
        for slot in lock(&self.0).drain(..).filter_map(|pin| pin.upgrade()) {
            drop(lock(&slot).take());
        }
    }
}

impl Pin {
    /// Rows with `from <= key < to_excl` in the order of their keys, about so many bytes of them, or one. None: the commit was given up.
    pub fn range(
        &self,
        from: &[u8],
        to_excl: &[u8],
        bytes_max: usize,
    ) -> Result<Option<Vec<Row>>, SnapshotError> {
        let slot = lock(&self.0);
        let Some(rows) = slot.as_ref() else { return Ok(None) };
        if from >= to_excl {
            return Ok(Some(Vec::new()));
        }
        let read = || {
            let (mut out, mut bytes) = (Vec::new(), 0);
            for row in rows.range(from..to_excl)? {
                let (key, value) = row?;
                let value = checked(key.value(), value.value())?;
                bytes += key.value().len() + value.len();
                out.push((key.value().to_vec(), value));
                if bytes >= bytes_max {
                    break;
                }
            }
            Ok(Some(out))
        };
        contained(read).unwrap_or_else(|panic| Err(SnapshotError::damaged(panic)))
    }
}
