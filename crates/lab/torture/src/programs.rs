//! Real programs inside a mount: each brings its own idea of what a file system must do, and its own
//! check that it did.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use atoll_needs::{Need, are_met};

use crate::place::run;
use crate::{saves, tools};

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// As in the tests: seconds.
    Short,
    /// As long as it is worth.
    Long,
}

impl Scale {
    /// One of two.
    pub fn of<T>(self, short: T, long: T) -> T {
        match self {
            Self::Short => short,
            Self::Long => long,
        }
    }
}

/// Where a program works.
#[derive(Debug, Clone, Copy)]
pub struct Bench<'a> {
    /// A folder in the mount, its own.
    pub inside: &'a Path,
    /// The same folder in another mount, if there is one.
    pub other: &'a Path,
    /// A folder outside.
    pub outside: &'a Path,
    /// How much.
    pub scale: Scale,
}

type Program = fn(Bench<'_>) -> Result<()>;

/// Name, what it needs, and itself.
const PROGRAMS: &[(&str, &[&str], Program)] = &[
    ("fsx", &["fsx"], fsx),
    ("fio", &["fio"], fio),
    ("git", &["git"], git),
    ("sqlite", &["sqlite3"], sqlite),
    ("make", &["make", "cc"], make),
    ("cargo", &["cargo"], cargo),
    ("copy", &["cp", "diff", "rsync"], copy),
    ("packages", &[], tools::packages),
    ("npm", &["npm", "node"], tools::npm),
    ("incremental", &[], tools::incremental),
    ("snapshots", &["rsync", "cp"], tools::snapshots),
    ("worktrees", &["git"], tools::worktrees),
    ("maildir", &[], saves::maildir),
    ("saves", &[], saves::saves),
    ("vim", &["vim"], saves::vim),
];

/// The programs that there are.
pub fn names() -> Vec<&'static str> {
    PROGRAMS.iter().map(|(name, ..)| *name).collect()
}

/// Runs those of `wanted`; all if it is empty. One that is not installed is skipped and said to be; the
/// first that fails ends it.
pub fn run_all(
    mounts: &[PathBuf],
    outside: &Path,
    scale: Scale,
    wanted: &[String],
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    if let Some(unknown) = wanted.iter().find(|name| !names().contains(&name.as_str())) {
        bail!("there is no {unknown}; there are {}", names().join(" "));
    }
    for (name, needs, program) in PROGRAMS {
        if !wanted.is_empty() && !wanted.iter().any(|w| w == name) {
            continue;
        }
        if !are_met(&format!("work {name}"), &[Need::Programs(needs)]) {
            continue;
        }
        let (inside, outside) = (mounts[0].join(name), outside.join(format!("beside-{name}")));
        let other = mounts.get(1).map_or_else(|| inside.clone(), |mount| mount.join(name));
        fs::create_dir(&inside)?;
        fs::create_dir(&outside)?;
        let begun = Instant::now();
        program(Bench { inside: &inside, other: &other, outside: &outside, scale })
            .with_context(|| format!("{name} failed"))?;
        fs::remove_dir_all(&inside).with_context(|| format!("what {name} left cannot be removed"))?;
        say(&format!("{name}: fine, {:.1} s", begun.elapsed().as_secs_f64()));
    }
    Ok(())
}

/// The version of fsx that is expected. `make suites` installs it.
pub const FSX_VERSION: &str = "0.3.2";

fn fsx(bench: Bench<'_>) -> Result<()> {
    let version = run(Command::new("fsx").arg("--version"))?;
    ensure!(
        version.trim() == format!("fsx {FSX_VERSION}"),
        "{} is installed, and {FSX_VERSION} is expected: make suites",
        version.trim()
    );
    let operations = bench.scale.of("5000", "200000");
    for seed in bench.scale.of(&[5][..], &[5, 81, 1000, 31_337]) {
        let file = bench.inside.join(format!("fsx-{seed}"));
        let mut command = Command::new("fsx");
        command.args(["-q", "-N", operations, "-S", &seed.to_string(), "-P"]).arg(bench.outside).arg(file);
        run(&mut command)?;
    }
    Ok(())
}

fn fio(bench: Bench<'_>) -> Result<()> {
    let size = bench.scale.of("8m", "128m");
    for (kind, block, more) in [
        ("randwrite", "4k", "--fsync=64"),
        ("randwrite", "1k-100k", "--bs_unaligned=1"),
        ("write", "1m", "--end_fsync=1"),
        ("randrw", "16k", "--numjobs=2"),
    ] {
        let mut command = Command::new("fio");
        command.args(["--name=verify", "--ioengine=psync", "--verify=crc32c", "--verify_fatal=1"]);
        command.args(["--do_verify=1", "--randseed=81", "--group_reporting", more]);
        let range = if block.contains('-') { "bsrange" } else { "bs" };
        command.arg(format!("--rw={kind}")).arg(format!("--size={size}")).arg(format!("--{range}={block}"));
        command.arg("--directory").arg(bench.inside).current_dir(bench.outside);
        let said = run(&mut command)?;
        ensure!(said.contains("err= 0"), "{said}");
        for entry in fs::read_dir(bench.inside)? {
            fs::remove_file(entry?.path())?;
        }
    }
    Ok(())
}

