//! Parses the full name of a limit of a single client's override.

/// The parts of the full name `DOMAIN/client:KIND:VALUE/LIMIT`, which a limit of a client's override has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientLimitName<'n> {
    /// The domain.
    pub domain: &'n str,
    /// The client, as `KIND:VALUE`.
    pub client: &'n str,
    /// The ID of the limit in the override.
    pub limit: &'n str,
}

/// Parses the full name of a limit; returns `None` for a limit of a tier or a rule.
#[must_use]
pub fn client_limit_name(limit_id: &str) -> Option<ClientLimitName<'_>> {
    let (domain, owned) = limit_id.split_once('/')?;
    // A value may contain a `/`, the ID of a limit does not.
    let (client, limit) = owned.strip_prefix("client:")?.rsplit_once('/')?;
    Some(ClientLimitName { domain, client, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_value_may_hold_anything() {
        let own = ClientLimitName { domain: "web", client: "ip:2001:db8::/48", limit: "minute" };
        assert_eq!(client_limit_name("web/client:ip:2001:db8::/48/minute"), Some(own));
        assert_eq!(client_limit_name("web/tier:client/minute"), None);
    }
}
