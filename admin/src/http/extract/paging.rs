//! Lists: which part of one is asked for, and how it is answered. The same for every list.

use jiff::{Timestamp, tz::TimeZone};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    domain::{
        error::{Problem, stands_here},
        text::has_text,
    },
    store::database::pattern,
};

/// Items on a page unless told otherwise, and at most.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 500;

/// The page that is asked for.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Page {
    /// How many items fit on a page.
    #[serde(default)]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    limit: Limit,
    /// The `next` of the page before.
    cursor: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "usize")]
#[schemars(inline)]
struct Limit(usize);

impl Default for Limit {
    fn default() -> Self {
        Self(LIMIT)
    }
}

impl TryFrom<usize> for Limit {
    type Error = String;

    fn try_from(limit: usize) -> Result<Self, String> {
        let fits = (1..=LIMIT_MAX).contains(&limit);
        fits.then_some(Self(limit))
            .ok_or_else(|| stands_here(&limit.to_string(), &format!("a whole number from 1 to {LIMIT_MAX}")))
    }
}

/// Which items, and in which order.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Find {
    /// Only those with this text in their name.
    q: Option<String>,
    /// By name, or `-name`: the other way round. With it, a cursor holds whatever is added or removed meanwhile.
    pub(crate) sort: Option<Sort>,
}

/// Which items of a list that has its own order, the newest first.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Search {
    /// Only those with this text in what is said of them; A to Z and a to z are the same.
    #[serde(default)]
    q: String,
}

impl Search {
    /// Has one of these texts what is looked for?
    pub(crate) fn matches(&self, texts: &[&str]) -> bool {
        texts.iter().any(|text| has_text(text, &self.q))
    }

    /// The same for a database: what its `LIKE` is given.
    pub(crate) fn pattern(&self) -> Result<String, Problem> {
        if self.q.contains('\0') {
            // Not every database can be asked for it.
            return Err(Problem::parameter("q", "no text has a NUL character"));
        }
        Ok(pattern(&self.q))
    }
}

/// Of which time.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Times {
    /// Only what is of this second and later; RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    from: Option<String>,
    /// Only what is of before this second; RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    to: Option<String>,
}

impl Times {
    /// Both as the database has instants, without what is below the second, nor `Z`; empty: not given.
    pub(crate) fn seconds(&self) -> Result<(String, String), Problem> {
        let second = |name: &str, text: &Option<String>| {
            let Some(text) = text else { return Ok(String::new()) };
            let at: Timestamp =
                text.parse().map_err(|error: jiff::Error| Problem::parameter(name, error.to_string()))?;
            Ok::<_, Problem>(at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S").to_string())
        };
        Ok((second("from", &self.from)?, second("to", &self.to)?))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) enum Sort {
    #[serde(rename = "name")]
    Name,
    #[serde(rename = "-name")]
    NameBackwards,
}

impl Find {
    /// Has this name the text that is looked for?
    pub(crate) fn matches(&self, name: &str) -> bool {
        self.q.as_ref().is_none_or(|q| name.contains(q))
    }
}

/// A page of a list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ListOf{T}")]
pub(crate) struct List<T, About = Nothing> {
    #[serde(flatten)]
    pub(crate) about: About,
    pub(crate) items: Vec<T>,
    /// The cursor of the page that follows; `null` after the last one.
    pub(crate) next: Option<String>,
}

/// There is nothing to say of the list as a whole.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Nothing {}

impl Page {
    pub(crate) fn limit(&self) -> usize {
        self.limit.0
    }

    /// The cursor, if there is one; refused if it is none of ours.
    pub(crate) fn after<C>(&self, read: impl FnOnce(&str) -> Option<C>) -> Result<Option<C>, Problem> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        read(cursor).map(Some).ok_or_else(|| not_ours(cursor))
    }

    /// The page of a list that was read with one item more than fit.
    pub(crate) fn cut<T>(&self, mut items: Vec<T>, cursor: impl Fn(&T) -> String) -> List<T> {
        let is_last = items.len() <= self.limit();
        items.truncate(self.limit());
        let next = items.last().filter(|_| !is_last).map(cursor);
        List { about: Nothing {}, items, next }
    }

    /// The page of a list that has an order of its own. A cursor is the `name` of an item; no two are equal.
    pub(crate) fn along<T>(&self, items: Vec<T>, name: impl Fn(&T) -> &str) -> Result<List<T>, Problem> {
        let place = self.after(|cursor| items.iter().position(|item| name(item) == cursor))?;
        let items = items.into_iter().skip(place.map_or(0, |place| place + 1)).take(self.limit() + 1).collect();
        Ok(self.cut(items, |item| name(item).to_owned()))
    }

    /// The page of a list that is short enough to be sorted for each. `name` is what an item is found by; no two are equal.
    pub(crate) fn of<T, About>(
        &self,
        mut items: Vec<T>,
        find: &Find,
        name: impl Fn(&T) -> &str,
        about: impl FnOnce(usize) -> About,
    ) -> Result<List<T, About>, Problem> {
        items.retain(|item| find.matches(name(item)));
        match find.sort {
            Some(Sort::Name) => items.sort_by(|one, other| name(one).cmp(name(other))),
            Some(Sort::NameBackwards) => items.sort_by(|one, other| name(other).cmp(name(one))),
            None => {}
        }
        let about = about(items.len());
        let begins = match (&self.cursor, find.sort) {
            (None, _) => 0,
            (Some(cursor), Some(Sort::Name)) => items.partition_point(|item| name(item) <= cursor.as_str()),
            (Some(cursor), Some(Sort::NameBackwards)) => items.partition_point(|item| name(item) >= cursor.as_str()),
            // Without a sort the place of what is gone is gone too.
            (Some(cursor), None) => {
                1 + items.iter().position(|item| name(item) == cursor).ok_or_else(|| not_ours(cursor))?
            }
        };
        let is_last = items.len() - begins <= self.limit();
        let items: Vec<T> = items.into_iter().skip(begins).take(self.limit()).collect();
        let next = items.last().filter(|_| !is_last).map(|last| name(last).to_owned());
        Ok(List { about, items, next })
    }
}

impl<T, About> List<T, About> {
    /// With other items in the places of these; those that are none fall out.
    pub(crate) fn filter_map<U>(self, with: impl FnMut(T) -> Option<U>) -> List<U, About> {
        let Self { about, items, next } = self;
        List { about, items: items.into_iter().filter_map(with).collect(), next }
    }

    pub(crate) fn map<U>(self, mut with: impl FnMut(T) -> U) -> List<U, About> {
        self.filter_map(|item| Some(with(item)))
    }
}

fn not_ours(cursor: &str) -> Problem {
    Problem::parameter("cursor", format!("`{cursor}` is not the `next` of a page of this list; begin without a cursor"))
}
