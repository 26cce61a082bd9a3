//! Tokens, with which scripts and nodes sign in.

use actix_web::web::{Data, Json, Path};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;

use crate::{
    base::{
        secrets::{self, instant, now, secret},
        sha256::sha256,
    },
    domain::{
        error::Problem,
        objects::Kind,
        roles::{Admin, May, Role},
    },
    http::{
        extract::{
            body::Body,
            paging::{List, Page},
            query::Query,
        },
        guard::By,
        openapi::{Api, Created, NoContent, PREFIX},
        problem::Code,
        state::State,
    },
    store::tokens::{self, Added},
};

/// How long a token lives unless its end is given, in days.
const DAYS: i64 = 90;
const DAY_S: i64 = 24 * 60 * 60;
/// How long one that is replaced goes on beside the new one, in seconds.
const OVERLAP_S: i64 = DAY_S;
/// Tokens of everybody together.
const COUNT_MAX: i64 = 10_000;
const NAME_CHARACTERS_MAX: usize = 64;
/// No control characters, and nothing but them at neither end.
const NAME_PATTERN: &str = r"^[A-Za-z0-9]([A-Za-z0-9 ._@/-]*[A-Za-z0-9])?$";

pub(super) fn calls(api: &mut Api) {
    api.about("Tokens", "With which scripts and nodes sign in: `Authorization: Bearer tg_...`.");
    api.get("/tokens", tokens).says("Tokens that have not ended, newest first", "Without their secrets.");
    api.post("/tokens", make)
        .says(
            "Make a token",
            "Of a `role`, which is at most one's own, or of the scope `node`. Its secret is in this answer, and is never shown \
             again. A name is given once, since what a token did stays under it: one that ended keeps its name. Unless `ends_at` \
             is given it ends after 90 days; `null` is the choice of no end.",
        )
        .example(json!({ "name": "ci", "role": "editor", "kinds": ["tier", "rule"] }))
        .refuses(&[Code::Full]);
    api.delete("/tokens/{id}", remove).says("Revoke a token", "At once.").with("id", "Its id.");
    api.post("/tokens/{id}/replace", replace)
        .says(
            "Replace a token",
            "By a new one of the same name, which may the same and lives as long; the old one ends after 24 hours, and is not \
             replaced again.",
        )
        .with("id", "Its id.")
        .refuses(&[Code::Full, Code::Replaced]);
}

/// What a token may that is no role.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Scope {
    /// What nodes of the fleet need, and nothing else.
    Node,
}

/// A token that is to be made.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewToken {
    /// What it is for.
    #[schemars(length(min = 1, max = NAME_CHARACTERS_MAX), regex(pattern = NAME_PATTERN))]
    name: String,
    /// This or a scope.
    role: Option<Role>,
    /// This or a role.
    scope: Option<Scope>,
    /// Of the objects that it may change, where its role is `editor`; unless given, all.
    kinds: Option<Vec<Kind>>,
    /// RFC 3339; `null`: it has no end. In 90 days unless given.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    ends_at: End,
}

/// When a token is to end.
#[derive(Default)]
enum End {
    /// Nothing was said.
    #[default]
    Usual,
    Never,
    /// RFC 3339.
    At(String),
}

impl<'de> Deserialize<'de> for End {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(|end| end.map_or(Self::Never, Self::At))
    }
}

/// A token.
#[derive(Serialize, JsonSchema)]
struct Token {
    id: String,
    name: String,
    /// `null`: it has a scope instead.
    role: Option<Role>,
    scope: Option<Scope>,
    /// Of the objects that it may change; `null`: all that its role may.
    kinds: Option<Vec<Kind>>,
    made_by: String,
    #[schemars(extend("format" = "date-time"))]
    made_at: String,
    /// `null`: never.
    #[schemars(extend("format" = "date-time"))]
    ends_at: Option<String>,
    /// To the minute; `null`: never.
    #[schemars(extend("format" = "date-time"))]
    last_used_at: Option<String>,
    last_used_address: Option<String>,
    /// When another of the same name was made in its place; `null`: none was.
    #[schemars(extend("format" = "date-time"))]
    replaced_at: Option<String>,
}

impl From<tokens::Token> for Token {
    fn from(token: tokens::Token) -> Self {
        let at = |seconds: i64| (seconds != 0).then(|| instant(seconds));
        let (role, scope) = match token.may {
            May::Role(role) => (Some(role), None),
            May::Node => (None, Some(Scope::Node)),
        };
        Self {
            id: token.id,
            name: token.name,
            role,
            scope,
            kinds: token.kinds,
            made_by: token.made_by,
            made_at: instant(token.made_at),
            ends_at: at(token.ends_at),
            last_used_at: at(token.last_used_at),
            last_used_address: Some(token.last_used_address).filter(|address| !address.is_empty()),
            replaced_at: at(token.replaced_at),
        }
    }
}

/// A token that was made just now.
#[derive(Serialize, JsonSchema)]
struct Made {
    #[serde(flatten)]
    token: Token,
    /// Shown this once.
    secret: String,
}

async fn tokens(_: By<Admin>, state: Data<State>, page: Query<Page>) -> Result<Json<List<Token>>, Problem> {
    let tokens = state.store.tokens(now()).await?.into_iter().map(Token::from).collect();
    Ok(Json(page.along(tokens, |token| &token.id)?))
}

