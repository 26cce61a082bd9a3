//! Settings of the provider by which people may sign in at the dashboard.

use std::path::PathBuf;

use clap::Args;
use tidegate_admin::{Oidc, Role};

use crate::output::Failure;

#[derive(Debug, Args)]
#[expect(clippy::struct_field_names, reason = "they are the names of the flags")]
#[command(next_help_heading = "Sign-in by a provider (OpenID Connect)")]
pub(crate) struct OidcArguments {
    /// A provider by which people may sign in: its address exactly as it writes it itself, in `issuer` at
    /// ISSUER/.well-known/openid-configuration. Browsers come back to /api/v1/session/oidc/callback below --admin-url.
    #[arg(long, value_name = "URL", env = "TIDEGATE_OIDC_ISSUER")]
    oidc_issuer: Option<String>,
    /// Name of this server at the provider.
    #[arg(long, value_name = "ID", env = "TIDEGATE_OIDC_CLIENT_ID")]
    oidc_client_id: Option<String>,
    /// File with the secret that goes with it.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_OIDC_CLIENT_SECRET_FILE")]
    oidc_client_secret_file: Option<PathBuf>,
    /// A group of the provider and the role of who is in it: viewer, operator, editor or admin. May be given several times (in
    /// the variable with `;` between); who is in several groups has the highest.
    #[arg(long, value_name = "GROUP=ROLE", env = "TIDEGATE_OIDC_ROLE", value_delimiter = ';', value_parser = group_role)]
    oidc_role: Vec<(String, Role)>,
    /// The claim of the ID token that has the groups: a list of texts, or a text.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_OIDC_GROUPS_CLAIM", default_value = "groups")]
    oidc_groups_claim: String,
    /// What the provider is asked for beside `openid`, with spaces between.
    #[arg(long, value_name = "SCOPES", env = "TIDEGATE_OIDC_SCOPES", default_value = "profile email")]
    oidc_scopes: String,
    /// What the button of the sign-in page says.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_OIDC_NAME", default_value = "single sign-on")]
    oidc_name: String,
    /// Certificates of authorities by which the provider is known, beside those that this machine trusts; PEM.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_OIDC_CA")]
    oidc_ca: Option<PathBuf>,
}

impl OidcArguments {
    /// They may come from several places, so what goes with what is looked at when all are there.
    pub(crate) fn settings(&self) -> Result<Option<Oidc>, Failure> {
        let alone = [
            ("--oidc-client-id", self.oidc_client_id.is_some()),
            ("--oidc-client-secret-file", self.oidc_client_secret_file.is_some()),
            ("--oidc-role", !self.oidc_role.is_empty()),
            ("--oidc-ca", self.oidc_ca.is_some()),
        ];
        let Some(issuer) = self.oidc_issuer.clone() else {
            return match alone.iter().find(|(_, is_given)| *is_given) {
                Some((flag, _)) => Err(Failure(format!("{flag} needs --oidc-issuer: the provider that it is for"))),
                None => Ok(None),
            };
        };
        let needs = |flag, what| Failure(format!("--oidc-issuer needs {flag}: {what}"));
        Ok(Some(Oidc {
            issuer,
            client_id: self
                .oidc_client_id
                .clone()
                .ok_or_else(|| needs("--oidc-client-id", "what it knows this server by"))?,
            client_secret: self
                .oidc_client_secret_file
                .clone()
                .ok_or_else(|| needs("--oidc-client-secret-file", "a file with the secret of that"))?,
            name: self.oidc_name.clone(),
            scopes: self.oidc_scopes.split_whitespace().map(str::to_owned).collect(),
            groups_claim: self.oidc_groups_claim.clone(),
            roles: self.oidc_role.clone(),
            ca: self.oidc_ca.clone(),
            timeout: Oidc::PATIENCE,
        }))
    }
}

/// The group may have an `=` itself, as names of directories do.
fn group_role(text: &str) -> Result<(String, Role), String> {
    let (group, role) = text.rsplit_once('=').filter(|(group, _)| !group.is_empty()).ok_or("write GROUP=ROLE")?;
    Ok((group.to_owned(), role.parse().map_err(|error: tidegate_admin::UnknownRole| error.to_string())?))
}
