//! The control store of one machine: the file `control.redb` in its data directory.
//!
//! Every change is one transaction, which is synced before it is answered. Only one process has the file
//! open. The lock of the data directory ensures that first, and with better error messages.

use std::fs::{File, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use atoll_core::{Decode, Encode, IslandId, VolumeId};
use atoll_proto::cluster::{Cluster, StoredCluster};
use atoll_proto::group::{ChangedGroups, GroupRecord, Revision, StoredGroup, Swapped};
use atoll_proto::{BadConfig, VolumeConfig};
use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::cluster::ClusterStore;
use crate::groups::{GroupStore, WATCH_MAX};
use crate::store::{ConfigStore, ControlError, ControlStore, VolumeRef, check_config, swapped};

/// Format of the file's content.
const FORMAT: u64 = 3;
/// Those before it, which are read too: they have no list of a cluster, and the first one has no groups.
const FORMATS_BEFORE: std::ops::Range<u64> = 1..FORMAT;

/// Permission bits of the file.
const MODE: u32 = 0o600;

/// How long is waited for whoever has the file open without the lock of the data directory: a thread of a daemon that has
/// stopped may drop the store a moment later.
const CLOSED_MAX: Duration = Duration::from_secs(2);
/// How often is looked meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Memory for pages; the content is a few kilobytes.
const CACHE_BYTES: usize = 1024 * 1024;

/// Name -> id, so that names are unique and sorted.
const NAMES: TableDefinition<'_, &str, u64> = TableDefinition::new("names");
/// Id -> encoded `VolumeConfig`.
const VOLUMES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("volumes");
/// Volume and island -> [`Revision`] and [`GroupRecord`], encoded.
const GROUPS: TableDefinition<'_, (u64, u16), &[u8]> = TableDefinition::new("groups");
/// The cluster's list: 0 -> encoded [`StoredCluster`].
const CLUSTER: TableDefinition<'_, u8, &[u8]> = TableDefinition::new("cluster");
/// Facts about the file: `format`; `revision`, that of the last change of a group.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// A control store in a file.
pub struct EmbeddedStore {
    db: Database,
    place: String,
    /// The revision of the last change of a group, for those who wait for one.
    last: Mutex<Revision>,
    changed: Condvar,
}

impl EmbeddedStore {
    /// Name of the file in a data directory.
    pub const FILE: &str = "control.redb";

    /// Opens the file, making it if there is none. The directory must be there and be locked.
    pub fn open(path: &Path) -> Result<Self, ControlError> {
        let place = path.display().to_string();
        let db = locked(path).map_err(|e| failed(&place, e))?;
        let mut store = Self { db, place, last: Mutex::default(), changed: Condvar::new() };
        store.initialise()?;
        let tx = store.db.begin_read().map_err(|e| store.failed(e))?;
        let last = store.revision(&tx)?;
        store.last = Mutex::new(last);
        Ok(store)
    }

    fn initialise(&self) -> Result<(), ControlError> {
        let read = self.db.begin_read().map_err(|e| self.failed(e))?;
        let found = match read.open_table(META) {
            Ok(meta) => meta.get("format").map_err(|e| self.failed(e))?.map(|v| v.value()),
            Err(redb::TableError::TableDoesNotExist(_)) => None,
            Err(e) => return Err(self.failed(e)),
        };
        match found {
            Some(FORMAT) => Ok(()),
            found if found.is_none_or(|found| FORMATS_BEFORE.contains(&found)) => self.write(|tx| {
                tx.open_table(META)?.insert("format", FORMAT)?;
                tx.open_table(NAMES)?;
                tx.open_table(VOLUMES)?;
                tx.open_table(GROUPS)?;
                tx.open_table(CLUSTER)?;
                Ok(Ok(()))
            }),
            theirs => {
                let theirs = theirs.unwrap_or_default();
                Err(ControlError::Newer { place: self.place.clone(), ours: FORMAT, theirs })
            }
        }
    }

    fn failed(&self, e: impl Into<redb::Error>) -> ControlError {
        failed(&self.place, e)
    }

    fn decode(&self, bytes: &[u8]) -> Result<VolumeConfig, ControlError> {
        VolumeConfig::from_stored(bytes).map_err(|why| match why {
            BadConfig::Newer { volume } => ControlError::NewerVolume { place: self.place.clone(), volume },
            BadConfig::Malformed(why) => {
                ControlError::Damaged { place: self.place.clone(), why: why.to_string() }
            }
        })
    }

    /// Runs one transaction: it is made durable if the inner result is good, and else undone.
    fn write<T>(
        &self,
        change: impl FnOnce(&redb::WriteTransaction) -> Result<Result<T, ControlError>, redb::Error>,
    ) -> Result<T, ControlError> {
        let tx = self.db.begin_write().map_err(|e| self.failed(e))?;
        let value = match change(&tx).map_err(|e| self.failed(e))? {
            Ok(value) => value,
            Err(refused) => {
                tx.abort().map_err(|e| self.failed(e))?;
                return Err(refused);
            }
        };
        tx.commit().map_err(|e| self.failed(e))?;
        Ok(value)
    }
}

/// The database in the file, which is locked from here on.
fn locked(path: &Path) -> Result<Database, redb::Error> {
    let until = Instant::now() + CLOSED_MAX;
    loop {
        let mut how = Database::builder();
        // A check of the whole file costs nothing at this size, and a file that was damaged from
        // outside is refused rather than trusted.
        how.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
        match how.create_with_backend(FileBackend::new(own_file(path)?)?) {
            Err(redb::DatabaseError::DatabaseAlreadyOpen) if Instant::now() < until => {
                std::thread::sleep(LOOK_AGAIN);
            }
            opened => return Ok(opened?),
        }
    }
}

/// The file, made if there is none. Only the daemon's user may open it.
fn own_file(path: &Path) -> std::io::Result<File> {
    let mut how = File::options();
    let file = how.read(true).write(true).create(true).truncate(false).mode(MODE).open(path)?;
    if file.metadata()?.permissions().mode() & 0o777 != MODE {
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    Ok(file)
}

fn failed(place: &str, e: impl Into<redb::Error>) -> ControlError {
    let place = place.to_owned();
    match e.into() {
        redb::Error::Corrupted(why) => ControlError::Damaged { place, why },
        e @ (redb::Error::TableTypeMismatch { .. } | redb::Error::UpgradeRequired(_)) => {
            ControlError::Damaged { place, why: e.to_string() }
        }
        redb::Error::Io(e) if e.kind() == std::io::ErrorKind::InvalidData => {
            ControlError::Damaged { place, why: "it is no control store".to_owned() }
        }
        redb::Error::DatabaseAlreadyOpen => {
            ControlError::Unavailable { place, why: "another process has it open".to_owned() }
        }
        e => ControlError::Unavailable { place, why: e.to_string() },
    }
}

impl ControlStore for EmbeddedStore {
    fn volumes(&self) -> Result<Vec<VolumeConfig>, ControlError> {
        let tx = self.db.begin_read().map_err(|e| self.failed(e))?;
        let names = tx.open_table(NAMES).map_err(|e| self.failed(e))?;
        let volumes = tx.open_table(VOLUMES).map_err(|e| self.failed(e))?;
        let mut all = Vec::new();
        for row in names.iter().map_err(|e| self.failed(e))? {
            let (_, id) = row.map_err(|e| self.failed(e))?;
            let config = volumes.get(id.value()).map_err(|e| self.failed(e))?;
            let config = config.ok_or_else(|| self.dangling(id.value()))?;
            all.push(self.decode(config.value())?);
        }
        Ok(all)
    }

    fn volume(&self, volume: &VolumeRef) -> Result<VolumeConfig, ControlError> {
        let not_found = || ControlError::NotFound { volume: volume.clone() };
        let tx = self.db.begin_read().map_err(|e| self.failed(e))?;
        let id = match volume {
            VolumeRef::Id(id) => id.0,
            VolumeRef::Name(name) => {
                let names = tx.open_table(NAMES).map_err(|e| self.failed(e))?;
                let id = names.get(name.as_str()).map_err(|e| self.failed(e))?;
                id.ok_or_else(not_found)?.value()
            }
        };
        let volumes = tx.open_table(VOLUMES).map_err(|e| self.failed(e))?;
        let config = volumes.get(id).map_err(|e| self.failed(e))?.ok_or_else(not_found)?;
        self.decode(config.value())
    }

    fn create_volume(&self, config: &VolumeConfig) -> Result<(), ControlError> {
        check_config(config)?;
        self.write(|tx| {
            let (mut names, mut volumes) = (tx.open_table(NAMES)?, tx.open_table(VOLUMES)?);
            if names.get(config.name.as_str())?.is_some() {
                return Ok(Err(ControlError::Taken { volume: config.name.as_str().into() }));
            }
            if volumes.get(config.id.0)?.is_some() {
                return Ok(Err(ControlError::Taken { volume: config.id.into() }));
            }
            names.insert(config.name.as_str(), config.id.0)?;
            volumes.insert(config.id.0, config.to_vec().as_slice())?;
            Ok(Ok(()))
        })
    }

    fn replace_volume(&self, config: &VolumeConfig, expected: u64) -> Result<(), ControlError> {
        check_config(config)?;
        if config.table.version() <= expected {
            let why = format!("version {} does not follow {expected}", config.table.version());
            return Err(ControlError::Invalid { volume: config.name.as_str().into(), why });
        }
        self.write(|tx| {
            let (mut names, mut volumes) = (tx.open_table(NAMES)?, tx.open_table(VOLUMES)?);
            let old = match volumes.get(config.id.0)?.map(|bytes| self.decode(bytes.value())) {
                None => return Ok(Err(ControlError::NotFound { volume: config.id.into() })),
                Some(Err(damaged)) => return Ok(Err(damaged)),
                Some(Ok(old)) => old,
            };
            let found = old.table.version();
            if found != expected {
                let volume = old.name.as_str().into();
                return Ok(Err(ControlError::Conflict { volume, expected, found }));
            }
            if old.name != config.name {
                if names.get(config.name.as_str())?.is_some() {
                    return Ok(Err(ControlError::Taken { volume: config.name.as_str().into() }));
                }
                names.remove(old.name.as_str())?;
                names.insert(config.name.as_str(), config.id.0)?;
            }
            volumes.insert(config.id.0, config.to_vec().as_slice())?;
            Ok(Ok(()))
        })
    }

    fn remove_volume(&self, id: VolumeId) -> Result<(), ControlError> {
        self.write(|tx| {
            let (mut names, mut volumes) = (tx.open_table(NAMES)?, tx.open_table(VOLUMES)?);
            let old = match volumes.remove(id.0)?.map(|bytes| self.decode(bytes.value())) {
                None => return Ok(Err(ControlError::NotFound { volume: id.into() })),
                Some(Err(damaged)) => return Ok(Err(damaged)),
                Some(Ok(old)) => old,
            };
            names.remove(old.name.as_str())?;
            tx.open_table(GROUPS)?.retain_in(of_volume(id), |_, _| false)?;
            Ok(Ok(()))
        })
    }

    fn create_groups(&self, id: VolumeId, first: &[(IslandId, GroupRecord)]) -> Result<(), ControlError> {
        let last = self.write(|tx| {
            let (mut groups, mut meta) = (tx.open_table(GROUPS)?, tx.open_table(META)?);
            if groups.range(of_volume(id))?.next().is_some() {
                return Ok(Err(ControlError::Taken { volume: id.into() }));
            }
            let mut last = meta.get("revision")?.map_or(0, |last| last.value());
            for (island, record) in first {
                assert_eq!(record.check(), Ok(()), "{record:?} is no group");
                last += 1;
                let row = (Revision(last), record.clone()).to_vec();
                groups.insert((id.0, island.0), row.as_slice())?;
            }
            meta.insert("revision", last)?;
            Ok(Ok(Revision(last)))
        })?;
        self.has_changed(last);
        Ok(())
    }

    fn discard_groups(&self, id: VolumeId) -> Result<(), ControlError> {
        self.write(|tx| {
            if tx.open_table(VOLUMES)?.get(id.0)?.is_none() {
                tx.open_table(GROUPS)?.retain_in(of_volume(id), |_, _| false)?;
            }
            Ok(Ok(()))
        })
    }

    fn note_cluster(&self, list: &StoredCluster) -> Result<(), ControlError> {
        self.write(|tx| {
            let mut table = tx.open_table(CLUSTER)?;
            let known = match table.get(0)?.map(|row| self.list(row.value())).transpose() {
                Ok(known) => known.map_or(Revision::NONE, |known| known.revision),
                Err(damaged) => return Ok(Err(damaged)),
            };
            if known < list.revision {
                table.insert(0, list.to_vec().as_slice())?;
            }
            Ok(Ok(()))
        })
    }
}

impl ConfigStore for EmbeddedStore {
    fn newest_config(&self, volume: VolumeId) -> Result<VolumeConfig, ControlError> {
        self.volume(&volume.into())
    }

    fn swap_config(&self, next: &VolumeConfig, expected: u64) -> Swapped {
        swapped(next, self.replace_volume(next, expected))
    }
}

/// The keys of all groups of a volume.
const fn of_volume(volume: VolumeId) -> std::ops::RangeInclusive<(u64, u16)> {
    (volume.0, 0)..=(volume.0, u16::MAX)
}

impl GroupStore for EmbeddedStore {
    fn group(&self, volume: VolumeId, island: IslandId) -> Result<Option<StoredGroup>, ControlError> {
        let tx = self.db.begin_read().map_err(|e| self.failed(e))?;
        let groups = tx.open_table(GROUPS).map_err(|e| self.failed(e))?;
        let row = groups.get((volume.0, island.0)).map_err(|e| self.failed(e))?;
        row.map(|row| self.stored(island, row.value())).transpose()
    }

    fn swap_group(
        &self,
        volume: VolumeId,
        island: IslandId,
        expected: Revision,
        next: &GroupRecord,
    ) -> Swapped {
        assert_eq!(next.check(), Ok(()), "{next:?} is no group");
        let key = (volume.0, island.0);
        let swapped = self.write(|tx| {
            let mut groups = tx.open_table(GROUPS)?;
            let found = match groups.get(key)?.map(|row| self.stored(island, row.value())).transpose() {
                Ok(found) => found.map_or(Revision::NONE, |found| found.revision),
                Err(damaged) => return Ok(Err(damaged)),
            };
            if found != expected {
                return Ok(Ok(None));
            }
            let mut meta = tx.open_table(META)?;
            let last = meta.get("revision")?.map_or(0, |last| last.value());
            let revision = Revision(last + 1);
            meta.insert("revision", revision.0)?;
            groups.insert(key, (revision, next.clone()).to_vec().as_slice())?;
            Ok(Ok(Some(revision)))
        });
        match swapped {
            Ok(Some(revision)) => {
                self.has_changed(revision);
                Swapped::Done { revision }
            }
            Ok(None) => Swapped::Conflict,
            // A commit that failed may be in the file.
            Err(why) => Swapped::Unknown { why: why.to_string() },
        }
    }

    fn groups(
        &self,
        volume: VolumeId,
        since: Revision,
        wait: Duration,
    ) -> Result<ChangedGroups, ControlError> {
        let until = Instant::now() + wait.min(WATCH_MAX);
        loop {
            let seen = *self.last.lock().expect("no panic while it is held");
            let changed = self.changed_since(volume, since)?;
            let left = until.saturating_duration_since(Instant::now());
            if !changed.groups.is_empty() || left.is_zero() {
                return Ok(changed);
            }
            let last = self.last.lock().expect("no panic while it is held");
            drop(self.changed.wait_timeout_while(last, left, |last| *last == seen));
        }
    }
}

impl ClusterStore for EmbeddedStore {
    fn cluster(&self) -> Result<Option<StoredCluster>, ControlError> {
        let tx = self.db.begin_read().map_err(|e| self.failed(e))?;
        let table = tx.open_table(CLUSTER).map_err(|e| self.failed(e))?;
        let row = table.get(0).map_err(|e| self.failed(e))?;
        row.map(|row| self.list(row.value())).transpose()
    }

    fn swap_cluster(&self, expected: Revision, next: &Cluster) -> Swapped {
        assert_eq!(next.check(), Ok(()), "{next:?} is no list of a cluster");
        let swapped = self.write(|tx| {
            let mut table = tx.open_table(CLUSTER)?;
            let found = match table.get(0)?.map(|row| self.list(row.value())).transpose() {
                Ok(found) => found.map_or(Revision::NONE, |found| found.revision),
                Err(damaged) => return Ok(Err(damaged)),
            };
            if found != expected {
                return Ok(Ok(None));
            }
            let revision = Revision(found.0 + 1);
            let row = StoredCluster { revision, cluster: next.clone() }.to_vec();
            table.insert(0, row.as_slice())?;
            Ok(Ok(Some(revision)))
        });
        match swapped {
            Ok(Some(revision)) => Swapped::Done { revision },
            Ok(None) => Swapped::Conflict,
            // A commit that failed may be in the file.
            Err(why) => Swapped::Unknown { why: why.to_string() },
        }
    }
}

impl EmbeddedStore {
    fn list(&self, row: &[u8]) -> Result<StoredCluster, ControlError> {
        let list = StoredCluster::from_slice(row);
        let list = list.and_then(|list| list.cluster.check().map(|()| list));
        list.map_err(|why| ControlError::Damaged { place: self.place.clone(), why: why.to_string() })
    }

    /// Tells those who wait for a change of a group.
    fn has_changed(&self, revision: Revision) {
        let mut last = self.last.lock().expect("no panic while it is held");
        *last = revision.max(*last);
        self.changed.notify_all();
    }

    fn revision(&self, tx: &redb::ReadTransaction) -> Result<Revision, ControlError> {
        let meta = tx.open_table(META).map_err(|e| self.failed(e))?;
        let last = meta.get("revision").map_err(|e| self.failed(e))?;
        Ok(last.map_or(Revision::NONE, |last| Revision(last.value())))
    }

    fn changed_since(&self, volume: VolumeId, since: Revision) -> Result<ChangedGroups, ControlError> {
        let tx = self.db.begin_read().map_err(|e| self.failed(e))?;
        let upto = self.revision(&tx)?;
        let mut changed = Vec::new();
        let groups = tx.open_table(GROUPS).map_err(|e| self.failed(e))?;
        for row in groups.range(of_volume(volume)).map_err(|e| self.failed(e))? {
            let (key, row) = row.map_err(|e| self.failed(e))?;
            let stored = self.stored(IslandId(key.value().1), row.value())?;
            changed.extend(Some(stored).filter(|stored| stored.revision > since));
        }
        Ok(ChangedGroups { upto, groups: changed })
    }

    fn stored(&self, island: IslandId, row: &[u8]) -> Result<StoredGroup, ControlError> {
        match <(Revision, GroupRecord)>::from_slice(row) {
            Ok((revision, record)) => Ok(StoredGroup { island, revision, record }),
            Err(why) => {
                let why = format!("the group of island {island}: {why}");
                Err(ControlError::Damaged { place: self.place.clone(), why })
            }
        }
    }

    fn dangling(&self, id: u64) -> ControlError {
        let why = format!("a name stands for volume {id:016x}, which is not there");
        ControlError::Damaged { place: self.place.clone(), why }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use atoll_proto::cluster::ClusterNode;

    use super::*;
    use crate::conformance;

    fn open(folder: &tempfile::TempDir) -> EmbeddedStore {
        EmbeddedStore::open(&folder.path().join(EmbeddedStore::FILE)).unwrap()
    }

    #[test]
    fn it_keeps_groups_as_every_store_does() {
        let mut folders = Vec::new();
        conformance::behaves(&mut || {
            folders.push(tempfile::tempdir().unwrap());
            Arc::new(open(folders.last().unwrap()))
        });
    }

    #[test]
    fn a_list_is_swapped_by_who_knows_it_and_outlives_a_process() {
        let folder = tempfile::tempdir().unwrap();
        let node = |daemon: u64| ClusterNode {
            daemon,
            name: format!("n{daemon}"),
            address: "a:1".to_owned(),
            joined: 5,
            key: bytes::Bytes::new(),
            has_ca_key: false,
        };
        let list = |nodes: u64| Cluster {
            id: 9,
            store: 1,
            nodes: (1..=nodes).map(node).collect(),
            ..Cluster::default()
        };
        let store = open(&folder);
        assert_eq!(store.cluster().unwrap(), None);
        assert_eq!(store.swap_cluster(Revision::NONE, &list(1)), Swapped::Done { revision: Revision(1) });
        assert_eq!(store.swap_cluster(Revision::NONE, &list(2)), Swapped::Conflict);
        assert_eq!(store.swap_cluster(Revision(1), &list(2)), Swapped::Done { revision: Revision(2) });
        drop(store);
        let store = open(&folder);
        assert_eq!(store.cluster().unwrap(), Some(StoredCluster { revision: Revision(2), cluster: list(2) }));
        store.note_cluster(&StoredCluster { revision: Revision(2), cluster: list(5) }).unwrap();
        assert_eq!(store.cluster().unwrap().unwrap().cluster, list(2), "of the same revision");
        store.note_cluster(&StoredCluster { revision: Revision(7), cluster: list(5) }).unwrap();
        assert_eq!(store.cluster().unwrap().unwrap().revision, Revision(7));
    }

    #[test]
    fn groups_and_revisions_outlive_a_process() {
        let folder = tempfile::tempdir().unwrap();
        let (volume, island) = (VolumeId(7), IslandId(3));
        let swap = |store: &EmbeddedStore, expected, epoch| {
            store.swap_group(volume, island, expected, &conformance::record(epoch))
        };
        let store = open(&folder);
        assert_eq!(swap(&store, Revision::NONE, 1), Swapped::Done { revision: Revision(1) });
        drop(store);
        let store = open(&folder);
        assert_eq!(store.group(volume, island).unwrap().unwrap().record, conformance::record(1));
        assert_eq!(store.groups(volume, Revision(1), Duration::ZERO).unwrap().upto, Revision(1));
        assert_eq!(swap(&store, Revision(1), 2), Swapped::Done { revision: Revision(2) });
    }

    #[test]
    fn a_store_of_before_there_were_groups_is_read_and_gets_them() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(&folder));
        let file = folder.path().join(EmbeddedStore::FILE);
        let db = Database::open(&file).unwrap();
        let tx = db.begin_write().unwrap();
        assert!(tx.delete_table(GROUPS).unwrap());
        tx.open_table(META).unwrap().insert("format", 1).unwrap();
        tx.commit().unwrap();
        drop(db);
        let store = open(&folder);
        let (volume, island) = (VolumeId(7), IslandId(3));
        assert_eq!(store.group(volume, island).unwrap(), None);
        let done = Swapped::Done { revision: Revision(1) };
        assert_eq!(store.swap_group(volume, island, Revision::NONE, &conformance::record(1)), done);
        drop(store);
        let db = Database::open(&file).unwrap();
        let tx = db.begin_read().unwrap();
        assert_eq!(tx.open_table(META).unwrap().get("format").unwrap().unwrap().value(), FORMAT);
    }

    #[test]
    fn a_group_that_cannot_be_read_is_damage_and_not_absence() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let (volume, island) = (VolumeId(7), IslandId(3));
        let good = (Revision(1), conformance::record(1)).to_vec();
        let row = &good[..good.len() - 1];
        store
            .write(|tx| {
                tx.open_table(GROUPS)?.insert((volume.0, island.0), row)?;
                Ok(Ok(()))
            })
            .unwrap();
        assert!(matches!(store.group(volume, island), Err(ControlError::Damaged { .. })));
        assert!(matches!(
            store.groups(volume, Revision::NONE, Duration::ZERO),
            Err(ControlError::Damaged { .. })
        ));
        let swapped = store.swap_group(volume, island, Revision(1), &conformance::record(2));
        assert!(matches!(swapped, Swapped::Unknown { why } if why.contains("the group of island 3")));
    }

    fn config() -> VolumeConfig {
        VolumeConfig {
            id: VolumeId(7),
            name: "home".to_owned(),
            seed: 1,
            table: atoll_core::Table::new(1),
            nodes: vec![atoll_proto::NodeConfig {
                daemon: 0,
                node: atoll_core::NodeId(0),
                address: String::new(),
                islands: vec![IslandId(0)],
            }],
            kind: atoll_proto::VolumeKind::Cluster,
            copies: None,
            site: None,
        }
    }

    #[test]
    fn the_groups_of_a_volume_go_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        store.create_volume(&config()).unwrap();
        for volume in [VolumeId(7), VolumeId(8)] {
            for island in [IslandId(0), IslandId(u16::MAX)] {
                store.swap_group(volume, island, Revision::NONE, &conformance::record(1));
            }
        }
        store.remove_volume(VolumeId(7)).unwrap();
        let left = |volume| store.groups(volume, Revision::NONE, Duration::ZERO).unwrap().groups.len();
        assert_eq!([left(VolumeId(7)), left(VolumeId(8))], [0, 2]);
    }

    #[test]
    fn the_first_groups_of_a_volume_are_put_in_once_and_go_if_it_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let (volume, other) = (VolumeId(7), VolumeId(8));
        store.swap_group(other, IslandId(0), Revision::NONE, &conformance::record(1));
        let first: Vec<_> = (0..3).map(|island| (IslandId(island), conformance::record(1))).collect();
        let groups = |volume| store.groups(volume, Revision::NONE, Duration::ZERO).unwrap().groups;
        store.create_groups(volume, &first).unwrap();
        let revisions: Vec<u64> = groups(volume).iter().map(|stored| stored.revision.0).collect();
        assert_eq!(
            revisions,
            [2, 3, 4],
            "each record has a revision of its own, behind those that there were"
        );
        let again = store.create_groups(volume, &first);
        assert!(matches!(again, Err(ControlError::Taken { .. })), "{again:?}");
        store.discard_groups(volume).unwrap();
        store.discard_groups(volume).unwrap();
        assert_eq!([groups(volume).len(), groups(other).len()], [0, 1]);
        // A watch sees what comes, and a volume that was made keeps its records.
        let watched = std::thread::scope(|scope| {
            let watch = scope.spawn(|| store.groups(volume, Revision(4), WATCH_MAX).unwrap());
            store.create_groups(volume, &first).unwrap();
            watch.join().unwrap()
        });
        assert_eq!(watched.groups.len(), 3);
        let swapped = store.swap_group(volume, IslandId(1), Revision(6), &conformance::record(2));
        assert_eq!(swapped, Swapped::Done { revision: Revision(8) });
        store.create_volume(&config()).unwrap();
        store.discard_groups(volume).unwrap();
        assert_eq!(groups(volume).len(), 3);
    }
}
