//! Directories that were removed while they are in use, and names that come and go while they are removed.

mod common;

use atoll_core::{Ino, Name};
use atoll_needs::needs;
use atoll_posix::{Op, RenameMode, SetAttr};
use atoll_vfs::Caching;
use common::{World, python};
use std::fs;

fn mkdir(name: &str) -> Op {
    Op::Mkdir { dir: Ino::ROOT, name: Name::new(name.as_bytes()).unwrap(), mode: 0o755, umask: 0 }
}

fn rmdir(name: &str) -> Op {
    Op::Rmdir { dir: Ino::ROOT, name: Name::new(name.as_bytes()).unwrap(), meant: None }
}

fn rename(name: &str, new_name: &str) -> Op {
    let [name, new_name] = [name, new_name].map(|text| Name::new(text.as_bytes()).unwrap());
    let (dir, new_dir, mode) = (Ino::ROOT, Ino::ROOT, RenameMode::Replace);
    Op::Rename { dir, name, new_dir, new_name, mode, meant: None, new_meant: None }
}

/// What a process finds that has a directory open, and works in it, when it is removed.
const USE_REMOVED: &str = r"import os,sys,errno,time
os.chdir(sys.argv[1])
fd=os.open('d',os.O_RDONLY|os.O_DIRECTORY)
os.chdir('d')
os.setxattr(fd,'user.a',b'value')
before=os.fstat(fd)
listing=os.scandir(fd)
print('ready',flush=True)
sys.stdin.readline()
def fails(what,f):
  try: f()
  except OSError as e: assert e.errno==errno.ENOENT,(what,e)
  else: assert 0,what
s=os.fstat(fd)
assert s.st_ino==before.st_ino and s.st_nlink==0 and s.st_mode==before.st_mode,s
assert os.stat('.').st_ino==s.st_ino
os.fchmod(fd,0o700)
assert os.fstat(fd).st_mode&0o7777==0o700
os.fchown(fd,7,8)
s=os.fstat(fd)
assert (s.st_uid,s.st_gid)==(7,8),s
os.utime(fd,ns=(5,6))
s=os.fstat(fd)
assert (s.st_atime_ns,s.st_mtime_ns)==(5,6) and s.st_ctime_ns>10**18,s
assert os.listdir(fd)==[] and os.listdir('.')==[]
assert list(listing)==[]
os.fsync(fd)
assert os.getxattr(fd,'user.a')==b'value'
os.setxattr(fd,'user.b',b'x')
assert os.listxattr(fd)==['user.a','user.b']
os.removexattr(fd,'user.a')
assert os.listxattr('.')==['user.b']
try: os.getxattr(fd,'system.posix_acl_access')
except OSError as e: assert e.errno==errno.ENODATA,e
fails('create',lambda:os.open('x',os.O_CREAT|os.O_WRONLY,dir_fd=fd))
fails('mkdir',lambda:os.mkdir('x',dir_fd=fd))
fails('symlink',lambda:os.symlink('t','x'))
fails('mknod',lambda:os.mknod('x'))
fails('stat',lambda:os.stat('x'))
fails('unlink',lambda:os.unlink('x'))
fails('rmdir',lambda:os.rmdir('x'))
fails('rename from',lambda:os.rename('x','../y'))
fails('rename to',lambda:os.rename('../other','x'))
fails('link',lambda:os.link('../other','x'))
d=os.open('.',os.O_RDONLY)
assert os.fstat(d).st_nlink==0
";

#[test]
fn a_removed_directory_answers_whoever_has_it_open() {
    use std::io::{BufRead, BufReader, Write};
    needs!(Mounts);
    for (caching, by_another) in
        [(Caching::UntilRecalled, false), (Caching::Never, false), (Caching::Never, true)]
    {
        let world = World::new("removed");
        *world.files.caching.lock().unwrap() = caching;
        fs::create_dir(world.at("d")).unwrap();
        fs::write(world.at("other"), b"").unwrap();
        let mut child = std::process::Command::new("python3")
            .args(["-c", USE_REMOVED])
            .arg(&world.place.0)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        match by_another {
            true => _ = world.files.behind(rmdir("d"), b""),
            false => fs::remove_dir(world.at("d")).unwrap(),
        }
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(child.wait().unwrap().success(), "{caching:?}, removed by another mount: {by_another}");
        assert!(world.at("other").exists());
    }
}

