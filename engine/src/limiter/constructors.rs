//! Constructors that take a number of tokens per period, for both limiters that have one rate.

/// Gives a limiter the constructors `per_second`, `per_minute` and `per_hour`. `$text` continues their
/// documentation after the period.
macro_rules! constructors_by_rate {
    ($limiter:ident, $text:literal) => {
        constructors_by_rate! { $limiter, $text, per_second "a second", per_minute "a minute", per_hour "an hour" }
    };
    ($limiter:ident, $text:literal, $($name:ident $period:literal),*) => {
        impl $limiter {
            $(
                #[doc = concat!("Returns a limiter that admits `limit` tokens ", $period, $text)]
                #[doc = "A limit of 0 denies everything."]
                #[must_use]
                pub fn $name(limit: u64) -> Self {
                    Self::new(Rate::$name(limit))
                }
            )*
        }
    };
}
