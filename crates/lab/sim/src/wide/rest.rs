//! What holds when all sites have told each other everything.

use std::collections::{BTreeMap, BTreeSet};

use atoll_causal::{DirHead, FileId, FileState};
use atoll_check::{Rows, Volume, check_at_rest};
use atoll_core::{Decode, Encode, Ino, Malformed, Table};
use atoll_island::Event;
use atoll_model::{Dump, Strictness};
use atoll_posix::{Errno, Kind};
use atoll_state::RowKey;
use atoll_wide::rows::{DIRS, DirBeside, DirRow, FILES, FileBeside, FileRow, TRASH, trash_of};

use super::place::{ISLAND, Place};
use super::ways::number as number_of;
use crate::cause::Failure;
use crate::invariants::read;

/// What was made once each: targets of symbolic links, and words in files. By them these are known wherever they are shown.
pub(super) type Tokens = BTreeSet<Vec<u8>>;

/// Those that somebody has removed, or may have, with the sites at which that was done.
pub(super) type Removed = BTreeMap<Vec<u8>, BTreeSet<usize>>;

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

/// The rows of a side table in a site's snapshot.
fn table(place: &Place, table: u8) -> Result<Vec<(u128, Vec<u8>)>, Failure> {
    let engine = place.engine().ok_or_else(|| Failure::new("a site is down at rest"))?;
    let (first, last) = (RowKey::Side(table, 0), RowKey::Side(table, u128::MAX));
    let rows = engine.snapshot().range(&first.to_bytes(), &last.to_bytes(), usize::MAX);
    let rows = rows.map_err(|why| Failure::new(format!("site {}: {why}", place.number)))?;
    let id = |(key, row): (Vec<u8>, Vec<u8>)| match RowKey::from_bytes(&key) {
        Some(RowKey::Side(_, id)) => Some((id, row)),
        _ => None,
    };
    Ok(rows.into_iter().filter_map(id).collect())
}

/// What a site knows of each object, whether it shows it or not.
fn states(place: &Place, rows: &Rows) -> Result<BTreeMap<FileId, Vec<u8>>, Failure> {
    let mut states = BTreeMap::new();
    for of in [FILES, DIRS] {
        for (id, row) in table(place, of)? {
            let state = state(of, &row, rows);
            let state = state.map_err(|why| Failure::new(format!("site {}: {why}", place.number)))?;
            states.insert(FileId(id), state);
        }
    }
    Ok(states)
}

/// No file has more copies than stay, of those that nobody has used.
fn judge_copies(states: &BTreeMap<FileId, Vec<u8>>, copies_max: usize) -> Result<(), Failure> {
    let mut copies: BTreeMap<FileId, usize> = BTreeMap::new();
    let states = states.iter().filter_map(|(id, state)| Some((*id, FileState::from_slice(state).ok()?)));
    for (id, state) in states {
        let mut links = state.places();
        let (Some(of), Some((link, place)), None) = (state.birth.copy_of, links.next(), links.next()) else {
            continue;
        };
        let mut versions = state.versions.iter();
        let is_as_made = versions.next().is_some_and(|(dot, version)| {
            // Another one is a file in which somebody went on.
            let is_copy = dot == link && id != FileId::born(link);
            is_copy && version.stamp == place.stamp && versions.next().is_none()
        });
        *copies.entry(of).or_default() += usize::from(is_as_made);
    }
    match copies.iter().find(|(_, count)| **count > copies_max) {
        Some((of, count)) => {
            Err(Failure::new(format!("{of:?} has {count} copies, and {copies_max} may stay")))
        }
        None => Ok(()),
    }
}

/// The bodies that rest at a site. Each body without a name that is the machine's own rests, or is kept for a file that is not shown.
fn resting(place: &Place, rows: &Rows) -> Result<BTreeSet<Ino>, Failure> {
    let resting: BTreeSet<Ino> = table(place, TRASH)?.into_iter().map(|(key, _)| trash_of(key).1).collect();
    let mut owned = resting.clone();
    for (id, row) in table(place, FILES)? {
        if let Ok(FileRow::Hidden { kept: Some(kept), .. }) = FileRow::from_slice(&row)
            && !owned.insert(kept.ino)
        {
            return Err(Failure::new(format!("site {}: {id:x} keeps what rests", place.number)));
        }
    }
    let is_nameless =
        |row: &&atoll_proto::Inode| row.attr.nlink == 0 && row.beside.is_some() && row.orphan_of.is_empty();
    let nameless: BTreeSet<Ino> = rows.inodes.values().filter(is_nameless).map(|row| row.attr.ino).collect();
    if nameless == owned {
        return Ok(resting);
    }
    let differ = nameless.symmetric_difference(&owned).map(|ino| (ino, rows.inodes.get(ino)));
    let differ: Vec<_> = differ.collect();
    Err(Failure::new(format!("site {}: of no use, or not there: {differ:?}", place.number)))
}

