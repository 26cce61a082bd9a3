//! Explanations: the tier of each identity of a request and its origin, and for each rule why it applies or not.
//!
//! The code reads every rule and client of the document, where the compiled snapshot uses indexes; a test compares both.

use std::time::SystemTime;

use crate::policy::{
    document::{Client, Domain, Rule},
    matcher::Matcher,
    path::{PathBuffer, normalize_path},
    pattern::{Pattern, PatternTree},
    request::{Identity, Request},
};

/// The explanation of a decision: the identities of a request, and the rules of its domain.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation<'a> {
    /// The identities in the request's order.
    pub identities: Vec<ExplainedIdentity<'a>>,
    /// All rules of the domain, as [`Domain::rules_by_specificity`] orders them.
    pub rules: Vec<(&'a Rule, RuleMatch<'a>)>,
}

/// An identity with its client, tier and override in the domain.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExplainedIdentity<'a> {
    /// The identity.
    pub identity: Identity<'a>,
    /// The closest of the clients that match the identity.
    pub client: Option<&'a Client>,
    /// The tier, and where it comes from.
    pub tier: Option<(&'a str, TierOrigin)>,
    /// Whether the client's override has ended.
    pub has_ended: bool,
}

/// The origin of an identity's tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TierOrigin {
    /// The client has it.
    Client,
    /// The request names it, and the domain has `tier_hint`.
    Hint,
    /// The identity's kind has it as its default.
    Default,
}

/// Whether a rule applies to a request, or else the first reason why not.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RuleMatch<'a> {
    /// The rule applies: its limits count the request.
    Applies,
    /// The rule is not enabled.
    Disabled,
    /// The pattern does not match the path.
    Endpoint,
    /// The rule is for another method.
    Method,
    /// The rule counts per this kind, which the request lacks.
    NoIdentity(&'a str),
    /// None of the request's identities is in one of the rule's tiers.
    Tiers,
    /// The request has no identity of this kind, or one with another value.
    Where(&'a str),
    /// A closer rule, with this id, counts the same kinds and applies instead.
    Closer(&'a str),
}

impl Domain {
    /// Explains which limits apply to the request at time `now`, and why. The policy must be valid.
    #[must_use]
    pub fn explain<'a>(&'a self, request: &Request<'a>, now: SystemTime) -> Explanation<'a> {
        let identities: Vec<_> =
            request.identities.iter().map(|identity| self.explain_identity(*identity, request, now)).collect();
        let mut buffer = PathBuffer::new();
        let path = request.endpoint.map(|endpoint| normalize_path(endpoint, &mut buffer));
        let mut applied: Vec<&Rule> = Vec::new();
        let rules = self.rules_by_specificity().into_iter().map(|rule| {
            let mut fit = match_rule(rule, request, path, &identities);
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

    fn explain_identity<'a>(
        &'a self,
        identity: Identity<'a>,
        request: &Request<'a>,
        now: SystemTime,
    ) -> ExplainedIdentity<'a> {
        let matching = self.clients.iter().filter(|client| client.kind == identity.kind()).filter_map(|client| {
            let matcher = Matcher::parse(&client.kind, &client.value).ok()?;
            matcher.matches(identity.value()).then(|| (matcher.specificity(), client))
        });
        let client = matching.min_by_key(|(specificity, _)| *specificity).map(|(_, client)| client);
        let of_client = client.and_then(|client| client.tier.as_deref()).map(|tier| (tier, TierOrigin::Client));
        let hint = request.tier.filter(|hint| {
            self.tier_hint && self.has_kind(identity.kind()) && self.tiers.iter().any(|tier| tier.id == **hint)
        });
        let default = self.defaults.get(identity.kind()).map(|tier| (tier.as_str(), TierOrigin::Default));
        let until =
            client.and_then(|client| client.exception.as_ref()?.until.as_ref()?.parse::<jiff::Timestamp>().ok());
        ExplainedIdentity {
            identity,
            client,
            tier: of_client.or_else(|| hint.map(|tier| (tier, TierOrigin::Hint))).or(default),
            has_ended: until.is_some_and(|until| SystemTime::from(until) <= now),
        }
    }

    /// Returns whether the domain names this kind anywhere.
    fn has_kind(&self, kind: &str) -> bool {
        self.defaults.contains_key(kind)
            || self.clients.iter().any(|client| client.kind == kind)
            || self.rules.iter().any(|rule| kinds(rule).contains(&kind) || rule.condition.contains_key(kind))
    }
}

/// Returns the kinds that a rule counts separately, in order; none if it counts all identities together.
pub(crate) fn kinds(rule: &Rule) -> Vec<&str> {
    let mut kinds: Vec<&str> = rule.per.kinds().iter().map(String::as_str).collect();
    kinds.sort_unstable();
    kinds
}

fn match_rule<'a>(
    rule: &'a Rule,
    request: &Request<'_>,
    path: Option<&str>,
    who: &[ExplainedIdentity<'_>],
) -> RuleMatch<'a> {
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
    PatternTree::new([(pattern.clone(), ())]).closest(path, |()| Some(())).is_some()
}
