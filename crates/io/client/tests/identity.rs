//! In a cluster with certificates: which node a client asks.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use atoll_ca::{Authority, Holder, Key};
use atoll_client::{NodePlace, Nodes};
use atoll_core::{NodeId, SessionId, VolumeId};
use atoll_rpc::{
    Acceptor, Closed, ClusterId, Credentials, DaemonId, Frame, Goodbye, Handler, Hello, HelloOk, Link,
    Listener, Options, Security,
};

/// A node that lets everybody in.
struct Door;

impl Handler for Door {
    fn frame(&self, _link: &Arc<Link>, _frame: Frame) {}

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {}
}

impl Acceptor for Door {
    fn welcome(&self, _hello: &Hello) -> Result<HelloOk, Goodbye> {
        Ok(HelloOk::new(ClusterId(1), DaemonId(5), 1))
    }
}

fn issued(ca: &Authority, holder: Holder) -> Credentials {
    let key = Key::generate().unwrap();
    let certificate = ca.issue(holder, &key.public(), SystemTime::now()).unwrap();
    key.with(&certificate, ca.certificate())
}

#[test]
fn a_mount_asks_the_daemon_that_its_volume_names_and_no_other() {
    let ca = Authority::new(SystemTime::now()).unwrap();
    let security = Arc::new(Security::new(&issued(&ca, Holder::Node(DaemonId(5)))).unwrap());
    let options = Options { security: Some(security), ..Options::default() };
    let listener = Listener::start(&"127.0.0.1:0".parse().unwrap(), Arc::new(Door), options).unwrap();
    Security::new(&issued(&ca, Holder::Client(7))).unwrap().install();
    let place = |daemon| NodePlace {
        node: NodeId(0),
        daemon,
        address: listener.address().clone(),
        islands: Vec::new(),
        copies: Vec::new(),
    };
    let connect = |nodes: &Nodes| {
        let remote = nodes.get(NodeId(0)).unwrap();
        remote.connect(Duration::from_secs(20)).map_err(|why| why.to_string())
    };
    let nodes = Nodes::new(VolumeId(1), SessionId(3), &[place(6)]);
    let why = connect(&nodes).unwrap_err();
    assert!(why.contains("another node of the cluster is at this address"), "{why}");
    // A newer configuration names the one that is there.
    nodes.change(&[place(5)]);
    connect(&nodes).unwrap();
    nodes.stop();
}
