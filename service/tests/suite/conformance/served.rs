//! Tests of imported files that a process serves to Envoy over a socket.

use std::{fs, path::Path};

use tidegate::{
    formats::Format,
    import::{Source, envoy, envoy_cases, limitador, limitador_cases},
    policy::Policy,
};
use tidegate_service::grpc::proto::envoy::service::ratelimit::v3::{
    rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
};

use super::{Entries, differing, request};
use crate::grpc::support::Server;

/// Sends descriptors to a process with this policy, one after the other, and returns the codes.
async fn codes(policy: &Policy, domain: &str, descriptors: &[Entries<'_>]) -> Vec<Code> {
    let server = Server::with(&policy.write(Format::Toml).expect("it can be written"));
    let mut client = RateLimitServiceClient::new(server.channel().await);
    let mut codes = Vec::new();
    for entries in descriptors {
        let answer = client.should_rate_limit(request(domain, &[(entries.clone(), 1)])).await.expect("an answer");
        codes.push(answer.into_inner().overall_code());
    }
    codes
}

#[tokio::test]
async fn served_descriptors_are_decided_as_the_file_says() {
    const OK: Code = Code::Ok;
    const OVER: Code = Code::OverLimit;
    let upper_path = "domain: mesh\ndescriptors:\n- key: PATH\n  value: /catalogue\n  rate_limit: { unit: minute, requests_per_unit: 1 }\n";
    let key_twice = "domain: mesh\ndescriptors:\n- key: generic_key\n  value: east\n  descriptors:\n  - key: generic_key\n    value: slow\n    rate_limit: { unit: minute, requests_per_unit: 2 }\n";
    let shared = "domain: mesh\ndescriptors:\n- key: user\n  descriptors:\n  - key: plan\n    value: free*\n    share_threshold: true\n    rate_limit: { unit: day, requests_per_unit: 1 }\n";
    let path: Entries<'_> = vec![("PATH", "/catalogue")];
    let twice: Entries<'_> = vec![("generic_key", "east"), ("generic_key", "slow")];
    let free = |user, plan| -> Entries<'static> { vec![("user", user), ("plan", plan)] };
    for (text, descriptors, wanted) in [
        (
            upper_path,
            vec![
                path.clone(),
                path,
                vec![("PATH", "/catalogue?page=2")],
                vec![("PATH", "/catalogue"), ("user", "ada")],
            ],
            vec![OK, OVER, OK, OK],
        ),
        (key_twice, vec![twice.clone(), twice.clone(), twice], vec![OK, OK, OVER]),
        (shared, vec![free("ada", "free-1"), free("ada", "free-2"), free("bob", "free-1")], vec![OK, OVER, OK]),
    ] {
        let policy = envoy(&[Source { name: "mesh.yaml", text }]).expect("a configuration").policy;
        assert_eq!(codes(&policy, "mesh", &descriptors).await, wanted, "{text}");
    }
    let text = "- { namespace: mesh, max_value: 1, seconds: 86400, conditions: [\"descriptors[0].plan == 'free'\"], variables: [\"descriptors[0].user\"] }\n";
    let policy = limitador(&[Source { name: "limits.yaml", text }]).expect("limits").policy;
    let with_path: Entries<'_> = vec![("user", "ada"), ("plan", "free"), ("path", "/")];
    let descriptors = [free("ada", "free"), with_path, free("ada", "gold"), free("bob", "free")];
    assert_eq!(codes(&policy, "mesh", &descriptors).await, [OK, OVER, OK, OK]);
}

/// The files are small ones of both limiters, kept beside the project; a missing one is not tested. Cases of a file
/// whose report notes changed decisions may be decided otherwise.
#[test]
fn kept_files_decide_as_the_original() {
    for (name, is_reported, count) in [
        ("04-inner-wildcards.yaml", true, 2),
        ("05-control-plane-dump.yaml", false, 0),
        ("06-two-documents.yaml", false, 0),
        ("11-upper-path.yaml", false, 0),
        ("13-key-twice.yaml", false, 0),
        ("17-extremes.yaml", true, 0),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases").join(name);
        let Ok(text) = fs::read_to_string(path) else { continue };
        let sources = [Source { name, text: &text }];
        let is_of_limitador = text.contains("namespace:");
        let imported = if is_of_limitador { limitador(&sources) } else { envoy(&sources) }.expect(name);
        let cases = if is_of_limitador { limitador_cases(&sources) } else { envoy_cases(&sources) }.expect(name);
        let has_mark = imported.notes.iter().any(|note| note.changes_decisions);
        let differing = differing(&imported.policy, &cases).expect(name);
        assert_eq!((has_mark, differing.len()), (is_reported, count), "{name}: {differing:#?}");
        assert!(!cases.is_empty(), "{name}");
    }
}

/// The file has a condition on a kind outside `per`.
#[tokio::test]
async fn kinds_of_conditions_are_compared_too() {
    let text = "[[domains.mesh.rules]]\nid = \"free\"\nendpoint = \"*\"\nper = \"user\"\nwhere = { plan = \"free\" }\nlimits = [{ id = \"day\", algorithm = \"fixed_window\", limit = 1, period = \"1d\" }]\n";
    let policy = Policy::parse(text, Format::Toml).expect("a policy");
    let free: Entries<'_> = vec![("user", "ada"), ("plan", "free")];
    let gold: Entries<'_> = vec![("user", "ada"), ("plan", "gold")];
    assert_eq!(codes(&policy, "mesh", &[free.clone(), free, gold]).await, [Code::Ok, Code::OverLimit, Code::Ok]);
}
