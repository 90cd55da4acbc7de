//! A small client: HTTP/2 through h2, HTTP/1 and odd bytes by hand.

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;

use crate::edge::Address;

/// Either kind of stream.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(super) async fn connect(address: &Address) -> Box<dyn Stream> {
    match address {
        Address::Tcp(address) => Box::new(TcpStream::connect(address).await.expect("a listener")),
        Address::Unix(path) => Box::new(UnixStream::connect(path).await.expect("a listener")),
    }
}

/// An HTTP/2 connection.
pub(super) struct Client {
    requests: SendRequest<Bytes>,
    pub(super) connection: JoinHandle<Result<(), h2::Error>>,
}

/// What a call came to: code and message of its status, and the bytes of its reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) code: String,
    pub(super) message: String,
    pub(super) reply: Vec<u8>,
}

/// One gRPC message: flag, length as announced, and what follows.
pub(super) fn message(flag: u8, announced: usize, payload: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(flag);
    bytes.put_u32(announced.try_into().expect("a short message"));
    bytes.put_slice(payload);
    bytes.freeze()
}

impl Client {
    pub(super) async fn new(address: &Address) -> Client {
        Client::over(connect(address).await).await.expect("HTTP/2")
    }

    pub(super) async fn over(stream: Box<dyn Stream>) -> Result<Client, h2::Error> {
        let (requests, connection) = h2::client::handshake(stream).await?;
        Ok(Client { requests, connection: tokio::spawn(connection) })
    }

    /// Asks for the health of the whole server.
    pub(super) async fn check_health(&mut self) -> Outcome {
        self.call("/grpc.health.v1.Health/Check", "identity", message(0, 0, &[]), true).await
    }

    /// Calls a method with an empty message and leaves the call open.
    pub(super) async fn open(&mut self, path: &str) -> Replies {
        let sent = self.send(path, "identity", message(0, 0, &[]), true).await;
        let (response, sending) = sent.expect("an open connection");
        Replies { body: response.await.expect("a response").into_body(), _sending: sending }
    }

    async fn send(
        &mut self,
        path: &str,
        encoding: &str,
        body: Bytes,
        end: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let request = Request::post(format!("http://server{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-encoding", encoding)
            .body(())
            .expect("a request");
        let mut requests = self.requests.clone().ready().await?;
        let (response, mut sending) = requests.send_request(request, false)?;
        sending.send_data(body, end)?;
        Ok((response, sending))
    }

    /// Calls a method with a body; without `end` the body is left open.
    pub(super) async fn call(&mut self, path: &str, encoding: &str, body: Bytes, end: bool) -> Outcome {
        self.try_call(path, encoding, body, end).await.expect("a response")
    }

    /// The same, with a server that may end the connection.
    pub(super) async fn try_call(
        &mut self,
        path: &str,
        encoding: &str,
        body: Bytes,
        end: bool,
    ) -> Result<Outcome, h2::Error> {
        let (response, _sending) = self.send(path, encoding, body, end).await?;
        let (parts, mut body) = response.await?.into_parts();
        let mut reply = Vec::new();
        // A server may reset the stream once it has said all: what matters came before.
        while let Some(Ok(data)) = body.data().await {
            body.flow_control().release_capacity(data.len()).expect("capacity in use");
            reply.extend_from_slice(&data);
        }
        let trailers = body.trailers().await.ok().flatten();
        let status =
            if parts.headers.contains_key("grpc-status") { parts.headers } else { trailers.expect("trailers") };
        Ok(Outcome { code: text(&status, "grpc-status"), message: text(&status, "grpc-message"), reply })
    }
}

/// The reply of a call that goes on.
pub(super) struct Replies {
    body: RecvStream,
    _sending: SendStream<Bytes>,
}

impl Replies {
    /// The next piece of the reply.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        self.body.data().await.map(|data| data.expect("an open stream").to_vec())
    }
}

fn text(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).map_or("", |value| value.to_str().expect("ASCII"));
    value.replace("%20", " ").replace("%22", "\"").replace("%27", "'")
}

/// Sends bytes and reads whatever comes back until the server closes.
pub(super) async fn exchange(address: &Address, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address).await;
    stream.write_all(bytes).await.expect("an open connection");
    let mut answer = Vec::new();
    // A reset ends the answer like a close.
    let _ = stream.read_to_end(&mut answer).await;
    answer
}
