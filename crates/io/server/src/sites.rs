//! Orders about sites of wide volumes to a node: how a new site of it joins a volume. Never decides who is let in.

use atoll_ca::SiteLine;
use atoll_core::{Encode, IslandId, NodeId, Table, VolumeId};
use atoll_proto::{NodeConfig, SiteOrder, SiteReply, SiteSettings, VolumeConfig, VolumeKind};
use atoll_sites::{JoinAsk, JoinError, join};
use atoll_wide::members::{NumberedSite, is_site_name};

use crate::member as folders;
use crate::node::Node;
use crate::wide::{member, note_waits, random_bytes, resolve};

impl Node {
    pub(crate) fn order_site(&self, order: SiteOrder) -> Result<SiteReply, String> {
        let volume = match &order {
            SiteOrder::Invite { volume, .. }
            | SiteOrder::Start { volume }
            | SiteOrder::List { volume }
            | SiteOrder::Leave { volume }
            | SiteOrder::Forget { volume, .. }
            | SiteOrder::Confirm { volume, .. }
            | SiteOrder::TrashList { volume, .. }
            | SiteOrder::TrashRestore { volume, .. }
            | SiteOrder::TrashEmpty { volume, .. }
            | SiteOrder::Settled { volume, .. } => volume.clone(),
            SiteOrder::Join { .. } => return self.join_site(order),
        };
        let served = self.volume(&volume).ok_or_else(|| {
            format!(
                "There is no volume {volume} at this node, or it is not served.\n\"atoll status\" says why."
            )
        })?;
        served.order_site(order)
    }

    /// A new site of this node joins the volume of a line.
    fn join_site(&self, order: SiteOrder) -> Result<SiteReply, String> {
        let SiteOrder::Join { line, name, listen, addresses, bytes_per_s, waits } = order else {
            return Err("This is no order to join.".to_owned());
        };
        let line: SiteLine = line.parse().map_err(|why: atoll_ca::BadLine| why.to_string())?;
        check_site(&name, &listen, &addresses)?;
        let (key, _) = self.setup.sites.of(&self.setup.data, true)?;
        let site = u64::from_le_bytes(random_bytes().map_err(|why| why.to_string())?).max(1);
        let settings = SiteSettings { site, name, listen, addresses, bytes_per_s, ..SiteSettings::default() };
        let site = NumberedSite { site, member: member(&settings, &key) };
        let ask = JoinAsk { secret: u128::from_le_bytes(line.secret), site };
        let joined = join(&key, &line.addresses, line.key, &ask).map_err(|why| match why {
            JoinError::Refused(why) => why,
            JoinError::NotReached(why) => format!(
                "The site that made the line cannot be reached: {why}.\n\
                Is it running, and may this machine connect to it?"
            ),
        })?;
        let config = VolumeConfig {
            id: VolumeId(joined.volume),
            name: joined.name.clone(),
            seed: joined.seed,
            table: Table::new(1),
            nodes: vec![NodeConfig {
                daemon: 0,
                node: NodeId(0),
                address: String::new(),
                islands: vec![IslandId(0)],
            }],
            kind: VolumeKind::Wide,
            copies: None,
            site: Some(SiteSettings {
                site: joined.site,
                uid: joined.uid,
                gid: joined.gid,
                hosts: joined.sites.iter().map(|host| host.to_vec().into()).collect(),
                ..settings
            }),
        };
        let made = self.prepare(&config, NodeId(0)).and_then(|()| {
            if waits {
                let folder = folders::hidden_folder(&self.setup.data, config.id);
                note_waits(&folder).map_err(|why| crate::node::NodeError::Folder {
                    volume: config.name.clone(),
                    folder,
                    why: why.to_string(),
                })?;
            }
            self.activate(config.id)
        });
        made.map_err(|why| why.to_string())?;
        Ok(SiteReply::Joined { volume: joined.name })
    }
}

/// Whether a site may be named and reached so. The error says what to do next.
pub fn check_site(name: &str, listen: &str, addresses: &[String]) -> Result<(), String> {
    if !is_site_name(name) {
        return Err(format!(
            "\"{}\" cannot name a site: a name has 1 to 32 letters, digits, \"-\", \"_\" and \".\".\nName it: --name NAME",
            name.escape_debug()
        ));
    }
    if !listen.is_empty() {
        resolve(listen)?;
    }
    match addresses.iter().find(|address| !matches!(address.parse(), Ok(atoll_rpc::Address::Tcp { .. }))) {
        Some(bad) => {
            Err(format!("{bad} is no address at which other sites reach this one.\nWrite it as HOST:PORT."))
        }
        None => Ok(()),
    }
}
