//! Each fault of a store occurs on a real server: nodes report it under its code, and go on when it is over.

use std::{fs, path::Path, thread, time::Duration};

use redis::{Cmd, cmd};
use serde_json::json;
use tidegate_fleet::store::{StoreFault, StoreSettings};
use tidegate_testkit::{cluster::Cluster, port::ReservedPort, redis::Redis};

use crate::nodes::{Node, PATIENT, limit, node, publish, run, until, wide};

pub(crate) const SETTINGS: StoreSettings = StoreSettings {
    timeout: Duration::from_millis(300),
    pause: Duration::from_millis(200),
    watch_interval: Duration::from_millis(200),
    operator_timeout: Duration::from_millis(500),
    close_timeout: Duration::from_secs(2),
    ..PATIENT
};

/// Parses a command from its words.
fn words(line: &str) -> Cmd {
    let mut words = line.split(' ');
    let mut command = cmd(words.next().expect("a name"));
    words.for_each(|word| {
        // An underscore within a word stands for a space.
        command.arg(if word == "''" { String::new() } else { word.replace('_', " ") });
    });
    command
}

pub(crate) fn tell(redis: &Redis, lines: &[&str]) {
    for line in lines {
        redis.ask::<redis::Value>(&words(line)).expect(line);
    }
}

async fn strict_node(urls: &[String]) -> Node {
    node(urls, SETTINGS, &limit("strict", "fixed_window", 1_000_000, "300d")).await
}

/// Returns what a node reports of this fault, if it has it.
fn reported(node: &Node, fault: StoreFault) -> Option<String> {
    node.shared.stats().faults.into_iter().find(|report| report.code == fault).map(|report| report.message)
}

fn errors(node: &Node, fault: StoreFault) -> u64 {
    let counts = node.shared.stats().fault_counts;
    StoreFault::ALL.into_iter().zip(counts).find(|(its, _)| *its == fault).expect("it is one of them").1
}

/// Checks until the fault is reported with these words of the server.
async fn is_met(node: &Node, fault: StoreFault, said: &str) {
    until(&format!("{fault}"), async || {
        node.check("ada").await;
        reported(node, fault).is_some_and(|message| message.contains(said) && message.ends_with(fault.advice()))
    })
    .await;
    assert!(fault.is_warning() || errors(node, fault) > 0, "{fault}");
}

/// Checks until the fault is over and the store decides.
async fn is_over(node: &Node, fault: StoreFault) {
    until(&format!("{fault} is over"), async || {
        let said = node.check("ada").await;
        reported(node, fault).is_none() && said.degraded.is_none()
    })
    .await;
}

/// Runs a store that is healthy, has a fault, and is healthy again.
fn comes_and_goes(
    redis: &mut Redis,
    (fault, said): (StoreFault, &str),
    begin: impl FnOnce(&mut Redis),
    end: impl FnOnce(&mut Redis),
) {
    run(async {
        let node = strict_node(&[redis.url()]).await;
        is_over(&node, fault).await;
        begin(redis);
        is_met(&node, fault, said).await;
        end(redis);
        is_over(&node, fault).await;
    });
}

/// Runs [`comes_and_goes`] with commands that begin and end the fault.
fn is_switched(fault: (StoreFault, &str), begin: &[&str], end: &[&str]) {
    comes_and_goes(&mut Redis::start(), fault, |redis| tell(redis, begin), |redis| tell(redis, end));
}

#[test]
fn a_replica() {
    let master = Redis::start();
    let follow = format!("REPLICAOF 127.0.0.1 {}", master.address().port());
    is_switched((StoreFault::ReadOnly, "read only replica"), &[&follow], &["REPLICAOF NO ONE"]);
}

#[test]
fn a_replica_that_lost_its_master() {
    let nowhere = ReservedPort::new();
    let follow = format!("REPLICAOF 127.0.0.1 {}", nowhere.port());
    let fault = (StoreFault::MasterDown, "replica-serve-stale-data");
    is_switched(fault, &["CONFIG SET replica-serve-stale-data no", &follow], &["REPLICAOF NO ONE"]);
}

#[test]
fn a_full_memory() {
    let fault = (StoreFault::OutOfMemory, "maxmemory");
    is_switched(fault, &["CONFIG SET maxmemory 1"], &["CONFIG SET maxmemory 0"]);
}

