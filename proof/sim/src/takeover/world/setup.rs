//! How an explored takeover begins: the first host coordinates, the second one is its standby.

use super::{CLUSTER, Cut, HOSTS, Host, Life, Mode, ROUNDS, SILENCE, STANDBY, TICK, Thread, World};
use crate::small::search::State as _;
use crate::small::{self, Check};
use crate::takeover::names::Names;
use crate::takeover::setting::{Luck, Op, TakeoverSetting};
use pagemesh_core::{Config, Node, Pace, Time};
use pagemesh_wire::Term;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

impl World {
    pub(in crate::takeover) fn new(setting: &TakeoverSetting) -> Check<Self> {
        let pace = Pace {
            resend_first: TICK,
            resend_soonest: TICK,
            resend_ceiling: TICK,
            heartbeat: TICK,
            dead_after: SILENCE,
            ahead: 0,
            ..Pace::default()
        };
        let host = |host| {
            // Incarnations far apart are of different hosts.
            let config = small::config(host, CLUSTER, (host as u64 + 1) << 32, pace);
            let node = Node::new(Config {
                standby: true,
                ..config
            });
            Rc::new(Host {
                age: node.view().age(),
                node,
                clock: Time(1_000_000_000),
                promised: (Term::NONE, Time::ZERO),
                digest: 0,
            })
        };
        let mut world = Self {
            programs: setting.threads.clone().into(),
            mistake: None,
            hosts: (0..HOSTS).map(host).collect(),
            lives: [Life::Unborn; HOSTS],
            cut: Cut::None,
            wires: vec![VecDeque::new(); HOSTS * HOSTS],
            late: Vec::new(),
            beats: VecDeque::new(),
            threads: Vec::new(),
            names: Names::new(),
            solid: Names::new(),
            made: BTreeMap::new(),
            asked: false,
            luck: Luck::default(),
            at: 0,
            promoted: false,
        };
        let joins = |(_, ops): &(usize, Vec<Op>)| ops.first() == Some(&Op::Join);
        let members = HOSTS - usize::from(setting.threads.iter().any(joins));
        for host in 0..members {
            world.lives[host] = Life::Up;
            world.tick(host)?;
            world.settle()?;
        }
        let view = world.hosts[0].node.view();
        if view.standby != super::number(STANDBY) || view.members.len() != members {
            return Err(format!("the set-up ends in {view:?}"));
        }
        let begin = Thread {
            at: 0,
            mode: Mode::Runs,
        };
        world.threads = vec![begin; setting.threads.len()];
        world.luck = setting.luck;
        world.mistake = setting.mistake;
        Ok(world)
    }

    /// Delivers everything in order, and lets all timers of the set-up be due.
    fn settle(&mut self) -> Check {
        for _ in 0..ROUNDS {
            while let Some(packet) = self.wires.iter_mut().find_map(VecDeque::pop_front) {
                self.arrive(&packet)?;
                self.settle_beats()?;
            }
            self.refresh();
            let before = self.digest();
            self.wait()?;
            self.settle_beats()?;
            self.refresh();
            if self.digest() == before {
                return Ok(());
            }
        }
        Err("the set-up does not end".into())
    }

    fn refresh(&mut self) {
        for host in &mut self.hosts {
            Rc::make_mut(host).refresh();
        }
    }
}
