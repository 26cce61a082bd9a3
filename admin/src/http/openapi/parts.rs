//! What the types in a handler's signature say of a call: arguments describe what it takes, the result what it answers.

use std::{
    convert::Infallible,
    future::{Ready, ready},
};

use actix_web::{
    FromRequest, HttpRequest, HttpResponse, Responder,
    body::BoxBody,
    dev,
    http::{
        StatusCode,
        header::{ContentType, ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH, LOCATION},
    },
    web::{Data, Json, Path, Payload},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    capacity::work_queue::{CallerWork, Written},
    domain::{
        error::Problem,
        roles::{Need, Permission},
    },
    http::{
        extract::{
            body::{Body, Csv, Files, MERGE_PATCH, MergePatch},
            query::Query,
        },
        guard::{Anyone, By},
        openapi::{Answer, Operation},
        problem::Code,
    },
};

/// An argument of a handler.
pub(crate) trait Part {
    /// Whether it is a queue in which the call waits.
    const IS_QUEUE: bool = false;

    /// Adds to the call what this argument takes from its request, and what it refuses.
    fn describe(_operation: &mut Operation) {}
}

/// What a handler answers.
pub(crate) trait Answers {
    fn describe(operation: &mut Operation);
}

/// An argument that says who may make the call.
pub(crate) trait Permit: Part {
    const NEED: Need;
}

/// All arguments of a handler: the first says who may make the call.
pub(crate) trait Arguments: Part {
    const NEED: Need;
}

impl<P: Permission> Part for By<P> {}

impl<P: Permission> Permit for By<P> {
    const NEED: Need = P::NEED;
}

impl Part for Anyone {}

impl Permit for Anyone {
    const NEED: Need = Need::Nothing;
}

impl<T> Part for Data<T> {}
impl Part for HttpRequest {}

impl<T: JsonSchema> Part for Body<T> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schemas().taken::<T>();
        operation.takes("application/json", schema);
        operation.refuses([Code::Overload]);
    }
}

impl<T: JsonSchema> Part for Files<T> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schemas().taken::<T>();
        operation.takes("application/json", schema);
    }
}

impl<Q> Part for CallerWork<Q> {
    const IS_QUEUE: bool = true;
}

impl Part for MergePatch {
    fn describe(operation: &mut Operation) {
        operation.takes(MERGE_PATCH, json!({ "type": "object" }));
        operation.refuses([Code::Overload]);
    }
}

impl Part for Csv {
    fn describe(operation: &mut Operation) {
        operation.takes("text/csv", json!({ "type": "string" }));
    }
}

/// Any bytes, read as they come.
impl Part for Payload {
    fn describe(operation: &mut Operation) {
        let schema = json!({ "type": "string", "format": "binary" });
        operation.body = Some(super::Body { media: "application/octet-stream", schema, example: None });
        operation.refuses([Code::BadJson, Code::TooLarge, Code::TooSlow]);
    }
}

impl Operation {
    /// A body of this type.
    pub(crate) fn takes(&mut self, media: &'static str, schema: Value) {
        self.body = Some(super::Body { media, schema, example: None });
        self.refuses([Code::BadJson, Code::TooLarge, Code::MediaType, Code::TooSlow]);
    }
}

impl<T: JsonSchema> Part for Query<T> {
    fn describe(operation: &mut Operation) {
        let fields = operation.schemas().fields::<T>();
        operation.parameters.extend(fields);
    }
}

impl<T: JsonSchema> Part for Path<T> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schemas().taken::<T>();
        operation.name_parts(&schema);
        operation.refuses([Code::NotFound]);
    }
}

macro_rules! tuples {
    ($(($($part:ident)*))*) => {$(
        impl<$($part: Part),*> Part for ($($part,)*) {
            const IS_QUEUE: bool = false $(|| $part::IS_QUEUE)*;

            fn describe(_operation: &mut Operation) {
                $($part::describe(_operation);)*
            }
        }
    )*};
}
tuples! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) }

macro_rules! arguments {
    ($(($($part:ident)*))*) => {$(
        impl<By: Permit, $($part: Part),*> Arguments for (By, $($part,)*) {
            const NEED: Need = By::NEED;
        }
    )*};
}
arguments! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

/// The entity tag of the state that the caller means to change, if it was given.
#[derive(Clone, Debug)]
pub(crate) struct IfMatch(pub(crate) Option<String>);

impl Part for IfMatch {
    fn describe(operation: &mut Operation) {
        let description = "The entity tag of what is changed, as it was read (`ETag`, or `etag` in lists).";
        operation.header("If-Match", description, json!({ "type": "string" }));
        operation.refuses([Code::Conflict]);
    }
}

impl FromRequest for IfMatch {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(request: &HttpRequest, _: &mut dev::Payload) -> Self::Future {
        ready(Ok(Self(text(request, &IF_MATCH))))
    }
}

/// Is what is put to be new?
#[derive(Clone, Copy, Debug)]
pub(crate) struct IfNoneMatch(pub(crate) bool);

impl Part for IfNoneMatch {
    fn describe(operation: &mut Operation) {
        let description = "`*`: it is to be new. Without it, it is to be there already.";
        operation.header("If-None-Match", description, json!({ "type": "string", "enum": ["*"] }));
    }
}

