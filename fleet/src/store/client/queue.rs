//! Queues of requests that wait for the same slot, and slots that are moving to another server.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use crate::{
    lock::lock,
    store::script::{decode::KeyReply, plan::SlotRequest},
};

/// Questions that go out together; and so many of them, as far as there are, are not such that a check waits for.
const TOGETHER: usize = 64;
const SHARE_OF_OTHERS: usize = 16;

/// How long a slot may be elsewhere before that counts as a failure; how long it is known that it was; and of how many slots.
const SETTLES_IN: Duration = Duration::from_secs(1);
const MOVING_FOR: Duration = Duration::from_secs(10);
const MOVING_MAX: usize = 1_024;

/// How long at least a question is sent again that lost the race for its key, or that reached a server which no longer has its
/// slot. A question whose caller waits longer is sent again for that time.
const TRIES_FOR: Duration = Duration::from_secs(1);

/// Nobody waits for what is asked in the background, so it is waited for longer.
pub(crate) const BACKGROUND: Duration = Duration::from_millis(50);

/// A question that waits for its turn.
pub(super) struct QueuedRequest {
    pub(super) question: SlotRequest,
    /// When it was answered in vain first.
    pub(super) since: Option<Instant>,
    pub(super) patience: Duration,
    /// Does a check wait for it?
    pub(super) is_urgent: bool,
    /// `None`: nobody waits, and it is asked all the same.
    pub(super) answer: Option<oneshot::Sender<Vec<KeyReply>>>,
}

impl QueuedRequest {
    /// Whoever has gone is not charged for.
    pub(super) fn is_wanted(&self) -> bool {
        self.answer.as_ref().is_none_or(|answer| !answer.is_closed())
    }

    pub(super) fn is_asked_again(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() < TRIES_FOR.max(self.patience)
    }

    /// Is its answer waited for, which is about this key?
    pub(super) fn is_of(&self, key: &str) -> bool {
        self.answer.is_some() && self.question.iter().any(|part| part.key == key)
    }
}

/// Who waits for the next question of a slot, and when the store answered one of it last, whatever it said, by this node's clock.
#[derive(Default)]
pub(super) struct SlotQueue {
    pub(super) urgent: VecDeque<QueuedRequest>,
    pub(super) others: VecDeque<QueuedRequest>,
    /// Wakes whoever lets them gather.
    pub(super) wake: Arc<Notify>,
    pub(super) heard_at: Arc<AtomicU64>,
}

impl SlotQueue {
    pub(super) fn push(&mut self, waiting: QueuedRequest) {
        self.queue_of(&waiting).push_back(waiting);
        if self.is_full() {
            self.wake.notify_one();
        }
    }

    pub(super) fn queue_of(&mut self, waiting: &QueuedRequest) -> &mut VecDeque<QueuedRequest> {
        if waiting.is_urgent { &mut self.urgent } else { &mut self.others }
    }

    /// Is it time to ask?
    pub(super) fn is_full(&self) -> bool {
        !self.urgent.is_empty() || self.others.len() >= TOGETHER
    }

    pub(super) fn hurry(&mut self, key: &str) {
        if let Some(place) = self.others.iter().position(|waiting| waiting.is_of(key))
            && let Some(waiting) = self.others.remove(place)
        {
            self.push(QueuedRequest { is_urgent: true, ..waiting });
        }
    }

    /// Those that go out together: first what checks wait for, but others have their share.
    pub(super) fn take(&mut self) -> Vec<QueuedRequest> {
        let of_others = self.others.len().min(TOGETHER - self.urgent.len().min(TOGETHER - SHARE_OF_OTHERS));
        let urgent = self.urgent.len().min(TOGETHER - of_others);
        self.urgent.drain(..urgent).chain(self.others.drain(..of_others)).filter(QueuedRequest::is_wanted).collect()
    }
}

/// Slots that servers said are elsewhere, and that no server has answered for since.
#[derive(Default)]
pub(super) struct MovingSlots {
    slots: Mutex<HashMap<String, Moved>>,
    /// Whether there are any: each script that is answered asks.
    are_any: AtomicBool,
}

/// When a slot was elsewhere first, and last.
struct Moved {
    first: Instant,
    last: Instant,
}

