//! Drafts of change lists.

use crate::store::{
    audit::Audit,
    database::{Store, pattern},
    drafts::{Draft, DraftCaps, DraftOutcome},
    tests::{Home, LINE, at_once},
};

on_both! {
    drafts_come_back_until_they_end,
    drafts_are_listed_newest_first_page_by_page,
    drafts_are_bounded,
    an_author_with_many_drafts_leaves_room_to_others,
    the_last_place_is_taken_once,
    a_draft_is_removed_once,
}

const SAVED: Audit<'static> = Audit { action: "draft.save", ..LINE };
const REMOVED: Audit<'static> = Audit { action: "draft.remove", ..LINE };
const CAPS: DraftCaps = DraftCaps { all: 9, author: 9 };
const END: &str = "2026-02-01T00:00:00Z";
const NOW: &str = "2026-01-01T00:00:00Z";
/// The cursor behind which every draft stands.
const ALL: (&str, &str) = ("9999", "");

fn draft(id: &str, saved_at: &str) -> Draft {
    Draft {
        id: id.to_owned(),
        author: "Ana".to_owned(),
        message: format!("message of {id}"),
        saved_at: saved_at.to_owned(),
        ends_at: END.to_owned(),
    }
}

async fn add_within(store: &Store, draft: &Draft, caps: DraftCaps) -> DraftOutcome {
    store.add_draft(draft, &format!("list of {}", draft.id), NOW, caps, SAVED).await.expect("an answer")
}

async fn add(store: &Store, draft: &Draft, count_max: i64) -> bool {
    let caps = DraftCaps { all: count_max, author: count_max + 1 };
    add_within(store, draft, caps).await == DraftOutcome::Saved
}

async fn drafts_come_back_until_they_end(home: &Home) {
    let store = &home.store;
    let saved = draft("a", NOW);
    assert!(add(store, &saved, 9).await);
    let (found, list) = store.draft("a", NOW).await.expect("an answer").expect("the draft");
    let Draft { id, author, message, saved_at, ends_at } = &found;
    assert_eq!((&**id, &**author, &**message, &**saved_at, &**ends_at), ("a", "Ana", "message of a", NOW, END));
    assert_eq!(list, "list of a");
    assert!(store.draft("b", NOW).await.expect("an answer").is_none());
    assert!(store.draft("a", "2026-01-31T23:59:59Z").await.expect("an answer").is_some());
    assert!(store.draft("a", END).await.expect("an answer").is_none(), "it ends at its end");
    assert!(store.drafts(END, "%", ALL, 9).await.expect("a list").is_empty());
    assert_eq!(home.lines("draft.save").await, 1);
    // One id is one draft.
    let again = store.add_draft(&saved, "another list", NOW, CAPS, SAVED).await.expect_err("it is there");
    assert!(again.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation), "{again}");
    assert_eq!(store.draft("a", NOW).await.expect("an answer").expect("the draft").1, "list of a");
    assert_eq!(home.lines("draft.save").await, 1, "what was refused left nothing");
}

async fn drafts_are_listed_newest_first_page_by_page(home: &Home) {
    let store = &home.store;
    let times = [
        ("b", "2026-01-01T00:00:02Z"),
        ("d", "2026-01-01T00:00:01Z"),
        ("a", "2026-01-01T00:00:02Z"),
        ("c", "2026-01-01T00:00:03Z"),
    ];
    for (id, saved_at) in times {
        assert!(add(store, &draft(id, saved_at), 9).await);
    }
    let ids = async |pattern: &str, after, count| {
        let found = store.drafts(NOW, pattern, after, count).await.expect("a list");
        found.into_iter().map(|draft| draft.id).collect::<String>()
    };
    assert_eq!(ids("%", ALL, 9).await, "cabd", "of the same second by their ids");
    assert_eq!(ids("%", ALL, 2).await, "ca");
    assert_eq!(ids("%", ("2026-01-01T00:00:02Z", "a"), 2).await, "bd");
    assert_eq!(ids("%", ("2026-01-01T00:00:01Z", "d"), 2).await, "");
    assert_eq!(ids("%", ALL, 0).await, "");
    assert_eq!(ids(&pattern("OF C"), ALL, 9).await, "c");
    assert_eq!(ids(&pattern("ana"), ALL, 9).await, "cabd", "the author too");
    assert_eq!((ids(&pattern("%"), ALL, 9).await, ids(&pattern("_"), ALL, 9).await), (String::new(), String::new()));
}

