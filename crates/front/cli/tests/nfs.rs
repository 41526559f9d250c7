//! `atoll nfs`: what is wrong with its arguments is told at once, and nothing is left behind.

mod common;

use std::net::TcpListener;

use common::{Scratch, bad, text};

#[test]
fn a_rule_that_does_not_parse_and_a_port_in_use_are_refused_at_once() {
    let scratch = Scratch::new();
    let key = scratch.path("key");
    let said = bad(["nfs", "127.0.0.1:1:/main", "--key", text(&key), "--export", "*(zz)"]);
    assert!(said.contains("\"zz\"") && said.contains("Write "), "{said}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = bad(["nfs", "127.0.0.1:1:/main", "--key", text(&key), "--listen", &address]);
    assert!(said.contains(&address) && said.contains("free port"), "{said}");
    let said = bad(["nfs", "127.0.0.1:1:/main", "--key", text(&key), "--listen", "127.0.0.1:0"]);
    assert!(said.contains("127.0.0.1:1"), "{said}");
    assert!(!key.exists(), "nothing is left behind");
}
