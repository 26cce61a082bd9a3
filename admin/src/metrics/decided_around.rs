//! What was decided just before and just after an instant, from the minutes in the store.

use std::{collections::BTreeMap, ops::Range};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    domain::metric_types::MINUTE,
    store::{database::Store, metrics::FigureRow},
};

/// So much before and after, in seconds.
const AROUND: i64 = 15 * MINUTE;

/// What was decided in the quarter of an hour before an instant, and in that after it, in whole minutes: the one with the
/// instant in it is neither. `null`: nothing, or it is not known any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct DecidedAround {
    before: Option<Decided>,
    after: Option<Decided>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "DecidedThen")]
struct Decided {
    allowed: u64,
    denied: u64,
}

/// By the Unix second in which a minute began.
type Minutes = BTreeMap<i64, Decided>;

/// The minutes before and after an instant.
fn windows(at: Timestamp) -> [Range<i64>; 2] {
    let ms = at.as_millisecond();
    let (begun, ended) = (ms.div_euclid(1_000 * MINUTE) * MINUTE, -(-ms).div_euclid(1_000 * MINUTE) * MINUTE);
    [begun - AROUND..begun, ended..ended + AROUND]
}

/// Around each of these instants.
pub(crate) async fn decided_around(store: &Store, instants: &[Timestamp]) -> sqlx::Result<Vec<DecidedAround>> {
    let mut ranges: Vec<Range<i64>> =
        instants.iter().copied().map(windows).map(|[before, after]| before.start..after.end).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    // Each minute is read once.
    ranges.dedup_by(|next, range| {
        let meets = next.start <= range.end;
        if meets {
            range.end = range.end.max(next.end);
        }
        meets
    });
    let add = |minutes: &mut Minutes, row: FigureRow| {
        let sum = minutes.entry(row.at).or_default();
        sum.allowed = sum.allowed.saturating_add(row.span.whole.allowed);
        sum.denied = sum.denied.saturating_add(row.span.whole.denied);
    };
    let mut minutes = Minutes::new();
    for range in ranges {
        minutes = store.fold_figures(MINUTE, range, minutes, add).await?;
    }
    let sum = |range: Range<i64>| {
        let sum = minutes.range(range).fold(Decided::default(), |sum, (_, minute)| Decided {
            allowed: sum.allowed.saturating_add(minute.allowed),
            denied: sum.denied.saturating_add(minute.denied),
        });
        Some(sum).filter(|sum| *sum != Decided::default())
    };
    Ok(instants
        .iter()
        .map(|at| {
            let [before, after] = windows(*at).map(sum);
            DecidedAround { before, after }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::metric_types::{DecisionTotals, Minute, Numbers, Span},
        publish::stored_policy::write_first,
        store::data_directory::DataFolder,
    };

    #[tokio::test]
    async fn minutes_before_and_after_are_added_up_and_the_one_with_the_instant_is_neither() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut data = DataFolder::take(folder.path()).expect("it is free");
        let store = Store::create(&mut data, write_first).await.expect("it is made");
        let (mut numbers, noon) = (Numbers::new(), 1_800_000_000);
        // Minute by minute one more of each; the first and the last ones are too far away.
        for number in -16..=17 {
            let whole = DecisionTotals { allowed: 100, denied: u64::from(number >= 0), ..DecisionTotals::default() };
            let minute = Minute { at: noon + number * MINUTE, span: Span { whole, ..Span::default() } };
            for node in ["node-1", "node-2"] {
                store.add_figures(node, &minute, &mut numbers).await.expect("it is written");
            }
        }
        let at = |ms: i64| Timestamp::from_millisecond(noon * 1_000 + ms).expect("an instant");
        let decided = |allowed, denied| Some(Decided { allowed, denied });
        let of = |before, after| DecidedAround { before, after };
        let all =
            decided_around(&store, &[at(0), at(30_000), at(60_000), at(86_400_000)]).await.expect("they are read");
        assert_eq!(
            all,
            [
                of(decided(3_000, 0), decided(3_000, 30)),
                of(decided(3_000, 0), decided(3_000, 30)),
                of(decided(3_000, 2), decided(3_000, 30)),
                of(None, None),
            ]
        );
        let ends = decided_around(&store, &[at(15 * 60_000)]).await.expect("they are read");
        assert_eq!(ends, [of(decided(3_000, 30), decided(600, 6))], "as far as there are any");
    }
}
