//! Users and their sessions, as administrators see them.

use actix_web::web::{Data, Json, Path};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    auth::{
        passwords,
        user_rules::{self, NAME_PATTERN, is_name},
    },
    base::secrets::{instant, now},
    domain::{
        error::{Conflicting, Present, Problem},
        roles::{Admin, Role, Viewer},
    },
    http::{
        extract::{
            body::Body,
            paging::{Find, List, Nothing, Page},
            query::Query,
        },
        guard::By,
        openapi::{Api, Created, IfMatch, NoContent, PREFIX, Tagged},
        problem::Code,
        routes::{second_factor, session::ID_CHARACTERS},
        state::State,
    },
    store::{
        audit::Audit,
        sessions::{self, Ending},
        users::{self, Edit, Means, Outcome},
    },
};

const NAME: &str = "The user's name.";

pub(super) fn calls(api: &mut Api) {
    api.about("Users", "Who may sign in, and what each may.");
    api.get("/roles", roles).says("Roles, from the least to the most", "Each may what those before it may.");
    api.get("/users", users).says("Users", "By name.");
    api.post("/users", add)
        .says("Add a user", "The password has 12 characters or more, and is none that anybody would try first.")
        .example(json!({ "name": "ben", "role": "editor", "password": "a few words of mine" }))
        .refuses(&[Code::Conflict, Code::TooMany]);
    api.get("/users/{id}", user).says("A user", "").with("id", NAME);
    api.patch("/users/{id}", change)
        .says(
            "Change a user's role, or give him a new password",
            "His sessions end. Where the role is a lower one, the tokens that he made for a higher one are revoked. One's own \
             account and the last administrator stay what they are. Who signs in by the provider has his role from there, and no \
             password.",
        )
        .with("id", NAME)
        .example(json!({ "role": "viewer" }))
        .refuses(&[
            Code::PreconditionRequired,
            Code::LastOfItsKind,
            Code::OwnAccount,
            Code::ByProvider,
            Code::TooMany,
        ]);
    api.delete("/users/{id}", remove)
        .says(
            "Remove a user",
            "With his sessions, and the tokens that he made but those of nodes. Nobody removes himself or the last administrator.",
        )
        .with("id", NAME)
        .refuses(&[Code::PreconditionRequired, Code::LastOfItsKind, Code::OwnAccount]);
    api.get("/users/{id}/sessions", sessions)
        .says("Sessions of a user", "The one that was used last first.")
        .with("id", NAME);
    api.delete("/users/{id}/sessions", end_all).says("Sign a user out everywhere", "").with("id", NAME);
    api.delete("/users/{id}/sessions/{session}", end_one)
        .says("End a session of a user", "")
        .with("id", NAME)
        .with("session", "Its id.");
    api.delete("/users/{id}/second-factor", remove_second_factor)
        .says(
            "Remove a user's second factor",
            "For a user who has lost it: the password alone signs in then. One's own takes one's password.",
        )
        .with("id", NAME)
        .refuses(&[Code::OwnAccount]);
}

/// A role.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RoleItem")]
struct RoleItem {
    id: Role,
    /// What it may beyond those before it.
    may: &'static str,
}

async fn roles(_: By<Viewer>) -> Json<List<RoleItem>> {
    let may = |role| match role {
        Role::Viewer => "see everything but secrets; try policies",
        Role::Operator => {
            "reset and watch keys; send test requests; send a node its policy again; give clients overrides and blocks of at most 24 hours"
        }
        Role::Editor => "change the policy: publish, roll back, import, share drafts",
        Role::Admin => "manage users, tokens and nodes; take the audit log out",
    };
    let items = Role::ALL.map(|id| RoleItem { id, may: may(id) }).into();
    Json(List { about: Nothing {}, items, next: None })
}

