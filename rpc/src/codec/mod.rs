//! The gRPC codec: protobuf with bytes kept as `Bytes`, and transactions decoded without recursion.

mod nested;

use std::any::Any;
use std::marker::PhantomData;

use bytes::{Buf, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::pb::etcdserverpb::TxnRequest;
use crate::status;

#[cfg(test)]
pub(crate) use nested::DEPTH_MAX;

/// The codec of every service; `T` is sent, `U` received.
#[derive(Debug)]
pub(crate) struct EtcdCodec<T, U> {
    types: PhantomData<(T, U)>,
}

impl<T, U> Default for EtcdCodec<T, U> {
    fn default() -> Self {
        EtcdCodec { types: PhantomData }
    }
}

impl<T, U> Codec for EtcdCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = EtcdEncoder<T>;
    type Decoder = EtcdDecoder<U>;

    fn encoder(&mut self) -> EtcdEncoder<T> {
        EtcdEncoder { types: PhantomData }
    }

    fn decoder(&mut self) -> EtcdDecoder<U> {
        EtcdDecoder { types: PhantomData }
    }
}

/// Encodes replies.
#[derive(Debug)]
pub(crate) struct EtcdEncoder<T> {
    types: PhantomData<T>,
}

impl<T: Message> Encoder for EtcdEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        // One growth to the final size instead of doubling, which would copy a long answer several times.
        buffer.reserve(item.encoded_len());
        item.encode(buffer).map_err(status::unencodable)
    }
}

/// Decodes requests.
#[derive(Debug)]
pub(crate) struct EtcdDecoder<U> {
    types: PhantomData<U>,
}

impl<U: Message + Default + 'static> Decoder for EtcdDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        decode(own(buffer)).map(Some)
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(RECEIVE_BUFFER_BYTES, RECEIVE_BUFFER_BYTES)
    }
}

/// The buffer that each call begins with: most requests are smaller, and it grows to the message's size.
const RECEIVE_BUFFER_BYTES: usize = 1 << 10;

/// Messages up to this size are copied, larger ones take their buffer over.
const COPY_BYTES_MAX: usize = 16 << 10;

/// The message's bytes. Keys and values point into them and live as long as the store keeps them in memory, so a small message must not
/// hold on to a receive buffer much larger than itself.
fn own(buffer: &mut DecodeBuf<'_>) -> Bytes {
    let length = buffer.remaining();
    if length <= COPY_BYTES_MAX && buffer.chunk().len() == length {
        let copy = Bytes::copy_from_slice(buffer.chunk());
        buffer.advance(length);
        return copy;
    }
    buffer.copy_to_bytes(length)
}

/// A message from its bytes; a transaction goes the way that cannot overflow the stack.
fn decode<U: Message + Default + 'static>(bytes: Bytes) -> Result<U, Status> {
    let mut message = U::default();
    if let Some(txn) = (&mut message as &mut dyn Any).downcast_mut::<TxnRequest>() {
        *txn = nested::decode(bytes)?;
    } else {
        message.merge(bytes).map_err(status::unreadable)?;
    }
    Ok(message)
}
