//! Test cases of limitador's limits files, for tests of the imported policies.

use std::collections::{BTreeMap, BTreeSet};

use serde_saphyr::Spanned;

use super::{
    Case, CaseEntry, ImportError, Source,
    cases::CaseMaker,
    cel,
    document::YamlDocument,
    limitador::{EACH_DOCUMENT, Item},
    names::domain_ids,
};

/// Makes test cases of the files that [`limitador`](fn@super::limitador) imports. For each limit they have as many hits as it and the
/// limits beside it admit, one hit more, and a descriptor without the last key, if no limit applies to that. The expected verdicts
/// are those of limitador, so a test shows where the policy decides differently. A limit without keys has no cases, nor has a
/// namespace with an expression that cannot be read, because its limits may apply to any descriptor.
///
/// ```
/// use tidegate::import::{CaseVerdict, Source, limitador_cases};
///
/// let text = "[{ namespace: shop, max_value: 60, seconds: 60, variables: [\"descriptors[0].user\"] }]";
/// let cases = limitador_cases(&[Source { name: "limits.yaml", text }])?;
/// let found: Vec<_> = cases.iter().map(|case| (case.cost, case.expect)).collect();
/// assert_eq!(found, [(60, CaseVerdict::Allowed), (1, CaseVerdict::Denied)]);
/// # Ok::<(), tidegate::import::ImportError>(())
/// ```
pub fn limitador_cases(sources: &[Source<'_>]) -> Result<Vec<Case>, ImportError> {
    let documents = YamlDocument::each_of(sources, EACH_DOCUMENT);
    let lists = documents.iter().map(YamlDocument::read).collect::<Result<Vec<Vec<Spanned<Item>>>, _>>()?;
    let ids = domain_ids(lists.iter().flatten().map(|item| &item.value.namespace));
    let (mut identities, mut limits, mut unread) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
    for (document, items) in documents.iter().zip(&lists) {
        for Spanned { value: item, referenced, .. } in items {
            let texts = |list: &Option<Vec<String>>| list.iter().flatten().cloned().collect::<BTreeSet<_>>();
            let identity = (&item.namespace, item.seconds, texts(&item.conditions), texts(&item.variables));
            // Of equal limits the first applies.
            if !identities.insert(identity) {
                continue;
            }
            let domain = &*ids[&item.namespace];
            let place = format!("{}:{}", sources[document.file].name, document.line(referenced.line()));
            match needs(item) {
                Some(needs) => limits.push(Limit { place, domain, needs, max_value: item.max_value }),
                None => drop(unread.insert(domain)),
            }
        }
    }
    limits.retain(|limit: &Limit<'_>| !unread.contains(limit.domain));
    let mut used: BTreeMap<Counter, u64> = BTreeMap::new();
    let mut cases = Vec::new();
    for (number, Limit { place, domain, needs, .. }) in limits.iter().enumerate() {
        let value = |fixed: &Option<String>| fixed.clone().unwrap_or_else(|| format!("case-{number}"));
        let mut values: Values = needs.iter().map(|(key, fixed)| (key.clone(), value(fixed))).collect();
        if !values.is_empty() {
            let counters = counters(&limits, domain, &values);
            let left_of = |(counter, max_value): &(Counter, u64)| {
                max_value.saturating_sub(used.get(counter).copied().unwrap_or_default())
            };
            let left = counters.iter().map(left_of).min().unwrap_or_default();
            cases.extend(CaseMaker { place, domain, entries: &entries(&values) }.of_limit(left, false));
            for (counter, _) in counters {
                *used.entry(counter).or_default() += left;
            }
        }
        if values.pop_last().is_some() && !values.is_empty() && counters(&limits, domain, &values).is_empty() {
            cases.push(CaseMaker { place, domain, entries: &entries(&values) }.without_limit());
        }
    }
    Ok(cases)
}

/// The values of a descriptor by their keys.
type Values = BTreeMap<String, String>;

/// A counter: the number of a limit, and the values that it counts.
type Counter = (usize, Vec<String>);

struct Limit<'i> {
    place: String,
    domain: &'i str,
    needs: Needs,
    max_value: u64,
}

/// The keys that a limit requires of a descriptor, with their required values.
type Needs = BTreeMap<String, Option<String>>;

/// Returns the keys that a limit requires; `None` if an expression cannot be read, or no descriptor can meet all of them.
fn needs(item: &Item) -> Option<Needs> {
    let mut needs = Needs::new();
    for text in item.variables.iter().flatten() {
        needs.insert(cel::variable(text).ok()?.0, None);
    }
    for text in item.conditions.iter().flatten() {
        for ((key, _), value) in cel::equalities(text).ok()? {
            if needs.insert(key, Some(value.clone())).flatten().is_some_and(|other| other != value) {
                return None;
            }
        }
    }
    Some(needs)
}

/// Returns the counters of a domain's limits that apply to a descriptor, each with its maximum.
fn counters(limits: &[Limit<'_>], domain: &str, values: &Values) -> Vec<(Counter, u64)> {
    let counter = |(number, limit): (usize, &Limit<'_>)| {
        let holds = |(key, fixed): (&String, &Option<String>)| {
            values.get(key).is_some_and(|value| fixed.as_ref().is_none_or(|fixed| fixed == value))
        };
        let counted = limit.needs.keys().filter_map(|key| values.get(key).cloned()).collect();
        (limit.domain == domain && limit.needs.iter().all(holds)).then_some(((number, counted), limit.max_value))
    };
    limits.iter().enumerate().filter_map(counter).collect()
}

fn entries(values: &Values) -> Vec<CaseEntry> {
    values.iter().map(|(key, value)| CaseEntry::new(key, value)).collect()
}
