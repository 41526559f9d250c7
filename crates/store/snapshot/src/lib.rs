//! Rows by key on a disk, changed by whole durable transactions. Knows no row's meaning.
//!
//! A `redb` database in one file of a [`Disk`]. Reads run at any time on any
//! thread, against the last commit. Each value is stored behind a checksum of key and value, so a
//! damaged row is told and never handed out. A commit also saves what a restart needs, so that
//! opening after a crash takes no walk through all rows.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod backend;
mod contain;
mod error;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use atoll_disk::Disk;
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};

use backend::Backend;
use contain::contained;
pub use contain::is_contained;
pub use error::SnapshotError;

/// The layout of rows that this code writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Bytes in front of a value: CRC-32C of key and value, little-endian.
const SUM_BYTES: usize = 4;

/// Name of the file while a snapshot is made: the path and this.
const NEW_SUFFIX: &[u8] = b".new";

const ROWS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("rows");
const ABOUT: TableDefinition<'static, &str, u32> = TableDefinition::new("about");
const VERSION: &str = "version";

type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// An open snapshot. One process opens a file at a time.
pub struct Snapshot {
    rows: RwLock<Option<Arc<Rows>>>,
    /// There until it is dropped.
    db: Option<Database>,
    writing: Mutex<()>,
    failed: OnceLock<SnapshotError>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("failed", &self.failed.get()).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Opens the snapshot at `path`, or makes an empty one, which is durable when this returns.
    /// About `cache_bytes` of it are kept in memory.
    pub fn open<D: Disk>(disk: &D, path: &[u8], cache_bytes: usize) -> Result<Self, SnapshotError> {
        contained(|| Self::try_open(disk, path, cache_bytes))
            .unwrap_or_else(|panic| Err(SnapshotError::damaged(panic)))
    }

