//! The group records of a cluster in etcd.
//!
//! Invariant: a change is made only by a transaction that compares the head and what was seen of the key; whatever is not certain
//! is told as unknown. Nothing is kept in memory but the head that was read last, which a transaction compares anyway.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use atoll_control::{ControlError, GroupStore, WATCH_MAX};
use atoll_core::{Decode, Encode, IslandId, VolumeId};
use atoll_proto::group::{ChangedGroups, GroupRecord, Revision, StoredGroup, Swapped};
use atoll_proto::{BadConfig, VolumeConfig};
use atoll_rpc::ClusterId;

use crate::api::{
    Ask, Compare, DeleteRangeRequest, Is, KeyValue, PutRequest, RangeRequest, RangeResponse, RequestOp, TXN,
    TxnRequest, TxnResponse,
};
use crate::client::{Answer, Client, Members};
use crate::endpoint::Failure;
use crate::keys::{BadHead, FORMAT, Head, Keys, parts, revision};
use crate::source::EtcdSource;
use crate::watch::{Hints, watch};

/// How long a question may take, unless another time is given.
const PATIENCE: Duration = Duration::from_secs(1);
/// Records in one transaction. etcd allows 128 operations.
const AT_ONCE: usize = 100;

/// See the module. Connects when it is asked.
pub struct EtcdStore {
    client: Client,
    source: EtcdSource,
    cluster: ClusterId,
    keys: Keys,
    patience: Duration,
    place: String,
    head: Mutex<Option<Head>>,
    hints: Arc<Hints>,
    watched: Once,
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EtcdStore({})", self.place)
    }
}

impl EtcdStore {
    /// The store of a cluster. Only starts a thread: etcd may be away.
    pub fn open(source: &EtcdSource, cluster: ClusterId) -> std::io::Result<Self> {
        Self::with_patience(source, cluster, PATIENCE)
    }

    /// The same; a question may take so long.
    pub fn with_patience(
        source: &EtcdSource,
        cluster: ClusterId,
        patience: Duration,
    ) -> std::io::Result<Self> {
        Ok(Self {
            client: Client::start(source)?,
            source: source.clone(),
            cluster,
            keys: Keys::new(&source.prefix, cluster),
            patience,
            place: source.to_string(),
            head: Mutex::default(),
            hints: Arc::default(),
            watched: Once::new(),
        })
    }

    /// Makes the store, if there is none yet. Until then all questions fail, so that an etcd that has lost its data is not taken for
    /// one in which there are no records. Whether it was made now.
    pub fn make(&self) -> Result<bool, ControlError> {
        let absent = Compare::new(self.keys.head(), Is::Changed(0));
        let made = put(self.keys.head(), Head::FIRST.to_bytes());
        let answer = self.txn(vec![absent], vec![made], vec![range(self.keys.head())])?;
        if !answer.message.succeeded {
            self.head_in(answer.message.responses.first().and_then(|op| op.range.as_ref()))?;
        }
        Ok(answer.message.succeeded)
    }

    /// Puts in the first records of the groups of a volume that is being made. `Taken` if it has records already. Before it has
    /// answered, some of them may be there without the others.
    pub fn create_groups(&self, id: VolumeId, first: &[(IslandId, GroupRecord)]) -> Result<(), ControlError> {
        let head = self.head()?;
        let (from, end) = self.keys.groups(id);
        for (nth, part) in first.chunks(AT_ONCE).enumerate() {
            let mut compare = vec![Compare::new(self.keys.head(), Is::Value(head.to_bytes()))];
            if nth == 0 {
                let none = Compare::new(from.clone(), Is::Created(0));
                compare.push(Compare { range_end: end.clone(), ..none });
            }
            for (island, _) in part {
                compare.push(Compare::new(self.keys.group(id, *island), Is::Created(0)));
            }
            let answer = self.txn(compare, self.puts(id, part), Vec::new())?;
            if answer.was_asked_before && !answer.message.succeeded {
                return Err(self.unavailable("some of the records may be there, and some not".to_owned()));
            }
            if !answer.message.succeeded {
                return Err(ControlError::Taken { volume: id.into() });
            }
        }
        Ok(())
    }

    /// Forgets the records of a volume that was removed, or not made after all.
    pub fn remove_groups(&self, id: VolumeId) -> Result<(), ControlError> {
        let (key, range_end) = self.keys.groups(id);
        let delete = RequestOp { ask: Some(Ask::Delete(DeleteRangeRequest { key, range_end })) };
        self.txn(Vec::new(), vec![delete], Vec::new()).map(|_| ())
    }

