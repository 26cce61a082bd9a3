//! The ways back: to an older version, without a version's own changes, and from one that went to some nodes first.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate::{
    Problems,
    policy::{Difference, Policy, differences},
};
use tokio::task::spawn_blocking;

use crate::{
    domain::{
        change_impact::Effects,
        change_list::{MESSAGE_BYTES_MAX, MESSAGE_PATTERN, conflict, one_stays, still_wanted},
        diff::{Changed, changed},
        edited_policy::Edited,
        error::Problem,
        overrides,
        published::Published,
        revert::{Choice, Clash, FieldKey, undo},
        rollout::{Goes, Staged, Targets, none_open},
        version::Rollout,
    },
    publish::publisher::{Author, Publisher, Words, parse_stored, try_next},
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
    /// Where later versions changed the same field again: what holds. A dry run names these fields.
    #[serde(default)]
    choices: Vec<Choice>,
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
    /// What version `to` changed is as before it, field by field; what others changed since stays.
    Own,
}

/// A way back that was only tried.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RollBackTried")]
pub(crate) struct TriedBack {
    /// The version that it would be made on.
    version: u64,
    /// What would be otherwise; nothing: there is nothing to publish.
    differences: Vec<Difference>,
    /// Fields that later versions changed again: a rollback says in `choices` what holds.
    clashes: Vec<Clash>,
    #[serde(flatten)]
    effects: Effects,
}

/// A way back, whatever the policy is that it is gone from.
struct Way {
    /// The policy of the version to go back to, or to undo.
    of: Policy,
    /// Where one is undone: the policy before it.
    before: Option<Policy>,
    choices: Vec<Choice>,
    /// Overrides that have ended by then are no difference: they went with the version after, and were nobody's change.
    at: Timestamp,
}

/// Where a way back leads.
struct Led {
    /// The present policy without what has ended.
    from: Policy,
    to: Policy,
    clashes: Vec<Clash>,
}

impl Way {
    fn lead(&self, present: &Published) -> Result<Led, Problem> {
        let mut from = present.policy.clone();
        overrides::end(&mut from, self.at);
        let (to, clashes) = match &self.before {
            None => (self.of.clone(), Vec::new()),
            Some(before) => {
                let undone = undo(before, &self.of, &from, &self.choices)
                    .map_err(|keys| Problem::Conflict(keys.iter().map(|key| conflict(present, key)).collect()))?;
                (undone.policy, undone.clashes)
            }
        };
        let clashing: BTreeSet<&FieldKey> = clashes.iter().map(|clash: &Clash| &clash.at).collect();
        let is_idle = |choice: &Choice| !clashing.contains(&choice.at);
        match self.choices.iter().position(is_idle) {
            None => Ok(Led { from, to, clashes }),
            Some(number) => {
                Err(Problem::field(format!("/choices/{number}"), "no later version changed this field again"))
            }
        }
    }

    /// The edit that it is.
    fn edit(&self, present: &Published) -> Result<Edited, Problem> {
        let Led { from, to: policy, clashes } = self.lead(present)?;
        let mut open: Vec<_> = clashes.iter().filter(|clash| clash.take.is_none()).map(Clash::object).collect();
        open.dedup();
        if !open.is_empty() {
            return Err(Problem::Conflict(open.iter().map(|key| conflict(present, key)).collect()));
        }
        if changed(&from, &policy).is_none() {
            return Err(Problem::field("/to", "everything is like this already; nothing to publish"));
        }
        let Changed { touched, removed } = changed(&present.policy, &policy);
        still_wanted(&policy, &removed)?;
        if self.before.is_some() {
            // An older document is whole as it is.
            one_stays(&policy, &removed)?;
        }
        Ok(Edited { policy, touched, removed, report: None })
    }
}

/// What this build's compiler does not take of an older version.
fn refused(problems: &Problems, _: &Policy) -> Problem {
    Problem::field("/to", problems.to_string())
}

impl RollBack {
    fn words(&self, base_version: u64) -> Result<Words, Problem> {
        let message = self.message.clone().unwrap_or_else(|| match self.mode {
            Mode::Whole => format!("back to version {}", self.to),
            Mode::Own => format!("without the changes of version {}", self.to),
        });
        let words = Words { force: self.force, ..Words::new(&message, base_version)? };
        Ok(words.doing("policy.rollback").going(Goes::to(self.nodes.clone())))
    }
}

