//! Whose a limit is: what its full name says.

/// A limit of a single client's own override, by its name `DOMAIN/client:KIND:VALUE/LIMIT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OfClient<'n> {
    /// Its domain.
    pub domain: &'n str,
    /// `KIND:VALUE`.
    pub client: &'n str,
    /// Its id in the override.
    pub limit: &'n str,
}

/// Whose a limit of this full name is; `None`: it is a tier's or a rule's.
#[must_use]
pub fn of_client(limit_id: &str) -> Option<OfClient<'_>> {
    let (domain, owned) = limit_id.split_once('/')?;
    // A value may hold a `/`, the id of a limit does not.
    let (client, limit) = owned.strip_prefix("client:")?.rsplit_once('/')?;
    Some(OfClient { domain, client, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_value_may_hold_anything() {
        let own = OfClient { domain: "web", client: "ip:2001:db8::/48", limit: "minute" };
        assert_eq!(of_client("web/client:ip:2001:db8::/48/minute"), Some(own));
        assert_eq!(of_client("web/tier:client/minute"), None);
    }
}
