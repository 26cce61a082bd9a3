//! The layer under a real server of tonic, asked by a real client over HTTP/2.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use tidegate_testkit::certificate::Authority;

use crate::support::{START, TestEngine, engine, extractors, guard, panicking};
use tidegate_middleware::guard::{Guard, NoIdentity};
use tokio::net::TcpListener;
use tonic::{
    Code, Request, Response, Status,
    metadata::MetadataMap,
    transport::{
        Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig, server::TcpIncoming,
    },
};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_client::HealthClient};

async fn serve(guard: Guard<TestEngine>) -> SocketAddr {
    let (_, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let server = Server::builder().layer(guard).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

async fn client(address: SocketAddr) -> HealthClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    HealthClient::new(endpoint.connect().await.expect("it listens"))
}

async fn call(
    client: &mut HealthClient<Channel>,
    metadata: &[(&'static str, &str)],
) -> Result<Response<HealthCheckResponse>, Status> {
    let mut request = Request::new(HealthCheckRequest::default());
    for (name, value) in metadata {
        request.metadata_mut().insert(*name, value.parse().expect("text"));
    }
    client.check(request).await
}

fn text<'m>(metadata: &'m MetadataMap, name: &str) -> Option<&'m str> {
    metadata.get(name).map(|value| value.to_str().expect("text"))
}

#[tokio::test]
async fn a_denied_call_is_resource_exhausted_with_the_headers_as_metadata() {
    let mut client = client(serve(guard(&engine(""))).await).await;
    // There is no proxy: the client is the peer of the connection.
    for left in ["1", "0"] {
        let answer = call(&mut client, &[]).await.expect("allowed");
        assert_eq!(text(answer.metadata(), "x-ratelimit-remaining"), Some(left));
    }
    let denied = call(&mut client, &[]).await.expect_err("denied");
    assert_eq!(
        (denied.code(), denied.message()),
        (Code::ResourceExhausted, "Too many requests: default/tier:anonymous/minute")
    );
    let metadata = denied.metadata();
    assert_eq!(text(metadata, "x-ratelimit-reset"), Some((START + 60).to_string().as_str()));
    let wait: u64 = text(metadata, "retry-after").expect("when").parse().expect("seconds");
    assert!((60..=66).contains(&wait), "{wait}");
    assert_eq!(text(metadata, "retry_after_ms"), Some("60000"));
    // Other clients of the same connection are allowed.
    assert!(call(&mut client, &[("x-forwarded-for", "192.0.2.1")]).await.is_ok());
    assert!(call(&mut client, &[("authorization", "Bearer abc"), ("x-forwarded-for", "192.0.2.1")]).await.is_ok());
}

#[tokio::test]
async fn methods_are_paths_and_calls_without_identity_can_be_refused() {
    let engine = engine("");
    let exempt = guard(&engine).exempt(["/grpc.health.v1.Health/*"]).expect("right");
    let mut exempted = client(serve(exempt).await).await;
    for _ in 0..4 {
        let answer = call(&mut exempted, &[]).await.expect("exempt");
        assert_eq!(text(answer.metadata(), "x-ratelimit-remaining"), None);
    }
    let strict = Guard::new(Arc::clone(&engine), extractors(&["api_key=bearer"])).no_identity(NoIdentity::Refuse);
    // The response for HTTP is not used.
    let strict = strict.respond(|_| unreachable!("a call of gRPC"));
    let mut refused = client(serve(strict).await).await;
    assert_eq!(call(&mut refused, &[]).await.expect_err("refused").code(), Code::PermissionDenied);
    assert!(call(&mut refused, &[("authorization", "Bearer abc")]).await.is_ok());
}

#[tokio::test]
async fn addresses_are_found_behind_tls_and_calls_pass_after_panics() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign();
    let serve = async |guard| {
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(&certificate, &key));
        let mut server = Server::builder().tls_config(tls).expect("a certificate").layer(guard);
        let (_, health) = tonic_health::server::health_reporter();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(server.add_service(health).serve_with_incoming(TcpIncoming::from(listener)));
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&authority.pem));
        let endpoint = Endpoint::from_shared(format!("https://{address}")).expect("an address");
        let endpoint = endpoint.tls_config(tls).expect("a certificate");
        HealthClient::new(endpoint.connect().await.expect("it listens"))
    };
    let mut client = serve(guard(&engine(""))).await;
    for left in ["1", "0"] {
        let answer = call(&mut client, &[]).await.expect("allowed");
        assert_eq!(text(answer.metadata(), "x-ratelimit-remaining"), Some(left));
    }
    assert_eq!(call(&mut client, &[]).await.expect_err("denied").code(), Code::ResourceExhausted);

    let panicking = Guard::new(engine(""), panicking());
    let mut client = serve(panicking.clone()).await;
    for _ in 0..3 {
        assert!(call(&mut client, &[]).await.is_ok());
    }
    assert_eq!(panicking.counts().undecided(), 3);
}
