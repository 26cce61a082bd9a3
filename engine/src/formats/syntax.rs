//! What is wrong with a text that is no document of its format, and which other document it may be.

use serde_json::Value;

use super::{Format, line_at, read_once};
use crate::problem::Problem;

/// Parts of the messages of the libraries that read text, and plain words for them. The first that fits counts.
const PLAIN: &[(&str, &str)] = &[
    // YAML.
    ("multiple YAML documents", "a second document begins here; write one document, without `---` between two"),
    ("found a tab", "a tab stands here; indent with spaces"),
    ("tabs disallowed", "a tab stands here; indent with spaces"),
    (
        "unknown anchor",
        "`*` begins an alias of an anchor, which is not there; put a text that begins with it in quotes",
    ),
    ("unexpected character: `@", "`@` begins no text; put it in quotes"),
    ("unexpected character: ``", "a backquote begins no text; put it in quotes"),
    ("did not find expected key", "a key and `:` must stand here; look at the indentation"),
    ("did not find expected '-'", "`-` and an item must stand here; look at the indentation"),
    ("expected mapping start", "the indentation does not fit; a key and `:` must stand here"),
    ("expected sequence start", "the indentation does not fit; `-` and an item must stand here"),
    ("expected string scalar", "a key is a list or a table here; write a text"),
    ("cannot deserialize null into string", "a key is missing before `:`; write a text"),
    ("unexpected end of input", "the text ends here in the middle of a value"),
    // TOML.
    ("duplicate key", "this key stands here twice; keep one"),
    ("invalid boolean", "a text stands here without quotes; put it in quotes"),
    ("string values must be quoted", "a text stands here without quotes; put it in quotes"),
    ("integer number overflowed", "this number cannot be read; write a whole number"),
    ("key with no value", "`=` and a value must follow the key"),
    ("invalid basic string", "the quotes of a text do not end on its line"),
    ("invalid literal string", "the quotes of a text do not end on its line"),
    ("missing key for inline table", "a table that began with `{` does not end; write `}`"),
    ("invalid key-value pair", "a key, `=` and a value must stand here"),
    // JSON.
    ("EOF while parsing", "the text ends here in the middle of a value; a bracket or a quote is missing"),
    ("expected ident", "no value stands here; put a text in quotes"),
    ("expected value", "no value stands here; put a text in double quotes"),
    ("trailing comma", "a comma stands before the end of a list or an object; remove it"),
    ("trailing characters", "something stands after the end of the document; remove it"),
    ("key must be a string", "a key stands here without quotes; put it in double quotes"),
    ("control character", "a line end, a tab or another control character stands in a text; write \\n or \\t"),
    ("invalid number", "this number cannot be read; write it without a sign `+` and without zeros before it"),
];

/// Words what a library says of a text.
pub(super) fn in_plain_words(problem: Problem, format: Format) -> Problem {
    let Problem { path, line, message } = problem;
    let twice = ["duplicate mapping key: ", "duplicate field "].iter().find_map(|start| message.strip_prefix(start));
    let message = match (twice, PLAIN.iter().find(|(said, _)| message.contains(said))) {
        (Some(key), _) => format!("`{}` stands here twice; keep one", key.trim_matches('`')),
        (None, Some((_, plain))) => format!("not {}: {plain}", name(format)),
        (None, None) => message,
    };
    Problem { path, line, message }
}

/// Names the document that a text is instead of a policy, and the way out.
pub(super) fn foreign(text: &str, format: Format) -> Option<Problem> {
    let problem = |line, message: String| Some(Problem { path: String::new(), line, message });
    if let Some(at) = text.find('\0') {
        return problem(Some(line_at(text, at)), "a byte of value 0 stands here; a policy is a text file".to_owned());
    }
    let value = read_once::<Value>(text, format);
    let is_empty = match &value {
        Ok(Value::Null) => format == Format::Yaml,
        Ok(Value::Object(fields)) => format == Format::Toml && fields.is_empty(),
        _ => text.trim().is_empty(),
    };
    if is_empty {
        return problem(None, "the document is empty; a policy has `domains`, with `default` in it".to_owned());
    }
    match value {
        Ok(Value::Object(fields)) => match fields.get("kind").and_then(Value::as_str) {
            Some(kind) if fields.contains_key("apiVersion") => {
                let files = fields.get("data").and_then(Value::as_object).into_iter().flatten();
                let files: Vec<String> = files.map(|(file, _)| format!("`{file}`")).collect();
                let holds = if files.is_empty() { String::new() } else { format!(", under {}", files.join(", ")) };
                problem(
                    None,
                    format!(
                        "this is a Kubernetes {kind}, not a policy; give the text that its `data` holds{holds}, as a file"
                    ),
                )
            }
            _ if fields.contains_key("descriptors") => problem(None, import("envoyproxy/ratelimit", "envoy")),
            _ => None,
        },
        Ok(Value::Array(items)) if items.iter().any(|item| item.get("namespace").is_some()) => {
            problem(None, import("limitador", "limitador"))
        }
        Ok(_) => None,
        Err(_) => {
            let is_policy = |other: &Format| {
                // All JSON is YAML, and so is some that is wrong.
                let is_like_json = *other == Format::Yaml && text.trim_start().starts_with('{');
                let is_other = *other != format && !is_like_json;
                is_other && read_once::<Value>(text, *other).is_ok_and(|value| value.get("domains").is_some())
            };
            let other = [Format::Toml, Format::Json, Format::Yaml].into_iter().find(is_policy)?;
            let (is, read_as) = (name(other), name(format));
            problem(
                None,
                format!(
                    "this is {is}, and was read as {read_as}; give it as a file with .{} at its end",
                    is.to_lowercase()
                ),
            )
        }
    }
}

fn import(of: &str, from: &str) -> String {
    format!("this is a file of {of}; make a policy of it: tidegate policy import FILE --from {from}")
}

fn name(format: Format) -> &'static str {
    match format {
        Format::Toml => "TOML",
        Format::Yaml => "YAML",
        Format::Json => "JSON",
    }
}
