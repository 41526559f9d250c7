//! The machine beside an island begins where its rows end, at each copy that begins to lead.

mod common;

use std::sync::{Arc, Mutex};

use atoll_core::{Ino, Malformed};
use atoll_disk::sim::{Fault, SimDisk};
use atoll_dispatch::beside::{BesideMaker, SideRow};
use atoll_dispatch::{Engine, Nobody, OpenError};
use atoll_island::{Beside, Now};
use atoll_proto::{EntryRef, Record, RowChange};
use atoll_state::{NotInMemory, State};
use bytes::Bytes;
use common::group::Group;
use common::{Life, Still};

const TABLE: u8 = b'c';
/// Each record gets so many rows of the machine: more than one page of the snapshot for a few records.
const ROWS: u128 = 600;

/// Has rows with the numbers 1 to `last`.
#[derive(Debug, Clone)]
struct Numbers {
    last: u128,
}

impl Beside for Numbers {
    fn witness(&mut self, _: &State, _: Now, _: u64, record: &mut Record) {
        for id in self.last + 1..=self.last + ROWS {
            let row = Some(Bytes::copy_from_slice(&id.to_le_bytes()));
            record.changes.push(RowChange::Side { table: TABLE, id, row });
        }
        self.last += ROWS;
    }

    fn allows_moves(&self, _: &State, _: Now, _: &[(Ino, EntryRef)]) -> Result<bool, NotInMemory> {
        Ok(true)
    }

    fn boxed(&self) -> Box<dyn Beside> {
        Box::new(self.clone())
    }
}

/// Remembers the last number of each machine that it has made.
#[derive(Debug, Default)]
struct Maker {
    begun: Mutex<Vec<u128>>,
    refuses: bool,
}

impl BesideMaker for Maker {
    fn tables(&self) -> &[u8] {
        &[b'b', TABLE]
    }

    fn begin(&self, _: u64, rows: Vec<SideRow>) -> Result<Box<dyn Beside>, Malformed> {
        if self.refuses {
            return Err(Malformed::new("a number"));
        }
        let last = rows.len() as u128;
        for ((table, id, row), expected) in rows.iter().zip(1_u128..) {
            assert_eq!((*table, *id, &row[..]), (TABLE, expected, &expected.to_le_bytes()[..]));
        }
        self.begun.lock().unwrap().push(last);
        Ok(Box::new(Numbers { last }))
    }
}

impl Maker {
    fn last_begun(&self) -> u128 {
        *self.begun.lock().unwrap().last().unwrap()
    }
}

fn numbers(engine: &Engine<SimDisk>) -> u128 {
    engine.with_island(|island| island.beside::<Numbers>().expect("it was set").last)
}

#[test]
fn whoever_leads_next_goes_on_with_all_rows_in_memory_and_in_the_snapshot() {
    for copies in [1, 2, 3] {
        let maker = Arc::new(Maker::default());
        let mut group = Group::beside(copies, 1, Some(Arc::clone(&maker) as _));
        let (mut last, mut ended) = (0, None);
        for round in 0..4 {
            let leader = group.attach();
            let begun = maker.last_begun();
            assert!(begun >= last, "round {round}: {begun} of {last}");
            if let Some(node) = ended.take_if(|_| copies > 1) {
                group.start(node);
                group.pass(5_000);
            }
            for n in 0..3 {
                group.create(leader, format!("{round}-{n}").as_bytes());
            }
            if round % 2 == 0 {
                group.checkpoint();
                group.create(leader, format!("{round}-more").as_bytes());
            }
            last = numbers(&group.engine(leader));
            assert!(last > begun);
            group.end(leader, Fault::ProcessDeath);
            if copies == 1 {
                group.start(leader);
            }
            ended = Some(leader);
        }
    }
}

#[test]
fn an_island_whose_machine_cannot_begin_is_refused_and_says_why() {
    let disk = SimDisk::new(1);
    drop(Life::open(disk.clone(), true).unwrap());
    let maker = Maker { refuses: true, ..Maker::default() };
    let setup = atoll_dispatch::Setup { beside: Some(Arc::new(maker)), ..Life::setup_of(false) };
    let disk = Arc::new(disk.revive(Fault::ProcessDeath));
    let refused = Engine::open(disk, setup, Arc::new(Nobody), Arc::new(Still)).unwrap_err();
    assert!(matches!(refused, OpenError::Malformed(..)), "{refused}");
    assert!(refused.to_string().contains("a number"), "{refused}");
}
