//! The events of a run: a hash of all of them, so that two runs can be compared, and the last lines for a
//! reader. Never takes part in the run.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// See [`hash_everything`].
static EVERYTHING: AtomicBool = AtomicBool::new(false);

/// From now on the hashes of runs cover every byte of what happens: whole lines, effects, messages and the files of
/// islands. Ten times slower. A change of code that changes no behaviour changes no such hash.
pub fn hash_everything() {
    EVERYTHING.store(true, Ordering::Relaxed);
}

/// Lines that are kept.
const TAIL_LINES: usize = 4000;
/// Bytes of a line; what is longer is cut.
const LINE_BYTES: usize = 260;

/// See the module.
#[derive(Debug)]
pub(crate) struct Transcript {
    hash: Hash,
    /// Of every byte, and not only of what is kept of a line.
    everything: bool,
    lines: u64,
    tail: VecDeque<String>,
}

impl Default for Transcript {
    fn default() -> Self {
        let everything = EVERYTHING.load(Ordering::Relaxed);
        Self { hash: Hash::default(), everything, lines: 0, tail: VecDeque::new() }
    }
}

/// FNV-1a, 64 bits.
#[derive(Debug, Clone, Copy)]
struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl Write for Hash {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        self.add(s.as_bytes());
        Ok(())
    }
}

/// A string that takes no more than a line; the hash takes what the string takes, or everything.
struct Line<'a> {
    text: String,
    hash: &'a mut Hash,
    everything: bool,
}

impl Write for Line<'_> {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let room = LINE_BYTES.saturating_sub(self.text.len());
        let cut = if s.len() <= room {
            s.len()
        } else {
            (0..=room).rev().find(|at| s.is_char_boundary(*at)).unwrap_or(0)
        };
        self.text.push_str(&s[..cut]);
        if self.everything {
            self.hash.add(s.as_bytes());
            return Ok(());
        }
        self.hash.add(&s.as_bytes()[..cut]);
        // Whoever formats stops at a full line: bodies are long.
        if cut == s.len() { Ok(()) } else { Err(std::fmt::Error) }
    }
}

impl Transcript {
    pub(crate) fn note(&mut self, now_us: u64, what: std::fmt::Arguments<'_>) {
        let text = if self.tail.len() < TAIL_LINES {
            String::with_capacity(LINE_BYTES)
        } else {
            let mut old = self.tail.pop_front().expect("full");
            old.clear();
            old
        };
        let mut line = Line { text, hash: &mut self.hash, everything: self.everything };
        let _ = write!(line, "{:>4}.{:06} ", now_us / 1_000_000, now_us % 1_000_000);
        let _ = line.write_fmt(what);
        let text = line.text;
        self.lines += 1;
        self.tail.push_back(text);
    }

    /// Whether the hash takes what no line shows: effects, messages and files.
    pub(crate) const fn takes_everything(&self) -> bool {
        self.everything
    }

    /// Adds to the hash what is no line.
    pub(crate) fn hash_also(&mut self, what: std::fmt::Arguments<'_>) {
        let _ = self.hash.write_fmt(what);
    }

    /// Adds bytes to the hash.
    pub(crate) fn hash_bytes(&mut self, bytes: &[u8]) {
        self.hash.add(bytes);
    }

    pub(crate) const fn hash(&self) -> u64 {
        self.hash.0
    }

    pub(crate) const fn len(&self) -> u64 {
        self.lines
    }

    pub(crate) fn tail(&self, lines: usize) -> String {
        let skip = self.tail.len().saturating_sub(lines);
        self.tail.iter().skip(skip).flat_map(|line| [line.as_str(), "\n"]).collect()
    }
}
