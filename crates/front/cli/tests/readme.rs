//! The commands that README.md shows, run as they stand there: in a clone of their own, on a machine that has nothing but
//! them, because nodes and their folders have fixed places there.

mod common;

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_needs::needs;
use common::packages::Packages;
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

#[test]
fn two_sites_have_the_same_tree_as_it_says() {
    needs!(Mounts, Networks, Programs(&["ip", "unshare", "pkill"]));
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let mut lines = vec!["export PATH=$(make -s bin):$PATH".to_owned()];
    lines.extend(commands(&readme, "### The same tree at several sites"));
    let all = run(&script(&lines, "no line"));
    assert!(printed(&all, "$(atoll site invite", 0).contains("site     there of volume docs"));
    assert_eq!(printed(&all, "sleep", 0), "", "everything is there");
    let sites = printed(&all, "atoll site list", 0);
    assert!(
        sites.lines().nth(1).is_some_and(|line| line.contains("there") && line.contains("has the same")),
        "{sites}"
    );
}

/// The commands of a section for machines, with the machine of each.
fn commands_of_machines(readme: &str, heading: &str) -> Vec<(usize, String)> {
    let (_, section) = readme.split_once(&format!("\n{heading}\n")).expect("README has the section");
    let section = section.split("\n#").next().unwrap_or_default();
    let lines = section.lines().filter_map(|line| {
        let (machine, command) = line.strip_prefix('n')?.split_once("# ")?;
        let command = command.split("  #").next().unwrap_or_default().trim_end();
        Some((machine.parse().ok()?, command.to_owned()))
    });
    lines.collect()
}

#[test]
fn three_machines_become_a_volume_as_it_says() {
    needs!(Mounts, Networks, Programs(&["bash", "ip", "nsenter", "pkill", "unshare"]));
    needs!(Root, Programs(&["dpkg", "dpkg-deb", "dpkg-shlibdeps", "make", "strip"]));
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let lines = commands_of_machines(&readme, "### Three machines");
    assert!((4..=7).contains(&lines.len()), "{lines:?}");
    let scratch = Scratch::new();
    let (packages, programs) = (Packages::new(), scratch.dir("bin"));
    let mut script =
        format!("set -eu\nexport PATH={}:$PATH SAID={}\n", text(&programs), text(&scratch.path("said")));
    // Each machine has the packages, a network, a /var/lib and a /mnt of its own, and reaches the others over a bridge.
    script += "ip link set lo up; ip link add bridge type bridge; ip link set bridge up\n";
    for machine in 1..=3 {
        let (root, mnt) =
            (scratch.dir(&format!("machine{machine}/root")), scratch.dir(&format!("machine{machine}/mnt")));
        packages.install_in(&root);
        writeln!(
            script,
            "unshare --net --mount --propagation private sleep infinity & m{machine}=$!
until [ \"$(readlink /proc/$m{machine}/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do sleep 0.01; done
ip link add to{machine} type veth peer name eth0 netns $m{machine}; ip link set to{machine} master bridge up
nsenter -t $m{machine} --net --mount sh -ec 'ip link set lo up; ip addr add 10.0.0.{machine}/24 dev eth0; ip link set eth0 up
ip route add default via 10.0.0.254; mount --bind {root}/var/lib /var/lib; mount --bind {root}/usr/bin {programs}; mount --bind {mnt} /mnt'",
            root = text(&root),
            programs = text(&programs),
            mnt = text(&mnt)
        )
        .unwrap();
    }
    for (machine, line) in lines {
        // What somebody copies from the terminal of another machine.
        let line = line.replace("LINE", "$(grep -o 'atoll-join-1[^ ]*' $SAID | tail -1)");
        writeln!(
            script,
            "on=$m{machine}; nsenter -t $on --net --mount bash -ec \"{line}\" </dev/null | tee -a $SAID"
        )
        .unwrap();
    }
    // Then the second machine is lost.
    script += "
at() { nsenter -t $1 --net --mount bash -ec \"$2\"; }
at $m1 'mkdir /mnt/{a,b,c,d,e,f}; for d in /mnt/*; do echo hello > $d/file; done'
at $m3 'atoll status --data /var/lib/atoll'
# A third machine votes about the records a moment after it has joined. While members are added, nothing may be said for a moment.
ready() {
  s=$(at $m1 'atoll control status --data /var/lib/atoll') || return 1
  [ \"$(grep -c '^member.*etcd' <<<\"$s\")\" = 3 ] && ! grep -Eq 'catches up|NOT ANSWER|NO LEADER' <<<\"$s\"
}
until ready; do sleep 0.1; done
pkill -KILL --ns $m2 --nslist net atoll
at $m1 'cat /mnt/*/file; echo more > /mnt/a/more; cat /mnt/a/more'
if at $m3 'atoll --credentials /dev/null status 10.0.0.1:7100'; then exit 7; fi
at $m1 'atoll umount /mnt'
echo DONE
";
    std::fs::write(scratch.path("machines.sh"), script).unwrap();
    let inside = format!("exec bash {}", text(&scratch.path("machines.sh")));
    let apart =
        ["--mount", "--propagation", "private", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let output = Command::new("unshare").args(apart).args(["bash", "-c", &inside]).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let logs = (1..=3).map(|machine| {
        let log =
            std::fs::read_to_string(scratch.path(&format!("machine{machine}/root/var/lib/atoll/daemon.log")));
        format!("machine {machine}: {}\n", log.unwrap_or_default())
    });
    let done = output.status.success() && said.ends_with("DONE\n");
    assert!(done, "{}: {said}\n{errors}\n{}", output.status, logs.collect::<String>());
    assert!(said.contains("(3 nodes)") && said.contains("on 3 nodes, 2 copies of each"), "{said}");
    assert!(said.contains(&format!("{}more\n", "hello\n".repeat(6))), "{said}");
}
