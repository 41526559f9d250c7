//! The table of conflicts of wide volumes, row by row, and dangerous sequences: with real nodes, and users at real mounts. Each row has a
//! directory of its own. All rows are prepared, the sites are cut off from each other, each user does his part, and the sites meet again.
//!
//! `-p atoll-shown --test table` has the table with toy sites, in all orders of changes.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::sites::{SETTLED, Sites};
use common::{good, text};
use rustix::fs::{CWD, FallocateFlags, RenameFlags, XattrFlags};
use serde_json::Value;

/// The directory of a row, in the mount of one site.
struct RowDir(PathBuf);

/// What a user does there.
type Act = fn(&RowDir);

impl RowDir {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file gets these bytes, in place if it is there.
    fn put(&self, name: &str, bytes: &str) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn append(&self, name: &str, bytes: &str) {
        let mut file = OpenOptions::new().append(true).open(self.path(name)).unwrap();
        file.write_all(bytes.as_bytes()).unwrap();
    }

    fn truncate(&self, name: &str) {
        OpenOptions::new().write(true).open(self.path(name)).unwrap().set_len(0).unwrap();
    }

    /// The first byte becomes a hole.
    fn punch(&self, name: &str) {
        let file = OpenOptions::new().write(true).open(self.path(name)).unwrap();
        rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 1).unwrap();
    }

    fn mkdir(&self, names: &[&str]) {
        names.iter().for_each(|name| fs::create_dir(self.path(name)).unwrap());
    }

    fn rm(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    fn rmdir(&self, name: &str) {
        fs::remove_dir(self.path(name)).unwrap();
    }

    fn rm_all(&self, name: &str) {
        fs::remove_dir_all(self.path(name)).unwrap();
    }

    fn mv(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    fn exchange(&self, one: &str, other: &str) {
        rustix::fs::renameat_with(CWD, self.path(one), CWD, self.path(other), RenameFlags::EXCHANGE).unwrap();
    }

    fn ln(&self, from: &str, to: &str) {
        fs::hard_link(self.path(from), self.path(to)).unwrap();
    }

    fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn xattr(&self, name: &str, value: &str) {
        rustix::fs::setxattr(self.path(name), "user.x", value.as_bytes(), XattrFlags::empty()).unwrap();
    }

    /// The name of the copy of which a site is the author.
    fn copy_of(&self, site: &str) -> String {
        let mark = format!(".~{site}");
        let all = common::sites::names(&self.0);
        all.into_iter().find(|name| name.contains(&mark)).unwrap_or_else(|| panic!("no copy of {site}"))
    }

    /// The name of the only copy.
    fn copy(&self) -> String {
        self.copy_of("s")
    }

    /// All that is shown, sorted: paths, with bytes of files, and with modes and attributes that are not the usual ones.
    fn shown(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut dirs = vec![self.0.clone()];
        while let Some(dir) = dirs.pop() {
            let Ok(entries) = fs::read_dir(&dir) else { continue };
            for path in entries.flatten().map(|entry| entry.path()) {
                let Ok(meta) = fs::symlink_metadata(&path) else { continue };
                let mut told = text(path.strip_prefix(&self.0).unwrap()).to_owned();
                if meta.is_dir() {
                    dirs.push(path.clone());
                } else {
                    let bytes = fs::read(&path).map(|bytes| bytes.escape_ascii().to_string());
                    let _ = write!(told, "={}", bytes.unwrap_or_else(|why| why.to_string()));
                }
                let mode = meta.permissions().mode() & 0o7777;
                if mode != if meta.is_dir() { 0o755 } else { 0o644 } {
                    let _ = write!(told, " {mode:o}");
                }
                let mut value = [0; 16];
                if let Ok(length) = rustix::fs::getxattr(&path, "user.x", &mut value[..]) {
                    let _ = write!(told, " x:{}", value[..length].escape_ascii());
                }
                found.push(told);
            }
        }
        found.sort();
        found
    }
}

/// `f.~s0-20260101-000000.c` is `f.~s0.c`.
fn timeless(path: &str) -> String {
    match path.find(".~s") {
        Some(mark) => format!("{}{}", &path[..mark + 4], path.get(mark + 20..).unwrap_or_default()),
        None => path.to_owned(),
    }
}

/// What `atoll conflicts log` says of a row: nothing, or how something was settled. What is shown beside a name is listed by its mark.
const NO: &str = "";
const KEPT: &str = "kept";
const REVIVED: &str = "revived";
const KEPT_REVIVED: &str = "kept revived";
const RENAMED: &str = "renamed";
const NOT_MOVED: &str = "not-moved";

/// What all sites have when they are cut off.
#[derive(Clone, Copy)]
enum Begun {
    With(Act),
    /// A file f of 3 beside which a version of 2 of the first site is shown.
    Conflict,
}

use Begun::{Conflict, With};

/// A row: what all sites have, what one site does, what another one does later without knowing of that, and what all show then.
struct TableRow(&'static str, Begun, Act, Act, &'static [&'static str], &'static str);

const NOTHING: Begun = With(|_| ());
const F: Begun = With(|a| a.put("f", "1"));
const F_G: Begun = With(|a| {
    a.put("f", "1");
    a.put("g", "2");
});
const F_LINKED: Begun = With(|a| {
    a.put("f", "1");
    a.ln("f", "g");
});
const F_T_U: Begun = With(|a| {
    a.put("f", "1");
    a.put("t", "8");
    a.put("u", "9");
});
const D: Begun = With(|a| a.mkdir(&["d"]));
const D_P_Q: Begun = With(|a| a.mkdir(&["d", "p", "q"]));
/// Directories that have something.
const D_FULL: Begun = With(|a| {
    a.mkdir(&["d", "d/a", "d/a/b", "d/c", "q"]);
    a.put("d/x", "1");
    a.put("d/a/b/y", "1");
});
const A_B_C: Begun = With(|a| {
    a.mkdir(&["a", "b", "c"]);
    a.put("a/x", "1");
    a.put("b/y", "2");
});

const ROWS: &[TableRow] = &[
    TableRow("write | write", F, |a| a.put("f", "2"), |a| a.put("f", "3"), &["f.~s0=2", "f=3"], NO),
    TableRow("write | write, same bytes", F, |a| a.put("f", "2"), |a| a.put("f", "2"), &["f=2"], NO),
    TableRow("write | truncate", F, |a| a.put("f", "2"), |a| a.truncate("f"), &["f.~s0=2", "f="], NO),
    // The design has a copy here too. A version of no bytes makes none: nothing is lost with it.
    TableRow("truncate | write", F, |a| a.truncate("f"), |a| a.put("f", "2"), &["f=2"], NO),
    TableRow("write | append", F, |a| a.put("f", "2"), |a| a.append("f", "3"), &["f.~s0=2", "f=13"], NO),
    TableRow("append | append", F, |a| a.append("f", "2"), |a| a.append("f", "3"), &["f.~s0=12", "f=13"], NO),
    TableRow("write | punch", F, |a| a.put("f", "2"), |a| a.punch("f"), &["f.~s0=2", "f=\\x00"], NO),
    TableRow("write | rename", F, |a| a.put("f", "2"), |a| a.mv("f", "g"), &["g=2"], NO),
    TableRow("rename | write", F, |a| a.mv("f", "g"), |a| a.put("f", "2"), &["g=2"], NO),
    TableRow("write | link", F, |a| a.put("f", "2"), |a| a.ln("f", "g"), &["f=2", "g=2"], NO),
    TableRow("write | chmod", F, |a| a.put("f", "2"), |a| a.mode("f", 0o600), &["f=2 600"], NO),
    TableRow("chmod | write", F, |a| a.mode("f", 0o600), |a| a.put("f", "2"), &["f=2 600"], NO),
    TableRow("write | xattr", F, |a| a.put("f", "2"), |a| a.xattr("f", "v"), &["f=2 x:v"], NO),
    TableRow("write | unlink of the last name", F, |a| a.put("f", "2"), |a| a.rm("f"), &["f=2"], KEPT),
    TableRow("unlink of the last name | write", F, |a| a.rm("f"), |a| a.put("f", "2"), &["f=2"], KEPT),
    TableRow(
        "write | unlink of one of several names",
        F_LINKED,
        |a| a.put("f", "2"),
        |a| a.rm("g"),
        &["f=2"],
        NO,
    ),
    TableRow(
        "write to one name | unlink of that one of several",
        F_LINKED,
        |a| a.put("f", "2"),
        |a| a.rm("f"),
        &["g=2"],
        NO,
    ),
    TableRow("write | replace", F_G, |a| a.put("f", "3"), |a| a.mv("g", "f"), &["f.~s0=3", "f=2"], KEPT),
    TableRow("replace | write", F_G, |a| a.mv("g", "f"), |a| a.put("f", "3"), &["f.~s1=3", "f=2"], KEPT),
    TableRow("replace | replace", F_T_U, |a| a.mv("t", "f"), |a| a.mv("u", "f"), &["f.~s0=8", "f=9"], NO),
    TableRow(
        "replace | replace, same bytes",
        With(|a| {
            a.put("f", "1");
            a.put("t", "8");
            a.put("u", "8");
        }),
        |a| a.mv("t", "f"),
        |a| a.mv("u", "f"),
        &["f=8"],
        NO,
    ),
    TableRow("rename | rename", F, |a| a.mv("f", "x"), |a| a.mv("f", "y"), &["y=1"], RENAMED),
    TableRow("rename | unlink", F, |a| a.mv("f", "x"), |a| a.rm("f"), &["x=1"], NO),
    TableRow("unlink | rename", F, |a| a.rm("f"), |a| a.mv("f", "x"), &["x=1"], NO),
    TableRow("rename | link", F, |a| a.mv("f", "x"), |a| a.ln("f", "y"), &["x=1", "y=1"], NO),
    TableRow("two links renamed", F_LINKED, |a| a.mv("f", "x"), |a| a.mv("g", "y"), &["x=1", "y=1"], NO),
    TableRow(
        "rename to a name | rename of another file to it",
        F_G,
        |a| a.mv("f", "z"),
        |a| a.mv("g", "z"),
        &["z.~s0=1", "z=2"],
        NO,
    ),
    TableRow("rename | create", F, |a| a.mv("f", "z"), |a| a.put("z", "5"), &["z.~s0=1", "z=5"], NO),
    TableRow("create | rename", F, |a| a.put("z", "5"), |a| a.mv("f", "z"), &["z.~s0=5", "z=1"], NO),
    TableRow(
        "create | create",
        NOTHING,
        |a| a.put("z.c", "2"),
        |a| a.put("z.c", "3"),
        &["z.c=3", "z.~s0.c=2"],
        NO,
    ),
    TableRow("create | create, same bytes", NOTHING, |a| a.put("z", "2"), |a| a.put("z", "2"), &["z=2"], NO),
    TableRow(
        "mkdir | mkdir",
        NOTHING,
        |a| {
            a.mkdir(&["d", "d/e"]);
            a.put("d/e/x", "1");
            a.put("d/both", "1");
        },
        |a| {
            a.mkdir(&["d", "d/e"]);
            a.put("d/e/y", "2");
            a.put("d/both", "2");
        },
        &["d", "d/both.~s0=1", "d/both=2", "d/e", "d/e/x=1", "d/e/y=2"],
        NO,
    ),
    TableRow("mkdir | create", NOTHING, |a| a.mkdir(&["d"]), |a| a.put("d", "1"), &["d", "d.~s1=1"], NO),
    TableRow("create | mkdir", NOTHING, |a| a.put("d", "1"), |a| a.mkdir(&["d"]), &["d", "d.~s0=1"], NO),
    TableRow(
        "move of a directory | move of it",
        D_P_Q,
        |a| a.mv("d", "p/d"),
        |a| a.mv("d", "q/d"),
        &["p", "q", "q/d"],
        NO,
    ),
    TableRow(
        "move below each other",
        A_B_C,
        |a| a.mv("a", "b/a"),
        |a| a.mv("b", "a/b"),
        &["b", "b/a", "b/a/x=1", "b/y=2", "c"],
        NOT_MOVED,
    ),
    TableRow(
        "a longer ring",
        A_B_C,
        |a| a.mv("a", "b/a"),
        |a| {
            a.mv("b", "c/b");
            a.mv("c", "a/c");
        },
        &["c", "c/b", "c/b/a", "c/b/a/x=1", "c/b/y=2"],
        NOT_MOVED,
    ),
    TableRow(
        "rename of a directory in place | move of it",
        D_P_Q,
        |a| a.mv("d", "e"),
        |a| a.mv("d", "q/d"),
        &["p", "q", "q/d"],
        NO,
    ),
    TableRow(
        "move of a directory | rename of it in place",
        D_P_Q,
        |a| a.mv("d", "q/d"),
        |a| a.mv("d", "e"),
        &["p", "q", "q/e"],
        NO,
    ),
    TableRow(
        "move of a directory | rm -r of it",
        D_FULL,
        |a| a.mv("d", "q/d"),
        |a| a.rm_all("d"),
        &["q", "q/d"],
        NO,
    ),
    TableRow(
        "rm -r of a directory | move of it, with something new",
        D_FULL,
        |a| a.rm_all("d"),
        |a| {
            a.mv("d", "q/d");
            a.put("q/d/a/new", "2");
        },
        &["q", "q/d", "q/d/a", "q/d/a/new=2"],
        REVIVED,
    ),
    TableRow(
        "move of a directory | rmdir",
        D_P_Q,
        |a| a.mv("d", "q/d"),
        |a| a.rmdir("d"),
        &["p", "q", "q/d"],
        NO,
    ),
    TableRow(
        "create in a directory | rmdir of it",
        With(|a| a.mkdir(&["d", "d/e"])),
        |a| a.put("d/e/f", "1"),
        |a| a.rm_all("d"),
        &["d", "d/e", "d/e/f=1"],
        REVIVED,
    ),
    TableRow(
        "move into a directory | rmdir of it",
        With(|a| {
            a.put("f", "1");
            a.mkdir(&["d"]);
        }),
        |a| a.mv("f", "d/f"),
        |a| a.rmdir("d"),
        &["d", "d/f=1"],
        REVIVED,
    ),
    TableRow(
        "create deep in a directory | rm -r of it",
        D_FULL,
        |a| a.put("d/a/b/f", "2"),
        |a| a.rm_all("d"),
        &["d", "d/a", "d/a/b", "d/a/b/f=2", "q"],
        REVIVED,
    ),
    TableRow(
        "rm -r of a directory | create deep in it",
        D_FULL,
        |a| a.rm_all("d"),
        |a| a.put("d/a/b/f", "2"),
        &["d", "d/a", "d/a/b", "d/a/b/f=2", "q"],
        REVIVED,
    ),
    TableRow(
        "write deep in a directory | rm -r of it",
        D_FULL,
        |a| a.put("d/a/b/y", "2"),
        |a| a.rm_all("d"),
        &["d", "d/a", "d/a/b", "d/a/b/y=2", "q"],
        KEPT_REVIVED,
    ),
    TableRow(
        "move into a directory | rm -r of that",
        A_B_C,
        |a| a.mv("a", "b/a"),
        |a| a.rm_all("b"),
        &["b", "b/a", "b/a/x=1", "c"],
        REVIVED,
    ),
    TableRow("chmod of a directory | rmdir", D, |a| a.mode("d", 0o700), |a| a.rmdir("d"), &[], NO),
    TableRow("rmdir | xattr of a directory", D, |a| a.rmdir("d"), |a| a.xattr("d", "v"), &[], NO),
    TableRow("unlink | unlink", F, |a| a.rm("f"), |a| a.rm("f"), &[], NO),
    TableRow("unlink | chmod", F, |a| a.rm("f"), |a| a.mode("f", 0o600), &[], NO),
    TableRow("rmdir | rmdir", D, |a| a.rmdir("d"), |a| a.rmdir("d"), &[], NO),
    TableRow("rm -r | rm -r", D_FULL, |a| a.rm_all("d"), |a| a.rm_all("d"), &["q"], NO),
    TableRow("chmod | chmod", F, |a| a.mode("f", 0o600), |a| a.mode("f", 0o640), &["f=1 640"], NO),
    TableRow("xattr | xattr", F, |a| a.xattr("f", "1"), |a| a.xattr("f", "2"), &["f=1 x:2"], NO),
    TableRow("chmod | xattr", F, |a| a.mode("f", 0o600), |a| a.xattr("f", "2"), &["f=1 600 x:2"], NO),
    TableRow("exchange | write", F_G, |a| a.exchange("f", "g"), |a| a.put("f", "3"), &["f=2", "g=3"], NO),
    TableRow(
        "exchange | rename",
        F_G,
        |a| a.exchange("f", "g"),
        |a| a.mv("f", "x"),
        &["f=2", "x=1"],
        RENAMED,
    ),
    TableRow("exchange | unlink", F_G, |a| a.exchange("f", "g"), |a| a.rm("f"), &["f=2", "g=1"], NO),
    TableRow(
        "exchange of directories | move of one",
        With(|a| {
            a.mkdir(&["p", "p/d", "q", "q/e", "r"]);
            a.put("p/d/x", "1");
            a.put("q/e/y", "2");
        }),
        |a| a.exchange("p/d", "q/e"),
        |a| a.mv("p/d", "r/d"),
        &["p", "p/d", "p/d/y=2", "q", "r", "r/d", "r/d/x=1"],
        NO,
    ),
    TableRow(
        "move | exchange of directories that would be a ring: neither of them is moved",
        With(|a| a.mkdir(&["p", "p/d", "q", "q/e"])),
        |a| a.mv("q", "p/d/q"),
        |a| a.exchange("p/d", "q/e"),
        &["p", "p/d", "p/d/q", "p/d/q/e"],
        NOT_MOVED,
    ),
    TableRow(
        "unlink of a copy | chmod of it",
        Conflict,
        |a| a.rm(&a.copy()),
        |a| a.mode(&a.copy(), 0o600),
        &["f=3"],
        NO,
    ),
    TableRow(
        "unlink of a copy | write to it",
        Conflict,
        |a| a.rm(&a.copy()),
        |a| a.put(&a.copy(), "4"),
        &["f.~s0=4", "f=3"],
        KEPT,
    ),
    TableRow(
        "unlink of a copy | write to its file",
        Conflict,
        |a| a.rm(&a.copy()),
        |a| a.put("f", "4"),
        &["f=4"],
        NO,
    ),
    TableRow(
        "unlink of a copy | unlink of it",
        Conflict,
        |a| a.rm(&a.copy()),
        |a| a.rm(&a.copy()),
        &["f=3"],
        NO,
    ),
];

/// Things done in this order, each by the user of a site.
struct Round {
    is_cut_off: bool,
    acts: Vec<(usize, Act)>,
}

/// A row as it is played.
struct Case {
    name: String,
    before: Act,
    rounds: Vec<Round>,
    /// Sorted, without the times in names.
    shown: Vec<String>,
    /// How it is settled; none if that is not judged.
    settled: Option<&'static str>,
}

impl Case {
    fn new(name: String, before: Act, rounds: Vec<Round>, mut shown: Vec<String>) -> Self {
        shown.sort();
        Self { name, before, rounds, shown, settled: None }
    }
}

impl TableRow {
    /// The first site acts first, or the second one does.
    fn case(&self, first: usize) -> Case {
        let Self(name, begun, one, other, shown, settled) = *self;
        let by =
            |one: Act, other: Act| Round { is_cut_off: true, acts: vec![(first, one), (1 - first, other)] };
        let (before, earlier): (Act, Option<Round>) = match begun {
            With(before) => (before, None),
            Conflict => (|a| a.put("f", "1"), Some(by(|a| a.put("f", "2"), |a| a.put("f", "3")))),
        };
        let earlier = earlier.unwrap_or_else(|| by(|_| (), |_| ()));
        let sites = |told: &&str| match first {
            0 => (*told).to_owned(),
            _ => told.replace("~s0", "~S").replace("~s1", "~s0").replace("~S", "~s1"),
        };
        let name = format!("{name} (site {first} first)");
        let case = Case::new(name, before, vec![earlier, by(one, other)], shown.iter().map(sites).collect());
        Case { settled: Some(settled), ..case }
    }
}

/// Plays rows at all sites at once, each in a directory of its own, and judges them.
fn play(sites: &Sites, cases: &[Case]) {
    let count = sites.mounts.len();
    let dir = |site: usize, case: usize| RowDir(sites.path(site, &format!("row{case:03}")));
    for (at, case) in cases.iter().enumerate() {
        let dir = dir(0, at);
        fs::create_dir(&dir.0).unwrap();
        (case.before)(&dir);
    }
    sites.settle();
    let rounds = cases.iter().map(|case| case.rounds.len()).max().unwrap_or(0);
    for nth in 0..rounds {
        let round = |case: &Case| case.rounds.get(nth).is_some_and(|round| !round.acts.is_empty());
        let played: Vec<(usize, &Round)> = cases
            .iter()
            .enumerate()
            .filter(|(_, case)| round(case))
            .map(|(at, case)| (at, &case.rounds[nth]))
            .collect();
        for is_cut_off in [true, false] {
            let played = || played.iter().filter(|(_, round)| round.is_cut_off == is_cut_off);
            let Some(steps) = played().map(|(_, round)| round.acts.len()).max() else { continue };
            if is_cut_off {
                sites.cut();
            }
            for step in 0..steps {
                for (at, round) in played() {
                    if let Some((site, act)) = round.acts.get(step) {
                        act(&dir(*site, *at));
                    }
                }
                // What is done next is later than that, and so are its versions.
                (0..count).for_each(|site| sites.is_cut(site));
                if !is_cut_off {
                    sites.settle();
                }
            }
            if is_cut_off {
                sites.heal();
                sites.settle();
            }
        }
    }
    let until = Instant::now() + SETTLED;
    let mut wrong = judged(count, cases, &dir);
    while !wrong.is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(500));
        wrong = judged(count, cases, &dir);
    }
    assert!(wrong.is_empty(), "{} rows of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    for site in 0..count {
        are_listed(sites, site, cases);
        are_logged(sites, site, cases);
    }
}

