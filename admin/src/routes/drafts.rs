//! Drafts: change lists that somebody shares before they are published.

use actix_web::{
    HttpResponse,
    http::header::LOCATION,
    web::{self, Data, Path, Query},
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::resource;
use crate::{
    access::SignedIn, body::Body, changes::ChangeList, problem::Problem, secrets::secret, server::State, store::Draft,
};

/// How long a draft is kept.
const DAYS: i64 = 30;
/// Drafts of everybody together.
const COUNT_MAX: i64 = 1_000;
/// Drafts on a page unless told otherwise, and at most.
const PAGE: u32 = 100;
const PAGE_MAX: u32 = 500;

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(resource("/drafts", "GET, POST").get(drafts).post(save))
        .service(resource("/drafts/{id}", "GET, DELETE").get(draft).delete(remove));
}

/// An instant to the second, so that later ones are greater as text too.
fn text(instant: Timestamp) -> String {
    Timestamp::from_second(instant.as_second()).unwrap_or(instant).to_string()
}

async fn save(state: Data<State>, signed_in: SignedIn, body: Body<ChangeList>) -> Result<HttpResponse, Problem> {
    let internal = |error: &dyn ToString| Problem::Internal(error.to_string());
    let now = Timestamp::now();
    let end = now.saturating_add(SignedDuration::from_hours(24 * DAYS)).map_err(|error| internal(&error))?;
    let draft = Draft {
        id: secret().map_err(|error| internal(&error))?,
        author: signed_in.session.name,
        message: body.value.message.clone(),
        saved_at: text(now),
        ends_at: text(end),
    };
    let list = serde_json::to_string(&body.value).map_err(|error| internal(&error))?;
    if !state.store.add_draft(&draft, &list, &draft.saved_at, COUNT_MAX).await? {
        return Err(Problem::field("", format!("{COUNT_MAX} drafts are kept; remove some first")));
    }
    Ok(HttpResponse::Created().insert_header((LOCATION, format!("/api/v1/drafts/{}", draft.id))).json(draft))
}

#[derive(Deserialize)]
struct PageOf {
    limit: Option<u32>,
    /// `SAVED_AT,ID` of the draft that the page before ended with.
    cursor: Option<String>,
}

/// Newest first.
async fn drafts(state: Data<State>, page: Query<PageOf>) -> Result<HttpResponse, Problem> {
    let limit = page.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    // Greater than any time.
    let after = page.cursor.as_deref().and_then(|cursor| cursor.split_once(',')).unwrap_or(("~", ""));
    let mut items = state.store.drafts(&text(Timestamp::now()), after, i64::from(limit) + 1).await?;
    let is_last = items.len() <= limit as usize;
    items.truncate(limit as usize);
    let next = items.last().filter(|_| !is_last).map(|last| format!("{},{}", last.saved_at, last.id));
    Ok(HttpResponse::Ok().json(json!({ "items": items, "next": next })))
}

/// A draft as it is sent.
#[derive(Serialize)]
struct WithList {
    #[serde(flatten)]
    draft: Draft,
    list: Value,
}

fn absent(id: &str) -> Problem {
    Problem::NotFound(format!("There is no draft `{id}`; drafts are kept for {DAYS} days."))
}

async fn draft(state: Data<State>, id: Path<String>) -> Result<HttpResponse, Problem> {
    let found = state.store.draft(&id, &text(Timestamp::now())).await?;
    let (draft, list) = found.ok_or_else(|| absent(&id))?;
    let list = serde_json::from_str(&list).map_err(|error| Problem::Internal(error.to_string()))?;
    Ok(HttpResponse::Ok().json(WithList { draft, list }))
}

async fn remove(state: Data<State>, id: Path<String>) -> Result<HttpResponse, Problem> {
    if !state.store.remove_draft(&id).await? {
        return Err(absent(&id));
    }
    Ok(HttpResponse::NoContent().finish())
}
