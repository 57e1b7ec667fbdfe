//! How many clusters run at once.

use pagemesh_cli::sandbox::Plan;
use std::sync::{Condvar, Mutex, PoisonError};

/// For each processor: daemons, and the threads of a test, wait most of the time.
const CLUSTERS: usize = 2;

static TAKEN: Mutex<usize> = Mutex::new(0);
static GIVEN_BACK: Condvar = Condvar::new();

/// The right to run a cluster, until this is dropped.
pub(super) struct Permit(usize);

impl Permit {
    /// Waits for its turn. Large clusters count twice, as do those with an etcd: a member that is late
    /// is elected away.
    pub(super) fn for_plan(plan: &Plan) -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        let limit = (CLUSTERS * processors).max(2 * CLUSTERS);
        let large = plan.nodes > 4 || plan.etcd || plan.control.is_some();
        let share = if large { 2 } else { 1 };
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = GIVEN_BACK.wait_while(taken, |taken| *taken + share > limit);
        *taken.unwrap_or_else(PoisonError::into_inner) += share;
        Self(share)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= self.0;
        GIVEN_BACK.notify_all();
    }
}
