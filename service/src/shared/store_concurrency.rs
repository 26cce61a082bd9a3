//! Bounds how many checks query the store of shared limits at the same time, in all and for each peer.
//!
//! The store answers one query after the other, and a check waits some milliseconds for it. Without a bound, one peer
//! sends so many queries that the answers to others come too late; then the store counts as silent, and each node
//! decides shared limits alone. A check that waits for a place has sent no query yet: its time for an answer begins
//! when it has a place, so that wait is no silence of the store.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tidegate_listener::PeerNetwork;
use tokio::sync::Semaphore;

/// The places for checks. A store that answers 25,000 queries a second answers this many in 2.6 ms; a check waits 5 ms.
const PLACES: usize = 64;
/// The most places of one peer. With 64, a peer on 16 connections made the store count as silent on a machine with two
/// processors.
const PEER_PLACES: usize = 16;

/// A bounded number of places at the store, with a share for each peer. Further checks of a peer wait for its own
/// places first, and then in one queue with the checks of other peers.
#[derive(Debug)]
pub(crate) struct StoreConcurrency {
    all: Semaphore,
    /// The places of each peer that has a check that waits or has a place.
    peers: Mutex<HashMap<PeerNetwork, PeerPlaces>>,
}

/// The places of a peer, and how many of its checks wait or have a place.
#[derive(Debug)]
struct PeerPlaces {
    semaphore: Arc<Semaphore>,
    checks: usize,
}

impl Default for StoreConcurrency {
    fn default() -> Self {
        Self { all: Semaphore::new(PLACES), peers: Mutex::default() }
    }
}

impl StoreConcurrency {
    /// Waits for a place for a check of this peer, runs its query, and gives the place back.
    pub(crate) async fn run<F: Future>(&self, peer: PeerNetwork, query: impl FnOnce() -> F) -> F::Output {
        let check = self.register(peer);
        // Errors: the semaphores are never closed.
        let _own = check.semaphore.acquire().await;
        let _place = self.all.acquire().await;
        query().await
    }

    fn register(&self, peer: PeerNetwork) -> RegisteredCheck<'_> {
        let mut peers = self.peers();
        let new = || PeerPlaces { semaphore: Arc::new(Semaphore::new(PEER_PLACES)), checks: 0 };
        let places = peers.entry(peer).or_insert_with(new);
        places.checks += 1;
        RegisteredCheck { concurrency: self, peer, semaphore: Arc::clone(&places.semaphore) }
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<PeerNetwork, PeerPlaces>> {
        // A poisoned lock is sound: nothing panics while it is held.
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A check that waits or has a place, until it is dropped.
struct RegisteredCheck<'p> {
    concurrency: &'p StoreConcurrency,
    peer: PeerNetwork,
    semaphore: Arc<Semaphore>,
}

/// Forgets the peer with its last check, so that a peer without checks takes no memory.
impl Drop for RegisteredCheck<'_> {
    fn drop(&mut self) {
        let mut peers = self.concurrency.peers();
        let Some(places) = peers.get_mut(&self.peer) else { return };
        places.checks -= 1;
        if places.checks == 0 {
            peers.remove(&self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::RefCell,
        net::IpAddr,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use futures_util::{FutureExt, future::join_all};
    use tokio::{sync::watch, task::yield_now};

    use super::*;

    fn peer(last: u8) -> PeerNetwork {
        IpAddr::from([192, 0, 2, last]).into()
    }

    /// A store whose queries all end together.
    struct QueriedStore {
        concurrency: StoreConcurrency,
        end: watch::Sender<bool>,
        /// The peers whose queries began, in their order.
        peers: RefCell<Vec<PeerNetwork>>,
    }

    impl QueriedStore {
        fn new() -> Self {
            Self { concurrency: StoreConcurrency::default(), end: watch::Sender::new(false), peers: RefCell::default() }
        }

        async fn query(&self, peer: PeerNetwork) {
            let query = || async {
                self.peers.borrow_mut().push(peer);
                let ended = self.end.subscribe().wait_for(|is_over| *is_over).await.is_ok();
                assert!(ended, "the sender lives");
            };
            self.concurrency.run(peer, query).await;
        }

        fn count(&self, peer: PeerNetwork) -> usize {
            self.peers.borrow().iter().filter(|other| **other == peer).count()
        }
    }

    #[tokio::test]
    async fn each_peer_has_its_places_and_a_later_peer_waits_for_one() {
        let store = QueriedStore::new();
        let crowd = join_all([1, 2, 3, 4, 5].repeat(200).into_iter().map(|last| store.query(peer(last))));
        let newcomer = async {
            // A task has a budget of steps for each turn.
            for _ in 0..1_000 {
                yield_now().await;
            }
            let mut query = pin!(store.query(peer(9)));
            assert!(query.as_mut().now_or_never().is_none());
            assert_eq!(store.peers.borrow().len(), PLACES);
            assert!((1..=5).all(|last| store.count(peer(last)) <= PEER_PLACES));
            assert_eq!(store.count(peer(9)), 0);
            store.end.send_replace(true);
            query.await;
        };
        tokio::join!(crowd, newcomer);
        assert!((1..=5).all(|last| store.count(peer(last)) == 200));
        let place = store.peers.borrow().iter().position(|other| *other == peer(9)).expect("it had a place");
        // It waits behind the places of five peers, not behind all of their checks.
        assert!(place <= 5 * PEER_PLACES + PLACES, "as number {place} of 1,001");
        assert!(store.concurrency.peers().is_empty(), "nothing is kept of the peers");
        assert_eq!(store.concurrency.all.available_permits(), PLACES);
    }

    #[test]
    fn dropped_checks_leave_nothing_behind() {
        let store = QueriedStore::new();
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut queries: Vec<_> = (0..100).map(|_| Box::pin(store.query(peer(1)))).collect();
            assert!(queries.iter_mut().all(|check| check.as_mut().poll(&mut context) == Poll::Pending));
            assert_eq!(store.count(peer(1)), PEER_PLACES);
            // One that waits, and one that has a place.
            drop((queries.pop(), queries.swap_remove(0)));
            let mut next = pin!(store.query(peer(2)));
            assert!(next.as_mut().poll(&mut context).is_pending());
            assert_eq!(store.count(peer(2)), 1);
        }
        assert!(store.concurrency.peers().is_empty());
        assert_eq!(store.concurrency.all.available_permits(), PLACES);
    }
}
