//! What the streams are told of the nodes, once a second: the rows that changed, and a newcomer all of them. What a node did
//! is kept with it.

use std::{collections::HashMap, convert::Infallible, sync::Arc};

use serde::Serialize;
use tokio::time::{self, MissedTickBehavior};

use crate::{
    base::event_log::Topic,
    domain::rollout::Targets,
    fleet::registry::{Fleet, LOOK_EVERY, Node, REMEMBERED, rows::NodeRow},
};

/// What is other than it was told before.
#[derive(PartialEq, Debug, Serialize)]
struct Changes<'a> {
    /// Whole rows of nodes that came or changed.
    items: Vec<&'a NodeRow>,
    /// Names of those that are forgotten.
    removed: Vec<&'a str>,
}

/// What a newcomer is told.
#[derive(Serialize)]
struct All {
    items: Arc<Vec<NodeRow>>,
    /// There are no others.
    whole: bool,
}

impl Fleet {
    /// Tells the streams how nodes are, keeps what they did, and forgets who is gone, for ever.
    pub(crate) async fn run(&self, targets: impl Fn() -> Arc<Targets>) -> Infallible {
        let mut ticks = time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = Arc::new(Vec::new());
        loop {
            ticks.tick().await;
            let is_kept = |node: &Node| node.connection.is_some() || node.heard.elapsed() < REMEMBERED;
            self.nodes().by_name.retain(|_, node| is_kept(node));
            let targets = targets();
            let rows = Arc::new(self.rows(&targets));
            self.remember(&targets, &rows, jiff::Timestamp::now());
            let changes = Changes::between(&told, &rows);
            if !changes.items.is_empty() || !changes.removed.is_empty() {
                let all = All { items: Arc::clone(&rows), whole: true };
                self.events.post_changes(Topic::Node, "node", &changes, all);
            }
            told = rows;
        }
    }

    /// Keeps this second of every node that is there, and who has fallen silent or was heard again.
    fn remember(&self, targets: &Targets, rows: &[NodeRow], now: jiff::Timestamp) {
        let mut nodes = self.nodes();
        let known = rows.len();
        for row in rows {
            let target = &targets.of(Some(&row.node)).version;
            let second = row.is_there().then(|| row.second(now));
            if row.is_here() {
                nodes.here.compares(self.figures.engine().version(), Some((target, jiff::Timestamp::UNIX_EPOCH)));
                if let Some(second) = second {
                    nodes.here.add(second, known);
                }
                continue;
            }
            let Some(node) = nodes.by_name.get_mut(&row.node) else { continue };
            node.compares(target);
            if let Some(second) = second {
                node.past.add(second, known);
            }
            let is_silent = row.is_silent();
            if is_silent != node.was_silent && node.connection.is_some() {
                let (code, message) =
                    if is_silent { ("silent", "It does not report") } else { ("heard", "It reports again") };
                node.past.says(code, message);
            }
            node.was_silent = is_silent;
        }
    }
}

impl<'a> Changes<'a> {
    fn between(before: &'a [NodeRow], now: &'a [NodeRow]) -> Self {
        let mut known: HashMap<&str, &NodeRow> = before.iter().map(|row| (&*row.node, row)).collect();
        let items = now.iter().filter(|row| known.remove(&*row.node) != Some(row)).collect();
        let mut removed: Vec<&str> = known.into_keys().collect();
        removed.sort_unstable();
        Self { items, removed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of what a stream is told in a second in which `busy` of a hundred nodes changed, and of all rows.
    fn bytes(busy: usize) -> (usize, usize) {
        let rows = |moved: usize| -> Vec<NodeRow> {
            (0..100).map(|number| NodeRow::for_test(&format!("node-{number:03}"), u64::from(number < moved))).collect()
        };
        let (before, now) = (rows(0), rows(busy));
        let changes = Changes::between(&before, &now);
        assert_eq!((changes.items.len(), changes.removed.len()), (busy, 0));
        let bytes = |value: String| value.len();
        let all = All { items: Arc::new(now.clone()), whole: true };
        (bytes(serde_json::to_string(&changes).expect("JSON")), bytes(serde_json::to_string(&all).expect("JSON")))
    }

    #[test]
    fn only_rows_that_changed_are_told() {
        let row = |name: &str, decisions: u64| NodeRow::for_test(name, decisions);
        let before = [row("a", 1), row("b", 1), row("c", 1)];
        let now = [row("a", 1), row("c", 2), row("d", 1)];
        let changes = Changes::between(&before, &now);
        let names: Vec<&str> = changes.items.iter().map(|row| &*row.node).collect();
        assert_eq!((names, changes.removed), (vec!["c", "d"], vec!["b"]));
        let none = Changes::between(&now, &now);
        assert_eq!((none.items.len(), none.removed.len()), (0, 0));
        let (few, all) = bytes(5);
        assert!(few * 18 < all, "five of a hundred nodes: {few} of {all} bytes");
        assert!(bytes(100).0 < all + 20);
    }
}
