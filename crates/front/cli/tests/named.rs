//! Commands about unions that are shown: what they tell of them, and what they change.

mod common;

use std::fs;
use std::path::Path;

use atoll_needs::needs;
use common::{Scratch, bad, good, text};
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
