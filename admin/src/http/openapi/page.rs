//! The document as a page for people: no script, nothing from elsewhere, and the colours of the dashboard.

use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

use crate::{domain::roles::NEEDS, http::api_document::DOCUMENT};

/// Of the page; the first half is the dashboard's.
pub(crate) const STYLE: &str = concat!(include_str!("../../../../web/app/tokens.css"), include_str!("page.css"));

pub(super) fn page(document: &Value) -> String {
    let info = &document["info"];
    let prefix = text(&document["servers"][0]["url"]);
    let tags = document["tags"].as_array().map(Vec::as_slice).unwrap_or_default();
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (text(&info["title"])) " API" }
                link rel="stylesheet" href="/docs/api.css";
            }
            body {
                header {
                    h1 { (text(&info["title"])) " API" }
                    p {
                        (text(&info["summary"])) ", version " (text(&info["version"])) ". "
                        a href={ (prefix) (DOCUMENT) } { "OpenAPI document" } " for programs. "
                        a href="/" { "Dashboard" }
                    }
                }
                nav aria-label="Contents" {
                    details open {
                        summary { "Contents" }
                        ul {
                            @for (heading, _) in sections(text(&info["description"])) {
                                li { a href={ "#" (anchor(heading)) } { (heading) } }
                            }
                        }
                        @for tag in tags {
                            h2 { a href={ "#" (anchor(text(&tag["name"]))) } { (text(&tag["name"])) } }
                            ul {
                                @for call in calls_about(document, &tag["name"]) {
                                    li { a href={ "#" (text(&call.operation["operationId"])) } { (call.name()) } }
                                }
                            }
                        }
                        h2 { a href="#schemas" { "Schemas" } }
                    }
                }
                main {
                    @for (heading, body) in sections(text(&info["description"])) {
                        section id=(anchor(heading)) { h2 { (heading) } (paragraphs(body)) }
                    }
                    @for tag in tags {
                        section id=(anchor(text(&tag["name"]))) {
                            h2 { (text(&tag["name"])) }
                            (paragraphs(text(&tag["description"])))
                            @for call in calls_about(document, &tag["name"]) { (call.markup(prefix)) }
                        }
                    }
                    section id="schemas" {
                        h2 { "Schemas" }
                        @for (name, schema) in members(&document["components"]["schemas"]) {
                            article id={ "schema-" (name) } {
                                h3 { (name) }
                                (paragraphs(text(&schema["description"])))
                                (fields(schema))
                            }
                        }
                    }
                }
            }
        }
    };
    markup.into_string()
}

/// In the order in which people look for them.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

struct Call<'d> {
    method: String,
    path: &'d str,
    operation: &'d Value,
}

fn calls_about<'d>(document: &'d Value, tag: &Value) -> Vec<Call<'d>> {
    let of = |(path, methods): (&'d String, &'d Value)| {
        let of =
            move |(method, operation): (&'d String, &'d Value)| Call { method: method.to_uppercase(), path, operation };
        let mut calls: Vec<_> = members(methods).map(of).collect();
        calls.sort_by_key(|call| METHODS.iter().position(|method| *method == call.method));
        calls
    };
    members(&document["paths"]).flat_map(of).filter(|call| call.operation["tags"][0] == *tag).collect()
}

impl Call<'_> {
    fn name(&self) -> Markup {
        html! { span.method { (self.method) } " " code { (self.path) } }
    }

    fn markup(&self, prefix: &str) -> Markup {
        let Self { method, path, operation } = self;
        let id = text(&operation["operationId"]);
        let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let needs = NEEDS.iter().find(|need| operation["x-needs"] == need.name()).map(|need| need.says());
        html! {
            article id=(id) {
                h3 { a href={ "#" (id) } { span.method { (method) } " " code { (prefix) (path) } } }
                p { strong { (text(&operation["summary"])) "." } " " (inline(text(&operation["description"]))) }
                p.hint { (inline(&needs.unwrap_or_default())) }
                @if !parameters.is_empty() {
                    h4 { "Parameters" }
                    (table(&["Name", "Where", "Type", ""], parameters.iter().map(|parameter| [
                        html! { code { (text(&parameter["name"])) } @if parameter["required"] == true { " *" } },
                        html! { (text(&parameter["in"])) },
                        kind(&parameter["schema"]),
                        inline(text(&parameter["description"])),
                    ])))
                }
                @for (media, content) in members(&operation["requestBody"]["content"]) {
                    h4 { "Body" }
                    p { code { (media) } ": " (kind(&content["schema"])) }
                    @match &content["example"] {
                        Value::Null => {}
                        Value::String(text) => { pre tabindex="0" { (text) } }
                        json => { pre tabindex="0" { (serde_json::to_string_pretty(json).unwrap_or_default()) } }
                    }
                }
                h4 { "Answers" }
                (table(&["Status", "Body", ""], members(&operation["responses"])
                    .filter(|(_, answer)| answer["$ref"].is_null())
                    .map(|(status, answer)| [
                        html! { code { (status) } },
                        html! {
                            @for (media, content) in members(&answer["content"]) {
                                (kind(&content["schema"])) @if media != "application/json" { ", " code { (media) } }
                            }
                        },
                        html! {
                            (inline(text(&answer["description"])))
                            @for (name, header) in members(&answer["headers"]) {
                                br; code { (name) } ": " (inline(text(&header["description"])))
                            }
                        },
                    ])))
                h4 { "Refused with" }
                p {
                    @for (status, answer) in members(&operation["responses"]) {
                        @let codes = text(&answer["$ref"]).rsplit('/').next().unwrap_or_default().split("_or_");
                        @for code in codes.filter(|code| !code.is_empty()) {
                            a.refusal href="#codes" { (status) " " code { (code) } } " "
                        }
                    }
                }
            }
        }
    }
}

