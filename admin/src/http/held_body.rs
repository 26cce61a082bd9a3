//! Long responses, with their part of the memory for responses.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use actix_web::{
    body::{BodySize, BoxBody, MessageBody},
    web::Bytes,
};

use crate::capacity::body_budget::BodyPermit;

/// A long answer, with its part of the budget until it is sent.
pub(crate) struct HeldBody {
    body: BoxBody,
    _permit: BodyPermit,
}

impl HeldBody {
    pub(crate) fn new(body: BoxBody, permit: BodyPermit) -> Self {
        Self { body, _permit: permit }
    }
}

impl MessageBody for HeldBody {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(context)
    }
}
