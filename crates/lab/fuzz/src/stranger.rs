//! What somebody sends who has not shown who he is: handshakes, certificates, lines to join by, requests for metrics.

use std::sync::OnceLock;
use std::time::SystemTime;

use atoll_ca::{Authority, Holder, JoinLine, Key, guest, names_host, to_pem, valid_until};
use atoll_core::Encode;
use atoll_rpc::{Credentials, DaemonId, Security, Shown, hostile, sha256};
use data_encoding::BASE64URL_NOPAD;

/// Most bytes that a node says to a stranger: its share of the keys, two certificates, and a signature.
const SAID_MAX: usize = 8 * 1024;

/// A node and a client of a cluster that was made for this process.
struct World {
    node: Security,
    client: Security,
    /// Certificates (DER) of a node, a client and a guest that are let in, with whom they name.
    good: Vec<(Vec<u8>, Shown)>,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let now = SystemTime::now();
        let ca = Authority::new(now).expect("a CA");
        let issued = |holder| {
            let key = Key::generate().expect("a key");
            let certificate = ca.issue(holder, &key.public(), now).expect("a certificate");
            key.with(&certificate, ca.certificate())
        };
        let uses = |credentials: &Credentials| Security::new(credentials).expect("they are good");
        let (of_node, of_client) = (issued(Holder::Node(DaemonId(5))), issued(Holder::Client(7)));
        let (of_guest, invited) = guest(&[7; 16], sha256(ca.certificate())).expect("a guest");
        let (node, client) = (uses(&of_node), uses(&of_client));
        node.invite(vec![invited]);
        let good = [of_node, of_client, of_guest].map(|credentials| {
            let der = credentials.certificate.to_vec();
            let shown = hostile::certificate(&node, &der).expect("it is let in");
            (der, shown)
        });
        World { node, client, good: good.into() }
    })
}

/// The first bytes of a connection under TLS. The first one says which side they come from. Nobody is let in by bytes that were made
/// before the handshake.
pub fn greeting(bytes: &[u8]) {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let world = world();
    let (said, shown) = match how & 1 {
        0 => hostile::handshake(&world.node, true, bytes),
        _ => hostile::handshake(&world.client, false, bytes),
    };
    assert_eq!(shown, None, "it has shown who it is");
    assert!(said.len() <= SAID_MAX, "{} bytes were said to a stranger", said.len());
}

/// A certificate. The first byte says which one of those that are let in, of which others are changed: each three bytes are a place
/// and what comes there. Or the rest is one as it is.
pub fn certificate(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    let world = world();
    let good = world.good.get(usize::from(*which));
    let mut der = good.map_or(rest.to_vec(), |(der, _)| der.clone());
    if good.is_some() {
        for change in rest.chunks_exact(3) {
            let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % der.len();
            der[at] = change[2];
        }
    }
    // Whoever is let in is who he was: a change is noticed, or is in a part that says nothing.
    let shown = hostile::certificate(&world.node, &der);
    assert!(shown.is_none() || shown == good.map(|(_, shown)| *shown), "{shown:?}");
    // What is read of a certificate that lies in a file.
    let parsed = der.as_slice().into();
    valid_until(&parsed);
    names_host(&parsed, "127.0.0.1");
    let pem = to_pem("CERTIFICATE", &der);
    assert!(Credentials::from_pem(pem.as_bytes()).is_err(), "it has no key");
    drop(Credentials::from_pem(rest));
}

/// A line to join by: its text, or what is in it, with a checksum that fits.
pub fn join_line(bytes: &[u8]) {
    let Some((how, rest)) = bytes.split_first() else { return };
    let text = match how & 1 {
        0 => String::from_utf8_lossy(rest).into_owned(),
        _ => {
            let mut body = rest.to_vec();
            crc32c::crc32c(rest).encode(&mut body);
            format!("atoll-join-1.{}", BASE64URL_NOPAD.encode(&body))
        }
    };
    match text.parse::<JoinLine>() {
        Ok(line) => assert_eq!(line.to_string().parse(), Ok(line), "written as it was read"),
        Err(why) => assert!(why.to_string().lines().count() <= 3, "{why}"),
    }
}

/// A request for metrics.
pub fn metrics(bytes: &[u8]) {
    let (status, is_page) = atoll_metrics::judge(bytes);
    assert!(is_page == (status == "200 OK"), "{status}");
    assert!(!is_page || bytes.starts_with(b"GET /metrics"), "the page was shown for another request");
}