/// What is not as it should be.
fn judged(count: usize, cases: &[Case], dir: &dyn Fn(usize, usize) -> RowDir) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let shown: Vec<Vec<String>> = (0..count).map(|site| dir(site, at).shown()).collect();
        let mut here: Vec<String> = shown[0].iter().map(|told| timeless(told)).collect();
        here.sort();
        if here != case.shown || shown.iter().any(|there| *there != shown[0]) {
            wrong.push(format!("{}: {shown:?}, and it should be {:?}", case.name, case.shown));
        }
    }
    wrong
}

/// `atoll conflicts list` has the names with a mark, and no others.
fn are_listed(sites: &Sites, site: usize, cases: &[Case]) {
    let root = sites.path(site, "");
    let told: Value = serde_json::from_str(&good(["conflicts", "list", "--json", text(&root)])).unwrap();
    let told = told.as_array().unwrap().iter().map(|one| Path::new(one["path"].as_str().unwrap()));
    let mut told: BTreeSet<String> =
        told.map(|path| timeless(text(path.strip_prefix(&root).unwrap()))).collect();
    for (at, case) in cases.iter().enumerate() {
        let marked = case.shown.iter().filter(|shown| shown.contains(".~s"));
        let expected: Vec<String> = marked
            .map(|shown| {
                format!("row{at:03}/{}", shown.split_once('=').map_or(shown.as_str(), |(path, _)| path))
            })
            .collect();
        for path in expected {
            assert!(told.remove(&path), "{}: {path} is not listed", case.name);
        }
    }
    assert!(told.is_empty(), "listed, and no conflicts: {told:?}");
}

