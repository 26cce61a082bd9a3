//! The descriptors of one domain as a tree, and the rules that decide as a walk through it does.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Notes, Place,
    names::{Ids, Kinds},
    regions::{Carved, Carving, Counted, Decided, Dimension, Match, Region, carve, rule},
    unlimited,
};
use crate::{
    clients::Matcher,
    pattern::{PathBuffer, plain_path},
    policy::{Domain, Limit, Rule},
    request::{ENDPOINT_BYTES_MAX, IDENTITIES_MAX, VALUE_BYTES_MAX},
};

/// A node is named by its place.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    kinds: Kinds,
}

/// A descriptor: the entries down to it, and what it says.
#[derive(Debug)]
pub(super) struct Node {
    at: Place,
    /// Its children as the file names them: key, or key and value.
    pub(super) composites: BTreeSet<String>,
    children: BTreeMap<(Dimension, Match), usize>,
    /// Its children whose values end in `*`, in the order of the file.
    wild: Vec<usize>,
    keys: Vec<String>,
    dimensions: Vec<Dimension>,
    values: Region,
    /// Entries whose values are counted as one.
    shared: BTreeSet<usize>,
    pub(super) told: Option<Told>,
}

/// The limit of a node.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) limit: Limit,
    pub(super) name: Option<String>,
}

