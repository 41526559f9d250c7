//! Public conformance suites over the reference model, mounted: what they find wrong is the
//! adapter's doing (or the model's). They must be installed: `cargo install pjdfstest fsx`, users
//! `nobody` and `tests`. Run with `--ignored`.

mod common;

use atoll_fuse::{Config, Keep, Locks, MountOptions, Mounted};
use atoll_model::{AtimeRule, ModelFiles};
use atoll_needs::needs;
use atoll_vfs::Caching;
use common::Place;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const SETTINGS: &str = r#"
[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
rename_ctime = {}
[settings]
naptime = 0.001
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["tests", "tests"]]
"#;

fn over_each_kind_of_mount(suite: impl Fn(&Path)) {
    needs!(Mounts);
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
#[ignore = "needs pjdfstest and users nobody and tests"]
fn pjdfstest_finds_nothing() {
    let settings = std::env::temp_dir().join(format!("atoll-pjdfstest-{}.toml", std::process::id()));
    std::fs::write(&settings, SETTINGS).unwrap();
    over_each_kind_of_mount(|path| {
        let output = Command::new("pjdfstest").arg("-c").arg(&settings).arg("-p").arg(path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("Summary: 0 failed"), "{said}");
    });
    std::fs::remove_file(&settings).unwrap();
}

#[test]
#[ignore = "needs fsx"]
fn fsx_finds_nothing() {
    over_each_kind_of_mount(|path| {
        for seed in ["5", "81"] {
            let output = Command::new("fsx")
                .args(["-N", "20000", "-q", "-S", seed])
                .arg(path.join(format!("fsx-{seed}")))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "fsx -N 20000 -S {seed}: {said}");
        }
    });
}
