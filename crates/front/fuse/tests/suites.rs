//! Public conformance suites over the reference model, mounted: what they find wrong is the
//! adapter's doing (or the model's). They must be installed: `make suites`; and a user `tests`.

mod common;

use atoll_fuse::{Config, Keep, Locks, MountOptions, Mounted};
use atoll_model::{AtimeRule, ModelFiles};
use atoll_needs::needs;
use atoll_vfs::Caching;
use common::Place;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// As for volumes, but without making the mount read-only: that has to be tried alone.
const SETTINGS: &str = include_str!("../../../lab/torture/pjdfstest.toml");

fn over_each_kind_of_mount(suite: impl Fn(&Path)) {
    let kept = Config::default();
    let alone = Config { keep: Keep::Alone, locks: Locks::Local, ..kept };
    for (caching, config) in
        [(Caching::UntilRecalled, kept), (Caching::Never, kept), (Caching::UntilRecalled, alone)]
    {
        let place = Place::new("suite");
        let files = Arc::new(ModelFiles::new(AtimeRule::Always, caching));
        let options = MountOptions { set_id: true, devices: true, ..MountOptions::new("suite") };
        let mounted = Mounted::new(files, &place.0, &options, config).unwrap();
        suite(&place.0);
        drop(mounted);
    }
}

#[test]
fn pjdfstest_finds_nothing() {
    needs!(Mounts, Programs(&["pjdfstest"]), User("nobody"), User("tests"));
    let settings = std::env::temp_dir().join(format!("atoll-pjdfstest-{}.toml", std::process::id()));
    std::fs::write(&settings, SETTINGS.replace("allow_remount = true", "allow_remount = false")).unwrap();
    over_each_kind_of_mount(|path| {
        let output = Command::new("pjdfstest").arg("-c").arg(&settings).arg("-p").arg(path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("Summary: 0 failed"), "{said}");
    });
    std::fs::remove_file(&settings).unwrap();
}

#[test]
fn fsx_finds_nothing() {
    needs!(Mounts, Programs(&["fsx"]));
    over_each_kind_of_mount(|path| {
        let output = Command::new("fsx")
            .args(["-N", "5000", "-q", "-S", "81"])
            .arg(path.join("fsx"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "fsx -N 5000 -S 81: {said}");
    });
}
