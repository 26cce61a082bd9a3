//! What is read of a request, and written to its answer, whichever framework has them.

use std::{any::Any, net::IpAddr};

/// The head of a request.
pub trait RequestHead {
    /// Values of the header of this name (lower case), in the order in which they came.
    fn header(&self, name: &str) -> Vec<&[u8]>;

    /// The first of them.
    fn first(&self, name: &str) -> Option<&[u8]> {
        self.header(name).into_iter().next()
    }

    /// The address at the other end of the connection, if it is known.
    fn peer(&self) -> Option<IpAddr>;

    /// The path, without the query.
    fn path(&self) -> &str;

    /// The method, such as `GET`.
    fn method(&self) -> &str;

    /// The framework's own value, for what is not read here, such as what an earlier middleware found out: of a tower layer
    /// `http::request::Parts`, of actix-web `HttpRequest`.
    fn original(&self) -> &dyn Any;
}

/// The headers of an answer.
#[cfg(feature = "guard")]
pub(crate) trait AnswerHeaders {
    fn has(&self, name: &'static str) -> bool;

    /// Beside those of the same name. What HTTP does not allow is left out.
    fn add(&mut self, name: &str, value: String);
}
