//! The targets for some seconds: their corpora, and random changes of them. A failure prints the
//! input that repeats it.

use std::path::Path;

use atoll_fuzz::{TARGETS, forget_node_file};

/// Changed inputs of each target.
const ROUNDS: u64 = 100_000;
/// Those that go through the file system, or reckon with keys.
const SLOW_ROUNDS: u64 = 5_000;
/// Longest input.
const BYTES_MAX: usize = 40_000;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Numbers that lengths, offsets and tags go wrong at.
const NUMBERS: [u64; 10] =
    [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 48, i64::MAX as u64, u64::MAX];

fn change(input: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let at = rng.below(input.len());
    match rng.below(8) {
        0 if !input.is_empty() => input[at] ^= 1 << rng.below(8),
        1 if !input.is_empty() => input[at] = rng.next() as u8,
        2 => {
            let number = NUMBERS[rng.below(NUMBERS.len())].to_le_bytes();
            let n = [1, 2, 4, 8][rng.below(4)].min(input.len() - at);
            input[at..at + n].copy_from_slice(&number[..n]);
        }
        3 => input.truncate(at),
        4 => {
            let end = (at + 1 + rng.below(16)).min(input.len());
            input.drain(at..end);
        }
        5 => {
            let end = (at + 1 + rng.below(64)).min(input.len());
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        6 => {
            let from = rng.below(other.len());
            let end = (from + 1 + rng.below(64)).min(other.len());
            input.splice(at..at, other[from..end].iter().copied());
        }
        _ => {
            let n = rng.below(9);
            input.extend((0..n).map(|_| rng.next() as u8));
        }
    }
    input.truncate(BYTES_MAX);
}

/// Prints the input if what runs it panics.
struct Shown<'a>(&'a str, &'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {}", self.0, self.1.escape_ascii());
        }
    }
}

fn run(name: &str, target: atoll_fuzz::Target) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(name);
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(!seeds.is_empty(), "no corpus");
    let mut rng = Rng(name.len() as u64);
    let rounds =
        if ["node_file", "greeting", "certificate", "site"].contains(&name) { SLOW_ROUNDS } else { ROUNDS };
    for seed in &seeds {
        let _shown = Shown(name, seed);
        target(seed);
    }
    for _ in 0..rounds {
        let mut input = seeds[rng.below(seeds.len())].clone();
        let other = &seeds[rng.below(seeds.len())];
        for _ in 0..=rng.below(4) {
            change(&mut input, other, &mut rng);
        }
        let _shown = Shown(name, &input);
        target(&input);
    }
    forget_node_file();
}

#[test]
fn no_target_minds_what_it_gets() {
    // One thread each, so that one failure does not hide the others.
    let failed: Vec<&str> = std::thread::scope(|scope| {
        let running: Vec<_> =
            TARGETS.iter().map(|(name, target)| (*name, scope.spawn(|| run(name, *target)))).collect();
        running.into_iter().filter_map(|(name, thread)| thread.join().err().map(|_| name)).collect()
    });
    assert!(failed.is_empty(), "failed: {failed:?}");
}
