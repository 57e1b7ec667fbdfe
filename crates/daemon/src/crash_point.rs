//! A daemon that kills itself between two effects of its node, so that tests see
//! another go on from exactly there. Only tests light it: `--die-after` is there in
//! builds with debug assertions alone, and hidden.

use pagemesh_core::Effect;
use std::str::FromStr;

/// `Map:7`: the daemon dies at the fourth `Map`, as soon as it is done. Each effect
/// counts twice: when it is done, and when it was noted that it is. `Untouched:7`: at the seventh look
/// before a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashPoint {
    kind: String,
    left: u32,
}

impl FromStr for CrashPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':');
        let parts = parts.and_then(|(kind, left)| Some((kind, left.parse().ok()?)));
        let (kind, left) = parts.ok_or("such as Map:7")?;
        Ok(Self {
            kind: kind.to_owned(),
            left,
        })
    }
}

impl CrashPoint {
    /// An effect of this kind was done, or noted.
    pub(crate) fn burn(&mut self, kind: &str) {
        if self.kind == kind {
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                let _ = rustix::process::kill_process(
                    rustix::process::getpid(),
                    rustix::process::Signal::KILL,
                );
            }
        }
    }
}

/// The name of an effect.
pub(crate) const fn kind(effect: &Effect) -> &'static str {
    match effect {
        Effect::Send { .. } => "Send",
        Effect::SendNotice { .. } => "SendNotice",
        Effect::Fill { .. } => "Fill",
        Effect::Map { .. } => "Map",
        Effect::Protect { .. } => "Protect",
        Effect::Evict { .. } => "Evict",
        Effect::DropStash { .. } => "DropStash",
        Effect::Stow { .. } => "Stow",
        Effect::Fail { .. } => "Fail",
        Effect::ConfirmUse { .. } => "ConfirmUse",
        Effect::Forget { .. } => "Forget",
        Effect::LendLock { .. } => "LendLock",
        Effect::ReclaimLock { .. } => "ReclaimLock",
        Effect::Reply { .. } => "Reply",
        Effect::Diffs(_) => "Diffs",
        Effect::Store { .. } => "Store",
        Effect::Keep { .. } => "Keep",
        Effect::Renew { .. } => "Renew",
        Effect::Elect { .. } => "Elect",
        Effect::ListAsking { .. } => "ListAsking",
        Effect::Seek => "Seek",
        Effect::Trap { .. } => "Trap",
        Effect::Emit(_) => "Emit",
    }
}
