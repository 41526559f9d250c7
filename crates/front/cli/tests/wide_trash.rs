//! The trash of a site of a wide volume, with real nodes: what another site takes away is listed here, gets a name again, and goes.

mod common;

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use common::sites::{Sites, names};
use common::{bad, eventually, good, text};
use serde_json::{Value, json};

/// What rests at a site.
fn rests(sites: &Sites, site: usize) -> Vec<Value> {
    let said = good(["trash", "list", "--json", text(&sites.path(site, ""))]);
    let told: Value = serde_json::from_str(&said).unwrap();
    told.as_array().unwrap().clone()
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

#[test]
fn what_another_site_takes_away_is_listed_and_restored_and_goes() {
    let sites = Sites::new(2);
    let before = now_ms();
    fs::create_dir(sites.path(0, "d")).unwrap();
    fs::write(sites.path(0, "d/report"), b"a report").unwrap();
    fs::write(sites.path(0, "changes"), b"at first").unwrap();
    fs::write(sites.path(0, "goes"), b"it goes").unwrap();
    for (name, bytes) in [("d/report", &b"a report"[..]), ("changes", b"at first"), ("goes", b"it goes")] {
        sites.has(1, name, bytes);
    }
    good(["confirm", text(&sites.path(0, ""))]);
    fs::remove_file(sites.path(1, "d/report")).unwrap();
    eventually("it rests", || rests(&sites, 0).len() == 1);
    fs::write(sites.path(1, "changes"), b"by the second").unwrap();
    sites.has(0, "changes", b"by the second");
    fs::remove_file(sites.path(1, "goes")).unwrap();
    eventually("all rest", || rests(&sites, 0).len() == 3);
    assert!(rests(&sites, 1).is_empty(), "what the own users take away does not rest");
    let told = rests(&sites, 0);
    let facts = |told: &Value| ["path", "why", "site", "size", "kind"].map(|fact| told[fact].clone());
    let wanted = [
        json!(["/d/report", "removed", "s1", 8, "file"]),
        json!(["/changes", "replaced", "s1", 8, "file"]),
        json!(["/goes", "removed", "s1", 7, "file"]),
    ];
    assert_eq!(told.iter().map(|told| json!(facts(told))).collect::<Vec<_>>(), wanted);
    for told in &told {
        let since = told["since_ms"].as_u64().unwrap();
        assert!((before..=now_ms()).contains(&since), "{since}: it rests since it was taken away");
    }
    let said = good(["trash", "list", text(&sites.path(0, "d"))]);
    let first = said.lines().next().unwrap();
    assert!(said.lines().count() == 3 && first.ends_with("/d/report"), "{said}");
    assert!(first.contains("8 B  removed  by s1 "), "{said}");

    let id = |nth: usize| rests(&sites, 0)[nth]["id"].as_str().unwrap().to_owned();
    let said = bad(["trash", "restore", &id(0), text(&sites.path(0, "changes"))]);
    assert!(said.contains("The name is taken"), "{said}");
    good(["trash", "restore", &id(0), text(&sites.path(0, "d"))]);
    good(["trash", "restore", &id(0), text(&sites.path(0, "before"))]);
    for site in 0..2 {
        sites.has(site, "d/report", b"a report");
        sites.has(site, "before", b"at first");
        sites.has(site, "changes", b"by the second");
    }
    assert_eq!(names(&sites.path(1, "")), ["before", "changes", "d"]);
    let said = bad(["trash", "restore", "1-1", text(&sites.path(0, "d"))]);
    assert!(said.contains("does not rest") && said.contains("atoll trash list"), "{said}");
    let gone = id(0);
    let said = good(["trash", "empty", text(&sites.path(0, ""))]);
    assert!(said.contains("1 file is gone"), "{said}");
    assert!(rests(&sites, 0).is_empty());
    let said = bad(["trash", "restore", &gone, text(&sites.path(0, "goes"))]);
    assert!(said.contains("does not rest"), "{said}");
}

#[test]
fn a_volume_of_another_kind_has_no_trash() {
    let said = bad(["trash", "list", "/"]);
    assert!(said.contains("is in no mounted volume"), "{said}");
    let said = bad(["trash", "restore", "something", "/nowhere"]);
    assert!(said.contains("no id of something in the trash"), "{said}");
}
