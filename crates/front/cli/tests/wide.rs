//! Wide volumes, with real nodes: sites that are made, join, work cut off, and meet again.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use common::sites::{Sites, names};
use common::{Cluster, Mounted, Scratch, bad, eventually, good, text};
use serde_json::Value;

#[test]
fn what_is_done_at_one_site_is_at_all_of_them() {
    let sites = Sites::new(3);
    fs::write(sites.path(0, "a"), b"from the first").unwrap();
    fs::create_dir(sites.path(1, "d")).unwrap();
    fs::write(sites.path(1, "d/b"), b"from the second").unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(|n| n.to_le_bytes()).collect();
    fs::write(sites.path(2, "large"), &large).unwrap();
    for site in 0..3 {
        sites.has(site, "a", b"from the first");
        sites.has(site, "d/b", b"from the second");
        sites.has(site, "large", &large);
    }
    // Files lie as plain files at each site.
    let plain = sites.data(2).join("islands/docs/0/tree/d/b");
    eventually("the plain tree", || fs::read(&plain).is_ok_and(|bytes| bytes == b"from the second"));
    fs::rename(sites.path(0, "d"), sites.path(0, "e")).unwrap();
    fs::remove_file(sites.path(1, "a")).unwrap();
    for site in 0..3 {
        eventually("the rename and the removal", || names(&sites.path(site, "")) == ["e", "large"]);
        sites.has(site, "e/b", b"from the second");
    }
    let said = good(["confirm", text(&sites.path(0, ""))]);
    assert!(said.contains("Every site has all 4 files and directories"), "{said}");
    assert!(good(["confirm", text(&sites.path(1, "large"))]).contains("Every site has it"));
    let status = good(["status", text(&sites.path(0, ""))]);
    assert!(status.contains("    site s1               connected"), "{status}");
    let status: Value = serde_json::from_str(&good(["status", "--json", text(&sites.path(0, ""))])).unwrap();
    let told = status["processes"].as_array().unwrap().iter().find(|told| told["sites"]["docs"].is_array());
    assert_eq!(told.unwrap()["sites"]["docs"][0]["condition"], "here");
    // The second and the third have no link: the first one passes on.
    assert!(sites.is_connected(0, 1) && sites.is_connected(0, 2));
    assert_eq!(sites.told(1, 2)["condition"], "away");
    eventually("nothing is under way", || {
        sites.told(0, 1)["even"] == true && sites.told(0, 2)["even"] == true
    });
}

