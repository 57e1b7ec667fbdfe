//! How long a page stays where it was granted: the time window Δ (M10), the rule that every page is
//! used before it leaves (M12), and pins (M14).

use super::context::PageContext;
use super::page::{More, Page};
use super::rules::Rules;
use crate::effect::Effect;
use crate::event::Event;
use crate::limits::{USE_GUARD, USE_RECHECK, WINDOW_BURST, WINDOW_MAX, WINDOW_MIN, WINDOW_SHARE};
use crate::time::Time;
use core::time::Duration;
use pagemesh_wire::peer::Window;

impl Page {
    /// Starts the time window: rights are granted now, `waited` after they were requested.
    pub(super) fn open_window(
        &mut self,
        now: Time,
        rules: &Rules,
        waited: Duration,
        for_fault: bool,
    ) {
        self.granted = now;
        self.unused = for_fault;
        self.hold_for(match rules.window {
            Window::Auto if self.predictor().trusts() => WINDOW_BURST,
            Window::Auto => (waited / WINDOW_SHARE).clamp(WINDOW_MIN, WINDOW_MAX),
            Window::Nanos(_) => rules.longest_window(),
        });
    }

    /// When the window and all pins have ended.
    fn kept_until(&self) -> Time {
        let pins = self.own.busy().map(|busy| busy.more.pins.until());
        self.held_until().max(pins.unwrap_or(Time::ZERO))
    }
}

impl PageContext<'_, '_> {
    /// Whether the page may leave now. If not, a timer or the driver's answer leads to another
    /// call.
    pub(super) fn may_leave(&mut self) -> bool {
        let (segment, page, now) = (self.rules.segment, self.index, self.cx.now);
        let held = self.page.kept_until().max(self.held_until);
        if held > now {
            self.cx.emit(Event::Delayed { segment, page });
            let timer = self.timer();
            self.cx.arm(held, timer);
            return false;
        }
        if !self.page.unused {
            return true;
        }
        if now >= self.page.granted + USE_GUARD {
            self.page.unused = false;
            if self
                .more_if_any()
                .is_some_and(|more| core::mem::take(&mut more.seen_unused))
            {
                self.cx.emit(Event::Stolen { segment, page });
            }
            return true;
        }
        if !self.more().confirming {
            self.more().confirming = true;
            self.cx.push(Effect::ConfirmUse { segment, page });
        }
        false
    }

    /// The driver answers whether the threads that waited here have run since.
    pub(super) fn use_confirmed(&mut self, used: bool) {
        let (segment, page) = (self.rules.segment, self.index);
        let asked = self
            .more_if_any()
            .is_some_and(|more| core::mem::take(&mut more.confirming));
        if !asked {
            return;
        }
        self.more().seen_unused = !used;
        if used {
            self.page.unused = false;
            self.leave_if_due();
        } else {
            self.cx.emit(Event::Unused { segment, page });
            let waited = self.cx.now - self.page.granted;
            self.page.hold_for(waited + USE_RECHECK);
            let timer = self.timer();
            self.cx.arm(self.page.held_until(), timer);
        }
    }

    /// Serves requests and an invalidation that waited for the window to end.
    pub(super) fn leave_if_due(&mut self) {
        if let Some(More {
            deferred: Some(invalidate),
            ..
        }) = self.more_if_any()
        {
            let invalidate = *invalidate;
            if self.may_leave() {
                self.more().deferred = None;
                self.invalidate_now(invalidate);
            }
        }
        self.serve();
    }
}
