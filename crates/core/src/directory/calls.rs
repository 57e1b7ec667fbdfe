//! Calls about names, which only the coordinator answers.

use super::{Directory, Opening};
use crate::caller::Caller;
use crate::limits::LIST_PAGE;
use crate::on_reply::OnReply;
use crate::reductions::Reductions;
use crate::shell::Cx;
use crate::steps::Step;
use pagemesh_wire::SegmentId;
use pagemesh_wire::peer::{Call, Refusal, Reply, SegmentInfo};

/// Why a node that is not the coordinator answers no call about names.
pub(crate) fn no_names() -> Refusal {
    Refusal::Invalid("this node keeps no names".into())
}

/// No node has the segment open any more: tells every node to drop its memory of it.
pub(crate) fn forget_everywhere(cx: &Cx<'_>, segment: SegmentId) -> Vec<Step> {
    let forget = |node| Step::Call(node, Call::Forget { segment }, OnReply::Nothing);
    cx.shell.alive.iter().map(forget).collect()
}

impl Directory {
    pub(crate) fn called(
        &mut self,
        cx: &Cx<'_>,
        reductions: &Reductions,
        caller: Caller,
        call: Call,
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        let reply = match self.look_up(cx, reductions, caller, call) {
            Ok((reply, unused)) => {
                steps.extend(unused.into_iter().flat_map(|id| forget_everywhere(cx, id)));
                reply
            }
            Err(why) => Reply::Refused(why),
        };
        steps.push(Step::Answer(caller, reply));
        steps
    }

    /// The reply to a call, and the segment that no node has open any more because of it.
    fn look_up(
        &mut self,
        cx: &Cx<'_>,
        reductions: &Reductions,
        caller: Caller,
        call: Call,
    ) -> Result<(Reply, Option<SegmentId>), Refusal> {
        let found = |info: SegmentInfo| match reductions.of(info.id) {
            [] => Reply::Segment(info),
            some => Reply::Reducing(info, some.to_vec()),
        };
        let unused = match call {
            Call::Open {
                name,
                create,
                exclusive,
                write,
                credentials,
            } => {
                let opened = self.open(&Opening {
                    node: caller.node,
                    call: caller.call,
                    name: &name,
                    create: create.as_ref(),
                    exclusive,
                    write,
                    credentials: &credentials,
                    quotas: cx.shell.config.quotas,
                });
                return Ok((found(opened?), None));
            }
            Call::Stat { name } => return Ok((found(self.stat(&name)?), None)),
            Call::List { after } => {
                let some = self.list(&after, LIST_PAGE);
                return Ok((Reply::Segments(some), None));
            }
            Call::Close { segment } => self.close(caller.node, caller.call, segment),
            Call::Remove { name, credentials } => self.remove(&name, &credentials)?,
            Call::Name {
                segment,
                name,
                replace,
                credentials,
            } => self.name(segment, &name, replace, &credentials)?,
            other => {
                let why = format!("{other:?} is no question of names");
                return Err(Refusal::Invalid(why));
            }
        };
        Ok((Reply::Done, unused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;
    use pagemesh_wire::peer::{Credentials, SegmentSpec};
    use pagemesh_wire::{ByteLen, CallId, NodeId};

    const CALLER: Caller = Caller {
        node: NodeId(3),
        call: CallId(7),
    };

    fn steps(directory: &mut Directory, call: Call) -> Vec<Step> {
        let (mut shell, mut effects) = (Shell::of_four(NodeId(1)), Effects::default());
        let cx = Cx {
            now: Time(0),
            shell: &mut shell,
            effects: &mut effects,
        };
        directory.called(&cx, &Reductions::default(), CALLER, call)
    }

    fn open() -> Call {
        Call::Open {
            name: "s".into(),
            create: Some(SegmentSpec {
                size: ByteLen(4096),
                mode: 0o600,
                policy: pagemesh_wire::peer::Policy::default(),
                replicas: 0,
            }),
            exclusive: false,
            write: true,
            credentials: Credentials::root(),
        }
    }

    #[test]
    fn all_members_forget_a_segment_without_a_name_that_nobody_has_open() {
        let mut directory = Directory::default();
        let opened = steps(&mut directory, open());
        let [Step::Answer(CALLER, Reply::Segment(info))] = &opened[..] else {
            panic!("{opened:?}");
        };
        let segment = info.id;
        let remove = Call::Remove {
            name: "s".into(),
            credentials: Credentials::root(),
        };
        let done = Step::Answer(CALLER, Reply::Done);
        assert_eq!(steps(&mut directory, remove), [done], "it is open");
        let closed = steps(&mut directory, Call::Close { segment });
        let forgets = closed.iter().filter(|step| match step {
            Step::Call(_, Call::Forget { segment: of }, _) => *of == segment,
            _ => false,
        });
        assert_eq!((forgets.count(), closed.len()), (4, 5));
        assert_eq!(closed.last(), Some(&Step::Answer(CALLER, Reply::Done)));
    }

    #[test]
    fn what_is_no_question_of_names_is_refused() {
        let steps = steps(&mut Directory::default(), Call::Probe);
        assert!(matches!(
            steps[..],
            [Step::Answer(CALLER, Reply::Refused(Refusal::Invalid(_)))]
        ));
    }
}
