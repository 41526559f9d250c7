//! Keeps the file `seat` of a copy: two slots of a fixed size, written in turn ([`SeatFile::to_slot`] has their bytes).
//! Never decides what is in it.
//!
//! Invariant: the slot that counts was written and synced by whoever uses it now, and no write touches it before the other one
//! is synced. So after any death one of the two is whole.

use std::io;
use std::sync::Arc;

use atoll_disk::{Disk, DiskFile, OpenHow};
use atoll_group::{SLOT_BYTES, SeatError, SeatFile};

/// Permission bits.
const MODE: u32 = 0o600;
const SLOTS: u64 = 2;

/// See the module.
pub struct SeatStore<D: Disk> {
    disk: Arc<D>,
    path: Vec<u8>,
    /// None before the file was read.
    known: Option<Known<D::File>>,
}

/// Absent -> There.
enum Known<F> {
    Absent,
    There {
        file: F,
        /// Number of the write that counts. It is in the slot of this number modulo 2.
        number: u64,
    },
}

impl<D: Disk> SeatStore<D> {
    /// The file of this path on a disk. Touches nothing.
    pub const fn new(disk: Arc<D>, path: Vec<u8>) -> Self {
        Self { disk, path, known: None }
    }

    /// What was saved last, or none if nothing ever was. What it returns survives a power cut.
    ///
    /// `InvalidData` if both slots are damaged, or if one is of a later version of Atoll: then nothing was changed, and the copy must
    /// not be taken for a new one.
    pub fn load(&mut self) -> io::Result<Option<SeatFile>> {
        let file = match self.disk.open(&self.path, OpenHow::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.known = Some(Known::Absent);
                return Ok(None);
            }
            file => file?,
        };
        let read =
            |slot| {
                let mut bytes = [0; SLOT_BYTES];
                let n = file.read_full(&mut bytes, slot * SLOT_BYTES as u64)?;
                // A seat lies in the slot of its number, or something was copied there.
                let found = SeatFile::from_slot(&bytes[..n]);
                Ok::<_, io::Error>(found.and_then(|found| {
                    if found.0 % SLOTS == slot { Ok(found) } else { Err(SeatError::Foreign) }
                }))
            };
        let (first, second) = (read(0)?, read(1)?);
        let (number, seat) = match (first, second) {
            (Err(why @ SeatError::Unsupported(_)), _) | (_, Err(why @ SeatError::Unsupported(_))) => {
                return Err(self.damaged(&why.to_string()));
            }
            (Ok(first), Ok(second)) => {
                if first.0 > second.0 {
                    first
                } else {
                    second
                }
            }
            (Ok(only), Err(_)) | (Err(_), Ok(only)) => only,
            (Err(first), Err(second)) => {
                return Err(
                    self.damaged(&format!("of its two slots, one says: {first}; the other: {second}"))
                );
            }
        };
        // It may have been read from memory only, after a sync that failed. The other slot is written next, so this one must be
        // durable first.
        file.write_at(&seat.to_slot(number), number % SLOTS * SLOT_BYTES as u64)?;
        file.sync()?;
        self.disk.sync_dir(self.folder())?;
        self.known = Some(Known::There { file, number });
        Ok(Some(seat))
    }

    /// Saves a seat, and syncs it. After an error the one before counts, or this one, and it may be saved again.
    ///
    /// The first one needs space for the file. Later ones need none.
    pub fn save(&mut self, seat: &SeatFile) -> io::Result<()> {
        if self.known.is_none() {
            self.load()?;
        }
        match &mut self.known {
            Some(Known::There { file, number }) => {
                let next = *number + 1;
                // The whole slot, so that a sync that has failed before is made good.
                file.write_at(&seat.to_slot(next), next % SLOTS * SLOT_BYTES as u64)?;
                file.sync()?;
                *number = next;
                Ok(())
            }
            _ => self.create(seat),
        }
    }

    fn create(&mut self, seat: &SeatFile) -> io::Result<()> {
        let new = [&self.path[..], b".new"].concat();
        let file = self.disk.open(&new, OpenHow::Create { mode: MODE })?;
        file.set_len(0)?;
        let number = SLOTS;
        file.write_at(&[&seat.to_slot(number)[..], &[0; SLOT_BYTES]].concat(), 0)?;
        file.sync()?;
        self.disk.rename(&new, &self.path, true)?;
        self.disk.sync_dir(self.folder())?;
        self.known = Some(Known::There { file, number });
        Ok(())
    }

    fn folder(&self) -> &[u8] {
        &self.path[..self.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
    }

    fn damaged(&self, why: &str) -> io::Error {
        let what = format!("{}: {why}", self.path.escape_ascii());
        io::Error::new(io::ErrorKind::InvalidData, what)
    }
}

