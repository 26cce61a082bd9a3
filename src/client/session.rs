//! Somebody who is signed in at a running admin server, for as long as one command takes.

use std::{
    ffi::OsString,
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use clap::Args;
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tidegate_api::ProblemDetails;
use ureq::{
    Agent, Error,
    http::{HeaderValue, Method, Request, Uri},
    tls::{Certificate, RootCerts, TlsConfig, TlsProvider},
};

use crate::output::{Failure, printable, remark};

/// What the help of each command that signs in ends with.
pub(crate) const SIGNING_IN: &str = "\
Comes with the token in TIDEGATE_TOKEN. Without one it signs in with --user and the password in
TIDEGATE_PASSWORD, which is asked on the terminal where the variable is absent, and signs out at
the end.";

const TOKEN: &str = "TIDEGATE_TOKEN";
const PASSWORD: &str = "TIDEGATE_PASSWORD";
/// Policies may have a hundred thousand clients.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, Args)]
pub(crate) struct SessionArguments {
    /// Where the admin server is.
    #[arg(long, value_name = "URL", env = "TIDEGATE_ADMIN", default_value = "http://127.0.0.1:8080", value_parser = admin)]
    pub(crate) admin: String,
    /// Certificates to know the admin server by, instead of those that this machine trusts; PEM. For https.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CA")]
    pub(crate) ca: Option<PathBuf>,
    /// Who signs in, where there is no token.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_USER")]
    pub(crate) user: Option<String>,
    /// How long to wait for an answer.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_TIMEOUT", default_value = "30s",
        value_parser = tidegate::time::parse_period)]
    pub(crate) timeout: Duration,
}

/// Somebody who is known there: by a token, or a session, which ends with [`with`](Self::with).
pub(crate) struct Session<'a> {
    admin: &'a str,
    agent: Agent,
    /// `Bearer` and a token; empty: there is a session.
    authorization: String,
    cookie: String,
    csrf: String,
}

/// What the server answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
    /// The cookie that it sets; empty: none.
    cookie: String,
    /// When to come again.
    retry_after_s: Option<u64>,
}

impl<'a> Session<'a> {
    /// Signs in, does `work`, and signs out, whatever came of it. Who has a token is in already.
    pub(crate) fn with<T>(
        arguments: &'a SessionArguments,
        work: impl FnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if let Some(token) = variable(TOKEN)? {
            warn_in_the_clear(&arguments.admin, "token");
            return work(&Self { authorization: format!("Bearer {}", token.trim()), ..Self::unknown(arguments)? });
        }
        let session = Self::sign_in(arguments)?;
        let outcome = work(&session);
        // Of a session that does not end here the server knows when it ends.
        let _ = session.ask(&Method::DELETE, "/api/v1/session", &[], None);
        outcome
    }

    fn unknown(arguments: &'a SessionArguments) -> Result<Self, Failure> {
        let agent = Agent::config_builder()
            .tls_config(tls(&arguments.admin, arguments.ca.as_deref())?)
            .http_status_as_error(false)
            .timeout_global(Some(arguments.timeout))
            .max_redirects(0)
            // The server is named, so nobody else is asked.
            .proxy(None)
            .build()
            .new_agent();
        let (authorization, cookie, csrf) = (String::new(), String::new(), String::new());
        Ok(Self { admin: &arguments.admin, agent, authorization, cookie, csrf })
    }

