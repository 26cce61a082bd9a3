//! A response body whose bytes all its callers share, such as a file of the dashboard.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use actix_web::{
    body::{BodySize, MessageBody},
    web::Bytes,
};

/// Bytes that are handed out at a time.
const PIECE_BYTES: usize = 16 << 10;

/// A body that is handed out in pieces. A connection copies what it is handed, so a caller who does not read makes the server
/// hold a few pieces rather than a copy of the whole body.
pub(crate) struct SharedBody(pub(crate) Bytes);

impl MessageBody for SharedBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.0.len() as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let length = self.0.len().min(PIECE_BYTES);
        let piece = self.0.split_to(length);
        Poll::Ready((!piece.is_empty()).then_some(Ok(piece)))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_body_is_handed_out_in_pieces() {
        let mut body = SharedBody(Bytes::from(vec![7_u8; 2 * PIECE_BYTES - 1]));
        assert_eq!(body.size(), BodySize::Sized(2 * PIECE_BYTES as u64 - 1));
        let mut pieces = Vec::new();
        while let Some(Ok(piece)) = poll_fn(|context| Pin::new(&mut body).poll_next(context)).await {
            pieces.push(piece.len());
        }
        assert_eq!(pieces, [PIECE_BYTES, PIECE_BYTES - 1]);
    }
}
