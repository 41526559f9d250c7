//! The cost of operations that span islands (Ursa Minor 5.1): latencies of single operations (its Table 3),
//! and throughput of an operation mix by the part of renames between islands (its Figure 5; the mix is the
//! second of Archipelago's Table 6, on as many shared directories and files as there). Works through a
//! mounted directory alone; makes a folder in it and removes it.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use atoll_core::Ino;

use crate::mix::{Mix, make_dirs};

/// Percentages of renames that are added to the mix.
const PERCENT: [f64; 7] = [0.0, 0.1, 0.3, 1.0, 2.0, 5.0, 10.0];

/// Which directories are taken for apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apart {
    /// Those on different islands: a file's id says which island has made it, and that is the one that owns its
    /// directory.
    Islands,
    /// All: for other file systems.
    Any,
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// How often each single operation is done.
    pub times: u32,
    /// Blocks of the mix for each percentage.
    pub blocks: u32,
    /// How long one is measured. It runs as long before that, until what it leaves to be done in the background
    /// is done as it comes, and what the one before has left is done.
    pub block: Duration,
}

impl Default for Effort {
    fn default() -> Self {
        Self { times: 2_000, blocks: 7, block: Duration::from_secs(1) }
    }
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct Report {
    /// Operation, and its median latency.
    pub latencies: Vec<(&'static str, Duration)>,
    /// Percentage of renames between two directories, median operations a second, and the median of what that
    /// is of the blocks without such renames before and after it.
    pub mix: Vec<(f64, f64, f64)>,
}

/// Two directories whose names lie on different islands, and one beside the first.
struct Pair {
    here: PathBuf,
    there: PathBuf,
}

/// The island that owns a directory of a mounted volume.
pub(crate) fn island_of(dir: &Path) -> io::Result<usize> {
    let probe = dir.join("probe");
    let ino = File::create_new(&probe)?.metadata()?.ino();
    fs::remove_file(&probe)?;
    Ok(usize::from(Ino(ino).minted_by().0))
}

/// Measures below `dir`.
///
/// # Errors
/// Whatever the file system answers, and if no two directories are apart.
pub fn borrow(dir: &Path, effort: Effort, apart: Apart) -> io::Result<Report> {
    let base = dir.join(format!("atoll-papers-{}", std::process::id()));
    fs::create_dir(&base)?;
    let result = measure(&base, effort, apart);
    let removed = fs::remove_dir_all(&base);
    let report = result?;
    removed.map(|()| report)
}

fn measure(base: &Path, effort: Effort, apart: Apart) -> io::Result<Report> {
    let dirs = make_dirs(base)?;
    let islands: Vec<usize> = match apart {
        Apart::Islands => dirs.iter().map(|dir| island_of(dir)).collect::<Result<_, _>>()?,
        Apart::Any => (0..dirs.len()).collect(),
    };
    let other = islands.iter().position(|island| *island != islands[0]);
    let other = other.ok_or_else(|| io::Error::other("all directories are on one island"))?;
    let pair = Pair { here: dirs[0].clone(), there: dirs[other].clone() };
    let latencies = latencies(&pair, effort.times)?;
    let mut mix = Mix::new(dirs, islands)?;
    Ok(Report { latencies, mix: rates(&mut mix, effort)? })
}

fn median<T: PartialOrd + Copy>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("measured values can be compared"));
    values[values.len() / 2]
}

/// Times single operations. Interleaved, so that what disturbs one disturbs all.
fn latencies(pair: &Pair, times: u32) -> io::Result<Vec<(&'static str, Duration)>> {
    const WHAT: [&str; 6] = [
        "create",
        "lookup of an absent name",
        "update (chmod)",
        "rename in a directory",
        "rename to another island",
        "link, to another island",
    ];
    let mut all: Vec<Vec<Duration>> = WHAT.iter().map(|_| Vec::new()).collect();
    let mut time = |what: usize, run: &mut dyn FnMut() -> io::Result<()>| -> io::Result<()> {
        let begun = Instant::now();
        run()?;
        all[what].push(begun.elapsed());
        Ok(())
    };
    for n in 0..times {
        let name = |dir: &Path, what: &str| dir.join(format!("{what}{n}"));
        let (first, second) = (name(&pair.here, "a"), name(&pair.here, "b"));
        let (third, fourth) = (name(&pair.there, "c"), name(&pair.here, "d"));
        time(0, &mut || File::create_new(&first).map(drop))?;
        time(1, &mut || match fs::symlink_metadata(name(&pair.here, "absent")) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map(drop),
        })?;
        time(2, &mut || fs::set_permissions(&first, Permissions::from_mode(0o600)))?;
        time(3, &mut || fs::rename(&first, &second))?;
        time(4, &mut || fs::rename(&second, &third))?;
        time(5, &mut || fs::hard_link(&third, &fourth))?;
        fs::remove_file(&fourth)?;
        fs::remove_file(&third)?;
    }
    Ok(WHAT.into_iter().zip(all.iter_mut().map(|times| median(times))).collect())
}

