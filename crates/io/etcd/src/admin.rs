//! Questions about etcd itself and changes of its members, for commands and for whoever looks after the cluster's own etcd.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use atoll_rpc::Address;
use prost::Message;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::api::{
    ALARM, AlarmResponse, MEMBER_ADD, MEMBER_LIST, MEMBER_PROMOTE, MEMBER_REMOVE, MEMBER_UPDATE,
    MemberAddRequest, MemberAddResponse, MemberId, MemberListResponse, MemberMessage, MemberUpdateRequest,
    Nothing, RANGE, RangeRequest, RangeResponse, SNAPSHOT, STATUS, SnapshotResponse, StatusResponse,
};
use crate::client::Client;
use crate::endpoint::Failure;
use crate::source::EtcdSource;

/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a snapshot may take: 8 GiB, the most that etcd advises, at 30 MB/s.
const SNAPSHOT_MAX: Duration = Duration::from_secs(300);

/// Why etcd cannot be used, or has not done what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// Nobody answers.
    #[error(
        "{place} does not answer: {why}.\n\
        Is it running, and is the address right? Serving goes on; groups cannot change until it is back."
    )]
    Away {
        /// Where.
        place: String,
        /// Each member, and why.
        why: String,
    },
    /// It answers, and refuses.
    #[error(
        "{place} refuses: {why}.\n\
        Check the user, its password and its rights, the certificates, and whether etcd has an alarm."
    )]
    Refused {
        /// Where.
        place: String,
        /// Its words.
        why: String,
    },
    /// Its version is not supported.
    #[error("{place} cannot be used: {why}.\nInstall etcd 3.4 or later there, or name another one.")]
    TooOld {
        /// Where.
        place: String,
        /// Which version it has.
        why: String,
    },
    /// The thread or a file has failed.
    #[error("{what} has failed: {source}.")]
    Io {
        /// What was done.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

/// A member, as all members know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdMember {
    /// Its number.
    pub id: u64,
    /// Its name; empty until it has started for the first time.
    pub name: String,
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it; empty until it has started for the first time.
    pub client_urls: Vec<String>,
    /// It is sent everything, and has no vote.
    pub is_learner: bool,
}

impl From<MemberMessage> for EtcdMember {
    fn from(member: MemberMessage) -> Self {
        let MemberMessage { id, name, peer_urls, client_urls, is_learner } = member;
        Self { id, name, peer_urls, client_urls, is_learner }
    }
}

/// What a member says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its number.
    pub id: u64,
    /// Its version.
    pub version: String,
    /// The member that leads, as far as it knows.
    pub leader: Option<u64>,
    /// It has no vote.
    pub is_learner: bool,
    /// Size of its database file.
    pub db_bytes: u64,
    /// The last entry of its log.
    pub last_entry: u64,
}

/// Why a member takes no changes any more, until somebody has mended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtcdAlarm {
    /// Its database has reached its quota.
    NoSpace,
    /// Its data differs from that of the others.
    Corrupt,
    /// One that this program does not know.
    Other(i32),
}

/// Asks etcd about itself.
pub struct EtcdAdmin {
    client: Client,
    source: EtcdSource,
}

impl std::fmt::Debug for EtcdAdmin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EtcdAdmin({})", self.source)
    }
}

impl EtcdAdmin {
    /// Only starts a thread: etcd may be away.
    pub fn open(source: &EtcdSource) -> Result<Self, EtcdError> {
        let client = Client::start(source)
            .map_err(|source| EtcdError::Io { what: "starting a thread".to_owned(), source })?;
        Ok(Self { client, source: source.clone() })
    }

    fn failed(&self, why: Failure) -> EtcdError {
        let place = self.source.to_string();
        match why {
            Failure::Unreached(why) | Failure::Away(why) => EtcdError::Away { place, why },
            Failure::Refused(why) => EtcdError::Refused { place, why },
            Failure::TooOld(why) => EtcdError::TooOld { place, why },
        }
    }

    fn ask<Q, R>(&self, path: &'static str, message: Q) -> Result<R, EtcdError>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let answer = self.client.ask(path, message, PATIENCE).map_err(|why| self.failed(why))?;
        Ok(answer.message)
    }

    /// Whether it can be used as it is named: somebody answers, is not too old, has a leader, and lets this user read its keys. Each
    /// member is asked once.
    pub fn check(&self) -> Result<(), EtcdError> {
        let [key, range_end] = ["/", "0"].map(|end| format!("{}{end}", self.source.prefix).into_bytes());
        let asked = RangeRequest { key, range_end, min_mod_revision: i64::MAX };
        let mut failures = Vec::new();
        for nth in 0..self.client.members.endpoints.len() {
            match self.ask_one::<_, RangeResponse>(nth, RANGE, asked.clone()) {
                Ok(_) => return Ok(()),
                Err(Failure::Unreached(why) | Failure::Away(why)) => {
                    failures.push(format!("{}: {why}", self.source.hosts[nth]));
                }
                Err(why) => return Err(self.failed(why)),
            }
        }
        Err(self.failed(Failure::Away(failures.join("; "))))
    }

