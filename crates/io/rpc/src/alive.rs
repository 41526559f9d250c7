//! Tells idle links from links whose other side is frozen, or whose packets are lost. Each side says that it
//! lives if it has nothing else to send, and breaks a link on which nothing comes.
//!
//! This file never sends or ends anything itself; it keeps the time for [`Link::beat`]. Silence is counted in
//! beats and not by the clock. So if the process was stopped for a while, or its machine slept, it does not
//! blame the others.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use crate::link::Link;

/// Time between two beats.
const BEAT: Duration = Duration::from_millis(200);

/// Beats without a frame sent after which a link says that this side lives.
const SAY_BEATS: u32 = 5;

/// Whether a link has sent and heard something since the last beats. Written by the threads that send and
/// read, judged by the thread that beats.
#[derive(Debug)]
pub(crate) struct Pulse {
    sent: AtomicBool,
    heard: AtomicBool,
    idle_beats: AtomicU32,
    silent_beats: AtomicU32,
    silent_beats_max: u32,
}

impl Pulse {
    pub(crate) fn new(silence_max: Duration) -> Self {
        let beats = silence_max.as_millis().div_ceil(BEAT.as_millis());
        Self {
            sent: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            idle_beats: AtomicU32::new(0),
            silent_beats: AtomicU32::new(0),
            silent_beats_max: u32::try_from(beats).unwrap_or(u32::MAX),
        }
    }

    /// A frame is sent.
    pub(crate) fn sent(&self) {
        self.sent.store(true, Ordering::Relaxed);
    }

    /// Bytes have come.
    pub(crate) fn heard(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Whether it is time to say that this side lives. Once a beat.
    pub(crate) fn is_due(&self) -> bool {
        let idle = if self.sent.swap(false, Ordering::Relaxed) {
            0
        } else {
            self.idle_beats.load(Ordering::Relaxed) + 1
        };
        let due = idle >= SAY_BEATS;
        self.idle_beats.store(if due { 0 } else { idle }, Ordering::Relaxed);
        due
    }

    /// Whether nothing has come for too long. Once a beat.
    pub(crate) fn is_silent(&self) -> bool {
        if self.heard.swap(false, Ordering::Relaxed) {
            self.silent_beats.store(0, Ordering::Relaxed);
            return false;
        }
        self.silent_beats.fetch_add(1, Ordering::Relaxed) + 1 >= self.silent_beats_max
    }
}

static LINKS: OnceLock<Mutex<Vec<Weak<Link>>>> = OnceLock::new();

/// Has a link beat from now on, as long as it is up.
pub(crate) fn watch(link: &Arc<Link>) {
    let links = LINKS.get_or_init(|| {
        // Without the thread nobody would ever be given up: better not to start at all.
        thread::Builder::new().name("atoll-alive".into()).spawn(beat_all).expect("no thread to be had");
        Mutex::default()
    });
    links.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(link));
}

fn beat_all() {
    let mut all = Vec::new();
    loop {
        thread::sleep(BEAT);
        let Some(links) = LINKS.get() else { continue };
        // Not under the lock: a link that ends may start a thread, and that one a new link.
        all.append(&mut links.lock().unwrap_or_else(PoisonError::into_inner));
        all.retain(|link| link.upgrade().is_some_and(|link| link.beat()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_or_heard_counts_as_life_and_each_silence_counts_anew() {
        let pulse = Pulse::new(BEAT * 3);
        let beats: Vec<bool> = (0..SAY_BEATS * 2).map(|_| pulse.is_due()).collect();
        assert_eq!(beats.iter().filter(|due| **due).count(), 2);
        pulse.sent();
        assert!(!pulse.is_due());
        assert!(!pulse.is_silent() && !pulse.is_silent());
        pulse.heard();
        assert!(!pulse.is_silent() && !pulse.is_silent() && !pulse.is_silent());
        assert!(pulse.is_silent());
    }
}
