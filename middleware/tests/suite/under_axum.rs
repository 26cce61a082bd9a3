//! The layer under a real server of axum.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use crate::support::{TestEngine, ask, assert_protects, describe, engine, extractors, from, guard, guards, panicking};
use axum::{
    Extension, Router,
    extract::Request,
    http::StatusCode,
    middleware::map_request,
    response::{IntoResponse, Response},
    routing::any,
};
use tidegate::policy::OnError;
use tidegate_middleware::{
    decision::{Backend, OwnedDecision},
    guard::Guard,
    headers,
    tower::Peer,
};
use tokio::net::TcpListener;

/// Serves until the test ends, and with it its runtime.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });
    address
}

pub(crate) async fn respond(request: Request) -> Response {
    if request.uri().path().ends_with("/missing") {
        return StatusCode::NOT_FOUND.into_response();
    }
    describe(request.extensions().get::<OwnedDecision>()).into_response()
}

pub(crate) async fn in_background(test: impl FnOnce() + Send + 'static) {
    tokio::task::spawn_blocking(test).await.expect("it holds");
}

#[tokio::test]
async fn a_layer_of_axum_protects_a_service() {
    let engine = engine("");
    let guards = guards(&engine);
    let router = guards.iter().fold(Router::new(), |router, (name, guard)| {
        router.merge(Router::new().route(&format!("/{name}/{{*path}}"), any(respond)).layer(guard.clone()))
    });
    let server = serve(router).await;
    in_background(move || assert_protects(server)).await;
    let counts = guards["keys"].counts();
    assert_eq!((counts.no_identity(), counts.undecided()), (3, 0));
    assert_eq!(guards["strict"].counts().no_identity(), 1);
    assert_eq!(["panics", "panics_of_cost"].map(|name| guards[name].counts().undecided()), [3, 3]);
}

#[tokio::test]
async fn a_panic_of_an_extractor_is_503_where_the_domain_is_closed() {
    let guard = Guard::new(engine("on_error = \"closed\""), panicking());
    let server = serve(Router::new().fallback(respond).layer(guard)).await;
    in_background(move || {
        let refused = ask(server, "/", &[]);
        assert_eq!((refused.status, refused.json()["degraded"].as_str()), (503, Some("internal_error")));
    })
    .await;
}

/// A backend that panics on every decision but the first.
struct PanickingBackend(Arc<TestEngine>);

impl Backend for PanickingBackend {
    async fn decide(&self, request: &tidegate::Request<'_>) -> OwnedDecision {
        let decision = Backend::decide(&*self.0, request).await;
        assert_eq!(decision.remaining, Some(1), "a mistake");
        decision
    }

    fn on_error(&self, domain: &str) -> OnError {
        Backend::on_error(&*self.0, domain)
    }
}

#[tokio::test]
async fn a_panic_of_the_backend_lets_the_request_pass() {
    let guard = Guard::new(Arc::new(PanickingBackend(engine(""))), extractors(&["ip=address"]));
    let server = serve(Router::new().fallback(respond).layer(guard.clone())).await;
    in_background(move || {
        for body in ["1", "internal_error", "internal_error"] {
            let response = ask(server, "/", &from("192.0.2.1"));
            assert_eq!((response.status, response.body.as_str()), (200, body));
        }
    })
    .await;
    assert_eq!(guard.counts().undecided(), 2);
}

#[tokio::test]
async fn rules_see_path_and_method() {
    let engine = engine("");
    let server = serve(Router::new().fallback(respond).layer(guard(&engine))).await;
    in_background(move || {
        let put = |path: &str| {
            let request = ureq::put(format!("http://{server}{path}")).header("X-Forwarded-For", "192.0.2.1");
            request.send_empty().expect("allowed").headers()["x-ratelimit-limit"].to_str().expect("text").to_owned()
        };
        // The headers are of the limit with the least remaining: that of the address.
        assert_eq!(put("/uploads/./7?x"), "2");
        assert_eq!(put("/uploads/8"), "2");
        assert_eq!(ask(server, "/uploads/9", &from("192.0.2.2")).status, 200);
    })
    .await;
    let counts = engine.limit_counts();
    let uploads = counts.iter().find(|(limit, _)| engine.limit_name(*limit) == "default/rule:uploads/hour");
    assert_eq!(uploads.expect("counted").1.allowed, 2);
}