    fn sign_in(arguments: &'a SessionArguments) -> Result<Self, Failure> {
        #[derive(Deserialize)]
        struct SignedIn {
            csrf: String,
        }
        let user = arguments.user.as_deref();
        let user = user.ok_or_else(|| {
            Failure("say who signs in: --user NAME, or TIDEGATE_USER; or set TIDEGATE_TOKEN to a token".to_owned())
        })?;
        warn_in_the_clear(&arguments.admin, "password");
        let password = password(user)?;
        let mut session = Self::unknown(arguments)?;
        let body = json!({ "name": user, "password": password });
        let mut patience = arguments.timeout;
        let answer = loop {
            let answer = session.post("/api/v1/session", &[], &body)?;
            // A script may sign in more often than people do.
            let wait = answer.retry_after_s.filter(|_| answer.status == 429);
            let wait = wait.map(|seconds| Duration::from_secs(seconds.max(1)));
            let Some((wait, left)) = wait.and_then(|wait| Some((wait, patience.checked_sub(wait)?))) else {
                break answer;
            };
            thread::sleep(wait);
            patience = left;
        };
        if answer.status != 200 {
            return Err(session.refused(&answer));
        }
        session.csrf = session.read::<SignedIn>(&answer)?.csrf;
        session.cookie = answer.cookie;
        Ok(session)
    }

    /// What a call answers that has to work.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.read(&self.get_text(path)?)
    }

    pub(crate) fn get_text(&self, path: &str) -> Result<Answer, Failure> {
        let answer = self.ask(&Method::GET, path, &[], None)?;
        if answer.status == 200 { Ok(answer) } else { Err(self.refused(&answer)) }
    }

    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &impl Serialize) -> Result<Answer, Failure> {
        let body = serde_json::to_value(body).map_err(|error| self.failure(&error.to_string()))?;
        self.ask(&Method::POST, path, headers, Some(&body))
    }

    fn ask(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer, Failure> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.admin));
        let own = [
            ("authorization", self.authorization.as_str()),
            ("cookie", self.cookie.as_str()),
            ("x-csrf-token", self.csrf.as_str()),
        ];
        for (name, value) in own.iter().chain(headers).filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        let outcome = match body {
            None => request.body(()).map_err(Error::from).and_then(|request| self.agent.run(request)),
            Some(body) => request
                .header("content-type", "application/json")
                .body(body.to_string())
                .map_err(Error::from)
                .and_then(|request| self.agent.run(request)),
        };
        let mut answer = outcome.map_err(|error| self.failure(&told(&error)))?;
        let header = |name| answer.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let cookie = header("set-cookie").and_then(|cookie| cookie.split(';').next()).unwrap_or_default().to_owned();
        let retry_after_s = header("retry-after").and_then(|seconds| seconds.parse().ok());
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let body = body.map_err(|error| self.failure(&told(&error)))?;
        Ok(Answer { status: answer.status().as_u16(), body, cookie, retry_after_s })
    }

    pub(crate) fn read<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Failure> {
        serde_json::from_str(&answer.body)
            .map_err(|_| self.failure(&format!("{NOT_OURS} (it answered {})", answer.status)))
    }

    /// What a refusal comes to, for people.
    pub(crate) fn refused(&self, answer: &Answer) -> Failure {
        let Ok(problem) = self.read::<ProblemDetails>(answer) else {
            return self.failure(&format!("{NOT_OURS} (it answered {})", answer.status));
        };
        match &*problem.code {
            "" => self.failure(&format!("{NOT_OURS} (it answered {})", answer.status)),
            "wrong_credentials" => self.failure("wrong name or password"),
            "code_needed" => {
                self.failure("this user has a second factor, which commands do not ask for: set TIDEGATE_TOKEN")
            }
            "unauthorized" if !self.authorization.is_empty() => {
                self.failure("there is no such token, or it has ended; TIDEGATE_TOKEN has it")
            }
            _ => self.failure(&problem.detail),
        }
    }

    pub(crate) fn failure(&self, why: &str) -> Failure {
        let lines: Vec<String> = why.lines().map(printable).collect();
        Failure(format!("{}: {}", self.admin, lines.join("\n")))
    }
}

/// Why a server is not who it says, and what to do; `None` where it is something else that went wrong.
pub(crate) fn not_known(error: &Error) -> Option<String> {
    let of_tls = |error: &io::Error| error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()).is_some();
    let why = match error {
        Error::Rustls(error) => error.to_string(),
        Error::Io(error) if of_tls(error) => error.to_string(),
        _ => return None,
    };
    Some(format!("it is not known for who it says: {why}; --ca names whom to believe"))
}

