//! A real Redis server to measure against, and engines that share limits through it.

use std::{
    process::{Command, Stdio},
    sync::Arc,
};

use serde_json::json;
use tidegate::{Engine, Snapshot, clock::SystemClock};
use tidegate_fleet::store::{SharedEngine, StoreAddress, StoreSettings};

use crate::{
    BenchResult,
    servers::{ServerProcess, free_port},
};

/// Starts Redis, pinned to `processor` if given, and returns it with its URL.
/// It fails if `redis-server` is not installed, or does not start.
pub fn start_redis(processor: Option<u32>) -> BenchResult<(ServerProcess, String)> {
    let port = free_port()?;
    let mut command = match processor {
        None => Command::new("redis-server"),
        Some(processor) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &processor.to_string(), "redis-server"]);
            command
        }
    };
    // Bound to one address, because the port may still be in use at other addresses of this machine by closed connections.
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()]);
    command.stderr(Stdio::null());
    Ok((ServerProcess::start("redis-server", command, port)?, format!("redis://127.0.0.1:{port}")))
}

/// Returns an engine with one token bucket for users: `limit` tokens a second, shared as `sharing` says.
fn engine(limit: u64, sharing: &str) -> BenchResult<Arc<Engine>> {
    let limit = json!({ "id": "l", "algorithm": "token_bucket", "limit": limit, "period": "1s", "sharing": sharing });
    let policy = json!({ "domains": { "default": {
        "defaults": { "user": "t" }, "tiers": [{ "id": "t", "limits": [limit] }],
    } } });
    let engine = Arc::new(Engine::new());
    engine.publish(Snapshot::compile(&serde_json::from_value(policy)?)?)?;
    Ok(engine)
}

/// Connects a node to the store at `url`. Its engine has one token bucket for users: `limit` tokens a second, shared as
/// `sharing` says.
/// It fails if the limit is out of range, or the store does not answer.
pub async fn connect_node(
    limit: u64,
    sharing: &str,
    url: &str,
    settings: StoreSettings,
) -> BenchResult<Arc<SharedEngine<SystemClock>>> {
    Ok(Arc::new(SharedEngine::new(engine(limit, sharing)?, &StoreAddress::new(&[url]), settings).await?))
}

/// Returns the number of scripts that the store has run. Commands inside a script are not counted.
/// It fails if the store does not answer.
pub fn script_calls(connection: &mut redis::Connection) -> BenchResult<u64> {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(connection)?;
    let calls = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
    Ok(calls.filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok()).sum())
}
