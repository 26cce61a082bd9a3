//! The audit log.

use crate::store::{
    audit::{Audit, AuditLine, Came, Sought},
    tests::{Home, LINE, at_once},
};

on_both! {
    lines_come_back_as_they_were_written,
    pages_are_bounded_and_in_order,
    lines_are_found_by_what_is_looked_for,
    lines_are_found_by_their_time,
    lines_of_writers_at_once_are_in_the_order_of_their_ids,
    lines_are_never_changed,
}

/// Writes lines about these objects.
async fn write(home: &Home, objects: &[&str]) {
    for object in objects {
        home.store.audit(Audit { object, ..LINE }).await.expect("it is written");
    }
}

fn objects(lines: &[AuditLine]) -> Vec<&str> {
    lines.iter().map(|line| &*line.object).collect()
}

async fn lines_come_back_as_they_were_written(home: &Home) {
    let store = &home.store;
    let first = store.last_audit_lines(10).await.expect("lines");
    let about: Vec<_> = first.iter().map(|line| (&*line.actor, &*line.action, &*line.object, &*line.result)).collect();
    assert_eq!(about, [("tidegate", "policy.publish", "version:1", "done")]);
    assert_eq!(store.newest_audit().await.expect("a number"), first[0].id);
    let line = Audit {
        actor: "token:ci",
        address: "2001:db8::1",
        action: "policy.publish",
        object: "tier:ü'\"%_~",
        result: "version:2",
        request_id: "abc",
    };
    let before = jiff::Timestamp::now();
    store.audit(line).await.expect("it is written");
    let lines = store.audit_lines_after(first[0].id, 10).await.expect("lines");
    assert_eq!(lines.len(), 1);
    let AuditLine { id, at, actor, address, action, object, result, request_id } = &lines[0];
    assert_eq!(
        (&**actor, &**address, &**action, &**object, &**result, &**request_id),
        (line.actor, line.address, line.action, line.object, line.result, line.request_id)
    );
    assert!(*id > first[0].id);
    assert_eq!(store.newest_audit().await.expect("a number"), *id);
    let at: jiff::Timestamp = at.parse().expect("RFC 3339");
    assert!(before <= at && at <= jiff::Timestamp::now());
}

async fn pages_are_bounded_and_in_order(home: &Home) {
    let store = &home.store;
    let start = store.newest_audit().await.expect("a number");
    write(home, &["a", "b", "c", "d"]).await;
    assert_eq!(objects(&store.last_audit_lines(2).await.expect("lines")), ["c", "d"]);
    assert_eq!(store.last_audit_lines(usize::MAX).await.expect("lines").len(), 5);
    let all = store.audit_lines_after(start, usize::MAX).await.expect("lines");
    assert_eq!(objects(&all), ["a", "b", "c", "d"]);
    assert_eq!(objects(&store.audit_lines_after(all[0].id, 2).await.expect("lines")), ["b", "c"]);
    assert!(store.audit_lines_after(all[3].id, 9).await.expect("lines").is_empty());
    assert!(store.audit_lines_after(start, 0).await.expect("lines").is_empty());
    let any = Sought::default();
    let before = async |id, count| store.audit_before(&any, id, count).await.expect("lines");
    assert_eq!(objects(&before(i64::MAX, 2).await), ["d", "c"]);
    assert_eq!(objects(&before(all[2].id, 9).await), ["b", "a", "version:1"]);
    assert!(before(start, 9).await.is_empty() && before(i64::MAX, 0).await.is_empty());
    let between = async |after, last, count| store.audit_between(&any, (after, last), count).await.expect("lines");
    assert_eq!(objects(&between(start, all[3].id, 9).await), ["a", "b", "c", "d"]);
    assert_eq!(objects(&between(all[0].id, all[2].id, 9).await), ["b", "c"], "after the one, up to the other");
    assert_eq!(objects(&between(start, all[3].id, 3).await), ["a", "b", "c"]);
    assert!(between(all[2].id, all[2].id, 9).await.is_empty());
}

