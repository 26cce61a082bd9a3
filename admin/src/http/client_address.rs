//! The client address of a request: that of its connection, or what a trusted proxy says of it.

use actix_web::{HttpRequest, http::header::HeaderValue, web::Data};
use tidegate_net::trusted_proxy::{Forwarding, client};

use crate::http::state::State;

/// Where proxies write for whom they ask.
const FORWARDING: Forwarding = Forwarding::XForwardedFor;

/// Of whoever asks, for the audit log, his session and the limits of tries.
pub(crate) fn address(request: &HttpRequest) -> String {
    let trusted = request.app_data::<Data<State>>().map_or(&[][..], |state| &state.trusted_proxies);
    let Some(peer) = request.peer_addr() else { return String::new() };
    let told: Vec<&[u8]> = request.headers().get_all(FORWARDING.header()).map(HeaderValue::as_bytes).collect();
    client(peer.ip(), &told, FORWARDING, trusted).to_string()
}
