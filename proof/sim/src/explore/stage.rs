//! Before the play and after it: the cluster forms and opens the segment; every
//! page is read everywhere.

use super::happen::{client, mapping};
use super::lab::Lab;
use super::setting::{Luck, Setting};
use super::site::Site;
use super::state::{Life, Mode, Observer, State, Thread};
use crate::check::{Check, ensure};
use crate::perform::credentials;
use pagemesh_core::{Input, Request};
use pagemesh_wire::Ticket;
use std::collections::VecDeque;
use std::rc::Rc;

/// The nodes of a cluster of so many hosts, each with a process that has a
/// segment of four pages mapped.
pub(crate) fn cluster(hosts: usize) -> Vec<Site> {
    let mut text = format!("explore nodes={hosts} pages=4");
    for host in 1..=hosts {
        text += &format!("\nthread n{host} read 0");
    }
    let setting = Setting::parse(&text).expect("a setting");
    let mut lab = Lab::new(setting);
    let state = State::first(&mut lab).expect("a cluster forms");
    let sites = state.sites.iter().map(|site| lab.site(*site).clone());
    sites.collect()
}

/// More steps than forming a cluster or reading a few pages takes.
const STEPS: usize = 20_000;

impl State {
    /// All hosts are members, all threads have the segment mapped.
    pub(super) fn first(lab: &mut Lab) -> Check<Self> {
        let hosts = lab.setting.nodes;
        let mut state = Self {
            sites: (0..hosts).map(|host| lab.unborn(host)).collect(),
            lives: vec![Life::Up; hosts],
            wires: vec![VecDeque::new(); hosts * hosts],
            late: Vec::new(),
            inboxes: vec![VecDeque::new(); hosts],
            threads: Vec::new(),
            opened: None,
            observer: Rc::new(Observer::default()),
            luck: Luck::default(),
        };
        for host in 0..hosts {
            state.tick(lab, host)?;
            state.settle(lab)?;
        }
        let home = lab.setting.home;
        state.open(lab, home)?;
        for host in (0..hosts).filter(|host| *host != home) {
            state.open(lab, host)?;
        }
        state.observer = Rc::new(Observer::default());
        state.threads = vec![Thread::NEW; lab.setting.threads.len()];
        state.luck = lab.setting.luck;
        Ok(state)
    }

    /// Every process of a host opens the segment and maps it.
    fn open(&mut self, lab: &mut Lab, host: usize) -> Check {
        let plan = lab.setting.segment();
        let readers = lab.setting.threads.len();
        let threads = lab.setting.threads.iter().enumerate();
        let mut processes: Vec<usize> = threads
            .filter(|(_, (at, _))| *at == host)
            .map(|(number, _)| number)
            .collect();
        processes.push(readers + host);
        for process in processes {
            self.inboxes[host].push_back(Input::Request {
                ticket: Ticket(process as u64 * 1000),
                client: client(process),
                request: Request::Open {
                    name: plan.name.clone(),
                    create: (host == lab.setting.home).then(|| plan.spec()),
                    exclusive: false,
                    write: true,
                    credentials: credentials(),
                },
            });
            self.settle(lab)?;
            ensure!(self.opened.is_some(), Progress, "the segment does not open");
            lab.segment = self.opened.unwrap_or_default();
            self.inboxes[host].push_back(Input::Mapped {
                mapping: mapping(process),
                segment: lab.segment,
                client: client(process),
            });
            self.settle(lab)?;
        }
        Ok(())
    }

    /// Lets everything happen that will, in some order, until clocks change nothing.
    pub(super) fn settle(&mut self, lab: &mut Lab) -> Check {
        for _ in 0..STEPS {
            let next = self.steps().first().copied();
            let next = next.map(|step| self.after(lab, step)).transpose()?;
            match next.flatten() {
                Some(next) => *self = next,
                None => return Ok(()),
            }
        }
        ensure!(false, Quiet, "it does not end within {STEPS} steps");
        Ok(())
    }

    /// Every living host reads every page.
    pub(super) fn read_out(&self, lab: &mut Lab) -> Check {
        let mut state = self.clone();
        state.luck = Luck::default();
        let programs = lab.setting.threads.clone();
        let readers = lab.setting.look_around();
        for host in 0..self.hosts() {
            lab.setting.threads.push((host, readers.clone()));
            let thread = Thread {
                mode: if self.is_up(host) {
                    Mode::Ready
                } else {
                    Mode::Done
                },
                ..Thread::NEW
            };
            state.threads.push(thread);
        }
        let read = state.settle(lab);
        lab.setting.threads = programs;
        read?;
        let stuck = state
            .threads
            .iter()
            .position(|thread| thread.mode != Mode::Done);
        ensure!(
            stuck.is_none(),
            PageNotLost,
            "in the end t{} cannot read every page: {:?}",
            stuck.unwrap_or_default() + 1,
            state.threads
        );
        Ok(())
    }
}
