//! The policy as a file: written in any format, and read from one, or from the files of other limiters.

use std::mem;

use actix_web::{
    HttpRequest, HttpResponse, Responder,
    http::{
        StatusCode,
        header::{CONTENT_DISPOSITION, ETAG},
    },
    rt,
    web::Data,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate::{
    Problems, Snapshot,
    formats::Format,
    import::{self, Note, Source},
    policy::{Difference, Domain, Policy, differences},
};

use crate::{
    base::sha256::sha256,
    capacity::work_queue::Heavy,
    domain::{
        change_impact::Effects,
        change_list::still_wanted,
        client_import::Missing,
        diff::changed,
        edited_policy::Edited,
        error::{FieldError, Problem},
        objects::sort_clients,
        overrides::take_ended,
        published::Published,
        roles::{Editor, Viewer},
        rollout::Goes,
    },
    http::{
        extract::{body::Files, query::Query},
        guard::By,
        openapi::{Api, IfMatch},
        problem::Code,
        routes::policy::{Caller, told},
        state::State,
    },
    publish::publisher::{self, Words, parse_stored},
};

/// So many files, or things that are wrong with them.
const FILES_MAX: usize = 1_000;
const WRONG_TOLD: usize = 100;

pub(super) fn calls(api: &mut Api) {
    api.about("Files", "The policy as a file, and policies from files, those of other limiters too.");
    api.get("/policy/export", export)
        .says("The document as a file", "What is imported from it is the same policy.")
        .answers(StatusCode::OK, "text/plain", "The document.")
        .refuses(&[Code::NotFound]);
    api.post("/policy/import", import)
        .says(
            "Import a policy from files",
            "All of it becomes one version, or nothing does. `If-Match` is the entity tag of `GET /policy`; a dry run needs \
             none. What other limiters can and rules cannot is told in `notes`; where decisions change by it, nothing is \
             published without `accept`.",
        )
        .example(json!({ "files": [{
            "name": "policy.toml",
            "text": "[domains.default]\ndefaults = { user = \"free\" }\n\n[[domains.default.tiers]]\nid = \"free\"\n\
                     limits = [{ id = \"minute\", algorithm = \"token_bucket\", limit = 100, period = \"1m\" }]\n",
        }] }))
        .answers_json::<Tried>(StatusCode::OK, "What it would do, or that there is nothing to do.")
        .answers_json::<publisher::Answer>(StatusCode::CREATED, "Published.")
        .refuses(&[Code::InUse, Code::PreconditionRequired]);
}

/// A format of policy documents.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum FormatName {
    #[default]
    Toml,
    Yaml,
    Json,
}

impl FormatName {
    fn name(self) -> &'static str {
        match self {
            Self::Toml => "toml",
            Self::Yaml => "yaml",
            Self::Json => "json",
        }
    }
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Toml => Self::Toml,
            FormatName::Yaml => Self::Yaml,
            FormatName::Json => Self::Json,
        }
    }
}

#[derive(Deserialize, JsonSchema)]
struct OfExport {
    /// How it is written.
    #[serde(default)]
    format: FormatName,
    /// Which version; the one in force unless given.
    version: Option<u64>,
}

async fn export(
    by: By<Viewer>,
    state: Data<State>,
    heavy: Heavy,
    query: Query<OfExport>,
) -> Result<HttpResponse, Problem> {
    let OfExport { format, version } = query.0;
    let published = state.publisher.published();
    let version = version.unwrap_or(published.version.version);
    let place = heavy.place().await?;
    let stored = if version == published.version.version {
        None
    } else {
        let found = state.store.version(version).await?;
        let (_, document) = found.ok_or_else(|| Problem::NotFound(format!("There is no version {version}.")))?;
        Some(document)
    };
    let written = place.work(move || {
        let stored = stored.map(|document| parse_stored(&document)).transpose()?;
        let text = stored.as_ref().unwrap_or(&published.policy).write(format.into());
        text.map_err(|problems| Problem::Internal(problems.to_string()))
    });
    let text = written.await??;
    state.store.audit(by.did("policy.export", &format!("version:{version}"), "done")).await?;
    let name = format!("attachment; filename=\"policy-{version}.{}\"", format.name());
    Ok(HttpResponse::Ok()
        .content_type("text/plain; charset=utf-8")
        .insert_header((CONTENT_DISPOSITION, name))
        .insert_header((ETAG, Published::etag_of(version)))
        .body(text))
}

