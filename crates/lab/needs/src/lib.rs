//! What a test needs from its machine. A test that cannot run says so; it does not count as passed.
//!
//! A test begins with [`needs!`]. When something is missing, one line `SKIPPED test: needs ...` goes to standard error
//! (past the test harness, which shows nothing of a test that ends well) and to the file that [`LIST`] names, from which
//! `cargo xtask ci` sums up. Where [`CI`] is set to 1 nothing may be missing: the test panics.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod left;
mod ports;

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub use left::left_in;
pub use ports::free_port;

/// The environment variable that makes a missing requirement a failure, by the value `1`.
pub const CI: &str = "ATOLL_CI";

/// The environment variable with the path of the file that gets one line for each skipped test.
pub const LIST: &str = "ATOLL_SKIPPED";

/// Something that not every machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The rights of root.
    Root,
    /// Mounts made by root: root and `/dev/fuse`.
    Mounts,
    /// A `/dev/fuse` that every user may open.
    FuseForAll,
    /// Loop devices, for file systems in files.
    LoopDevices,
    /// Network namespaces: root, and a kernel that has them.
    Networks,
    /// Devices that give IP packets to a program: root and `/dev/net/tun`.
    Tun,
    /// Programs in the search path.
    Programs(&'static [&'static str]),
    /// A user of this name.
    User(&'static str),
}

impl Need {
    /// What is missing of this, in words that follow "needs"; nothing when all is there.
    pub fn missing(self) -> Option<String> {
        let is_root = rustix::process::geteuid().is_root();
        let fuse = || Path::new("/dev/fuse").metadata();
        let device = |there: bool, name: &str| (!there).then(|| name.to_owned());
        match self {
            Self::Root => device(is_root, "root"),
            Self::Mounts if !is_root => Some("root".into()),
            Self::Mounts => device(fuse().is_ok(), "/dev/fuse"),
            Self::FuseForAll => {
                let open = fuse().is_ok_and(|meta| meta.permissions().mode() & 0o006 == 0o006);
                device(open, "a /dev/fuse that everyone may open")
            }
            Self::LoopDevices => device(Path::new("/dev/loop-control").exists(), "loop devices"),
            Self::Networks if !is_root => Some("root".into()),
            Self::Networks => device(Path::new("/proc/self/ns/net").exists(), "network namespaces"),
            Self::Tun if !is_root => Some("root".into()),
            Self::Tun => device(Path::new("/dev/net/tun").exists(), "/dev/net/tun"),
            Self::Programs(names) => {
                let missing: Vec<&str> = names.iter().copied().filter(|name| !is_program(name)).collect();
                (!missing.is_empty()).then(|| format!("the program {}", missing.join(" and ")))
            }
            Self::User(name) => device(is_user(name), &format!("a user {name}")),
        }
    }
}

/// Whether a program is in the search path.
pub fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

fn is_user(name: &str) -> bool {
    let table = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    table.lines().any(|line| line.split(':').next() == Some(name))
}

/// Whether all of `needs` are there. If not, the test `name` is written down as skipped.
///
/// # Panics
///
/// When something is missing and [`CI`] says that nothing may be.
pub fn are_met(name: &str, needs: &[Need]) -> bool {
    let missing: Vec<String> = needs.iter().filter_map(|need| need.missing()).collect();
    if missing.is_empty() {
        return true;
    }
    let line = Skipped { name, missing: &missing };
    assert!(
        std::env::var_os(CI).is_none_or(|value| value != "1"),
        "{line}; {CI}=1 says that nothing may be missing"
    );
    let line = format!("{line}\n");
    // One write each, so that lines of tests that run at the same time do not mix.
    std::io::stderr().write_all(line.as_bytes()).expect("standard error takes a line");
    if let Some(path) = std::env::var_os(LIST) {
        let list = File::options().create(true).append(true).open(&path);
        let written = list.and_then(|mut list| list.write_all(line.as_bytes()));
        written.unwrap_or_else(|why| panic!("{} takes no line: {why}", path.display()));
    }
    false
}

/// The line about one test.
struct Skipped<'a> {
    name: &'a str,
    missing: &'a [String],
}

impl fmt::Display for Skipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SKIPPED {}: needs {}", self.name, self.missing.join(" and "))
    }
}

/// The name of the test around [`needs!`], from the name of an item inside it: without the closures that it stands
/// in, and without that item.
#[doc(hidden)]
pub fn test_name(of_item: &'static str) -> &'static str {
    let outside = of_item.rsplit_once("::").map_or(of_item, |(test, _)| test);
    outside.trim_end_matches("::{{closure}}")
}

/// Ends the test that it stands in when one of these is missing: `needs!(Mounts, Programs(&["git"]))`. The words are
/// those of [`Need`].
#[macro_export]
macro_rules! needs {
    ($($need:expr),+ $(,)?) => {{
        use $crate::Need::*;
        fn here() {}
        if !$crate::are_met($crate::test_name(::std::any::type_name_of_val(&here)), &[$($need),+]) {
            return;
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This program again: one of the tests below, which are for that, with the list at `list` and [`CI`] as given.
    fn run(test: &str, list: &Path, ci: &str) -> (bool, String) {
        let mut program = std::process::Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", test, "--ignored"]).env(CI, ci).env(LIST, list);
        let output = program.output().unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    }

    #[test]
    #[ignore = "a process that another test starts"]
    fn without_a_program() {
        needs!(Programs(&["sh", "no-such-program"]));
        panic!("it went on");
    }

    #[test]
    #[ignore = "a process that another test starts"]
    fn without_a_program_in_a_closure() {
        (|| needs!(User("no such user")))();
    }

    #[test]
    fn what_is_there_is_not_missing() {
        needs!(Programs(&["sh"]), User("root"));
        assert_eq!(Need::Programs(&["sh"]).missing(), None);
        assert_eq!(Need::User("root").missing(), None);
    }

    #[test]
    fn a_skipped_test_is_said_and_listed_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        let line = "SKIPPED atoll_needs::tests::without_a_program: needs the program no-such-program\n";
        let (passed, said) = run("tests::without_a_program", &list, "");
        assert!(passed && said.contains(line), "{said}");
        assert!(run("tests::without_a_program_in_a_closure", &list, "0").0);
        let other = "SKIPPED atoll_needs::tests::without_a_program_in_a_closure: needs a user no such user\n";
        assert_eq!(std::fs::read_to_string(&list).unwrap(), format!("{line}{other}"));
    }

    #[test]
    fn a_missing_requirement_fails_where_everything_must_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        let (passed, said) = run("tests::without_a_program", &list, "1");
        assert!(!passed && said.contains("needs the program no-such-program"), "{said}");
        assert!(!list.exists(), "a test that failed is not also skipped");
    }
}
