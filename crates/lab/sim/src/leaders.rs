//! Who leads each island with several copies, as clients and machines have heard: the one of the highest epoch. Never decides who
//! leads.

use std::collections::BTreeMap;

use atoll_core::planted::{Bug, planted};
use atoll_core::{IslandId, NodeId, Time};
use atoll_island::Event;

use crate::copies::AWAY_US;
use crate::links::Party;
use crate::machines::{CopyId, IslandCopy, Machine};
use crate::net::{Frame, ToClient, ToIsland};
use crate::world::{Happening, World};

/// Who leads an island, as somebody has heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) epoch: u32,
    /// None: that one has said that it does no more.
    pub(crate) node: Option<NodeId>,
}

/// Whether a machine can ask an island.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Way {
    pub(crate) up: bool,
    /// Its own islands take that one for there.
    pub(crate) told: bool,
    /// When it went down.
    pub(crate) since_us: u64,
}

impl World {
    pub(crate) fn begins_to_lead(&mut self, id: CopyId, epoch: u32) {
        let IslandCopy { island, node, .. } = self.copies[id];
        self.note(format_args!("island {island}: {node} leads it in epoch {epoch}"));
        self.injected.promotions += 1;
        self.copies[id].leads = Some(epoch);
        for other in self.copies.ids().filter(|other| *other != id).collect::<Vec<_>>() {
            if self.copies[other].island == island {
                self.note_given(other);
            }
        }
        let group = &mut self.groups[island];
        // A machine may stand still before a copy on it hears that it has won an epoch, until another copy leads a later one. The first
        // copy lacks what was committed since, and may tell nobody anything (`judge_groups`).
        if epoch >= group.epoch {
            (group.leader, group.epoch) = (id, epoch);
            self.judge_new_leader(id, epoch);
        }
        let ways = self.machines[node].ways.clone();
        for (other, _) in ways.into_iter().filter(|(other, way)| *other != island && way.up) {
            self.begin(id, None, Event::PeerReachable { island: other, up: true });
        }
        self.says_who_leads(id, Some(epoch));
    }

    /// Whoever leads the highest epoch has all that was committed, and gives nothing again.
    fn judge_new_leader(&mut self, id: CopyId, epoch: u32) {
        let IslandCopy { island, node, .. } = self.copies[id];
        let now = self.now_us();
        if let Some(lost_us) = self.groups[island].lost_us.take().filter(|lost_us| now < lost_us + AWAY_US) {
            self.judge_absence(island, lost_us);
        }
        let group = &mut self.groups[island];
        let is_power_cut = self.copies[id].member().is_some_and(|member| {
            member.with_group(|group| group.record().is_some_and(|(_, record)| record.power_cut))
        });
        if is_power_cut {
            // No copy was whole: only what was synced is still there.
            group.committed = group.synced.clone();
            group.cut_in = epoch;
            group.time = Time::default();
        }
        let (given, time) = (group.given, group.time);
        let (committed, epochs) = group.committed.clone();
        if let Some(member) = self.copies[id].member()
            && !epochs.at(committed).is_none_or(|known| member.with_group(|group| group.epochs().has(known)))
        {
            self.fail(format!(
                "island {island}: {node} leads in epoch {epoch}, and has not record {:?}, which was committed",
                epochs.at(committed)
            ));
        }
        if let Some(engine) = self.copies[id].leading_engine() {
            let (after, times_after) = engine.with_island(|island| island.gives_after());
            if times_after < time {
                self.fail(format!(
                    "island {island} gives times after {times_after:?}, and had committed a change at {time:?}"
                ));
            }
            if after < given {
                self.fail(format!(
                    "island {island} gives stamps again: after {after:?}, had given {given:?}"
                ));
            }
        }
    }

    /// A copy leads no more, or its process has ended.
    pub(crate) fn note_lost(&mut self, id: CopyId) {
        let now = self.now_us();
        let group = &mut self.groups[self.copies[id].island];
        if group.leader == id {
            group.lost_us = Some(now);
        }
    }

    /// An island that is led again so soon was away for nobody who lost it with its primary: others have waited for it.
    fn judge_absence(&mut self, island: IslandId, lost_us: u64) {
        let is_away = |machine: &Machine| {
            machine.ways.get(&island).is_some_and(|way| !way.up && !way.told && way.since_us >= lost_us)
        };
        if let Some(node) = self.machines.ids().find(|node| is_away(&self.machines[*node])) {
            let after_us = self.now_us() - lost_us;
            self.fail(format!("island {island}: away for machine {node}, and led again after {after_us} us"));
        }
    }

    /// The machine of a copy tells everybody whether that leads.
    pub(crate) fn says_who_leads(&mut self, id: CopyId, epoch: Option<u32>) {
        let IslandCopy { island, node, .. } = self.copies[id];
        self.faults += 1;
        self.machine_hears(node, node, island, epoch);
        for conn in 0..self.conns.len() {
            self.say_on(conn, node, island, epoch);
        }
    }

