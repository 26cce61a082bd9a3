//! What somebody sees and changes of himself.

use actix_web::{
    HttpRequest, HttpResponse,
    web::{Data, Json, Path},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    auth::{passwords, principal::Credential},
    base::secrets::now,
    domain::{
        error::Problem,
        objects::Kind,
        roles::{Known, May, Person, Role},
    },
    http::{
        extract::{
            body::Body,
            paging::{List, Page},
            query::Query,
        },
        guard::By,
        openapi::{Api, NoContent},
        problem::Code,
        routes::{
            session::{check_password, know_browser},
            users::{SessionItem, SignsIn, end, list},
        },
        state::State,
    },
    store::{
        sessions::Ending,
        users::{Edit, Outcome},
    },
};

pub(super) fn calls(api: &mut Api) {
    api.about("My account", "What everybody sees and changes of himself.");
    api.get("/me", me).says("Who asks", "A person, or a token.");
    api.put("/me/password", password)
        .says("Change one's password", "The other sessions end, and no other browser is known any more.")
        .example(json!({ "present": "a few words of mine", "password": "some other words" }))
        .answers_nothing("Done; this browser stays known.")
        .refuses(&[Code::TooMany, Code::Conflict, Code::ByProvider]);
    api.get("/me/sessions", sessions).says("One's sessions", "The one that was used last first.");
    api.delete("/me/sessions", end_others)
        .says("Sign out everywhere else", "No other browser is known any more.")
        .answers_nothing("Done; this browser stays known.");
    api.delete("/me/sessions/{session}", end_one).says("End one of one's sessions", "").with("session", "Its id.");
}

/// Who asks.
#[derive(Serialize, JsonSchema)]
struct Me {
    /// A user's name, or `token:NAME`.
    name: String,
    /// `null`: it is a node's token.
    role: Option<Role>,
    /// How: his sign-in, or a token. Nobody has several ways, so this is also what his account has.
    signs_in: SignsIn,
    /// Is it one of a node?
    is_node: bool,
    /// Of the objects that it may change; `null`: all that the role may.
    kinds: Option<Vec<Kind>>,
}

async fn me(by: By<Known>, state: Data<State>) -> Result<Json<Me>, Problem> {
    let is_node = by.may == May::Node;
    let signs_in = match by.by {
        Credential::Token(_) => SignsIn::Token,
        Credential::Session(_) => {
            let user = state.store.user(&by.name, now(), state.session_life).await?;
            SignsIn::of(&user.ok_or(Problem::Unauthorized)?)
        }
    };
    Ok(Json(Me { name: by.name.clone(), role: by.role(), signs_in, is_node, kinds: by.kinds.clone() }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewPassword {
    /// The one until now.
    present: String,
    password: String,
}

async fn password(
    by: By<Person>,
    state: Data<State>,
    request: HttpRequest,
    body: Body<NewPassword>,
) -> Result<HttpResponse, Problem> {
    let session = by.session()?;
    let NewPassword { present, password } = body.value;
    let user = check_password(&by, &state, present, "/present", "user.password").await?;
    if let Some(why) = passwords::refuse(&password) {
        return Err(Problem::field("/password", why));
    }
    let object = format!("user:{}", by.name);
    let hash = passwords::hash(password).await?;
    let edit = Edit { role: None, password_hash: Some(&hash), but_session: &session.token_sha256 };
    match state.store.change_user((user.id, user.revision), edit, &[by.did("user.password", &object, "done")]).await? {
        Outcome::Done => {
            state.session_ended.send_replace(());
            Ok(stay_known(&state, &request, &by.name).await)
        }
        Outcome::Changed | Outcome::LastAdministrator => Err(Problem::Conflict(Vec::new())),
    }
}

/// Answers a change by which browsers are known no longer: this one, where its user was signed in, stays so. The change is made
/// by now: where this fails, the browser is a stranger.
async fn stay_known(state: &State, request: &HttpRequest, name: &str) -> HttpResponse {
    let mut response = HttpResponse::NoContent().finish();
    let outcome = match state.store.login(name).await {
        Ok(Some(user)) => know_browser(state, request, (name, &user), &mut response),
        Ok(None) => Ok(()),
        Err(error) => Err(error.into()),
    };
    if let Err(problem) = outcome {
        tracing::warn!(%problem, "a browser is not known any more");
    }
    response
}

async fn sessions(by: By<Person>, state: Data<State>, page: Query<Page>) -> Result<Json<List<SessionItem>>, Problem> {
    list(&state, by.session()?.user, &page, by.token_of_session()).await
}

async fn end_others(by: By<Person>, state: Data<State>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let (session, object) = (by.session()?, format!("user:{}", by.name));
    let line = by.did("session.revoke", &object, "done: all others");
    end(&state, (session.user, &by.name), Ending::Others(&session.token_sha256), line).await?;
    Ok(stay_known(&state, &request, &by.name).await)
}

async fn end_one(by: By<Person>, state: Data<State>, id: Path<String>) -> Result<NoContent, Problem> {
    let object = format!("user:{}", by.name);
    let line = by.did("session.revoke", &object, "done: one");
    end(&state, (by.session()?.user, &by.name), Ending::One(&id), line).await
}
