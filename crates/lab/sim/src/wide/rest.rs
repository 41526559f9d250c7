//! What holds when all sites have told each other everything.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{DirHead, FileId, FileState};
use atoll_check::{Rows, Volume, check_at_rest};
use atoll_core::{Decode, Encode, Ino, Malformed, Table};
use atoll_island::Event;
use atoll_model::{Dump, Strictness};
use atoll_posix::{Errno, Kind};
use atoll_state::RowKey;
use atoll_wide::rows::{DIRS, DirBeside, DirRow, FILES, FileBeside, FileRow};

use super::place::{ISLAND, Place};
use crate::cause::Failure;
use crate::invariants::read;

/// What was made once each: targets of symbolic links, and words in files. By them these are known wherever they are shown.
pub(super) type Tokens = BTreeSet<Vec<u8>>;

/// Times of directories are each site's own.
const STRICT: Strictness = Strictness { mtime_ctime: false, ..Strictness::FULL };

/// The tree of a site, and the tokens in it.
pub(super) fn dump(place: &mut Place) -> Result<(Dump, Tokens), Failure> {
    let number = place.number;
    let mut run = |op: &atoll_posix::Op| match place.run(op.clone()) {
        Ok(Some(done)) => done,
        Ok(None) | Err(_) => Err(Errno::EIO),
    };
    let mut tree = Dump::walk(&mut run).map_err(|why| Failure::new(format!("site {number}: {why}")))?;
    let mut tokens: Tokens =
        tree.items.values().map(|item| item.target.clone()).filter(|target| !target.is_empty()).collect();
    for item in tree.items.values_mut() {
        if item.attr.kind == Kind::Regular {
            tokens.extend(tokens_in(&place.bytes(item.attr.ino)?.unwrap_or_default()));
        }
        // Each site has its own.
        item.attr.ino = Ino::ROOT;
    }
    Ok((tree, tokens))
}

/// The tokens in bytes of a file.
pub(super) fn tokens_in(bytes: &[u8]) -> Tokens {
    let words = bytes.split(|byte| [b';', 0].contains(byte));
    words.filter(|word| word.starts_with(b"w")).map(<[u8]>::to_vec).collect()
}

/// What a site knows of each object, whether it shows it or not.
fn states(place: &Place, rows: &Rows) -> Result<BTreeMap<FileId, Vec<u8>>, Failure> {
    let engine = place.engine().ok_or_else(|| Failure::new("a site is down at rest"))?;
    let failed = |why: String| Failure::new(format!("site {}: {why}", place.number));
    let mut states = BTreeMap::new();
    for table in [FILES, DIRS] {
        let (first, last) = (RowKey::Side(table, 0), RowKey::Side(table, u128::MAX));
        let range = engine.snapshot().range(&first.to_bytes(), &last.to_bytes(), usize::MAX);
        for (key, row) in range.map_err(|why| failed(why.to_string()))? {
            let Some(RowKey::Side(_, id)) = RowKey::from_bytes(&key) else { continue };
            states.insert(FileId(id), state(table, &row, rows).map_err(|why| failed(why.to_string()))?);
        }
    }
    Ok(states)
}

/// The state in a row, or beside the row that this one names.
fn state(table: u8, row: &[u8], rows: &Rows) -> Result<Vec<u8>, Malformed> {
    let missing = || Malformed::new("row of what is shown");
    if table == FILES {
        return Ok(match FileRow::from_slice(row)? {
            FileRow::Hidden { state, .. } => state.to_vec(),
            FileRow::Shown { ino } => {
                let beside = rows.inodes.get(&ino).and_then(|row| row.beside.as_ref()).ok_or_else(missing)?;
                FileBeside::read(beside)?.state.to_vec()
            }
        });
    }
    Ok(match DirRow::from_slice(row)? {
        DirRow::Hidden { head, .. } => head.to_vec(),
        DirRow::Shown { ino, .. } => {
            let beside = rows.dirs.get(&ino).and_then(|row| row.beside.as_ref()).ok_or_else(missing)?;
            DirBeside::read(beside)?.head.to_vec()
        }
    })
}

/// All sites know the same, show the same, and their rows hold together. What they show.
pub(super) fn judge(places: &mut [Place], seed: u64) -> Result<(Dump, Tokens), Failure> {
    let mut first: Option<(Dump, Tokens, BTreeMap<FileId, Vec<u8>>)> = None;
    let of = places.len();
    for place in places {
        place.enter(Event::CheckpointWanted)?;
        for _ in 0..4 {
            place.pass()?;
        }
        if let Some(refused) = place.with_site(|site| site.peers().refused()).filter(|refused| *refused > 0) {
            return Err(Failure::new(format!("site {} has refused {refused} changes", place.number)));
        }
        let number = place.number;
        let members = place.with_site(|site| site.members().all().map(|(site, _)| site).collect::<Vec<_>>());
        if members.as_ref().map(Vec::len) != Some(of) {
            return Err(Failure::new(format!("site {number} knows of {members:?} at rest")));
        }
        let (tree, tokens) = dump(place)?;
        let engine = place.engine().ok_or_else(|| Failure::new("a site is down at rest"))?;
        let (rows, _) = read(engine, ISLAND)?;
        let known = states(place, &rows)?;
        let volume = Volume { table: Table::new(1), seed };
        if let Some(finding) = check_at_rest(&volume, &[rows]).first() {
            return Err(Failure::new(format!("site {}: {finding}", place.number)));
        }
        match &first {
            None => first = Some((tree, tokens, known)),
            Some((first, _, first_known)) => {
                if let Some(id) = differs(first_known, &known) {
                    let told = |states: &BTreeMap<FileId, Vec<u8>>| match states.get(&id) {
                        Some(state) => FileState::from_slice(state).map_or_else(
                            |_| format!("{:?}", DirHead::from_slice(state)),
                            |state| format!("{state:?}"),
                        ),
                        None => "nothing".to_owned(),
                    };
                    return Err(Failure::new(format!(
                        "site {number} and site 0 know different things of {id:?}:\n  {}\n  {}",
                        told(&known),
                        told(first_known)
                    )));
                }
                let differ: Vec<String> = first.differences(&tree, STRICT);
                if !differ.is_empty() {
                    let lines = differ.join("\n  ");
                    return Err(Failure::new(format!("site {} is not as site 0:\n  {lines}", place.number)));
                }
            }
        }
    }
    first.map(|(tree, tokens, _)| (tree, tokens)).ok_or_else(|| Failure::new("there is no site"))
}

/// An object of which two sites know different things.
fn differs(one: &BTreeMap<FileId, Vec<u8>>, other: &BTreeMap<FileId, Vec<u8>>) -> Option<FileId> {
    one.keys().chain(other.keys()).find(|id| one.get(id) != other.get(id)).copied()
}

/// What was gone at rest never comes back, and what all sites had at rest before (`told`) is there unless somebody has removed it.
pub(super) fn judge_tokens(
    now: &Tokens,
    gone: &Tokens,
    told: &Tokens,
    removed: &Tokens,
) -> Result<(), Failure> {
    let shown = |token: &[u8]| token.escape_ascii().to_string();
    if let Some(token) = gone.iter().find(|token| now.contains(*token)) {
        return Err(Failure::new(format!("{} was gone at rest and is back", shown(token))));
    }
    let lost = told.iter().find(|token| !now.contains(*token) && !removed.contains(*token));
    match lost {
        Some(token) => Err(Failure::new(format!("{} is lost: nobody has removed it", shown(token)))),
        None => Ok(()),
    }
}
