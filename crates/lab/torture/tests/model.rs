//! Random operations on the reference model and over the mount: the test that holds the model against
//! a local file system (`crates/lab/model/tests/linux.rs`) holds the mount against the model.

use std::process::Command;

use atoll_needs::needs;
use atoll_torture::daemon::Launch;
use atoll_torture::place::{Place, run};

#[test]
fn the_mount_does_what_the_model_does() {
    needs!(Mounts, Programs(&["cargo"]));
    let place = Place::new("model").unwrap();
    let daemon = Launch::new(place.path()).start().unwrap();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--quiet", "--package", "atoll-model", "--test", "linux"]);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.env("ATOLL_LINUX_DIR", daemon.mount()).env("ATOLL_SEEDS", "4");
    let said = run(&mut command).unwrap();
    assert!(said.contains("1 passed"), "{said}");
    daemon.stop().unwrap();
}
