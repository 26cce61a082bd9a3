//! Figures of minutes and hours: a row for each, and for each node.

use std::{collections::HashMap, ops::Range, sync::Arc, time::Duration};

use sqlx::{AssertSqlSafe, query, query_as};
use tokio::{task::spawn_blocking, time::sleep};

use crate::{
    domain::metric_types::{HOUR, MINUTE, Minute, Numbers, Span},
    store::database::Store,
};

/// Seconds that rows of minutes stay: seven days.
pub(crate) const MINUTES_STAY: i64 = 7 * DAY;
/// Those of hours.
pub(crate) const HOURS_STAY: i64 = 90 * DAY;
const DAY: i64 = 24 * HOUR;

/// Names that one change writes: others who write wait for it, and no longer.
const NAMES: u16 = 250;
/// Rows that one change removes.
const REMOVED: u16 = 50;
/// Between two that remove, so that others have their turn.
const PAUSE: Duration = Duration::from_millis(25);
/// Rows that are read at once.
const PAGE: u16 = 250;

/// What a node counted in a minute or an hour.
#[derive(Debug)]
pub(crate) struct FigureRow {
    /// Unix seconds when it began.
    pub(crate) at: i64,
    pub(crate) node: String,
    /// By the numbers of [`Store::figure_names`].
    pub(crate) span: Span<u64>,
}

impl Store {
    /// Adds a minute of a node to its row and to its hour's.
    pub(crate) async fn add_figures(&self, node: &str, minute: &Minute, numbers: &mut Numbers) -> sqlx::Result<()> {
        let hour = minute.at - minute.at.rem_euclid(HOUR);
        self.number_names(minute, hour, numbers).await?;
        let span = minute.span.clone().by(|name| numbers.get(&name).map(|&(number, _)| number));
        let mut change = self.change().await?;
        for (step, at) in [(MINUTE, minute.at), (HOUR, hour)] {
            let row: Option<(Vec<u8>,)> =
                query_as("SELECT data FROM figures WHERE step = $1 AND at = $2 AND node = $3")
                    .bind(step)
                    .bind(at)
                    .bind(node)
                    .fetch_optional(&mut *change)
                    .await?;
            // Of this minute there is a row when the process was started within it, or the clock was set back.
            let mut sum = row.and_then(|(data,)| Span::unpack(&data)).unwrap_or_default();
            sum.add(span.clone());
            query(
                "INSERT INTO figures (step, at, node, data) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (step, at, node) DO UPDATE SET data = excluded.data",
            )
            .bind(step)
            .bind(at)
            .bind(node)
            .bind(sum.pack())
            .execute(&mut *change)
            .await?;
        }
        self.keep(change).await
    }

    /// Gives each limit, tier and rule of a minute its number, and notes that this hour has it.
    async fn number_names(&self, minute: &Minute, hour: i64, numbers: &mut Numbers) -> sqlx::Result<()> {
        let names = minute.span.limits.parts.keys().chain(minute.span.owners.parts.keys());
        let is_new = |name: &&String| numbers.get(*name).is_none_or(|&(_, until)| until < hour);
        let new: Vec<&String> = names.filter(is_new).collect();
        for names in new.chunks(NAMES.into()) {
            let rows: Vec<String> = (2..names.len() + 2).map(|place| format!("(${place}, $1)")).collect();
            // Only placeholders were written into it.
            let sql = AssertSqlSafe(format!(
                "INSERT INTO figure_limits (name, used_at) VALUES {}
                 ON CONFLICT (name) DO UPDATE SET used_at = excluded.used_at RETURNING number, name",
                rows.join(", ")
            ));
            let mut change = self.change().await?;
            let query = names.iter().fold(query_as(sql).bind(hour), |query, name| query.bind(*name));
            let told: Vec<(i64, String)> = query.fetch_all(&mut *change).await?;
            self.keep(change).await?;
            numbers.extend(told.into_iter().map(|(number, name)| (name, (number.unsigned_abs(), hour))));
        }
        Ok(())
    }

    /// Removes what is older than it stays, as of a minute that was written.
    pub(crate) async fn remove_old_figures(&self, now: i64) -> sqlx::Result<()> {
        for (step, stays) in [(MINUTE, MINUTES_STAY), (HOUR, HOURS_STAY)] {
            let old =
                format!("SELECT step, at, node FROM figures WHERE step = {step} AND at < $1 ORDER BY at LIMIT $2");
            let sql = format!("DELETE FROM figures WHERE (step, at, node) IN ({old})");
            self.remove(&old, &sql, now - stays).await?;
        }
        // A day longer than any row that has its number.
        let old = "SELECT number FROM figure_limits WHERE used_at < $1 LIMIT $2";
        let sql = format!("DELETE FROM figure_limits WHERE number IN ({old})");
        self.remove(old, &sql, now - HOURS_STAY - DAY).await
    }

