//! System V calls of local processes: who asks, when, and within what limits.

use crate::driver::Driver;
use crate::session::Session;
use crate::tickets::Kind;
use pagemesh_core::Request;
use pagemesh_os::seqpacket::Sender;
use pagemesh_wire::ClientId;
use pagemesh_wire::peer::{Credentials, Refusal};
use pagemesh_wire::sysv::{Ask, Limits, Op, Who};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

impl Driver {
    /// What the core needs to know of a System V call.
    pub(crate) fn sysv(
        &mut self,
        client: ClientId,
        sender: Option<Sender>,
        op: Op,
    ) -> Result<(Request, Kind), Refusal> {
        let gone = || Refusal::Invalid("the process is gone".into());
        let session = self.hands.sessions.get_mut(client).ok_or_else(gone)?;
        let who = judge(session, client, sender);
        let kind = match op {
            Op::ShmAttach { write, .. } => Kind::Open { write },
            _ => Kind::Plain,
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let ask = Ask {
            who,
            wall: since.map_or(0, |since| since.as_secs()),
            limits: limits(),
            op,
        };
        Ok((Request::Sysv(Box::new(ask)), kind))
    }
}

/// The process as the kernel knows it now, which is not always as it was when it
/// connected: it may have changed its user since.
fn judge(session: &mut Session, client: ClientId, sender: Option<Sender>) -> Who {
    let connected = &session.caller.credentials;
    let Some(sender) = sender else {
        return Who {
            client,
            pid: session.caller.pid,
            credentials: connected.clone(),
        };
    };
    if session.caller.pid == 0 {
        session.caller.pid = sender.pid;
    }
    let same = (sender.uid, sender.gid) == (connected.uid, connected.gid);
    let groups = if same {
        connected.groups.clone()
    } else {
        groups_of(sender.pid).unwrap_or_default()
    };
    Who {
        client,
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

/// The kernel's limits for System V objects, as they are now.
fn limits() -> Limits {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(Files::open).read()
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

    fn read(&self) -> Limits {
        let usual = Limits::default();
        let [semmsl, semmns, semopm, semmni] = numbers(self.sem.as_ref());
        let small = |number: Option<u64>, otherwise: u32| {
            number.map_or(otherwise, |number| {
                u32::try_from(number).unwrap_or(u32::MAX)
            })
        };
        let one = |file: &Option<File>| numbers::<1>(file.as_ref())[0];
        Limits {
            shmmax: one(&self.shmmax).unwrap_or(usual.shmmax),
            shmall: one(&self.shmall).unwrap_or(usual.shmall),
            shmmni: small(one(&self.shmmni), usual.shmmni),
            semmsl: small(semmsl, usual.semmsl),
            semmns: small(semmns, usual.semmns),
            semopm: small(semopm, usual.semopm),
            semmni: small(semmni, usual.semmni),
            msgmax: small(one(&self.msgmax), usual.msgmax),
            msgmnb: small(one(&self.msgmnb), usual.msgmnb),
            msgmni: small(one(&self.msgmni), usual.msgmni),
        }
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

    #[test]
    fn limits_are_those_of_the_kernel() {
        let Ok(text) = std::fs::read_to_string("/proc/sys/kernel/sem") else {
            return;
        };
        let limits = limits();
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
