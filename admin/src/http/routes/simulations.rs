//! What-if: runs, what they found, and the preview of the editor.

use actix_web::web::{Data, Json, Path};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate::time::parse_period;
use tidegate_replay::{
    Utc,
    compare::{ClientOrder, ClientTimeline, ComparisonResult, DecisionFilter, DecisionRow},
};

use crate::{
    auth::principal::Who,
    capacity::work_queue::{Heavy, Queries},
    domain::{error::Problem, roles::Viewer},
    http::{
        extract::{
            body::{Body, Files},
            paging::{List, Nothing, Page, Search},
            query::Query,
        },
        guard::By,
        openapi::{Accepted, Api, NoContent, PREFIX},
        problem::Code,
        state::State,
    },
    simulate::{
        preview::{PreviewAnswer, PreviewAsk, show as show_preview},
        question::{Ask, prepare},
        run::{Run, State as RunState},
        run_files::DAYS_MAX,
    },
};

pub(super) fn calls(api: &mut Api) {
    api.about("What-if", "What a policy would do to some traffic, beside another one. Nothing live is touched.");
    api.post("/simulations", start)
        .says(
            "Start a run",
            "Two policies decide the same traffic, request by request, on a clock of their own. It waits for its turn; `sim:ID` \
             of the event stream tells how far it is. One run at a time for each user. Over recorded requests, where identities are \
             not shown as they are, policies have no values but those of the policy in force. The question has 32 MiB at most.",
        )
        .example(json!({
            "b": { "version": 1 },
            "traffic": { "made": { "rows": [{ "clients": 20, "rate": 2, "for": "1m", "pattern": "poisson" }], "seed": 1 } },
        }))
        .refuses(&[Code::AlreadyRunning, Code::Busy, Code::Conflict, Code::InUse, Code::LastOfItsKind]);
    api.get("/simulations", runs).says("Runs, newest first", "Without what they found.");
    let limit = json!({ "id": "minute", "algorithm": "token_bucket", "limit": 30, "period": "1m" });
    api.post("/simulations/preview", preview)
        .says(
            "Preview a tier or a rule",
            "What the limits in force and those of a draft do to the requests of one client, made up or recorded, 20,000 at most; \
             and the draft in words.",
        )
        .example(json!({
            "kind": "tier",
            "draft": { "id": "free", "limits": [limit] },
            "traffic": { "pattern": { "burst": { "requests": 50 } }, "rate": 1, "for": "1m" },
        }));
    api.get("/simulations/{id}", run)
        .says("A run", "Once it is done, with what it found in short.")
        .with("id", "Its id.");
    api.post("/simulations/{id}/stop", stop)
        .says(
            "Stop a run",
            "One that has ended by then stays as it is: what it found is not lost. Its author may, the user who made the author's \
             token, and an editor.",
        )
        .with("id", "Its id.");
    api.delete("/simulations/{id}", forget)
        .says(
            "Forget a run",
            "With what it found. One that has not ended must be stopped first. Its author may, and an editor.",
        )
        .with("id", "Its id.")
        .refuses(&[Code::NotEnded]);
    api.get("/simulations/{id}/timeline", timeline)
        .says("Clients over time", "How each fared under both policies.")
        .with("id", "The run's id.")
        .refuses(&[Code::NoResult]);
    api.get("/simulations/{id}/decisions", decisions)
        .says("Single decisions", "What both policies said to a request, in order of time.")
        .with("id", "The run's id.")
        .refuses(&[Code::NoResult]);
}

async fn start(by: By<Viewer>, state: Data<State>, body: Files<Ask>) -> Result<Accepted<Run>, Problem> {
    let run = queue_run(&state, &by, body).await?;
    state.store.audit(by.did("simulation.start", &format!("simulation:{}", run.id), "done")).await?;
    Ok(Accepted { location: format!("{PREFIX}/simulations/{}", run.id), body: run })
}