#[test]
fn sites_work_while_they_are_cut_off_and_agree_when_they_meet() {
    let mut sites = Sites::new(2);
    fs::write(sites.path(0, "both"), b"before").unwrap();
    fs::write(sites.path(0, "goes"), b"before").unwrap();
    sites.has(1, "both", b"before");
    sites.has(1, "goes", b"before");
    fs::write(sites.path(0, "stays"), b"before").unwrap();
    sites.has(1, "stays", b"before");
    sites.mounts[0] = None;
    sites.nodes.kill(0);
    eventually("the first one is away", || !sites.is_connected(1, 0));
    let why = sites.told(1, 0);
    assert!(why["why"].is_string() && why["since_ms"].is_u64(), "{why}");
    fs::write(sites.path(1, "both"), b"of the second").unwrap();
    let told = common::run(["confirm", "--wait", "3", "--json", text(&sites.path(1, "both"))]);
    let said: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert!(!told.status.success() && said["sites"][0]["reached"] == false, "{said}");
    fs::remove_file(sites.path(1, "goes")).unwrap();
    fs::remove_file(sites.path(1, "stays")).unwrap();
    fs::write(sites.path(1, "new"), b"of the second").unwrap();
    // Nobody is at the first one who could hear of that, and its users have not seen it.
    sites.nodes.kill(1);
    sites.mounts[1] = None;
    sites.nodes.start(0);
    sites.mount(0);
    fs::write(sites.path(0, "both"), b"of the first").unwrap();
    fs::write(sites.path(0, "stays"), b"of the first").unwrap();
    assert_eq!(names(&sites.path(0, "")), ["both", "goes", "stays"]);
    sites.nodes.start(1);
    sites.mount(1);
    for site in 0..2 {
        sites.has(site, "both", b"of the first");
        sites.has(site, "new", b"of the second");
        eventually("the other one is beside it", || names(&sites.path(site, "")).len() == 4);
        let all = names(&sites.path(site, ""));
        assert!(
            all[0].starts_with("both.~s1-") && all[1..] == ["both", "new", "stays"]
                || all[1].starts_with("both.~s1-"),
            "{all:?}"
        );
        let beside = all.iter().find(|name| name.contains('~')).unwrap();
        sites.has(site, beside, b"of the second");
        let explained = |name: &str| good(["explain", text(&sites.path(site, name))]);
        assert!(explained("both").contains("by site s0"), "{}", explained("both"));
        assert!(!explained("both").contains("a copy"), "{}", explained("both"));
        assert!(explained(beside).contains("a copy: two sites changed one file"), "{}", explained(beside));
        let json = |name: &str| -> Value {
            serde_json::from_str(&good(["explain", "--json", text(&sites.path(site, name))])).unwrap()
        };
        let (of, copy) = (json("both"), json(beside));
        assert_eq!(copy["site"]["copy_of"], of["site"]["object"], "{copy}");
        let is_here = |told: &Value| told["site"]["is_behind"] == false && told["site"]["is_uncut"] == false;
        assert!(is_here(&of) && is_here(&copy), "{of} {copy}");
        assert_eq!(of["site"]["names"][0], "both", "{of}");
        assert!(explained("").contains("changed"), "{}", explained(""));
        sites.has(site, "stays", b"of the first");
        // The removal waits until a version is cut of what was written.
        eventually("it says why it is still there", || {
            explained("stays").contains("still: the site that removed it")
        });
    }
    assert_eq!(names(&sites.path(0, "")), names(&sites.path(1, "")));
    resolves(&sites);
}

/// Another file system has numbers and names of its own.
fn what_is_mounted_below_is_not_looked_at(sites: &Sites) {
    let (root, point) = (sites.path(0, ""), sites.path(0, "point"));
    fs::create_dir(&point).unwrap();
    let tmpfs =
        |words: &[&str]| assert!(Command::new(words[0]).args(&words[1..]).status().unwrap().success());
    tmpfs(&["mount", "-t", "tmpfs", "none", text(&point)]);
    fs::write(point.join("a.~s1-20260101-000000"), b"of somebody else").unwrap();
    let (listed, told) = (good(["conflicts", "list", text(&root)]), good(["confirm", "--json", text(&root)]));
    tmpfs(&["umount", text(&point)]);
    fs::remove_dir(&point).unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((listed.as_str(), told["objects"].as_u64()), ("", Some(5)), "the root and four files");
}

/// Conflicts are listed, shown and resolved.
fn resolves(sites: &Sites) {
    let root = sites.path(0, "");
    let listed = good(["conflicts", "list", text(&root)]);
    let beside = PathBuf::from(listed.trim());
    assert!(beside.exists() && listed.lines().count() == 1, "{listed}");
    let told: Value = serde_json::from_str(&good(["conflicts", "list", "--json", text(&root)])).unwrap();
    assert_eq!((told[0]["site"].as_str(), told[0]["of"].as_str()), (Some("s1"), root.join("both").to_str()));
    let shown = good(["conflicts", "show", text(&root.join("both"))]);
    assert!(shown.contains("changed at s1 on") && shown.lines().count() == 3, "{shown}");
    let said = bad(["conflicts", "resolve", text(&root.join("new")), "--keep", "this"]);
    assert!(said.contains("has no conflict"), "{said}");
    let said = good(["conflicts", "resolve", text(&root.join("both")), "--keep", "both"]);
    assert!(said.contains("is both (s1 "), "{said}");
    assert_eq!(good(["conflicts", "list", text(&root)]), "");
    what_is_mounted_below_is_not_looked_at(sites);
    eventually("the other site has the names", || names(&sites.path(0, "")) == names(&sites.path(1, "")));
    // By hand, as a clash would leave it.
    fs::write(root.join("both.~s1-20260101-000000"), b"later").unwrap();
    good(["conflicts", "resolve", text(&root.join("both")), "--keep", "other"]);
    sites.has(1, "both", b"later");
    fs::write(root.join("both.~s1-20260101-000000"), b"no").unwrap();
    good(["conflicts", "resolve", text(&root.join("both.~s1-20260101-000000")), "--keep", "other"]);
    sites.has(1, "both", b"later");
    assert_eq!(good(["conflicts", "list", text(&root)]), "");
}

