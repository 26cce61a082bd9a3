//! Signing in and out, and the first administrator.

use actix_web::{
    HttpRequest, HttpResponse,
    cookie::{Cookie, SameSite, time},
    http::{StatusCode, header::USER_AGENT},
    web::{Data, Json},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::people::ID_CHARACTERS;
use crate::{
    access::{Anyone, By},
    addresses::address,
    api::Api,
    body::Body,
    passwords,
    people::{self, is_name},
    problem::{Code, Problem},
    request_id::request_id,
    roles::{Person, Role},
    secrets::{instant, now, secret},
    server::State,
    store::{Audit, Ending, NewSession, Session, UsedSignIn, sha256},
};

pub(super) fn calls(api: &mut Api) {
    api.about("Session", "Signing in and out.");
    api.get("/session", show).says("Who is signed in", "");
    api.post("/session", sign_in)
        .says("Sign in", "Sets the session's cookie. Tries are limited by address and by name.")
        .answers_json::<Shown>(StatusCode::OK, "Signed in.")
        .refuses(&[Code::WrongCredentials, Code::TooMany]);
    api.delete("/session", sign_out)
        .says("Sign out", "Ends the session, and its event streams.")
        .answers_nothing("Signed out.");
    api.get("/setup", is_open)
        .says("Whether the first administrator is to be made", "Refused once there is one.")
        .refuses(&[Code::NotFound]);
    api.post("/setup", set_up)
        .says(
            "Make the first administrator",
            "With the code of the one-time link that the server prints, and signs in.",
        )
        .answers_json::<Shown>(StatusCode::CREATED, "Made, and signed in.")
        .refuses(&[Code::NotFound, Code::TooMany]);
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Credentials {
    name: String,
    password: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FirstAdministrator {
    code: String,
    name: String,
    password: String,
}

/// Who is signed in.
#[derive(Serialize, JsonSchema)]
#[serde(rename = "Session")]
struct Shown {
    name: String,
    role: Role,
    /// For the header `X-CSRF-Token`.
    csrf: String,
    /// When it ends unless it is used until then; RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    expires_at: String,
    /// Name of this installation, as the page shows it.
    environment: Option<String>,
    /// Is it production, by its settings? The page has a stripe then.
    production: bool,
}

async fn show(by: By<Person>, state: Data<State>) -> Result<Json<Shown>, Problem> {
    Ok(Json(shown(&state, by.session()?)))
}

fn shown(state: &State, session: &Session) -> Shown {
    let Session { name, role, csrf, expires_at, .. } = session;
    let end = state.session_life.end(now(), *expires_at);
    Shown {
        name: name.clone(),
        role: *role,
        csrf: csrf.clone(),
        expires_at: instant(end),
        environment: state.environment.clone(),
        production: state.production,
    }
}

async fn sign_in(
    _: Anyone,
    state: Data<State>,
    request: HttpRequest,
    body: Body<Credentials>,
) -> Result<HttpResponse, Problem> {
    let Credentials { name, password } = body.value;
    let tries_left = state.tries.count(&address(&request), &name)?;
    // What cannot be a name is nobody's, and not every database can be asked for it.
    let user = if is_name(&name) { state.store.login(&name).await? } else { None };
    let is_somebody = user.is_some();
    let hash = user.as_ref().map(|user| user.password_hash.clone());
    let is_right = passwords::verify(password, hash).await?;
    if let Some(user) = user.filter(|_| is_right) {
        let begun = begin(&state, &request, (user.id, user.revision), &name, None).await?;
        return answer(StatusCode::OK, &state, &begun.ok_or(Problem::WrongCredentials { tries_left })?);
    }
    // Nobody has shown who he is. What is no name may be a password, in the wrong field.
    let object = match () {
        () if is_somebody => format!("user:{name}"),
        () if is_name(&name) => format!("typed:{name}"),
        () => String::new(),
    };
    let line = Audit {
        actor: "",
        address: &address(&request),
        action: "session.begin",
        object: &object,
        result: "wrong name or password",
        request_id: &request_id(&request),
    };
    state.refusals.write(&state, line);
    Err(Problem::WrongCredentials { tries_left })
}

/// Begins a session of a user (id and revision) whose right to it was seen, by the provider or by a password, and makes its
/// cookie; `None`: somebody changed or removed him meanwhile, or the sign-in was used.
pub(super) async fn begin(
    state: &State,
    request: &HttpRequest,
    user: (i64, i64),
    name: &str,
    sign_in: Option<UsedSignIn<'_>>,
) -> Result<Option<(Session, Cookie<'static>)>, Problem> {
    let random = |error: getrandom::Error| Problem::Internal(format!("random numbers: {error}"));
    let (token, csrf) = (secret().map_err(random)?, secret().map_err(random)?);
    let token_sha256 = sha256(&token);
    let result = if sign_in.is_some() { "done: by the provider" } else { "done" };
    let (address, request_id) = (&address(request), &request_id(request));
    let line = Audit { actor: name, address, action: "session.begin", object: "", result, request_id };
    let begins_at = now();
    let new = NewSession {
        token_sha256: &token_sha256,
        user,
        csrf: &csrf,
        sign_in,
        begins_at,
        life: state.session_life,
        address,
        browser: &browser(request),
    };
    if !state.store.begin_session(new, line).await? {
        return Ok(None);
    }
    let session =
        state.store.session(&token_sha256, begins_at, state.session_life).await?.ok_or(Problem::Unauthorized)?;
    let cookie = cookie(state, token).max_age(time::Duration::seconds(state.session_life.whole_s)).finish();
    Ok(Some((session, cookie)))
}

fn answer(
    status: StatusCode,
    state: &State,
    (session, cookie): &(Session, Cookie<'_>),
) -> Result<HttpResponse, Problem> {
    let mut response = HttpResponse::build(status).json(shown(state, session));
    response.add_cookie(cookie).map_err(|error| Problem::Internal(error.to_string()))?;
    Ok(response)
}

/// What a browser calls itself, in its first characters.
fn browser(request: &HttpRequest) -> String {
    let name = request.headers().get(USER_AGENT).and_then(|name| name.to_str().ok()).unwrap_or_default();
    name.chars().take(200).collect()
}

fn cookie(state: &State, token: String) -> actix_web::cookie::CookieBuilder<'static> {
    Cookie::build(state.cookie.clone(), token)
        .path("/")
        .http_only(true)
        .same_site(SameSite::Strict)
        .secure(state.secure_cookies)
}

async fn sign_out(by: By<Person>, state: Data<State>) -> Result<HttpResponse, Problem> {
    let session = by.session()?;
    let id = session.token_sha256.get(..ID_CHARACTERS).unwrap_or_default();
    state.store.end_sessions(session.user, Ending::One(id), by.did("session.end", "", "done")).await?;
    state.session_ended.send_replace(());
    let mut response = HttpResponse::NoContent().finish();
    let mut removal = cookie(&state, String::new()).finish();
    removal.make_removal();
    response.add_cookie(&removal).map_err(|error| Problem::Internal(error.to_string()))?;
    Ok(response)
}

fn gone() -> Problem {
    Problem::NotFound(
        "This link was used, is older than 60 minutes, or was printed before the server's last start. While there is no \
         administrator, restarting the server prints a new one."
            .to_owned(),
    )
}

/// The first administrator is to be made.
#[derive(Serialize, JsonSchema)]
struct SetupState {
    open: bool,
    /// A name to begin with.
    name: &'static str,
    /// The shortest password.
    password_characters_min: usize,
}

async fn is_open(_: Anyone, state: Data<State>) -> Result<Json<SetupState>, Problem> {
    // Another server on the same database may have made the first administrator.
    if !state.setup.is_open() || state.store.has_administrator().await? {
        return Err(gone());
    }
    Ok(Json(SetupState { open: true, name: "admin", password_characters_min: passwords::CHARACTERS_MIN }))
}

async fn set_up(
    _: Anyone,
    state: Data<State>,
    request: HttpRequest,
    body: Body<FirstAdministrator>,
) -> Result<HttpResponse, Problem> {
    let FirstAdministrator { code, name, password } = body.value;
    let (address, request_id) = (&address(&request), &request_id(&request));
    let tries_left = state.tries.count(address, &name)?;
    if !state.setup.admits(&code) {
        let result = "a code that is none, or has ended";
        state.refusals.write(&state, Audit { actor: "", address, action: "setup", object: "", result, request_id });
        return Err(gone());
    }
    people::check(&name, &password)?;
    let hash = passwords::hash(password).await?;
    let object = &format!("user:{name}");
    let line = Audit { actor: &name, address, action: "setup", object, result: "done", request_id };
    let added = state.store.add_first_administrator(&name, &hash, now(), line).await?;
    if added.is_none() && !state.store.has_administrator().await? {
        return Err(Problem::field("/name", "a user has this name; take another one"));
    }
    state.setup.close();
    let begun = begin(&state, &request, added.ok_or_else(gone)?, &name, None).await?;
    answer(StatusCode::CREATED, &state, &begun.ok_or(Problem::WrongCredentials { tries_left })?)
}
