//! `tidegate` without a command: what it is, and something to look at.

use tidegate_replay::{Options, demo, keys_for, text};

use crate::{
    output::{Ended, Failure, say},
    replay::{demo_policy, demo_report, look},
};

const WHAT_IT_IS: &str = "\
Tidegate is a rate limiter: one engine as a library, a server and a fleet.
The engine works today, and so does replaying access logs against a policy.
This is what the demo's policy does to an hour of made-up traffic:

";

const WHAT_TO_TRY: &str = "
Try next:
  tidegate replay access.log --policy policy.toml   what your policy does to your traffic
  tidegate policy check policy.toml                 whether a policy is right
  tidegate replay --help                            formats, options, examples
";

/// Clients to list.
const TOP: usize = 5;

pub(crate) fn run(no_color: bool) -> Result<Ended, Failure> {
    let policy = demo_policy()?;
    let options = Options { max_keys: keys_for(&policy, Some(0)), ..Options::default() };
    let report = demo_report(policy, &options, demo::DEFAULT_SEED, TOP)?;
    let page = [WHAT_IT_IS, &text(&report, &look(no_color)), WHAT_TO_TRY].concat();
    say(page.as_bytes()).map(|()| Ended::Well)
}
