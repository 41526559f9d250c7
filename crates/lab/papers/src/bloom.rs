//! The Bloom summaries of FedFS (section 2.2): how often names collide when they are put in, and how many names that were
//! not put in are taken for known. Owns the experiment; a volume's summaries are elsewhere.
//!
//! The paper speaks of a summary of 2^20 bits. One table of 2^20 bits cannot give its numbers; a table of 2^20 bits for
//! each hash function does. So both are measured.

use std::fmt;

use atoll_model::Rng;

/// Names that are put in.
pub const VALID: usize = 185_060;
/// Other names that are asked for.
pub const INVALID: usize = 109_526;
/// Bits of a table.
pub const BITS: usize = 1 << 20;
/// Most seeds of one run: each takes a tenth of a second.
pub const SEEDS_MAX: u32 = 1_000;

/// Which tables the hash functions set bits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tables {
    /// All in one.
    One,
    /// Each in its own.
    EachItsOwn,
}

/// One experiment, as the mean of several seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Number of hash functions.
    pub hashes: usize,
    /// Their tables.
    pub tables: Tables,
    /// Names of which all bits were set already when they were put in.
    pub collisions: f64,
    /// Names that are not in it and seem to be.
    pub false_positives: f64,
}

/// What the paper tells for so many hash functions: collisions and false positives.
pub const fn paper(hashes: usize) -> Option<(u32, u32)> {
    match hashes {
        3 => Some((208, 477)),
        5 => Some((1, 8)),
        _ => None,
    }
}

/// One experiment with unique names, which this seed repeats.
pub fn measure(hashes: usize, tables: Tables, seed: u64) -> (usize, usize) {
    let count = if tables == Tables::One { 1 } else { hashes };
    let mut words = vec![0u64; count * BITS / 64];
    let (mut collisions, mut false_positives) = (0, 0);
    let mut bits = vec![0; hashes];
    for name in 0..VALID + INVALID {
        // A name stands for a pathname: its bits are what a good hash function makes of it, and no two are alike.
        let mut hash = Rng::new(Rng::new(seed ^ (name as u64).rotate_left(32)).bits());
        for (at, bit) in bits.iter_mut().enumerate() {
            let table = if tables == Tables::One { 0 } else { at };
            *bit = table * BITS + hash.index(BITS);
        }
        let known = bits.iter().all(|bit| words[bit / 64] >> (bit % 64) & 1 == 1);
        if name < VALID {
            collisions += usize::from(known);
            bits.iter().for_each(|bit| words[bit / 64] |= 1 << (bit % 64));
        } else {
            false_positives += usize::from(known);
        }
    }
    (collisions, false_positives)
}

/// The mean over seeds from 1 on, for the paper's two numbers of hash functions and both kinds of tables.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// How many seeds.
    pub seeds: u32,
    /// The four experiments.
    pub figures: Vec<Figure>,
}

/// Measures all four.
pub fn bloom(seeds: u32) -> Report {
    let seeds = seeds.clamp(1, SEEDS_MAX);
    let mut figures = Vec::new();
    for tables in [Tables::One, Tables::EachItsOwn] {
        for hashes in [3, 5] {
            let (mut collisions, mut false_positives) = (0, 0);
            for seed in 1..=u64::from(seeds) {
                let (collided, wrong) = measure(hashes, tables, seed);
                collisions += collided;
                false_positives += wrong;
            }
            let mean = |sum: usize| sum as f64 / f64::from(seeds);
            let (collisions, false_positives) = (mean(collisions), mean(false_positives));
            figures.push(Figure { hashes, tables, collisions, false_positives });
        }
    }
    Report { seeds, figures }
}

impl Report {
    /// As one JSON object.
    pub fn to_json(&self) -> String {
        let figure = |f: &Figure| {
            let tables = if f.tables == Tables::One { 1 } else { f.hashes };
            format!(
                "{{\"hashes\":{},\"tables\":{tables},\"collisions\":{:.1},\"false_positives\":{:.1}}}",
                f.hashes, f.collisions, f.false_positives
            )
        };
        let figures: Vec<_> = self.figures.iter().map(figure).collect();
        format!("{{\"seeds\":{},\"figures\":[{}]}}", self.seeds, figures.join(","))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{VALID} names in a summary, {INVALID} others; tables of {BITS} bits; mean of {} seeds",
            self.seeds
        )?;
        write!(f, "hashes  tables  collisions  (paper)  false positives  (paper)")?;
        for figure in &self.figures {
            let tables = if figure.tables == Tables::One { 1 } else { figure.hashes };
            let (collisions, wrong) = paper(figure.hashes).unwrap_or_default();
            write!(
                f,
                "\n{:6}  {tables:6}  {:10.1}  {collisions:7}  {:15.1}  {wrong:7}",
                figure.hashes, figure.collisions, figure.false_positives
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_table_for_each_hash_function_gives_the_figures_of_the_paper() {
        let near =
            |found: usize, expected: f64| (found as f64 - expected).abs() < 6.0 * expected.sqrt() + 6.0;
        // In theory: the share of bits that are set, to the power of the number of hash functions.
        let (collisions, wrong) = measure(3, Tables::EachItsOwn, 1);
        assert!(near(collisions, 206.0) && near(wrong, 464.0), "{collisions} {wrong}");
        let (collisions, wrong) = measure(5, Tables::EachItsOwn, 1);
        assert!(near(collisions, 3.6) && near(wrong, 12.0), "{collisions} {wrong}");
        for hashes in [3, 5] {
            let (_, wrong) = measure(hashes, Tables::One, 1);
            assert!((7_000..8_200).contains(&wrong), "{wrong}");
        }
    }

    #[test]
    fn the_report_has_the_figures_beside_those_of_the_paper() {
        let report = bloom(0);
        assert_eq!((report.seeds, report.figures.len()), (1, 4));
        let text = report.to_string();
        assert!(["477", "208", "(paper)"].iter().all(|word| text.contains(word)), "{text}");
        assert!(report.to_json().starts_with("{\"seeds\":1,\"figures\":[{\"hashes\":3,\"tables\":1,"));
    }
}
