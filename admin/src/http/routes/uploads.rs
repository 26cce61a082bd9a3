//! Logs that are sent to try policies on. A log is written to its file as it comes, and never held in memory.

use std::time::Duration;

use actix_web::web::{Data, Json, Path, Payload};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tidegate_net::trusted_proxy::{AddressError, parse_network};
use tidegate_replay::{
    ClientOptions, LogFormat, LogKey, LogOptions, private_networks,
    traffic::{LogPreviewError, preview_log},
};
use tokio::time;

use crate::{
    capacity::spool::{self, disk_error},
    domain::{
        error::{FieldError, Problem},
        roles::Viewer,
    },
    http::{
        extract::{
            paging::{List, Page, Search},
            query::Query,
        },
        guard::By,
        openapi::{Api, Created, NoContent, PREFIX},
        problem::Code,
        state::State,
    },
    simulate::uploads::{BYTES_MAX, LINES_MAX, PLAIN_BYTES_MAX, Upload},
};

/// How long a whole log may take to come: 200 MB at 3 Mbit/s.
const PATIENCE_WHOLE: Duration = Duration::from_mins(10);

pub(super) fn calls(api: &mut Api) {
    api.about("Logs", "Access logs, to try policies on. They are there for an hour at most.");
    api.post("/uploads", send)
        .says(
            "Send a log",
            "Common or combined format, JSON lines, CSV with a header, W3C extended, or of an AWS load balancer; gzip or plain; up to 200 MB and two million lines. It is removed after its \
             first run unless it is to be saved, and in any case after an hour.",
        )
        .example(json!("192.0.2.7 - ada [12/Oct/2026:06:25:24 +0000] \"GET /v1/search HTTP/1.1\" 200 2326\n"))
        .refuses(&[Code::Full]);
    api.get("/uploads", uploads).says("Logs that are here, newest first", "");
    api.delete("/uploads/{id}", remove)
        .says("Remove a log", "Whoever sent it may, and an editor.")
        .with("id", "Its id.");
}

#[derive(Deserialize, JsonSchema)]
struct About {
    /// What its lines are; told line by line unless given.
    #[serde(default)]
    format: LogFormat,
    /// A field of JSON lines or CSV that says who came, in the place of the user, or of the address if `kind` is `ip`.
    key: Option<String>,
    /// The kind of identity that it says.
    #[serde(default = "user")]
    kind: String,
    /// Fields of other names than those that are known: `client=FIELD,method=FIELD,path=FIELD,time=FIELD,user=FIELD`.
    map: Option<String>,
    /// The time zone of times that name none: a name such as Europe/Berlin, or an offset such as +02:00.
    time_zone: Option<String>,
    /// Proxies, with commas between them: in a list of addresses the client is the last one that is none of them. The private,
    /// loopback and link-local networks unless given.
    trusted_proxy: Option<String>,
    /// Bits of an IPv6 address that are counted together, 1 to 128; as this server does unless given.
    #[schemars(range(min = 1, max = 128))]
    ipv6_prefix: Option<u8>,
    /// Takes host names for clients.
    #[serde(default)]
    host_names: bool,
    /// Does it stay after a run?
    #[serde(default)]
    save: bool,
}

fn user() -> String {
    "user".to_owned()
}

async fn send(
    by: By<Viewer>,
    state: Data<State>,
    about: Query<About>,
    body: Payload,
) -> Result<Created<Upload>, Problem> {
    let key = about.key.as_ref().filter(|key| !key.is_empty()).map(|key| LogKey::new(key, &about.kind)).transpose();
    let key = key.map_err(|error| Problem::parameter("kind", error.to_string()))?;
    let fields = about.map.as_deref().filter(|map| !map.is_empty()).map(str::parse).transpose();
    let fields = fields.map_err(|error: String| Problem::parameter("map", error))?.unwrap_or_default();
    let time_zone = about.time_zone.as_deref().filter(|zone| !zone.is_empty()).map(str::parse).transpose();
    let time_zone = time_zone.map_err(|error: &str| Problem::parameter("time_zone", error.to_owned()))?;
    let proxies = about.trusted_proxy.as_deref().filter(|list| !list.is_empty());
    let proxies = proxies.map(|list| list.split(',').map(|proxy| parse_network(proxy.trim())).collect()).transpose();
    let proxies =
        proxies.map_err(|error: AddressError| Problem::parameter("trusted_proxy", format!("write {error}")))?;
    let ipv6_prefix = about.ipv6_prefix.unwrap_or_else(|| state.figures.engine().ipv6_prefix());
    if !(1..=128).contains(&ipv6_prefix) {
        return Err(Problem::parameter("ipv6_prefix", "write a number of bits from 1 to 128".to_owned()));
    }
    let clients = ClientOptions {
        trusted_proxies: proxies.unwrap_or_else(private_networks),
        ipv6_prefix,
        host_names: about.host_names,
    };
    let reading = LogOptions { format: about.format, key, fields, clients, time_zone };
    let place = state.uploads.place(&by.behind)?;
    let file = place.file().map_err(|error| disk_error(&error))?;
    let written = time::timeout(PATIENCE_WHOLE, spool::write(file, body, BYTES_MAX)).await;
    let (file, bytes) = written.map_err(|_| Problem::TooSlow { patience: PATIENCE_WHOLE })??;
    // The place is taken as long as there is work, also where nobody waits for the answer any more.
    let queries = state.queries.of(&by.behind);
    let look = move || (preview_log(file, &reading, LINES_MAX, PLAIN_BYTES_MAX), place, reading);
    let (look, place, reading) = queries.work(look).await?;
    let look = look.map_err(|error| match error {
        LogPreviewError::Broken(_) => Problem::BadJson(FieldError::invalid("", error.to_string())),
        other => Problem::field("", other.to_string()),
    })?;
    // First: a log without its line is removed again with its place.
    state.store.audit(by.did("upload.add", &format!("upload:{}", place.id()), "done")).await?;
    let upload = state.uploads.finish(place, by.name.clone(), bytes, about.save, reading, look);
    Ok(Created { location: format!("{PREFIX}/uploads/{}", upload.id), body: upload })
}

/// `q` is looked for in authors and ids.
async fn uploads(
    _: By<Viewer>,
    state: Data<State>,
    page: Query<Page>,
    search: Query<Search>,
) -> Result<Json<List<Upload>>, Problem> {
    let mut newest_first = state.uploads.all();
    newest_first.retain(|upload| search.matches(&[&upload.author, &upload.id]));
    newest_first.reverse();
    Ok(Json(page.along(newest_first, |upload| &upload.id)?))
}

async fn remove(by: By<Viewer>, state: Data<State>, id: Path<String>) -> Result<NoContent, Problem> {
    let absent = || Problem::NotFound(format!("There is no upload `{id}`; it may have expired."));
    by.check_own(&state.uploads.author(&id).ok_or_else(absent)?)?;
    if !state.uploads.remove(&id) {
        return Err(absent());
    }
    state.store.audit(by.did("upload.remove", &format!("upload:{id}"), "done")).await?;
    Ok(NoContent)
}
