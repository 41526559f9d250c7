//! The commands that README.md shows, run as they stand there: in a clone of their own, on a machine that has nothing but
//! them, because nodes and their folders have fixed places there.

mod common;

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_needs::needs;
use common::{Scratch, text};

/// How a line is announced before it is run.
const ANNOUNCED: &str = "==== ";
/// Times in README are those of a release on a machine that has nothing else to do.
const SLOWER: u32 = 8;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// The commands of a section up to the next heading, without their remarks.
fn commands(readme: &str, heading: &str) -> Vec<String> {
    let (_, section) = readme.split_once(&format!("\n{heading}\n")).expect("README has the section");
    let section = section.split("\n#").next().unwrap_or_default();
    let lines = section.lines().filter_map(|line| line.strip_prefix("$ "));
    lines.map(|line| line.split("  #").next().unwrap_or_default().trim_end().to_owned()).collect()
}

/// What a shell does with them. The one that stays in the foreground has a terminal of its own, in which Ctrl-C is pressed
/// before the line that begins so.
fn script(lines: &[String], ctrl_c_before: &str) -> String {
    let mut script = "set -eum\n".to_owned();
    for line in lines {
        writeln!(script, "echo '{ANNOUNCED}{}'", line.replace('\'', "'\\''")).unwrap();
        if line == "make up" {
            let waits = "until mountpoint -q mnt; do kill -0 $up && /bin/sleep 0.1; done";
            writeln!(script, "make up > /tmp/up.log 2>&1 & up=$!; {waits}").unwrap();
            continue;
        }
        if line.starts_with(ctrl_c_before) {
            // make says that it was interrupted.
            writeln!(script, "kill -INT -- -$up; wait $up || :").unwrap();
        }
        writeln!(script, "{line}").unwrap();
    }
    script
}

/// Runs a script in a clone, with a /tmp, a network and processes of its own. What each line printed, in their order.
fn run(script: &str) -> Vec<(String, String)> {
    let scratch = Scratch::new();
    let (tmp, from) = (scratch.dir("tmp"), repository());
    let clone = scratch.dir("tmp/clone");
    let copied =
        Command::new("cp").arg("-r").args([from.join("docs"), from.join("Makefile")]).arg(&clone).status();
    assert!(copied.unwrap().success());
    std::fs::create_dir_all(clone.join("target/release")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_atoll"), clone.join("target/release/atoll")).unwrap();
    // It is built already, and slow.
    let shims = scratch.dir("tmp/shims");
    let slower = format!("exec /bin/sleep $(($1 * {SLOWER}))");
    for (name, does) in [("cargo", "exit 0"), ("sleep", slower.as_str())] {
        std::fs::write(shims.join(name), format!("#!/bin/sh\n{does}\n")).unwrap();
        std::fs::set_permissions(shims.join(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    // In a file, because whoever looks for processes by their arguments finds the shell otherwise.
    std::fs::write(tmp.join("tour.sh"), script).unwrap();
    let inside = format!(
        "mount --bind {} /tmp && ip link set lo up && cd /tmp/clone && PATH=/tmp/shims:$PATH exec bash /tmp/tour.sh",
        text(&tmp)
    );
    let apart =
        ["--mount", "--propagation", "private", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let output = Command::new("unshare").args(apart).args(["bash", "-c", &inside]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let up = std::fs::read_to_string(tmp.join("up.log")).unwrap_or_default();
    assert!(output.status.success(), "{}: {said}\n{errors}\n{up}", output.status);
    let parts = said.split(ANNOUNCED).skip(1).map(|part| part.split_once('\n').unwrap_or((part, "")));
    parts.map(|(line, printed)| (line.to_owned(), printed.to_owned())).collect()
}

/// What the `nth` line that begins so has printed.
fn printed<'a>(all: &'a [(String, String)], line: &str, nth: usize) -> &'a str {
    &all.iter().filter(|(is, _)| is.starts_with(line)).nth(nth).expect("README has the line").1
}

#[test]
fn the_tour_in_five_minutes_does_what_it_says() {
    needs!(Mounts, Networks, Programs(&["make", "cc", "ip", "unshare"]));
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let lines = commands(&readme, "## A tour in five minutes");
    assert!(lines.len() >= 11, "{lines:?}");
    let all = run(&script(&lines, "atoll check"));
    assert!(printed(&all, "cp -r docs", 0).contains("GLOSSARY.md"));
    assert!(printed(&all, "atoll explain", 0).contains("plain    "));
    assert!(printed(&all, "sleep 2", 0).lines().any(|line| line.ends_with("/tree/docs/GLOSSARY.md")));
    assert!(printed(&all, "atoll check", 0).contains("nothing wrong"));
    assert_eq!(printed(&all, "diff", 0), "", "the same files");
}

#[test]
fn a_machine_is_lost_as_it_says_and_everything_is_there() {
    needs!(Mounts, Networks, Programs(&["ip", "unshare", "pkill"]));
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let mut lines = vec!["export PATH=$(make -s bin):$PATH".to_owned()];
    lines.extend(commands(&readme, "### Several nodes"));
    lines.extend(commands(&readme, "### Lose a machine"));
    let all = run(&script(&lines, "no line"));
    assert!(printed(&all, "atoll volume create", 1).contains("2 copies of each"));
    assert_eq!(printed(&all, "diff", 0), "", "everything is there");
    let (lost, back) = (printed(&all, "atoll status", 0), printed(&all, "atoll status", 1));
    assert!(lost.contains("FEWER COPIES THAN WANTED"), "{lost}");
    assert_eq!(back.matches("in sync 2 of 2").count(), 6, "three islands, each at two nodes: {back}");
}
