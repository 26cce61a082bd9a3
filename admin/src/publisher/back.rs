//! The ways back: to an older version, without a version's own changes, and from one that went to some nodes first.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate::{Problems, policy::Policy};
use tokio::task::spawn_blocking;

use super::{Author, Publisher, Words, parse_stored};
use crate::{
    changes::{Edited, MESSAGE_BYTES_MAX, MESSAGE_PATTERN, conflict, one_stays, still_wanted},
    differences::{Changed, changed, undo},
    overrides,
    problem::Problem,
    published::Published,
    rollout::{Goes, Staged, none_open},
};

/// What is taken back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollBack {
    /// The version to go back to, or to undo.
    #[schemars(range(min = 1))]
    to: u64,
    #[serde(default)]
    mode: Mode,
    /// Of the version that this makes.
    #[schemars(length(min = 1, max = MESSAGE_BYTES_MAX), regex(pattern = MESSAGE_PATTERN))]
    message: Option<String>,
    /// Publish what a node that is connected cannot read: it keeps the policy that it has.
    #[serde(default)]
    force: bool,
    /// The nodes that it goes to first, by their names; all unless given.
    nodes: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "RollBackMode")]
enum Mode {
    /// All is as in version `to`.
    #[default]
    Whole,
    /// What version `to` changed is as before it; what others changed since stays.
    Own,
}

impl Publisher {
    /// Publishes the policy of an older version again, or the present one without a version's own changes; answers as
    /// [`publish`](Self::publish), and is to be run like that.
    pub(crate) async fn roll_back(
        &self,
        back: RollBack,
        if_match: Option<String>,
        author: Author,
    ) -> Result<String, Problem> {
        let Some(if_match) = if_match else { return Err(Problem::PreconditionRequired(vec!["policy".to_owned()])) };
        let message = back.message.unwrap_or_else(|| match back.mode {
            Mode::Whole => format!("back to version {}", back.to),
            Mode::Own => format!("without the changes of version {}", back.to),
        });
        let words = Words { force: back.force, ..Words::new(&message, self.published().version.version)? };
        let words = words.doing("policy.rollback").going(Goes::to(back.nodes));
        let document = async |version: u64| {
            let found = self
                .store
                .version(version)
                .await?
                .ok_or_else(|| Problem::field("/to", format!("no version {version} was published")))?;
            let parsed = spawn_blocking(move || parse_stored(&found.1)).await;
            parsed.map_err(|error| Problem::Internal(error.to_string()))?
        };
        // What had ended went with the version after it, and was nobody's change.
        let now = jiff::Timestamp::now();
        let mut of = document(back.to).await?;
        overrides::end(&mut of, now);
        let before = match (back.mode, back.to) {
            (Mode::Whole, _) => None,
            (Mode::Own, 0 | 1) => {
                return Err(Problem::field(
                    "/to",
                    "there is nothing before the first version; undo what came after it instead",
                ));
            }
            (Mode::Own, to) => {
                let mut before = document(to - 1).await?;
                overrides::end(&mut before, now);
                Some(before)
            }
        };
        let edit = move |present: &Published| {
            if if_match != present.policy_etag() {
                return Err(Problem::Conflict(vec![present.as_conflict()]));
            }
            let mut of_now = present.policy.clone();
            overrides::end(&mut of_now, now);
            let policy = match &before {
                None => of,
                Some(before) => undo(before, &of, &of_now)
                    .map_err(|keys| Problem::Conflict(keys.iter().map(|key| conflict(present, key)).collect()))?,
            };
            if changed(&of_now, &policy).is_none() {
                return Err(Problem::field("/to", "everything is like this already; nothing to publish"));
            }
            let Changed { touched, removed } = changed(&present.policy, &policy);
            still_wanted(&policy, &removed)?;
            if before.is_some() {
                // An older document is whole as it is.
                one_stays(&policy, &removed)?;
            }
            Ok(Edited { policy, touched, removed, report: None })
        };
        // What this build's compiler does not take of an older version.
        let refused = |problems: &Problems, _: &Policy| Problem::field("/to", problems.to_string());
        self.publish_edited(author, words, edit, refused).await
    }

    /// Publishes the version that most nodes kept again, to all, instead of the newest, which went to some. Answers and is to be
    /// run as [`publish`](Self::publish).
    pub(crate) async fn take_back(&self, force: bool, author: Author) -> Result<String, Problem> {
        self.catch_up().await?;
        let targets = self.targets();
        let Some(Staged { rollout, kept }) = targets.staged.clone() else { return Err(none_open()) };
        let message = format!("back to version {}, instead of version {}", rollout.keeps, rollout.version);
        let words = Words { force, ..Words::new(&message, rollout.version)?.doing("rollout.back").going(Goes::Back) };
        let edit = move |present: &Published| {
            present.is_still(Some(&Published::etag_of(rollout.version)))?;
            let policy = kept.policy.clone();
            let Changed { touched, removed } = changed(&present.policy, &policy);
            Ok(Edited { policy, touched, removed, report: None })
        };
        let refused = |problems: &Problems, _: &Policy| Problem::field("/to", problems.to_string());
        self.publish_edited(author, words, edit, refused).await
    }
}
