//! Published versions: their list, what differs between two, and the way back.

use actix_web::{
    HttpRequest, HttpResponse, Responder,
    http::StatusCode,
    rt,
    web::{Data, Json, Path},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate::policy::{Difference, Policy, differences};

use crate::{
    base::sha256::sha256,
    capacity::work_queue::{Heavy, Queries, Written},
    domain::{
        error::Problem,
        objects::ObjectKey,
        roles::{Editor, Viewer},
        version::Version,
    },
    http::{
        extract::{
            body::Body,
            paging::{List, Page, Search, Times},
            query::Query,
        },
        guard::By,
        openapi::{Api, IfMatch},
        problem::Code,
        routes::policy::{Caller, told},
        state::State,
    },
    metrics::decided_around::{DecidedAround, decided_around},
    publish::publisher::{self, RollBack, TriedBack, parse_stored},
    store::versions::{SoughtVersions, VersionObjects},
};

pub(super) fn calls(api: &mut Api) {
    api.about("Versions", "Every publish makes one, which never changes.");
    api.get("/policy/versions", versions).says(
        "Versions, newest first",
        "Each with the first ten objects that it changed, and what was decided just before and just after it, of all servers \
         with this database: as long as minutes are kept, which is seven days.",
    );
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

#[derive(Deserialize, JsonSchema)]
struct OfObject {
    /// Only those that changed this object, such as `tier:pro`, or `web/tier:pro` in the domain `web`.
    object: Option<String>,
}

/// A published version, and what came of it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ListedVersion")]
struct Listed {
    #[serde(flatten)]
    version: Version,
    objects: Touched,
    decided: DecidedAround,
}

/// The objects that a version changed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TouchedObjects")]
struct Touched {
    /// How many; `null`: it is not known, as the version is older than this list.
    count: Option<u64>,
    /// The first ten, those that it removed last.
    first: Vec<TouchedObject>,
}

#[derive(Serialize, JsonSchema)]
struct TouchedObject {
    #[serde(flatten)]
    key: ObjectKey,
    removed: bool,
}

impl Touched {
    fn of(objects: VersionObjects) -> Self {
        let VersionObjects { count, first } = objects;
        // A kind that this build does not know has no place here.
        let object = |(name, removed): (String, bool)| Some(TouchedObject { key: name.parse().ok()?, removed });
        Self { count, first: first.into_iter().filter_map(object).collect() }
    }
}

/// `q` is looked for in authors and messages.
async fn versions(
    _: By<Viewer>,
    state: Data<State>,
    page: Query<Page>,
    search: Query<Search>,
    times: Query<Times>,
    of: Query<OfObject>,
    queries: Queries,
) -> Result<Json<List<Listed>>, Problem> {
    let before = page.after(|cursor| cursor.parse().ok())?.unwrap_or(u64::MAX);
    let (from, to) = times.seconds()?;
    let object = of.object.as_deref().map_or(Ok(String::new()), |name| {
        let key: Result<ObjectKey, ()> = name.parse();
        key.map(|key| key.to_string()).map_err(|()| {
            Problem::parameter("object", format!("`{name}` names no object; `KIND:ID` or `DOMAIN/KIND:ID` does"))
        })
    })?;
    let (pattern, count, store) = (search.pattern()?, page.limit() as u32 + 1, state.store.clone());
    let is_heavy = SoughtVersions { pattern: &pattern, from: &from, to: &to, object: &object }.is_heavy();
    let read = async move {
        let sought = SoughtVersions { pattern: &pattern, from: &from, to: &to, object: &object };
        store.versions(sought, before, count).await
    };
    let items = queries.read(is_heavy, read).await?;
    let List { about, items, next } = page.cut(items, |last| last.version.to_string());
    let find = async move { listed(&state, items).await };
    let items = queries.place().await?.whole(find).await?.1?;
    Ok(Json(List { about, items, next }))
}

async fn listed(state: &State, versions: Vec<Version>) -> Result<Vec<Listed>, Problem> {
    let numbers: Vec<u64> = versions.iter().map(|version| version.version).collect();
    let mut objects = state.store.version_objects(&numbers).await?;
    let instant = |version: &Version| version.published_at.parse().unwrap_or(Timestamp::MIN);
    let instants: Vec<Timestamp> = versions.iter().map(instant).collect();
    let decided = decided_around(&state.store, &instants).await?;
    let list = versions.into_iter().zip(decided).map(|(version, decided)| Listed {
        objects: Touched::of(objects.remove(&version.version).unwrap_or_default()),
        version,
        decided,
    });
    Ok(list.collect())
}

/// A version, and the text of its document.
async fn stored(state: &State, version: u64) -> Result<(Version, String), Problem> {
    let found = state.store.version(version).await?;
    found.ok_or_else(|| Problem::NotFound(format!("There is no version {version}.")))
}

/// A published version, and what came of it, with its policy.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ListedVersionWithDocument")]
struct ListedWithDocument {
    #[serde(flatten)]
    listed: Listed,
    document: Policy,
}

async fn version(
    _: By<Viewer>,
    state: Data<State>,
    heavy: Heavy,
    version: Path<u64>,
) -> Result<Written<ListedWithDocument>, Problem> {
    let place = heavy.place().await?;
    let (version, document) = stored(&state, *version).await?;
    let mut listed = listed(&state, vec![version]).await?;
    let listed = listed.pop().ok_or_else(|| Problem::Internal("a version was lost".to_owned()))?;
    place.write(move || Ok(ListedWithDocument { listed, document: parse_stored(&document)? })).await
}

#[derive(Deserialize, JsonSchema)]
struct Between {
    /// The one that `to` was made on unless given.
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
    let place = heavy.place().await?;
    let (Version { follows, .. }, new) = stored(&state, to).await?;
    let from = between.from.unwrap_or(follows);
    let (_, old) = stored(&state, from).await?;
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
    by: By<Editor>,
    state: Data<State>,
    request: HttpRequest,
    caller: Caller,
    if_match: IfMatch,
    query: Query<OfRollBack>,
    body: Body<RollBack>,
) -> Result<HttpResponse, Problem> {
    if query.dry_run {
        let place = state.heavy.of(&by.behind).place().await?;
        let (place, tried) = place.whole(async move { state.publisher.try_back(body.value).await }).await?;
        return Ok(place.write(move || tried).await?.respond_to(&request));
    }
    let author = caller.author(sha256(format!("{:?}", (&if_match.0, body.sha256))));
    let publish = rt::spawn(async move { state.publisher.roll_back(body.value, if_match.0, author).await });
    Ok(told(publish.await)?.respond_to(&request))
}
