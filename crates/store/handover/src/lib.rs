//! Leader and followers: the thread that reads requests also runs them. Just before a slow call it lets
//! another thread read on. So a fast operation never hops between threads, and a slow one does not delay
//! those behind it. Owns a per-thread hook, and the gate by which a recall waits for threads that answer.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod gate;

use std::cell::RefCell;
use std::rc::Rc;

pub use gate::{Answering, Gate};

type Hook = Rc<dyn Fn()>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Sets what this thread does before a slow call: make sure that another thread reads on.
pub fn before_slow(hook: impl Fn() + 'static) {
    HOOK.set(Some(Rc::new(hook)));
}

/// Called before an fsync, a large read or write, or a wait. Cheap, and nothing on a thread that
/// reads no requests.
pub fn slow() {
    // The hook may start threads and call back: it runs outside the borrow.
    let hook = HOOK.with_borrow(Clone::clone);
    if let Some(hook) = hook {
        hook();
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
}
