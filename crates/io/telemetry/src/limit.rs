//! Bounds how often one place in the code may write, and counts what it left out. Never loses the count.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::Context;

/// Events of one kind that are written in one window of time. A kind is a place in the code.
pub(crate) const EVENTS_MAX: u32 = 20;

/// Length of a window.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

/// Most bytes of an event that are kept as an example of the lines that were left out.
const EXAMPLE_BYTES_MAX: usize = 200;

/// The target of events about lines that were left out. They are not counted themselves.
const TARGET: &str = "atoll_telemetry::left_out";

/// Numbers of events of each kind that were written and left out.
#[derive(Default)]
pub(crate) struct Limit(Mutex<Kinds>);

#[derive(Default)]
struct Kinds {
    by_callsite: HashMap<Identifier, Kind>,
    /// A thread will log the counts.
    is_awaited: bool,
}

struct Kind {
    level: Level,
    began: Instant,
    written: u32,
    /// Events that were left out and not told of.
    left_out: u64,
    /// The first event of the window in which events were left out.
    example: String,
}

/// The fate of an event.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Write,
    LeaveOut,
}

/// So many events like this one were left out.
#[derive(Debug, PartialEq, Eq)]
struct LeftOut {
    level: Level,
    count: u64,
    example: String,
}

impl Kinds {
    fn judge(
        &mut self,
        kind: Identifier,
        level: Level,
        now: Instant,
        example: impl FnOnce() -> String,
    ) -> Verdict {
        let new = || Kind { level, began: now, written: 0, left_out: 0, example: String::new() };
        let kind = self.by_callsite.entry(kind).or_insert_with(new);
        if now.duration_since(kind.began) >= WINDOW {
            (kind.began, kind.written) = (now, 0);
        }
        if kind.written == EVENTS_MAX {
            kind.left_out += 1;
            return Verdict::LeaveOut;
        }
        if kind.written == 0 && kind.left_out == 0 {
            kind.example = example();
        }
        kind.written += 1;
        Verdict::Write
    }

    /// All counts of left out events that are not logged yet.
    fn take(&mut self) -> Vec<LeftOut> {
        let kinds = self.by_callsite.values_mut().filter(|kind| kind.left_out > 0);
        kinds
            .map(|kind| LeftOut {
                level: kind.level,
                count: std::mem::take(&mut kind.left_out),
                example: kind.example.clone(),
            })
            .collect()
    }
}

impl Limit {
    fn lock(&self) -> MutexGuard<'_, Kinds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs the counts of left out events. True if there were any.
    pub(crate) fn tell(&self) -> bool {
        let left_out = self.lock().take();
        for LeftOut { level, count, example } in &left_out {
            let lines = if *count == 1 { "line like this was" } else { "lines like this were" };
            if *level == Level::ERROR {
                tracing::error!(target: TARGET, "{count} more {lines} left out: {example}");
            } else {
                tracing::warn!(target: TARGET, "{count} more {lines} left out: {example}");
            }
        }
        !left_out.is_empty()
    }

    /// Has a thread log the counts, until a whole window has passed without any.
    fn tell_later(self: &Arc<Self>) {
        {
            let mut kinds = self.lock();
            if kinds.is_awaited {
                return;
            }
            kinds.is_awaited = true;
        }
        let limit = Arc::clone(self);
        let tell = move || {
            loop {
                thread::sleep(WINDOW);
                if !limit.tell() {
                    let mut kinds = limit.lock();
                    // What came in between is told one window later.
                    if kinds.by_callsite.values().all(|kind| kind.left_out == 0) {
                        kinds.is_awaited = false;
                        return;
                    }
                }
            }
        };
        if thread::Builder::new().name("atoll-log".into()).spawn(tell).is_err() {
            // The next event that is left out tries again; the count is kept.
            self.lock().is_awaited = false;
        }
    }
}

/// Lets an event through if it is within its limit.
pub(crate) struct Layer(pub(crate) Arc<Limit>);

impl<S: Subscriber> tracing_subscriber::Layer<S> for Layer {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let about = event.metadata();
        if about.target() == TARGET {
            return true;
        }
        let example = || {
            let mut message = Message(String::new());
            event.record(&mut message);
            message.0
        };
        let verdict = self.0.lock().judge(about.callsite(), *about.level(), Instant::now(), example);
        if verdict == Verdict::LeaveOut {
            self.0.tell_later();
        }
        verdict == Verdict::Write
    }
}

/// The beginning of an event's message.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = begin_of(&format!("{value:?}")).to_owned();
        }
    }
}

/// The first line, and of that not too much.
fn begin_of(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    let mut end = line.len().min(EXAMPLE_BYTES_MAX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callsites() -> [Identifier; 2] {
        use tracing::callsite::Callsite;
        let one = tracing::callsite! { name: "one", kind: tracing::metadata::Kind::EVENT, fields: message };
        let two = tracing::callsite! { name: "two", kind: tracing::metadata::Kind::EVENT, fields: message };
        [one.metadata().callsite(), two.metadata().callsite()]
    }

    #[test]
    fn each_place_in_the_code_has_a_limit_of_its_own_and_the_count_is_kept() {
        let [one, two] = callsites();
        let (mut kinds, start) = (Kinds::default(), Instant::now());
        let judge = |kinds: &mut Kinds, kind: &Identifier, seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            kinds.judge(kind.clone(), Level::WARN, now, || format!("at {seconds}"))
        };
        for _ in 0..EVENTS_MAX {
            assert_eq!(judge(&mut kinds, &one, 0), Verdict::Write);
        }
        for second in 1..8 {
            assert_eq!(judge(&mut kinds, &one, second), Verdict::LeaveOut);
        }
        assert_eq!(judge(&mut kinds, &two, 8), Verdict::Write, "another kind is not meant");
        // A new window begins; what the last one left out is not forgotten.
        assert_eq!(judge(&mut kinds, &one, 60), Verdict::Write);
        let told = LeftOut { level: Level::WARN, count: 7, example: "at 0".into() };
        assert_eq!(kinds.take(), [told]);
        assert_eq!(kinds.take(), [], "told once");
    }

    #[test]
    fn an_example_is_short_and_cut_between_characters() {
        let odd = format!("x{}", "ä".repeat(EXAMPLE_BYTES_MAX));
        assert_eq!(begin_of(&odd).len(), EXAMPLE_BYTES_MAX - 1);
        assert_eq!(begin_of("one\ntwo"), "one");
        assert_eq!(begin_of(""), "");
    }
}