impl Publisher {
    async fn way(&self, back: RollBack) -> Result<Way, Problem> {
        let RollBack { to, mode, choices, .. } = back;
        let at = Timestamp::now();
        let document = async |version: u64| {
            let found = self
                .store
                .version(version)
                .await?
                .ok_or_else(|| Problem::field("/to", format!("no version {version} was published")))?;
            let parsed = spawn_blocking(move || {
                let mut policy = parse_stored(&found.1)?;
                overrides::end(&mut policy, at);
                Ok::<_, Problem>((policy, found.0.follows))
            });
            parsed.await.map_err(|error| Problem::Internal(error.to_string()))?
        };
        let (of, follows) = document(to).await?;
        let before = match (mode, to) {
            (Mode::Whole, _) => None,
            (Mode::Own, 0 | 1) => {
                return Err(Problem::field(
                    "/to",
                    "there is nothing before the first version; undo what came after it instead",
                ));
            }
            (Mode::Own, _) => Some(document(follows).await?.0),
        };
        let choices = choices.into_iter().map(Choice::placed).collect();
        Ok(Way { of, before, choices, at })
    }

    /// What a way back would make of the newest policy. Refuses what [`roll_back`](Self::roll_back) would refuse, but for
    /// names of nodes and what they can read, and unless there is something to choose yet.
    pub(crate) async fn try_back(self: &Arc<Self>, back: RollBack) -> Result<TriedBack, Problem> {
        // What another server published a moment ago is there too.
        self.catch_up().await?;
        let (present, engine) = (self.published(), self.engine());
        let version = present.version.version;
        let words = back.words(version)?;
        let way = self.way(back).await?;
        let tried = spawn_blocking(move || {
            let Led { from, to, clashes } = way.lead(&present)?;
            let (differences, effects) = (differences(&from, &to), Effects::between(&present, &to));
            if !differences.is_empty() && clashes.iter().all(|clash| clash.take.is_some()) {
                try_next(&present, &words, way.edit(&present)?, &engine, &refused)?;
            }
            Ok(TriedBack { version, differences, clashes, effects })
        });
        tried.await.map_err(|error| Problem::Internal(error.to_string()))?
    }

    /// Publishes the policy of an older version again, or the present one without a version's own changes; answers as
    /// [`publish`](Self::publish), and is to be run like that.
    pub(crate) async fn roll_back(
        &self,
        back: RollBack,
        if_match: Option<String>,
        author: Author,
    ) -> Result<String, Problem> {
        let Some(if_match) = if_match else { return Err(Problem::PreconditionRequired(vec!["policy".to_owned()])) };
        let words = back.words(self.published().version.version)?;
        let way = self.way(back).await?;
        let edit = move |present: &Published| {
            if if_match != present.policy_etag() {
                return Err(Problem::Conflict(vec![present.as_conflict()]));
            }
            way.edit(present)
        };
        self.publish_edited(author, words, edit, refused).await
    }

    /// Publishes the version that most nodes kept again, to all, instead of the newest, which went to some. Answers and is to be
    /// run as [`publish`](Self::publish).
    pub(crate) async fn take_back(&self, force: bool, author: Author) -> Result<String, Problem> {
        // What the others keep when its turn has come: it has the overrides that came meanwhile.
        let plan = |targets: &Targets| {
            let Some(Staged { rollout: Rollout { version, keeps, .. }, kept }) = targets.staged.clone() else {
                return Err(none_open());
            };
            let message = format!("back to version {keeps}, instead of version {version}");
            let words = Words { force, ..Words::new(&message, version)?.doing("rollout.back").going(Goes::Back) };
            let edit = move |present: &Published| {
                let policy = kept.policy.clone();
                let Changed { touched, removed } = changed(&present.policy, &policy);
                Ok::<_, Problem>(Edited { policy, touched, removed, report: None })
            };
            Ok((words, edit))
        };
        self.publish_planned(author, plan, refused).await
    }
}
