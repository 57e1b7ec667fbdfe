//! What a daemon does about its own admission, and about members that were revoked.

use super::Daemon;
use anyhow::{Result, bail};
use pagemesh_wire::peer::Health;
use std::time::Duration;

/// How long a daemon to join may take to answer before that is said.
const PATIENCE: Duration = Duration::from_secs(5);

impl Daemon {
    /// Nobody answers who could admit this node: says so, once, and asks on, but not
    /// for ever.
    pub(super) fn complain(&mut self, now: u64) -> Result<()> {
        if self.admitted {
            return Ok(());
        }
        let limit = self.join_timeout;
        let asked = Duration::from_nanos(now.saturating_sub(self.driver.about.started));
        if !limit.is_zero() && asked > limit {
            bail!(
                "gave up after {limit:?} (--join-timeout): {}",
                self.driver.not_admitted()
            );
        }
        if !self.complained && asked > PATIENCE {
            self.complained = true;
            tracing::warn!("{}", self.driver.not_admitted());
        }
        Ok(())
    }

    /// What runs here for revoked members ends, and what this node runs there.
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
