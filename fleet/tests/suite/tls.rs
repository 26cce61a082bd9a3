//! Nodes that reach their store over TLS.

use std::{fs, sync::Arc, time::Duration};

use tidegate::Engine;
use tidegate_fleet::store::{
    ClientCertificate, SharedEngine, StoreAddress, StoreError, StoreFault, StoreSettings, StoreTls, TlsPart,
};
use tidegate_net::tls::ClientTls;
use tidegate_testkit::{
    certificate::{Authority, CertificateFiles},
    cluster::Cluster,
    redis::TlsRedis,
};

use crate::nodes::{PATIENT, limit, node_at, run, until};

/// Settings with which a store that cannot be reached is given up soon.
const BRIEF: StoreSettings = StoreSettings { timeout: Duration::from_secs(2), ..PATIENT };

fn trusting(authority: &Authority) -> StoreTls {
    StoreTls { authorities: Some(authority.pem.clone().into_bytes()), client: None }
}

fn own(files: &CertificateFiles) -> ClientCertificate {
    let read = |path| fs::read(path).expect("a file");
    ClientCertificate { certificate: read(files.certificate()), key: read(files.key()) }
}

fn over(urls: &[String], tls: StoreTls) -> StoreAddress {
    StoreAddress { tls, ..StoreAddress::new(urls) }
}

#[test]
fn limits_are_shared_over_tls() {
    let authority = Authority::new();
    let redis = TlsRedis::start(&authority);
    run(async {
        let address = over(&[redis.url()], trusting(&authority));
        for sharing in ["strict", "leased", "synced"] {
            let node = node_at(&address, PATIENT, &limit(sharing, "fixed_window", 100, "300d"), 0).await;
            until("the store answers", async || node.check("ada").await.degraded.is_none()).await;
            node.shared.close().await;
        }
        // The connection is reopened when it breaks, as without TLS.
        let node = node_at(&address, PATIENT, &limit("strict", "fixed_window", 100, "300d"), 0).await;
        redis.server.ask::<()>(redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("NORMAL")).expect("it answers");
        until("the store answers again", async || node.check("ada").await.degraded.is_none()).await;
    });
}

#[test]
fn limits_are_shared_over_the_tls_of_a_cluster() {
    let authority = Authority::new();
    let cluster = Cluster::with_tls(&authority);
    run(async {
        let limit = limit("strict", "fixed_window", 100, "300d");
        let one = node_at(&over(&cluster.urls(), trusting(&authority)), PATIENT, &limit, 0).await;
        let other = node_at(&over(&cluster.urls()[..2], trusting(&authority)), PATIENT, &limit, 0).await;
        // The number of all three masters.
        for user in (0..12).map(|user| format!("user-{user}")) {
            until("the store answers", async || one.check(&user).await.degraded.is_none()).await;
            let left = one.check_of(&[("user", &user)], 0).await.remaining.expect("a limit");
            assert_eq!(other.check(&user).await.remaining, Some(left - 1));
        }
        let stranger = node_at(&over(&cluster.urls(), trusting(&Authority::new())), BRIEF, &limit, 0).await;
        assert!(stranger.check("user-1").await.degraded.is_some());
    });
}

#[test]
fn a_server_of_another_authority_is_not_asked() {
    let redis = TlsRedis::start(&Authority::new());
    let machine = ClientTls { machine: true, authorities: None, own: None };
    run(async {
        let limit = limit("strict", "fixed_window", 100, "300d");
        for tls in [trusting(&Authority::new()), StoreTls::default()] {
            // A machine that trusts no authority at all is refused at the start.
            if tls.authorities.is_some() || machine.config().is_ok() {
                let node = node_at(&over(&[redis.url()], tls), BRIEF, &limit, 0).await;
                assert!(node.check("ada").await.degraded.is_some());
            }
        }
    });
    assert!(!redis.server.commands().contains_key("evalsha"));
}

