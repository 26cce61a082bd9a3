//! The objects of the policy, one by one: lists, and changes of a single one, which are change lists of one.

use std::marker::PhantomData;

use actix_web::{
    HttpRequest,
    http::header::{HeaderValue, IF_MATCH, IF_NONE_MATCH},
    web::{Data, Json, Path},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate::policy::{Domain, Rule, Tier};

use crate::{
    base::sha256::sha256,
    domain::{
        change_list::{ChangeList, MESSAGE_BYTES_MAX, MESSAGE_PATTERN, Op, default_domain, no_domain},
        error::{ErrorLocation, FieldError, Problem, RemovedIn},
        objects::{self, Kind, Object, ObjectKey, Usage},
        published::{Published, Revised},
        roles::{Editor, Viewer},
    },
    http::{
        extract::{
            body::{Body, MergePatch},
            paging::{Find, List, Page},
            query::Query,
        },
        guard::By,
        openapi::{Api, IfMatch, IfNoneMatch, Tagged},
        problem::Code,
        routes::policy::{Caller, Told, publish_list},
        state::State,
    },
    store::versions::Revision,
};

/// The calls about tiers and rules.
pub(super) fn calls(api: &mut Api) {
    api.about("Tiers", "Named lists of limits that classes of clients get.");
    api.get("/tiers", tiers)
        .says("Tiers of a domain", "In the policy's order unless sorted.")
        .refuses(&[Code::NotFound]);
    api.get("/tiers/{id}", tier).says("A tier", "").with("id", "Its id.");
    let minute = json!([{ "id": "minute", "algorithm": "token_bucket", "limit": 5000, "period": "1m" }]);
    let tier = json!({ "id": "big", "limits": minute });
    changes::<Tier>(api, Kind::Tier, "Its id.", tier, json!({ "limits": minute, "unlimited": null }));
    api.about("Rules", "Limits of endpoints.");
    api.get("/rules", rules)
        .says("Rules of a domain", "By path, and the closest first of those that match the same path, unless sorted.")
        .refuses(&[Code::NotFound]);
    api.get("/rules/{id}", rule).says("A rule", "").with("id", "Its id.");
    let rule = json!({ "id": "search", "endpoint": "/search", "per": "user", "limits": minute });
    changes::<Rule>(api, Kind::Rule, "Its id.", rule, json!({ "enabled": false }));
}

/// The calls about domains.
pub(super) fn calls_for_domains(api: &mut Api) {
    api.about("Domains", "Name spaces, with settings of their own.");
    api.get("/domains", domains).says("Settings of the domains", "");
    api.get("/domains/{id}", domain).says("Settings of a domain", "").with("id", "Its name.");
    let domain = json!({ "defaults": { "user": "free" }, "timezone": "America/New_York" });
    changes::<Domain>(api, Kind::Domain, "Its name.", domain, json!({ "timezone": "Europe/Berlin" }));
}

/// The calls that change one object.
pub(super) fn changes<T: JsonSchema + 'static>(api: &mut Api, kind: Kind, id: &str, example: Value, patched: Value) {
    let name = kind.name();
    let refused = [Code::Conflict, Code::PreconditionRequired];
    let one = format!("/{name}s/{{id}}");
    if kind != Kind::Domain {
        // A domain has no name of its own, so `PUT` makes it.
        api.post(&format!("/{name}s"), move |by, call, body: Body<Unread<T>>| create(kind, by, call, body))
            .says(&format!("Add a {name}"), "")
            .example(example.clone())
            .refuses(&[Code::Conflict, Code::NotFound]);
    }
    let of_domain = if kind == Kind::Domain { " What is in it is changed by itself." } else { "" };
    api.put(&one, move |by, call, tag, new, id, body: Body<Unread<T>>| put(kind, by, call, tag, new, id, body))
        .says(&format!("Replace a {name}"), &format!("By the body; with `If-None-Match: *` it is added.{of_domain}"))
        .with("id", id)
        .example(example)
        .refuses(&refused);
    api.patch(&one, move |by, call, tag, id, body| patch(kind, by, call, tag, id, body))
        .says(
            &format!("Change fields of a {name}"),
            "The body is a JSON merge patch (RFC 7396): fields that are named replace those of the object, `null` takes them \
             away.",
        )
        .with("id", id)
        .example(patched)
        .refuses(&refused);
    if kind != Kind::Domain {
        // A domain goes by a change list, which says of when all that is in it is.
        api.delete(&one, move |by, call, tag, id| delete(kind, by, call, tag, id))
            .says(&format!("Remove a {name}"), "")
            .with("id", id)
            .refuses(&refused)
            .refuses(if kind == Kind::Tier { &[Code::InUse, Code::LastOfItsKind] } else { &[] });
    }
}