async fn preview(
    _: By<Viewer>,
    state: Data<State>,
    heavy: Heavy,
    body: Body<PreviewAsk>,
) -> Result<Json<PreviewAnswer>, Problem> {
    let published = state.publisher.published();
    let show = move || show_preview(&published, state.figures.engine(), state.recorder.as_deref(), body.value);
    heavy.work(show).await?.map(Json)
}

/// Puts a run into the queue. Its place there is taken before the question is read.
async fn queue_run(state: &State, who: &Who, question: Files<Ask>) -> Result<Run, Problem> {
    let place = state.runs.place(who)?;
    let question = question.receive(state, &who.behind).await?;
    let (heavy, ask) = state.heavy.of(&who.behind).place().await?.step(move || question.read()).await?;
    place.fill(prepare(state.question_context(), heavy, ask?).await?)
}

/// `q` is looked for in authors and states.
async fn runs(
    _: By<Viewer>,
    state: Data<State>,
    page: Query<Page>,
    search: Query<Search>,
) -> Result<Json<List<Run>>, Problem> {
    let mut runs = state.runs.all();
    runs.retain(|run| search.matches(&[&run.author, run.state.name()]));
    Ok(Json(page.along(runs, |run| &run.id)?))
}

fn absent(id: &str) -> Problem {
    Problem::NotFound(format!("There is no run `{id}`; runs are kept for {DAYS_MAX} days."))
}

async fn run(_: By<Viewer>, state: Data<State>, id: Path<String>) -> Result<Json<Run>, Problem> {
    Ok(Json(state.runs.run(&id).ok_or_else(|| absent(&id))?))
}

async fn stop(by: By<Viewer>, state: Data<State>, id: Path<String>) -> Result<Json<Run>, Problem> {
    let run = state.runs.run(&id).ok_or_else(|| absent(&id))?;
    // It may keep the user from running who made the token that asked for it.
    if run.behind != by.name {
        by.check_own(&run.author)?;
    }
    let run = state.runs.stop(&id).ok_or_else(|| absent(&id))?;
    state.store.audit(by.did("simulation.stop", &format!("simulation:{}", run.id), "done")).await?;
    Ok(Json(run))
}

async fn forget(by: By<Viewer>, state: Data<State>, id: Path<String>) -> Result<NoContent, Problem> {
    by.check_own(&state.runs.run(&id).ok_or_else(|| absent(&id))?.author)?;
    state.runs.forget(&id).ok_or_else(|| absent(&id))??;
    state.store.audit(by.did("simulation.forget", &format!("simulation:{id}"), "done")).await?;
    Ok(NoContent)
}

/// Looks at what a run found; reading it takes a while.
async fn look<T: Send + 'static>(
    state: Data<State>,
    id: String,
    queries: &Queries,
    look: impl FnOnce(&ComparisonResult) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let run = state.runs.run(&id).ok_or_else(|| absent(&id))?;
    if run.state != RunState::Done {
        return Err(Problem::NoResult(run.state.name()));
    }
    let looked = queries.work(move || {
        let outcome = state.runs.outcome(&id).map_err(|error| Problem::Internal(format!("run {id}: {error}")))?;
        look(&outcome)
    });
    looked.await?
}

#[derive(Deserialize, JsonSchema)]
struct Timeline {
    /// By what clients are sorted, `-` for the greatest first; `-changed` unless given.
    #[serde(default)]
    sort: Order,
    /// Only clients who met this.
    #[serde(default)]
    outcome: DecisionFilter,
    /// Length of a bucket as a period, a multiple of the run's `kept.bucket_ms`; unless given, the shortest by which no client
    /// has more than 300.
    bucket: Option<String>,
}

/// By what, and whether the greatest comes first.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Order(ClientOrder, bool);

const ORDERS: [(&str, ClientOrder); 5] = [
    ("changed", ClientOrder::Changed),
    ("denied_a", ClientOrder::DeniedA),
    ("denied_b", ClientOrder::DeniedB),
    ("requests", ClientOrder::Requests),
    ("key", ClientOrder::Key),
];

