//! What a member promises: to believe no coordinator of a term before the one that asks.

use super::{Membership, Standing, patience};
use crate::control::not_standby;
use crate::event::Event;
use crate::link::Sender;
use crate::shell::Cx;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Message, Refusal, Reply, Resume, Resumed};
use pagemesh_wire::{Incarnation, NodeId, PublicKey, Term};

impl Membership {
    /// This node promises to believe no coordinator of a term before this one.
    pub(crate) fn promise(&mut self, cx: &Cx<'_>, term: Term) {
        self.promised = (term, cx.now + patience(cx));
    }

    /// This node promises the same to a coordinator that goes on from its disk.
    pub(crate) fn promise_resumer(
        &mut self,
        cx: &Cx<'_>,
        term: Term,
        (incarnation, key): (Incarnation, PublicKey),
    ) {
        self.promise(cx, term);
        self.resumer = Some((term, incarnation, key));
    }

    /// Whether this node has promised to believe no coordinator before this one.
    pub(crate) fn awaits(&self, header: &Header, key: PublicKey) -> bool {
        let known = (header.term, header.incarnation, key);
        self.resumer == Some(known) && header.from == header.term.coordinator()
    }

    /// The key of the coordinator that goes on from its disk, if this node has promised to believe it
    /// and does not know it as a member yet.
    pub(crate) fn awaited(&self, known: Term) -> Option<PublicKey> {
        let (term, _, key) = self.resumer?;
        (term > known).then_some(key)
    }

    /// The standby asks this node to believe no older coordinator.
    pub(crate) fn asked_to_promise(
        &mut self,
        cx: &Cx<'_>,
        from: NodeId,
        term: Term,
        coordinates: bool,
    ) -> Reply {
        let view = &cx.shell.view;
        let no = |why: String| Reply::Refused(Refusal::Invalid(why));
        // A store that elects has fenced this coordinator off already.
        if coordinates && !cx.shell.config.elected {
            return no(format!("{} coordinates, and is alive", cx.me()));
        }
        if term.coordinator() != from || term <= self.fence(cx) {
            return no("another node has been asked to coordinate meanwhile".into());
        }
        if view.standby != from && view.standby != NodeId::NONE {
            return no(not_standby(view));
        }
        self.promise(cx, term);
        Reply::Members(view.clone())
    }

    /// A coordinator that goes on from its disk asks this node to believe no older one.
    pub(crate) fn asked_to_resume(
        &mut self,
        cx: &mut Cx<'_>,
        (source, key): Sender,
        header: &Header,
        resume: &Resume,
        coordinates: bool,
    ) {
        let here = header.cluster == cx.shell.cluster && header.to == cx.me();
        if self.standing != Standing::Member || !here {
            return cx.emit(Event::Stranger {});
        }
        let incarnation = header.incarnation;
        let term = resume.term;
        let message = match self.may_resume(cx, (header, key), resume, coordinates) {
            Ok(()) => {
                self.promise_resumer(cx, term, (incarnation, key));
                let view = cx.shell.view.clone();
                Message::Resumed(Resumed {
                    incarnation,
                    term,
                    view,
                })
            }
            Err(why) => Message::Unwelcome { incarnation, why },
        };
        cx.answer_sender(source, header, message);
    }

    fn may_resume(
        &self,
        cx: &Cx<'_>,
        (header, key): (&Header, PublicKey),
        Resume { term, known, tried }: &Resume,
        coordinates: bool,
    ) -> Result<(), Refusal> {
        let by = cx.coordinator();
        if header.from != term.coordinator() || header.term != *term || !header.from.is_valid() {
            let why = "a coordinator that goes on names itself in its term";
            return Err(Refusal::Invalid(why.into()));
        }
        if cx.shell.view.member(header.from).is_some() {
            return Err(taken(header.from));
        }
        let again = self.awaits(header, key);
        let fenced = *term <= self.fence(cx) && !again;
        let here = cx.shell.view.term;
        let is_newest = here <= *known || tried.contains(&here);
        if coordinates || fenced || !is_newest {
            return Err(Refusal::Superseded { by });
        }
        Ok(())
    }
}

pub(crate) fn taken(node: NodeId) -> Refusal {
    let why = format!(
        "{node}, the number of the coordinator that goes on from its disk, is taken: start the \
         daemon again, and it takes another one"
    );
    Refusal::Invalid(why)
}
