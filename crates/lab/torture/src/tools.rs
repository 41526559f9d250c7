//! The operations of package managers, compilers, backups and git between directories, step by step as they
//! do them: unpack beside and rename into place, hard links from one directory to another, directories that
//! move. Each tool knows the tree that must result, and looks at it through every mount.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use atoll_model::Rng;

use crate::place::run;
use crate::programs::{Bench, git_in, small_files};
use crate::tree::{Content, Detail, Tree, differences, list};

/// Bytes of regular files by path.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// The regular files below `top` are these, through both mounts.
pub(crate) fn expect_files(bench: Bench<'_>, below: &str, expected: &Files) -> Result<()> {
    for top in [bench.inside, bench.other] {
        let tree = list(&top.join(below), Detail { bytes: true, atime: false })?;
        let found: Files = tree
            .into_iter()
            .filter_map(|(path, item)| match item.content {
                Content::Bytes(bytes) => Some((String::from_utf8_lossy(&path).into_owned(), bytes)),
                _ => None,
            })
            .collect();
        for (path, bytes) in expected {
            let other = found.get(path).with_context(|| format!("{below}/{path} is gone"))?;
            ensure!(
                other == bytes,
                "{below}/{path} has other bytes: {} instead of {}",
                other.len(),
                bytes.len()
            );
        }
        let more = found.keys().find(|path| !expected.contains_key(*path));
        ensure!(more.is_none(), "{below}/{} should not be there", more.map_or("", |path| path));
    }
    Ok(())
}

fn seen(top: &Path) -> Result<Tree> {
    list(top, Detail { bytes: false, atime: false }).with_context(|| top.display().to_string())
}

