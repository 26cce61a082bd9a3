//! The descriptor tree of one domain of an Envoy file, and its conversion to rules that make the same decisions.

mod overlaps;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Notes, SourcePosition,
    capacity::Capacity,
    in_file_order,
    names::{DomainKeys, Ids},
    regions::{
        CountedKinds, Decided, Region, RegionRule, RegionRules, ValueSet, check_condition, kind_of, name_of, rule,
        rules_of_regions,
    },
    unlimited,
};
use crate::policy::{
    document::{DescriptorPaths, Domain, Limit, Rule},
    request::IDENTITIES_MAX,
};

/// The descriptors of a domain as a tree. Nodes refer to each other by index.
#[derive(Debug)]
pub(super) struct DescriptorTree {
    pub(super) nodes: Vec<DescriptorNode>,
    keys: DomainKeys,
}

/// A descriptor: the entries from the root to it, and its limit.
#[derive(Debug, Default)]
pub(super) struct DescriptorNode {
    pub(super) at: SourcePosition,
    /// The children's names in the file: key, or key and value.
    pub(super) composites: BTreeSet<String>,
    children: BTreeMap<(String, ValueSet), usize>,
    /// The children whose values end in `*`, in the order of the file.
    wild: Vec<usize>,
    pub(super) kinds: Vec<String>,
    /// The kinds in alphabetical order.
    pub(super) sorted: Vec<String>,
    pub(super) values: Region,
    /// The indices of the entries whose values are counted separately.
    counted: CountedKinds,
    pub(super) limit: NodeLimit,
}

/// The limit of the requests that end at a node.
#[derive(Debug, Default)]
pub(super) enum NodeLimit {
    /// No limit is set.
    #[default]
    None,
    /// The file sets `unlimited`.
    Unlimited,
    /// A limit.
    Limit(NamedLimit),
}

/// A limit, and its name in the file.
#[derive(Debug)]
pub(super) struct NamedLimit {
    pub(super) limit: Limit,
    pub(super) name: Option<String>,
}

