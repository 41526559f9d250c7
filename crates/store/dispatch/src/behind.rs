//! Carried bytes on their way into bodies. They stay in memory until a background thread, or the next use of
//! the body, puts them in place.
//!
//! Nothing is at risk, because the log has the bytes: a recovery puts them in place again. A file that is
//! removed in time never costs a native call. The writes of one body are never reordered.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use atoll_body::{Bodies, BodyError, Born};
use atoll_core::planted::{Bug, planted};
use atoll_core::{IdMap, Ino};
use atoll_disk::Disk;
use bytes::Bytes;

const SHARDS: usize = 64;
/// Bytes that may wait. If there are more, the thread that brings new ones first puts some in place.
const BYTES_MAX: u64 = 8 << 20;
/// Milliseconds that bytes wait at most while the background thread keeps up.
pub(crate) const AGE_MS: u64 = 300;
/// Memory that a write costs beside its bytes, in tables that are half empty.
const OVERHEAD_BYTES: u64 = 384;

/// One write that waits.
struct Write {
    offset: u64,
    data: Bytes,
    size: u64,
    born: Option<Born>,
}

impl Write {
    /// Its cost in memory.
    const fn bytes(&self) -> u64 {
        self.data.len() as u64 + OVERHEAD_BYTES
    }
}

#[derive(Default)]
struct Shard {
    waiting: IdMap<Ino, Vec<Write>>,
    /// Bodies in the order in which their first write came, with its time.
    order: VecDeque<(u64, Ino)>,
}

/// Writes that wait, of all bodies of an island.
pub(crate) struct Behind {
    shards: Vec<Mutex<Shard>>,
    bytes: AtomicU64,
}

impl Default for Behind {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), bytes: AtomicU64::new(0) }
    }
}

