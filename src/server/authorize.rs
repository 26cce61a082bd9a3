//! Settings of `/v1/authorize`, which proxies ask.

use clap::Args;
use tidegate::IPV6_PREFIX;
use tidegate_admin::IpNet;
use tidegate_middleware::{
    address::{AddressError, AddressReader, parse_network},
    extract::{ExtractError, Extractor, Extractors},
};
use tidegate_service::http::{Authorize, HeaderName};

use crate::{cli::ipv6_prefix, output::Failure};

#[derive(Debug, Args)]
pub(crate) struct AuthorizeArguments {
    /// Whom requests are counted by that proxies ask about (/v1/authorize), in the order in which they are checked: a kind and
    /// where its value stands, address, header:NAME, bearer (the token's SHA-256) or path. Several are given one by one, or
    /// with commas between them.
    #[arg(
        long,
        value_name = "KIND=SOURCE",
        env = "TIDEGATE_IDENTITY",
        value_delimiter = ',',
        default_value = "ip=address"
    )]
    identity: Vec<Extractor>,
    /// Header in which the proxy writes the path, over whatever its client sent under this name.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_ENDPOINT_HEADER", default_value = Authorize::ENDPOINT_HEADER,
        value_parser = header)]
    endpoint_header: HeaderName,
    /// Header in which it writes the method.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_METHOD_HEADER", default_value = Authorize::METHOD_HEADER,
        value_parser = header)]
    method_header: HeaderName,
    /// A proxy that asks, or stands before one that does, by its address or network: it is believed for whom it asks, by
    /// X-Forwarded-For. Of any other, its own address counts. Several are given one by one, or with commas between them.
    #[arg(long, value_name = "CIDR", env = "TIDEGATE_TRUSTED_PROXY", value_delimiter = ',', default_value = "127.0.0.0/8,::1",
        value_parser = parse_network)]
    trusted_proxy: Vec<IpNet>,
    #[command(flatten)]
    pub(crate) addresses: AddressArguments,
}

/// How addresses are counted: at the listeners, and in what the dashboard tries and shows.
#[derive(Debug, Args)]
pub(crate) struct AddressArguments {
    /// Bits of an IPv6 address that are counted together, 1 to 128, under the kind `ip` at all listeners: who has one address of
    /// such a network has them all. An address or a smaller network that the policy names is counted by itself. The same on all
    /// nodes and admin servers.
    #[arg(long, value_name = "BITS", env = "TIDEGATE_IPV6_PREFIX", default_value_t = IPV6_PREFIX, value_parser = ipv6_prefix)]
    pub(crate) ipv6_prefix: u8,
}

impl AuthorizeArguments {
    pub(crate) fn settings(&self) -> Result<Authorize, Failure> {
        let addresses = AddressReader::default().trusting(self.trusted_proxy.iter().copied());
        let of_prefix = |error: AddressError| Failure(format!("--ipv6-prefix: {error}"));
        let addresses = addresses.v6_bits(self.addresses.ipv6_prefix).map_err(of_prefix)?;
        let of_identities = |error: ExtractError| Failure(format!("--identity: {error}"));
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