async fn lines_are_found_by_what_is_looked_for(home: &Home) {
    let store = &home.store;
    let lines = [
        ("ana", "token.use", "1", "first of the day", "r-1"),
        ("ana", "token.add", "2", "done", "r-2"),
        ("ana", "token", "3", "refused: too many", "r-3"),
        ("ben", "tokens.list", "4", "done on 3 of 4 nodes", ""),
        ("ben", "token.use.more", "5", "version:7", "r-1"),
        ("ben", "session.begin", "6", "wrong 100%_password", ""),
        ("", "session.begin", "7", "ndone", "r-7"),
    ];
    let start = store.newest_audit().await.expect("a number");
    for (actor, action, object, result, request_id) in lines {
        let line = Audit { actor, address: "192.0.2.7", action, object, result, request_id };
        store.audit(line).await.expect("it is written");
    }
    let find = async |sought: Sought| {
        let newest_first = store.audit_before(&sought, i64::MAX, 100).await.expect("lines");
        let oldest_first = store.audit_between(&sought, (start, i64::MAX), 100).await.expect("lines");
        let mut found: Vec<String> =
            newest_first.iter().filter(|line| line.id > start).map(|line| line.object.clone()).collect();
        found.reverse();
        assert_eq!(found, objects(&oldest_first), "both ways find the same: {sought:?}");
        assert!(newest_first.is_sorted_by(|a, b| a.id > b.id) && oldest_first.is_sorted_by(|a, b| a.id < b.id));
        let two = store.audit_before(&sought, i64::MAX, 2).await.expect("lines");
        assert_eq!(objects(&two), objects(&newest_first[..newest_first.len().min(2)]), "the newest two of all actions");
        found.concat()
    };
    let text = |text: &str| Sought { text: text.to_owned(), ..Sought::default() };
    assert_eq!(find(Sought { actor: "ben".to_owned(), ..Sought::default() }).await, "456");
    assert_eq!(find(Sought { action: "token.use".to_owned(), ..Sought::default() }).await, "1");
    assert_eq!(
        find(Sought { action: "token".to_owned(), ..Sought::default() }).await,
        "1235",
        "and what begins with `token.`"
    );
    assert_eq!(find(Sought { action: "tok".to_owned(), ..Sought::default() }).await, "");
    assert_eq!(find(Sought { object: "4".to_owned(), ..Sought::default() }).await, "4");
    assert_eq!(find(Sought { request_id: "r-1".to_owned(), ..Sought::default() }).await, "15");
    assert_eq!(find(Sought { result: Some(Came::Done), ..Sought::default() }).await, "1245");
    assert_eq!(find(Sought { result: Some(Came::Refused), ..Sought::default() }).await, "367");
    assert_eq!(find(text("TOO many")).await, "3", "A to Z are a to z");
    assert_eq!(
        (find(text("%")).await, find(text("0%_p")).await, find(text("~")).await),
        ("6".into(), "6".into(), String::new())
    );
    assert_eq!(find(text("192.0.2.7 tokens.list 4")).await, "4", "across columns");
    let both =
        Sought { actor: "ana".to_owned(), action: "token".to_owned(), result: Some(Came::Done), ..Sought::default() };
    assert_eq!(find(both).await, "12");
}

#[test]
fn a_search_that_no_index_serves_is_heavy() {
    let sought = |filters: &str| {
        let text = |filter: &str| if filters.contains(filter) { "x".to_owned() } else { String::new() };
        let [actor, action, object] = ["actor", "action", "object"].map(text);
        Sought { actor, action, object, request_id: text("request"), text: text("text"), ..Sought::default() }
    };
    for light in ["", "actor", "action", "object", "request", "actor object request"] {
        assert!(!sought(light).is_heavy(), "{light}");
    }
    for heavy in ["actor object", "actor action", "action object", "text", "text request"] {
        assert!(sought(heavy).is_heavy(), "{heavy}");
    }
}

async fn lines_are_found_by_their_time(home: &Home) {
    let store = &home.store;
    // The log does not take times: they are those of the writing.
    let insert = |at: &str, object: &str| {
        format!(
            "INSERT INTO audit (at, actor, address, action, object, result, request_id)
                 VALUES ('{at}', 'a', '', 'timed', '{object}', 'done', '');"
        )
    };
    let times = [("2026-01-01T00:00:00.5Z", "a"), ("2026-01-01T00:00:01Z", "b"), ("2026-01-01T00:00:02.123456Z", "c")];
    home.execute(&times.map(|(at, object)| insert(at, object)).concat()).await;
    let find = async |from: &str, to: &str| {
        let sought =
            Sought { action: "timed".to_owned(), from: from.to_owned(), to: to.to_owned(), ..Sought::default() };
        assert_eq!(sought.is_heavy(), !from.is_empty() || !to.is_empty());
        let lines = store.audit_before(&sought, i64::MAX, 9).await.expect("lines");
        objects(&lines).concat()
    };
    assert_eq!(find("", "").await, "cba");
    assert_eq!(find("2026-01-01T00:00:01", "").await, "cb", "of this second and later");
    assert_eq!(find("", "2026-01-01T00:00:02").await, "ba", "before this second");
    assert_eq!(find("2026-01-01T00:00:01", "2026-01-01T00:00:02").await, "b");
    assert_eq!(find("2026-01-01T00:00:03", "2026-01-01T00:00:09").await, "");
}

async fn lines_of_writers_at_once_are_in_the_order_of_their_ids(home: &Home) {
    let (a, b) = (home.store.clone(), home.another().await);
    let start = a.newest_audit().await.expect("a number");
    let writers = (0..16).map(|number| {
        let store = if number % 2 == 0 { a.clone() } else { b.clone() };
        async move {
            let object = number.to_string();
            store.audit(Audit { object: &object, ..LINE }).await.expect("it is written");
        }
    });
    at_once(writers).await;
    let lines = b.audit_lines_after(start, 100).await.expect("lines");
    let ids: Vec<i64> = lines.iter().map(|line| line.id - start).collect();
    assert_eq!(ids, (1..=16).collect::<Vec<_>>(), "none is lost, and no number left out");
    let mut numbers: Vec<u32> = lines.iter().map(|line| line.object.parse().expect("a number")).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..16).collect::<Vec<_>>());
    assert!(lines.is_sorted_by_key(|line| line.at.parse::<jiff::Timestamp>().expect("RFC 3339")), "{lines:?}");
}

async fn lines_are_never_changed(home: &Home) {
    for sql in ["UPDATE audit SET actor = 'eve'", "DELETE FROM audit"] {
        let refused = sqlx::query(sql).execute(&home.store.pool).await.expect_err(sql);
        assert!(refused.to_string().contains("only added to"), "{refused}");
    }
    assert_eq!(home.store.last_audit_lines(9).await.expect("lines").len(), 1);
}
