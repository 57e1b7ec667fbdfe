//! Faults of hosts and processes: cuts, pauses, crashes.

use crate::check::Check;
use crate::golden::Words;
use crate::kernel::{Kernel, PageKey};
use crate::log::Mark;
use crate::step::{ClientPlan, Fault, Step};
use crate::upgrade::{NEW, OLD};
use crate::world::{Happening, Host, Life, Pending, World};
use pagemesh_core::{Budgets, Input, Placement, Time};
use pagemesh_wire::{ClientId, NodeId, PageCount, SyncKey};

/// A fault whose time has not come yet waits so many nanoseconds.
const RETRY: u64 = 1_000_000;

/// True if a living host holds these contents of a page.
fn is_kept(hosts: &[Host], key: PageKey, words: &Words) -> bool {
    let mut up = hosts
        .iter()
        .filter(|host| host.life == Life::Up && !host.buried);
    up.any(|host| host.kernel.holds(key, words))
}

impl World {
    /// Injects a fault.
    pub(crate) fn misfortune(&mut self, fault: Fault) -> Check {
        self.stats.faults += 1;
        let now = self.now;
        self.log
            .note(now, 0, Mark::Hand, [2; 3], || format!("{fault:?}"));
        match fault {
            Fault::Cut { pairs, length } => {
                for (from, to) in pairs {
                    self.network.cut(from, to, Time(now.0 + length));
                }
            }
            Fault::Pause { host, length } => self.pause(host, length),
            Fault::Slow {
                host,
                factor,
                length,
            } => self.slow_down(host, factor, length),
            Fault::ClientDies { client } => self.kill_client(client),
            Fault::Crash { host } => self.crash(host, "crashes")?,
            Fault::Leave { host } if self.hosts[host].life == Life::Up => {
                let programs = vec![vec![Step::Begin, Step::Leave]];
                self.spawn_client(ClientPlan {
                    host,
                    programs,
                    farewell: Vec::new(),
                });
            }
            Fault::Leave { .. } => {}
            Fault::FirstFails { crash, with } => {
                // Hosts ask the first one alone for admission; it refuses one that it took for dead
                // before it heard that it was admitted.
                let unborn = |host: &Host| host.life == Life::Unborn;
                let answered =
                    |host: &Host| host.id.is_some() || host.node.out().is_some() || unborn(host);
                let admitted = self.hosts.iter().all(answered);
                let ready = self.setting.keeps || self.standby().is_some();
                match (admitted && ready, crash) {
                    (false, _) => {
                        self.losses.late += RETRY;
                        self.after(RETRY, Happening::Misfortune(fault));
                        return Ok(());
                    }
                    (true, true) => self.crash(0, "crashes")?,
                    (true, false) => {
                        // Calls to it may be refused until another host takes over.
                        self.losses.crashed = true;
                        self.pause(0, 30_000_000_000);
                    }
                }
                if let Some(host) = with {
                    self.crash(host, "crashes with it")?;
                }
            }
            Fault::Promote => self.promote(),
            Fault::Press {
                host,
                frames,
                anywhere,
            } => self.press(host, frames, anywhere),
            Fault::Resume => self.resume_first(),
            Fault::KillAgain => self.kill_again()?,
            Fault::CoordinatorFails => self.coordinator_fails()?,
            Fault::EtcdFails { host, length } => self.etcd.fails(host, now, length),
            Fault::Upgrade { host, old: true } if self.hosts[host].life == Life::Up => {
                let programs = vec![vec![Step::Begin, Step::MakeRoom]];
                self.spawn_client(ClientPlan {
                    host,
                    programs,
                    farewell: Vec::new(),
                });
            }
            Fault::Upgrade { old: true, .. } => {}
            Fault::Upgrade { host, old: false } => self.goes_on_as(host, NEW)?,
            Fault::PutBack { host } => self.goes_on_as(host, OLD)?,
        }
        Ok(())
    }

    /// Changes the memory of a host. A third of it is for others.
    fn press(&mut self, host: usize, frames: u32, anywhere: bool) {
        if self.hosts[host].life != Life::Up {
            return;
        }
        let placement = match anywhere {
            true => Placement::Random,
            false => Placement::Epoch,
        };
        let budgets = Budgets {
            frames: PageCount(frames),
            lend: PageCount(frames / 3),
            placement,
            ..Budgets::default()
        };
        self.input(host, Input::Budgets(budgets));
    }

    /// The host that may take over, once it knows that.
    fn standby(&self) -> Option<usize> {
        self.up().find(|at| {
            let host = &self.hosts[*at];
            host.id.is_some() && Some(host.node.view().standby) == host.id
        })
    }

    /// A person promotes the standby, if there is one already.
    fn promote(&mut self) {
        let Some(host) = self.standby() else {
            return self.after(100_000_000, Happening::Misfortune(Fault::Promote));
        };
        // Until a new coordinator is there, requests that need one are refused.
        self.losses.crashed = true;
        self.spawn_client(ClientPlan {
            host,
            programs: vec![vec![Step::Begin, Step::Promote]],
            farewell: Vec::new(),
        });
    }

    /// The host that coordinates after the first one vanishes.
    fn coordinator_fails(&mut self) -> Check {
        let elected = self.up().find(|at| {
            let host = &self.hosts[*at];
            let control = host.node.control(host.clock(self.now));
            *at > 0 && host.id == Some(control.coordinator)
        });
        let Some(host) = elected else {
            self.after(1_000_000, Happening::Misfortune(Fault::CoordinatorFails));
            return Ok(());
        };
        self.crash(host, "crashes, too")
    }

