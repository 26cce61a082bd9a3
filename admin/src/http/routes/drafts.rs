//! Drafts: change lists that somebody shares before they are published.

use actix_web::web::{Data, Json, Path};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    base::secrets::secret,
    domain::{
        change_list::{ChangeList, check_line},
        error::Problem,
        roles::{Editor, Viewer},
    },
    http::{
        extract::{
            body::Body,
            paging::{List, Page, Search},
            query::Query,
        },
        guard::By,
        openapi::{Api, Created, NoContent, PREFIX},
        problem::Code,
        state::State,
    },
    store::drafts::{Draft, DraftCaps, DraftOutcome},
};

/// How long a draft is kept.
const DAYS: i64 = 30;
/// The most drafts: of a user or token, and of all.
const CAPS: DraftCaps = DraftCaps { all: 1_000, author: 100 };

pub(super) fn calls(api: &mut Api) {
    api.about("Drafts", "Change lists that are shared before they are published.");
    api.get("/drafts", drafts).says("Drafts, newest first", "");
    api.post("/drafts", save).says("Save a change list", "It is kept for 30 days.").refuses(&[Code::Full]);
    api.get("/drafts/{id}", draft).says("A draft with its list", "").with("id", "Its id.");
    api.delete("/drafts/{id}", remove).says("Remove a draft", "").with("id", "Its id.");
}

/// An instant with as many digits as any other, so that later ones are greater as text too.
fn text(instant: Timestamp) -> String {
    format!("{instant:.6}")
}

async fn save(by: By<Editor>, state: Data<State>, body: Body<ChangeList>) -> Result<Created<Draft>, Problem> {
    let internal = |error: &dyn ToString| Problem::Internal(error.to_string());
    check_line("/message", &body.value.message)?;
    let now = Timestamp::now();
    let end = now.saturating_add(SignedDuration::from_hours(24 * DAYS)).map_err(|error| internal(&error))?;
    let draft = Draft {
        id: secret().map_err(|error| internal(&error))?,
        author: by.name.clone(),
        message: body.value.message.clone(),
        saved_at: text(now),
        ends_at: text(end),
    };
    let list = serde_json::to_string(&body.value).map_err(|error| internal(&error))?;
    let object = format!("draft:{}", draft.id);
    let line = by.did("draft.save", &object, "done");
    let DraftCaps { all, author } = CAPS;
    match state.store.add_draft(&draft, &list, &draft.saved_at, CAPS, line).await? {
        DraftOutcome::Saved => {}
        DraftOutcome::AuthorFull => {
            return Err(Problem::Full(format!(
                "{author} drafts of yours are kept, your share; remove some of them first."
            )));
        }
        DraftOutcome::Full => return Err(Problem::Full(format!("{all} drafts are kept; remove some first."))),
    }
    Ok(Created { location: format!("{PREFIX}/drafts/{}", draft.id), body: draft })
}

/// Newest first. A cursor is `SAVED_AT,ID` of the draft that the page before ended with.
async fn drafts(
    _: By<Viewer>,
    state: Data<State>,
    page: Query<Page>,
    search: Query<Search>,
) -> Result<Json<List<Draft>>, Problem> {
    let after = page.after(|cursor| {
        let (saved_at, id) = cursor.split_once(',')?;
        saved_at.parse::<Timestamp>().ok()?;
        is_id(id).then(|| (saved_at.to_owned(), id.to_owned()))
    })?;
    // Greater than any time.
    let after = after.as_ref().map_or(("~", ""), |(saved_at, id)| (saved_at, id));
    let (now, pattern) = (text(Timestamp::now()), search.pattern()?);
    let items = state.store.drafts(&now, &pattern, after, page.limit() as u32 + 1).await?;
    let cursor = |last: &Draft| format!("{},{}", last.saved_at, last.id);
    Ok(Json(page.cut(items, cursor)))
}

/// A draft as it is sent.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DraftWithList")]
struct WithList {
    #[serde(flatten)]
    draft: Draft,
    list: ChangeList,
}

fn absent(id: &str) -> Problem {
    Problem::NotFound(format!("There is no draft `{id}`; drafts are kept for {DAYS} days."))
}

/// What a database may not even take as text is not there.
fn check_id(id: &str) -> Result<(), Problem> {
    if is_id(id) { Ok(()) } else { Err(absent(id)) }
}

fn is_id(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

async fn draft(_: By<Viewer>, state: Data<State>, id: Path<String>) -> Result<Json<WithList>, Problem> {
    check_id(&id)?;
    let found = state.store.draft(&id, &text(Timestamp::now())).await?;
    let (draft, list) = found.ok_or_else(|| absent(&id))?;
    let list = serde_json::from_str(&list).map_err(|error| Problem::Internal(error.to_string()))?;
    Ok(Json(WithList { draft, list }))
}

async fn remove(by: By<Editor>, state: Data<State>, id: Path<String>) -> Result<NoContent, Problem> {
    check_id(&id)?;
    let object = format!("draft:{id}");
    if !state.store.remove_draft(&id, by.did("draft.remove", &object, "done")).await? {
        return Err(absent(&id));
    }
    Ok(NoContent)
}
