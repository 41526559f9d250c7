//! The table of conflicts of `docs/design/023-wide.md`: in each row two sites act without knowing of each other. Their changes
//! reach all sites in all orders, and the outcome is the same.

mod world;

use atoll_causal::{AttrPart, DirPart, FileId, Lww, XattrName, XattrValue};
use atoll_model::Rng;
use atoll_shown::{DirGroup, ShownObject};
use bytes::Bytes;
use world::ops::At;
use world::{World, name};

/// Orders of one row: all, or so many drawn ones.
const ORDERS_MAX: usize = 120;

/// Operations by path.
impl World {
    fn split(&self, at: usize, path: &str) -> (DirGroup, atoll_core::Name) {
        let (dir, last) = path.rsplit_once('/').expect("an absolute path");
        (self.group(at, dir), name(last))
    }

    fn touch(&mut self, at: usize, path: &str, bytes: u64) {
        let (group, last) = self.split(at, path);
        self.create(at, &group, &last, bytes);
    }

    fn dir(&mut self, at: usize, path: &str) {
        let (group, last) = self.split(at, path);
        self.mkdir(at, &group, &last);
    }

    fn put(&mut self, at: usize, path: &str, bytes: u64) {
        let (group, last) = self.split(at, path);
        self.write(at, &group, &last, bytes);
    }

    fn rm(&mut self, at: usize, path: &str) {
        let (group, last) = self.split(at, path);
        self.unlink_shown(at, &group, &last);
    }

    /// The whole tree at a path.
    fn rm_all(&mut self, at: usize, path: &str) {
        let inside = format!("{path}/");
        let below: Vec<(String, At)> = self
            .tree(at)
            .into_iter()
            .filter(|(other, _)| other.starts_with(&inside) || other == path)
            .collect();
        for (path, what) in below.into_iter().rev() {
            let (group, last) = self.split(at, &path);
            match what {
                At::Dir => assert!(self.rmdir(at, &group, &last), "{path} is not empty"),
                At::File { .. } => self.unlink_shown(at, &group, &last),
                At::Away => panic!("{path} is not held"),
            }
        }
    }

    fn mv(&mut self, at: usize, from: &str, to: &str) {
        let (from, to) = (self.split(at, from), self.split(at, to));
        let (from, to) = ((&from.0, &from.1), (&to.0, &to.1));
        assert!(self.rename(at, from, to) || self.rename_dir(at, from, to));
    }

    fn ln(&mut self, at: usize, from: &str, to: &str) {
        let (from, to) = (self.split(at, from), self.split(at, to));
        assert!(self.link(at, (&from.0, &from.1), (&to.0, &to.1)));
    }

    fn mode(&mut self, at: usize, path: &str, mode: u32) {
        let (group, last) = self.split(at, path);
        self.chmod(at, &group, &last, mode);
    }

    fn dir_mode(&mut self, at: usize, path: &str, mode: u32) {
        let dir = self.group(at, path).first();
        let stamp = self.stamp(at, &[dir]);
        let dot = self.sites[at].dot();
        let part = DirPart::Attr { part: AttrPart::Mode { to: Lww::new(stamp, mode) } };
        self.change_dir(at, dir, dot, vec![part], vec![]);
    }

    fn file(&self, at: usize, path: &str) -> FileId {
        let (group, last) = self.split(at, path);
        match self.entry(at, &group, &last).map(|entry| entry.object) {
            Some(ShownObject::File(files)) => files[0].file,
            other => panic!("{path} is {other:?}"),
        }
    }

    fn xattr(&mut self, at: usize, path: &str, value: &'static [u8]) {
        let id = self.file(at, path);
        let stamp = self.stamp(at, &[id]);
        let dot = self.sites[at].dot();
        let name = XattrName::new(Bytes::from_static(b"user.x")).expect("a name");
        let value = XattrValue::new(Bytes::from_static(value)).expect("a value");
        let part = self.sites[at].held.files[&id].attrs.set_xattr(name, Some(Lww::new(stamp, value)));
        self.change_file(at, id, dot, vec![atoll_causal::FilePart::Attr { part }], vec![]);
    }

    /// Two files exchange their names.
    fn swap(&mut self, at: usize, one: &str, other: &str) {
        let (a, b) = (self.file(at, one), self.file(at, other));
        let (one, other) = (self.split(at, one), self.split(at, other));
        let link = |world: &Self, id: FileId| world.places(at, id)[0].link.expect("a link");
        let (first, second) = (link(self, a), link(self, b));
        self.relink(at, a, first, other.0.first(), &other.1);
        self.relink(at, b, second, one.0.first(), &one.1);
    }

