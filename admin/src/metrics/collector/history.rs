//! Figures of a range of time: seconds from memory, minutes and hours from the store. What was not counted is not there: a
//! time at which no node was up has no point.

use std::{collections::HashMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_fleet::owner_of;
use tokio::task::spawn_blocking;

use crate::{
    domain::{
        error::Problem,
        metric_types::{HOUR, MINUTE},
    },
    metrics::{
        collector::Figures,
        ring::{SECONDS, Second},
        series::{By, Gathering, Series},
    },
    store::{database::Store, metrics::FigureRow},
};

/// Steps in a range: all minutes that are kept.
const STEPS_MAX: i64 = 7 * 24 * 60;
/// The longest range, in seconds: all hours that are kept.
const RANGE_MAX: i64 = 90 * 24 * HOUR;
/// The year 5138: later is a mistake.
const TO_MAX_MS: i64 = 100_000_000_000_000;
/// Minutes are kept so long.
const MINUTES_MAX: i64 = 7 * 24 * HOUR;

/// What is asked for.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Asked {
    /// Unix milliseconds; a quarter of an hour before `to` unless given.
    from: Option<i64>,
    /// Unix milliseconds, not included; now unless given.
    to: Option<i64>,
    /// Unless given: seconds for a quarter of an hour, minutes for a day, else hours, as far as they are kept.
    step: Option<Step>,
    /// What the series are told apart by; all together unless given.
    by: Option<By>,
    /// Only this series, by its `id`.
    id: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
enum Step {
    #[serde(rename = "1s")]
    Second,
    #[serde(rename = "1m")]
    Minute,
    #[serde(rename = "1h")]
    Hour,
}

/// Figures of a range.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "FiguresOfRange")]
pub(crate) struct Range {
    /// Unix milliseconds.
    from: i64,
    /// Not included.
    to: i64,
    step: Step,
    by: By,
    /// The most requests first.
    series: Vec<Series>,
    /// Series that did not fit. Ask for one by its `id`.
    left_out: usize,
    /// Limits, or tiers and rules, of one step at most that are in the total alone: of more than a thousand, the busiest are
    /// counted one by one.
    not_counted: u64,
}

impl Step {
    fn seconds(self) -> i64 {
        match self {
            Self::Second => 1,
            Self::Minute => MINUTE,
            Self::Hour => HOUR,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Second => "1s",
            Self::Minute => "1m",
            Self::Hour => "1h",
        }
    }
}

/// A range of whole steps, in Unix seconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    from: i64,
    to: i64,
    step: Step,
}

impl Asked {
    /// Is nothing asked for but how things are?
    pub(crate) fn is_nothing(&self) -> bool {
        let Self { from, to, step, by, id } = self;
        from.is_none() && to.is_none() && step.is_none() && by.is_none() && id.is_none()
    }

    fn times(&self, now_ms: i64) -> Result<Times, Problem> {
        let to_ms = self.to.unwrap_or(now_ms);
        let from_ms = self.from.unwrap_or(to_ms.saturating_sub(SECONDS * 1_000));
        if to_ms > TO_MAX_MS {
            return Err(Problem::parameter("to", "to: Unix milliseconds, not nanoseconds"));
        }
        if from_ms < 0 || from_ms >= to_ms {
            return Err(Problem::parameter("from", "from: Unix milliseconds before `to`"));
        }
        let seconds = up(to_ms - from_ms, 1_000);
        if seconds > RANGE_MAX {
            return Err(Problem::parameter(
                "from",
                "from: figures are kept for 90 days; ask for a range that long at most",
            ));
        }
        let ago = now_ms.saturating_sub(from_ms) / 1_000;
        let step = self.step.unwrap_or(match (seconds, ago) {
            // A second for what came over the wire.
            (..=900, ..=901) => Step::Second,
            (..=86_400, ..=MINUTES_MAX) => Step::Minute,
            _ => Step::Hour,
        });
        let whole = step.seconds();
        let from = from_ms.div_euclid(1_000).div_euclid(whole) * whole;
        let to = up(up(to_ms, 1_000), whole) * whole;
        let steps = (to - from) / whole;
        if steps > STEPS_MAX {
            let longer = if step == Step::Second { "1m or 1h" } else { "1h" };
            return Err(Problem::parameter(
                "step",
                format!(
                    "step: the range has {steps} points at {}; {STEPS_MAX} fit: take {longer}, or a shorter range",
                    step.name()
                ),
            ));
        }
        Ok(Times { from, to, step })
    }
}

