//! Commands about unions that are shown: what they tell of them, and what they change.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_needs::needs;
use common::{Scratch, bad, good, is_mounted, script, text};
use serde_json::Value;

fn json<I: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = I>) -> Value {
    serde_json::from_str(&good(arguments)).expect("it prints JSON")
}

#[test]
fn status_tells_of_a_union_its_settings_and_each_member() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let (one, two, point) = (scratch.dir("one"), scratch.dir("two"), scratch.dir("mnt"));
    let read_only = format!("{}:ro", text(&two));
    good(["union", text(&one), &read_only, text(&point), "-o", "place=room,away=hide"]);
    fs::read_dir(&point).unwrap().count();
    let told = json(["union", "status", text(&point), "--json"]);
    let told = &told[0];
    assert_eq!(told["point"], text(&point));
    assert_eq!(told["name"], Value::Null, "nothing is kept of it");
    assert_eq!(told["settings"]["place"], "room");
    assert_eq!(told["settings"]["same"], "newest");
    assert!(told["passthrough"].is_boolean(), "which way bytes go depends on the kernel");
    let members = told["members"].as_array().unwrap();
    assert_eq!(
        members.iter().map(|m| m["path"].as_str().unwrap()).collect::<Vec<_>>(),
        [text(&one), text(&two)]
    );
    assert_eq!(members.iter().map(|m| m["read_only"].as_bool().unwrap()).collect::<Vec<_>>(), [false, true]);
    for member in members {
        assert_eq!(member["state"], "serving");
        assert!(member["bytes"].as_u64() > member["bytes_available"].as_u64(), "{member}");
        assert_eq!(member["watched"].as_u64().unwrap() + member["checked"].as_u64().unwrap(), 1, "the root");
    }
    let said = good(["union", "status", text(&point)]);
    assert!(said.contains("MISSING DISKS ARE HIDDEN"), "{said}");
    assert!(said.contains("serving  read-only"), "{said}");
    let all = json(["union", "status", "--json"]);
    let points: Vec<&str> =
        all.as_array().unwrap().iter().filter_map(|union| union["point"].as_str()).collect();
    assert!(points.contains(&text(&point)), "{all}");
    let said = bad(["union", "status", text(&one)]);
    assert!(said.contains("No union is mounted on"), "{said}");
    good(["umount", text(&point)]);
}

/// A file system that is read-only, and one that is mounted read-only: the kernel says that before it looks who may write, or behind.
#[test]
fn a_user_makes_files_in_directories_that_only_a_read_only_member_has() {
    needs!(Mounts, Programs(&["setfacl"]));
    use std::os::unix::process::CommandExt;
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    for flags in ["ro", "bind,ro"] {
        let [one, two, point] = ["one", "two", "mnt"].map(|name| scratch.dir(&format!("{name}-{flags}")));
        let lines = format!(
            "mount -t tmpfs -o size=1m,mode=755 none {one}\n\
             mkdir -p {one}/own/in {one}/others {one}/listed\n\
             chown -R 65534:65534 {one}/own\n\
             setfacl -m u:65534:rwx {one}/listed\n\
             [ {flags} = ro ] || mount --bind {one} {one}\n\
             mount -o remount,{flags} {one}",
            one = text(&one)
        );
        assert!(Command::new("bash").args(["-ec", &lines]).status().unwrap().success());
        let empty = format!("{}:empty-ok", text(&two));
        good(["union", text(&one), &empty, text(&point), "-o", "allow_other"]);
        let make = |path: &str| {
            let path = point.join(path);
            let mut touch = Command::new("touch");
            touch.arg(&path).uid(65_534).gid(65_534).status().unwrap().success()
        };
        assert!(make("own/in/f") && make("listed/f"), "{flags}");
        assert!(two.join("own/in/f").is_file() && two.join("listed/f").is_file());
        assert_eq!(fs::metadata(two.join("own/in")).unwrap().uid(), 65_534);
        assert!(!make("others/f") && !two.join("others").exists(), "the mode forbids it");
        fs::write(point.join("others/roots"), "x").unwrap();
        assert!(two.join("others/roots").is_file());
        good(["umount", text(&point)]);
    }
}

