//! Decides requests by a policy on a virtual clock, and counts the decisions.

use tidegate::{
    DEFAULT_DOMAIN, Engine, Identity, PublishError, Snapshot, TableShares,
    clock::ManualClock,
    time::{Nanos, Timestamp},
};

use crate::{
    clients::{ClientId, Clients, IdentityKind},
    log::record::{LogRecord, with_request},
    reorder_window::BufferedItem,
    replay::ReplayOptions,
    report::LimitRow,
    timeline::Timeline,
};

/// An arbitrary seed, the same in every run. It places keys in the table, which affects no report while all have room.
pub(crate) const SEED: u64 = 1;

/// A request in the reorder window. It has one allocation, for its text.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    client: Option<ClientId>,
    user: Option<ClientId>,
    /// Length of the method in `text`; the rest is the endpoint.
    method_bytes: Option<u8>,
    has_endpoint: bool,
    text: Box<str>,
}

impl BufferedItem for PendingRequest {
    fn bytes(&self) -> usize {
        self.text.len()
    }
}

/// An engine with its virtual clock, and counts of its decisions.
#[derive(Debug)]
pub(crate) struct Simulation {
    pub(crate) engine: Engine<ManualClock>,
    clock: ManualClock,
    /// Counts by the limit's index in the engine.
    pub(crate) limits: Vec<LimitRow>,
    pub(crate) clients: Clients,
    pub(crate) timeline: Timeline,
    pub(crate) without_path: u64,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) first: Option<Nanos>,
    pub(crate) last: Option<Nanos>,
}

impl Simulation {
    pub(crate) fn new(policy: Snapshot, options: &ReplayOptions) -> Result<Self, PublishError> {
        let clock = ManualClock::default();
        // The log is all that there is: no share of the table is reserved.
        let engine = Engine::for_simulation(options.max_keys, clock.clone(), SEED)
            .with_shares(TableShares::WHOLE)
            .with_ipv6_prefix(options.reading.clients.ipv6_prefix);
        // A fresh engine numbers the limits of its first policy in their order.
        let row = |name: &str| LimitRow {
            id: name.rsplit('/').next().unwrap_or(name).to_owned(),
            limit_id: name.to_owned(),
            checked: 0,
            denied: 0,
        };
        let limits = policy.limit_names().map(row).collect();
        engine.publish(policy)?;
        Ok(Self {
            engine,
            clock,
            limits,
            clients: Clients::new(options.reading.kind()),
            timeline: Timeline::default(),
            without_path: 0,
            allowed: 0,
            denied: 0,
            first: None,
            last: None,
        })
    }

    /// Returns the request of a line, for the reorder window.
    pub(crate) fn pending(&mut self, record: &LogRecord<'_>) -> PendingRequest {
        let (method, endpoint) = (record.target.method.as_deref(), record.target.endpoint.as_deref());
        let (method_text, path) = (method.unwrap_or_default(), endpoint.unwrap_or_default());
        let mut text = String::with_capacity(method_text.len() + path.len());
        text.push_str(method_text);
        text.push_str(path);
        PendingRequest {
            client: record.client.as_ref().map(|client| self.client_id(IdentityKind::Ip, IdentityKind::IP, client)),
            user: record.user.as_ref().map(|user| self.client_id(IdentityKind::User, record.kind, user)),
            method_bytes: method.map(|method| method.len() as u8),
            has_endpoint: endpoint.is_some(),
            text: text.into_boxed_str(),
        }
    }

    /// Returns the index of an identity, by the value under which a server counts it. A host name is its own value.
    fn client_id(&mut self, kind: IdentityKind, name: &str, value: &str) -> ClientId {
        let counted = Identity::new(name, value).and_then(|identity| self.engine.counted(DEFAULT_DOMAIN, identity));
        self.clients.id(kind, counted.as_ref().map_or(value, |counted| counted.identity().value()))
    }

    pub(crate) fn decide(&mut self, now: Nanos, pending: &PendingRequest) {
        self.clock.set(Timestamp::from_nanos(now));
        let (method, endpoint) = pending.text.split_at(pending.method_bytes.map_or(0, usize::from));
        let method = pending.method_bytes.map(|_| method);
        let client = pending.client.map(|client| self.clients.value(client));
        let user = pending.user.map(|user| (&*self.clients.kind, self.clients.value(user)));
        let (engine, limits) = (&self.engine, &mut self.limits);
        let is_allowed = with_request(client, user, method, pending.has_endpoint.then_some(endpoint), |request| {
            let mut last_met = None;
            let decision = engine.check_observing(request, |met| {
                let place = met.limit.place();
                if let Some(limit) = limits.get_mut(place) {
                    limit.checked += 1;
                }
                last_met = Some(place);
            });
            // The last limit that was checked is the one that denied.
            if !decision.is_allowed()
                && let Some(limit) = last_met.and_then(|place| limits.get_mut(place))
            {
                limit.denied += 1;
            }
            decision.is_allowed()
        });
        // The parts are valid: they made a request when the line was read.
        let Ok(is_allowed) = is_allowed else { return };
        for identity in [pending.client, pending.user].into_iter().flatten() {
            self.clients.count(identity, now, is_allowed);
        }
        self.timeline.count(now, is_allowed);
        self.without_path += u64::from(!pending.has_endpoint);
        *(if is_allowed { &mut self.allowed } else { &mut self.denied }) += 1;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }
}