#[test]
fn too_few_replicas() {
    let fault = (StoreFault::NoReplicas, "good replicas");
    is_switched(fault, &["CONFIG SET min-replicas-to-write 1"], &["CONFIG SET min-replicas-to-write 0"]);
}

#[test]
fn a_user_without_a_command() {
    let fault = (StoreFault::NoPermission, " run t");
    is_switched(fault, &["ACL SETUSER default -set"], &["ACL SETUSER default +@all"]);
}

#[test]
fn a_user_without_the_keys() {
    let fault = (StoreFault::NoPermission, "key");
    is_switched(fault, &["ACL SETUSER default resetkeys ~other:*"], &["ACL SETUSER default ~*"]);
}

#[test]
fn a_password_that_is_missing() {
    let fault = (StoreFault::WrongPassword, "Authentication required");
    let begin = |redis: &mut Redis| {
        let mut connection = redis.connect().expect("it answers");
        for line in ["CONFIG SET requirepass right", "CLIENT KILL TYPE normal"] {
            words(line).query::<redis::Value>(&mut connection).expect(line);
        }
    };
    let mut redis = Redis::start();
    comes_and_goes(&mut redis, fault, begin, |redis| {
        let client = redis::Client::open(format!("redis://:right@{}", redis.address())).expect("an address");
        words("CONFIG SET requirepass ''")
            .query::<()>(&mut client.get_connection().expect("it answers"))
            .expect("it is set");
    });
}

#[test]
fn a_password_that_is_wrong() {
    let redis = Redis::start();
    tell(&redis, &["CONFIG SET requirepass right"]);
    run(async {
        let node = strict_node(&[format!("redis://:wrong@{}", redis.address())]).await;
        is_met(&node, StoreFault::WrongPassword, "").await;
        assert!(!reported(&node, StoreFault::WrongPassword).is_some_and(|message| message.contains(":wrong@")));
    });
}

/// The default settings leave a check and a connection little time.
#[test]
fn the_fault_is_named_under_default_settings() {
    let wrong = Redis::start();
    tell(&wrong, &["CONFIG SET requirepass right"]);
    let mut gone = Redis::start();
    gone.kill();
    let settings = StoreSettings { pause: Duration::from_secs(1), ..StoreSettings::default() };
    let cases = [
        (format!("redis://:wrong@{}", wrong.address()), StoreFault::WrongPassword),
        (gone.url(), StoreFault::Unreachable),
    ];
    run(async {
        for (url, fault) in cases {
            let node = node(&[url], settings, &limit("strict", "fixed_window", 100, "300d")).await;
            until("it is left alone", async || {
                node.check("ada").await;
                node.shared.stats().is_open
            })
            .await;
            // Over several trials.
            tokio::time::sleep(Duration::from_secs(3)).await;
            until("the cause is named", async || reported(&node, fault).is_some()).await;
            let others: Vec<_> = node.shared.stats().faults.into_iter().filter(|it| it.code != fault).collect();
            assert!(others.iter().all(|it| it.code == StoreFault::WrongPassword), "{others:?}");
        }
    });
}

