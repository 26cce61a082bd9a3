//! Figures of minutes and hours: a row for each, and for each node.

use std::collections::HashMap;

use futures_util::TryStreamExt;
use sqlx::{query, query_as};

use super::Store;
use crate::figures::{HOUR, MINUTE, Minute, Numbers, Span};

/// Seconds that rows of minutes stay: seven days.
pub(crate) const MINUTES_STAY: i64 = 7 * DAY;
/// Those of hours.
pub(crate) const HOURS_STAY: i64 = 90 * DAY;
const DAY: i64 = 24 * HOUR;

impl Store {
    /// Adds a minute of a node to its row and to its hour's, and removes what is old.
    pub(crate) async fn add_figures(&self, node: &str, minute: &Minute, numbers: &mut Numbers) -> sqlx::Result<()> {
        let hour = minute.at - minute.at.rem_euclid(HOUR);
        let mut change = self.change().await?;
        // Only what was committed is known.
        let mut told = Vec::new();
        for name in minute.span.parts.keys() {
            if numbers.get(name).is_some_and(|&(_, until)| until >= hour) {
                continue;
            }
            let (number,): (i64,) = query_as(
                "INSERT INTO figure_limits (name, used_at) VALUES ($1, $2)
                 ON CONFLICT (name) DO UPDATE SET used_at = excluded.used_at RETURNING number",
            )
            .bind(name)
            .bind(hour)
            .fetch_one(&mut *change)
            .await?;
            told.push((name.clone(), (number.unsigned_abs(), hour)));
        }
        let new: HashMap<&str, u64> = told.iter().map(|(name, (number, _))| (name.as_str(), *number)).collect();
        let number =
            |name: String| new.get(name.as_str()).copied().or_else(|| numbers.get(&name).map(|&(number, _)| number));
        let span = minute.span.clone().by(number);
        for (step, at, stays) in [(MINUTE, minute.at, MINUTES_STAY), (HOUR, hour, HOURS_STAY)] {
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
            query("DELETE FROM figures WHERE step = $1 AND at < $2")
                .bind(step)
                .bind(minute.at - stays)
                .execute(&mut *change)
                .await?;
        }
        if !told.is_empty() {
            // A day longer than any row that has its number.
            query("DELETE FROM figure_limits WHERE used_at < $1")
                .bind(minute.at - HOURS_STAY - DAY)
                .execute(&mut *change)
                .await?;
        }
        self.keep(change).await?;
        numbers.extend(told);
        Ok(())
    }

    /// Rows of minutes or hours that began in a range of Unix seconds, in order: each with when that was, and its node. One
    /// that a newer build wrote is left out.
    pub(crate) async fn figures(
        &self,
        step: i64,
        from: i64,
        to: i64,
        mut each: impl FnMut(i64, String, Span<u64>),
    ) -> sqlx::Result<()> {
        let mut rows = query_as::<_, (i64, String, Vec<u8>)>(
            "SELECT at, node, data FROM figures WHERE step = $1 AND at >= $2 AND at < $3 ORDER BY at, node",
        )
        .bind(step)
        .bind(from)
        .bind(to)
        .fetch(&self.pool);
        while let Some((at, node, data)) = rows.try_next().await? {
            if let Some(span) = Span::unpack(&data) {
                each(at, node, span);
            }
        }
        Ok(())
    }

    /// When the oldest row of hours began, Unix seconds.
    pub(crate) async fn figures_since(&self) -> sqlx::Result<Option<i64>> {
        let found: Option<(i64,)> = query_as("SELECT at FROM figures WHERE step = $1 ORDER BY at LIMIT 1")
            .bind(HOUR)
            .fetch_optional(&self.pool)
            .await?;
        Ok(found.map(|(at,)| at))
    }

    /// Full names of limits by the numbers under which rows have them.
    pub(crate) async fn figure_limits(&self) -> sqlx::Result<HashMap<u64, String>> {
        let rows: Vec<(i64, String)> = query_as("SELECT number, name FROM figure_limits").fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(|(number, name)| (number.unsigned_abs(), name)).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::{
        figures::{Part, Whole},
        folder::DataFolder,
        published::write_first,
    };

    /// A minute in which a hundred limits decided, none as any other.
    fn minute(number: i64) -> Minute {
        let mut span = Span::default();
        let mut random = number.unsigned_abs().wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        for limit in 0..100 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let part = Part { allowed: random % 100_000, denied: random % 4_000, shadow_denied: random % 3 * 50 };
            span.whole.add(&Whole { allowed: part.allowed, denied: part.denied, ..Whole::default() });
            span.parts.insert(format!("default/tier:tier-{}/limit-{}", limit / 4, limit % 4), part);
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
    async fn a_week_of_a_hundred_limits_takes_so_much() {
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
        let (mut read, mut allowed) = (0, 0);
        let count = |_, _, span: Span<u64>| {
            read += 1;
            allowed += span.whole.allowed;
        };
        store.figures(MINUTE, 0, i64::MAX, count).await.expect("they are read");
        eprintln!("{read} rows were read in {:?}", began.elapsed());
        assert_eq!((read, numbers.len()), (minutes, 100));
        assert_eq!(allowed, (0..minutes).map(|number| minute(number).span.whole.allowed).sum::<u64>());
        // More than a week changes nothing but the hours.
        for number in minutes..minutes + 600 {
            store.add_figures("node-1", &minute(number), &mut numbers).await.expect("it is written");
        }
        home().await;
        eprintln!("ten hours later: {} bytes more", size() - empty - bytes);
        assert!(size() - empty < 16 << 20);
    }
}