    /// A machine tells the other end of a link whether it leads an island, if it can send on that link.
    pub(crate) fn say_on(&mut self, conn: usize, node: NodeId, island: IslandId, epoch: Option<u32>) {
        let c = &self.conns[conn];
        let (generation, open) = (c.generation, c.open && c.whole);
        match c.from {
            Party::Client(_) if c.to == node && open => {
                self.send_to_client(conn, generation, Frame { island, message: ToClient::Leads { epoch } });
            }
            Party::Machine(from) if from == node && open => {
                self.send_to_island(conn, Frame { island, message: ToIsland::Leads { epoch } });
            }
            _ => {}
        }
    }

    /// A link is open: whoever can send on it says which islands it leads.
    pub(crate) fn tell_leads_on(&mut self, conn: usize) {
        let c = &self.conns[conn];
        let node = match c.from {
            Party::Client(_) => c.to,
            Party::Machine(node) => node,
        };
        for copy in self.led_on(node) {
            let IslandCopy { island, leads, .. } = self.copies[copy];
            self.say_on(conn, node, island, leads);
        }
    }

    /// Of whom somebody has heard that it leads an island.
    pub(crate) fn known_leader(&self, who: Party, island: IslandId) -> Option<NodeId> {
        let leaders = match who {
            Party::Client(client) => &self.clients[client].leaders,
            Party::Machine(node) => &self.machines[node].leaders,
        };
        leaders.get(&island)?.node
    }

    /// The islands that a client asks at a machine.
    pub(crate) fn believed_at(&self, client: usize, node: NodeId) -> Vec<IslandId> {
        let leaders = &self.clients[client].leaders;
        leaders.iter().filter(|(_, leader)| leader.node == Some(node)).map(|(island, _)| *island).collect()
    }

    /// A client hears from a machine whether that leads an island.
    pub(crate) fn client_hears(&mut self, conn: usize, client: usize, island: IslandId, epoch: Option<u32>) {
        let (who, open) = (self.conns[conn].to, self.conns[conn].open);
        if !hears(&mut self.clients[client].leaders, who, island, epoch) {
            return;
        }
        self.clients[client].moves += 1;
        self.with_client(client, &[], |route, out| match epoch {
            Some(_) if open => route.replaced(island, out),
            _ => route.reachable(island, false, out),
        });
    }

    /// A machine hears from another one, or knows of itself, whether that leads an island.
    pub(crate) fn machine_hears(&mut self, node: NodeId, who: NodeId, island: IslandId, epoch: Option<u32>) {
        if hears(&mut self.machines[node].leaders, who, island, epoch) {
            self.judge_way(node, island);
        }
    }

    /// The links of a machine with another one have changed.
    pub(crate) fn judge_ways(&mut self, node: NodeId, other: NodeId) {
        for island in self.islands() {
            if self.known_leader(Party::Machine(node), island) == Some(other) {
                self.judge_way(node, island);
            }
        }
    }

    /// The way from a machine to an island may be another one now: what was on the old one may be lost.
    fn judge_way(&mut self, node: NodeId, island: IslandId) {
        let now = self.now_us();
        let leader = self.known_leader(Party::Machine(node), island);
        let machine = &mut self.machines[node];
        let up = leader.is_some_and(|leader| leader == node || machine.both[leader].is_reachable());
        let life = machine.life;
        let way = machine.ways.entry(island).or_default();
        let was_up = std::mem::replace(&mut way.up, up);
        if up {
            way.told = true;
            self.tell_led(node, island, true);
        } else if was_up {
            way.since_us = now;
            let after = if planted(Bug::AwayInFailOver) { 0 } else { AWAY_US };
            self.schedule(after, Happening::Away { node, life, island, since_us: now });
        }
    }

    /// An island could not be asked for a while.
    pub(crate) fn away(&mut self, node: NodeId, life: u64, island: IslandId, since_us: u64) {
        let machine = &mut self.machines[node];
        let Some(way) = machine.ways.get_mut(&island).filter(|_| machine.life == life) else { return };
        if !way.up && way.since_us == since_us && std::mem::take(&mut way.told) {
            self.tell_led(node, island, false);
        }
    }

    fn tell_led(&mut self, node: NodeId, island: IslandId, up: bool) {
        for copy in self.led_on(node) {
            if self.copies[copy].island != island {
                self.begin(copy, None, Event::PeerReachable { island, up });
            }
        }
    }
}

/// Somebody hears from a machine whether that leads an island. True if that is news.
fn hears(
    leaders: &mut BTreeMap<IslandId, Leader>,
    who: NodeId,
    island: IslandId,
    epoch: Option<u32>,
) -> bool {
    let known = leaders.get(&island).copied();
    let now = match epoch {
        Some(epoch) if known.is_none_or(|known| known.epoch <= epoch) => Leader { epoch, node: Some(who) },
        None if known.is_some_and(|known| known.node == Some(who)) => {
            Leader { node: None, ..known.expect("it was looked at") }
        }
        _ => return false,
    };
    leaders.insert(island, now);
    known != Some(now)
}
