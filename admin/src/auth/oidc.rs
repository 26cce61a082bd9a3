//! Sign-in by an `OpenID` Connect provider: where browsers are sent, and whom its ID tokens name.
//!
//! The provider is asked what it is when somebody signs in, and never at the start: one that is away costs the sign-in by it.

use std::{error::Error, fs, io, mem, path::PathBuf, sync::Arc, time::Duration};

use openidconnect::{
    AdditionalClaims, AuthType, AuthenticationFlow, AuthorizationCode, ClaimsVerificationError, Client, ClientId,
    ClientSecret, CsrfToken, EmptyExtraTokenFields, EndpointMaybeSet, EndpointNotSet, EndpointSet, HttpRequest,
    HttpResponse, IdTokenClaims, IdTokenFields, IdTokenVerifier, IssuerUrl, Nonce, PkceCodeChallenge, PkceCodeVerifier,
    RedirectUrl, RequestTokenError, Scope, SignatureVerificationError, StandardErrorResponse, StandardTokenResponse,
    TokenResponse,
    core::{
        CoreAuthDisplay, CoreAuthPrompt, CoreClientAuthMethod, CoreErrorResponseType, CoreGenderClaim, CoreJsonWebKey,
        CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm, CoreProviderMetadata, CoreResponseType,
        CoreRevocableToken, CoreRevocationErrorResponse, CoreTokenIntrospectionResponse, CoreTokenType,
    },
    url::Url,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate_net::tls::ClientTls;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use crate::{
    auth::{oidc_cookie::SignIn, user_rules::is_name},
    base::{addresses::is_loopback, secrets::secret},
    domain::{error::Problem, roles::Role},
};

/// How long it is taken to be as it said.
const KNOWN_FOR: Duration = Duration::from_hours(1);
/// The most that it answers at a time, in bytes.
const ANSWER_MAX: usize = 1 << 20;
/// The longest name of somebody at a provider, in bytes (`OpenID` Connect Core, 2).
const SUBJECT_MAX: usize = 255;

/// Signatures by keys of which the provider alone has the secret half.
const SIGNED_BY: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// A provider by which people sign in.
#[derive(Clone, Debug)]
pub struct Oidc {
    /// As it calls itself: https, or on this machine.
    pub issuer: String,
    /// Name of this server there.
    pub client_id: String,
    /// File with the secret that goes with that.
    pub client_secret: PathBuf,
    /// On the button of the sign-in page.
    pub name: String,
    /// What is asked for beside `openid`.
    pub scopes: Vec<String>,
    /// The claim of the ID token that has the groups: a list of texts, or a text.
    pub groups_claim: String,
    /// Groups, and the roles of who is in them: the highest counts.
    pub roles: Vec<(String, Role)>,
    /// Authorities that are trusted beside those of the system, PEM.
    pub ca: Option<PathBuf>,
    /// How long an answer of the provider is waited for; [`Oidc::PATIENCE`] but in tests.
    pub timeout: Duration,
}

impl Oidc {
    /// How long an answer of the provider is waited for.
    pub const PATIENCE: Duration = Duration::from_secs(10);
}

/// All claims that the library does not know by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Claims(Map<String, Value>);

impl AdditionalClaims for Claims {}

type Fields = IdTokenFields<
    Claims,
    EmptyExtraTokenFields,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJwsSigningAlgorithm,
>;

/// A client of a provider that was asked what it is.
type Known = Client<
    Claims,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    StandardErrorResponse<CoreErrorResponseType>,
    StandardTokenResponse<Fields, CoreTokenType>,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// The provider, and what is known of it.
#[derive(Debug)]
pub(crate) struct Provider {
    settings: Oidc,
    issuer: IssuerUrl,
    redirect: RedirectUrl,
    http: reqwest::Client,
    /// Until an instant.
    known: Mutex<Option<(Arc<Known>, Instant)>>,
}

/// A try that begins.
pub(crate) struct Begun {
    /// Where the browser goes.
    pub(crate) url: Url,
    /// What it comes back with.
    pub(crate) state: String,
    pub(crate) nonce: String,
    pub(crate) verifier: String,
}

/// Somebody, as an ID token names him.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) issuer: String,
    pub(crate) subject: String,
    /// One that a user can have.
    pub(crate) name: Option<String>,
    /// Of his groups; `None`: no group of his has one. Or why they cannot be read.
    pub(crate) role: Result<Option<Role>, String>,
}

