//! The bytes of the file `seat` are those of the golden file, and any other bytes are survived.
#![allow(clippy::disallowed_methods, reason = "a test may read and write files")]

use atoll_core::{Encode, NodeId};
use atoll_group::{SLOT_BYTES, SeatError, SeatFile};
use atoll_model::Rng;
use atoll_proto::group::GROUP_MEMBERS_MAX;
use atoll_proto::{GroupRecord, Host, Primary, Seat};

const HOST: Host = Host { boot: 0x1122_3344 << 90, inode: 0x5566 };

/// A seat with a record of so many members.
fn of_group(members: u16) -> SeatFile {
    let primary = Some(Primary { node: NodeId(1), life: 9, host: HOST, attempt: 2 });
    let in_sync = (1..=members).map(|node| Seat { node: NodeId(node), tenure: 3 }).collect();
    let record = GroupRecord { epoch: 7, primary, in_sync, wanted: 3, power_cut: true };
    let (makes_first, cut) = (false, true);
    SeatFile {
        tenure: 3,
        host: Some(HOST),
        seen: 8,
        grouped: true,
        makes_first,
        cut,
        lacks: true,
        record: Some((0x0102_0304_0506, record)),
    }
}

fn seats() -> Vec<SeatFile> {
    let first = SeatFile { host: Some(HOST), makes_first: true, ..SeatFile::of_a_new_member() };
    vec![SeatFile::of_one(), SeatFile::of_a_new_member(), first, of_group(2)]
}

#[test]
fn the_format_is_that_of_the_golden_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/seat_v1.bin");
    let slots: Vec<u8> = (5..).zip(seats()).flat_map(|(number, seat)| seat.to_slot(number)).collect();
    if std::env::var_os("ATOLL_BLESS").is_some() {
        std::fs::write(path, &slots).unwrap();
    }
    let golden = std::fs::read(path).unwrap();
    assert!(golden == slots, "the bytes have changed");
    for ((number, seat), slot) in (5..).zip(seats()).zip(golden.chunks(SLOT_BYTES)) {
        assert_eq!(SeatFile::from_slot(slot), Ok((number, seat)));
    }
}

#[test]
fn the_largest_seat_fits_a_sector() {
    let seat = of_group(GROUP_MEMBERS_MAX as u16);
    let used = seat.to_slot(u64::MAX).iter().rposition(|byte| *byte != 0).unwrap() + 1;
    assert!(used <= 512, "{used} bytes");
    assert_eq!(SeatFile::from_slot(&seat.to_slot(u64::MAX)), Ok((u64::MAX, seat)));
}

#[test]
fn what_is_no_seat_is_told_by_its_cause() {
    let slot = of_group(2).to_slot(1);
    let with = |at: usize, byte: u8| {
        let mut slot = slot;
        slot[at] = byte;
        SeatFile::from_slot(&slot)
    };
    assert_eq!(SeatFile::from_slot(&[0; SLOT_BYTES]), Err(SeatError::Blank));
    assert_eq!(SeatFile::from_slot(&[]), Err(SeatError::Short));
    assert_eq!(SeatFile::from_slot(&slot[..100]), Err(SeatError::Short));
    assert_eq!(with(0, b'B'), Err(SeatError::Foreign));
    assert_eq!(with(8, 2), Err(SeatError::Unsupported(2)));
    assert_eq!(with(8, 0), Err(SeatError::Checksum), "so far has a write come that was cut off");
    assert_eq!(with(16, 2), Err(SeatError::Checksum), "the number is covered");
    assert_eq!(with(40, 0xff), Err(SeatError::Checksum));
}

/// A slot with these fields and the right checksum.
fn slot_of(fields: &[u8]) -> Vec<u8> {
    let mut slot = SeatFile::of_one().to_slot(1)[..28].to_vec();
    slot[12..16].copy_from_slice(&(fields.len() as u32).to_le_bytes());
    let crc = atoll_core::sum::extend(atoll_core::sum::sum(&slot[..24]), fields);
    slot[24..28].copy_from_slice(&crc.to_le_bytes());
    slot.extend_from_slice(fields);
    slot
}

#[test]
fn a_record_that_no_group_can_have_is_malformed() {
    let (revision, record) = of_group(2).record.unwrap();
    let record = GroupRecord { in_sync: Vec::new(), ..record };
    let nonsense = SeatFile { record: Some((revision, record)), ..of_group(2) };
    assert!(matches!(SeatFile::from_slot(&nonsense.to_slot(1)), Err(SeatError::Malformed(_))));
    let longer = [of_group(2).to_vec(), vec![0]].concat();
    assert!(matches!(SeatFile::from_slot(&slot_of(&longer)), Err(SeatError::Malformed(_))));
}

#[test]
fn any_bit_that_changes_is_found() {
    for seat in seats() {
        let slot = seat.to_slot(77);
        let used = 28 + seat.encoded_len();
        for bit in 0..used * 8 {
            let mut slot = slot;
            slot[bit / 8] ^= 1 << (bit % 8);
            SeatFile::from_slot(&slot).unwrap_err();
        }
        for len in 0..used {
            SeatFile::from_slot(&slot[..len]).unwrap_err();
        }
    }
}

#[test]
fn any_fields_are_read_as_they_are_written_or_refused() {
    let mut rng = Rng::new(1);
    let mut read = 0;
    for _ in 0..20_000 {
        let mut fields = seats()[rng.below(4) as usize].to_vec();
        for _ in 0..rng.below(4) {
            let at = rng.below(fields.len() as u64) as usize;
            fields[at] = rng.below(256) as u8;
        }
        fields.truncate(rng.below(2 * fields.len() as u64) as usize);
        if let Ok((_, seat)) = SeatFile::from_slot(&slot_of(&fields)) {
            assert_eq!(seat.to_vec(), fields);
            read += 1;
        }
    }
    assert!(read > 1000, "{read} were read");
}
