//! Tokens of callers and of operators, and certificates, over the Redis protocol.

use std::{
    fs,
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use tempfile::TempDir;
use tidegate_net::tls::{Tls, TlsFiles};
use tidegate_service::{
    ListenerSettings, Timeouts, Tokens,
    resp::{OperatorQuery, Operators},
};
use tidegate_testkit::{PATIENCE, certificate::Authority, hostile, wait_until};
use tokio::time::Instant;

use super::{
    HUNDRED,
    support::{Connection, Reply, Server, bulk, ok},
};

const TOKEN: &str = "morning-star-0001";
const OPERATOR: &str = "tg_operator";
const VIEWER: &str = "tg_viewer";

/// A verifier that knows one operator.
#[derive(Debug, Default)]
struct One {
    asked: AtomicUsize,
    is_revoked: AtomicBool,
}

impl Operators for One {
    fn has<'a>(&'a self, token: &'a str) -> OperatorQuery<'a> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let is_good = token == OPERATOR && !self.is_revoked.load(Ordering::SeqCst);
        let answer = if token == "tg_away" { Err("nobody is there".to_owned()) } else { Ok(is_good) };
        Box::pin(async { answer })
    }
}

fn tokens() -> ListenerSettings {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tokens");
    fs::write(&file, TOKEN).expect("room for a file");
    // The file is removed, and its tokens stay valid.
    ListenerSettings { tokens: Some(Tokens::open(file).expect("they are good")), ..ListenerSettings::default() }
}

