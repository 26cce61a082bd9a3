//! Holds every answer that a test gets to what the `OpenAPI` document says of its call: status, type and code.

use serde_json::Value;

use crate::support::Answer;

/// `path` is that below `/api/v1`.
pub(crate) fn check(document: &Value, method: &str, path: &str, answer: &Answer) {
    let what = || format!("{method} {path}: {answer:?}");
    let path = path.split('?').next().unwrap_or_default();
    let paths = document["paths"].as_object().expect("paths");
    let methods: Vec<&Value> = paths.iter().filter(|(template, _)| fits(template, path)).map(|(_, of)| of).collect();
    // A head is said as what it is the head of.
    let said_as = if method == "HEAD" { "get".to_owned() } else { method.to_lowercase() };
    let operation = methods.iter().find_map(|of| of.get(&said_as));
    let media = answer.header("content-type").split(';').next().unwrap_or_default();
    let Some(operation) = operation else {
        // Strangers are not told what there is.
        let wanted = if methods.is_empty() { 404 } else { 405 };
        assert!([401, 403, wanted].contains(&answer.status), "{}", what());
        assert_eq!(media, "application/problem+json", "{}", what());
        return;
    };
    let said = &operation["responses"][answer.status.to_string()];
    let said =
        said["$ref"].as_str().map_or(said, |at| document.pointer(at.trim_start_matches('#')).expect("it is there"));
    assert!(said.is_object(), "not documented: {}", what());
    let Some(content) = said["content"].as_object() else {
        assert!(answer.text.is_empty(), "{}", what());
        return;
    };
    assert!(content.contains_key(media), "not of a documented type: {}", what());
    if method == "HEAD" {
        return;
    }
    if let Some(codes) = content[media]["schema"]["properties"]["code"]["enum"].as_array() {
        assert!(codes.contains(&answer.json()["code"]), "not with a documented code: {}", what());
    }
}

/// Is this a path of this template?
fn fits(template: &str, path: &str) -> bool {
    let (mut of_template, mut of_path) = (template.split('/'), path.split('/'));
    loop {
        match (of_template.next(), of_path.next()) {
            (None, None) => return true,
            (Some(part), Some(other)) if part == other || part.starts_with('{') && !other.is_empty() => {}
            _ => return false,
        }
    }
}
