//! The body of a check (`POST /v1/check`), as clients write it. The server reads it by types of its own, which borrow from the text
//! and name the field that is wrong.

use serde::Serialize;

/// The body of a check. A field that is `None` is left out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckBody<'a> {
    /// The domain of the policy; the server takes `default` if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<&'a str>,
    /// The identities that are counted, one to eight.
    pub identities: Vec<IdentityBody<'a>>,
    /// The path of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<&'a str>,
    /// The method of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<&'a str>,
    /// The cost in tokens; 0 fits only with `peek`.
    pub cost: u64,
    /// The tier to decide by instead of the client's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<&'a str>,
    /// Whether the server only says what it would decide, and charges nothing.
    pub peek: bool,
}

/// One identity of a check.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct IdentityBody<'a> {
    /// The kind, such as `user`.
    pub kind: &'a str,
    /// The value.
    pub value: &'a str,
}