/// The tokens in what rests at a site.
fn tokens_at_rest(place: &mut Place, resting: BTreeSet<Ino>, rows: &Rows) -> Result<Tokens, Failure> {
    let mut tokens = Tokens::new();
    for ino in resting {
        match rows.inodes.get(&ino).and_then(|row| row.target.clone()) {
            Some(target) => drop(tokens.insert(target.iter().copied().collect())),
            None => tokens.extend(tokens_in(&place.bytes(ino)?.unwrap_or_default())),
        }
    }
    Ok(tokens)
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

/// All sites know the same, show the same, and their rows hold together. What they show, and the tokens in what rests at each.
pub(super) fn judge(
    places: &mut [Place],
    (seed, copies_max): (u64, usize),
) -> Result<(Dump, Tokens, Vec<Tokens>), Failure> {
    let mut rest = Vec::new();
    let mut first: Option<(Dump, Tokens, BTreeMap<FileId, Vec<u8>>)> = None;
    let going_on: Vec<usize> =
        places.iter().filter(|place| !place.is_out).map(|place| place.number).collect();
    for place in places {
        if place.is_out {
            rest.push(Tokens::new());
            continue;
        }
        place.enter(Event::CheckpointWanted)?;
        for _ in 0..4 {
            place.pass()?;
        }
        if let Some(refused) = place.with_site(|site| site.peers().refused()).filter(|refused| *refused > 0) {
            return Err(Failure::new(format!("site {} has refused {refused} changes", place.number)));
        }
        let number = place.number;
        let members = place.with_site(|site| site.members().all().map(|(site, _)| site).collect::<Vec<_>>());
        let is_known = |site: &usize| members.iter().flatten().any(|known| known.0 == number_of(*site));
        if !going_on.iter().all(is_known) {
            return Err(Failure::new(format!("site {number} knows of {members:?} at rest")));
        }
        let (tree, tokens) = dump(place)?;
        let engine = place.engine().ok_or_else(|| Failure::new("a site is down at rest"))?;
        let (rows, _) = read(engine, ISLAND)?;
        let known = states(place, &rows)?;
        judge_copies(&known, copies_max)?;
        let resting = resting(place, &rows)?;
        rest.push(tokens_at_rest(place, resting, &rows)?);
        let volume = Volume { table: Table::new(1), seed };
        if let Some(finding) = check_at_rest(&volume, std::slice::from_ref(&rows)).first() {
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
    first.map(|(tree, tokens, _)| (tree, tokens, rest)).ok_or_else(|| Failure::new("there is no site"))
}

/// An object of which two sites know different things.
fn differs(one: &BTreeMap<FileId, Vec<u8>>, other: &BTreeMap<FileId, Vec<u8>>) -> Option<FileId> {
    one.keys().chain(other.keys()).find(|id| one.get(id) != other.get(id)).copied()
}

/// What was gone at rest never comes back, and what all sites had at rest before (`told`) is there unless somebody has removed it. If so few
/// copies of a file stay that others go (`may_rest`), it may rest somewhere instead.
pub(super) fn judge_tokens(
    (now, rest): (&Tokens, &[Tokens]),
    gone: &Tokens,
    told: &Tokens,
    (removed, may_rest): (&Removed, bool),
) -> Result<(), Failure> {
    let shown = |token: &[u8]| token.escape_ascii().to_string();
    if let Some(token) = gone.iter().find(|token| now.contains(*token)) {
        return Err(Failure::new(format!("{} was gone at rest and is back", shown(token))));
    }
    let is_lost = |token: &&Vec<u8>| {
        let rests = may_rest && rest.iter().any(|tokens| tokens.contains(*token));
        !(now.contains(*token) || removed.contains_key(*token) || rests)
    };
    match told.iter().find(is_lost) {
        Some(token) => Err(Failure::new(format!("{} is lost: nobody has removed it", shown(token)))),
        None => Ok(()),
    }
}

/// What all sites had at rest before (`had`) and have no more rests at each site whose own users have not removed it, but for those that
/// are out, or had no room.
pub(super) fn judge_trash(
    (now, rest): (&Tokens, &[Tokens]),
    had: &Tokens,
    removed: &Removed,
    out: &BTreeSet<usize>,
) -> Result<(), Failure> {
    for token in had.iter().filter(|token| !now.contains(*token)) {
        for (site, rests) in rest.iter().enumerate().filter(|(site, _)| !out.contains(site)) {
            if !rests.contains(token) && !removed.get(token).is_some_and(|by| by.contains(&site)) {
                let token = token.escape_ascii();
                return Err(Failure::new(format!(
                    "{token} was taken away at site {site}, and does not rest"
                )));
            }
        }
    }
    Ok(())
}
