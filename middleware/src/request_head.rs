//! The head of a request, and the headers of a response, as traits that each framework's types implement.

use std::{any::Any, net::IpAddr};

/// The head of a request.
pub trait RequestHead {
    /// Returns the values of the header with this name (lower case), in the order of the request.
    fn header(&self, name: &str) -> Vec<&[u8]>;

    /// Returns the first value of the header with this name (lower case).
    fn first(&self, name: &str) -> Option<&[u8]> {
        self.header(name).into_iter().next()
    }

    /// Returns the address at the other end of the connection, if it is known.
    fn peer(&self) -> Option<IpAddr>;

    /// Returns the path, without the query.
    fn path(&self) -> &str;

    /// Returns the method, such as `GET`.
    fn method(&self) -> &str;

    /// Returns the framework's own value, for what this trait does not give, such as the result of an earlier middleware: under
    /// tower `http::request::Parts`, under actix-web `HttpRequest`.
    fn original(&self) -> &dyn Any;
}

/// The headers of a response.
#[cfg(feature = "guard")]
pub(crate) trait ResponseHeaders {
    /// Returns whether there is a header with this name.
    fn has(&self, name: &'static str) -> bool;

    /// Appends a header, beside others of the same name. Leaves out what HTTP does not allow.
    fn add(&mut self, name: &str, value: String);
}
