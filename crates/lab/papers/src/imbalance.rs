//! Archipelago 6.2, Tables 2 and 3: how evenly a tree spreads over buckets and islands.
//!
//! The workload of a directory is the number of bytes of the files in it, as in the paper, which
//! had no access logs of its five systems either.

use crate::walk::{Directory, Tree, walk};
use atoll_core::rebalance::{BucketLoad, BucketLoads, rebalance};
use atoll_core::{H3, Table};
use std::fmt::{self, Write as _};
use std::io;
use std::path::Path;

/// What to measure with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Entries of the extendible hash table: a power of two. The paper has 256.
    pub buckets: usize,
    /// Islands of equal weight, at least 1.
    pub islands: u16,
    /// Which hash function.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { buckets: 256, islands: 4, seed: 0 }
    }
}

/// Tables 2 and 3 for one tree. `i_` is an imbalance (standard deviation by average, 0 is even), `h_` a hot
/// spot (largest by average, 1 is even); D are directories, W bytes, B buckets, S islands: `i_wb` is the
/// imbalance of bytes across buckets.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What it was measured with.
    pub options: Options,
    /// Directories, with the root.
    pub directories: u64,
    /// Names that are no directories.
    pub files: u64,
    /// Bytes in regular files.
    pub bytes: u64,
    /// What could not be read.
    pub skipped: u64,
    /// Directories across buckets.
    pub i_db: f64,
    /// What theory expects of `i_db`: sqrt((B - 1) / D).
    pub i_db_expected: f64,
    /// Bytes across directories.
    pub i_wd: f64,
    /// Bytes across buckets.
    pub i_wb: f64,
    /// What theory expects of `i_wb`: `i_db_expected` * sqrt(`i_wd`^2 + 1).
    pub i_wb_expected: f64,
    /// Bytes across islands while each has as many buckets as the others.
    pub i_ws_initial: f64,
    /// Bytes across islands after one rebalance.
    pub i_ws: f64,
    /// Largest by average number of directories of a bucket.
    pub h_db: f64,
    /// Largest by average bytes of a directory.
    pub h_wd: f64,
    /// Largest by average bytes of a bucket.
    pub h_wb: f64,
    /// Largest by average bytes of an island after one rebalance.
    pub h_ws: f64,
    /// Buckets that the rebalance moved.
    pub buckets_moved: usize,
}