/// Why a descriptor cannot be carried over: the field, and what it is.
type Refused = (&'static str, String);

impl Tree {
    pub(super) const ROOT: usize = 0;

    pub(super) fn new() -> Self {
        let root = Node {
            at: Place { file: String::new(), line: 0, path: String::new() },
            composites: BTreeSet::new(),
            children: BTreeMap::new(),
            wild: Vec::new(),
            keys: Vec::new(),
            dimensions: Vec::new(),
            values: Vec::new(),
            shared: BTreeSet::new(),
            told: None,
        };
        Self { nodes: vec![root], kinds: Kinds::default() }
    }

    /// Adds a descriptor below `parent`; an empty value is any.
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
        let dimension = match key {
            "path" | "endpoint" => Dimension::Endpoint,
            "method" => Dimension::Method,
            _ => {
                let nth = above.keys.iter().filter(|above| *above == key).count();
                Dimension::Kind(self.kinds.of(at, notes, "key", key, nth))
            }
        };
        let above = &self.nodes[parent];
        if above.dimensions.contains(&dimension) {
            return Err(("key", format!("a second `{key}`, of which a request has one")));
        }
        let is_kind = |dimension: &&Dimension| matches!(dimension, Dimension::Kind(_));
        if above.dimensions.iter().filter(is_kind).count() == IDENTITIES_MAX && is_kind(&&dimension) {
            return Err(("key", format!("more than {IDENTITIES_MAX} identities")));
        }
        check(&dimension, &found, is_shared).map_err(|why| ("value", why))?;
        let child = (dimension.clone(), found.clone());
        if above.children.contains_key(&child) {
            return Err(("key", "another key for the endpoint, with the same value".to_owned()));
        }
        let with = |list: &[Dimension]| list.iter().cloned().chain([dimension]).collect::<Vec<_>>();
        let mut shared = above.shared.clone();
        if is_shared {
            shared.insert(above.values.len());
        }
        let node = Node {
            at: at.clone(),
            keys: above.keys.iter().cloned().chain([key.to_owned()]).collect(),
            dimensions: with(&above.dimensions),
            values: above.values.iter().cloned().chain([found.clone()]).collect(),
            shared,
            composites: BTreeSet::new(),
            children: BTreeMap::new(),
            wild: Vec::new(),
            told: None,
        };
        self.nodes.push(node);
        let place = self.nodes.len() - 1;
        self.nodes[parent].children.insert(child, place);
        if matches!(found, Match::Prefix(_)) {
            self.nodes[parent].wild.push(place);
        }
        Ok(place)
    }

    /// The rules.
    pub(super) fn into_domain(self, notes: &mut Notes) -> Domain {
        // By their keys, in the order of the file.
        let mut groups: Vec<(&[Dimension], Vec<usize>)> = Vec::new();
        for (place, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.told.is_some()) {
            match groups.iter_mut().find(|(keys, _)| as_set(keys) == as_set(&node.dimensions)) {
                None => groups.push((&node.dimensions, vec![place])),
                Some((order, places)) if **order == *node.dimensions => places.push(place),
                Some(_) => {}
            }
        }
        for node in &self.nodes {
            let same = groups.iter().find(|(keys, _)| as_set(keys) == as_set(&node.dimensions));
            if let Some((_, places)) = same.filter(|(order, _)| **order != *node.dimensions) {
                let what = format!("the keys of {} in another order", self.nodes[places[0]].at.path);
                let instead = "the identities of a request have no order: those limits hold, and this one is left out";
                notes.warn(&node.at, "", what, instead);
            }
        }
        let mut ids = Ids::default();
        let mut rules = Vec::new();
        for (dimensions, members) in &groups {
            rules.extend(self.rules(dimensions, members, &mut ids, notes));
        }
        self.tell_overlaps(&groups, notes);
        rules.sort_by_key(|(place, _)| *place);
        Domain { rules: rules.into_iter().map(|(_, rule)| rule).collect(), ..Domain::default() }
    }

    /// The rules of the nodes with these keys, each with the place of the node that it is of.
    fn rules(
        &self,
        dimensions: &[Dimension],
        members: &[usize],
        ids: &mut Ids,
        notes: &mut Notes,
    ) -> Vec<(usize, Rule)> {
        let counted: BTreeSet<Counted> = members.iter().map(|place| self.nodes[*place].counted()).collect();
        let on_the_way = self.nodes.iter().filter(|node| dimensions.starts_with(&node.dimensions));
        let padded = |node: &Node| {
            let mut values = node.values.clone();
            values.resize(dimensions.len(), Match::Any);
            values
        };
        let named: Vec<Region> = on_the_way.map(padded).collect();
        let decide = |region: &[Match]| -> Decided {
            let found = self.walk(dimensions, region);
            found.map(|place| (self.nodes[place].counted(), vec![place])).into_iter().collect()
        };
        let carving = carve(dimensions, &named, &counted, decide).unwrap_or_else(|| {
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
        for place in members {
            let node = &self.nodes[*place];
            if !placed.contains(place) {
                notes.tell(&node.at, "", "no request comes to it: another descriptor takes them all", "it is left out");
            }
            if carving.apart.contains(place) {
                let what = "values that are counted as one, across others that match first";
                notes.warn(&node.at, "share_threshold", what, "they are counted in several parts");
            }
        }
        let open = carving.rules.iter().filter(|rule| rule.limits.is_empty()).count();
        if open > 0 {
            let what =
                format!("requests that pass without a limit beside others of the same keys that have one ({open})");
            let instead = "they have rules with a shadow limit, which never denies";
            notes.tell(&self.nodes[members[0]].at, "", what, instead);
        }
        let last = self.nodes.len();
        let named = |carved: Carved| {
            let place = carved.limits.first().copied();
            let told = place.and_then(|place| self.nodes[place].told.as_ref());
            let of_region = words(dimensions, &carved.region);
            let name = match told {
                Some(told) => told.name.clone().unwrap_or(of_region),
                None => format!("{of_region}-unlimited"),
            };
            let limits = vec![told.map_or_else(unlimited, |told| told.limit.clone())];
            let rule = Rule { id: ids.like(&name), limits, ..rule(dimensions, &carved.region, &carved.counted) };
            (place.unwrap_or(last), rule)
        };
        carving.rules.into_iter().map(named).collect()
    }

    /// The node with a limit that requests of these values come to.
    fn walk(&self, dimensions: &[Dimension], region: &[Match]) -> Option<usize> {
        let mut node = &self.nodes[Self::ROOT];
        let mut place = Self::ROOT;
        for (dimension, value) in dimensions.iter().zip(region) {
            let child = |value: &Match| node.children.get(&(dimension.clone(), value.clone())).copied();
            let exact = Some(value).filter(|value| matches!(value, Match::Exact(_))).and_then(child);
            let covers = |place: &&usize| {
                let wild = &self.nodes[**place];
                wild.dimensions.last() == Some(dimension) && wild.values.last().is_some_and(|wild| wild.covers(value))
            };
            place = exact.or_else(|| node.wild.iter().find(covers).copied()).or_else(|| child(&Match::Any))?;
            node = &self.nodes[place];
        }
        node.told.is_some().then_some(place)
    }

    /// Rules hold for requests with more identities too.
    fn tell_overlaps(&self, groups: &[(&[Dimension], Vec<usize>)], notes: &mut Notes) {
        for (few, places) in groups {
            let more: BTreeSet<&str> = groups
                .iter()
                .filter(|(many, _)| many.len() > few.len() && as_set(many).is_superset(&as_set(few)))
                .flat_map(|(many, _)| many.iter().filter(|dimension| !few.contains(dimension)))
                .map(name)
                .collect();
            if !more.is_empty() {
                let more = more.into_iter().collect::<Vec<_>>().join("`, `");
                let what = format!("a limit of descriptors without `{more}`, which others have beside its keys");
                let instead = "a request that has those too meets this limit as well";
                notes.warn(&self.nodes[places[0]].at, "", what, instead);
            }
        }
    }
}

impl Node {
    /// The entries whose values are counted apart.
    fn counted(&self) -> Counted {
        let is_counted = |(place, dimension): &(usize, &Dimension)| {
            matches!(dimension, Dimension::Kind(_)) && !self.shared.contains(place)
        };
        self.dimensions.iter().enumerate().filter(is_counted).map(|(place, _)| place).collect()
    }
}

fn as_set(dimensions: &[Dimension]) -> BTreeSet<&Dimension> {
    dimensions.iter().collect()
}

fn name(dimension: &Dimension) -> &str {
    match dimension {
        Dimension::Kind(kind) => kind,
        Dimension::Endpoint => "endpoint",
        Dimension::Method => "method",
    }
}

/// What an id is made of.
pub(super) fn words(dimensions: &[Dimension], region: &[Match]) -> String {
    let words = dimensions.iter().zip(region).map(|(dimension, value)| match value.text() {
        None => name(dimension).to_owned(),
        Some(text) => format!("{}-{}", name(dimension), text.trim_matches(|c: char| !c.is_ascii_alphanumeric())),
    });
    words.collect::<Vec<_>>().join("-")
}

/// Can requests be asked for this?
pub(super) fn check(dimension: &Dimension, value: &Match, is_shared: bool) -> Result<(), String> {
    let text = value.text();
    match (dimension, &text) {
        (Dimension::Kind(_), None) => Ok(()),
        (Dimension::Kind(_), Some(text)) if text.len() > VALUE_BYTES_MAX => {
            Err(format!("a value of {} bytes; {VALUE_BYTES_MAX} fit", text.len()))
        }
        (Dimension::Kind(kind), Some(text)) => match Matcher::parse(kind, text)? {
            Matcher::Block(_) if text.contains('/') => Err(format!("`{text}`, which is a block of addresses here")),
            _ => Ok(()),
        },
        (Dimension::Endpoint | Dimension::Method, None) => {
            Err(format!("each {} counted by itself, which no rule does", name(dimension)))
        }
        (Dimension::Method, Some(method)) => {
            let is_method = matches!(value, Match::Exact(_)) && method.bytes().all(|byte| byte.is_ascii_alphabetic());
            is_method.then_some(()).ok_or_else(|| format!("`{method}`, which is no method"))
        }
        (Dimension::Endpoint, Some(text)) => {
            let path = match value {
                Match::Prefix(prefix) if !is_shared => {
                    return Err(format!("each path below `{prefix}` counted by itself, which no rule does"));
                }
                Match::Prefix(prefix) if !prefix.ends_with('/') => {
                    return Err(format!("`{text}`, where `*` does not follow a `/`"));
                }
                Match::Prefix(path) | Match::Exact(path) => path,
                Match::Any => return Ok(()),
            };
            let is_plain = path.starts_with('/')
                && path.len() < ENDPOINT_BYTES_MAX
                && !path.contains(['{', '}', '*', '?', '#'])
                && plain_path(path, &mut PathBuffer::new()) == path;
            is_plain.then_some(()).ok_or_else(|| format!("`{text}`, which is no path as rules see it"))
        }
    }
}
