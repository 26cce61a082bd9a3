//! The settings of `/v1/authorize`, by which proxies check requests, and of addresses as identities.

use clap::Args;
use tidegate::IPV6_PREFIX;
use tidegate_admin::IpNet;
use tidegate_middleware::{
    address::{AddressError, AddressReader, parse_network},
    extract::{ExtractError, Extractor, Extractors},
};
use tidegate_service::http::{Authorize, HeaderName};

use crate::{output::CommandError, value_parsers::ipv6_prefix};

#[derive(Debug, Args)]
pub(crate) struct AuthorizeArguments {
    /// An identity of requests that proxies check by /v1/authorize: a kind, and the source of its value: address, header:NAME,
    /// bearer (the SHA-256 of the token) or path. For example: user=header:X-User. Repeat the option for several, or separate
    /// them by commas; they are checked in this order.
    #[arg(
        long,
        value_name = "KIND=SOURCE",
        env = "TIDEGATE_IDENTITY",
        value_delimiter = ',',
        default_value = "ip=address"
    )]
    identity: Vec<Extractor>,
    /// The header in which the proxy sends the path of the request. The proxy must overwrite what its client sent.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_ENDPOINT_HEADER", default_value = Authorize::ENDPOINT_HEADER,
        value_parser = header)]
    endpoint_header: HeaderName,
    /// The header in which the proxy sends the method of the request.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_METHOD_HEADER", default_value = Authorize::METHOD_HEADER,
        value_parser = header)]
    method_header: HeaderName,
    /// The address or network of a trusted proxy: for its requests, the client address is read from X-Forwarded-For. For all other
    /// callers it is the address of the caller itself. Repeat the option for several, or separate them by commas.
    #[arg(long, value_name = "CIDR", env = "TIDEGATE_TRUSTED_PROXY", value_delimiter = ',', default_value = "127.0.0.0/8,::1",
        value_parser = parse_network)]
    trusted_proxy: Vec<IpNet>,
    #[command(flatten)]
    pub(crate) addresses: AddressArguments,
}

/// The way in which addresses count as identities: at the listeners, and where the dashboard tries and shows them.
#[derive(Debug, Args)]
pub(crate) struct AddressArguments {
    /// The number of bits of an IPv6 address that count as one client of the kind `ip`, 1 to 128: a client usually has a whole network. An
    /// address or a smaller network that the policy names counts by itself. Use the same value on all nodes and admin servers.
    #[arg(long, value_name = "BITS", env = "TIDEGATE_IPV6_PREFIX", default_value_t = IPV6_PREFIX, value_parser = ipv6_prefix)]
    pub(crate) ipv6_prefix: u8,
}

impl AuthorizeArguments {
    pub(crate) fn settings(&self) -> Result<Authorize, CommandError> {
        let addresses = AddressReader::default().trusting(self.trusted_proxy.iter().copied());
        let of_prefix = |error: AddressError| CommandError(format!("--ipv6-prefix: {error}"));
        let addresses = addresses.v6_bits(self.addresses.ipv6_prefix).map_err(of_prefix)?;
        let of_identities = |error: ExtractError| CommandError(format!("--identity: {error}"));
        let identities = Extractors::new(self.identity.iter().cloned(), addresses).map_err(of_identities)?;
        Ok(Authorize {
            endpoint_header: self.endpoint_header.clone(),
            method_header: self.method_header.clone(),
            ..Authorize::new(identities.keep_ip_whole())
        })
    }
}

fn header(text: &str) -> Result<HeaderName, String> {
    text.parse().map_err(|_| "write the name of a header, such as X-Original-URI".to_owned())
}
