//! How segments begin and end on a node: which it takes part in, and which no process here has
//! open any more.

use super::Segments;
use crate::calls::Calls;
use crate::directory::check_name;
use crate::input::Request;
use crate::on_reply::OnReply;
use crate::segment::Segment;
use crate::shell::Cx;
use crate::steps::Step;
use crate::sysv::{Sysv, Why};
use pagemesh_sorted::Entry;
use pagemesh_wire::peer::{Call, Refusal, Reply, SegmentInfo};
use pagemesh_wire::sysv;
use pagemesh_wire::{ClientId, SegmentId, Ticket};

impl Segments {
    /// The segment, which is added here if it is new. `lost` is the reason why it cannot be.
    pub(crate) fn take_part(
        &mut self,
        lost: Option<&Refusal>,
        info: &SegmentInfo,
    ) -> Result<&mut Segment, Refusal> {
        if let Some(why) = lost {
            return Err(why.clone());
        }
        Ok(match self.0.entry(info.id) {
            Entry::Occupied(known) => {
                let known = known.into_mut();
                known.info.name.clone_from(&info.name);
                known
            }
            Entry::Vacant(place) => place.insert(Segment::new(info.clone())?),
        })
    }

    /// Another node wants this one to take part in a segment, which it does not know yet.
    pub(crate) fn introduced(&mut self, lost: Option<&Refusal>, info: &SegmentInfo) -> Reply {
        let has_pages = info.spec.size.pages().is_some_and(|pages| pages.0 > 0);
        if self.contains_key(&info.id) {
            return Reply::Done;
        }
        if !has_pages || check_name(&info.name).is_err() || info.spec.replicas == 0 {
            let why = "no segment with replicas has this name and size";
            return Reply::Refused(Refusal::Invalid(why.into()));
        }
        match self.take_part(lost, info) {
            Ok(_) => Reply::Done,
            Err(why) => Reply::Refused(why),
        }
    }

    /// If no process here has the segment open, the coordinator is told; its pages stay where they
    /// are.
    pub(crate) fn close(&self, cx: &Cx<'_>, calls: &Calls, id: SegmentId) -> Option<Step> {
        let segment = self.get(&id).filter(|segment| !segment.is_open())?;
        let named = sysv::keeper(id).is_none();
        (named && !calls.opening(&segment.info.name)).then(|| close(cx, id))
    }

    /// An opening has ended, successful or not: performs a close that waited for it. The opening was
    /// counted as one under way.
    pub(crate) fn opening_ended(
        &self,
        cx: &Cx<'_>,
        (calls, sysv): (&Calls, &Sysv),
        name: &str,
        opened: bool,
    ) -> Vec<Step> {
        let why = Why {
            client: None,
            detached: true,
        };
        let named = self.iter().filter(|(_, segment)| segment.info.name == name);
        let follows = |(id, _): (&SegmentId, _)| {
            let told = (!opened).then(|| sysv.attached(cx, calls, self, *id, why));
            let closed = self.close(cx, calls, *id);
            closed.into_iter().chain(told.flatten())
        };
        named.flat_map(follows).collect()
    }
}

pub(crate) fn close(cx: &Cx<'_>, segment: SegmentId) -> Step {
    Step::Call(cx.coordinator(), Call::Close { segment }, OnReply::Nothing)
}

pub(crate) fn open(cx: &mut Cx<'_>, who: (Ticket, ClientId), request: Request) -> Option<Step> {
    let Request::Open {
        name,
        create,
        exclusive,
        write,
        credentials,
    } = request
    else {
        return None;
    };
    let (spec, spoken) = (create.as_ref(), cx.shell.spoken);
    if let Some(since) = spec
        .map(|spec| spec.since_version())
        .filter(|it| *it > spoken)
    {
        let why = format!(
            "a segment like this needs version {since} of the protocol on all members, and the \
             cluster speaks {spoken}: `pagemesh members` shows who is to be upgraded"
        );
        cx.refuse(who.0, Refusal::Invalid(why));
        return None;
    }
    let then = OnReply::Open {
        client: Some(who),
        name: name.clone(),
    };
    let call = Call::Open {
        name,
        create,
        exclusive,
        write,
        credentials,
    };
    Some(Step::Call(cx.coordinator(), call, then))
}
