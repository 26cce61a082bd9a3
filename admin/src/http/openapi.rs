//! The calls of the REST API. Each is stated in one place: method, path, handler, and what cannot be read off the handler's
//! types. The routes and their documentation are both made from that, so no call is undocumented, and none is documented
//! as something else than it is.
//!
//! Who may make a call is the first of its handler's arguments. What a handler takes and answers is described by the types in its signature (`parts`); their schemas are gathered
//! beside them (`schemas`); `document` writes it all as an `OpenAPI` document, `page` as a page for people.

mod document;
mod page;
mod parts;
mod schemas;

use std::{
    cell::{RefCell, RefMut},
    collections::{BTreeMap, BTreeSet},
    future::ready,
    rc::Rc,
};

use actix_web::{
    Error, FromRequest, Handler, HttpMessage, HttpResponse, Responder, Route,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    guard,
    http::{Method, StatusCode},
    middleware::{Next, from_fn},
    web,
};
use schemars::JsonSchema;
use serde_json::{Value, json};

use self::schemas::Schemas;
pub(crate) use self::{
    document::PREFIX,
    page::STYLE,
    parts::{Accepted, Answers, Arguments, Created, IfMatch, IfNoneMatch, LastEventId, NoContent, Part, Tagged},
};
use crate::{
    domain::{
        error::Problem,
        roles::{Known, Need},
    },
    http::{
        api_document::DOCUMENT,
        extract::query,
        guard::{By, OpenCall, check, is_safe},
        problem::{Code, ProblemBody},
        state::State,
    },
};

/// All calls, in the order in which they are documented.
pub(crate) struct Api {
    calls: Vec<Call>,
    schemas: Rc<RefCell<Schemas>>,
    /// What they are about, with a word on each.
    subjects: Vec<(&'static str, &'static str)>,
}

/// One call: a method of a path.
pub(crate) struct Call {
    method: Method,
    path: String,
    /// Who may make it.
    need: Need,
    /// Whether it waits for the other [reads](crate::capacity::read_turns) of its caller.
    is_read: bool,
    /// Are parameters overlooked that it does not have?
    is_open: bool,
    route: Route,
    operation: Operation,
}

/// What is said of a call.
pub(crate) struct Operation {
    /// Those of all calls.
    schemas: Rc<RefCell<Schemas>>,
    subject: &'static str,
    summary: String,
    description: String,
    parameters: Vec<Parameter>,
    body: Option<Body>,
    answers: BTreeMap<u16, Answer>,
    codes: BTreeSet<Code>,
}

/// Something of a request beside its body.
struct Parameter {
    name: String,
    /// `path`, `query` or `header`.
    place: &'static str,
    is_required: bool,
    description: String,
    schema: Value,
}

struct Body {
    media: &'static str,
    schema: Value,
    example: Option<Value>,
}

/// An answer that is no refusal.
#[derive(Default)]
struct Answer {
    description: String,
    /// Media types, and the schema of one that is JSON.
    content: Vec<(&'static str, Option<Value>)>,
    /// Names, and what they carry.
    headers: Vec<(&'static str, &'static str)>,
}

impl Api {
    /// Returns an API without calls, to make the routes from.
    pub(crate) fn of_routes() -> Self {
        Self::new(false)
    }

    /// Returns an API without calls, to make the document from.
    pub(crate) fn of_document() -> Self {
        Self::new(true)
    }

    fn new(is_described: bool) -> Self {
        let schemas = Rc::new(RefCell::new(Schemas::new(is_described)));
        let api = Self { calls: Vec::new(), schemas, subjects: Vec::new() };
        // Every call may be refused.
        api.schemas.borrow_mut().answered::<ProblemBody>();
        api
    }

    /// What the calls that follow are about.
    pub(crate) fn about(&mut self, subject: &'static str, description: &'static str) {
        self.subjects.push((subject, description));
    }

    pub(crate) fn get<F, A>(&mut self, path: &str, handler: F) -> &mut Call
    where
        F: Handler<A>,
        A: FromRequest + Arguments + 'static,
        F::Output: Responder + Answers + 'static,
    {
        self.add(Method::GET, path, handler)
    }

    pub(crate) fn post<F, A>(&mut self, path: &str, handler: F) -> &mut Call
    where
        F: Handler<A>,
        A: FromRequest + Arguments + 'static,
        F::Output: Responder + Answers + 'static,
    {
        self.add(Method::POST, path, handler)
    }

    pub(crate) fn put<F, A>(&mut self, path: &str, handler: F) -> &mut Call
    where
        F: Handler<A>,
        A: FromRequest + Arguments + 'static,
        F::Output: Responder + Answers + 'static,
    {
        self.add(Method::PUT, path, handler)
    }

