//! A hash map by exact text. Short keys are in their entries, long keys one after the other in one buffer.

use std::{fmt, hash::BuildHasher, hint::black_box, mem, ops::Range};

use arrayvec::ArrayString;
use hashbrown::{HashTable, hash_table::Entry};
use rapidhash::fast::RandomState as RapidState;

/// A hash map from texts to `T`. Long keys share one buffer: a hundred thousand allocations would take as long as all the rest of
/// a snapshot.
#[derive(Clone)]
pub(super) struct ExactMap<T> {
    /// The long keys.
    texts: String,
    table: HashTable<(Key, T)>,
    hasher: RapidState,
}

/// The most bytes of a key that is stored in its entry.
const SHORT_MAX: usize = 16;

/// A key: the text itself if it is short, which saves a cache miss, or its range in the buffer of the map.
#[derive(Clone)]
enum Key {
    Short(ArrayString<SHORT_MAX>),
    Long(Range<usize>),
}

impl Key {
    /// Returns the key for a text, which is appended to `texts` if it is long.
    fn new(value: &str, texts: &mut String) -> Self {
        ArrayString::from(value).map_or_else(
            |_| {
                let start = texts.len();
                texts.push_str(value);
                Self::Long(start..texts.len())
            },
            Self::Short,
        )
    }

    #[inline(always)]
    fn of<'t>(&'t self, texts: &'t str) -> &'t str {
        match self {
            Self::Short(value) => value,
            Self::Long(place) => &texts[place.clone()],
        }
    }
}

impl<T> Default for ExactMap<T> {
    fn default() -> Self {
        Self::with_room_for(0)
    }
}

impl<T> ExactMap<T> {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn with_room_for(values: usize) -> Self {
        Self { texts: String::new(), table: HashTable::with_capacity(values), hasher: RapidState::default() }
    }

    pub(super) fn set(&mut self, value: &str, client: T) -> Option<T> {
        match self.entry_of(value) {
            (Entry::Occupied(known), _) => Some(mem::replace(&mut known.into_mut().1, client)),
            (Entry::Vacant(free), texts) => {
                free.insert((Key::new(value, texts), client));
                None
            }
        }
    }

    pub(super) fn entry(&mut self, value: &str) -> &mut T
    where
        T: Default,
    {
        match self.entry_of(value) {
            (Entry::Occupied(known), _) => &mut known.into_mut().1,
            (Entry::Vacant(free), texts) => &mut free.insert((Key::new(value, texts), T::default())).into_mut().1,
        }
    }

    /// Returns the entry of a text, and the buffer to which a new long key is appended.
    fn entry_of(&mut self, value: &str) -> (Entry<'_, (Key, T)>, &mut String) {
        let Self { texts, table, hasher } = self;
        let is_it = |(known, _): &(Key, T)| known.of(texts) == value;
        let hash = |(known, _): &(Key, T)| hasher.hash_one(known.of(texts));
        (table.entry(hasher.hash_one(value), is_it, hash), texts)
    }

    pub(super) fn get(&self, value: &str) -> Option<&T> {
        if self.table.is_empty() {
            return None;
        }
        let found = self.table.find(self.hasher.hash_one(value), |(known, _)| known.of(&self.texts) == value);
        found.map(|(_, client)| client)
    }

    pub(super) fn fetch(&self, value: &str) {
        if !self.table.is_empty() {
            let likely = self.table.find(self.hasher.hash_one(value), |_| true);
            black_box(likely.is_some_and(|(known, _)| matches!(known, Key::Short(_))));
        }
    }

    pub(super) fn each(&self) -> impl Iterator<Item = (&str, &T)> {
        self.table.iter().map(|(known, client)| (known.of(&self.texts), client))
    }
}

impl<T: fmt::Debug> fmt::Debug for ExactMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.each()).finish()
    }
}
