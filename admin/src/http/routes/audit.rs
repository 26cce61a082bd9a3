//! The audit log: looked through by everybody who sees the rest, and taken out by administrators. Nothing here changes it.

use std::io;

use actix_web::{
    HttpResponse,
    http::{StatusCode, header::CONTENT_DISPOSITION},
    web::{Bytes, Data, Json},
};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    capacity::work_queue::Heavy,
    domain::{
        error::Problem,
        roles::{Admin, Viewer},
    },
    http::{
        extract::{
            paging::{List, Page, Times},
            query::Query,
        },
        guard::By,
        openapi::Api,
        state::State,
    },
    store::{
        audit::{AuditLine, Came, Sought},
        database::Store,
    },
};

/// Lines that are read at a time.
const LINES: u32 = 1_000;

pub(super) fn calls(api: &mut Api) {
    api.about("Audit log", "Who did what, who signed in, and who was refused. It is only ever added to.");
    api.get("/audit", lines).says(
        "Lines, newest first",
        "Of refusals of one person, token or address only the first of a minute are written one by one; how many more there were \
         is one line.",
    );
    api.get("/audit/export", export)
        .says("All lines that are looked for, oldest first", "As a CSV file, or as JSON, an object a line.")
        .answers(StatusCode::OK, "text/csv", "A line for each, after one with the names of the columns.")
        .answers(StatusCode::OK, "application/x-ndjson", "A line for each.");
}

#[derive(Deserialize, JsonSchema)]
struct Asked {
    /// Only what this one did: a user's name, or `token:NAME`.
    #[serde(default)]
    actor: String,
    /// Only this: `policy.publish`, or `policy` for all that begins with `policy.`.
    #[serde(default)]
    action: String,
    /// Only what was about this object, such as `user:ben`.
    #[serde(default)]
    object: String,
    /// Only lines with this text; A to Z and a to z are the same.
    #[serde(default)]
    q: String,
    /// Only what was done, or what was not: refused, or failed.
    result: Option<Came>,
    /// Only what is about this request: the `X-Request-Id` of its answer.
    #[serde(default)]
    request: String,
}

impl Asked {
    fn sought(self, times: &Times) -> Result<Sought, Problem> {
        let Self { actor, action, object, q: text, result, request: request_id } = self;
        let (from, to) = times.seconds()?;
        let texts =
            [("actor", &actor), ("action", &action), ("object", &object), ("q", &text), ("request", &request_id)];
        for (name, text) in texts {
            // Not every database can be asked for it.
            if text.contains('\0') {
                return Err(Problem::parameter(name, "no text has a NUL character"));
            }
        }
        Ok(Sought { actor, action, object, result, request_id, text, from, to })
    }
}

/// A cursor is the number of the line that the page before ended with.
async fn lines(
    _: By<Viewer>,
    state: Data<State>,
    asked: Query<Asked>,
    times: Query<Times>,
    page: Query<Page>,
    heavy: Heavy,
) -> Result<Json<List<AuditLine>>, Problem> {
    let before: Option<i64> = page.after(|cursor| cursor.parse().ok())?;
    let sought = asked.0.sought(&times)?;
    let (before, count) = (before.unwrap_or(i64::MAX), page.limit() as u32 + 1);
    let (store, is_heavy) = (state.store.clone(), sought.is_heavy());
    let lines = heavy.read(is_heavy, async move { store.audit_before(&sought, before, count).await }).await?;
    Ok(Json(page.cut(lines, |last| last.id.to_string())))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Form {
    #[default]
    Csv,
    /// JSON, an object a line.
    Ndjson,
}

#[derive(Deserialize, JsonSchema)]
struct OfExport {
    /// How it is written.
    #[serde(default)]
    format: Form,
}

/// What is left to send.
struct Export {
    store: Store,
    heavy: Heavy,
    sought: Sought,
    form: Form,
    /// Number of the line that was sent last.
    sent: i64,
    /// Number of the last line; lines that are written meanwhile are not in it.
    last: i64,
    has_begun: bool,
}

impl Export {
    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, String> {
        let (store, sought, between) = (self.store.clone(), self.sought.clone(), (self.sent, self.last));
        let read = async move { store.audit_between(&sought, between, LINES).await };
        let lines = self.heavy.read(self.sought.is_heavy(), read).await;
        let lines = lines.map_err(|problem| problem.to_string())?;
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        match lines.last() {
            Some(last) => self.sent = last.id,
            None if is_first && self.form == Form::Csv => {}
            None => return Ok(None),
        }
        let text = match self.form {
            Form::Csv => csv(&lines, is_first)?,
            Form::Ndjson => {
                let json = lines.iter().map(|line| serde_json::to_string(line).map(|json| json + "\n"));
                json.collect::<Result<String, _>>().map_err(|error| error.to_string())?.into_bytes()
            }
        };
        Ok(Some(text.into()))
    }
}

fn csv(lines: &[AuditLine], with_head: bool) -> Result<Vec<u8>, String> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    let failed = |error: csv::Error| error.to_string();
    if with_head {
        writer
            .write_record(["id", "at", "actor", "address", "action", "object", "result", "request_id"])
            .map_err(failed)?;
    }
    for AuditLine { id, at, actor, address, action, object, result, request_id } in lines {
        let texts = [at, actor, address, action, object, result, request_id].map(|text| harmless(text));
        writer.write_record(std::iter::once(id.to_string()).chain(texts)).map_err(failed)?;
    }
    writer.into_inner().map_err(|error| error.to_string())
}

/// Strangers choose some of it, as the name in a try to sign in; a spreadsheet takes what begins like this for a formula.
fn harmless(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t']) { format!("'{text}") } else { text.to_owned() }
}

async fn export(
    by: By<Admin>,
    state: Data<State>,
    asked: Query<Asked>,
    times: Query<Times>,
    of: Query<OfExport>,
    heavy: Heavy,
) -> Result<HttpResponse, Problem> {
    let (sought, form) = (asked.0.sought(&times)?, of.format);
    let store = state.store.clone();
    let last = heavy.read(false, async move { store.newest_audit().await }).await?;
    state.store.audit(by.did("audit.export", "", "done")).await?;
    let export = Export { store: state.store.clone(), heavy, sought, form, sent: 0, last, has_begun: false };
    // What breaks off half way ends the connection, so nobody takes it for the whole.
    let pieces = stream::try_unfold(export, async |mut export| {
        let piece = export.next().await.map_err(io::Error::other)?;
        Ok::<_, io::Error>(piece.map(|piece| (piece, export)))
    });
    let (media, name) = match form {
        Form::Csv => ("text/csv; charset=utf-8", "audit.csv"),
        Form::Ndjson => ("application/x-ndjson", "audit.ndjson"),
    };
    Ok(HttpResponse::Ok()
        .content_type(media)
        .insert_header((CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")))
        .streaming(Box::pin(pieces)))
}
