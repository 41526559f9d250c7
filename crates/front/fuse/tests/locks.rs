//! Locks through real mounts: who gets them, and that a close takes away exactly the right ones.

mod common;

use atoll_fuse::{Config, Flush, Locks};
use atoll_needs::needs;
use common::{Memory, World, eventually, python};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Helpers for the programs below. `held(path)` asks from another process.
const PRELUDE: &str = r"
import os,sys,fcntl,struct,time,signal,errno
d=sys.argv[1]
def child(f):
    p=os.fork()
    if p==0:
        try: r=f()
        except BaseException as e: print('child:',repr(e),file=sys.stderr); r=99
        os._exit(int(r or 0))
    return p
def result(f): return os.waitstatus_to_exitcode(os.waitpid(child(f),0)[1])
def posix_held(path):
    def f():
        fd=os.open(path,os.O_RDWR)
        try: fcntl.lockf(fd,fcntl.LOCK_EX|fcntl.LOCK_NB); return 0
        except OSError as e: assert e.errno in (errno.EAGAIN,errno.EACCES),e; return 1
    return result(f)==1
def flock_held(path):
    def f():
        fd=os.open(path,os.O_RDONLY)
        try: fcntl.flock(fd,fcntl.LOCK_EX|fcntl.LOCK_NB); return 0
        except OSError as e: assert e.errno==errno.EAGAIN,e; return 1
    return result(f)==1
def ofd(fd,kind): fcntl.fcntl(fd,37,struct.pack('hhqqi4x',kind,0,0,0,0))
def goes(held,path):
    for i in range(200):
        if not held(path): return
        time.sleep(0.01)
    raise Exception('lock stays')
p=d+'/f'
";

fn run(world: &World, program: &str) {
    python(&format!("{PRELUDE}{program}"), &world.place.0);
}

fn world(name: &str) -> World {
    let world = World::new(name);
    fs::write(world.at("f"), b"x").unwrap();
    world
}

#[test]
fn a_record_lock_goes_with_any_close_by_its_process() {
    needs!(Mounts, Programs(&["python3"]));
    let world = world("posix");
    run(
        &world,
        r"
a=os.open(p,os.O_RDWR); b=os.open(p,os.O_RDONLY); c=os.dup(a)
fcntl.lockf(a,fcntl.LOCK_EX); assert posix_held(p)
os.close(b); assert not posix_held(p), 'closing another descriptor of the file'
fcntl.lockf(a,fcntl.LOCK_EX); assert posix_held(p)
os.close(c); assert not posix_held(p), 'closing a duplicate'
fcntl.lockf(a,fcntl.LOCK_EX,10,5); assert posix_held(p)
os.close(a); assert not posix_held(p)
",
    );
    assert_eq!(world.files.locks(), 0);
}

#[test]
fn a_record_lock_goes_with_its_process_though_a_child_has_the_file() {
    needs!(Mounts, Programs(&["python3"]));
    let world = world("inherit");
    run(
        &world,
        r"
r,w=os.pipe()
def parent():
    os.close(w)
    a=os.open(p,os.O_RDWR); fcntl.lockf(a,fcntl.LOCK_EX)
    assert posix_held(p)
    child(lambda: (os.read(r,1),0)[1])
assert result(parent)==0
assert not posix_held(p)
os.write(w,b'x')
",
    );
    eventually(|| world.files.locks() == 0);
}

#[test]
fn a_flock_goes_with_the_last_of_its_descriptors() {
    needs!(Mounts, Programs(&["python3"]));
    let world = world("flock");
    run(
        &world,
        r"
a=os.open(p,os.O_RDONLY); b=os.dup(a); c=os.open(p,os.O_RDONLY)
fcntl.flock(a,fcntl.LOCK_EX); assert flock_held(p)
os.close(c); assert flock_held(p), 'another open file of the same process'
os.close(a); assert flock_held(p), 'a duplicate keeps it'
k=child(lambda: time.sleep(0.3))
os.close(b); assert flock_held(p), 'a child keeps it'
os.waitpid(k,0); goes(flock_held,p)
a=os.open(p,os.O_RDONLY); fcntl.flock(a,fcntl.LOCK_SH); assert flock_held(p)
fcntl.flock(a,fcntl.LOCK_UN); assert not flock_held(p)
",
    );
    eventually(|| world.files.locks() == 0);
}

#[test]
fn a_flock_on_a_file_that_was_just_made_goes_too() {
    needs!(Mounts, Programs(&["python3"]));
    let world = world("made");
    run(
        &world,
        r"
q=d+'/new'
a=os.open(q,os.O_CREAT|os.O_EXCL|os.O_RDWR); fcntl.flock(a,fcntl.LOCK_EX); fcntl.lockf(a,fcntl.LOCK_EX)
assert flock_held(q) and posix_held(q)
os.close(a); goes(flock_held,q); assert not posix_held(q)
",
    );
}

#[test]
fn an_open_file_description_lock_goes_with_its_description() {
    needs!(Mounts, Programs(&["python3"]));
    let world = world("ofd");
    run(
        &world,
        r"
a=os.open(p,os.O_RDWR); b=os.open(p,os.O_RDWR); c=os.dup(a)
ofd(a,fcntl.F_WRLCK); assert posix_held(p)
os.close(b); assert posix_held(p)
os.close(a); assert posix_held(p)
os.close(c); goes(posix_held,p)
",
    );
}

