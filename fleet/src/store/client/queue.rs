//! Queues of requests that wait for the same slot, and the slots that are moving to another server.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tidegate::time::Nanos;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use crate::{
    lock::lock,
    store::script::{decode::KeyReply, plan::SlotRequest},
};

/// The most requests of one script, and how many of these are reserved for requests that no check waits for.
const TOGETHER: usize = 64;
const SHARE_OF_OTHERS: usize = 16;

/// The time for which a slot may be elsewhere before that counts as a failure, the time for which it is remembered, and
/// the most slots that are.
const SETTLES_IN: Duration = Duration::from_secs(1);
const MOVING_FOR: Duration = Duration::from_secs(10);
const MOVING_MAX: usize = 1_024;

/// The least time for which a request is sent again that lost the race for its key, or that reached a server which no
/// longer has its slot. A request whose caller waits longer is sent again for that time.
const TRIES_FOR: Duration = Duration::from_secs(1);

/// The least time for which a background request is awaited: longer than a check, since no check waits for it.
pub(crate) const BACKGROUND: Duration = Duration::from_millis(50);

pub(super) struct QueuedRequest {
    pub(super) slot_request: SlotRequest,
    /// The time at which the request was first answered in vain.
    pub(super) since: Option<Instant>,
    pub(super) patience: Duration,
    /// Whether a check waits for the reply.
    pub(super) is_urgent: bool,
    /// The sender of the reply; `None`: no caller waits, and the request is sent all the same.
    pub(super) answer: Option<oneshot::Sender<Vec<KeyReply>>>,
}

impl QueuedRequest {
    /// Returns whether the request is still wanted: one whose caller has given up must not be charged.
    pub(super) fn is_wanted(&self) -> bool {
        self.answer.as_ref().is_none_or(|answer| !answer.is_closed())
    }

    pub(super) fn is_asked_again(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() < TRIES_FOR.max(self.patience)
    }

    /// Returns whether the request is about this key and a caller waits for the reply.
    pub(super) fn is_of(&self, key: &str) -> bool {
        self.answer.is_some() && self.slot_request.iter().any(|request| request.key == key)
    }
}

/// The pending reply to a request in a queue.
pub(crate) struct PendingReply {
    pub(super) answer: oneshot::Receiver<Vec<KeyReply>>,
    pub(super) at: Nanos,
    pub(super) heard_at: Arc<AtomicU64>,
}

impl PendingReply {
    /// Returns for how long the store has been silent: since the request was queued, or since its slot last had an
    /// answer. The request may wait behind others.
    pub(super) fn silent_for(&self, now: Nanos) -> Duration {
        Duration::from_nanos(now.saturating_sub(self.at.max(self.heard_at.load(Ordering::Relaxed))))
    }

    /// Returns whether its slot has had an answer since the request was queued, within this time.
    pub(super) fn is_within(&self, time: Duration, now: Nanos) -> bool {
        self.heard_at.load(Ordering::Relaxed) > self.at && self.silent_for(now) < time
    }
}

/// The requests that wait for the next script of a slot, and when the store last answered for the slot, by this node's
/// clock.
#[derive(Default)]
pub(super) struct SlotQueue {
    pub(super) urgent: VecDeque<QueuedRequest>,
    pub(super) others: VecDeque<QueuedRequest>,
    /// Wakes the task that lets requests gather.
    pub(super) wake: Arc<Notify>,
    pub(super) heard_at: Arc<AtomicU64>,
}

impl SlotQueue {
    pub(super) fn push(&mut self, queued: QueuedRequest) {
        self.queue_of(&queued).push_back(queued);
        if self.is_full() {
            self.wake.notify_one();
        }
    }

    pub(super) fn queue_of(&mut self, queued: &QueuedRequest) -> &mut VecDeque<QueuedRequest> {
        if queued.is_urgent { &mut self.urgent } else { &mut self.others }
    }

    /// Returns whether it is time to send.
    pub(super) fn is_full(&self) -> bool {
        !self.urgent.is_empty() || self.others.len() >= TOGETHER
    }

    pub(super) fn hurry(&mut self, key: &str) {
        if let Some(place) = self.others.iter().position(|queued| queued.is_of(key))
            && let Some(queued) = self.others.remove(place)
        {
            self.push(QueuedRequest { is_urgent: true, ..queued });
        }
    }