/// So many small text files in directories of a hundred.
pub(crate) fn small_files(top: &Path, count: usize) -> Result<()> {
    for at in 0..count {
        let dir = top.join(format!("dir-{}", at / 100)).join(format!("{}", at / 20 % 5));
        if at.is_multiple_of(20) {
            fs::create_dir_all(&dir)?;
        }
        fs::write(dir.join(format!("file-{at}.txt")), format!("file {at}\n").repeat(1 + at % 60))?;
    }
    Ok(())
}

/// `git ARGS` in a folder, with nothing of this machine's settings.
pub(crate) fn git_in(dir: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "gc.auto=0"]);
    command.arg("-C").arg(dir).args(args);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    run(&mut command)
}

fn git(bench: Bench<'_>) -> Result<()> {
    let repository = bench.inside.join("repository");
    let git = |args: &[&str]| git_in(&repository, args);
    fs::create_dir(&repository)?;
    git(&["init", "--quiet"])?;
    small_files(&repository, bench.scale.of(600, 5000))?;
    git(&["add", "."])?;
    git(&["commit", "--quiet", "-m", "all"])?;
    git(&["checkout", "--quiet", "-b", "other"])?;
    for at in 0..50 {
        let path = repository.join("dir-0/0").join(format!("file-{}.txt", at % 20));
        fs::write(path, format!("changed {at}\n"))?;
        git(&["commit", "--quiet", "-a", "--allow-empty", "-m", "one"])?;
        if at == bench.scale.of(4, 49) {
            break;
        }
    }
    git(&["checkout", "--quiet", "-"])?;
    git(&["merge", "--quiet", "--no-ff", "-m", "merged", "other"])?;
    git(&["gc", "--quiet", "--prune=now"])?;
    git(&["fsck", "--full", "--strict"])?;
    let status = git(&["status", "--porcelain"])?;
    ensure!(status.is_empty(), "git status finds changes:\n{status}");
    let clone = bench.inside.join("clone");
    run(Command::new("git").args(["clone", "--quiet"]).arg(&repository).arg(&clone))?;
    run(Command::new("diff").args(["-r", "--exclude=.git"]).arg(&repository).arg(&clone))?;
    Ok(())
}

fn sqlite(bench: Bench<'_>) -> Result<()> {
    let rows = bench.scale.of(300, 3000);
    for journal in ["delete", "truncate", "persist", "wal"] {
        let path = bench.inside.join(format!("{journal}.db"));
        let sql = |text: &str| {
            let mut command = Command::new("sqlite3");
            command.arg("-bail").arg("-cmd").arg(".timeout 20000").arg(&path).arg(text);
            run(&mut command)
        };
        let said = sql(&format!(
            "pragma journal_mode={journal}; create table t (id integer primary key, who int, text);"
        ))?;
        ensure!(said.trim() == journal, "journal mode {journal}: {said}");
        let writers: Vec<Result<()>> = std::thread::scope(|scope| {
            let write = |who: usize| {
                for round in 0..3 {
                    sql(&format!(
                        "begin immediate; with recursive n(i) as (select 1 union all select i+1 from n \
                         where i < {rows}) insert into t (who, text) select {who}, hex(randomblob(i % 300)) \
                         from n; commit; begin immediate; delete from t where who={who} and id % 7 = {round}; \
                         rollback;"
                    ))?;
                }
                Ok(())
            };
            let threads: Vec<_> = (0..3).map(|who| scope.spawn(move || write(who))).collect();
            threads.into_iter().map(|t| t.join().expect("no writer panics")).collect()
        });
        writers.into_iter().collect::<Result<Vec<()>>>()?;
        let said =
            sql("update t set text = text || 'x'; vacuum; pragma integrity_check; select count(*) from t;")?;
        let lines: Vec<_> = said.lines().collect();
        ensure!(lines == ["ok", &(rows * 9).to_string()], "{journal}: {said}");
    }
    Ok(())
}