/// A user.
#[derive(Serialize, JsonSchema)]
struct User {
    /// His name.
    id: String,
    etag: String,
    role: Role,
    /// How he signs in.
    signs_in: SignsIn,
    /// Does a sign-in take a code as well?
    has_second_factor: bool,
    #[schemars(extend("format" = "date-time"))]
    made_at: String,
    /// To the minute; `null`: never.
    #[schemars(extend("format" = "date-time"))]
    last_seen_at: Option<String>,
    /// How many have not ended.
    sessions: i64,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum SignsIn {
    Password,
    /// By the provider: his role follows his groups there.
    Provider,
    /// No person: a script or a node, which shows it with each request.
    Token,
}

impl SignsIn {
    pub(super) fn of(user: &users::User) -> Self {
        if user.issuer.is_empty() { Self::Password } else { Self::Provider }
    }
}

impl From<users::User> for User {
    fn from(user: users::User) -> Self {
        Self {
            etag: etag(&user),
            signs_in: SignsIn::of(&user),
            has_second_factor: user.has_second_factor,
            id: user.name,
            role: user.role,
            made_at: instant(user.made_at),
            last_seen_at: (user.last_seen_at != 0).then(|| instant(user.last_seen_at)),
            sessions: user.sessions,
        }
    }
}

/// Of the row: another user of the same name has another.
fn etag(user: &users::User) -> String {
    format!("\"user:{}:{}\"", user.id, user.revision)
}

/// The user of this name.
async fn find(state: &State, name: &str) -> Result<users::User, Problem> {
    let absent = || Problem::NotFound(format!("There is no user `{name}`."));
    // What cannot be a name a database may not even take as text.
    if !is_name(name) {
        return Err(absent());
    }
    state.store.user(name, now(), state.session_life).await?.ok_or_else(absent)
}

/// The user of this name, as the caller has read him.
async fn find_tagged(state: &State, name: &str, tag: IfMatch) -> Result<users::User, Problem> {
    let user = find(state, name).await?;
    match tag.0 {
        None => Err(Problem::PreconditionRequired(vec![format!("user:{name}")])),
        Some(tag) if tag == etag(&user) => Ok(user),
        Some(_) => Err(conflict(name, Some(&user))),
    }
}

fn conflict(name: &str, present: Option<&users::User>) -> Problem {
    let present = present.map(|user| Present { etag: etag(user), value: None });
    Problem::Conflict(vec![Conflicting { kind: "user", id: Some(name.to_owned()), present, ..Conflicting::default() }])
}

async fn users(
    _: By<Admin>,
    state: Data<State>,
    page: Query<Page>,
    find: Query<Find>,
) -> Result<Json<List<User>>, Problem> {
    let users = state.store.users(now(), state.session_life).await?.into_iter().map(User::from).collect();
    Ok(Json(page.of(users, &find, |user: &User| &user.id, |_| Nothing {})?))
}

async fn user(_: By<Admin>, state: Data<State>, id: Path<String>) -> Result<Tagged<User>, Problem> {
    let user = User::from(find(&state, &id).await?);
    Ok(Tagged { etag: user.etag.clone(), body: user })
}

/// A user who is to be added.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewUser {
    #[schemars(regex(pattern = NAME_PATTERN))]
    name: String,
    role: Role,
    password: String,
}

async fn add(by: By<Admin>, state: Data<State>, body: Body<NewUser>) -> Result<Created<User>, Problem> {
    let NewUser { name, role, password } = body.value;
    user_rules::check(&name, &password)?;
    let hash = passwords::hash(password).await?;
    let (object, result) = (format!("user:{name}"), format!("done: {}", role.name()));
    let line = by.did("user.add", &object, &result);
    if !state.store.add_user((&name, role, Means::Password(&hash)), now(), line).await? {
        return Err(conflict(&name, Some(&find(&state, &name).await?)));
    }
    let user = find(&state, &name).await?;
    Ok(Created { location: format!("{PREFIX}/users/{name}"), body: user.into() })
}

/// What of a user is to be other.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UserChange {
    role: Option<Role>,
    password: Option<String>,
}

async fn change(
    by: By<Admin>,
    state: Data<State>,
    tag: IfMatch,
    id: Path<String>,
    body: Body<UserChange>,
) -> Result<Tagged<User>, Problem> {
    let user = find_tagged(&state, &id, tag).await?;
    let UserChange { role, password } = body.value;
    if by.is_user(&user.name) {
        return Err(Problem::OwnAccount("Another administrator changes your role; /me/password your password."));
    }
    user_rules::check_password_user(&user)?;
    let hash = match password {
        None => None,
        Some(password) => {
            if let Some(why) = passwords::refuse(&password) {
                return Err(Problem::field("/password", why));
            }
            Some(passwords::hash(password).await?)
        }
    };
    let object = format!("user:{}", user.name);
    let role_result = role.map(|role| format!("done: {} to {}", user.role.name(), role.name()));
    let role_line = role_result.as_ref().map(|result| by.did("user.role", &object, result));
    let password_line = hash.as_ref().map(|_| by.did("user.password", &object, "done"));
    let lines: Vec<Audit<'_>> = role_line.into_iter().chain(password_line).collect();
    if lines.is_empty() {
        return Err(Problem::field("", "give a `role` or a `password`"));
    }
    let edit = Edit { role, password_hash: hash.as_deref(), but_session: "" };
    let outcome = state.store.change_user((user.id, user.revision), edit, &lines).await?;
    done(&state, &user.name, outcome).await?;
    let user = User::from(find(&state, &id).await?);
    Ok(Tagged { etag: user.etag.clone(), body: user })
}

