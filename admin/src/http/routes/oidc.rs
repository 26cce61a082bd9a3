//! Signing in by a provider: the browser goes there with a state, keeps what is needed then in a cookie for it, and comes back
//! with a code.

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    body::MessageBody,
    cookie::{Cookie, SameSite, time},
    http::{
        StatusCode,
        header::{ACCEPT, CONTENT_TYPE, ContentType, HeaderValue, LOCATION},
    },
    web::{Data, Json},
};
use maud::{DOCTYPE, Markup, html};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    auth::{
        oidc::{Claimed, Provider},
        oidc_cookie::SignIn,
    },
    base::{secrets::now, sha256::sha256},
    domain::error::Problem,
    http::{
        client_address::address,
        cookies,
        extract::query::Query,
        guard::{Anyone, Written},
        openapi::Api,
        problem::Code,
        request_id::request_id,
        routes::session::begin,
        state::State,
    },
    store::{
        audit::Audit,
        sessions::{Proof, UsedSignIn},
        users::{Edit, Means, Outcome, User},
    },
};

/// Where browsers come back.
pub(crate) const CALLBACK: &str = "/api/v1/session/oidc/callback";
/// How long somebody may take at the provider, in seconds.
const LIFE_SECONDS: i64 = 600;
/// The longest path that a browser is sent to, in bytes.
const PATH_MAX: usize = 400;

pub(super) fn calls(api: &mut Api) {
    api.get("/session/provider", provider).says("By which provider people may sign in", "");
    api.get("/session/oidc", go)
        .says("Sign in by the provider", "For browsers: sends them there. Tries are limited by address.")
        .redirects("To the provider.")
        .refuses(&[Code::NotFound, Code::TooMany, Code::Provider]);
    api.get("/session/oidc/callback", come_back)
        .says(
            "Come back from the provider",
            "Signs in whom its ID token names, and makes him a user where he is none, with the highest role of his groups. \
             Sets the session's cookie. Who accepts `text/html` is told of refusals by a page.",
        )
        .overlooks_parameters()
        .answers(StatusCode::OK, "text/html", "Signed in: a page that goes on to where it began.")
        .refuses(&[
            Code::SignInOver,
            Code::NotAdmitted,
            Code::NotFound,
            Code::LastOfItsKind,
            Code::TooMany,
            Code::Provider,
        ]);
}

/// By which provider people may sign in.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SignInProvider")]
struct Shown {
    /// On the button; `null`: there is none.
    name: Option<String>,
}

async fn provider(_: Anyone, state: Data<State>) -> Json<Shown> {
    Json(Shown { name: state.provider.as_ref().map(|provider| provider.name().to_owned()) })
}

fn of(state: &State) -> Result<&Provider, Problem> {
    let absent = || Problem::NotFound("This server has no provider to sign in by; --oidc-issuer names one.".to_owned());
    state.provider.as_ref().ok_or_else(absent)
}

#[derive(Deserialize, JsonSchema)]
struct Going {
    /// The path of the dashboard to go on to; `/` unless given.
    r#return: Option<String>,
}

async fn go(_: Anyone, state: Data<State>, request: HttpRequest, query: Query<Going>) -> Result<HttpResponse, Problem> {
    for_people(&request, send(&state, &request, query.0.r#return).await)
}

async fn send(state: &State, request: &HttpRequest, return_to: Option<String>) -> Result<HttpResponse, Problem> {
    let provider = of(state)?;
    let return_to = return_to.unwrap_or_else(|| "/".to_owned());
    if !is_path_here(&return_to) {
        return Err(Problem::parameter("return", "return: write a path of this site, such as `/tiers/pro`"));
    }
    state.tries.count(&address(request), "")?;
    let begun = provider.begin().await.map_err(|problem| refused(state, request, "", problem))?;
    let ends_at = now() + LIFE_SECONDS;
    let sign_in = SignIn { nonce: begun.nonce, verifier: begun.verifier, return_to, ends_at };
    let sealed = state.sign_ins.close(&begun.state, &sign_in)?;
    let name = cookie_name(state, &begun.state);
    // Of a browser the newest sign-ins are open, in tabs.
    let surplus = cookies::surplus(request, &family(state), &name);
    let mut new = cookie(state, name, sealed);
    new.set_max_age(time::Duration::seconds(LIFE_SECONDS));
    let mut response = HttpResponse::SeeOther();
    response.insert_header((LOCATION, begun.url.as_str())).cookie(new);
    for name in surplus {
        response.cookie(removal(state, name));
    }
    Ok(response.finish())
}

/// Each state has a cookie of its own, so several tabs can sign in.
fn cookie_name(state: &State, of: &str) -> String {
    cookies::name_of(&family(state), of)
}

/// What the names of all of them begin with.
fn family(state: &State) -> String {
    format!("{}_oidc_", state.cookie)
}

fn cookie(state: &State, name: String, sealed: String) -> Cookie<'static> {
    Cookie::build(name, sealed)
        // The prefix `__Host-` asks for it: without it another host of the site could set one, and have people sign in as
        // whom it likes.
        .path("/")
        .http_only(true)
        // It has to come along when the provider, another site, sends the browser back.
        .same_site(SameSite::Lax)
        .secure(state.secure_cookies)
        .finish()
}

fn removal(state: &State, name: String) -> Cookie<'static> {
    let mut removal = cookie(state, name, String::new());
    removal.make_removal();
    removal
}