#[test]
fn a_line_is_for_one_site_and_bad_input_makes_nothing() {
    let sites = Sites::new(2);
    let other = Scratch::new();
    let extra = Cluster::bare(2);
    let [one, two] = [extra.data(0), extra.data(1)];
    let line = sites.line();
    let altered = format!("{}{}", &line[..line.len() - 1], if line.ends_with('A') { 'B' } else { 'A' });
    let said = bad(["site", "join", &altered, "--data", text(&one)]);
    assert!(said.contains("altered"), "{said}");
    let said = bad(["site", "join", "hello", "--data", text(&one)]);
    assert!(said.contains("atoll site invite"), "{said}");
    let said = bad(["site", "join", &line, "--data", text(&one), "--name", "a/b"]);
    assert!(said.contains("cannot name a site"), "{said}");
    let said = bad(["site", "join", &line, "--data", text(&one), "--name", "s0"]);
    assert!(said.contains("has a site s0 already"), "{said}");
    let said = bad(["site", "join", &line, "--data", text(&one), "--at", "nowhere"]);
    assert!(said.contains("HOST:PORT"), "{said}");
    let said = bad(["site", "join", &line, "--data", text(&other.path("none"))]);
    assert!(said.contains("cannot be used"), "{said}");
    assert_eq!(good(["volume", "list", "--data", text(&one)]), "No volumes.\n");
    good(["site", "join", &line, "--data", text(&one), "--name", "s2"]);
    let said = bad(["site", "join", &line, "--data", text(&two), "--name", "s3"]);
    assert!(said.contains("was used by another site"), "{said}");
    // A site without an address cannot be joined.
    let said = bad(["site", "invite", "--data", text(&one)]);
    assert!(said.contains("no address"), "{said}");
    for words in [["--replicas", "2"], ["--nodes", "127.0.0.1:1"]] {
        let create = ["volume", "create", "new", "--kind", "wide", "--data", text(&two)];
        let said = bad(create.into_iter().chain(words));
        assert!(said.contains("begins with one site"), "{said}");
    }
    let said = bad(["volume", "create", "new", "--data", text(&two), "--site", "x"]);
    assert!(said.contains("--kind wide"), "{said}");
    let said = bad(["site", "list", "--data", text(&two)]);
    assert!(said.contains("no site of a wide volume"), "{said}");
}

#[test]
fn a_site_that_leaves_or_is_forgotten_is_no_site_any_more() {
    let sites = Sites::new(3);
    eventually("all know all", || (0..3).all(|site| (0..3).all(|of| sites.told(site, of) != Value::Null)));
    let said = bad(["site", "forget", "s0", "--data", text(&sites.data(0))]);
    assert!(said.contains("atoll site leave"), "{said}");
    let said = bad(["site", "forget", "nobody", "--data", text(&sites.data(0))]);
    assert!(said.contains("no site nobody"), "{said}");
    good(["site", "leave", "--data", text(&sites.data(1))]);
    eventually("the first one hears of it", || sites.told(0, 1)["condition"] == "left");
    good(["site", "forget", "s2", "--data", text(&sites.data(0))]);
    assert_eq!(sites.told(0, 2)["condition"], "forgotten");
    fs::write(sites.path(0, "a"), b"a").unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    for site in [1, 2] {
        assert!(!sites.path(site, "a").exists(), "what the others do is not for a site that is gone");
        fs::write(sites.path(site, "mine"), b"it keeps its files, and works on").unwrap();
    }
}

