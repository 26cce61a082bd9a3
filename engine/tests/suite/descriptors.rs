//! The limits that an Envoy descriptor meets.

use tidegate::{
    Engine, Identity, Request, Snapshot,
    clock::ManualClock,
    formats::Format,
    time::{SECOND_NS, Timestamp},
};

const RULES: &str = r#"
    [[domains.default.rules]]
    id = "free"
    endpoint = "*"
    per = "user"
    where = { plan = "free" }
    limits = [{ id = "day", algorithm = "fixed_window", limit = 5, period = "1d" }]
    [[domains.default.rules]]
    id = "user"
    endpoint = "*"
    per = "user"
    limits = [{ id = "day", algorithm = "fixed_window", limit = 7, period = "1d" }]
    [[domains.default.rules]]
    id = "partner"
    endpoint = "*"
    per = "everyone"
    where = { network = "partner-*" }
    limits = [{ id = "day", algorithm = "fixed_window", limit = 3, period = "1d" }]
    [[domains.default.rules]]
    id = "all"
    endpoint = "*"
    per = "everyone"
    limits = [{ id = "day", algorithm = "fixed_window", limit = 9, period = "1d" }]
"#;

/// Returns the limit that decides a descriptor of these entries in a domain with these settings.
fn decides(settings: &str, entries: &[(&str, &str)]) -> Option<String> {
    let text = format!("[domains.default]\n{settings}\n{RULES}");
    let engine = Engine::for_simulation(256, ManualClock::at(Timestamp::from_nanos(1_790_035_200 * SECOND_NS)), 1);
    engine.publish(Snapshot::parse(&text, Format::Toml).expect("a right policy")).expect("room");
    let identities: Vec<_> =
        entries.iter().map(|(kind, value)| Identity::new(kind, value).expect("an identity")).collect();
    let decision = engine.check(&Request::exactly(&identities).expect("a descriptor"));
    decision.limit_id().map(|id| id.trim_start_matches("default/rule:").trim_end_matches("/day").to_owned())
}

#[test]
fn kinds_are_compared_with_per_and_where_together() {
    for (entries, limit) in [
        (&[("user", "ada"), ("plan", "free")][..], Some("free")),
        (&[("plan", "free"), ("user", "ada")], Some("free")),
        (&[("user", "ada"), ("plan", "gold")], None),
        (&[("user", "ada"), ("plan", "free"), ("network", "partner-1")], None),
        (&[("user", "ada")], Some("user")),
        (&[("plan", "free")], None),
        (&[("network", "partner-1")], Some("partner")),
        (&[("network", "own")], None),
        (&[], Some("all")),
        (&[("other", "x")], None),
    ] {
        assert_eq!(decides("", entries).as_deref(), limit, "{entries:?}");
        assert_eq!(decides("descriptors = \"exact\"", entries).as_deref(), limit, "{entries:?}");
    }
}

#[test]
fn a_subset_of_the_entries_is_enough_where_the_domain_says_so() {
    for (entries, limit) in [
        (&[("user", "ada"), ("plan", "free")][..], "free"),
        (&[("user", "ada"), ("plan", "gold")], "user"),
        (&[("user", "ada"), ("plan", "free"), ("network", "partner-1")], "partner"),
        (&[("user", "ada"), ("other", "x")], "user"),
        (&[("plan", "free")], "all"),
        (&[("other", "x")], "all"),
        (&[], "all"),
    ] {
        assert_eq!(decides("descriptors = \"subset\"", entries).as_deref(), Some(limit), "{entries:?}");
    }
}