/// Operations a second while so many percent are renames, after a while.
fn rate(mix: &mut Mix, percent: f64, block: Duration) -> io::Result<f64> {
    mix.settle()?;
    let (mut done, mut begun) = (0u32, Instant::now());
    let mut warm = false;
    loop {
        if mix.happens(percent) {
            mix.rename()?
        } else {
            mix.step()?
        }
        done += 1;
        let passed = begun.elapsed();
        if !warm && passed >= block {
            (warm, done, begun) = (true, 0, Instant::now());
        } else if warm && passed >= block {
            return Ok(f64::from(done) / passed.as_secs_f64());
        }
    }
}

fn rates(mix: &mut Mix, Effort { blocks, block, .. }: Effort) -> io::Result<Vec<(f64, f64, f64)>> {
    let mut rates: Vec<(Vec<f64>, Vec<f64>)> = PERCENT.iter().map(|_| Default::default()).collect();
    let mut before = rate(mix, 0.0, block)?;
    for _ in 0..blocks {
        for (percent, (rates, parts)) in PERCENT.iter().zip(&mut rates) {
            let with = rate(mix, *percent, block)?;
            let after = rate(mix, 0.0, block)?;
            rates.push(with);
            parts.push(2.0 * with / (before + after));
            before = after;
        }
    }
    let medians = rates.iter_mut().map(|(rates, parts)| (median(rates), median(parts)));
    Ok(PERCENT.into_iter().zip(medians).map(|(percent, (rate, part))| (percent, rate, part)).collect())
}

impl Report {
    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> String {
        let latencies = self.latencies.iter().map(|(what, time)| {
            format!("{{\"operation\":\"{what}\",\"us\":{:.1}}}", time.as_secs_f64() * 1e6)
        });
        let mix = self.mix.iter().map(|(percent, rate, part)| {
            format!("{{\"percent\":{percent},\"per_s\":{rate:.0},\"of_none\":{part:.3}}}")
        });
        let join = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(",");
        let (mut latencies, mut mix) = (latencies, mix);
        format!("{{\"latencies\":[{}],\"mix\":[{}]}}", join(&mut latencies), join(&mut mix))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Ursa Minor, Table 3: median latency")?;
        for (what, time) in &self.latencies {
            writeln!(f, "  {what:<26} {:>9.1} us", time.as_secs_f64() * 1e6)?;
        }
        writeln!(f, "\nUrsa Minor, Figure 5: throughput of operation mix 2 by renames to other islands")?;
        writeln!(f, "  {:>8}  {:>12}  {:>16}", "renames", "operations/s", "of that without")?;
        for (percent, rate, part) in &self.mix {
            writeln!(f, "  {percent:>6} %  {rate:>12.0}  {:>14.1} %", part * 100.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_both_is_measured_and_nothing_is_left_behind() {
        let dir = std::env::temp_dir().join(format!("atoll-borrow-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let effort = Effort { times: 3, blocks: 1, block: Duration::from_millis(20) };
        let report = borrow(&dir, effort, Apart::Any).unwrap();
        assert_eq!(report.latencies.len(), 6);
        assert_eq!(report.mix.len(), PERCENT.len());
        assert!(report.mix.iter().all(|(_, rate, part)| *rate > 0.0 && *part > 0.0));
        assert!(report.to_string().contains("Figure 5"));
        let alone = borrow(&dir, effort, Apart::Islands);
        assert!(alone.unwrap_err().to_string().contains("one island"));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fs::remove_dir(&dir).unwrap();
    }
}