    pub(crate) fn patch<F, A>(&mut self, path: &str, handler: F) -> &mut Call
    where
        F: Handler<A>,
        A: FromRequest + Arguments + 'static,
        F::Output: Responder + Answers + 'static,
    {
        self.add(Method::PATCH, path, handler)
    }

    pub(crate) fn delete<F, A>(&mut self, path: &str, handler: F) -> &mut Call
    where
        F: Handler<A>,
        A: FromRequest + Arguments + 'static,
        F::Output: Responder + Answers + 'static,
    {
        self.add(Method::DELETE, path, handler)
    }

    fn add<F, A>(&mut self, method: Method, path: &str, handler: F) -> &mut Call
    where
        F: Handler<A>,
        A: FromRequest + Arguments + 'static,
        F::Output: Responder + Answers + 'static,
    {
        let subject = self.subjects.last().map_or("", |(subject, _)| subject);
        let schemas = Rc::clone(&self.schemas);
        let mut operation = Operation::new(schemas, subject);
        for name in path.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
            operation.add("path", name, "", json!({ "type": "string" }));
        }
        A::describe(&mut operation);
        F::Output::describe(&mut operation);
        operation.refuses([Code::Invalid]);
        let is_safe = is_safe(&method);
        if is_safe {
            // A long answer to a session or a token may have no room.
            operation.refuses([Code::Overload]);
        }
        if A::NEED != Need::Nothing {
            // Tokens and sessions are looked up in turns.
            operation.refuses([Code::Unauthorized, Code::Forbidden, Code::TooMany, Code::Busy]);
            // Tokens need no other.
            if !is_safe && A::NEED != Need::Node {
                operation.refuses([Code::Csrf]);
            }
        }
        // Everything else looks into the database, for the session or more.
        if path != DOCUMENT {
            operation.refuses([Code::Internal, Code::Storage]);
            if !is_safe {
                operation.refuses([Code::OutcomeUnknown, Code::Busy]);
            }
        }
        // What can be read has a head (RFC 9110, 9.1).
        let route = match method {
            Method::GET => web::route().guard(guard::Any(guard::Get()).or(guard::Head())),
            _ => web::method(method.clone()),
        };
        let route = route.to(handler);
        // Calls that anyone may make read the database only during setup and sign-in. Nodes share one look.
        let is_read = is_safe && !A::IS_QUEUE && !matches!(A::NEED, Need::Nothing | Need::Node);
        self.calls.push(Call {
            method,
            path: path.to_owned(),
            need: A::NEED,
            is_read,
            is_open: false,
            route,
            operation,
        });
        let last = self.calls.len() - 1;
        &mut self.calls[last]
    }

    /// The routes.
    pub(crate) fn configure(self, config: &mut web::ServiceConfig) {
        let mut by_path: Vec<(String, Vec<Call>)> = Vec::new();
        for call in self.calls {
            match by_path.iter_mut().find(|(path, _)| *path == call.path) {
                Some((_, calls)) => calls.push(call),
                None => by_path.push((call.path.clone(), vec![call])),
            }
        }
        for (path, calls) in by_path {
            let head = calls.iter().any(|call| call.method == Method::GET).then_some("HEAD");
            let allowed: Vec<&str> = calls.iter().map(|call| call.method.as_str()).chain(head).collect();
            let allowed = allowed.join(", ");
            // Strangers are not told what there is.
            let refuse = move |_: By<Known>| {
                ready(Err::<HttpResponse, _>(Problem::MethodNotAllowed { allowed: allowed.clone() }))
            };
            let resource = web::resource(&path).default_service(web::to(refuse));
            config.service(calls.into_iter().fold(resource, |resource, call| {
                let of_query = call.operation.parameters.into_iter().filter(|parameter| parameter.place == "query");
                let known: Rc<[String]> = of_query.map(|parameter| parameter.name).collect();
                let (need, is_read) = (call.need, call.is_read);
                let known = (!call.is_open).then_some(known);
                let admit = move |request, next| admit((need, is_read), known.clone(), request, next);
                resource.route(call.route.wrap(from_fn(admit)))
            }));
        }
    }
}