/// JSON that is read as a `T` with the change list that it becomes a part of, which tells where in it something is wrong.
pub(super) struct Unread<T>(pub(super) Value, PhantomData<T>);

impl<'de, T> Deserialize<'de> for Unread<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self(value, PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Unread<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> std::borrow::Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct OfChange {
    /// The domain that the object is in.
    #[serde(default = "default_domain")]
    pub(super) domain: String,
    /// Message of the version; what is done to which object unless given.
    #[schemars(length(min = 1, max = MESSAGE_BYTES_MAX), regex(pattern = MESSAGE_PATTERN))]
    message: Option<String>,
}

/// Who changes something, and what of the request is not the object.
pub(super) type Call = (Data<State>, HttpRequest, Caller, Query<OfChange>);

async fn create<T>(kind: Kind, _: By<Editor>, call: Call, body: Body<Unread<T>>) -> Result<Told, Problem> {
    let Body { value: Unread(value, _), sha256, .. } = body;
    let id = objects::id_of(kind, &value).ok_or_else(|| Problem::field("", kind.id_hint()))?;
    publish_one(call, (Op::Create, kind, id), None, Some(value), &sha256, "").await
}

/// With `If-None-Match: *` the object is to be new.
async fn put<T>(
    kind: Kind,
    _: By<Editor>,
    call: Call,
    tag: IfMatch,
    new: IfNoneMatch,
    id: Path<String>,
    body: Body<Unread<T>>,
) -> Result<Told, Problem> {
    let Body { value: Unread(value, _), sha256, .. } = body;
    let op = if new.0 { Op::Create } else { Op::Put };
    publish_one(call, (op, kind, id.into_inner()), tag.0, Some(value), &sha256, "").await
}

/// A JSON merge patch.
async fn patch(
    kind: Kind,
    _: By<Editor>,
    call: Call,
    tag: IfMatch,
    id: Path<String>,
    MergePatch(Body { value, sha256, .. }): MergePatch,
) -> Result<Told, Problem> {
    publish_one(call, (Op::Patch, kind, id.into_inner()), tag.0, Some(Value::Object(value)), &sha256, "").await
}

async fn delete(kind: Kind, _: By<Editor>, call: Call, tag: IfMatch, id: Path<String>) -> Result<Told, Problem> {
    publish_one(call, (Op::Delete, kind, id.into_inner()), tag.0, None, "", "").await
}

/// A list of one change; the body is its value, or what stands there at `within`.
pub(super) async fn publish_one(
    (state, request, caller, query): Call,
    (op, kind, id): (Op, Kind, String),
    etag: Option<String>,
    value: Option<Value>,
    body_sha256: &str,
    within: &str,
) -> Result<Told, Problem> {
    let OfChange { domain, message } = query.0;
    let domain = if kind == Kind::Domain { id.clone() } else { domain };
    // The same body to another path, or on top of another state, is another request.
    let header = |name| request.headers().get(name).map(HeaderValue::as_bytes);
    let of = (request.method(), request.uri(), header(IF_MATCH), header(IF_NONE_MATCH), body_sha256);
    let sha256 = sha256(format!("{of:?}"));
    let key = ObjectKey { kind, domain, id };
    let published = state.publisher.published();
    // It is to be there, as whatever (RFC 9110, 13.1.1).
    let is_any = etag.as_deref() == Some("*") && objects::find(&published.policy, &key).is_some();
    let etag = if is_any { Some(published.etag(&key)) } else { etag };
    let list = ChangeList::of_one(op, key, value, etag, &published, message);
    publish_list(state, caller.author(sha256), list).await.map_err(|problem| in_request(problem, within))
}

/// What is wrong, as it stands in the request: the body is within the value of the only change, the rest is in the
/// address.
fn in_request(problem: Problem, within: &str) -> Problem {
    if let Problem::Invalid(fields) = &problem
        && let Some(absent) =
            fields.iter().find(|field| field.at == ErrorLocation::Pointer("/changes/0/domain".to_owned()))
    {
        return Problem::NotFound(absent.message.clone());
    }
    let stands = |field: FieldError| {
        let at = match &field.at {
            ErrorLocation::Pointer(pointer) => {
                let below = pointer.strip_prefix("/changes/0/value").and_then(|below| below.strip_prefix(within));
                ErrorLocation::Pointer(below.unwrap_or_default().to_owned())
            }
            other => other.clone(),
        };
        FieldError { at, ..field }
    };
    match problem.of_parameter("message") {
        Problem::Invalid(fields) => Problem::Invalid(fields.into_iter().map(stands).collect()),
        other => other,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct InDomain {
    /// The domain to look into.
    #[serde(default = "default_domain")]
    pub(super) domain: String,
}

impl InDomain {
    pub(super) fn of<'p>(&self, published: &'p Published) -> Result<&'p Domain, Problem> {
        domain_of(published, &self.domain)
    }
}

pub(super) fn domain_of<'p>(published: &'p Published, name: &str) -> Result<&'p Domain, Problem> {
    published.policy.domains.get(name).ok_or_else(|| Problem::NotFound(no_domain(name)))
}

