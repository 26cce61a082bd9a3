//! The servers of tests: they are killed and back, paused, late, and fail over.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use redis::{Commands, cluster::ClusterClient, cmd};
use tidegate_testkit::{cluster::Cluster, fault_proxy::FaultProxy, redis::Redis, wait_for};

#[test]
fn a_server_that_was_killed_is_there_again_and_empty() {
    let mut redis = Redis::start();
    let url = redis.url();
    redis.ask::<()>(cmd("SET").arg("key").arg("value")).expect("it answers");
    assert_eq!(redis.ask(cmd("GET").arg("key")), Ok(Some("value".to_owned())));
    assert_eq!((redis.commands()["set"], redis.commands()["get"]), (1, 1));
    redis.kill();
    assert!(redis.connect().is_err_and(|error| error.is_connection_refusal()));
    redis.start_again();
    assert_eq!(redis.url(), url);
    assert_eq!(redis.ask(cmd("GET").arg("key")), Ok(None::<String>));
    assert_eq!(redis.commands().get("set"), None);
}

#[test]
fn a_paused_server_answers_when_it_goes_on() {
    let redis = Redis::start();
    let mut raw = TcpStream::connect(redis.address()).expect("it listens");
    redis.pause();
    raw.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    assert_eq!(ping(&mut raw).expect_err("it stands").kind(), io::ErrorKind::WouldBlock);
    redis.resume();
    raw.set_read_timeout(None).expect("a socket");
    assert_eq!(pong(&mut raw).expect("an answer to what was asked before"), *b"+PONG\r\n");
}

#[test]
fn a_cluster_serves_a_key_though_its_master_was_killed() {
    let mut cluster = Cluster::that_fails_over();
    let connect = |cluster: &Cluster| ClusterClient::new(cluster.urls())?.get_connection();
    let mut client = connect(&cluster).expect("a cluster");
    for key in ["ada", "bob", "cyd", "dan"] {
        client.set::<_, _, ()>(key, key).expect("it answers");
        assert_eq!(client.get(key), Ok(key.to_owned()));
    }
    cluster.wait_for_replicas();
    let killed = cluster.master_of("ada").url();
    cluster.kill_master_of("ada");
    assert_ne!(cluster.master_of("ada").url(), killed);
    for key in ["ada", "bob", "cyd", "dan"] {
        // By a new client: this one goes on asking a master that refuses connections, and never looks for another.
        let value: String = wait_for("a client finds it", || connect(&cluster).ok()?.get(key).ok());
        assert_eq!(value, key);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "that it delays is what this is about")]
fn a_proxy_delays_answers() {
    let redis = Redis::start();
    let proxy = FaultProxy::before(redis.address());
    let client = redis::Client::open(proxy.url()).expect("a URL");
    let mut client = client.get_connection().expect("it passes connections on");
    proxy.delay(Duration::from_millis(200));
    let began = Instant::now();
    client.ping::<()>().expect("an answer");
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
    drop(proxy);
    wait_for("its connections end", || client.ping::<()>().err());
}

#[test]
fn a_proxy_drops_half_of_the_answers() {
    let redis = Redis::start();
    let proxy = FaultProxy::before(redis.address());
    let is_answered = |_: &u32| ping(&mut TcpStream::connect(proxy.address()).expect("it listens")).is_ok();
    proxy.drop_half(true);
    assert_eq!((0..64).filter(is_answered).count(), 35);
    assert_eq!(redis.commands()["ping"], 64, "all were asked");
    proxy.drop_half(false);
    assert_eq!((0..64).filter(is_answered).count(), 64);
}

fn ping(stream: &mut TcpStream) -> io::Result<[u8; 7]> {
    stream.write_all(b"PING\r\n")?;
    pong(stream)
}

fn pong(stream: &mut TcpStream) -> io::Result<[u8; 7]> {
    let mut answer = [0; 7];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}
