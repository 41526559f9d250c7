//! Processes that wait for each other's locks, through two mounts of one volume.

mod common;

use std::fs;
use std::process::Command;

use atoll_needs::needs;
use common::Cluster;

/// The parent has byte 0, the child byte 1 through the other mount. The child waits for the parent, who then asks for byte 1.
const PROGRAM: &str = "
import errno, fcntl, os, sys, time
ready, told = os.pipe()
child = os.fork()
file = os.open(sys.argv[1 if child else 2], os.O_RDWR)
if child == 0:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 1)
    os.write(told, b'.')
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
    os._exit(0)
fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
os.read(ready, 1)
time.sleep(1)
try:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 1)
    raise SystemExit('it got the lock')
except OSError as error:
    assert error.errno == errno.EDEADLK, error
fcntl.lockf(file, fcntl.LOCK_UN, 1, 0)
assert os.waitpid(child, 0)[1] == 0
";

#[test]
fn a_process_that_would_wait_for_itself_is_told_so_and_the_other_one_goes_on() {
    needs!(Mounts, Programs(&["python3"]));
    let cluster = Cluster::new(2);
    let mounts = [cluster.mount("one", "soft=20"), cluster.mount("two", "soft=20")];
    fs::write(mounts[0].path("file"), [0; 2]).unwrap();
    let output = Command::new("timeout")
        .args(["60", "python3", "-c", PROGRAM])
        .args(mounts.iter().map(|mount| mount.path("file")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
