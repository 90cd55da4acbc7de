//! Calls in the messages written out by hand, and in bytes that are no message at all.

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

type Grpc = tonic::client::Grpc<Channel>;

async fn ready(channel: &Channel) -> Result<Grpc, Status> {
    let mut grpc =
        Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    Ok(grpc)
}

/// One request, one reply.
pub async fn unary<Q, R>(channel: &Channel, path: &'static str, request: Q) -> Result<R, Status>
where
    Q: Message + 'static,
    R: Message + Default + 'static,
{
    let mut grpc = ready(channel).await?;
    let codec = ProstCodec::<Q, R>::default();
    Ok(grpc.unary(Request::new(request), PathAndQuery::from_static(path), codec).await?.into_inner())
}

/// One request, replies until the end.
pub async fn server_streaming<Q, R>(channel: &Channel, path: &'static str, request: Q) -> Result<Streaming<R>, Status>
where
    Q: Message + 'static,
    R: Message + Default + 'static,
{
    let mut grpc = ready(channel).await?;
    let codec = ProstCodec::<Q, R>::default();
    Ok(grpc.server_streaming(Request::new(request), PathAndQuery::from_static(path), codec).await?.into_inner())
}

/// A stream in both directions. Dropping `send` half-closes it, dropping `receive` resets it.
pub struct Duplex<Q, R> {
    pub send: Option<mpsc::UnboundedSender<Q>>,
    pub receive: mpsc::Receiver<Result<R, Status>>,
}

impl<Q: Message + 'static, R: Message + Default + 'static> Duplex<Q, R> {
    /// Opens the stream. The call is made on a task, for servers answer nothing before they have something to say.
    pub fn open(channel: &Channel, path: &'static str) -> Duplex<Q, R> {
        let (send, requests) = mpsc::unbounded_channel();
        let (replies, receive) = mpsc::channel(1);
        let channel = channel.clone();
        tokio::spawn(async move {
            if let Err(status) = pass_on(&channel, path, requests, &replies).await {
                let _ = replies.send(Err(status)).await;
            }
        });
        Duplex { send: Some(send), receive }
    }

    /// Sends a message; without effect once the stream has ended.
    pub fn send(&self, request: Q) {
        let _ = self.send.as_ref().map(|send| send.send(request));
    }

    /// The next message; `None` at the orderly end.
    pub async fn next(&mut self) -> Option<Result<R, Status>> {
        self.receive.recv().await
    }

    /// Tells the server that nothing more comes.
    pub fn half_close(&mut self) {
        self.send = None;
    }
}

async fn pass_on<Q, R>(
    channel: &Channel,
    path: &'static str,
    requests: mpsc::UnboundedReceiver<Q>,
    replies: &mpsc::Sender<Result<R, Status>>,
) -> Result<(), Status>
where
    Q: Message + 'static,
    R: Message + Default + 'static,
{
    let mut grpc = ready(channel).await?;
    let codec = ProstCodec::<Q, R>::default();
    let call =
        grpc.streaming(Request::new(UnboundedReceiverStream::new(requests)), PathAndQuery::from_static(path), codec);
    // A stream that nobody reads any more ends here, with a reset.
    let mut stream = tokio::select! {
        answer = call => answer?.into_inner(),
        () = replies.closed() => return Ok(()),
    };
    loop {
        let message = tokio::select! {
            message = stream.message() => message?,
            () = replies.closed() => return Ok(()),
        };
        let Some(message) = message else { return Ok(()) };
        if replies.send(Ok(message)).await.is_err() {
            return Ok(());
        }
    }
}

/// Sends bytes as they are, on a unary or a streaming method, and returns what comes back first.
pub async fn raw(channel: &Channel, path: &'static str, messages: Vec<Bytes>) -> Result<Option<Bytes>, Status> {
    let mut grpc = ready(channel).await?;
    let (send, receive) = mpsc::channel(messages.len().max(1));
    for message in messages {
        let _ = send.send(message).await;
    }
    drop(send);
    let call = grpc.streaming(Request::new(ReceiverStream::new(receive)), PathAndQuery::from_static(path), Raw);
    call.await?.into_inner().message().await
}

/// A codec that leaves bytes alone.
#[derive(Clone, Copy, Debug)]
pub struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
