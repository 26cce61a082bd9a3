//! Syntax errors in plain words, for a text that is not a document of its format or is a document for another program.

use serde_json::Value;

use super::{Format, line_at, read_once};
use crate::policy::error::Problem;

const UNKNOWN_ESCAPE: &str = "`\\` stands in a text before a character that it has no meaning for; write `\\\\`";

/// Parts of messages of the libraries that read text, with plain words for them. The first match counts.
const PLAIN: &[(&str, &str)] = &[
    // YAML.
    ("multiple YAML documents", "a second document begins here; write one document, without `---` between two"),
    ("found a tab", "a tab stands here; indent with spaces"),
    ("tabs disallowed", "a tab stands here; indent with spaces"),
    (
        "unknown anchor",
        "`*` begins an alias of an anchor, which is not there; put a text that begins with it in quotes",
    ),
    ("cyclic", "an alias stands in its own anchor; remove it"),
    ("weak recursion", "an alias stands in its own anchor; remove it"),
    ("merge value must be", "`<<` takes a table, or an alias of one"),
    ("unexpected character: `@", "`@` begins no text; put it in quotes"),
    ("unexpected character: ``", "a backquote begins no text; put it in quotes"),
    ("did not find expected key", "a key and `:` must stand here; look at the indentation"),
    ("did not find expected '-'", "`-` and an item must stand here; look at the indentation"),
    ("expected mapping start", "the indentation does not fit; a key and `:` must stand here"),
    ("expected sequence start", "the indentation does not fit; `-` and an item must stand here"),
    ("expected string scalar", "a key is a list or a table here; write a text"),
    ("cannot deserialize null into string", "a key is missing before `:`; write a text"),
    ("unexpected end of input", "the text ends here in the middle of a value"),
    ("unclosed bracket", "a list or a table in brackets does not end; add the closing bracket"),
    ("misplaced bracket", "this bracket closes none that is open; remove it, or put the text in quotes"),
    ("mismatched bracket", "this bracket closes one of another kind; look at the brackets before it"),
    ("unclosed quote", "the quotes of a text do not end"),
    ("multiline quoted scalar", "the quotes of a text do not end"),
    ("while parsing a quoted scalar", UNKNOWN_ESCAPE),
    (
        "did not find expected <document start>",
        "`%` begins a directive here, before `---`; put a text that begins with it in quotes",
    ),
    ("!!binary", "a value of the type binary stands here; write a text"),
    (
        "mapping values are not allowed",
        "`:` stands where no key can be; look at the indentation, or put a text in quotes",
    ),
    ("while parsing a flow sequence", "`,` or `]` must stand here; put a text that has brackets in quotes"),
    ("while parsing a flow mapping", "`,` or `}` must stand here; put a text that has brackets in quotes"),
    ("tab cannot be used", "a tab stands here; indent with spaces"),
    ("simple key", "`:` and a value must follow the key"),
    ("limit exceeded", "lists, tables or aliases are nested too deep"),
    ("budget breached", "lists, tables or aliases are nested or repeated too often"),
    // TOML.
    ("duplicate key", "this key stands here twice; keep one"),
    ("invalid boolean", "a text stands here without quotes; put it in quotes"),
    ("string values must be quoted", "a text stands here without quotes; put it in quotes"),
    ("integer number overflowed", "this number cannot be read; write a whole number"),
    ("number out of range", "this number is too large"),
    ("floating-point number overflowed", "this number is too large"),
    ("unexpected leading zero", "a number begins with 0; write it without"),
    ("unquoted keys cannot be empty", "a key must stand before `=`"),
    ("unclosed inline table", "a table that began with `{` does not end; write `}`"),
    ("unclosed table", "`[` has no `]`; write it"),
    ("unclosed array", "`[` has no `]`; write it"),
    ("invalid multi-line", "the quotes of a text do not end"),
    ("missing escaped value", UNKNOWN_ESCAPE),
    ("key with no value", "`=` and a value must follow the key"),
    ("invalid basic string", "the quotes of a text do not end on its line"),
    ("invalid literal string", "the quotes of a text do not end on its line"),
    ("missing key for inline table", "a table that began with `{` does not end; write `}`"),
    ("invalid key-value pair", "a key, `=` and a value must stand here"),
    // JSON.
    ("expected `:`", "`:` and a value must follow the key"),
    ("expected `,` or `]`", "`,` or `]` must stand here"),
    ("expected `,` or `}`", "`,` or `}` must stand here"),
    ("invalid escape", UNKNOWN_ESCAPE),
    ("hex escape", "`\\u` and no character stand in a text; write the character itself"),
    ("unicode code point", "`\\u` and no character stand in a text; write the character itself"),
    ("EOF while parsing", "the text ends here in the middle of a value; a bracket or a quote is missing"),
    ("expected ident", "no value stands here; put a text in quotes"),
    ("expected value", "no value stands here; put a text in double quotes"),
    ("trailing comma", "a comma stands before the end of a list or an object; remove it"),
    ("trailing characters", "something stands after the end of the document; remove it"),
    ("key must be a string", "a key stands here without quotes; put it in double quotes"),
    ("control character", "a line end, a tab or another control character stands in a text; write \\n or \\t"),
    ("invalid number", "this number cannot be read; write it without a sign `+` and without zeros before it"),
];

