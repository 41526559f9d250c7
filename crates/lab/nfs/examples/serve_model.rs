//! Serves the model of a tree by our NFS server, until a line (or the end) comes on standard input. Prints the export as
//! `nfs_mount` takes it. Keeps nothing on any disk.
//!
//! `serve_model [ADDRESS:PORT]`

use std::error::Error;
use std::net::TcpListener;
use std::sync::Arc;

use atoll_model::{AtimeRule, ModelFiles};
use atoll_nfs::{Served, SigningKey, serve};
use atoll_vfs::Caching;

fn main() -> Result<(), Box<dyn Error>> {
    let at = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let files = Arc::new(ModelFiles::new(AtimeRule::Always, Caching::Never));
    let (key, rules) = (SigningKey::new([7; 16]), vec!["127.0.0.1(no_root_squash)".parse()?]);
    let start = u64::from(std::process::id());
    let served = Served { id: 5, kind: 1, name: "main".to_owned(), key, rules, start };
    let server = serve(files, served, TcpListener::bind(at)?)?;
    println!("{}/main", server.address());
    std::io::stdin().read_line(&mut String::new())?;
    server.stop();
    Ok(())
}