#[test]
fn only_a_union_takes_orders_to_unions() {
    needs!(Mounts);
    let scratch = Scratch::new();
    let point = scratch.path("mnt");
    let _daemon = common::Daemon::up(&scratch.path("data"), &point, 1);
    let said = bad(["union", "status", text(&point)]);
    assert!(said.contains("is no union"), "{said}");
    assert!(Path::new(&point).exists());
}

/// Two members, a mount point and a state folder.
struct Place {
    scratch: Scratch,
    members: [PathBuf; 2],
    point: PathBuf,
    state: PathBuf,
}

impl Place {
    fn new() -> Self {
        let scratch = Scratch::new();
        let members = ["one", "two"].map(|name| scratch.dir(name));
        let (point, state) = (scratch.dir("mnt"), scratch.path("state"));
        Self { scratch, members, point, state }
    }

    fn arguments<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [&["union"], words, &["--state", text(&self.state)]].concat()
    }

    fn good(&self, words: &[&str]) -> String {
        good(self.arguments(words))
    }

    fn bad(&self, words: &[&str]) -> String {
        bad(self.arguments(words))
    }

    fn define(&self, options: &str) {
        let [one, two] = self.members.each_ref().map(|member| text(member));
        self.good(&["start", "all", one, two, text(&self.point), "-o", options]);
    }

    fn status(&self) -> Value {
        let told: Value = serde_json::from_str(&self.good(&["status", "all", "--json"])).unwrap();
        told[0].clone()
    }
}

#[test]
fn a_named_union_is_shown_again_by_its_name_alone() {
    needs!(Mounts);
    let place = Place::new();
    place.define("same=first,noatime");
    let said = place.bad(&["start", "all"]);
    assert!(said.contains("shown already") && said.contains("atoll union stop all"), "{said}");
    fs::write(place.point.join("f"), "kept").unwrap();
    place.good(&["stop", "all"]);
    assert!(!is_mounted(&place.point));
    let said = place.bad(&["status", "all"]);
    assert!(said.contains("is not shown") && said.contains("atoll union start all"), "{said}");
    place.good(&["start", "all"]);
    assert_eq!(fs::read_to_string(place.point.join("f")).unwrap(), "kept");
    let told = place.status();
    assert_eq!(told["name"], "all");
    assert_eq!(told["settings"]["same"], "first");
    assert_eq!(told["members"][1]["path"], text(&place.members[1]));
    place.good(&["stop", text(&place.point)]);
    let said = place.bad(&["start", "other"]);
    assert!(said.contains("Nothing is remembered of a union other"), "{said}");
    assert!(!place.state.join("named/other").exists());
    let kept: Vec<_> = place.members.iter().map(|member| fs::read_dir(member).unwrap().count()).collect();
    assert_eq!(kept.iter().sum::<usize>(), 1, "the members have the file that was made, and nothing else");
}

#[test]
fn a_member_that_is_another_one_than_before_is_refused_until_the_union_is_defined_anew() {
    needs!(Mounts);
    let place = Place::new();
    place.define("rw");
    place.good(&["stop", "all"]);
    fs::rename(&place.members[1], place.scratch.path("old")).unwrap();
    fs::create_dir(&place.members[1]).unwrap();
    let said = place.bad(&["start", "all"]);
    assert!(said.contains(text(&place.members[1])) && said.contains("atoll union start all DIR"), "{said}");
    assert!(!is_mounted(&place.point));
    place.define("rw");
    place.good(&["stop", "all"]);
    place.good(&["start", "all"]);
    place.good(&["stop", "all"]);
}

#[test]
fn a_member_is_refused_on_another_file_system_than_the_one_that_it_is_pinned_to() {
    needs!(Mounts);
    let place = Place::new();
    let [one, two] = place.members.each_ref().map(|member| text(member));
    let wrong = format!("{one}@00000000-1111-2222-3333-444444444444");
    let said = place.bad(&["start", "all", &wrong, two, text(&place.point)]);
    assert!(said.contains("on another file system"), "{said}");
    assert!(!place.state.join("named/all/union.json").exists(), "what could not be shown is not remembered");
    place.define("rw");
    let told = place.status();
    place.good(&["stop", "all"]);
    let right = format!("{one}@{}:ro", told["members"][0]["file_system"].as_str().unwrap());
    place.good(&["start", "all", &right, two, text(&place.point)]);
    assert_eq!(place.status()["members"][0]["read_only"], true);
    place.good(&["stop", "all"]);
}