/// Returns the plain words for a library's message about a text.
pub(super) fn in_plain_words(problem: &Problem, format: Format) -> Option<String> {
    let message = &problem.message;
    let twice = ["duplicate mapping key: ", "duplicate field "].iter().find_map(|start| message.strip_prefix(start));
    if let Some(key) = twice {
        return Some(format!("`{}` stands here twice; keep one", key.trim_matches('`')));
    }
    let (_, plain) = PLAIN.iter().find(|(said, _)| message.contains(said))?;
    Some(format!("not {}: {plain}", name(format)))
}

/// Returns the message for an unknown syntax error.
pub(super) fn unknown_error(format: Format) -> String {
    format!("not {}: this cannot be read; look at the quotes and brackets here and before", name(format))
}

/// Returns the problem of a text that no reader here accepts, such as an empty one or a Kubernetes resource, with a remedy.
/// `wanted` says what would be right.
pub(crate) fn other_document(text: &str, format: Format, wanted: &str) -> Option<Problem> {
    let problem = |line, message: String| Some(Problem { path: String::new(), line, message });
    if let Some(at) = text.find('\0') {
        return problem(
            Some(line_at(text, at)),
            format!("a byte of value 0 stands here, which no text has; write {wanted}"),
        );
    }
    let value = read_once::<Value>(text, format);
    let is_empty = match &value {
        Ok(Value::Null) => format == Format::Yaml,
        Ok(Value::Object(fields)) => format == Format::Toml && fields.is_empty(),
        _ => text.trim().is_empty(),
    };
    if is_empty {
        return problem(None, format!("the document is empty; write {wanted}"));
    }
    let value = value.ok().filter(|value| value.get("apiVersion").is_some())?;
    let kind = value.get("kind")?.as_str()?;
    let holders = kubernetes_holders("", &value);
    let given = if holders.is_empty() {
        format!("write {wanted}")
    } else {
        format!("save what stands at {} as a file of its own, and give that", holders.join(" or "))
    };
    problem(None, format!("this is a Kubernetes {kind}; {given}"))
}

/// Returns the paths of files in a Kubernetes resource, which is at `path`.
fn kubernetes_holders(path: &str, resource: &Value) -> Vec<String> {
    let data = resource.get("data").and_then(Value::as_object).into_iter().flatten();
    let data = data.map(|(key, _)| format!("`{path}data[\"{key}\"]`"));
    let limits = resource.pointer("/spec/limits").is_some_and(Value::is_array).then(|| format!("`{path}spec.limits`"));
    let items = resource.get("items").and_then(Value::as_array).into_iter().flatten().enumerate();
    let below = items.flat_map(|(place, item)| kubernetes_holders(&format!("{path}items[{place}]."), item));
    data.chain(limits).chain(below).collect()
}

/// Returns the problem of a text that is another document than a policy, with a remedy.
pub(super) fn foreign_document(text: &str, format: Format) -> Option<Problem> {
    let problem = |message: String| Some(Problem { path: String::new(), line: None, message });
    if let Some(other) = other_document(text, format, "a policy: a table with `domains`, and `default` in it") {
        return Some(other);
    }
    match read_once::<Value>(text, format) {
        Ok(Value::Object(fields)) if fields.contains_key("descriptors") => {
            problem(import("envoyproxy/ratelimit", "envoy"))
        }
        Ok(Value::Array(items)) if items.iter().any(|item| item.get("namespace").is_some()) => {
            problem(import("limitador", "limitador"))
        }
        Ok(_) => None,
        Err(_) => {
            let is_policy = |other: &Format| {
                // All JSON is YAML, and so is some invalid JSON.
                let is_like_json = *other == Format::Yaml && text.trim_start().starts_with('{');
                let is_other = *other != format && !is_like_json;
                is_other && read_once::<Value>(text, *other).is_ok_and(|value| value.get("domains").is_some())
            };
            let other = [Format::Toml, Format::Json, Format::Yaml].into_iter().find(is_policy)?;
            let (is, read_as) = (name(other), name(format));
            problem(format!(
                "this is {is}, and was read as {read_as}; give it as a file with .{} at its end",
                is.to_lowercase()
            ))
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
