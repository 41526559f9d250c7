//! What every kind of volume must hold that is used through `Attached`: one test body over cluster volumes and over a
//! kind that is in memory, is not cluster, and knows no islands.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use anyhow::{Result, anyhow, bail};
use atoll_core::{Ino, Table, VolumeId, VolumePath};
use atoll_fuse::MountOptions;
use atoll_model::{AtimeRule, ModelFiles};
use atoll_needs::needs;
use atoll_posix::{Answer, Caller, Kind, Op};
use atoll_proto::control::Metric;
use atoll_proto::{Control, ControlReply, VolumeConfig, VolumeKind};
use atoll_vfs::{Caching, Files, call};
use atoll_volume::ask::{QUESTION, try_ask};
use atoll_volume::explain::{Explanation, explain};
use atoll_volume::kind::{Attached, AttachedStatus, Manner, attach};
use atoll_volume::mounting::{Mount, check_point};
use atoll_volume::node::Daemon;
use atoll_volume::places::mount_socket;
use atoll_volume::reach::{Here, Reached};
use atoll_volume::wide::{SiteWish, create};
use bytes::Bytes;

/// A tree in memory: neither nodes nor islands, and no listing as of one moment.
struct InMemory {
    config: VolumeConfig,
    files: Arc<ModelFiles>,
    stopped: AtomicU32,
}

impl InMemory {
    fn new() -> Arc<Self> {
        let (id, name, table) = (VolumeId(1), "memory".to_owned(), Table::new(1));
        let config = VolumeConfig {
            id,
            name,
            seed: 1,
            table,
            nodes: Vec::new(),
            kind: VolumeKind::Unknown(250),
            copies: None,
            site: None,
        };
        let files = Arc::new(ModelFiles::new(AtimeRule::Always, Caching::UntilRecalled));
        Arc::new(Self { config, files, stopped: AtomicU32::new(0) })
    }
}

impl Attached for InMemory {
    fn config(&self) -> Arc<VolumeConfig> {
        Arc::new(self.config.clone())
    }

    fn take_config(&self, _: &VolumeConfig) -> Result<()> {
        bail!("a tree in memory is on no node")
    }

    fn files(&self) -> Arc<dyn Files> {
        Arc::clone(&self.files) as _
    }

    fn status(&self) -> AttachedStatus {
        AttachedStatus { metrics: vec![Metric::now("members", 1)], nodes: Vec::new() }
    }

    fn explain(&self, names: &VolumePath, root: &Path) -> Result<Explanation> {
        let (mut ino, mut kind) = (Ino::ROOT, Kind::Directory);
        for name in names.names() {
            let op = Op::Lookup { dir: ino, name: name.clone() };
            match call(&*self.files, &Caller::ROOT, op, Bytes::new()) {
                Ok((Answer::Found { found }, _)) => (ino, kind) = (found.attr.ino, found.attr.kind),
                other => bail!("there is no such file below {}: {other:?}", root.display()),
            }
        }
        let mut explanation = Explanation { rows: vec![("id", ino.to_string())], ..Explanation::default() };
        explanation.json.insert("id".to_owned(), ino.0.into());
        explanation.json.insert("kind".to_owned(), format!("{kind:?}").to_lowercase().into());
        Ok(explanation)
    }

    fn stop(&self) {
        self.stopped.fetch_add(1, SeqCst);
    }
}

