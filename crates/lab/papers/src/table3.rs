//! FedFS's Table 3: how long NFS calls take over a plain tree, and over a union of trees with the same files, on one machine.
//!
//! The mix is that of its Table 1, on as many files and directories. The paper asks for 50 operations a second; this sends
//! the next operation when the one before was answered, and each operation to all servers one after another, in an
//! order that changes. So whatever else the machine does hits all of them. Every answer is checked.

mod plain;
mod servers;

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use anyhow::{Context, Result, ensure};
use atoll_model::Rng;
use atoll_model::rng::mix;

use crate::folder::Folder;
use servers::Subject;

/// Bytes of one READ or WRITE.
const BLOCK_BYTES: usize = 8 << 10;
/// Bytes of a file behind its three blocks: the paper's files have 25 KiB in the mean.
const TAIL_BYTES: usize = 1 << 10;
/// Most members of the union.
pub const MEMBERS_MAX: usize = 16;
/// Most operations that count.
pub const OPERATIONS_MAX: usize = 1_000_000;
/// The operations of the mix, with their shares (the paper's Table 1).
const MIX: [(&str, u32); 5] = [("Lookup", 46), ("Read", 34), ("Write", 17), ("Create", 2), ("Remove", 1)];
/// The paper's milliseconds for NFS and for NFS over FedFS; the last row is the average.
const PAPER: [(f64, f64); 6] =
    [(0.50, 0.52), (1.62, 1.62), (1.28, 1.51), (1.16, 1.33), (0.65, 0.72), (1.03, 1.08)];
/// The share of slowest operations that the second mean leaves out: one in so many. They are those that the machine
/// interrupted.
const SLOWEST: usize = 100;

/// How much is there and how much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Directories.
    pub dirs: usize,
    /// Files, spread over them.
    pub files: usize,
    /// Operations that count. A tenth as many come before.
    pub operations: usize,
}

impl Size {
    /// As in the paper: 300 s of 50 operations a second.
    pub const PAPER: Self = Self { dirs: 650, files: 19_500, operations: 15_000 };
    /// To see that it works.
    pub const SHORT: Self = Self { dirs: 5, files: 60, operations: 500 };
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compared {
    /// Members of the union.
    pub members: usize,
    /// Whether nfs-ganesha is measured, too.
    pub ganesha: bool,
}

/// How long the operations of a server took.
#[derive(Debug, Clone)]
pub struct Column {
    /// Which server.
    pub name: String,
    /// The times by operation, as in the mix, each in ascending order.
    times: [Vec<Duration>; 5],
}

impl Column {
    fn all(&self) -> Vec<Duration> {
        let mut all = self.times.concat();
        all.sort_unstable();
        all
    }

    /// How often each operation was done.
    pub fn counts(&self) -> [usize; 5] {
        self.times.each_ref().map(Vec::len)
    }