/// Why nobody is named.
enum Failed {
    /// The provider does not take the code, or not any more.
    Code,
    Provider(String),
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self::Provider(why)
    }
}

impl From<Failed> for Problem {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Code => Self::SignInOver,
            Failed::Provider(why) => Self::Provider(why),
        }
    }
}

impl Provider {
    /// Browsers come back from it to `redirect`. An error names the setting.
    pub(crate) fn new(settings: Oidc, redirect: String) -> Result<Self, String> {
        let issuer = Url::parse(&settings.issuer).map_err(|error| format!("--oidc-issuer: {error}"))?;
        if !is_private(&issuer) {
            return Err("--oidc-issuer: write https:// and the host; http:// is only for this machine".to_owned());
        }
        if settings.roles.is_empty() {
            return Err("--oidc-role: give at least one GROUP=ROLE, or nobody could sign in".to_owned());
        }
        settings.secret()?;
        let ca = settings
            .ca
            .as_ref()
            .map(|file| fs::read(file).map_err(|error| format!("--oidc-ca: {}: {error}", file.display())));
        let ca = ca.transpose()?;
        let tls = ClientTls { machine: issuer.scheme() == "https", authorities: ca.as_deref(), own: None }.config();
        let http = reqwest::Client::builder();
        // What goes to this machine goes through nobody.
        let http = if issuer.scheme() == "http" { http.no_proxy() } else { http };
        let http = http
            .tls_backend_preconfigured(tls.map_err(|why| format!("--oidc-ca: {why}"))?)
            // Answers are rare, and each thread that serves has a runtime of its own.
            .pool_max_idle_per_host(0)
            // It is told where to ask, and asks nowhere else.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| format!("--oidc-issuer: {}", told(&error)))?;
        let redirect = RedirectUrl::new(redirect).map_err(|error| format!("--admin-url: {error}"))?;
        let issuer = IssuerUrl::new(settings.issuer.clone()).map_err(|error| format!("--oidc-issuer: {error}"))?;
        Ok(Self { settings, issuer, redirect, http, known: Mutex::default() })
    }

    /// What is said to whom no group gives a role.
    pub(crate) fn without_role(&self) -> String {
        format!("No group of the claim `{}` has a role here.", self.settings.groups_claim)
    }

    /// On the button.
    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Begins a try.
    pub(crate) async fn begin(&self) -> Result<Begun, Problem> {
        let random = |error: getrandom::Error| Problem::Internal(format!("random numbers: {error}"));
        let (state, nonce) = (secret().map_err(random)?, secret().map_err(random)?);
        let verifier = PkceCodeVerifier::new(secret().map_err(random)?);
        let known = in_time(self.settings.timeout, self.known()).await?;
        let (url, state, nonce) = known
            .authorize_url(
                AuthenticationFlow::<CoreResponseType>::AuthorizationCode,
                move || CsrfToken::new(state),
                move || Nonce::new(nonce),
            )
            .add_scopes(self.settings.scopes.iter().cloned().map(Scope::new))
            .set_pkce_challenge(PkceCodeChallenge::from_code_verifier_sha256(&verifier))
            .url();
        let (state, nonce) = (state.into_secret(), nonce.secret().clone());
        Ok(Begun { url, state, nonce, verifier: verifier.into_secret() })
    }

    /// Whom the provider means by the code that a browser came back with.
    pub(crate) async fn person(&self, code: String, sign_in: SignIn) -> Result<Claimed, Problem> {
        let named = in_time(self.settings.timeout, self.named(code, sign_in)).await;
        if let Err(Failed::Provider(_)) = &named {
            // It may be another than it was.
            self.forget();
        }
        Ok(named?)
    }

