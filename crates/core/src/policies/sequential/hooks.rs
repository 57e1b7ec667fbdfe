//! What the node asks of the policy.

use super::Sequential;
use super::hold::Hold;
use crate::continuation::Continuation;
use crate::effect::{PageRange, Reply};
use crate::global::MemoryReport;
use crate::inspection::Inspection;
use crate::policies::hooks::{
    Due, Found, Gone, Hooks, Outgoing, ProgramRequest, SyncHooks, Waiting, Who,
};
use crate::prefetch::WillneedRanges as _;
use crate::shell::Cx;
use crate::time::Time;
use pagemesh_wire::local::PageState;
use pagemesh_wire::peer::{Access, Message, Reduction, Refusal};
use pagemesh_wire::{ClientId, NodeId, NodeSet, PageIndex, Ticket, Version};

impl Hooks for Sequential {
    fn keep_replicas(&mut self, _: u8) -> Result<(), Refusal> {
        self.memory.replicas.on = true;
        Ok(())
    }

    fn sync(&mut self) -> Option<&mut dyn SyncHooks> {
        if self.memory.replicas.on {
            Some(self)
        } else {
            None
        }
    }

    fn fault(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, access: Access) {
        let memory = &mut self.memory;
        if memory.at(cx, page, |context| context.fault(who.mapping, access)) {
            memory.walk(cx, who, page, access);
        }
        self.pressed(cx);
    }

    fn request(&mut self, cx: &mut Cx<'_>, who: (Ticket, ClientId), request: ProgramRequest) {
        let (ticket, client) = who;
        let memory = &mut self.memory;
        match request {
            ProgramRequest::Watch(page) => {
                return memory.at(cx, page, |context| context.here.watch(ticket));
            }
            ProgramRequest::Pin(first, count) => {
                memory.pin(cx, who, (first, count));
                return memory.pump(cx);
            }
            ProgramRequest::Unpin(first, count) => memory.unpin(cx, client, (first, count)),
            ProgramRequest::Hold => {
                if let Err(refusal) = memory.hold(cx, client) {
                    return cx.refuse(ticket, refusal);
                }
            }
            ProgramRequest::EndHold => {
                if !memory.end_hold(cx, client) {
                    return cx.refuse(ticket, Hold::over());
                }
            }
            ProgramRequest::Advise(ranges, advice, mapping) => {
                memory.advise(cx, (client, mapping), &ranges, advice);
            }
            ProgramRequest::Purge(..)
            | ProgramRequest::PinShort(..)
            | ProgramRequest::Publish { .. }
            | ProgramRequest::WatchRange(..) => {
                let why = ProgramRequest::NO_VIEWS.into();
                return cx.refuse(ticket, Refusal::Invalid(why));
            }
        }
        cx.reply(ticket, Reply::Done);
    }

    fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        self.arrived(cx, from, message);
        self.memory.replicas.met(from);
        self.memory.pump(cx);
    }

    fn due(&mut self, cx: &mut Cx<'_>, due: Due) {
        match due {
            Due::Page(page, patience) => self.memory.page_due(cx, page, patience),
            Due::Ahead => self.memory.look_ahead(cx),
            Due::Segment => {
                self.pressure.due(cx, &mut self.memory);
                self.memory.replicas_due(cx);
            }
        }
        self.memory.pump(cx);
    }

    fn found(&mut self, cx: &mut Cx<'_>, page: PageIndex, found: Found) {
        let memory = &mut self.memory;
        if let Found::Used(used) = found {
            memory.at(cx, page, |context| context.use_confirmed(used));
        }
        memory.pump(cx);
    }

    fn gone(&mut self, cx: &mut Cx<'_>, gone: Gone) {
        match gone {
            Gone::Mapping(mapping) => self.memory.unmapped(mapping),
            Gone::Client(client) => self.memory.client_gone(cx, client),
            Gone::Member(node) => {
                self.pressure.met.remove(node);
                self.feeds.forget(node);
                self.memory.member_gone(cx, node);
            }
            Gone::Membership => self.memory.expelled(cx),
        }
    }

    fn forget_names(&mut self, over: &NodeSet) {
        self.pressure.met = self.pressure.met.without(over);
        self.memory.forget_names(over);
    }

    fn leave_behind(&mut self, cx: &mut Cx<'_>) -> Result<Vec<Waiting>, String> {
        self.memory.leave_behind(cx)
    }

    fn may_be_untrapped(&self) -> bool {
        true
    }

    fn trapped(&mut self, cx: &mut Cx<'_>, pages: &[PageRange]) {
        let pages = pages.iter().flat_map(|pages| pages.iter());
        let pages = pages.map(|(_, page)| page);
        self.memory.each(cx, pages, |context| {
            let (me, now) = (context.here.cx.me(), context.here.cx.now);
            context.here.page.own_untrapped(me, now, context.here.rules);
        });
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        self.memory.cancel(ticket)
    }

    fn declare(&mut self, _: &[Reduction]) -> Result<(), Refusal> {
        let why = "nodes accumulate in segments of policy release; in a sequential one use atomic \
                   operations";
        Err(Refusal::Invalid(why.into()))
    }

    fn hand_over(&mut self, cx: &mut Cx<'_>, to: NodeId, burst: usize) -> usize {
        self.memory.hand_over(cx, to, burst)
    }

    fn handover(&self, me: NodeId) -> Vec<(PageIndex, Version, NodeId)> {
        self.memory.pages.owned_elsewhere(me)
    }

    fn learn(&mut self, cx: &mut Cx<'_>, page: PageIndex, owner: NodeId, version: Version) {
        let memory = &mut self.memory;
        memory.at(cx, page, |context| {
            let here = &mut context.here;
            here.page.learn_clock(here.cx, owner, version);
        });
    }

    fn states(&self, me: NodeId, first: PageIndex, count: u32) -> Vec<PageState> {
        let home = self.memory.rules.segment.home();
        self.memory.pages.states((me, home), first, count)
    }

    fn is_held(&self, now: Time) -> bool {
        self.memory.hold.until() > now
    }

    fn pressed(&mut self, cx: &mut Cx<'_>) {
        self.pressure.relieve(cx, &mut self.memory);
        self.memory.pump(cx);
    }

    fn forgotten(&mut self, cx: &mut Cx<'_>) {
        cx.shell.memory.used -= core::mem::take(&mut self.memory.frames);
    }

    fn memory(&self, into: &mut MemoryReport) {
        into.local += u64::from(self.memory.frames);
    }

    fn inspect(&self, me: NodeId, first: PageIndex, limit: usize) -> Inspection {
        Inspection {
            unreplicated: self.memory.replicas.unreplicated(),
            ..self.memory.pages.inspect(me, first, limit)
        }
    }
}

/// In segments with a replica. Pages move by themselves; but what was stored before a token leaves is
/// not lost after that.
impl SyncHooks for Sequential {
    fn prepare(&mut self, cx: &mut Cx<'_>, _: Outgoing<'_>, then: &Continuation) -> bool {
        let committed = self.memory.replicas.is_committed(cx, then);
        if !committed {
            self.memory.pump(cx);
        }
        committed
    }
}