/// Whose files they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Origin {
    /// A policy document.
    #[default]
    Tidegate,
    /// Configurations of envoyproxy/ratelimit.
    Envoy,
    /// Limits files of limitador.
    Limitador,
}

#[derive(Clone, Deserialize, JsonSchema)]
struct OfImport {
    /// Whose files they are.
    #[serde(default)]
    from: Origin,
    /// Of a policy document; as the file's name says unless given.
    format: Option<FormatName>,
    /// What becomes of domains that the files do not have; unless given, they go where a policy document is imported, and
    /// stay otherwise. Of a domain that is there, files of other limiters replace the rules.
    missing: Option<Missing>,
    /// Only say what it would do.
    #[serde(default)]
    dry_run: bool,
    /// Publish although decisions change by what could not be carried over.
    #[serde(default)]
    accept: bool,
    /// Message of the version.
    message: Option<String>,
    /// The nodes that it goes to first, by their names, with commas between them; all unless given.
    nodes: Option<String>,
}

/// Files to import.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ToImport {
    /// A policy document is one.
    files: Vec<File>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct File {
    /// By which it is called in the report.
    name: String,
    /// What stands in it.
    text: String,
}

/// An import that published nothing.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ImportTried")]
struct Tried {
    /// That of the policy in force.
    version: u64,
    /// What the import changes; nothing: there is nothing to publish.
    differences: Vec<Difference>,
    #[serde(flatten)]
    effects: Effects,
    /// What is not carried over as it was.
    notes: Vec<Note>,
    /// Clients whose override in the files has ended, and is not published.
    ended: Vec<String>,
}

async fn import(
    by: By<Editor>,
    state: Data<State>,
    request: HttpRequest,
    caller: Caller,
    if_match: IfMatch,
    query: Query<OfImport>,
    body: Files<ToImport>,
) -> Result<HttpResponse, Problem> {
    let received = body.receive(&state, &by.behind).await?;
    // What another server published a moment ago is there too.
    state.publisher.catch_up().await?;
    let (present, of) = (state.publisher.published(), query.0);
    let author = caller.author(sha256(format!("{:?}", (request.uri(), &if_match.0, &received.body.sha256))));
    // Made the first time, there is nothing left to do for it.
    if let Some(answer) = state.publisher.answered(&author).await? {
        return Ok(told(Ok(Ok(answer)))?.respond_to(&request));
    }
    let heavy = state.heavy.of(&by.behind);
    let read = heavy.work(move || {
        let ToImport { files } = received.read()?;
        let name = files.first().map_or("", |file| file.name.as_str());
        let message = of.message.clone().unwrap_or_else(|| default_message(name));
        let goes = Goes::to(of.nodes.as_ref().map(|names| names.split(',').map(str::to_owned).collect()));
        let words = Words::of_query(&message, present.version.version)?.doing("policy.import").going(goes);
        let (files, notes) = read(&of, &files)?;
        let (mut before, mut policy) = (present.policy.clone(), beside(&present.policy, files.clone(), &of)?);
        // What has ended is no difference.
        take_ended(&mut before);
        let ended = take_ended(&mut policy);
        let version = present.version.version;
        let effects = Effects::between(&present, &policy);
        let tried = Tried { version, differences: differences(&before, &policy), effects, notes, ended };
        Ok::<_, Problem>((files, words, tried, of))
    });
    let (files, words, tried, of) = read.await??;
    if of.dry_run || tried.differences.is_empty() {
        return Ok(HttpResponse::Ok().json(tried));
    }
    let changing = tried.notes.iter().filter(|note| note.changes_decisions).count();
    if changing > 0 && !of.accept {
        let message = format!("{changing} notes say that decisions change; look at them in a dry run, and accept them");
        return Err(Problem::parameter("accept", message));
    }
    let Some(if_match) = if_match.0 else { return Err(Problem::PreconditionRequired(vec!["policy".to_owned()])) };
    let (words, from) = (words.with_notes(tried.notes), of.from);
    // Again on the policy that is in force when its turn comes.
    let edit = move |present: &Published| {
        present.is_still(Some(&if_match))?;
        let policy = beside(&present.policy, files, &of)?;
        let changed = changed(&present.policy, &policy);
        if changed.touched.is_empty() && changed.removed.is_empty() {
            return Err(Problem::field("/files", "everything is like this already; nothing to publish"));
        }
        still_wanted(&policy, &changed.removed)?;
        Ok(Edited { policy, touched: changed.touched, removed: changed.removed, report: None })
    };
    let refused = move |problems: &Problems, _: &Policy| in_all(from, problems);
    let publish = rt::spawn(async move { state.publisher.publish_edited(author, words, edit, refused).await });
    let told = told(publish.await).map_err(|problem| problem.of_parameter("nodes"))?;
    Ok(told.respond_to(&request))
}

