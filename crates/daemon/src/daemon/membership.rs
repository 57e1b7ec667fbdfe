//! Time limits of this node's own admission, and the disconnection of revoked members.

use super::Daemon;
use crate::etcd::Elections;
use anyhow::{Result, bail};
use pagemesh_wire::peer::Health;
use std::time::Duration;

/// How long the daemon to join may take to answer before the log says so.
const PATIENCE: Duration = Duration::from_secs(5);

/// The coordinator that this host was to join is dead, and no member has taken its place: the host
/// begins anew, and goes on with what etcd has.
#[derive(Debug, thiserror::Error)]
#[error("etcd says that nobody coordinates the cluster any more")]
pub(super) struct NobodyCoordinates;

impl Daemon {
    /// Logs once that no daemon admits this node; fails after the time limit of joining.
    pub(super) fn complain(&mut self, now: u64) -> Result<()> {
        if self.admitted {
            return Ok(());
        }
        let elections = self.driver.executor.elections.as_ref();
        if elections.is_some_and(Elections::nobody_coordinates) {
            bail!(NobodyCoordinates);
        }
        let limit = self.join_timeout;
        let asked = Duration::from_nanos(now.saturating_sub(self.driver.about.started));
        if !limit.is_zero() && asked > limit {
            bail!(
                "gave up after {limit:?} (--join-timeout): {}",
                self.driver.status().not_admitted()
            );
        }
        if !self.complained && asked > PATIENCE {
            self.complained = true;
            tracing::warn!("{}", self.driver.status().not_admitted());
        }
        Ok(())
    }

    /// Ends programs that run here for revoked members, and those that this node runs there.
    pub(super) fn cut_off_revoked(&mut self) {
        let view = self.driver.node.view();
        if view.epoch == self.epoch {
            return;
        }
        self.epoch = view.epoch;
        let revoked = view
            .members
            .iter()
            .filter(|member| member.health == Health::Revoked);
        let keys: Vec<_> = revoked.map(|member| member.key).collect();
        if let Some(launch) = &self.launch {
            launch.cut_off(&keys);
        }
    }
}
