//! Two copies of an island: what differs is named, whatever it is, and what each has of its own is not.

use std::collections::BTreeMap;
use std::convert::Infallible;

use atoll_check::copies::{DIFFERENCES_MAX, Row, compare};
use atoll_check::{Finding, Rule};
use atoll_core::{Encode, Ino, IslandId, Name, SessionId, Stamp, TxnId};
use atoll_posix::Kind;
use atoll_proto::Entry;
use atoll_state::RowKey;

const ISLAND: IslandId = IslandId(3);
const FILE: Ino = Ino(77);

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A row of each kind that copies share.
fn keys() -> Vec<RowKey> {
    let (other, stamp) = (IslandId(1), Stamp::new(1, 2));
    vec![
        RowKey::Inode(FILE),
        RowKey::Dir(Ino::ROOT),
        RowKey::Entry(Ino::ROOT, 5, name("called")),
        RowKey::Xattrs(FILE),
        RowKey::Sums(FILE, 2),
        RowKey::Locks(FILE),
        RowKey::Txn(TxnId { coordinator: other, stamp }),
        RowKey::Session(SessionId(9)),
        RowKey::Outbox(stamp),
        RowKey::Delivered(other),
        RowKey::Skipped(other),
        RowKey::Clock(other),
        RowKey::Inbox(other, stamp),
        RowKey::Moved(other),
        RowKey::Forward(FILE),
        RowKey::Survived(4),
        RowKey::Renamed(Ino::ROOT),
        RowKey::Link(FILE),
        RowKey::LinksTold(other),
    ]
}

fn rows() -> Rows {
    let entry = Entry { ino: FILE, kind: Kind::Regular, home: ISLAND, stub: None };
    let row = |key: &RowKey| if matches!(key, RowKey::Entry(..)) { entry.to_vec() } else { b"row".to_vec() };
    keys().iter().map(|key| (key.to_bytes(), row(key))).collect()
}

fn found(reference: &Rows, copy: &Rows) -> Vec<Finding> {
    let all = |rows: &Rows| rows.clone().into_iter().map(Ok::<Row, Infallible>).collect::<Vec<_>>();
    compare(ISLAND, all(reference), all(copy)).unwrap()
}

#[test]
fn equal_rows_differ_in_nothing_whatever_each_copy_has_of_its_own() {
    let (reference, mut copy) = (rows(), rows());
    assert_eq!(found(&reference, &copy), []);
    for (own, row) in
        [(RowKey::Meta, "here"), (RowKey::View(FILE), ""), (RowKey::ViewName(Ino::ROOT, name("called")), "")]
    {
        copy.insert(own.to_bytes(), row.into());
    }
    assert_eq!(found(&reference, &copy), []);
    assert_eq!(found(&copy, &reference), []);
}

#[test]
fn a_row_of_each_kind_that_is_missing_too_much_or_another_one_is_named() {
    for key in keys() {
        let bytes = key.to_bytes();
        let (whole, mut without, mut other) = (rows(), rows(), rows());
        without.remove(&bytes);
        other.get_mut(&bytes).unwrap().push(1);
        for (reference, copy, how) in [
            (&whole, &without, "is missing"),
            (&without, &whole, "is there, and should not be"),
            (&whole, &other, "is another one"),
        ] {
            let found = found(reference, copy);
            let [finding] = found.as_slice() else { panic!("{key:?}: {found:?}") };
            assert_eq!((finding.rule, finding.island), (Rule::CopiesAgree, ISLAND));
            assert!(finding.what.ends_with(how), "{key:?}: {finding}");
            let about = match key {
                RowKey::Dir(_) | RowKey::Renamed(_) => Some(Ino::ROOT),
                // A name that cannot be read leads to its directory.
                RowKey::Entry(..) if how == "is another one" => Some(Ino::ROOT),
                RowKey::Entry(..) => Some(FILE),
                RowKey::Inode(_) | RowKey::Xattrs(_) | RowKey::Sums(..) | RowKey::Locks(_) => Some(FILE),
                RowKey::Forward(_) | RowKey::Link(_) => Some(FILE),
                _ => None,
            };
            assert_eq!(finding.ino, about, "{key:?}: {finding}");
        }
    }
}

#[test]
fn a_key_that_is_none_is_named_as_it_is() {
    let (reference, mut copy) = (rows(), rows());
    copy.insert(b"\xffstrange".to_vec(), Vec::new());
    copy.insert(b"".to_vec(), Vec::new());
    let found = found(&reference, &copy);
    assert_eq!(found.len(), 2);
    assert!(found[1].what.contains(r"\xffstrange"), "{}", found[1]);
}

#[test]
fn rows_without_end_are_counted() {
    let many = DIFFERENCES_MAX as u64 + 500;
    let copy: Rows = (0..many).map(|n| (RowKey::Inode(Ino(n)).to_bytes(), Vec::new())).collect();
    let found = found(&Rows::new(), &copy);
    assert_eq!(found.len(), DIFFERENCES_MAX + 1);
    assert_eq!(found.last().unwrap().what, "500 more rows differ");
}

#[test]
fn an_error_of_either_copy_ends_the_comparison() {
    let row = || Ok((b"i".to_vec(), Vec::new()));
    assert_eq!(compare(ISLAND, [row(), Err("left")], [row()]), Err("left"));
    assert_eq!(compare(ISLAND, [row()], [row(), Err("right")]), Err("right"));
}