    /// Takes the requests of the next script: urgent ones first, but others have their share.
    pub(super) fn take(&mut self) -> Vec<QueuedRequest> {
        let of_others = self.others.len().min(TOGETHER - self.urgent.len().min(TOGETHER - SHARE_OF_OTHERS));
        let urgent = self.urgent.len().min(TOGETHER - of_others);
        self.urgent.drain(..urgent).chain(self.others.drain(..of_others)).filter(QueuedRequest::is_wanted).collect()
    }
}

/// Slots that a server reported as moved, and that no server has answered for since.
#[derive(Default)]
pub(super) struct MovingSlots {
    slots: Mutex<HashMap<String, Moved>>,
    /// Whether there are any; read after each script.
    are_any: AtomicBool,
}

/// The times at which a slot was first and last reported as moved.
struct Moved {
    first: Instant,
    last: Instant,
}

impl MovingSlots {
    /// Records that a slot was reported as moved. Returns whether that has gone on for a second.
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

    fn queued(key: usize, is_urgent: bool) -> (QueuedRequest, oneshot::Receiver<Vec<KeyReply>>) {
        let own = VersionedMeter { meter: "token_bucket/10/1000000000/10".parse().expect("a meter"), version: 1 };
        let (sender, answer) = oneshot::channel();
        let slot_request = vec![KeyRequest::again(key.to_string(), own, Intent::Look(1), None)];
        (QueuedRequest { slot_request, since: None, patience: BACKGROUND, is_urgent, answer: Some(sender) }, answer)
    }

    fn keys(batch: &[QueuedRequest]) -> Vec<&str> {
        batch.iter().map(|queued| queued.slot_request[0].key.as_str()).collect()
    }

    #[test]
    fn urgent_requests_go_first_and_others_have_their_share() {
        let mut slot = SlotQueue::default();
        let asked: Vec<_> = (0..200).map(|key| queued(key, key % 2 == 0)).collect();
        let (queued, mut answers): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        for queued in queued {
            slot.push(queued);
        }
        // A hundred of each: three scripts take nearly all urgent ones, and the others do not wait for the end.
        let urgent_of = |batch: &[QueuedRequest]| batch.iter().filter(|queued| queued.is_urgent).count();
        let (first, second) = (slot.take(), slot.take());
        assert_eq!((first.len(), urgent_of(&first), second.len(), urgent_of(&second)), (64, 48, 64, 48));
        assert_eq!(keys(&first)[..2], ["0", "2"], "in their order");
        // A request whose caller has given up is dropped.
        answers.clear();
        assert!(slot.is_full() && slot.take().is_empty());
        assert!(slot.urgent.is_empty() && slot.others.len() == 100 - 16 - 16 - 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_moves_for_a_second_without_an_answer_is_lasting() {
        let (moving, second) = (MovingSlots::default(), Duration::from_secs(1));
        assert!(!moving.is_lasting("a"));
        tokio::time::advance(second).await;
        assert!(moving.is_lasting("a") && !moving.is_lasting("b"));
        moving.has_settled("a");
        assert!(!moving.is_lasting("a"), "it moves again");
        // The caller for the other slot had given up, so nothing shows that the slot settled.
        tokio::time::advance(20 * second).await;
        assert!(!moving.is_lasting("b"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_sent_again_for_as_long_as_its_caller_waits() {
        let ten_seconds = Duration::from_secs(10);
        for (patience, almost) in
            [(BACKGROUND, Duration::from_millis(999)), (ten_seconds, Duration::from_millis(9_999))]
        {
            let (request, _answer) = queued(0, true);
            let mut request = QueuedRequest { patience, ..request };
            assert!(request.is_asked_again());
            tokio::time::advance(almost).await;
            assert!(request.is_asked_again(), "after {almost:?}");
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(!request.is_asked_again(), "a millisecond later");
        }
    }

    #[test]
    fn a_request_that_a_check_comes_to_wait_for_becomes_urgent() {
        let mut slot = SlotQueue::default();
        let (queued, _answers): (Vec<_>, Vec<_>) = (0..3).map(|key| queued(key, false)).unzip();
        for queued in queued {
            slot.push(queued);
        }
        assert!(!slot.is_full());
        slot.hurry("1");
        slot.hurry("another");
        assert!(slot.is_full());
        assert_eq!(keys(&slot.take()), ["1", "0", "2"], "and the others with it");
    }
}