    /// The daemon that has gone on from the first host's disk is killed, if it runs.
    fn kill_again(&mut self) -> Check {
        let resumed = |host: &Host| host.plan.resumes.is_some();
        match self.hosts.iter().position(resumed) {
            Some(host) if self.hosts[host].life == Life::Up => {
                self.losses.expected.push(host);
                self.crash(host, "crashes again")
            }
            _ => {
                self.after(1_000_000, Happening::Misfortune(Fault::KillAgain));
                Ok(())
            }
        }
    }

    /// The coordinator declared a host dead. If its daemon still runs, its processes end now and
    /// its pages do not count any more. It goes on sending until it hears that it is expelled.
    pub(crate) fn declared_dead(&mut self, node: NodeId) {
        let alive = |host: &Host| host.id == Some(node) && host.life == Life::Up && !host.buried;
        let Some(at) = self.hosts.iter().position(alive) else {
            return;
        };
        self.log.note(self.now, at, Mark::Hand, [6; 3], || {
            "is buried alive".into()
        });
        self.stats.buried_alive += 1;
        self.losses.crash(at);
        for client in 0..self.processes.clients.len() {
            if self.processes.clients[client].host == at {
                self.kill_client(client);
            }
        }
        self.hosts[at].buried = true;
        self.checkers.lines.gone(node);
        let hosts = &self.hosts;
        self.checkers
            .golden
            .crashed(|key, words| is_kept(hosts, key, words));
    }

    /// A host vanishes with everything on it.
    pub(crate) fn crash(&mut self, at: usize, how: &str) -> Check {
        if !matches!(self.hosts[at].life, Life::Up | Life::Unborn) {
            return Ok(());
        }
        self.log
            .note(self.now, at, Mark::Hand, [3; 3], || how.to_owned());
        self.losses.crash(at);
        self.depart(at, Life::Crashed);
        let hosts = &self.hosts;
        self.checkers
            .golden
            .crashed(|key, words| is_kept(hosts, key, words));
        Ok(())
    }

    /// A host dropped its contents of a page; after a crash these may have been the last. An
    /// older stash does not count, because it is kept for another receiver.
    pub(crate) fn contents_dropped(&mut self, key: PageKey) {
        if self.losses.crashed {
            let hosts = &self.hosts;
            let gone = |host: usize| hosts[host].life == Life::Crashed || hosts[host].buried;
            self.checkers.golden.dropped(key, gone, |words| {
                let counts = |host: &&Host| host.life == Life::Up && !host.buried;
                let mut up = hosts.iter().filter(counts);
                up.any(|host| host.kernel.shows(key, words))
            });
        }
    }

    /// Ownership of a page is sent to a node. If that node is dead, whether or not that is known,
    /// the page is lost with it, because it may have stored before it died.
    pub(crate) fn ownership_sent(&mut self, to: NodeId, key: PageKey) {
        let Some(successor) = self.hosts.iter().position(|host| host.id == Some(to)) else {
            return;
        };
        self.checkers.golden.passed(successor, key);
        self.contents_dropped(key);
    }

    /// A host is gone, in order or by a crash.
    pub(crate) fn depart(&mut self, at: usize, how: Life) {
        let theirs: Vec<usize> = (0..self.processes.clients.len())
            .filter(|client| self.processes.clients[*client].host == at)
            .collect();
        for client in theirs {
            self.end_client(client);
        }
        self.processes.tickets.retain(|_, asked| asked.host != at);
        if let Some(node) = self.hosts[at].id {
            self.checkers.lines.gone(node);
        }
        let host = &mut self.hosts[at];
        host.life = how;
        host.inbox.clear();
        (host.answers, host.remains) = (0, None);
        host.kernel = Kernel::default();
    }

    /// Kills a process; its host's daemon will hear of it.
    pub(crate) fn kill_client(&mut self, client: usize) {
        let Some(victim) = self.processes.clients.get(client) else {
            return;
        };
        let (host, id) = (victim.host, victim.id);
        if victim.alive && self.hosts[host].life == Life::Up {
            self.log
                .note(self.now, host, Mark::Hand, [4; 3], || format!("{id} dies"));
            self.end_client(client);
            self.input(host, Input::ClientGone { client: id });
        }
    }

    /// The driver forgets mappings and clients that are gone before the node hears of it.
    pub(crate) fn forget_the_dead(&mut self, at: usize, input: &Input<'_>) {
        match input {
            Input::Unmapped { mapping } => self.hosts[at].kernel.unmapped(*mapping),
            Input::ClientGone { client } => self.hosts[at].kernel.client_gone(*client),
            _ => {}
        }
    }

    /// The node has heard that a client is gone: the locks that the client held come back.
    pub(crate) fn return_locks_of_dead(&mut self, at: usize, client: ClientId) {
        for key in self.hosts[at].kernel.recover_locks(client) {
            self.processes.bequeathed.insert(key);
            self.log.note(
                self.now,
                at,
                Mark::Lock,
                [key.segment.0, key.number, 3],
                || format!("{key} taken from dead {client}"),
            );
            self.input(
                at,
                Input::LockReturned {
                    key,
                    recovered: true,
                },
            );
        }
    }

    /// True if the input that tells of a client's death still waits for the node.
    pub(crate) fn death_under_way(&self, at: usize, client: ClientId) -> bool {
        self.hosts[at].inbox.iter().any(|pending| {
            matches!(pending, Pending::Local(Input::ClientGone { client: gone }) if *gone == client)
        })
    }

    /// True if the input that tells of a token's return still waits for the node.
    pub(crate) fn return_under_way(&self, at: usize, key: SyncKey) -> bool {
        let returns = |input: &Input<'_>| matches!(input, Input::LockReturned { key: back, .. } if *back == key);
        self.reaction.answers.iter().any(returns)
            || self.hosts[at]
                .inbox
                .iter()
                .any(|pending| matches!(pending, Pending::Local(input) if returns(input)))
    }
}
