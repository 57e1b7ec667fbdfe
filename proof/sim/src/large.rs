//! Large clusters hold, and what each member sends does not grow with their number (decision 53).

use crate::plan::{Large, Profile};
use crate::run::{Options, run};
use crate::step::{ClientPlan, HostPlan, Seg, SegmentPlan, Step};
use crate::world::{Setting, World};
use pagemesh_core::{Time, limits};
use pagemesh_wire::peer::Policy;

const SECOND: u64 = 1_000_000_000;

/// Seconds in which signs of life are counted.
const CALM: u64 = 10;

fn holds(profile: Profile, nodes: usize, seed: u64) {
    let outcome = run(Options {
        seed,
        profile,
        large: Some(Large {
            nodes,
            segments: nodes,
        }),
        ..Options::default()
    });
    assert_eq!(outcome.failure, None, "seed {seed}");
    assert!(outcome.stats.operations > nodes as u64);
}

#[test]
fn clusters_of_many_hosts_hold() {
    for seed in 0..3 {
        holds(Profile::Mild, 20, seed);
        holds(Profile::Harsh, 20, seed);
        holds(Profile::Mild, 80, seed);
        holds(Profile::Harsh, 80, seed);
    }
    holds(Profile::Calm, 250, 0);
}

/// What the members of a cluster send: the one that sends most, and the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    member: u64,
    coordinator: u64,
}

/// The datagrams of each of a cluster's occasions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    /// Some seconds in which nothing happens.
    calm: Sent,
    /// What a death adds.
    death: Sent,
    /// What it adds that each member opens and closes a segment.
    names: Sent,
}

fn world(nodes: usize) -> World {
    let host = |_| HostPlan {
        starts_at: 0,
        successor_of: None,
        resumes: None,
        clock_offset: 0,
        cost: 1_000,
        wake: 1_000,
    };
    let mut world = World::new(Setting {
        far: true,
        hosts: (0..nodes).map(host).collect(),
        segments: vec![SegmentPlan {
            name: "named".to_owned(),
            pages: 1,
            policy: Policy::default(),
            replicas: 0,
        }],
        ..Setting::default()
    });
    world.admit_all();
    elapse(&mut world, 2);
    world
}

fn elapse(world: &mut World, seconds: u64) {
    let end = Time(world.now.0 + seconds * SECOND);
    while world.next_time().is_some_and(|next| next <= end) {
        world.step().unwrap();
    }
    world.now = end;
}

/// What all send in so many seconds.
fn count(world: &mut World, seconds: u64) -> Sent {
    world.traffic.sent = vec![0; world.hosts.len()];
    elapse(world, seconds);
    let sent = &world.traffic.sent;
    Sent {
        member: sent[1..].iter().copied().max().unwrap_or(0),
        coordinator: sent[0],
    }
}

impl Sent {
    fn beyond(self, calm: Self) -> Self {
        Self {
            member: self.member.saturating_sub(calm.member),
            coordinator: self.coordinator.saturating_sub(calm.coordinator),
        }
    }
}

fn cost(nodes: usize) -> Cost {
    let mut world = world(nodes);
    let view = world.hosts[nodes - 1].node.view();
    assert_eq!(view.members.len(), nodes, "the last host knows all others");
    let calm = count(&mut world, CALM);
    world.losses.expected = vec![nodes - 1];
    world.crash(nodes - 1, "vanishes").unwrap();
    let death = count(&mut world, CALM).beyond(calm);
    for host in 0..nodes - 1 {
        world.spawn_client(ClientPlan {
            host,
            programs: vec![vec![
                Step::Begin,
                Step::Open {
                    seg: Seg::Main(0),
                    name: 0,
                    create: true,
                    exclusive: false,
                    write: true,
                },
                Step::Close(Seg::Main(0)),
            ]],
            farewell: Vec::new(),
        });
    }
    let names = count(&mut world, CALM).beyond(calm);
    assert_eq!(world.processes.unfinished, 0, "all have opened it");
    Cost { calm, death, names }
}

/// Signs of life and deaths cost each node, the coordinator too, as much in a cluster of a thousand as in
/// one that just has relays: what it exchanges with so many others. Opening a segment costs a message to
/// the coordinator and one back.
#[test]
fn a_node_sends_as_much_in_a_cluster_of_any_size() {
    let few = cost(16);
    let relays = limits::RELAYS as u64;
    let beats = 2 * CALM;
    assert!(few.calm.member <= beats + 2, "{few:?}");
    for nodes in [128, 1000] {
        let many = cost(nodes);
        println!("{nodes}: {many:?}, 16: {few:?}");
        let at_most = |sent: u64, most: u64| assert!(sent <= most, "{nodes}: {many:?}");
        at_most(many.calm.coordinator, (beats + 1) * relays);
        at_most(many.calm.member, (beats + 1) * (relays + 1));
        at_most(many.death.coordinator, 2 * relays);
        at_most(many.death.member, 2 * relays);
        at_most(many.names.member, few.names.member + 2);
        at_most(many.names.coordinator, 2 * nodes as u64);
    }
}

/// Nodes that a relay's death leaves without one turn to the coordinator, and none of them is taken for
/// dead.
#[test]
fn a_relay_that_dies_takes_no_member_with_it() {
    let mut world = world(128);
    for relay in [5, 6, 7] {
        world.losses.expected.push(relay);
        world.crash(relay, "vanishes").unwrap();
        elapse(&mut world, CALM);
    }
    for host in [1, 50, 127] {
        let view = world.hosts[host].node.view();
        assert_eq!(view.living().count(), 125, "host {host}");
    }
}

/// While the coordinator is silent, each member asks some others at each heartbeat, and is asked by as
/// many.
#[test]
fn a_silent_coordinator_costs_a_member_as_much_in_a_cluster_of_any_size() {
    let members_send = |nodes| {
        let mut world = world(nodes);
        world.losses.expected = vec![0];
        world.crash(0, "vanishes").unwrap();
        elapse(&mut world, CALM);
        count(&mut world, CALM).member
    };
    let asked = limits::ASKED as u64;
    let [few, many] = [asked as usize + 2, 128].map(members_send);
    assert!(few > CALM * asked, "the control: {few}");
    assert!(many <= few + few / 10, "{few} {many}");
}
