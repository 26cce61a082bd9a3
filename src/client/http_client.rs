//! The HTTP client of the commands that call a running server, and of the exporter of traces.

use std::{
    error::Error,
    fs,
    io::{self, Read},
    iter,
    path::Path,
    time::Duration,
};

use reqwest::{
    StatusCode,
    blocking::{Client, RequestBuilder},
    header::HeaderMap,
    redirect::Policy,
};
use tidegate_net::tls::ClientTls;

use crate::output::CommandError;

/// A response whose body was read whole.
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Makes a client for calls of `url`. `timeout` is for a whole call. Over https it trusts the authorities in the file `ca`, or
/// without one those of the system. It follows no redirects and uses no proxy, since the user names the server.
///
/// It must not be made on a thread of an asynchronous runtime.
pub(crate) fn http_client(url: &str, ca: Option<&Path>, timeout: Duration) -> Result<Client, CommandError> {
    let is_https = url.starts_with("https:");
    let name = |file: &Path| file.display().to_string();
    let ca = ca.filter(|_| is_https);
    let authorities =
        ca.map(|file| fs::read(file).map_err(|error| CommandError::of_file(&name(file), error))).transpose()?;
    let tls = ClientTls { machine: is_https && ca.is_none(), authorities: authorities.as_deref(), own: None };
    let tls = tls.config().map_err(|error| match ca {
        Some(file) => CommandError::of_file(&name(file), error),
        None => CommandError(error.to_string()),
    })?;
    Client::builder()
        .tls_backend_preconfigured(tls)
        .timeout(timeout)
        .redirect(Policy::none())
        .no_proxy()
        .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| CommandError(root_cause(&error).to_string()))
}

/// Sends a request, and reads the response. A body of more than `body_bytes_max` is an error.
pub(crate) fn send(request: RequestBuilder, body_bytes_max: u64) -> Result<HttpResponse, Box<dyn Error + Send + Sync>> {
    let response = request.send()?;
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = Vec::new();
    response.take(body_bytes_max + 1).read_to_end(&mut body)?;
    if body.len() as u64 > body_bytes_max {
        return Err(format!("the response has more than {body_bytes_max} bytes").into());
    }
    Ok(HttpResponse { status, headers, body })
}

/// Describes why a call failed, and what to do. `option` is the option that names the server, and `stranger` says that the server
/// is not one of ours.
pub(crate) fn describe_error(error: &(dyn Error + 'static), option: &str, stranger: &str) -> String {
    let root = root_cause(error);
    if let Some(error) = causes(error).find_map(|cause| cause.downcast_ref::<rustls::Error>()) {
        return match error {
            rustls::Error::InvalidCertificate(_) => {
                format!("its certificate is not trusted: {error}; --ca names the authorities to trust")
            }
            _ => format!("no TLS connection: {error}"),
        };
    }
    let has = |test: fn(&reqwest::Error) -> bool| {
        causes(error).filter_map(|cause| cause.downcast_ref::<reqwest::Error>()).any(test)
    };
    if has(reqwest::Error::is_timeout) {
        "no response in time; --timeout waits longer".to_owned()
    } else if has(reqwest::Error::is_connect) {
        format!("cannot connect: {root}; is `tidegate serve` running? {option} names its URL")
    } else if has(reqwest::Error::is_builder) {
        "the request has a character that HTTP does not allow: check the URL and the token".to_owned()
    } else {
        format!("{stranger} ({root})")
    }
}

/// Returns the last cause of an error.
pub(crate) fn root_cause<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    causes(error).last().unwrap_or(error)
}

/// Iterates over an error and its causes.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    iter::successors(Some(error), |error| cause(*error))
}

fn cause<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    // The `source` of an I/O error skips the error inside it.
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inside) => Some(inside),
        None => error.source(),
    }
}
