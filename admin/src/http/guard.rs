//! Authentication and permissions of the calls under `/api/v1`: the guard finds the caller, and the first argument of each handler
//! says which role it needs.
//!
//! People come with the cookie of their session, and to change something with its token in a header besides, which no other
//! site can send. Scripts and nodes come with a token of their own, which no browser sends by itself.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    marker::PhantomData,
    ops::Deref,
    rc::Rc,
};

use actix_web::{
    Error, FromRequest, HttpMessage, HttpRequest,
    body::{BodySize, BoxBody, MessageBody},
    dev::{Payload, ServiceRequest, ServiceResponse},
    http::{
        Method,
        header::{AUTHORIZATION, HeaderValue},
    },
    middleware::Next,
    web,
};

use crate::{
    auth::principal::{Credential, Who, sender_of},
    base::{
        caller::{self, working_for},
        secrets::{TOKEN_PREFIX, now},
        sha256::sha256,
    },
    capacity::body_budget::FREE_BYTES,
    domain::{
        error::Problem,
        roles::{May, Need, Permission, Person},
    },
    http::{client_address::address, held_body::HeldBody, request_id::request_id, state::State},
    store::{audit::Audit, sessions::Session},
};

pub(crate) const CSRF_HEADER: &str = "x-csrf-token";

/// Does this only look?
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Who asks; found out once for each request.
#[derive(Clone)]
struct Found {
    /// Or why nobody is known.
    who: Result<Rc<Who>, Problem>,
    /// He would change something by a session, without its own token.
    is_forged: bool,
}

/// Returns the sender that this request counts for: the user who sends it, or who made the token that does. A token of nodes counts
/// for itself, so a fleet takes nothing of the share of the user who made that token.
pub(crate) fn sender(request: &HttpRequest) -> Option<String> {
    let found = request.extensions();
    let who = found.get::<Found>()?.who.as_ref().ok()?;
    Some(sender_of(who.may, &who.name, &who.behind).to_owned())
}

/// Refuses a request whose sender may not do what needs this. Returns the sender, where one is needed.
pub(crate) fn check(request: &HttpRequest, need: Need) -> Result<Option<Rc<Who>>, Problem> {
    if need == Need::Nothing {
        return Ok(None);
    }
    let found = request.extensions().get::<Found>().cloned().ok_or(Problem::Unauthorized)?;
    let who = found.who?;
    if found.is_forged {
        return Err(Problem::Csrf);
    }
    who.check(need)?;
    Ok(Some(who))
}

/// Somebody who may make a call that needs `P`: the first argument of its handler.
#[derive(Debug)]
pub(crate) struct By<P> {
    who: Rc<Who>,
    permission: PhantomData<P>,
}

impl<P> Deref for By<P> {
    type Target = Who;

    fn deref(&self) -> &Who {
        &self.who
    }
}

impl<P> By<P> {
    pub(crate) fn who(&self) -> Rc<Who> {
        Rc::clone(&self.who)
    }
}

impl By<Person> {
    pub(crate) fn session(&self) -> Result<&Session, Problem> {
        match &self.by {
            Credential::Session(session) => Ok(session),
            Credential::Token(_) => Err(Problem::Unauthorized),
        }
    }
}

impl<P: Permission> FromRequest for By<P> {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let who = check(request, P::NEED).and_then(|who| who.ok_or(Problem::Unauthorized));
        ready(who.map(|who| Self { who, permission: PhantomData }))
    }
}

/// The first argument of a handler that is open to everybody.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anyone;

impl FromRequest for Anyone {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(_: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self))
    }
}

/// Marks a request of a call that anyone may make, which therefore takes a small body only.
pub(crate) struct OpenCall;

/// Of a request whose refusal its handler has had written, with more than the guard knows.
pub(crate) struct Written;

/// The guard.
pub(crate) async fn guard(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let found = find(&request).await;
    request.extensions_mut().insert(found.clone());
    let caller = caller::name(sender(request.request()).as_deref(), &address(request.request()));
    let response = working_for(caller, next.call(request)).await?.map_into_boxed_body();
    let problem = response.response().error().and_then(|error| error.as_error::<Problem>());
    let is_written = response.request().extensions().contains::<Written>();
    if let Some(problem) = problem.filter(|problem| is_refusal(problem) && !is_written) {
        write(response.request(), found.who.as_deref().ok(), &problem.to_string());
    }
    // Strangers get short answers, and one that all share. What was changed is told in any case.
    let is_held = is_safe(response.request().method());
    Ok(match found.who {
        Ok(who) if is_held => held(response, &who.behind),
        _ => response,
    })
}

/// Has a long answer hold its part of the memory for answers until it is sent, or refuses it.
fn held(response: ServiceResponse<BoxBody>, user: &str) -> ServiceResponse<BoxBody> {
    let BodySize::Sized(bytes) = response.response().body().size() else { return response };
    let Some(state) = response.request().app_data::<web::Data<State>>().cloned() else { return response };
    if bytes <= FREE_BYTES as u64 {
        return response;
    }
    match state.answers.answer_permit(user, bytes as usize) {
        Ok(permit) => response.map_body(|_, body| BoxBody::new(HeldBody::new(body, permit))),
        Err(problem) => response.error_response(problem),
    }
}

/// Is it for the audit log? Who shows nothing at all is not.
fn is_refusal(problem: &Problem) -> bool {
    matches!(
        problem,
        Problem::Forbidden(_)
            | Problem::Csrf
            | Problem::UnknownToken
            | Problem::UnknownSession
            | Problem::TooMany { .. }
            | Problem::OwnAccount(_)
            | Problem::LastOfItsKind(_)
            | Problem::ByProvider(_)
    )
}