    async fn named(&self, code: String, sign_in: SignIn) -> Result<Claimed, Failed> {
        let known = self.known().await?;
        let request = known.exchange_code(AuthorizationCode::new(code)).map_err(|error| told(&error))?;
        let http = |request| self.call(request);
        let answer = request.set_pkce_verifier(PkceCodeVerifier::new(sign_in.verifier)).request_async(&http).await;
        let answer = answer.map_err(|error| match error {
            RequestTokenError::ServerResponse(said) if *said.error() == CoreErrorResponseType::InvalidGrant => {
                Failed::Code
            }
            error => Failed::Provider(told(&error)),
        })?;
        let token = answer.id_token().ok_or_else(|| "it answers no ID token".to_owned())?;
        let nonce = Nonce::new(sign_in.nonce);
        let mut claims = token.claims(&verifier(&known), &nonce);
        if let Err(ClaimsVerificationError::SignatureVerification(SignatureVerificationError::NoMatchingKey)) = claims {
            self.forget();
            claims = token.claims(&verifier(&*self.known().await?), &nonce);
        }
        Ok(self.claimed(claims.map_err(|error| told(&error))?)?)
    }

    fn claimed(&self, claims: &IdTokenClaims<Claims, CoreGenderClaim>) -> Result<Claimed, String> {
        let subject = claims.subject().as_str();
        if subject.is_empty() || subject.len() > SUBJECT_MAX || subject.chars().any(char::is_control) {
            return Err(format!("it names nobody: a `sub` has 1 to {SUBJECT_MAX} characters that show"));
        }
        let names = [claims.preferred_username().map(|name| name.as_str()), claims.email().map(|email| email.as_str())];
        let names = names.into_iter().flatten().chain([subject]);
        // Of an address, what stands before the host.
        let short = |name: &str| name.split('@').next().unwrap_or_default().to_lowercase();
        let name = names.map(short).find(|name| is_name(name));
        let role = self.settings.role(claims.additional_claims());
        Ok(Claimed { issuer: claims.issuer().to_string(), subject: subject.to_owned(), name, role })
    }

    /// What is known of the provider; it is asked where that is nothing, or old. Whoever comes meanwhile waits.
    async fn known(&self) -> Result<Arc<Known>, String> {
        let mut known = self.known.lock().await;
        if let Some((known, until)) = &*known
            && Instant::now() < *until
        {
            return Ok(Arc::clone(known));
        }
        let fresh = Arc::new(self.ask().await?);
        *known = Some((Arc::clone(&fresh), Instant::now() + KNOWN_FOR));
        Ok(fresh)
    }

    /// Whoever has it just now asks anew, or has just done so.
    fn forget(&self) {
        if let Ok(mut known) = self.known.try_lock() {
            *known = None;
        }
    }

    async fn ask(&self) -> Result<Known, String> {
        let secret = self.settings.secret()?;
        let http = |request| self.call(request);
        let said = CoreProviderMetadata::discover_async(self.issuer.clone(), &http).await;
        let said = said.map_err(|error| told(&error))?;
        if said.token_endpoint().is_none() {
            return Err("it has no token endpoint".to_owned());
        }
        // A browser goes there, this server to the others.
        let url = said.authorization_endpoint().url();
        if !is_private(url) {
            return Err(format!("{url} is neither https nor on this machine"));
        }
        let methods = said.token_endpoint_auth_methods_supported().map_or(&[][..], Vec::as_slice);
        let takes = |method| methods.contains(&method);
        let by_body = takes(CoreClientAuthMethod::ClientSecretPost) && !takes(CoreClientAuthMethod::ClientSecretBasic);
        let id = ClientId::new(self.settings.client_id.clone());
        Ok(Known::from_provider_metadata(said, id, Some(ClientSecret::new(secret)))
            .set_auth_type(if by_body { AuthType::RequestBody } else { AuthType::BasicAuth })
            .set_redirect_uri(self.redirect.clone()))
    }

