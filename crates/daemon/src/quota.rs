//! Limits of one user in the cluster, on this node and in its log, so that no user keeps all others
//! from their work.

use crate::executor::DaemonExecutor;
use pagemesh_core::Quotas;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::ClientId;
use pagemesh_wire::local::Trouble;
use pagemesh_wire::peer::Refusal;
use rustix::process::{Resource, geteuid, getrlimit};
use std::str::FromStr;

/// The quotas of each user but the superuser and the daemon's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Segments and their bytes in the whole cluster. The first node's count; the superuser
    /// alone has none.
    pub cluster: Quotas,
    /// Locks with a word on this node.
    pub locks: u32,
    /// Lines of the log about the user's processes in a minute.
    pub log_lines: u32,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            cluster: Quotas::default(),
            // A cache line each, and somewhat more in the daemon: some 16 MB.
            locks: 1 << 16,
            // Enough lines to find a fault; a disk has room for that rate for ever.
            log_lines: 60,
        }
    }
}

/// Not a description of quotas.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: quotas are like `segments=4096,bytes=64TiB,locks=65536,log=60`")]
pub struct QuotaError(String);

impl FromStr for Quota {
    type Err = QuotaError;

    /// Limits that are not named keep their default.
    fn from_str(text: &str) -> Result<Self, QuotaError> {
        let mut quota = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let set = part.split_once('=').and_then(|(key, value)| {
                let value = value.trim();
                match key.trim() {
                    "segments" => quota.cluster.segments = value.parse().ok()?,
                    "bytes" => quota.cluster.bytes = value.parse().ok()?,
                    "locks" => quota.locks = value.parse().ok()?,
                    "log" => quota.log_lines = value.parse().ok()?,
                    _ => return None,
                }
                Some(())
            });
            set.ok_or_else(|| QuotaError(part.into()))?;
        }
        Ok(quota)
    }
}

/// Descriptors left to the superuser and to the daemon's own user: this part of all.
const RESERVE: u64 = 16;

/// Descriptors of the daemon itself: sockets, journals, the stash. Fewer, in truth.
const OWN: u64 = 64;

/// Nanoseconds of a minute.
const MINUTE: u64 = 60_000_000_000;