#[test]
fn a_command_without_a_token_is_refused_where_the_server_has_tokens() {
    let server = Server::listening(HUNDRED, tokens(), None);
    let mut connection = server.connect();
    let commands = [
        "PING",
        "INFO",
        "COMMAND",
        "CL.THROTTLE a 1 1 60",
        "THROTTLE a 1 1 60",
        "TIDEGATE.CHECK user ada *",
        "DEL a",
        "CLIENT ID",
        "SELECT 0",
    ];
    for command in commands {
        assert_eq!(connection.refused(command), "NOAUTH Authentication required.", "{command}");
    }
    let long = "a".repeat(20_000);
    let mut stranger = server.connect();
    assert!(stranger.refused(&format!("PING {long}")).starts_with("NOAUTH commands above 16 KiB take a token"));
    assert!(stranger.is_closed(), "nothing is kept for strangers");
    assert!(connection.refused("HELLO 3").starts_with("NOAUTH HELLO must be called"));
    for wrong in ["AUTH evening-star-0002", "AUTH default evening-star-0002", "HELLO 3 AUTH default evening-star-0002"]
    {
        let said = connection.refused(wrong);
        assert_eq!(said, "WRONGPASS invalid username-password pair or user is disabled.", "{wrong}");
    }
    assert_eq!(connection.ask(&format!("AUTH {TOKEN}")), ok());
    assert!(matches!(connection.ask("HELLO"), Reply::Array(_)), "what was refused did not change the version");
    let mut connection = server.connect();
    assert_eq!(connection.refused("PING"), "NOAUTH Authentication required.");
    for right in [format!("AUTH {TOKEN}"), format!("AUTH anybody {TOKEN}")] {
        let mut connection = server.connect();
        assert_eq!(connection.ask(&right), ok());
        assert_eq!(connection.ask(&format!("PING {long}")), bulk(&long));
        assert_eq!(connection.numbers("CL.THROTTLE a 9 1 60 0"), [0, 10, 10, -1, 0], "nothing was charged before");
        let said = connection.refused("DEL a");
        assert!(
            said.starts_with("NOPERM this command takes a token of role operator, and this server has no"),
            "{said}"
        );
    }
    let mut connection = server.connect();
    assert!(matches!(connection.ask(&format!("HELLO 3 AUTH default {TOKEN}")), Reply::Map(_)));
    assert_eq!(connection.ask("PING"), Reply::Simple("PONG".to_owned()));
    assert_eq!(server.connect().ask("QUIT"), ok());
    assert_eq!(server.metric(r#"tidegate_bad_requests_total{door="resp",code="wrong_token"}"#), 3);
}

#[test]
fn an_address_that_tries_tokens_without_end_leaves_others_their_attempts_and_quota() {
    const TRIES: usize = 500;
    let known = Arc::new(One::default());
    let operators = Arc::clone(&known) as Arc<dyn Operators>;
    let server = Server::listening(HUNDRED, ListenerSettings::default(), Some(operators));
    let mut hostile = Connection::over(hostile::connect(server.address));
    let refusals: Vec<String> = (0..TRIES).map(|number| hostile.refused(&format!("AUTH tg_{number}"))).collect();
    let asked = known.asked.load(Ordering::SeqCst);
    let wrong = refusals.iter().filter(|refusal| refusal.starts_with("WRONGPASS")).count();
    assert_eq!(asked, wrong, "the others were not asked about");
    let too_many = refusals.iter().filter(|refusal| refusal.starts_with("ERR too many")).count();
    assert!(wrong >= 5 && too_many > 0 && wrong + too_many == TRIES, "{wrong} wrong, {too_many} too many");
    let mut connection = server.connect();
    assert_eq!(connection.ask(&format!("AUTH {OPERATOR}")), ok());
    assert_eq!(connection.numbers("CL.THROTTLE ada 1 1 3600 2"), [0, 2, 0, -1, 7_200]);
    assert_eq!(connection.ask("DEL ada"), Reply::Integer(1));
}

#[test]
fn only_operators_reset_keys() {
    let known = Arc::new(One::default());
    let operators = Arc::clone(&known) as Arc<dyn Operators>;
    let server = Server::listening(HUNDRED, ListenerSettings::default(), Some(operators));
    let mut connection = server.connect();
    let spend = |connection: &mut Connection| {
        assert_eq!(connection.numbers("CL.THROTTLE ada 1 1 3600 2"), [0, 2, 0, -1, 7_200]);
        assert_eq!(connection.numbers("THROTTLE bob 2 1 3600"), [1, 2, 1, 3_600, 0]);
    };
    spend(&mut connection);
    let not_operator = "NOPERM this command takes a token of role operator, which an administrator makes under Tokens";
    assert!(connection.refused("DEL ada").starts_with(not_operator));
    assert!(connection.refused(&format!("AUTH {VIEWER}")).starts_with("WRONGPASS"));
    assert!(connection.refused("DEL ada").starts_with(not_operator));
    assert_eq!(connection.numbers("CL.THROTTLE ada 1 1 3600"), [1, 2, 0, 3_600, 7_200], "it was not reset");
    assert!(connection.refused(&format!("HELLO 3 AUTH me {VIEWER}")).starts_with("WRONGPASS"));
    assert!(matches!(connection.ask("HELLO"), Reply::Array(_)), "what was refused did not change the version");
    let said = connection.refused("AUTH tg_away");
    assert!(said.starts_with("ERR the admin server cannot be asked for tokens now: nobody is there"), "{said}");
    // Commands behind it wait for the answer.
    connection.write(format!("AUTH {OPERATOR}\r\nDEL ada bob carol\r\nDEL ada\r\n"));
    assert_eq!([(); 3].map(|()| connection.reply()), [ok(), Reply::Integer(2), Reply::Integer(0)]);
    spend(&mut connection);
    assert_eq!(known.asked.load(Ordering::SeqCst), 4, "once for each");
    for (route, status, count) in [("auth", "error", 2), ("auth", "ok", 1), ("hello", "error", 1), ("hello", "ok", 1)] {
        let series = format!(r#"tidegate_requests_total{{door="resp",route="{route}",status="{status}"}}"#);
        assert_eq!(server.metric(&series), count, "{series}");
    }
    // The authentication is that of the connection.
    assert!(server.connect().refused("DEL ada").starts_with(not_operator));
    let mut other = server.connect();
    assert!(matches!(other.ask(&format!("HELLO 3 AUTH me {OPERATOR}")), Reply::Map(_)));
    assert_eq!(other.ask("DEL ada"), Reply::Integer(1));
}

#[test]
fn the_rate_of_queries_for_unknown_tokens_is_limited() {
    let known = Arc::new(One::default());
    let server = Server::listening(HUNDRED, tokens(), Some(Arc::clone(&known) as Arc<dyn Operators>));
    let mut connection = server.connect();
    let begun = Instant::now();
    let said: Vec<String> = (0..200).map(|guess| connection.refused(&format!("AUTH tg_{guess}"))).collect();
    assert!(said[0].starts_with("WRONGPASS"), "{}", said[0]);
    assert!(said.iter().any(|said| said.starts_with("ERR too many tokens that are not known")));
    // Five at once, then five a second.
    let most = 5 * (begun.elapsed().as_secs() + 2);
    assert!(known.asked.load(Ordering::SeqCst) as u64 <= most, "{known:?} of {most}");
    assert_eq!(connection.ask(&format!("AUTH {TOKEN}")), ok(), "what is known here needs nobody");
    for none in ["tg_".repeat(700), "evening-star-0002".to_owned()] {
        assert!(connection.refused(&format!("AUTH {none}")).starts_with("WRONGPASS"), "it is none, so nobody is asked");
    }
}

#[test]
fn a_token_that_is_removed_from_the_file_is_no_longer_valid() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tokens");
    fs::write(&file, format!("{TOKEN}\nevening-star-0002")).expect("room for a file");
    let tokens = Some(Tokens::open(file.clone()).expect("they are good"));
    let timeouts = Timeouts { files: Duration::from_millis(50), ..Timeouts::default() };
    let server = Server::listening(HUNDRED, ListenerSettings { tokens, timeouts, ..ListenerSettings::default() }, None);
    let (mut gone, mut stays) = (server.connect(), server.connect());
    assert_eq!((gone.ask(&format!("AUTH {TOKEN}")), stays.ask("AUTH evening-star-0002")), (ok(), ok()));
    fs::write(&file, "evening-star-0002").expect("room for a file");
    wait_until("the file is read again", || server.connect().ask(&format!("AUTH {TOKEN}")) != ok());
    assert_eq!(gone.refused("CL.THROTTLE a 1 1 60"), "NOAUTH Authentication required.");
    assert_eq!(stays.numbers("CL.THROTTLE a 1 1 60 0"), [0, 2, 2, -1, 0]);
    assert_eq!(gone.ask("AUTH evening-star-0002"), ok());
    assert_eq!(gone.ask("PING"), Reply::Simple("PONG".to_owned()));
}

#[test]
fn a_token_permits_the_commands_of_its_rights_and_no_others() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tokens");
    let text = "checks-alone-0001 check\nresets-alone-0001 reset\nof-the-shop-00001 check reset domain=shop\n\
                does-both-of-them check reset domain=default\n";
    fs::write(&file, text).expect("room for a file");
    let tokens = Some(Tokens::open(file.clone()).expect("they are good"));
    let timeouts = Timeouts { files: Duration::from_millis(50), ..Timeouts::default() };
    let server = Server::listening(HUNDRED, ListenerSettings { tokens, timeouts, ..ListenerSettings::default() }, None);
    let mut spent = server.connect();
    assert_eq!(spent.ask("AUTH checks-alone-0001"), ok());
    assert_eq!(spent.numbers("CL.THROTTLE ada 0 1 3600"), [0, 1, 0, -1, 3_600]);
    for (token, checks, resets) in [
        ("checks-alone-0001", true, false),
        ("resets-alone-0001", false, true),
        ("of-the-shop-00001", false, false),
        ("does-both-of-them", true, true),
    ] {
        let mut connection = server.connect();
        assert_eq!(connection.ask(&format!("AUTH {token}")), ok());
        assert_eq!(connection.ask("PING"), Reply::Simple("PONG".to_owned()));
        for command in ["CL.THROTTLE bob 9 1 60 0", "THROTTLE bob 9 1 60 0", "TIDEGATE.CHECK user bob *"] {
            let reply = connection.ask(command);
            let is_right = match &reply {
                Reply::Array(_) => checks,
                Reply::Error(error) => !checks && error.starts_with("NOPERM "),
                _ => false,
            };
            assert!(is_right, "{token} {command}: {reply:?}");
        }
        let reply = connection.ask("DEL ada");
        let is_right = match &reply {
            Reply::Integer(_) => resets,
            Reply::Error(error) => !resets && error.starts_with("NOPERM "),
            _ => false,
        };
        assert!(is_right, "{token}: {reply:?}");
    }
    assert_eq!(spent.numbers("CL.THROTTLE ada 0 1 3600"), [0, 1, 0, -1, 3_600], "it was reset");
    // A changed file holds for open connections.
    fs::write(&file, "checks-alone-0001 reset").expect("room for a file");
    wait_until("the file is read again", || spent.refused("CL.THROTTLE ada 0 1 3600 0").starts_with("NOPERM "));
    assert_eq!(spent.ask("DEL ada"), Reply::Integer(1));
}

fn tokens_of_operators_are_verified_again(timeouts: &Timeouts) {
    let period = timeouts.operator_trust;
    // An attempt is void if this thread was not scheduled for too long to use a token that is still trusted.
    let is_shown = (0..50).any(|_| {
        let known = Arc::new(One::default());
        let operators = Arc::clone(&known) as Arc<dyn Operators>;
        let server = Server::listening(HUNDRED, ListenerSettings { timeouts: *timeouts, ..tokens() }, Some(operators));
        let mut connection = server.connect();
        let begun = Instant::now();
        assert_eq!(connection.ask(&format!("AUTH {OPERATOR}")), ok());
        let believed = Instant::now();
        known.is_revoked.store(true, Ordering::SeqCst);
        let mut is_believed = false;
        loop {
            let sent = Instant::now();
            match connection.ask("DEL a") {
                Reply::Integer(0) => {
                    assert!(sent < believed + period, "it is not asked again");
                    is_believed |= sent >= believed + period / 2;
                }
                reply => {
                    assert!(begun.elapsed() >= period, "not yet: {reply:?}");
                    assert_eq!(reply, Reply::Error("NOAUTH Authentication required.".to_owned()));
                    break;
                }
            }
            thread::sleep(period / 20);
        }
        assert_eq!(known.asked.load(Ordering::SeqCst), 2);
        is_believed
    });
    assert!(is_shown, "the machine stands still too often for a token to be used in time");
}

#[test]
fn an_operators_token_is_verified_again() {
    tokens_of_operators_are_verified_again(&Timeouts { operator_trust: Duration::from_secs(1), ..Timeouts::default() });
}

/// Tests of the real timeouts.
mod long {
    use super::*;

    #[test]
    #[ignore = "long: an answer about a token is believed for a minute"]
    fn an_operators_token_is_verified_again_after_a_minute() {
        tokens_of_operators_are_verified_again(&Timeouts::default());
    }
}

#[test]
fn a_listener_with_a_certificate_answers_over_tls_only() {
    let folder = TempDir::new().expect("a folder");
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    let authority = Authority::new();
    authority.write(&certificate, &key);
    let tls = Tls::open(TlsFiles { certificate, key, clients: None }).expect("they are good");
    let server = Server::listening(HUNDRED, ListenerSettings { tls: Some(tls), ..ListenerSettings::default() }, None);

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("PEM")).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots);
    let name = "127.0.0.1".try_into().expect("an address");
    let client = ClientConnection::new(Arc::new(config.with_no_client_auth()), name).expect("a client");
    let socket = TcpStream::connect(server.address).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut connection = Connection::over(StreamOwned::new(client, socket));
    assert_eq!(connection.ask("PING over-tls"), bulk("over-tls"));
    assert_eq!(connection.numbers("CL.THROTTLE ada 9 10 60"), [0, 10, 9, -1, 6]);
    // More than one record of TLS in each direction.
    let long = "a".repeat(100_000);
    assert_eq!(connection.ask(&format!("PING {long}")), bulk(&long));

    let plain = server.connect();
    let mut said = Vec::new();
    let _ = std::io::Write::write_all(&mut plain.socket(), b"PING\r\n");
    let _ = std::io::Read::read_to_end(&mut plain.socket(), &mut said);
    assert!(!said.starts_with(b"+PONG"), "{}", String::from_utf8_lossy(&said));
}
