//! One NFS call under way: who calls, which objects it names, and its one reply.

use std::sync::Arc;

use atoll_core::{Ino, Name, NameError};
use atoll_posix::{Answer, Attr, Caller, Errno, Kind, Op};
use atoll_vfs::{AnswerExtras, Done, Handle, RequestOptions};
use bytes::Bytes;

use crate::conn::{Conn, InFlight};
use crate::drc::Key;
use crate::handle::HANDLE_MAX;
use crate::rpc;
use crate::server::Shared;
use crate::status::{self, Status};
use crate::xdr::{Garbage, Reader, Writer};

/// Why a call gets no further: it is answered at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fail {
    Garbage,
    Status(Status),
    Auth(u32),
}

impl From<Garbage> for Fail {
    fn from(_: Garbage) -> Self {
        Self::Garbage
    }
}

impl From<Status> for Fail {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// An object that a call names by a handle.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) ino: Ino,
    pub(crate) handle: Handle,
    /// The place of its export in the list.
    pub(crate) export: usize,
}

/// Reads a handle, and finds out what it names.
pub(crate) fn target(conn: &Conn, args: &mut Reader) -> Result<Target, Fail> {
    let bytes = args.opaque(HANDLE_MAX)?;
    let shared = &conn.shared;
    let served = &shared.served;
    let (number, handle) = served.key.open(served.kind, &bytes).ok_or(Status::BADHANDLE)?;
    let export = shared.exports.iter().position(|e| e.number == number).ok_or(Status::BADHANDLE)?;
    let ino = shared.files.known(&handle).map_err(|why| status::of(why, true))?;
    shared.known.touch(&*shared.files, ino);
    Ok(Target { ino, handle, export })
}

/// A name that comes from a client. `.` and `..` are for LOOKUP alone.
pub(crate) fn name(bytes: &[u8]) -> Result<Name, Status> {
    Name::new(bytes).map_err(|why| match why {
        NameError::TooLong => Status::NAMETOOLONG,
        NameError::Empty | NameError::Forbidden | NameError::Relative => Status::INVAL,
    })
}

/// A call under way.
pub(crate) struct Call {
    pub(crate) conn: Arc<Conn>,
    pub(crate) xid: u32,
    pub(crate) caller: Caller,
    /// The place of its export in the list.
    pub(crate) export: usize,
    pub(crate) read_only: bool,
    /// How many zero words stand for the attributes of a failure.
    pub(crate) absent: usize,
    pub(crate) key: Option<Key>,
    pub(crate) held: InFlight,
    /// The file that it is about, to be looked for if it has moved.
    pub(crate) subject: Option<Target>,
}

impl Call {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.conn.shared
    }

    pub(crate) fn fsid(&self) -> u64 {
        self.shared().served.id
    }

    /// The handle of an object that the volume has told of.
    pub(crate) fn handle_of(&self, ino: Ino, kind: Kind) -> Option<Vec<u8>> {
        let shared = self.shared();
        let handle = shared.files.handle_of(ino, kind)?;
        shared.known.touch(&*shared.files, ino);
        let number = shared.exports[self.export].number;
        Some(shared.served.key.seal(shared.served.kind, number, &handle))
    }

    /// post_op_fh3, which may be left out.
    pub(crate) fn write_handle(&self, w: &mut Writer, ino: Ino, kind: Kind) {
        match self.handle_of(ino, kind) {
            Some(handle) => w.flag(true).opaque(&handle),
            None => w.flag(false),
        };
    }

    /// The reply: its status is written, `body` writes what follows.
    pub(crate) fn reply(self, status: Status, body: impl FnOnce(&Self, &mut Writer)) {
        self.reply_with(status, body, &[]);
    }

    /// The same, with bytes at its end.
    pub(crate) fn reply_with(self, status: Status, body: impl FnOnce(&Self, &mut Writer), payload: &[u8]) {
        let mut w = rpc::reply(self.xid);
        w.u32(status.0);
        body(&self, &mut w);
        let Self { conn, key, held, .. } = self;
        // A retry may have come by another connection.
        let to = key.and_then(|key| conn.shared.drc.end(&key, &w.0)).unwrap_or(conn);
        to.outbox.send(&to, &mut w.0, payload, Some(held));
    }

    /// The reply of a failure, which tells no attributes.
    pub(crate) fn fail(self, status: Status) {
        let absent = self.absent;
        self.reply(status, |_, w| (0..absent).for_each(|_| _ = w.u32(0)));
    }

    /// The reply of a failure of the volume.
    pub(crate) fn failed(self, errno: Errno, looks: bool) {
        self.fail(status::of(errno, looks));
    }

    /// An answer of another form than the operation has.
    pub(crate) fn strange(self) {
        self.fail(Status::SERVERFAULT);
    }

    /// Runs an operation as the caller, whom nobody has checked, and goes on with its outcome.
    pub(crate) fn op(
        self,
        op: Op,
        data: Bytes,
        then: impl FnOnce(Self, Result<Answer, Errno>, AnswerExtras<'_>) + Send + 'static,
    ) {
        let files = Arc::clone(&self.shared().files);
        let caller = self.caller.clone();
        let options = RequestOptions { unchecked: true, attributes: true };
        let file = match &op {
            Op::Link { ino, .. } => Some(*ino),
            op => op.file(),
        };
        let again =
            self.subject.clone().filter(|s| file == Some(s.ino)).map(|s| (s, op.clone(), data.clone()));
        let done: Done = Box::new(move |outcome, beside| match (outcome, again) {
            // It may have moved to another island since the handle was made.
            (Err(Errno::ESTALE), Some((subject, op, data))) => self.find(&subject, op, data, then),
            (outcome, _) => then(self, outcome, beside),
        });
        files.start(&caller, options, op, data, done);
    }

    fn find(
        mut self,
        subject: &Target,
        op: Op,
        data: Bytes,
        then: impl FnOnce(Self, Result<Answer, Errno>, AnswerExtras<'_>) + Send + 'static,
    ) {
        self.subject = None;
        let files = Arc::clone(&self.shared().files);
        let done: Done = Box::new(move |outcome, beside| match outcome {
            Ok(_) => self.op_once(op, data, then),
            Err(why) => then(self, Err(why), beside),
        });
        files.find(&subject.handle, done);
    }

    fn op_once(
        self,
        op: Op,
        data: Bytes,
        then: impl FnOnce(Self, Result<Answer, Errno>, AnswerExtras<'_>) + Send + 'static,
    ) {
        let files = Arc::clone(&self.shared().files);
        let caller = self.caller.clone();
        let options = RequestOptions { unchecked: true, attributes: true };
        let done: Done = Box::new(move |outcome, beside| then(self, outcome, beside));
        files.start(&caller, options, op, data, done);
    }

    /// Goes on with an object's attributes: those that are known, or else asks for them.
    pub(crate) fn with_attr(
        self,
        ino: Ino,
        known: Option<Attr>,
        then: impl FnOnce(Self, Result<Attr, Errno>) + Send + 'static,
    ) {
        if let Some(attr) = known {
            return then(self, Ok(attr));
        }
        self.op(Op::GetAttr { ino }, Bytes::new(), move |call, outcome, _| match outcome {
            Ok(Answer::Attr { attr }) => then(call, Ok(attr)),
            Ok(_) => then(call, Err(Errno::EIO)),
            Err(why) => then(call, Err(why)),
        });
    }
}
