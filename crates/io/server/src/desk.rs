//! Answers questions and orders that come as control frames.
//!
//! It is for processes that serve no islands, such as a mount. A node answers them beside its volumes'
//! frames.

use std::sync::Arc;

use atoll_core::{IslandId, Malformed};
use atoll_proto::{Control, ControlReply};
use atoll_rpc::{
    Acceptor, Closed, ClusterId, DaemonId, Frame, FrameKind, Goodbye, Handler, Hello, HelloOk, Link, Reason,
    Role,
};

/// Answers control requests. May take its time.
pub trait Desk: Send + Sync + 'static {
    /// The answer.
    fn answer(&self, order: Control) -> ControlReply;

    /// The answer to whoever asks on a link. By default everybody may ask everything.
    fn answer_to(&self, _link: &Link, order: Control) -> ControlReply {
        self.answer(order)
    }
}

/// Handles a control frame.
pub(crate) fn serve(desk: &dyn Desk, link: &Arc<Link>, frame: &Frame) -> Result<(), Malformed> {
    let order = frame.decode::<Control>()?;
    // Orders wait for disks, and nothing else on the link may wait for them.
    atoll_handover::slow();
    let reply = desk.answer_to(link, order);
    if let Err(atoll_rpc::SendError::TooLong(why)) =
        link.send(FrameKind::ControlReply, IslandId(0), frame.id, &reply, &[])
    {
        let reply = ControlReply::Refused { text: format!("the answer cannot be sent: {why}") };
        let _ = link.send(FrameKind::ControlReply, IslandId(0), frame.id, &reply, &[]);
    }
    Ok(())
}

/// Lets only commands in to a desk.
pub struct Counter<T: Desk>(pub T);

impl<T: Desk> Acceptor for Counter<T> {
    fn welcome(&self, hello: &Hello) -> Result<HelloOk, Goodbye> {
        match hello.role {
            Role::Tool => Ok(HelloOk::new(hello.cluster.unwrap_or(ClusterId(1)), DaemonId(0), 0)),
            _ => Err(Goodbye::new(Reason::NotAllowed, "this process serves no volume")),
        }
    }
}

impl<T: Desk> Handler for Counter<T> {
    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        let done = match frame.kind {
            FrameKind::Control => serve(&self.0, link, &frame),
            _ => Err(Malformed::new("kind of frame for a mount")),
        };
        if let Err(what) = done {
            link.malformed(what);
        }
    }

    fn closed(&self, _link: &Arc<Link>, _why: &Closed) {}
}
