//! What programs see when several ways of writing meet: set-id bits, and direct writes beside buffered reads. Compared
//! with a local file system, through one mount, which may keep pages, and through one of two, which may not.

use std::path::Path;
use std::process::Command;

use atoll_needs::needs;
use atoll_torture::cluster::{Cluster, Shape};
use atoll_torture::daemon::Launch;
use atoll_torture::place::Place;

/// Writes in every way as a user without rights, who is in the file's group or not, and tells what is left of the mode.
const SET_ID: &str = r#"import os,sys,mmap,ctypes,stat
d=sys.argv[1]
libc=ctypes.CDLL(None,use_errno=True)
O_DIRECT=os.O_DIRECT
def attempt(name, fn, mode, groups):
    p=f"{d}/f"
    with open(p,"wb") as f: f.write(b"a"*8192)
    os.chown(p,0,7); os.chmod(p,mode)
    os.stat(p)
    pid=os.fork()
    if pid==0:
        os.setgroups(groups); os.setgid(1000); os.setuid(1000)
        try: fn(p)
        except OSError as e: print(name,"error",e)
        m=os.stat(p).st_mode&0o7777
        print(f"{name} {mode:o} in {groups} -> {m:o}")
        sys.stdout.flush(); os._exit(0)
    os.waitpid(pid,0)
    print("others see",oct(os.stat(p).st_mode&0o7777),flush=True)
    os.unlink(p)
buf=mmap.mmap(-1,4096); buf.write(b"z"*4096)
def write(flags):
    def f(p):
        fd=os.open(p,flags); os.write(fd,buf[:]) if not flags&O_DIRECT else os.writev(fd,[buf]);
        print("fstat",oct(os.fstat(fd).st_mode&0o7777))
        os.close(fd)
    return f
def falloc(mode):
    def f(p):
        fd=os.open(p,os.O_RDWR); r=libc.fallocate(fd,mode,ctypes.c_long(0),ctypes.c_long(4096));
        if r: print("falloc",os.strerror(ctypes.get_errno()))
        os.close(fd)
    return f
def cfr(p):
    s=os.open(p+"src",os.O_RDWR|os.O_CREAT); os.write(s,b"x"*4096); fd=os.open(p,os.O_RDWR); os.copy_file_range(s,fd,4096,0,0); os.close(fd); os.close(s)
def splice(p):
    r,w=os.pipe(); os.write(w,b"x"*100); fd=os.open(p,os.O_RDWR); os.splice(r,fd,100); os.close(fd)
os.chmod(d,0o777)
for mode,groups in [(0o6777,[]),(0o4766,[]),(0o2777,[7]),(0o2767,[]),(0o6767,[7])]:
    attempt("write",write(os.O_WRONLY),mode,groups)
    attempt("O_DIRECT",write(os.O_WRONLY|O_DIRECT),mode,groups)
    attempt("append",write(os.O_WRONLY|os.O_APPEND),mode,groups)
    attempt("O_TRUNC",lambda p: os.close(os.open(p,os.O_WRONLY|os.O_TRUNC)),mode,groups)
    attempt("truncate",lambda p: os.truncate(p,10),mode,groups)
    attempt("truncate grow",lambda p: os.truncate(p,100000),mode,groups)
    attempt("ftruncate",lambda p: os.ftruncate(os.open(p,os.O_RDWR),10),mode,groups)
    attempt("fallocate",falloc(0),mode,groups)
    attempt("fallocate keep",falloc(1),mode,groups)
    attempt("punch",falloc(3),mode,groups)
    attempt("zero",falloc(0x10),mode,groups)
    attempt("copy_file_range",cfr,mode,groups)
    attempt("splice",splice,mode,groups)
"#;

