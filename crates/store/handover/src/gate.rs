//! Lets a recall wait for every answer that still allows its receiver to keep it. Never blocks an answer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Answers under way, by the parity of the generation in which they were begun.
#[derive(Debug, Default)]
pub struct Gate {
    generation: AtomicU64,
    answers: [AtomicU64; 2],
    /// One recall at a time passes it. No answer waits for it.
    one: Mutex<()>,
}

/// An answer that is being written.
#[derive(Debug)]
pub struct Answering<'a> {
    answers: &'a AtomicU64,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.answers.fetch_sub(1, SeqCst);
    }
}

impl Gate {
    /// To be held from before it is decided how long the answer may be kept until it is written.
    pub fn answer(&self) -> Answering<'_> {
        loop {
            let generation = self.generation.load(SeqCst);
            let answers = &self.answers[(generation % 2) as usize];
            answers.fetch_add(1, SeqCst);
            let answering = Answering { answers };
            // A recall that began in between may have seen no answer and gone on.
            if self.generation.load(SeqCst) == generation {
                return answering;
            }
        }
    }

    /// Returns when every answer is written that was begun before this call.
    pub fn pass(&self) {
        let _one = self.one.lock().expect("no holder of this lock panics");
        let old = self.generation.fetch_add(1, SeqCst);
        let answers = &self.answers[(old % 2) as usize];
        while answers.load(SeqCst) > 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_recall_waits_for_answers_begun_before_it_and_no_others() {
        let gate = Gate::default();
        let passed = AtomicBool::new(false);
        std::thread::scope(|s| {
            let early = gate.answer();
            s.spawn(|| {
                gate.pass();
                passed.store(true, SeqCst);
            });
            while gate.generation.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            let late = gate.answer();
            std::thread::sleep(Duration::from_millis(20));
            assert!(!passed.load(SeqCst));
            drop(early);
            while !passed.load(SeqCst) {
                std::thread::yield_now();
            }
            drop(late);
        });
        gate.pass();
    }
}
