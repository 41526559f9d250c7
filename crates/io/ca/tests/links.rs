//! Certificates of the CA on real links: nodes, clients, and a guest who joins.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, SystemTime};

use atoll_ca::{Authority, CaError, Holder, Key, LIFETIME_DAYS, guest, public_key_of, to_pem, valid_until};
use atoll_rpc::{
    Acceptor, Closed, ClusterId, ConnectError, Credentials, DaemonId, Frame, Goodbye, Handler, Hello,
    HelloOk, Link, Listener, Options, Outgoing, Peer, Role, Security, Trust, guest_number,
};
use aws_lc_rs::digest::{SHA256, digest};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

struct Door(Sender<Option<Peer>>);

impl Handler for Door {
    fn opened(&self, link: &Arc<Link>) {
        let _ = self.0.send(link.peer());
    }

    fn frame(&self, _link: &Arc<Link>, _frame: Frame) {}

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {}
}

impl Acceptor for Door {
    fn welcome(&self, _hello: &Hello) -> Result<HelloOk, Goodbye> {
        Ok(HelloOk::new(ClusterId(1), DaemonId(5), 1))
    }
}

fn issued(ca: &Authority, holder: Holder, at: SystemTime) -> Credentials {
    let key = Key::generate().unwrap();
    let certificate = ca.issue(holder, &key.public(), at).unwrap();
    key.with(&certificate, ca.certificate())
}

/// Whom the node has let in, or why whoever asked was not.
fn connect(node: &Arc<Security>, who: &Credentials) -> Result<Peer, ConnectError> {
    let (send, opened) = channel();
    let door = Arc::new(Door(send));
    let options = |security| Options { security: Some(security), ..Options::default() };
    let listener =
        Listener::start(&"127.0.0.1:0".parse().unwrap(), Arc::clone(&door) as _, options(Arc::clone(node)))
            .unwrap();
    let security = Arc::new(Security::new(who).unwrap());
    let greeting = Box::new(|| Hello::new(Role::Tool, None));
    let outgoing = Outgoing::new(listener.address().clone(), greeting, door, options(security));
    outgoing.connect(Duration::from_secs(20))?;
    // Both ends share the channel: this end knows a node, and the other one whoever came.
    let both: Vec<Peer> =
        (0..2).map(|_| opened.recv_timeout(Duration::from_secs(20)).unwrap().unwrap()).collect();
    assert!(both.contains(&Peer::Node(DaemonId(5))), "{both:?}");
    Ok(*both.iter().find(|peer| **peer != Peer::Node(DaemonId(5))).unwrap())
}

#[test]
fn whoever_the_ca_names_is_let_in_as_long_as_the_certificate_is_valid() {
    let now = SystemTime::now();
    let ca = Authority::new(now - 1000 * DAY).unwrap();
    let node = Arc::new(Security::new(&issued(&ca, Holder::Node(DaemonId(5)), now)).unwrap());
    assert_eq!(
        connect(&node, &issued(&ca, Holder::Node(DaemonId(8)), now)).unwrap(),
        Peer::Node(DaemonId(8))
    );
    assert_eq!(connect(&node, &issued(&ca, Holder::Client(7), now)).unwrap(), Peer::Client(7));
    // Clocks differ by some minutes.
    connect(&node, &issued(&ca, Holder::Client(7), now + DAY / 48)).unwrap();
    let old = connect(&node, &issued(&ca, Holder::Client(7), now - 91 * DAY)).unwrap_err().to_string();
    assert!(old.contains("not valid now"), "{old}");
    let of_other = Authority::new(now).unwrap();
    connect(&node, &issued(&of_other, Holder::Client(7), now)).unwrap_err();
}

#[test]
fn a_ca_is_the_same_after_it_was_written_and_read() {
    let now = SystemTime::now();
    let ca = Authority::new(now).unwrap();
    let again = Authority::from_parts(ca.certificate(), &ca.key_der()).unwrap();
    let node = Arc::new(Security::new(&issued(&ca, Holder::Node(DaemonId(5)), now)).unwrap());
    connect(&node, &issued(&again, Holder::Client(7), now)).unwrap();
    let other = Authority::new(now).unwrap();
    assert!(Authority::from_parts(ca.certificate(), &other.key_der()).is_err());
    assert!(Authority::from_parts(ca.certificate(), b"no key").is_err());
    assert!(Authority::from_parts(b"no certificate", &ca.key_der()).is_err());
    assert!(ca.issue(Holder::Client(1), b"no key", now).is_err());
}

#[test]
fn credentials_come_back_from_their_text() {
    let now = SystemTime::now();
    let ca = Authority::new(now).unwrap();
    let key = Key::generate().unwrap();
    let certificate = ca.issue(Holder::Client(7), &key.public(), now).unwrap();
    assert_eq!(public_key_of(&certificate), Some(key.public()));
    let days =
        |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / DAY.as_secs();
    assert_eq!(valid_until(&certificate).unwrap() / DAY.as_secs(), days(now) + u64::from(LIFETIME_DAYS));
    assert!(Key::from_der(&key.der()).unwrap().is_of(&certificate));
    let text = [
        to_pem("CERTIFICATE", &certificate),
        to_pem("CERTIFICATE", ca.certificate()),
        to_pem("PRIVATE KEY", &key.der()),
    ]
    .concat();
    let read = Credentials::from_pem(text.as_bytes()).unwrap();
    assert_eq!(read.peer(), Ok(Peer::Client(7)));
    assert_eq!(read.certificate, certificate);
    assert!(matches!(&read.trust, Trust::Ca(of) if of == ca.certificate()));
    for bad in ["", &text[..text.len() / 2], "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    {
        assert!(Credentials::from_pem(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn a_guest_is_let_in_while_it_is_invited_and_trusts_the_ca_of_its_line_alone() -> Result<(), CaError> {
    let now = SystemTime::now();
    let ca = Authority::new(now)?;
    let node = Arc::new(Security::new(&issued(&ca, Holder::Node(DaemonId(5)), now)).unwrap());
    let of_line: [u8; 32] = digest(&SHA256, ca.certificate()).as_ref().try_into().unwrap();
    let (who, key) = guest(&[3; 16], of_line)?;
    connect(&node, &who).expect_err("nobody is invited");
    let (stranger, strange_key) = guest(&[4; 16], of_line)?;
    node.invite(vec![key.clone()]);
    assert_eq!(connect(&node, &who).unwrap(), Peer::Guest(guest_number(&key)));
    connect(&node, &stranger).expect_err("another secret");
    assert_ne!(key, strange_key);
    let (fooled, _) = guest(&[3; 16], [9; 32])?;
    let why = connect(&node, &fooled).expect_err("another CA").to_string();
    assert!(why.contains("of another cluster"), "{why}");
    node.invite(Vec::new());
    connect(&node, &who).expect_err("the line was used");
    Ok(())
}