#[test]
fn a_server_that_asks_for_a_certificate_has_the_one_that_is_given() {
    let authority = Authority::new();
    let redis = TlsRedis::that_asks_for_certificates(&authority);
    run(async {
        let limit = limit("strict", "fixed_window", 100, "300d");
        let without = node_at(&over(&[redis.url()], trusting(&authority)), BRIEF, &limit, 0).await;
        assert!(without.check("ada").await.degraded.is_some());
        let tls = StoreTls { client: Some(own(&redis.files)), ..trusting(&authority) };
        let with = node_at(&over(&[redis.url()], tls), PATIENT, &limit, 0).await;
        assert_eq!(with.check("ada").await.remaining, Some(99));
    });
}

#[test]
fn certificates_that_cannot_be_used_are_refused_without_a_word_of_them() {
    let authority = Authority::new();
    let (files, others) = (CertificateFiles::of(&authority), CertificateFiles::of(&authority));
    let good = own(&files);
    let key = String::from_utf8(good.key.clone()).expect("PEM");
    let secret = key.lines().nth(1).expect("its first line").to_owned();
    let in_one_line = key.replace('\n', " ").into_bytes();
    let damaged = key.replace(&secret, &format!("{secret}?")).into_bytes();
    let other_key = own(&others).key;
    let with_key = |key| StoreTls { client: Some(ClientCertificate { key, ..good.clone() }), ..trusting(&authority) };
    let with_authorities = |pem: &str| StoreTls { authorities: Some(pem.as_bytes().to_vec()), client: None };
    let no_certificate = StoreTls {
        client: Some(ClientCertificate { certificate: good.key.clone(), ..good.clone() }),
        ..trusting(&authority)
    };
    for (tls, part, says) in [
        (with_authorities("nonsense"), TlsPart::Authorities, "there is no certificate in it"),
        (with_authorities(&key), TlsPart::Authorities, "there is no certificate in it"),
        (with_key(b"nonsense".to_vec()), TlsPart::Client, "the client's key: there is no key in it"),
        (with_key(in_one_line), TlsPart::Client, "the client's key: it is no PEM"),
        (with_key(damaged), TlsPart::Client, "the client's key: it is damaged"),
        (with_key(other_key), TlsPart::Client, "the client's certificate: "),
        (no_certificate, TlsPart::Client, "the client's certificate: there is no certificate in it"),
    ] {
        assert!(!format!("{tls:?}").contains(&secret));
        let error = run(async {
            let address = over(&["rediss://127.0.0.1:9".to_owned()], tls);
            SharedEngine::new(Arc::new(Engine::new()), &address, PATIENT).await.expect_err("it is wrong")
        });
        assert!(matches!(&error, StoreError::Tls { part: of, .. } if *of == part), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(says), "{text}");
        let bytes = format!("{:?}", &secret.as_bytes()[..8]);
        let bytes = bytes.trim_matches(['[', ']']);
        assert!(!text.contains(&secret) && !text.contains(bytes), "{text}");
    }
}

#[test]
fn certificates_without_an_address_that_asks_for_tls_are_refused() {
    let authority = Authority::new();
    let files = CertificateFiles::of(&authority);
    let client = StoreTls { authorities: None, client: Some(own(&files)) };
    for (tls, part) in [(trusting(&authority), TlsPart::Authorities), (client, TlsPart::Client)] {
        let error = run(async {
            let address = over(&["redis://127.0.0.1:9".to_owned()], tls);
            SharedEngine::new(Arc::new(Engine::new()), &address, PATIENT).await.expect_err("it is wrong")
        });
        assert!(matches!(&error, StoreError::Tls { part: of, .. } if *of == part), "{error:?}");
        assert!(error.to_string().contains("write rediss://"), "{error}");
    }
}

/// The fault is named, whichever side refuses.
#[test]
fn a_connection_that_cannot_be_secured_is_named() {
    let authority = Authority::new();
    let asks = TlsRedis::that_asks_for_certificates(&authority);
    let of_another = TlsRedis::start(&Authority::new());
    run(async {
        for url in [asks.url(), of_another.url()] {
            let settings = StoreSettings { timeout: Duration::from_millis(300), ..PATIENT };
            let limit = limit("strict", "fixed_window", 100, "300d");
            let node = node_at(&over(&[url], trusting(&authority)), settings, &limit, 0).await;
            until("it is named", async || {
                node.check("ada").await;
                node.shared.stats().faults.iter().any(|fault| fault.code == StoreFault::Tls)
            })
            .await;
        }
    });
}
