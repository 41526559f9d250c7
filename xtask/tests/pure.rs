//! Every way by which a pure crate could touch the world is refused by clippy as `crates/pure/clippy.toml` sets it up.

use std::path::Path;
use std::process::Command;

/// One way each, as an expression. What a `use` brings in and calls by a shorter name is the same to clippy.
const REFUSED: &[&str] = &[
    "std::env::args()",
    "std::env::current_dir()",
    "std::env::temp_dir()",
    "std::env::var_os(\"A\")",
    "std::env::vars()",
    "std::fs::File::open(\"a\")",
    "std::fs::OpenOptions::new()",
    "std::fs::metadata(\"a\")",
    "std::fs::read(\"a\")",
    "std::fs::read_dir(\"a\")",
    "std::fs::remove_file(\"a\")",
    "std::fs::rename(\"a\", \"b\")",
    "std::fs::write(\"a\", \"b\")",
    "std::path::Path::new(\"a\").exists()",
    "std::io::stderr()",
    "std::io::stdin()",
    "std::io::stdout()",
    "std::net::Ipv4Addr::LOCALHOST",
    "std::net::TcpListener::bind(\"a:1\")",
    "std::net::TcpStream::connect(\"a:1\")",
    "std::net::UdpSocket::bind(\"a:1\")",
    "std::os::fd::AsRawFd::as_raw_fd(&0)",
    "std::os::unix::ffi::OsStrExt::as_bytes(std::ffi::OsStr::new(\"a\"))",
    "std::os::unix::fs::symlink(\"a\", \"b\")",
    "std::os::unix::net::UnixStream::pair()",
    "std::process::Command::new(\"a\")",
    "std::process::exit(1)",
    "std::process::id()",
    "std::sync::Barrier::new(1)",
    "std::sync::Condvar::new()",
    "std::sync::Mutex::new(1)",
    "std::sync::RwLock::new(1)",
    "std::sync::mpsc::channel::<u8>()",
    "std::thread::current()",
    "std::thread::sleep(std::time::Duration::ZERO)",
    "std::thread::spawn(|| {})",
    "std::thread::Builder::new()",
    "std::time::Instant::now()",
    "std::time::SystemTime::now()",
    "std::time::SystemTime::UNIX_EPOCH",
    "std::collections::HashMap::<u8, u8>::new()",
    "std::collections::HashSet::<u8>::with_capacity(1)",
    "std::collections::hash_map::RandomState::new()",
    "std::hash::RandomState::new()",
    "eprint!(\"a\")",
    "eprintln!(\"a\")",
    "print!(\"a\")",
    "println!(\"a\")",
    "{ thread_local!(static A: u8 = const { 1 }); }",
    // A module or a function under another name.
    "{ use std::fs as f; f::read(\"a\") }",
    "{ use std::fs::{self, read as f}; (f(\"a\"), fs::FileType::is_dir as fn(_) -> _) }",
    "{ let f = std::fs::read::<&str>; f(\"a\") }",
    "{ use std::os::fd::AsRawFd; 0.as_raw_fd() }",
    // In all crates.
    "dbg!(1)",
    "todo!()",
    "unimplemented!()",
    "None::<u8>.unwrap()",
];

/// What only looks like it.
const FINE: &[&str] = &[
    "std::time::Duration::from_secs(1)",
    "std::sync::Arc::new(1)",
    "std::io::Cursor::new([0])",
    "std::path::Path::new(\"a\").join(\"b\")",
    "\"std::fs::read\"",
    "\"1\".parse().unwrap_or(1)",
];

/// The lines of a file with these expressions, one in each, that clippy refuses; and what it says.
fn refused(expressions: &[&str], folder: &Path) -> (Vec<usize>, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // The lints are those of the workspace.
    let workspace = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let lints =
        workspace.split("[workspace.lints.clippy]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
    let manifest = format!(
        "[package]\nname = \"fixture\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[lints.clippy]{lints}"
    );
    std::fs::create_dir_all(folder.join("src")).unwrap();
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    let mut text = "#![warn(clippy::unwrap_used)]\n".to_owned();
    for (at, expression) in expressions.iter().enumerate() {
        text += &format!("pub fn f{at}() {{ let _ = {expression}; }}\n");
    }
    std::fs::write(folder.join("src/lib.rs"), text).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["clippy", "--offline", "--message-format=short"])
        .current_dir(folder)
        .env("CLIPPY_CONF_DIR", root.join("crates/pure"))
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let banned = ["disallowed", "`dbg!`", "`todo", "`unimplemented", "`unwrap"];
    let mut lines: Vec<usize> = said
        .lines()
        .filter(|line| banned.iter().any(|word| line.contains(word)))
        .filter_map(|line| line.strip_prefix("src/lib.rs:")?.split(':').next()?.parse().ok())
        .collect();
    lines.sort_unstable();
    lines.dedup();
    (lines, said)
}

#[test]
fn what_touches_the_world_is_refused_in_a_pure_crate() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pure");
    let (lines, said) = refused(REFUSED, &folder);
    let missed: Vec<_> = (2..).zip(REFUSED).filter(|(line, _)| !lines.contains(line)).collect();
    assert!(missed.is_empty(), "not refused: {missed:#?}\n{said}");
    assert!(!said.contains("does not refer to"), "crates/pure/clippy.toml names what is not there: {said}");
    let (lines, said) = refused(FINE, &folder);
    assert!(lines.is_empty(), "{said}");
    assert!(said.contains("Finished"), "{said}");
}