    async fn call(&self, request: HttpRequest) -> io::Result<HttpResponse> {
        // Also the addresses that the provider itself names.
        let url = Url::parse(&request.uri().to_string()).map_err(io::Error::other)?;
        if !is_private(&url) {
            return Err(io::Error::other(format!("{url} is neither https nor on this machine")));
        }
        let request = request.try_into().map_err(io::Error::other)?;
        let mut response = self.http.execute(request).await.map_err(io::Error::other)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(io::Error::other)? {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER_MAX {
                return Err(io::Error::other(format!("it answers more than {ANSWER_MAX} bytes")));
            }
        }
        let mut answer = HttpResponse::new(body);
        *answer.status_mut() = response.status();
        *answer.headers_mut() = mem::take(response.headers_mut());
        Ok(answer)
    }
}

impl Oidc {
    /// Read again whenever the provider is asked anew: it may be another one by then.
    fn secret(&self) -> Result<String, String> {
        let file = self.client_secret.display();
        let text = fs::read_to_string(&self.client_secret);
        let text = text.map_err(|error| format!("--oidc-client-secret-file: {file}: {error}"))?;
        match text.trim() {
            "" => Err(format!("--oidc-client-secret-file: {file} is empty; write the client's secret into it")),
            secret => Ok(secret.to_owned()),
        }
    }

    /// The highest role of the groups.
    fn role(&self, claims: &Claims) -> Result<Option<Role>, String> {
        let claim = &self.groups_claim;
        let groups = match claims.0.get(claim) {
            Some(Value::Array(groups)) => groups.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(group)) => vec![group.as_str()],
            _ => return Err(format!("The ID token of the provider has no groups in the claim `{claim}`.")),
        };
        let roles = self.roles.iter().filter(|(group, _)| groups.contains(&group.as_str()));
        Ok(roles.map(|(_, role)| *role).max())
    }
}

fn verifier(known: &Known) -> IdTokenVerifier<'_, CoreJsonWebKey> {
    known.id_token_verifier().set_allowed_algs(SIGNED_BY)
}

async fn in_time<T, E: From<String>>(limit: Duration, asked: impl Future<Output = Result<T, E>>) -> Result<T, Failed>
where
    Failed: From<E>,
{
    let late = |_| Failed::Provider(format!("it does not answer within {} s", limit.as_secs()));
    Ok(timeout(limit, asked).await.map_err(late)??)
}

/// Does nobody on the way read what is sent there?
fn is_private(url: &Url) -> bool {
    url.scheme() == "https" || url.scheme() == "http" && is_loopback(url)
}

/// An error with what caused it.
fn told(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings() -> Oidc {
        Oidc {
            issuer: "https://id.example".to_owned(),
            client_id: "tidegate".to_owned(),
            client_secret: PathBuf::from("/dev/null"),
            name: "ours".to_owned(),
            scopes: Vec::new(),
            groups_claim: "groups".to_owned(),
            roles: vec![("staff".to_owned(), Role::Viewer), ("ops".to_owned(), Role::Editor)],
            ca: None,
            timeout: Oidc::PATIENCE,
        }
    }

    #[test]
    fn the_highest_role_of_the_groups_counts() {
        let role = |groups: Value| settings().role(&Claims(Map::from_iter([("groups".to_owned(), groups)])));
        assert_eq!(role(json!(["staff", "ops", "others"])), Ok(Some(Role::Editor)));
        assert_eq!(role(json!("staff")), Ok(Some(Role::Viewer)));
        for nobody in [json!([]), json!(["Staff", "ops "]), json!([["staff"]])] {
            assert_eq!(role(nobody.clone()), Ok(None), "{nobody}");
        }
        for unread in [json!(null), json!({ "staff": true }), json!(7)] {
            assert!(role(unread.clone()).is_err_and(|why| why.contains("`groups`")), "{unread}");
        }
        assert!(settings().role(&Claims(Map::new())).is_err());
    }

    #[test]
    fn nothing_is_sent_where_others_read_it() {
        for (url, is) in [
            ("https://id.example", true),
            ("http://id.example", false),
            ("http://localhost:3000", true),
            ("http://127.0.0.1:3000/x", true),
            ("http://[::1]", true),
            ("http://[::ffff:127.0.0.1]", true),
            ("http://localhost.example", false),
            ("http://127.0.0.1@id.example", false),
            ("ftp://127.0.0.1", false),
        ] {
            assert_eq!(is_private(&Url::parse(url).expect("an address")), is, "{url}");
        }
    }
}