#[test]
fn what_is_kept_of_unions_never_lies_in_a_member() {
    needs!(Mounts);
    let place = Place::new();
    let inside = place.members[0].join("state");
    let [one, two] = place.members.each_ref().map(|member| text(member));
    let said = bad(["union", "start", "all", one, two, text(&place.point), "--state", text(&inside)]);
    assert!(said.contains("lies inside the member") && said.contains("--state"), "{said}");
    assert!(!inside.exists() && !is_mounted(&place.point));
}

#[test]
fn a_line_of_fstab_shows_a_union() {
    needs!(Mounts, Programs(&["mount", "umount", "unshare", "bash"]));
    let place = Place::new();
    let [one, two] = place.members.each_ref().map(|member| text(member));
    let said = script(
        &place.scratch,
        &format!(
            "echo '{one}:ro:{two} {point} atoll place=first,nofail,noatime 0 0' > {fstab}\n\
             mount --bind {fstab} /etc/fstab\n\
             mount {point}\n\
             echo kept > {point}/f\n\
             mount -o remount,ro {point}\n\
             ! touch {point}/g 2> /dev/null\n\
             cat {two}/f\n\
             umount {point}",
            point = text(&place.point),
            fstab = text(&place.scratch.path("fstab")),
        ),
    );
    assert!(said.contains("kept"), "{said}");
    assert!(said.contains("place=first") && said.contains("stays as it was"), "{said}");
}