    /// Takes out the head and all records, so that no group can change until [`EtcdStore::rebuild`]. For one whose records are not known
    /// for certain while groups change. A revision that is not below any that was given: the rebuild must be above it.
    pub fn empty(&self) -> Result<Revision, ControlError> {
        let found = self.read(vec![range(self.keys.head())])?;
        let found =
            found.responses.first().and_then(|op| op.range.as_ref()).and_then(|range| range.kvs.first());
        let Some(kv) = found else { return Ok(Revision::NONE) };
        let generation = self.head_of(kv)?.generation;
        let is = Compare::new(self.keys.head(), Is::Value(kv.value.clone()));
        let (key, range_end) = self.keys.all_groups();
        let head = DeleteRangeRequest { key: self.keys.head(), range_end: Vec::new() };
        let delete = [head, DeleteRangeRequest { key, range_end }];
        let delete = delete.into_iter().map(|range| RequestOp { ask: Some(Ask::Delete(range)) });
        let emptied = self.txn(vec![is], delete.collect(), Vec::new())?;
        if !emptied.message.succeeded && !emptied.was_asked_before {
            return Err(self.unavailable("another rebuild was begun at the same time".to_owned()));
        }
        Ok(revision(generation, 0))
    }

    /// Writes these records in place of what is there, when etcd has lost something: it was restored from a copy, or is empty. All
    /// revisions from before are void then, so that no change that was meant for a lost record is made to another one. `above` is the
    /// greatest revision that is known to have been given.
    pub fn rebuild(
        &self,
        above: Revision,
        groups: &[(VolumeId, IslandId, GroupRecord)],
    ) -> Result<(), ControlError> {
        let found = self.read(vec![range(self.keys.head())])?;
        let found =
            found.responses.first().and_then(|op| op.range.as_ref()).and_then(|range| range.kvs.first());
        let (is, before) = match found {
            None => (Is::Changed(0), 0),
            Some(kv) => (Is::Value(kv.value.clone()), self.head_of(kv)?.generation),
        };
        let generation = before.max(parts(above).0).checked_add(1);
        let generation =
            generation.ok_or_else(|| self.unavailable("it was rebuilt 65,535 times".to_owned()))?;
        let head = Head { format: FORMAT, generation };
        let compare = Compare::new(self.keys.head(), is);
        let begun = self.txn(vec![compare], vec![put(self.keys.head(), head.to_bytes())], Vec::new())?;
        if !begun.message.succeeded {
            let why = match begun.was_asked_before {
                true => "a member has not answered, and the rebuild may be begun: begin another one",
                false => "another rebuild was begun at the same time",
            };
            return Err(self.unavailable(why.to_owned()));
        }
        let volumes: BTreeSet<u64> = groups.iter().map(|(volume, ..)| volume.0).collect();
        for volume in volumes.into_iter().map(VolumeId) {
            let of: Vec<(IslandId, GroupRecord)> = groups
                .iter()
                .filter(|(of, ..)| *of == volume)
                .map(|(_, island, record)| (*island, record.clone()))
                .collect();
            for part in of.chunks(AT_ONCE) {
                let compare = Compare::new(self.keys.head(), Is::Value(head.to_bytes()));
                let written = self.txn(vec![compare], self.puts(volume, part), Vec::new())?;
                if !written.message.succeeded {
                    return Err(self.unavailable("another rebuild was begun meanwhile".to_owned()));
                }
            }
        }
        *self.head.lock().expect("no panic while it is held") = Some(head);
        Ok(())
    }

    fn puts(&self, volume: VolumeId, records: &[(IslandId, GroupRecord)]) -> Vec<RequestOp> {
        let put = |(island, record): &(IslandId, GroupRecord)| {
            assert_eq!(record.check(), Ok(()), "{record:?} is no group");
            put(self.keys.group(volume, *island), record.to_vec())
        };
        records.iter().map(put).collect()
    }

    // ------------------------------------------------------------------ questions

    fn txn(
        &self,
        compare: Vec<Compare>,
        success: Vec<RequestOp>,
        failure: Vec<RequestOp>,
    ) -> Result<Answer<TxnResponse>, ControlError> {
        self.try_txn(compare, success, failure).map_err(|why| self.unavailable(why.why().to_owned()))
    }

    fn try_txn(
        &self,
        compare: Vec<Compare>,
        success: Vec<RequestOp>,
        failure: Vec<RequestOp>,
    ) -> Result<Answer<TxnResponse>, Failure> {
        self.client.ask(TXN, TxnRequest { compare, success, failure }, self.patience)
    }

    /// Several ranges at one moment, linearizable.
    fn read(&self, ranges: Vec<RequestOp>) -> Result<TxnResponse, ControlError> {
        self.txn(Vec::new(), ranges, Vec::new()).map(|answer| answer.message)
    }

