//! Regions of the values of requests, and the rules that decide in each region like the imported file.
//!
//! Our rules have one precedence: of those that count the same kinds the closest wins. Other limiters have their own. The values
//! that a file names are therefore divided into regions (this value, the rest of that prefix, everything else; for each kind).
//! From wide to narrow, a region gets a rule of its own where the closest wider rule decides differently. The rule of a region is
//! always the closest there, so the result decides like the file.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{Notes, SourcePosition};
use crate::{
    base::address::{IP, REMOTE_ADDRESS},
    policy::{
        descriptor::Dimension,
        document::{self, DescriptorPaths, EVERYONE},
        matcher::Matcher,
        pattern::Pattern,
        request::{BEGINNING_BYTES_MAX, VALUE_BYTES_MAX},
        specificity::Specificity,
    },
};

/// The most regions of a set of kinds.
const REGIONS_MAX: usize = 50_000;

/// Returns the kind of an entry with this key after entries of the `earlier` kinds, by [`Dimension::of`] for a domain with
/// `descriptor_paths = "identity"`.
pub(super) fn kind_of(key: &str, earlier: &[String]) -> String {
    let is_taken = |dimension: &Dimension<'_>| earlier.iter().any(|kind| dimension.kind() == Some(kind));
    match Dimension::of(key, DescriptorPaths::Identity, is_taken) {
        Dimension::Kind(kind) => kind.into_owned(),
        // No entry of such a domain is one of these.
        Dimension::Endpoint | Dimension::Method => key.to_owned(),
    }
}

/// A set of values of one kind. Wider sets come before narrower ones.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ValueSet {
    Any,
    Prefix(String),
    Exact(String),
}

impl ValueSet {
    /// Returns whether this matches every value that `other` matches.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::Prefix(prefix), Self::Prefix(text) | Self::Exact(text)) => text.starts_with(prefix),
            (Self::Exact(own), Self::Exact(text)) => own == text,
            _ => false,
        }
    }

    /// Returns whether there is a value that both match.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// Returns the text of a rule's condition; `None` if any value matches.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Any => None,
            Self::Prefix(prefix) => Some(format!("{prefix}*")),
            Self::Exact(value) => Some(value.clone()),
        }
    }
}

/// A region: a set of values for each kind.
pub(super) type Region = Vec<ValueSet>;

pub(super) fn covers(wide: &[ValueSet], narrow: &[ValueSet]) -> bool {
    wide.iter().zip(narrow).all(|(wide, narrow)| wide.covers(narrow))
}

/// The indices of the kinds whose values are counted separately.
pub(super) type CountedKinds = BTreeSet<usize>;

/// The numbers of the limits that apply in a region, by the kinds that they count.
pub(super) type Decided = BTreeMap<CountedKinds, Vec<usize>>;

#[derive(Debug)]
pub(super) struct RegionRule {
    pub(super) region: Region,
    pub(super) counted: CountedKinds,
    /// The limits; empty for a rule that only hides a wider one.
    pub(super) limits: Vec<usize>,
}

/// The rules of one set of kinds.
#[derive(Debug)]
pub(super) struct RegionRules {
    pub(super) rules: Vec<RegionRule>,
    /// The limits that are in several rules although the file counts them together.
    pub(super) split_limits: BTreeSet<usize>,
}

/// Returns the rules, or `None` if there are too many regions. `named` has every combination of values that the file names.
pub(super) fn rules_of_regions(
    kinds: &[String],
    named: &[Region],
    counted: &BTreeSet<CountedKinds>,
    decide: impl Fn(&[ValueSet]) -> Decided,
) -> Option<RegionRules> {
    let mut carver = Carver {
        kinds,
        counted,
        decide,
        rules: Vec::new(),
        by_first: BTreeMap::new(),
        homes: BTreeMap::new(),
        regions: 0,
    };
    carver.walk(&mut Vec::new(), &named.iter().collect::<Vec<_>>())?;
    let split_limits = carver.homes.iter().filter(|(_, rules)| rules.len() > 1).map(|((limit, _), _)| *limit).collect();
    let rules = carver.rules.into_iter().map(|(rule, _)| rule).collect();
    Some(RegionRules { rules, split_limits })
}

struct Carver<'c, D> {
    kinds: &'c [String],
    counted: &'c BTreeSet<CountedKinds>,
    decide: D,
    rules: Vec<(RegionRule, document::Rule)>,
    /// The indices of rules by their value of the first kind: a file may have ten thousand.
    by_first: BTreeMap<ValueSet, Vec<usize>>,
    /// The rules that have a limit, by the limit and the values that it counts.
    homes: BTreeMap<(usize, Region), BTreeSet<usize>>,
    regions: usize,
}

