//! What the programs of this host are doing.

use super::Sessions;
use crate::faults::Faults;
use crate::session::Session;
use crate::waiter::Programs;
use pagemesh_os::process;
use pagemesh_wire::ClientId;

/// Programs whose CPU time is read, at most: each read costs a system call.
const ASKED: usize = 4;

impl Sessions {
    /// State of this host's programs.
    pub(crate) fn programs(&self, faults: &Faults) -> Programs {
        let mut sharing = self
            .iter()
            .filter(|(_, session)| !session.mappings.is_empty())
            .peekable();
        let stands = |(client, session): (ClientId, &Session)| {
            let mut mappings = session.mappings.iter();
            session.waiting > 0
                || self.request_slots.is_watched(client)
                || mappings.any(|mapping| faults.has_stopped(*mapping))
        };
        if sharing.peek().is_none() {
            Programs::Absent
        } else if sharing.all(stands) {
            let watches = |session: &Session| session.waiting == session.watching;
            let mut sessions = self.iter().map(|(_, session)| session);
            match faults.is_empty() && sessions.all(watches) {
                true => Programs::Watch,
                false => Programs::Wait,
            }
        } else if faults.is_empty() {
            Programs::Run
        } else {
            Programs::Fault
        }
    }

    /// CPU time of this host's programs that share memory. `None` if it is not known for each of
    /// them, or if they are too many.
    pub(crate) fn computed(&self) -> Option<u64> {
        let sessions = self.iter().map(|(_, session)| session);
        let mut sharing = sessions.filter(|session| !session.mappings.is_empty());
        let asked = sharing.by_ref().take(ASKED);
        let computed = asked
            .map(|session| process::computed(session.caller.pid))
            .sum();
        sharing.next().is_none().then_some(computed)?
    }
}
