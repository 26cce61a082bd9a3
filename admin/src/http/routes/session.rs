//! Signing in and out, and the first administrator.

use actix_web::{
    HttpRequest, HttpResponse,
    cookie::{Cookie, CookieBuilder, SameSite, time},
    http::{StatusCode, header::USER_AGENT},
    web::{Data, Json},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    auth::{
        known_browsers::{KNOWN_FOR_S, KnownBrowser},
        passwords::{self, CallerKind},
        totp,
        user_rules::{self, check_password_user, is_name},
    },
    base::{
        secrets::{instant, now, secret},
        sha256::sha256,
    },
    domain::{
        error::Problem,
        roles::{Person, Role, SERVER},
    },
    http::{
        client_address::address,
        cookies,
        extract::body::Body,
        guard::{Anyone, By},
        openapi::Api,
        problem::Code,
        request_id::request_id,
        state::State,
    },
    store::{
        audit::Audit,
        sessions::{Ending, NewSession, Proof, Session},
        users::{Login, User},
    },
};

/// How much of its token's SHA-256 names a session.
pub(super) const ID_CHARACTERS: usize = 16;

pub(super) fn calls(api: &mut Api) {
    api.about("Session", "Signing in and out.");
    api.get("/session", show).says("Who is signed in", "");
    api.post("/session", sign_in)
        .says(
            "Sign in",
            "Sets the session's cookie, and one by which this browser is known for the user. Tries are limited by address and by \
             name; those of a browser that is known for the name are counted apart. A user with a second factor sends a code as \
             well.",
        )
        .answers_json::<Shown>(StatusCode::OK, "Signed in.")
        .refuses(&[Code::WrongCredentials, Code::FactorNeeded, Code::WrongFactor, Code::TooMany]);
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
    /// A code of the user's authenticator app, or a recovery code; only for a user with a second factor.
    code: Option<String>,
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
    let outcome = check_credentials(&state, &request, body.value).await;
    state.telemetry.signed_in(&outcome);
    outcome
}

async fn check_credentials(
    state: &State,
    request: &HttpRequest,
    Credentials { name, password, code }: Credentials,
) -> Result<HttpResponse, Problem> {
    let browser = known_browser(state, request, &name).await?;
    let (counted, caller) = match &browser {
        Some(browser) => (state.tries.count_known(&name, &browser.id), CallerKind::Known),
        None => (state.tries.count(&address(request), &name), CallerKind::Stranger),
    };
    if counted.is_err_and(|refused| refused.is_by_name) {
        report_limit(state, request, &name).await?;
    }
    let tries_left = counted?;
    // What cannot be a name is nobody's, and not every database can be asked for it.
    let user = if is_name(&name) { state.store.login(&name).await? } else { None };
    let hash = user.as_ref().map(|user| user.password_hash.clone());
    let is_right = passwords::verify(password, hash, caller).await?;
    let object = object_of(&name, user.is_some());
    let refuse = |result: &str, problem: Problem| {
        // The actor is a user who has shown who they are, which takes all of it.
        let (address, request_id) = (&address(request), &request_id(request));
        let line = Audit { actor: "", address, action: "session.begin", object: &object, result, request_id };
        state.refusals.write(state.audit_log(), line);
        Err(problem)
    };
    let Some(user) = user.filter(|_| is_right) else {
        return refuse("wrong name or password", Problem::WrongCredentials { tries_left });
    };
    let revision = (user.id, user.revision);
    let begun = if user.has_second_factor() {
        let code = totp::plain(code.as_deref().unwrap_or_default());
        if code.is_empty() {
            return Err(Problem::CodeNeeded);
        }
        // A browser that is known has codes of its own to try, as it has passwords.
        let caller = browser.as_ref().map_or(name.as_str(), |browser| browser.id.as_str());
        let tries_left = state.tries.count_code(&name, caller)?;
        let code_sha256 = sha256(&code);
        let begun = match proof_of(&user, &code, &code_sha256)? {
            Some(proof) => begin(state, request, revision, &name, proof).await?,
            None => None,
        };
        match begun {
            Some(begun) => begun,
            None => return refuse("right password, wrong code", Problem::WrongCode { tries_left }),
        }
    } else {
        let begun = begin(state, request, revision, &name, Proof::Password).await?;
        begun.ok_or(Problem::WrongCredentials { tries_left })?
    };
    answer(StatusCode::OK, state, request, &begun, &user)
}

