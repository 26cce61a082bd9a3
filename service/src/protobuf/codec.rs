//! The codec of the generated services: encodes and decodes their messages by prost.

use std::marker::PhantomData;

use prost::Message;
use tonic::{
    Status,
    codec::{DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// The codec that the generated services name: encodes messages `T` and decodes messages `U`.
#[derive(Debug, Default)]
pub(crate) struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Default + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self::default()
    }

    fn decoder(&mut self) -> Self {
        Self::default()
    }
}

impl<T: Message, U> Encoder for Codec<T, U> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.reserve(message.encoded_len());
        message.encode_raw(to);
        Ok(())
    }
}

/// Bytes that are no message are the sender's error (`INVALID_ARGUMENT`); tonic's own codec for prost would report an
/// internal error.
impl<T, U: Message + Default> Decoder for Codec<T, U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        U::decode(bytes).map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
    }
}
