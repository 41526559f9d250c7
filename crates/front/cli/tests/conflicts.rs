//! Names that several members of a union have: what is told of them, and how they are resolved. And several unions over one tree.

mod common;

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use atoll_needs::needs;
use common::{Scratch, bad, good, text};
use serde_json::Value;

/// So many members and a mount point.
struct Place {
    scratch: Scratch,
    members: Vec<PathBuf>,
    point: PathBuf,
}

impl Place {
    fn new() -> Self {
        let scratch = Scratch::new();
        let members = ["one", "two"].map(|name| scratch.dir(name)).to_vec();
        let point = scratch.dir("mnt");
        Self { scratch, members, point }
    }

    fn show(&self, members: &[&Path], point: &Path, options: &str) {
        let state = self.scratch.path("state");
        let members = members.iter().map(|member| text(member));
        let rest = [text(point), "-o", options, "--state", text(&state)];
        good(["union"].into_iter().chain(members).chain(rest));
    }

    /// A file with these bytes in a member, made at this time.
    fn make(&self, member: usize, path: &str, bytes: &str) {
        let path = self.members[member].join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn json<I: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = I>) -> Value {
    serde_json::from_str(&good(arguments)).expect("it prints JSON")
}

#[test]
fn conflicts_are_listed_explained_and_resolved() {
    needs!(Mounts);
    let place = Place::new();
    let [one, two] = [&place.members[0], &place.members[1]];
    place.make(0, "d/e/f", "of one");
    place.make(1, "d/e/f", "of the second");
    place.make(0, "alone", "x");
    place.make(0, "copy", "x");
    let copied =
        std::process::Command::new("cp").arg("-p").args([one.join("copy"), two.join("copy")]).status();
    assert!(copied.unwrap().success());
    place.show(&[one, two], &place.point, "same=first");

    let told = json(["union", "conflicts", text(&place.point), "--json"]);
    let told = told.as_array().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    let path = place.point.join("d/e/f");
    assert_eq!(told[0]["path"], text(&path));
    assert_eq!(told[0]["homes"][0]["member"], text(one));
    assert_eq!(told[0]["homes"][0]["role"], "shown");
    assert_eq!(told[0]["homes"][1]["role"], "behind");
    assert_eq!(told[0]["homes"][1]["size"], 13);
    let said = good(["union", "conflicts", text(&place.point)]);
    assert!(said.contains(text(&path)) && said.contains("same=first"), "{said}");

    let said = good(["explain", text(&path)]);
    assert!(said.contains(&format!("shown    {}", one.display())), "{said}");
    assert!(said.contains(&format!("behind   {}", two.display())), "{said}");
    let about = json(["explain", text(&path), "--json"]);
    assert_eq!(about["dir_homes"].as_array().unwrap().len(), 2);
    assert_eq!(about["why"], "its member comes first (same=first)");
    let about = json(["explain", text(&place.point.join("d/new")), "--json"]);
    assert_eq!(about["homes"].as_array().unwrap().len(), 0);
    assert_eq!(about["place"].as_array().unwrap().len(), 2, "where a new name would go");
    let about = json(["explain", text(&place.point.join("copy")), "--json"]);
    assert_eq!(about["homes"][1]["role"], "copy");

    // The shown file is open, and stays usable when it goes.
    let open = fs::File::open(&path).unwrap();
    let said = bad(["union", "resolve", text(&path), "--keep", text(&place.point)]);
    assert!(said.contains("no member"), "{said}");
    let said = good(["union", "resolve", text(&path), "--keep", text(two)]);
    assert_eq!(said.trim(), format!("removed from {}", one.display()));
    assert_eq!(fs::read_to_string(&path).unwrap(), "of the second");
    assert_eq!(std::io::read_to_string(&open).unwrap(), "of one");
    assert!(!one.join("d/e/f").exists() && two.join("d/e/f").exists());
    assert!(json(["union", "conflicts", text(&place.point), "--json"]).as_array().unwrap().is_empty());
    let said = bad(["union", "resolve", text(&place.point.join("alone")), "--keep", text(two)]);
    assert!(said.contains("has no file of this name"), "{said}");
    assert!(one.join("alone").exists());
}

#[test]
fn more_conflicts_than_one_answer_holds_are_all_listed() {
    needs!(Mounts);
    let place = Place::new();
    for n in 0..150 {
        // Most of them in one directory.
        let path = if n < 100 { format!("many/{n}") } else { format!("d{n}/f") };
        place.make(0, &path, "one");
        place.make(1, &path, "other");
    }
    place.show(&[&place.members[0], &place.members[1]], &place.point, "same=newest");
    let told = json(["union", "conflicts", text(&place.point), "--json"]);
    let mut paths: Vec<&str> = told.as_array().unwrap().iter().map(|c| c["path"].as_str().unwrap()).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), 150);
}

/// Makes a file of one name in both at the same time, exclusively; who has made it.
fn race(points: [&Path; 2], name: &str) -> [bool; 2] {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        points
            .map(|point| {
                let (barrier, path) = (&barrier, point.join(name));
                scope.spawn(move || {
                    barrier.wait();
                    match OpenOptions::new().write(true).create_new(true).open(&path) {
                        Ok(_) => true,
                        Err(why) if why.kind() == ErrorKind::AlreadyExists => false,
                        Err(why) => panic!("{}: {why}", path.display()),
                    }
                })
            })
            .map(|thread| thread.join().unwrap())
    })
}

#[test]
fn two_unions_over_the_same_members_make_a_name_once() {
    needs!(Mounts);
    let place = Place::new();
    let other = place.scratch.dir("other");
    let members: Vec<&Path> = place.members.iter().map(PathBuf::as_path).collect();
    place.show(&members, &place.point, "place=dir");
    place.show(&members, &other, "place=dir");
    fs::create_dir(place.point.join("d")).unwrap();
    common::eventually("the other one sees the directory", || other.join("d").exists());
    for n in 0..50 {
        let name = format!("d/L{n}");
        let made = race([&place.point, &other], &name);
        assert_eq!(made.iter().filter(|made| **made).count(), 1, "one has made {name}: {made:?}");
        let there = members.iter().filter(|member| member.join(&name).exists()).count();
        assert_eq!(there, 1, "{name} has one home");
    }
}

#[test]
fn two_unions_over_different_members_may_make_a_name_twice_and_that_is_listed() {
    needs!(Mounts);
    let place = Place::new();
    let (third, other) = (place.scratch.dir("three"), place.scratch.dir("other"));
    let [one, two] = [&place.members[0], &place.members[1]];
    place.show(&[one, two], &place.point, "place=first");
    place.show(&[&third, two, one], &other, "place=first");
    let mut twice = 0;
    for n in 0..20 {
        let name = format!("L{n}");
        let [here, there] = race([&place.point, &other], &name);
        assert!(here, "this one knows no other home of {name}");
        assert_eq!(there, third.join(&name).exists(), "the other one makes it unless it has seen it");
        let homes = [one, two, &third].iter().filter(|member| member.join(&name).exists()).count();
        if homes == 2 {
            twice += 1;
            fs::write(one.join(&name), "longer").unwrap(); // So it is no copy.
        }
    }
    common::eventually("whoever shows both lists a name that is there twice", || {
        let conflicts = json(["union", "conflicts", text(&other), "--json"]);
        conflicts.as_array().unwrap().len() == twice
    });
}