impl Behind {
    fn shard(&self, ino: Ino) -> MutexGuard<'_, Shard> {
        self.shards[ino.0 as usize % SHARDS].lock().expect("no panic while it is held")
    }

    /// Bytes that are not in place yet, with the memory that they cost.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Takes a write in. Callers that settle the body first see its bytes.
    pub(crate) fn put<D: Disk>(
        &self,
        bodies: &Bodies<D>,
        now_ms: u64,
        (ino, offset, data, size, born): (Ino, u64, Bytes, u64, Option<Born>),
    ) -> Result<(), BodyError> {
        let bytes = data.len() as u64 + OVERHEAD_BYTES;
        let mut shard = self.shard(ino);
        // Nearly all have one write, and a list grows to four at once.
        let writes = shard.waiting.entry(ino).or_insert_with(|| Vec::with_capacity(1));
        let first = writes.is_empty();
        writes.push(Write { offset, data, size, born });
        if first {
            shard.order.push_back((now_ms, ino));
        }
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > BYTES_MAX {
            // The background thread does not keep up: this one helps, with the oldest of this shard.
            while let Some((_, oldest)) = shard.order.pop_front() {
                if shard.waiting.contains_key(&oldest) {
                    let placed = self.place(bodies, &mut shard, oldest);
                    if placed.is_err() {
                        shard.order.push_front((now_ms, oldest));
                    }
                    // Without space they wait on: nothing that grows is let in meanwhile.
                    return placed.or_else(|error| if error.is_no_space() { Ok(()) } else { Err(error) });
                }
            }
        }
        Ok(())
    }

    /// Puts everything of a body in place, before it is used in another way.
    pub(crate) fn settle<D: Disk>(&self, bodies: &Bodies<D>, ino: Ino) -> Result<(), BodyError> {
        if self.bytes.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mut shard = self.shard(ino);
        self.place(bodies, &mut shard, ino)
    }

    /// Reads waiting bytes, if all of them came with one write. So reading bytes that were just written costs
    /// no native call.
    pub(crate) fn read(&self, ino: Ino, offset: u64, len: u32) -> Option<Bytes> {
        if self.bytes.load(Ordering::Acquire) == 0 {
            return None;
        }
        let end = offset + u64::from(len);
        let shard = self.shard(ino);
        let touches = |w: &&Write| w.offset < end && offset < w.offset + w.data.len() as u64;
        let last = shard.waiting.get(&ino)?.iter().rev().find(touches)?;
        let from = usize::try_from(offset.checked_sub(last.offset)?).ok()?;
        (from + len as usize <= last.data.len()).then(|| last.data.slice(from..from + len as usize))
    }

    /// Forgets the waiting writes of a body that is removed.
    pub(crate) fn discard(&self, ino: Ino) {
        let mut shard = self.shard(ino);
        if let Some(writes) = shard.waiting.remove(&ino) {
            self.count_out(&writes);
        }
    }

    /// Forgets waiting bytes beyond the new end of a body.
    pub(crate) fn cut(&self, ino: Ino, len: u64) {
        if self.bytes.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut shard = self.shard(ino);
        let Some(writes) = shard.waiting.get_mut(&ino) else { return };
        let cost = |writes: &[Write]| -> u64 { writes.iter().map(Write::bytes).sum() };
        let before = cost(writes);
        for write in writes.iter_mut() {
            let keeps = usize::try_from(len.saturating_sub(write.offset)).unwrap_or(usize::MAX);
            write.data.truncate(keeps);
        }
        writes.retain(|write| !write.data.is_empty());
        let after = cost(writes);
        if writes.is_empty() {
            shard.waiting.remove(&ino);
        }
        self.bytes.fetch_sub(before - after, Ordering::Release);
    }

    /// Puts writes in place that came before `before_ms`; with `u64::MAX` all of them.
    pub(crate) fn settle_older<D: Disk>(&self, bodies: &Bodies<D>, before_ms: u64) -> Result<(), BodyError> {
        if self.bytes.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mut done = Ok(());
        for shard in &self.shards {
            loop {
                // Let go of between two bodies, so that nobody waits for more than one.
                let mut shard = shard.lock().expect("no panic while it is held");
                match shard.order.front() {
                    Some((at, ino)) if *at < before_ms => {
                        let ino = *ino;
                        match self.place(bodies, &mut shard, ino) {
                            Ok(()) => shard.order.pop_front(),
                            // Others may need none.
                            Err(error) if error.is_no_space() => {
                                done = Err(error);
                                break;
                            }
                            Err(error) => return Err(error),
                        };
                    }
                    _ => break,
                }
            }
        }
        done
    }

    /// Puts all waiting writes of a body in place. The lock is held meanwhile, so the next reader of the body
    /// finds them done. If a write cannot be put in place, all of them go on waiting: nobody else has these
    /// bytes once a checkpoint has released the log.
    fn place<D: Disk>(&self, bodies: &Bodies<D>, shard: &mut Shard, ino: Ino) -> Result<(), BodyError> {
        let Some(writes) = shard.waiting.get(&ino) else { return Ok(()) };
        let put = |write: &Write| bodies.write(ino, write.offset, &write.data, write.size, write.born);
        let placed = writes.iter().try_for_each(put);
        if placed.is_err() && !planted(Bug::CarriedForgotten) {
            return placed;
        }
        let writes = shard.waiting.remove(&ino).expect("looked at above");
        // Only now: while the count is 0 nobody asks for the lock.
        self.count_out(&writes);
        placed
    }

    fn count_out(&self, writes: &[Write]) {
        let bytes = writes.iter().map(Write::bytes).sum();
        self.bytes.fetch_sub(bytes, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use atoll_disk::DiskFile;
    use atoll_disk::sim::SimDisk;

    use super::*;

    const INO: Ino = Ino(77);

    fn world() -> (Arc<SimDisk>, Bodies<SimDisk>, Behind) {
        let disk = Arc::new(SimDisk::new(1));
        let bodies = Bodies::open(Arc::clone(&disk), b"bodies", atoll_body::Options::default()).unwrap();
        (disk, bodies, Behind::default())
    }

    fn put(behind: &Behind, bodies: &Bodies<SimDisk>, offset: u64, bytes: &'static [u8]) {
        let write = (INO, offset, Bytes::from_static(bytes), offset, None);
        behind.put(bodies, 0, write).unwrap();
    }

    #[test]
    fn what_was_just_written_is_read_without_its_body() {
        let (_, bodies, behind) = world();
        put(&behind, &bodies, 0, b"0123456789");
        put(&behind, &bodies, 4, b"abcd");
        assert_eq!(behind.read(INO, 5, 3).unwrap(), &b"bcd"[..], "the later write has it");
        assert_eq!(behind.read(INO, 0, 4).unwrap(), &b"0123"[..]);
        assert!(bodies.file(INO).unwrap().is_none(), "a native file was made for it");
    }

    #[test]
    fn what_finds_no_space_waits_until_there_is_some() {
        let (disk, bodies, behind) = world();
        disk.set_space(Some(disk.used()));
        put(&behind, &bodies, 0, b"0123456789");
        put(&behind, &bodies, 10, b"abcd");
        for _ in 0..2 {
            assert!(behind.settle(&bodies, INO).unwrap_err().is_no_space());
            assert!(behind.settle_older(&bodies, u64::MAX).unwrap_err().is_no_space());
            assert_eq!(behind.read(INO, 10, 4).unwrap(), &b"abcd"[..]);
        }
        disk.set_space(None);
        behind.settle_older(&bodies, u64::MAX).unwrap();
        let mut bytes = [0; 14];
        bodies.file(INO).unwrap().unwrap().read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"0123456789abcd");
        assert_eq!(behind.read(INO, 0, 4), None, "they wait no longer");
    }

    #[test]
    fn bytes_of_several_writes_or_of_none_are_left_to_the_body() {
        let (_, bodies, behind) = world();
        put(&behind, &bodies, 0, b"0123456789");
        put(&behind, &bodies, 4, b"abcd");
        for (offset, len) in [(0, 5), (3, 2), (7, 2), (0, 10), (8, 3), (10, 1), (100, 1)] {
            assert_eq!(behind.read(INO, offset, len), None, "{len} bytes at {offset}");
        }
        assert_eq!(behind.read(Ino(78), 0, 1), None);
        behind.settle(&bodies, INO).unwrap();
        assert_eq!(behind.read(INO, 0, 4), None, "it has them now");
    }
}