#[test]
fn members_come_and_go_while_the_union_is_shown() {
    needs!(Mounts);
    let place = Place::new();
    let third = place.scratch.dir("three");
    mount_tmpfs(&third);
    fs::create_dir_all(place.members[0].join("d")).unwrap();
    fs::create_dir_all(third.join("d")).unwrap();
    fs::write(place.members[0].join("d/a"), "a").unwrap();
    fs::write(third.join("d/c"), "c").unwrap();
    fs::write(place.members[1].join("b"), "b").unwrap(); // It is not taken for a disk that is not mounted.
    place.define("place=first");
    assert!(!place.point.join("d/c").exists());
    let names = || {
        let entries = fs::read_dir(place.point.join("d")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["a"]);
    place.good(&["join", "all", text(&third)]);
    assert_eq!(
        fs::read_to_string(place.point.join("d/c")).unwrap(),
        "c",
        "nothing that the kernel kept counts"
    );
    assert_eq!(names(), ["a", "c"]);
    let said = place.bad(&["join", "all", text(&third)]);
    assert!(said.contains("named twice"), "{said}");
    let said = place.bad(&["join", "all", text(&place.members[1].join(".."))]);
    assert!(said.contains("lies inside the member"), "{said}");

    // It is remembered.
    place.good(&["stop", "all"]);
    place.good(&["start", "all"]);
    assert_eq!(place.status()["members"].as_array().unwrap().len(), 3);
    let open = fs::File::open(place.point.join("d/c")).unwrap();
    let said = place.bad(&["leave", "all", text(&third)]);
    assert!(said.contains("d/c by") && said.contains("--force"), "{said}");
    assert_eq!(names(), ["a", "c"]);
    place.good(&["leave", "all", text(&third), "--force"]);
    assert_eq!(names(), ["a"]);
    assert!(!place.point.join("d/c").exists());
    let mut bytes = [0; 1];
    match std::os::unix::fs::FileExt::read_at(&open, &mut bytes, 0) {
        Ok(len) => assert_eq!(&bytes[..len], b"c", "the kernel itself had it open"),
        Err(why) => assert_eq!(why.raw_os_error(), Some(libc::ESTALE)),
    }
    drop(open);
    common::eventually("nothing of it is open", || {
        rustix::mount::unmount(&third, rustix::mount::UnmountFlags::empty()).is_ok()
    });
    assert_eq!(place.status()["members"].as_array().unwrap().len(), 2);
    let said = place.bad(&["leave", "all", text(&third)]);
    assert!(said.contains("no member"), "{said}");
    place.good(&["leave", "all", text(&place.members[1])]);
    let said = place.bad(&["leave", "all", text(&place.members[0])]);
    assert!(said.contains("only one"), "{said}");
    place.good(&["stop", "all"]);
    place.good(&["start", "all"]);
    assert_eq!(place.status()["members"].as_array().unwrap().len(), 1);
}

/// A file system of its own.
fn mount_tmpfs(at: &Path) {
    rustix::mount::mount("atoll-test", at, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
}

/// Moves a file with mv(1), which removes its source and its destination as it likes; whether it says that this went well.
fn mv(from: &Path, to: &Path) -> bool {
    Command::new("mv").arg("-f").args([from, to]).output().unwrap().status.success()
}

#[test]
fn a_file_that_is_moved_into_a_member_stays_with_and_without_grace() {
    needs!(Mounts);
    for options in ["grace=0", "grace=600"] {
        let place = Place::new();
        fs::write(place.members[0].join("f"), "kept").unwrap();
        place.define(options);
        assert!(mv(&place.point.join("f"), &place.members[1].join("f")));
        // One of the two goes: which one depends on whether the union has heard of the copy by then.
        let left: Vec<_> =
            place.members.iter().filter_map(|member| fs::read_to_string(member.join("f")).ok()).collect();
        assert_eq!(left, ["kept"]);
        common::eventually("it is shown from there", || {
            fs::read_to_string(place.point.join("f")).is_ok_and(|bytes| bytes == "kept")
        });
        place.good(&["stop", "all"]);
    }
}

#[test]
fn a_file_that_is_moved_from_a_member_onto_itself_is_lost_without_grace_and_comes_back_with_it() {
    needs!(Mounts);
    for grace in [false, true] {
        let place = Place::new();
        let native = place.members[0].join("g");
        fs::write(&native, "precious").unwrap();
        fs::set_permissions(&native, fs::Permissions::from_mode(0o640)).unwrap();
        let before = fs::metadata(&native).unwrap();
        place.define(if grace { "grace=600" } else { "grace=0" });
        let shown = place.point.join("g");
        assert!(shown.exists());
        assert!(!mv(&native, &shown), "mv removes its destination first, which is its source");
        assert!(!native.exists() && !shown.exists());
        if grace {
            assert_eq!(place.status()["settings"]["grace"], "600");
            good(["union", "undelete", text(&shown)]);
            assert_eq!(fs::read_to_string(&shown).unwrap(), "precious");
            let after = fs::metadata(&native).unwrap();
            assert_eq!((after.mode(), after.mtime_nsec()), (before.mode(), before.mtime_nsec()));
            let said = bad(["union", "undelete", text(&shown)]);
            assert!(said.contains("cannot be copied back"), "{said}");
        } else {
            let said = bad(["union", "undelete", text(&shown)]);
            assert!(said.contains("grace=SECONDS"), "{said}");
        }
        place.good(&["stop", "all"]);
    }
}

#[test]
fn a_disk_of_fstab_that_is_not_mounted_is_named_with_its_line_and_nothing_is_written_beneath() {
    needs!(Mounts, Programs(&["mount", "unshare", "bash"]));
    let place = Place::new();
    let [one, two] = place.members.each_ref().map(|member| text(member));
    let said = script(
        &place.scratch,
        &format!(
            "echo 'LABEL=films {two} ext4 defaults 0 2' > {fstab}\n\
             mount --bind {fstab} /etc/fstab\n\
             ! {atoll} union start all {one} {two} {point} --state {state}\n\
             ls -A {two} | wc -l\n\
             mount -t tmpfs films {two}\n\
             {atoll} union start all {one}:empty-ok {two} {point} --state {state}\n\
             {atoll} union stop all --state {state}\n\
             umount {two}\n\
             ! {atoll} union start all --state {state}",
            atoll = env!("CARGO_BIN_EXE_atoll"),
            point = text(&place.point),
            state = text(&place.state),
            fstab = text(&place.scratch.path("fstab")),
        ),
    );
    assert_eq!(said.matches("LABEL=films").count(), 2, "{said}");
    assert!(said.lines().any(|line| line == "0"), "{said}");
    assert_eq!(fs::read_dir(two).unwrap().count(), 0);
}