    /// Removes with `sql`, as long as there is something `old`. Only numbers were written into them. Looking holds nobody up.
    async fn remove(&self, old: &str, sql: &str, before: i64) -> sqlx::Result<()> {
        let one = query(AssertSqlSafe(old)).bind(before).bind(1_i64);
        if one.fetch_optional(&self.pool).await?.is_none() {
            return Ok(());
        }
        loop {
            let mut change = self.change().await?;
            let removed = query(AssertSqlSafe(sql)).bind(before).bind(i64::from(REMOVED));
            let removed = removed.execute(&mut *change).await?.rows_affected();
            self.keep(change).await?;
            if removed < u64::from(REMOVED) {
                return Ok(());
            }
            sleep(PAUSE).await;
        }
    }

    /// Puts rows of minutes or hours that began in a range of Unix seconds into `sum`, in their order, beside the threads
    /// that answer. A row that a newer build wrote is left out.
    pub(crate) async fn fold_figures<T: Send + 'static>(
        &self,
        step: i64,
        range: Range<i64>,
        mut sum: T,
        add: impl Fn(&mut T, FigureRow) + Send + Sync + 'static,
    ) -> sqlx::Result<T> {
        let add = Arc::new(add);
        let mut last = (range.start, String::new());
        loop {
            let rows = self.figure_rows(step, &range, &last).await?;
            let is_last = rows.len() < usize::from(PAGE);
            if let Some((at, node, _)) = rows.last() {
                last = (*at, node.clone());
            }
            let add = Arc::clone(&add);
            let fold = move || {
                for (at, node, data) in rows {
                    if let Some(span) = Span::unpack(&data) {
                        add(&mut sum, FigureRow { at, node, span });
                    }
                }
                sum
            };
            sum = spawn_blocking(fold).await.map_err(|_| sqlx::Error::WorkerCrashed)?;
            if is_last {
                return Ok(sum);
            }
        }
    }

    /// The rows after the one that began at an instant, of a node. Their order is that of the index.
    async fn figure_rows(
        &self,
        step: i64,
        range: &Range<i64>,
        (at, node): &(i64, String),
    ) -> sqlx::Result<Vec<(i64, String, Vec<u8>)>> {
        query_as(
            "SELECT at, node, data FROM figures WHERE step = $1 AND (at, node) > ($2, $3) AND at < $4
             ORDER BY at, node LIMIT $5",
        )
        .bind(step)
        .bind(*at)
        .bind(node)
        .bind(range.end)
        .bind(i64::from(PAGE))
        .fetch_all(&self.pool)
        .await
    }

    /// Is there an hour in which something was decided?
    pub(crate) async fn has_figures(&self) -> sqlx::Result<bool> {
        // An hour of nothing is packed like any other.
        let found: Option<(i64,)> = query_as("SELECT at FROM figures WHERE step = $1 AND data <> $2 LIMIT 1")
            .bind(HOUR)
            .bind(Span::<u64>::default().pack())
            .fetch_optional(&self.pool)
            .await?;
        Ok(found.is_some())
    }

    /// When the oldest row of hours began, Unix seconds.
    pub(crate) async fn figures_since(&self) -> sqlx::Result<Option<i64>> {
        let found: Option<(i64,)> = query_as("SELECT at FROM figures WHERE step = $1 ORDER BY at LIMIT 1")
            .bind(HOUR)
            .fetch_optional(&self.pool)
            .await?;
        Ok(found.map(|(at,)| at))
    }

    /// Full names of limits, tiers and rules by the numbers under which rows have them.
    pub(crate) async fn figure_names(&self) -> sqlx::Result<HashMap<u64, String>> {
        let rows: Vec<(i64, String)> = query_as("SELECT number, name FROM figure_limits").fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(|(number, name)| (number.unsigned_abs(), name)).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::{
        domain::metric_types::{DecisionTotals, LimitTotals},
        publish::stored_policy::write_first,
        store::data_directory::DataFolder,
    };

    /// A minute in which a hundred limits decided, none as any other.
    fn minute(number: i64) -> Minute {
        let mut span = Span::default();
        let mut random = number.unsigned_abs().wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        for limit in 0..100 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let part =
                LimitTotals { allowed: random % 100_000, denied: random % 4_000, shadow_denied: random % 3 * 50 };
            span.whole.add(&DecisionTotals { allowed: part.allowed, denied: part.denied, ..DecisionTotals::default() });
            let tier = format!("default/tier:tier-{}", limit / 4);
            span.limits.parts.insert(format!("{tier}/limit-{}", limit % 4), part);
            span.owners.parts.entry(tier).or_default().add(part);
        }
        for place in 0..40_u64 {
            span.whole.latency.count(60 + place * place * 20);
        }
        Minute { at: 1_800_000_000 + number * MINUTE, span }
    }

    /// Says what docs/figures.md states of it.
    #[tokio::test]
    #[ignore = "measures; for half a minute"]
    #[expect(clippy::disallowed_methods, clippy::print_stderr, reason = "it measures")]
    async fn measure_a_week_of_a_hundred_limits() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut data = DataFolder::take(folder.path()).expect("it is free");
        let store = Store::create(&mut data, write_first).await.expect("it is made");
        let size = || std::fs::metadata(data.database()).expect("it is there").len();
        let home = async || sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&store.pool).await.expect("done");
        home().await;
        let (empty, mut numbers, mut took) = (size(), Numbers::new(), Vec::new());
        let minutes = MINUTES_STAY / MINUTE;
        for number in 0..minutes {
            let began = Instant::now();
            store.add_figures("node-1", &minute(number), &mut numbers).await.expect("it is written");
            took.push(began.elapsed());
        }
        home().await;
        took.sort();
        let (bytes, rows) = (size() - empty, minutes + MINUTES_STAY / HOUR);
        eprintln!(
            "{rows} rows: {bytes} bytes, {} a row, {:.1} a limit and row; a minute was written in {:?}, 99 of 100 in {:?}",
            bytes / rows.unsigned_abs(),
            bytes as f64 / rows as f64 / 100.0,
            took[took.len() / 2],
            took[took.len() * 99 / 100],
        );
        let began = Instant::now();
        let count = |(read, allowed): &mut (i64, u64), row: FigureRow| {
            *read += 1;
            *allowed += row.span.whole.allowed;
        };
        let (read, allowed) = store.fold_figures(MINUTE, 0..i64::MAX, (0, 0), count).await.expect("they are read");
        eprintln!("{read} rows were read in {:?}", began.elapsed());
        assert_eq!((read, numbers.len()), (minutes, 125));
        assert_eq!(allowed, (0..minutes).map(|number| minute(number).span.whole.allowed).sum::<u64>());
        // More than a week changes nothing but the hours.
        for number in minutes..minutes + 600 {
            let minute = minute(number);
            store.add_figures("node-1", &minute, &mut numbers).await.expect("it is written");
            store.remove_old_figures(minute.at).await.expect("they are removed");
        }
        home().await;
        eprintln!("ten hours later: {} bytes more", size() - empty - bytes);
        assert!(size() - empty < 16 << 20);
    }
    /// How long somebody else who writes waits at most: while a thousand names are new, and while a week goes at once.
    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "measures"]
    #[expect(clippy::disallowed_methods, clippy::print_stderr, reason = "it measures")]
    async fn measure_how_long_others_wait_for_figures() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut data = DataFolder::take(folder.path()).expect("it is free");
        let store = Store::create(&mut data, write_first).await.expect("it is made");
        let mut numbers = Numbers::new();
        for number in 0..MINUTES_STAY / MINUTE {
            store.add_figures("node-1", &minute(number), &mut numbers).await.expect("it is written");
        }
        let part = LimitTotals { allowed: 1, ..LimitTotals::default() };
        let mut many = Minute { at: 1_800_000_000 + 60 * DAY, span: Span::default() };
        many.span.limits.parts = (0..1_000).map(|limit| (format!("default/tier:t{limit}/minute"), part)).collect();
        let others = {
            let store = store.clone();
            tokio::spawn(async move {
                let mut took = Vec::new();
                for number in 0..1_000 {
                    let began = Instant::now();
                    store.try_writing("other", number).await.expect("it is written");
                    took.push(began.elapsed());
                    sleep(Duration::from_millis(1)).await;
                }
                took.sort();
                (took[took.len() / 2], took[took.len() * 99 / 100], took[took.len() - 1])
            })
        };
        let began = Instant::now();
        store.add_figures("node-1", &many, &mut numbers).await.expect("it is written");
        let named = began.elapsed();
        store.remove_old_figures(many.at).await.expect("they are removed");
        let (median, most, longest) = others.await.expect("they end");
        eprintln!("a thousand names took {named:?}, with a week's removal {:?}", began.elapsed());
        eprintln!("somebody else wrote in {median:?}, 99 of 100 in {most:?}, at most in {longest:?}");
    }
}
