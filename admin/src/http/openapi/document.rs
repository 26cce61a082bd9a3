//! The calls as an `OpenAPI` 3.1 document.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    domain::roles::{NEEDS, Need},
    http::{
        api_document::Document,
        guard::{self, CSRF_HEADER},
        openapi::{Answer, Api, Body, Call, Operation, Parameter, page, schemas::bound_numbers},
        problem::{Code, PROBLEM_JSON, Row},
    },
};

/// Where the calls are.
pub(crate) const PREFIX: &str = "/api/v1";

/// What the document says before the calls, by heading: what is the same everywhere.
const GUIDE: [(&str, &[&str]); 6] = [
    (
        "Signing in",
        &[
            "`POST /session` with a name and a password answers a cookie and a token, `csrf`. Send the cookie with every call, and \
             the token as the header `X-CSRF-Token` with every call but `GET`. `DELETE /session` signs out. A user with a second \
             factor sends a `code` as well: without it the answer is 401 `code_needed`. Where `GET /session/provider` names one, \
             browsers may go to `GET /session/oidc` instead.",
            "Scripts and nodes send a token of `POST /tokens` instead, as `Authorization: Bearer tg_...`, with every call.",
        ],
    ),
    (
        "Lists",
        &[
            "Every list answers `items`, and in `next` the cursor of the page that follows, or `null` after the last one. `limit` \
             is how many fit on a page, from 1 to 500, 100 unless given; `cursor` is the `next` of the page before. Where a list \
             can be sorted, `sort` names the field, with `-` before it for the other way round; `q` keeps what has this text in \
             its name.",
            "A parameter that a call does not have is refused rather than overlooked.",
        ],
    ),
    (
        "Changing without overwriting others",
        &[
            "Every object has an entity tag, `etag`. Send the tag of what you read as `If-Match` with what replaces or removes it: \
             without it the answer is 428, and if somebody changed the object meanwhile, 412 with the object as it is now. Nothing \
             was changed then. `If-None-Match: *` asks that it be new.",
            "A change that is sent twice with the same `Idempotency-Key` is made once, and answered the same.",
        ],
    ),
    (
        "Values",
        &[
            "Objects of the policy are written as in a policy document: `\"period\": \"1m\"`. What was measured is a whole number \
             whose name ends in its unit, `_ms` or `_us`. Instants are text as in RFC 3339; those of a series of figures are Unix \
             milliseconds, in `t`. Whole numbers are at most 2^53 - 1, so that JavaScript reads them exactly.",
        ],
    ),
    (
        "Refusals",
        &[
            "Every refusal is `application/problem+json` (RFC 9457) with a stable `code`. `errors` names each part of the request \
             that is wrong: `pointer` is a JSON pointer into the body (empty for the whole), `parameter` the name of one in the \
             address, `header` that of a header. Every answer has an `X-Request-Id`, which is in the server's log too.",
        ],
    ),
    (
        "Everywhere",
        &[
            "An address under `/api/v1` that is not listed here answers 404 `not_found`, a method that a path does not take 405 \
             `method_not_allowed` with the header `Allow`. A request whose head cannot be read (a bad line or header, or one that \
             is too long) is answered 400 without a body, and the connection is closed.",
            "A `GET` by a session or a token whose answer has more than 16 KiB is answered 503 `overload` while long answers that \
             are not read take the memory for those of its user, or of all. A connection of which nothing is read for a minute is \
             closed.",
        ],
    ),
];

impl Api {
    /// The document of a server whose sessions are in this cookie.
    pub(crate) fn document(self, cookie: &str) -> Document {
        let mut paths = Map::new();
        for call in &self.calls {
            let path = paths.entry(&call.path).or_insert_with(|| json!({}));
            path[call.method.as_str().to_lowercase()] = call.json();
        }
        let refused: Map<String, Value> = self
            .calls
            .iter()
            .flat_map(|call| refusals(&call.operation.codes).map(|(_, name, refusal)| (name, refusal)))
            .collect();
        let subjects: Vec<Value> = self
            .subjects
            .iter()
            .map(|(name, description)| json!({ "name": name, "description": description }))
            .collect();
        let mut document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Tidegate",
                "version": env!("CARGO_PKG_VERSION"),
                "summary": "The REST calls of the admin server",
                "description": guide(),
            },
            "servers": [{ "url": PREFIX }],
            "tags": subjects,
            "paths": paths,
            "components": {
                "schemas": self.schemas.borrow_mut().by_name(),
                "responses": refused,
                "securitySchemes": {
                    "session": {
                        "type": "apiKey", "in": "cookie", "name": cookie, "description": "Set by `POST /session`.",
                    },
                    "csrf": {
                        "type": "apiKey", "in": "header", "name": CSRF_HEADER,
                        "description": "The `csrf` of `GET /session`, with every call that is no `GET`.",
                    },
                    "token": {
                        "type": "http", "scheme": "bearer",
                        "description": "A token of `POST /tokens`, of a role or of the scope `node`.",
                    },
                },
            },
        });
        bound_numbers(&mut document);
        Document { page: page::page(&document).into(), json: document.to_string().into() }
    }
}

