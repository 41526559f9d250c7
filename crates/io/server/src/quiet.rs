//! Background threads stand back where others want the processor.

/// What background threads add to their niceness.
const NICE: i32 = 10;

/// Lowers this thread's priority, if the system lets it.
pub(crate) fn lower_priority() {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}
