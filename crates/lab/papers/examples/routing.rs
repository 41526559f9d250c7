//! `cargo run --release -p atoll-papers --example routing`: nanoseconds that it takes to tell the owner of a
//! path, with and without hints of renamed directories. Prints; judges nothing.

use std::hint::black_box;
use std::time::Instant;

use atoll_core::{H3, Key, Name, Table, VolumePath};
use atoll_proto::Hint;
use atoll_route::Hints;

/// Paths that are routed, each as often as [`ROUNDS`].
const PATHS: usize = 4096;
const ROUNDS: usize = 200;
/// Components of each path.
const DEPTH: usize = 8;

fn main() {
    let (h3, table) = (H3::new(7), Table::new(16));
    println!("{PATHS} paths of {DEPTH} components, about {} bytes each", path(0).to_string().len());
    for (hints, depth) in [(0, 0), (100, 3), (10_000, 1), (10_000, 3), (10_000, 7), (10_000, 0)] {
        let known = hints_at(&h3, hints, depth);
        let paths: Vec<VolumePath> = (0..PATHS).map(path).collect();
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            for path in &paths {
                let key = known.key(&h3, black_box(path.names())).unwrap_or(Key(0));
                black_box(table.owner(key));
            }
        }
        let each = begin.elapsed().as_nanos() as f64 / (ROUNDS * PATHS) as f64;
        let which = match depth {
            0 => "none of them on the way".to_owned(),
            depth => format!("one on the way, {depth} components deep"),
        };
        println!("{:>6} hints, {which}: {each:.0} ns", known.len());
    }
}

fn path(n: usize) -> VolumePath {
    let part = |i: usize| Name::new(format!("part{i}-{:05}", n * (i + 1)).as_bytes()).expect("a name");
    VolumePath::from_names((0..DEPTH).map(part).collect()).expect("short enough")
}

/// Of the paths' ancestors at this depth, or, at 0, of directories that no path leads through.
fn hints_at(h3: &H3, count: usize, depth: usize) -> Hints {
    let mut hints = Hints::new(7);
    for n in 0..count {
        let above = path(if depth == 0 { n + 1_000_000 } else { n });
        let names = above.names()[..depth.max(1)].to_vec();
        let birth = h3.path(&path(n + 2_000_000).names()[..2]).expect("short enough");
        let path = VolumePath::from_names(names).expect("shorter than it was");
        hints.learn(&Hint { path, key: birth.key(), birth_bytes: birth.bytes() });
    }
    hints
}
