//! Published versions: their list, what differs between two, and the way back.

use actix_web::{
    HttpRequest, HttpResponse, Responder,
    http::StatusCode,
    rt,
    web::{Data, Json, Path},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate::policy::{Difference, Policy, differences};

use super::policy::{Caller, told};
use crate::{
    access::By,
    api::{Api, IfMatch},
    body::Body,
    heavy::{Heavy, Written},
    paging::{List, Page, Search, Times},
    problem::{Code, Problem},
    publisher::{self, RollBack, TriedBack, parse_stored},
    query::Query,
    roles::{Editor, Viewer},
    server::State,
    store::{Version, sha256},
};

pub(super) fn calls(api: &mut Api) {
    api.about("Versions", "Every publish makes one, which never changes.");
    api.get("/policy/versions", versions).says("Versions, newest first", "");
    api.get("/policy/versions/{version}", version)
        .says("A version with its document", "")
        .with("version", "Its number.");
    api.get("/policy/diff", diff)
        .says("What differs between two versions", "Without `field`, the whole object or limit is new or gone.")
        .refuses(&[Code::NotFound]);
    api.post("/policy/rollback", roll_back)
        .says(
            "Go back",
            "Publishes an older version's document again, or the present policy without one version's own changes: field by \
             field, and where later versions changed the same field again, `choices` say which value holds. Used quota stays \
             used. `If-Match` is the entity tag of `GET /policy`; a dry run needs none.",
        )
        .example(json!({ "to": 1, "mode": "whole" }))
        .answers_json::<TriedBack>(StatusCode::OK, "What it would do, and what is to be chosen.")
        .answers_json::<publisher::Answer>(StatusCode::CREATED, "Published.")
        .refuses(&[Code::InUse, Code::LastOfItsKind, Code::PreconditionRequired]);
}

/// `q` is looked for in authors and messages.
async fn versions(
    _: By<Viewer>,
    state: Data<State>,
    page: Query<Page>,
    search: Query<Search>,
    times: Query<Times>,
) -> Result<Json<List<Version>>, Problem> {
    let before = page.after(|cursor| cursor.parse().ok())?.unwrap_or(u64::MAX);
    let (from, to) = times.seconds()?;
    let sought = (&*search.pattern()?, &*from, &*to);
    let items = state.store.versions(sought, before, page.limit() as u32 + 1).await?;
    Ok(Json(page.cut(items, |last| last.version.to_string())))
}

/// A version, and the text of its document.
async fn stored(state: &State, version: u64) -> Result<(Version, String), Problem> {
    let found = state.store.version(version).await?;
    found.ok_or_else(|| Problem::NotFound(format!("There is no version {version}.")))
}

/// A published version, with its policy.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "VersionWithDocument")]
pub(super) struct WithDocument {
    #[serde(flatten)]
    pub(super) version: Version,
    pub(super) document: Policy,
}

async fn version(
    _: By<Viewer>,
    state: Data<State>,
    heavy: Heavy,
    version: Path<u64>,
) -> Result<Written<WithDocument>, Problem> {
    let place = heavy.place().await?;
    let (version, document) = stored(&state, *version).await?;
    place.write(move || Ok(WithDocument { version, document: parse_stored(&document)? })).await
}

#[derive(Deserialize, JsonSchema)]
struct Between {
    /// The one before `to` unless given.
    from: Option<u64>,
    /// The newest unless given.
    to: Option<u64>,
}

/// What differs between two versions.
#[derive(Serialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "it is what there is in it")]
struct Differences {
    from: u64,
    to: u64,
    differences: Vec<Difference>,
}

async fn diff(
    _: By<Viewer>,
    state: Data<State>,
    heavy: Heavy,
    between: Query<Between>,
) -> Result<Written<Differences>, Problem> {
    let to = between.to.unwrap_or_else(|| state.publisher.published().version.version);
    let from = between.from.unwrap_or(to.saturating_sub(1));
    let place = heavy.place().await?;
    let ((_, old), (_, new)) = (stored(&state, from).await?, stored(&state, to).await?);
    let compare = move || {
        let differences = differences(&parse_stored(&old)?, &parse_stored(&new)?);
        Ok(Differences { from, to, differences })
    };
    place.write(compare).await
}

#[derive(Deserialize, JsonSchema)]
struct OfRollBack {
    /// Only say what it would do.
    #[serde(default)]
    dry_run: bool,
}

async fn roll_back(
    _: By<Editor>,
    state: Data<State>,
    request: HttpRequest,
    caller: Caller,
    if_match: IfMatch,
    query: Query<OfRollBack>,
    body: Body<RollBack>,
) -> Result<HttpResponse, Problem> {
    if query.dry_run {
        let place = state.heavy.place().await?;
        let (place, tried) = place.whole(async move { state.publisher.try_back(body.value).await }).await?;
        return Ok(place.write(move || tried).await?.respond_to(&request));
    }
    let author = caller.author(sha256(format!("{:?}", (&if_match.0, body.sha256))));
    let publish = rt::spawn(async move { state.publisher.roll_back(body.value, if_match.0, author).await });
    Ok(told(publish.await)?.respond_to(&request))
}