    /// What a site shows, without the times in names.
    fn told(&self, at: usize) -> Vec<String> {
        let mut told = Vec::new();
        for (path, what) in self.tree(at) {
            let path = match path.find(".~s") {
                Some(mark) => format!("{}{}", &path[..mark + 4], &path[mark + 20..]),
                None => path,
            };
            told.push(match what {
                At::Dir => path,
                At::Away => format!("{path} away"),
                At::File { file, bytes, mode } => {
                    let mode = if mode == 0o644 { String::new() } else { format!(" {mode:o}") };
                    let xattrs = self.sites[at].held.files[&file].attrs.xattrs.iter();
                    let values = xattrs.filter_map(|(_, values)| Some(&values.highest()?.1.value));
                    let values: String =
                        values.map(|value| format!(" x:{}", value.as_bytes().escape_ascii())).collect();
                    format!("{path}={bytes}{mode}{values}")
                }
            });
        }
        told.sort();
        told
    }
}

/// A row: what all sites have, what each of two does, what all show then.
struct Row(
    &'static str,
    fn(&mut World),
    fn(&mut World, usize),
    fn(&mut World, usize),
    &'static [&'static str],
);

fn f(w: &mut World) {
    w.touch(0, "/f", 1);
}

fn nothing(_: &mut World) {}

