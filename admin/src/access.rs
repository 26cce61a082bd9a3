//! Who may: the guard before everything under `/api/v1` finds out who asks, and the first argument of each handler says
//! who may.
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
    body::MessageBody,
    dev::{Payload, ServiceRequest, ServiceResponse},
    http::{
        Method,
        header::{AUTHORIZATION, HeaderValue},
    },
    middleware::Next,
    rt, web,
};

use crate::{
    api::{Part, Permit},
    objects::Kind,
    problem::Problem,
    roles::{May, Need, Permission, Person, Role},
    secrets::{TOKEN_PREFIX, now},
    server::State,
    store::{Audit, Session, sha256},
};

pub(crate) const CSRF_HEADER: &str = "x-csrf-token";

/// Does this only look?
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Somebody who has shown who he is.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    /// As the audit log has it: a user's name, or `token:NAME`.
    pub(crate) name: String,
    /// The user himself, or who answers for the token.
    pub(crate) behind: String,
    /// Of the connection.
    pub(crate) address: String,
    pub(crate) may: May,
    /// Of the objects that he may change; `None`: all that his role may.
    pub(crate) kinds: Option<Vec<Kind>>,
    pub(crate) by: Credential,
}

/// What somebody has shown.
#[derive(Clone, Debug)]
pub(crate) enum Credential {
    Session(Session),
    /// SHA-256 of a token.
    Token(String),
}

impl Who {
    /// `None`: a node's token.
    pub(crate) fn role(&self) -> Option<Role> {
        match self.may {
            May::Role(role) => Some(role),
            May::Node => None,
        }
    }

    /// A line of the audit log on what he did.
    pub(crate) fn did<'a>(&'a self, action: &'a str, object: &'a str, result: &'a str) -> Audit<'a> {
        Audit { actor: &self.name, address: &self.address, action, object, result }
    }

    /// Is it this user himself?
    pub(crate) fn is_user(&self, id: i64) -> bool {
        matches!(&self.by, Credential::Session(session) if session.user == id)
    }

    /// Refuses who may not end or remove what `author` made: he himself may, and an editor.
    pub(crate) fn check_own(&self, author: &str) -> Result<(), Problem> {
        if self.name == author || self.role().is_some_and(|role| role >= Role::Editor) {
            return Ok(());
        }
        let shows = self.shows();
        Err(Problem::Forbidden(format!(
            "This is of {author}; others need the role `editor`. What you show is {shows}."
        )))
    }

    /// SHA-256 of the token of the session that asks.
    pub(crate) fn token_of_session(&self) -> Option<&str> {
        match &self.by {
            Credential::Session(session) => Some(&session.token_sha256),
            Credential::Token(_) => None,
        }
    }

    /// Refuses who may not do what needs this.
    fn check(&self, need: Need) -> Result<(), Problem> {
        let may = match need {
            Need::Nothing | Need::Known => true,
            Need::Role(needed) => self.role().is_some_and(|role| role >= needed),
            Need::Person => matches!(self.by, Credential::Session(_)),
            Need::Node => self.may == May::Node,
        };
        if may {
            return Ok(());
        }
        Err(Problem::Forbidden(format!("{} What you show is {}.", need.says(), self.shows())))
    }

    fn shows(&self) -> String {
        match (&self.by, self.may) {
            (Credential::Session(_), may) => format!("a session of the role `{}`", may.name()),
            (Credential::Token(_), May::Role(role)) => format!("a token of the role `{}`", role.name()),
            (Credential::Token(_), May::Node) => "a token of the scope `node`".to_owned(),
        }
    }
}

/// Who asks, or why nobody is known; found out once for each request.
#[derive(Clone)]
struct Found(Result<Rc<Who>, Problem>);