#[cfg(test)]
mod tests {
    use atoll_disk::sim::{Fault, SimDisk};
    use rustix::io::Errno;

    use super::*;

    const PATH: &[u8] = b"islands/seat";

    fn disk(seed: u64) -> SimDisk {
        let disk = SimDisk::new(seed);
        disk.mkdir(b"islands", 0o700).unwrap();
        disk.sync_everything().unwrap();
        disk
    }

    fn store(disk: &SimDisk) -> SeatStore<SimDisk> {
        SeatStore::new(Arc::new(disk.clone()), PATH.to_vec())
    }

    fn load(disk: &SimDisk) -> Option<SeatFile> {
        store(disk).load().unwrap()
    }

    fn seat(tenure: u32) -> SeatFile {
        SeatFile { tenure, ..SeatFile::of_a_new_member() }
    }

    #[test]
    fn the_last_seat_is_loaded() {
        let disk = disk(1);
        assert_eq!(load(&disk), None);
        let mut one = store(&disk);
        for tenure in 1..6 {
            one.save(&seat(tenure)).unwrap();
            assert_eq!(load(&disk), Some(seat(tenure)));
            // Whoever comes next goes on where this one was.
            let mut next = store(&disk);
            if tenure % 2 == 0 {
                assert_eq!(next.load().unwrap(), Some(seat(tenure)));
            }
            one = next;
        }
        assert_eq!(disk.stat(PATH).unwrap().size, SLOTS * SLOT_BYTES as u64);
    }

    #[test]
    fn a_death_at_any_effect_leaves_the_old_seat_or_the_new_one() {
        for seed in 0..40 {
            let power = seed % 2 == 0;
            let fault = |seed| if power { Fault::PowerCut { seed } } else { Fault::ProcessDeath };
            for death in 1.. {
                let mut disk = disk(seed * 1000 + death);
                disk.die_after(death);
                let (mut one, mut saved) = (store(&disk), 0);
                while saved < 4 && one.save(&seat(saved + 1)).is_ok() {
                    saved += 1;
                }
                disk = disk.revive(fault(seed));
                // The next life dies too, while it loads or saves, and is cut off from its power then.
                disk.die_after(death % 5 + 1);
                let mut two = store(&disk);
                let _ = two.save(&seat(10));
                disk = disk.revive(Fault::PowerCut { seed: seed + death });
                let found = load(&disk).map_or(0, |seat| seat.tenure);
                assert!(found == saved || found == saved + 1 || found == 10, "{found} after {saved}");
                store(&disk).save(&seat(20)).unwrap();
                assert_eq!(load(&disk.revive(Fault::PowerCut { seed })), Some(seat(20)));
                if saved == 4 {
                    break;
                }
            }
        }
    }

    #[test]
    fn what_was_loaded_survives_a_power_cut_although_its_sync_had_failed() {
        for seed in 0..40 {
            let disk = disk(seed);
            let mut one = store(&disk);
            (1..4).for_each(|tenure| one.save(&seat(tenure)).unwrap());
            disk.fail_next_sync();
            one.save(&seat(4)).unwrap_err();
            // It is in memory, called clean, and perhaps not on the disk.
            let disk = disk.revive(Fault::ProcessDeath);
            let mut two = store(&disk);
            let loaded = two.load().unwrap();
            assert_eq!(loaded, Some(seat(4)));
            disk.die_after(seed % 2 + 1);
            two.save(&seat(5)).unwrap_err();
            let found = load(&disk.revive(Fault::PowerCut { seed })).unwrap().tenure;
            assert!(found >= 4, "{found} was found");
        }
    }

