//! Tests of the dashboard and the REST API over TLS: certificates, their renewal at run time, and headers for browsers.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use rcgen::KeyPair;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use serde_json::json;
use tempfile::TempDir;
use tidegate_testkit::{PATIENCE, certificate::Authority, process, wait_until};

use crate::support::{Run, SERVE, command, server::Served, tidegate, tidegate_reading};

const PASSWORD: &str = "correct horse battery";

/// Connects as a client that trusts this authority alone. Returns `None` if the server is not known to it.
fn connect(authority: &Authority, served: &Served) -> Option<Connection> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("PEM")).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = "127.0.0.1".try_into().expect("an address");
    let mut tls = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut socket = TcpStream::connect(address(served)).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    while tls.is_handshaking() {
        tls.complete_io(&mut socket).ok()?;
    }
    Some(Connection(StreamOwned::new(tls, socket), String::new()))
}

/// A connection with TLS, and with the session cookie once there is one.
struct Connection(StreamOwned<ClientConnection, TcpStream>, String);

impl Connection {
    /// Sends a request, and returns the head and the body of the response.
    fn ask(&mut self, method: &str, path: &str, body: &str) -> (String, String) {
        let length = body.len();
        let kind = format!("content-type: application/json\r\ncookie: {}", self.1);
        write!(self.0, "{method} {path} HTTP/1.1\r\nhost: x\r\n{kind}\r\ncontent-length: {length}\r\n\r\n{body}")
            .expect("it reads");
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte).expect("a head");
            answer.push(byte[0]);
        }
        let head = String::from_utf8(answer).expect("text");
        let cookie = head.split("set-cookie: ").nth(1).and_then(|rest| rest.split(';').next());
        cookie.unwrap_or(&self.1.clone()).clone_into(&mut self.1);
        let head = head.to_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        self.0.read_exact(&mut body).expect("a body");
        (head, String::from_utf8(body).expect("text"))
    }
}

fn address(served: &Served) -> &str {
    served.admin.strip_prefix("https://").expect("it speaks TLS")
}

/// A server with TLS, its authority, and the files of its certificate.
struct TlsServer {
    served: Served,
    authority: Authority,
    certificate: PathBuf,
    key: PathBuf,
    folder: TempDir,
}

impl TlsServer {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let authority = Authority::new();
        authority.write(&certificate, &key);
        let text = |path: &Path| path.to_str().expect("text").to_owned();
        let files = ["--admin-tls-cert", &text(&certificate), "--admin-tls-key", &text(&key)];
        let served = Served::start_with(&folder.path().join("data"), &files);
        Self { served, authority, certificate, key, folder }
    }
}

