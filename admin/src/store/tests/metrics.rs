//! Figures of minutes and hours.

use std::collections::BTreeMap;

use crate::{
    domain::metric_types::{DecisionTotals, HOUR, LimitTotals, MINUTE, Minute, Numbers, Span},
    store::{
        database::Store,
        metrics::{FigureRow, HOURS_STAY, MINUTES_STAY},
        tests::{Home, at_once},
    },
};

on_both! {
    a_minute_is_added_to_its_row_and_its_hour,
    names_have_numbers_that_stay,
    rows_are_folded_in_order_page_by_page,
    figures_are_there_once_something_was_decided,
    old_rows_and_names_are_removed_at_their_age,
    of_minutes_at_once_none_is_lost,
}

/// When the hour of the tests begins.
const START: i64 = 500_000 * HOUR;

fn part(allowed: u64) -> LimitTotals {
    LimitTotals { allowed, denied: 1, shadow_denied: 0 }
}

fn minute(at: i64, limits: &[(&str, u64)]) -> Minute {
    let mut span = Span::default();
    for (limit, allowed) in limits {
        span.whole.add(&DecisionTotals { allowed: *allowed, denied: 1, ..DecisionTotals::default() });
        span.limits.parts.insert((*limit).to_owned(), part(*allowed));
    }
    Minute { at, span }
}

async fn rows(store: &Store, step: i64, range: std::ops::Range<i64>) -> Vec<FigureRow> {
    store.fold_figures(step, range, Vec::new(), |all: &mut Vec<FigureRow>, row| all.push(row)).await.expect("rows")
}

/// Returns what each limit allowed in a row, by the names of the store.
async fn allowed(store: &Store, row: &FigureRow) -> BTreeMap<String, u64> {
    let names = store.figure_names().await.expect("names");
    row.span.limits.parts.iter().map(|(number, part)| (names[number].clone(), part.allowed)).collect()
}

fn sums(parts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    parts.iter().map(|(name, allowed)| ((*name).to_owned(), *allowed)).collect()
}

async fn a_minute_is_added_to_its_row_and_its_hour(home: &Home) {
    let store = &home.store;
    let mut numbers = Numbers::new();
    let add = async |node: &str, minute: &Minute, numbers: &mut Numbers| {
        store.add_figures(node, minute, numbers).await.expect("it is written");
    };
    add("n-1", &minute(START, &[("a", 5), ("b", 7)]), &mut numbers).await;
    add("n-1", &minute(START + MINUTE, &[("a", 10)]), &mut numbers).await;
    add("n-1", &minute(START, &[("a", 100)]), &mut numbers).await;
    add("n-2", &minute(START, &[("b", 1)]), &mut Numbers::new()).await;
    add("n-1", &minute(START + HOUR, &[("a", 3)]), &mut numbers).await;
    let minutes = rows(store, MINUTE, START..START + HOUR).await;
    let keys: Vec<_> = minutes.iter().map(|row| (row.at - START, &*row.node)).collect();
    assert_eq!(keys, [(0, "n-1"), (0, "n-2"), (MINUTE, "n-1")]);
    assert_eq!(
        allowed(store, &minutes[0]).await,
        sums(&[("a", 105), ("b", 7)]),
        "a minute that is told twice is a sum"
    );
    assert_eq!((minutes[0].span.whole.allowed, minutes[0].span.whole.denied), (112, 3));
    assert_eq!(allowed(store, &minutes[1]).await, sums(&[("b", 1)]));
    let hours = rows(store, HOUR, START..START + 2 * HOUR).await;
    let keys: Vec<_> = hours.iter().map(|row| (row.at - START, &*row.node)).collect();
    assert_eq!(keys, [(0, "n-1"), (0, "n-2"), (HOUR, "n-1")]);
    assert_eq!(allowed(store, &hours[0]).await, sums(&[("a", 115), ("b", 7)]));
    assert_eq!(allowed(store, &hours[2]).await, sums(&[("a", 3)]));
}

async fn names_have_numbers_that_stay(home: &Home) {
    let (store, other) = (&home.store, home.another().await);
    let (mut numbers, mut others) = (Numbers::new(), Numbers::new());
    let many: Vec<String> = (0..300).map(|number| format!("limit-{number}")).collect();
    let limits: Vec<(&str, u64)> = many.iter().map(|name| (&**name, 1)).collect();
    store.add_figures("n-1", &minute(START, &limits), &mut numbers).await.expect("it is written");
    other.add_figures("n-2", &minute(START + HOUR, &limits[..2]), &mut others).await.expect("it is written");
    assert_eq!(numbers.len(), 300);
    for name in &many[..2] {
        assert_eq!(numbers[name].0, others[name].0, "one number for all servers");
        assert_eq!((numbers[name].1, others[name].1), (START, START + HOUR), "the hour in which it was told");
    }
    let names = store.figure_names().await.expect("names");
    assert_eq!(names.len(), 300);
    assert!(numbers.iter().all(|(name, (number, _))| names[number] == *name));
    let used = format!("SELECT count(*) FROM figure_limits WHERE used_at = {}", START + HOUR);
    assert_eq!(home.number(&used).await, 2);
    store.add_figures("n-1", &minute(START + HOUR, &limits), &mut numbers).await.expect("it is written");
    assert_eq!(home.number(&used).await, 300, "once an hour they are used");
}