/// `atoll conflicts log` has what was settled without a file beside a name, and nothing else.
fn are_logged(sites: &Sites, site: usize, cases: &[Case]) {
    let mut wrong = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let Some(settled) = case.settled else { continue };
        let row = sites.path(site, &format!("row{at:03}"));
        let told: Value = serde_json::from_str(&good(["conflicts", "log", "--json", text(&row)])).unwrap();
        let told: BTreeSet<&str> =
            told.as_array().unwrap().iter().map(|one| one["outcome"].as_str().unwrap()).collect();
        if told != settled.split_whitespace().collect() {
            wrong.push(format!("{}: {told:?}, and it should be {settled:?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "the log of site {site}:\n{}", wrong.join("\n"));
}

#[test]
fn each_row_of_the_table_of_conflicts_has_its_outcome_at_both_sites() {
    let sites = Sites::behind_a_relay(2);
    let cases: Vec<Case> = ROWS.iter().flat_map(|row| [row.case(0), row.case(1)]).collect();
    play(&sites, &cases);
}

/// A sequence of the design: its number, what all have, what is done in each round, and what all show at last.
struct Dangerous(&'static str, Act, Vec<Round>, &'static [&'static str]);

fn cut_off(acts: &[(usize, Act)]) -> Round {
    Round { is_cut_off: true, acts: acts.to_vec() }
}

fn connected(acts: &[(usize, Act)]) -> Round {
    Round { is_cut_off: false, acts: acts.to_vec() }
}

fn sequences() -> Vec<Dangerous> {
    let ring = || cut_off(&[(0, |a| a.mv("a", "b/a")), (1, |a| a.mv("b", "c/b")), (2, |a| a.mv("c", "a/c"))]);
    let abc: Act = |a| a.mkdir(&["a", "b", "c"]);
    let deep: Act = |a| {
        a.mkdir(&["d", "d/a", "d/a/b"]);
        a.put("d/x", "1");
        a.put("d/c", "1");
    };
    let both = || {
        let one: Act = |a| {
            a.mkdir(&["d"]);
            a.put("d/x", "1");
        };
        let other: Act = |a| {
            a.mkdir(&["d"]);
            a.put("d/y", "2");
        };
        [(0, one), (1, other)]
    };
    vec![
        Dangerous("1: three moves in a ring", abc, vec![ring()], &["c", "c/b", "c/b/a"]),
        Dangerous(
            "2: the same, and one of them is moved out later",
            abc,
            vec![ring(), connected(&[(2, |a| a.mv("c/b/a", "a"))])],
            &["a", "c", "c/b"],
        ),
        Dangerous(
            "3: what a removal had seen comes back nowhere",
            deep,
            vec![cut_off(&[(2, |a| a.mode("d/c", 0o600)), (1, |a| a.rm("d/c")), (0, |a| a.rm_all("d"))])],
            &[],
        ),
        Dangerous(
            "4: a revived directory is emptied and removed",
            deep,
            vec![
                cut_off(&[(0, |a| a.rm_all("d")), (1, |a| a.put("d/a/b/f", "2"))]),
                connected(&[
                    (0, |a| a.rm("d/a/b/f")),
                    (1, |a| {
                        a.rmdir("d/a/b");
                        a.rmdir("d/a");
                        a.rmdir("d");
                    }),
                ]),
            ],
            &[],
        ),
        Dangerous(
            "4: the same, and one who is cut off makes another file in it",
            deep,
            vec![
                cut_off(&[(0, |a| a.rm_all("d")), (1, |a| a.put("d/a/b/f", "2"))]),
                cut_off(&[(0, |a| a.rm_all("d")), (2, |a| a.put("d/a/g", "3"))]),
            ],
            &["d", "d/a", "d/a/g=3"],
        ),
        Dangerous(
            "10: all write one file, and two remove copies",
            |a| a.put("f", "1"),
            vec![
                cut_off(&[(0, |a| a.put("f", "2")), (1, |a| a.put("f", "3")), (2, |a| a.put("f", "4"))]),
                cut_off(&[(0, |a| a.rm(&a.copy_of("s0"))), (2, |a| a.rm(&a.copy_of("s0")))]),
            ],
            &["f.~s1=3", "f=4"],
        ),
        Dangerous(
            "11: an editor saves, another one writes in place, a third one renames",
            |a| a.put("f", "1"),
            vec![cut_off(&[
                (0, |a| {
                    a.put(".f.new", "9");
                    a.mv(".f.new", "f");
                }),
                (1, |a| a.put("f", "2")),
                (2, |a| a.mv("f", "g")),
            ])],
            &["f=9", "g=2"],
        ),
        Dangerous(
            "14: two make one directory, and one renames his before they meet",
            |_| (),
            vec![cut_off(&[both()[0], both()[1], (1, |a| a.mv("d", "e"))])],
            &["d", "d/x=1", "e", "e/y=2"],
        ),
        Dangerous(
            "14: the same, and it is renamed when they have met",
            |_| (),
            vec![cut_off(&both()), cut_off(&[(2, |a| a.mv("d", "e")), (0, |a| a.put("d/z", "3"))])],
            &["e", "e/x=1", "e/y=2", "e/z=3"],
        ),
    ]
}

#[test]
fn dangerous_sequences_end_alike_at_three_sites() {
    let sites = Sites::behind_a_relay(3);
    let cases = sequences().into_iter().map(|Dangerous(name, before, rounds, shown)| {
        let shown = shown.iter().map(|shown| (*shown).to_owned()).collect();
        Case::new(name.to_owned(), before, rounds, shown)
    });
    play(&sites, &cases.collect::<Vec<Case>>());
}