/// The guide as the document has it, in Markdown, with the table of codes.
fn guide() -> String {
    let sections = GUIDE.iter().map(|(heading, paragraphs)| format!("## {heading}\n\n{}\n", paragraphs.join("\n\n")));
    let rows = Code::ALL.iter().map(|code| {
        let Row { status, code, meaning, .. } = code.row();
        format!("| {} | `{code}` | {meaning} |\n", status.as_u16())
    });
    let codes = "## Codes\n\n| status | code | meaning |\n|---|---|---|\n".to_owned();
    let needs = NEEDS.iter().map(|need| format!("| `{}` | {} |\n", need.name(), need.says()));
    let who = "\n## Who may\n\nEach role may what those before it may. `x-needs` of a call is one of these.\n\n| `x-needs` | who |\n|---|---|\n".to_owned();
    sections.chain([codes]).chain(rows).chain([who]).chain(needs).collect()
}

impl Call {
    /// Names it, as in `put-tiers-id`.
    fn id(&self) -> String {
        let words = self.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let method = self.method.as_str().to_lowercase();
        words.fold(method, |id, word| format!("{id}-{word}"))
    }

    fn json(&self) -> Value {
        let Operation { subject, summary, description, parameters, body, answers, codes, .. } = &self.operation;
        let session =
            if guard::is_safe(&self.method) { json!({ "session": [] }) } else { json!({ "session": [], "csrf": [] }) };
        let security = match self.need {
            Need::Nothing => json!([]),
            Need::Known | Need::Role(_) => json!([session, { "token": [] }]),
            Need::Person => json!([session]),
            Need::Node => json!([{ "token": [] }]),
        };
        let mut responses: Map<String, Value> =
            answers.iter().map(|(status, answer)| (status.to_string(), answer.json())).collect();
        let refusal = |name| json!({ "$ref": format!("#/components/responses/{name}") });
        responses.extend(refusals(codes).map(|(status, name, _)| (status, refusal(name))));
        let mut operation = json!({
            "operationId": self.id(),
            "tags": [subject],
            "summary": summary,
            "security": security,
            "x-needs": self.need.name(),
            "parameters": parameters.iter().map(Parameter::json).collect::<Vec<_>>(),
            "responses": responses,
        });
        if !description.is_empty() {
            operation["description"] = json!(description);
        }
        if let Some(Body { media, schema, example }) = body {
            let mut content = json!({ "schema": schema });
            if let Some(example) = example {
                content["example"] = example.clone();
            }
            operation["requestBody"] = json!({ "required": true, "content": { *media: content } });
        }
        operation
    }
}

impl Parameter {
    fn json(&self) -> Value {
        let Self { name, place, is_required, description, schema } = self;
        json!({ "name": name, "in": place, "required": is_required, "description": description, "schema": schema })
    }
}

impl Answer {
    fn json(&self) -> Value {
        let mut answer = json!({ "description": self.description });
        for (media, schema) in &self.content {
            let schema = schema.clone().unwrap_or_else(|| json!({ "type": "string" }));
            answer["content"][*media] = json!({ "schema": schema });
        }
        for (name, description) in &self.headers {
            answer["headers"][name] = json!({ "description": description, "schema": { "type": "string" } });
        }
        answer
    }
}

/// Refusals of a call by status: a reference to where they are described, and that.
fn refusals(codes: &BTreeSet<Code>) -> impl Iterator<Item = (String, String, Value)> {
    let mut rows: Vec<Row> = codes.iter().map(|code| code.row()).collect();
    rows.sort_by_key(|row| row.status.as_u16());
    let by_status: Vec<Vec<Row>> =
        rows.chunk_by(|one, other| one.status == other.status).map(<[Row]>::to_vec).collect();
    by_status.into_iter().map(|rows| {
        let codes: Vec<&str> = rows.iter().map(|row| row.code).collect();
        let words: Vec<String> = rows.iter().map(|row| format!("`{}`: {}", row.code, row.meaning)).collect();
        // Which codes there are is a part of the schema, so whoever checks answers against it checks those too.
        let mut refusal = json!({
            "description": words.join(" "),
            "content": { PROBLEM_JSON: { "schema": {
                "allOf": [{ "$ref": "#/components/schemas/Problem" }],
                "properties": { "code": { "enum": codes } },
            } } },
        });
        if codes.contains(&Code::TooMany.row().code) {
            let seconds = json!({ "description": "Seconds.", "schema": { "type": "integer", "minimum": 1 } });
            refusal["headers"] = json!({ "Retry-After": seconds });
        }
        (rows[0].status.as_u16().to_string(), codes.join("_or_"), refusal)
    })
}
