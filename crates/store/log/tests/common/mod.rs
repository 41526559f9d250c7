//! A small log, and what its owner does with it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;

use atoll_disk::Disk;
use atoll_disk::sim::SimDisk;
use atoll_log::{Config, Identity, Log, Position};

pub(crate) const IDENTITY: Identity = Identity { volume: 0x1122_3344_5566_7788, island: 9 };
pub(crate) const CONFIG: Config = Config {
    segment_bytes: 4096,
    record_bytes_max: 2000,
    buffer_bytes_max: 12 << 10,
    keep_bytes: 0,
    boot: 0,
};
pub(crate) const START: Position = Position { epoch: 0, seq: 0 };

pub(crate) fn create<D: Disk>(disk: &Arc<D>) -> Log<D> {
    Log::create(Arc::clone(disk), b"log", CONFIG, IDENTITY, START).unwrap()
}

pub(crate) fn sim() -> Arc<SimDisk> {
    Arc::new(SimDisk::new(1))
}

pub(crate) fn write<D: Disk>(log: &mut Log<D>) {
    while let Some(batch) = log.take_batch().unwrap() {
        log.written(batch.perform()).unwrap();
    }
}

pub(crate) fn sync<D: Disk>(log: &mut Log<D>) {
    write(log);
    while let Some(sync) = log.take_sync().unwrap() {
        log.synced(sync.perform()).unwrap();
    }
}

pub(crate) fn put<D: Disk>(log: &mut Log<D>, payload: &[u8]) -> Position {
    log.append(1, &[payload]).unwrap()
}