    #[test]
    fn a_sync_that_has_failed_is_made_good_by_the_next() {
        for seed in 0..20 {
            let disk = disk(seed);
            let mut one = store(&disk);
            one.save(&seat(1)).unwrap();
            disk.fail_next_sync();
            one.save(&seat(2)).unwrap_err();
            one.save(&seat(3)).unwrap();
            assert_eq!(load(&disk.revive(Fault::PowerCut { seed })), Some(seat(3)));
        }
    }

    #[test]
    fn a_full_disk_hinders_the_first_seat_only() {
        let disk = disk(1);
        let mut one = store(&disk);
        disk.set_space(Some(disk.used()));
        one.save(&seat(1)).unwrap_err();
        assert_eq!(load(&disk), None);
        disk.set_space(None);
        one.save(&seat(1)).unwrap();
        disk.set_space(Some(disk.used()));
        for tenure in 2..6 {
            one.save(&seat(tenure)).unwrap();
            assert_eq!(load(&disk), Some(seat(tenure)));
        }
    }

    #[test]
    fn any_call_that_fails_leaves_a_store_that_goes_on() {
        for saves in 0..3 {
            for nth in 1.. {
                let disk = disk(nth);
                let mut one = store(&disk);
                (1..=saves).for_each(|tenure| one.save(&seat(tenure)).unwrap());
                disk.fail_after(nth, Errno::IO);
                let is_done = one.save(&seat(8)).is_ok();
                disk.fail_all(None);
                if !is_done {
                    one.save(&seat(9)).unwrap();
                    assert_eq!(load(&disk.revive(Fault::PowerCut { seed: nth })), Some(seat(9)));
                } else {
                    assert!(nth > 2);
                    break;
                }
            }
        }
    }

    #[test]
    fn one_damaged_slot_leaves_the_other_and_two_are_an_error() {
        for newest in [0, 1] {
            let disk = disk(1);
            let mut one = store(&disk);
            (1..4 + newest).for_each(|tenure| one.save(&seat(tenure)).unwrap());
            let last = 3 + newest;
            for slot in [0, 1] {
                let at = slot * SLOT_BYTES as u64 + 30;
                disk.flip(PATH, at, 3).unwrap();
                let found = load(&disk).unwrap().tenure;
                assert!(found == last || found == last - 1);
                disk.flip(PATH, at, 3).unwrap();
                assert_eq!(load(&disk), Some(seat(last)));
            }
            (0..2).for_each(|slot| assert!(disk.flip(PATH, slot * SLOT_BYTES as u64 + 30, 3).unwrap()));
            let before = disk.effects();
            for error in [store(&disk).load().unwrap_err(), store(&disk).save(&seat(9)).unwrap_err()] {
                assert_eq!(error.kind(), io::ErrorKind::InvalidData);
                assert!(error.to_string().contains("checksum"), "{error}");
            }
            assert_eq!(disk.effects(), before, "nothing was changed");
        }
    }

    #[test]
    fn a_seat_of_a_later_version_is_not_overwritten() {
        let disk = disk(1);
        let mut one = store(&disk);
        (1..4).for_each(|tenure| one.save(&seat(tenure)).unwrap());
        for slot in [0, 1] {
            let at = slot * SLOT_BYTES as u64 + 8;
            disk.flip(PATH, at, 1).unwrap();
            let error = store(&disk).save(&seat(9)).unwrap_err();
            assert!(error.to_string().contains("format 3"), "{error}");
            disk.flip(PATH, at, 1).unwrap();
        }
        assert_eq!(load(&disk), Some(seat(3)));
    }
}
