//! Pages that threads of the home used before the node was told of any fault ([`crate::trapping`]).

use super::page::Page;
use super::rules::Rules;
use crate::effect::Rights;
use crate::time::Time;
use core::time::Duration;
use pagemesh_wire::NodeId;

impl Page {
    /// The page has a frame: the home owns it, as if it had stored to it.
    pub(super) fn own_untrapped(&mut self, me: NodeId, now: Time, rules: &Rules) {
        // The driver may tell the pages twice, if it was replaced in between.
        if !self.is_new_at(me) {
            return;
        }
        self.own.version = self.own.version.next();
        self.rights = Rights::Write;
        self.pristine = false;
        self.filled = true;
        // It may have been used for the first time just now.
        self.open_window(now, rules, Duration::ZERO, false);
    }
}
