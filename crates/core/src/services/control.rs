//! The coordinator's decisions: where they go at the end of an input.

use super::Services;
use crate::control::HeldAnswer;
use crate::shell::Cx;

impl Services {
    /// Ends an input of the coordinator: streams its decisions, and gives the answers that may
    /// leave. These may lead to more decisions of this node.
    pub(super) fn stream_decisions(&mut self, cx: &mut Cx<'_>) {
        while let Some(coordinator) = &mut self.coordinator {
            let disk = cx.shell.config.keeps.then_some(&mut self.disk);
            let calls = cx.shell.config.standby.then_some(&self.calls);
            let safe = coordinator.settle(disk, calls);
            if safe.is_empty() {
                let steps = coordinator.stream(cx, &self.calls);
                return self.follow(cx, steps);
            }
            for HeldAnswer { caller, reply, .. } in safe {
                self.answer_now(cx, caller, reply);
            }
        }
    }

    /// Tells hosts of their admission that standby and disk know of.
    pub(super) fn send_welcomes(&mut self, cx: &mut Cx<'_>) {
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.send_welcomes(cx, &self.disk);
        }
    }
}
