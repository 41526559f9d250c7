//! What is shown of the objects of a site by its rows alone: where users are by themselves, it is the tree of its island.

mod drive;
mod site;

use std::collections::BTreeMap;

use atoll_causal::{FileId, Writer};
use atoll_core::{Ino, Name};
use atoll_model::Model;
use atoll_shown::{DirGroup, Life, Objects, ShownObject, listing};
use atoll_wide::held::{HeldChanges, HeldObjects, SiteRows};
use atoll_wide::site::Site as Machine;
use drive::Driver;
use site::{Memory, Site, opened};

const SEEDS: u64 = 6;
const OPERATIONS: usize = 120;

/// All paths that are shown, each with its number; and how many rows were missing at first.
fn shown(site: &Site) -> (BTreeMap<String, Ino>, usize) {
    let mut state = site.state().clone();
    let (changes, name) = (HeldChanges::default(), |writer: Writer| format!("s{}", writer.0));
    let mut loads = 0;
    loop {
        let rows = SiteRows::new(&state);
        let held = HeldObjects::new(&rows, site.beside::<Machine>().author().spine(), &changes, &name);
        let tree = tree(&rows, &held);
        let missing = rows.missing();
        if missing.is_empty() {
            return (tree, loads);
        }
        loads += missing.len();
        for load in missing {
            // All rows that there are were set by records: no snapshot has more.
            let nothing = load.nothing();
            state.load(load, nothing).expect("nothing is read");
        }
    }
}

fn tree(rows: &SiteRows<'_>, held: &HeldObjects<'_>) -> BTreeMap<String, Ino> {
    let mut tree = BTreeMap::new();
    let mut groups = vec![(DirGroup::root(), String::new())];
    while let Some((group, path)) = groups.pop() {
        assert_eq!(held.life(group.first()), Life::Alive);
        for entry in listing(held, &group) {
            assert_eq!(entry.name, entry.own, "nobody quarrels about a name");
            let path = format!("{path}/{}", entry.name);
            let ino = match entry.object {
                ShownObject::Dir(below) => {
                    let ino = rows.dir(below.first()).and_then(|dir| dir.number);
                    groups.push((below, path.clone()));
                    ino
                }
                ShownObject::File(files) => rows.file(files[0].file).and_then(|file| file.ino),
                ShownObject::Away { .. } => panic!("all of it is held"),
            };
            tree.extend(ino.map(|ino| (path, ino)));
        }
    }
    tree
}

fn expected(model: &Model) -> BTreeMap<String, Ino> {
    let mut tree = BTreeMap::new();
    let mut dirs = vec![(Ino::ROOT, String::new())];
    while let Some((dir, path)) = dirs.pop() {
        let names: Vec<(Name, Ino)> = model.children(dir).map(|(name, ino)| (name.clone(), ino)).collect();
        for (name, ino) in names {
            let path = format!("{path}/{name}");
            if model.attr(ino).is_some_and(|attr| attr.kind == atoll_posix::Kind::Directory) {
                dirs.push((ino, path.clone()));
            }
            tree.insert(path, ino);
        }
    }
    tree
}

#[test]
fn what_is_shown_by_rows_alone_is_the_tree_of_the_island() {
    let (mut paths, mut loads) = (0, 0);
    for seed in 1..=SEEDS {
        let author = opened(Writer(7), []).expect("no rows");
        let mut driver = Driver::new(seed, Memory::Whole, Some(Box::new(author)));
        for _ in 0..OPERATIONS / 10 {
            for _ in 0..10 {
                driver.operation();
                driver.let_go();
            }
            driver.site.renew();
            let (tree, more) = shown(&driver.site);
            assert_eq!(tree, expected(&driver.model), "seed {seed}");
            paths += tree.len();
            loads += more;
        }
    }
    assert!(paths > 200 && loads > 500, "{paths} paths, {loads} loads");
}

#[test]
fn an_object_that_is_not_held_is_not_shown() {
    let author = opened(Writer(7), []).expect("no rows");
    let site = Site::new(Memory::Whole, &[], false, Some(Box::new(author)));
    let mut state = site.state().clone();
    let (changes, name) = (HeldChanges::default(), |_: Writer| String::new());
    for is_loaded in [false, true] {
        let missing = {
            let rows = SiteRows::new(&state);
            let held = HeldObjects::new(&rows, site.beside::<Machine>().author().spine(), &changes, &name);
            assert!(held.file(FileId(5)).is_none() && held.dir(FileId(5)).is_none());
            rows.missing()
        };
        assert_eq!(missing.len(), if is_loaded { 0 } else { 2 }, "{missing:?}");
        for load in missing {
            let nothing = load.nothing();
            state.load(load, nothing).expect("nothing is read");
        }
    }
}