/// Why there was no answer, and what to do.
fn told(error: &Error) -> String {
    const IS_IT_RUNNING: &str = "is `tidegate serve` running? --admin says where";
    if let Some(why) = not_known(error) {
        return why;
    }
    match error {
        Error::Timeout(_) => "no answer in time; --timeout waits longer".to_owned(),
        Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
            "no answer in time; --timeout waits longer".to_owned()
        }
        Error::Io(_) | Error::ConnectionFailed | Error::HostNotFound => {
            format!("cannot be reached: {error}; {IS_IT_RUNNING}")
        }
        _ => format!("{NOT_OURS} ({error})"),
    }
}

const NOT_OURS: &str = "what answers there is not an admin server; --admin says where one is";

/// A secret in the environment; never from the command line, which others can read. An empty one is absent.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    let text = std::env::var_os(name).filter(|value| !value.is_empty()).map(OsString::into_string).transpose();
    text.map_err(|_| Failure(format!("{name}: not UTF-8 text")))
}

/// Whom to believe that it is the server of this address; nobody has to be, where it is not asked by https.
pub(crate) fn tls(url: &str, ca: Option<&Path>) -> Result<TlsConfig, Failure> {
    let mut known = Vec::new();
    if url.starts_with("https:") {
        let ders = match ca {
            Some(file) => CertificateDer::pem_file_iter(file)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|error| Failure::of_file(&file.display().to_string(), error))?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        known = ders.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
        if known.is_empty() {
            return Err(Failure("no certificates to know the server by; --ca names a file".to_owned()));
        }
    }
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .root_certs(RootCerts::Specific(Arc::new(known)))
        .build())
}

fn warn_in_the_clear(admin: &str, what: &str) {
    if !is_loopback(admin) && !admin.starts_with("https:") {
        remark(format_args!("{admin}: not this machine, and without TLS: the {what} can be read on the way"));
    }
}

/// From the environment, or else the terminal.
fn password(user: &str) -> Result<String, Failure> {
    if let Some(password) = variable(PASSWORD)? {
        return Ok(password);
    }
    rpassword::prompt_password(format!("Password of {user}: "))
        .map_err(|error| Failure(format!("no password: there is no terminal to ask on ({error}); set {PASSWORD}")))
}

/// Does what is sent there stay on this machine?
fn is_loopback(admin: &str) -> bool {
    let uri = admin.parse::<Uri>().ok();
    uri.as_ref().and_then(Uri::host).is_some_and(|host| {
        let host = host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    })
}

/// The address of an admin server, without a slash at its end; also as `tidegate serve` takes it, without `http://`.
fn admin(text: &str) -> Result<String, String> {
    const FORM: &str = "write http:// or https:// and where it listens: http://127.0.0.1:8080";
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = text.parse().map_err(|error| format!("{error}; {FORM}"))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.query().is_none() && uri.host().is_some() => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err(FORM.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_on_this_machine_is_known() {
        for (url, is_here) in [
            ("http://127.0.0.1:8080", true),
            ("http://127.9.9.9", true),
            ("http://[::1]:8080", true),
            ("http://localhost", true),
            ("http://10.0.0.1:8080", false),
            ("http://limits.example", false),
        ] {
            assert_eq!(is_loopback(url), is_here, "{url}");
        }
    }

    #[test]
    fn admin_servers_are_named_by_http_urls_or_as_they_listen() {
        assert_eq!(admin("http://localhost:8080/").as_deref(), Ok("http://localhost:8080"));
        assert_eq!(admin("127.0.0.1:9000").as_deref(), Ok("http://127.0.0.1:9000"));
        assert_eq!(admin("https://limits.example/").as_deref(), Ok("https://limits.example"));
        for (text, says) in [("ftp://x", "http://"), ("", "http://"), ("http://a/?b", "http://")] {
            assert!(admin(text).is_err_and(|error| error.contains(says)), "{text}");
        }
    }
}
