//! The descriptor tree of one domain of an Envoy file, and its conversion to rules that make the same decisions.

mod overlaps;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Notes, Place,
    capacity::Room,
    names::{Ids, Keys},
    regions::{Carved, Carving, Counted, Decided, Match, Region, carve, check, kind_of, name_of, rule},
    unlimited,
};
use crate::policy::{
    document::{DescriptorPaths, Domain, Limit, Rule},
    request::IDENTITIES_MAX,
};

/// The descriptors of a domain as a tree. Nodes refer to each other by index.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    keys: Keys,
}

/// A descriptor: the entries from the root to it, and its limit.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: Place,
    /// The children's names in the file: key, or key and value.
    pub(super) composites: BTreeSet<String>,
    children: BTreeMap<(String, Match), usize>,
    /// The children whose values end in `*`, in the order of the file.
    wild: Vec<usize>,
    pub(super) kinds: Vec<String>,
    /// The kinds in alphabetical order.
    pub(super) sorted: Vec<String>,
    pub(super) values: Region,
    /// The entries whose values are counted together.
    shared: BTreeSet<usize>,
    pub(super) limit: NodeLimit,
}

/// The limit of the requests that end at a node.
#[derive(Debug)]
pub(super) enum NodeLimit {
    /// No limit is set.
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

impl Tree {
    pub(super) const ROOT: usize = 0;

    pub(super) fn new() -> Self {
        let root = Node {
            at: Place { file: 0, line: 0, path: String::new() },
            composites: BTreeSet::new(),
            children: BTreeMap::new(),
            wild: Vec::new(),
            kinds: Vec::new(),
            sorted: Vec::new(),
            values: Vec::new(),
            shared: BTreeSet::new(),
            limit: NodeLimit::None,
        };
        Self { nodes: vec![root], keys: Keys::default() }
    }

    /// Adds a descriptor below `parent`. An empty value matches any.
    pub(super) fn add(
        &mut self,
        parent: usize,
        at: &Place,
        notes: &mut Notes,
        key: &str,
        value: &str,
        is_shared: bool,
    ) -> Result<usize, Refused> {
        let above = &self.nodes[parent];
        let stars = value.matches('*').count();
        if key.ends_with('*') {
            return Err(("key", "a `*` at the end of a key".to_owned()));
        }
        let found = match value.strip_suffix('*') {
            Some(prefix) if stars == 1 => Match::Prefix(prefix.to_owned()),
            None if stars == 0 && value.is_empty() => Match::Any,
            None if stars == 0 => Match::Exact(value.to_owned()),
            _ => return Err(("value", "a `*` before the end of a value".to_owned())),
        };
        let kind = kind_of(key, &above.kinds);
        if above.kinds.len() == IDENTITIES_MAX {
            return Err(("key", format!("more than {IDENTITIES_MAX} entries")));
        }
        check(&kind, &found).map_err(|why| ("value", why))?;
        let written = found;
        let found = written.clone().plain(&kind);
        if found != written {
            let what = format!("`{value}`, which is compared letter by letter");
            notes.warn(at, "value", what, "it is an address: it holds for all of its spellings");
        }
        let child = (kind.clone(), found.clone());
        if above.children.contains_key(&child) {
            return Err(("key", "a descriptor of this list in another spelling".to_owned()));
        }
        self.keys.tell(at, notes, "key", key, &kind);
        let above = &self.nodes[parent];
        let kinds: Vec<String> = above.kinds.iter().cloned().chain([kind]).collect();
        let mut shared = above.shared.clone();
        if is_shared {
            shared.insert(above.values.len());
        }
        let node = Node {
            at: at.clone(),
            sorted: kinds.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect(),
            kinds,
            values: above.values.iter().cloned().chain([found.clone()]).collect(),
            shared,
            composites: BTreeSet::new(),
            children: BTreeMap::new(),
            wild: Vec::new(),
            limit: NodeLimit::None,
        };
        self.nodes.push(node);
        let place = self.nodes.len() - 1;
        self.nodes[parent].children.insert(child, place);
        if matches!(found, Match::Prefix(_)) {
            self.nodes[parent].wild.push(place);
        }
        Ok(place)
    }

    /// Returns the domain with the rules of all descriptors.
    pub(super) fn into_domain(mut self, notes: &mut Notes) -> Domain {
        let mut room = self.make_room(notes);
        let mut opens = overlaps::to_be_opened(&self.nodes);
        opens.retain(|place| room.take(&self.nodes[*place].kinds, &self.nodes[*place].counted_kinds()).is_ok());
        let decides = |place: &usize| matches!(self.nodes[*place].limit, NodeLimit::Limit(_)) || opens.contains(place);
        // The groups of nodes with the same keys, in the order of the file.
        let mut groups: Vec<(&[String], Vec<usize>)> = Vec::new();
        let mut group_of: BTreeMap<&[String], usize> = BTreeMap::new();
        for (place, node) in self.nodes.iter().enumerate().filter(|(place, _)| decides(place)) {
            let group = *group_of.entry(&node.sorted).or_insert_with(|| {
                groups.push((&node.kinds, Vec::new()));
                groups.len() - 1
            });
            if *groups[group].0 == *node.kinds {
                groups[group].1.push(place);
            }
        }
        for node in &self.nodes {
            let same = group_of.get(&*node.sorted).map(|group| &groups[*group]);
            if let Some((_, places)) = same.filter(|(order, _)| **order != *node.kinds) {
                let what = format!("the keys of {} in another order", self.nodes[places[0]].at.path);
                let instead = "the identities of a request have no order: those limits hold, and this one is left out";
                notes.warn(&node.at, "", what, instead);
            }
        }
        let mut by_order: BTreeMap<&[String], Vec<usize>> = BTreeMap::new();
        for (place, node) in self.nodes.iter().enumerate() {
            by_order.entry(&node.kinds).or_default().push(place);
        }
        let mut ids = Ids::default();
        let mut made = Vec::new();
        for (kinds, members) in &groups {
            let on_the_way = (0..=kinds.len()).filter_map(|length| by_order.get(&kinds[..length]));
            let on_the_way: Vec<usize> = on_the_way.flatten().copied().collect();
            let rules = self.rules((kinds, members, &on_the_way), &opens, &mut ids, notes);
            made.push((&*self.nodes[members[0]].sorted, rules));
        }
        overlaps::tell(&self.nodes, &made, &opens, notes);
        let mut rules: Vec<(usize, Rule)> = made.into_iter().flat_map(|(_, rules)| rules).collect();
        rules.sort_by_key(|(place, _)| *place);
        let rules = rules.into_iter().map(|(_, rule)| rule).collect();
        Domain { descriptor_paths: DescriptorPaths::Identity, rules, ..Domain::default() }
    }

