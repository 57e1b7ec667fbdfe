//! System V calls of local processes: their credentials, time and limits.

use crate::serve::Service;
use crate::session::Session;
use pagemesh_core::Request;
use pagemesh_os::seqpacket::Sender;
use pagemesh_recorder::Kind;
use pagemesh_wire::local::Caller;
use pagemesh_wire::peer::{Credentials, Refusal};
use pagemesh_wire::sysv::{Ask, Limits, Op, Who};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

impl Service<'_> {
    /// The data that the core needs for a System V call. None if it came through the request slot,
    /// and the kernel has not named the caller yet.
    pub(crate) fn sysv(
        &mut self,
        sender: Option<Sender>,
        op: Op,
    ) -> Result<Option<(Request, Kind)>, Refusal> {
        let client = self.client;
        let gone = || Refusal::Invalid("the process is gone".into());
        let session = self
            .driver
            .executor
            .sessions
            .get_mut(client)
            .ok_or_else(gone)?;
        if let Some(sender) = sender {
            session.shown = Some(judge(session, sender));
        }
        let Some(caller) = session.shown.clone() else {
            return Ok(None);
        };
        let who = Who {
            client,
            pid: caller.pid,
            credentials: caller.credentials,
        };
        let kind = match op {
            Op::ShmAttach { write, .. } => Kind::Open { write },
            _ => Kind::Plain,
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let ask = Ask {
            who,
            wall: since.map_or(0, |since| since.as_secs()),
            limits: limits(&op),
            op,
        };
        Ok(Some((Request::Sysv(Box::new(ask)), kind)))
    }
}

/// The process as the kernel knows it now, which is not always as it was when it
/// connected: it may have changed its user since.
fn judge(session: &mut Session, sender: Sender) -> Caller {
    let connected = &session.caller.credentials;
    if session.caller.pid == 0 {
        session.caller.pid = sender.pid;
    }
    let same = (sender.uid, sender.gid) == (connected.uid, connected.gid);
    let groups = if same {
        connected.groups.clone()
    } else {
        groups_of(sender.pid).unwrap_or_default()
    };
    Caller {
        pid: sender.pid,
        credentials: Credentials {
            uid: sender.uid,
            gid: sender.gid,
            groups,
        },
    }
}

/// The further groups of a process that waits for its answer.
fn groups_of(pid: i32) -> Option<Vec<u32>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))?;
    Some(
        line.split_whitespace()
            .filter_map(|group| group.parse().ok())
            .collect(),
    )
}

/// The kernel's limits for System V objects, as they are now, as far as this call needs them.
fn limits(op: &Op) -> Limits {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(Files::open).read(op)
}

/// Files of `/proc/sys/kernel`; none where the kernel has no System V objects.
struct Files {
    shmmax: Option<File>,
    shmall: Option<File>,
    shmmni: Option<File>,
    sem: Option<File>,
    msgmax: Option<File>,
    msgmnb: Option<File>,
    msgmni: Option<File>,
}

impl Files {
    fn open() -> Self {
        let file = |name: &str| File::open(format!("/proc/sys/kernel/{name}")).ok();
        Self {
            shmmax: file("shmmax"),
            shmall: file("shmall"),
            shmmni: file("shmmni"),
            sem: file("sem"),
            msgmax: file("msgmax"),
            msgmnb: file("msgmnb"),
            msgmni: file("msgmni"),
        }
    }

    fn read(&self, op: &Op) -> Limits {
        let mut limits = Limits::default();
        match op {
            Op::SemGetOne { .. }
            | Op::SemGetAll { .. }
            | Op::SemSetOne { .. }
            | Op::SemSetAll { .. }
            | Op::ShmAttach { .. }
            | Op::ShmLock { .. }
            | Op::MsgReceive { .. }
            | Op::Stat { .. }
            | Op::Remove { .. } => {}
            // There is no limit that forbids a single operation.
            Op::SemOp { ops, .. } if ops.len() == 1 => {}
            Op::SemOp { .. } | Op::SemGet { .. } => self.read_sem(&mut limits),
            Op::MsgSend { .. } => set_small(&mut limits.msgmax, self.msgmax.as_ref()),
            Op::MsgGet { .. } => self.read_msg(&mut limits),
            Op::ShmGet { .. } => self.read_shm(&mut limits),
            _ => {
                self.read_sem(&mut limits);
                self.read_msg(&mut limits);
                self.read_shm(&mut limits);
            }
        }
        limits
    }

    fn read_sem(&self, limits: &mut Limits) {
        let fields = [
            &mut limits.semmsl,
            &mut limits.semmns,
            &mut limits.semopm,
            &mut limits.semmni,
        ];
        let read = numbers::<4>(self.sem.as_ref());
        for (field, number) in fields.into_iter().zip(read) {
            set(field, number);
        }
    }

    fn read_msg(&self, limits: &mut Limits) {
        set_small(&mut limits.msgmax, self.msgmax.as_ref());
        set_small(&mut limits.msgmnb, self.msgmnb.as_ref());
        set_small(&mut limits.msgmni, self.msgmni.as_ref());
    }

    fn read_shm(&self, limits: &mut Limits) {
        let one = |file: &Option<File>| numbers::<1>(file.as_ref())[0];
        limits.shmmax = one(&self.shmmax).unwrap_or(limits.shmmax);
        limits.shmall = one(&self.shmall).unwrap_or(limits.shmall);
        set_small(&mut limits.shmmni, self.shmmni.as_ref());
    }
}

fn set_small(field: &mut u32, file: Option<&File>) {
    set(field, numbers::<1>(file)[0]);
}

/// Sets a limit that was told, as far as it can be meant.
fn set(field: &mut u32, number: Option<u64>) {
    if let Some(number) = number {
        *field = u32::try_from(number).unwrap_or(u32::MAX);
    }
}

/// The first numbers in a file.
fn numbers<const N: usize>(file: Option<&File>) -> [Option<u64>; N] {
    let mut bytes = [0; 128];
    let read = file.and_then(|file| file.read_at(&mut bytes, 0).ok());
    let text = str::from_utf8(&bytes[..read.unwrap_or(0)]).unwrap_or("");
    let mut words = text.split_whitespace();
    std::array::from_fn(|_| words.next().and_then(|word| word.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::sysv::Family;

    #[test]
    fn limits_are_those_of_the_kernel() {
        let Ok(text) = std::fs::read_to_string("/proc/sys/kernel/sem") else {
            return;
        };
        let limits = limits(&Op::Info {
            family: Family::Sem,
        });
        let said = format!(
            "{} {} {} {}",
            limits.semmsl, limits.semmns, limits.semopm, limits.semmni
        );
        assert_eq!(text.split_whitespace().collect::<Vec<_>>().join(" "), said);
    }

    #[test]
    fn groups_are_those_of_the_process() {
        let mine = rustix::process::getgroups().unwrap();
        let mine: Vec<_> = mine.iter().map(|group| group.as_raw()).collect();
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        assert_eq!(groups_of(pid), Some(mine));
        assert_eq!(groups_of(0), None);
    }
}
