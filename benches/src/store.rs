//! A real Redis server to measure against, and engines that share limits through it.

use std::{
    process::{Command, Stdio},
    sync::Arc,
};

use serde_json::json;
use tidegate::{Engine, Snapshot};

use crate::servers::{Outcome, Server, free_port};

/// Starts it, perhaps on one processor; answers where it is.
///
/// # Errors
///
/// There is no `redis-server`, or it does not start.
pub fn redis(processor: Option<u32>) -> Outcome<(Server, String)> {
    let port = free_port()?;
    let mut command = match processor {
        None => Command::new("redis-server"),
        Some(processor) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &processor.to_string(), "redis-server"]);
            command
        }
    };
    // Ports of other addresses of this machine may be taken by callers that have ended.
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()]);
    command.stderr(Stdio::null());
    Ok((Server::start("redis-server", command, port)?, format!("redis://127.0.0.1:{port}")))
}

/// An engine with one token bucket for users, of this limit a second.
///
/// # Errors
///
/// The limit does not fit.
pub fn engine(limit: u64, sharing: &str) -> Outcome<Arc<Engine>> {
    let limit = json!({ "id": "l", "algorithm": "token_bucket", "limit": limit, "period": "1s", "sharing": sharing });
    let policy = json!({ "domains": { "default": {
        "defaults": { "user": "t" }, "tiers": [{ "id": "t", "limits": [limit] }],
    } } });
    let engine = Arc::new(Engine::new());
    engine.publish(Snapshot::compile(&serde_json::from_value(policy)?)?)?;
    Ok(engine)
}

/// Scripts that the store has run: what they call inside is theirs.
///
/// # Errors
///
/// It does not answer.
pub fn scripts(connection: &mut redis::Connection) -> Outcome<u64> {
    let told: String = redis::cmd("INFO").arg("commandstats").query(connection)?;
    let calls = told.lines().filter(|line| line.starts_with("cmdstat_eval"));
    Ok(calls.filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok()).sum())
}