    fn unavailable(&self, why: String) -> ControlError {
        ControlError::Unavailable { place: self.place.clone(), why }
    }

    fn damaged(&self, why: String) -> ControlError {
        ControlError::Damaged { place: self.place.clone(), why }
    }

    fn head_of(&self, kv: &KeyValue) -> Result<Head, ControlError> {
        let head = Head::read(&kv.value).map_err(|why| match why {
            BadHead::Newer(theirs) => {
                ControlError::Newer { place: self.place.clone(), ours: FORMAT.into(), theirs: theirs.into() }
            }
            BadHead::Malformed => {
                self.damaged(format!("its key {} is no head", String::from_utf8_lossy(&kv.key)))
            }
        })?;
        *self.head.lock().expect("no panic while it is held") = Some(head);
        Ok(head)
    }

    /// The head that a range of its key has found.
    fn head_in(&self, range: Option<&RangeResponse>) -> Result<Head, ControlError> {
        match range.and_then(|range| range.kvs.first()) {
            Some(kv) => self.head_of(kv),
            None => Err(self.unavailable(
                "it has nothing of this cluster. If it has lost its data, \"atoll control rebuild\" mends it"
                    .to_owned(),
            )),
        }
    }

    /// The head that was read last, or is now.
    fn head(&self) -> Result<Head, ControlError> {
        if let Some(head) = *self.head.lock().expect("no panic while it is held") {
            return Ok(head);
        }
        let read = self.read(vec![range(self.keys.head())])?;
        self.head_in(read.responses.first().and_then(|op| op.range.as_ref()))
    }

    fn stored(&self, head: Head, kv: &KeyValue) -> Result<StoredGroup, ControlError> {
        let stored =
            Keys::island(&kv.key).and_then(|island| Ok((island, GroupRecord::from_slice(&kv.value)?)));
        let (island, record) =
            stored.map_err(|why| self.damaged(format!("{}: {why}", String::from_utf8_lossy(&kv.key))))?;
        Ok(StoredGroup { island, revision: revision(head.generation, kv.mod_revision), record })
    }

    /// Records and the revision at which they were read.
    fn read_groups(&self, asked: RangeRequest) -> Result<(Head, i64, Vec<KeyValue>), ControlError> {
        let asked = RequestOp { ask: Some(Ask::Range(asked)) };
        let read = self.read(vec![range(self.keys.head()), asked])?;
        let mut ranges = read.responses.into_iter().map(|op| op.range);
        let head = self.head_in(ranges.next().flatten().as_ref())?;
        let found = ranges.next().flatten().unwrap_or_default();
        Ok((head, read.header.map_or(0, |header| header.revision), found.kvs))
    }

    fn changed_since(&self, volume: VolumeId, since: Revision) -> Result<ChangedGroups, ControlError> {
        let (generation, etcd) = parts(since);
        let (key, range_end) = self.keys.groups(volume);
        // What a later generation has is read by the second question.
        let known = self.head.lock().expect("no panic while it is held").map(|head| head.generation);
        let is_same = known == Some(generation) && since != Revision::NONE;
        let min_mod_revision = if is_same { etcd + 1 } else { 0 };
        let asked = RangeRequest { key, range_end, min_mod_revision };
        let (mut head, mut upto, mut kvs) = self.read_groups(asked.clone())?;
        if head.generation != generation && is_same {
            (head, upto, kvs) = self.read_groups(RangeRequest { min_mod_revision: 0, ..asked })?;
        }
        let mut groups = Vec::new();
        for kv in &kvs {
            groups.push(self.stored(head, kv)?);
        }
        let upto = revision(head.generation, upto);
        // Before what was looked at: etcd was restored from a copy. All is told as it is now.
        if upto < since {
            return self.changed_since(volume, Revision::NONE);
        }
        groups.retain(|stored| stored.revision > since);
        Ok(ChangedGroups { upto, groups })
    }

    /// The configuration of a volume, and the revision at which it was put there; none if it was never changed while in use.
    fn config_at(&self, volume: VolumeId) -> Result<(Head, Option<(i64, VolumeConfig)>), ControlError> {
        let key = self.keys.config(volume);
        let (head, _, kvs) = self.read_groups(RangeRequest { key, ..RangeRequest::default() })?;
        let config = kvs.first().map(|kv| {
            let config = VolumeConfig::from_stored(&kv.value).map_err(|why| match why {
                BadConfig::Newer { volume } => {
                    ControlError::NewerVolume { place: self.place.clone(), volume }
                }
                BadConfig::Malformed(why) => {
                    self.damaged(format!("{}: {why}", String::from_utf8_lossy(&kv.key)))
                }
            })?;
            Ok((kv.mod_revision, config))
        });
        Ok((head, config.transpose()?))
    }