/// Whether a user is the superuser or the daemon's own.
pub(crate) fn is_master(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// Descriptors this process may have.
pub(crate) fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

impl DaemonExecutor {
    /// Whether the daemon has descriptors left for a user: no user may have more than half of all,
    /// and the last are for users who can free some.
    ///
    /// # Errors
    /// Names the quota and the cure.
    pub(crate) fn check_descriptors(&mut self, uid: u32, more: u64) -> Result<(), Refusal> {
        let limit = descriptor_limit();
        let half = limit / 2;
        if self.descriptors() + more <= half || is_master(uid) {
            return Ok(());
        }
        self.give_back_unused();
        let left = limit - limit / RESERVE;
        let held = self.descriptors_of(uid);
        if held + more > half {
            return Err(Refusal::Limit(format!(
                "the processes and segments of user {uid} take {held} of the daemon's {limit} \
                 file descriptors, and no user gets more than half: end some processes, remove \
                 some segments, or raise LimitNOFILE= of the daemon's unit"
            )));
        }
        if self.descriptors() + more > left {
            return Err(Refusal::Limit(format!(
                "the daemon's file descriptors: the last of its {limit} are for root (raise \
                 LimitNOFILE= of its unit)"
            )));
        }
        Ok(())
    }

    /// Descriptors in use, or a few more.
    pub(crate) fn descriptors(&self) -> u64 {
        let mappings = self.pages.mappings.len() as u64;
        OWN + self.sessions.descriptors() + mappings + self.pages.segments.descriptors()
    }

    /// Descriptors that a user's processes and segments take.
    fn descriptors_of(&self, uid: u32) -> u64 {
        let sessions = self.sessions.iter().map(|(_, session)| session);
        let of_user = sessions.filter(|session| session.caller.credentials.uid == uid);
        let sessions: u64 = of_user
            .map(|session| 1 + session.mappings.len() as u64)
            .sum();
        sessions + self.pages.segments.descriptors_of(uid)
    }

    /// Whether a user may have another lock on this node.
    ///
    /// # Errors
    /// Names the quota and the cure.
    pub(crate) fn check_locks(&self, uid: u32) -> Result<(), Refusal> {
        let quota = self.quota.locks;
        if is_master(uid) || self.pages.segments.locks_of(uid) < quota {
            return Ok(());
        }
        Err(Refusal::Limit(format!(
            "user {uid} has used {quota} locks on this node, its quota of locks: close the \
             segments, which gives their locks back, or raise the daemon's `--quota`"
        )))
    }

    /// Whether a line about a process may go into the log now.
    pub(crate) fn may_log(&mut self, client: ClientId, now: u64) -> bool {
        let session = self.sessions.get(client);
        let uid = session.map_or(u32::MAX, |session| session.caller.credentials.uid);
        let quota = self.quota.log_lines;
        self.log.admits(uid, quota, now)
    }

    /// The limits that are nearly reached, each with its cure.
    pub(crate) fn near_limits(&self) -> Vec<String> {
        let mut near = Vec::new();
        let (limit, used) = (descriptor_limit(), self.descriptors());
        if used >= limit - limit / 5 {
            near.push(Trouble::Descriptors.line(format_args!(
                "the daemon uses {used} of its {limit} file descriptors: end processes, remove \
                 segments, or raise LimitNOFILE= of its unit and replace it"
            )));
        }
        let quota = self.quota.locks;
        for (uid, locks) in self.pages.segments.locks_by_user() {
            if !is_master(uid) && locks >= quota - quota / 10 {
                near.push(Trouble::Quota.line(format_args!(
                    "user {uid} has used {locks} locks on this node, and its quota is {quota}: \
                     raise the daemon's --quota if it needs more"
                )));
            }
        }
        let left_out = self.log.left_out;
        if left_out > 0 {
            near.push(Trouble::LogQuota.line(format_args!(
                "{left_out} lines about processes of users beyond their quota were left out of \
                 the log: see there whose processes misbehave"
            )));
        }
        near
    }
}

/// How many lines each user's processes have caused in the minute that began last.
#[derive(Debug, Default)]
pub(crate) struct LogLines {
    began: u64,
    lines: SortedMap<u32, u32>,
    /// Lines left out since the start.
    left_out: u64,
}

impl LogLines {
    /// Whether another line about a user may be written; says so once when not.
    fn admits(&mut self, uid: u32, quota: u32, now: u64) -> bool {
        if now.saturating_sub(self.began) >= MINUTE {
            self.began = now;
            self.lines.clear();
        }
        let lines = self.lines.entry(uid).or_default();
        *lines = lines.saturating_add(1);
        let admitted = *lines <= quota;
        self.left_out += u64::from(!admitted);
        if *lines == quota.saturating_add(1) {
            tracing::warn!(
                uid,
                quota,
                "the log's quota of this user is used up: lines about its processes \
                 are left out until the minute is over"
            );
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read_and_nonsense_is_not() {
        let quota: Quota = "segments=7,bytes=2GiB,log=3".parse().unwrap();
        assert_eq!(quota.cluster.segments, 7);
        assert_eq!(quota.cluster.bytes.0, 2 << 30);
        assert_eq!(quota.log_lines, 3);
        assert_eq!(quota.locks, Quota::default().locks);
        for bad in ["segments", "segments=-1", "pages=3", "bytes=many"] {
            assert!(bad.parse::<Quota>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_user_fills_its_part_of_the_log_and_no_more() {
        let mut log = LogLines::default();
        let now = 5 * MINUTE;
        let mut admitted = |uid, now| (0..10).filter(|_| log.admits(uid, 3, now)).count();
        assert_eq!(admitted(1, now), 3);
        assert_eq!(admitted(2, now), 3, "each has its own");
        assert_eq!(admitted(1, now + MINUTE - 1), 0);
        assert_eq!(admitted(1, now + MINUTE), 3);
        assert_eq!(log.left_out, 7 + 7 + 10 + 7);
    }
}
