//! The service `RateLimiter`: checks one by one, in batches and in streams; reservations; resets.

use std::sync::Arc;

use actix_web::web::BytesMut;
use prost::{Message, encoding::int32};
use tidegate::{CountedIdentity, algorithm::NUMBER_MAX, clock::Clock};
use tonic::Status;

use super::{
    check_request::{BatchError, CheckRequest, read_batch},
    check_response::{put_correlation_id, put_response, put_streamed_response},
    status::{reject, reject_message},
};
use crate::{
    protobuf::{
        error::MessageError,
        generated::tidegate::v1::{
            RateLimitRequest, RefundRequest, RefundResponse, ResetRateLimitRequest, ResetRateLimitResponse,
            SettleRequest, SettleResponse,
        },
        writer::{put_message, put_text},
    },
    shared::{
        caller_shares::Caller,
        decider::CheckResult,
        error::{Error, ErrorReport},
        request_id_cache::CallKind,
        reservations::Gone,
        service_state::ServiceState,
        tokens::Rights,
        traces::RequestSpan,
    },
};

/// The name of the store among the parts that a reset did not reach. No node has a name with a space.
pub(super) const STORE: &str = "the store";
/// The name of the other nodes among these parts.
const OTHER_NODES: &str = "the other nodes";

/// The field number of the responses of a `BatchRateLimitResponse`.
const RESPONSES: u32 = 1;
/// The field number of the error of a `RateLimitResponse`.
const CHECK_ERROR: u32 = 14;

pub(super) struct LimiterService<C>(pub(super) Arc<ServiceState<C>>);

impl<C: Clock> LimiterService<C> {
    /// Decides a `RateLimitRequest`, and records the decision in the span of its call.
    pub(super) async fn decide(
        &self,
        message: &[u8],
        call: CallKind,
        caller: &Caller,
        span: Option<&RequestSpan>,
    ) -> Result<CheckResult<'_>, Status> {
        let mut check = CheckRequest::default();
        check.read(message).map_err(|error| reject_message(&self.0, error, None))?;
        let outcome = check.decide(&self.0.decider, call, caller).await;
        let outcome = outcome.map_err(|error| reject(&self.0, &error, None))?;
        if let Some(span) = span {
            span.record(&outcome);
        }
        Ok(outcome)
    }

    /// Decides a `BatchRateLimitRequest`, and writes its `BatchRateLimitResponse`. All requests are read before one is decided.
    pub(super) async fn batch(&self, message: &[u8], caller: &Caller, to: &mut BytesMut) -> Result<(), Status> {
        self.decide_batch(message, caller, to).await.map_err(|(error, index)| {
            let place = index.map(|index| format!("requests/{index}"));
            reject_message(&self.0, error, place.as_deref())
        })
    }

    async fn decide_batch(&self, message: &[u8], caller: &Caller, to: &mut BytesMut) -> Result<(), BatchError> {
        let all = read_batch(message)?;
        let decider = &self.0.decider;
        let mut counted = Vec::with_capacity(all.len());
        let mut ends = Vec::with_capacity(all.len());
        let mut first_error = None;
        for (index, check) in all.iter().enumerate() {
            if let Err(error) =
                check.permit(&caller.rights).and_then(|()| check.identities(decider.engine(), &mut counted))
            {
                first_error = Some((error.into(), Some(index)));
                break;
            }
            ends.push(counted.len());
        }
        let identities: Vec<_> = counted.iter().map(CountedIdentity::identity).collect();
        let (mut start, mut is_plain) = (0, true);
        let requests = all.iter().zip(ends).enumerate().map(|(index, (check, end))| {
            let request = check.request(&identities[start..end]);
            start = end;
            let request = request.and_then(|request| {
                is_plain &= check.is_plain()?;
                Ok(request)
            });
            request.map_err(|error| (error.into(), Some(index)))
        });
        let requests = requests.collect::<Result<Vec<_>, BatchError>>()?;
        // The requests before it are right, or their error would have been returned.
        if let Some(error) = first_error {
            return Err(error);
        }
        if is_plain {
            let write = |outcome: CheckResult<'_>| put_message(RESPONSES, to, |to| put_response(&outcome, to));
            decider.check_batch(&requests, caller, write).await;
            return Ok(());
        }
        let mut index = 0;
        let write = |decided| {
            put_message(RESPONSES, to, |to| match decided {
                Ok(outcome) => put_response(&outcome, to),
                // The requests before it are charged by now, so the error is reported in its place.
                Err(error) => put_message(CHECK_ERROR, to, |to| {
                    let place = format!("requests/{index}");
                    let status = reject(&self.0, &error, Some(&place));
                    let ErrorReport { code, field, .. } = error.report().within(&place);
                    put_text(1, code, to);
                    put_text(2, status.message(), to);
                    put_text(3, &field.unwrap_or_default(), to);
                }),
            });
            index += 1;
        };
        let decide = |(check, request)| CheckRequest::decide_request(check, decider, CallKind::Check, caller, request);
        decider.decide_each(all.iter().zip(&requests), decide, write).await;
        Ok(())
    }

    /// Decides a `CheckStreamRequest` that was read, and writes its `CheckStreamResponse`. Returns an error where the message was
    /// malformed, which ends the stream.
    pub(super) async fn decide_streamed(
        &self,
        read: Result<u64, MessageError>,
        check: &CheckRequest<'_>,
        caller: &Caller,
        to: &mut BytesMut,
    ) -> Result<(), Status> {
        let correlation_id = read.map_err(|error| reject_message(&self.0, error, None))?;
        match check.decide(&self.0.decider, CallKind::Check, caller).await {
            Ok(outcome) => put_streamed_response(correlation_id, &outcome, to),
            Err(error) => {
                put_correlation_id(correlation_id, to);
                put_message(3, to, |to| {
                    let status = reject(&self.0, &error, Some("request"));
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
            // Text that is no ID is reported as an unknown one.
            let id = reservation.parse().map_err(|_| Error::Reservation(Gone::Unknown));
            id.and_then(|id| self.0.decider.settle(id, *actual))
        };
        settled.map(|()| SettleResponse {}).map_err(|error| reject(&self.0, &error, None))
    }

    /// Resets what was used of the limits that a request meets, on this server and in its store, for a caller with one
    /// of the server's tokens. The other nodes are not reset.
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
        let mut check = CheckRequest::default();
        check.read(&message).map_err(|error| reject_message(&self.0, error, None))?;
        let reject = |error| reject(&self.0, &error, None);
        check.permit(rights).map_err(reject)?;
        let mut counted = Vec::new();
        check.identities(self.0.decider.engine(), &mut counted).map_err(reject)?;
        let identities: Vec<_> = counted.iter().map(CountedIdentity::identity).collect();
        let request = check.request(&identities).map_err(reject)?;
        let (keys, is_cleared) = self.0.decider.reset(&request).await;
        tracing::info!(keys, "what was used was reset over gRPC, by a token of this server");
        let missing = [Some(OTHER_NODES), (!is_cleared).then_some(STORE)];
        let missing = missing.into_iter().flatten().map(str::to_owned).collect();
        Ok(ResetRateLimitResponse { keys: keys as u64, nodes: Vec::new(), missing })
    }

    /// Refunds a reservation: settles it at no cost.
    pub(super) fn refund(&self, RefundRequest { reservation }: RefundRequest) -> Result<RefundResponse, Status> {
        self.settle(&SettleRequest { reservation, actual: 0 }).map(|SettleResponse {}| RefundResponse {})
    }
}