/// Returns what a code would prove of a user with a second factor; `None`: nothing. Whether a recovery code is one shows when it
/// is used.
fn proof_of<'a>(user: &Login, code: &str, code_sha256: &'a str) -> Result<Option<Proof<'a>>, Problem> {
    if totp::is_of_app(code) {
        return Ok(totp::step_of(&user.app_secret()?, code, user.last_step, now()).map(Proof::Code));
    }
    Ok(Some(Proof::RecoveryCode(code_sha256)))
}

/// The object of a try in the audit log. What is no name may be a password, in the wrong field.
fn object_of(name: &str, is_user: bool) -> String {
    match () {
        () if is_user => format!("user:{name}"),
        () if is_name(name) => format!("typed:{name}"),
        () => String::new(),
    }
}

/// Counts a try that was refused because of those before it for the same name, and reports the first one: it may be an attack
/// on the user, who still comes in by browsers that are known.
async fn report_limit(state: &State, request: &HttpRequest, name: &str) -> Result<(), Problem> {
    state.telemetry.limited_by_name.inc();
    if !is_name(name) || !state.tries.is_first_refusal(name, now()) {
        return Ok(());
    }
    let object = &object_of(name, state.store.login(name).await?.is_some());
    let address = &address(request);
    tracing::warn!(
        object,
        address,
        "too many tries to sign in under one name: only browsers that are known for it come in"
    );
    let result = "too many tries under this name, from all addresses together";
    let request_id = &request_id(request);
    // Of the server itself: lines of a stranger's address may be used up by then.
    let line = Audit { actor: SERVER, address, action: "session.limited", object, result, request_id };
    state.refusals.write(state.audit_log(), line);
    Ok(())
}

/// Returns the browser that asks, if this user signed in in it before. Only a cookie that was signed here has the database asked.
async fn known_browser(state: &State, request: &HttpRequest, name: &str) -> Result<Option<KnownBrowser>, Problem> {
    let cookie = request.cookie_raw(&cookies::name_of(&family(state), name));
    let browser = cookie.and_then(|cookie| state.browsers.read(name, cookie.value(), now()));
    let Some(browser) = browser else { return Ok(None) };
    let _turn = state.store.reads.turn().await?;
    let user = state.store.login(name).await?;
    Ok(user.is_some_and(|user| state.browsers.is_of(&browser, &user)).then_some(browser))
}

/// The start of the names of cookies by which browsers are known.
fn family(state: &State) -> String {
    format!("{}_", state.cookie.replace("session", "browser"))
}

/// Makes a browser known for a user who has shown the password in it.
pub(super) fn know_browser(
    state: &State,
    request: &HttpRequest,
    (name, user): (&str, &Login),
    response: &mut HttpResponse,
) -> Result<(), Problem> {
    let family = family(state);
    let new = cookies::name_of(&family, name);
    let removals = cookies::surplus(request, &family, &new).into_iter().map(|name| {
        let mut removal = cookie(state, name, String::new()).finish();
        removal.make_removal();
        removal
    });
    let value = state.browsers.sign(name, user, now()).map_err(random)?;
    let known = cookie(state, new, value).max_age(time::Duration::seconds(KNOWN_FOR_S)).finish();
    for cookie in removals.chain([known]) {
        response.add_cookie(&cookie).map_err(|error| Problem::Internal(error.to_string()))?;
    }
    Ok(())
}

/// Checks that `password`, which stands at `pointer`, is that of the user of this session, and answers the user as they were
/// before: each change of them changes their revision. Tries are counted by session.
pub(super) async fn check_password(
    by: &By<Person>,
    state: &State,
    password: String,
    pointer: &str,
    action: &str,
) -> Result<User, Problem> {
    state.tries.count_known(&by.name, &by.session()?.token_sha256)?;
    let user = state.store.user(&by.name, now(), state.session_life).await?.ok_or(Problem::Unauthorized)?;
    check_password_user(&user)?;
    let hash = state.store.login(&by.name).await?.map(|login| login.password_hash);
    if passwords::verify(password, hash, CallerKind::Known).await? {
        return Ok(user);
    }
    state.refusals.write(state.audit_log(), by.did(action, &format!("user:{}", by.name), "wrong password"));
    Err(Problem::field(pointer, "this is not your password"))
}

