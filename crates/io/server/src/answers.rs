//! Answers of the machine of a site, for those of this node who wait for them. Owns the numbers of questions. Knows no question.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

/// Those who wait at once.
const WAIT_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Answers {
    inner: Mutex<Inner>,
    came: Condvar,
}

#[derive(Debug)]
struct Inner {
    next: u64,
    /// Questions for whose answers somebody waits, and those that have come.
    open: BTreeMap<u64, Option<Bytes>>,
}

/// Somebody waits for an answer. What comes when he does not any more is dropped.
#[derive(Debug)]
pub(crate) struct Waits<'a> {
    of: &'a Answers,
    /// The number of the question.
    pub(crate) id: u64,
}

impl Answers {
    pub(crate) fn new() -> Self {
        // Other sites may remember numbers of an earlier process.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let next = since.map_or(0, |since| since.as_micros() as u64);
        Self { inner: Mutex::new(Inner { next, open: BTreeMap::new() }), came: Condvar::new() }
    }

    /// Somebody is about to ask; none if too many wait already.
    pub(crate) fn open(&self) -> Option<Waits<'_>> {
        let mut inner = self.inner.lock().expect("no panic while it is held");
        if inner.open.len() >= WAIT_MAX {
            return None;
        }
        let id = inner.next;
        inner.next += 1;
        inner.open.insert(id, None);
        Some(Waits { of: self, id })
    }

    /// An answer has come.
    pub(crate) fn came(&self, id: u64, bytes: Bytes) {
        let mut inner = self.inner.lock().expect("no panic while it is held");
        if let Some(answer) = inner.open.get_mut(&id) {
            *answer = Some(bytes);
            self.came.notify_all();
        }
    }
}

impl Waits<'_> {
    /// The answer; none if it does not come in this time.
    pub(crate) fn answer(&self, within: Duration) -> Option<Bytes> {
        let until = Instant::now() + within;
        let mut inner = self.of.inner.lock().expect("no panic while it is held");
        loop {
            if let Some(Some(bytes)) = inner.open.get(&self.id) {
                return Some(bytes.clone());
            }
            let left = until.checked_duration_since(Instant::now())?;
            inner = self.of.came.wait_timeout(inner, left).expect("no panic while it is held").0;
        }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.of.inner.lock().expect("no panic while it is held").open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn each_gets_the_answer_to_his_own_question() {
        let answers = Answers::new();
        let (one, other) = (answers.open().unwrap(), answers.open().unwrap());
        assert_ne!(one.id, other.id);
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| one.answer(LONG));
            answers.came(other.id, "other".into());
            answers.came(one.id, "one".into());
            assert_eq!(waiting.join().unwrap(), Some("one".into()));
        });
        assert_eq!(other.answer(LONG), Some("other".into()));
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_dropped() {
        let answers = Answers::new();
        let gone = answers.open().unwrap();
        assert_eq!(gone.answer(Duration::ZERO), None);
        let id = gone.id;
        drop(gone);
        answers.came(id, "late".into());
        assert!(answers.inner.lock().unwrap().open.is_empty());
    }

    #[test]
    fn not_too_many_wait_at_once() {
        let answers = Answers::new();
        let mut waiting: Vec<_> = (0..WAIT_MAX).map(|_| answers.open().unwrap()).collect();
        assert!(answers.open().is_none());
        waiting.pop();
        assert!(answers.open().is_some());
    }
}
