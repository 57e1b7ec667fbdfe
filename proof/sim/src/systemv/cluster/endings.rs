//! The conditions at the end of a phase, when nothing is under way.

use super::{Check, Cluster, ask};
use pagemesh_core::{Effect, Effects, Input, Reply, Request};
use pagemesh_wire::sysv::{Family, Id, Op, Outcome, Pick};
use pagemesh_wire::{ClientId, Ticket};

impl Cluster {
    /// Every call has been answered or interrupted.
    pub(super) fn nobody_waits(&self) -> Check {
        let waits = self
            .processes
            .iter()
            .find(|(_, process)| process.call.is_some());
        match waits {
            Some((client, process)) => Err(format!(
                "{client} got a signal and waits still: {:?}",
                process.call
            )),
            None => Ok(()),
        }
    }

    /// Every segment has as many attachments as there are, and is gone if it is removed
    /// and has none.
    pub(super) fn count_attachments(&mut self) -> Check {
        let homes: Vec<usize> = self.homes.keys().copied().collect();
        for home in homes {
            let segments: Vec<_> = self.homes[&home].model.segments().collect();
            for (id, removed) in segments {
                let attached = self.processes.values();
                let attached = attached.flat_map(|process| &process.attached);
                let expected = attached.filter(|(of, _)| *of == id).count() as u64;
                let counted = self.stat(home, id)?;
                let gone = removed && expected == 0;
                if counted != (!gone).then_some(expected) {
                    return Err(format!(
                        "{id:?}, removed: {removed}, has {expected} attachments, and its home counts {counted:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// How many attachments the home of a segment counts; none if it is gone.
    pub(super) fn stat(&mut self, home: usize, id: Id) -> Check<Option<u64>> {
        self.clients += 1;
        let client = ClientId(self.clients);
        let op = Op::Stat {
            family: Family::Shm,
            pick: Pick::Id(id),
        };
        let request = Request::Sysv(Box::new(ask(client, self.now, op)));
        let ticket = Ticket(u64::MAX - u64::from(self.clients));
        let input = Input::Request {
            ticket,
            client,
            request,
        };
        let mut effects = Effects::default();
        self.hosts[home].node.handle(self.now, input, &mut effects);
        for effect in effects.drain() {
            if let Effect::Reply { reply, .. } = effect {
                return match *reply {
                    Reply::Sysv(Outcome::Shm(stat)) => Ok(Some(stat.nattch)),
                    Reply::Sysv(Outcome::Failed(_)) => Ok(None),
                    other => Err(format!("{other:?}")),
                };
            }
        }
        Err("no answer".into())
    }
}
