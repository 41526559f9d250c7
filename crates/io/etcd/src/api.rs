//! The part of etcd's API (version 3) that is used, as its messages lie on the wire, and the paths of its calls.
//!
//! Written by hand from etcd's `rpc.proto`: what is generated needs `protoc`, which a build of Atoll does not. Fields that are
//! not read are left out; the decoder passes over them. Tests with a real etcd show that the numbers are right.

use prost::{Message, Oneof};

pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(crate) const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
pub(crate) const STATUS: &str = "/etcdserverpb.Maintenance/Status";
pub(crate) const ALARM: &str = "/etcdserverpb.Maintenance/Alarm";
pub(crate) const SNAPSHOT: &str = "/etcdserverpb.Maintenance/Snapshot";
pub(crate) const MEMBER_LIST: &str = "/etcdserverpb.Cluster/MemberList";
pub(crate) const MEMBER_ADD: &str = "/etcdserverpb.Cluster/MemberAdd";
pub(crate) const MEMBER_REMOVE: &str = "/etcdserverpb.Cluster/MemberRemove";
pub(crate) const MEMBER_PROMOTE: &str = "/etcdserverpb.Cluster/MemberPromote";
pub(crate) const MEMBER_UPDATE: &str = "/etcdserverpb.Cluster/MemberUpdate";

/// Stands in each answer.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "2")]
    pub(crate) member_id: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
}

/// Reads keys. Without `serializable` the answer is linearizable.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// The first key that is not read any more; empty for one key only.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    /// Keys that were changed before it are left out.
    #[prost(int64, tag = "10")]
    pub(crate) min_mod_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Ask", tags = "1, 2, 3")]
    pub(crate) ask: Option<Ask>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Ask {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

/// Answers to puts and deletions say nothing that is needed.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(crate) range: Option<RangeResponse>,
}

/// A condition of a transaction; all of those here mean "equal".
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    /// Which of [`Is`] is compared.
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "Is", tags = "5, 6, 7")]
    pub(crate) is: Option<Is>,
    /// The condition holds for all keys up to here.
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Is {
    /// The revision at which the key was made; 0 if there is none.
    #[prost(int64, tag = "5")]
    Created(i64),
    /// The revision at which it was changed last; 0 if there is none.
    #[prost(int64, tag = "6")]
    Changed(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

impl Compare {
    pub(crate) fn new(key: Vec<u8>, is: Is) -> Self {
        let target = match is {
            Is::Created(_) => 1,
            Is::Changed(_) => 2,
            Is::Value(_) => 3,
        };
        Self { target, key, is: Some(is), range_end: Vec::new() }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) create: Option<WatchCreateRequest>,
}

/// Without a revision to begin with, a watch tells what comes after it was made.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

/// A request without fields, or with none set: of alarms it asks for all that are on.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Nothing {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    #[prost(int64, tag = "3")]
    pub(crate) db_bytes: i64,
    /// 0 if it knows none.
    #[prost(uint64, tag = "4")]
    pub(crate) leader: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) raft_index: u64,
    #[prost(bool, tag = "10")]
    pub(crate) is_learner: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AlarmResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) alarms: Vec<AlarmMember>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AlarmMember {
    #[prost(uint64, tag = "1")]
    pub(crate) member_id: u64,
    /// 1: no space; 2: corrupt.
    #[prost(int32, tag = "2")]
    pub(crate) alarm: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SnapshotResponse {
    #[prost(uint64, tag = "2")]
    pub(crate) remaining_bytes: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) blob: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) peer_urls: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) client_urls: Vec<String>,
    #[prost(bool, tag = "5")]
    pub(crate) is_learner: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberListResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) members: Vec<MemberMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberAddRequest {
    #[prost(string, repeated, tag = "1")]
    pub(crate) peer_urls: Vec<String>,
    #[prost(bool, tag = "2")]
    pub(crate) is_learner: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberAddResponse {
    #[prost(message, repeated, tag = "3")]
    pub(crate) members: Vec<MemberMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberUpdateRequest {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, repeated, tag = "2")]
    pub(crate) peer_urls: Vec<String>,
}

/// Names the member that is removed or promoted.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberId {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
}