const ROWS: &[Row] = &[
    Row("write | write", f, |w, s| w.put(s, "/f", 2), |w, s| w.put(s, "/f", 3), &["/f.~s1=2", "/f=3"]),
    Row("write | write, same bytes", f, |w, s| w.put(s, "/f", 2), |w, s| w.put(s, "/f", 2), &["/f=2"]),
    Row("write | truncate", f, |w, s| w.put(s, "/f", 2), |w, s| w.put(s, "/f", 0), &["/f.~s1=2", "/f=0"]),
    Row("write | rename", f, |w, s| w.put(s, "/f", 2), |w, s| w.mv(s, "/f", "/g"), &["/g=2"]),
    Row("write | link", f, |w, s| w.put(s, "/f", 2), |w, s| w.ln(s, "/f", "/g"), &["/f=2", "/g=2"]),
    Row("write | chmod", f, |w, s| w.put(s, "/f", 2), |w, s| w.mode(s, "/f", 0o600), &["/f=2 600"]),
    Row("write | xattr", f, |w, s| w.put(s, "/f", 2), |w, s| w.xattr(s, "/f", b"v"), &["/f=2 x:v"]),
    Row("write | unlink of the last name", f, |w, s| w.put(s, "/f", 2), |w, s| w.rm(s, "/f"), &["/f=2"]),
    Row(
        "write | unlink of one of several names",
        |w| {
            f(w);
            w.ln(0, "/f", "/g");
        },
        |w, s| w.put(s, "/f", 2),
        |w, s| w.rm(s, "/g"),
        &["/f=2"],
    ),
    Row(
        "write | replace",
        |w| {
            f(w);
            w.touch(0, "/t", 9);
        },
        |w, s| w.put(s, "/f", 2),
        |w, s| w.mv(s, "/t", "/f"),
        &["/f.~s1=2", "/f=9"],
    ),
    Row(
        "replace | replace",
        |w| {
            f(w);
            w.touch(0, "/t", 8);
            w.touch(0, "/u", 9);
        },
        |w, s| w.mv(s, "/t", "/f"),
        |w, s| w.mv(s, "/u", "/f"),
        &["/f.~s1=8", "/f=9"],
    ),
    Row(
        "replace | replace, same bytes",
        |w| {
            f(w);
            w.touch(0, "/t", 8);
            w.touch(0, "/u", 8);
        },
        |w, s| w.mv(s, "/t", "/f"),
        |w, s| w.mv(s, "/u", "/f"),
        &["/f=8"],
    ),
    Row("rename | rename", f, |w, s| w.mv(s, "/f", "/x"), |w, s| w.mv(s, "/f", "/y"), &["/y=1"]),
    Row("rename | unlink", f, |w, s| w.mv(s, "/f", "/x"), |w, s| w.rm(s, "/f"), &["/x=1"]),
    Row("unlink | rename", f, |w, s| w.rm(s, "/f"), |w, s| w.mv(s, "/f", "/x"), &["/x=1"]),
    Row("rename | link", f, |w, s| w.mv(s, "/f", "/x"), |w, s| w.ln(s, "/f", "/y"), &["/x=1", "/y=1"]),
    Row(
        "two links renamed",
        |w| {
            f(w);
            w.ln(0, "/f", "/g");
        },
        |w, s| w.mv(s, "/f", "/x"),
        |w, s| w.mv(s, "/g", "/y"),
        &["/x=1", "/y=1"],
    ),
    Row(
        "rename to a name | rename of another file to it",
        |w| {
            f(w);
            w.touch(0, "/g", 2);
        },
        |w, s| w.mv(s, "/f", "/z"),
        |w, s| w.mv(s, "/g", "/z"),
        &["/z.~s1=1", "/z=2"],
    ),
    Row("rename | create", f, |w, s| w.mv(s, "/f", "/z"), |w, s| w.touch(s, "/z", 5), &["/z.~s1=1", "/z=5"]),
    Row(
        "create | create",
        nothing,
        |w, s| w.touch(s, "/z.c", 2),
        |w, s| w.touch(s, "/z.c", 3),
        &["/z.c=3", "/z.~s1.c=2"],
    ),
    Row(
        "create | create, same bytes",
        nothing,
        |w, s| w.touch(s, "/z", 2),
        |w, s| w.touch(s, "/z", 2),
        &["/z=2"],
    ),
    Row(
        "mkdir | mkdir",
        nothing,
        |w, s| {
            w.dir(s, "/d");
            w.dir(s, "/d/e");
            w.touch(s, "/d/e/x", 1);
        },
        |w, s| {
            w.dir(s, "/d");
            w.dir(s, "/d/e");
            w.touch(s, "/d/e/y", 2);
        },
        &["/d", "/d/e", "/d/e/x=1", "/d/e/y=2"],
    ),
    Row("mkdir | create", nothing, |w, s| w.dir(s, "/d"), |w, s| w.touch(s, "/d", 1), &["/d", "/d.~s2=1"]),
    Row(
        "move of a directory | move of it",
        |w| ["/d", "/p", "/q"].iter().for_each(|path| w.dir(0, path)),
        |w, s| w.mv(s, "/d", "/p/d"),
        |w, s| w.mv(s, "/d", "/q/d"),
        &["/p", "/q", "/q/d"],
    ),
    Row(
        "move below each other",
        |w| ["/a", "/b"].iter().for_each(|path| w.dir(0, path)),
        |w, s| w.mv(s, "/a", "/b/a"),
        |w, s| w.mv(s, "/b", "/a/b"),
        &["/b", "/b/a"],
    ),
    Row(
        "rename of a directory in place | move of it",
        |w| ["/d", "/q"].iter().for_each(|path| w.dir(0, path)),
        |w, s| w.mv(s, "/d", "/e"),
        |w, s| w.mv(s, "/d", "/q/d"),
        &["/q", "/q/d"],
    ),
    Row(
        "move of a directory | rename of it in place",
        |w| ["/d", "/q"].iter().for_each(|path| w.dir(0, path)),
        |w, s| w.mv(s, "/d", "/q/d"),
        |w, s| w.mv(s, "/d", "/e"),
        &["/q", "/q/e"],
    ),
    Row(
        "move of a directory | rm -r of it",
        |w| {
            ["/d", "/q"].iter().for_each(|path| w.dir(0, path));
            w.touch(0, "/d/f", 1);
        },
        |w, s| w.mv(s, "/d", "/q/d"),
        |w, s| w.rm_all(s, "/d"),
        &["/q", "/q/d"],
    ),
    Row(
        "create in a directory | rmdir of it",
        |w| ["/d", "/d/e"].iter().for_each(|path| w.dir(0, path)),
        |w, s| w.touch(s, "/d/e/f", 1),
        |w, s| w.rm_all(s, "/d"),
        &["/d", "/d/e", "/d/e/f=1"],
    ),
    Row(
        "move into a directory | rmdir of it",
        |w| {
            f(w);
            w.dir(0, "/d");
        },
        |w, s| w.mv(s, "/f", "/d/f"),
        |w, s| w.rm_all(s, "/d"),
        &["/d", "/d/f=1"],
    ),
    Row(
        "create deep in a directory | rm -r of it",
        |w| {
            ["/d", "/d/a", "/d/a/b", "/d/c"].iter().for_each(|path| w.dir(0, path));
            w.touch(0, "/d/x", 1);
            w.touch(0, "/d/a/b/y", 1);
        },
        |w, s| w.touch(s, "/d/a/b/f", 2),
        |w, s| w.rm_all(s, "/d"),
        &["/d", "/d/a", "/d/a/b", "/d/a/b/f=2"],
    ),
    Row(
        "move into a directory | rm -r of that",
        |w| {
            ["/a", "/b"].iter().for_each(|path| w.dir(0, path));
            w.touch(0, "/a/y", 1);
            w.touch(0, "/b/x", 1);
        },
        |w, s| w.mv(s, "/a", "/b/a"),
        |w, s| w.rm_all(s, "/b"),
        &["/b", "/b/a", "/b/a/y=1"],
    ),
    Row(
        "chmod of a directory | rmdir",
        |w| w.dir(0, "/d"),
        |w, s| w.dir_mode(s, "/d", 0o700),
        |w, s| w.rm_all(s, "/d"),
        &[],
    ),
    Row("unlink | unlink", f, |w, s| w.rm(s, "/f"), |w, s| w.rm(s, "/f"), &[]),
    Row("rmdir | rmdir", |w| w.dir(0, "/d"), |w, s| w.rm_all(s, "/d"), |w, s| w.rm_all(s, "/d"), &[]),
    Row("chmod | chmod", f, |w, s| w.mode(s, "/f", 0o600), |w, s| w.mode(s, "/f", 0o640), &["/f=1 640"]),
    Row("xattr | xattr", f, |w, s| w.xattr(s, "/f", b"1"), |w, s| w.xattr(s, "/f", b"2"), &["/f=1 x:2"]),
    Row(
        "exchange | write",
        |w| {
            f(w);
            w.touch(0, "/g", 2);
        },
        |w, s| w.swap(s, "/f", "/g"),
        |w, s| w.put(s, "/f", 3),
        &["/f=2", "/g=3"],
    ),
    Row(
        "unlink of a copy | chmod of it",
        copy,
        |w, s| w.rm(s, &copy_path(w, s)),
        |w, s| w.mode(s, &copy_path(w, s), 0o600),
        &["/f=3"],
    ),
    Row(
        "unlink of a copy | write to it",
        copy,
        |w, s| w.rm(s, &copy_path(w, s)),
        |w, s| w.put(s, &copy_path(w, s), 4),
        &["/f.~s1=4", "/f=3"],
    ),
    Row(
        "unlink of a copy | write to its file",
        copy,
        |w, s| w.rm(s, &copy_path(w, s)),
        |w, s| w.put(s, "/f", 4),
        &["/f=4"],
    ),
];