#[tokio::test]
async fn the_domain_sets_the_family_of_headers() {
    for (settings, expected) in [
        ("headers = \"ietf\"", &[headers::IETF, headers::IETF_POLICY][..]),
        ("headers = \"none\"", &[]),
        ("reset = \"delta\"", &[headers::LIMIT, headers::REMAINING, headers::RESET]),
    ] {
        let server = serve(Router::new().fallback(respond).layer(guard(&engine(settings)))).await;
        in_background(move || {
            let responses: Vec<_> = (0..3).map(|_| ask(server, "/", &from("192.0.2.1"))).collect();
            for response in &responses {
                let named: Vec<&str> =
                    headers::NUMBERS.into_iter().filter(|name| response.header(name).is_some()).collect();
                assert_eq!(named.len(), expected.len(), "{response:?}");
                assert!(expected.iter().all(|name| named.contains(name)), "{response:?}");
            }
            assert_eq!(responses[2].status, 429);
            let wait: u64 = responses[2].header("retry-after").expect("when").parse().expect("seconds");
            assert!((60..=66).contains(&wait));
            if let Some(limit) = responses[2].header(headers::IETF) {
                assert!(limit.ends_with(&format!(";t={wait}")), "{limit}");
            }
            if expected.contains(&headers::RESET) {
                assert_eq!(responses[0].header(headers::RESET), Some("60"));
            }
        })
        .await;
    }
}

/// An outer guard does not overwrite the headers of an inner one.
#[tokio::test]
async fn an_outer_guard_keeps_the_headers_of_an_inner_one() {
    let engine = engine("");
    let outer = Guard::new(engine.clone(), extractors(&["api_key=header:x-key"]));
    let server = serve(Router::new().fallback(respond).layer(guard(&engine)).layer(outer)).await;
    in_background(move || {
        let send = |key: &str| ask(server, "/", &[("X-Key", key), ("X-Forwarded-For", "192.0.2.1")]);
        assert_eq!(send("a").remaining(), Some("1"));
        assert_eq!(send("b").remaining(), Some("0"));
        let denied = send("c");
        assert_eq!((denied.status, denied.remaining()), (429, Some("0")), "{denied:?}");
        assert!(denied.header("retry-after").is_some());
    })
    .await;
}

/// A server that does not keep the addresses of connections gives the guard no identity.
#[tokio::test]
async fn requests_without_an_address_pass_and_are_counted() {
    let guard = guard(&engine(""));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let server = listener.local_addr().expect("bound");
    let router = Router::new().route(
        "/",
        any(|extension: Option<Extension<OwnedDecision>>| async move {
            assert!(extension.is_none());
        }),
    );
    let router = router.layer(guard.clone());
    tokio::spawn(async { axum::serve(listener, router).await });
    in_background(move || {
        for _ in 0..5 {
            assert_eq!(ask(server, "/", &from("192.0.2.1")).status, 200);
        }
    })
    .await;
    assert_eq!(guard.counts().no_identity(), 5);
}

/// A server can insert the address that the guard does not find.
#[tokio::test]
async fn the_address_of_an_inserted_peer_is_used() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let server = listener.local_addr().expect("bound");
    let insert = async |mut request: Request| {
        request.extensions_mut().insert(Peer(SocketAddr::from((Ipv4Addr::LOCALHOST, 1))));
        request
    };
    let router = Router::new().route("/", any(respond)).layer(guard(&engine(""))).layer(map_request(insert));
    tokio::spawn(async { axum::serve(listener, router).await });
    in_background(move || assert_eq!(ask(server, "/", &from("192.0.2.1")).remaining(), Some("1"))).await;
}