    /// Mean, and mean without the slowest, in microseconds: of each operation, and of all.
    pub fn means(&self) -> [(f64, f64); 6] {
        let all = self.all();
        let rows: Vec<&[Duration]> = self.times.iter().map(Vec::as_slice).chain([&all[..]]).collect();
        std::array::from_fn(|row| {
            let times = rows[row];
            (mean_us(times), mean_us(&times[..times.len() - times.len() / SLOWEST]))
        })
    }
}

fn mean_us(times: &[Duration]) -> f64 {
    times.iter().sum::<Duration>().as_secs_f64() * 1e6 / times.len().max(1) as f64
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct Report {
    /// How much.
    pub size: Size,
    /// The plain tree, the union of one member, the union, and nfs-ganesha if it was asked for.
    pub columns: Vec<Column>,
}

fn dir_name(dir: usize) -> String {
    format!("d{dir}")
}

fn file_name(file: usize) -> String {
    format!("f{file}")
}

/// The bytes of a block that was written so many times.
fn content(file: usize, block: usize, version: u32) -> Vec<u8> {
    mix(mix((file * 4 + block) as u64) ^ u64::from(version)).to_le_bytes().repeat(BLOCK_BYTES / 8)
}

/// An operation of the mix.
enum Step {
    Lookup { file: usize },
    Read { file: usize, block: usize },
    Write { file: usize, block: usize },
    Create { number: usize },
    Remove { number: usize },
}

/// Draws operations, and knows what their answers must be.
struct Driver {
    rng: Rng,
    size: Size,
    versions: Vec<[u32; 3]>,
    made: usize,
    left: VecDeque<usize>,
}

impl Driver {
    /// The place in the mix, and the operation.
    fn next(&mut self) -> (usize, Step) {
        let (file, block) = (self.rng.index(self.size.files), self.rng.index(3));
        loop {
            let row = self.rng.weighted(&MIX.map(|(_, share)| share));
            let step = match row {
                0 => Step::Lookup { file },
                1 => Step::Read { file, block },
                2 => Step::Write { file, block },
                3 => Step::Create { number: self.made },
                _ => match self.left.front() {
                    Some(number) => Step::Remove { number: *number },
                    None => continue,
                },
            };
            return (row, step);
        }
    }

    /// Does it at one server.
    fn run(&self, subject: &Subject, step: &Step) -> Result<Duration> {
        let place = |number: &usize| (number % self.size.dirs, format!("n{number}"));
        let version = |file: &usize, block: &usize| self.versions[*file][*block];
        match step {
            Step::Lookup { file } => {
                let (took, _) = timed(|| subject.lookup(*file))?;
                Ok(took)
            }
            Step::Read { file, block } => {
                let (took, bytes) = timed(|| subject.read(*file, *block))?;
                ensure!(bytes == content(*file, *block, version(file, block)), "wrong bytes of file {file}");
                Ok(took)
            }
            Step::Write { file, block } => {
                let bytes = content(*file, *block, version(file, block) + 1);
                Ok(timed(|| subject.write(*file, *block, &bytes))?.0)
            }
            Step::Create { number } => {
                let (dir, name) = place(number);
                Ok(timed(|| subject.create(dir, &name))?.0)
            }
            Step::Remove { number } => {
                let (dir, name) = place(number);
                Ok(timed(|| subject.remove(dir, &name))?.0)
            }
        }
    }

    /// All servers have done it.
    fn note(&mut self, step: &Step) {
        match step {
            Step::Write { file, block } => self.versions[*file][*block] += 1,
            Step::Create { number } => {
                self.made += 1;
                self.left.push_back(*number);
            }
            Step::Remove { .. } => _ = self.left.pop_front(),
            Step::Lookup { .. } | Step::Read { .. } => {}
        }
    }
}

fn timed<T>(what: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let start = Instant::now();
    let told = what()?;
    Ok((start.elapsed(), told))
}

/// Measures in a new folder in `base`, which is removed at the end. Root only, because the files belong to a user.
///
/// # Errors
///
/// If a server does not start, refuses an operation, or answers wrongly.
pub fn table3(base: &Path, size: Size, compared: Compared) -> Result<Report> {
    let folder = Folder::new(base, "table3")?;
    let place = folder.path();
    let mut subjects = vec![
        Subject::plain(place, size)?,
        Subject::union(place, 1, size)?,
        Subject::union(place, compared.members, size)?,
    ];
    if compared.ganesha {
        subjects.push(Subject::ganesha(place, size)?);
    }
    let mut columns: Vec<Column> =
        subjects.iter().map(|s| Column { name: s.name.clone(), times: Default::default() }).collect();
    let (rng, versions) = (Rng::new(1), vec![[0; 3]; size.files]);
    let mut driver = Driver { rng, size, versions, made: 0, left: VecDeque::new() };
    let before = size.operations / 10;
    for number in 0..before + size.operations {
        let (row, step) = driver.next();
        let mut order: Vec<usize> = (0..subjects.len()).collect();
        while let Some(last) = order.len().checked_sub(1) {
            let at = order.swap_remove(driver.rng.index(last + 1));
            let took = driver
                .run(&subjects[at], &step)
                .with_context(|| format!("{}: {}", columns[at].name, MIX[row].0))?;
            if number >= before {
                columns[at].times[row].push(took);
            }
        }
        driver.note(&step);
    }
    columns.iter_mut().flat_map(|column| &mut column.times).for_each(|times| times.sort_unstable());
    same_files(&subjects)?;
    Ok(Report { size, columns })
}

/// The trees of all servers have the same files.
fn same_files(subjects: &[Subject]) -> Result<()> {
    let files = |subject: &Subject| -> Result<Vec<_>> {
        let mut files = Vec::new();
        for tree in &subject.trees {
            for dir in fs::read_dir(tree)? {
                for file in fs::read_dir(dir?.path())? {
                    let path = file?.path();
                    let sum = fs::read(&path)?.chunks(8).fold(0, |sum, bytes| {
                        mix(sum ^ bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
                    });
                    files.push((path.strip_prefix(tree)?.to_owned(), sum));
                }
            }
        }
        files.sort_unstable();
        Ok(files)
    };
    let first = files(&subjects[0])?;
    for subject in &subjects[1..] {
        ensure!(files(subject)? == first, "the trees of {} have other files at the end", subject.name);
    }
    Ok(())
}

impl Report {
    /// As one JSON object. Times are in microseconds.
    pub fn to_json(&self) -> String {
        let column = |column: &Column| {
            let rows: Vec<String> = (column.means().iter().zip(names()))
                .map(|((mean, fast), name)| {
                    format!("\"{name}\":{{\"mean\":{mean:.2},\"fastest_99\":{fast:.2}}}")
                })
                .collect();
            format!("{{\"name\":\"{}\",{}}}", column.name, rows.join(","))
        };
        let columns: Vec<_> = self.columns.iter().map(column).collect();
        let Size { dirs, files, operations } = self.size;
        format!(
            "{{\"dirs\":{dirs},\"files\":{files},\"operations\":{operations},\"servers\":[{}]}}",
            columns.join(",")
        )
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    MIX.iter().map(|(name, _)| *name).chain(["Average"])
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { dirs, files, operations } = self.size;
        writeln!(f, "{files} files of 25 KiB in {dirs} directories, {operations} operations at each server")?;
        writeln!(f, "mean in us (mean of the fastest 99 %), and the paper's NFS and DNFS in us")?;
        write!(f, "{:8}", "")?;
        self.columns.iter().try_for_each(|column| write!(f, "  {:>17}", column.name))?;
        write!(f, "  {:>13}", "(paper)")?;
        let means: Vec<_> = self.columns.iter().map(Column::means).collect();
        for (row, name) in names().enumerate() {
            write!(f, "\n{name:8}")?;
            for column in &means {
                let (mean, fast) = column[row];
                write!(f, "  {:>17}", format!("{mean:.1} ({fast:.1})"))?;
            }
            let (nfs, dnfs) = PAPER[row];
            write!(f, "  {:>13}", format!("{:.0} {:.0}", nfs * 1e3, dnfs * 1e3))?;
        }
        let (plain, last) = (means[0][5], means[0].len() - 1);
        for (column, means) in self.columns.iter().zip(&means).skip(1) {
            let (mean, fast) = (means[last].0 / plain.0, means[last].1 / plain.1);
            write!(f, "\n{}: {:.1} % of the plain tree ({:.1} %)", column.name, mean * 1e2, fast * 1e2)?;
        }
        let (nfs, dnfs) = PAPER[5];
        write!(f, "\nthe paper's DNFS: {:.1} % of its NFS", dnfs / nfs * 1e2)
    }
}
