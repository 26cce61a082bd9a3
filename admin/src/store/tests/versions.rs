//! Published versions.

use std::collections::BTreeMap;

use tidegate::algorithm::Carry;

use crate::{
    base::sha256::sha256,
    domain::version::{Carries, Rollout, Version},
    store::{
        audit::Audit,
        database::{Store, pattern},
        tests::{Home, LINE, at_once},
        versions::{Answered, FromFile, KeptVersion, NewVersion, Revision, SoughtVersions},
    },
};

on_both! {
    a_version_comes_back_with_its_document,
    a_version_follows_the_one_that_it_was_made_on,
    both_versions_of_a_rollout_are_written_or_neither,
    a_version_is_stored_here_or_in_another_copy,
    objects_have_the_version_that_changed_them_last,
    many_objects_are_written,
    objects_of_versions_are_named_in_part,
    versions_are_listed_newest_first_page_by_page,
    versions_are_found_by_what_is_looked_for,
    choices_for_used_quota_are_summed,
    an_answer_is_known_by_its_key_for_a_week,
    a_file_is_known_by_what_was_published_last,
    all_of_a_publish_is_written_or_nothing,
    of_publishes_at_once_one_has_the_number,
    publishes_in_turn_are_all_kept,
    a_published_version_never_changes,
}

