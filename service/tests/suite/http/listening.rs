//! Bounds of heads, tokens and their rights, and certificates over HTTP.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::json;
use tempfile::TempDir;
use tidegate_net::tls::{Tls, TlsFiles};
use tidegate_service::{ConnectionCaps, ListenerSettings, Timeouts, Tokens, TokensError};
use tidegate_testkit::{PATIENCE, certificate::Authority, wait_until};

use super::{
    HUNDRED,
    support::{Server, request},
    user,
};

/// Returns timeouts with which files are read again soon.
fn soon() -> Timeouts {
    Timeouts { files: Duration::from_millis(50), ..Timeouts::default() }
}

#[test]
fn a_head_has_sixteen_kibibytes_at_most() {
    let server = Server::with(HUNDRED);
    let with = |bytes: usize| {
        let header = format!("Content-Type: application/json\r\nX-Long: {}\r\n", "a".repeat(bytes));
        server.connect().send(request("/v1/check", &header, user("ada")))
    };
    assert_eq!(with(16_000).status, 200);
    let answer = with(17_000);
    assert_eq!((answer.status, answer.json()["code"].as_str()), (431, Some("head_too_large")));
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(server.remaining("ada"), 99, "nothing was charged");
}

#[test]
fn a_check_without_a_token_is_refused_where_the_server_has_tokens() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tokens");
    fs::write(&file, "morning-star-0001\n").expect("room for a file");
    let tokens = Tokens::open(file.clone()).expect("they are good");
    let server =
        Server::listening(ListenerSettings { tokens: Some(tokens), timeouts: soon(), ..ListenerSettings::default() });
    server.publish(HUNDRED);
    let with = |path: &str, header: &str| server.connect().send(request(path, header, user("ada")));
    for path in [
        "/v1/check",
        "/v1/check/batch",
        "/v1/reserve",
        "/v1/settle",
        "/v1/refund",
        "/v1/authorize",
        "/v1/else",
        "/%761/check",
        "/v1%2Fcheck",
        "/healthz/",
        "/else",
    ] {
        for header in ["", "Authorization: Bearer evening-star-0002\r\n", "Authorization: Basic morning-star-0001\r\n"]
        {
            let answer = with(path, header);
            assert_eq!((answer.status, answer.json()["code"].as_str()), (401, Some("no_token")), "{path} {header}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
    }
    for (header, left) in [("Authorization: bearer morning-star-0001", 99), ("X-Tidegate-Token: morning-star-0001", 98)]
    {
        let answer = with("/v1/check", &format!("{header}\r\n"));
        assert_eq!((answer.status, answer.json()["remaining"].clone()), (200, json!(left)), "{header}");
    }
    let both = "Authorization: Bearer of-an-end-user\r\nX-Tidegate-Token: morning-star-0001\r\n";
    assert_eq!(with("/v1/check", both).status, 200);
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    // The file changes.
    fs::write(&file, "evening-star-0002\n").expect("room for a file");
    let is_taken = || with("/v1/check", "X-Tidegate-Token: evening-star-0002\r\n").status == 200;
    wait_until("the file of tokens is read again", is_taken);
    assert_eq!(with("/v1/check", "X-Tidegate-Token: morning-star-0001\r\n").status, 401);
}

/// Opens the tokens of a file with this text. The file is removed, and its tokens stay valid.
fn tokens_of(text: &str, open: fn(PathBuf) -> Result<Tokens, TokensError>) -> Tokens {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tokens");
    fs::write(&file, text).expect("room for a file");
    open(file).expect("they are good")
}

#[test]
fn a_token_permits_the_calls_of_its_rights_and_no_others() {
    let text = "has-every-usual-right\nchecks-alone-0001 check\nreserves-alone-01 reserve\n\
                of-the-shop-00001 domain=shop\nresets-alone-0001 reset\n";
    let server = Server::listening(ListenerSettings {
        tokens: Some(tokens_of(text, Tokens::open)),
        ..ListenerSettings::default()
    });
    server.publish(&format!("{HUNDRED}{}", HUNDRED.replace("default", "shop").replace("shops", "defaults")));
    let of_shop = |value: &str| user(value).replace("]}", r#"],"domain":"shop"}"#);
    let post = |path: &str, token: &str, body: String| {
        server.connect().send(request(path, &format!("X-Tidegate-Token: {token}\r\n"), body))
    };
    let gone = || r#"{"reservation":"4PAiuPiZD2sVHnYQAqVNK5vH","actual":1}"#.to_owned();
    for (token, check, reserve, settle, in_shop) in [
        ("has-every-usual-right", 200, 200, 404, 200),
        ("checks-alone-0001", 200, 403, 403, 200),
        ("reserves-alone-01", 403, 200, 404, 403),
        ("of-the-shop-00001", 403, 403, 404, 200),
        ("resets-alone-0001", 403, 403, 403, 403),
    ] {
        let statuses = [
            post("/v1/check", token, user("ada")),
            post("/v1/reserve", token, user("ada")),
            post("/v1/settle", token, gone()),
            post("/v1/check", token, of_shop("ada")),
        ];
        assert_eq!(statuses.map(|answer| answer.status), [check, reserve, settle, in_shop], "{token}");
    }
    assert_eq!(server.engine.totals().allowed, 7, "what is refused is not charged");
    let refused = post("/v1/reserve", "checks-alone-0001", user("ada")).json();
    assert_eq!(refused["code"], "forbidden");
    assert!(refused["detail"].as_str().is_some_and(|message| message.contains("`reserve`")), "{refused}");
    let refused = post("/v1/check", "of-the-shop-00001", user("ada")).json();
    assert_eq!((&refused["code"], &refused["errors"][0]["pointer"]), (&json!("forbidden"), &json!("/domain")));
    let batch = format!(r#"{{"checks":[{},{}]}}"#, of_shop("ada"), user("ada"));
    let batch = post("/v1/check/batch", "of-the-shop-00001", batch).json();
    assert_eq!(batch["decisions"][0]["allowed"], true, "{batch}");
    let error = &batch["decisions"][1];
    assert_eq!((&error["code"], &error["errors"][0]["pointer"]), (&json!("forbidden"), &json!("/checks/1/domain")));
    let ask = |query: &str| post(&format!("/v1/authorize{query}"), "of-the-shop-00001", String::new()).status;
    assert_eq!((ask("?domain=shop"), ask("")), (204, 403));
}

#[test]
fn metrics_require_a_token_where_the_server_has_tokens_for_them() {
    let tokens = Some(tokens_of("checks-0000000001\n", Tokens::open));
    let metrics_tokens = Some(tokens_of("scrapes-000000001\n", Tokens::open_without_rights));
    let server = Server::listening(ListenerSettings { tokens, metrics_tokens, ..ListenerSettings::default() });
    server.publish(HUNDRED);
    let get = |header: &str| {
        let head = format!("GET /metrics HTTP/1.1\r\nHost: tidegate\r\n{header}\r\n");
        server.connect().send(head)
    };
    for header in ["", "X-Tidegate-Token: checks-0000000001\r\n", "Authorization: Bearer checks-0000000001\r\n"] {
        let answer = get(header);
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")), "{header}");
        assert!(answer.text().contains("--metrics-tokens"), "{}", answer.text());
    }
    for header in ["X-Tidegate-Token: scrapes-000000001\r\n", "Authorization: Bearer scrapes-000000001\r\n"] {
        assert_eq!(get(header).status, 200, "{header}");
        assert_eq!(server.connect().send(request("/v1/check", header, user("ada"))).status, 401, "{header}");
    }
    assert_eq!(server.get("/healthz").status, 200);
}

/// A TLS client that keeps sessions to resume.
struct Caller(Arc<ClientConfig>);

impl Caller {
    fn knowing(server: &Authority, own: Option<(String, String)>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(server.pem.as_bytes()).expect("PEM")).expect("a certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots);
        let config = match own {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => config
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM")],
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM"),
                )
                .expect("they belong together"),
        };
        Self(Arc::new(config))
    }

    /// Checks, and returns the status; `None` where the server refuses this client.
    fn check(&self, address: SocketAddr) -> Option<String> {
        let answer = self.send(address, &request("/v1/check", "Connection: close\r\n", user("ada")))?;
        Some(answer.split(' ').nth(1)?.to_owned())
    }

    /// Sends a request that closes the connection, and returns the response; `None` where the server refuses this client.
    fn send(&self, address: SocketAddr, request: &[u8]) -> Option<String> {
        let name = "127.0.0.1".try_into().expect("an address");
        let tls = ClientConnection::new(Arc::clone(&self.0), name).expect("a client");
        let socket = TcpStream::connect(address).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut stream = StreamOwned::new(tls, socket);
        stream.write_all(request).ok()?;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Some(String::from_utf8(answer).expect("text"))
    }
}

/// Returns the certificate of a server whose files are in this folder.
fn tls_in(folder: &TempDir, authority: &Authority) -> Tls {
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    authority.write(&certificate, &key);
    Tls::open(TlsFiles { certificate, key, clients: None }).expect("they are good")
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("room for a file");
}

#[test]
fn clients_need_a_certificate_of_the_authority_that_is_in_force() {
    let folder = TempDir::new().expect("a folder");
    let [certificate, key, clients] = ["cert.pem", "key.pem", "clients.pem"].map(|name| folder.path().join(name));
    let (authority, first, second) = (Authority::new(), Authority::new(), Authority::new());
    authority.write(&certificate, &key);
    write(&clients, &first.pem);
    let tls = Tls::open(TlsFiles { certificate, key, clients: Some(clients.clone()) }).expect("they are good");
    let server =
        Server::listening(ListenerSettings { tls: Some(tls), timeouts: soon(), ..ListenerSettings::default() });
    server.publish(HUNDRED);

    let of_first = Caller::knowing(&authority, Some(first.sign()));
    let of_second = Caller::knowing(&authority, Some(second.sign()));
    let of_none = Caller::knowing(&authority, None);
    let ok = Some("200".to_owned());
    assert_eq!(of_first.check(server.address), ok);
    assert_eq!((of_second.check(server.address), of_none.check(server.address)), (None, None));

    // A file that is no certificate changes nothing.
    write(&clients, "nonsense");
    let health = b"GET /healthz HTTP/1.1\r\nHost: tidegate\r\nConnection: close\r\n\r\n";
    wait_until("the server has read it", || {
        let said = of_first.send(server.address, health).expect("it is known");
        said.contains("degraded: the files of the certificate cannot be used")
    });
    assert_eq!((of_first.check(server.address), of_second.check(server.address)), (ok.clone(), None));

    write(&clients, &second.pem);
    wait_until("the file is read again", || of_second.check(server.address).is_some());
    assert_eq!(of_first.check(server.address), None, "not by the session that it has from before, either");
}

#[test]
fn a_listener_with_a_certificate_answers_over_tls_only() {
    let (folder, authority) = (TempDir::new().expect("a folder"), Authority::new());
    let tls = tls_in(&folder, &authority);
    let server = Server::listening(ListenerSettings { tls: Some(tls), ..ListenerSettings::default() });
    server.publish(HUNDRED);
    assert_eq!(Caller::knowing(&authority, None).check(server.address), Some("200".to_owned()));
    assert_eq!(Caller::knowing(&Authority::new(), None).check(server.address), None, "of a server it does not know");
    let mut plain = TcpStream::connect(server.address).expect("it listens");
    plain.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    plain.write_all(&request("/v1/check", "", user("ada"))).expect("it is sent");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn a_connection_is_counted_before_its_handshake_until_that_fails() {
    let (folder, authority) = (TempDir::new().expect("a folder"), Authority::new());
    let timeouts = Timeouts { handshake: Duration::from_mins(10), ..Timeouts::default() };
    let (tls, connections) = (Some(tls_in(&folder, &authority)), ConnectionCaps::new(10, 2));
    let server = Server::listening(ListenerSettings { tls, timeouts, connections, ..ListenerSettings::default() });
    server.publish(HUNDRED);
    let caller = Caller::knowing(&authority, None);
    let mut silent = Vec::new();
    wait_until("they have all places", || {
        // A connection may be refused while an earlier one is still counted.
        silent.push(TcpStream::connect(server.address).expect("it listens"));
        caller.check(server.address).is_none()
    });
    for mut connection in &silent {
        // The refused connections are closed.
        let _ = connection.write_all(b"GET / HTTP/1.1\r\n\r\n");
    }
    wait_until("their places are given back", || caller.check(server.address).is_some());
}

#[test]
fn a_missing_handshake_ends_the_connection() {
    let (folder, authority) = (TempDir::new().expect("a folder"), Authority::new());
    let timeouts = Timeouts { handshake: Duration::from_millis(300), ..Timeouts::default() };
    let server = Server::listening(ListenerSettings {
        tls: Some(tls_in(&folder, &authority)),
        timeouts,
        ..ListenerSettings::default()
    });
    let mut silent = TcpStream::connect(server.address).expect("it listens");
    silent.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(silent.read(&mut [0]).expect("an end"), 0);
}
