//! How an explored cluster begins: all hosts are members and have all views of the page.

use super::{
    CLIENT, CLUSTER, Golden, Life, PAGE, ROUNDS, SILENCE, State as _, TICK, Thread, VIEWS, World,
};
use crate::small::{self, Check};
use crate::views::explore::setting::{Luck, ViewsSetting};
use crate::views::host::Memory;
use pagemesh_core::{Input, Node, Pace, Request, Time};
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{Credentials, Policy, SegmentSpec};
use pagemesh_wire::{ByteLen, MappingId, PAGE_SIZE, PageCount};
use std::collections::VecDeque;
use std::time::Duration;

impl World {
    pub(in crate::views::explore) fn new(setting: &ViewsSetting) -> Check<Self> {
        let pace = Pace {
            resend_first: TICK,
            resend_soonest: TICK,
            resend_ceiling: TICK,
            heartbeat: Duration::from_secs(1_000_000),
            dead_after: SILENCE,
            ahead: 0,
            ..Pace::default()
        };
        let hosts = setting.nodes;
        let node = |host| Node::new(small::config(host, CLUSTER, host as u64 + 1, pace));
        let mut world = Self {
            programs: setting.threads.clone().into(),
            nodes: (0..hosts).map(node).collect(),
            clocks: vec![Time(1_000); hosts],
            memory: vec![Memory::default(); hosts],
            lives: vec![Life::Up; hosts],
            wires: vec![VecDeque::new(); hosts * hosts],
            late: Vec::new(),
            threads: Vec::new(),
            golden: Golden {
                value: 0,
                last: Some(0),
                floor: 0,
                published: 0,
                kept: (setting.replicas > 0).then_some(0),
                seen: vec![[0; 2]; hosts],
                purged: vec![[0; 2]; hosts],
                death: false,
            },
            luck: Luck::default(),
            segment: None,
            at: 0,
        };
        for host in 0..hosts {
            world.tick(host)?;
            world.settle()?;
        }
        let others = (0..hosts).filter(|host| *host != setting.home);
        for host in [setting.home].into_iter().chain(others) {
            world.open(host, setting)?;
        }
        let begin = Thread {
            at: 0,
            stopped: false,
        };
        world.threads = vec![begin; setting.threads.len()];
        world.luck = setting.luck;
        Ok(world)
    }

    fn open(&mut self, host: usize, setting: &ViewsSetting) -> Check {
        let create = SegmentSpec {
            size: ByteLen(PAGE_SIZE as u64),
            mode: 0o600,
            policy: Policy::Views { prefix: 32 },
            replicas: setting.replicas,
        };
        let request = Request::Open {
            name: "a".into(),
            create: Some(create),
            exclusive: false,
            write: true,
            credentials: Credentials::root(),
        };
        self.ask(host, request)?;
        self.settle()?;
        let segment = self.segment.ok_or("the segment is not opened")?;
        for (number, view) in (1..).map(MappingId).zip(VIEWS) {
            let mapped = Input::MappedView {
                mapping: number,
                segment,
                client: CLIENT,
                view,
            };
            self.input(host, mapped)?;
        }
        if setting.renews {
            self.ask(
                host,
                Request::Advise {
                    segment,
                    first: PAGE,
                    count: PageCount(1),
                    advice: Advice::Renew,
                },
            )?;
        }
        self.settle()
    }

    /// Delivers everything in order, and lets all timers of the set-up be due.
    fn settle(&mut self) -> Check {
        for _ in 0..ROUNDS {
            while let Some(packet) = self.wires.iter_mut().find_map(VecDeque::pop_front) {
                self.arrive(&packet)?;
            }
            let before = self.digest();
            self.wait()?;
            if self.digest() == before {
                return Ok(());
            }
        }
        Err("the set-up does not end".into())
    }
}
