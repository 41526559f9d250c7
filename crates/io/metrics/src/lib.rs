//! Shows a process's metrics to monitoring systems: one page of text at `GET /metrics`, and nothing else.
//!
//! It asks for the page only when somebody wants it. It never keeps a connection, reads a body, or waits for a slow
//! caller longer than [`PATIENCE`].

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod text;

pub use text::text;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long one request may take, from its first byte to the last of its answer.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Longest request: its line and its headers.
pub const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Pause after a connection could not be taken, so that a process without descriptors does not spin.
const PAUSE: Duration = Duration::from_millis(100);

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Page,
    /// The status line's end.
    Refused(&'static str),
}

/// Takes connections on `address` from here on, as long as the process lives. One request at a time: the others wait in
/// the system's queue. Returns the address, with the port that was chosen if that is 0. `page` makes the text.
pub fn serve(address: SocketAddr, page: impl Fn() -> String + Send + 'static) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let run = move || {
        loop {
            match listener.accept() {
                // A caller that goes away, or is too slow, has no answer, and nobody else is to know.
                Ok((stream, _)) => drop(answer(&stream, &page)),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    };
    std::thread::Builder::new().name("atoll-metrics".into()).spawn(run)?;
    Ok(address)
}

fn answer(stream: &TcpStream, page: &impl Fn() -> String) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let (status, body) = match verdict(&request(stream, until)?) {
        Verdict::Page => ("200 OK", page()),
        Verdict::Refused(status) => (status, format!("{status}\n")),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    for bytes in [head.as_bytes(), body.as_bytes()] {
        write_all(stream, bytes, until)?;
    }
    Ok(())
}

/// The head of a request: all up to the empty line, or as much as may be read.
fn request(mut stream: &TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") && head.len() <= REQUEST_BYTES_MAX {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut buffer)? {
            0 => break,
            n => head.extend_from_slice(&buffer[..n]),
        }
    }
    Ok(head)
}

fn write_all(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => bytes = &bytes[n..],
        }
    }
    Ok(())
}

/// Time that is left, more than none.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// What is answered to these bytes, and whether that is the page: for fuzzers.
pub fn judge(head: &[u8]) -> (&'static str, bool) {
    match verdict(head) {
        Verdict::Page => ("200 OK", true),
        Verdict::Refused(status) => (status, false),
    }
}

fn verdict(head: &[u8]) -> Verdict {
    if head.len() > REQUEST_BYTES_MAX {
        return Verdict::Refused("431 Request Header Fields Too Large");
    }
    let line = head.split(|b| *b == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    match words[..] {
        [b"GET", target, version] if version.starts_with(b"HTTP/1.") && head.ends_with(b"\r\n\r\n") => {
            let path = target.split(|b| *b == b'?').next().unwrap_or_default();
            if path == b"/metrics" { Verdict::Page } else { Verdict::Refused("404 Not Found") }
        }
        [_, _, version] if version.starts_with(b"HTTP/1.") && head.ends_with(b"\r\n\r\n") => {
            Verdict::Refused("405 Method Not Allowed")
        }
        _ => Verdict::Refused("400 Bad Request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_is_shown() {
        let of = |line: &str| verdict(format!("{line}\r\nHost: a\r\n\r\n").as_bytes());
        assert_eq!(of("GET /metrics HTTP/1.1"), Verdict::Page);
        assert_eq!(of("GET /metrics?name[]=x HTTP/1.0"), Verdict::Page);
        assert_eq!(of("GET / HTTP/1.1"), Verdict::Refused("404 Not Found"));
        assert_eq!(of("GET /metrics/../etc HTTP/1.1"), Verdict::Refused("404 Not Found"));
        assert_eq!(of("POST /metrics HTTP/1.1"), Verdict::Refused("405 Method Not Allowed"));
        assert_eq!(of("GET /metrics"), Verdict::Refused("400 Bad Request"));
        assert_eq!(verdict(b"GET /metrics HTTP/1.1\r\nHost"), Verdict::Refused("400 Bad Request"));
        assert_eq!(verdict(b""), Verdict::Refused("400 Bad Request"));
        let long = vec![b'x'; REQUEST_BYTES_MAX + 1];
        assert_eq!(verdict(&long), Verdict::Refused("431 Request Header Fields Too Large"));
    }
}