fn up(number: i64, by: i64) -> i64 {
    (number + by - 1).div_euclid(by)
}

impl Figures {
    /// Figures of a range. A minute or an hour that is not over is not there yet. What takes long is worked out beside the
    /// threads that answer.
    pub(crate) async fn range(self: &Arc<Self>, store: &Store, asked: &Asked) -> Result<Range, Problem> {
        let now_ms = self.clock.now_ms();
        let Times { from, to, step } = asked.times(now_ms)?;
        let gathering = Gathering::new(asked.by.unwrap_or_default(), asked.id.clone());
        let (gathering, left_out) = if step == Step::Second {
            let (figures, seconds) = (Arc::clone(self), self.now().ring.within(from..to));
            let gather = move || figures.gather(&seconds, gathering);
            spawn_blocking(gather).await.map_err(|error| Problem::Internal(error.to_string()))?
        } else {
            let names = Arc::new(store.figure_names().await?);
            let over = now_ms.div_euclid(1_000) - step.seconds() + 1;
            let range = from..to.min(over);
            // Twice: which series are the busiest is known once all was read, and only theirs are kept.
            let add = add_rows(Arc::clone(&names));
            let mut gathering = store.fold_figures(step.seconds(), range.clone(), gathering, add).await?;
            let left_out = gathering.choose();
            (store.fold_figures(step.seconds(), range, gathering, add_rows(names)).await?, left_out)
        };
        let (by, not_counted) = (gathering.by, gathering.not_counted);
        let series = spawn_blocking(|| gathering.series()).await;
        let series = series.map_err(|error| Problem::Internal(error.to_string()))?;
        Ok(Range { from: from * 1_000, to: to * 1_000, step, by, left_out, not_counted, series })
    }

    /// Puts seconds into series; answers how many do not fit besides.
    fn gather(&self, seconds: &[Arc<Second>], mut gathering: Gathering) -> (Gathering, usize) {
        let name = |limit| self.engine.limit_name(limit);
        let add = |gathering: &mut Gathering| {
            for second in seconds {
                let Second { node, at, whole, limits, owners } = &**second;
                let node = node.as_deref().unwrap_or(&self.node);
                if gathering.by.owner().is_some() {
                    let parts = owners.parts().filter_map(|(limit, part)| Some((owner_of(name(limit))?, part)));
                    gathering.add(*at, node, whole, parts, owners.left_out);
                } else {
                    let parts = limits.parts().map(|(limit, part)| (name(limit), part));
                    gathering.add(*at, node, whole, parts, limits.left_out);
                }
            }
        };
        add(&mut gathering);
        let left_out = gathering.choose();
        add(&mut gathering);
        (gathering, left_out)
    }
}

