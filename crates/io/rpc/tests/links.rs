//! Links over real sockets: what arrives, in which order, and what a slow or lying side can do.

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use atoll_core::IslandId;
use atoll_rpc::header::{HEADER_BYTES, META_BYTES_MAX, PAYLOAD_BYTES_MAX};
use atoll_rpc::{
    Address, Closed, Frame, FrameError, FrameKind, Goodbye, Hello, Link, Options, Outgoing, Reason, Role,
    SendError,
};
use common::*;

#[test]
fn large_and_small_frames_come_back_as_they_went() {
    let folder = tempfile::tempdir().unwrap();
    for address in [any_port(), Address::Unix { path: folder.path().join("socket") }] {
        let (listener, _server) = serve_at(&address, Options::default(), echo);
        let (client, events) = outgoing(listener.address());
        let link = client.connect(PATIENCE).unwrap();
        for (id, (meta, payload)) in [
            (0, 0),
            (1, 0),
            (92, 0),
            (0, 4096),
            (16_348, 0),
            (16_349, 1),
            (100, PAYLOAD_BYTES_MAX),
            (META_BYTES_MAX, 7),
        ]
        .into_iter()
        .enumerate()
        {
            let meta: Vec<u8> = (0..meta).map(|i| (i * 7 + id) as u8).collect();
            let payload: Vec<u8> = (0..payload).map(|i| (i * 13 + id) as u8).collect();
            send(&link, id as u64, &meta, &payload);
            let back = next_frame(&events);
            assert_eq!((back.kind, back.island, back.id), (FrameKind::Reply, IslandId(3), id as u64));
            assert!(back.meta == meta && back.payload == payload, "frame {id} was changed");
        }
    }
}

#[test]
fn answers_may_come_in_another_order() {
    let kept = Mutex::new(Vec::new());
    let (listener, _server) = serve(move |link, frame| {
        let mut kept = kept.lock().unwrap();
        kept.push(frame);
        if kept.len() == 3 {
            kept.drain(..).rev().for_each(|frame| echo(link, frame));
        }
    });
    let (client, events) = outgoing(listener.address());
    let link = client.connect(PATIENCE).unwrap();
    for id in 1..=3 {
        send(&link, id, &[id as u8], &[]);
    }
    let ids: Vec<u64> = (0..3).map(|_| next_frame(&events).id).collect();
    assert_eq!(ids, [3, 2, 1]);
}

#[test]
fn many_threads_send_at_once_and_each_ones_frames_stay_whole_and_in_order() {
    const THREADS: u64 = 8;
    const EACH: u64 = 300;
    // Seen by the thread that reads: answers of handlers that wait for room may pass each other.
    let (seen, arrived) = channel();
    let (listener, _server) = serve(move |_, frame| seen.send(frame).unwrap());
    let (client, _events) = outgoing(listener.address());
    let link = client.connect(PATIENCE).unwrap();
    thread::scope(|scope| {
        for t in 0..THREADS {
            let link = &link;
            scope.spawn(move || {
                for n in 0..EACH {
                    // Some go through another thread's write, some wait for a turn.
                    let len = if n % 7 == 0 { 70_000 } else { n as usize };
                    send(link, t << 32 | n, &[t as u8; 20], &vec![(t * 31 + n) as u8; len]);
                }
            });
        }
        let mut next = HashMap::new();
        for _ in 0..THREADS * EACH {
            let frame = arrived.recv_timeout(PATIENCE).unwrap();
            let (t, n) = (frame.id >> 32, frame.id & 0xffff_ffff);
            let expected = next.entry(t).or_insert(0);
            assert_eq!(n, *expected, "thread {t}");
            *expected += 1;
            assert!(frame.payload.iter().all(|b| *b == (t * 31 + n) as u8));
        }
    });
}