/// What was found, or that it is not there; of what was there once, in which version it was taken out.
pub(super) async fn or_removed<T>(
    state: &State,
    (kind, domain, id): (Kind, &str, &str),
    found: Result<T, Problem>,
) -> Result<T, Problem> {
    let Err(Problem::NotFound(what)) = found else { return found };
    let removals = state.store.removals(&[(domain, kind.name(), id)]).await;
    // It is not there, whatever the database has against the question.
    let removal = removals.ok().and_then(|removals| removals.into_iter().next());
    Err(match removal {
        None => Problem::NotFound(what),
        Some(Revision { version, author, published_at, .. }) => {
            Problem::Removed { what, removed_in: RemovedIn { version, by: author, at: published_at } }
        }
    })
}

/// An object as it is now.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{T}Item")]
pub(super) struct Item<T> {
    pub(super) id: String,
    pub(super) etag: String,
    #[serde(flatten)]
    revised: Option<Revised>,
    /// Of a tier.
    #[serde(flatten)]
    usage: Option<Usage>,
    value: T,
}

/// Of which policy a list is.
#[derive(Serialize, JsonSchema)]
pub(super) struct OfPolicy {
    policy_version: u64,
    /// How many items there are on all pages. Of clients that are looked for by more than kind and prefix, 10001 stands for
    /// more than 10,000.
    matching: usize,
    /// The one that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    /// All there are.
    domains: Vec<String>,
}

impl OfPolicy {
    pub(super) fn new(published: &Published, domain: Option<&str>, matching: usize) -> Self {
        Self {
            policy_version: published.version.version,
            matching,
            domain: domain.map(str::to_owned),
            domains: published.policy.domains.keys().cloned().collect(),
        }
    }
}

impl<T: Clone> Item<T> {
    pub(super) fn new(published: &Published, kind: Kind, domain: &str, id: String, value: &T) -> Self {
        let key = ObjectKey { kind, domain: domain.to_owned(), id };
        let (etag, revised) =
            (published.etag(&key), published.revisions.get(&key).map(|revised| Revised::clone(revised)));
        Self { id: key.id, etag, revised, usage: None, value: value.clone() }
    }

    pub(super) fn tagged(self) -> Tagged<Self> {
        Tagged { etag: self.etag.clone(), body: self }
    }
}

