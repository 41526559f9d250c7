//! The cluster's own etcd, as it is planned: which members there should be, the next step towards them, and with what a member is
//! started. Only values: starts nothing and asks nobody.

use std::path::PathBuf;
use std::time::Duration;

use crate::admin::EtcdMember;

/// Members with a vote, once there are as many nodes. Until then there is one: two would be worse, since the death of either stops
/// both.
pub const VOTERS: usize = 3;

/// A leader shows this often that it lives,
const HEARTBEAT_MS: u32 = 100;
/// and after this without it another one is elected. Longer would not fit into the 2 s of a fail-over; shorter, a busy disk would
/// bring about elections.
const ELECTION_MS: u32 = 800;

/// First pause before a member that has died is started again; each further one is twice as long,
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// up to this.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A life after which the pauses begin anew.
const LIFE_MIN: Duration = Duration::from_secs(30);

/// Certificates of a member, by the paths of their files (PEM). etcd reads them anew for each connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberTls {
    /// Who signs the certificates of members and of those that may ask.
    pub ca: PathBuf,
    /// This member's, for both directions (`serverAuth` and `clientAuth`). Other members check the host of its URL against it.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Only certificates with this name may ask or be a member. Without it every certificate of the CA may, a client's too.
    pub name: Option<String>,
}

/// How a member that has no data yet comes into being.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beginning {
    /// As the only member of a new etcd.
    First,
    /// It was added to those that there are: their names and peer URLs, without its own.
    Joins(Vec<(String, String)>),
}

/// A member: what it is started with, again and again. Name, addresses and data directory stay the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPlan {
    /// The program.
    pub program: PathBuf,
    /// A name that no other member has.
    pub name: String,
    /// A name that no other etcd has. Members of different ones refuse each other.
    pub cluster: String,
    /// Its own directory.
    pub data: PathBuf,
    /// Where others reach it.
    pub host: String,
    /// Where it listens; `0.0.0.0` and `[::]` are all addresses of the machine.
    pub listen: String,
    /// For clients.
    pub client_port: u16,
    /// For other members.
    pub peer_port: u16,
    /// None: nothing is encrypted, for one machine.
    pub tls: Option<MemberTls>,
    /// Counts if there is no data yet.
    pub beginning: Beginning,
    /// Most bytes of its database, if it is not etcd's default.
    pub quota_bytes: Option<u64>,
    /// A file to which its messages are added; none: where those of its parent go.
    pub log: Option<PathBuf>,
}

impl MemberPlan {
    fn url(&self, host: &str, port: u16) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{host}:{port}")
    }

    /// Where clients reach it.
    pub fn client_url(&self) -> String {
        self.url(&self.host, self.client_port)
    }

    /// Where other members reach it.
    pub fn peer_url(&self) -> String {
        self.url(&self.host, self.peer_port)
    }

    /// The command line, without the program.
    pub fn arguments(&self) -> Vec<String> {
        let own = (self.name.clone(), self.peer_url());
        let (state, others) = match &self.beginning {
            Beginning::First => ("new", [].as_slice()),
            Beginning::Joins(others) => ("existing", others.as_slice()),
        };
        let all = others.iter().chain([&own]).map(|(name, url)| format!("{name}={url}"));
        let mut arguments = vec![
            format!("--name={}", self.name),
            format!("--data-dir={}", self.data.display()),
            format!("--listen-client-urls={}", self.url(&self.listen, self.client_port)),
            format!("--advertise-client-urls={}", self.client_url()),
            format!("--listen-peer-urls={}", self.url(&self.listen, self.peer_port)),
            format!("--initial-advertise-peer-urls={}", self.peer_url()),
            format!("--initial-cluster={}", all.collect::<Vec<_>>().join(",")),
            format!("--initial-cluster-state={state}"),
            format!("--initial-cluster-token={}", self.cluster),
            format!("--heartbeat-interval={HEARTBEAT_MS}"),
            format!("--election-timeout={ELECTION_MS}"),
            // A member that comes back asks before it disturbs a leader that all others hear.
            "--pre-vote=true".to_owned(),
            "--auto-compaction-mode=periodic".to_owned(),
            "--auto-compaction-retention=1h".to_owned(),
            // Nobody uses HTTP, and it would ask etcd with the server's certificate.
            "--enable-grpc-gateway=false".to_owned(),
            "--logger=zap".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        arguments.extend(self.quota_bytes.map(|quota| format!("--quota-backend-bytes={quota}")));
        if let Some(tls) = &self.tls {
            for (of, trusted) in [("", "client-cert"), ("peer-", "peer-client-cert")] {
                arguments.push(format!("--{of}cert-file={}", tls.certificate.display()));
                arguments.push(format!("--{of}key-file={}", tls.key.display()));
                arguments.push(format!("--{of}trusted-ca-file={}", tls.ca.display()));
                arguments.push(format!("--{trusted}-auth"));
            }
            if let Some(name) = &tls.name {
                arguments.push(format!("--client-cert-allowed-hostname={name}"));
                arguments.push(format!("--peer-cert-allowed-hostname={name}"));
            }
        }
        arguments
    }
}

