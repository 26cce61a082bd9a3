//! Messages on their way in and out of the services that tonic makes.

use std::marker::PhantomData;

use prost::Message;
use tonic::{
    Status,
    codec::{DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// What the services in `proto/` read and write by.
#[derive(Debug)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = Writer<T>;
    type Decoder = Reader<U>;

    fn encoder(&mut self) -> Self::Encoder {
        Writer(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        Reader(PhantomData)
    }
}

/// Writes messages.
#[derive(Debug)]
pub struct Writer<T>(PhantomData<T>);

impl<T: Message> Encoder for Writer<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.reserve(message.encoded_len());
        message.encode_raw(to);
        Ok(())
    }
}

/// Reads messages. One that is none is its sender's mistake; prost's own reader would say that it was ours.
#[derive(Debug)]
pub struct Reader<U>(PhantomData<U>);

impl<U: Message + Default> Decoder for Reader<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        U::decode(bytes).map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
    }
}