/// Measures the tree below `root`, whose paths are taken as those of a volume.
///
/// # Errors
/// If `root` cannot be read, or `options` are none that a table can have (`InvalidInput`).
pub fn imbalance(root: &Path, options: Options) -> io::Result<Report> {
    let Options { buckets, islands, .. } = options;
    if islands == 0 || !buckets.is_power_of_two() || buckets > Table::BUCKETS_MAX {
        let why = format!("buckets must be a power of two up to {}, islands at least 1", Table::BUCKETS_MAX);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(measure(&walk(root, &H3::new(options.seed))?, options))
}

/// The tables for a tree that was walked with `options.seed`.
///
/// # Panics
/// If `options` are none that a table can have.
pub fn measure(tree: &Tree, options: Options) -> Report {
    let table = Table::with_buckets(options.islands, options.buckets);
    let mut directories = vec![0; options.buckets];
    let mut loads = BucketLoads::new(options.buckets);
    for &Directory { key, bytes, .. } in &tree.directories {
        let bucket = table.bucket(key);
        directories[bucket.0 as usize] += 1;
        loads.record(bucket, BucketLoad { bytes, operations: 0 });
    }
    let by_directory: Vec<u64> = tree.directories.iter().map(|d| d.bytes).collect();
    let by_bucket: Vec<u64> = loads.loads().iter().map(|l| l.bytes).collect();
    let by_island = |table: &Table| {
        let mut sums = vec![0u64; usize::from(options.islands)];
        for (owner, bytes) in table.owners().iter().zip(&by_bucket) {
            sums[usize::from(owner.0)] += bytes;
        }
        sums
    };
    let moves = rebalance(&table, &loads, &vec![1; usize::from(options.islands)])
        .expect("the loads have the table's size and every island has weight");
    let balanced = table.reassigned(moves.iter().map(|m| (m.bucket, m.to)));

    let i_wd = spread(&by_directory).0;
    let i_db_expected = ((options.buckets - 1) as f64 / tree.directories.len() as f64).sqrt();
    let (i_db, h_db) = spread(&directories);
    let (i_wb, h_wb) = spread(&by_bucket);
    let (i_ws, h_ws) = spread(&by_island(&balanced));
    Report {
        options,
        directories: tree.directories.len() as u64,
        files: tree.directories.iter().map(|d| d.files).sum(),
        bytes: by_directory.iter().sum(),
        skipped: tree.skipped,
        i_db,
        i_db_expected,
        i_wd,
        i_wb,
        i_wb_expected: i_db_expected * (i_wd * i_wd + 1.0).sqrt(),
        i_ws_initial: spread(&by_island(&table)).0,
        i_ws,
        h_db,
        h_wd: spread(&by_directory).1,
        h_wb,
        h_ws,
        buckets_moved: moves.len(),
    }
}

/// Standard deviation by average, and largest by average. Nothing at all is spread evenly.
fn spread(amounts: &[u64]) -> (f64, f64) {
    let n = amounts.len() as f64;
    let mean = amounts.iter().map(|&a| a as f64).sum::<f64>() / n;
    if amounts.is_empty() || mean == 0.0 {
        return (0.0, 1.0);
    }
    let variance = amounts.iter().map(|&a| (a as f64 - mean).powi(2)).sum::<f64>() / n;
    let largest = amounts.iter().copied().max().unwrap_or(0) as f64;
    (variance.sqrt() / mean, largest / mean)
}

impl Report {
    /// The report as one JSON object; its members are named as the fields are.
    pub fn to_json(&self) -> String {
        let counts = [
            ("buckets", self.options.buckets as u64),
            ("islands", u64::from(self.options.islands)),
            ("seed", self.options.seed),
            ("directories", self.directories),
            ("files", self.files),
            ("bytes", self.bytes),
            ("skipped", self.skipped),
            ("buckets_moved", self.buckets_moved as u64),
        ];
        let ratios = [
            ("i_db", self.i_db),
            ("i_db_expected", self.i_db_expected),
            ("i_wd", self.i_wd),
            ("i_wb", self.i_wb),
            ("i_wb_expected", self.i_wb_expected),
            ("i_ws_initial", self.i_ws_initial),
            ("i_ws", self.i_ws),
            ("h_db", self.h_db),
            ("h_wd", self.h_wd),
            ("h_wb", self.h_wb),
            ("h_ws", self.h_ws),
        ];
        let mut members: Vec<String> = counts.iter().map(|(name, n)| format!("\"{name}\": {n}")).collect();
        // Finite by construction: a walk has a directory at least, and no average is divided by if it is 0.
        members.extend(ratios.iter().map(|(name, x)| format!("\"{name}\": {x:.6}")));
        format!("{{{}}}", members.join(", "))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { buckets, islands, seed } = self.options;
        let mut text = String::new();
        writeln!(text, "directories {}, files {}, bytes {}", self.directories, self.files, self.bytes)?;
        writeln!(text, "buckets {buckets}, islands {islands}, seed {seed}")?;
        if self.skipped > 0 {
            writeln!(text, "skipped {} that could not be read", self.skipped)?;
        }
        writeln!(text, "imbalance (0 is even)           measured  expected")?;
        let (db, wb) = (Some(self.i_db_expected), Some(self.i_wb_expected));
        for (name, what, measured, expected) in [
            ("I_DB", "directories over buckets", self.i_db, db),
            ("I_WD", "bytes over directories", self.i_wd, None),
            ("I_WB", "bytes over buckets", self.i_wb, wb),
            ("I_WS", "bytes over islands", self.i_ws, None),
        ] {
            write!(text, "  {name}  {what:<24}{measured:>10.4}")?;
            match expected {
                Some(expected) => writeln!(text, "{expected:>10.4}")?,
                None => writeln!(text)?,
            }
        }
        writeln!(
            text,
            "  before the rebalance, which moved {} buckets: I_WS {:.4}",
            self.buckets_moved, self.i_ws_initial
        )?;
        writeln!(text, "hot spots (largest by average, 1 is even)")?;
        write!(
            text,
            "  H_DB {:.4}  H_WD {:.1}  H_WB {:.4}  H_WS {:.4}",
            self.h_db, self.h_wd, self.h_wb, self.h_ws
        )?;
        f.write_str(&text)
    }
}
