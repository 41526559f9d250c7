//! Mounts the reference model, to run conformance suites and measurements over the adapter alone:
//! `mount_model MOUNT_POINT [keep|never|alone] [writers|local] [READERS]`. Ends when its standard input does.

use atoll_fuse::{Config, Flush, Keep, Locks, MountOptions, Mounted};
use atoll_model::{AtimeRule, ModelFiles};
use atoll_vfs::Caching;
use std::path::Path;
use std::sync::Arc;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let says = |word: &str| words.iter().any(|w| w == word);
    let point = words.first().expect("a mount point is named");
    let caching = if says("never") { Caching::Never } else { Caching::UntilRecalled };
    let readers = words.iter().find_map(|w| w.parse().ok()).unwrap_or(Config::default().readers);
    let flush = if says("writers") { Flush::Writers } else { Flush::Always };
    let locks = if says("local") { Locks::Local } else { Locks::Shared };
    let keep = if says("alone") { Keep::Alone } else { Keep::Recallable };
    let config = Config { readers, keep, locks, flush, ..Config::default() };
    let files = Arc::new(ModelFiles::new(AtimeRule::Always, caching));
    let options = MountOptions { set_id: true, devices: true, ..MountOptions::new("model") };
    let mounted = match Mounted::new(files, Path::new(point), &options, config) {
        Ok(mounted) => mounted,
        Err(why) => {
            eprintln!("{why}");
            std::process::exit(1);
        }
    };
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    for count in mounted.counters() {
        println!("{:16} {:10} {:8} errors", count.operation, count.requests, count.errors);
    }
}
