//! A session at a running admin server, for the duration of one command.

use std::{error::Error, ffi::OsString, net::IpAddr, path::PathBuf, thread, time::Duration};

use clap::Args;
use reqwest::{Method, Url, blocking::Client, header::HeaderValue};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tidegate_api::ProblemDetails;

use super::http_client::{HttpResponse, describe_error, http_client, send};
use crate::output::{CommandError, print_note, printable};

/// The end of the help of each command that signs in.
pub(crate) const SIGN_IN_HELP: &str = "\
The command uses the token in TIDEGATE_TOKEN. Without one it signs in as --user with the password in
TIDEGATE_PASSWORD, or asks for it on the terminal, and signs out at the end.";

const TOKEN: &str = "TIDEGATE_TOKEN";
const PASSWORD: &str = "TIDEGATE_PASSWORD";
/// The largest body of a response. A policy may have a hundred thousand clients.
const BODY_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, Args)]
pub(crate) struct SessionArguments {
    /// The URL of the admin server.
    #[arg(long, value_name = "URL", env = "TIDEGATE_ADMIN", default_value = "http://127.0.0.1:8080", value_parser = admin)]
    pub(crate) admin: String,
    /// Certificates of the authorities to trust for the admin server, in place of those of the system; a PEM file. For https.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CA")]
    pub(crate) ca: Option<PathBuf>,
    /// The user to sign in as, without a token.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_USER")]
    pub(crate) user: Option<String>,
    /// The longest wait for each response of the server.
    #[arg(long, value_name = "PERIOD", env = "TIDEGATE_TIMEOUT", default_value = "30s",
        value_parser = tidegate::time::parse_period)]
    pub(crate) timeout: Duration,
}

/// A caller that the admin server has authenticated: by a token, or by a session, which ends with [`with`](Self::with).
pub(crate) struct AdminSession<'a> {
    admin: &'a str,
    client: Client,
    /// `Bearer` and a token; empty with a session.
    authorization: String,
    cookie: String,
    csrf: String,
}

/// A response of the admin server.
pub(crate) struct SessionResponse {
    pub(crate) status: u16,
    pub(crate) body: String,
    /// The cookie that it sets; empty without one.
    cookie: String,
    /// The seconds after which to try again.
    retry_after_s: Option<u64>,
}

impl<'a> AdminSession<'a> {
    /// Signs in, runs `work`, and signs out, also after an error. With a token it only runs `work`.
    pub(crate) fn with<T>(
        arguments: &'a SessionArguments,
        work: impl FnOnce(&Self) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        if let Some(token) = secret_variable(TOKEN)? {
            warn_in_the_clear(&arguments.admin, "token");
            return work(&Self { authorization: format!("Bearer {}", token.trim()), ..Self::anonymous(arguments)? });
        }
        let session = Self::sign_in(arguments)?;
        let outcome = work(&session);
        // After an error the session stays until it expires.
        let _ = session.call(Method::DELETE, "/api/v1/session", &[], None);
        outcome
    }

    fn anonymous(arguments: &'a SessionArguments) -> Result<Self, CommandError> {
        let client = http_client(&arguments.admin, arguments.ca.as_deref(), arguments.timeout)?;
        let (authorization, cookie, csrf) = (String::new(), String::new(), String::new());
        Ok(Self { admin: &arguments.admin, client, authorization, cookie, csrf })
    }

    fn sign_in(arguments: &'a SessionArguments) -> Result<Self, CommandError> {
        #[derive(Deserialize)]
        struct SignedIn {
            csrf: String,
        }
        let user = arguments.user.as_deref();
        let user = user.ok_or_else(|| {
            CommandError(
                "there is no user to sign in; give --user NAME or TIDEGATE_USER, or set TIDEGATE_TOKEN to a token"
                    .to_owned(),
            )
        })?;
        warn_in_the_clear(&arguments.admin, "password");
        let password = password(user)?;
        let mut session = Self::anonymous(arguments)?;
        let body = json!({ "name": user, "password": password });
        let mut left = arguments.timeout;
        let answer = loop {
            let answer = session.post("/api/v1/session", &[], &body)?;
            // A script may sign in more often than the login limiter allows.
            let wait = answer.retry_after_s.filter(|_| answer.status == 429);
            let wait = wait.map(|seconds| Duration::from_secs(seconds.max(1)));
            let Some((wait, rest)) = wait.and_then(|wait| Some((wait, left.checked_sub(wait)?))) else {
                break answer;
            };
            thread::sleep(wait);
            left = rest;
        };
        if answer.status != 200 {
            return Err(session.rejection(&answer));
        }
        session.csrf = session.read::<SignedIn>(&answer)?.csrf;
        session.cookie = answer.cookie;
        Ok(session)
    }

