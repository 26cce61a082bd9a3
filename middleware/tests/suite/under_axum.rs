//! The layer under a real server of axum.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use crate::support::{TestEngine, ask, engine, extractors, from, guard, guards, holds_of, panicking, said};
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
    decision::{Decider, Ruling},
    guard::Guard,
    headers,
    tower::Peer,
};
use tokio::net::TcpListener;

/// Serves while the test runs; with it ends its runtime.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });
    address
}

pub(crate) async fn tell(request: Request) -> Response {
    if request.uri().path().ends_with("/missing") {
        return StatusCode::NOT_FOUND.into_response();
    }
    said(request.extensions().get::<Ruling>()).into_response()
}

pub(crate) async fn in_background(test: impl FnOnce() + Send + 'static) {
    tokio::task::spawn_blocking(test).await.expect("it holds");
}

#[tokio::test]
async fn it_protects_a_service() {
    let engine = engine("");
    let guards = guards(&engine);
    let router = guards.iter().fold(Router::new(), |router, (name, guard)| {
        router.merge(Router::new().route(&format!("/{name}/{{*path}}"), any(tell)).layer(guard.clone()))
    });
    let server = serve(router).await;
    in_background(move || holds_of(server)).await;
    let counts = guards["keys"].counts();
    assert_eq!((counts.no_identity(), counts.undecided()), (3, 0));
    assert_eq!(guards["strict"].counts().no_identity(), 1);
    assert_eq!(["panics", "panics_of_cost"].map(|name| guards[name].counts().undecided()), [3, 3]);
}

#[tokio::test]
async fn where_somebody_panics_a_domain_that_is_closed_is_closed() {
    let guard = Guard::new(engine("on_error = \"closed\""), panicking());
    let server = serve(Router::new().fallback(tell).layer(guard)).await;
    in_background(move || {
        let refused = ask(server, "/", &[]);
        assert_eq!((refused.status, refused.json()["degraded"].as_str()), (503, Some("internal_error")));
    })
    .await;
}

/// Shown each decision, it has a mistake.
struct Mistaken(Arc<TestEngine>);

impl Decider for Mistaken {
    async fn decide(&self, request: &tidegate::Request<'_>) -> Ruling {
        let ruling = Decider::decide(&*self.0, request).await;
        assert_eq!(ruling.remaining, Some(1), "a mistake");
        ruling
    }

    fn on_error(&self, domain: &str) -> OnError {
        Decider::on_error(&*self.0, domain)
    }
}

#[tokio::test]
async fn a_panic_of_whoever_decides_lets_pass() {
    let guard = Guard::new(Arc::new(Mistaken(engine(""))), extractors(&["ip=address"]));
    let server = serve(Router::new().fallback(tell).layer(guard.clone())).await;
    in_background(move || {
        for said in ["1", "internal_error", "internal_error"] {
            let told = ask(server, "/", &from("192.0.2.1"));
            assert_eq!((told.status, told.body.as_str()), (200, said));
        }
    })
    .await;
    assert_eq!(guard.counts().undecided(), 2);
}

#[tokio::test]
async fn rules_see_path_and_method() {
    let engine = engine("");
    let server = serve(Router::new().fallback(tell).layer(guard(&engine))).await;
    in_background(move || {
        let put = |path: &str| {
            let request = ureq::put(format!("http://{server}{path}")).header("X-Forwarded-For", "192.0.2.1");
            request.send_empty().expect("allowed").headers()["x-ratelimit-limit"].to_str().expect("text").to_owned()
        };
        // Of both limits the one with the least left is told: the address's.
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
async fn families_of_headers_are_those_of_the_domain() {
    for (settings, expected) in [
        ("headers = \"ietf\"", &[headers::IETF, headers::IETF_POLICY][..]),
        ("headers = \"none\"", &[]),
        ("reset = \"delta\"", &[headers::LIMIT, headers::REMAINING, headers::RESET]),
    ] {
        let server = serve(Router::new().fallback(tell).layer(guard(&engine(settings)))).await;
        in_background(move || {
            let told: Vec<_> = (0..3).map(|_| ask(server, "/", &from("192.0.2.1"))).collect();
            for told in &told {
                let named: Vec<&str> =
                    headers::NUMBERS.into_iter().filter(|name| told.header(name).is_some()).collect();
                assert_eq!(named.len(), expected.len(), "{told:?}");
                assert!(expected.iter().all(|name| named.contains(name)), "{told:?}");
            }
            assert_eq!(told[2].status, 429);
            let wait: u64 = told[2].header("retry-after").expect("when").parse().expect("seconds");
            assert!((60..=66).contains(&wait));
            if let Some(limit) = told[2].header(headers::IETF) {
                assert!(limit.ends_with(&format!(";t={wait}")), "{limit}");
            }
            if expected.contains(&headers::RESET) {
                assert_eq!(told[0].header(headers::RESET), Some("60"));
            }
        })
        .await;
    }
}

/// An outer guard does not write over what the inner one told.
#[tokio::test]
async fn guards_stand_behind_each_other() {
    let engine = engine("");
    let outer = Guard::new(engine.clone(), extractors(&["api_key=header:x-key"]));
    let server = serve(Router::new().fallback(tell).layer(guard(&engine)).layer(outer)).await;
    in_background(move || {
        let told = |key: &str| ask(server, "/", &[("X-Key", key), ("X-Forwarded-For", "192.0.2.1")]);
        assert_eq!(told("a").remaining(), Some("1"));
        assert_eq!(told("b").remaining(), Some("0"));
        let denied = told("c");
        assert_eq!((denied.status, denied.remaining()), (429, Some("0")), "{denied:?}");
        assert!(denied.header("retry-after").is_some());
    })
    .await;
}

/// Without the address of connections nobody is known, which is counted.
#[tokio::test]
async fn a_server_that_keeps_no_addresses_is_told_apart() {
    let guard = guard(&engine(""));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let server = listener.local_addr().expect("bound");
    let router = Router::new().route(
        "/",
        any(|extension: Option<Extension<Ruling>>| async move {
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

/// Where the guard does not know where the address is, whoever serves can say it.
#[tokio::test]
async fn an_address_can_be_put_there() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let server = listener.local_addr().expect("bound");
    let say = async |mut request: Request| {
        request.extensions_mut().insert(Peer(SocketAddr::from((Ipv4Addr::LOCALHOST, 1))));
        request
    };
    let router = Router::new().route("/", any(tell)).layer(guard(&engine(""))).layer(map_request(say));
    tokio::spawn(async { axum::serve(listener, router).await });
    in_background(move || assert_eq!(ask(server, "/", &from("192.0.2.1")).remaining(), Some("1"))).await;
}