async fn rows_are_folded_in_order_page_by_page(home: &Home) {
    let store = &home.store;
    let mut numbers = Numbers::new();
    store.add_figures("n", &minute(START, &[("a", 5)]), &mut numbers).await.expect("it is written");
    // More than two pages, of which two end in the middle of a minute.
    let copies: Vec<String> = (0..300)
        .map(|number| {
            format!(
                "INSERT INTO figures (step, at, node, data)
                 SELECT step, at + {}, 'n-{:03}', data FROM figures WHERE step = 60 AND node = 'n';",
                number / 3 * MINUTE,
                299 - number
            )
        })
        .collect();
    home.execute(&format!("BEGIN; {} {} COMMIT", copies.concat(), copies.concat().replace("'n-", "'m-"))).await;
    let all = rows(store, MINUTE, START..i64::MAX).await;
    assert_eq!(all.len(), 601);
    assert!(all.is_sorted_by(|a, b| (a.at, &a.node) < (b.at, &b.node)), "each once, in order");
    let some = rows(store, MINUTE, START + MINUTE..START + 3 * MINUTE).await;
    assert_eq!(some.len(), 12, "from the first instant on, before the last");
    assert!(some.iter().all(|row| (START + MINUTE..START + 3 * MINUTE).contains(&row.at)));
    assert!(rows(store, MINUTE, START..START).await.is_empty() && rows(store, HOUR, 0..START).await.is_empty());
    // A row of a newer build is left out.
    let newer = if home.is_postgres() { "'\\xff'" } else { "x'ff'" };
    home.execute(&format!("UPDATE figures SET data = {newer} WHERE step = 60 AND node = 'n-000'")).await;
    assert_eq!(rows(store, MINUTE, START..i64::MAX).await.len(), 600);
}

async fn figures_are_there_once_something_was_decided(home: &Home) {
    let store = &home.store;
    let is = async || (store.has_figures().await.expect("an answer"), store.figures_since().await.expect("an answer"));
    assert_eq!(is().await, (false, None));
    let mut numbers = Numbers::new();
    store.add_figures("n", &minute(START + HOUR + MINUTE, &[]), &mut numbers).await.expect("it is written");
    assert_eq!(is().await, (false, Some(START + HOUR)), "an hour of nothing");
    store.add_figures("n", &minute(START + 2 * HOUR, &[("a", 1)]), &mut numbers).await.expect("it is written");
    assert_eq!(is().await, (true, Some(START + HOUR)));
    store.add_figures("n", &minute(START + 5 * MINUTE, &[]), &mut numbers).await.expect("it is written");
    assert_eq!(is().await, (true, Some(START)));
}

async fn old_rows_and_names_are_removed_at_their_age(home: &Home) {
    let store = &home.store;
    let mut numbers = Numbers::new();
    for (at, name) in [(START, "old"), (START + HOUR, "new")] {
        store.add_figures("n", &minute(at, &[(name, 1)]), &mut numbers).await.expect("it is written");
    }
    // More than one change removes.
    let copies: Vec<String> = (0..120)
        .map(|number| {
            format!(
                "INSERT INTO figures (step, at, node, data)
                     SELECT step, at, 'm-{number}', data FROM figures WHERE step = 60 AND node = 'n' AND at = {START};"
            )
        })
        .collect();
    home.execute(&format!("BEGIN; {} COMMIT", copies.concat())).await;
    let count = async |step| rows(store, step, 0..i64::MAX).await.len();
    let remove = async |now| store.remove_old_figures(now).await.expect("they are removed");
    remove(START + MINUTES_STAY).await;
    assert_eq!((count(MINUTE).await, count(HOUR).await), (122, 2));
    remove(START + MINUTES_STAY + 1).await;
    assert_eq!((count(MINUTE).await, count(HOUR).await), (1, 2));
    remove(START + HOURS_STAY).await;
    assert_eq!((count(MINUTE).await, count(HOUR).await), (0, 2));
    remove(START + HOURS_STAY + 1).await;
    assert_eq!(count(HOUR).await, 1);
    let names = async || {
        let mut names: Vec<String> = store.figure_names().await.expect("names").into_values().collect();
        names.sort_unstable();
        names.concat()
    };
    remove(START + HOURS_STAY + 24 * HOUR).await;
    assert_eq!(names().await, "newold", "a day longer than any row");
    remove(START + HOURS_STAY + 24 * HOUR + 1).await;
    assert_eq!(names().await, "new");
}

async fn of_minutes_at_once_none_is_lost(home: &Home) {
    let stores = [home.store.clone(), home.another().await];
    let adding = (0..8).map(|number| {
        let store = stores[number % 2].clone();
        async move {
            let name = format!("limit-{}", number % 3);
            let minute = minute(START, &[(&name, 1), ("of all", 10)]);
            store.add_figures("n", &minute, &mut Numbers::new()).await.expect("it is written");
        }
    });
    at_once(adding).await;
    for step in [MINUTE, HOUR] {
        let found = rows(&home.store, step, START..START + HOUR).await;
        assert_eq!(found.len(), 1);
        let sums = sums(&[("limit-0", 3), ("limit-1", 3), ("limit-2", 2), ("of all", 80)]);
        assert_eq!(allowed(&home.store, &found[0]).await, sums);
    }
    assert_eq!(home.store.figure_names().await.expect("names").len(), 4);
}