    /// Gets an object. Any status but 200 is an error.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CommandError> {
        self.read(&self.get_text(path)?)
    }

    pub(crate) fn get_text(&self, path: &str) -> Result<SessionResponse, CommandError> {
        let answer = self.call(Method::GET, path, &[], None)?;
        if answer.status == 200 { Ok(answer) } else { Err(self.rejection(&answer)) }
    }

    pub(crate) fn post(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &impl Serialize,
    ) -> Result<SessionResponse, CommandError> {
        let body = serde_json::to_value(body).map_err(|error| self.failure(&error.to_string()))?;
        self.call(Method::POST, path, headers, Some(&body))
    }

    fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<SessionResponse, CommandError> {
        let mut request = self.client.request(method, format!("{}{path}", self.admin));
        let own = [
            ("authorization", self.authorization.as_str()),
            ("cookie", self.cookie.as_str()),
            ("x-csrf-token", self.csrf.as_str()),
        ];
        for (name, value) in own.iter().chain(headers).filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let describe =
            |error: Box<dyn Error + Send + Sync>| self.failure(&describe_error(&*error, "--admin", NOT_OURS));
        let HttpResponse { status, headers, body } = send(request, BODY_BYTES_MAX).map_err(describe)?;
        let header = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let cookie = header("set-cookie").and_then(|cookie| cookie.split(';').next()).unwrap_or_default().to_owned();
        let retry_after_s = header("retry-after").and_then(|seconds| seconds.parse().ok());
        let body = String::from_utf8(body).map_err(|_| self.failure(&not_ours(status.as_u16())))?;
        Ok(SessionResponse { status: status.as_u16(), body, cookie, retry_after_s })
    }

    pub(crate) fn read<T: DeserializeOwned>(&self, answer: &SessionResponse) -> Result<T, CommandError> {
        serde_json::from_str(&answer.body).map_err(|_| self.failure(&not_ours(answer.status)))
    }

    /// Makes an error of a response that rejects the request.
    pub(crate) fn rejection(&self, answer: &SessionResponse) -> CommandError {
        let Ok(problem) = self.read::<ProblemDetails>(answer) else {
            return self.failure(&not_ours(answer.status));
        };
        match &*problem.code {
            "" => self.failure(&not_ours(answer.status)),
            "wrong_credentials" => self.failure("wrong name or password"),
            "code_needed" => self
                .failure("this user has a second factor, which commands cannot ask for; set TIDEGATE_TOKEN to a token"),
            "unauthorized" if !self.authorization.is_empty() => {
                self.failure("the token in TIDEGATE_TOKEN does not exist, or has expired")
            }
            _ => self.failure(&problem.detail),
        }
    }

    pub(crate) fn failure(&self, why: &str) -> CommandError {
        let lines: Vec<String> = why.lines().map(printable).collect();
        CommandError(format!("{}: {}", self.admin, lines.join("\n")))
    }
}

const NOT_OURS: &str = "the server at this URL is not a Tidegate admin server; --admin names the URL of one";

fn not_ours(status: u16) -> String {
    format!("{NOT_OURS} (its response has the status {status})")
}

/// Reads a secret from the environment. The command line is no place for it: other users can read that. An empty variable is
/// absent.
fn secret_variable(name: &str) -> Result<Option<String>, CommandError> {
    let text = std::env::var_os(name).filter(|value| !value.is_empty()).map(OsString::into_string).transpose();
    text.map_err(|_| CommandError(format!("{name}: the value is not UTF-8 text")))
}

fn warn_in_the_clear(admin: &str, what: &str) {
    if !is_loopback(admin) && !admin.starts_with("https:") {
        print_note(format_args!(
            "warning: the {what} is sent to {admin} without TLS, so others on the network can read it"
        ));
    }
}

/// Reads the password from the environment, or else from the terminal.
fn password(user: &str) -> Result<String, CommandError> {
    if let Some(password) = secret_variable(PASSWORD)? {
        return Ok(password);
    }
    rpassword::prompt_password(format!("Password of {user}: ")).map_err(|error| {
        CommandError(format!("no password: there is no terminal to ask for it ({error}); set {PASSWORD}"))
    })
}

/// Returns whether the URL is one of this machine.
fn is_loopback(admin: &str) -> bool {
    let url = Url::parse(admin).ok();
    url.as_ref().and_then(Url::host_str).is_some_and(|host| {
        let host = host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    })
}

/// Parses the URL of an admin server. Returns it without a slash at its end. `http://` may be missing, as in the option --admin of
/// `tidegate serve`.
fn admin(text: &str) -> Result<String, String> {
    const FORM: &str = "write http:// or https:// and the address, such as http://127.0.0.1:8080";
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&text).map_err(|error| format!("{error}; {FORM}"))?;
    match url.scheme() {
        "http" | "https" if url.query().is_none() => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err(FORM.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_this_machine_are_recognised() {
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
    fn admin_urls_may_lack_http() {
        assert_eq!(admin("http://localhost:8080/").as_deref(), Ok("http://localhost:8080"));
        assert_eq!(admin("127.0.0.1:9000").as_deref(), Ok("http://127.0.0.1:9000"));
        assert_eq!(admin("https://limits.example/").as_deref(), Ok("https://limits.example"));
        for (text, says) in [("ftp://x", "http://"), ("", "http://"), ("http://a/?b", "http://")] {
            assert!(admin(text).is_err_and(|error| error.contains(says)), "{text}");
        }
    }
}
