//! Gives unused memory back to the system. Knows nothing of what the memory is used for.
//!
//! The parts of a daemon bound the memory that they keep. But glibc gives every thread a heap of its own, and
//! returns only the free end of a heap. After a burst, a daemon would hold several times as much as it uses.

use std::time::Duration;

/// Heaps that all threads share.
const HEAPS_MAX: i32 = 2;
/// Pause between two looks at the size of the process.
const LOOK: Duration = Duration::from_secs(1);
/// By so many pages it must have grown before anything is given back at once: that takes milliseconds.
const GROWN_PAGES: u64 = 2048;
/// After so many looks, memory is given back in any case: the last memory that is freed does not make a
/// process grow.
const LOOKS_MAX: u32 = 30;

/// From now on. Called before any other thread is started.
#[cfg(target_env = "gnu")]
pub(crate) fn keep_small() {
    // SAFETY: sets a number; no other thread uses the allocator's options.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAPS_MAX);
    }
    let watch = || {
        let (mut least, mut looks) = (u64::MAX, 0);
        loop {
            std::thread::sleep(LOOK);
            let Some(pages) = resident_pages() else { return };
            least = least.min(pages);
            looks += 1;
            if pages > least + GROWN_PAGES || looks >= LOOKS_MAX {
                // SAFETY: may be called at any time, from any thread.
                unsafe {
                    libc::malloc_trim(0);
                }
                (least, looks) = (resident_pages().unwrap_or(u64::MAX), 0);
            }
        }
    };
    // Without it the process works as well, but is larger.
    let _ = std::thread::Builder::new().name("atoll-memory".into()).spawn(watch);
}

/// Other allocators give back by themselves.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn keep_small() {}

/// Pages of memory that this process has.
#[cfg(target_env = "gnu")]
fn resident_pages() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}
