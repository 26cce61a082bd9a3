//! Problem details (RFC 9457): the body of every error of the HTTP APIs.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};

/// Media type of problem details.
pub const PROBLEM_JSON: &str = "application/problem+json";
/// The `type` of problem details whose `code` says what kind of problem it is.
pub const ABOUT_BLANK: &str = "about:blank";

/// Problem details. A reader takes members that are missing, or of another type than here, as empty: a proxy may have written
/// the body. `type` is `about:blank` then, as the RFC asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
// The OpenAPI document describes what the server writes: it leaves no member out but an empty list of errors.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(!default))]
#[serde(default)]
pub struct ProblemDetails {
    /// URI of the kind of problem; `about:blank` if only the code says what it is.
    #[serde(rename = "type", deserialize_with = "kind")]
    pub kind: Cow<'static, str>,
    /// Stable code, which programs may rely on.
    #[serde(deserialize_with = "or_empty")]
    pub code: Cow<'static, str>,
    /// Short summary for people: the meaning of the code, or the phrase of the status.
    #[serde(deserialize_with = "or_empty")]
    pub title: Cow<'static, str>,
    /// HTTP status of the response; of a check in a batch, the one that it would have by itself.
    #[serde(deserialize_with = "or_empty")]
    pub status: u16,
    /// Description of this case, for people.
    #[serde(deserialize_with = "or_empty")]
    pub detail: String,
    /// Each part of the request that is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "those_that_fit")]
    pub errors: Vec<FieldError>,
}

impl Default for ProblemDetails {
    fn default() -> Self {
        Self::new(0, "", "", "")
    }
}

/// A value that has the expected type or another one.
#[derive(Deserialize)]
#[serde(untagged)]
enum AnyType<T> {
    Expected(T),
    Other(IgnoredAny),
}

impl<T> AnyType<T> {
    fn expected(self) -> Option<T> {
        match self {
            Self::Expected(value) => Some(value),
            Self::Other(IgnoredAny) => None,
        }
    }
}

/// Reads a value of the expected type, and takes any other as empty (RFC 9457, section 3.1).
fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(AnyType::deserialize(deserializer)?.expected().unwrap_or_default())
}

/// Reads the `type` of a problem, which is `about:blank` unless it is a text.
fn kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'static, str>, D::Error> {
    let kind = AnyType::<String>::deserialize(deserializer)?.expected();
    Ok(kind.map_or(ABOUT_BLANK.into(), Cow::Owned))
}

/// Reads the errors of parts, without those of another shape.
fn those_that_fit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<FieldError>, D::Error> {
    let errors = AnyType::<Vec<AnyType<FieldError>>>::deserialize(deserializer)?.expected();
    Ok(errors.into_iter().flatten().filter_map(AnyType::expected).collect())
}

impl ProblemDetails {
    /// Creates problem details whose code says what kind of problem it is.
    #[must_use]
    pub fn new(
        status: u16,
        code: impl Into<Cow<'static, str>>,
        title: impl Into<Cow<'static, str>>,
        detail: impl Into<String>,
    ) -> Self {
        let (code, title, detail) = (code.into(), title.into(), detail.into());
        Self { kind: ABOUT_BLANK.into(), code, title, status, detail, errors: Vec::new() }
    }
}

/// One part of a request that is wrong: where it is, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FieldError {
    /// The place of the part.
    #[serde(flatten)]
    pub at: ErrorLocation,
    /// Stable code of what is wrong.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(!default))]
    pub code: Cow<'static, str>,
    /// Description of what is wrong and what to do, for people.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(!default))]
    pub message: String,
}

impl FieldError {
    /// Creates an error of the code `invalid`.
    pub fn new(at: ErrorLocation, message: impl Into<String>) -> Self {
        Self { at, code: "invalid".into(), message: message.into() }
    }

    /// Creates an error of the code `invalid` at a JSON pointer into the body.
    pub fn invalid(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorLocation::Pointer(pointer.into()), message)
    }

    /// Moves an error of a value to the place where that value stands in a larger document.
    #[must_use]
    pub fn below(self, pointer: &str) -> Self {
        Self { at: self.at.below(pointer), ..self }
    }
}

