//! How long a page stays where it was granted: the time window Δ (M10), the rule that every page is
//! used before it leaves (M12), and pins (M14).

use super::context::PageContext;
use super::page::{More, Page};
use super::page_here::PageHere;
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
    /// The driver answers whether the threads that waited here have run since.
    pub(super) fn use_confirmed(&mut self, used: bool) {
        let (segment, page) = self.here.at();
        let more = self.here.page.more_if_any();
        if !more.is_some_and(|more| core::mem::take(&mut more.confirming)) {
            return;
        }
        self.here.page.more().seen_unused = !used;
        if used {
            self.here.page.unused = false;
            self.leave_if_due();
        } else {
            self.here.cx.emit(Event::Unused { segment, page });
            let waited = self.here.cx.now - self.here.page.granted;
            self.here.page.hold_for(waited + USE_RECHECK);
            let timer = self.here.timer();
            self.here.cx.arm(self.here.page.held_until(), timer);
        }
    }

    /// Serves requests and an invalidation that waited for the window to end.
    pub(super) fn leave_if_due(&mut self) {
        if let Some(More {
            deferred: Some(invalidate),
            ..
        }) = self.here.page.more_if_any()
        {
            let invalidate = *invalidate;
            if self.here.may_leave() {
                self.here.page.more().deferred = None;
                self.here.invalidate_now(invalidate);
            }
        }
        self.serve();
    }
}

impl PageHere<'_, '_> {
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
            let more = self.page.more_if_any();
            if more.is_some_and(|more| core::mem::take(&mut more.seen_unused)) {
                self.cx.emit(Event::Stolen { segment, page });
            }
            return true;
        }
        if !self.page.more().confirming {
            self.page.more().confirming = true;
            self.cx.push(Effect::ConfirmUse { segment, page });
        }
        false
    }
}