    /// Removes the limits that exceed the capacity of a domain.
    fn make_room(&mut self, notes: &mut Notes) -> Room {
        let mut room = Room::default();
        for node in &mut self.nodes {
            if matches!(node.limit, NodeLimit::Limit(_))
                && let Err(what) = room.take(&node.kinds, &node.counted_kinds())
            {
                notes.warn(&node.at, "", what, "the limit is left out");
                node.limit = NodeLimit::None;
            }
        }
        room
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
        let counted: BTreeSet<Counted> = members.iter().map(|place| self.nodes[*place].counted()).collect();
        let padded = |place: &usize| {
            let mut values = self.nodes[*place].values.clone();
            values.resize(kinds.len(), Match::Any);
            values
        };
        let named: Vec<Region> = on_the_way.iter().map(padded).collect();
        let decides = |place: &usize| matches!(self.nodes[*place].limit, NodeLimit::Limit(_)) || opens.contains(place);
        let decide = |region: &[Match]| -> Decided {
            let found = self.walk(kinds, region).filter(decides);
            found.map(|place| (self.nodes[place].counted(), vec![place])).into_iter().collect()
        };
        let carving = carve(kinds, &named, &counted, decide).unwrap_or_else(|| {
            let what = "too many values that meet each other";
            let instead =
                "of several descriptors that match a request the closest decides, whatever the order of the file";
            notes.warn(&self.nodes[members[0]].at, "", what, instead);
            let rules = members.iter().map(|place| {
                let node = &self.nodes[*place];
                Carved { region: node.values.clone(), counted: node.counted(), limits: vec![*place] }
            });
            Carving { rules: rules.collect(), apart: BTreeSet::new() }
        });
        let placed: BTreeSet<usize> = carving.rules.iter().flat_map(|rule| rule.limits.iter().copied()).collect();
        let told = |place: usize| match &self.nodes[place].limit {
            NodeLimit::Limit(told) => Some(told),
            NodeLimit::None | NodeLimit::Unlimited => None,
        };
        for place in members.iter().filter(|place| told(**place).is_some()) {
            let node = &self.nodes[*place];
            if !placed.contains(place) {
                notes.tell(&node.at, "", "no request comes to it: another descriptor takes them all", "it is left out");
            }
            if carving.apart.contains(place) {
                let what = "values that are counted as one, across others that match first";
                notes.warn(&node.at, "share_threshold", what, "they are counted in several parts");
            }
        }
        let is_open = |rule: &&Carved| rule.limits.iter().all(|place| told(*place).is_none());
        let open = carving.rules.iter().filter(is_open).count();
        if open > 0 {
            let what = format!("requests that pass without a limit beside others that have one ({open})");
            let instead = "they have rules with a shadow limit, which never denies";
            notes.tell(&self.nodes[members[0]].at, "", what, instead);
        }
        let last = self.nodes.len();
        let named = |carved: Carved| {
            let place = carved.limits.first().copied();
            let told = place.and_then(told);
            let of_region = name_of(kinds, &carved.region);
            let name = match told {
                Some(told) => told.name.clone().unwrap_or(of_region),
                None => format!("{of_region}-unlimited"),
            };
            let limits = vec![told.map_or_else(unlimited, |told| told.limit.clone())];
            let rule = Rule { id: ids.like(&name), limits, ..rule(kinds, &carved.region, &carved.counted) };
            (place.unwrap_or(last), rule)
        };
        carving.rules.into_iter().map(named).collect()
    }

    /// Returns the node where a walk with these values ends.
    fn walk(&self, kinds: &[String], region: &[Match]) -> Option<usize> {
        let mut node = &self.nodes[Self::ROOT];
        let mut place = Self::ROOT;
        for (kind, value) in kinds.iter().zip(region) {
            let child = |value: &Match| node.children.get(&(kind.clone(), value.clone())).copied();
            let exact = Some(value).filter(|value| matches!(value, Match::Exact(_))).and_then(child);
            let covers = |place: &&usize| {
                let wild = &self.nodes[**place];
                wild.kinds.last() == Some(kind) && wild.values.last().is_some_and(|wild| wild.covers(value))
            };
            place = exact.or_else(|| node.wild.iter().find(covers).copied()).or_else(|| child(&Match::Any))?;
            node = &self.nodes[place];
        }
        Some(place)
    }
}

impl Node {
    /// Returns the kinds that the node counts separately.
    pub(super) fn counted_kinds(&self) -> BTreeSet<&str> {
        self.counted().into_iter().map(|place| &*self.kinds[place]).collect()
    }

    /// Returns the indices of the entries whose values are counted separately.
    fn counted(&self) -> Counted {
        (0..self.kinds.len()).filter(|place| !self.shared.contains(place)).collect()
    }
}