/// When a member that has died is started again.
#[derive(Debug, Clone, Default)]
pub struct Restarts {
    pause: Option<Duration>,
}

impl Restarts {
    /// It has died after a life of this length: the pause before the next one.
    pub fn died(&mut self, lived: Duration) -> Duration {
        let pause = match self.pause {
            Some(last) if lived < LIFE_MIN => (last * 2).min(PAUSE_MAX),
            _ => PAUSE_MIN,
        };
        self.pause = Some(pause);
        pause
    }
}

/// What is to be done next, so that the members are those that are wanted. Each step is done alone, and the members are asked for
/// again before the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberStep {
    /// Nothing.
    Done,
    /// This one is not wanted.
    Remove {
        /// The member.
        id: u64,
    },
    /// This one is missing: it is added as a learner, and started then.
    Add {
        /// Where it will be reached.
        peer_url: String,
    },
    /// This one needs a vote, and gets it when it has everything.
    Promote {
        /// The member.
        id: u64,
    },
}

/// Of all nodes' peer URLs, in the order in which they are preferred, those that should be members, given those that are. Members
/// stay members.
pub fn wanted_members(members: &[EtcdMember], nodes: &[String]) -> Vec<String> {
    let is_member = |url: &String| members.iter().any(|member| member.peer_urls.contains(url));
    let (are, others): (Vec<&String>, Vec<&String>) = nodes.iter().partition(|url| is_member(url));
    let number = if nodes.len() < VOTERS { 1.max(are.len().min(VOTERS)) } else { VOTERS };
    are.into_iter().chain(others).take(number).cloned().collect()
}

/// A member whose node is reached elsewhere now, and where. It keeps its data.
pub(crate) fn moved<'a>(members: &[EtcdMember], nodes: &'a [(String, String)]) -> Option<(u64, &'a str)> {
    members.iter().find_map(|member| {
        // One that was never started has no name, and nothing to keep.
        let (_, url) = nodes.iter().find(|(name, _)| *name == member.name)?;
        (!member.peer_urls.contains(url)).then_some((member.id, url.as_str()))
    })
}

