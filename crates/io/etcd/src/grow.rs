//! Brings the members of the cluster's own etcd, one step at a time, to those that there should be.
//!
//! Keeps nothing: each step is chosen anew from what etcd says, so that any node may do it, again and again, and two may do it at once.

use crate::admin::{EtcdAdmin, EtcdError};
use crate::plan::{MemberStep, moved, next_step, wanted_members};

/// What one step has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grown {
    /// The members are those that there should be.
    Done,
    /// Something was changed: take the next step at once.
    Changed,
    /// This one is to be started: on its node, with [`crate::Beginning::Joins`].
    Add {
        /// Where it will be reached.
        peer_url: String,
        /// Names and peer URLs of the members that there are.
        others: Vec<(String, String)>,
    },
    /// A member does not have everything yet, or was not started: take the next step in a while.
    Waits {
        /// etcd's words.
        why: String,
    },
}

/// Takes the next step. `nodes` has the names and peer URLs of the members that all nodes have which may have one, those preferred first
/// that are the fastest or best placed. A node that was removed for good is not in it; one that is only away is.
pub fn grow(admin: &EtcdAdmin, nodes: &[(String, String)]) -> Result<Grown, EtcdError> {
    let members = admin.members()?;
    if let Some((id, peer_url)) = moved(&members, nodes) {
        return admin.set_peer_url(id, peer_url).map(|()| Grown::Changed);
    }
    let urls: Vec<String> = nodes.iter().map(|(_, url)| url.clone()).collect();
    match next_step(&members, &wanted_members(&members, &urls)) {
        MemberStep::Done => Ok(Grown::Done),
        MemberStep::Remove { id } => admin.remove(id).map(|()| Grown::Changed),
        MemberStep::Promote { id } => match admin.promote(id) {
            Ok(()) => Ok(Grown::Changed),
            Err(EtcdError::Refused { why, .. }) => {
                // Its node may have asked before, and not have heard the answer.
                let learner = members.iter().find(|member| member.id == id);
                match learner.filter(|learner| learner.name.is_empty()) {
                    Some(learner) => Ok(added(&members, &learner.peer_urls[0])),
                    None => Ok(Grown::Waits { why }),
                }
            }
            Err(why) => Err(why),
        },
        MemberStep::Add { peer_url } => {
            let members = admin.add_learner(&peer_url)?;
            Ok(added(&members, &peer_url))
        }
    }
}

fn added(members: &[crate::EtcdMember], peer_url: &str) -> Grown {
    let others = members.iter().filter(|member| member.peer_urls.iter().all(|url| url != peer_url));
    let others = others.flat_map(|m| m.peer_urls.iter().map(|url| (m.name.clone(), url.clone()))).collect();
    Grown::Add { peer_url: peer_url.to_owned(), others }
}
