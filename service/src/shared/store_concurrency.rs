//! Places at the store of limits that nodes share: the checks that ask it at the same time, of which each peer has a part.
//!
//! The store answers one question after the other, and a check gives it some milliseconds. Without a bound, one peer asks so much
//! that the answers to others come too late; then the store counts as silent, and each node decides shared limits alone. A check that waits
//! for a place has not asked yet: its time for an answer begins when it has one, and a wait for a place is no silence of the store.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tidegate_listener::PeerNetwork;
use tokio::sync::Semaphore;

/// The places. A store that answers 25,000 questions a second has answered as many in 2.6 ms; a check has 5 ms.
const PLACES: usize = 64;
/// The most places of one peer: with 64, a peer on 16 connections had the store count as silent on a machine with two processors.
const PEER_PLACES: usize = 16;

/// A bounded number of places, with a share for each peer. The further checks of a peer wait for its own places first, and then
/// with those of other peers, in their order.
#[derive(Debug)]
pub(crate) struct StorePlaces {
    all: Semaphore,
    /// The places of each peer that has a check here.
    peers: Mutex<HashMap<PeerNetwork, OfPeer>>,
}

/// The places of a peer, and its checks that are here.
#[derive(Debug)]
struct OfPeer {
    semaphore: Arc<Semaphore>,
    checks: usize,
}

impl Default for StorePlaces {
    fn default() -> Self {
        Self { all: Semaphore::new(PLACES), peers: Mutex::default() }
    }
}

impl StorePlaces {
    /// Waits for a place for a check of this peer, then asks, and gives the place back when there is an answer.
    pub(crate) async fn ask<F: Future>(&self, peer: PeerNetwork, ask: impl FnOnce() -> F) -> F::Output {
        let of_peer = self.places_of(peer);
        // Errors: the semaphores are never closed.
        let _own = of_peer.semaphore.acquire().await;
        let _place = self.all.acquire().await;
        ask().await
    }

    fn places_of(&self, peer: PeerNetwork) -> PeerPlaces<'_> {
        let mut peers = self.peers();
        let new = || OfPeer { semaphore: Arc::new(Semaphore::new(PEER_PLACES)), checks: 0 };
        let of_peer = peers.entry(peer).or_insert_with(new);
        of_peer.checks += 1;
        PeerPlaces { places: self, peer, semaphore: Arc::clone(&of_peer.semaphore) }
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<PeerNetwork, OfPeer>> {
        // Nothing in here panics.
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The places of a peer, as one of its checks has them.
struct PeerPlaces<'p> {
    places: &'p StorePlaces,
    peer: PeerNetwork,
    semaphore: Arc<Semaphore>,
}

/// A peer without checks takes no memory.
impl Drop for PeerPlaces<'_> {
    fn drop(&mut self) {
        let mut peers = self.places.peers();
        let Some(of_peer) = peers.get_mut(&self.peer) else { return };
        of_peer.checks -= 1;
        if of_peer.checks == 0 {
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

    /// Checks that ask until they are told to end.
    struct Asking {
        places: StorePlaces,
        end: watch::Sender<bool>,
        /// The peers that ask now.
        peers: RefCell<Vec<PeerNetwork>>,
    }

    impl Asking {
        fn new() -> Self {
            Self { places: StorePlaces::default(), end: watch::Sender::new(false), peers: RefCell::default() }
        }

        async fn ask(&self, peer: PeerNetwork) {
            let ask = || async {
                self.peers.borrow_mut().push(peer);
                let ended = self.end.subscribe().wait_for(|is_over| *is_over).await.is_ok();
                assert!(ended, "it is told");
            };
            self.places.ask(peer, ask).await;
        }

        fn count(&self, peer: PeerNetwork) -> usize {
            self.peers.borrow().iter().filter(|other| **other == peer).count()
        }
    }

    #[tokio::test]
    async fn each_peer_has_its_places_and_a_newcomer_waits_for_one() {
        let asking = Asking::new();
        let crowd = join_all([1, 2, 3, 4, 5].repeat(200).into_iter().map(|last| asking.ask(peer(last))));
        let newcomer = async {
            // A task has a budget of steps for each turn.
            for _ in 0..1_000 {
                yield_now().await;
            }
            let mut asked = pin!(asking.ask(peer(9)));
            assert!(asked.as_mut().now_or_never().is_none());
            assert_eq!(asking.peers.borrow().len(), PLACES);
            assert!((1..=5).all(|last| asking.count(peer(last)) <= PEER_PLACES));
            assert_eq!(asking.count(peer(9)), 0);
            asking.end.send_replace(true);
            asked.await;
        };
        tokio::join!(crowd, newcomer);
        assert!((1..=5).all(|last| asking.count(peer(last)) == 200));
        let place = asking.peers.borrow().iter().position(|other| *other == peer(9)).expect("it asked");
        // It waits behind the places of five peers, not behind all that they ask.
        assert!(place <= 5 * PEER_PLACES + PLACES, "as number {place} of 1,001");
        assert!(asking.places.peers().is_empty(), "nothing is kept of them");
        assert_eq!(asking.places.all.available_permits(), PLACES);
    }

    #[test]
    fn checks_that_are_given_up_leave_nothing() {
        let asking = Asking::new();
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut asked: Vec<_> = (0..100).map(|_| Box::pin(asking.ask(peer(1)))).collect();
            assert!(asked.iter_mut().all(|check| check.as_mut().poll(&mut context) == Poll::Pending));
            assert_eq!(asking.count(peer(1)), PEER_PLACES);
            // One that waits, and one that asks.
            drop((asked.pop(), asked.swap_remove(0)));
            let mut next = pin!(asking.ask(peer(2)));
            assert!(next.as_mut().poll(&mut context).is_pending());
            assert_eq!(asking.count(peer(2)), 1);
        }
        assert!(asking.places.peers().is_empty());
        assert_eq!(asking.places.all.available_permits(), PLACES);
    }
}
