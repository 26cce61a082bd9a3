//! The `OpenAPI` document and its page: every call is in it, and says all that there is to say.

use serde_json::{Value, json};

use super::support::fresh;

fn document() -> Value {
    let (_folder, server) = fresh();
    let answer = server.stranger().get("/api/v1/openapi.json");
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"), "{answer:?}");
    answer.json()
}

/// Path, method and what is said, of each call.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let of = |(path, methods): (&String, &Value)| {
        let methods = methods.as_object().expect("methods").clone();
        methods.into_iter().map(|(method, operation)| (path.clone(), method, operation)).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of).collect()
}

#[test]
fn nothing_is_left_unsaid() {
    let document = document();
    let operations = operations(&document);
    assert!(operations.len() > 25, "{}", operations.len());
    for (path, method, operation) in &operations {
        let text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        assert!(text(&operation["summary"]), "{method} {path} has no summary");
        let answers = operation["responses"].as_object().expect("answers");
        let is_answer = |status: &String| status.starts_with('2') || status == "303";
        assert!(answers.keys().any(is_answer), "{method} {path} has no answer but refusals");
        for parameter in operation["parameters"].as_array().expect("parameters") {
            assert!(text(&parameter["description"]), "{method} {path}: {} is not described", parameter["name"]);
        }
    }
    // Schemas are referred to by name, and all are there.
    let text = document.to_string();
    for name in text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(document["components"]["schemas"][name].is_object(), "there is no schema {name}");
    }
    // Types of one name would be numbered.
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let numbered: Vec<_> = schemas.keys().filter(|name| name.ends_with(|last: char| last.is_ascii_digit())).collect();
    assert!(numbered.is_empty(), "{numbered:?}: say what they are, by #[schemars(rename = ...)]");
    assert!(!text.contains("crate::"), "a link of the source is in the document");
}

#[test]
fn the_page_is_whole_without_anything_else() {
    let (_folder, server) = fresh();
    let page = server.stranger().get("/docs/api");
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").starts_with("default-src 'none'"));
    assert!(
        !page.text.contains("<script") && !page.text.contains("style=") && !page.text.contains("//"),
        "it asks for more"
    );
    let document = server.stranger().get("/api/v1/openapi.json").json();
    for (path, method, operation) in operations(&document) {
        let id = operation["operationId"].as_str().expect("an id");
        assert!(page.text.contains(&format!("<article id=\"{id}\">")), "{method} {path} is missing");
    }
    for name in document["components"]["schemas"].as_object().expect("schemas").keys() {
        assert!(page.text.contains(&format!("id=\"schema-{name}\"")), "{name} is missing");
    }
    let style = server.stranger().get("/docs/api.css");
    assert_eq!((style.status, style.header("content-type")), (200, "text/css; charset=utf-8"));
    assert!(style.text.contains("--accent:"), "the colours of the dashboard");
}

/// Name and schema of each field and parameter.
fn named(document: &Value) -> Vec<(String, Value)> {
    fn below(value: &Value, found: &mut Vec<(String, Value)>) {
        match value {
            Value::Object(object) => {
                let fields = object.get("properties").and_then(Value::as_object);
                found.extend(fields.into_iter().flatten().map(|(name, schema)| (name.clone(), schema.clone())));
                if let (Some(name), Some(schema)) = (object.get("name").and_then(Value::as_str), object.get("schema")) {
                    found.push((name.to_owned(), schema.clone()));
                }
                object.values().for_each(|value| below(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| below(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    below(document, &mut found);
    found
}

#[test]
fn names_tell_units() {
    let document = document();
    let named = named(&document);
    assert!(named.len() > 200, "{}", named.len());
    let (mut measured, mut instants) = (0, 0);
    for (name, schema) in &named {
        let is = |kind: &str| {
            schema["type"] == kind || schema["type"].as_array().is_some_and(|types| types.contains(&json!(kind)))
        };
        let speaks_of = |words: &[&str]| name.split('_').any(|word| words.contains(&word));
        let is_time = speaks_of(&[
            "after", "age", "delay", "duration", "elapsed", "interval", "latency", "retry", "seconds", "time",
            "timeout", "ttl", "until", "wait", "ms", "us",
        ]);
        if (is("integer") || is("number")) && is_time && name != "remaining_after" {
            assert!(is("integer") && (name.ends_with("_ms") || name.ends_with("_us")), "{name}: {schema}");
            measured += 1;
        }
        if name.ends_with("_at") || name == "until" {
            assert!(is("string") && schema["format"] == "date-time", "{name}: {schema}");
            instants += 1;
        }
    }
    assert!(measured >= 3 && instants >= 6, "{measured} {instants}");
    // Objects of the policy have the document's own strings.
    let limit = &document["components"]["schemas"]["Limit"]["properties"];
    assert_eq!((&limit["period"]["type"], &limit["limit"]["type"]), (&json!("string"), &json!("integer")));
}
