//! Helpers of serde for the fields of a policy document: whole numbers, tables without repeated keys, defaults.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor},
};

use crate::algorithm::NUMBER_MAX;

pub(super) fn one() -> u64 {
    1
}

pub(super) fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
pub(super) fn is_true(flag: &bool) -> bool {
    *flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
pub(super) fn is_one(number: &u64) -> bool {
    *number == 1
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A whole number, with the same error message in every format.
struct Whole(u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeVisitor;

        impl Visitor<'_> for WholeVisitor {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from 0 to {NUMBER_MAX}")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Whole, E> {
                self.visit_i128(number.into())
            }

            fn visit_i128<E: de::Error>(self, number: i128) -> Result<Whole, E> {
                let whole = u64::try_from(number).map(Whole);
                whole.map_err(|_| {
                    E::custom(format!("{number} is out of range; expected a whole number from 0 to {NUMBER_MAX}"))
                })
            }

            fn visit_u128<E: de::Error>(self, number: u128) -> Result<Whole, E> {
                self.visit_i128(i128::try_from(number).unwrap_or(i128::MAX))
            }
        }

        deserializer.deserialize_any(WholeVisitor)
    }
}

pub(super) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Whole::deserialize(deserializer).map(|Whole(number)| number)
}

pub(super) fn some_whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Whole>::deserialize(deserializer)?.map(|Whole(number)| number))
}

/// Reads a map in which a repeated key is an error rather than a silent replacement.
pub(super) fn each_key_once<'de, D, T>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct EachKeyOnce<T>(std::marker::PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for EachKeyOnce<T> {
        type Value = BTreeMap<String, T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some(key) = entries.next_key::<String>()? {
                if map.contains_key(&key) {
                    return Err(de::Error::custom(format!("`{key}` stands here twice")));
                }
                map.insert(key, entries.next_value()?);
            }
            Ok(map)
        }
    }

    deserializer.deserialize_map(EachKeyOnce(std::marker::PhantomData))
}
