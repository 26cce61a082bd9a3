//! Why a policy decides about a request as it does: each identity's tier and where it comes from, and each rule with what
//! keeps it from applying.
//!
//! This reads the document, one rule and one client after the other, where the compiled snapshot looks things up; a test
//! holds both against each other.

use crate::{
    base::time::Nanos,
    policy::{
        document::{Client, Domain, EVERYONE, Per, Rule},
        matcher::Matcher,
        path::{PathBuffer, made_plain},
        pattern::{Pattern, PatternTree},
        request::{Identity, Request},
    },
};

/// What a domain makes of a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation<'a> {
    /// In the request's order.
    pub identities: Vec<WhoIs<'a>>,
    /// All rules of the domain, as [`Domain::rules_by_closeness`] orders them.
    pub rules: Vec<(&'a Rule, RuleMatch<'a>)>,
}

/// What a domain knows of an identity.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WhoIs<'a> {
    /// Who.
    pub identity: Identity<'a>,
    /// The configured client that it is, the closest of those that match.
    pub client: Option<&'a Client>,
    /// Its tier, and where that comes from.
    pub tier: Option<(&'a str, TierFrom)>,
    /// The client's override ended at the instant that it names.
    pub has_ended: bool,
}

/// Where a tier comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TierFrom {
    /// The client was given it.
    Client,
    /// The request named it, and the domain hears that.
    Hint,
    /// It is the default of the identity's kind.
    Default,
}

/// Does a rule apply to a request? The first reason that keeps it from that.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RuleMatch<'a> {
    /// Its limits count the request.
    Applies,
    /// It is not enabled.
    Disabled,
    /// Its pattern is of other paths.
    Endpoint,
    /// It is for another method.
    Method,
    /// It counts per a kind that the request lacks.
    NoIdentity(&'a str),
    /// None of the request's identities is of its tiers.
    Tiers,
    /// The request's identity of this kind is absent, or has another value.
    Where(&'a str),
    /// It would, but of the rules that count the same kinds this one is closer.
    Closer(&'a str),
}

impl Domain {
    /// Why the request meets the limits that it meets, at time `now` (Unix nanoseconds). The policy is taken as valid.
    #[must_use]
    pub fn explain<'a>(&'a self, request: &Request<'a>, now: Nanos) -> Explanation<'a> {
        let identities: Vec<_> =
            request.identities.iter().map(|identity| self.who_is(*identity, request, now)).collect();
        let mut buffer = PathBuffer::new();
        let path = request.endpoint.map(|endpoint| made_plain(endpoint, &mut buffer));
        let mut applied: Vec<&Rule> = Vec::new();
        let rules = self.rules_by_closeness().into_iter().map(|rule| {
            let mut fit = fits(rule, request, path, &identities);
            if fit == RuleMatch::Applies {
                match applied.iter().find(|closer| kinds(closer) == kinds(rule)) {
                    Some(closer) => fit = RuleMatch::Closer(&closer.id),
                    None => applied.push(rule),
                }
            }
            (rule, fit)
        });
        Explanation { rules: rules.collect(), identities }
    }

    fn who_is<'a>(&'a self, identity: Identity<'a>, request: &Request<'a>, now: Nanos) -> WhoIs<'a> {
        let matching = self.clients.iter().filter(|client| client.kind == identity.kind()).filter_map(|client| {
            let matcher = Matcher::parse(&client.kind, &client.value).ok()?;
            matcher.matches(identity.value()).then(|| (matcher.nearness(), client))
        });
        let client = matching.min_by_key(|(nearness, _)| *nearness).map(|(_, client)| client);
        let of_client = client.and_then(|client| client.tier.as_deref()).map(|tier| (tier, TierFrom::Client));
        let hint = request.tier.filter(|hint| {
            self.tier_hint && self.speaks_of(identity.kind()) && self.tiers.iter().any(|tier| tier.id == **hint)
        });
        let default = self.defaults.get(identity.kind()).map(|tier| (tier.as_str(), TierFrom::Default));
        let until =
            client.and_then(|client| client.exception.as_ref()?.until.as_ref()?.parse::<jiff::Timestamp>().ok());
        WhoIs {
            identity,
            client,
            tier: of_client.or_else(|| hint.map(|tier| (tier, TierFrom::Hint))).or(default),
            has_ended: until.is_some_and(|until| until.as_nanosecond() <= i128::from(now)),
        }
    }

    /// Does the domain name this kind anywhere?
    fn speaks_of(&self, kind: &str) -> bool {
        self.defaults.contains_key(kind)
            || self.clients.iter().any(|client| client.kind == kind)
            || self.rules.iter().any(|rule| kinds(rule).contains(&kind) || rule.condition.contains_key(kind))
    }
}

/// The kinds that a rule counts, in order; none: everyone together.
pub(crate) fn kinds(rule: &Rule) -> Vec<&str> {
    let mut kinds: Vec<&str> = match &rule.per {
        Per::One(everyone) if everyone == EVERYONE => Vec::new(),
        Per::One(kind) => vec![kind],
        Per::Each(kinds) => kinds.iter().map(String::as_str).collect(),
    };
    kinds.sort_unstable();
    kinds
}

fn fits<'a>(rule: &'a Rule, request: &Request<'_>, path: Option<&str>, who: &[WhoIs<'_>]) -> RuleMatch<'a> {
    if !rule.enabled {
        return RuleMatch::Disabled;
    }
    if !Pattern::parse(&rule.endpoint).is_ok_and(|pattern| matches(&pattern, path)) {
        return RuleMatch::Endpoint;
    }
    let asked = |wanted: &String| request.method.is_some_and(|method| method.eq_ignore_ascii_case(wanted));
    if !rule.method.as_ref().is_none_or(asked) {
        return RuleMatch::Method;
    }
    let value = |kind: &str| who.iter().find(|who| who.identity.kind() == kind).map(|who| who.identity.value());
    if let Some(kind) = kinds(rule).into_iter().find(|kind| value(kind).is_none()) {
        return RuleMatch::NoIdentity(kind);
    }
    let is_of =
        |tiers: &Vec<String>| who.iter().filter_map(|who| who.tier).any(|(tier, _)| tiers.iter().any(|of| of == tier));
    if !rule.tiers.as_ref().is_none_or(is_of) {
        return RuleMatch::Tiers;
    }
    let fails = |(kind, wanted): &(&'a String, &String)| {
        let matcher = Matcher::parse(kind, wanted).ok();
        !matcher.zip(value(kind)).is_some_and(|(matcher, value)| matcher.matches(value))
    };
    match rule.condition.iter().find(fails) {
        Some((kind, _)) => RuleMatch::Where(kind),
        None => RuleMatch::Applies,
    }
}

fn matches(pattern: &Pattern, path: Option<&str>) -> bool {
    PatternTree::new([(pattern.clone(), ())], |(), ()| {}).closest(path, |()| Some(())).is_some()
}
