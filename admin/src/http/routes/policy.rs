//! The policy in force, and the one call that changes it.

use std::{
    future::{Ready, ready},
    rc::Rc,
};

use actix_web::{
    FromRequest, HttpRequest, HttpResponse, Responder,
    body::BoxBody,
    dev::Payload,
    http::{
        StatusCode,
        header::{ContentType, HeaderValue},
    },
    rt,
    web::Data,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tidegate::policy::Policy;

use crate::{
    auth::principal::Who,
    capacity::work_queue::{Heavy, Written},
    domain::{
        change_list::ChangeList,
        error::Problem,
        roles::{Editor, Need, Role, Viewer},
        version::Version,
    },
    http::{
        extract::body::Body,
        guard::{self, By},
        openapi::{Answers, Api, Operation, Part, Tagged},
        problem::Code,
        state::State,
    },
    publish::{
        policy_file::Compared,
        publisher::{self, Author, IDEMPOTENCY_KEY},
    },
};

pub(super) fn calls(api: &mut Api) {
    api.about("Policy", "The whole document, and the one way to change it.");
    api.get("/policy", policy)
        .says("The newest version, with its document", "Nodes may keep another: see `GET /rollout`.");
    api.get("/policy/file", file).says(
        "The policy file of this server",
        "The file of `--policy`, read as it is now, beside the newest version; `tidegate policy diff FILE --live` shows what \
         differs.",
    );
    api.post("/policy/changes", publish)
        .says(
            "Publish a change list",
            "All of it becomes one new version, or nothing does. `if_match` names the entity tag of every object that is \
             replaced or removed, by `KIND:ID`, or `DOMAIN/KIND:ID` in another domain than `default`. If others have published \
             since `base_version`, and none of these objects, the list is applied on top, and the answer says so. A change with \
             `rename` gives a tier or a rule another name: whatever names the tier names it by that one then.",
        )
        .example(json!({
            "base_version": 1,
            "message": "alice gets a tier of her own",
            "changes": [
                {
                    "op": "create", "kind": "tier", "id": "huge",
                    "value": {
                        "id": "huge",
                        "limits": [{ "id": "minute", "algorithm": "token_bucket", "limit": 50_000, "period": "1m" }],
                    },
                },
                {
                    "op": "create", "kind": "client", "id": "user:alice",
                    "value": { "kind": "user", "value": "alice", "tier": "huge" },
                },
            ],
        }))
        .refuses(&[Code::InUse, Code::LastOfItsKind, Code::Conflict, Code::PreconditionRequired]);
}

/// The newest version, with its policy.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "VersionWithDocument")]
struct WithDocument {
    #[serde(flatten)]
    version: Version,
    document: Policy,
}

async fn policy(_: By<Viewer>, state: Data<State>, heavy: Heavy) -> Result<Tagged<Written<WithDocument>>, Problem> {
    let published = state.publisher.published();
    let etag = published.policy_etag();
    let body = heavy
        .place()
        .await?
        .write(move || Ok(WithDocument { version: published.version.clone(), document: published.policy.clone() }));
    Ok(Tagged { etag, body: body.await? })
}

/// What is kept in a file on the server.
#[derive(Serialize, JsonSchema)]
struct InFile {
    /// None: the server was started without.
    file: Option<Compared>,
}

async fn file(_: By<Viewer>, state: Data<State>, heavy: Heavy) -> Result<Written<InFile>, Problem> {
    let (path, published) = (state.policy_file.clone(), state.publisher.published());
    let compare = move || Ok(InFile { file: path.map(|path| Compared::of(&path, &published.policy)) });
    heavy.place().await?.write(compare).await
}

async fn publish(_: By<Editor>, state: Data<State>, caller: Caller, body: Body<ChangeList>) -> Result<Told, Problem> {
    publish_list(state, caller.author(body.sha256), body.value).await
}

/// Publishes `list`.
pub(super) async fn publish_list(state: Data<State>, author: Author, list: ChangeList) -> Result<Told, Problem> {
    // A task of its own: a client that goes away must not stop it half way.
    let publish = rt::spawn(async move { state.publisher.publish(list, author).await });
    told(publish.await)
}

/// What a publish came to.
pub(super) fn told(answer: Result<Result<String, Problem>, rt::task::JoinError>) -> Result<Told, Problem> {
    answer.map_err(|error| Problem::Internal(error.to_string()))?.map(Told)
}

/// 201 with what a publish answered: the text itself, as it is kept for a repeat.
pub(super) struct Told(pub(super) String);

impl Responder for Told {
    type Body = BoxBody;

    fn respond_to(self, _: &HttpRequest) -> HttpResponse {
        HttpResponse::Created().content_type(ContentType::json()).body(self.0)
    }
}

impl Answers for Told {
    fn describe(operation: &mut Operation) {
        operation.answers_json::<publisher::Answer>(StatusCode::CREATED, &[]);
    }
}

/// The longest `Idempotency-Key`, in bytes.
const KEY_BYTES_MAX: usize = 100;

/// Who asks, and how a repeat is known.
pub(super) struct Caller {
    who: Rc<Who>,
    idempotency_key: Option<String>,
}

impl Caller {
    /// As the author of what the request publishes; `sha256` is that of what makes it this one.
    pub(super) fn author(self, sha256: String) -> Author {
        Author { idempotency_key: self.idempotency_key, request_sha256: sha256, ..author(&self.who) }
    }
}

/// Somebody as the author of what he does once, however often he asks for it.
pub(super) fn author(who: &Who) -> Author {
    let Who { name, behind, address, kinds, request_id, .. } = who;
    Author {
        name: name.clone(),
        user: behind.clone(),
        address: address.clone(),
        kinds: kinds.clone(),
        only_overrides: who.role() < Some(Role::Editor),
        idempotency_key: None,
        request_sha256: String::new(),
        request_id: request_id.clone(),
    }
}

impl FromRequest for Caller {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let who = guard::check(request, Need::Known).and_then(|who| who.ok_or(Problem::Unauthorized));
        ready(who.and_then(|who| {
            let idempotency_key = request.headers().get(IDEMPOTENCY_KEY).map(key).transpose()?;
            Ok(Self { who, idempotency_key })
        }))
    }
}

fn key(value: &HeaderValue) -> Result<String, Problem> {
    let key = value.to_str().ok().filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()));
    let key =
        key.ok_or_else(|| Problem::header(IDEMPOTENCY_KEY, format!("from 1 to {KEY_BYTES_MAX} characters fit")))?;
    Ok(key.to_owned())
}

impl Part for Caller {
    fn describe(operation: &mut Operation) {
        let description = "A change that is sent again with the same key is made once, and answered the same.";
        let schema = json!({ "type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX });
        operation.header(IDEMPOTENCY_KEY, description, schema);
        operation.refuses([Code::NodeCannotRead, Code::RolloutOpen]);
    }
}
