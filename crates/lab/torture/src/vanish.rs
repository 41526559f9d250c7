//! Several mounts copy one directory to the same name, list it, and remove it, all at once, with the system's
//! own programs. A program may be told that a name is there or not. It must not be told anything that a local
//! file system never says.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What a program may be told that only races with others over names.
const LOCAL: [&str; 5] =
    ["No such file or directory", "File exists", "Directory not empty", "Is a directory", "Not a directory"];

/// What was seen.
#[derive(Debug, Default)]
pub struct Report {
    /// How often each program was run.
    pub runs: u64,
    /// What they complained about, and how often.
    pub errors: BTreeMap<String, u64>,
    /// Lines with an error that is no local file system's.
    pub strange: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} runs of programs", self.runs)?;
        self.errors.iter().try_for_each(|(error, count)| writeln!(f, "{count:8} {error}"))?;
        self.strange.iter().try_for_each(|line| writeln!(f, "strange: {line}"))
    }
}

/// Races over the name `d` in each of these mounts for so long. `source` is made, and is what is copied.
pub fn run(mounts: &[PathBuf], source: &Path, time: Duration) -> Result<Report> {
    for (dir, files) in [("", 5), ("a", 5), ("a/b", 5), ("c", 5)] {
        std::fs::create_dir_all(source.join(dir))?;
        (0..files).try_for_each(|file| std::fs::write(source.join(dir).join(format!("f{file}")), b"some"))?;
    }
    let until = Instant::now() + time;
    let said = std::thread::scope(|scope| {
        let each = mounts.iter().map(|mount| scope.spawn(move || one_mount(mount, source, until)));
        let all: Vec<_> = each.collect();
        all.into_iter().map(|thread| thread.join().expect("it does not panic")).collect::<Result<Vec<_>>>()
    })?;
    let mut report = Report::default();
    for (runs, lines) in said {
        report.runs += runs;
        for line in lines {
            let error = line.rsplit(": ").next().unwrap_or_default().to_owned();
            if !LOCAL.contains(&error.as_str()) {
                report.strange.push(line);
            }
            *report.errors.entry(error).or_default() += 1;
        }
    }
    Ok(report)
}

fn one_mount(mount: &Path, source: &Path, until: Instant) -> Result<(u64, Vec<String>)> {
    let dir = mount.join("d");
    let (mut runs, mut lines) = (0, Vec::new());
    while Instant::now() < until {
        for (program, options, paths) in [
            ("cp", "-r", &[source, dir.as_path()][..]),
            ("ls", "-lR", &[dir.as_path()][..]),
            ("rm", "-rf", &[dir.as_path()][..]),
        ] {
            let output = Command::new(program).env("LC_ALL", "C").arg(options).args(paths).output();
            let output = output.with_context(|| format!("{program} cannot be run"))?;
            lines.extend(String::from_utf8_lossy(&output.stderr).lines().map(str::to_owned));
            runs += 1;
        }
    }
    Ok((runs, lines))
}
