//! How far a node's islands are known to have come: `reached.toml`, in the folder of a volume, beside the
//! folders of its islands.
//!
//! Owns that file. If an island's folder is replaced by an older copy, the file shows it, and the folder is
//! refused. A copy of the whole data directory includes the file, and is served.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

use atoll_control::replace_file;
use atoll_core::{IslandId, Position};
use atoll_dispatch::Reached;

const FILE: &str = "reached.toml";
const FILE_NEW: &str = "reached.toml.new";

/// Format that is written and read.
const FORMAT: i64 = 1;

/// How far the islands in a volume's folder have come. Empty if it was never noted. `InvalidData` if the file
/// is damaged.
pub fn reached(folder: &Path) -> io::Result<BTreeMap<IslandId, Reached>> {
    let text = match std::fs::read_to_string(folder.join(FILE)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        text => text?,
    };
    let why = "is damaged: without it, an old copy of an island is not noticed; remove it if there is none";
    parse(&text).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, format!("{FILE} {why}")))
}

fn parse(text: &str) -> Option<BTreeMap<IslandId, Reached>> {
    let table: toml::Table = text.parse().ok()?;
    if table.get("format")?.as_integer()? != FORMAT {
        return None;
    }
    let islands = table.get("islands")?.as_table()?;
    let one = |(island, at): (&String, &toml::Value)| {
        let number = |key| at.get(key)?.as_integer();
        let incarnation = u32::try_from(number("incarnation")?).ok()?;
        let seq = u64::try_from(number("record")?).ok()?;
        Some((IslandId(island.parse().ok()?), Reached { incarnation, seq }))
    };
    islands.iter().map(one).collect()
}

/// Writes the file, in one step and so that it survives a power cut.
pub(crate) fn note_reached(folder: &Path, islands: &BTreeMap<IslandId, Reached>) -> io::Result<()> {
    let mut text = format!(
        "# How far each island is known to have come. Written by atoll. Do not edit it.\n\
         format = {FORMAT}\n\
         [islands]\n"
    );
    for (island, Reached { incarnation, seq }) in islands {
        text.push_str(&format!("{island} = {{ incarnation = {incarnation}, record = {seq} }}\n"));
    }
    replace_file(folder, FILE_NEW, FILE, text.as_bytes())?;
    std::fs::File::open(folder)?.sync_all()
}

/// The log of an island is about to be cut back to this record: it is not known any more to have come further. If that cannot
/// be written, the island's folder is refused at the next start, and nothing is lost by it.
pub(crate) fn note_cut(folder: &Path, island: IslandId, to: Position) {
    let noted = reached(folder).and_then(|mut all| {
        let Some(known) = all.get_mut(&island).filter(|known| known.seq > to.seq) else { return Ok(()) };
        *known = Reached { incarnation: to.epoch, seq: to.seq };
        note_reached(folder, &all)
    });
    if let Err(why) = noted {
        tracing::error!("{}: {why}", folder.join(FILE).display());
    }
}

/// Removes the file, because the islands were made anew on purpose.
pub fn forget_reached(folder: &Path) -> io::Result<()> {
    match std::fs::remove_file(folder.join(FILE)) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => std::fs::File::open(folder)?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_read_again_and_a_damaged_file_is_told() {
        let folder = std::env::temp_dir().join(format!("atoll-reached-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        assert!(reached(&folder).unwrap().is_empty());
        let of = |incarnation, seq| Reached { incarnation, seq };
        let islands = BTreeMap::from([(IslandId(0), of(1, 2)), (IslandId(700), of(9, u64::MAX >> 1))]);
        note_reached(&folder, &islands).unwrap();
        assert_eq!(reached(&folder).unwrap(), islands);
        std::fs::write(folder.join(FILE), "format = 1\n").unwrap();
        assert_eq!(reached(&folder).unwrap_err().kind(), ErrorKind::InvalidData);
        forget_reached(&folder).unwrap();
        assert!(reached(&folder).unwrap().is_empty());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
