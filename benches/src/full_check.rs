//! The full check: three identities, the client's tier looked up among 100,000 clients, the endpoint matched, three limits
//! charged.

use std::sync::Arc;

use tidegate::{
    Engine, Identity, Request, Snapshot,
    formats::Format,
    policy::{Client, Policy},
};

use crate::{
    batches::{BATCH, DiscardDecisions},
    contender::TestedLimiter,
};

/// The number of clients that the policy lists.
pub const CLIENTS: usize = 100_000;

/// An engine whose policy lists many clients; a request has the API key, the user and the address of one client.
#[derive(Debug)]
pub struct FullCheck {
    /// The engine, whose policy lists the clients.
    pub engine: Engine,
    /// The names of the clients, used as API keys and as users.
    names: Vec<String>,
    addresses: Vec<String>,
}

impl FullCheck {
    /// Returns an engine for a million keys, with the policy in force.
    ///
    /// # Panics
    ///
    /// Never: the policy is valid.
    #[must_use]
    pub fn new() -> Self {
        let engine = Engine::new();
        engine.publish(snapshot("pro", 1_000_000_000)).expect("few limits");
        let address = |client: usize| format!("192.{}.{}.{}", client >> 16, client >> 8 & 255, client & 255);
        Self { engine, names: names().collect(), addresses: (0..CLIENTS).map(address).collect() }
    }

    /// Returns the identities of a client's request.
    fn identities(&self, client: usize) -> [Identity<'_>; 3] {
        let identity = |kind, value| Identity::new(kind, value).expect("valid");
        let (name, address) = (&self.names[client], &self.addresses[client]);
        [identity("ip", address), identity("api_key", name), identity("user", name)]
    }
}

impl Default for FullCheck {
    fn default() -> Self {
        Self::new()
    }
}

impl TestedLimiter for FullCheck {
    fn checker(&self) -> impl FnMut(u64) -> bool {
        |client| self.engine.check(&request(&self.identities(client as usize))).is_allowed()
    }
}

#[inline]
fn request<'r>(identities: &'r [Identity<'r>]) -> Request<'r> {
    Request::new(identities).and_then(|request| request.endpoint("/api/v1/users/7/posts")).expect("valid")
}

/// A limiter that makes the checks of a [`FullCheck`] in batches.
#[derive(Debug)]
pub struct BatchedFullCheck<'f>(pub &'f FullCheck);

impl TestedLimiter for BatchedFullCheck<'_> {
    fn checker(&self) -> impl FnMut(u64) -> bool {
        self.0.checker()
    }

    fn chunk_checker(&self) -> impl FnMut(&[u32]) {
        |clients| {
            for clients in clients.as_chunks::<BATCH>().0 {
                let identities = clients.map(|client| self.0.identities(client as usize));
                let requests = identities.each_ref().map(|identities| request(identities));
                self.0.engine.check_batch(&requests, &mut DiscardDecisions);
            }
        }
    }
}

/// A limiter that makes one of the three charges of a [`FullCheck`], by a handle.
#[derive(Debug)]
pub struct OneHandle<'f>(pub &'f FullCheck);

impl TestedLimiter for OneHandle<'_> {
    fn checker(&self) -> impl FnMut(u64) -> bool {
        let mut user = self.0.engine.handle("default/rule:search/search", "user").expect("is there");
        move |client| user.check(&self.0.names[client as usize]).is_allowed()
    }
}

/// A limiter that makes the three charges of a [`FullCheck`] by three handles.
#[derive(Debug)]
pub struct ThreeHandles<'f>(pub &'f FullCheck);

impl TestedLimiter for ThreeHandles<'_> {
    fn checker(&self) -> impl FnMut(u64) -> bool {
        let handle = |limit, kind| self.0.engine.handle(limit, kind).expect("is there");
        let mut ip = handle("default/tier:free/ip", "ip");
        let mut key = handle("default/tier:pro/key", "api_key");
        let mut user = handle("default/rule:search/search", "user");
        move |client| {
            let (name, address) = (&self.0.names[client as usize], &self.0.addresses[client as usize]);
            ip.check(address).is_allowed() & key.check(name).is_allowed() & user.check(name).is_allowed()
        }
    }
}

/// Returns a policy that lists all clients with this tier, `pro` or `team`. `limit` is the limit of addresses in tokens a
/// second.
///
/// # Panics
///
/// Never: the policy is valid.
#[must_use]
pub fn snapshot(tier: &str, limit: u64) -> Arc<Snapshot> {
    let limit_of = |id: &str, limit: u64| {
        format!(r#"{{ id = "{id}", algorithm = "token_bucket", limit = {limit}, period = "1s", burst = 1000000 }}"#)
    };
    let (of_address, wide) = (limit_of("ip", limit), |id| limit_of(id, 1_000_000_000));
    let text = format!(
        r#"
        [domains.default]
        defaults = {{ ip = "free" }}
        [[domains.default.tiers]]
        id = "free"
        limits = [{of_address}]
        [[domains.default.tiers]]
        id = "pro"
        limits = [{}]
        [[domains.default.tiers]]
        id = "team"
        limits = [{}]
        [[domains.default.rules]]
        id = "search"
        endpoint = "/api/v1/users/{{id}}/posts"
        per = "user"
        limits = [{}]
        "#,
        wide("key"),
        wide("key"),
        wide("search")
    );
    let mut policy = Policy::parse(&text, Format::Toml).expect("a policy");
    policy.domains.get_mut("default").expect("is there").clients =
        names().map(|value| Client { tier: Some(tier.to_owned()), ..Client::new("api_key", value) }).collect();
    Snapshot::compile(&policy).expect("valid").into()
}

fn names() -> impl Iterator<Item = String> {
    (0..CLIENTS).map(|client| format!("k-{client}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::CHUNK;

    #[test]
    fn a_full_check_charges_what_the_three_handles_charge() {
        let full = FullCheck::new();
        let allowed = || full.engine.limit_counts().into_iter().map(|(limit, counts)| (limit, counts.allowed));
        let charged = |check: &dyn Fn() -> bool| {
            let before: Vec<_> = allowed().collect();
            assert!(check());
            let names = allowed().zip(before).filter(|(now, before)| now.1 > before.1);
            names.map(|((limit, _), _)| full.engine.limit_name(limit).to_owned()).collect::<Vec<_>>()
        };
        let by_check = charged(&|| full.checker()(99_999));
        assert_eq!(by_check, ["default/tier:free/ip", "default/tier:pro/key", "default/rule:search/search"]);
        assert_eq!(charged(&|| ThreeHandles(&full).checker()(99_999)), by_check);
    }

    #[test]
    fn a_batch_charges_what_the_same_checks_charge_one_at_a_time() {
        let clients: Vec<u32> = (0..CHUNK as u32).collect();
        let charged = |check: &dyn Fn(&FullCheck)| {
            let full = FullCheck::new();
            check(&full);
            full.engine.limit_counts().into_iter().map(|(_, counts)| counts.allowed).collect::<Vec<_>>()
        };
        let in_batches = charged(&|full| BatchedFullCheck(full).chunk_checker()(&clients));
        assert_eq!(in_batches, charged(&|full| full.chunk_checker()(&clients)));
        assert_eq!(in_batches.iter().sum::<u64>(), 3 * CHUNK as u64);
    }
}