/// Three threads read through the page cache what another one writes past it, by pwrite and by aio; nobody may
/// see less than was there when he began.
const DIRECT: &str = r#"import ctypes,mmap,os,platform,struct,sys,threading,time
d=sys.argv[1]
LEN=65536
numbers={'x86_64':(206,209,208),'aarch64':(0,2,4)}.get(platform.machine())
if numbers is None: print('no numbers of system calls'); sys.exit(0)
libc=ctypes.CDLL(None,use_errno=True)
path=d+'/direct'
fd=os.open(path,os.O_RDWR|os.O_CREAT|os.O_DIRECT)
buf=mmap.mmap(-1,LEN)
address=ctypes.addressof(ctypes.c_char.from_buffer(buf))
def fill(n):
  for at in range(0,LEN,4096): buf[at:at+4]=struct.pack('<I',n)
fill(0)
assert os.writev(fd,[buf])==LEN
context=ctypes.c_ulong(0)
assert libc.syscall(numbers[0],8,ctypes.byref(context))==0
done=0; stop=False; stale=[]; reads=0
def read():
  global reads
  mine=os.open(path,os.O_RDONLY)
  while not stop:
    before=done
    bytes=os.pread(mine,LEN,0)
    for at in range(0,LEN,4096):
      seen=struct.unpack('<I',bytes[at:at+4])[0]
      if seen<before: stale.append((at,seen,before))
    reads+=1
  os.close(mine)
threads=[threading.Thread(target=read) for _ in range(3)]
for t in threads: t.start()
end=time.time()+6; n=0
while time.time()<end and not stale:
  n+=1; fill(n)
  if n%2:
    cb=(ctypes.c_char*64).from_buffer_copy(struct.pack('<QIiHhIQQqQIi',0,0,0,1,0,fd,address,LEN,0,0,0,0))
    cbs=(ctypes.c_void_p*1)(ctypes.addressof(cb))
    assert libc.syscall(numbers[1],context,ctypes.c_long(1),cbs)==1,os.strerror(ctypes.get_errno())
    event=(ctypes.c_int64*4)()
    assert libc.syscall(numbers[2],context,ctypes.c_long(1),ctypes.c_long(1),event,None)==1
    assert event[2]==LEN,event[2]
  else:
    assert os.pwritev(fd,[buf],0)==LEN
  done=n
stop=True
for t in threads: t.join()
assert not stale,stale[:3]
assert n>50 and reads>50,(n,reads)
print(n,'writes',reads,'reads')
"#;

fn python(program: &str, dir: &Path) -> String {
    let output = Command::new("python3").args(["-c", program]).arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `check` in a mount that is the only one, and in one that is not.
fn in_both(check: impl Fn(&Path)) {
    let place = Place::new("writes").unwrap();
    let daemon = Launch::new(place.path()).start().unwrap();
    check(daemon.mount());
    daemon.stop().unwrap();
    let place = Place::new("writes2").unwrap();
    let cluster = Cluster::start(place.path(), &Shape { nodes: 1, mounts: 2, kill: false }).unwrap();
    check(&cluster.mounts()[0]);
    cluster.stop().unwrap();
}

#[test]
fn set_id_bits_go_with_the_bytes_of_an_unprivileged_user_as_on_a_local_file_system() {
    needs!(Mounts, Programs(&["python3"]));
    let local = Place::new("local").unwrap();
    let expected = python(SET_ID, local.path());
    assert!(expected.lines().count() > 100, "{expected}");
    in_both(|mount| {
        let seen = python(SET_ID, mount);
        let pairs = expected.lines().zip(seen.lines());
        let differ: Vec<_> = pairs.filter(|(local, mount)| local != mount).collect();
        assert!(differ.is_empty() && expected.len() == seen.len(), "local, mount: {differ:#?}");
    });
}

#[test]
fn a_buffered_read_after_a_direct_write_by_another_thread_sees_it() {
    needs!(Mounts, Programs(&["python3"]));
    in_both(|mount| eprint!("{}", python(DIRECT, mount)));
}
