//! Asks a daemon one question: one connection, one question, one answer.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use atoll_core::IslandId;
use atoll_proto::{Control, ControlReply};
use atoll_rpc::{
    Address, Closed, ConnectError, Frame, FrameKind, Handler, Hello, Link, Options, Outgoing, Role, Security,
};

/// How long a question may take.
pub const QUESTION: Duration = Duration::from_secs(3);

/// How long an order may take: it waits for disks.
pub const ORDER: Duration = Duration::from_secs(30);

enum Heard {
    Reply(Box<ControlReply>),
    Lost(String),
    Unreachable(ConnectError),
}

struct Asking {
    order: Control,
    send: std::sync::Mutex<Sender<Heard>>,
}

impl Asking {
    fn tell(&self, heard: Heard) {
        // Who asked may have given up.
        let _ = self.send.lock().expect("no panic while it is held").send(heard);
    }
}

impl Handler for Asking {
    fn opened(&self, link: &Arc<Link>) {
        if let Err(why) = link.send(FrameKind::Control, IslandId(0), 1, &self.order, &[]) {
            self.tell(Heard::Lost(why.to_string()));
        }
    }

    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        if frame.kind != FrameKind::ControlReply {
            return link.malformed(atoll_core::Malformed::new("kind of frame for a command"));
        }
        match frame.decode() {
            Ok(reply) => self.tell(Heard::Reply(Box::new(reply))),
            Err(what) => link.malformed(what),
        }
    }

    fn closed(&self, _link: &Arc<Link>, why: &Closed) {
        self.tell(Heard::Lost(why.to_string()));
    }

    fn unreachable(&self, _address: &Address, why: &ConnectError) {
        self.tell(Heard::Unreachable(why.clone()));
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// No process listens.
    Unreachable(ConnectError),
    /// The connection broke, or the answer took too long. An order may have been carried out.
    Unknown(String),
}

impl NoAnswer {
    /// As an error that ends a command.
    pub fn into_error(self) -> anyhow::Error {
        match self {
            Self::Unreachable(why) => anyhow!(why),
            Self::Unknown(why) => anyhow!(why),
        }
    }
}

/// One attempt: a daemon that is not there is told at once.
pub fn try_ask(address: &Address, order: Control, time_max: Duration) -> Result<ControlReply, NoAnswer> {
    try_ask_with(address, order, time_max, Security::of_process())
}

/// The same with certificates of its own.
pub(crate) fn try_ask_with(
    address: &Address,
    order: Control,
    time_max: Duration,
    security: Option<Arc<Security>>,
) -> Result<ControlReply, NoAnswer> {
    let (send, receive): (_, Receiver<Heard>) = channel();
    let handler = Arc::new(Asking { order, send: send.into() });
    let greeting = Box::new(|| Hello::new(Role::Tool, None));
    let options = Options { handshake_time_max: time_max.min(QUESTION), security, ..Options::default() };
    let outgoing = Outgoing::new(address.clone(), greeting, handler, options);
    outgoing.keep(true);
    let heard = receive.recv_timeout(time_max);
    outgoing.stop();
    match heard {
        Ok(Heard::Reply(reply)) => Ok(*reply),
        Ok(Heard::Unreachable(why)) => Err(NoAnswer::Unreachable(why)),
        Ok(Heard::Lost(why)) => Err(NoAnswer::Unknown(format!("{address} broke off: {why}."))),
        Err(_) => Err(NoAnswer::Unknown(format!(
            "{address} did not answer within {} s.\nIt is connected but busy or stuck: see \"atoll status {address}\".",
            time_max.as_secs()
        ))),
    }
}

/// Asks, and takes a refusal for an error.
pub fn ask(address: &Address, order: Control, time_max: Duration) -> Result<ControlReply> {
    match try_ask(address, order, time_max) {
        Ok(ControlReply::Refused { text }) => bail!("{text}"),
        Ok(reply) => Ok(reply),
        Err(why) => Err(why.into_error()),
    }
}

/// Asks many at the same time; their answers in the same order.
pub fn ask_all(
    addresses: &[Address],
    order: &Control,
    time_max: Duration,
) -> Vec<Result<ControlReply, NoAnswer>> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = addresses
            .iter()
            .map(|address| scope.spawn(move || try_ask(address, order.clone(), time_max)))
            .collect();
        asked.into_iter().map(|thread| thread.join().expect("asking does not panic")).collect()
    })
}

/// An answer that does not fit the question.
pub fn strange(address: &Address) -> anyhow::Error {
    anyhow!("{address} gave an answer that does not fit the question.\nIs it another version of atoll?")
}