/// The system has no random numbers.
pub(super) fn random(error: getrandom::Error) -> Problem {
    Problem::Internal(format!("random numbers: {error}"))
}

/// Begins a session of a user (id and revision) who has shown this, and makes its cookie; `None`: the user was changed or
/// removed meanwhile, or what they showed was used before.
pub(super) async fn begin(
    state: &State,
    request: &HttpRequest,
    user: (i64, i64),
    name: &str,
    proof: Proof<'_>,
) -> Result<Option<(Session, Cookie<'static>)>, Problem> {
    let (token, csrf) = (secret().map_err(random)?, secret().map_err(random)?);
    let token_sha256 = sha256(&token);
    let result = match proof {
        Proof::Password => "done",
        Proof::Code(_) => "done: with a code",
        Proof::RecoveryCode(_) => "done: with a recovery code",
        Proof::Provider(_) => "done: by the provider",
    };
    let (address, request_id) = (&address(request), &request_id(request));
    let line = Audit { actor: name, address, action: "session.begin", object: "", result, request_id };
    let begins_at = now();
    let new = NewSession {
        token_sha256: &token_sha256,
        user,
        csrf: &csrf,
        proof,
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
    let max_age = time::Duration::seconds(state.session_life.whole_s);
    Ok(Some((session, cookie(state, state.cookie.clone(), token).max_age(max_age).finish())))
}

/// Answers with a session that began by the password of this user. The session's cookie comes first.
fn answer(
    status: StatusCode,
    state: &State,
    request: &HttpRequest,
    (session, cookie): &(Session, Cookie<'_>),
    user: &Login,
) -> Result<HttpResponse, Problem> {
    let mut response = HttpResponse::build(status).json(shown(state, session));
    response.add_cookie(cookie).map_err(|error| Problem::Internal(error.to_string()))?;
    know_browser(state, request, (&session.name, user), &mut response)?;
    Ok(response)
}

/// What a browser calls itself, in its first characters.
fn browser(request: &HttpRequest) -> String {
    let name = request.headers().get(USER_AGENT).and_then(|name| name.to_str().ok()).unwrap_or_default();
    name.chars().take(200).collect()
}

fn cookie(state: &State, name: String, value: String) -> CookieBuilder<'static> {
    Cookie::build(name, value).path("/").http_only(true).same_site(SameSite::Strict).secure(state.secure_cookies)
}

async fn sign_out(by: By<Person>, state: Data<State>) -> Result<HttpResponse, Problem> {
    let session = by.session()?;
    let id = session.token_sha256.get(..ID_CHARACTERS).unwrap_or_default();
    state.store.end_sessions(session.user, Ending::One(id), by.did("session.end", "", "done")).await?;
    state.session_ended.send_replace(());
    let mut response = HttpResponse::NoContent().finish();
    let mut removal = cookie(&state, state.cookie.clone(), String::new()).finish();
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
    // By address alone: a crowd that tries the name is not to keep the first administrator out.
    let tries_left = state.tries.count(address, "")?;
    if !state.setup.admits(&code) {
        let result = "a code that is none, or has ended";
        state
            .refusals
            .write(state.audit_log(), Audit { actor: "", address, action: "setup", object: "", result, request_id });
        return Err(gone());
    }
    user_rules::check(&name, &password)?;
    let hash = passwords::hash(password).await?;
    let object = &format!("user:{name}");
    let line = Audit { actor: &name, address, action: "setup", object, result: "done", request_id };
    let added = state.store.add_first_administrator(&name, &hash, now(), line).await?;
    if added.is_none() && !state.store.has_administrator().await? {
        return Err(Problem::field("/name", "a user has this name; take another one"));
    }
    state.setup.close();
    let begun = begin(&state, &request, added.ok_or_else(gone)?, &name, Proof::Password).await?;
    let user = state.store.login(&name).await?;
    let (begun, user) = begun.zip(user).ok_or(Problem::WrongCredentials { tries_left })?;
    answer(StatusCode::CREATED, &state, &request, &begun, &user)
}
