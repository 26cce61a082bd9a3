//! The settings of `/v1/authorize`: where the head of the request stands that a proxy asks about.

use actix_web::http::header::HeaderName;
use tidegate_middleware::extract::Extractors;

/// The settings with which the requests are read that proxies ask about.
#[derive(Clone, Debug)]
pub struct Authorize {
    /// The identities of the end user.
    pub identities: Extractors,
    /// The header with the path of the request, with or without a query. The proxy must write it itself, over any header that its
    /// client sent under this name.
    pub endpoint_header: HeaderName,
    /// The header with the method of the request.
    pub method_header: HeaderName,
}

impl Default for Authorize {
    /// Counts the address of the proxy's client as the default extractors find it.
    fn default() -> Self {
        Self::new(Extractors::default())
    }
}

impl Authorize {
    /// The header in which most proxies write the path.
    pub const ENDPOINT_HEADER: &str = "x-forwarded-uri";
    /// The header in which most proxies write the method.
    pub const METHOD_HEADER: &str = "x-forwarded-method";

    /// Reads these identities, and path and method from the headers that most proxies write.
    #[must_use]
    pub fn new(identities: Extractors) -> Self {
        let name = HeaderName::from_static;
        Self { identities, endpoint_header: name(Self::ENDPOINT_HEADER), method_header: name(Self::METHOD_HEADER) }
    }
}
