//! Runs all tests: some programs at a time, as cargo runs one after the other and many wait more than they work.
//! Decides nothing about a test: each program runs as cargo runs it, and fails as it fails there.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Programs at a time. Those over real mounts and networks mostly wait: two of them and one that computes keep two processors
/// busy.
const AT_ONCE: usize = 3;
/// How long a program may take that hangs: it is named, where the gate's own end would only stop everything.
const TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// So many lines of what a program has said are shown again at the end, if it has failed.
const LINES_MAX: usize = 80;
/// How often it is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(10);

/// A program with tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    file: PathBuf,
    /// The folder of its package, in which cargo runs it.
    dir: PathBuf,
}

impl Program {
    /// Runs it as cargo does.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(&self.dir).env("CARGO_MANIFEST_DIR", &self.dir);
        command
    }

    /// Whether it is one of the simulator's tests, but for those inside of its library.
    pub(crate) fn is_of_simulator(&self) -> bool {
        self.dir.ends_with("lab/sim") && !self.name().ends_with(" atoll_sim")
    }

    /// Package and name, for people.
    pub(crate) fn name(&self) -> String {
        let file = self.file.file_name().unwrap_or_default().to_string_lossy();
        let name = file.rsplit_once('-').map_or(&*file, |(name, _)| name);
        let package = self.dir.file_name().unwrap_or_default().to_string_lossy();
        format!("{package} {name}")
    }
}

/// Builds and runs all of them, then the examples in comments. Whether all have passed.
pub(crate) fn run(cargo: &dyn Fn(&str) -> Command, skipped: &Path) -> bool {
    let build = "test --workspace --locked --no-run --message-format=json-render-diagnostics";
    let Some(mut programs) = built(&mut cargo(build)) else { return false };
    // They run in the simulator's own build, with those that plant bugs.
    programs.retain(|program| !program.is_of_simulator());
    let outputs = skipped.with_file_name("test-outputs");
    if let Err(why) = std::fs::create_dir_all(&outputs) {
        eprintln!("{}: {why}", outputs.display());
        return false;
    }
    let dirs: BTreeSet<PathBuf> = programs.iter().map(|program| program.dir.clone()).collect();
    let failed = run_all(programs, &outputs, &|program| {
        let mut command = program.command();
        command.env("ATOLL_SKIPPED", skipped);
        command
    });
    // Of each other package rustdoc would only find out that there is none, which takes a second.
    let fails = |dir: &&PathBuf| {
        let mut examples = cargo("test --locked --doc --quiet --no-fail-fast --manifest-path");
        let status = examples.arg(dir.join("Cargo.toml")).env("ATOLL_SKIPPED", skipped).status();
        !status.is_ok_and(|status| status.success())
    };
    // All of them, as all tests run.
    let examples_pass = with_examples(&dirs).into_iter().filter(fails).count() == 0;
    // What failed is said last, where it is looked for.
    for (name, said) in &failed {
        println!("FAILED: {name}\n{}", last_lines(said));
    }
    failed.is_empty() && examples_pass
}

/// The last lines of what a program has said.
fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
}

/// Those of the packages in whose comments there are examples.
fn with_examples(dirs: &BTreeSet<PathBuf>) -> Vec<&PathBuf> {
    dirs.iter().filter(|dir| has_examples(&dir.join("src"))).collect()
}

/// Whether a comment of documentation in this folder has a block of code.
fn has_examples(folder: &Path) -> bool {
    let has = |text: String| {
        text.lines().any(|line| {
            let line = line.trim_start();
            line.starts_with("/// ```") || line.starts_with("//! ```")
        })
    };
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().map(|entry| entry.path()).any(|path| {
        if path.is_dir() { has_examples(&path) } else { std::fs::read_to_string(&path).is_ok_and(has) }
    })
}

/// The programs that a cargo builds which tells of them in JSON. None if it failed, or there are none.
pub(crate) fn built(cargo: &mut Command) -> Option<Vec<Program>> {
    let built = match cargo.stderr(Stdio::inherit()).output() {
        Ok(built) if built.status.success() => built,
        Ok(_) => return None,
        Err(why) => {
            eprintln!("{cargo:?}: {why}");
            return None;
        }
    };
    let programs = programs(&String::from_utf8_lossy(&built.stdout));
    if programs.is_empty() {
        eprintln!("cargo has built no tests");
    }
    (!programs.is_empty()).then_some(programs)
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

/// Runs programs and shows what each has said when it has ended; the names of those that have failed, and what they have said.
///
/// One thread begins with the last, the others with the first. Those over real mounts and networks, which wait most, come
/// first and run beside those that only work.
fn run_all(
    mut programs: Vec<Program>,
    outputs: &Path,
    command: &(dyn Fn(&Program) -> Command + Sync),
) -> Vec<(String, String)> {
    programs.sort_by_key(|program| (!program.dir.ends_with("torture"), program.name()));
    let (left, failed) = (Mutex::new(VecDeque::from(programs)), Mutex::new(Vec::new()));
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
                    let said = String::from_utf8_lossy(&said).into_owned();
                    print!("{said}");
                    if !status.success() {
                        failed.push((format!("{}: {status}", program.name()), said));
                    }
                }
                Err(why) => failed.push((format!("{}: {why}", program.name()), String::new())),
            }
        }
    };
    std::thread::scope(|scope| {
        for n in 0..AT_ONCE {
            let work = &work;
            scope.spawn(move || work(n > 0));
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
    fn tests_of_the_simulator_are_known_by_their_folder() {
        assert!(program("/w/crates/lab/sim", "/w/t/deps/across-1").is_of_simulator());
        assert!(!program("/w/crates/lab/sim", "/w/t/deps/atoll_sim-1").is_of_simulator());
        assert!(!program("/w/crates/store/dispatch", "/w/t/deps/copies-1").is_of_simulator());
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
        assert!(failed.iter().any(|(name, _)| name.contains("false")), "{failed:?}");
        assert!(failed.iter().any(|(name, _)| name.contains("nonexistent")), "{failed:?}");
    }

    #[test]
    fn packages_with_examples_are_those_with_code_in_their_comments() {
        let root = std::env::temp_dir().join(format!("xtask-examples-{}", std::process::id()));
        for (package, text) in [("a", "/// ```\n/// f();\n/// ```\n"), ("b", "/// None.\n// ```\n")] {
            std::fs::create_dir_all(root.join(package).join("src/inner")).unwrap();
            std::fs::write(root.join(package).join("src/inner/x.rs"), text).unwrap();
        }
        let dirs = ["a", "b"].map(|package| root.join(package)).into();
        assert_eq!(with_examples(&dirs), [&root.join("a")]);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn of_what_was_said_the_end_is_shown_again() {
        let said: String = (0..100).map(|n| format!("{n}\n")).collect();
        assert!(last_lines(&said).starts_with("20\n") && last_lines(&said).ends_with("\n99"));
        assert_eq!(last_lines("one\n"), "one");
    }
}
