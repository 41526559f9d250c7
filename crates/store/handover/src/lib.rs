//! Leader and followers: the thread that reads requests also runs them. Just before a slow call it lets
//! another thread read on. So a fast operation never hops between threads, and a slow one does not delay
//! those behind it. Owns a per-thread hook, and the gate by which a recall waits for threads that answer.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod gate;
mod roles;

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

pub use gate::{Answering, Gate};
pub use roles::{Next, Roles};

type Hook = Rc<dyn Fn()>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
    static FOREIGN: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Sets what this thread does before a slow call: make sure that another thread reads on.
pub fn before_slow(hook: impl Fn() + 'static) {
    HOOK.set(Some(Rc::new(hook)));
}

/// Called before an fsync, a large read or write, or a wait. Cheap, and nothing on a thread that
/// reads no requests.
///
/// # Panics
///
/// While this thread acts in another one's name ([`Foreign`]) and cannot leave that.
pub fn slow() {
    if let Some(leave) = FOREIGN.get() {
        leave();
        assert!(
            FOREIGN.get().is_none(),
            "a thread that is started while this one acts as a user acts as that user"
        );
    }
    // The hook may start threads and call back: it runs outside the borrow.
    let hook = HOOK.with_borrow(Clone::clone);
    if let Some(hook) = hook {
        hook();
    }
}

/// Lives while this thread acts in another one's name: it must start no thread, which would inherit that.
#[derive(Debug)]
pub struct Foreign(PhantomData<*const ()>);

impl Foreign {
    /// From now on [`slow`] calls `leave` on this thread, which drops the value if the name is not needed at the moment. If it does
    /// not, `slow` panics.
    pub fn begin(leave: fn()) -> Self {
        FOREIGN.set(Some(leave));
        Self(PhantomData)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        FOREIGN.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_hook_of_this_thread_runs_and_no_other_ones_does() {
        let count = Rc::new(Cell::new(0));
        slow();
        let seen = Rc::clone(&count);
        before_slow(move || seen.set(seen.get() + 1));
        slow();
        assert_eq!(count.get(), 1);
        std::thread::spawn(slow).join().unwrap();
        assert_eq!(count.get(), 1);
    }
    #[test]
    fn no_thread_is_started_in_a_foreign_name() {
        thread_local!(static KEPT: RefCell<Option<Foreign>> = const { RefCell::new(None) });
        let foreign = Foreign::begin(|| {});
        assert!(std::panic::catch_unwind(slow).is_err());
        drop(foreign);
        slow();
        KEPT.set(Some(Foreign::begin(|| KEPT.set(None))));
        slow();
        assert!(KEPT.with_borrow(Option::is_none));
    }
}