/// Puts rows of the store into series; `names` are those of its numbers.
fn add_rows(names: Arc<HashMap<u64, String>>) -> impl Fn(&mut Gathering, FigureRow) + Send + Sync + 'static {
    move |gathering, FigureRow { at, node, span }| {
        let parts = if gathering.by.owner().is_some() { &span.owners } else { &span.limits };
        let with_names = parts.parts.iter().filter_map(|(number, part)| Some((names.get(number)?.as_str(), *part)));
        gathering.add(at, &node, &span.whole, with_names, parts.left_out);
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use tidegate::Engine;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{
        base::{event_log::Events, secrets::SECRET_BYTES},
        domain::{
            metric_types::{LimitTotals, Minute, Parts, Span},
            privacy::{Keys, Privacy},
        },
        metrics::clock::FiguresClock,
        publish::stored_policy::write_first,
        store::data_directory::DataFolder,
    };

    const NOW: i64 = 1_800_000_000_000;

    fn times(from_ago_s: i64, to_ago_s: i64, step: Option<Step>) -> Result<(i64, Step), Problem> {
        let ms = |ago: i64| Some(NOW - ago * 1_000);
        let asked = Asked { from: ms(from_ago_s), to: ms(to_ago_s), step, by: None, id: None };
        asked.times(NOW).map(|Times { from, to, step }| ((to - from) / step.seconds(), step))
    }

    #[test]
    fn the_step_fits_the_range() {
        let day = 86_400;
        for (from, to, steps, step) in [
            (900, 0, 900, Step::Second),
            (901, 0, 16, Step::Minute),
            (2_000, 1_500, 9, Step::Minute),
            (day, 0, 1_440, Step::Minute),
            (day + 60, 0, 25, Step::Hour),
            (7 * day, 6 * day, 1_440, Step::Minute),
            (8 * day, 7 * day, 24, Step::Hour),
            (90 * day, 0, 2_160, Step::Hour),
        ] {
            let (got, of) = times(from, to, None).expect("it fits");
            // A range that is not of whole steps has one more.
            assert!(of == step && (steps..=steps + 1).contains(&got), "{from}..{to}: {got} {of:?}");
        }
        assert_eq!(times(7 * day, 0, Some(Step::Minute)).expect("it fits").0, STEPS_MAX);
        for (from, to, step) in [
            (8 * day, 0, Some(Step::Minute)),
            (86_400, 0, Some(Step::Second)),
            (91 * day, 0, None),
            (0, 10, None),
            (0, 0, None),
            (NOW, 0, None),
        ] {
            assert!(times(from, to, step).is_err(), "{from}..{to} {step:?}");
        }
    }
    /// On one thread, a week of minutes is worked out while others are answered.
    #[tokio::test]
    async fn a_long_range_holds_up_nobody() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut data = DataFolder::take(folder.path()).expect("it is free");
        let store = Store::create(&mut data, write_first).await.expect("it is made");
        let (start, mut numbers) = (NOW / 1_000 - 2_000 * MINUTE, HashMap::new());
        for number in 0..2_000 {
            let part = LimitTotals { allowed: 1, ..LimitTotals::default() };
            let limits = Parts::of((0..300).map(|limit| (format!("default/tier:t{limit}/minute"), part)));
            let minute = Minute { at: start + number * MINUTE, span: Span { limits, ..Span::default() } };
            store.add_figures("a", &minute, &mut numbers).await.expect("it is written");
        }
        let clock = FiguresClock::of(|| jiff::Timestamp::from_millisecond(NOW).expect("an instant"));
        let (engine, events) = (Arc::new(Engine::with_max_keys(10)), Arc::new(Events::new("a".to_owned())));
        let privacy = Privacy::new(Keys::Clear, &[7; SECRET_BYTES]);
        let figures = Arc::new(Figures::new(engine, "a".to_owned(), clock, privacy, events, true));
        let asked =
            Asked { from: Some(start * 1_000), to: Some(NOW), step: Some(Step::Minute), by: Some(By::Limit), id: None };
        // Somebody else on this thread comes to his turn again and again: how long does he wait at most?
        let longest = Cell::new(Duration::ZERO);
        let others = async {
            loop {
                let began = Instant::now();
                sleep(Duration::from_millis(1)).await;
                longest.set(longest.get().max(began.elapsed()));
            }
        };
        let began = Instant::now();
        let range = tokio::select! {
            range = figures.range(&store, &asked) => range.expect("figures"),
            never = others => never,
        };
        let took = began.elapsed();
        assert_eq!(range.series.len() + range.left_out, 300);
        assert!(longest.get() < took / 4, "{:?} of {took:?}", longest.get());
    }
}