type Key = (&'static str, &'static str, &'static str);

fn version(number: u64) -> Version {
    Version {
        version: number,
        sha256: sha256(format!("document {number}")),
        author: "ana".to_owned(),
        message: format!("message {number}"),
        published_at: format!("2026-01-01T00:00:{number:02}.5Z"),
        carry: Carries::default(),
        follows: number - 1,
    }
}

/// A publish of nothing but its document.
fn plain<'a>(version: &'a Version, document: &'a str) -> NewVersion<'a> {
    NewVersion {
        version,
        document,
        kept: None,
        touched: &[],
        removed: &[],
        objects: &[],
        answered: None,
        file: None,
        rollout: None,
        audit: &[],
    }
}

async fn add(store: &Store, new: NewVersion<'_>) {
    let change = store.change().await.expect("a change");
    store.add_version(change, new).await.expect("it is kept");
}

async fn publish(store: &Store, number: u64, touched: &[Key], removed: &[Key]) {
    let version = version(number);
    let objects: Vec<String> =
        touched.iter().chain(removed).map(|(domain, kind, id)| format!("{domain}/{kind}:{id}")).collect();
    let document = format!("document {number}");
    add(store, NewVersion { touched, removed, objects: &objects, ..plain(&version, &document) }).await;
}

async fn newest(store: &Store) -> u64 {
    Version::newest(&mut store.reading().await.expect("a transaction")).await.expect("a number")
}

async fn a_version_comes_back_with_its_document(home: &Home) {
    let store = &home.store;
    assert_eq!(newest(store).await, 1);
    let carry = Carries(BTreeMap::from([("default/tier:free/s".to_owned(), Carry::Reset)]));
    let written = Version { carry, message: "ü'\"%".to_owned(), ..version(2) };
    add(store, plain(&written, "document 2")).await;
    assert_eq!(newest(store).await, 2);
    for (found, document) in [
        store.version(2).await.expect("an answer").expect("the version"),
        Version::read(&mut *home.connection().await, 2).await.expect("an answer").expect("the version"),
    ] {
        let Version { version, sha256, author, message, published_at, carry, follows } = &found;
        assert_eq!((*version, sha256, author, *follows), (2, &written.sha256, &written.author, 1));
        assert_eq!((message, published_at, &carry.0), (&written.message, &written.published_at, &written.carry.0));
        assert_eq!(document, "document 2");
    }
    for absent in [0, 3, u64::MAX] {
        assert!(store.version(absent).await.expect("an answer").is_none(), "{absent}");
    }
    assert_eq!(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

async fn a_version_follows_the_one_that_it_was_made_on(home: &Home) {
    let store = &home.store;
    publish(store, 2, &[], &[]).await;
    let other = Version { follows: 1, ..version(3) };
    add(store, plain(&other, "")).await;
    // As builds before this one wrote them.
    home.execute(
        "INSERT INTO policy_versions (version, document, sha256, author, message, published_at)
         VALUES (4, '', '', 'ana', 'm', '2026-01-01T00:00:04Z')",
    )
    .await;
    for (number, follows) in [(1, 0), (2, 1), (3, 1), (4, 3)] {
        let (found, _) = store.version(number).await.expect("an answer").expect("the version");
        assert_eq!(found.follows, follows, "{number}");
    }
    let listed = store.versions(ANY, u64::MAX, 9).await.expect("a list");
    assert_eq!(listed.iter().map(|version| version.follows).collect::<Vec<_>>(), [3, 1, 1, 0]);
}

async fn both_versions_of_a_rollout_are_written_or_neither(home: &Home) {
    let store = &home.store;
    publish(store, 2, &[("d", "tier", "a")], &[]).await;
    let (newest, kept) = (Version { follows: 2, ..version(4) }, Version { follows: 1, ..version(3) });
    let names = ["client:user:eve".to_owned(), "client:user:bob".to_owned()];
    let (touched, removed) = ([("d", "client", "user:eve")], [("d", "client", "user:bob")]);
    let lines = [LINE, LINE];
    let rollout = Rollout {
        version: 4,
        keeps: 3,
        nodes: ["n-1".to_owned()].into(),
        author: "ana".to_owned(),
        since: "2026-01-01T00:00:02Z".to_owned(),
    };
    let answered = Answered { request_sha256: "sha".to_owned(), answer: "{}".to_owned() };
    let both = || NewVersion {
        kept: Some(KeptVersion { version: &kept, document: "document 3", objects: &names[..1], touched: 1 }),
        touched: &touched,
        removed: &removed,
        objects: &names,
        answered: Some(("k", &answered)),
        rollout: Some(&rollout),
        audit: &lines,
        ..plain(&newest, "document 4")
    };
    // What fails at the end takes the first one with it.
    let absent = Rollout { keeps: 99, ..rollout.clone() };
    let change = store.change().await.expect("a change");
    store.add_version(change, NewVersion { rollout: Some(&absent), ..both() }).await.expect_err("it is refused");
    assert!(store.version(3).await.expect("an answer").is_none() && home.lines("test").await == 0);

    add(store, both()).await;
    for (number, follows) in [(3, 1), (4, 2)] {
        let (found, document) = store.version(number).await.expect("an answer").expect("the version");
        assert_eq!((found.follows, document), (follows, format!("document {number}")));
    }
    assert_eq!(Rollout::read(&mut *home.connection().await).await.expect("an answer"), Some(rollout.clone()));
    let of = store.version_objects(&[3, 4]).await.expect("objects");
    let object = |name: &String, removed| (name.clone(), removed);
    assert_eq!((of[&3].count, &of[&3].first), (Some(1), &vec![object(&names[0], false)]));
    assert_eq!((of[&4].count, &of[&4].first), (Some(2), &vec![object(&names[0], false), object(&names[1], true)]));
    // Objects are as the newest has them, and a repeat is answered for both at once.
    assert_eq!(revisions(home).await, [("d/client:user:eve".to_owned(), 4), ("d/tier:a".to_owned(), 2)]);
    assert_eq!(store.removals(&removed).await.expect("a list")[0].version, 4);
    assert!(Answered::read(&mut *home.connection().await, "ana", "k").await.expect("an answer").is_some());
    assert_eq!(home.lines("test").await, 2);
}

async fn a_version_is_stored_here_or_in_another_copy(home: &Home) {
    let store = &home.store;
    publish(store, 2, &[], &[]).await;
    let is_stored = async |version: Version| version.is_stored(&mut *home.connection().await).await.expect("an answer");
    assert!(is_stored(version(2)).await);
    assert!(!is_stored(version(3)).await);
    assert!(!is_stored(Version { sha256: sha256("x"), ..version(2) }).await);
    assert!(!is_stored(Version { published_at: "2026-01-01T00:00:03Z".to_owned(), ..version(2) }).await);
}

async fn revisions(home: &Home) -> Vec<(String, u64)> {
    let all = Revision::read_all(&mut *home.connection().await).await.expect("a list");
    let mut found: Vec<_> = all
        .into_iter()
        .filter(|revision| revision.version > 1)
        .map(|revision| {
            assert_eq!((&*revision.author, &revision.published_at), ("ana", &version(revision.version).published_at));
            (format!("{}/{}:{}", revision.domain, revision.kind, revision.id), revision.version)
        })
        .collect();
    found.sort_unstable();
    found
}

async fn objects_have_the_version_that_changed_them_last(home: &Home) {
    let store = &home.store;
    let [a, b, c] = [("d", "tier", "a"), ("d", "tier", "b"), ("e", "tier", "a")];
    publish(store, 2, &[a, b], &[]).await;
    publish(store, 3, &[b, c], &[]).await;
    let is =
        |rows: &[(&str, u64)]| -> Vec<(String, u64)> { rows.iter().map(|(row, n)| ((*row).to_owned(), *n)).collect() };
    assert_eq!(revisions(home).await, is(&[("d/tier:a", 2), ("d/tier:b", 3), ("e/tier:a", 3)]));
    publish(store, 4, &[c], &[a, ("d", "tier", "never")]).await;
    assert_eq!(revisions(home).await, is(&[("d/tier:b", 3), ("e/tier:a", 4)]));
    let removals = async |objects: &[Key]| {
        let found = store.removals(objects).await.expect("a list");
        let mut found: Vec<_> = found.into_iter().map(|row| (row.domain + &row.id, row.version, row.author)).collect();
        found.sort_unstable();
        found
    };
    assert_eq!(removals(&[a, b, c]).await, [("da".to_owned(), 4, "ana".to_owned())]);
    assert_eq!(removals(&[]).await, []);
    publish(store, 5, &[a], &[]).await;
    publish(store, 6, &[], &[a]).await;
    assert_eq!(removals(&[a, c]).await, [("da".to_owned(), 6, "ana".to_owned())], "the last time");
    // Only the first few hundred are looked for.
    let ids: Vec<String> = (0..500).map(|number| number.to_string()).collect();
    let many: Vec<(&str, &str, &str)> = ids.iter().map(|id| ("d", "tier", &**id)).chain([a]).collect();
    assert_eq!(store.removals(&many).await.expect("a list").len(), 0);
    assert_eq!(store.removals(&many[1..]).await.expect("a list").len(), 1);
}

async fn many_objects_are_written(home: &Home) {
    let store = &home.store;
    let ids: Vec<String> = (0..200).map(|number| format!("{number:03}")).collect();
    let keys: Vec<(&str, &str, &str)> = ids.iter().map(|id| ("d", "client", &**id)).collect();
    let (touched, removed) = (version(2), version(3));
    add(store, NewVersion { touched: &keys, objects: &ids, ..plain(&touched, "") }).await;
    assert_eq!(revisions(home).await.len(), 200);
    let reversed: Vec<String> = ids[20..].iter().chain(&ids[..20]).cloned().collect();
    add(store, NewVersion { touched: &keys[20..], removed: &keys[..20], objects: &reversed, ..plain(&removed, "") })
        .await;
    assert_eq!(revisions(home).await.len(), 180);
    assert_eq!(store.removals(&keys).await.expect("a list").len(), 20);
    assert_eq!(home.number("SELECT count(*) FROM version_objects WHERE version = 3 AND removed = 1").await, 20);
    assert_eq!(home.number("SELECT max(place) FROM version_objects WHERE version = 3").await, 199);
    let of = store.version_objects(&[3]).await.expect("objects");
    assert_eq!(of[&3].count, Some(200));
    assert_eq!(
        of[&3].first.iter().map(|(name, _)| &**name).collect::<Vec<_>>(),
        ids[20..30].iter().collect::<Vec<_>>()
    );
}

async fn objects_of_versions_are_named_in_part(home: &Home) {
    let store = &home.store;
    publish(store, 2, &[("d", "tier", "b"), ("d", "tier", "a")], &[("d", "rule", "c")]).await;
    publish(store, 3, &[], &[]).await;
    let of = store.version_objects(&[3, 2, 9]).await.expect("objects");
    assert_eq!((of[&2].count, of[&3].count, of.contains_key(&9)), (Some(3), Some(0), false));
    let named = |name: &str, removed| (name.to_owned(), removed);
    assert_eq!(of[&2].first, [named("d/tier:b", false), named("d/tier:a", false), named("d/rule:c", true)]);
    assert_eq!(of[&3].first, []);
    assert!(store.version_objects(&[]).await.expect("objects").is_empty());
}

const ANY: SoughtVersions<'static> = SoughtVersions { pattern: "%%", from: "", to: "", object: "" };

#[test]
fn a_search_for_versions_is_heavy() {
    assert!(!ANY.is_heavy());
    for sought in [
        SoughtVersions { pattern: "%a%", ..ANY },
        SoughtVersions { from: "2026", ..ANY },
        SoughtVersions { to: "2026", ..ANY },
        SoughtVersions { object: "tier:a", ..ANY },
    ] {
        assert!(sought.is_heavy(), "{sought:?}");
    }
}

async fn list(store: &Store, sought: SoughtVersions<'_>, before: u64, count: u32) -> Vec<u64> {
    let found = store.versions(sought, before, count).await.expect("a list");
    found.iter().map(|version| version.version).collect()
}

async fn versions_are_listed_newest_first_page_by_page(home: &Home) {
    let store = &home.store;
    for number in 2..=5 {
        publish(store, number, &[], &[]).await;
    }
    assert_eq!(list(store, ANY, u64::MAX, 9).await, [5, 4, 3, 2, 1]);
    assert_eq!(list(store, ANY, u64::MAX, 2).await, [5, 4]);
    assert_eq!(list(store, ANY, 4, 2).await, [3, 2]);
    assert_eq!((list(store, ANY, 1, 9).await, list(store, ANY, 9, 0).await), (vec![], vec![]));
}

async fn versions_are_found_by_what_is_looked_for(home: &Home) {
    let store = &home.store;
    publish(store, 2, &[("d", "tier", "a")], &[]).await;
    publish(store, 3, &[("d", "tier", "b")], &[("d", "tier", "a")]).await;
    let strange = Version { author: "Ben".to_owned(), message: "100%_Done~".to_owned(), ..version(4) };
    add(store, plain(&strange, "")).await;
    let by = async |sought| list(store, sought, u64::MAX, 9).await;
    for (text, found) in
        [("MESSAGE", vec![3, 2]), ("ben", vec![4]), ("0%_d", vec![4]), ("~", vec![4]), ("_", vec![4]), ("x%", vec![])]
    {
        let like = pattern(text);
        assert_eq!(list(store, SoughtVersions { pattern: &like, ..ANY }, u64::MAX, 9).await, found, "{text}");
    }
    assert_eq!(by(SoughtVersions { object: "d/tier:a", ..ANY }).await, [3, 2], "those that removed it too");
    assert_eq!(by(SoughtVersions { object: "d/tier:", ..ANY }).await, [0; 0]);
    let (from, to) = ("2026-01-01T00:00:03", "2026-01-01T00:00:04");
    assert_eq!(by(SoughtVersions { from, to, ..ANY }).await, [3]);
    let like = pattern("ana");
    assert_eq!(list(store, SoughtVersions { to, pattern: &like, ..ANY }, u64::MAX, 9).await, [3, 2]);
    let first = store.version(1).await.expect("an answer").expect("the first").0.published_at;
    assert!(&*first > from, "the first one is of now");
    assert_eq!(by(SoughtVersions { from, ..ANY }).await, [4, 3, 1]);
}

async fn choices_for_used_quota_are_summed(home: &Home) {
    let store = &home.store;
    let choices = [
        vec![("a", Carry::Reset), ("b", Carry::Proportional), ("c", Carry::Keep)],
        vec![("a", Carry::Proportional), ("b", Carry::Keep)],
        vec![("b", Carry::Reset), ("d", Carry::Proportional)],
    ];
    for (number, choices) in (2..).zip(choices) {
        let carry = Carries(choices.into_iter().map(|(limit, carry)| (limit.to_owned(), carry)).collect());
        add(store, plain(&Version { carry, ..version(number) }, "")).await;
    }
    let is = |choices: &[(&str, Carry)]| -> BTreeMap<String, Carry> {
        choices.iter().map(|(limit, carry)| ((*limit).to_owned(), *carry)).collect()
    };
    for (after, last, sum) in [
        (1, 2, is(&[("a", Carry::Reset), ("b", Carry::Proportional)])),
        (1, 3, is(&[("a", Carry::Reset), ("b", Carry::Proportional)])),
        (2, 3, is(&[("a", Carry::Proportional)])),
        (0, u64::MAX, is(&[("a", Carry::Reset), ("b", Carry::Reset), ("d", Carry::Proportional)])),
        (4, u64::MAX, is(&[])),
        (3, 3, is(&[])),
    ] {
        assert_eq!(store.carries_since(after, last).await.expect("choices").0, sum, "{after} to {last}");
        let mut reading = store.reading().await.expect("a transaction");
        assert_eq!(Version::carries(&mut reading, after, last).await.expect("choices").0, sum);
    }
}

async fn an_answer_is_known_by_its_key_for_a_week(home: &Home) {
    let store = &home.store;
    let answered = Answered { request_sha256: "sha".to_owned(), answer: "{}".to_owned() };
    let publish = async |number, key| {
        let version = version(number);
        add(store, NewVersion { answered: Some((key, &answered)), ..plain(&version, "") }).await;
    };
    publish(2, "k").await;
    let read = async |user, key| Answered::read(&mut *home.connection().await, user, key).await.expect("an answer");
    let found = read("ana", "k").await.expect("it is known");
    assert_eq!((found.request_sha256, found.answer), (answered.request_sha256.clone(), answered.answer.clone()));
    assert!(read("ben", "k").await.is_none() && read("ana", "K").await.is_none());
    // One key is one publish.
    let again = version(3);
    let change = store.change().await.expect("a change");
    let refused = store.add_version(change, NewVersion { answered: Some(("k", &answered)), ..plain(&again, "") }).await;
    let refused = refused.expect_err("the key was used");
    assert!(refused.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation), "{refused}");
    assert_eq!(newest(store).await, 2);
    let set_age = async |days: i64, more: i64| {
        let at = crate::base::secrets::now() - days * 86_400 - more;
        home.execute(&format!("UPDATE publish_keys SET at = {at} WHERE key = 'k'")).await;
    };
    set_age(7, -600).await;
    publish(3, "l").await;
    assert!(read("ana", "k").await.is_some());
    set_age(7, 1).await;
    publish(4, "m").await;
    assert!(read("ana", "k").await.is_none() && read("ana", "l").await.is_some());
}

async fn a_file_is_known_by_what_was_published_last(home: &Home) {
    let store = &home.store;
    let read = async |name| FromFile::read(&mut *home.connection().await, name).await.expect("an answer");
    for (number, file) in [(2, "/a.toml"), (3, "/b.toml"), (4, "/a.toml")] {
        let version = version(number);
        add(store, NewVersion { file: Some(file), ..plain(&version, "") }).await;
        let found = read(file).await.expect("it is known");
        assert_eq!((found.version, found.sha256), (number, version.sha256));
    }
    assert_eq!(read("/b.toml").await.expect("it is known").version, 3);
    assert!(read("/c.toml").await.is_none());
}

async fn all_of_a_publish_is_written_or_nothing(home: &Home) {
    let store = &home.store;
    let line = Audit { action: "policy.publish.test", ..LINE };
    let rollout = Rollout {
        version: 2,
        keeps: 1,
        nodes: ["n-1".to_owned()].into(),
        author: "ana".to_owned(),
        since: "now".to_owned(),
    };
    let answered = Answered { request_sha256: String::new(), answer: String::new() };
    let (second, objects) = (version(2), ["d/tier:a".to_owned()]);
    let lines = [line, line];
    let whole = || NewVersion {
        touched: &[("d", "tier", "a")],
        objects: &objects,
        answered: Some(("k", &answered)),
        file: Some("/a.toml"),
        rollout: Some(&rollout),
        audit: &lines,
        ..plain(&second, "document 2")
    };
    // A rollout that keeps a version that is not there is refused by the database, as the last but one.
    let absent = Rollout { keeps: 99, ..rollout.clone() };
    let change = store.change().await.expect("a change");
    store.add_version(change, NewVersion { rollout: Some(&absent), ..whole() }).await.expect_err("it is refused");
    let counts = async || {
        let count = async |table: &str| home.number(&format!("SELECT count(*) FROM {table}")).await;
        let of = [
            count("policy_versions").await,
            count("version_objects WHERE version > 1").await,
            count("publish_keys").await,
        ];
        (
            of,
            count("policy_files").await,
            count("rollout").await,
            home.lines("policy.publish.test").await,
            newest(store).await,
        )
    };
    assert_eq!(counts().await, ([1, 0, 0], 0, 0, 0, 1));
    assert!(revisions(home).await.is_empty());
    add(store, whole()).await;
    assert_eq!(counts().await, ([2, 1, 1], 1, 1, 2, 2));
    assert_eq!(Rollout::read(&mut *home.connection().await).await.expect("an answer"), Some(rollout.clone()));
    let third = version(3);
    add(store, plain(&third, "")).await;
    assert_eq!(
        Rollout::read(&mut *home.connection().await).await.expect("an answer"),
        None,
        "it is over with the next"
    );
}

async fn of_publishes_at_once_one_has_the_number(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    let publishing = (0..8).map(|number| {
        let store = stores[number % 2].clone();
        async move {
            let version = Version { message: format!("of {number}"), ..version(2) };
            let change = store.change().await.expect("a change");
            let added = store.add_version(change, NewVersion { audit: &[LINE], ..plain(&version, "") }).await;
            added
                .map_err(|error| error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation))
        }
    });
    let outcomes = at_once(publishing).await;
    let won: Vec<usize> = (0..8).filter(|number| outcomes[*number].is_ok()).collect();
    assert_eq!(won.len(), 1, "{outcomes:?}");
    assert!(outcomes.iter().all(|outcome| *outcome != Err(false)), "{outcomes:?}");
    let (found, _) = home.store.version(2).await.expect("an answer").expect("the version");
    assert_eq!((found.message, home.lines("test").await), (format!("of {}", won[0]), 1));
}

async fn publishes_in_turn_are_all_kept(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    let publishing = (0..12).map(|number| {
        let store = stores[number % 2].clone();
        async move {
            let mut change = store.change().await.expect("a change");
            // What is read in a change stays as it is.
            let next = Version::newest(&mut change).await.expect("a number") + 1;
            store.add_version(change, plain(&version(next), "")).await.expect("no one else has the number");
            next
        }
    });
    let mut numbers = at_once(publishing).await;
    numbers.sort_unstable();
    assert_eq!(numbers, (2..14).collect::<Vec<_>>());
    assert_eq!(list(&home.store, ANY, u64::MAX, 100).await, (1..14).rev().collect::<Vec<_>>());
}

async fn a_published_version_never_changes(home: &Home) {
    for sql in ["UPDATE policy_versions SET document = ''", "DELETE FROM policy_versions"] {
        let refused = sqlx::query(sql).execute(&home.store.pool).await.expect_err(sql);
        assert!(refused.to_string().contains("a published version"), "{refused}");
    }
    assert_eq!(newest(&home.store).await, 1);
}