/// What frontends and commands rely on, whatever the kind.
fn conforms(attached: &Arc<dyn Attached>, point: &Path) {
    let point = check_point(point, true).unwrap();
    let options = MountOptions::new("a-test:/volume");
    let mount = Mount::new(Arc::clone(attached), &point, &options, atoll_fuse::Config::default()).unwrap();
    std::fs::create_dir_all(point.join("dir/below")).unwrap();
    std::fs::write(point.join("dir/file"), b"content").unwrap();
    assert_eq!(std::fs::read(point.join("dir/file")).unwrap(), b"content");

    // The mount's process tells how the volume is, and takes no orders.
    let config = attached.config();
    let status = mount.status()();
    assert_eq!((&status.volume, status.kind), (&config.name, config.kind));
    assert_eq!(Path::new(&status.point), point);
    let names: Vec<&str> = status.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert!(names.iter().all(|name| names.iter().filter(|other| *other == name).count() == 1), "{names:?}");
    assert!(attached.status().metrics.iter().all(|metric| names.contains(&metric.name.as_str())));
    let socket = mount_socket(&point).unwrap();
    let ask = |order| try_ask(&socket.address, order, QUESTION).unwrap();
    let ControlReply::Status { mounts, .. } = ask(Control::Status) else { panic!("a status") };
    assert_eq!((mounts.len(), mounts[0].kind), (1, config.kind));
    let ControlReply::Volume { config: told, from, .. } = ask(Control::Volume { name: String::new() }) else {
        panic!("a volume")
    };
    assert_eq!((&*told, from.len()), (&*config, attached.status().nodes.len()));
    assert!(matches!(ask(Control::Activate { volume: config.id }), ControlReply::Refused { .. }));

    // What is explained is what the mount shows.
    let path = |text: &str| VolumePath::parse(text.as_bytes()).unwrap();
    for (text, kind) in [("/", "directory"), ("/dir", "directory"), ("/dir/file", "regular")] {
        let explained = attached.explain(&path(text), &point).unwrap();
        let shown = std::fs::metadata(point.join(&text[1..])).unwrap();
        assert_eq!(explained.json["id"], shown.ino(), "{text}");
        assert_eq!(explained.json["kind"], kind, "{text}");
        assert!(!explained.rows.is_empty());
    }
    assert!(attached.explain(&path("/dir/none"), &point).is_err());
    assert!(attached.explain(&path("/dir/file/below"), &point).is_err());

    // A listing is whole, or it is refused.
    match attached.list(path("/dir"), &point) {
        Ok(listed) => {
            let mut names: Vec<_> = listed.iter().map(|row| String::from_utf8_lossy(&row.path)).collect();
            names.sort();
            assert_eq!(names, ["", "below", "file"]);
        }
        Err(why) => assert!(why.to_string().contains(&config.kind.to_string()), "{why}"),
    }
    mount.end();
    assert!(std::fs::read_dir(&point).unwrap().next().is_none(), "it is unmounted");
}

#[test]
fn a_kind_that_is_not_cluster_is_mounted_and_asked_like_any_other() {
    needs!(Mounts);
    let dir = tempfile::tempdir().unwrap();
    let volume = InMemory::new();
    conforms(&(Arc::clone(&volume) as _), &dir.path().join("point"));
    assert_eq!(volume.stopped.load(SeqCst), 1, "the end of the mount is the end of the use, once");
}

#[test]
fn cluster_volumes_conform() {
    needs!(Mounts);
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::take(&dir.path().join("data")).unwrap();
    daemon.make_volume("main", 2, String::new()).unwrap();
    let served = daemon.node.volume("main").unwrap();
    let (config, address) = (VolumeConfig::clone(&served.config()), "unix:/nowhere".to_owned());
    let volume = Reached { config, here: Some(Here { served, address }), others: Vec::new(), root: None };
    let attached = attach(volume, Manner { mount: true, keeps: true, patience_ms: Some(1_000) }).unwrap();
    conforms(&attached, &dir.path().join("point"));
    drop(attached);
    daemon.stop().unwrap();
}

#[test]
fn wide_volumes_conform() {
    needs!(Mounts);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut daemon = Daemon::take(&data).unwrap();
    daemon.listen(None).unwrap();
    let wish = SiteWish { name: Some("here".to_owned()), ..SiteWish::default() };
    create(&data, "docs", &wish).unwrap();
    let served = daemon.node.volume("docs").unwrap();
    let (config, address) = (VolumeConfig::clone(&served.config()), "unix:/nowhere".to_owned());
    let volume = Reached { config, here: Some(Here { served, address }), others: Vec::new(), root: None };
    let attached = attach(volume, Manner { mount: true, keeps: true, patience_ms: Some(1_000) }).unwrap();
    conforms(&attached, &dir.path().join("point"));
    drop(attached);
    daemon.stop().unwrap();
}

#[test]
fn a_mount_of_a_kind_that_this_program_cannot_open_says_so_to_commands() {
    needs!(Mounts);
    let dir = tempfile::tempdir().unwrap();
    let point = check_point(&dir.path().join("point"), true).unwrap();
    let options = MountOptions::new("a-test:/volume");
    let mount = Mount::new(InMemory::new(), &point, &options, atoll_fuse::Config::default()).unwrap();
    std::fs::write(point.join("file"), b"content").unwrap();
    let why = explain(&point.join("file")).err().unwrap_or_else(|| anyhow!("it was explained")).to_string();
    assert!(why.contains("number 250") && why.contains(env!("CARGO_PKG_VERSION")), "{why}");
    mount.end();
}
