//! The document as a page for people: no script, nothing from elsewhere, and the colours of the dashboard.

use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

/// Of the page; the first half is the dashboard's.
pub(crate) const STYLE: &str = concat!(include_str!("../../../web/app/tokens.css"), include_str!("page.css"));

pub(super) fn page(document: &Value) -> String {
    let markup: Markup = html! { (DOCTYPE) title { (document["info"]["title"].as_str().unwrap_or_default()) } };
    markup.into_string()
}
