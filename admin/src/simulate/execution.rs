//! One question is answered: its traffic, request by request, decided by both policies.

use std::{
    fs::File,
    io::{self, Read, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use crossbeam_utils::atomic::AtomicCell;
use tidegate_replay::{
    Utc,
    compare::{Comparison, ComparisonResult},
    traffic::{LogTraffic, RecordedTraffic, SyntheticTraffic, Traffic},
};
use tokio::time::Instant;

use crate::{
    domain::privacy::Privacy,
    simulate::{
        about_traffic::About,
        question::{Prepare, Prepared},
        uploads::PLAIN_BYTES_MAX,
    },
};

/// Between two words about progress.
const TELL: Duration = Duration::from_millis(250);
/// Steps between two looks at the clock, and at whether to stop: well below a millisecond.
const STEPS: usize = 256;

/// True: somebody wants a run to stop.
pub(super) type Stop = Arc<AtomicCell<bool>>;

/// How a run ends that is not done.
#[derive(Debug)]
pub(super) enum Ended {
    Stopped,
    Failed(String),
}

/// Says of an identity, by kind and value, whether a policy names it.
type IsNamed = dyn Fn(&str, &str) -> bool;

/// How far a run is: requests, and the time on its own clock.
pub(super) type Progress = (u64, Option<Utc>);

/// Does what may break off inside, and goes on whatever happens.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, Ended>) -> Result<T, Ended> {
    // Nobody else sees what it leaves half done.
    let failed = |_| Err(Ended::Failed("the run broke off by a fault of the server; its log says where".to_owned()));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(failed)
}

/// Answers a question, and tells from time to time how far it is.
pub(super) fn answer(
    prepared: Prepared,
    privacy: Privacy,
    stop: &Stop,
    mut tell: impl FnMut(Progress),
) -> Result<(ComparisonResult, About), Ended> {
    let Prepared { policies, traffic, room, mut about, .. } = prepared;
    let mut compare = Comparison::new(policies, room).map_err(|error| Ended::Failed(error.to_string()))?;
    let broken = |error: io::Error| {
        if stop.load() { Ended::Stopped } else { Ended::Failed(format!("the log cannot be read to its end: {error}")) }
    };
    let mut is_named: Box<IsNamed> = Box::new(|_, _| false);
    let mut source = match traffic {
        Prepare::Made { made, seed, start } => Source::Made(made.traffic(start, seed)),
        Prepare::Log { file, reading, domain, .. } => {
            compare = compare.counting_addresses(reading.clients.ipv6_prefix);
            let file = Stoppable::new(file, stop);
            Source::Log(Box::new(LogTraffic::new(file, &reading, &domain, PLAIN_BYTES_MAX).map_err(broken)?))
        }
        Prepare::Recorded { records, sample, hidden } => {
            if let Some(sample) = sample {
                compare = compare.of_sample(Box::new(move |kind, value| sample.has(kind, value)));
            }
            if let Some(named) = hidden {
                compare = compare.hiding();
                is_named = Box::new(move |kind, value| named.has(kind, value));
            }
            Source::Recorded(RecordedTraffic::new(records))
        }
    };
    let (mut at, mut told, mut go) = (None, Instant::now(), true);
    while go {
        for _ in 0..STEPS {
            let outcome = source.traffic().step(&mut |now, request| {
                at = Some(Utc(now));
                compare.decide(now, request)
            });
            go = outcome.map_err(broken)?;
            if !go {
                break;
            }
        }
        if stop.load() {
            return Err(Ended::Stopped);
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            tell((compare.requests(), at));
        }
    }
    tell((compare.requests(), at));
    // Somebody's own rows and files are told as they are.
    let is_others = matches!(source, Source::Recorded(_));
    let show = move |kind: &str, value: &str, number| match () {
        () if !is_others => format!("{kind}:{value}"),
        () if is_named(kind, value) => Privacy::number(kind, number),
        () => privacy.key(kind, value, number),
    };
    source.tell(&mut about);
    Ok((compare.finish(show), about))
}

/// Where requests come from.
enum Source {
    Made(SyntheticTraffic),
    Log(Box<LogTraffic<'static>>),
    Recorded(RecordedTraffic),
}

impl Source {
    fn traffic(&mut self) -> &mut dyn Traffic {
        match self {
            Self::Made(made) => made,
            Self::Log(log) => &mut **log,
            Self::Recorded(recorded) => recorded,
        }
    }

    /// Says at the end what is to be said of it.
    fn tell(&self, about: &mut About) {
        match self {
            Self::Made(made) => about.cut = Some(made.is_cut()),
            Self::Log(log) => about.late = Some(log.late()),
            Self::Recorded(_) => {}
        }
    }
}

/// Reads and writes until somebody wants it to stop; then it breaks off, however long a line or an answer is.
pub(super) struct Stoppable<T> {
    inner: T,
    stop: Stop,
}

impl<T> Stoppable<T> {
    pub(super) fn new(inner: T, stop: &Stop) -> Self {
        Self { inner, stop: Arc::clone(stop) }
    }

    pub(super) fn into_inner(self) -> T {
        self.inner
    }

    fn go_on(&self) -> io::Result<()> {
        // Not "interrupted": that would be tried again.
        if self.stop.load() { Err(io::Error::other("it was stopped")) } else { Ok(()) }
    }
}

impl Read for Stoppable<File> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.go_on()?;
        // Packed, so little may be a thousand times as much.
        let most = buffer.len().min(8 << 10);
        self.inner.read(&mut buffer[..most])
    }
}

impl<W: Write> Write for Stoppable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.go_on()?;
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use flate2::{Compression, write::GzEncoder};
    use tidegate::Retry;
    use tidegate_replay::LogOptions;

    use super::*;

    /// A line without an end is read for a long time; a stop is seen in the middle of it.
    #[test]
    fn a_stop_is_seen_within_a_line() {
        let mut gzip = GzEncoder::new(tempfile::tempfile().expect("a file"), Compression::fast());
        io::copy(&mut io::repeat(0).take(64 << 20), &mut gzip).expect("disk");
        let mut file = gzip.finish().expect("disk");
        file.rewind().expect("disk");
        let stop = Stop::default();
        let log = Stoppable::new(file, &stop);
        let mut traffic = LogTraffic::new(log, &LogOptions::default(), "web", u64::MAX).expect("gzip");
        stop.store(true);
        let end = (0..3).find_map(|_| traffic.step(&mut |_, _| Retry::Now).err());
        assert_eq!(end.expect("it breaks off").to_string(), "it was stopped");
        assert!(Stoppable::new(Vec::new(), &stop).write(b"x").is_err());
    }

    #[test]
    fn what_breaks_off_inside_is_a_failure() {
        let broken = caught::<()>(|| panic!("a fault of a test"));
        assert!(matches!(broken, Err(Ended::Failed(why)) if why.contains("fault")));
        assert_eq!(caught(|| Ok(7)).ok(), Some(7));
    }
}