/// The reason why a descriptor cannot be imported: the field, and the message.
type Refused = (&'static str, String);

impl DescriptorTree {
    pub(super) const ROOT: usize = 0;

    pub(super) fn new() -> Self {
        Self { nodes: vec![DescriptorNode::default()], keys: DomainKeys::default() }
    }

    /// Adds a descriptor below `parent`. An empty value matches any.
    pub(super) fn add(
        &mut self,
        parent: usize,
        at: &SourcePosition,
        notes: &mut Notes,
        key: &str,
        value: &str,
        is_shared: bool,
    ) -> Result<usize, Refused> {
        let above = &self.nodes[parent];
        if key.ends_with('*') {
            return Err(("key", "a `*` at the end of a key".to_owned()));
        }
        let written = parse_value(value)?;
        let kind = kind_of(key, &above.kinds);
        if above.kinds.len() == IDENTITIES_MAX {
            return Err(("key", format!("more than {IDENTITIES_MAX} entries")));
        }
        let found = check_condition(at, notes, "value", &kind, written).map_err(|why| ("value", why))?;
        let child = (kind.clone(), found.clone());
        if above.children.contains_key(&child) {
            return Err(("key", "a descriptor of this list in another spelling".to_owned()));
        }
        self.keys.note(at, notes, "key", key, &kind);
        let above = &self.nodes[parent];
        let kinds: Vec<String> = above.kinds.iter().cloned().chain([kind]).collect();
        let mut counted = above.counted.clone();
        if !is_shared {
            counted.insert(above.values.len());
        }
        let node = DescriptorNode {
            at: at.clone(),
            sorted: kinds.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect(),
            kinds,
            values: above.values.iter().cloned().chain([found.clone()]).collect(),
            counted,
            ..DescriptorNode::default()
        };
        self.nodes.push(node);
        let place = self.nodes.len() - 1;
        self.nodes[parent].children.insert(child, place);
        if matches!(found, ValueSet::Prefix(_)) {
            self.nodes[parent].wild.push(place);
        }
        Ok(place)
    }

    /// Returns the domain with the rules of all descriptors.
    pub(super) fn into_domain(mut self, notes: &mut Notes) -> Domain {
        let mut capacity = self.remove_excess_limits(notes);
        let mut opens = overlaps::unlimited_nodes_with_rules(&self.nodes);
        opens.retain(|place| capacity.take(&self.nodes[*place].kinds, &self.nodes[*place].counted_kinds()).is_ok());
        let decides = |place: &usize| self.nodes[*place].limit.named().is_some() || opens.contains(place);
        // The nodes with the same keys in the same order, which is that of the first.
        let mut groups: BTreeMap<&[String], Vec<usize>> = BTreeMap::new();
        for (place, node) in self.nodes.iter().enumerate().filter(|(place, _)| decides(place)) {
            let group = groups.entry(&node.sorted).or_default();
            if group.first().is_none_or(|first| self.nodes[*first].kinds == node.kinds) {
                group.push(place);
            }
        }
        for node in &self.nodes {
            let first = groups.get(&*node.sorted).map(|group| &self.nodes[group[0]]);
            if let Some(first) = first.filter(|first| first.kinds != node.kinds) {
                let what = format!("the keys of {} in another order", first.at.path);
                let instead = "the identities of a request have no order: those limits hold, and this one is left out";
                notes.warn(&node.at, "", what, instead);
            }
        }
        let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
        groups.sort_unstable();
        let mut by_order: BTreeMap<&[String], Vec<usize>> = BTreeMap::new();
        for (place, node) in self.nodes.iter().enumerate() {
            by_order.entry(&node.kinds).or_default().push(place);
        }
        let mut ids = Ids::default();
        let mut made = Vec::new();
        for members in &groups {
            let kinds = &*self.nodes[members[0]].kinds;
            let on_the_way = (0..=kinds.len()).filter_map(|length| by_order.get(&kinds[..length]));
            let on_the_way: Vec<usize> = on_the_way.flatten().copied().collect();
            let rules = self.rules((kinds, members, &on_the_way), &opens, &mut ids, notes);
            made.push((&*self.nodes[members[0]].sorted, rules));
        }
        overlaps::report(&self.nodes, &made, &opens, notes);
        let rules = in_file_order(made.into_iter().flat_map(|(_, rules)| rules).collect());
        Domain { descriptor_paths: DescriptorPaths::Identity, rules, ..Domain::default() }
    }

    /// Removes the limits that exceed the capacity of a domain.
    fn remove_excess_limits(&mut self, notes: &mut Notes) -> Capacity {
        let mut capacity = Capacity::default();
        for node in &mut self.nodes {
            if node.limit.named().is_some()
                && let Err(what) = capacity.take(&node.kinds, &node.counted_kinds())
            {
                notes.warn(&node.at, "", what, "the limit is left out");
                node.limit = NodeLimit::None;
            }
        }
        capacity
    }

    /// Returns the rules of the nodes with these keys, each with the index of its node. The arguments are the keys, the nodes, and
    /// all nodes on the paths to them.
    fn rules(
        &self,
        (kinds, members, on_the_way): (&[String], &[usize], &[usize]),
        opens: &BTreeSet<usize>,
        ids: &mut Ids,
        notes: &mut Notes,
    ) -> Vec<(usize, Rule)> {
        let counted: BTreeSet<CountedKinds> = members.iter().map(|place| self.nodes[*place].counted.clone()).collect();
        let padded = |place: &usize| {
            let mut values = self.nodes[*place].values.clone();
            values.resize(kinds.len(), ValueSet::Any);
            values
        };
        let named: Vec<Region> = on_the_way.iter().map(padded).collect();
        let decides = |place: &usize| self.nodes[*place].limit.named().is_some() || opens.contains(place);
        let decide = |region: &[ValueSet]| -> Decided {
            let found = self.walk(kinds, region).filter(decides);
            found.map(|place| (self.nodes[place].counted.clone(), vec![place])).into_iter().collect()
        };
        let regions = rules_of_regions(kinds, &named, &counted, decide).unwrap_or_else(|| {
            let what = "too many values that meet each other";
            let instead =
                "of several descriptors that match a request the closest decides, whatever the order of the file";
            notes.warn(&self.nodes[members[0]].at, "", what, instead);
            let rules = members.iter().map(|place| {
                let node = &self.nodes[*place];
                RegionRule { region: node.values.clone(), counted: node.counted.clone(), limits: vec![*place] }
            });
            RegionRules { rules: rules.collect(), split_limits: BTreeSet::new() }
        });
        self.note_changes(members, &regions, notes);
        let last = self.nodes.len();
        let named = |region_rule: RegionRule| {
            let place = region_rule.limits.first().copied();
            let limit = place.and_then(|place| self.nodes[place].limit.named());
            let of_region = name_of(kinds, &region_rule.region);
            let name = match limit {
                Some(limit) => limit.name.clone().unwrap_or(of_region),
                None => format!("{of_region}-unlimited"),
            };
            let limits = vec![limit.map_or_else(unlimited, |limit| limit.limit.clone())];
            let rule = Rule { id: ids.like(&name), limits, ..rule(kinds, &region_rule.region, &region_rule.counted) };
            (place.unwrap_or(last), rule)
        };
        regions.rules.into_iter().map(named).collect()
    }

    /// Adds notes on the nodes whose requests other nodes take, whose values are counted in parts, and on the rules without a limit.
    fn note_changes(&self, members: &[usize], rules: &RegionRules, notes: &mut Notes) {
        let placed: BTreeSet<usize> = rules.rules.iter().flat_map(|rule| rule.limits.iter().copied()).collect();
        let limit_of = |place: usize| self.nodes[place].limit.named();
        for place in members.iter().filter(|place| limit_of(**place).is_some()) {
            let node = &self.nodes[*place];
            if !placed.contains(place) {
                notes.note(&node.at, "", "no request comes to it: another descriptor takes them all", "it is left out");
            }
            if rules.split_limits.contains(place) {
                let what = "values that are counted as one, across others that match first";
                notes.warn(&node.at, "share_threshold", what, "they are counted in several parts");
            }
        }
        let is_open = |rule: &&RegionRule| rule.limits.iter().all(|place| limit_of(*place).is_none());
        let open = rules.rules.iter().filter(is_open).count();
        if open > 0 {
            let what = format!("requests that pass without a limit beside others that have one ({open})");
            let instead = "they have rules with a shadow limit, which never denies";
            notes.note(&self.nodes[members[0]].at, "", what, instead);
        }
    }

    /// Returns the node where a walk with these values ends.
    fn walk(&self, kinds: &[String], region: &[ValueSet]) -> Option<usize> {
        let mut node = &self.nodes[Self::ROOT];
        let mut place = Self::ROOT;
        for (kind, value) in kinds.iter().zip(region) {
            let child = |value: &ValueSet| node.children.get(&(kind.clone(), value.clone())).copied();
            let exact = Some(value).filter(|value| matches!(value, ValueSet::Exact(_))).and_then(child);
            let covers = |place: &&usize| {
                let wild = &self.nodes[**place];
                wild.kinds.last() == Some(kind) && wild.values.last().is_some_and(|wild| wild.covers(value))
            };
            place = exact.or_else(|| node.wild.iter().find(covers).copied()).or_else(|| child(&ValueSet::Any))?;
            node = &self.nodes[place];
        }
        Some(place)
    }
}

/// Parses the value of a descriptor. An empty one matches any, one with `*` at the end a prefix.
fn parse_value(value: &str) -> Result<ValueSet, Refused> {
    let stars = value.matches('*').count();
    match value.strip_suffix('*') {
        Some(prefix) if stars == 1 => Ok(ValueSet::Prefix(prefix.to_owned())),
        None if stars == 0 && value.is_empty() => Ok(ValueSet::Any),
        None if stars == 0 => Ok(ValueSet::Exact(value.to_owned())),
        _ => Err(("value", "a `*` before the end of a value".to_owned())),
    }
}

impl NodeLimit {
    pub(super) fn named(&self) -> Option<&NamedLimit> {
        match self {
            Self::Limit(limit) => Some(limit),
            Self::None | Self::Unlimited => None,
        }
    }
}

impl DescriptorNode {
    /// Returns the kinds that the node counts separately.
    pub(super) fn counted_kinds(&self) -> BTreeSet<&str> {
        self.counted.iter().map(|place| &*self.kinds[*place]).collect()
    }
}