/// Writes the files of one version of a package, and gives back what they are.
fn unpack(top: &Path, name: &str, version: u32, rng: &mut Rng) -> Result<Files> {
    let mut files = Files::new();
    let text = format!("{{\"name\":\"{name}\",\"version\":\"{version}.0.0\",\"main\":\"lib/index.js\"}}");
    files.insert("package.json".into(), text.into_bytes());
    files.insert("bin/run".into(), format!("#!/bin/sh\necho {name} {version}\n").into_bytes());
    for at in 0..2 + rng.below(6) {
        let path = format!("lib/{}/part-{at}.js", ["a", "b/c", "d/e/f"][rng.index(3)]);
        files.insert(path, format!("// {name} {version} {at}\n").repeat(1 + rng.index(300)).into_bytes());
    }
    for (path, bytes) in &files {
        let path = top.join(path);
        fs::create_dir_all(path.parent().expect("it is below the top"))?;
        fs::write(&path, bytes)?;
        if path.ends_with("bin/run") {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(files)
}

/// As npm installs and updates: unpacked in `node_modules/.tmp-...`, renamed into place or into a scope; what
/// was there is put aside before, and comes back if the new one fails.
pub fn packages(bench: Bench<'_>) -> Result<()> {
    let modules = bench.inside.join("node_modules");
    fs::create_dir_all(modules.join(".bin"))?;
    let mut rng = Rng::new(81);
    let mut expected = Files::new();
    let count = bench.scale.of(8, 120);
    for round in 0..bench.scale.of(2, 4) {
        for at in 0..count {
            let name = if at % 3 == 0 { format!("@scope-{}/p{at}", at % 4) } else { format!("p{at}") };
            let (place, flat) = (modules.join(&name), name.replace('/', "-"));
            let (temporary, aside) =
                (modules.join(format!(".tmp-{flat}-{round}")), modules.join(format!(".{flat}-aside")));
            let files = unpack(&temporary, &name, round, &mut rng)?;
            fs::create_dir_all(place.parent().expect("it is below node_modules"))?;
            let before = place.exists();
            if before {
                fs::rename(&place, &aside).context("putting the old one aside")?;
            }
            fs::rename(&temporary, &place).context("renaming it into place")?;
            if before && rng.percent(25) {
                // The new one fails: back to what was there.
                let failed = modules.join(format!(".tmp-{flat}-failed"));
                fs::rename(&place, &failed)?;
                fs::rename(&aside, &place)?;
                fs::remove_dir_all(&failed)?;
                continue;
            }
            if before {
                fs::remove_dir_all(&aside)?;
            }
            expected.retain(|path, _| !path.starts_with(&format!("{name}/")));
            expected.extend(files.into_iter().map(|(path, bytes)| (format!("{name}/{path}"), bytes)));
            let link = modules.join(".bin").join(&flat);
            // As npm does: a new link over the old one, by a name of its own.
            let new = modules.join(".bin").join(format!(".{flat}-new"));
            symlink(format!("../{name}/bin/run"), &new)?;
            fs::rename(&new, &link)?;
        }
        expect_files(bench, "node_modules", &expected)?;
    }
    let mut ran = 0;
    for entry in fs::read_dir(bench.other.join("node_modules/.bin"))? {
        let said = run(&mut Command::new(entry?.path()))?;
        let words: Vec<_> = said.split_whitespace().collect();
        let text = format!("#!/bin/sh\necho {}\n", words.join(" "));
        ensure!(expected.get(&format!("{}/bin/run", words[0])) == Some(&text.into_bytes()), "{said}");
        ran += 1;
    }
    ensure!(ran == count, "{ran} programs instead of {count}");
    Ok(())
}

/// The real one, without a network: packs folders, installs them, installs newer ones, removes some.
pub fn npm(bench: Bench<'_>) -> Result<()> {
    let project = bench.inside.join("project");
    fs::create_dir(&project)?;
    fs::write(project.join("package.json"), "{\"name\":\"project\",\"version\":\"1.0.0\"}")?;
    let npm = |dir: &Path, args: &[String]| {
        let mut command = Command::new("npm");
        command.args(["--offline", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]);
        command.arg("--cache").arg(bench.inside.join("cache")).args(args).current_dir(dir);
        run(command.env("HOME", bench.outside))
    };
    let (count, rounds) = (bench.scale.of(3, 12), bench.scale.of(1, 3));
    let mut rng = Rng::new(5);
    for round in 1..=rounds {
        let mut install = vec!["install".to_owned()];
        for at in 0..count {
            let name = if at % 2 == 0 { format!("@torture/p{at}") } else { format!("torture-p{at}") };
            let source = bench.inside.join(format!("source-{round}-{at}"));
            unpack(&source, &name, round, &mut rng)?;
            fs::create_dir_all(source.join("lib"))?;
            fs::write(source.join("lib/index.js"), format!("module.exports = {round} * 1000 + {at};\n"))?;
            let said = npm(&source, &["pack".to_owned(), "--silent".to_owned()])?;
            install.push(source.join(said.trim()).to_string_lossy().into_owned());
        }
        npm(&project, &install)?;
        let sum = (0..count).map(|at| {
            let scoped = at % 2 == 0;
            format!(
                "require('{}')",
                if scoped { format!("@torture/p{at}") } else { format!("torture-p{at}") }
            )
        });
        let script = format!("console.log({})", sum.collect::<Vec<_>>().join(" + "));
        let said = run(Command::new("node").args(["-e", &script]).current_dir(bench.other.join("project")))?;
        let right: u32 = (0..count).map(|at| round * 1000 + at).sum();
        ensure!(said.trim() == right.to_string(), "the modules add up to {said}, not {right}");
    }
    npm(&project, &["uninstall".to_owned(), "@torture/p0".to_owned(), "torture-p1".to_owned()])?;
    ensure!(!project.join("node_modules/@torture/p0").exists(), "npm uninstall left a package");
    Ok(())
}

/// As cargo and rustc build: metadata made in a temporary directory and renamed, libraries hard-linked from
/// `deps`, and incremental sessions whose directory is made from links of the last one and renamed.
pub fn incremental(bench: Bench<'_>) -> Result<()> {
    let debug = bench.inside.join("target/debug");
    for dir in ["deps", "incremental", ".fingerprint", "build"] {
        fs::create_dir_all(debug.join(dir))?;
    }
    let builds = bench.scale.of(3, 25);
    let crates: Vec<usize> = (0..bench.scale.of(4, 24)).collect();
    for build in 0..builds {
        std::thread::scope(|scope| -> Result<()> {
            let jobs: Vec<_> = crates
                .chunks(crates.len().div_ceil(4))
                .map(|part| {
                    let debug = &debug;
                    scope.spawn(move || part.iter().try_for_each(|&unit| compile(debug, unit, build)))
                })
                .collect();
            jobs.into_iter().try_for_each(|job| job.join().expect("no job panics"))
        })?;
    }
    for top in [bench.inside, bench.other] {
        for &unit in &crates {
            built(&top.join("target/debug"), unit, builds).with_context(|| format!("crate {unit}"))?;
        }
    }
    Ok(())
}

/// What a crate's library is after so many builds.
fn library(unit: usize, build: usize) -> Vec<u8> {
    format!("library {unit} of build {build}\n").repeat(200 + unit * 37 % 900).into_bytes()
}

/// Object files of a crate; some change with each build.
const OBJECTS: usize = 6;

fn object(unit: usize, at: usize, build: usize) -> Vec<u8> {
    let changed = if at < 2 { build } else { 0 };
    format!("object {unit} {at} {changed}\n").repeat(50).into_bytes()
}

fn compile(debug: &Path, unit: usize, build: usize) -> Result<()> {
    let deps = debug.join("deps");
    let temporary = deps.join(format!("rmeta-{unit}-{build}"));
    fs::create_dir(&temporary)?;
    for kind in ["rmeta", "rlib"] {
        fs::write(temporary.join(kind), library(unit, build))?;
        fs::rename(temporary.join(kind), deps.join(format!("lib{unit}.{kind}")))?;
    }
    fs::remove_dir(&temporary)?;
    // Cargo: the name in debug/ is a link of that in deps/, made anew.
    let shown = debug.join(format!("lib{unit}.rlib"));
    if build > 0 {
        fs::remove_file(&shown)?;
    }
    fs::hard_link(deps.join(format!("lib{unit}.rlib")), &shown)?;
    // rustc: a session of links to the last one's objects, and of new ones; the lock beside it.
    let sessions = debug.join("incremental").join(format!("crate-{unit}"));
    fs::create_dir_all(&sessions)?;
    let old = sessions.join(format!("s-{}-done", build.wrapping_sub(1)));
    let (working, done) =
        (sessions.join(format!("s-{build}-working")), sessions.join(format!("s-{build}-done")));
    let lock_path = sessions.join(format!("s-{build}.lock"));
    let lock = fs::File::create(&lock_path)?;
    lock.lock()?;
    fs::create_dir(&working)?;
    for at in 0..OBJECTS {
        let name = format!("{at}.o");
        if build > 0 {
            fs::hard_link(old.join(&name), working.join(&name)).context("a link from the last session")?;
        }
        if build == 0 || at < 2 {
            // Never written through the link: removed, and made anew.
            let _ = fs::remove_file(working.join(&name));
            fs::write(working.join(&name), object(unit, at, build))?;
        }
    }
    fs::rename(&working, &done).context("the session's end")?;
    if build > 0 {
        fs::remove_dir_all(&old).context("the last session")?;
        fs::remove_file(sessions.join(format!("s-{}.lock", build - 1)))?;
    }
    drop(lock);
    let fingerprint = debug.join(".fingerprint").join(format!("crate-{unit}"));
    fs::create_dir_all(&fingerprint)?;
    fs::write(fingerprint.join("hash"), format!("{unit} {build}"))?;
    Ok(())
}

fn built(debug: &Path, unit: usize, builds: usize) -> Result<()> {
    let last = builds - 1;
    let (deps, shown) = (debug.join(format!("deps/lib{unit}.rlib")), debug.join(format!("lib{unit}.rlib")));
    let (one, two) = (fs::metadata(&deps)?, fs::metadata(&shown)?);
    ensure!((one.ino(), one.nlink()) == (two.ino(), 2), "the library is not one file of two names");
    for path in [&deps, &shown, &debug.join(format!("deps/lib{unit}.rmeta"))] {
        ensure!(fs::read(path)? == library(unit, last), "{} is of another build", path.display());
    }
    let sessions = debug.join("incremental").join(format!("crate-{unit}"));
    let mut names: Vec<_> =
        fs::read_dir(&sessions)?.map(|e| e.map(|e| e.file_name())).collect::<Result<_, _>>()?;
    names.sort();
    ensure!(names == [format!("s-{last}-done").as_str(), &format!("s-{last}.lock")], "sessions: {names:?}");
    for at in 0..OBJECTS {
        let path = sessions.join(format!("s-{last}-done/{at}.o"));
        ensure!(fs::read(&path)? == object(unit, at, last), "{} is of another build", path.display());
        let names = fs::metadata(&path)?.nlink();
        ensure!(names == 1, "{} has {names} names, and the others are gone", path.display());
    }
    ensure!(
        fs::read_dir(debug.join("deps"))?.all(|e| e.is_ok_and(|e| e.path().is_file())),
        "a temporary is left"
    );
    Ok(())
}

/// Backups by `rsync --link-dest` and `cp -al`: what has not changed is one file in all of them.
pub fn snapshots(bench: Bench<'_>) -> Result<()> {
    let source = bench.inside.join("source");
    small_files(&source, bench.scale.of(120, 2000))?;
    let mut rng = Rng::new(31_337);
    let mut trees = Vec::new();
    let snap = |at: usize| bench.inside.join(format!("snap.{at}"));
    let count = bench.scale.of(3, 10);
    for at in 0..count {
        if at > 0 {
            change(&source, at, &mut rng)?;
        }
        let mut command = Command::new("rsync");
        command.args(["-aH", "--delete"]);
        if at > 0 {
            command.arg(format!("--link-dest=../snap.{}", at - 1));
        }
        run(command.arg(format!("{}/", source.display())).arg(snap(at)))?;
        trees.push(seen(&source)?);
    }
    run(Command::new("cp").arg("-al").arg(snap(count - 1)).arg(snap(count)))?;
    trees.push(trees[count - 1].clone());
    for (at, tree) in trees.iter().enumerate() {
        snapshot_is(bench, at, tree)?;
    }
    shared(bench.inside, trees.len())?;
    // The oldest goes, the others move up.
    fs::remove_dir_all(snap(0))?;
    for (at, tree) in trees.iter().enumerate().skip(1) {
        fs::rename(snap(at), snap(at - 1))?;
        snapshot_is(bench, at - 1, tree)?;
    }
    shared(bench.inside, count)
}

/// A snapshot is as its source was, through both mounts; how many names a file has is another thing.
fn snapshot_is(bench: Bench<'_>, at: usize, tree: &Tree) -> Result<()> {
    let without_count = |mut tree: Tree| {
        tree.values_mut().for_each(|item| item.nlink = 0);
        tree
    };
    for top in [bench.inside, bench.other] {
        let found = seen(&top.join(format!("snap.{at}")))?;
        let wrong = differences(&without_count(tree.clone()), &without_count(found));
        ensure!(wrong.is_empty(), "snapshot {at} is not as its source was:\n{}", wrong.join("\n"));
    }
    Ok(())
}

/// Each file of the snapshots has as many names as it shows, and many are in several.
fn shared(top: &Path, count: usize) -> Result<()> {
    let mut names: BTreeMap<u64, (u64, u64, BTreeSet<usize>)> = BTreeMap::new();
    for at in 0..count {
        let top = top.join(format!("snap.{at}"));
        for path in seen(&top)?.into_iter().filter(|(_, item)| item.nlink > 0).map(|(path, _)| path) {
            let meta = fs::symlink_metadata(top.join(String::from_utf8_lossy(&path).as_ref()))?;
            let (found, told, snapshots) = names.entry(meta.ino()).or_default();
            *found += 1;
            *told = meta.nlink();
            snapshots.insert(at);
        }
    }
    for (ino, (found, told, _)) in &names {
        ensure!(found == told, "file {ino} has {found} names and tells of {told}");
    }
    let several = names.values().filter(|(_, _, snapshots)| snapshots.len() > 1).count();
    ensure!(several > 50, "only {several} files are shared by snapshots");
    Ok(())
}

/// Some files change, some come, some go, a directory gets another name and another place.
fn change(source: &Path, round: usize, rng: &mut Rng) -> Result<()> {
    let files: Vec<_> =
        seen(source)?.into_iter().filter(|(_, item)| item.nlink > 0).map(|(p, _)| p).collect();
    for _ in 0..10 {
        let path = source.join(String::from_utf8_lossy(&files[rng.index(files.len())]).as_ref());
        if path.exists() {
            match rng.below(3) {
                0 => fs::remove_file(&path)?,
                _ => fs::write(&path, format!("changed in round {round}\n").repeat(1 + rng.index(100)))?,
            }
        }
    }
    let dir = source.join(format!("dir-new-{round}"));
    small_files(&dir, 5)?;
    let moved = source.join(format!("dir-0/moved-{round}"));
    fs::rename(&dir, &moved).context("a directory into another")?;
    fs::write(moved.join("one"), b"two names")?;
    fs::hard_link(moved.join("one"), source.join(format!("two-{round}")))?;
    Ok(())
}

/// git with what it does between directories: a clone of hard links, working trees that move, packing.
pub fn worktrees(bench: Bench<'_>) -> Result<()> {
    let repository = bench.inside.join("repository");
    fs::create_dir(&repository)?;
    let git = |args: &[&str]| git_in(&repository, args);
    git(&["init", "--quiet", "--initial-branch=main"])?;
    small_files(&repository, bench.scale.of(120, 3000))?;
    git(&["add", "."])?;
    git(&["commit", "--quiet", "-m", "all"])?;
    let clone = bench.inside.join("clone");
    let text = |path: &Path| path.to_string_lossy().into_owned();
    git_in(bench.inside, &["clone", "--quiet", "--local", &text(&repository), &text(&clone)])?;
    let objects = seen(&repository.join(".git/objects"))?;
    let linked = objects.values().filter(|item| item.nlink == 2).count();
    ensure!(linked > 20, "only {linked} objects of {} are shared with the clone", objects.len());
    let trees = bench.scale.of(2, 8);
    for at in 0..trees {
        let (place, elsewhere) = (bench.inside.join(format!("tree-{at}")), bench.inside.join("trees"));
        fs::create_dir_all(&elsewhere)?;
        git(&["worktree", "add", "--quiet", "-b", &format!("b{at}"), &text(&place)])?;
        // A directory moves below another, and files with it; then the whole working tree does.
        git_in(&place, &["mv", "dir-0", "dir-1/below"])?;
        fs::write(place.join("dir-1/below/new"), format!("of tree {at}\n"))?;
        git_in(&place, &["add", "."])?;
        git_in(&place, &["commit", "--quiet", "-m", "moved"])?;
        let moved = elsewhere.join(format!("moved-{at}"));
        git(&["worktree", "move", &text(&place), &text(&moved)])?;
        fs::write(moved.join("dir-1/below/new"), format!("of tree {at}, moved\n"))?;
        git_in(&moved, &["stash", "--quiet"])?;
        git_in(&moved, &["stash", "pop", "--quiet"])?;
        git_in(&moved, &["commit", "--quiet", "-a", "-m", "again"])?;
        let status = git_in(&moved, &["status", "--porcelain"])?;
        ensure!(status.is_empty(), "git status finds changes:\n{status}");
    }
    git(&["repack", "-a", "-d", "--quiet"])?;
    git(&["gc", "--quiet", "--prune=now"])?;
    for at in 0..trees {
        git(&["merge", "--quiet", "-s", "ours", "-m", "merged", &format!("b{at}")])?;
        let moved = bench.inside.join(format!("trees/moved-{at}"));
        let said = fs::read_to_string(bench.other.join(format!("trees/moved-{at}/dir-1/below/new")))?;
        ensure!(said == format!("of tree {at}, moved\n"), "the working tree holds {said}");
        git(&["worktree", "remove", &text(&moved)])?;
        ensure!(!moved.exists(), "git worktree remove left something");
    }
    git(&["gc", "--quiet", "--prune=now", "--aggressive"])?;
    for place in [&repository, &clone] {
        git_in(place, &["fsck", "--full", "--strict"])?;
        let status = git_in(place, &["status", "--porcelain"])?;
        ensure!(status.is_empty(), "git status finds changes:\n{status}");
    }
    run(Command::new("diff").args(["-r", "--exclude=.git"]).arg(&repository).arg(&clone))?;
    Ok(())
}
