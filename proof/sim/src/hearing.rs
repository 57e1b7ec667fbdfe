//! The inputs that a node handles together before any effect is carried out: one input, or
//! several datagrams of one receive batch, as in the daemon.

use crate::check::Check;
use crate::packing;
use crate::world::{Pending, World};
use pagemesh_core::{Effect, Effects, Input};
use pagemesh_wire::PublicKey;
use pagemesh_wire::peer::{Ask, Message};
use std::borrow::Cow;

/// Datagrams of one receive batch at most: few simulated hosts have more waiting.
const TURN: usize = 16;

/// The inputs that are handled together, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hearing(Vec<Heard>);

/// One input.
#[derive(Clone, Debug)]
struct Heard {
    what: Pending,
    /// The page that followed the message in its datagram.
    page: Option<Vec<u8>>,
    /// The request, if the message was one.
    ask: Option<Ask>,
    /// Number of effects up to and including the last effect of this input.
    effects: usize,
}

impl Hearing {
    /// The inputs, in order.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &Pending> {
        self.0.iter().map(|heard| &heard.what)
    }

    /// True if the input was the node's deadline.
    pub(crate) fn is_deadline(&self) -> bool {
        self.inputs()
            .any(|what| matches!(what, Pending::Local(Input::Deadline)))
    }

    fn behind(&self, effect: usize) -> Option<&Heard> {
        let at = self.0.partition_point(|heard| heard.effects <= effect);
        self.0.get(at)
    }

    /// The page that [`pagemesh_core::Source::Payload`] of an effect refers to, for the page at
    /// this place of its range.
    pub(crate) fn page(&self, effect: usize, step: usize) -> Option<&[u8]> {
        let at = self.0.partition_point(|heard| heard.effects <= effect);
        self.0.get(at + step)?.page.as_deref()
    }

    /// The request that caused an effect.
    pub(crate) fn ask(&self, effect: usize) -> Option<Ask> {
        self.behind(effect)?.ask
    }
}

impl World {
    /// A node handles an input, in some seeds together with the datagrams that wait behind it;
    /// then all effects are carried out.
    pub(crate) fn handle(&mut self, at: usize, pending: Pending) -> Check {
        let mut effects = std::mem::take(&mut self.reaction.effects);
        let mut hearing = Hearing::default();
        let mut next = Some(pending);
        while let Some(pending) = next {
            let before = effects.as_slice().len();
            self.hear(at, pending, &mut effects, &mut hearing);
            let waits = effects.as_slice()[before..].iter().all(Effect::may_wait);
            next = if waits {
                self.joins(at, &hearing)
            } else {
                None
            };
        }
        let result = match hearing.0.is_empty() {
            // Guard or driver consumed all of the input.
            true => Ok(()),
            false => self.carry_out(at, &mut effects, &hearing),
        };
        effects.drain();
        self.reaction.effects = effects;
        self.meet_members(at);
        self.learn_ways(at);
        result?;
        if hearing.0.is_empty() || self.hosts[at].remains.is_some() {
            return Ok(());
        }
        self.settle(at, &hearing)
    }

    /// Takes the next datagram from the inbox if it is handled together with these.
    fn joins(&mut self, at: usize, hearing: &Hearing) -> Option<Pending> {
        let Some(Heard {
            what: Pending::Datagram(from, _),
            ..
        }) = hearing.0.last()
        else {
            return None;
        };
        let room = self.setting.turns && hearing.0.len() < TURN;
        let inbox = &mut self.hosts[at].inbox;
        let together =
            |next: &mut Pending| matches!(next, Pending::Datagram(source, _) if source == from);
        inbox
            .front_mut()
            .filter(|_| room)
            .is_some_and(together)
            .then(|| inbox.pop_front())
            .flatten()
    }

    fn hear(&mut self, at: usize, what: Pending, effects: &mut Effects, hearing: &mut Hearing) {
        let Some((key, bytes)) = self.came_through(at, &what) else {
            return;
        };
        let clock = self.hosts[at].clock(self.now);
        let answer = self.hosts[at].answers > 0;
        let input = match &what {
            Pending::Local(input) => input.clone(),
            Pending::Datagram(source, _) => Input::Datagram {
                source: *source,
                key,
                bytes: &bytes,
            },
        };
        self.record(at, clock, &input, answer, !hearing.0.is_empty());
        let host = &mut self.hosts[at];
        host.answers -= usize::from(answer);
        host.deadline_heard(&input);
        host.node.handle(clock, input.clone(), effects);
        let (mut page, mut ask) = (None, None);
        if let Pending::Local(input) = &what {
            self.forget_the_dead(at, input);
        } else if let Ok((_, message, behind)) = Message::decode(&bytes) {
            page = Some(behind.to_vec()).filter(|page| !page.is_empty());
            ask = match message {
                Message::Ask(ask) => Some(ask),
                _ => None,
            };
        }
        let (what, effects) = (what.clone(), effects.as_slice().len());
        hearing.0.push(Heard {
            what,
            page,
            ask,
            effects,
        });
    }

    /// What the node gets to see of an input; none if guard or driver consume it.
    fn came_through<'a>(
        &mut self,
        at: usize,
        what: &'a Pending,
    ) -> Option<(PublicKey, Cow<'a, [u8]>)> {
        let Pending::Datagram(source, bytes) = what else {
            return Some(Default::default());
        };
        let (key, bytes) = self.open(at, *source, bytes)?;
        let bytes = match pagemesh_path::is_packet(&bytes) {
            true => self.joined(at, *source, key, &bytes)?.into(),
            false => bytes,
        };
        let bytes = packing::unpack(bytes)?;
        self.note_arrival(at, *source, &bytes);
        Some((key, bytes))
    }
}
