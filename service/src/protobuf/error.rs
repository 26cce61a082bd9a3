//! The error of a request that is read from a protobuf message.

use crate::shared::error::Error;

/// The reason why a request is not decided.
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
}

impl From<Error> for MessageError {
    fn from(error: Error) -> Self {
        Self::Invalid(error)
    }
}
