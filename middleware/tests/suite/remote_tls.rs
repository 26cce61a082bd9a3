//! The client of servers over TLS.

use std::{fs, path::Path};

use rcgen::KeyPair;
use tempfile::TempDir;
use tidegate_middleware::remote::{ClientTls, OwnCertificate, Remote, RemoteError};

use tidegate_testkit::certificate::Authority;

use crate::{
    remote::{PATIENT, check, degraded},
    server::{DelayProxy, Server, files},
};

/// Starts a server with a certificate of `authority`, which asks its clients for one of `clients`.
fn serve(folder: &Path, authority: &Authority, clients: &Authority) -> Server {
    let files = files(folder);
    authority.write(&files.certificate, &files.key);
    fs::write(files.clients.expect("it asks"), &clients.pem).expect("room for a file");
    Server::start_with_tls(folder)
}

fn over(address: &str, believed: &Authority, own: Option<&(String, String)>) -> Remote {
    let own = own.map(|(certificate, key)| OwnCertificate { certificate: certificate.as_bytes(), key: key.as_bytes() });
    let tls = ClientTls { machine: false, authorities: Some(believed.pem.as_bytes()), own };
    Remote::over_tls([address], tls).expect("they are good").deadline(PATIENT)
}

#[tokio::test]
async fn servers_and_clients_verify_each_others_certificates() {
    let folder = TempDir::new().expect("a folder");
    let (servers, clients) = (Authority::new(), Authority::new());
    let server = serve(folder.path(), &servers, &clients);
    let proxy = DelayProxy::to(server.address).await;
    let address = format!("https://{}", proxy.address);
    let own = clients.sign();

    let known = over(&address, &servers, Some(&own));
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        let decision = check(&known, "192.0.2.1", 1).await;
        assert_eq!(degraded(&decision), None);
        outcomes.push((decision.is_allowed, decision.remaining));
    }
    assert_eq!(outcomes, [(true, Some(1)), (true, Some(0)), (false, Some(0))]);
    assert_eq!(proxy.connections(), 1, "the connection is kept");

    let someone = over(&address, &clients, Some(&own));
    assert_eq!(
        degraded(&check(&someone, "192.0.2.1", 1).await),
        Some("unreachable"),
        "an unknown authority signed its certificate"
    );
    let by_the_machine = Remote::to([&*address]).expect("an address").deadline(PATIENT);
    assert_eq!(degraded(&check(&by_the_machine, "192.0.2.1", 1).await), Some("unreachable"));
    for own in [None, Some(servers.sign())] {
        let stranger = check(&over(&address, &servers, own.as_ref()), "192.0.2.2", 1).await;
        assert!(stranger.is_allowed && degraded(&stranger).is_some(), "{stranger:?}");
    }
    let in_the_clear = Remote::to([proxy.address.to_string().as_str()]).expect("an address").deadline(PATIENT);
    assert_eq!(degraded(&check(&in_the_clear, "192.0.2.1", 1).await), Some("server_error"));
}

#[test]
fn a_text_that_is_no_certificate_is_named_in_the_error() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign();
    let known = Some(authority.pem.as_str());
    let of = |authorities: Option<&str>, own: Option<(&str, &str)>| {
        let own =
            own.map(|(certificate, key)| OwnCertificate { certificate: certificate.as_bytes(), key: key.as_bytes() });
        let tls = ClientTls { machine: false, authorities: authorities.map(str::as_bytes), own };
        match Remote::over_tls(["https://127.0.0.1:1"], tls) {
            Err(RemoteError::Tls(what)) => what,
            other => format!("{other:?}"),
        }
    };
    assert!(of(None, None).contains("no authority is trusted"));
    assert_eq!(of(Some("nonsense"), None), "the certificate of the authority: there is no certificate in it");
    assert_eq!(of(known, Some(("", &key))), "the client's certificate: there is no certificate in it");
    assert!(of(known, Some((&certificate, "nonsense"))).starts_with("the client's key: "));
    let other = KeyPair::generate().expect("a key").serialize_pem();
    assert!(of(known, Some((&certificate, &other))).starts_with("the client's certificate: "));
}
