//! One reaction of a host: its input, its effects, the steps of its threads.

use super::super::lab;
use super::super::setting::Op;
use super::{Outcome, Packet, SILENCE, Seat, Sight, Site, Stimulus, TICK};
use crate::check::{Check, ensure};
use crate::kernel::{Kernel, PageKey};
use pagemesh_core::{Effect, EffectExecutor as _, Effects, Event, Input, Request, Rights};
use pagemesh_wire::header::Header;
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{Access, Diffs, Message};
use pagemesh_wire::{Incarnation, NodeId, PageCount, PageIndex, PublicKey, SegmentId, SyncKey};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// One reaction under way.
pub(super) struct Turn<'a> {
    pub(super) site: &'a mut Site,
    pub(super) me: usize,
    pub(super) outcomes: Vec<Outcome<Packet>>,
    pub(super) answers: VecDeque<Input<'static>>,
    /// The diffs that are being heard.
    pub(super) diffs: Option<Diffs>,
    /// The data behind the message that is being handled.
    pub(super) payload: Option<Vec<u8>>,
}

impl Turn<'_> {
    pub(super) fn see(&mut self, sight: Sight) {
        self.outcomes.push(Outcome::Seen(sight));
    }

    pub(super) fn take(&mut self, stimulus: &Stimulus<'_>) -> Check {
        match stimulus {
            Stimulus::Datagram(source, bytes) => self.datagram(*source, bytes),
            Stimulus::Local(input) => self.local(input),
            Stimulus::Thread(seat, op, value, segment) => self.thread(*seat, *op, *value, *segment),
            Stimulus::Tick => {
                self.site.clock = self.site.clock + TICK;
                self.deadlines()
            }
            Stimulus::GiveUp(node) => self.give_up(*node),
        }
    }

    fn datagram(&mut self, source: SocketAddr, bytes: &[u8]) -> Check {
        let decoded = Message::decode(bytes).ok();
        let page = decoded.as_ref().map(|(_, _, page)| *page);
        let payload = page.filter(|page| !page.is_empty());
        let key = PublicKey::NONE;
        if let Some((_, Message::Diffs(diffs), _)) = decoded {
            self.diffs = Some(diffs);
        }
        self.handle(Input::Datagram { source, key, bytes }, payload)
    }

    fn local(&mut self, input: &Input<'static>) -> Check {
        if let Input::Mapped {
            mapping,
            segment,
            client,
        } = input
        {
            self.site.kernel.mapped(*mapping, *segment, *client);
            if !self.site.node.is_trapped(*segment) {
                self.site.kernel.leave_untrapped(*segment);
            }
        }
        self.handle(input.clone(), None)?;
        if let Input::Unmapped { mapping } = input {
            self.site.kernel.unmapped(*mapping);
        }
        if let Input::ClientGone { client } = input {
            self.site.kernel.client_gone(*client);
            let locks = self.site.kernel.recover_locks(*client);
            self.see(Sight::Recovered(locks));
        }
        Ok(())
    }

    fn deadlines(&mut self) -> Check {
        for _ in 0..100 {
            let due = self.site.node.next_deadline();
            if due.is_none_or(|due| due > self.site.clock) {
                return Ok(());
            }
            self.handle(Input::Deadline, None)?;
        }
        ensure!(
            false,
            DeadlineMoves,
            "h{} has a deadline that does not move",
            self.me + 1
        );
        Ok(())
    }

    fn give_up(&mut self, node: NodeId) -> Check {
        let site = &mut *self.site;
        let me = site.node.id().unwrap_or_default();
        let members = site.node.view().members.clone();
        let nearly = SILENCE.saturating_sub(Duration::from_nanos(1));
        site.clock = site.clock + nearly;
        for member in members
            .iter()
            .filter(|member| member.id != me && member.id != node)
        {
            let mut bytes = Vec::new();
            let header = Header {
                from: member.id,
                to: me,
                incarnation: member.incarnation,
                ..self.header()
            };
            Message::Heartbeat { epoch: 0 }.encode(header, &mut bytes);
            self.datagram(member.address, &bytes)?;
        }
        self.site.clock = self.site.clock + (SILENCE - nearly);
        self.deadlines()
    }

    /// A header of this cluster.
    pub(super) fn header(&self) -> Header {
        Header {
            version: pagemesh_wire::header::PROTOCOL_VERSION,
            cluster: lab::CLUSTER,
            from: NodeId::NONE,
            to: NodeId::NONE,
            incarnation: Incarnation(0),
            body: 0,
            term: pagemesh_wire::Term::FIRST,
            generation: 0,
        }
    }

    /// Handles one input, carries out its effects, and handles the inputs that follow from them.
    fn handle(&mut self, input: Input<'_>, payload: Option<&[u8]>) -> Check {
        let mut effects = Effects::default();
        self.site.node.handle(self.site.clock, input, &mut effects);
        self.payload = payload.map(<[u8]>::to_vec);
        self.grants(effects.as_slice());
        self.execute_all(&mut effects)?;
        while let Some(answer) = self.answers.pop_front() {
            self.handle(answer, None)?;
        }
        Ok(())
    }

    /// Others see all grants of a turn before its messages, as [`Hints::granted`] has it.
    ///
    /// [`Hints::granted`]: crate::hints::Hints::granted
    fn grants(&mut self, turn: &[Effect]) {
        for effect in turn {
            if let Effect::Emit(event @ (Event::OwnershipGiven { .. } | Event::TokenGiven { .. })) =
                effect
            {
                self.see(Sight::Given(*event));
            }
        }
    }

    fn thread(&mut self, seat: Seat, op: Op, value: u64, segment: SegmentId) -> Check {
        let kernel = &mut self.site.kernel;
        let page = |page| PageKey {
            segment,
            page: PageIndex(page),
        };
        let lock = |number| SyncKey { segment, number };
        let stop = |kernel: &mut Kernel, key: PageKey, access| {
            kernel.sleep(seat.mapping, key, seat.thread);
            let fault = Input::Fault {
                mapping: seat.mapping,
                page: key.page,
                access,
            };
            Sight::Stopped(key, fault)
        };
        if let Op::Read(at, _) | Op::Write(at, _) = op
            && let Some(words) = kernel.access(seat.mapping, page(at))
        {
            let mapped = Sight::Mapped(page(at), words, Rights::Write);
            self.outcomes.push(Outcome::Seen(mapped));
        }
        let outcome = match op {
            Op::Read(at, word) => match kernel.load(seat.mapping, page(at), word.into()) {
                Some(value) => Sight::Loaded(page(at), word, value),
                None => stop(kernel, page(at), Access::Read),
            },
            Op::Write(at, word) => {
                if kernel.store(seat.mapping, page(at), word.into(), value) {
                    Sight::Stored(page(at), word, value)
                } else {
                    stop(kernel, page(at), Access::Write)
                }
            }
            Op::Lock(number) if kernel.try_lock(lock(number), seat.client) => {
                Sight::Took(lock(number))
            }
            Op::Lock(number) => Sight::Asks(Request::Lock { key: lock(number) }),
            Op::Unlock(number) => {
                let tell = kernel.release(lock(number), seat.client)?;
                Sight::Released(lock(number), tell)
            }
            Op::Watch(at) => Sight::Asks(Request::Watch {
                segment,
                page: PageIndex(at),
            }),
            Op::Need(pages) => Sight::Asks(Request::Advise {
                segment,
                first: PageIndex(0),
                count: PageCount(pages),
                advice: Advice::WillNeed,
            }),
            Op::Leave => Sight::Asks(Request::Leave),
            Op::Die => unreachable!("who dies does nothing more"),
        };
        self.outcomes.push(Outcome::Seen(outcome));
        if let Some(key) = seat.stopped_at {
            // It has run, and if it stopped there again, it sleeps there now.
            kernel.ran(seat.thread, key);
        }
        Ok(())
    }
}
