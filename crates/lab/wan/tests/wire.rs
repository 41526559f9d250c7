//! A link does to real sockets what it was asked to. Wide margins: the machine may be busy.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use atoll_needs::needs;
use atoll_torture::network::PROGRAMS;
use atoll_wan::wire::{LinkTerms, Wire};

fn socket(wire: &Wire, host: usize) -> UdpSocket {
    let socket = wire.at(host, || UdpSocket::bind((Wire::address(host), 7)).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket
}

#[test]
fn a_link_has_the_delay_the_rate_and_the_loss_that_it_was_asked_for() {
    needs!(Networks, Tun, Programs(&PROGRAMS));
    let slow = LinkTerms { round_trip: Duration::from_millis(200), rate: None, loss_ppm: 0 };
    let wire = Wire::new(slow).unwrap();
    let sockets = [socket(&wire, 0), socket(&wire, 1)];
    let passes = |from: usize| {
        sockets[from].send_to(&[1; 100], (Wire::address(1 - from), 7)).unwrap();
        sockets[1 - from].recv(&mut [0; 100]).is_ok()
    };
    let since = Instant::now();
    assert!(passes(0) && passes(1), "nothing arrives");
    let took = since.elapsed();
    assert!((190..1000).contains(&took.as_millis()), "there and back: {took:?}");

    // A megabyte by TCP takes four seconds at 2 Mb/s, and the headers.
    let fast = LinkTerms { round_trip: Duration::from_millis(20), rate: Some(2_000_000), loss_ppm: 0 };
    wire.set(fast);
    let listener = wire.at(1, || TcpListener::bind((Wire::address(1), 8)).unwrap()).unwrap();
    let mut sends = wire.at(0, || TcpStream::connect((Wire::address(1), 8)).unwrap()).unwrap();
    let (mut receives, _) = listener.accept().unwrap();
    let (since, before) = (Instant::now(), wire.counts());
    let sender = std::thread::spawn(move || sends.write_all(&vec![7; 1_000_000]).unwrap());
    receives.read_exact(&mut vec![0; 1_000_000]).unwrap();
    let (took, sent) = (since.elapsed(), wire.counts()[0] - before[0]);
    sender.join().unwrap();
    assert!((3.9..9.0).contains(&took.as_secs_f64()), "1 MB at 2 Mb/s: {took:?}");
    assert!((1_000_000..1_300_000).contains(&sent.payload), "{sent:?}");
    assert!(sent.bytes > sent.payload + 40 * (1_000_000 / 1500), "{sent:?}");

    // A third is lost, and of a link that is cut everything.
    wire.set(LinkTerms { loss_ppm: 333_333, ..LinkTerms::FREE });
    let before = wire.counts()[0];
    (0..2000).for_each(|_| drop(sockets[0].send_to(&[1; 10], (Wire::address(1), 7))));
    let until = Instant::now() + Duration::from_secs(20);
    let lost = loop {
        let since = wire.counts()[0] - before;
        if since.packets + since.dropped >= 1900 || Instant::now() > until {
            break since.lost as f64 / since.packets as f64;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!((0.2..0.5).contains(&lost), "{lost}");
    while sockets[1].recv(&mut [0; 10]).is_ok() {}
    wire.cut();
    assert!(!passes(0) && !passes(1), "a link that is cut lets something through");
    wire.set(LinkTerms::FREE);
    assert!(passes(0) && passes(1), "nothing arrives after it was cut");
}