    fn ask_one<Q, R>(&self, nth: usize, path: &'static str, message: Q) -> Result<R, Failure>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let endpoint = Arc::clone(&self.client.members.endpoints[nth]);
        self.client.wait(PATIENCE, async move {
            let asked = timeout(PATIENCE, endpoint.call(path, message)).await;
            asked.unwrap_or_else(|_| {
                endpoint.forget();
                Err(Failure::Away("no answer".to_owned()))
            })
        })
    }

    /// What each member that is named says of itself, or why it says nothing.
    pub fn status(&self) -> Vec<(Address, Result<MemberStatus, EtcdError>)> {
        let ask = |nth: usize| {
            let asked = self.ask_one(nth, STATUS, Nothing {});
            let told = asked.map(|status: StatusResponse| MemberStatus {
                id: status.header.map_or(0, |header| header.member_id),
                version: status.version,
                leader: (status.leader != 0).then_some(status.leader),
                is_learner: status.is_learner,
                db_bytes: u64::try_from(status.db_bytes).unwrap_or(0),
                last_entry: status.raft_index,
            });
            (self.source.hosts[nth].clone(), told.map_err(|why| self.failed(why)))
        };
        (0..self.source.hosts.len()).map(ask).collect()
    }

    /// The alarms that are on, with the member of each.
    pub fn alarms(&self) -> Result<Vec<(u64, EtcdAlarm)>, EtcdError> {
        let told: AlarmResponse = self.ask(ALARM, Nothing {})?;
        let kind = |alarm| match alarm {
            1 => EtcdAlarm::NoSpace,
            2 => EtcdAlarm::Corrupt,
            other => EtcdAlarm::Other(other),
        };
        Ok(told.alarms.into_iter().map(|of| (of.member_id, kind(of.alarm))).collect())
    }

    /// All members.
    pub fn members(&self) -> Result<Vec<EtcdMember>, EtcdError> {
        let told: MemberListResponse = self.ask(MEMBER_LIST, Nothing {})?;
        Ok(told.members.into_iter().map(EtcdMember::from).collect())
    }

    /// Adds a member without a vote, which others reach at this URL. It may be started then, and not before. All members.
    pub fn add_learner(&self, peer_url: &str) -> Result<Vec<EtcdMember>, EtcdError> {
        let asked = MemberAddRequest { peer_urls: vec![peer_url.to_owned()], is_learner: true };
        let told: MemberAddResponse = self.ask(MEMBER_ADD, asked)?;
        Ok(told.members.into_iter().map(EtcdMember::from).collect())
    }

    /// Gives a learner a vote. Refused until it has what the others have.
    pub fn promote(&self, id: u64) -> Result<(), EtcdError> {
        self.ask::<_, MemberListResponse>(MEMBER_PROMOTE, MemberId { id }).map(|_| ())
    }

    /// Others reach a member at this URL from now on.
    pub fn set_peer_url(&self, id: u64, peer_url: &str) -> Result<(), EtcdError> {
        let asked = MemberUpdateRequest { id, peer_urls: vec![peer_url.to_owned()] };
        self.ask::<_, MemberListResponse>(MEMBER_UPDATE, asked).map(|_| ())
    }

    /// Takes a member out for good. Its data is not used again.
    pub fn remove(&self, id: u64) -> Result<(), EtcdError> {
        self.ask::<_, MemberListResponse>(MEMBER_REMOVE, MemberId { id }).map(|_| ())
    }

    /// Writes all that etcd has into a file, from which `etcdctl snapshot restore` makes the data of a member. The file is there
    /// whole, or is the one that was there before.
    pub fn snapshot(&self, path: &Path) -> Result<(), EtcdError> {
        let new = path.with_extension("new");
        let io = |source| EtcdError::Io { what: format!("writing {}", path.display()), source };
        // Of an earlier attempt, and perhaps open to others.
        let _ = fs::remove_file(&new);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new).map_err(io)?;
        let endpoint = Arc::clone(&self.client.members.endpoints[self.client.members.preferred()]);
        let written = self.client.wait(SNAPSHOT_MAX, async move {
            let copy = async {
                let mut stream = endpoint.stream::<_, SnapshotResponse>(SNAPSHOT, Nothing {}).await?;
                let mut left = None;
                while let Some(part) = stream.next().await {
                    let part = part.map_err(|why| Failure::Away(why.message().to_owned()))?;
                    left = Some(part.remaining_bytes);
                    if let Err(why) = file.write_all(&part.blob) {
                        return Ok(Err(why));
                    }
                }
                match left {
                    Some(0) => Ok(file.sync_all()),
                    _ => Err(Failure::Away("the snapshot ended too early".to_owned())),
                }
            };
            timeout(SNAPSHOT_MAX, copy)
                .await
                .unwrap_or_else(|_| Err(Failure::Away("it takes too long".to_owned())))
        });
        let written = written.map_err(|why| self.failed(why)).and_then(|written| written.map_err(io));
        if written.is_err() {
            // It is of no use, and the next one writes it anew.
            let _ = fs::remove_file(&new);
            return written;
        }
        fs::rename(&new, path).and_then(|()| sync_folder(path)).map_err(io)
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))?
        .sync_all()
}
