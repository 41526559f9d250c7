//! Orders to the nodes of a volume.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use atoll_core::{IslandId, NodeId};
use atoll_proto::control::{Connection, CopyRole, GroupStatus, VolumeStatus};
use atoll_proto::{Control, ControlReply, VolumeConfig};
use atoll_rpc::Address;

use crate::ask::{NoAnswer, QUESTION, ask, ask_all, strange};
use crate::group::shown;
use crate::status::first_line;

/// How long another copy may take to lead, and how often it is asked whether it does.
const MOVE_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// A copy that was made to lead may have begun to when the ten seconds of its order are over.
const FORCE_MAX: Duration = Duration::from_secs(11);

/// Has the copy of an island on node `to` lead it: returns when it does.
pub fn move_island(config: &VolumeConfig, island: IslandId, to: NodeId) -> Result<()> {
    let addresses: Vec<Address> =
        keepers(config, island).into_iter().filter_map(|(_, address)| address).collect();
    let order = Control::MoveIsland { volume: config.id, island, to };
    let until = Instant::now() + MOVE_MAX;
    loop {
        // Only the copy that leads knows what to do; the one that is meant says when it leads.
        let mut refused = Vec::new();
        for answer in ask_all(&addresses, &order, QUESTION) {
            match answer {
                Ok(ControlReply::Done) => return Ok(()),
                Ok(ControlReply::Refused { text }) => refused.push(text),
                Ok(_) | Err(_) => {}
            }
        }
        if let Some(why) = refused.into_iter().find(|why| !why.is_empty()) {
            bail!("{why}");
        }
        if Instant::now() > until {
            bail!(
                "Node {to} does not lead island {island} after {} s.\n\"atoll status\" shows who does.",
                MOVE_MAX.as_secs()
            );
        }
        std::thread::sleep(LOOK);
    }
}

/// The nodes that keep an island, with their addresses.
fn keepers(config: &VolumeConfig, island: IslandId) -> Vec<(NodeId, Option<Address>)> {
    let address = |node| config.nodes.iter().find(|n| n.node == node)?.address.parse().ok();
    config.group_of(island).iter().map(|node| (*node, address(*node))).collect()
}

/// What a node tells of its copy of an island.
pub struct ToldCopy {
    /// The node.
    pub node: NodeId,
    /// What its copy does, or why nobody knows.
    pub copy: Result<GroupStatus, String>,
    /// The node with the control store, if this one cannot reach it.
    store_away: Option<NodeId>,
}

impl std::fmt::Display for ToldCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.copy {
            Ok(group) => write!(f, "node {}: {}", self.node, shown(group)),
            Err(why) => write!(f, "node {}: {why}", self.node),
        }
    }
}

impl ToldCopy {
    fn new(node: NodeId, volume: Option<&VolumeStatus>, island: IslandId) -> Self {
        let of_island = |v: &VolumeStatus| v.islands.iter().find(|i| i.island == island).cloned();
        let copy = match volume.map(|v| (&v.volume.problem, of_island(v))) {
            None => Err("it does not serve the volume".to_owned()),
            Some((Some(why), _)) => Err(format!("it does not serve the volume: {}", first_line(why))),
            Some((None, Some(island))) if island.halted.is_some() => {
                Err(format!("its copy HAS STOPPED: {}", first_line(&island.halted.unwrap_or_default())))
            }
            Some((None, island)) => {
                island.and_then(|i| i.group).ok_or_else(|| "its copy is being opened".to_owned())
            }
        };
        let store_away = volume.and_then(|v| {
            let store = v.store?;
            v.others.contains(&(store, Connection::Down)).then_some(store)
        });
        Self { node, copy, store_away }
    }

    fn does(&self) -> Option<CopyRole> {
        self.copy.as_ref().ok().map(|group| group.role)
    }

    fn leads(&self) -> bool {
        matches!(self.does(), Some(CopyRole::Leads | CopyRole::Waits | CopyRole::Begins))
    }

    /// It has a seat, and leads by itself if nobody else does.
    fn can_lead(&self) -> bool {
        matches!(self.does(), Some(CopyRole::Follows | CopyRole::Stands))
    }
}

/// Asks all nodes that keep an island for their copies of it.
pub fn copies(config: &VolumeConfig, island: IslandId) -> Vec<ToldCopy> {
    ask_copies(config, island, keepers(config, island))
}

