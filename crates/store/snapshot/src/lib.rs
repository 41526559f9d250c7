//! Rows by key on a disk, changed by whole durable transactions. Does not know what a row means.
//!
//! A snapshot is a `redb` database in one file of a [`Disk`]. Reads run at any time on any thread, against
//! the last commit. Each value is stored behind a checksum of key and value, so a damaged row is reported and
//! never returned. A commit also saves what a restart needs, so opening after a crash does not walk through
//! all rows.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod backend;
mod contain;
mod error;
mod pin;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use atoll_disk::Disk;
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};

use backend::Backend;
use contain::contained;
pub use contain::is_contained;
pub use error::SnapshotError;
pub use pin::Pin;

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
    /// Held by writers. It is there until the snapshot is dropped.
    db: Mutex<Option<Database>>,
    failed: OnceLock<SnapshotError>,
    /// Earlier commits that are read yet.
    pins: pin::Pins,
    path: Vec<u8>,
    cache_bytes: usize,
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
        let version = read.open_table(ABOUT)?.get(VERSION)?.map(|v| v.value());
        match version {
            Some(FORMAT_VERSION) => {}
            Some(found) => return Err(SnapshotError::Version { found, known: FORMAT_VERSION }),
            None => return Err(SnapshotError::damaged("no version")),
        }
        let rows = read.open_table(ROWS)?;
        Ok(Self {
            rows: RwLock::new(Some(Arc::new(rows))),
            db: Mutex::new(Some(db)),
            failed: OnceLock::new(),
            pins: pin::Pins::default(),
            path: path.to_vec(),
            cache_bytes,
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
        let made = Self::create_at(disk, &new, cache_bytes);
        if matches!(&made, Err(error) if error.is_no_space()) {
            // It would take room from others until it is made again. If it cannot be removed, that is done then.
            let _ = disk.unlink(&new);
        }
        made?;
        disk.rename(&new, path, false)?;
        let dir = path.iter().rposition(|b| *b == b'/').map_or(&b""[..], |at| &path[..at]);
        disk.sync_dir(dir)?;
        Ok(())
    }

    fn create_at<D: Disk>(disk: &D, new: &[u8], cache_bytes: usize) -> Result<(), SnapshotError> {
        let db = Self::database(Backend::create(disk, new)?, cache_bytes)?;
        let write = db.begin_write().map_err(SnapshotError::from)?;
        write.open_table(ROWS)?;
        write.open_table(ABOUT)?.insert(VERSION, FORMAT_VERSION)?;
        write.commit()?;
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
        self.read(|rows| {
            let value = rows.get(key)?;
            Ok(value.map(|v| checked(key, v.value())).transpose())
        })
    }

    /// Reads the last commit. What `read` fails with is the storage's; what it gives may be a damaged row.
    fn read<R>(
        &self,
        read: impl Fn(&Rows) -> Result<Result<R, SnapshotError>, redb::StorageError>,
    ) -> Result<R, SnapshotError> {
        let rows = self.rows()?;
        if let Ok(Ok(done)) = contained(|| read(&rows)) {
            return done;
        }
        drop(rows);
        // A commit that finds no space takes the open file along: it is opened again before the next one.
        let _one = lock(&self.db);
        let rows = self.rows()?;
        self.contained(|| read(&rows).map_err(|e| self.fail(e.into()))?)
    }

    /// A panic inside counts as a failure, like an error.
    fn contained<R>(&self, work: impl FnOnce() -> Result<R, SnapshotError>) -> Result<R, SnapshotError> {
        contained(work).unwrap_or_else(|panic| Err(self.fail(SnapshotError::damaged(panic))))
    }

    /// Rows with `from <= key < to_excl` in the order of their keys, at most `limit`.
    pub fn range(&self, from: &[u8], to_excl: &[u8], limit: usize) -> Result<Vec<Row>, SnapshotError> {
        if from >= to_excl {
            return Ok(Vec::new());
        }
        self.read(|rows| {
            let mut out = Vec::new();
            for row in rows.range(from..to_excl)?.take(limit) {
                let (key, value) = row?;
                match checked(key.value(), value.value()) {
                    Ok(checked) => out.push((key.value().to_vec(), checked)),
                    Err(damaged) => return Ok(Err(damaged)),
                }
            }
            Ok(Ok(out))
        })
    }

    /// True after the first error: only opening the file again helps.
    pub fn has_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    /// How many rows there are.
    pub fn len(&self) -> Result<u64, SnapshotError> {
        self.read(|rows| redb::ReadableTableMetadata::len(rows).map(Ok))
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
        let db = lock(&self.db);
        self.check()?;
        self.contained(|| self.try_commit(open(&db), rows).map_err(|e| self.fail(e)))
    }

    /// As [`Snapshot::commit`], on the disk that it was opened on; false if there is no space for that. Then the
    /// transaction has not happened, or has, and the same rows may be committed again when there is.
    pub fn commit_if_space<D: Disk, K, V>(
        &self,
        disk: &D,
        rows: impl IntoIterator<Item = (K, Option<V>)>,
    ) -> Result<bool, SnapshotError>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut db = lock(&self.db);
        self.check()?;
        self.contained(|| match self.try_commit(open(&db), rows) {
            Err(error) if error.is_no_space() => {
                self.open_again(&mut db, disk).map_err(|e| self.fail(e))?;
                Ok(false)
            }
            done => done.map(|()| true).map_err(|e| self.fail(e)),
        })
    }

    /// The database believes nothing any more after the first error of its storage. So the file is opened as after
    /// a crash. Who reads from now on waits for that.
    fn open_again<D: Disk>(&self, db: &mut Option<Database>, disk: &D) -> Result<(), SnapshotError> {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        *rows = None;
        // The old database cannot close while somebody reads, and two of one file destroy it.
        self.pins.give_up();
        drop(db.take());
        let again = Self::database(Backend::open(disk, &self.path)?, self.cache_bytes)?;
        *rows = Some(Arc::new(again.begin_read()?.open_table(ROWS)?));
        *db = Some(again);
        Ok(())
    }

    fn try_commit<K, V>(
        &self,
        db: &Database,
        rows: impl IntoIterator<Item = (K, Option<V>)>,
    ) -> Result<(), SnapshotError>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut write = db.begin_write()?;
        write.set_durability(Durability::Immediate).map_err(SnapshotError::damaged)?;
        write.set_quick_repair(true);
        {
            let mut table = write.open_table(ROWS)?;
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
        self.renew(db)
    }

    /// Walks all pages and compares their checksums. True if nothing was wrong; false if it was and
    /// has been put right as far as possible, which may have lost rows.
    pub fn verify(&mut self) -> Result<bool, SnapshotError> {
        self.check()?;
        *self.rows.write().unwrap_or_else(PoisonError::into_inner) = None;
        let mut one = lock(&self.db);
        let db = one.as_mut().expect("there until it is dropped");
        let sound = contained(|| db.check_integrity().map_err(SnapshotError::from))
            .unwrap_or_else(|panic| Err(SnapshotError::damaged(panic)))
            .map_err(|e| self.fail(e))?;
        self.contained(|| self.renew(open(&one)).map_err(|e| self.fail(e)))?;
        Ok(sound)
    }

    /// Closes the file, when whoever writes has ended. Whoever reads or writes later gets an error.
    pub fn close(&self) {
        let mut db = lock(&self.db);
        self.fail(std::io::Error::other("it is closed").into());
        let rows = self.rows.write().unwrap_or_else(PoisonError::into_inner).take();
        let _ = contained(|| {
            // The database last: it cannot close while somebody reads.
            self.pins.give_up();
            drop(rows);
            drop(db.take());
        });
    }

    /// The last commit, to be read on when later ones have been made. It takes space: nothing of it is used again. It is given up
    /// when the file is closed, or opened again because there was no space.
    pub fn pin(&self) -> Result<Pin, SnapshotError> {
        // While it is held nobody opens the file again.
        let _one = lock(&self.db);
        Ok(self.pins.add(self.rows()?))
    }

    fn renew(&self, db: &Database) -> Result<(), SnapshotError> {
        let rows = db.begin_read()?.open_table(ROWS)?;
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
        let (rows, db) = (self.rows.get_mut().map(Option::take), self.db.get_mut().map(Option::take));
        let _ = contained(|| {
            self.pins.give_up();
            drop(rows);
            drop(db);
        });
    }
}

#[expect(
    clippy::expect_used,
    reason = "it is taken out when the snapshot is dropped, and for a moment by its holder"
)]
fn open(db: &Option<Database>) -> &Database {
    db.as_ref().expect("there until it is dropped")
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
