//! From where somebody asks: the address of his connection, or what a proxy that is trusted says of it; and the network that
//! an address is counted with.

use std::net::IpAddr;

use actix_web::{HttpRequest, http::header::HeaderValue, web::Data};
use openidconnect::url::{Host, Url};
use tidegate_net::trusted_proxy::{Forwarding, client};

use crate::app::State;

/// Where proxies write for whom they ask.
const FORWARDING: Forwarding = Forwarding::XForwardedFor;

/// Of whoever asks, for the audit log, his session and the limits of tries.
pub(crate) fn address(request: &HttpRequest) -> String {
    let trusted = request.app_data::<Data<State>>().map_or(&[][..], |state| &state.trusted_proxies);
    let Some(peer) = request.peer_addr() else { return String::new() };
    let told: Vec<&[u8]> = request.headers().get_all(FORWARDING.header()).map(HeaderValue::as_bytes).collect();
    client(peer.ip(), &told, FORWARDING, trusted).to_string()
}

/// Does what is sent there stay on this machine?
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).to_canonical().is_loopback(),
        None => false,
    }
}

/// Whom an address is counted with: of IPv6 its network of so many bits.
pub(crate) fn network(address: &str, bits: u8) -> String {
    address
        .parse::<IpAddr>()
        .map_or_else(|_| address.to_owned(), |address| tidegate::network(address, bits).to_string())
}
