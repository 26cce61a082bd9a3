//! `RateLimiter`: checks one by one, many at a time, and as they come; reservations.

use std::sync::Arc;

use actix_web::web::BytesMut;
use prost::{Message, encoding::int32};
use tidegate::{CountedIdentity, algorithm::NUMBER_MAX, clock::Clock};
use tonic::Status;

use super::{
    check_message::{self, Asked, Refusal, Wrong, put_text, put_within},
    proto::tidegate::v1::{
        RateLimitRequest, RefundRequest, RefundResponse, ResetRateLimitRequest, ResetRateLimitResponse, SettleRequest,
        SettleResponse,
    },
    refuse,
};
use crate::{
    http::error::{Error, Told},
    listeners::Shared,
    shared::{
        caller_shares::Caller, decider::Answer, request_id_cache::Call, reservations::Gone, tokens::Rights,
        traces::RequestSpan,
    },
};

/// What a reset did not reach; no node has a name with a space.
pub(super) const STORE: &str = "the store";
const OTHER_NODES: &str = "the other nodes";

/// Answers are written as their messages, whose fields have these numbers.
const RESPONSES: u32 = 1;
const CHECK_ERROR: u32 = 14;

pub(super) struct Limiter<C>(pub(super) Arc<Shared<C>>);

impl<C: Clock> Limiter<C> {
    /// Decides a `RateLimitRequest`, which the span of its call notes.
    pub(super) async fn decide(
        &self,
        message: &[u8],
        call: Call,
        caller: &Caller,
        span: Option<&RequestSpan>,
    ) -> Result<Answer<'_>, Status> {
        let mut asked = Asked::default();
        asked.read(message).map_err(|refusal| refusal.told(&self.0, None))?;
        let answer = asked.decide(&self.0.decider, call, caller).await;
        let answer = answer.map_err(|error| refuse(&self.0, &error, None))?;
        if let Some(span) = span {
            span.decided(&answer);
        }
        Ok(answer)
    }

    /// Writes the `BatchRateLimitResponse` to a `BatchRateLimitRequest`. All are read before one is decided.
    pub(super) async fn batch(&self, message: &[u8], caller: &Caller, to: &mut BytesMut) -> Result<(), Status> {
        self.batched(message, caller, to).await.map_err(|(refusal, place)| {
            let place = place.map(|place| format!("requests/{place}"));
            refusal.told(&self.0, place.as_deref())
        })
    }

    async fn batched(&self, message: &[u8], caller: &Caller, to: &mut BytesMut) -> Result<(), Wrong> {
        let all = check_message::batch(message)?;
        let decider = &self.0.decider;
        let mut counted = Vec::with_capacity(all.len());
        let mut ends = Vec::with_capacity(all.len());
        let mut wrong = None;
        for (place, asked) in all.iter().enumerate() {
            if let Err(error) =
                asked.permit(&caller.rights).and_then(|()| asked.identities(decider.engine(), &mut counted))
            {
                wrong = Some((error.into(), Some(place)));
                break;
            }
            ends.push(counted.len());
        }
        let identities: Vec<_> = counted.iter().map(CountedIdentity::identity).collect();
        let (mut start, mut is_plain) = (0, true);
        let requests = all.iter().zip(ends).enumerate().map(|(place, (asked, end))| {
            let request = asked.request(&identities[start..end]);
            start = end;
            let request = request.and_then(|request| {
                is_plain &= asked.is_plain()?;
                Ok(request)
            });
            request.map_err(|error| (error.into(), Some(place)))
        });
        let requests = requests.collect::<Result<Vec<_>, Wrong>>()?;
        // Those before it are right.
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if is_plain {
            let mut tell = |answer: Answer<'_>| put_within(RESPONSES, to, |to| check_message::response(&answer, to));
            decider.check_batch(&requests, caller, &mut tell).await;
            return Ok(());
        }
        let mut place = 0;
        let tell = |decided| {
            put_within(RESPONSES, to, |to| match decided {
                Ok(answer) => check_message::response(&answer, to),
                // Those before it were charged by now, so it is told in its place.
                Err(error) => put_within(CHECK_ERROR, to, |to| {
                    let place = format!("requests/{place}");
                    let status = refuse(&self.0, &error, Some(&place));
                    let Told { code, field, .. } = error.told().within(&place);
                    put_text(1, code, to);
                    put_text(2, status.message(), to);
                    put_text(3, &field.unwrap_or_default(), to);
                }),
            });
            place += 1;
        };
        let decide = |(asked, request)| Asked::decided(asked, decider, Call::Check, caller, request);
        decider.each(all.iter().zip(&requests), decide, tell).await;
        Ok(())
    }

    /// Writes the `CheckStreamResponse` to a `CheckStreamRequest` that was read. An error: it is none, which ends the stream.
    pub(super) async fn streamed(
        &self,
        read: Result<u64, Refusal>,
        asked: &Asked<'_>,
        caller: &Caller,
        to: &mut BytesMut,
    ) -> Result<(), Status> {
        let correlation_id = read.map_err(|refusal| refusal.told(&self.0, None))?;
        match asked.decide(&self.0.decider, Call::Check, caller).await {
            Ok(answer) => check_message::streamed_response(correlation_id, &answer, to),
            Err(error) => {
                check_message::put_correlation_id(correlation_id, to);
                put_within(3, to, |to| {
                    let status = refuse(&self.0, &error, Some("request"));
                    int32::encode(1, &(status.code() as i32), to);
                    put_text(2, status.message(), to);
                });
            }
        }
        Ok(())
    }

    pub(super) fn settle(
        &self,
        SettleRequest { reservation, actual }: &SettleRequest,
    ) -> Result<SettleResponse, Status> {
        let settled = if *actual > NUMBER_MAX {
            Err(Error::Actual(*actual))
        } else {
            // What is no id is one that nobody gave.
            let id = reservation.parse().map_err(|_| Error::Reservation(Gone::Unknown));
            id.and_then(|id| Ok(self.0.decider.settle(id, *actual)?))
        };
        settled.map(|()| SettleResponse {}).map_err(|error| refuse(&self.0, &error, None))
    }

    /// Resets what a request has used, on this server and in its store, for a caller with one of the server's tokens. The other
    /// nodes are not asked.
    pub(super) async fn reset(
        &self,
        request: ResetRateLimitRequest,
        rights: &Rights,
    ) -> Result<ResetRateLimitResponse, Status> {
        let ResetRateLimitRequest { identifier, identifier_type, endpoint, method, domain, identities } = request;
        let request = RateLimitRequest {
            identifier,
            identifier_type,
            endpoint,
            method,
            domain,
            identities,
            ..RateLimitRequest::default()
        };
        let message = request.encode_to_vec();
        let mut asked = Asked::default();
        asked.read(&message).map_err(|refusal| refusal.told(&self.0, None))?;
        let refuse = |error| refuse(&self.0, &error, None);
        asked.permit(rights).map_err(refuse)?;
        let mut counted = Vec::new();
        asked.identities(self.0.decider.engine(), &mut counted).map_err(refuse)?;
        let identities: Vec<_> = counted.iter().map(CountedIdentity::identity).collect();
        let request = asked.request(&identities).map_err(refuse)?;
        let (keys, is_cleared) = self.0.decider.reset(&request).await;
        tracing::info!(keys, "what was used was reset over gRPC, by a token of this server");
        let missing = [Some(OTHER_NODES), (!is_cleared).then_some(STORE)];
        let missing = missing.into_iter().flatten().map(str::to_owned).collect();
        Ok(ResetRateLimitResponse { keys: keys as u64, nodes: Vec::new(), missing })
    }

    pub(super) fn refund(&self, RefundRequest { reservation }: RefundRequest) -> Result<RefundResponse, Status> {
        self.settle(&SettleRequest { reservation, actual: 0 }).map(|SettleResponse {}| RefundResponse {})
    }
}