/// The next step towards these members, by their peer URLs.
pub fn next_step(members: &[EtcdMember], wanted: &[String]) -> MemberStep {
    let is_wanted = |member: &&EtcdMember| member.peer_urls.iter().any(|url| wanted.contains(url));
    // One that has gone counts for the majority until it is removed, and a learner of old would be in the way of a new one.
    if let Some(member) = members.iter().find(|member| !is_wanted(member))
        && members.iter().any(|member| is_wanted(&member) && !member.is_learner)
    {
        return MemberStep::Remove { id: member.id };
    }
    // etcd 3.4 has one learner at a time.
    if let Some(learner) = members.iter().find(|member| member.is_learner) {
        return MemberStep::Promote { id: learner.id };
    }
    let is_there = |url: &&String| members.iter().any(|member| member.peer_urls.contains(url));
    match wanted.iter().find(|url| !is_there(url)) {
        Some(missing) => MemberStep::Add { peer_url: missing.clone() },
        None => MemberStep::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> MemberPlan {
        MemberPlan {
            program: "etcd".into(),
            name: "node-1".to_owned(),
            cluster: "c1".to_owned(),
            data: "/data/etcd".into(),
            host: "10.0.0.1".to_owned(),
            listen: "0.0.0.0".to_owned(),
            client_port: 7102,
            peer_port: 7103,
            tls: None,
            beginning: Beginning::First,
            quota_bytes: None,
            log: None,
        }
    }

    #[test]
    fn a_member_is_started_with_what_the_page_says() {
        let arguments = plan().arguments();
        for part in [
            "--name=node-1",
            "--data-dir=/data/etcd",
            "--listen-client-urls=http://0.0.0.0:7102",
            "--advertise-client-urls=http://10.0.0.1:7102",
            "--initial-cluster=node-1=http://10.0.0.1:7103",
            "--initial-cluster-state=new",
            "--heartbeat-interval=100",
            "--election-timeout=800",
            "--auto-compaction-retention=1h",
        ] {
            assert!(arguments.iter().any(|argument| argument == part), "{part} is not in {arguments:?}");
        }
        assert!(!arguments.iter().any(|argument| argument.contains("cert")), "{arguments:?}");
        let tls = MemberTls {
            ca: "/ca".into(),
            certificate: "/c".into(),
            key: "/k".into(),
            name: Some("etcd.atoll".to_owned()),
        };
        let others = vec![("node-0".to_owned(), "https://10.0.0.9:7103".to_owned())];
        let joins = MemberPlan { tls: Some(tls), beginning: Beginning::Joins(others), ..plan() };
        let arguments = joins.arguments();
        for part in [
            "--initial-cluster=node-0=https://10.0.0.9:7103,node-1=https://10.0.0.1:7103",
            "--initial-cluster-state=existing",
            "--client-cert-auth",
            "--peer-client-cert-auth",
            "--trusted-ca-file=/ca",
            "--peer-trusted-ca-file=/ca",
            "--peer-key-file=/k",
            "--client-cert-allowed-hostname=etcd.atoll",
            "--peer-cert-allowed-hostname=etcd.atoll",
        ] {
            assert!(arguments.iter().any(|argument| argument == part), "{part} is not in {arguments:?}");
        }
    }

    #[test]
    fn pauses_grow_while_lives_are_short_and_begin_anew_after_a_long_one() {
        let mut restarts = Restarts::default();
        let short = Duration::from_secs(1);
        let pauses: Vec<u128> = (0..9).map(|_| restarts.died(short).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        assert_eq!(restarts.died(LIFE_MIN), PAUSE_MIN);
        assert_eq!(restarts.died(short), PAUSE_MIN * 2);
    }

    fn member(nth: u64, is_learner: bool) -> EtcdMember {
        let peer_urls = vec![url(nth)];
        EtcdMember { id: nth, name: String::new(), peer_urls, client_urls: Vec::new(), is_learner }
    }

    fn url(nth: u64) -> String {
        format!("http://n{nth}:1")
    }

    #[test]
    fn there_is_one_member_until_there_are_three_nodes_and_members_stay() {
        let urls = |of: &[u64]| of.iter().copied().map(url).collect::<Vec<_>>();
        let wanted = |members: &[u64], nodes: &[u64]| {
            let members: Vec<_> = members.iter().map(|nth| member(*nth, false)).collect();
            wanted_members(&members, &urls(nodes))
        };
        assert_eq!(wanted(&[], &[1]), urls(&[1]));
        assert_eq!(wanted(&[1], &[1, 2]), urls(&[1]));
        assert_eq!(wanted(&[2], &[1, 2]), urls(&[2]), "the one that has the data");
        assert_eq!(wanted(&[1], &[1, 2, 3]), urls(&[1, 2, 3]));
        assert_eq!(wanted(&[4, 2, 5], &[1, 2, 3, 4, 5]), urls(&[2, 4, 5]));
        assert_eq!(wanted(&[1, 2, 3], &[1, 3, 4]), urls(&[1, 3, 4]), "node 2 was removed");
        assert_eq!(wanted(&[1, 2, 3], &[1, 3]), urls(&[1, 3]), "nobody takes its place yet");
    }

    #[test]
    fn members_are_added_one_after_the_other_and_those_that_are_gone_leave_first() {
        let three = [url(1), url(2), url(3)];
        let step = |members: &[EtcdMember]| next_step(members, &three);
        let (one, two, three) = (member(1, false), member(2, false), member(3, false));
        assert_eq!(step(std::slice::from_ref(&one)), MemberStep::Add { peer_url: url(2) });
        assert_eq!(step(&[one.clone(), member(2, true)]), MemberStep::Promote { id: 2 });
        assert_eq!(step(&[one.clone(), two.clone()]), MemberStep::Add { peer_url: url(3) });
        assert_eq!(step(&[one.clone(), two.clone(), three.clone()]), MemberStep::Done);
        let gone = member(9, false);
        assert_eq!(step(&[gone.clone(), one.clone(), three]), MemberStep::Remove { id: 9 });
        assert_eq!(step(&[one, two, member(9, true)]), MemberStep::Remove { id: 9 });
        assert_eq!(step(&[gone]), MemberStep::Add { peer_url: url(1) }, "the last one stays");
    }
}
