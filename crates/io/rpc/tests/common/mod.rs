//! What tests over real sockets share: a server whose behaviour is a closure, and a client that
//! collects what comes.
#![allow(dead_code)] // Each test file uses its own part of this.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use atoll_core::{Encode, IslandId, Malformed, Reader};
use atoll_rpc::header::{VERSION_HIGHEST, encode_head};
use atoll_rpc::{
    Acceptor, Address, Closed, ClusterId, ConnectError, DaemonId, Frame, FrameKind, Goodbye, Handler, Hello,
    HelloOk, Link, Listener, Options, Outgoing, Role,
};

/// Longer than anything here takes, shorter than anybody's patience.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const CLUSTER: ClusterId = ClusterId(77);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Encode for Raw {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }
}

impl atoll_core::Decode for Raw {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(r.take_rest().to_vec()))
    }
}

/// What a handler was told.
#[derive(Debug)]
pub(crate) enum Event {
    Opened(Arc<Link>),
    /// The link that takes the place of the one with this number.
    Replaced(Arc<Link>, u64),
    Frame(Frame),
    Closed(u64, Closed),
    Unreachable(ConnectError),
}

type OnFrame = Box<dyn Fn(&Arc<Link>, Frame) + Send + Sync>;

pub(crate) struct Server {
    on_frame: OnFrame,
    events: Sender<Event>,
}

impl Server {
    pub(crate) fn new(events: Sender<Event>) -> Self {
        Self { on_frame: Box::new(echo), events }
    }

    /// Only frames matter.
    pub(crate) fn with(on_frame: impl Fn(&Arc<Link>, Frame) + Send + Sync + 'static) -> Self {
        Self { on_frame: Box::new(on_frame), events: channel().0 }
    }
}

impl Handler for Server {
    fn opened(&self, link: &Arc<Link>) {
        let _ = self.events.send(Event::Opened(Arc::clone(link)));
    }

    fn frame(&self, link: &Arc<Link>, frame: Frame) {
        (self.on_frame)(link, frame);
    }

    fn closed(&self, link: &Arc<Link>, why: &Closed) {
        let _ = self.events.send(Event::Closed(link.id(), why.clone()));
    }
}

impl Acceptor for Server {
    fn welcome(&self, hello: &Hello) -> Result<HelloOk, Goodbye> {
        match &hello.role {
            Role::Client { volume: atoll_core::VolumeId(404), .. } => {
                Err(Goodbye::new(atoll_rpc::Reason::NoSuchVolume, "only \"vol\" is here"))
            }
            _ => Ok(HelloOk::new(CLUSTER, DaemonId(5), 1)),
        }
    }
}

pub(crate) fn any_port() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

pub(crate) fn serve_at(
    address: &Address,
    options: Options,
    on_frame: impl Fn(&Arc<Link>, Frame) + Send + Sync + 'static,
) -> (Listener, Receiver<Event>) {
    let (events, receive) = channel();
    let server = Arc::new(Server { on_frame: Box::new(on_frame), events });
    (Listener::start(address, server, options).unwrap(), receive)
}

pub(crate) fn serve(
    on_frame: impl Fn(&Arc<Link>, Frame) + Send + Sync + 'static,
) -> (Listener, Receiver<Event>) {
    serve_at(&any_port(), Options::default(), on_frame)
}

/// Answers with what was asked.
pub(crate) fn echo(link: &Arc<Link>, frame: Frame) {
    let _ =
        link.send(FrameKind::Reply, frame.island, frame.id, &Raw(frame.meta[..].to_vec()), &frame.payload);
}

pub(crate) struct Collector(Sender<Event>);

impl Handler for Collector {
    fn opened(&self, link: &Arc<Link>) {
        let _ = self.0.send(Event::Opened(Arc::clone(link)));
    }

    fn frame(&self, _link: &Arc<Link>, frame: Frame) {
        let _ = self.0.send(Event::Frame(frame));
    }

    fn closed(&self, link: &Arc<Link>, why: &Closed) {
        let _ = self.0.send(Event::Closed(link.id(), why.clone()));
    }

    fn unreachable(&self, _address: &Address, why: &ConnectError) {
        let _ = self.0.send(Event::Unreachable(why.clone()));
    }
}

pub(crate) fn outgoing(address: &Address) -> (Outgoing, Receiver<Event>) {
    outgoing_with(address, Options::default(), || Hello::new(Role::Tool, None))
}

pub(crate) fn outgoing_with(
    address: &Address,
    options: Options,
    hello: impl Fn() -> Hello + Send + Sync + 'static,
) -> (Outgoing, Receiver<Event>) {
    let (send, receive) = channel();
    (Outgoing::new(address.clone(), Box::new(hello), Arc::new(Collector(send)), options), receive)
}

/// The next frame; what else comes before it is dropped.
pub(crate) fn next_frame(events: &Receiver<Event>) -> Frame {
    loop {
        if let Event::Frame(frame) = events.recv_timeout(PATIENCE).expect("a frame comes") {
            return frame;
        }
    }
}

/// Waits until a link is up.
pub(crate) fn next_opened(events: &Receiver<Event>) -> Arc<Link> {
    loop {
        if let Event::Opened(link) = events.recv_timeout(PATIENCE).expect("a link opens") {
            return link;
        }
    }
}

/// Why the next link that ends has ended.
pub(crate) fn next_closed(events: &Receiver<Event>) -> Closed {
    loop {
        if let Event::Closed(_, why) = events.recv_timeout(PATIENCE).expect("a link ends") {
            return why;
        }
    }
}

pub(crate) fn send(link: &Link, id: u64, meta: &[u8], payload: &[u8]) {
    link.send(FrameKind::Request, IslandId(3), id, &Raw(meta.to_vec()), payload).expect("the link is up");
}

pub(crate) fn port(address: &Address) -> u16 {
    match address {
        Address::Tcp { port, .. } => *port,
        Address::Unix { .. } => panic!("not TCP"),
    }
}

/// A peer of which every byte is the test's own.
pub(crate) struct Stranger(TcpStream);

impl Stranger {
    pub(crate) fn connect(address: &Address) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port(address))).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Connects and greets as a tool.
    pub(crate) fn greeted(address: &Address) -> Self {
        let mut stranger = Self::connect(address);
        stranger.write(&frame(FrameKind::Hello, 0, &Hello::new(Role::Tool, None).to_vec(), &[]));
        let mut header = [0; 36];
        stranger.0.read_exact(&mut header).unwrap();
        assert_eq!(header[6], FrameKind::HelloOk as u8);
        let mut meta = vec![0; u32::from_le_bytes(header[16..20].try_into().unwrap()) as usize];
        stranger.0.read_exact(&mut meta).unwrap();
        stranger
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Everything until the connection ends.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        // A reset ends it as well.
        let _ = self.0.read_to_end(&mut all);
        all
    }
}

pub(crate) fn frame(kind: FrameKind, id: u64, meta: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let meta = Raw(meta.to_vec());
    encode_head(VERSION_HIGHEST, kind, IslandId(0), id, &meta, payload, true, &mut out).unwrap();
    out.extend_from_slice(payload);
    out
}
