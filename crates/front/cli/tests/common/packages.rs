//! The Debian packages of the program that is tested, and the roots in which dpkg installs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{Scratch, text};

/// Packages that are made from the program that is tested, and a root to install them in.
pub struct Packages {
    pub client: PathBuf,
    pub node: PathBuf,
    scratch: Scratch,
}

impl Packages {
    pub fn new() -> Self {
        let scratch = Scratch::new();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../packaging/deb/build");
        let said = good(Command::new(script).args([env!("CARGO_BIN_EXE_atoll"), text(&scratch.path("out"))]));
        let [client, node] =
            said.lines().map(PathBuf::from).collect::<Vec<_>>().try_into().expect("two packages");
        let all = Self { client, node, scratch };
        prepare(&all.root(""));
        all
    }

    pub fn root(&self, name: &str) -> PathBuf {
        self.scratch.path("root").join(name)
    }

    /// dpkg(1) in that root.
    pub fn dpkg(&self, arguments: &[&str]) -> String {
        dpkg(&self.root(""), arguments)
    }

    pub fn install(&self) -> String {
        self.dpkg(&["--install", text(&self.client), text(&self.node)])
    }

    /// Installs them in another root, which is empty.
    pub fn install_in(&self, root: &Path) {
        prepare(root);
        dpkg(root, &["--install", text(&self.client), text(&self.node)]);
    }
}

/// Makes what dpkg expects of a root.
fn prepare(root: &Path) {
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    std::fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
}

/// dpkg(1) in a root. What the packages need of the system is not installed there.
fn dpkg(root: &Path, arguments: &[&str]) -> String {
    let mut dpkg = Command::new("dpkg");
    dpkg.arg(format!("--root={}", text(root)));
    good(dpkg.args(["--force-script-chrootless", "--force-depends"]).args(arguments))
}

/// All that a program has printed.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What a program has printed that must succeed.
pub fn good(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
    said
}
