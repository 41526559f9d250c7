//! The Debian packages: which files they install, and that nothing that they do touches data.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use atoll_needs::needs;
use common::packages::{Packages, good, said};
use common::{Scratch, text};

fn mode(file: &Path) -> u32 {
    std::fs::symlink_metadata(file).unwrap_or_else(|e| panic!("{}: {e}", file.display())).permissions().mode()
}

#[test]
fn a_client_gets_the_program_and_a_node_the_units_beside_it() {
    needs!(Root, Programs(&["dpkg", "dpkg-deb", "dpkg-shlibdeps", "make", "strip"]));
    let packages = Packages::new();
    let field = |package: &Path, name: &str| good(Command::new("dpkg-deb").arg("-f").arg(package).arg(name));
    let version = field(&packages.client, "Version");
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
    assert!(field(&packages.client, "Depends").contains("libc6"));
    assert_eq!(field(&packages.node, "Depends").trim(), format!("atoll-client (= {})", version.trim()));
    // A client is whole without the other one.
    packages.dpkg(&["--install", text(&packages.client)]);
    for (file, expected) in [
        ("usr/bin/atoll", 0o100_755),
        ("usr/sbin/mount.atoll", 0o120_777),
        ("usr/sbin/mount.fuse.atoll", 0o120_777),
        ("usr/share/man/man1/atoll-mount.1.gz", 0o100_644),
        ("usr/share/man/man8/mount.atoll.8.gz", 0o100_644),
        ("usr/share/bash-completion/completions/atoll", 0o100_644),
        ("usr/share/zsh/site-functions/_atoll", 0o100_644),
        ("usr/share/fish/vendor_completions.d/atoll.fish", 0o100_644),
        ("usr/share/doc/atoll-client/copyright", 0o100_644),
        ("etc/atoll", 0o040_755),
    ] {
        let found = mode(&packages.root(file));
        assert_eq!(found, expected, "{file}: {found:o}");
    }
    assert!(!packages.root("usr/lib/systemd").exists(), "a client serves nothing");
    let helper = Command::new(packages.root("usr/sbin/mount.atoll")).arg("-x").output().unwrap();
    assert!(said(&helper).contains("Usage: mount.atoll"), "{}", said(&helper));
    let program = good(Command::new(packages.root("usr/bin/atoll")).arg("--version"));
    assert_eq!(program.trim(), format!("atoll {}", version.trim()));
    packages.dpkg(&["--install", text(&packages.node)]);
    for unit in ["atoll.service", "atoll@.service", "atoll-union@.service"] {
        let file = packages.root("usr/lib/systemd/system").join(unit);
        assert_eq!(mode(&file), 0o100_644, "{unit}");
        let unit = std::fs::read_to_string(file).unwrap();
        assert!(unit.contains("ExecStart=/usr/bin/atoll "), "{unit}");
        assert!(!unit.contains("@BINDIR@"), "{unit}");
    }
    for file in ["OPERATIONS.md", "examples/atoll.rules.yml", "examples/atoll.json"] {
        assert_eq!(mode(&packages.root("usr/share/doc/atoll").join(file)), 0o100_644, "{file}");
    }
    packages.dpkg(&["--audit"]);
    packages.dpkg(&["--verify"]);
}

#[test]
fn an_upgrade_keeps_choices_and_a_purge_keeps_data() {
    needs!(Root, Programs(&["dpkg", "dpkg-deb", "dpkg-shlibdeps", "make", "strip", "deb-systemd-helper"]));
    let packages = Packages::new();
    packages.install();
    let enabled = packages.root("etc/systemd/system/multi-user.target.wants/atoll.service");
    assert!(enabled.is_symlink(), "the unit is enabled: it waits for a node to be made");
    let kept =
        ["var/lib/atoll/node.toml", "var/lib/atoll/islands/1/0/tree/file", "etc/atoll/credentials.pem"];
    for file in kept.map(|file| packages.root(file)) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, b"mine").unwrap();
    }
    std::fs::remove_file(&enabled).unwrap();
    let told = packages.install();
    assert!(told.contains("systemctl restart atoll"), "{told}");
    assert!(!enabled.is_symlink(), "somebody has disabled it");
    let told = packages.dpkg(&["--purge", "atoll", "atoll-client"]);
    assert!(told.contains("the data in") && told.contains("stays"), "{told}");
    for file in kept.map(|file| packages.root(file)) {
        assert_eq!(std::fs::read(&file).unwrap(), b"mine", "{}", file.display());
    }
    for file in ["usr/bin/atoll", "usr/sbin/mount.atoll", "usr/lib/systemd/system/atoll.service"] {
        assert!(!packages.root(file).is_symlink() && !packages.root(file).exists(), "{file}");
    }
}

#[test]
fn systemd_takes_the_units() {
    needs!(Programs(&["systemd-analyze"]));
    let scratch = Scratch::new();
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../packaging/systemd"));
    let bin = Path::new(env!("CARGO_BIN_EXE_atoll")).parent().unwrap();
    for (from, to) in [
        ("atoll.service", "atoll.service"),
        ("atoll@.service", "atoll@home.service"),
        ("atoll-union@.service", "atoll-union@media.service"),
        ("srv-home.mount.example", "srv-home.mount"),
    ] {
        let unit = std::fs::read_to_string(folder.join(from)).unwrap().replace("@BINDIR@", text(bin));
        let file = scratch.path(to);
        std::fs::write(&file, unit).unwrap();
        let told = good(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file));
        let about = told.lines().filter(|line| line.contains(to)).collect::<Vec<_>>();
        assert!(about.is_empty(), "{about:?}");
    }
    // A word that systemd does not know is told.
    let file = scratch.path("wrong.service");
    std::fs::write(&file, "[Service]\nExecStart=/bin/true\nAtollWord=1\n").unwrap();
    let told =
        said(&Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output().unwrap());
    assert!(told.contains("AtollWord"), "{told}");
}