#[test]
fn a_slow_handler_does_not_stop_later_frames() {
    let gate = Arc::new(Barrier::new(2));
    let handler_gate = Arc::clone(&gate);
    let (listener, _server) = serve(move |link, frame| {
        if frame.id == 1 {
            atoll_handover::slow();
            handler_gate.wait();
        }
        echo(link, frame);
    });
    let (client, events) = outgoing(listener.address());
    let link = client.connect(PATIENCE).unwrap();
    for id in 1..=20 {
        send(&link, id, &[], &[]);
    }
    let ids: Vec<u64> = (0..19).map(|_| next_frame(&events).id).collect();
    assert_eq!(ids, (2..=20).collect::<Vec<_>>());
    gate.wait();
    assert_eq!(next_frame(&events).id, 1);
}

#[test]
fn slow_handlers_run_side_by_side_up_to_the_bound_and_then_reading_waits() {
    const BOUND: usize = 4;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (r, m) = (Arc::clone(&running), Arc::clone(&most));
    let options = Options { threads_max: BOUND, ..Options::default() };
    let (listener, _server) = serve_at(&any_port(), options, move |link, frame| {
        atoll_handover::slow();
        m.fetch_max(r.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(5));
        r.fetch_sub(1, Ordering::SeqCst);
        echo(link, frame);
    });
    let (client, events) = outgoing(listener.address());
    let link = client.connect(PATIENCE).unwrap();
    for id in 0..100 {
        send(&link, id, &[], &[]);
    }
    let mut ids: Vec<u64> = (0..100).map(|_| next_frame(&events).id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
    assert_eq!(most.load(Ordering::SeqCst), BOUND);
}

#[test]
fn closing_is_seen_although_all_threads_wait_for_it() {
    let options = Options { threads_max: 1, ..Options::default() };
    let closed = Arc::new(AtomicBool::new(false));
    let (busy, is_busy) = channel();
    let seen = Arc::clone(&closed);
    let (listener, server) = serve_at(&any_port(), options, move |_, _| {
        atoll_handover::slow();
        busy.send(()).unwrap();
        while !seen.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
    });
    let (client, _events) = outgoing(listener.address());
    send(&client.connect(PATIENCE).unwrap(), 1, &[], &[]);
    is_busy.recv_timeout(PATIENCE).unwrap();
    listener.links()[0].close(Goodbye::new(Reason::Stopping, "test"));
    assert!(matches!(next_closed(&server), Closed::Ours(_)));
    closed.store(true, Ordering::SeqCst);
}

#[test]
fn two_sides_that_flood_each_other_do_not_wait_for_each_other() {
    // Every frame goes to and fro, and neither socket's buffer holds what is under way. Were a
    // thread that waits for room still the one that reads, nothing would go on.
    const FRAMES: u64 = 40;
    const HOPS: u64 = 10;
    let (done, is_done) = channel();
    let bounce = move |link: &Arc<Link>, frame: Frame| {
        if frame.id == HOPS {
            let _ = done.send(frame.payload.len());
        } else {
            link.send(FrameKind::Peer, frame.island, frame.id + 1, &Raw(vec![]), &frame.payload).unwrap();
        }
    };
    let (listener, _server) = serve(bounce.clone());
    let client = Arc::new(Server::with(bounce));
    let greeting = Box::new(|| Hello::new(Role::Tool, None));
    let outgoing = Outgoing::new(listener.address().clone(), greeting, client, Options::default());
    let link = outgoing.connect(PATIENCE).unwrap();
    let payload = vec![1; 1024 * 1024];
    for _ in 0..FRAMES {
        send(&link, 0, &[], &payload);
    }
    for _ in 0..FRAMES {
        assert_eq!(is_done.recv_timeout(PATIENCE), Ok(payload.len()));
    }
}

#[test]
fn a_peer_that_does_not_read_is_disconnected() {
    let options = Options { send_time_max: Duration::from_millis(200), ..Options::default() };
    let (listener, server) = serve_at(&any_port(), options, |link, _| {
        let body = vec![0; 1024 * 1024];
        while link.send(FrameKind::Reply, IslandId(0), 1, &Raw(vec![]), &body).is_ok() {}
    });
    let mut stranger = Stranger::greeted(listener.address());
    stranger.write(&frame(FrameKind::Request, 1, &[], &[]));
    assert_eq!(next_closed(&server), Closed::NotReading);
}

#[test]
fn a_connection_cut_amid_a_frame_is_noticed_and_the_frame_is_not_handled() {
    let (listener, server) = serve(|_, _| panic!("half a frame was handled"));
    for cut in [1, HEADER_BYTES, HEADER_BYTES + 3, 60_000] {
        let mut stranger = Stranger::greeted(listener.address());
        let whole = frame(FrameKind::Request, 1, b"meta", &[7; 100_000]);
        stranger.write(&whole[..cut]);
        drop(stranger);
        assert_eq!(next_closed(&server), Closed::CutShort, "after {cut} bytes");
    }
}

#[test]
fn a_peer_that_lies_is_disconnected_and_told_why() {
    let (listener, server) = serve(|link, frame| {
        if let Err(e) = frame.decode::<u64>() {
            link.malformed(e);
        }
    });
    let good = frame(FrameKind::Request, 1, &8u64.to_le_bytes(), b"body");
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] ^= byte;
        bytes
    };
    let long = FrameError::TooLong { part: "payload", bytes: 0x8000_0004, max: PAYLOAD_BYTES_MAX };
    for (bytes, error) in [
        (changed(0, 1), FrameError::NotAtoll),
        (changed(4, 2), FrameError::Version { theirs: 3 }),
        (changed(6, 0x40), FrameError::UnknownKind { kind: 0x43 }),
        (changed(7, 4), FrameError::UnknownFlags),
        (changed(8, 1), FrameError::HeadChecksum),
        (changed(23, 0x80), long),
        (changed(HEADER_BYTES, 1), FrameError::HeadChecksum),
        (changed(HEADER_BYTES + 8, 1), FrameError::PayloadChecksum),
        (frame(FrameKind::Hello, 0, &[], &[]), FrameError::Unexpected { kind: FrameKind::Hello }),
        (frame(FrameKind::Request, 0, &[1], &[]), FrameError::Malformed(atoll_core::Malformed::new("u64"))),
    ] {
        let mut stranger = Stranger::greeted(listener.address());
        stranger.write(&good);
        stranger.write(&bytes);
        assert_eq!(next_closed(&server), Closed::Lied(error));
        let farewell = stranger.read_to_end();
        assert_eq!(farewell[6], FrameKind::Goodbye as u8, "{error}");
        let text = error.to_string();
        assert!(farewell.windows(text.len()).any(|w| w == text.as_bytes()), "{error}");
    }
}

#[test]
fn what_is_too_long_is_not_sent_and_the_link_goes_on() {
    let (listener, _server) = serve(echo);
    let (client, events) = outgoing(listener.address());
    let link = client.connect(PATIENCE).unwrap();
    let result = link.send(FrameKind::Request, IslandId(0), 1, &Raw(vec![0; META_BYTES_MAX + 1]), &[]);
    assert!(matches!(result, Err(SendError::TooLong(_))));
    send(&link, 2, &[], &[]);
    assert_eq!(next_frame(&events).id, 2);
}

#[test]
fn a_handler_finds_what_it_attached_to_a_link() {
    let (listener, _server) = serve(|link, frame| {
        link.set_context(AtomicUsize::new(0));
        let count = link.context::<AtomicUsize>().unwrap().fetch_add(1, Ordering::SeqCst);
        assert!(link.context::<String>().is_none());
        let _ = link.send(FrameKind::Reply, frame.island, count as u64, &Raw(vec![]), &[]);
    });
    let (client, events) = outgoing(listener.address());
    let link = client.connect(PATIENCE).unwrap();
    for count in 0..3 {
        send(&link, 9, &[], &[]);
        assert_eq!(next_frame(&events).id, count);
    }
}