/// A C program of many files, built twice: the second time there is nothing to do.
fn make(bench: Bench<'_>) -> Result<()> {
    let count = bench.scale.of(12, 150);
    let mut main = String::from("#include <stdio.h>\n");
    let mut sum = String::new();
    for at in 0..count {
        fs::write(
            bench.inside.join(format!("part{at}.c")),
            format!("int part{at}(void) {{ return {at}; }}\n"),
        )?;
        main += &format!("int part{at}(void);\n");
        sum += &format!(" + part{at}()");
    }
    fs::write(
        bench.inside.join("main.c"),
        format!("{main}int main(void) {{ printf(\"%d\\n\", 0{sum}); }}\n"),
    )?;
    let rules = "OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))\nprogram: $(OBJECTS)\n\tcc -o $@ $^\n\
                 %.o: %.c\n\tcc -c -o $@ $<\n";
    fs::write(bench.inside.join("Makefile"), rules)?;
    run(Command::new("make").arg("-j2").arg("-C").arg(bench.inside))?;
    let said = run(&mut Command::new(bench.inside.join("program")))?;
    ensure!(said.trim() == (count * (count - 1) / 2).to_string(), "the program says {said}");
    run(Command::new("make").arg("-q").arg("-C").arg(bench.inside)).context("make would build again")?;
    Ok(())
}

fn cargo(bench: Bench<'_>) -> Result<()> {
    let cargo = |args: &[&str], dir: &Path| {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(args).current_dir(dir).env("CARGO_TARGET_DIR", bench.inside.join("target"));
        for inherited in ["CARGO_MANIFEST_DIR", "CARGO_BUILD_TARGET", "RUSTFLAGS", "RUSTC_WRAPPER"] {
            command.env_remove(inherited);
        }
        run(&mut command)
    };
    cargo(&["new", "--quiet", "--vcs", "none", "program"], bench.inside)?;
    let source: PathBuf = bench.inside.join("program/src");
    let count = bench.scale.of(3, 60);
    let mut main = String::new();
    let mut sum = String::from("0");
    for at in 0..count {
        let tests = format!("#[test] fn t() {{ assert_eq!(super::m{at}::f(), {at}); }}");
        fs::write(source.join(format!("m{at}.rs")), format!("pub fn f() -> u32 {{ {at} }}\n{tests}\n"))?;
        main += &format!("mod m{at};\n");
        sum += &format!(" + m{at}::f()");
    }
    fs::write(source.join("main.rs"), format!("{main}fn main() {{ println!(\"{{}}\", {sum}); }}\n"))?;
    let program = bench.inside.join("program");
    let said = cargo(&["run", "--quiet", "--offline"], &program)?;
    ensure!(said.trim() == (count * (count - 1) / 2).to_string(), "the program says {said}");
    // Incremental: other bytes, other hash, other names.
    fs::write(source.join("m1.rs"), "pub fn f() -> u32 { 2 }\n")?;
    let said = cargo(&["run", "--quiet", "--offline"], &program)?;
    ensure!(said.trim() == (count * (count - 1) / 2 + 1).to_string(), "the changed program says {said}");
    if bench.scale == Scale::Long {
        fs::write(source.join("m1.rs"), "pub fn f() -> u32 { 1 }\n")?;
        cargo(&["test", "--quiet", "--offline"], &program)?;
        cargo(&["build", "--quiet", "--offline", "--release"], &program)?;
    }
    Ok(())
}

fn copy(bench: Bench<'_>) -> Result<()> {
    let source = match bench.scale {
        Scale::Long => PathBuf::from("/usr/include"),
        Scale::Short => {
            let source = bench.outside.join("source");
            small_files(&source, 500)?;
            source
        }
    };
    let (inside, back) = (bench.inside.join("copy"), bench.outside.join("back"));
    run(Command::new("cp").arg("-a").arg(&source).arg(&inside))?;
    let diff =
        |one: &Path, two: &Path| run(Command::new("diff").args(["-r", "--no-dereference"]).arg(one).arg(two));
    diff(&source, &inside)?;
    run(Command::new("cp").arg("-a").arg(&inside).arg(&back))?;
    diff(&source, &back)?;
    let synced = bench.inside.join("synced");
    let rsync = |from: &Path, to: &Path, more: &[&str]| {
        let slash = |path: &Path| format!("{}/", path.display());
        run(Command::new("rsync")
            .args(["-aHAX", "--itemize-changes"])
            .args(more)
            .args([slash(from), slash(to)]))
    };
    rsync(&source, &synced, &[])?;
    diff(&source, &synced)?;
    for more in [&[][..], &["--checksum"]] {
        let changes = rsync(&source, &synced, more)?;
        ensure!(changes.is_empty(), "a second rsync finds something to do:\n{changes}");
    }
    rsync(&synced, &bench.outside.join("synced"), &[])?;
    diff(&source, &bench.outside.join("synced"))?;
    run(Command::new("rm").arg("-r").arg(&inside))?;
    ensure!(!inside.exists(), "rm left something");
    Ok(())
}
