//! Exports a folder by nfs-ganesha, until a line (or the end) comes on standard input. Prints the export as
//! `nfs_mount` takes it.
//!
//! `ganesha DIRECTORY`

use std::error::Error;
use std::path::PathBuf;

use atoll_lab_nfs::ganesha::Ganesha;
use atoll_torture::place::Place;

fn main() -> Result<(), Box<dyn Error>> {
    let top = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: ganesha DIRECTORY")?);
    let place = Place::new("ganesha")?;
    let ganesha = Ganesha::start(&top.canonicalize()?, place.path())?;
    let export = ganesha.export();
    println!("{},{}{} (process {})", export.nfs, export.mount.port(), export.path, ganesha.id());
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
