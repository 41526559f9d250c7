//! One member of etcd, as it is reached: its connection, and single calls there, each made once.
//!
//! Never tries again elsewhere and never waits without an end: whoever asks limits each call in time, and chooses the member.

use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint as Target, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use atoll_rpc::Address;

use crate::api::{AUTHENTICATE, AuthenticateRequest, AuthenticateResponse, Nothing, STATUS, StatusResponse};
use crate::source::{EtcdSource, Password, Tls};

/// The oldest etcd that is used: since it, members are first added as learners.
const VERSION_MIN: (u32, u32) = (3, 4);
/// Longest answer: a volume with all its groups.
const ANSWER_BYTES_MAX: usize = 64 << 20;
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// A connection with a call under way is asked this often whether it is alive. etcd ends connections that ask every 5 s or more often.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(3);
const AUTHENTICATE_MAX: Duration = Duration::from_secs(2);

/// Why a call was not answered.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// The member cannot be reached. It was asked nothing.
    Unreached(String),
    /// The member does not answer, or cannot answer now. A change may have been made.
    Away(String),
    /// etcd refuses it, and every member would. Nothing was changed.
    Refused(String),
    /// It is too old. Nothing was changed.
    TooOld(String),
}

impl Failure {
    pub(crate) fn why(&self) -> &str {
        match self {
            Self::Unreached(why) | Self::Away(why) | Self::Refused(why) | Self::TooOld(why) => why,
        }
    }
}

/// What all members share: where they are, and the token that one of them has given for the password.
pub(crate) struct Access {
    pub(crate) source: EtcdSource,
    token: Mutex<Option<AsciiMetadataValue>>,
    /// Held by who asks for a token. A password costs etcd a tenth of a second of its processor, so it is asked one time only.
    asks: Arc<tokio::sync::Mutex<()>>,
}

impl Access {
    pub(crate) fn new(source: EtcdSource) -> Self {
        Self { source, token: Mutex::default(), asks: Arc::default() }
    }

    fn token(&self) -> Option<AsciiMetadataValue> {
        self.token.lock().expect("no panic while it is held").clone()
    }

    fn request<Q>(&self, message: Q, token: Option<AsciiMetadataValue>) -> Request<Q> {
        let mut request = Request::new(message);
        // A member that knows no leader refuses at once, and ends watches.
        request.metadata_mut().insert("hasleader", AsciiMetadataValue::from_static("true"));
        if let Some(token) = token {
            request.metadata_mut().insert("token", token);
        }
        request
    }
}

pub(crate) struct Endpoint {
    access: Arc<Access>,
    pub(crate) address: Address,
    channel: Mutex<Option<Channel>>,
}

impl Endpoint {
    pub(crate) fn new(access: Arc<Access>, address: Address) -> Self {
        Self { access, address, channel: Mutex::default() }
    }

    /// The next call makes a connection of its own, with the certificates that the files have then.
    pub(crate) fn forget(&self) {
        *self.channel.lock().expect("no panic while it is held") = None;
    }

    /// The connection, to a member that is not too old.
    async fn channel(&self) -> Result<Channel, Failure> {
        if let Some(channel) = &*self.channel.lock().expect("no panic while it is held") {
            return Ok(channel.clone());
        }
        let target = target(&self.address, self.access.source.tls.as_ref()).map_err(Failure::Refused)?;
        let is_tls = self.access.source.tls.is_some();
        let unreached = |why: String| Failure::Unreached(why.clone() + hint(is_tls, &why));
        let channel = target.connect().await.map_err(|why| unreached(chain(&why)))?;
        let status: Result<StatusResponse, _> = once(&channel, STATUS, Request::new(Nothing {})).await;
        let status = status.map_err(|status| unreached(failed(status).why().to_owned()))?;
        if version(&status.version).is_none_or(|version| version < VERSION_MIN) {
            let why =
                format!("{} has etcd {}, and 3.4 is the oldest that is used", self.address, status.version);
            return Err(Failure::TooOld(why));
        }
        *self.channel.lock().expect("no panic while it is held") = Some(channel.clone());
        Ok(channel)
    }

    /// Makes a call. If etcd does not know the token any more, asks for another one first.
    pub(crate) async fn call<Q, R>(&self, path: &'static str, message: Q) -> Result<R, Failure>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let channel = self.channel().await?;
        let token = self.authenticate(&channel, None).await?;
        match once(&channel, path, self.access.request(message.clone(), token.clone())).await {
            Err(status) if is_old_token(&status) && token.is_some() => {
                let token = self.authenticate(&channel, token).await?;
                let again = once(&channel, path, self.access.request(message, token)).await;
                again.map_err(|status| self.failed(status))
            }
            answer => answer.map_err(|status| self.failed(status)),
        }
    }

