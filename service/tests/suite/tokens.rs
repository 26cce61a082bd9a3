//! A token that a server asks for, and values that resemble it.

use std::fs;

use tempfile::TempDir;
use tidegate_service::{ListenerSettings, Tokens};

pub(crate) const TOKEN: &str = "morning-star-0001";

/// Values that a server must not take for [`TOKEN`].
pub(crate) const FALSE_TOKENS: [&str; 9] = [
    "evening-star-0002",
    "morning-star-000",
    "morning-star-00011",
    "MORNING-STAR-0001",
    "Bearer morning-star-0001",
    "\"morning-star-0001\"",
    "tg_morning-star-0001",
    // Its SHA-256, which the server stores.
    "6bc3e6daf3cb84637ef7d1fb2e6cb12ce545413aed6812d86401d1a8b3b140cc",
    // A line of the file that is no token.
    "# of the gateway",
];

/// Returns the settings of a server that asks for [`TOKEN`].
pub(crate) fn settings_with_token() -> ListenerSettings {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tokens");
    fs::write(&file, format!("# of the gateway\n{TOKEN}\n")).expect("room for a file");
    // The file is removed, and its tokens stay valid.
    ListenerSettings { tokens: Some(Tokens::open(file).expect("they are good")), ..ListenerSettings::default() }
}