/// A path that no browser reads as another site, of a page, not of a call.
fn is_path_here(path: &str) -> bool {
    let mut segments = path.split(['?', '#']).next().unwrap_or_default().split('/').skip(1);
    // Browsers take these out, and decode what is encoded in them.
    let is_dots = |segment: &str| [".", ".."].contains(&&*segment.to_ascii_lowercase().replace("%2e", "."));
    let is_call = |first: &str| first == "api" || first.contains('%');
    path.len() <= PATH_MAX
        && path.starts_with('/')
        && !path.starts_with("//")
        && !path.chars().any(|letter| letter == '\\' || letter.is_control())
        && !segments.clone().any(is_dots)
        && !segments.next().is_some_and(is_call)
}

/// What the provider puts into the address.
#[derive(Deserialize, JsonSchema)]
struct Back {
    /// Of the try.
    state: String,
    /// For the ID token.
    code: Option<String>,
    /// Why there is no code.
    error: Option<String>,
}

async fn come_back(
    _: Anyone,
    state: Data<State>,
    request: HttpRequest,
    query: Query<Back>,
) -> Result<HttpResponse, Problem> {
    let name = cookie_name(&state, &query.0.state);
    let answer = receive(&state, &request, query.0).await;
    // Who tries too often may come again with it.
    let is_over = !matches!(answer, Err(Problem::TooMany { .. }));
    let mut response = for_people(&request, answer).unwrap_or_else(HttpResponse::from_error);
    if is_over && request.cookie_raw(&name).is_some() {
        response.add_cookie(&removal(&state, name)).map_err(|error| Problem::Internal(error.to_string()))?;
    }
    Ok(response)
}

async fn receive(state: &State, request: &HttpRequest, back: Back) -> Result<HttpResponse, Problem> {
    let provider = of(state)?;
    state.tries.count(&address(request), "")?;
    let state_sha256 = sha256(&back.state);
    let (claimed, return_to, ends_at) = match claimed(state, provider, request, back).await {
        Ok(claimed) => claimed,
        Err(problem) => return Err(refused(state, request, "", problem)),
    };
    let user = match admitted(state, provider, request, &claimed).await {
        Ok(user) => user,
        Err(problem) => {
            // Nobody acts under a name that is not his yet.
            let object = format!("provider:{}", claimed.name.as_deref().unwrap_or(&claimed.subject));
            return Err(refused(state, request, &object, problem));
        }
    };
    // The provider takes a code once; should it take two at the same instant, one of them begins a session.
    let proof = Proof::Provider(UsedSignIn { state_sha256: &state_sha256, ends_at });
    let Some((_, session)) = begin(state, request, (user.id, user.revision), &user.name, proof).await? else {
        return Err(refused(state, request, &format!("user:{}", user.name), Problem::SignInOver));
    };
    // The cookie of a session is not sent with what another site began; with what this page begins it is.
    let markup = page("Signed in", Some(&return_to), &html! { p { a href=(return_to) { "Go on" } } });
    Ok(HttpResponse::Ok().content_type(ContentType::html()).cookie(session).body(markup))
}

/// Whom the provider names, where he goes on, and when his sign-in would be over. That a cookie that was copied is not used
/// again is up to the provider, which takes a code once, and to the store, which begins one session by a state.
async fn claimed(
    state: &State,
    provider: &Provider,
    request: &HttpRequest,
    back: Back,
) -> Result<(Claimed, String, i64), Problem> {
    // Raw: browsers hold a cookie to the prefix of its name as it is written, not as it can be decoded.
    let cookie = request.cookie_raw(&cookie_name(state, &back.state)).ok_or(Problem::SignInOver)?;
    let sign_in = state.sign_ins.open(&back.state, cookie.value(), now()).ok_or(Problem::SignInOver)?;
    let (return_to, ends_at) = (sign_in.return_to.clone(), sign_in.ends_at);
    let code = back.code.filter(|_| back.error.is_none()).ok_or_else(|| {
        let why = back.error.as_deref().unwrap_or("it gives no code");
        Problem::NotAdmitted(format!("The provider did not sign you in: {why}."))
    })?;
    Ok((provider.person(code, sign_in).await?, return_to, ends_at))
}

