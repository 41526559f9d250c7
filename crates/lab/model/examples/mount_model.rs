//! Mounts a reference model until it is unmounted or a line (or the end) comes on standard input,
//! so that a test suite can judge model, rules and FUSE adapter. Keeps nothing on any disk.
//!
//! `mount_model DIRECTORY [--cached]`

use atoll_fuse::{Config, MountOptions, Mounted};
use atoll_model::{AtimeRule, ModelFiles};
use atoll_vfs::Caching;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let point = PathBuf::from(args.next().ok_or("usage: mount_model DIRECTORY [--cached]")?);
    let cached = match args.next() {
        None => false,
        Some(flag) if flag == "--cached" => true,
        Some(other) => return Err(format!("unknown argument {}", other.display()).into()),
    };
    let caching = if cached { Caching::UntilRecalled } else { Caching::Never };
    let files = Arc::new(ModelFiles::new(AtimeRule::Always, caching));
    let options = MountOptions { set_id: true, devices: true, ..MountOptions::new("model") };
    let volume: Arc<ModelFiles> = Arc::clone(&files);
    let mounted = Mounted::new(volume, &point, &options, Config::default())?;
    println!("mounted on {}; a line ends it", mounted.path().display());
    std::io::stdin().read_line(&mut String::new())?;
    drop(mounted);
    files.model().check();
    Ok(())
}