async fn remove(by: By<Admin>, state: Data<State>, tag: IfMatch, id: Path<String>) -> Result<NoContent, Problem> {
    let user = find_tagged(&state, &id, tag).await?;
    if by.is_user(&user.name) {
        return Err(Problem::OwnAccount("Another administrator removes your account."));
    }
    let object = format!("user:{}", user.name);
    let outcome = state.store.remove_user((user.id, user.revision), by.did("user.remove", &object, "done")).await?;
    done(&state, &user.name, outcome).await?;
    Ok(NoContent)
}

/// What a change came to, for the caller and for the streams of those whom it was about.
async fn done(state: &State, name: &str, outcome: Outcome) -> Result<(), Problem> {
    match outcome {
        Outcome::Done => {
            state.session_ended.send_replace(());
            Ok(())
        }
        Outcome::Changed => Err(conflict(name, find(state, name).await.ok().as_ref())),
        Outcome::LastAdministrator => Err(Problem::LastOfItsKind(format!("The administrator `{name}`"))),
    }
}

/// A session.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionItem")]
pub(super) struct SessionItem {
    id: String,
    #[schemars(extend("format" = "date-time"))]
    began_at: String,
    /// To the minute.
    #[schemars(extend("format" = "date-time"))]
    last_seen_at: String,
    /// When it ends unless it is used until then.
    #[schemars(extend("format" = "date-time"))]
    expires_at: String,
    /// From where it was used last.
    address: String,
    /// As it called itself when it signed in.
    browser: String,
    /// Is it the one that asks?
    is_this: bool,
}

pub(super) async fn list(
    state: &State,
    user: i64,
    page: &Page,
    this: Option<&str>,
) -> Result<Json<List<SessionItem>>, Problem> {
    let life = state.session_life;
    let item = |row: sessions::SessionRow| SessionItem {
        id: row.token_sha256.chars().take(ID_CHARACTERS).collect(),
        began_at: instant(row.created_at),
        last_seen_at: instant(row.last_seen_at),
        expires_at: instant(life.end(row.last_seen_at, row.expires_at)),
        address: row.address,
        browser: row.browser,
        is_this: this == Some(row.token_sha256.as_str()),
    };
    let items = state.store.sessions_of(user, now(), life).await?.into_iter().map(item).collect();
    Ok(Json(page.along(items, |session| &session.id)?))
}

async fn sessions(
    by: By<Admin>,
    state: Data<State>,
    id: Path<String>,
    page: Query<Page>,
) -> Result<Json<List<SessionItem>>, Problem> {
    let user = find(&state, &id).await?;
    list(&state, user.id, &page, by.token_of_session()).await
}

/// Ends sessions of a user.
pub(super) async fn end(
    state: &State,
    (user, name): (i64, &str),
    which: Ending<'_>,
    line: Audit<'_>,
) -> Result<NoContent, Problem> {
    let ended = state.store.end_sessions(user, which, line).await?;
    if let (0, Ending::One(id)) = (ended, which) {
        return Err(Problem::NotFound(format!("There is no session `{id}` of `{name}`; it may have ended.")));
    }
    if ended > 0 {
        state.session_ended.send_replace(());
    }
    Ok(NoContent)
}

async fn end_all(by: By<Admin>, state: Data<State>, id: Path<String>) -> Result<NoContent, Problem> {
    let user = find(&state, &id).await?;
    let object = format!("user:{}", user.name);
    end(&state, (user.id, &user.name), Ending::All, by.did("session.revoke", &object, "done: all")).await
}

async fn end_one(by: By<Admin>, state: Data<State>, ids: Path<(String, String)>) -> Result<NoContent, Problem> {
    let (id, session) = ids.into_inner();
    let user = find(&state, &id).await?;
    let object = format!("user:{}", user.name);
    end(&state, (user.id, &user.name), Ending::One(&session), by.did("session.revoke", &object, "done: one")).await
}

async fn remove_second_factor(by: By<Admin>, state: Data<State>, id: Path<String>) -> Result<NoContent, Problem> {
    let user = find(&state, &id).await?;
    if by.is_user(&user.name) {
        return Err(Problem::OwnAccount("POST /me/second-factor/remove takes your own away."));
    }
    let object = format!("user:{}", user.name);
    let line = by.did(second_factor::ACTION, &object, "done: removed");
    if state.store.remove_second_factor(user.id, line).await? {
        Ok(NoContent)
    } else {
        Err(Problem::NotFound(format!("`{}` has no second factor.", user.name)))
    }
}
