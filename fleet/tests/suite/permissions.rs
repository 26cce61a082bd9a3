//! The documented permissions of a store's user: every sharing mode works with exactly these.

use redis::cmd;
use tidegate_testkit::{cluster::Cluster, redis::Redis, sentinel::Sentinels};

use crate::{
    fault_codes::{SETTINGS, tell},
    nodes::{limit, node, run},
};

/// Returns the words of the documented rules of a user: for a single server, for what a cluster needs besides, and for
/// Sentinels.
fn documented_rules() -> [Vec<String>; 3] {
    let lines = include_str!("../../../docs/store.md").lines();
    let rules = lines
        .filter_map(|line| Some(line.strip_prefix("ACL SETUSER tidegate ")?.split(' ').map(str::to_owned).collect()));
    rules.collect::<Vec<_>>().try_into().expect("three rules")
}

/// Creates the user of a rule.
fn permit(redis: &Redis, rule: &[String]) {
    redis.ask::<()>(cmd("ACL").arg("SETUSER").arg("tidegate").arg(rule)).expect("it is a rule");
}

/// Returns whether each sharing mode decides over these addresses, without a fault.
async fn all_modes_decide(urls: &[String]) -> bool {
    for sharing in ["strict", "leased", "synced"] {
        // The second node finds what the first one wrote.
        for _ in 0..2 {
            let node = node(urls, SETTINGS, &limit(sharing, "fixed_window", 1_000, "300d")).await;
            if node.check("ada").await.degraded.is_some() {
                return false;
            }
            // A view is exchanged, and a lease goes back.
            node.shared.close().await;
            tokio::time::sleep(2 * SETTINGS.watch_interval).await;
            let figures = node.shared.stats();
            if figures.failed > 0 || figures.leased_out > 0 || !figures.faults.is_empty() {
                return false;
            }
        }
    }
    true
}

#[test]
fn the_documented_rule_suffices_and_nothing_of_it_can_be_left_out() {
    let [rule, ..] = documented_rules();
    let redis = Redis::start();
    let url = format!("redis://tidegate:PASSWORD@{}", redis.address());
    run(async {
        permit(&redis, &rule);
        assert!(all_modes_decide(std::slice::from_ref(&url)).await);
        for left_out in rule.iter().filter(|word| word.starts_with('+') || word.starts_with('~')) {
            let less: Vec<_> = rule.iter().filter(|word| *word != left_out).cloned().collect();
            permit(&redis, &[vec!["reset".to_owned()], less].concat());
            // The script must be loaded.
            tell(&redis, &["SCRIPT FLUSH"]);
            assert!(!all_modes_decide(std::slice::from_ref(&url)).await, "without {left_out}");
        }
    });
}

/// Permits the documented user on all servers of a cluster. Returns their URLs with that user.
pub(crate) fn as_documented_user_of_cluster(cluster: &Cluster) -> Vec<String> {
    let [rule, of_cluster, _] = documented_rules();
    let rule = [rule, of_cluster].concat();
    let url = |node: &Redis| {
        permit(node, &rule);
        format!("redis://tidegate:PASSWORD@{}", node.address())
    };
    cluster.nodes().iter().map(url).collect()
}

#[test]
fn another_database_needs_select() {
    let [rule, ..] = documented_rules();
    let redis = Redis::start();
    let url = [format!("redis://tidegate:PASSWORD@{}/2", redis.address())];
    run(async {
        permit(&redis, &rule);
        assert!(!all_modes_decide(&url).await);
        permit(&redis, &["+select".to_owned()]);
        assert!(all_modes_decide(&url).await);
    });
}

#[test]
fn the_documented_rule_of_a_cluster_suffices() {
    let cluster = Cluster::start();
    let urls = as_documented_user_of_cluster(&cluster);
    run(async { assert!(all_modes_decide(&urls).await) });
}

#[test]
fn the_documented_rule_of_a_master_with_sentinels_suffices() {
    let [rule, _, of_master] = documented_rules();
    let watched = Sentinels::start();
    for place in 0..2 {
        permit(watched.server(place), &[rule.clone(), of_master.clone()].concat());
    }
    let urls = watched.urls().into_iter().map(|url| url.replace("://", "://tidegate:PASSWORD@"));
    run(async { assert!(all_modes_decide(&urls.collect::<Vec<_>>()).await) });
}
