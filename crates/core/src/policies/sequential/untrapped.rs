//! Pages that threads of the home used before the node was told of any fault ([`crate::trapping`]).

use super::context::PageContext;
use crate::effect::Rights;
use core::time::Duration;

impl PageContext<'_, '_> {
    /// The page has a frame: the home owns it, as if it had stored to it.
    pub(super) fn own_untrapped(&mut self) {
        let (me, page) = (self.cx.me(), &mut self.page);
        // The driver may tell the pages twice, if it was replaced in between.
        if !page.is_new_at(me) {
            return;
        }
        page.own.version = page.own.version.next();
        page.rights = Rights::Write;
        page.pristine = false;
        page.filled = true;
        // It may have been used for the first time just now.
        self.open_window(Duration::ZERO, false);
    }
}
