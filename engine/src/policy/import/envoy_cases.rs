//! Test cases of envoyproxy/ratelimit configurations, for tests of the imported policies.

use std::ptr;

use serde_saphyr::Spanned;

use super::{
    Case, CaseEntry, ImportError, Source,
    cases::CaseMaker,
    document::YamlDocument,
    envoy::{Descriptor, EACH_DOCUMENT, Root},
    names::domain_ids,
};

/// Makes test cases of the files that [`envoy`](fn@super::envoy) imports. For each limit they have as many hits as it admits, one hit
/// more, and a descriptor with one entry more, to which the limit does not apply. The expected verdicts are those of
/// envoyproxy/ratelimit, so a test shows where the policy decides differently.
///
/// ```
/// use tidegate::import::{CaseVerdict, Source, envoy_cases};
///
/// let text = "{ domain: shop, descriptors: [{ key: user, rate_limit: { unit: minute, requests_per_unit: 60 } }] }";
/// let cases = envoy_cases(&[Source { name: "shop.yaml", text }])?;
/// let found: Vec<_> = cases.iter().map(|case| (case.cost, case.expect)).collect();
/// assert_eq!(found, [(60, CaseVerdict::Allowed), (1, CaseVerdict::Denied), (1, CaseVerdict::Allowed)]);
/// # Ok::<(), tidegate::import::ImportError>(())
/// ```
pub fn envoy_cases(sources: &[Source<'_>]) -> Result<Vec<Case>, ImportError> {
    let documents = YamlDocument::each_of(sources, EACH_DOCUMENT);
    let roots = documents.iter().map(YamlDocument::read).collect::<Result<Vec<Root>, _>>()?;
    let domains = domain_ids(roots.iter().map(|root| &root.domain.value));
    let mut cases = Vec::new();
    for (document, root) in documents.iter().zip(&roots) {
        let of_domain = roots.iter().filter(|other| other.domain.value == root.domain.value);
        let top: Vec<_> = of_domain.flat_map(|root| root.descriptors.iter().flatten()).collect();
        let own: Vec<_> = root.descriptors.iter().flatten().collect();
        let maker =
            LimitCases { top: &top, document, source: &sources[document.file], domain: &domains[&root.domain.value] };
        maker.add(&own, &mut Vec::new(), &mut cases);
    }
    Ok(cases)
}

/// Makes the cases of the limits of one document.
struct LimitCases<'r> {
    /// The descriptors of the domain, of all documents.
    top: &'r [&'r Spanned<Descriptor>],
    document: &'r YamlDocument<'r>,
    source: &'r Source<'r>,
    domain: &'r str,
}

impl LimitCases<'_> {
    /// Adds the cases of the descriptors below these entries.
    fn add(&self, level: &[&Spanned<Descriptor>], entries: &mut Vec<CaseEntry>, cases: &mut Vec<Case>) {
        for Spanned { value: descriptor, referenced, .. } in level {
            let place = format!("{}:{}", self.source.name, self.document.line(referenced.line()));
            entries.push(CaseEntry::new(&descriptor.key, ""));
            // A value for which this descriptor decides, and no descriptor before it.
            let value = descriptor.values().into_iter().find(|value| {
                if let Some(last) = entries.last_mut() {
                    last.value.clone_from(value);
                }
                self.find(entries).is_some_and(|found| ptr::eq(found, descriptor))
            });
            if value.is_some() {
                self.add_own(&place, descriptor, entries, cases);
                let below: Vec<_> = descriptor.descriptors.iter().flatten().collect();
                self.add(&below, entries, cases);
            }
            entries.pop();
        }
    }

    /// Adds the cases of the descriptor that these entries match.
    fn add_own(&self, place: &str, descriptor: &Descriptor, entries: &[CaseEntry], cases: &mut Vec<Case>) {
        let Some(limit) = &descriptor.rate_limit else { return };
        let maker = CaseMaker { place, domain: self.domain, entries };
        if limit.unlimited {
            cases.push(maker.without_limit());
        } else {
            cases.extend(maker.of_limit(limit.requests_per_unit.into(), descriptor.shadow_mode));
        }
        let mut longer = entries.to_vec();
        longer.push(CaseEntry::new("entry_that_no_limit_names", "x"));
        if self.find(&longer).is_none() {
            cases.push(CaseMaker { entries: &longer, place, domain: self.domain }.without_limit());
        }
    }

    /// Finds the descriptor of the file that these entries match, like envoyproxy/ratelimit.
    fn find(&self, entries: &[CaseEntry]) -> Option<&Descriptor> {
        let mut level = self.top.to_vec();
        let mut found = None;
        for CaseEntry { key, value } in entries {
            let whole = format!("{key}_{value}");
            let by_name = |name: &str| level.iter().find(|it| it.value.composite() == name);
            let covers = |it: &&&Spanned<Descriptor>| {
                let composite = it.value.composite();
                composite.strip_suffix('*').is_some_and(|prefix| whole.starts_with(prefix))
            };
            let node = by_name(&whole).or_else(|| level.iter().find(covers)).or_else(|| by_name(key))?;
            found = Some(&node.value);
            level = node.value.descriptors.iter().flatten().collect();
        }
        found
    }
}

impl Descriptor {
    /// Returns values that this descriptor matches, unless another one takes them.
    fn values(&self) -> Vec<String> {
        let value = self.value.as_deref().unwrap_or_default();
        match value.strip_suffix('*') {
            Some(prefix) => ["1", "case", "~"].iter().map(|end| format!("{prefix}{end}")).collect(),
            None if value.is_empty() => ["case", "192.0.2.1", "~"].map(str::to_owned).to_vec(),
            None => vec![value.to_owned()],
        }
    }
}
