//! Cookies of which a browser keeps several, each named by what it is for: sign-ins by the provider that are open, and users
//! who signed in in it before.

use actix_web::{HttpRequest, cookie::Cookie};

use crate::base::sha256::sha256;

/// Cookies of one family that a browser keeps: all are sent with each request.
const KEPT_MAX: usize = 4;
/// Letters by which the name of a cookie tells what it is for.
const NAME_LETTERS: usize = 16;

/// The name of the cookie of a family that is for this.
pub(crate) fn name_of(family: &str, what: &str) -> String {
    format!("{family}{}", sha256(what).get(..NAME_LETTERS).unwrap_or_default())
}

/// Returns the cookies of a family that a browser has beyond what it keeps when `new` is set: it sends those first that it was
/// given first.
pub(crate) fn surplus(request: &HttpRequest, family: &str, new: &str) -> Vec<String> {
    let is_other = |name: &&str| {
        *name != new
            && name
                .strip_prefix(family)
                .is_some_and(|end| end.len() == NAME_LETTERS && end.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let mut others: Vec<String> = match request.cookies_raw() {
        Ok(all) => all.iter().map(Cookie::name).filter(is_other).map(ToOwned::to_owned).collect(),
        Err(_) => Vec::new(),
    };
    others.truncate((others.len() + 1).saturating_sub(KEPT_MAX));
    others
}

#[cfg(test)]
mod tests {
    use actix_web::{http::header::COOKIE, test::TestRequest};

    use super::*;

    #[test]
    fn of_a_family_the_newest_cookies_are_kept() {
        let names: Vec<String> = ["a", "b", "c", "d"].map(|what| name_of("x_", what)).into();
        let cookies = names.iter().map(|name| format!("{name}=1")).collect::<Vec<_>>().join("; ");
        let request = TestRequest::default()
            .insert_header((COOKIE, format!("x_session=1; {cookies}; x_0123456789abcdeg=1")))
            .to_http_request();
        assert_eq!(surplus(&request, "x_", &name_of("x_", "e")), names[..1]);
        assert!(surplus(&request, "x_", &names[0]).is_empty(), "it takes the place of one");
        assert!(surplus(&request, "y_", &name_of("y_", "e")).is_empty(), "another family");
    }
}
