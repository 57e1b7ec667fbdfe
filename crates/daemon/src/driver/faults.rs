//! Faults: read from the mappings, recorded, given to the node.

use super::Driver;
use crate::counters::Count;
use crate::executor::DaemonExecutor;
use crate::threads::Thread;
use crate::turn::Payloads;
use pagemesh_core::{Input, Time};
use pagemesh_os::clock;
use pagemesh_os::uffd::Fault;
use pagemesh_wire::peer::Access;
use pagemesh_wire::{MappingId, PageIndex};

/// Reads of one descriptor in a row before others are served.
const READS: usize = 4;

impl Driver {
    /// Reads faults from the mapping that got the last page: its thread may fault again already,
    /// and this read takes less time than a poll. Returns whether there was a fault.
    pub(crate) fn next_fault(&mut self) -> bool {
        let expected = self.executor.faults.expected();
        expected.is_some_and(|id| self.faults(id, false))
    }

    /// Reads the faults of a mapping. Returns whether there were any.
    pub(crate) fn faults(&mut self, id: MappingId, broken: bool) -> bool {
        let mut any = false;
        for _ in 0..READS {
            let Some(mapping) = self.executor.pages.mappings.get(id) else {
                break;
            };
            // The process shares the descriptor's flags and may have cleared the non-blocking one.
            let ready = if broken {
                mapping.uffd.never_block()
            } else {
                Ok(())
            };
            let client = mapping.client;
            if let Err(error) = ready.and_then(|()| mapping.uffd.read(&mut self.faults)) {
                tracing::warn!(mapping = %id, %error, "faults cannot be read");
                self.executor.sessions.doom(client);
                break;
            }
            any |= !self.faults.is_empty();
            self.stopped(id);
            if !self.faults.is_full() {
                break;
            }
        }
        any
    }

    /// Gives the node the faults that were read; their threads wait for pages.
    fn stopped(&mut self, id: MappingId) {
        let now = clock::monotonic();
        let mut faults = std::mem::take(&mut self.stopped);
        for index in 0..self.faults.len() {
            let fault = self.faults.get(index);
            faults.extend(fault.and_then(|fault| note(&mut self.executor, id, fault, now)));
        }
        let input = match faults[..] {
            [] => None,
            [(page, access)] => Some(Input::Fault {
                mapping: id,
                page,
                access,
            }),
            _ => Some(Input::Faults {
                mapping: id,
                faults: faults.clone(),
            }),
        };
        if let Some(input) = input {
            self.feed_at(Time(now), input, Payloads::NONE);
        }
        for (page, _) in faults.drain(..) {
            self.executor.faults.open.note_remote((id, page));
        }
        self.stopped = faults;
    }
}

/// Notes a fault that was read: its thread waits. Returns the page and the access.
fn note(
    executor: &mut DaemonExecutor,
    id: MappingId,
    fault: Fault,
    now: u64,
) -> Option<(PageIndex, Access)> {
    executor.count(Count::KernelFaults, 1);
    let mapping = executor.pages.mappings.get(id)?;
    let page = mapping.place.page(fault.address)?;
    let session = executor.sessions.get_mut(mapping.client);
    let process = session.map_or(0, |session| session.process_of(fault.thread));
    let access = if fault.write && mapping.write {
        Access::Write
    } else {
        Access::Read
    };
    let thread = Thread::new(process, fault.thread);
    executor
        .faults
        .open
        .note((id, page), fault.kind, thread, now);
    Some((page, access))
}