/// What a schema is, in a line.
fn kind(schema: &Value) -> Markup {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return html! { a href={ "#schema-" (name) } { (name) } };
    }
    let choices = [&schema["anyOf"], &schema["oneOf"]].into_iter().find_map(Value::as_array);
    if let Some(choices) = choices {
        return html! { @for (place, choice) in choices.iter().enumerate() { @if place > 0 { " or " } (kind(choice)) } };
    }
    if let Some(values) = schema["enum"].as_array() {
        return html! {
            @for (place, value) in values.iter().enumerate() { @if place > 0 { " or " } code { (value) } }
        };
    }
    if !schema["const"].is_null() {
        return html! { code { (schema["const"]) } };
    }
    let types = match &schema["type"] {
        Value::String(only) => vec![only.as_str()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => vec!["anything"],
    };
    html! {
        @for (place, name) in types.iter().enumerate() {
            @if place > 0 { " or " }
            @match *name {
                "array" => { "list of " (kind(&schema["items"])) }
                "object" if schema["additionalProperties"].is_object() => {
                    "object with values of " (kind(&schema["additionalProperties"]))
                }
                "object" if schema["properties"].is_object() => {
                    "object with " @for (place, (name, field)) in members(&schema["properties"]).enumerate() {
                        @if place > 0 { ", " } code { (name) } " (" (kind(field)) ")"
                    }
                }
                name => (name),
            }
        }
        (bounds(schema))
    }
}

/// What else a value must be.
fn bounds(schema: &Value) -> Markup {
    let (least, most) = (&schema["minimum"], &schema["maximum"]);
    html! {
        @if let Some(format) = schema["format"].as_str().filter(|format| *format != "double") { ", " (format) }
        @match (least.is_null(), most.is_null()) {
            (false, false) => { ", " (least) " to " (most) }
            (false, true) => { ", at least " (least) }
            (true, false) => { ", at most " (most) }
            (true, true) => {}
        }
        @if let Some(pattern) = schema["pattern"].as_str() { ", " code { (pattern) } }
        @if let Some(most) = schema["maxLength"].as_u64() { ", at most " (most) " characters" }
        @if !schema["default"].is_null() { ", " code { (schema["default"]) } " unless given" }
    }
}

/// The fields of an object, or what else a named schema is.
fn fields(schema: &Value) -> Markup {
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let choices = [&schema["oneOf"], &schema["anyOf"]].into_iter().find_map(Value::as_array);
    html! {
        @if schema["properties"].is_object() {
            (table(&["Field", "Type", ""], members(&schema["properties"]).map(|(name, field)| [
                html! { code { (name) } @if required.iter().any(|required| required == name) { " *" } },
                kind(field),
                inline(text(&field["description"])),
            ])))
        }
        @if let Some(choices) = choices {
            (table(&["One of", ""], choices.iter().map(|choice| [kind(choice), inline(text(&choice["description"]))])))
        } @else if !schema["properties"].is_object() {
            p { (kind(schema)) }
        }
    }
}

fn table<const COLUMNS: usize>(heads: &[&str; COLUMNS], rows: impl Iterator<Item = [Markup; COLUMNS]>) -> Markup {
    html! {
        div.wide tabindex="0" {
            table {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
            }
        }
    }
}

/// The parts of a text in Markdown below its second headings.
fn sections(markdown: &str) -> impl Iterator<Item = (&str, &str)> {
    markdown.split("## ").skip(1).map(|section| section.split_once('\n').unwrap_or((section, "")))
}

/// As much of Markdown as the document has: paragraphs, tables and `code`.
fn paragraphs(markdown: &str) -> Markup {
    html! {
        @for paragraph in markdown.trim().split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
            @if paragraph.starts_with('|') { (markdown_table(paragraph)) } @else { p { (inline(paragraph)) } }
        }
    }
}

fn markdown_table(markdown: &str) -> Markup {
    let cells = |line: &str| line.trim_matches(['|', ' ']).split(" | ").map(str::to_owned).collect::<Vec<_>>();
    let mut lines = markdown.lines();
    let heads = lines.next().map(cells).unwrap_or_default();
    html! {
        div.wide tabindex="0" {
            table {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody { @for line in lines.skip(1) { tr { @for cell in cells(line) { td { (inline(&cell)) } } } } }
            }
        }
    }
}

fn inline(markdown: &str) -> Markup {
    html! {
        @for (place, part) in markdown.split('`').enumerate() {
            @if place % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

fn anchor(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}
