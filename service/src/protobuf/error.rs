//! The error of a request that is read from a protobuf message.

use prost::Message;

use crate::shared::error::Error;

#[derive(Debug)]
pub(crate) enum MessageError {
    /// The bytes are no message, for the reason that prost gives.
    Malformed(String),
    /// The request in the message is wrong.
    Invalid(Error),
}

impl MessageError {
    /// Returns the error where the reason is not known.
    pub(crate) fn malformed() -> Self {
        Self::Malformed("this is no message".to_owned())
    }

    /// Returns the error with the reason that prost gives when it decodes the bytes as an `M`. `can_decode` returns false
    /// where that would take more memory than a request may; the reason is then left out.
    #[cold]
    pub(crate) fn explained<M: Message + Default>(message: &[u8], can_decode: impl FnOnce() -> bool) -> Self {
        let why = can_decode().then(|| M::decode(message).err()).flatten();
        why.map_or_else(Self::malformed, |error| Self::Malformed(error.to_string()))
    }
}

impl From<Error> for MessageError {
    fn from(error: Error) -> Self {
        Self::Invalid(error)
    }
}