    /// Makes a call of which the answer is many messages, and which stays open until the stream is dropped.
    pub(crate) async fn stream<Q, R>(&self, path: &'static str, message: Q) -> Result<Streaming<R>, Failure>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let channel = self.channel().await?;
        let mut token = self.authenticate(&channel, None).await?;
        let mut is_second = false;
        loop {
            let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
            grpc.ready().await.map_err(|why| Failure::Away(chain(&why)))?;
            let asked = tokio_stream::once(message.clone()).chain(tokio_stream::pending());
            let path = PathAndQuery::from_static(path);
            let answer =
                grpc.streaming(self.access.request(asked, token.clone()), path, ProstCodec::default()).await;
            match answer {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) if is_old_token(&status) && token.is_some() && !is_second => {
                    token = self.authenticate(&channel, token).await?;
                    is_second = true;
                }
                Err(status) => return Err(self.failed(status)),
            }
        }
    }

    /// The token for the password, if there is one: the known one, or another if that is `refused`.
    async fn authenticate(
        &self,
        channel: &Channel,
        refused: Option<AsciiMetadataValue>,
    ) -> Result<Option<AsciiMetadataValue>, Failure> {
        let Some((name, password)) = &self.access.source.user else { return Ok(None) };
        let known = |access: &Access| access.token().filter(|token| refused.as_ref() != Some(token));
        if let Some(token) = known(&self.access) {
            return Ok(Some(token));
        }
        let turn = Arc::clone(&self.access.asks).lock_owned().await;
        if let Some(token) = known(&self.access) {
            return Ok(Some(token));
        }
        // It goes on if the call is given up, so that the next one finds a token.
        let message = AuthenticateRequest { name: name.clone(), password: read(password)? };
        let (access, channel) = (Arc::clone(&self.access), channel.clone());
        let asked = tokio::spawn(async move {
            let answer = timeout(AUTHENTICATE_MAX, once(&channel, AUTHENTICATE, Request::new(message))).await;
            let late = || Status::deadline_exceeded("no answer to a name and a password");
            let answer: AuthenticateResponse = answer.unwrap_or_else(|_| Err(late()))?;
            let token: AsciiMetadataValue =
                answer.token.parse().map_err(|_| Status::internal("its token cannot be sent back"))?;
            *access.token.lock().expect("no panic while it is held") = Some(token.clone());
            drop(turn);
            Ok(token)
        });
        let token = asked.await.expect("it does not panic").map_err(|status: Status| self.failed(status))?;
        Ok(Some(token))
    }

    fn failed(&self, status: Status) -> Failure {
        // What the connection has to do with: it is made anew.
        if status.source().is_some() {
            self.forget();
        }
        failed(status)
    }
}

fn read(password: &Password) -> Result<String, Failure> {
    match password {
        Password::Text(text) => Ok(text.clone()),
        Password::File(path) => {
            let text = std::fs::read_to_string(path).map_err(|why| {
                Failure::Refused(format!("the file {} cannot be read: {why}", path.display()))
            })?;
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        }
    }
}

async fn once<Q, R>(channel: &Channel, path: &'static str, request: Request<Q>) -> Result<R, Status>
where
    Q: Message + 'static,
    R: Message + Default + 'static,
{
    let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
    grpc.ready().await.map_err(|why| Status::unavailable(chain(&why)))?;
    let answer = grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::default()).await?;
    Ok(answer.into_inner())
}

/// A member that does not like how it is spoken to ends the connection, and says no more.
fn hint(is_tls: bool, why: &str) -> &'static str {
    let is_end = ["closed", "canceled", "fatal alert"].iter().any(|word| why.contains(word));
    match (is_tls, is_end) {
        (_, false) => "",
        (true, true) => " (it may want a certificate from who asks, or another one)",
        (false, true) => " (it may want TLS: name who signs its certificates, ?ca=FILE)",
    }
}

fn is_old_token(status: &Status) -> bool {
    status.code() == Code::Unauthenticated
}

/// What an answer that is none means.
fn failed(status: Status) -> Failure {
    let why = match status.source() {
        Some(cause) => chain(cause),
        None => status.message().to_owned(),
    };
    match status.code() {
        // "no user of that name", "wrong password" and "authentication is not enabled" are of these.
        Code::InvalidArgument | Code::FailedPrecondition | Code::PermissionDenied | Code::Unauthenticated => {
            Failure::Refused(why)
        }
        Code::Unimplemented | Code::NotFound | Code::AlreadyExists | Code::OutOfRange => {
            Failure::Refused(why)
        }
        Code::ResourceExhausted if why.contains("database space exceeded") => Failure::Refused(why),
        _ => Failure::Away(why),
    }
}

/// An error with all its causes, each said once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(why) = cause {
        let more = why.to_string();
        if !text.contains(&more) {
            write!(text, ": {more}").expect("a string takes all");
        }
        cause = why.source();
    }
    text
}

/// Major and minor.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(['.', '-', '+']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// How a member is reached. Reads the files of certificates anew each time, so that those that were renewed count.
pub(crate) fn target(address: &Address, tls: Option<&Tls>) -> Result<Target, String> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let target = Target::from_shared(format!("{scheme}://{address}")).map_err(|why| chain(&why))?;
    let target = target
        .connect_timeout(CONNECT_MAX)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_MAX);
    let Some(tls) = tls else { return Ok(target) };
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|why| format!("the file {} cannot be read: {why}", path.display()))
    };
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&tls.ca)?));
    if let Some((certificate, key)) = &tls.own {
        config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    if let Some(name) = &tls.name {
        config = config.domain_name(name);
    }
    target.tls_config(config).map_err(|why| format!("its certificates cannot be used: {}", chain(&why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_major_and_minor() {
        for (text, number) in [
            ("3.4.23", Some((3, 4))),
            ("3.10.0-rc.1", Some((3, 10))),
            ("4.0", Some((4, 0))),
            ("3", None),
            ("", None),
            ("v3.4", None),
        ] {
            assert_eq!(version(text), number, "{text}");
        }
        assert!(version("3.10.0") > Some(VERSION_MIN) && version("3.3.27") < Some(VERSION_MIN));
    }
}