/// The user whom the provider means, with the role of his groups; he is made where he is new.
async fn admitted(
    state: &State,
    provider: &Provider,
    request: &HttpRequest,
    claimed: &Claimed,
) -> Result<User, Problem> {
    let who = (claimed.issuer.as_str(), claimed.subject.as_str());
    let (address, request_id) = (&address(request), &request_id(request));
    // Somebody else may change him meanwhile.
    for _ in 0..3 {
        let user = state.store.user_of_provider(who, now(), state.session_life).await?;
        let role = match (&claimed.role, &user) {
            (Ok(Some(role)), _) => *role,
            // It may be a mistake at the provider, or in our settings: nothing ends by it.
            (Err(why), _) => return Err(Problem::NotAdmitted(why.clone())),
            (Ok(None), None) => return Err(Problem::NotAdmitted(provider.without_role())),
            (Ok(None), Some(user)) => {
                let why = provider.without_role();
                let object = format!("user:{}", user.name);
                let line = Audit {
                    actor: &user.name,
                    address,
                    action: "user.shut_out",
                    object: &object,
                    result: &why,
                    request_id,
                };
                if state.store.shut_out(user.id, &user.name, line).await? {
                    state.session_ended.send_replace(());
                }
                return Err(Problem::NotAdmitted(why));
            }
        };
        let Some(user) = user else {
            let name = claimed.name.as_deref().ok_or_else(nameless)?;
            let (object, result) = (format!("user:{name}"), format!("done: {}, by the provider", role.name()));
            let (action, object, result) = ("user.add", &object, &result);
            let line = Audit { actor: name, address, action, object, result, request_id };
            let means = Means::Provider { issuer: who.0, subject: who.1 };
            let is_added = state.store.add_user((name, role, means), now(), line).await?;
            if !is_added && state.store.user_of_provider(who, now(), state.session_life).await?.is_none() {
                return Err(taken(name));
            }
            continue;
        };
        if user.role == role {
            return Ok(user);
        }
        let object = format!("user:{}", user.name);
        let result = format!("done: {} to {}, by the groups at the provider", user.role.name(), role.name());
        let (actor, action, object, result) = (&user.name, "user.role", &object, &result);
        let line = Audit { actor, address, action, object, result, request_id };
        let edit = Edit { role: Some(role), ..Edit::default() };
        match state.store.change_user((user.id, user.revision), edit, &[line]).await? {
            Outcome::Done => {
                state.session_ended.send_replace(());
            }
            Outcome::Changed => {}
            Outcome::LastAdministrator => {
                return Err(Problem::LastOfItsKind(format!("The administrator `{}`", user.name)));
            }
        }
    }
    Err(Problem::SignInOver)
}

fn nameless() -> Problem {
    Problem::NotAdmitted(
        "The provider gives no name that a user can have: in `preferred_username`, `email` or `sub`, before an `@`, letters a-z \
         first, then a-z, 0-9, `_`, `.` and `-`, 32 at most."
            .to_owned(),
    )
}

fn taken(name: &str) -> Problem {
    Problem::NotAdmitted(format!(
        "There is a user `{name}` already, who is not you at the provider. An administrator removes that one, or you get another \
         name at the provider."
    ))
}

/// Writes the refusal into the audit log.
fn refused(state: &State, request: &HttpRequest, object: &str, problem: Problem) -> Problem {
    let (address, result, request_id) = (&address(request), &problem.to_string(), &request_id(request));
    let line = Audit { actor: "", address, action: "session.begin", object, result, request_id };
    state.refusals.write(state.audit_log(), line);
    request.extensions_mut().insert(Written);
    problem
}

/// Who looks at the answer in a browser is told by a page why there is none.
fn for_people(request: &HttpRequest, answer: Result<HttpResponse, Problem>) -> Result<HttpResponse, Problem> {
    let accepts = request.headers().get(ACCEPT).and_then(|accepts| accepts.to_str().ok()).unwrap_or_default();
    answer.or_else(|problem| {
        if !accepts.contains("text/html") {
            return Err(problem);
        }
        let title = problem.code().row().title;
        let detail = match &problem {
            Problem::Internal(_) | Problem::Provider(_) => "The server's log says more.".to_owned(),
            problem => problem.to_string(),
        };
        let body = page(title, None, &html! { p { (detail) } p { a href="/login" { "Back to the sign-in" } } });
        let mut response = HttpResponse::from_error(problem).set_body(body.boxed());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        Ok(response)
    })
}

/// A page of its own; with `to` it goes on at once.
fn page(title: &str, to: Option<&str>, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · tidegate" }
                link rel="stylesheet" href="/docs/api.css";
                @if let Some(to) = to { meta http-equiv="refresh" content={ "0; url=" (to) }; }
            }
            body { main { h1 { (title) } (body) } }
        }
    };
    page.into_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_is_sent_nowhere_else() {
        for path in ["/", "/tiers/pro?domain=x#y", "/a//b", "/clients/ip:10.0.0.0%2F8", "/über"] {
            assert!(is_path_here(path), "{path}");
        }
        let long = format!("/{}", "x".repeat(PATH_MAX));
        for path in [
            "",
            "tiers",
            "//evil.example",
            "/api/v1/audit/export",
            "/api",
            "/./api/v1/audit/export",
            "/x/../api/v1/audit/export",
            "/%2E/api/v1/audit/export",
            "/x/.%2e/api/v1/audit/export",
            "/%61pi/v1/audit/export",
            "/%5Cevil.example",
            "/.//evil.example",
            "/\\evil.example",
            "/\t/evil.example",
            "/x\n",
            "\t//evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            " /tiers",
            &long,
        ] {
            assert!(!is_path_here(path), "{path}");
        }
    }
}