impl FromRequest for IfNoneMatch {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut dev::Payload) -> Self::Future {
        ready(match text(request, &IF_NONE_MATCH).as_deref() {
            None => Ok(Self(false)),
            Some("*") => Ok(Self(true)),
            Some(_) => Err(Problem::header("If-None-Match", "only `*` is understood: it is to be new")),
        })
    }
}

/// The id of the last event of a stream that was read, if there was one.
#[derive(Clone, Debug)]
pub(crate) struct LastEventId(pub(crate) Option<String>);

impl Part for LastEventId {
    fn describe(operation: &mut Operation) {
        let description = "The `id` of the last event that was read, to go on from there.";
        operation.header("Last-Event-ID", description, json!({ "type": "string" }));
    }
}

impl FromRequest for LastEventId {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(request: &HttpRequest, _: &mut dev::Payload) -> Self::Future {
        ready(Ok(Self(text(request, &HeaderName::from_static("last-event-id")))))
    }
}

fn text(request: &HttpRequest, name: &HeaderName) -> Option<String> {
    request.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

impl<T: Answers> Answers for Result<T, Problem> {
    fn describe(operation: &mut Operation) {
        T::describe(operation);
    }
}

/// Told by the call itself.
impl Answers for HttpResponse {
    fn describe(_: &mut Operation) {}
}

impl Operation {
    /// An answer without a body.
    pub(super) fn answers_nothing(&mut self, description: &str) {
        let answer = Answer { description: description.to_owned(), ..Answer::default() };
        self.answers.insert(StatusCode::NO_CONTENT.as_u16(), answer);
    }

    /// A JSON answer with these headers: names, and what they carry.
    pub(crate) fn answers_json<T: JsonSchema>(&mut self, status: StatusCode, headers: &[(&'static str, &'static str)]) {
        let schema = self.schemas().answered::<T>();
        let answer = Answer {
            description: status.canonical_reason().unwrap_or_default().to_owned(),
            content: vec![("application/json", Some(schema))],
            headers: headers.to_vec(),
        };
        self.answers.insert(status.as_u16(), answer);
    }
}

/// 200.
impl<T: JsonSchema> Answers for Json<T> {
    fn describe(operation: &mut Operation) {
        operation.answers_json::<T>(StatusCode::OK, &[]);
    }
}

/// 200.
impl<T: JsonSchema> Answers for Written<T> {
    fn describe(operation: &mut Operation) {
        Json::<T>::describe(operation);
    }
}

impl<T> Responder for Written<T> {
    type Body = BoxBody;

    fn respond_to(self, _: &HttpRequest) -> HttpResponse {
        HttpResponse::Ok().content_type(ContentType::json()).body(self.text)
    }
}

/// 200, with an entity tag.
#[derive(Debug)]
pub(crate) struct Tagged<T> {
    pub(crate) etag: String,
    pub(crate) body: T,
}

impl<T: Serialize> Responder for Tagged<T> {
    type Body = BoxBody;

    fn respond_to(self, _: &HttpRequest) -> HttpResponse {
        HttpResponse::Ok().insert_header((ETAG, self.etag)).json(self.body)
    }
}

impl<T: JsonSchema> Answers for Tagged<T> {
    fn describe(operation: &mut Operation) {
        operation.answers_json::<T>(StatusCode::OK, &[("ETag", "The entity tag, for `If-Match`.")]);
    }
}

impl<T> Responder for Tagged<Written<T>> {
    type Body = BoxBody;

    fn respond_to(self, _: &HttpRequest) -> HttpResponse {
        HttpResponse::Ok().insert_header((ETAG, self.etag)).content_type(ContentType::json()).body(self.body.text)
    }
}

impl<T: JsonSchema> Answers for Tagged<Written<T>> {
    fn describe(operation: &mut Operation) {
        Tagged::<T>::describe(operation);
    }
}

/// 201, with the address of what was made.
#[derive(Debug)]
pub(crate) struct Created<T> {
    pub(crate) location: String,
    pub(crate) body: T,
}

impl<T: Serialize> Responder for Created<T> {
    type Body = BoxBody;

    fn respond_to(self, _: &HttpRequest) -> HttpResponse {
        HttpResponse::Created().insert_header((LOCATION, self.location)).json(self.body)
    }
}

impl<T: JsonSchema> Answers for Created<T> {
    fn describe(operation: &mut Operation) {
        operation.answers_json::<T>(StatusCode::CREATED, &[("Location", "The address of what was made.")]);
    }
}

/// 202, with the address at which it can be followed.
#[derive(Debug)]
pub(crate) struct Accepted<T> {
    pub(crate) location: String,
    pub(crate) body: T,
}

impl<T: Serialize> Responder for Accepted<T> {
    type Body = BoxBody;

    fn respond_to(self, _: &HttpRequest) -> HttpResponse {
        HttpResponse::Accepted().insert_header((LOCATION, self.location)).json(self.body)
    }
}

impl<T: JsonSchema> Answers for Accepted<T> {
    fn describe(operation: &mut Operation) {
        operation.answers_json::<T>(StatusCode::ACCEPTED, &[("Location", "The address at which it can be followed.")]);
    }
}

/// 204.
#[derive(Debug)]
pub(crate) struct NoContent;

impl Responder for NoContent {
    type Body = BoxBody;

    fn respond_to(self, _: &HttpRequest) -> HttpResponse {
        HttpResponse::NoContent().finish()
    }
}

impl Answers for NoContent {
    fn describe(operation: &mut Operation) {
        operation.answers_nothing("Done; there is nothing to say.");
    }
}
