//! Pages that threads of the home used before the node was told of any fault ([`crate::trapping`]).

use super::Sequential;
use super::context::PageContext;
use crate::effect::{PageRange, Rights};
use crate::shell::Cx;
use core::time::Duration;

impl Sequential {
    /// These pages have frames: the home owns them, as if it had stored to each.
    pub(super) fn own_untrapped(&mut self, cx: &mut Cx<'_>, pages: &[PageRange]) {
        for (_, page) in pages.iter().flat_map(|pages| pages.iter()) {
            self.at(cx, page, |context| context.own_untrapped());
        }
    }
}

impl PageContext<'_, '_> {
    fn own_untrapped(&mut self) {
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