async fn make(by: By<Admin>, state: Data<State>, body: Body<NewToken>) -> Result<Created<Made>, Problem> {
    let NewToken { name, role, scope, kinds, ends_at } = body.value;
    if !is_name(&name) {
        let message = "letters, digits, spaces and `._@/-`, a letter or digit at both ends, 64 characters at most";
        return Err(Problem::field("/name", message));
    }
    let may = match (role, scope) {
        (Some(role), None) => May::Role(role),
        (None, Some(Scope::Node)) => May::Node,
        _ => return Err(Problem::field("/role", "give it a `role` or a `scope`")),
    };
    if role > by.role() {
        return Err(Problem::field("/role", "at most your own"));
    }
    let kinds = kinds.map(|mut kinds| {
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    });
    if kinds.as_ref().is_some_and(|kinds| kinds.is_empty() || role != Some(Role::Editor)) {
        return Err(Problem::field("/kinds", "one or more, of a token of the role `editor`"));
    }
    let made_at = now();
    let ends_at = match ends_at {
        End::Usual => made_at + DAYS * DAY_S,
        End::Never => 0,
        End::At(end) => match end.parse::<Timestamp>() {
            Ok(end) if end.as_second() > made_at => end.as_second(),
            Ok(_) => return Err(Problem::field("/ends_at", "it would have ended already; give a later end")),
            Err(error) => return Err(Problem::field("/ends_at", error.to_string())),
        },
    };
    let token = new(&by, name, may, kinds, (made_at, ends_at))?;
    add(&by, &state, token, None).await
}

/// The new one lives as long as the old one was to, from now: the end of one that was not replaced is the one that it was made
/// with.
async fn replace(by: By<Admin>, state: Data<State>, id: Path<String>) -> Result<Created<Made>, Problem> {
    let made_at = now();
    let old = state.store.token(checked(&id)?, made_at).await?.ok_or_else(|| absent(&id))?;
    let ends_at = if old.ends_at == 0 { 0 } else { made_at + (old.ends_at - old.made_at) };
    let token = new(&by, old.name, old.may, old.kinds, (made_at, ends_at))?;
    add(&by, &state, token, Some(&id)).await
}

fn new(
    by: &By<Admin>,
    name: String,
    may: May,
    kinds: Option<Vec<Kind>>,
    (made_at, ends_at): (i64, i64),
) -> Result<tokens::Token, Problem> {
    let id = secret().map_err(random)?;
    Ok(tokens::Token {
        id: id.chars().take(16).collect(),
        name,
        may,
        kinds,
        // A token that a token made goes when its maker's maker goes.
        made_by: by.behind.clone(),
        made_at,
        ends_at,
        last_used_at: 0,
        last_used_address: String::new(),
        replaced_at: 0,
    })
}

async fn add(
    by: &By<Admin>,
    state: &State,
    token: tokens::Token,
    replaces: Option<&str>,
) -> Result<Created<Made>, Problem> {
    let secret = secrets::token().map_err(random)?;
    let result = match replaces {
        None => format!("{}, {}", token.name, token.may.name()),
        Some(old) => format!("{}, {}, in place of {old}", token.name, token.may.name()),
    };
    let action = if replaces.is_some() { "token.replace" } else { "token.make" };
    let (object, result) = (format!("token:{}", token.id), format!("done: {result}"));
    let line = by.did(action, &object, &result);
    let ends = replaces.map(|id| (id, token.made_at + OVERLAP_S));
    match state.store.add_token(&token, &sha256(&secret), ends, COUNT_MAX, line).await? {
        Added::Done => {}
        Added::Full => return Err(Problem::Full(format!("{COUNT_MAX} tokens are kept; revoke some first."))),
        Added::Absent => return Err(absent(replaces.unwrap_or_default())),
        Added::Replaced => return Err(Problem::Replaced(replaces.unwrap_or_default().to_owned())),
        Added::NameTaken => {
            let message = "another token has this name, or had it, and what it did is under it; take another name";
            return Err(Problem::field("/name", message));
        }
    }
    Ok(Created { location: format!("{PREFIX}/tokens/{}", token.id), body: Made { token: token.into(), secret } })
}

async fn remove(by: By<Admin>, state: Data<State>, id: Path<String>) -> Result<NoContent, Problem> {
    let object = format!("token:{}", checked(&id)?);
    let line = by.did("token.revoke", &object, "done");
    if !state.store.remove_token(&id, line).await? {
        return Err(absent(&id));
    }
    // Its event streams end too.
    state.session_ended.send_replace(());
    Ok(NoContent)
}

fn random(error: getrandom::Error) -> Problem {
    Problem::Internal(format!("random numbers: {error}"))
}

fn absent(id: &str) -> Problem {
    Problem::NotFound(format!("There is no token `{id}`; it may have ended."))
}

/// What a database may not even take as text is not there.
fn checked(id: &str) -> Result<&str, Problem> {
    let is_id = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_id { Ok(id) } else { Err(absent(id)) }
}

/// As the pattern says.
fn is_name(name: &str) -> bool {
    let ends = [name.chars().next(), name.chars().next_back()];
    name.len() <= NAME_CHARACTERS_MAX
        && ends.iter().all(|end| end.is_some_and(|c| c.is_ascii_alphanumeric()))
        && name.chars().all(|c| c.is_ascii_alphanumeric() || " ._@/-".contains(c))
}
