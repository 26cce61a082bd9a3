//! Bodies of responses that hold something until they are sent: a permit of the body budget, or the unread rest of a request.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use actix_web::{
    body::{BodySize, BoxBody, MessageBody},
    dev::Payload,
    web::Bytes,
};

use crate::shared::body_budget::BodyPermit;

/// The response to a request whose body was not read to its end. While the rest of that body is held, actix-http tells
/// the sender that the connection ends, and waits [a time](crate::Timeouts::linger) for the rest; otherwise it would
/// wait for the end of chunks for ever. A response of [`BodySize::None`] would hold nothing, so responses without a
/// body have the size 0.
pub(super) struct UnreadRequest {
    pub(super) response: BoxBody,
    pub(super) _request: Payload,
}

impl MessageBody for UnreadRequest {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.response.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.response).poll_next(context)
    }
}

/// The body of a response that is kept with its permit. It ends early where the permit is revoked, which ends the connection.
pub(super) struct BudgetedBody {
    permit: BodyPermit,
    bytes: u64,
}

impl BudgetedBody {
    pub(super) fn new(mut permit: BodyPermit, response: Vec<u8>) -> Self {
        let bytes = response.len() as u64;
        permit.keep(response);
        Self { permit, bytes }
    }
}

impl MessageBody for BudgetedBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.bytes)
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        Poll::Ready(self.permit.take_piece().map(Ok))
    }
}