async fn drafts_are_bounded(home: &Home) {
    let store = &home.store;
    let ends = Draft { ends_at: "2026-01-01T00:00:00Z".to_owned(), ..draft("ended", "2025-12-01T00:00:00Z") };
    let added = store.add_draft(&ends, "", "2025-12-01T00:00:00Z", CAPS, SAVED).await.expect("an answer");
    assert_eq!(added, DraftOutcome::Saved);
    assert!(add(store, &draft("a", NOW), 2).await && add(store, &draft("b", NOW), 2).await, "what ended made room");
    assert!(!add(store, &draft("c", NOW), 2).await);
    assert!(store.draft("c", NOW).await.expect("an answer").is_none());
    assert_eq!(home.lines("draft.save").await, 3, "a refusal writes no line");
    assert_eq!(home.number("SELECT count(*) FROM drafts").await, 2);
}

async fn an_author_with_many_drafts_leaves_room_to_others(home: &Home) {
    let caps = DraftCaps { all: 4, author: 2 };
    let add = async |author: &str, id: &str| {
        add_within(&home.store, &Draft { author: author.to_owned(), ..draft(id, NOW) }, caps).await
    };
    assert_eq!((add("Ana", "a").await, add("Ana", "b").await), (DraftOutcome::Saved, DraftOutcome::Saved));
    assert_eq!(add("Ana", "c").await, DraftOutcome::AuthorFull);
    assert_eq!((add("token:ci", "c").await, add("Ben", "d").await), (DraftOutcome::Saved, DraftOutcome::Saved));
    assert_eq!((add("Ben", "e").await, add("Ana", "e").await), (DraftOutcome::Full, DraftOutcome::AuthorFull));
    assert!(home.store.remove_draft("a", REMOVED).await.expect("an answer"));
    assert_eq!(add("Ana", "e").await, DraftOutcome::Saved, "the room was given back");
    assert_eq!(home.lines("draft.save").await, 5, "a refusal writes no line");
}

async fn the_last_place_is_taken_once(home: &Home) {
    let stores = [home.store.clone(), home.another().await, home.store.clone(), home.another().await];
    let saving = stores
        .into_iter()
        .enumerate()
        .map(|(number, store)| async move { add(&store, &draft(&number.to_string(), NOW), 2).await });
    let saved = at_once(saving).await.into_iter().filter(|saved| *saved).count();
    assert_eq!(saved, 2);
    assert_eq!(home.store.drafts(NOW, "%", ALL, 9).await.expect("a list").len(), 2);
    assert_eq!(home.lines("draft.save").await, 2);
}

async fn a_draft_is_removed_once(home: &Home) {
    let (a, b) = (home.store.clone(), home.another().await);
    assert!(add(&a, &draft("a", NOW), 9).await && add(&a, &draft("b", NOW), 9).await);
    let removing =
        [a.clone(), b].map(|store| async move { store.remove_draft("a", REMOVED).await.expect("an answer") });
    let mut removed = at_once(removing).await;
    removed.sort_unstable();
    assert_eq!(removed, [false, true]);
    assert!(!a.remove_draft("absent", REMOVED).await.expect("an answer"));
    assert_eq!(home.lines("draft.remove").await, 1);
    assert!(
        a.draft("a", NOW).await.expect("an answer").is_none() && a.draft("b", NOW).await.expect("an answer").is_some()
    );
}
