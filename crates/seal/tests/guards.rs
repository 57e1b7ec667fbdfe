//! Guards that meet, talk and are attacked.

use pagemesh_seal::{
    Dice, Guard, Identity, Now, Outbox, Outgoing, Pace, Refused, Ring, Secret, Token, Whom,
};
use pagemesh_wire::PublicKey;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Seeded(Mutex<Xoshiro256PlusPlus>);

impl Dice for Seeded {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().unwrap().fill_bytes(bytes);
    }
}

fn dice(seed: u64) -> Arc<dyn Dice> {
    Arc::new(Seeded(Mutex::new(Xoshiro256PlusPlus::seed_from_u64(seed))))
}

fn ring(secret: &Secret) -> Ring {
    Ring::default().rotated(secret.clone(), 0)
}

fn at(millis: u64) -> Now {
    Now {
        since: Duration::from_millis(millis),
        unix: 1000 + millis / 1000,
    }
}

/// Hosts by number; host `n` has address 10.0.0.n.
struct World {
    hosts: Vec<Guard>,
    now: u64,
    /// All packets ever sent: from, to, bytes.
    wire: Vec<(usize, usize, Vec<u8>)>,
    /// The opened datagrams: receiver, sender's key, contents.
    heard: Vec<(usize, PublicKey, Vec<u8>)>,
    refused: Vec<(usize, Refused)>,
}

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8], 7450))
}

fn host(address: SocketAddr) -> usize {
    match address.ip() {
        std::net::IpAddr::V4(ip) => usize::from(ip.octets()[3]),
        std::net::IpAddr::V6(_) => unreachable!(),
    }
}