    fn try_open<D: Disk>(disk: &D, path: &[u8], cache_bytes: usize) -> Result<Self, SnapshotError> {
        let db = match Backend::open(disk, path) {
            Ok(backend) => Self::database(backend, cache_bytes)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Self::create(disk, path, cache_bytes)?;
                Self::database(Backend::open(disk, path)?, cache_bytes)?
            }
            Err(error) => return Err(error.into()),
        };
        let read = db.begin_read()?;
        let version = match read.open_table(ABOUT) {
            Ok(about) => about.get(VERSION)?.map(|v| v.value()),
            Err(error) => return Err(SnapshotError::damaged(error)),
        };
        match version {
            Some(FORMAT_VERSION) => {}
            Some(found) => return Err(SnapshotError::Version { found, known: FORMAT_VERSION }),
            None => return Err(SnapshotError::damaged("no version")),
        }
        let rows = read.open_table(ROWS).map_err(SnapshotError::damaged)?;
        Ok(Self {
            rows: RwLock::new(Some(Arc::new(rows))),
            db: Some(db),
            writing: Mutex::new(()),
            failed: OnceLock::new(),
        })
    }

    /// Makes an empty snapshot. It gets its name when it is whole: a database that was cut off in
    /// the making cannot be told from a damaged one.
    fn create<D: Disk>(disk: &D, path: &[u8], cache_bytes: usize) -> Result<(), SnapshotError> {
        let new = [path, NEW_SUFFIX].concat();
        match disk.unlink(&new) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let db = Self::database(Backend::create(disk, &new)?, cache_bytes)?;
        let write = db.begin_write().map_err(SnapshotError::from)?;
        write.open_table(ROWS).map_err(SnapshotError::damaged)?;
        write.open_table(ABOUT).map_err(SnapshotError::damaged)?.insert(VERSION, FORMAT_VERSION)?;
        write.commit()?;
        drop(db);
        disk.rename(&new, path, false)?;
        let dir = path.iter().rposition(|b| *b == b'/').map_or(&b""[..], |at| &path[..at]);
        disk.sync_dir(dir)?;
        Ok(())
    }

    fn database<F: atoll_disk::DiskFile>(
        backend: Backend<F>,
        cache_bytes: usize,
    ) -> Result<Database, SnapshotError> {
        Ok(Database::builder().set_cache_size(cache_bytes).create_with_backend(backend)?)
    }

    /// The value of `key` in the last commit.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, SnapshotError> {
        let rows = self.rows()?;
        self.contained(move || {
            let value = rows.get(key).map_err(|e| self.fail(e.into()))?;
            value.map(|v| checked(key, v.value())).transpose()
        })
    }

    /// What panics inside has failed like what returns an error.
    fn contained<R>(&self, work: impl FnOnce() -> Result<R, SnapshotError>) -> Result<R, SnapshotError> {
        contained(work).unwrap_or_else(|panic| Err(self.fail(SnapshotError::damaged(panic))))
    }

    /// Rows with `from <= key < to_excl` in the order of their keys, at most `limit`.
    pub fn range(&self, from: &[u8], to_excl: &[u8], limit: usize) -> Result<Vec<Row>, SnapshotError> {
        if from >= to_excl {
            return Ok(Vec::new());
        }
        let rows = self.rows()?;
        self.contained(move || {
            let mut out = Vec::new();
            for row in rows.range(from..to_excl).map_err(|e| self.fail(e.into()))?.take(limit) {
                let (key, value) = row.map_err(|e| self.fail(e.into()))?;
                out.push((key.value().to_vec(), checked(key.value(), value.value())?));
            }
            Ok(out)
        })
    }

    /// True after the first error: only opening the file again helps.
    pub fn has_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    /// How many rows there are.
    pub fn len(&self) -> Result<u64, SnapshotError> {
        let rows = self.rows()?;
        self.contained(move || redb::ReadableTableMetadata::len(&*rows).map_err(|e| self.fail(e.into())))
    }

    /// True without any row.
    pub fn is_empty(&self) -> Result<bool, SnapshotError> {
        Ok(self.len()? == 0)
    }

    /// Sets (`Some`) and removes (`None`) rows in one transaction: all are there for readers and
    /// survive a power cut when this returns, or none is. One commit runs at a time. After an error
    /// that transaction may have happened or not; only opening the file again tells.
    pub fn commit<K, V>(&self, rows: impl IntoIterator<Item = (K, Option<V>)>) -> Result<(), SnapshotError>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let _one = lock(&self.writing);
        self.check()?;
        self.contained(|| self.try_commit(rows).map_err(|e| self.fail(e)))
    }

    fn try_commit<K, V>(&self, rows: impl IntoIterator<Item = (K, Option<V>)>) -> Result<(), SnapshotError>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut write = self.db().begin_write()?;
        write.set_durability(Durability::Immediate).map_err(SnapshotError::damaged)?;
        write.set_quick_repair(true);
        {
            let mut table = write.open_table(ROWS).map_err(SnapshotError::damaged)?;
            let mut stored = Vec::new();
            for (key, value) in rows {
                let key = key.as_ref();
                match value {
                    None => drop(table.remove(key)?),
                    Some(value) => {
                        let value = value.as_ref();
                        stored.clear();
                        stored.extend_from_slice(&sum(key, value).to_le_bytes());
                        stored.extend_from_slice(value);
                        table.insert(key, &stored[..])?;
                    }
                }
            }
        }
        write.commit()?;
        self.renew()
    }

    /// Walks all pages and compares their checksums. True if nothing was wrong; false if it was and
    /// has been put right as far as possible, which may have lost rows.
    pub fn verify(&mut self) -> Result<bool, SnapshotError> {
        self.check()?;
        *self.rows.write().unwrap_or_else(PoisonError::into_inner) = None;
        let db = self.db.as_mut().expect("there until it is dropped");
        let sound = contained(|| db.check_integrity().map_err(SnapshotError::from))
            .unwrap_or_else(|panic| Err(SnapshotError::damaged(panic)))
            .map_err(|e| self.fail(e))?;
        self.contained(|| self.renew().map_err(|e| self.fail(e)))?;
        Ok(sound)
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("there until it is dropped")
    }

    fn renew(&self) -> Result<(), SnapshotError> {
        let rows = self.db().begin_read()?.open_table(ROWS).map_err(SnapshotError::damaged)?;
        *self.rows.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(rows));
        Ok(())
    }

    fn rows(&self) -> Result<Arc<Rows>, SnapshotError> {
        self.check()?;
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        rows.clone().ok_or_else(|| SnapshotError::damaged("verification failed"))
    }

    fn check(&self) -> Result<(), SnapshotError> {
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Remembers the first error: after it, nothing here may be believed any more.
    fn fail(&self, error: SnapshotError) -> SnapshotError {
        self.failed.get_or_init(|| error).clone()
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // The database last: it cannot close while somebody reads. What fails now is found at the next
        // opening.
        let (rows, db) = (self.rows.get_mut().map(Option::take), self.db.take());
        let _ = contained(|| {
            drop(rows);
            drop(db);
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked with it left nothing half done: the transaction it had was dropped.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sum(key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), value)
}

fn checked(key: &[u8], stored: &[u8]) -> Result<Vec<u8>, SnapshotError> {
    let row = || SnapshotError::damaged(format!("row {}", key.escape_ascii()));
    let (want, value) = stored.split_at_checked(SUM_BYTES).ok_or_else(row)?;
    if want != sum(key, value).to_le_bytes() {
        return Err(row());
    }
    Ok(value.to_vec())
}