fn ask_copies(
    config: &VolumeConfig,
    island: IslandId,
    nodes: Vec<(NodeId, Option<Address>)>,
) -> Vec<ToldCopy> {
    let (with, without): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|(_, address)| address.is_some());
    let addresses: Vec<Address> = with.iter().filter_map(|(_, address)| address.clone()).collect();
    let answers = ask_all(&addresses, &Control::Status, QUESTION);
    let mut all: Vec<ToldCopy> = with
        .iter()
        .zip(answers)
        .map(|((node, _), answer)| match answer {
            Ok(ControlReply::Status { volumes, .. }) => {
                ToldCopy::new(*node, volumes.iter().find(|v| v.volume.id == config.id), island)
            }
            Ok(_) => unknown(*node, "it answers something else"),
            Err(NoAnswer::Unreachable(why)) => unknown(*node, &why.to_string()),
            Err(NoAnswer::Unknown(why)) => unknown(*node, &why),
        })
        .collect();
    all.extend(without.iter().map(|(node, _)| unknown(*node, "it has no address")));
    all.sort_by_key(|told| told.node);
    all
}

fn unknown(node: NodeId, why: &str) -> ToldCopy {
    ToldCopy { node, copy: Err(format!("does not answer: {}", first_line(why))), store_away: None }
}

/// Why the copy on node `to` cannot, or need not, be made to lead whatever is lost by that. `told`: of all copies.
pub fn check_force(told: &[ToldCopy], island: IslandId, to: NodeId) -> Result<()> {
    let own = told.iter().find(|told| told.node == to).expect("the node keeps the island");
    if let Err(why) = &own.copy {
        bail!(
            "The copy of island {island} on node {to} cannot lead now. Nothing was done.\nNode {to}: {why}."
        );
    }
    if let Some(store) = own.store_away {
        bail!(
            "Node {to} cannot reach node {store}, which has the control store: without it no copy can begin to lead.\n\
             Start node {store} first. Nothing was done."
        );
    }
    if own.does() == Some(CopyRole::Fills) {
        bail!(
            "The copy of island {island} on node {to} lacks files that only other copies have: it never leads.\n\
             Start a node that has another copy. Nothing was done."
        );
    }
    let needless = told.iter().find(|told| told.leads()).or_else(|| told.iter().find(|told| told.can_lead()));
    let Some(other) = needless else { return Ok(()) };
    let (node, epoch) = (other.node, other.copy.as_ref().map_or(0, |group| group.epoch));
    let does = match other.does() {
        Some(CopyRole::Waits) => format!("leads already, in epoch {epoch}, and waits for another copy"),
        _ if other.leads() => format!("leads already, in epoch {epoch}"),
        _ => "has everything, and leads by itself as soon as it may".to_owned(),
    };
    let next = if node == to {
        "If it serves nothing, \"atoll status\" shows what it waits for.".to_owned()
    } else {
        format!("If node {node} never will, stop it, and give the order again.")
    };
    bail!(
        "The copy of island {island} on node {node} {does}.\nNothing need be lost, and nothing was done.\n{next}"
    )
}

/// Has the copy of an island on node `to` lead it, whatever is lost by that: returns when it does, and what it says then.
pub fn force_island(config: &VolumeConfig, island: IslandId, to: NodeId) -> Result<GroupStatus> {
    // Only this node is asked: one whose machine is gone may take long not to answer.
    let own: Vec<_> = keepers(config, island).into_iter().filter(|(node, _)| *node == to).collect();
    let [(_, Some(address))] = &own[..] else { bail!("Node {to} has no address.") };
    let order = Control::ForceIsland { volume: config.id, island, node: to };
    match ask(address, order, QUESTION)? {
        ControlReply::Done => {}
        _ => return Err(strange(address)),
    }
    let until = Instant::now() + FORCE_MAX;
    while Instant::now() < until {
        let told = ask_copies(config, island, own.clone());
        if let [ToldCopy { copy: Ok(group), .. }] = &told[..]
            && group.role == CopyRole::Leads
        {
            return Ok(group.clone());
        }
        std::thread::sleep(LOOK);
    }
    bail!(
        "Node {to} has taken the order, and does not lead island {island} after 10 s.\n{}",
        why_not(&copies(config, island), to)
    )
}