impl World {
    fn new(guards: Vec<Guard>) -> Self {
        Self {
            hosts: guards,
            now: 1,
            wire: Vec::new(),
            heard: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// Hosts that all know one secret.
    fn of(count: usize, pace: Pace) -> Self {
        let secret = Secret::new(&*dice(99));
        let guards = (0..count).map(|n| {
            let dice = dice(n as u64);
            Guard::new(Identity::new(&*dice), ring(&secret), None, pace, dice)
        });
        Self::new(guards.collect())
    }

    /// Tells all hosts that all hosts are members.
    fn admit_all(&mut self) {
        let keys: Vec<_> = self.hosts.iter().map(Guard::public).collect();
        for guard in &mut self.hosts {
            guard.set_members(keys.iter().copied(), [].into_iter());
        }
    }

    fn key(&self, host: usize) -> PublicKey {
        self.hosts[host].public()
    }

    /// Seals and sends; all that follows is delivered if `keep` says so.
    fn say(&mut self, from: usize, to: usize, whom: Whom, text: &str, keep: fn(usize) -> bool) {
        let mut outbox = Outbox::new();
        let guard = &mut self.hosts[from];
        let parts = [text.as_bytes(), b"!"];
        let sealed = guard.seal(at(self.now), address(to), whom, &parts, &mut outbox);
        let sealed = sealed.cloned();
        outbox.extend(sealed.map(|bytes| Outgoing {
            to: address(to),
            bytes,
        }));
        self.deliver(from, outbox, keep);
    }

    fn deliver(&mut self, from: usize, outbox: Outbox, keep: fn(usize) -> bool) {
        for outgoing in outbox {
            let to = host(outgoing.to);
            let number = self.wire.len();
            self.wire.push((from, to, outgoing.bytes.clone()));
            if keep(number) {
                self.bring(from, to, outgoing.bytes, keep);
            }
        }
    }

    fn bring(&mut self, from: usize, to: usize, bytes: Vec<u8>, keep: fn(usize) -> bool) {
        let mut outbox = Outbox::new();
        let (now, mut clear) = (at(self.now), vec![0; bytes.len()]);
        match self.hosts[to].open(now, address(from), &bytes, &mut clear, &mut outbox) {
            Ok(Some(opened)) => {
                clear.truncate(opened.length);
                self.heard.push((to, opened.key, clear));
            }
            Ok(None) => {}
            Err(why) => self.refused.push((to, why)),
        }
        self.deliver(to, outbox, keep);
    }

    fn texts(&self, host: usize) -> Vec<String> {
        let heard = self.heard.iter().filter(|(to, ..)| *to == host);
        heard
            .map(|(.., bytes)| String::from_utf8(bytes.clone()).unwrap())
            .collect()
    }
}

fn all(_: usize) -> bool {
    true
}

#[test]
fn a_stranger_with_the_key_is_let_in() {
    let mut world = World::of(2, Pace::default());
    world.say(0, 1, Whom::Anybody, "let me in", all);
    assert_eq!(world.heard, [(1, world.key(0), b"let me in!".to_vec())]);
    world.say(1, 0, Whom::Member(world.key(0)), "welcome", all);
    world.say(1, 0, Whom::Anybody, "again", all);
    assert_eq!(world.texts(0), ["welcome!", "again!"]);
    assert_eq!(world.wire.len(), 6, "three to shake hands");
    assert!(world.refused.is_empty());
    let secret = |bytes: &Vec<u8>| bytes.windows(6).any(|part| part == b"let me");
    assert!(!world.wire.iter().any(|(.., bytes)| secret(bytes)));
}

#[test]
fn members_need_no_common_secret() {
    let mut world = World::of(3, Pace::default());
    for guard in &mut world.hosts {
        guard.set_ring(Ring::default());
    }
    world.admit_all();
    world.say(0, 1, Whom::Member(world.key(1)), "one", all);
    world.say(1, 0, Whom::Member(world.key(0)), "two", all);
    world.say(2, 1, Whom::Member(world.key(1)), "three", all);
    assert_eq!(world.texts(1), ["one!", "three!"]);
    assert_eq!(world.texts(0), ["two!"]);
    assert_eq!(world.heard[2].1, world.key(2));
    assert!(world.refused.is_empty());
}

#[test]
fn both_may_handshake_at_once() {
    let mut world = World::of(2, Pace::default());
    world.admit_all();
    let nothing = |_| false;
    world.say(0, 1, Whom::Member(world.key(1)), "a", nothing);
    world.say(1, 0, Whom::Member(world.key(0)), "b", nothing);
    let wire = world.wire.clone();
    for (from, to, bytes) in wire {
        world.bring(from, to, bytes, all);
    }
    for turn in 0..6 {
        let (from, to) = (turn % 2, 1 - turn % 2);
        world.say(from, to, Whom::Member(world.key(to)), "more", all);
    }
    assert_eq!(world.texts(0), ["b!", "more!", "more!", "more!"]);
    assert_eq!(world.texts(1), ["a!", "more!", "more!", "more!"]);
    assert!(world.refused.is_empty(), "{:?}", world.refused);
}

/// It left with the next session, minutes later: seed 142 with `--replace`.
#[test]
fn what_waits_leaves_although_the_other_began_the_session() {
    let mut world = World::of(2, Pace::default());
    world.admit_all();
    world.say(0, 1, Whom::Member(world.key(1)), "early", |_| false);
    world.say(1, 0, Whom::Member(world.key(0)), "hello", all);
    world.say(1, 0, Whom::Member(world.key(0)), "again", all);
    assert_eq!(world.texts(0), ["hello!", "again!"]);
    assert_eq!(world.texts(1), ["early!"], "once");
}

#[test]
fn lost_messages_of_a_handshake_are_made_good() {
    // Any two of the first datagrams are lost.
    for (first, second) in [
        (0, 1),
        (0, 2),
        (1, 2),
        (1, 3),
        (2, 3),
        (0, 3),
        (2, 4),
        (3, 4),
    ] {
        for strangers in [true, false] {
            let mut world = World::of(2, Pace::default());
            let whom = if strangers {
                Whom::Anybody
            } else {
                world.admit_all();
                Whom::Member(world.key(1))
            };
            let mut number = 0;
            for turn in 0..40 {
                world.now += 30;
                let mut outbox = Outbox::new();
                let text = format!("{turn}");
                let sealed = world.hosts[0].seal(
                    at(world.now),
                    address(1),
                    whom,
                    &[text.as_bytes()],
                    &mut outbox,
                );
                outbox.extend(sealed.map(|bytes| Outgoing {
                    to: address(1),
                    bytes: bytes.to_vec(),
                }));
                let mut queue: Vec<_> = outbox.into_iter().map(|outgoing| (0, outgoing)).collect();
                while !queue.is_empty() {
                    let (from, outgoing) = queue.remove(0);
                    number += 1;
                    if number - 1 == first || number - 1 == second {
                        continue;
                    }
                    let to = host(outgoing.to);
                    let mut outbox = Outbox::new();
                    let mut clear = vec![0; outgoing.bytes.len()];
                    if let Ok(Some(opened)) = world.hosts[to].open(
                        at(world.now),
                        address(from),
                        &outgoing.bytes,
                        &mut clear,
                        &mut outbox,
                    ) {
                        clear.truncate(opened.length);
                        world.heard.push((to, opened.key, clear));
                    }
                    queue.extend(outbox.into_iter().map(|outgoing| (to, outgoing)));
                }
            }
            assert_eq!(
                world.texts(1).last().map(String::as_str),
                Some("39"),
                "lost {first} and {second}, strangers: {strangers}"
            );
        }
    }
}

#[test]
fn wrong_keys_old_keys_and_expired_tokens_stay_outside() {
    let (old, new) = (Secret::new(&*dice(1)), Secret::new(&*dice(2)));
    let guard = |seed, ring: Ring, token| {
        let dice = dice(seed);
        Guard::new(Identity::new(&*dice), ring, token, Pace::default(), dice)
    };
    let good = Token::new(&new, 1001, &*dice(3));
    let mut world = World::new(vec![
        guard(10, ring(&old).rotated(new.clone(), 1), None),
        guard(11, ring(&old), None),
        guard(12, ring(&Secret::new(&*dice(4))), None),
        guard(13, Ring::default(), Some(good.clone())),
        guard(14, Ring::default(), Some(good)),
        guard(15, Ring::default(), None),
    ]);
    world.say(1, 0, Whom::Anybody, "old but accepted", all);
    world.say(3, 0, Whom::Anybody, "token", all);
    assert_eq!(world.texts(0), ["old but accepted!", "token!"]);
    world.say(2, 0, Whom::Anybody, "wrong", all);
    world.now = 1500;
    world.say(4, 0, Whom::Anybody, "too late", all);
    world.hosts[0].set_ring(ring(&new));
    world.say(5, 0, Whom::Anybody, "nothing", all);
    let wire = world.wire.len();
    let dice = dice(16);
    world.hosts[1] = Guard::new(
        Identity::new(&*dice),
        ring(&old),
        None,
        Pace::default(),
        dice,
    );
    world.say(1, 0, Whom::Anybody, "old", all);
    let (_, _, greeting) = &world.wire[wire];
    let (_, _, answer) = &world.wire[wire + 1];
    assert_eq!(world.wire.len(), wire + 2, "the old key gets a hint");
    assert!(answer.len() < greeting.len(), "and nothing is amplified");
    let said = |host: usize| world.hosts[host].turned_away();
    assert_eq!(said(1), Some((address(0), Refused::WrongKey)));
    assert_eq!(said(2), Some((address(0), Refused::WrongKey)));
    assert_eq!(said(4), Some((address(0), Refused::Expired)));
    assert_eq!((said(0), said(3), said(5)), (None, None, None));
    assert_eq!(world.texts(0).len(), 2);
    let why: Vec<_> = world.refused.iter().map(|(_, why)| *why).collect();
    assert_eq!(
        why,
        [Refused::WrongKey, Refused::Expired, Refused::WrongKey]
    );
}

/// A member with two keys, a host with the older one, and a bearer of its token.
fn two_keys() -> (World, Secret) {
    let (old, new) = (Secret::new(&*dice(1)), Secret::new(&*dice(2)));
    let guard = |seed, ring: Ring, token| {
        let dice = dice(seed);
        Guard::new(Identity::new(&*dice), ring, token, Pace::default(), dice)
    };
    let token = Token::new(&old, 1100, &*dice(3));
    let world = World::new(vec![
        guard(10, ring(&old).rotated(new.clone(), 1), None),
        guard(11, ring(&old), None),
        guard(12, Ring::default(), Some(token)),
    ]);
    (world, new)
}

#[test]
fn sessions_end_with_the_key_they_rest_on() {
    let (mut world, new) = two_keys();
    world.say(1, 0, Whom::Anybody, "key", all);
    world.say(2, 0, Whom::Anybody, "token", all);
    // Half of a handshake: its last message comes after the key is gone.
    let proof = |number| number != 8;
    world.hosts[1] = {
        let dice = dice(20);
        let old = ring(&Secret::new(&*self::dice(1)));
        Guard::new(Identity::new(&*dice), old, None, Pace::default(), dice)
    };
    world.say(1, 0, Whom::Anybody, "half", proof);
    assert_eq!(world.texts(0), ["key!", "token!"]);
    let (from, to, bytes) = world.wire[8].clone();
    assert_eq!((from, to), (1, 0), "the last message of the handshake");
    world.hosts[0].set_ring(ring(&new));
    world.bring(from, to, bytes, all);
    for round in 0..3 {
        world.now += 2000 * round;
        world.say(1, 0, Whom::Anybody, "key", all);
        world.say(2, 0, Whom::Anybody, "token", all);
        world.say(0, 1, Whom::Anybody, "are you there?", all);
    }
    assert_eq!(world.texts(0).len(), 2, "{:?}", world.texts(0));
    assert!(world.refused.contains(&(0, Refused::WrongKey)));
}

#[test]
fn members_go_on_when_the_key_they_came_with_is_gone() {
    let (mut world, new) = two_keys();
    world.say(1, 0, Whom::Anybody, "key", all);
    world.say(2, 0, Whom::Anybody, "token", all);
    world.admit_all();
    world.hosts[0].set_ring(ring(&new));
    for (from, to) in [(0, 1), (0, 2), (1, 0), (2, 0)] {
        let whom = Whom::Member(world.key(to));
        world.now += 2000;
        world.say(from, to, whom, "member", all);
    }
    assert_eq!(world.texts(0), ["key!", "token!", "member!", "member!"]);
    assert_eq!((world.texts(1).len(), world.texts(2).len()), (1, 1));
}

#[test]
fn a_session_does_not_outlive_the_token_of_who_is_no_member() {
    let (mut world, _) = two_keys();
    world.say(2, 0, Whom::Anybody, "in time", all);
    world.now += 100_000;
    world.say(2, 0, Whom::Anybody, "too late", all);
    assert_eq!(world.texts(0), ["in time!"]);
    world.admit_all();
    let whom = Whom::Member(world.key(0));
    world.say(2, 0, whom, "a member by now", all);
    assert_eq!(world.texts(0), ["in time!", "a member by now!"]);
}

#[test]
fn nothing_is_believed_twice_or_changed_or_sent_back() {
    let mut world = World::of(2, Pace::default());
    world.admit_all();
    for text in ["a", "b", "c"] {
        world.say(0, 1, Whom::Member(world.key(1)), text, all);
    }
    let wire = world.wire.clone();
    let heard = world.heard.len();
    for (from, to, bytes) in &wire {
        world.bring(*from, *to, bytes.clone(), |_| false);
        // Back to its sender, as if from the other.
        world.bring(*to, *from, bytes.clone(), |_| false);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            world.bring(*from, *to, changed, |_| false);
            world.bring(*from, *to, bytes[..at].to_vec(), |_| false);
        }
    }
    assert_eq!(world.heard.len(), heard, "nothing new was believed");
    world.now += 50;
    world.say(0, 1, Whom::Member(world.key(1)), "d", all);
    world.say(1, 0, Whom::Member(world.key(0)), "e", all);
    assert_eq!(world.texts(1).last().unwrap(), "d!");
    assert_eq!(world.texts(0).last().unwrap(), "e!");
}

#[test]
fn reordered_datagrams_are_opened_in_any_order() {
    let mut world = World::of(2, Pace::default());
    world.admit_all();
    world.say(0, 1, Whom::Member(world.key(1)), "first", all);
    let start = world.wire.len();
    for number in 0..50 {
        world.say(
            0,
            1,
            Whom::Member(world.key(1)),
            &number.to_string(),
            |_| false,
        );
    }
    for (from, to, bytes) in world.wire.split_off(start).into_iter().rev() {
        world.bring(from, to, bytes, all);
    }
    assert_eq!(world.texts(1).len(), 51);
    assert!(world.refused.is_empty());
}

#[test]
fn sessions_are_renewed_without_a_pause() {
    let pace = Pace {
        rekey_datagrams: 10,
        ..Pace::default()
    };
    let mut world = World::of(2, pace);
    world.admit_all();
    for number in 0..200 {
        world.now += 1;
        let (from, to) = (number % 2, 1 - number % 2);
        world.say(from, to, Whom::Member(world.key(to)), "x", all);
    }
    assert_eq!(world.heard.len(), 200, "every one at once");
    assert!(world.refused.is_empty(), "{:?}", world.refused);
    let greetings = world
        .wire
        .iter()
        .filter(|(.., bytes)| bytes[3] == 4)
        .count();
    assert!((10..40).contains(&greetings), "{greetings} greetings");
}

/// The coordinator has admitted it and declared it dead; it has heard of neither, so it answers no
/// member's hello, and asks for admission still.
#[test]
fn who_does_not_know_of_its_admission_is_spoken_to_when_its_session_is_worn() {
    let secret = Secret::new(&*dice(99));
    let token = Token::new(&secret, 5000, &*dice(98));
    let strangers = [(ring(&secret), None), (Ring::default(), Some(token))];
    for (theirs, token) in strangers {
        let pace = Pace {
            rekey_datagrams: 10,
            ..Pace::default()
        };
        let guard = |seed, ring, token| {
            let dice = dice(seed);
            Guard::new(Identity::new(&*dice), ring, token, pace, dice)
        };
        let guards = vec![guard(0, ring(&secret), None), guard(1, theirs, token)];
        let mut world = World::new(guards);
        let member = world.key(1);
        world.say(1, 0, Whom::Anybody, "let me in", all);
        world.hosts[0].set_members([member].into_iter(), [].into_iter());
        for _ in 0..100 {
            world.now += 1000;
            world.say(0, 1, Whom::Member(member), "who are you?", all);
        }
        world.heard.clear();
        for _ in 0..3 {
            world.now += 1000;
            world.say(1, 0, Whom::Anybody, "let me in", all);
            world.say(0, 1, Whom::Anybody, "you are out", all);
        }
        assert!(world.texts(0).len() > 1, "{:?}", world.texts(0));
        assert!(world.texts(1).len() > 1, "{:?}", world.texts(1));
    }
}

#[test]
fn a_replaced_daemon_is_spoken_to_again() {
    let mut world = World::of(2, Pace::default());
    world.admit_all();
    world.say(0, 1, Whom::Member(world.key(1)), "before", all);
    let private = *world.hosts[1].identity().private();
    let dice = dice(77);
    let identity = Identity::from_private(private);
    world.hosts[1] = Guard::new(identity, Ring::default(), None, Pace::default(), dice);
    world.admit_all();
    world.now += 100;
    world.say(0, 1, Whom::Member(world.key(1)), "lost", all);
    world.say(0, 1, Whom::Member(world.key(1)), "after", all);
    assert_eq!(world.texts(1), ["before!", "after!"]);
}

/// Datagrams sealed before the daemon was replaced, and datagrams sealed after it with the same
/// counters, are under different keys; and old ones are not accepted.
#[test]
fn a_replaced_daemon_uses_no_key_twice() {
    let mut world = World::of(2, Pace::default());
    world.admit_all();
    let exchange = |world: &mut World| {
        let start = world.wire.len();
        for _ in 0..8 {
            world.say(1, 0, Whom::Member(world.key(0)), "the same", all);
            world.say(0, 1, Whom::Member(world.key(1)), "the same", all);
        }
        world.wire[start..].to_vec()
    };
    let before = exchange(&mut world);
    let private = *world.hosts[1].identity().private();
    let (identity, again) = (Identity::from_private(private), dice(77));
    world.hosts[1] = Guard::new(identity, Ring::default(), None, Pace::default(), again);
    world.admit_all();
    world.now += 5000;
    let after = exchange(&mut world);
    let told = world.heard.len();
    assert!(world.texts(0).len() >= 15 && world.texts(1).len() >= 14);
    // Behind the frame, which has session and counter, is what the key made of it.
    let made = |wire: &[(usize, usize, Vec<u8>)]| -> HashSet<Vec<u8>> {
        let sealed = wire
            .iter()
            .filter(|(.., bytes)| (33..60).contains(&bytes.len()));
        sealed.map(|(.., bytes)| bytes[16..].to_vec()).collect()
    };
    let (old, new) = (made(&before), made(&after));
    assert!(
        old.len() >= 14 && new.len() >= 14,
        "{} {}",
        old.len(),
        new.len()
    );
    assert!(old.is_disjoint(&new), "one nonce twice under one key");
    for (from, to, bytes) in before {
        world.bring(from, to, bytes, all);
    }
    assert_eq!(world.heard.len(), told, "nothing of old is heard again");
    world.say(0, 1, Whom::Member(world.key(1)), "still", all);
    assert_eq!(world.texts(1).last().unwrap(), "still!");
}

#[test]
fn who_is_banned_or_no_member_is_not_spoken_to() {
    let mut world = World::of(3, Pace::default());
    world.admit_all();
    world.say(2, 1, Whom::Member(world.key(1)), "still here", all);
    let keys = [world.key(0), world.key(1)];
    let gone = world.key(2);
    world.hosts[1].set_members(keys.into_iter(), [gone].into_iter());
    world.now += 2000;
    let private = *world.hosts[2].identity().private();
    let secret = Secret::new(&*dice(99));
    let again = dice(5);
    let identity = Identity::from_private(private);
    world.hosts[2] = Guard::new(identity, ring(&secret), None, Pace::default(), again);
    let members = [world.key(0), world.key(1)];
    world.hosts[2].set_members(members.into_iter(), [].into_iter());
    world.say(2, 1, Whom::Member(world.key(1)), "greeting", all);
    world.say(2, 1, Whom::Anybody, "newcomer", all);
    assert_eq!(world.texts(1), ["still here!"]);
    let why: Vec<_> = world
        .refused
        .iter()
        .filter(|(by, _)| *by == 1)
        .map(|(_, why)| *why)
        .collect();
    assert!(why.contains(&Refused::Stranger), "{why:?}");
    assert!(why.contains(&Refused::Banned), "{why:?}");
}

#[test]
fn floods_cost_no_handshakes() {
    let mut world = World::of(2, Pace::default());
    let mut outbox = Outbox::new();
    for number in 0..10_000_u64 {
        let dice = dice(1000 + number);
        let mut bytes = vec![0; 120];
        dice.fill(&mut bytes);
        bytes[..4].copy_from_slice(b"PS\x01\x01");
        if number % 2 == 0 {
            bytes[3] = 4;
        }
        let now = at(number / 100);
        let opened = world.hosts[1].open(now, address(0), &bytes, &mut [0; 200], &mut outbox);
        assert!(opened.is_err());
    }
    assert!(outbox.is_empty());
    // Genuine introductions in a flood are limited, and hold little memory.
    world.say(0, 1, Whom::Anybody, "hello", |_| false);
    let greeting = world.wire[0].2.clone();
    let answered = (0..10_000).filter(|_| {
        let mut outbox = Outbox::new();
        let room = &mut [0; 200];
        let _ = world.hosts[1].open(at(100), address(0), &greeting, room, &mut outbox);
        !outbox.is_empty()
    });
    assert!((1..400).contains(&answered.count()));
}