/// Refuses a request of somebody who may not do what needs this; answers who it is, where he is asked for.
pub(crate) fn check(request: &HttpRequest, need: Need) -> Result<Option<Rc<Who>>, Problem> {
    if need == Need::Nothing {
        return Ok(None);
    }
    let found = request.extensions().get::<Found>().cloned();
    let who = found.ok_or(Problem::Unauthorized)?.0?;
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

impl<P: Permission> Part for By<P> {}

impl<P: Permission> Permit for By<P> {
    const NEED: Need = P::NEED;
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

impl Part for Anyone {}

impl Permit for Anyone {
    const NEED: Need = Need::Nothing;
}

/// The guard.
pub(crate) async fn guard(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let found = Found(find(&request).await.map(Rc::new));
    request.extensions_mut().insert(found.clone());
    let response = next.call(request).await?;
    let problem = response.response().error().and_then(|error| error.as_error::<Problem>());
    if let Some(problem) = problem.filter(|problem| is_refusal(problem)) {
        write(response.request(), found.0.ok().as_deref(), problem.to_string());
    }
    Ok(response)
}

/// Is it for the audit log? Who shows nothing at all is not.
fn is_refusal(problem: &Problem) -> bool {
    matches!(problem, Problem::Forbidden(_) | Problem::Csrf | Problem::UnknownToken | Problem::TooMany { .. })
}

/// Writes a refusal, beside the answer.
fn write(request: &HttpRequest, who: Option<&Who>, result: String) {
    let Some(state) = request.app_data::<web::Data<State>>().cloned() else { return };
    let actor = who.map(|who| who.name.clone()).unwrap_or_default();
    let (address, object) = (address(request), format!("{} {}", request.method(), request.path()));
    rt::spawn(async move {
        let line = Audit { actor: &actor, address: &address, action: "refused", object: &object, result: &result };
        state.refusals.write(&state.store, line).await;
    });
}

async fn find(request: &ServiceRequest) -> Result<Who, Problem> {
    let state = request.app_data::<web::Data<State>>();
    let state = state.ok_or_else(|| Problem::Internal("the state is missing".to_owned()))?;
    let address = address(request.request());
    if let Some(secret) = request.headers().get(AUTHORIZATION).and_then(secret_of) {
        return of_token(state, secret, address).await;
    }
    let cookie = request.cookie(&state.cookie).ok_or(Problem::Unauthorized)?;
    let session =
        state.store.session(&sha256(cookie.value()), now(), state.session_life).await?.ok_or(Problem::Unauthorized)?;
    // Digests are compared, which tells nothing about the token by its time.
    let token = request.headers().get(CSRF_HEADER).map(|token| sha256(token.as_bytes()));
    if !is_safe(request.method()) && token != Some(sha256(&session.csrf)) {
        return Err(Problem::Csrf);
    }
    let id = &session.token_sha256;
    if state.seen.is_due(id, session.last_seen_at, now()) {
        let (store, id, user, address) = (state.store.clone(), id.clone(), session.user, address.clone());
        note(async move { store.saw_session(&id, user, &address, now()).await });
    }
    let (name, may) = (session.name.clone(), May::Role(session.role));
    Ok(Who { behind: name.clone(), name, address, may, kinds: None, by: Credential::Session(session) })
}

/// The secret of one of our tokens. A proxy may have sent another header of this name along.
fn secret_of(authorization: &HeaderValue) -> Option<&str> {
    let (scheme, secret) = authorization.to_str().ok()?.split_once(' ')?;
    Some(secret.trim()).filter(|secret| scheme.eq_ignore_ascii_case("bearer") && secret.starts_with(TOKEN_PREFIX))
}

async fn of_token(state: &State, secret: &str, address: String) -> Result<Who, Problem> {
    let id = sha256(secret);
    let token = state.store.token_of(&id, now()).await?.ok_or(Problem::UnknownToken)?;
    let name = format!("token:{}", token.name);
    if state.seen.is_due(&id, token.last_used_at, now()) {
        let (store, id, name, address) = (state.store.clone(), token.id.clone(), name.clone(), address.clone());
        note(async move { store.saw_token(&id, &name, &address, now()).await });
    }
    Ok(Who { name, behind: token.made_by, address, may: token.may, kinds: token.kinds, by: Credential::Token(id) })
}

/// Writes that somebody was here, beside his request: it does not wait for it, nor fail with it.
fn note(written: impl Future<Output = sqlx::Result<()>> + 'static) {
    rt::spawn(async move {
        if let Err(error) = written.await {
            tracing::warn!(%error, "it is not written that somebody was here");
        }
    });
}

/// Does what somebody has shown still hold? If not, why.
pub(crate) async fn still(state: &State, who: &Who) -> sqlx::Result<Option<&'static str>> {
    let ended = match &who.by {
        Credential::Token(id) => state.store.token_of(id, now()).await?.is_none().then_some("token ended"),
        Credential::Session(session) => {
            match state.store.session(&session.token_sha256, now(), state.session_life).await? {
                Some(_) => None,
                None => match state.store.role_of(session.user).await? {
                    Some(role) if role != session.role => Some("role changed"),
                    _ => Some("session ended"),
                },
            }
        }
    };
    Ok(ended)
}

/// Address of the connection, for the audit log.
pub(crate) fn address(request: &HttpRequest) -> String {
    request.peer_addr().map(|address| address.ip().to_string()).unwrap_or_default()
}
