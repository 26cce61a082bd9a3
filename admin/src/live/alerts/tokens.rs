//! Tokens that are about to end.

use jiff::{SignedDuration, Timestamp};

use crate::{base::secrets::instant, live::alerts::Alert, store::tokens::Token};

/// A token that ends within this time, or within the last quarter of its life, is about to end.
const TOKEN_ENDS_S: i64 = 14 * 24 * 60 * 60;

/// A token that is about to end. One that was replaced ends as it should.
pub(super) fn ending(token: &Token, now: Timestamp) -> Option<Alert> {
    let Token { name, made_at, ends_at, replaced_at, .. } = token;
    if *ends_at == 0 || *replaced_at != 0 {
        return None;
    }
    let since = ends_at - TOKEN_ENDS_S.min((ends_at - made_at) / 4);
    if now.as_second() < since || now.as_second() >= *ends_at {
        return None;
    }
    let left = SignedDuration::from_secs(ends_at - now.as_second());
    let left = match left.as_hours() {
        0 => "within the hour".to_owned(),
        1 => "in an hour".to_owned(),
        hours @ ..48 => format!("in {hours} hours"),
        hours => format!("in {} days", hours / 24),
    };
    let message = format!("Token {name} ends {left}: replace it, or what uses it is refused then");
    Some(Alert { token: Some(name.clone()), ..Alert::here("token_ends", instant(since), message) })
}
