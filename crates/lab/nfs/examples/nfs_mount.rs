//! Mounts an NFS export through the lab's client, until it is unmounted or a line (or the end) comes on standard
//! input.
//!
//! `nfs_mount HOST:PORT[,MOUNTPORT]/PATH DIRECTORY [--plain-unlink] [--guarded] [--sync] [--cache-ms N]`

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use atoll_fuse::{Config, Locks, MountOptions, Mounted};
use atoll_lab_nfs::{Export, NfsFiles, Ways};

const USAGE: &str = "usage: nfs_mount HOST:PORT[,MOUNTPORT]/PATH DIRECTORY [--plain-unlink] [--guarded] [--sync] [--cache-ms N]";

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let export = Export::parse(&args.next().ok_or(USAGE)?)?;
    let point = PathBuf::from(args.next().ok_or(USAGE)?);
    let mut ways = Ways::default();
    while let Some(flag) = args.next() {
        match &flag[..] {
            "--plain-unlink" => ways.silly = false,
            "--guarded" => ways.exclusive = false,
            "--sync" => ways.sync = true,
            "--cache-ms" => ways.cache_ms = args.next().ok_or(USAGE)?.parse()?,
            _ => return Err(format!("unknown argument {flag}; {USAGE}").into()),
        }
    }
    let files = Arc::new(NfsFiles::connect(&export, ways)?);
    let options = MountOptions { set_id: true, devices: true, ..MountOptions::new("nfs") };
    let config = Config { locks: Locks::Local, ..Config::default() };
    let mounted = Mounted::new(files, &point, &options, config)?;
    println!("mounted on {}; a line ends it", mounted.path().display());
    std::io::stdin().read_line(&mut String::new())?;
    drop(mounted);
    Ok(())
}
