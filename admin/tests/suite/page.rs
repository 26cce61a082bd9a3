//! The dashboard's files as a browser gets them, open to everybody.

use crate::support::fresh;

#[test]
#[cfg(feature = "dashboard")]
fn every_address_of_the_page_answers_the_page_and_a_missing_file_does_not() {
    let (_folder, server) = fresh();
    let stranger = server.stranger();
    let page = stranger.get("/");
    assert_eq!((page.status, page.header("cache-control")), (200, "no-cache"));
    assert!(page.text.starts_with("<!doctype html>"), "{page:?}");
    assert!(page.header("content-security-policy").starts_with("default-src 'none'; script-src 'self'"));
    for address in ["/setup", "/login", "/tiers", "/tiers/pro", "/history/3"] {
        assert_eq!(stranger.get(address).text, page.text, "{address}");
    }
    // Asked again, it need not be sent again.
    let unchanged = stranger.send("GET", "/", &[("if-none-match", page.header("etag"))], None);
    assert_eq!((unchanged.status, unchanged.text.as_str()), (304, ""));
    let script =
        page.text.split('"').find(|part| part.starts_with("/assets/") && part.contains(".js")).expect("a script");
    let plain = stranger.get(script);
    assert_eq!((plain.status, plain.header("cache-control")), (200, "public, max-age=31536000, immutable"));
    assert_eq!(plain.header("content-encoding"), "");
    let length = |encodings: &str| {
        let answer = stranger.send("HEAD", script, &[("accept-encoding", encodings)], None);
        (
            answer.header("content-encoding").to_owned(),
            answer.header("content-length").parse::<usize>().expect("a length"),
        )
    };
    let (encoding, compressed) = length("gzip, br;q=0.9");
    assert_eq!(encoding, "br");
    assert!(compressed * 2 < plain.text.len(), "{compressed} of {}", plain.text.len());
    for missing in ["/assets/none.js", "/assets/", &format!("{script}.br")] {
        assert_eq!(stranger.get(missing).status, 404, "{missing}");
    }
    assert_eq!(stranger.send("POST", "/", &[], None).status, 405);
}

#[test]
#[cfg(not(feature = "dashboard"))]
fn a_build_without_the_dashboard_says_so() {
    let (_folder, server) = fresh();
    let stranger = server.stranger();
    assert!(stranger.get("/").text.contains("no dashboard"));
    assert_eq!(stranger.get("/tiers/pro").status, 404);
}