    /// The same without the revision.
    pub fn config(&self, volume: VolumeId) -> Result<Option<VolumeConfig>, ControlError> {
        Ok(self.config_at(volume)?.1.map(|(_, config)| config))
    }

    /// Puts `next` in the place of the configuration of this version; none: if there is none yet.
    pub fn swap_config(&self, next: &VolumeConfig, expected: Option<u64>) -> Swapped {
        let unknown = |why: &dyn std::fmt::Display| Swapped::Unknown { why: why.to_string() };
        let (head, found) = match self.config_at(next.id) {
            Ok(found) => found,
            Err(why) => return unknown(&why),
        };
        if found.as_ref().map(|(_, config)| config.table.version()) != expected {
            return Swapped::Conflict;
        }
        let key = self.keys.config(next.id);
        let compare = vec![
            Compare::new(self.keys.head(), Is::Value(head.to_bytes())),
            Compare::new(key.clone(), Is::Changed(found.map_or(0, |(at, _)| at))),
        ];
        match self.try_txn(compare, vec![put(key, next.to_vec())], Vec::new()) {
            Err(why) => unknown(&self.unavailable(why.why().to_owned())),
            Ok(answer) if answer.message.succeeded => {
                Swapped::Done { revision: Revision(next.table.version()) }
            }
            Ok(answer) if answer.was_asked_before => {
                unknown(&"a member has not answered, and the configuration has changed since")
            }
            Ok(_) => Swapped::Conflict,
        }
    }

    /// Where it is, for people.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Whose it is.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }
}

fn range(key: Vec<u8>) -> RequestOp {
    RequestOp { ask: Some(Ask::Range(RangeRequest { key, ..RangeRequest::default() })) }
}

fn put(key: Vec<u8>, value: Vec<u8>) -> RequestOp {
    RequestOp { ask: Some(Ask::Put(PutRequest { key, value })) }
}

impl GroupStore for EtcdStore {
    fn group(&self, volume: VolumeId, island: IslandId) -> Result<Option<StoredGroup>, ControlError> {
        let key = self.keys.group(volume, island);
        let (head, _, kvs) = self.read_groups(RangeRequest { key, ..RangeRequest::default() })?;
        kvs.first().map(|kv| self.stored(head, kv)).transpose()
    }

    fn swap_group(
        &self,
        volume: VolumeId,
        island: IslandId,
        expected: Revision,
        next: &GroupRecord,
    ) -> Swapped {
        assert_eq!(next.check(), Ok(()), "{next:?} is no group");
        let unknown = |why: &dyn std::fmt::Display| Swapped::Unknown { why: why.to_string() };
        let key = self.keys.group(volume, island);
        // That there is no record is true in whichever generation was read last.
        let (generation, etcd) = match expected {
            Revision::NONE => match self.head() {
                Ok(head) => (head.generation, 0),
                Err(why) => return unknown(&why),
            },
            seen => parts(seen),
        };
        let head = Head { format: FORMAT, generation };
        let compare = vec![
            Compare::new(self.keys.head(), Is::Value(head.to_bytes())),
            Compare::new(key.clone(), Is::Changed(etcd)),
        ];
        let next = put(key, next.to_vec());
        let answer = match self.try_txn(compare, vec![next], vec![range(self.keys.head())]) {
            Ok(answer) => answer,
            Err(why) => return unknown(&self.unavailable(why.why().to_owned())),
        };
        let at = answer.message.header.map_or(0, |header| header.revision);
        if answer.message.succeeded {
            return Swapped::Done { revision: revision(generation, at) };
        }
        // A store that has lost its head, or has one of a later format, answers nothing.
        if let Err(why) = self.head_in(answer.message.responses.first().and_then(|op| op.range.as_ref())) {
            return unknown(&why);
        }
        if answer.was_asked_before {
            return unknown(&"a member has not answered, and the record has changed since");
        }
        Swapped::Conflict
    }

    fn groups(
        &self,
        volume: VolumeId,
        since: Revision,
        wait: Duration,
    ) -> Result<ChangedGroups, ControlError> {
        let until = Instant::now() + wait.min(WATCH_MAX);
        if !wait.is_zero() {
            self.watched.call_once(|| {
                // On connections of its own, so that no call waits behind it.
                let members = Arc::new(Members::new(&self.source));
                self.client.begin(watch(members, self.keys.all_groups(), Arc::clone(&self.hints)));
            });
        }
        loop {
            let seen = self.hints.number();
            let changed = self.changed_since(volume, since)?;
            if !changed.groups.is_empty() || Instant::now() >= until {
                return Ok(changed);
            }
            self.hints.wait(seen, until);
        }
    }
}