impl<D: Fn(&[ValueSet]) -> Decided> Carver<'_, D> {
    /// Visits all regions that begin with `region`. `live` has the named combinations that cover it.
    fn walk(&mut self, region: &mut Region, live: &[&Region]) -> Option<()> {
        let depth = region.len();
        if depth == self.kinds.len() {
            self.regions += 1;
            self.decide_region(region);
            return (self.regions <= REGIONS_MAX).then_some(());
        }
        let mut by_match: BTreeMap<&ValueSet, Vec<&Region>> = BTreeMap::from([(&ValueSet::Any, Vec::new())]);
        for named in live {
            by_match.entry(&named[depth]).or_default().push(named);
        }
        // An exact value covers only itself, so only the other values need a search.
        let wide: Vec<&ValueSet> = by_match.keys().copied().filter(|it| !matches!(it, ValueSet::Exact(_))).collect();
        for narrow in by_match.keys().copied() {
            let covering = wide.iter().copied().filter(|wide| *wide != narrow && wide.covers(narrow)).chain([narrow]);
            let below: Vec<&Region> = covering.flat_map(|wide| by_match[wide].iter().copied()).collect();
            region.push(narrow.clone());
            self.walk(region, &below)?;
            region.pop();
        }
        Some(())
    }

    fn decide_region(&mut self, region: &Region) {
        let mut decided = (self.decide)(region);
        for counted in self.counted {
            let wanted = decided.remove(counted).unwrap_or_default();
            let found = self.closest(counted, region);
            let is_right = found.map_or(wanted.is_empty(), |found| self.rules[found].0.limits == wanted);
            let home = if is_right { found } else { Some(self.add(counted, region, wanted.clone())) };
            if let Some(home) = home {
                let values: Region = counted.iter().map(|place| region[*place].clone()).collect();
                for limit in wanted {
                    self.homes.entry((limit, values.clone())).or_default().insert(home);
                }
            }
        }
    }

    /// Returns the rule that decides in a region, of the rules so far.
    fn closest(&self, counted: &CountedKinds, region: &Region) -> Option<usize> {
        let first = region.first();
        let wide = self.by_first.iter().take_while(|(it, _)| !matches!(it, ValueSet::Exact(_)));
        let exact = first
            .and_then(|first| self.by_first.get_key_value(first))
            .filter(|(it, _)| matches!(it, ValueSet::Exact(_)));
        let candidates = wide.chain(exact).flat_map(|(_, places)| places.iter().copied());
        let covering = candidates.filter(|place| {
            let rule = &self.rules[*place].0;
            rule.counted == *counted && covers(&rule.region, region)
        });
        let specificity = |place: &usize| {
            let rule = &self.rules[*place].1;
            Specificity::new(Pattern::parse(&rule.endpoint).unwrap_or(Pattern::Any), rule)
        };
        covering.min_by(|one, other| specificity(one).cmp(&specificity(other)))
    }

    fn add(&mut self, counted: &CountedKinds, region: &Region, limits: Vec<usize>) -> usize {
        let place = self.rules.len();
        let rule = rule(self.kinds, region, counted);
        self.rules.push((RegionRule { region: region.clone(), counted: counted.clone(), limits }, rule));
        self.by_first.entry(region.first().cloned().unwrap_or(ValueSet::Any)).or_default().push(place);
        place
    }
}

/// Returns the rule of a region, without id and limits.
pub(super) fn rule(kinds: &[String], region: &[ValueSet], counted: &CountedKinds) -> document::Rule {
    let condition = kinds.iter().zip(region).filter_map(|(kind, value)| Some((kind.clone(), value.text()?)));
    let mut per: Vec<String> = counted.iter().map(|place| kinds[*place].clone()).collect();
    let per = match per.len() {
        0 => document::Per::One(EVERYONE.to_owned()),
        1 => document::Per::One(per.remove(0)),
        _ => document::Per::Each(per),
    };
    document::Rule { condition: condition.collect(), ..document::Rule::new("", "*", per, Vec::new()) }
}

/// Returns the text for the id of a region's rule.
pub(super) fn name_of(kinds: &[String], region: &[ValueSet]) -> String {
    let parts = kinds.iter().zip(region).map(|(kind, value)| match value.text() {
        None => kind.clone(),
        Some(text) => format!("{kind}-{}", text.trim_matches(|c: char| !c.is_ascii_alphanumeric())),
    });
    parts.collect::<Vec<_>>().join("-")
}

/// Checks a value that a rule's condition compares, and returns it with an address in its canonical form. Adds a note if that
/// differs from the text.
pub(super) fn check_condition(
    at: &SourcePosition,
    notes: &mut Notes,
    field: &str,
    kind: &str,
    value: ValueSet,
) -> Result<ValueSet, String> {
    let Some(text) = value.text() else { return Ok(value) };
    let most = if matches!(value, ValueSet::Prefix(_)) { BEGINNING_BYTES_MAX } else { VALUE_BYTES_MAX };
    if text.len() > most {
        return Err(format!("a value of {} bytes; {most} fit", text.len()));
    }
    if matches!(Matcher::parse(kind, &text)?, Matcher::Block(_)) && text.contains('/') {
        return Err(format!("`{text}`, which is a block of addresses here"));
    }
    let plain = match value {
        ValueSet::Exact(value) if [IP, REMOTE_ADDRESS].contains(&kind) => {
            ValueSet::Exact(value.parse::<IpAddr>().map_or(value, |address| address.to_canonical().to_string()))
        }
        other => other,
    };
    if plain.text().as_ref() != Some(&text) {
        let what = format!("`{text}`, which is compared letter by letter");
        notes.warn(at, field, what, "it is an address: it holds for all of its spellings");
    }
    Ok(plain)
}
