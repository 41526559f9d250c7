//! Who may use an etcd: users, certificates, and versions.

mod cluster;

use std::time::{Duration, Instant};

use atoll_control::conformance::record;
use atoll_control::{ControlError, GroupStore};
use atoll_core::{IslandId, VolumeId};
use atoll_etcd::{EtcdAdmin, EtcdError, EtcdSource, EtcdStore, Password};
use atoll_needs::needs;
use atoll_proto::group::{Revision, Swapped};
use atoll_rpc::ClusterId;

use cluster::{Cluster, certificates, tls};

const VOLUME: VolumeId = VolumeId(7);

/// A store that can be used.
fn works(source: &EtcdSource) -> EtcdStore {
    let store = EtcdStore::open(source, ClusterId(1)).unwrap();
    store.make().unwrap();
    swaps(&store);
    EtcdAdmin::open(source).unwrap().check().unwrap();
    store
}

fn swaps(store: &EtcdStore) {
    let seen = store.group(VOLUME, IslandId(0)).unwrap().map_or(Revision::NONE, |found| found.revision);
    let swapped = store.swap_group(VOLUME, IslandId(0), seen, &record(1));
    assert!(matches!(swapped, Swapped::Done { .. }), "{swapped:?}");
}

/// What a store says that cannot be used, whatever it is asked, and what a command says.
fn refused(source: &EtcdSource) -> (String, EtcdError) {
    // What etcd refuses in words is not asked again, and a password takes etcd some time.
    let patience = if source.user.is_some() { 3_000 } else { 300 };
    let store = EtcdStore::with_patience(source, ClusterId(1), Duration::from_millis(patience)).unwrap();
    let since = Instant::now();
    let Err(why @ ControlError::Unavailable { .. }) = store.group(VOLUME, IslandId(0)) else {
        panic!("it is not refused")
    };
    let swapped = store.swap_group(VOLUME, IslandId(0), Revision(9), &record(1));
    assert!(matches!(swapped, Swapped::Unknown { .. }), "{swapped:?}");
    assert!(store.make().is_err());
    let error = EtcdAdmin::open(source).unwrap().check().unwrap_err();
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    for text in [why.to_string(), error.to_string()] {
        assert!(text.lines().count() <= 3 && !text.contains("secret"), "{text}");
    }
    (why.to_string(), error)
}

fn as_user(source: &EtcdSource, name: &str, password: &str) -> EtcdSource {
    EtcdSource { user: Some((name.to_owned(), Password::Text(password.to_owned()))), ..source.clone() }
}

#[test]
fn a_user_needs_its_password_and_rights_and_stays_known_when_a_member_was_restarted() {
    needs!(Programs(&["etcd", "etcdctl"]));
    let mut cluster = Cluster::start(1);
    let plain = cluster.source();
    let (why, error) = refused(&as_user(&plain, "ann", "secret"));
    assert!(why.contains("authentication is not enabled"), "{why}");
    assert!(matches!(error, EtcdError::Refused { .. }), "{error:?}");
    works(&plain);
    for line in [
        "user add root:secret-root",
        "user grant-role root root",
        "role add atoll",
        "role grant-permission atoll --prefix=true readwrite /atoll/",
        "user add ann:secret-ann",
        "user grant-role ann atoll",
        "user add bob:secret-bob",
        "auth enable",
    ] {
        // The role `root` is made when it is granted in some versions.
        let _ = cluster.ctl(0, &line.split(' ').collect::<Vec<_>>());
    }
    cluster.user = Some("root:secret-root".to_owned());
    let store = works(&as_user(&plain, "ann", "secret-ann"));
    for (source, says) in [
        (plain.clone(), "user name is empty"),
        (as_user(&plain, "ann", "secret-bob"), "invalid user ID or password"),
        (as_user(&plain, "eve", "secret-bob"), "invalid user ID or password"),
        (as_user(&plain, "bob", "secret-bob"), "permission denied"),
        (
            EtcdSource { prefix: "/elsewhere".to_owned(), ..as_user(&plain, "ann", "secret-ann") },
            "permission denied",
        ),
    ] {
        let (why, error) = refused(&source);
        assert!(why.contains(says), "{source}: {why}");
        assert!(matches!(error, EtcdError::Refused { .. }), "{source}: {error:?}");
    }
    // A password in a file, which is read when it is needed.
    let file = cluster.folder.path().join("password");
    let in_file =
        EtcdSource { user: Some(("ann".to_owned(), Password::File(file.clone()))), ..plain.clone() };
    let (why, _) = refused(&in_file);
    assert!(why.contains("password cannot be read"), "{why}");
    std::fs::write(&file, "secret-ann\n").unwrap();
    works(&in_file);
    // Its tokens are in its memory only.
    cluster.kill(0);
    cluster.begin(0);
    cluster.wait_until_healthy();
    cluster::wait_for("another token", || store.group(VOLUME, IslandId(0)).is_ok());
    swaps(&store);
}

