//! The second factor of one's own sign-in: an authenticator app, and recovery codes for when it is lost.

use actix_web::web::{Data, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    auth::totp,
    base::{
        secrets::{instant, now},
        sha256::sha256,
    },
    domain::{error::Problem, roles::Person},
    http::{
        extract::body::Body,
        guard::By,
        openapi::{Api, NoContent},
        problem::Code,
        routes::session::{check_password, random},
        state::State,
    },
    store::second_factors::NewFactor,
};

/// The action of its lines in the audit log.
pub(super) const ACTION: &str = "user.second_factor";

pub(super) fn calls(api: &mut Api) {
    api.get("/me/second-factor", show).says("One's second factor", "");
    api.post("/me/second-factor", begin)
        .says(
            "Begin to set an authenticator app up",
            "Takes one's password, and answers a secret for the app, which takes the place of another that was begun. Codes are \
             asked for once the app has shown one; an app that is in use stays so until then.",
        )
        .example(json!({ "password": "a few words of mine" }))
        .refuses(&[Code::ByProvider, Code::TooMany]);
    api.put("/me/second-factor", confirm)
        .says(
            "Set an authenticator app up",
            "Takes a code of the app that was begun. From then on every sign-in by a password takes a code. Answers new recovery \
             codes, of which each takes the place of a code once; those of before are none any more.",
        )
        .example(json!({ "code": "123456" }))
        .refuses(&[Code::NotFound, Code::TooMany]);
    api.post("/me/second-factor/remove", remove)
        .says("Remove one's second factor", "Takes one's password. Recovery codes end too.")
        .example(json!({ "password": "a few words of mine" }))
        .refuses(&[Code::NotFound, Code::ByProvider, Code::TooMany]);
}

/// Whether a sign-in by a password takes a code.
#[derive(Serialize, JsonSchema)]
struct SecondFactor {
    /// Since when it does; `null`: it does not.
    #[schemars(extend("format" = "date-time"))]
    made_at: Option<String>,
    /// Recovery codes that were not used yet.
    recovery_codes: i64,
}

async fn show(by: By<Person>, state: Data<State>) -> Result<Json<SecondFactor>, Problem> {
    let factor = state.store.second_factor(by.session()?.user).await?;
    let recovery_codes = factor.map_or(0, |(_, codes)| codes);
    Ok(Json(SecondFactor { made_at: factor.map(|(made_at, _)| instant(made_at)), recovery_codes }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PresentPassword {
    password: String,
}

/// What an authenticator app takes over.
#[derive(Serialize, JsonSchema)]
struct AppSecret {
    /// Base32, to be typed.
    secret: String,
    /// An `otpauth` address, to be drawn as a QR code.
    uri: String,
}

async fn begin(by: By<Person>, state: Data<State>, body: Body<PresentPassword>) -> Result<Json<AppSecret>, Problem> {
    let user = check_password(&by, &state, body.value.password, "/password", ACTION).await?;
    let secret = totp::secret().map_err(random)?;
    state.store.begin_second_factor(user.id, &secret).await?;
    let uri = totp::uri(&secret, &by.name, state.environment.as_deref());
    Ok(Json(AppSecret { secret: totp::base32(&secret), uri }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AppCode {
    /// What the app shows now.
    code: String,
}

/// Codes of which each takes the place of one of the app, once.
#[derive(Serialize, JsonSchema)]
struct RecoveryCodes {
    /// Shown this once.
    recovery_codes: Vec<String>,
}

async fn confirm(by: By<Person>, state: Data<State>, body: Body<AppCode>) -> Result<Json<RecoveryCodes>, Problem> {
    let session = by.session()?;
    state.tries.count_known(&by.name, &session.token_sha256)?;
    let secret = state.store.begun_second_factor(session.user).await?.ok_or_else(nothing_begun)?;
    let step = totp::step_of(&secret, &totp::plain(&body.value.code), 0, now());
    let step =
        step.ok_or_else(|| Problem::field("/code", "this is not what the app shows now; see that its clock is right"))?;
    let recovery_codes = totp::recovery_codes().map_err(random)?;
    let recovery_sha256: Vec<String> = recovery_codes.iter().map(|code| sha256(totp::plain(code))).collect();
    let new = NewFactor { secret: &secret, step, recovery_sha256: &recovery_sha256, made_at: now() };
    let object = format!("user:{}", by.name);
    if !state.store.set_second_factor(session.user, new, by.did(ACTION, &object, "done: set up")).await? {
        return Err(nothing_begun());
    }
    Ok(Json(RecoveryCodes { recovery_codes }))
}

async fn remove(by: By<Person>, state: Data<State>, body: Body<PresentPassword>) -> Result<NoContent, Problem> {
    let user = check_password(&by, &state, body.value.password, "/password", ACTION).await?;
    let object = format!("user:{}", by.name);
    if state.store.remove_second_factor(user.id, by.did(ACTION, &object, "done: removed")).await? {
        Ok(NoContent)
    } else {
        Err(Problem::NotFound("You have no second factor.".to_owned()))
    }
}

fn nothing_begun() -> Problem {
    Problem::NotFound("No app was begun, or another one was begun meanwhile: begin again.".to_owned())
}