impl MovingSlots {
    /// Returns whether a slot, which is elsewhere once more, has been so for a second.
    pub(super) fn is_lasting(&self, name: &str) -> bool {
        let (mut slots, now) = (lock(&self.slots), Instant::now());
        let is_recent = |moved: &mut Moved| now.duration_since(moved.last) < MOVING_FOR;
        if let Some(moved) = slots.get_mut(name)
            && is_recent(moved)
        {
            moved.last = now;
            return now.duration_since(moved.first) >= SETTLES_IN;
        }
        if slots.len() >= MOVING_MAX {
            slots.retain(|_, moved| is_recent(moved));
        }
        if slots.len() < MOVING_MAX {
            slots.insert(name.to_owned(), Moved { first: now, last: now });
            self.are_any.store(true, Ordering::Relaxed);
        }
        false
    }

    pub(super) fn has_settled(&self, name: &str) {
        if self.are_any.load(Ordering::Relaxed) {
            let mut slots = lock(&self.slots);
            slots.remove(name);
            self.are_any.store(!slots.is_empty(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::script::{
        plan::{Intent, KeyRequest},
        record::VersionedMeter,
    };

    fn waiting(key: usize, is_urgent: bool) -> (QueuedRequest, oneshot::Receiver<Vec<KeyReply>>) {
        let own = VersionedMeter { meter: "token_bucket/10/1000000000/10".parse().expect("a meter"), version: 1 };
        let (sender, answer) = oneshot::channel();
        let question = vec![KeyRequest::again(key.to_string(), own, Intent::Look(1), None)];
        (QueuedRequest { question, since: None, patience: BACKGROUND, is_urgent, answer: Some(sender) }, answer)
    }

    fn keys(batch: &[QueuedRequest]) -> Vec<&str> {
        batch.iter().map(|waiting| waiting.question[0].key.as_str()).collect()
    }

    #[test]
    fn what_checks_wait_for_goes_first_and_others_have_their_share() {
        let mut slot = SlotQueue::default();
        let asked: Vec<_> = (0..200).map(|key| waiting(key, key % 2 == 0)).collect();
        let (waiting, mut answers): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        for waiting in waiting {
            slot.push(waiting);
        }
        // A hundred of each: in three scripts those that are urgent are gone but few, and the others are not last.
        let urgent_of = |batch: &[QueuedRequest]| batch.iter().filter(|waiting| waiting.is_urgent).count();
        let (first, second) = (slot.take(), slot.take());
        assert_eq!((first.len(), urgent_of(&first), second.len(), urgent_of(&second)), (64, 48, 64, 48));
        assert_eq!(keys(&first)[..2], ["0", "2"], "in their order");
        // Whoever has gone is not asked for.
        answers.clear();
        assert!(slot.is_full() && slot.take().is_empty());
        assert!(slot.urgent.is_empty() && slot.others.len() == 100 - 16 - 16 - 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_lasts_elsewhere_if_it_is_said_again_and_no_server_answers() {
        let (moving, second) = (MovingSlots::default(), Duration::from_secs(1));
        assert!(!moving.is_lasting("a"));
        tokio::time::advance(second).await;
        assert!(moving.is_lasting("a") && !moving.is_lasting("b"));
        moving.has_settled("a");
        assert!(!moving.is_lasting("a"), "it moves again");
        // The caller of the other one had left, so nothing shows that it settled.
        tokio::time::advance(20 * second).await;
        assert!(!moving.is_lasting("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_is_sent_again_for_as_long_as_its_caller_waits() {
        let ten_seconds = Duration::from_secs(10);
        for (patience, almost) in
            [(BACKGROUND, Duration::from_millis(999)), (ten_seconds, Duration::from_millis(9_999))]
        {
            let (question, _answer) = waiting(0, true);
            let mut question = QueuedRequest { patience, ..question };
            assert!(question.is_asked_again());
            tokio::time::advance(almost).await;
            assert!(question.is_asked_again(), "after {almost:?}");
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(!question.is_asked_again(), "a millisecond later");
        }
    }

    #[test]
    fn a_question_that_a_check_comes_to_wait_for_is_hurried() {
        let mut slot = SlotQueue::default();
        let (waiting, _answers): (Vec<_>, Vec<_>) = (0..3).map(|key| waiting(key, false)).unzip();
        for waiting in waiting {
            slot.push(waiting);
        }
        assert!(!slot.is_full());
        slot.hurry("1");
        slot.hurry("nobody's");
        assert!(slot.is_full());
        assert_eq!(keys(&slot.take()), ["1", "0", "2"], "and the others with it");
    }
}