#[test]
fn only_certificates_of_the_right_ca_and_with_the_right_name_are_let_in() {
    needs!(Programs(&["etcd", "etcdctl", "openssl"]));
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let cluster = Cluster::with(1, Some(folder.path().to_owned()));
    let good = cluster.source();
    let store = works(&good);
    let with = |tls| EtcdSource { tls, ..good.clone() };
    let named = |name: &str| {
        let mut tls = tls(folder.path(), "ca.pem", Some("client"));
        tls.name = Some(name.to_owned());
        with(Some(tls))
    };
    works(&named("etcd.atoll"));
    let closed = "it may want a certificate from who asks, or another one";
    for (source, says) in [
        (with(None), "it may want TLS"),
        (
            with(Some(tls(folder.path(), "other.pem", Some("client")))),
            "invalid peer certificate: UnknownIssuer",
        ),
        (with(Some(tls(folder.path(), "ca.pem", None))), closed),
        (with(Some(tls(folder.path(), "ca.pem", Some("stranger")))), closed),
        (with(Some(tls(folder.path(), "ca.pem", Some("mount")))), closed),
        (named("etcd.example.org"), "certificate not valid for name \"etcd.example.org\""),
    ] {
        let (why, error) = refused(&source);
        assert!(why.contains(says) && error.to_string().contains(says), "{:?}: {why}", source.tls);
    }
    let mut missing = tls(folder.path(), "nothing.pem", None);
    let (why, error) = refused(&with(Some(missing.clone())));
    assert!(why.contains("nothing.pem cannot be read"), "{why}");
    assert!(matches!(error, EtcdError::Refused { .. }), "{error:?}");
    missing.ca = folder.path().join("ca.key");
    let (why, _) = refused(&with(Some(missing)));
    assert!(why.contains("certificate"), "{why}");
    swaps(&store);
}

#[test]
fn an_etcd_that_is_too_old_is_refused_with_its_version() {
    let fake = fake("3.3.27");
    let source = EtcdSource::plain(vec![format!("127.0.0.1:{fake}").parse().unwrap()]);
    let (why, error) = refused(&source);
    assert!(why.contains("has etcd 3.3.27, and 3.4 is the oldest that is used"), "{why}");
    assert!(matches!(error, EtcdError::TooOld { .. }), "{error:?}");
    assert!(error.to_string().contains("Install etcd 3.4 or later"), "{error}");
}

/// Something that tells this version, and does nothing else. Its port.
fn fake(version: &'static str) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    let serve = async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(connection).await.unwrap();
                while let Some(Ok((request, mut answer))) = connection.accept().await {
                    assert_eq!(request.uri().path(), "/etcdserverpb.Maintenance/Status");
                    let head = http::Response::builder().header("content-type", "application/grpc");
                    let mut body = answer.send_response(head.body(()).unwrap(), false).unwrap();
                    // Field 2, a string, in a frame of gRPC.
                    let field = [&[0x12, version.len() as u8], version.as_bytes()].concat();
                    let frame = [&[0, 0, 0, 0, field.len() as u8], field.as_slice()].concat();
                    body.send_data(bytes::Bytes::from(frame), false).unwrap();
                    let mut end = http::HeaderMap::new();
                    end.insert("grpc-status", "0".parse().unwrap());
                    body.send_trailers(end).unwrap();
                }
            });
        }
    };
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(serve);
    });
    port
}