/// Has a refusal written.
fn write(request: &HttpRequest, who: Option<&Who>, result: &str) {
    let Some(state) = request.app_data::<web::Data<State>>() else { return };
    let (address, object) = (address(request), format!("{} {}", request.method(), request.path()));
    let actor = who.map_or("", |who| &who.name);
    let request_id = &request_id(request);
    let line = Audit { actor, address: &address, action: "refused", object: &object, result, request_id };
    state.refusals.write(state.audit_log(), line);
}

async fn find(request: &ServiceRequest) -> Found {
    let nobody = |problem| Found { who: Err(problem), is_forged: false };
    let Some(state) = request.app_data::<web::Data<State>>() else {
        return nobody(Problem::Internal("the state is missing".to_owned()));
    };
    let (address, request_id) = (address(request.request()), request_id(request.request()));
    if let Some(secret) = request.headers().get(AUTHORIZATION).and_then(secret_of) {
        let who = of_token(state, secret, address, request_id).await.map(Rc::new);
        return Found { who, is_forged: false };
    }
    // A browser that was signed out may send an empty one.
    // Raw: browsers hold a cookie to the prefix of its name as it is written, not as it can be decoded.
    let Some(cookie) = request.cookie_raw(&state.cookie).filter(|cookie| !cookie.value().is_empty()) else {
        return nobody(Problem::Unauthorized);
    };
    match of_session(request, state, cookie.value(), (address, request_id)).await {
        Ok((who, is_forged)) => Found { who: Ok(Rc::new(who)), is_forged },
        Err(problem) => nobody(problem),
    }
}

/// Whose session it is, and whether the request is forged.
async fn of_session(
    request: &ServiceRequest,
    state: &State,
    token: &str,
    (address, request_id): (String, String),
) -> Result<(Who, bool), Problem> {
    let id = sha256(token);
    let found = state.secret_lookups.session(&state.store, (&id, state.session_life), &address, None).await?;
    let Some(session) = found else {
        state.tries.count_secret(&address)?;
        return Err(Problem::UnknownSession);
    };
    // Digests are compared, which tells nothing about the token by its time.
    let csrf = request.headers().get(CSRF_HEADER).map(|token| sha256(token.as_bytes()));
    let is_forged = !is_safe(request.method()) && csrf != Some(sha256(&session.csrf));
    let id = &session.token_sha256;
    if !is_forged && state.seen.is_due(id, session.last_seen_at, now()) {
        let (store, id, user, address) = (state.apart.clone(), id.clone(), session.user, address.clone());
        note(state, async move { store.saw_session(&id, user, &address, now()).await });
    }
    let (name, may) = (session.name.clone(), May::Role(session.role));
    let by = Credential::Session(session);
    Ok((Who { behind: name.clone(), name, address, request_id, may, kinds: None, by }, is_forged))
}

/// The secret of one of our tokens. A proxy may have sent another header of this name along.
fn secret_of(authorization: &HeaderValue) -> Option<&str> {
    let (scheme, secret) = authorization.to_str().ok()?.split_once(' ')?;
    Some(secret.trim()).filter(|secret| scheme.eq_ignore_ascii_case("bearer") && secret.starts_with(TOKEN_PREFIX))
}

async fn of_token(state: &State, secret: &str, address: String, request_id: String) -> Result<Who, Problem> {
    let id = sha256(secret);
    let Some(token) = state.secret_lookups.token(&state.store, &id, &address, None).await? else {
        state.tries.count_secret(&address)?;
        return Err(Problem::UnknownToken);
    };
    let name = token.full_name();
    if state.seen.is_due(&id, token.last_used_at, now()) {
        let (store, id, name) = (state.apart.clone(), token.id.clone(), name.clone());
        let from = (address.clone(), request_id.clone());
        note(state, async move { store.saw_token(&id, &name, (&from.0, &from.1), now()).await });
    }
    let by = Credential::Token(id);
    Ok(Who { name, behind: token.made_by, address, request_id, may: token.may, kinds: token.kinds, by })
}

/// Queues a note of when the credential was used last. The request neither waits for it nor fails with it.
fn note(state: &State, written: impl Future<Output = sqlx::Result<()>> + Send + 'static) {
    state.beside.write(async move {
        if let Err(error) = written.await {
            tracing::warn!(%error, "when a credential was used last is not written");
        }
    });
}

/// Returns why the credential of this caller no longer holds, if it does not. It is looked up in the turn of its user:
/// a user may have many streams, and strangers at the same address do not delay the lookup.
pub(crate) async fn still(state: &State, who: &Who) -> Result<Option<&'static str>, Problem> {
    let (lookups, store, address) = (&state.secret_lookups, &state.store, &who.address);
    let sender = sender_of(who.may, &who.name, &who.behind);
    let session = match &who.by {
        Credential::Token(id) => {
            return Ok(lookups.token(store, id, address, Some(sender)).await?.is_none().then_some("token ended"));
        }
        Credential::Session(session) => session,
    };
    let id = (&*session.token_sha256, state.session_life);
    if lookups.session(store, id, address, Some(sender)).await?.is_some() {
        return Ok(None);
    }
    let _turn = state.store.reads.turn_of(&caller::name(Some(sender), address)).await?;
    Ok(Some(match store.role_of(session.user).await? {
        Some(role) if role != session.role => "role changed",
        _ => "session ended",
    }))
}