/// The place of a part of a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ErrorLocation {
    /// JSON pointer (RFC 6901) into the body; empty for the whole body.
    Pointer(String),
    /// Name of a parameter of the query or the path.
    Parameter(String),
    /// Name of a header.
    Header(String),
}

impl ErrorLocation {
    /// Prefixes a JSON pointer with the place of the value that it points into; other places stay.
    #[must_use]
    pub fn below(self, pointer: &str) -> Self {
        match self {
            Self::Pointer(rest) => Self::Pointer(format!("{pointer}{rest}")),
            other => other,
        }
    }
}

/// Problem details of a request that a decision stopped: a denial, or a request that could not be decided.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DecisionProblem {
    /// The members that all problems have.
    #[serde(flatten)]
    pub problem: ProblemDetails,
    /// Full name of the limit that decided; `null` if none did.
    pub limit_id: Option<String>,
    /// Exact time until the request would be allowed; `null` if it never will be.
    pub retry_after_ms: Option<u64>,
    /// Reason why the store or the server that should have decided did not; left out if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem() -> ProblemDetails {
        let at = |at| FieldError::new(at, "is wrong");
        let errors = vec![
            at(ErrorLocation::Pointer("/identities/0/kind".to_owned())),
            at(ErrorLocation::Parameter("cost".to_owned())),
            at(ErrorLocation::Header("host".to_owned())),
        ];
        ProblemDetails { errors, ..ProblemDetails::new(400, "bad_kind", "Bad Request", "kind: is wrong") }
    }

    #[test]
    fn problem_details_are_written_as_documented() {
        let expected = json!({
            "type": "about:blank", "code": "bad_kind", "title": "Bad Request", "status": 400, "detail": "kind: is wrong",
            "errors": [
                { "pointer": "/identities/0/kind", "code": "invalid", "message": "is wrong" },
                { "parameter": "cost", "code": "invalid", "message": "is wrong" },
                { "header": "host", "code": "invalid", "message": "is wrong" },
            ],
        });
        assert_eq!(serde_json::to_value(problem()).expect("it is plain data"), expected);
    }

    #[test]
    fn problem_details_are_read_as_they_were_written() {
        let text = serde_json::to_string(&problem()).expect("it is plain data");
        assert_eq!(serde_json::from_str::<ProblemDetails>(&text).expect("it was written"), problem());
    }

    #[test]
    fn a_problem_of_another_server_is_read_as_far_as_it_goes() {
        let other = r#"{"title":"Bad Gateway","detail":"no upstream","instance":"/x"}"#;
        let read: ProblemDetails = serde_json::from_str(other).expect("problem details");
        assert_eq!((&*read.code, &*read.title, &*read.detail), ("", "Bad Gateway", "no upstream"));
        assert_eq!(read.kind, ABOUT_BLANK);
        assert_eq!(serde_json::from_str::<ProblemDetails>("{}").expect("an object"), ProblemDetails::default());
        let other = r#"{"type":7,"code":"busy","status":"503","detail":null,
            "errors":["cost",{"pointer":"/cost","message":"too high"},{"field":"cost"}]}"#;
        let read: ProblemDetails = serde_json::from_str(other).expect("problem details");
        assert_eq!((&*read.kind, &*read.code, read.status, &*read.detail), (ABOUT_BLANK, "busy", 0, ""));
        let cost = FieldError { code: "".into(), ..FieldError::invalid("/cost", "too high") };
        assert_eq!(read.errors, [cost]);
    }

    #[test]
    fn an_error_of_a_part_is_moved_to_its_place_in_the_whole() {
        let moved = FieldError::invalid("/cost", "is wrong").below("/checks/3");
        assert_eq!(moved.at, ErrorLocation::Pointer("/checks/3/cost".to_owned()));
        let header = ErrorLocation::Header("host".to_owned());
        assert_eq!(header.clone().below("/checks/3"), header);
    }
}