/// What another mount has done to a directory is told of it when it is removed, and nothing older.
#[test]
fn a_removed_directory_never_shows_an_older_mode_than_another_mount_has_set() {
    use std::os::unix::fs::PermissionsExt;
    needs!(Mounts);
    let world = World::new("older-mode");
    let caching = |what| *world.files.caching.lock().unwrap() = what;
    for recalled in [false, true] {
        if recalled {
            // It was alone when it was told, and is alone again in the end.
            caching(Caching::UntilRecalled);
        } else {
            caching(Caching::Never);
        }
        fs::create_dir(world.at("d")).unwrap();
        let dir = fs::File::open(world.at("d")).unwrap();
        let mode = || dir.metadata().map(|found| found.permissions().mode() & 0o777);
        assert_eq!(mode().unwrap(), 0o755);
        world.files.recall();
        let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        world.files.behind(Op::SetAttr { ino: world.files.id("d"), set }, b"");
        world.files.behind(rmdir("d"), b"");
        if recalled {
            caching(Caching::UntilRecalled);
        }
        assert_eq!(mode().unwrap(), 0o700);
        dir.set_permissions(fs::Permissions::from_mode(0o711)).unwrap();
        assert_eq!(mode().unwrap(), 0o711);
    }
}

#[test]
fn who_removes_a_directory_that_comes_and_goes_is_told_no_more_than_that_it_is_not_there() {
    needs!(Mounts);
    let world = World::new("comes-and-goes");
    *world.files.caching.lock().unwrap() = Caching::Never;
    // Another one makes it anew each time before it is decided: four times.
    fs::create_dir(world.at("d")).unwrap();
    *world.files.races.lock().unwrap() = vec![vec![rmdir("d"), mkdir("d")]; 4];
    fs::remove_dir(world.at("d")).unwrap();
    assert!(!world.at("d").exists(), "the last one was removed");
    // The last time it only goes.
    fs::create_dir(world.at("d")).unwrap();
    let mut races = vec![vec![rmdir("d"), mkdir("d")]; 4];
    races.insert(0, vec![rmdir("d")]);
    *world.files.races.lock().unwrap() = races;
    assert_eq!(fs::remove_dir(world.at("d")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    fs::create_dir(world.at("d")).unwrap();
    fs::write(world.at("d/x"), b"new").unwrap();
    assert_eq!(fs::read(world.at("d/x")).unwrap(), b"new", "the kernel holds the new one for alive");
}

#[test]
fn who_renames_directories_that_come_and_go_succeeds_or_is_told_that_there_is_none() {
    needs!(Mounts);
    let world = World::new("renames-come-and-go");
    *world.files.caching.lock().unwrap() = Caching::Never;
    let anew = || vec![rmdir("a"), mkdir("a"), rmdir("b"), mkdir("b")];
    fs::create_dir(world.at("a")).unwrap();
    fs::create_dir(world.at("b")).unwrap();
    *world.files.races.lock().unwrap() = vec![anew(); 4];
    fs::rename(world.at("a"), world.at("b")).unwrap();
    assert!(!world.at("a").exists() && world.at("b").exists());
    fs::create_dir(world.at("a")).unwrap();
    *world.files.races.lock().unwrap() = vec![vec![rmdir("a")], anew(), anew(), anew()];
    let why = fs::rename(world.at("a"), world.at("b")).unwrap_err();
    assert_eq!(why.kind(), std::io::ErrorKind::NotFound);
    // A directory that was only moved away is no dead one.
    fs::create_dir(world.at("a")).unwrap();
    fs::create_dir(world.at("other")).unwrap();
    *world.files.races.lock().unwrap() = vec![vec![rename("a", "kept"), mkdir("a")]];
    fs::remove_dir(world.at("a")).unwrap();
    fs::write(world.at("kept/x"), b"").unwrap();
    python("import os,sys\nassert sorted(os.listdir(sys.argv[1]))==['b','kept','other']", &world.place.0);
}
