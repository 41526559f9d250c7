//! What is told of the copies of an island: a line for people, an object for programs.

use atoll_core::NodeId;
use atoll_proto::control::{CopyRole, GroupStatus};
use serde_json::{Value, json};

/// The copies of an island as the copy of one node knows them, on one line.
pub fn shown(group: &GroupStatus) -> String {
    let does = match group.role {
        CopyRole::Leads | CopyRole::Waits => "leads here".to_owned(),
        CopyRole::Begins => "begins to lead here".to_owned(),
        CopyRole::Follows
        | CopyRole::ComesBack
        | CopyRole::Stands
        | CopyRole::Lacks
        | CopyRole::Fills
        | CopyRole::Halted => {
            group.primary.map_or("nobody has led yet".to_owned(), |node| format!("node {node} leads"))
        }
    };
    let own = match group.role {
        CopyRole::ComesBack => "  this copy COMES BACK",
        CopyRole::Stands => "  this copy hears NOBODY WHO LEADS",
        CopyRole::Waits => "  this copy WAITS for another one, and answers nothing",
        CopyRole::Lacks => "  this copy HAS MORE THAN THE ONE THAT LEADS, and is left as it is",
        CopyRole::Fills => "  this copy LACKS FILES, and is filled",
        CopyRole::Halted => "  this copy HAS STOPPED",
        CopyRole::Leads | CopyRole::Begins | CopyRole::Follows => "",
    };
    format!("{does}{}{own}", of_all(group))
}

/// The same without what the copy of this node does: for whoever asks about the island.
pub(crate) fn of_island(group: &GroupStatus) -> String {
    let leads = group.primary.map_or("nobody has led yet".to_owned(), |node| format!("node {node} leads"));
    format!("{leads}{}", of_all(group))
}

/// Since when, which epoch, and what the other copies have.
fn of_all(group: &GroupStatus) -> String {
    let since = group.epoch_ms.map_or(String::new(), |ms| format!(" for {}", span(ms)));
    let (is, wanted) = (group.in_sync.len(), group.wanted);
    let short = if is < usize::from(wanted) { "  FEWER COPIES THAN WANTED" } else { "" };
    let joining: String = group
        .joining
        .iter()
        .map(|(node, behind)| format!("  node {node} comes back, {behind} records behind"))
        .collect();
    let nodes: Vec<String> = group.in_sync.iter().map(ToString::to_string).collect();
    format!(
        "{since}, epoch {}; in sync {is} of {wanted}: nodes {}{short}{joining}",
        group.epoch,
        nodes.join(", ")
    )
}

/// What a copy does, in a word.
pub(crate) fn role(role: CopyRole) -> String {
    format!("{role:?}").to_lowercase()
}

/// The same for programs.
pub fn to_json(group: &GroupStatus) -> Value {
    let ids = |all: &[NodeId]| all.iter().map(|node| node.0).collect::<Vec<_>>();
    let joining =
        group.joining.iter().map(|(node, behind)| json!({ "node": node.0, "records_behind": behind }));
    json!({
        "role": role(group.role), "epoch": group.epoch,
        "primary": group.primary.map(|node| node.0), "in_sync": ids(&group.in_sync), "wanted": group.wanted,
        "joining": joining.collect::<Vec<_>>(), "epoch_ms": group.epoch_ms,
    })
}

/// A time span in its two largest units.
pub fn span(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_who_leads_since_when_and_what_is_left() {
        let mut group = GroupStatus {
            role: CopyRole::Leads,
            epoch: 7,
            primary: Some(NodeId(2)),
            in_sync: vec![NodeId(2)],
            wanted: 2,
            joining: vec![(NodeId(1), 40)],
            epoch_ms: Some(61_000),
        };
        let all = " for 1 min 1 s, epoch 7; in sync 1 of 2: nodes 2  FEWER COPIES THAN WANTED  node 1 comes back, 40 records behind";
        assert_eq!(shown(&group), format!("leads here{all}"));
        assert_eq!(of_island(&group), format!("node 2 leads{all}"));
        (group.role, group.in_sync, group.joining) =
            (CopyRole::Stands, vec![NodeId(1), NodeId(2)], Vec::new());
        let all = " for 1 min 1 s, epoch 7; in sync 2 of 2: nodes 1, 2";
        assert_eq!(shown(&group), format!("node 2 leads{all}  this copy hears NOBODY WHO LEADS"));
        (group.primary, group.epoch_ms) = (None, None);
        assert_eq!(of_island(&group), "nobody has led yet, epoch 7; in sync 2 of 2: nodes 1, 2");
    }

    #[test]
    fn a_span_has_two_units() {
        assert_eq!(span(59_999), "59 s");
        assert_eq!(span(61_000), "1 min 1 s");
        assert_eq!(span(90_000_000), "1 d 1 h");
    }
}
