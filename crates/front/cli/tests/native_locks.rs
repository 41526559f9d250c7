//! `atoll union -o locks=native`: programs that use a member directly, and two unions of it, keep out of each other's way.

mod common;

use std::fs;
use std::process::Command;

use atoll_needs::needs;
use common::{Scratch, bad, good, text};

/// `held(path)` asks from another process. Each kind of lock is taken at one place and felt at all others.
const PROGRAM: &str = r"
import errno,fcntl,os,signal,sys,time
places=[p+'/f' for p in sys.argv[1:]]
def child(f):
    p=os.fork()
    if p==0:
        try: os._exit(int(f() or 0))
        except BaseException as e: print('child:',repr(e),file=sys.stderr)
        os._exit(99)
    return p
def code(p): return os.waitstatus_to_exitcode(os.waitpid(p,0)[1])
KINDS=[fcntl.lockf,fcntl.flock]
def held(take,path):
    def f():
        fd=os.open(path,os.O_RDWR)
        try: take(fd,fcntl.LOCK_EX|fcntl.LOCK_NB); return 0
        except OSError as e: assert e.errno in (errno.EAGAIN,errno.EACCES),e; return 1
    return code(child(f))==1
def until(what,holds):
    end=time.time()+30
    while not holds():
        assert time.time()<end,what
        time.sleep(0.01)
for take in KINDS:
    for at in places:
        fd=os.open(at,os.O_RDWR)
        take(fd,fcntl.LOCK_EX)
        for other in places: assert held(take,other),(take,at,other)
        os.close(fd)
        # A flock goes with RELEASE, for which close(2) does not wait.
        for other in places: until('the close lets go of it',lambda: not held(take,other))
    # A process that is killed holds nothing, and one that waits gets the lock then.
    for at in places:
        r,w=os.pipe()
        def hold():
            take(os.open(at,os.O_RDWR),fcntl.LOCK_EX); os.write(w,b'x'); time.sleep(60)
        holder=child(hold); os.read(r,1)
        def wait(path):
            def f(): take(os.open(path,os.O_RDWR),fcntl.LOCK_EX)
            return f
        waiting=[child(wait(path)) for path in places]
        time.sleep(0.05)
        assert os.waitpid(-1,os.WNOHANG)==(0,0),'they wait'
        os.kill(holder,signal.SIGKILL); os.waitpid(holder,0)
        assert [code(p) for p in waiting]==[0]*len(waiting)
    # A signal ends a wait.
    mine=os.open(places[-1],os.O_RDWR); take(mine,fcntl.LOCK_EX)
    for at in places[:-1]:
        def interrupted():
            class Alarm(Exception): pass
            def ring(*_): raise Alarm()
            signal.signal(signal.SIGALRM,ring); signal.setitimer(signal.ITIMER_REAL,0.1)
            try: take(os.open(at,os.O_RDWR),fcntl.LOCK_EX); return 1
            except Alarm: return 0
        assert code(child(interrupted))==0
    os.close(mine)
    for other in places: until('it is free',lambda: not held(take,other))
# Ranges.
a=os.open(places[0],os.O_RDWR); fcntl.lockf(a,fcntl.LOCK_EX,10,5)
def apart():
    fd=os.open(places[2],os.O_RDWR)
    fcntl.lockf(fd,fcntl.LOCK_EX|fcntl.LOCK_NB,5,0); fcntl.lockf(fd,fcntl.LOCK_EX|fcntl.LOCK_NB,0,15)
    try: fcntl.lockf(fd,fcntl.LOCK_SH|fcntl.LOCK_NB,1,14); return 1
    except OSError: return 0
assert code(child(apart))==0
";

#[test]
fn locks_hold_in_two_unions_of_one_member_and_for_programs_that_use_it() {
    needs!(Mounts, Programs(&["python3"]));
    let scratch = Scratch::new();
    let (shared, own) = (scratch.dir("shared"), scratch.dir("own"));
    let points = [scratch.dir("one"), scratch.dir("two")];
    fs::write(shared.join("f"), [0; 64]).unwrap();
    good(["union", text(&shared), text(&own), text(&points[0]), "-o", "locks=native"]);
    good(["union", text(&shared), text(&points[1]), "-o", "locks=native"]);
    let output = Command::new("timeout")
        .args(["120", "python3", "-c", PROGRAM])
        .args([&points[0], &points[1], &shared])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    points.iter().for_each(|point| _ = good(["umount", text(point)]));
    let said = bad(["union", text(&shared), text(&own), text(&points[0]), "-o", "locks=some"]);
    assert!(said.contains("locks") && said.contains("some"), "{said}");
}