impl Default for Order {
    fn default() -> Self {
        Self(ClientOrder::Changed, true)
    }
}

impl TryFrom<String> for Order {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (is_descending, name) = text.strip_prefix('-').map_or((false, text.as_str()), |name| (true, name));
        let found = ORDERS.iter().find(|(order, _)| *order == name);
        let names = || ORDERS.map(|(name, _)| name).join(", ");
        found
            .map(|(_, sort)| Self(*sort, is_descending))
            .ok_or_else(|| format!("write one of {}, perhaps with `-`", names()))
    }
}

impl JsonSchema for Order {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Order".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names = ORDERS.iter().flat_map(|(name, _)| [(*name).to_owned(), format!("-{name}")]).collect::<Vec<_>>();
        json_schema!({ "type": "string", "enum": names })
    }
}

/// Of a page of clients.
#[derive(Serialize, JsonSchema)]
struct OfTimeline {
    /// Clients on all pages.
    of: usize,
    /// Length of a bucket.
    bucket_ms: u64,
}

/// A cursor is the place of the first client of the page.
async fn timeline(
    _: By<Viewer>,
    state: Data<State>,
    id: Path<String>,
    page: Query<Page>,
    query: Query<Timeline>,
    queries: Queries,
) -> Result<Json<List<ClientTimeline, OfTimeline>>, Problem> {
    let Query(Timeline { sort: Order(sort, is_descending), outcome: which, bucket }) = query;
    let wanted = bucket.as_deref().map(parse_period).transpose();
    let wanted_ms =
        wanted.map_err(|why| Problem::parameter("bucket", why.to_string()))?.map(|wanted| wanted.as_millis() as u64);
    let from = page.after(|cursor| cursor.parse::<usize>().ok())?.unwrap_or(0);
    let list = look(state, id.into_inner(), &queries, move |outcome| {
        let kept_ms = outcome.summary.kept.bucket_ms;
        let bucket_ms = wanted_ms.unwrap_or_else(|| outcome.bucket_ms());
        if bucket_ms == 0 || !bucket_ms.is_multiple_of(kept_ms) {
            let message = format!("buckets of {kept_ms} ms were kept; give a multiple of that");
            return Err(Problem::parameter("bucket", message));
        }
        let (items, of) = outcome.timeline(which, sort, is_descending, from, page.limit(), bucket_ms);
        let next = Some(from.saturating_add(items.len())).filter(|next| *next < of).map(|next| next.to_string());
        Ok(List { about: OfTimeline { of, bucket_ms }, items, next })
    });
    Ok(Json(list.await?))
}

#[derive(Deserialize, JsonSchema)]
struct Decisions {
    /// Only those about this client, `KIND:VALUE` as the run shows it.
    key: Option<String>,
    /// Only those from this instant on.
    from: Option<Utc>,
    /// Only these.
    #[serde(default)]
    outcome: DecisionFilter,
}

/// A cursor is the number of the request that the page before ended with.
async fn decisions(
    _: By<Viewer>,
    state: Data<State>,
    id: Path<String>,
    page: Query<Page>,
    query: Query<Decisions>,
    queries: Queries,
) -> Result<Json<List<DecisionRow>>, Problem> {
    let Query(Decisions { key, from, outcome: which }) = query;
    let after = page.after(|cursor| cursor.parse::<u64>().ok())?;
    let list = look(state, id.into_inner(), &queries, move |outcome| {
        if let Some(key) = key.as_deref().filter(|key| !outcome.knows(key)) {
            return Err(Problem::NotFound(format!("Nobody called `{key}` came, or there was no room for one more.")));
        }
        let found = outcome.decisions(key.as_deref(), which, from, after, page.limit());
        Ok(List { about: Nothing {}, items: found.items, next: found.next.map(|next| next.to_string()) })
    });
    Ok(Json(list.await?))
}