/// Refuses a call whose caller may not make it, or which has a parameter that is not among the `known` ones, before anything of
/// its body is read. A call that reads waits for its caller's turn.
async fn admit(
    (need, is_read): (Need, bool),
    known: Option<Rc<[String]>>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    if need == Need::Nothing {
        request.extensions_mut().insert(OpenCall);
    }
    let refused = check(request.request(), need).err();
    // Refusals are answers like any other, so that everything that is put on answers is put on them too.
    let refused = refused.or_else(|| query::unknown(request.query_string(), &known?));
    let turn = match (refused, request.app_data::<web::Data<State>>()) {
        (Some(problem), _) => Err(problem),
        (None, Some(state)) if is_read => state.store.reads.turn().await,
        (None, _) => Ok(None),
    };
    match turn {
        Ok(_turn) => Ok(next.call(request).await?.map_into_left_body()),
        Err(problem) => Ok(request.error_response(problem).map_into_right_body()),
    }
}

impl Operation {
    fn new(schemas: Rc<RefCell<Schemas>>, subject: &'static str) -> Self {
        Self {
            schemas,
            subject,
            summary: String::new(),
            description: String::new(),
            parameters: Vec::new(),
            body: None,
            answers: BTreeMap::new(),
            codes: BTreeSet::new(),
        }
    }

    fn schemas(&self) -> RefMut<'_, Schemas> {
        self.schemas.borrow_mut()
    }

    fn add(&mut self, place: &'static str, name: &str, description: &str, schema: Value) {
        let (name, description) = (name.to_owned(), description.to_owned());
        self.parameters.push(Parameter { name, place, is_required: place == "path", description, schema });
    }

    /// A header that may be sent along.
    pub(crate) fn header(&mut self, name: &str, description: &str, schema: Value) {
        self.add("header", name, description, schema);
    }

    /// Gives the names in the path the type that the handler reads them as: one, or a tuple.
    fn name_parts(&mut self, schema: &Value) {
        let names = self.parameters.iter_mut().filter(|parameter| parameter.place == "path");
        for (place, parameter) in names.enumerate() {
            parameter.schema = schema["prefixItems"].get(place).unwrap_or(schema).clone();
        }
    }

    pub(crate) fn refuses(&mut self, codes: impl IntoIterator<Item = Code>) {
        self.codes.extend(codes);
    }
}

impl Call {
    /// What it does: in a line, and what else there is to say.
    pub(crate) fn says(&mut self, summary: &str, description: &str) -> &mut Self {
        summary.clone_into(&mut self.operation.summary);
        description.clone_into(&mut self.operation.description);
        self
    }

    /// What a parameter means that is only a name in the path.
    pub(crate) fn with(&mut self, name: &str, description: &str) -> &mut Self {
        for parameter in self.operation.parameters.iter_mut().filter(|parameter| parameter.name == name) {
            description.clone_into(&mut parameter.description);
        }
        self
    }

    /// Others write its address, or later builds, and may put more into it: parameters that it does not have are overlooked.
    pub(crate) fn overlooks_parameters(&mut self) -> &mut Self {
        self.is_open = true;
        self
    }

    /// It waits for something else before it reads: its handler waits for the turn of its caller after that.
    pub(crate) fn reads_later(&mut self) -> &mut Self {
        self.is_read = false;
        self
    }

    /// A body that it takes.
    pub(crate) fn example(&mut self, body: Value) -> &mut Self {
        if let Some(described) = &mut self.operation.body {
            described.example = Some(body);
        }
        self
    }

    /// What it is refused for beside what its arguments say: no session, a body or parameter that cannot be read.
    pub(crate) fn refuses(&mut self, codes: &[Code]) -> &mut Self {
        self.operation.refuses(codes.iter().copied());
        self
    }

    /// A JSON answer that the handler's type does not tell.
    pub(crate) fn answers_json<T: JsonSchema>(&mut self, status: StatusCode, description: &str) -> &mut Self {
        self.operation.answers_json::<T>(status, &[]);
        if let Some(answer) = self.operation.answers.get_mut(&status.as_u16()) {
            description.clone_into(&mut answer.description);
        }
        self
    }

    /// An answer without a body that the handler's type does not tell.
    pub(crate) fn answers_nothing(&mut self, description: &str) -> &mut Self {
        self.operation.answers_nothing(description);
        self
    }

    /// Where it sends the one who asks.
    pub(crate) fn redirects(&mut self, description: &str) -> &mut Self {
        let headers = vec![("Location", "Where to.")];
        let answer = Answer { description: description.to_owned(), content: Vec::new(), headers };
        self.operation.answers.insert(StatusCode::SEE_OTHER.as_u16(), answer);
        self
    }

    /// An answer that the handler's type does not tell.
    pub(crate) fn answers(&mut self, status: StatusCode, media: &'static str, description: &str) -> &mut Self {
        let answer = self.operation.answers.entry(status.as_u16()).or_default();
        description.clone_into(&mut answer.description);
        answer.content.push((media, None));
        self
    }
}
