//! What is read of somebody who has not shown who he is, as functions of bytes: for fuzzers and tests. No socket is needed, and the code
//! is that of a link.

use std::io::{self, Read, Write};

use rustls_pki_types::{CertificateDer, UnixTime};

use crate::security::{Security, Shown};
use crate::tls::Session;

/// The other side: its bytes, which then end, and what was said to it.
struct Memory<'a> {
    theirs: &'a [u8],
    ours: Vec<u8>,
}

impl Read for Memory<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.theirs.read(buffer)
    }
}

impl Write for Memory<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.ours.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A handshake with whoever sends these bytes: what is said to him, and who he has shown to be, if he has. `accepts`: he has connected,
/// and this side is a node.
pub fn handshake(security: &Security, accepts: bool, bytes: &[u8]) -> (Vec<u8>, Option<Shown>) {
    let mut socket = Memory { theirs: bytes, ours: Vec::new() };
    let Ok(connection) = security.connection(accepts) else { return (Vec::new(), None) };
    let session = Session::shake_hands(connection, &mut socket).ok();
    let shown = session.and_then(|session| security.shown_by(session.peer().as_ref()).ok());
    (socket.ours, shown)
}

/// Whom a node takes for the owner of a certificate (DER), if it lets him in. That he has its key is shown by the handshake.
pub fn certificate(security: &Security, der: &[u8]) -> Option<Shown> {
    let certificate = CertificateDer::from(der);
    security.verified(&certificate, UnixTime::now())
}
