//! The tools of libnfs, a third implementation, over our server, which ends and starts again meanwhile.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atoll_core::{Ino, Name};
use atoll_model::{AtimeRule, ModelFiles};
use atoll_needs::needs;
use atoll_nfs::{Served, Server, SigningKey, serve};
use atoll_posix::{Answer, Caller, Op};
use atoll_torture::place::{Place, run};
use atoll_vfs::{Caching, call};

/// A server over the same tree, with another write verifier each time.
fn server(files: &Arc<ModelFiles>, start: u64, at: SocketAddr) -> Server {
    let until = Instant::now() + Duration::from_secs(60);
    let listener = loop {
        match TcpListener::bind(at) {
            Ok(listener) => break listener,
            Err(why) => assert!(Instant::now() < until, "{why}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let rules = vec!["127.0.0.1(no_root_squash)".parse().unwrap()];
    let key = SigningKey::new([7; 16]);
    let served = Served { id: 5, kind: 1, name: "main".to_owned(), key, rules, start };
    serve(Arc::<ModelFiles>::clone(files), served, listener).unwrap()
}

/// Bytes of the copy on the server; 0 if there is none.
fn length(files: &ModelFiles) -> u64 {
    let op = Op::Lookup { dir: Ino::ROOT, name: Name::new(b"copy").unwrap() };
    match call(files, &Caller::ROOT, op, bytes::Bytes::new()) {
        Ok((Answer::Found { found }, _)) => found.attr.size,
        _ => 0,
    }
}

#[test]
#[ignore = "needs libnfs-utils; by hand, docs/TESTING.md"]
fn a_copy_by_libnfs_goes_on_over_restarts_of_the_server() {
    needs!(Programs(&["nfs-cp", "nfs-cat", "nfs-ls"]));
    let place = Place::new("libnfs").unwrap();
    let files = Arc::new(ModelFiles::new(AtimeRule::Never, Caching::Never));
    let mut running = server(&files, 1, "127.0.0.1:0".parse().unwrap());
    let at = running.address();
    let url =
        |name: &str| format!("nfs://127.0.0.1/main/{name}?nfsport={0}&mountport={0}&version=3", at.port());
    let bytes: Vec<u8> = (0..16u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let (local, back) = (place.join("local"), place.join("back"));
    std::fs::write(&local, &bytes).unwrap();
    let local = local.to_str().unwrap().to_owned();
    let mut restarts = 0;
    // libnfs gives a mount up when the server goes, so the server stays until bytes have come.
    let begun = |to: &str| match to.starts_with("nfs:") {
        true => length(&files) > 0,
        false => std::fs::metadata(to).is_ok_and(|meta| meta.len() > 0),
    };
    for (from, to) in [(local.clone(), url("copy")), (url("copy"), back.to_str().unwrap().to_owned())] {
        let mut copy = Command::new("nfs-cp").args([&from, &to]).spawn().unwrap();
        let (until, most) = (Instant::now() + Duration::from_secs(120), restarts + 3);
        while copy.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "nfs-cp does not end after {restarts} restarts");
            std::thread::sleep(Duration::from_millis(2));
            if restarts < most && begun(&to) {
                running.stop();
                drop(running);
                restarts += 1;
                running = server(&files, 1 + restarts, at);
            }
        }
        assert!(copy.wait().unwrap().success(), "nfs-cp {from} {to}");
    }
    assert!(restarts > 0, "the copies ended before anything happened");
    assert!(std::fs::read(&back).unwrap() == bytes, "the copy has other bytes");
    let shown = Command::new("nfs-cat").arg(url("copy")).output().unwrap();
    assert!(shown.stdout == bytes, "nfs-cat shows other bytes");
    let listed = run(Command::new("nfs-ls").arg(url(""))).unwrap();
    assert!(listed.contains("copy"), "{listed}");
}