/// A denied check needs no write, so it must not close the circuit breaker of a store that takes no writes.
#[test]
fn a_replica_stays_away_while_it_is_read() {
    let (redis, master) = (Redis::start(), Redis::start());
    run(async {
        let node = node(&[redis.url()], SETTINGS, &limit("strict", "fixed_window", 1, "300d")).await;
        for is_allowed in [true, false] {
            assert_eq!(node.check("ada").await.allowed, is_allowed);
        }
        // The replica takes over its master's data, so the master must have the key before.
        let value: Vec<u8> = redis.ask(cmd("GET").arg(&redis.keys().expect("few")[0])).expect("it answers");
        master.ask::<()>(cmd("SET").arg(&redis.keys().expect("few")[0]).arg(value)).expect("it answers");
        tell(&redis, &[&format!("REPLICAOF 127.0.0.1 {}", master.address().port())]);
        until("it is left alone", async || {
            node.check("bob").await;
            node.shared.stats().is_open
        })
        .await;
        let opened = node.shared.stats().opened;
        for _ in 0..100 {
            assert!(node.check("ada").await.degraded.is_some());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let figures = node.shared.stats();
        assert_eq!((figures.is_open, figures.opened), (true, opened), "over some pauses");
        assert!(reported(&node, StoreFault::ReadOnly).is_some());
    });
}

/// One master of a cluster is paused, and the others answer.
#[test]
fn a_part_of_a_cluster_that_does_not_answer() {
    let cluster = Cluster::start();
    run(async {
        let node = strict_node(&cluster.urls()).await;
        assert!(node.check("ada").await.degraded.is_none());
        cluster.pause(cluster.place_of_master("{18}"));
        until("it is reported", async || reported(&node, StoreFault::Timeout).is_some()).await;
        assert!(!node.shared.stats().is_open, "the others are asked");
    });
}

#[test]
fn a_disk_that_takes_nothing() {
    let mut redis = Redis::start();
    let begin = |redis: &mut Redis| {
        // The server cannot write the file where a folder is.
        let (_, folder): (String, String) = redis.ask(&words("CONFIG GET dir")).expect("it answers");
        fs::create_dir(Path::new(&folder).join("dump.rdb")).expect("there is room");
        tell(redis, &["CONFIG SET save 3600_1000", "BGSAVE"]);
    };
    let end = |redis: &mut Redis| tell(redis, &["CONFIG SET stop-writes-on-bgsave-error no"]);
    comes_and_goes(&mut redis, (StoreFault::Misconfigured, "RDB"), begin, end);
}

#[test]
fn data_that_is_read_from_disk() {
    // The server answers after every second megabyte, and waits before each.
    let mut redis = Redis::with(&["--key-load-delay", "200000", "--rdbcompression", "no"]);
    let fill = "for place = 1, 30 do redis.call('SET', 'x' .. place, string.rep('x', 1048576)) end";
    redis.ask::<()>(cmd("EVAL").arg(fill).arg(0)).expect("it is filled");
    tell(&redis, &["SAVE"]);
    comes_and_goes(
        &mut redis,
        (StoreFault::Loading, "loading the dataset"),
        |redis| {
            redis.kill();
            redis.start_again();
        },
        |_| {},
    );
}

#[test]
fn a_script_that_does_not_end() {
    let mut redis = Redis::start();
    tell(&redis, &["CONFIG SET lua-time-limit 50"]);
    let mut looping = None;
    let begin = |redis: &mut Redis| {
        let url = redis.url();
        let run = move || {
            let mut connection = redis::Client::open(url).expect("an address").get_connection().expect("it answers");
            cmd("EVAL").arg("while true do end").arg(0).query::<redis::Value>(&mut connection)
        };
        looping = Some(thread::spawn(run));
    };
    comes_and_goes(&mut redis, (StoreFault::Busy, "busy"), begin, |redis| tell(redis, &["SCRIPT KILL"]));
    let ended = looping.expect("it began").join().expect("no panic");
    assert!(ended.is_err_and(|error| error.to_string().contains("killed")));
}

#[test]
fn a_command_that_is_missing() {
    let redis = Redis::with(&["--rename-command", "EVALSHA", ""]);
    run(async {
        let node = strict_node(&[redis.url()]).await;
        is_met(&node, StoreFault::UnknownCommand, "EVALSHA").await;
    });
}

#[test]
fn a_cluster_without_its_slots() {
    let mut redis = Redis::with(&["--cluster-enabled", "yes"]);
    let fault = StoreFault::ClusterDown;
    run(async {
        let node = strict_node(&[redis.url()]).await;
        is_met(&node, fault, "Hash slot not served").await;
        let all: Vec<_> = (0..16_384).collect();
        redis.ask::<()>(words("CLUSTER ADDSLOTS").arg(all)).expect("it answers");
        is_over(&node, fault).await;
    });
    redis.kill();
}

#[test]
fn one_server_of_a_cluster_alone() {
    let cluster = Cluster::start();
    run(async {
        let node = strict_node(&cluster.urls()[..1]).await;
        until("it is moved", async || {
            // Two of three keys are on other servers.
            for user in ["ada", "bob", "cyd", "dan", "eve", "fay"] {
                node.check(user).await;
            }
            reported(&node, StoreFault::Moved).is_some_and(|message| message.contains("two or more servers"))
        })
        .await;
    });
}

/// Two keys of one script are apart while their slot is moved, and the move stops there.
#[test]
fn a_slot_whose_keys_stay_apart() {
    let cluster = Cluster::start();
    run(async {
        let node = strict_node(&cluster.urls()).await;
        let more = json!({
            "id": "more", "algorithm": "fixed_window", "limit": 1_000_000, "period": "300d", "sharing": "strict",
        });
        publish(&node.engine, &json!([limit("strict", "fixed_window", 1_000_000, "300d"), more]), &wide());
        assert!(node.check("ada").await.degraded.is_none());
        let key = cluster.nodes().iter().flat_map(|node| node.keys().expect("few")).next().expect("a key");
        let moving = cluster.begin_to_move_slot_of(&key, Duration::ZERO);
        assert!(moving.move_key(), "one of two");
        is_met(&node, StoreFault::TryAgain, "TRYAGAIN").await;
        while moving.move_key() {}
        moving.end();
        is_over(&node, StoreFault::TryAgain).await;
    });
}

#[test]
fn a_server_that_is_gone() {
    let mut redis = Redis::start();
    comes_and_goes(&mut redis, (StoreFault::Unreachable, ""), Redis::kill, Redis::start_again);
}

#[test]
fn a_server_that_is_paused() {
    let mut redis = Redis::start();
    let fault = (StoreFault::Timeout, "took too long");
    comes_and_goes(&mut redis, fault, |redis| redis.pause(), |redis| redis.resume());
}

#[test]
fn a_server_that_may_evict_keys() {
    let fault = (StoreFault::Evicts, "maxmemory-policy is allkeys-lru");
    is_switched(fault, &["CONFIG SET maxmemory-policy allkeys-lru"], &["CONFIG SET maxmemory-policy noeviction"]);
}

#[test]
fn a_user_without_permission_for_info() {
    let fault = (StoreFault::Unwatched, "info");
    is_switched(fault, &["ACL SETUSER default -info"], &["ACL SETUSER default +@all"]);
}

/// Limits that were used up have tokens again, and the node reports the reason.
#[test]
fn keys_that_are_evicted_are_noticed() {
    let redis = Redis::start();
    run(async {
        let node = node(&[redis.url()], SETTINGS, &limit("strict", "fixed_window", 1, "300d")).await;
        let users: Vec<_> = (0..50).map(|user| format!("user-{user}")).collect();
        let allowed = async || {
            let mut allowed = 0;
            for user in &users {
                allowed += usize::from(node.check(user).await.allowed);
            }
            allowed
        };
        assert_eq!((allowed().await, allowed().await), (50, 0));
        until("it was seen how many keys were evicted so far", async || node.shared.stats().asked > 0).await;
        tokio::time::sleep(3 * SETTINGS.watch_interval).await;
        assert_eq!(reported(&node, StoreFault::KeysLost), None);
        let used: u64 = redis.info("memory", "used_memory").parse().expect("bytes");
        tell(
            &redis,
            &["CONFIG SET maxmemory-policy allkeys-lru", &format!("CONFIG SET maxmemory {}", used + 2_000_000)],
        );
        let fill = "for place = 1, 20000 do redis.call('SET', 'x' .. place, string.rep('x', 500)) end";
        redis.ask::<()>(cmd("EVAL").arg(fill).arg(0)).expect("it is filled");
        until("the loss is noticed", async || {
            reported(&node, StoreFault::KeysLost).is_some_and(|message| message.contains("it evicted"))
        })
        .await;
        assert!(reported(&node, StoreFault::Evicts).is_some());
        assert!(allowed().await > 0, "of 50 keys one was evicted");
    });
}

#[test]
fn keys_that_are_flushed_are_noticed() {
    for urls in [true, false].map(|is_cluster| is_cluster.then(Cluster::start)) {
        let redis = Redis::start();
        run(async {
            let all = urls.as_ref().map_or_else(|| vec![redis.url()], Cluster::urls);
            let node = strict_node(&all).await;
            node.check("ada").await;
            tokio::time::sleep(3 * SETTINGS.watch_interval).await;
            assert_eq!(reported(&node, StoreFault::KeysLost), None);
            match &urls {
                // One of the masters.
                Some(cluster) => cluster.master_of("{18}").ask::<()>(&cmd("FLUSHALL")).expect("it is empty"),
                None => tell(&redis, &["FLUSHALL"]),
            }
            until("the loss is noticed", async || {
                reported(&node, StoreFault::KeysLost).is_some_and(|message| message.contains("its epoch is another"))
            })
            .await;
        });
    }
}

#[test]
fn each_fault_is_documented() {
    let documents = include_str!("../../../docs/store.md");
    for fault in StoreFault::ALL {
        assert!(documents.contains(&format!("\n| `{fault}` | ")), "{fault}");
    }
}