fn default_message(file: &str) -> String {
    let plain: String = file.chars().filter(|c| !c.is_control()).take(40).collect();
    format!("import {plain}").trim_end().to_owned()
}

/// The policy of the files.
fn read(of: &OfImport, files: &[File]) -> Result<(Policy, Vec<Note>), Problem> {
    if files.is_empty() || files.len() > FILES_MAX {
        return Err(Problem::field("/files", format!("from 1 to {FILES_MAX} files fit")));
    }
    let sources: Vec<Source<'_>> = files.iter().map(|File { name, text }| Source { name, text }).collect();
    let imported = match of.from {
        Origin::Envoy => import::envoy(&sources),
        Origin::Limitador => import::limitador(&sources),
        Origin::Tidegate => return Ok((read_document(of, files)?, Vec::new())),
    };
    let imported = imported.map_err(|error| match error.place {
        Some(place) => in_file(place, &error.problems),
        None => in_all(of.from, &error.problems),
    })?;
    Ok((imported.policy, imported.notes))
}

fn read_document(of: &OfImport, files: &[File]) -> Result<Policy, Problem> {
    let [File { name, text }] = files else {
        return Err(Problem::field("/files", "a policy document is one file"));
    };
    let named = of.format.map(Format::from).or_else(|| Format::of(name.as_ref()));
    let format =
        named.ok_or_else(|| Problem::parameter("format", format!("`{name}` does not tell it; toml, yaml or json")))?;
    Snapshot::parse_with_policy(text, format).map(|(_, policy)| policy).map_err(|problems| in_file(0, &problems))
}

/// What is wrong with a file, by its own lines and fields.
fn in_file(place: usize, problems: &Problems) -> Problem {
    wrong(&format!("/files/{place}/text"), problems)
}

/// What is wrong with what the files come to.
fn in_all(from: Origin, problems: &Problems) -> Problem {
    // A document is one file.
    if from == Origin::Tidegate { in_file(0, problems) } else { wrong("/files", problems) }
}

fn wrong(pointer: &str, problems: &Problems) -> Problem {
    let fields = problems.iter().take(WRONG_TOLD);
    Problem::Invalid(fields.map(|problem| FieldError::invalid(pointer, problem.to_string())).collect())
}

/// `policy` with what stays of the present one: domains that it does not have, and, of other limiters, all but the rules and
/// what descriptors meet in those that it has.
fn beside(present: &Policy, mut policy: Policy, of: &OfImport) -> Result<Policy, Problem> {
    let is_document = of.from == Origin::Tidegate;
    let missing = of.missing.unwrap_or(if is_document { Missing::Remove } else { Missing::Keep });
    if !is_document {
        for (name, domain) in &mut policy.domains {
            if let Some(there) = present.domains.get(name) {
                let Domain { rules, descriptors, descriptor_paths, .. } = mem::take(domain);
                *domain = Domain { descriptors, descriptor_paths, rules, ..there.clone() };
            }
        }
    }
    if missing == Missing::Keep {
        for (name, domain) in &present.domains {
            policy.domains.entry(name.clone()).or_insert_with(|| domain.clone());
        }
    }
    if !is_document || missing == Missing::Keep {
        Snapshot::compile(&policy).map_err(|problems| in_all(of.from, &problems))?;
    }
    sort_clients(&mut policy);
    Ok(policy)
}
