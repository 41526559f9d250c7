//! What is done instead of a rebuild when islands have copies: which copies can be opened, and where the plain trees of the
//! others lie. Changes nothing.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use atoll_control::DataDir;
use atoll_core::{IslandId, Position};
use atoll_proto::VolumeConfig;

use super::check::{Check, Part};
use super::copies::{exchange, opens};
use crate::findings::Checking;

/// Steps that bring back what there is of a volume with copies.
#[derive(Debug, Default)]
pub struct Steps {
    /// For people: what each island has, and the next step for copies that are lost.
    pub lines: Vec<String>,
    /// A copy of each island can be opened: the volume has its state.
    pub has_state: bool,
    /// For each island the plain tree of the copy that has come furthest, as far as there is one.
    pub trees: Vec<PathBuf>,
}

/// Looks at all copies in these data directories of stopped nodes.
pub fn steps(dirs: &[&DataDir], config: &VolumeConfig) -> Result<Steps> {
    let parts = dirs.iter().map(|dir| Part::of(dir, config)).collect::<Result<Vec<_>>>()?;
    let how = Checking::default();
    let check = Check { how: &how, config };
    let mut steps = Steps { has_state: true, ..Steps::default() };
    for island in config.islands() {
        let group = config.group_of(island);
        let here = parts.iter().filter(|part| group.contains(&part.member.node));
        let copies: Vec<_> = here.map(|part| (part, opens(&check, part, island))).collect();
        let furthest = copies.iter().filter_map(|(part, opened)| Some((opened.as_ref().ok()?, part)));
        let line = match furthest.max_by_key(|(last, _)| **last) {
            Some((last, whole)) => {
                steps.trees.push(tree(whole, island));
                let lost = copies.iter().filter(|(_, opened)| opened.is_err());
                put_in_place(island, (whole, *last), lost.map(|(part, why)| (*part, why.as_ref().err())))
            }
            None => {
                steps.has_state = false;
                let reached =
                    |part: &&Part| part.options.reached.get(&island).map(|r| (r.incarnation, r.seq));
                let parts = copies.iter().map(|(part, _)| *part);
                let furthest = parts.filter(|part| tree(part, island).is_dir()).max_by_key(reached);
                steps.trees.extend(furthest.map(|part| tree(part, island)));
                none_opens(island, &copies)
            }
        };
        steps.lines.push(line);
    }
    Ok(steps)
}

fn folder(part: &Part, island: IslandId) -> PathBuf {
    part.folder.join(island.to_string())
}

/// One copy in the place of those that are lost.
fn put_in_place<'a>(
    island: IslandId,
    (whole, last): (&Part, Position),
    lost: impl Iterator<Item = (&'a Part, Option<&'a anyhow::Error>)>,
) -> String {
    let mut line = format!("island {island}: the copy of node {} can be opened", whole.member.node);
    for (part, why) in lost {
        let why = why.map(|why| format!("{why:#}")).unwrap_or_default();
        let step = exchange(part, island, whole, last);
        let _ = write!(line, "\n  the copy of node {} cannot: {why}\n  next: {step}", part.member.node);
    }
    line
}

fn tree(part: &Part, island: IslandId) -> PathBuf {
    folder(part, island).join("tree")
}

fn none_opens(island: IslandId, copies: &[(&Part, Result<Position>)]) -> String {
    let mut line = format!("island {island}: no copy of it that lies here can be opened");
    for (part, opened) in copies {
        let why = opened.as_ref().err().map(|why| format!("{why:#}")).unwrap_or_default();
        let _ = write!(line, "\n  node {}: {why}", part.member.node);
    }
    line
}
