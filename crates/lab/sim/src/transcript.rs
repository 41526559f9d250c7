//! What happened in a run: a hash of all of it, so that two runs can be compared, and its last lines
//! for a reader. Never takes part in what happens.

use std::collections::VecDeque;
use std::fmt::Write;

/// Lines that are kept.
const TAIL_LINES: usize = 4000;
/// Bytes of a line; what is longer is cut.
const LINE_BYTES: usize = 260;

/// See the module.
#[derive(Debug)]
pub(crate) struct Transcript {
    hash: u64,
    lines: u64,
    tail: VecDeque<String>,
}

impl Default for Transcript {
    fn default() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, lines: 0, tail: VecDeque::new() }
    }
}

/// A string that takes no more than a line.
struct Line(String);

impl Write for Line {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let room = LINE_BYTES.saturating_sub(self.0.len());
        if s.len() <= room {
            self.0.push_str(s);
            return Ok(());
        }
        let cut = (0..=room).rev().find(|at| s.is_char_boundary(*at)).unwrap_or(0);
        self.0.push_str(&s[..cut]);
        // Whoever formats stops here: bodies are long.
        Err(std::fmt::Error)
    }
}

impl Transcript {
    pub(crate) fn note(&mut self, now_us: u64, what: std::fmt::Arguments<'_>) {
        let mut line = if self.tail.len() < TAIL_LINES {
            Line(String::with_capacity(LINE_BYTES))
        } else {
            let mut old = self.tail.pop_front().expect("full");
            old.clear();
            Line(old)
        };
        let _ = write!(line, "{:>4}.{:06} ", now_us / 1_000_000, now_us % 1_000_000);
        let _ = line.write_fmt(what);
        for byte in line.0.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.lines += 1;
        self.tail.push_back(line.0);
    }

    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) const fn len(&self) -> u64 {
        self.lines
    }

    pub(crate) fn tail(&self, lines: usize) -> String {
        let skip = self.tail.len().saturating_sub(lines);
        self.tail.iter().skip(skip).flat_map(|line| [line.as_str(), "\n"]).collect()
    }
}