#[test]
fn how_far_a_site_is_that_joins_is_shown_with_its_rate_and_the_time_that_is_left() {
    let mut sites = Sites::with_rate(1, "1M");
    let bytes: Vec<u8> = (0..250_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    for n in 0..12_u8 {
        fs::write(sites.path(0, &format!("f{n}")), [&[n][..], &bytes].concat()).unwrap();
    }
    let extra = Cluster::bare(1);
    let data = extra.data(0);
    good(["site", "join", &sites.line(), "--data", text(&data), "--name", "s1"]);
    let filling = || -> serde_json::Value {
        let said = good(["status", "--json", "--data", text(&data)]);
        serde_json::from_str::<serde_json::Value>(&said).unwrap()["processes"][0]["filling"].clone()
    };
    let mut left = Vec::new();
    eventually("the time that is left is told", || {
        let filling = filling();
        left.extend(filling["bytes_left"].as_u64());
        filling["left_ms"].as_u64().is_some_and(|ms| ms > 0) && filling["bytes_per_s"].as_u64() > Some(0)
    });
    assert!(left.iter().all(|left| (1..=13_000_000).contains(left)), "{left:?}");
    assert!(left.is_sorted_by(|one, next| one >= next), "{left:?}");
    sites.nodes.addresses.push(extra.addresses[0].clone());
    let point = data.with_file_name("point");
    fs::create_dir_all(&point).unwrap();
    let mount = Mounted::new(&format!("{}:/docs", extra.addresses[0]), point.clone(), "");
    eventually("all is there", || fs::read(point.join("f11")).is_ok_and(|there| there[1..] == bytes[..]));
    eventually("nothing is left", || filling().is_null());
    drop(mount);
}

#[test]
fn a_folder_with_the_same_files_is_adopted_without_conflicts_and_without_bytes() {
    let mut sites = Sites::new(1);
    let large: Vec<u8> = (0..1_000_000_u32).flat_map(|n| n.to_le_bytes()).collect();
    let scratch = Scratch::new();
    let folder = scratch.dir("folder");
    for root in [sites.path(0, ""), folder.clone()] {
        fs::create_dir_all(root.join("d/e")).unwrap();
        fs::write(root.join("d/large"), &large).unwrap();
        fs::write(root.join("d/e/small"), b"small").unwrap();
        fs::hard_link(root.join("d/large"), root.join("again")).unwrap();
        std::os::unix::fs::symlink("d/large", root.join("link")).unwrap();
        fs::write(root.join("differs"), root.to_str().unwrap()).unwrap();
    }
    fs::write(folder.join("only here"), b"here").unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let extra = Cluster::bare(1);
    let data = extra.data(0);
    let line = sites.line();
    // What another site may hold is refused, and the line is not used by that.
    for bad_folder in
        [sites.path(0, "d"), sites.data(0).join("islands"), scratch.path("none"), folder.join("differs")]
    {
        let said = bad(["site", "join", &line, "--data", text(&data), "--adopt", text(&bad_folder)]);
        assert!(
            said.contains("Adopt a folder")
                || said.contains("cannot be adopted")
                || said.contains("no directory"),
            "{said}"
        );
    }
    let long = fs::File::create(folder.join("d/long")).unwrap();
    long.set_len((32 << 30) + 1).unwrap();
    let said = bad(["site", "join", &line, "--data", text(&data), "--adopt", text(&folder)]);
    assert!(said.contains("d/long has 33 GiB, and a file in a wide volume has at most 32 GiB"), "{said}");
    fs::remove_file(folder.join("d/long")).unwrap();
    let said = good(["site", "join", &line, "--data", text(&data), "--name", "s1", "--adopt", text(&folder)]);
    assert!(said.contains("adopted  8 files and directories"), "{said}");
    sites.nodes.addresses.push(extra.addresses[0].clone());
    let point = scratch.dir("point");
    let mount = Mounted::new(&format!("{}:/docs", extra.addresses[0]), point.clone(), "");
    eventually("both have all", || {
        let [here, there] = [names(&sites.path(0, "")), names(&point)];
        here == there && here.len() == 6
    });
    let all = names(&point);
    assert!(all.iter().any(|name| name.starts_with("differs.~s")), "{all:?}");
    assert_eq!(names(&point.join("d")), ["e", "large"]);
    assert_eq!(fs::read(point.join("again")).unwrap(), large);
    sites.has(0, "only here", b"here");
    let told = sites.told(0, 1);
    let sent = told["sent_bytes"].as_u64().unwrap() + told["received_bytes"].as_u64().unwrap();
    assert!(sent < 100_000, "{told}");
    drop(mount);
}
