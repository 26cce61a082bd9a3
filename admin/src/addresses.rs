//! From where somebody asks: the address of his connection, or what a proxy that is trusted says of it; and the network that
//! an address is counted with.

use std::net::{IpAddr, Ipv6Addr};

use actix_web::{HttpRequest, web::Data};
use ipnet::IpNet;
use openidconnect::url::{Host, Url};

use crate::server::State;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Of whoever asks, for the audit log, his session and the limits of tries.
pub(crate) fn address(request: &HttpRequest) -> String {
    let trusted = request.app_data::<Data<State>>().map_or(&[][..], |state| &state.trusted_proxies);
    let Some(peer) = request.peer_addr() else { return String::new() };
    // A part that is no text is no address; what proxies added to it stands.
    let headers = request.headers().get_all(FORWARDED_FOR).map(|value| String::from_utf8_lossy(value.as_bytes()));
    client(peer.ip(), headers.collect::<Vec<_>>().join(",").as_str(), trusted).to_string()
}

/// The nearest address that is no trusted proxy's: each proxy adds whom it was asked by, to the right. What is no address is
/// nobody's word, so it is the proxy then that said it.
fn client(peer: IpAddr, forwarded: &str, trusted: &[IpNet]) -> IpAddr {
    let mut nearest = peer.to_canonical();
    let mut before = forwarded.rsplit(',').map(|text| text.trim().parse::<IpAddr>());
    while trusted.iter().any(|network| network.contains(&nearest)) {
        match before.next() {
            Some(Ok(address)) => nearest = address.to_canonical(),
            _ => break,
        }
    }
    nearest
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

/// Whom an address is counted with: of IPv6 its network of so many bits, since whoever has one address there has them all.
pub(crate) fn network(address: &str, bits: u32) -> String {
    match address.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V6(address)) => Ipv6Addr::from_bits(address.to_bits() & !(u128::MAX >> bits)).to_string(),
        Ok(address) => address.to_string(),
        Err(_) => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trusted_proxies_say_who_asks() {
        let trusted = ["10.0.0.0/8", "2001:db8:1::/48"].map(|network| network.parse().expect("a network"));
        for (peer, forwarded, found) in [
            ("192.0.2.1", "198.51.100.7", "192.0.2.1"),
            ("10.0.0.1", "", "10.0.0.1"),
            ("10.0.0.1", "198.51.100.7", "198.51.100.7"),
            ("::ffff:10.0.0.1", "::ffff:198.51.100.7", "198.51.100.7"),
            // Whatever stands to the left of the nearest stranger is his own word.
            ("10.0.0.1", "10.0.0.9, 198.51.100.7 ,10.1.1.1", "198.51.100.7"),
            ("10.0.0.1", "2001:db8:1::5,10.0.0.2", "2001:db8:1::5"),
            ("10.0.0.1", "198.51.100.7, nonsense", "10.0.0.1"),
            ("10.0.0.1", "198.51.100.7, nonsense, 10.0.0.2", "10.0.0.2"),
        ] {
            let found_now = client(peer.parse().expect("an address"), forwarded, &trusted);
            assert_eq!(found_now.to_string(), found, "{peer}: {forwarded}");
        }
    }

    #[test]
    fn whoever_has_one_address_of_a_network_has_them_all() {
        assert_eq!(network("2001:db8:1:2:3::4", 64), "2001:db8:1:2::");
        assert_eq!(network("2001:db8:1:2:3::4", 48), "2001:db8:1::");
        assert_eq!(
            (network("192.0.2.1", 48), network("::ffff:192.0.2.1", 64)),
            ("192.0.2.1".into(), "192.0.2.1".into())
        );
    }
}