#[test]
fn browsers_get_a_header_that_requires_tls() {
    let place = TlsServer::new();
    let mut connection = connect(&place.authority, &place.served).expect("it is known");
    let body = json!({ "code": place.served.code(), "name": "ana", "password": PASSWORD }).to_string();
    let (head, _) = connection.ask("POST", "/api/v1/setup", &body);
    assert!(head.starts_with("http/1.1 201 "), "{head}");
    let cookie = head.lines().find(|line| line.starts_with("set-cookie: ")).expect("a cookie");
    for part in ["set-cookie: __host-tidegate_session_", "; secure", "; httponly", "; samesite=strict", "; path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("domain"), "{cookie}");
    connection.1.clear();
    // A page, an answer, refusals: all of them say so.
    for (path, status) in
        [("/docs/api", 200), ("/api/v1/openapi.json", 200), ("/api/v1/tiers", 401), ("/assets/none.js", 404)]
    {
        let (head, _) = connection.ask("GET", path, "");
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{head}");
        assert!(head.contains("strict-transport-security: max-age=31536000\r\n"), "{head}");
    }
    // A client without TLS gets no answer.
    let mut plain = TcpStream::connect(address(&place.served)).expect("it listens");
    write!(plain, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").expect("it reads");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[test]
fn a_new_certificate_is_loaded_while_connections_continue() {
    let place = TlsServer::new();
    // What is no certificate, or another's key, keeps the one that there is.
    let (good, key) = (fs::read(&place.certificate).expect("it is there"), fs::read(&place.key).expect("it is there"));
    let mut ana = connect(&place.authority, &place.served).expect("it is known");
    let body = json!({ "code": place.served.code(), "name": "ana", "password": PASSWORD }).to_string();
    assert!(ana.ask("POST", "/api/v1/setup", &body).0.starts_with("http/1.1 201 "));
    let mut alerts = || ana.ask("GET", "/api/v1/alerts", "").1;
    let mut is_told = |why: &str| {
        wait_until(why, || {
            let alerts = alerts();
            alerts.contains("certificate_unusable") && alerts.contains(why)
        });
        assert!(connect(&place.authority, &place.served).is_some(), "the one before is kept");
    };
    fs::remove_file(&place.certificate).expect("it is there");
    is_told("No such file");
    fs::write(&place.certificate, "nonsense").expect("room for a file");
    is_told("there is no certificate in it");
    fs::write(&place.certificate, good).expect("room for a file");
    fs::write(&place.key, KeyPair::generate().expect("a key").serialize_pem()).expect("room for a file");
    is_told("keys may not be consistent");
    fs::write(&place.key, key).expect("room for a file");
    wait_until("it can be used again", || !alerts().contains("certificate_unusable"));
    let other = Authority::new();
    assert!(connect(&other, &place.served).is_none());
    let mut open = connect(&place.authority, &place.served).expect("it is known");
    other.write(&place.certificate, &place.key);
    // It is used all the time: the server ends those that are not.
    wait_until("the new one is taken", || {
        assert!(open.ask("GET", "/healthz", "").0.starts_with("http/1.1 200 "), "what is open goes on");
        connect(&other, &place.served).is_some()
    });
    assert!(open.ask("GET", "/healthz", "").0.starts_with("http/1.1 200 "), "also then");
    assert!(connect(&place.authority, &place.served).is_none(), "and no other is shown");
}

#[test]
fn commands_use_tls_and_check_the_certificate_of_the_server() {
    let place = TlsServer::new();
    let data = place.folder.path().join("data");
    let added = tidegate_reading(
        PASSWORD.as_bytes(),
        ["admin", "user", "add", "ana", "--role", "admin", "--data", data.to_str().expect("text")],
    );
    assert_eq!(added.status, Some(0), "{added:?}");
    let ca = place.folder.path().join("ca.pem");
    fs::write(&ca, &place.authority.pem).expect("room for a file");
    let export = |ca: &Path| {
        let output = command()
            .args(["policy", "export", "--user", "ana", "--admin", &place.served.admin, "--ca"])
            .arg(ca)
            .env("TIDEGATE_PASSWORD", PASSWORD)
            .output()
            .expect("the binary runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Run { stdout: text(output.stdout), stderr: text(output.stderr), status: output.status.code() }
    };
    let known = export(&ca);
    assert!(known.status == Some(0) && known.stdout.contains("[domains.default]"), "{known:?}");
    assert_eq!(known.stderr, "");
    fs::write(&ca, Authority::new().pem).expect("room for a file");
    let unknown = export(&ca);
    assert!(unknown.status == Some(2) && unknown.stderr.contains("--ca"), "{unknown:?}");
    assert_eq!(unknown.stdout, "");
}

#[test]
fn an_unusable_certificate_is_a_startup_error() {
    let folder = TempDir::new().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    Authority::new().write(Path::new(&at("cert.pem")), Path::new(&at("key.pem")));
    fs::write(at("empty.pem"), "").expect("room for a file");
    fs::write(at("other.pem"), KeyPair::generate().expect("a key").serialize_pem()).expect("room for a file");
    for (certificate, key, says) in [
        ("none.pem", "key.pem", "none.pem"),
        ("empty.pem", "key.pem", "empty.pem: there is no certificate in it"),
        ("cert.pem", "empty.pem", "empty.pem"),
        ("cert.pem", "other.pem", "cert.pem"),
    ] {
        let (certificate, key) = (at(certificate), at(key));
        let files = ["--data", &at("data"), "--admin-tls-cert", &certificate, "--admin-tls-key", &key];
        let run = tidegate([&SERVE[..], &files].concat());
        assert!(run.status == Some(2) && run.stderr.contains(says), "{run:?}");
    }
    let one = tidegate([&SERVE[..], &["--admin-tls-cert", &at("cert.pem")]].concat());
    assert!(one.status == Some(2) && one.stderr.contains("--admin-tls-key"), "{one:?}");
    assert!(!folder.path().join("data").exists(), "nothing was made");
}

/// The server trusts only the authority that `--oidc-ca` names for the OIDC provider.
#[test]
fn an_oidc_provider_may_have_its_own_certificate_authority() {
    let folder = TempDir::new().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let authority = Authority::new();
    authority.write(&file("cert.pem"), &file("key.pem"));
    fs::write(file("ca.pem"), &authority.pem).expect("room for a file");
    fs::write(file("other.pem"), Authority::new().pem).expect("room for a file");
    fs::write(file("secret"), "of the client").expect("room for a file");
    let mut provider = process::command("node");
    provider
        .arg("provider.js")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("admin/tests/oidc"))
        .envs([("TIDEGATE_TEST_CERT", file("cert.pem")), ("TIDEGATE_TEST_KEY", file("key.pem"))])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut provider = process::spawn(provider);
    let mut lines = BufReader::new(provider.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let issuer = lines.find(|line| line.starts_with("https:"));
    let issuer = issuer.expect("it says where it is; npm --prefix admin/tests/oidc ci installs what it needs");
    let secret = file("secret").display().to_string();
    for (ca, status) in [("ca.pem", 303), ("other.pem", 502)] {
        let ca = file(ca).display().to_string();
        let arguments = [
            ["--oidc-issuer", &issuer],
            ["--oidc-client-id", "tidegate"],
            ["--oidc-client-secret-file", &secret],
            ["--oidc-role", "staff=viewer"],
            ["--oidc-ca", &ca],
        ];
        let served = Served::start_with(&file("data"), arguments.as_flattened());
        let config = ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0);
        let agent = config.max_redirects_will_error(false).build().new_agent();
        let answer = agent.get(format!("{}/api/v1/session/oidc", served.admin)).call().expect("an answer");
        assert_eq!(answer.status(), status, "{ca}");
    }
    drop(lines);
    provider.kill().expect("it runs");
    provider.wait().expect("it ends");
}
