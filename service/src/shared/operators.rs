//! The trait by which a listener learns whether a token is an operator's.

use std::{fmt, future::Future, pin::Pin};

/// The future of a query whether a token is an operator's. An error says why that could not be found out.
pub type OperatorQuery<'a> = Pin<Box<dyn Future<Output = Result<bool, String>> + Send + 'a>>;

/// Knows the tokens of operators. The admin server gives them out, so its client implements this.
pub trait Operators: fmt::Debug + Send + Sync {
    /// Returns whether this is the token of an operator, or of a higher role.
    fn has<'a>(&'a self, token: &'a str) -> OperatorQuery<'a>;
}