pub(super) type Listed<T> = Result<Json<List<Item<T>, OfPolicy>>, Problem>;

fn tier_item(published: &Published, name: &str, domain: &Domain, tier: &Tier) -> Item<Tier> {
    let item = Item::new(published, Kind::Tier, name, tier.id.clone(), tier);
    Item { usage: Some(Usage::of(domain, &tier.id)), ..item }
}

fn rule_item(published: &Published, name: &str, rule: &Rule) -> Item<Rule> {
    Item::new(published, Kind::Rule, name, rule.id.clone(), rule)
}

async fn tiers(
    _: By<Viewer>,
    state: Data<State>,
    query: Query<InDomain>,
    page: Query<Page>,
    find: Query<Find>,
) -> Listed<Tier> {
    let published = state.publisher.published();
    let domain = query.of(&published)?;
    let about = |matching| OfPolicy::new(&published, Some(&query.domain), matching);
    let page = page.of(domain.tiers.iter().collect(), &find, |tier| &tier.id, about)?;
    Ok(Json(page.map(|tier| tier_item(&published, &query.domain, domain, tier))))
}

async fn tier(
    _: By<Viewer>,
    state: Data<State>,
    id: Path<String>,
    query: Query<InDomain>,
) -> Result<Tagged<Item<Tier>>, Problem> {
    let published = state.publisher.published();
    let find = || {
        let domain = query.of(&published)?;
        let tier = domain.tiers.iter().find(|tier| tier.id == *id);
        let tier = tier.ok_or_else(|| Problem::NotFound(format!("There is no tier `{id}`.")))?;
        Ok(tier_item(&published, &query.domain, domain, tier).tagged())
    };
    or_removed(&state, (Kind::Tier, &query.domain, &id), find()).await
}

async fn rules(
    _: By<Viewer>,
    state: Data<State>,
    query: Query<InDomain>,
    page: Query<Page>,
    find: Query<Find>,
) -> Listed<Rule> {
    let published = state.publisher.published();
    let rules = query.of(&published)?.rules_by_specificity();
    let about = |matching| OfPolicy::new(&published, Some(&query.domain), matching);
    let page = page.of(rules, &find, |rule| &rule.id, about)?;
    Ok(Json(page.map(|rule| rule_item(&published, &query.domain, rule))))
}

async fn rule(
    _: By<Viewer>,
    state: Data<State>,
    id: Path<String>,
    query: Query<InDomain>,
) -> Result<Tagged<Item<Rule>>, Problem> {
    let published = state.publisher.published();
    let find = || {
        let rule = query.of(&published)?.rules.iter().find(|rule| rule.id == *id);
        let rule = rule.ok_or_else(|| Problem::NotFound(format!("There is no rule `{id}`.")))?;
        Ok(rule_item(&published, &query.domain, rule).tagged())
    };
    or_removed(&state, (Kind::Rule, &query.domain, &id), find()).await
}

/// The settings of a domain, as an object.
fn domain_item(published: &Published, name: &str) -> Option<Item<Domain>> {
    let key = ObjectKey { kind: Kind::Domain, domain: name.to_owned(), id: name.to_owned() };
    let (_, settings) = objects::find(&published.policy, &key)?;
    let Object::Domain(settings) = settings else { return None };
    Some(Item::new(published, Kind::Domain, name, key.id, &*settings))
}

async fn domains(_: By<Viewer>, state: Data<State>, page: Query<Page>, find: Query<Find>) -> Listed<Domain> {
    let published = state.publisher.published();
    let about = |matching| OfPolicy::new(&published, None, matching);
    let page = page.of(published.policy.domains.keys().collect(), &find, |name| name, about)?;
    Ok(Json(page.filter_map(|name| domain_item(&published, name))))
}

async fn domain(_: By<Viewer>, state: Data<State>, id: Path<String>) -> Result<Tagged<Item<Domain>>, Problem> {
    let item = domain_item(&state.publisher.published(), &id);
    Ok(item.ok_or_else(|| Problem::NotFound(no_domain(&id)))?.tagged())
}