/// Why a copy does not lead that was to.
fn why_not(told: &[ToldCopy], to: NodeId) -> String {
    let own = told.iter().find(|told| told.node == to).expect("the node keeps the island");
    match (&own.copy, own.store_away, told.iter().find(|told| told.node != to && told.leads())) {
        (_, _, Some(other)) => format!("Node {} leads it.", other.node),
        (Err(why), ..) => format!("Node {to}: {why}."),
        (_, Some(store), _) => {
            format!(
                "It cannot reach node {store}, which has the control store: without it no copy can begin to lead."
            )
        }
        (Ok(group), ..) if group.in_sync.is_empty() => {
            "It has not yet read the record of the copies: the control store does not answer it.".to_owned()
        }
        (Ok(group), ..) => format!("It says: {}.\nThe log of node {to} says more.", shown(group)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(node: u16, role: CopyRole) -> ToldCopy {
        let group = GroupStatus {
            role,
            epoch: 7,
            primary: Some(NodeId(2)),
            in_sync: vec![NodeId(2)],
            wanted: 2,
            joining: Vec::new(),
            epoch_ms: None,
        };
        ToldCopy { node: NodeId(node), copy: Ok(group), store_away: None }
    }

    fn refused(told: &[ToldCopy]) -> String {
        let said = check_force(told, IslandId(3), NodeId(1)).unwrap_err().to_string();
        assert!(said.lines().count() <= 3, "{said}");
        said
    }

    #[test]
    fn a_copy_is_made_to_lead_only_if_no_other_one_can() {
        use CopyRole::{ComesBack, Follows, Lacks, Stands, Waits};
        let silent = || unknown(NodeId(2), "connection refused");
        for role in [ComesBack, Lacks] {
            check_force(&[told(1, role), silent()], IslandId(3), NodeId(1)).unwrap();
            check_force(&[told(1, role), told(2, ComesBack)], IslandId(3), NodeId(1)).unwrap();
        }
        let said = refused(&[told(1, CopyRole::Fills), silent()]);
        assert!(said.contains("on node 1 lacks files that only other copies have"), "{said}");
        let said = refused(&[told(1, ComesBack), told(2, Stands)]);
        assert!(said.contains("on node 2 has everything, and leads by itself"), "{said}");
        assert!(said.contains("If node 2 never will, stop it"), "{said}");
        let said = refused(&[told(1, Stands), silent()]);
        assert!(said.contains("on node 1 has everything") && said.contains("what it waits for"), "{said}");
        // Whoever leads is named before whoever only could.
        let said = refused(&[told(1, Follows), told(2, Waits)]);
        assert!(said.contains("on node 2 leads already, in epoch 7, and waits for another copy"), "{said}");
    }

    #[test]
    fn a_copy_without_its_node_or_the_control_store_is_not_ordered_to_lead() {
        let silent = unknown(NodeId(1), "connection refused\nmore");
        let said = refused(&[silent, told(2, CopyRole::ComesBack)]);
        assert!(said.contains("Node 1: does not answer: connection refused."), "{said}");
        let own = ToldCopy { store_away: Some(NodeId(0)), ..told(1, CopyRole::ComesBack) };
        let said = refused(&[own]);
        assert!(said.contains("cannot reach node 0") && said.contains("Start node 0 first"), "{said}");
    }

    #[test]
    fn an_order_without_effect_says_what_the_copy_lacks() {
        let mut all = [told(1, CopyRole::ComesBack), told(2, CopyRole::ComesBack)];
        let said = why_not(&all, NodeId(1));
        assert!(said.contains("this copy COMES BACK") && said.contains("The log of node 1"), "{said}");
        if let Ok(group) = &mut all[0].copy {
            group.in_sync.clear();
        }
        let said = why_not(&all, NodeId(1));
        assert!(said.contains("has not yet read the record"), "{said}");
        all[0].store_away = Some(NodeId(0));
        assert!(why_not(&all, NodeId(1)).contains("cannot reach node 0"));
        all[0] = unknown(NodeId(1), "connection refused");
        assert!(why_not(&all, NodeId(1)).contains("does not answer: connection refused"));
        all[1] = told(2, CopyRole::Leads);
        assert_eq!(why_not(&all, NodeId(1)), "Node 2 leads it.");
    }
}
