//! The control store of one machine: the file `control.redb` in its data directory.
//!
//! Every change is one transaction, which is synced before it is answered. Only one process has the file
//! open. The lock of the data directory ensures that first, and with better error messages.

use std::fs::{File, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use atoll_core::{Encode, VolumeId};
use atoll_proto::{BadConfig, VolumeConfig};
use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::store::{ControlError, ControlStore, VolumeRef, check_config};

/// Format of the file's content. Read here: 1.
const FORMAT: u64 = 1;

/// Permission bits of the file.
const MODE: u32 = 0o600;

/// Memory for pages; the content is a few kilobytes.
const CACHE_BYTES: usize = 1024 * 1024;

/// Name -> id, so that names are unique and sorted.
const NAMES: TableDefinition<'_, &str, u64> = TableDefinition::new("names");
/// Id -> encoded `VolumeConfig`.
const VOLUMES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("volumes");
/// Facts about the file: `format`.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// A control store in a file.
pub struct EmbeddedStore {
    db: Database,
    place: String,
}

impl EmbeddedStore {
    /// Name of the file in a data directory.
    pub const FILE: &str = "control.redb";

    /// Opens the file, making it if there is none. The directory must be there and be locked.
    pub fn open(path: &Path) -> Result<Self, ControlError> {
        let place = path.display().to_string();
        let file = own_file(path).map_err(|e| failed(&place, redb::Error::Io(e)))?;
        // A check of the whole file costs nothing at this size, and a file that was damaged from
        // outside is refused rather than trusted.
        let db = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .set_check_integrity_on_open(true)
            .create_with_backend(FileBackend::new(file).map_err(|e| failed(&place, e))?)
            .map_err(|e| failed(&place, e))?;
        let store = Self { db, place };
        store.initialise()?;
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
            Some(theirs) => Err(ControlError::Newer { place: self.place.clone(), ours: FORMAT, theirs }),
            None => self.write(|tx| {
                tx.open_table(META)?.insert("format", FORMAT)?;
                tx.open_table(NAMES)?;
                tx.open_table(VOLUMES)?;
                Ok(Ok(()))
            }),
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
            Ok(Ok(()))
        })
    }
}

impl EmbeddedStore {
    fn dangling(&self, id: u64) -> ControlError {
        let why = format!("a name stands for volume {id:016x}, which is not there");
        ControlError::Damaged { place: self.place.clone(), why }
    }
}
