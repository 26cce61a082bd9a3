//! Limits files of limitador: a list of limits, of which all hold whose conditions are met and whose variables are there.
//!
//! Of our rules that count the same kinds the closest holds alone. So what a limit counts together with what its conditions
//! name is `per` (a value that a condition fixes makes no difference to what is counted), and where several of one such set
//! meet, a rule has the limits of all.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{
    ImportError, Imported, Notes, Place, Source,
    cel::{self, Form},
    document::Document,
    finish,
    names::{Ids, Keys, id_of},
    period,
    regions::{Carved, Carving, Counted, Decided, Dimension, Match, Region, carve, check, dimension_of, rule, words},
    room::Room,
    unlimited, window,
};
use crate::{
    policy::{Descriptors, Domain, Limit, Mode, Policy, Rule},
    request::IDENTITIES_MAX,
    snapshot::PLAN_MAX,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    id: Option<String>,
    name: Option<String>,
    namespace: String,
    #[serde(default)]
    max_value: u64,
    seconds: u64,
    conditions: Option<Vec<String>>,
    variables: Option<Vec<String>>,
}

/// Makes a policy of limits files of limitador. A namespace is a domain.
///
/// ```
/// use tidegate::import::{Source, limitador};
///
/// let text = "
/// - namespace: shop
///   max_value: 10
///   seconds: 60
///   conditions: [\"descriptors[0].plan == 'free'\"]
///   variables: [\"descriptors[0].user_id\"]
/// ";
/// let imported = limitador(&[Source { name: "limits.yaml", text }])?;
/// let rule = &imported.policy.domains["shop"].rules[0];
/// assert_eq!((rule.condition["plan"].as_str(), rule.limits[0].period.as_str()), ("free", "1m"));
/// # Ok::<(), tidegate::import::ImportError>(())
/// ```
pub fn limitador(sources: &[Source<'_>]) -> Result<Imported, ImportError> {
    let mut notes = Notes::default();
    let mut names = Ids::default();
    let mut spaces: BTreeMap<String, Space> = BTreeMap::new();
    let documents = Document::each_of(sources, "a list of limits");
    let lists = documents.iter().map(Document::read).collect::<Result<Vec<Vec<Spanned<Item>>>, _>>()?;
    for item in lists.iter().flatten() {
        names.keep(&item.value.namespace);
    }
    for Spanned { value: item, .. } in lists.iter().flatten() {
        spaces.entry(item.namespace.clone()).or_insert_with(|| Space::named(names.of(&item.namespace)));
    }
    for (document, items) in documents.into_iter().zip(lists) {
        let file = document.file;
        if !items.is_empty() {
            notes.tell_of_counters(file);
            let what = "windows that begin with the first request of a key";
            let instead = "they begin at whole multiples of their period; as many fit in each";
            notes.tell_of_file(file, what, instead, true);
        }
        for (place, spanned) in items.into_iter().enumerate() {
            let line = document.line(spanned.referenced.line());
            let at = Place { file, line, path: format!("[{place}]") };
            let item = spanned.value;
            if item.namespace.is_empty() {
                let field = format!("[{place}].namespace");
                return Err(document.wrong(Some(line), field, "a limit has a namespace"));
            }
            let Some(space) = spaces.get_mut(&item.namespace) else { continue };
            if space.id != item.namespace {
                let what = format!("`{}` is not a name for a domain here", item.namespace);
                notes.warn(&at, "namespace", what, format!("it is `{}`: requests say so", space.id));
            }
            space.add(at, item, &mut notes);
        }
    }
    tell_of_forms(&spaces, sources.len(), &mut notes);
    let domains = spaces.into_values().map(|space| (space.id.clone(), space.into_domain(&mut notes)));
    let policy = Policy { domains: domains.collect() };
    finish(sources, policy, notes)
}

/// Over RLS limitador knows only `descriptors[0].x`, over HTTP only `x`; here both are identities of whoever asks.
fn tell_of_forms(spaces: &BTreeMap<String, Space>, files: usize, notes: &mut Notes) {
    for file in 0..files {
        for (form, what, instead) in [
            (
                Form::First,
                "values of `descriptors[0]`, which only calls by RLS have, in their first descriptor",
                "they are identities of every descriptor; where a call has several, each is counted",
            ),
            (
                Form::Bare,
                "values without `descriptors[0]`, which only calls by HTTP have",
                "they are identities of every request, however it was asked for",
            ),
        ] {
            let of_form: Vec<&Space> = spaces.values().filter(|space| space.forms.contains(&(file, form))).collect();
            if !of_form.is_empty() {
                let is_mixed = of_form.iter().any(|space| space.forms.iter().any(|(_, other)| *other != form));
                notes.tell_of_file(file, what, instead, is_mixed);
            }
        }
    }
}

/// The limits of a namespace.
struct Space {
    id: String,
    keys: Keys,
    limits: Vec<Found>,
    /// What makes a limit the same as another: its period, conditions and variables.
    identities: BTreeSet<(u64, BTreeSet<String>, BTreeSet<String>)>,
    /// How values are named, and in which files.
    forms: BTreeSet<(usize, Form)>,
}

struct Found {
    at: Place,
    limit: Limit,
    /// What it is called, if it is.
    name: Option<String>,
    /// The values that its conditions ask for.
    fixed: BTreeMap<Dimension, String>,
    /// Kinds that it counts, and kinds that its conditions name.
    counted: BTreeSet<Dimension>,
}

impl Space {
    fn named(id: String) -> Self {
        Self { id, keys: Keys::default(), limits: Vec::new(), identities: BTreeSet::new(), forms: BTreeSet::new() }
    }

    fn add(&mut self, at: Place, item: Item, notes: &mut Notes) {
        let (mut fixed, mut counted) = (BTreeMap::new(), BTreeSet::new());
        let leave_out =
            |notes: &mut Notes, field: &str, what: String| notes.warn(&at, field, what, "the limit is left out");
        let texts = |list: &Option<Vec<String>>| list.iter().flatten().cloned().collect();
        if !self.identities.insert((item.seconds, texts(&item.conditions), texts(&item.variables))) {
            let what = "a limit that stands here before, of the same period, conditions and variables";
            return notes.tell(&at, "", what, "the first holds, and this one is left out");
        }
        for (place, text) in item.conditions.iter().flatten().enumerate() {
            let field = format!("conditions[{place}]");
            let equalities = match cel::equalities(text) {
                Ok(equalities) => equalities,
                Err(why) => return leave_out(notes, &field, format!("`{text}`: {why}")),
            };
            for ((key, form), value) in equalities {
                self.forms.insert((at.file, form));
                let dimension = self.dimension(&at, notes, &field, &key);
                let exact = Match::Exact(value.clone());
                let ends_in_star = value.ends_with('*') || value.is_empty();
                if ends_in_star {
                    return leave_out(notes, &field, format!("`{value}`, which means something else as a value here"));
                }
                if let Err(why) = check(&dimension, &exact, false) {
                    return leave_out(notes, &field, why);
                }
                let plain = exact.plain(&dimension).text().unwrap_or_default();
                if fixed.insert(dimension.clone(), plain.clone()).is_some_and(|other| other != plain) {
                    let instead = "it is left out";
                    return notes.tell(&at, &field, "two values for one key, which no request has", instead);
                }
                if matches!(dimension, Dimension::Kind(_)) {
                    counted.insert(dimension);
                }
            }
        }
        for (place, text) in item.variables.iter().flatten().enumerate() {
            let field = format!("variables[{place}]");
            let (key, form) = match cel::variable(text) {
                Ok(key) => key,
                Err(why) => return leave_out(notes, &field, format!("`{text}`: {why}")),
            };
            self.forms.insert((at.file, form));
            let dimension = self.dimension(&at, notes, &field, &key);
            match dimension {
                Dimension::Kind(_) => drop(counted.insert(dimension)),
                // Its value is fixed.
                _ if fixed.contains_key(&dimension) => {}
                _ => return leave_out(notes, &field, format!("each `{key}` counted by itself, which no rule does")),
            }
        }
        if counted.len() > IDENTITIES_MAX {
            return leave_out(notes, "variables", format!("more than {IDENTITIES_MAX} identities"));
        }
        let name = item.id.or(item.name).filter(|name| !name.is_empty());
        if let Some(name) = name.as_ref().filter(|name| id_of(name) != **name) {
            notes.tell(&at, "name", format!("`{name}` is not an id"), format!("it is like `{}`", id_of(name)));
        }
        let id = name.as_deref().map_or_else(|| format!("per-{}", period(item.seconds)), id_of);
        if let Some(limit) = window(&at, notes, "max_value", (id, item.max_value, item.seconds), Mode::Enforce) {
            self.limits.push(Found { at, limit, name, fixed, counted });
        }
    }

    fn dimension(&mut self, at: &Place, notes: &mut Notes, field: &str, key: &str) -> Dimension {
        let dimension = dimension_of(key, |_| false);
        self.keys.tell(at, notes, field, key, &dimension);
        dimension
    }

    fn into_domain(self, notes: &mut Notes) -> Domain {
        let has_none = |found: &&Found| found.counted.is_empty() && !found.fixed.is_empty();
        if let Some(found) = self.limits.iter().find(has_none) {
            let what = "limits without identities, only with a path or a method";
            let instead = "over HTTP a request has an identity: where it has none else, say one that no limit names, such as `none`";
            notes.tell(&found.at, "", what, instead);
        }
        // Rules that count other kinds hold beside each other. In the order of the file.
        let mut sets: Vec<(&BTreeSet<Dimension>, Vec<usize>)> = Vec::new();
        let mut set_of: BTreeMap<&BTreeSet<Dimension>, usize> = BTreeMap::new();
        for (place, found) in self.limits.iter().enumerate() {
            let set = *set_of.entry(&found.counted).or_insert_with(|| {
                sets.push((&found.counted, Vec::new()));
                sets.len() - 1
            });
            sets[set].1.push(place);
        }
        let mut ids = Ids::default();
        let mut room = Room::default();
        let mut rules: Vec<(usize, Rule)> = Vec::new();
        for (counted, members) in &sets {
            rules.extend(self.rules(counted, members, &mut ids, &mut room, notes));
        }
        rules.sort_by_key(|(place, _)| *place);
        let rules = rules.into_iter().map(|(_, rule)| rule).collect();
        Domain { rules, descriptors: Descriptors::Subset, ..Domain::default() }
    }

    /// The rules of the limits that count these kinds, each with the place of its first limit.
    fn rules(
        &self,
        counted: &BTreeSet<Dimension>,
        members: &[usize],
        ids: &mut Ids,
        room: &mut Room,
        notes: &mut Notes,
    ) -> Vec<(usize, Rule)> {
        let leave_out = |notes: &mut Notes, places: &mut dyn Iterator<Item = usize>, field: &str, what: &str| {
            places.for_each(|place| notes.warn(&self.limits[place].at, field, what, "the limit is left out"));
        };
        let kinds: BTreeSet<&str> = counted.iter().filter_map(Dimension::kind).collect();
        if let Err(what) = room.take(kinds.iter().copied(), &kinds) {
            leave_out(notes, &mut members.iter().copied(), "", &what);
            return Vec::new();
        }
        let fixed = members.iter().flat_map(|place| self.limits[*place].fixed.keys().cloned());
        let dimensions: Vec<Dimension> =
            counted.iter().cloned().chain(fixed).collect::<BTreeSet<_>>().into_iter().collect();
        let values = |place: &usize| -> Region {
            let value = |dimension: &Dimension| {
                self.limits[*place].fixed.get(dimension).map_or(Match::Any, |value| Match::Exact(value.clone()))
            };
            dimensions.iter().map(value).collect()
        };
        let places: Counted =
            (0..dimensions.len()).filter(|place| matches!(dimensions[*place], Dimension::Kind(_))).collect();
        let regions: Vec<Region> = members.iter().map(values).collect();
        let decide = |region: &[Match]| -> Decided {
            let holds = |wide: &Region| wide.iter().zip(region).all(|(wide, narrow)| wide.covers(narrow));
            let all = members.iter().zip(&regions).filter(|(_, wide)| holds(wide)).map(|(place, _)| *place);
            BTreeMap::from([(places.clone(), all.collect())])
        };
        let carved = carve(&dimensions, &regions, &BTreeSet::from([places.clone()]), decide);
        let Some(Carving { mut rules, apart }) = carved else {
            leave_out(notes, &mut members.iter().copied(), "conditions", "too many values that meet each other");
            return Vec::new();
        };
        let most = room.widen(rules.iter().map(|rule| rule.limits.len()).max().unwrap_or_default());
        let beyond: BTreeSet<usize> =
            rules.iter_mut().flat_map(|rule| rule.limits.split_off(most.min(rule.limits.len()))).collect();
        let what = format!("more than {PLAN_MAX} limits that one request could meet");
        for place in beyond {
            notes.warn(&self.limits[place].at, "", &*what, "it does not hold where so many others do");
        }
        for place in apart {
            let what = "a limit across requests of which others hold for some endpoints or methods";
            notes.warn(&self.limits[place].at, "", what, "it is counted for those by itself");
        }
        let named = |carved: Carved| {
            let first = carved.limits.first().copied();
            let name = first.and_then(|first| self.limits[first].name.clone()).unwrap_or_else(|| {
                let words = words(&dimensions, &carved.region);
                if words.is_empty() { "everyone".to_owned() } else { words }
            });
            let mut limit_ids = Ids::default();
            let limits = carved.limits.iter().map(|place| {
                let limit = &self.limits[*place].limit;
                Limit { id: limit_ids.like(&limit.id), ..limit.clone() }
            });
            let mut limits: Vec<Limit> = limits.collect();
            if limits.is_empty() {
                limits.push(unlimited());
            }
            let rule = Rule { id: ids.like(&name), limits, ..rule(&dimensions, &carved.region, &carved.counted) };
            (first.unwrap_or(self.limits.len()), rule)
        };
        rules.into_iter().map(named).collect()
    }
}
