//! The program, on a directory of this machine and on files.

use std::path::Path;
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_atoll-check-history")).args(args).output().expect("the program runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of a test is text")
}

#[test]
fn a_local_file_system_keeps_the_rules() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("history.jsonl");
    let output = run(&[path(dir.path()), "--operations", "20000", "--save", path(&saved)]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("some order of the operations explains all answers"));
    // The same again, from the file; and with one answer made wrong.
    let again = run(&["--file", path(&saved)]);
    assert!(again.status.success(), "{}", text(&again));
    let lines = std::fs::read_to_string(&saved).unwrap();
    let wrong = lines.replacen("\"op\":\"unlink\"", "\"op\":\"rmdir\"", usize::MAX);
    assert_ne!(lines, wrong);
    std::fs::write(&saved, wrong).unwrap();
    let broken = run(&["--file", path(&saved)]);
    assert_eq!(broken.status.code(), Some(1), "{}", text(&broken));
    assert!(text(&broken).contains("no order of the operations explains this"));
}

#[test]
fn a_local_file_system_keeps_the_rules_with_the_operations_of_the_paper() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("history.jsonl");
    let output = run(&[path(dir.path()), "--paper", "--operations", "20000", "--save", path(&saved)]);
    assert!(output.status.success(), "{}", text(&output));
    let lines = std::fs::read_to_string(&saved).unwrap();
    for op in ["make", "unlink", "rmdir", "lookup", "list", "stat", "set-mode", "read", "write"] {
        assert!(lines.contains(&format!("\"op\":\"{op}\"")), "there is no {op}");
    }
    assert!(lines.contains("link-n"), "there is no link");
    // Nobody sets this mode, of a file: that of the root is known only when somebody has set it.
    let of_file = |line: &&str| line.contains("\"op\":\"stat\"") && line.contains("\"nlink\":");
    let set = lines.lines().find(of_file).unwrap();
    let (before, after) = set.split_once("\"mode\":").unwrap();
    let wrong = format!("{before}\"mode\":7{after}");
    std::fs::write(&saved, lines.replace(set, &wrong)).unwrap();
    let broken = run(&["--file", path(&saved)]);
    assert_eq!(broken.status.code(), Some(1), "{}", text(&broken));
    assert!(text(&broken).contains("mode"), "{}", text(&broken));
}

#[test]
fn what_cannot_be_run_or_read_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let cases: [(&[&str], &str); 4] = [
        (&[path(&missing)], "missing"),
        (&["--file", path(&missing)], "cannot open"),
        (&[path(dir.path()), path(other.path())], "cannot open"),
        (&[], "DIR"),
    ];
    for (args, why) in cases {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output));
        assert!(text(&output).contains(why), "{args:?}: {}", text(&output));
    }
}
