//! The dashboard's files. Every address of the page answers the page; a missing asset does not.

use actix_web::{HttpRequest, HttpResponse, http::Method};

use crate::{domain::error::Problem, http::guard::Anyone};

#[cfg(not(feature = "dashboard"))]
const ABSENT: &str = "This build of Tidegate has no dashboard; it was built without the feature `dashboard`.\n\
                      The REST calls under /api/v1 are here.\n";

/// The version, and what tells this build's page from others of the same version.
pub(crate) fn build() -> String {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    #[cfg(feature = "dashboard")]
    let version = format!("{version}+{}", tidegate_web::index().etag.trim_start_matches("W/").trim_matches('"'));
    version
}

/// A file of the page.
pub(super) async fn page(_: Anyone, request: HttpRequest) -> Result<HttpResponse, Problem> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Problem::MethodNotAllowed { allowed: "GET, HEAD".to_owned() });
    }
    answer(&request)
}

#[cfg(not(feature = "dashboard"))]
fn answer(request: &HttpRequest) -> Result<HttpResponse, Problem> {
    match request.path() {
        "/" | "/setup" => Ok(HttpResponse::Ok().content_type("text/plain; charset=utf-8").body(ABSENT)),
        path => Err(Problem::NotFound(format!("There is nothing at {path}."))),
    }
}

#[cfg(feature = "dashboard")]
fn answer(request: &HttpRequest) -> Result<HttpResponse, Problem> {
    use std::borrow::Cow;

    use actix_web::{http::header, web::Bytes};

    let path = request.path().trim_start_matches('/');
    let asset = match tidegate_web::asset(path) {
        Some(asset) if !path.is_empty() => asset,
        _ if path == "docs" || path.starts_with("docs/") => {
            tidegate_web::guide(path.trim_start_matches("docs").trim_start_matches('/'))
                .ok_or_else(|| Problem::NotFound(format!("There is no guide at /{path}; /docs/ lists them.")))?
        }
        // An address of the page, such as /tiers/pro.
        _ if !path.starts_with("assets/") => tidegate_web::index(),
        _ => return Err(Problem::NotFound(format!("There is no file /{path}."))),
    };
    let says = |name, what: &str| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(',').any(|part| part.split(';').next().unwrap_or_default().trim() == what)
    };
    let mut response = HttpResponse::Ok();
    response
        .insert_header((header::ETAG, asset.etag.as_str()))
        .insert_header((header::VARY, "Accept-Encoding"))
        .insert_header((
            header::CACHE_CONTROL,
            if asset.immutable { "public, max-age=31536000, immutable" } else { "no-cache" },
        ));
    if says(header::IF_NONE_MATCH, &asset.etag) {
        return Ok(response.status(actix_web::http::StatusCode::NOT_MODIFIED).finish());
    }
    response.content_type(asset.content_type);
    let bytes = match asset.brotli {
        Some(brotli) if says(header::ACCEPT_ENCODING, "br") => {
            response.insert_header((header::CONTENT_ENCODING, "br"));
            brotli
        }
        _ => asset.bytes,
    };
    Ok(response.body(match bytes {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => bytes.into(),
    }))
}
