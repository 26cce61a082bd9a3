//! Writes policy documents as people lay them out: without fields of default value, and in TOML with one limit a line.

use std::collections::BTreeMap;

use serde::Serialize;
use toml_edit::{Array, DocumentMut, Item, Table, Value};

use super::Format;
use crate::policy::{
    document::{
        Client, DescriptorPaths, Descriptors, Domain, Headers, OnError, Policy, Reset, Rule, Tier, fields::is_default,
    },
    error::{Problem, Problems},
};

impl Policy {
    /// Writes the document. Reading the text gives an equal policy.
    ///
    /// # Errors
    ///
    /// Returns one problem for a number that the format cannot hold. A policy that compiles has no such number.
    ///
    /// ```
    /// use tidegate::{formats::Format, policy::Policy};
    ///
    /// let policy = Policy::parse(r#"{"domains": {"default": {"defaults": {"user": "free"}}}}"#, Format::Json)?;
    /// assert_eq!(policy.write(Format::Toml)?, "[domains.default]\ndefaults = { user = \"free\" }\n");
    /// # Ok::<(), tidegate::Problems>(())
    /// ```
    pub fn write(&self, format: Format) -> Result<String, Problems> {
        let domains = self.domains.iter().map(|(name, domain)| (name.as_str(), DomainRef(domain)));
        let document = WrittenDocument { domains: domains.collect() };
        match format {
            Format::Toml => toml(&document),
            Format::Yaml => {
                let options = serde_saphyr::ser_options! { compact_list_indent: false, prefer_block_scalars: false };
                serde_saphyr::to_string_with_options(&document, options).map_err(|error| error.to_string())
            }
            Format::Json => {
                serde_json::to_string_pretty(&document).map(|text| text + "\n").map_err(|error| error.to_string())
            }
        }
        .map_err(|message| Problems(vec![Problem { path: String::new(), line: None, message }]))
    }
}

#[derive(Serialize)]
struct WrittenDocument<'p> {
    domains: BTreeMap<&'p str, DomainRef<'p>>,
}

#[derive(Serialize)]
#[serde(transparent)]
struct DomainRef<'p>(#[serde(with = "WrittenDomain")] &'p Domain);

/// The fields of a [`Domain`], of which those of default value are left out. A test writes and reads each field, so a new one
/// cannot be forgotten here.
#[derive(Serialize)]
#[serde(remote = "Domain")]
struct WrittenDomain {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    defaults: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "is_default")]
    tier_hint: bool,
    #[serde(skip_serializing_if = "is_default")]
    descriptors: Descriptors,
    #[serde(skip_serializing_if = "is_default")]
    descriptor_paths: DescriptorPaths,
    #[serde(skip_serializing_if = "is_default")]
    on_error: OnError,
    #[serde(skip_serializing_if = "is_default")]
    headers: Headers,
    #[serde(skip_serializing_if = "is_default")]
    reset: Reset,
    #[serde(skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tiers: Vec<Tier>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clients: Vec<Client>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rules: Vec<Rule>,
}

/// Writes TOML with a header for each domain and each object of its lists, and everything in them inline.
fn toml(document: &WrittenDocument<'_>) -> Result<String, String> {
    let mut root = toml_edit::ser::to_document(document).map_err(|error| error.to_string())?;
    let domains = root.remove("domains").unwrap_or_default().into_table().map_err(|_| layout_error("domains"))?;
    let mut headers = Table::new();
    headers.set_implicit(!domains.is_empty());
    for (name, domain) in domains {
        let domain = domain.into_table().map_err(|_| layout_error(&name))?;
        headers.insert(&name, Item::Table(layout_domain(domain)?));
    }
    let mut document = DocumentMut::new();
    document.insert("domains", Item::Table(headers));
    Ok(document.to_string())
}

/// Returns the error for an unexpected layout of the library's output, from which fields could be lost.
fn layout_error(name: &str) -> String {
    format!("`{name}` is not written as expected; this is a defect of Tidegate")
}

fn layout_domain(domain: Table) -> Result<Table, String> {
    let mut table = Table::new();
    for (field, value) in domain {
        let item = match (field.as_str(), value) {
            ("tiers" | "clients" | "rules", Item::Value(Value::Array(objects))) => {
                let tables = objects.into_iter().map(|object| object_table(object, &field));
                Item::ArrayOfTables(tables.collect::<Result<_, _>>()?)
            }
            (_, value) => value,
        };
        table.insert(&field, item);
    }
    Ok(table)
}

/// Returns an object of a list as a table.
fn object_table(object: Value, list: &str) -> Result<Table, String> {
    let Value::InlineTable(object) = object else { return Err(layout_error(list)) };
    let mut table = object.into_table();
    if let Some(limits) = table.get_mut("limits").and_then(Item::as_array_mut) {
        put_limits_on_lines(limits);
    }
    Ok(table)
}

/// Puts each of several limits on a line.
fn put_limits_on_lines(limits: &mut Array) {
    if limits.len() < 2 {
        return;
    }
    for limit in limits.iter_mut() {
        limit.decor_mut().set_prefix("\n  ");
    }
    limits.set_trailing_comma(true);
    limits.set_trailing("\n");
}