#[test]
fn the_two_kinds_do_not_see_each_other_and_getlk_names_the_holder() {
    needs!(Mounts, Programs(&["python3"]));
    let world = world("kinds");
    run(
        &world,
        r"
a=os.open(p,os.O_RDWR); fcntl.lockf(a,fcntl.LOCK_EX,10,20)
assert not flock_held(p)
def ask():
    b=os.open(p,os.O_RDWR)
    t,w,s,l,pid=struct.unpack('hhqqi4x',fcntl.fcntl(b,fcntl.F_GETLK,struct.pack('hhqqi4x',fcntl.F_WRLCK,0,0,0,0)))
    assert (t,s,l,pid)==(fcntl.F_WRLCK,20,10,os.getppid()),(t,s,l,pid)
    t,*_=struct.unpack('hhqqi4x',fcntl.fcntl(b,fcntl.F_GETLK,struct.pack('hhqqi4x',fcntl.F_WRLCK,0,0,20,0)))
    assert t==fcntl.F_UNLCK
assert result(ask)==0
",
    );
}

#[test]
fn a_lock_that_is_waited_for_is_granted_at_the_unlock_or_given_up_at_a_signal() {
    needs!(Mounts, Programs(&["python3"]));
    let world = world("wait");
    run(
        &world,
        r"
a=os.open(p,os.O_RDWR); fcntl.lockf(a,fcntl.LOCK_EX)
class Stop(Exception): pass
def stop(*_): raise Stop()
def wait():
    signal.signal(signal.SIGALRM,stop); signal.setitimer(signal.ITIMER_REAL,0.2)
    b=os.open(p,os.O_RDWR)
    try: fcntl.lockf(b,fcntl.LOCK_EX); return 1
    except Stop: return 0
t=time.time(); assert result(wait)==0; assert time.time()-t<3
def killed():
    b=os.open(p,os.O_RDWR); fcntl.lockf(b,fcntl.LOCK_EX)
k=child(killed); time.sleep(0.2); os.kill(k,signal.SIGKILL); t=time.time(); os.waitpid(k,0); assert time.time()-t<3
def get():
    b=os.open(p,os.O_RDWR); fcntl.lockf(b,fcntl.LOCK_EX); return 7
k=child(get); time.sleep(0.2); fcntl.lockf(a,fcntl.LOCK_UN)
assert os.waitstatus_to_exitcode(os.waitpid(k,0)[1])==7
",
    );
    assert!(world.files.cancelled.load(SeqCst) >= 2);
    eventually(|| world.files.locks() == 0 && world.files.waiters() == 0);
}

#[test]
fn locks_hold_across_two_mounts_of_one_volume() {
    needs!(Mounts, Programs(&["python3"]));
    let one = world("one");
    let two = World::with("two", Arc::clone(&one.files), Config::default());
    let program = format!(
        r"
q='{}'
a=os.open(p,os.O_RDWR); fcntl.lockf(a,fcntl.LOCK_EX); fcntl.flock(a,fcntl.LOCK_EX)
assert posix_held(q) and flock_held(q)
os.close(a); goes(flock_held,q); assert not posix_held(q)
",
        two.at("f").display()
    );
    run(&one, &program);
}

#[test]
fn locks_end_with_the_mount() {
    needs!(Mounts, Programs(&["python3"]));
    let mut world = world("end");
    let held = fs::File::options().read(true).write(true).open(world.at("f")).unwrap();
    held.lock().unwrap();
    assert_eq!(world.files.locks(), 1);
    world.mounted.take();
    assert_eq!(world.files.locks(), 0);
}

#[test]
fn without_the_flush_of_readers_locks_still_go_with_the_open_file() {
    needs!(Mounts, Programs(&["python3"]));
    let config = Config { flush: Flush::Writers, ..Config::default() };
    let world = World::with("writers", Arc::new(Memory::default()), config);
    fs::write(world.at("f"), b"x").unwrap();
    let flushes = world.requests("FLUSH");
    run(
        &world,
        r"
a=os.open(p,os.O_RDONLY); fcntl.lockf(a,fcntl.LOCK_SH); assert posix_held(p)
os.close(a); goes(posix_held,p)
",
    );
    // Those of `posix_held`, which opens for writing.
    assert!(world.requests("FLUSH") > flushes);
    fs::read(world.at("f")).unwrap();
    let flushes = world.requests("FLUSH");
    fs::read(world.at("f")).unwrap();
    assert_eq!(world.requests("FLUSH"), flushes);
}

#[test]
fn local_locks_hold_within_the_mount_and_cost_no_requests() {
    needs!(Mounts, Programs(&["python3"]));
    let config = Config { locks: Locks::Local, ..Config::default() };
    let world = World::with("local", Arc::new(Memory::default()), config);
    fs::write(world.at("f"), b"long").unwrap();
    fs::write(world.at("f"), b"x").unwrap();
    assert_eq!(fs::read(world.at("f")).unwrap(), b"x", "a truncation is not lost with the open");
    run(
        &world,
        r"
a=os.open(p,os.O_RDWR); b=os.open(p,os.O_RDONLY)
fcntl.lockf(a,fcntl.LOCK_EX); assert posix_held(p)
os.close(b); assert not posix_held(p)
fcntl.flock(a,fcntl.LOCK_EX); assert flock_held(p)
os.close(a); assert not flock_held(p)
",
    );
    let asked = |operation| world.requests(operation);
    assert_eq!((asked("OPEN"), asked("FLUSH"), asked("SETLK"), world.files.locks()), (1, 1, 0, 0));
}
