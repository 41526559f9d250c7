//! Runs all tests: some programs at a time, as cargo runs one after the other and many wait more than they work.
//! Decides nothing about a test: each program runs as cargo runs it, and fails as it fails there.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Programs at a time. More would take time from those that measure it.
const AT_ONCE: usize = 2;
/// How long a program may take that hangs: it is named, where the gate's own end would only stop everything.
const TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// How often it is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(10);

/// A program with tests.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    file: PathBuf,
    /// The folder of its package, in which cargo runs it.
    dir: PathBuf,
}

impl Program {
    /// Package and name, for people.
    fn name(&self) -> String {
        let file = self.file.file_name().unwrap_or_default().to_string_lossy();
        let name = file.rsplit_once('-').map_or(&*file, |(name, _)| name);
        let package = self.dir.file_name().unwrap_or_default().to_string_lossy();
        format!("{package} {name}")
    }
}

/// Builds and runs all of them, then the examples in comments. Whether all have passed.
pub(crate) fn run(cargo: &dyn Fn(&str) -> Command, skipped: &Path) -> bool {
    let build = "test --workspace --locked --no-run --message-format=json-render-diagnostics";
    let built = match cargo(build).stderr(Stdio::inherit()).output() {
        Ok(built) if built.status.success() => built,
        Ok(_) => return false,
        Err(why) => {
            eprintln!("cargo {build}: {why}");
            return false;
        }
    };
    let programs = programs(&String::from_utf8_lossy(&built.stdout));
    if programs.is_empty() {
        eprintln!("cargo has built no tests");
        return false;
    }
    let outputs = skipped.with_file_name("test-outputs");
    if let Err(why) = std::fs::create_dir_all(&outputs) {
        eprintln!("{}: {why}", outputs.display());
        return false;
    }
    let failed = run_all(programs, &outputs, &|program| {
        let mut command = Command::new(&program.file);
        command.current_dir(&program.dir).env("CARGO_MANIFEST_DIR", &program.dir);
        command.env("ATOLL_SKIPPED", skipped);
        command
    });
    for name in &failed {
        eprintln!("FAILED: {name}");
    }
    let doc = cargo("test --workspace --locked --doc --quiet --no-fail-fast")
        .env("ATOLL_SKIPPED", skipped)
        .status();
    failed.is_empty() && doc.is_ok_and(|status| status.success())
}

/// The programs with tests among what cargo says that it has built: a JSON object a line.
fn programs(lines: &str) -> Vec<Program> {
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let tests = messages.filter(|message| message["profile"]["test"] == true);
    tests
        .filter_map(|message| {
            let dir = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
            Some(Program { file: message["executable"].as_str()?.into(), dir })
        })
        .collect()
}

/// Runs programs and shows what each has said when it has ended; the names of those that have failed.
///
/// One thread begins with the first, the others with the last. Those over real mounts and networks, which wait most, come
/// first and run beside those that only work.
fn run_all(
    mut programs: Vec<Program>,
    outputs: &Path,
    command: &(dyn Fn(&Program) -> Command + Sync),
) -> Vec<String> {
    programs.sort_by_key(|program| (!program.dir.ends_with("torture"), program.name()));
    let (left, failed) = (Mutex::new(std::collections::VecDeque::from(programs)), Mutex::new(Vec::new()));
    let work = |first: bool| {
        loop {
            let next = {
                let mut left = left.lock().expect("no panic while it is held");
                if first { left.pop_front() } else { left.pop_back() }
            };
            let Some(program) = next else { return };
            let began = Instant::now();
            let said = outputs.join(program.file.file_name().unwrap_or_default());
            let ended = to_end(&mut command(&program), &said);
            // In one piece: another one may end now.
            let mut failed = failed.lock().expect("no panic while it is held");
            println!("   Running {} ({:.1} s)", program.name(), began.elapsed().as_secs_f64());
            match ended {
                Ok((status, said)) => {
                    print!("{}", String::from_utf8_lossy(&said));
                    if !status.success() {
                        failed.push(format!("{}: {status}", program.name()));
                    }
                }
                Err(why) => failed.push(format!("{}: {why}", program.name())),
            }
        }
    };
    std::thread::scope(|scope| {
        for n in 0..AT_ONCE {
            let work = &work;
            scope.spawn(move || work(n == 0));
        }
    });
    failed.into_inner().expect("no panic while it is held")
}

/// Runs a program until it ends, or for too long: how, and what it has said. Into a file, as a daemon that a test has
/// left behind may keep a pipe open.
fn to_end(command: &mut Command, said: &Path) -> std::io::Result<(ExitStatus, Vec<u8>)> {
    let file = File::create(said)?;
    let mut child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
    let until = Instant::now() + TIME_MAX;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() > until => {
                child.kill()?;
                break child.wait()?;
            }
            None => std::thread::sleep(LOOK),
        }
    };
    let said_all = std::fs::read(said)?;
    std::fs::remove_file(said)?;
    Ok((status, said_all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(dir: &str, file: &str) -> Program {
        Program { file: file.into(), dir: dir.into() }
    }

    #[test]
    fn programs_with_tests_are_those_that_cargo_has_built_as_such() {
        let lines = r#"{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","profile":{"opt_level":"0","test":true},"filenames":["/w/t/deps/a-1"],"executable":"/w/t/deps/a-1","fresh":true}
{"reason":"compiler-artifact","manifest_path":"/w/b/Cargo.toml","profile":{"opt_level":"0","test":false},"executable":"/w/t/b","fresh":true}
{"reason":"compiler-artifact","manifest_path":"/w/c/Cargo.toml","profile":{"opt_level":"0","test":true},"executable":null,"fresh":true}
{"reason":"build-finished","success":true}"#;
        assert_eq!(programs(lines), [program("/w/a", "/w/t/deps/a-1")]);
        assert_eq!(programs(lines)[0].name(), "a a");
    }

    #[test]
    fn every_program_runs_once_and_those_that_fail_or_cannot_start_are_named() {
        let all = ["/bin/true-1", "/bin/false-1", "/nonexistent-1", "/bin/true-2"];
        let programs = all.iter().map(|file| program("/", file)).collect();
        let runs = Mutex::new(Vec::new());
        let outputs = std::env::temp_dir().join(format!("xtask-tests-{}", std::process::id()));
        std::fs::create_dir_all(&outputs).unwrap();
        let failed = run_all(programs, &outputs, &|program| {
            runs.lock().unwrap().push(program.file.clone());
            Command::new(program.file.to_str().unwrap().rsplit_once('-').unwrap().0)
        });
        std::fs::remove_dir_all(&outputs).unwrap();
        let mut runs = runs.into_inner().unwrap();
        runs.sort();
        assert_eq!(runs.len(), 4);
        runs.dedup();
        assert_eq!(runs.len(), 4);
        assert_eq!(failed.len(), 2, "{failed:?}");
        assert!(failed.iter().any(|line| line.contains("false")), "{failed:?}");
        assert!(failed.iter().any(|line| line.contains("nonexistent")), "{failed:?}");
    }
}
