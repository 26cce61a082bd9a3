//! The settings of the identity provider by which users may sign in to the dashboard.

use std::path::PathBuf;

use clap::Args;
use tidegate_admin::{Oidc, Role};

use crate::output::CommandError;

#[derive(Debug, Args)]
#[expect(clippy::struct_field_names, reason = "they are the names of the flags")]
#[command(next_help_heading = "Sign-in by a provider (OpenID Connect)")]
pub(crate) struct OidcArguments {
    /// The URL of an identity provider by which users may sign in, exactly as `issuer` in
    /// ISSUER/.well-known/openid-configuration. Register the redirect URL /api/v1/session/oidc/callback below --admin-url there.
    #[arg(long, value_name = "URL", env = "TIDEGATE_OIDC_ISSUER")]
    oidc_issuer: Option<String>,
    /// The client ID of this server at the provider.
    #[arg(long, value_name = "ID", env = "TIDEGATE_OIDC_CLIENT_ID")]
    oidc_client_id: Option<String>,
    /// The file with the client secret.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_OIDC_CLIENT_SECRET_FILE")]
    oidc_client_secret_file: Option<PathBuf>,
    /// A group at the provider, and the role of its members: viewer, operator, editor or admin. Repeat the option for several; in
    /// the variable, separate them by `;`. A user in several groups gets the highest role.
    #[arg(long, value_name = "GROUP=ROLE", env = "TIDEGATE_OIDC_ROLE", value_delimiter = ';', value_parser = group_role)]
    oidc_role: Vec<(String, Role)>,
    /// The claim of the ID token with the groups: a list of strings, or a string.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_OIDC_GROUPS_CLAIM", default_value = "groups")]
    oidc_groups_claim: String,
    /// The scopes to request besides `openid`, separated by spaces.
    #[arg(long, value_name = "SCOPES", env = "TIDEGATE_OIDC_SCOPES", default_value = "profile email")]
    oidc_scopes: String,
    /// The name of the provider on the button of the sign-in page.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_OIDC_NAME", default_value = "single sign-on")]
    oidc_name: String,
    /// Certificates of authorities to trust for the provider, in addition to those of the system; a PEM file.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_OIDC_CA")]
    oidc_ca: Option<PathBuf>,
}

impl OidcArguments {
    /// Returns the settings. Options that need each other may come from several places, so they are checked here.
    pub(crate) fn settings(&self) -> Result<Option<Oidc>, CommandError> {
        let alone = [
            ("--oidc-client-id", self.oidc_client_id.is_some()),
            ("--oidc-client-secret-file", self.oidc_client_secret_file.is_some()),
            ("--oidc-role", !self.oidc_role.is_empty()),
            ("--oidc-ca", self.oidc_ca.is_some()),
        ];
        let Some(issuer) = self.oidc_issuer.clone() else {
            return match alone.iter().find(|(_, is_given)| *is_given) {
                Some((flag, _)) => Err(CommandError(format!("{flag} needs --oidc-issuer: the URL of the provider"))),
                None => Ok(None),
            };
        };
        let needs = |flag, what| CommandError(format!("--oidc-issuer needs {flag}: {what}"));
        Ok(Some(Oidc {
            issuer,
            client_id: self
                .oidc_client_id
                .clone()
                .ok_or_else(|| needs("--oidc-client-id", "the ID of this server at the provider"))?,
            client_secret: self
                .oidc_client_secret_file
                .clone()
                .ok_or_else(|| needs("--oidc-client-secret-file", "a file with the secret for that ID"))?,
            name: self.oidc_name.clone(),
            scopes: self.oidc_scopes.split_whitespace().map(str::to_owned).collect(),
            groups_claim: self.oidc_groups_claim.clone(),
            roles: self.oidc_role.clone(),
            ca: self.oidc_ca.clone(),
            timeout: Oidc::PATIENCE,
        }))
    }
}

/// Parses a group and a role. The name of a group may have an `=`, as in LDAP.
fn group_role(text: &str) -> Result<(String, Role), String> {
    let (group, role) = text
        .rsplit_once('=')
        .filter(|(group, _)| !group.is_empty())
        .ok_or("write GROUP=ROLE, such as platform=operator")?;
    Ok((group.to_owned(), role.parse().map_err(|error: tidegate_admin::UnknownRole| error.to_string())?))
}
