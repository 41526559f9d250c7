//! Catches the panics of the database: it panics if a damaged page makes no sense to it, and that must stop
//! one island, not a process. Our own panics go on through.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread now is one of the database's, which is caught and becomes an error. For
/// a panic hook, which would end the process otherwise.
pub fn is_contained() -> bool {
    CONTAINED.get()
}

/// Does something with the database. An error is what it panicked with; nothing that it says may be
/// believed after that.
pub(crate) fn contained<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    let outer = CONTAINED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(outer);
    done.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        text.unwrap_or_else(|| "the database panicked".to_owned())
    })
}
