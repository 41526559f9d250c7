//! Two copies of an island that stand at the same record have the same rows.
//!
//! Checksums of blocks are rows. So copies whose rows are the same, and whose bodies have their checksums, have the same bytes.

use atoll_core::{Decode, Ino, IslandId};
use atoll_proto::Entry;
use atoll_state::{RowKey, key::SUMS_PER_CHUNK};

use crate::{Finding, Rule};

/// Most rows of a copy that are told one by one; all are counted.
pub const DIFFERENCES_MAX: usize = 1000;

/// A key and its row.
pub type Row = (Vec<u8>, Vec<u8>);

/// What differs of a copy. Both are all rows of a copy, in the order of their keys; an error of either ends the comparison.
pub fn compare<E>(
    island: IslandId,
    reference: impl IntoIterator<Item = Result<Row, E>>,
    copy: impl IntoIterator<Item = Result<Row, E>>,
) -> Result<Vec<Finding>, E> {
    let (mut reference, mut copy) = (reference.into_iter(), copy.into_iter());
    let mut differences = Differences { island, findings: Vec::new(), more: 0 };
    let (mut theirs, mut own) = (next(&mut reference)?, next(&mut copy)?);
    loop {
        let order = match (&theirs, &own) {
            (Some((left, _)), Some((right, _))) => left.cmp(right),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return Ok(differences.into_findings()),
        };
        match order {
            std::cmp::Ordering::Less => {
                differences.add(theirs.as_ref(), "is missing");
                theirs = next(&mut reference)?;
            }
            std::cmp::Ordering::Greater => {
                differences.add(own.as_ref(), "is there, and should not be");
                own = next(&mut copy)?;
            }
            std::cmp::Ordering::Equal => {
                if theirs != own {
                    differences.add(own.as_ref(), "is another one");
                }
                (theirs, own) = (next(&mut reference)?, next(&mut copy)?);
            }
        }
    }
}

/// The next row that all copies should have.
fn next<E>(rows: &mut impl Iterator<Item = Result<Row, E>>) -> Result<Option<Row>, E> {
    loop {
        match rows.next().transpose()? {
            Some((key, _)) if is_own(&key) => {}
            row => return Ok(row),
        }
    }
}

/// Rows that each copy has of its own: what its view has not laid yet, and where its snapshot stands.
fn is_own(key: &[u8]) -> bool {
    matches!(RowKey::from_bytes(key), Some(RowKey::View(_) | RowKey::ViewName(..) | RowKey::Meta))
}

struct Differences {
    island: IslandId,
    findings: Vec<Finding>,
    more: usize,
}

impl Differences {
    fn add(&mut self, row: Option<&Row>, how: &str) {
        let Some((key, row)) = row else { return };
        if self.findings.len() >= DIFFERENCES_MAX {
            self.more += 1;
            return;
        }
        let (ino, what) = describe(key, row);
        let what = format!("{what} {how}");
        self.findings.push(Finding { rule: Rule::CopiesAgree, island: self.island, ino, what });
    }

    fn into_findings(mut self) -> Vec<Finding> {
        if self.more > 0 {
            let what = format!("{} more rows differ", self.more);
            self.findings.push(Finding { rule: Rule::CopiesAgree, island: self.island, ino: None, what });
        }
        self.findings
    }
}

/// What a row is about, for people, and the file or directory.
fn describe(key: &[u8], row: &[u8]) -> (Option<Ino>, String) {
    let Some(key) = RowKey::from_bytes(key) else {
        return (None, format!("a row with the key {}", key.escape_ascii()));
    };
    let text = match &key {
        RowKey::Inode(ino) => return (Some(*ino), "the row of the file".to_owned()),
        RowKey::Dir(ino) => return (Some(*ino), "the row of the directory".to_owned()),
        RowKey::Xattrs(ino) => return (Some(*ino), "its row of extended attributes".to_owned()),
        RowKey::Locks(ino) => return (Some(*ino), "its row of locks".to_owned()),
        RowKey::Forward(ino) => return (Some(*ino), "the row that says where the file has gone".to_owned()),
        RowKey::Renamed(ino) => return (Some(*ino), "the row of its renames".to_owned()),
        RowKey::Link(ino) => return (Some(*ino), "the row of the link to a directory".to_owned()),
        RowKey::Sums(ino, chunk) => {
            let first = chunk * SUMS_PER_CHUNK;
            let what = format!("the row of the checksums of its blocks from {first} on");
            return (Some(*ino), what);
        }
        RowKey::Entry(dir, _, name) => {
            let ino = Entry::from_slice(row).map_or(*dir, |entry| entry.ino);
            return (Some(ino), format!("the name \"{}\" in {dir}", name.as_bytes().escape_ascii()));
        }
        RowKey::Txn(_) => "the row of a transaction",
        RowKey::Session(_) => "the row of a client",
        RowKey::Outbox(_) => "an entry of the island's journal",
        RowKey::Inbox(..) => "an entry of another island's journal",
        RowKey::Clock(_) | RowKey::Delivered(_) | RowKey::Skipped(_) => "a row of how far a journal has come",
        RowKey::Moved(_) => "the row of the last move of a directory",
        RowKey::Survived(_) => "the row of how an earlier life has ended",
        RowKey::Side(..) => "a row of the machine beside the island",
        RowKey::LinksTold(_) => "the row of which links another island has",
        RowKey::Meta | RowKey::View(_) | RowKey::ViewName(..) => "a row of its own",
    };
    (None, format!("{text} ({key:?})"))
}