/// A file and a copy of its version of the first site.
fn copy(w: &mut World) {
    f(w);
    w.exchange();
    w.put(0, "/f", 2);
    w.put(1, "/f", 3);
    w.rest();
}

fn copy_path(w: &World, at: usize) -> String {
    w.tree(at).into_keys().find(|path| path.contains('~')).expect("a copy")
}

/// All orders of so many, or some.
fn orders(count: usize, rng: &mut Rng) -> Vec<Vec<usize>> {
    let all: usize = (1..=count).product();
    if all <= ORDERS_MAX {
        let mut orders = vec![vec![]];
        for next in 0..count {
            orders = orders
                .into_iter()
                .flat_map(|order: Vec<usize>| {
                    (0..=order.len()).map(move |at| [&order[..at], &[next], &order[at..]].concat())
                })
                .collect();
        }
        return orders;
    }
    let drawn = |rng: &mut Rng| {
        let mut order: Vec<usize> = (0..count).collect();
        (1..count).rev().for_each(|at| order.swap(at, rng.index(at + 1)));
        order
    };
    (0..ORDERS_MAX).map(|_| drawn(rng)).collect()
}

#[test]
fn each_row_has_one_outcome_in_all_orders() {
    let mut rng = Rng::new(7);
    for Row(what, setup, first, second, expected) in ROWS {
        let begun = || {
            let mut world = World::new(3, 0, &mut Rng::new(1));
            setup(&mut world);
            world.exchange();
            let from: Vec<usize> = world.sites.iter().map(|site| site.held.log.len()).collect();
            first(&mut world, 0);
            second(&mut world, 1);
            let changes =
                [0, 1].map(|at| (from[at]..world.sites[at].held.log.len()).map(move |nth| (at, nth)));
            let changes: Vec<(usize, usize)> = changes.into_iter().flatten().collect();
            (world, changes)
        };
        for order in orders(begun().1.len(), &mut rng) {
            // The third site has done nothing. All mend and settle as soon as they can, or only at last.
            let (mut world, changes) = begun();
            let is_hasty = rng.percent(50);
            for at in order.iter().map(|nth| changes[*nth]) {
                for to in (0..3).filter(|to| *to != at.0) {
                    world.send_change(at.0, to, at.1);
                    if is_hasty {
                        world.patch_all(to);
                        world.settle_all(to);
                    }
                }
            }
            world.rest();
            for at in 0..3 {
                assert_eq!(
                    world.told(at),
                    *expected,
                    "{what}, at site {at}, in the order {order:?}, hasty: {is_hasty}"
                );
            }
            world.judge(&mut Rng::new(1));
        }
    }
}
