//! What befalls hosts and the network.

use super::first::first_fails;
use super::{Features, MICRO, MILLI, Profile};
use crate::dice::Dice;
use crate::run::Options;
use crate::step::{ClientPlan, Fault};
use crate::world::Setting;
use pagemesh_core::Time;

pub(super) fn faults(
    dice: &mut Dice,
    profile: Profile,
    features: Features,
    hosts: usize,
    clients: &[ClientPlan],
    heal_at: Time,
) -> Vec<(Time, Fault)> {
    let mut faults = Vec::new();
    // Most runs are over long before they are healed: trouble comes early.
    let soon = |dice: &mut Dice| {
        let span = if dice.chance(700) {
            heal_at.0 / 10
        } else {
            heal_at.0
        };
        Time(dice.between(10 * MICRO, span))
    };
    let (rounds, longest) = match profile {
        Profile::Calm => (0, 0),
        Profile::Mild => (dice.below(4), 10 * MILLI),
        Profile::Harsh | Profile::Wild => (dice.below(8), 80 * MILLI),
    };
    for _ in 0..rounds {
        let length = dice.between(50 * MICRO, longest);
        let fault = match dice.below(4) {
            0 | 1 => Fault::Cut {
                pairs: cut(dice, hosts),
                length,
            },
            2 => Fault::Pause {
                host: dice.index(hosts),
                length,
            },
            _ => Fault::Slow {
                host: dice.index(hosts),
                factor: dice.between(5, 100),
                length,
            },
        };
        faults.push((soon(dice), fault));
    }
    if features.client_deaths {
        // No other thread relies on a client without a farewell.
        for (client, _) in clients
            .iter()
            .enumerate()
            .filter(|(_, plan)| plan.farewell.is_empty())
        {
            if dice.chance(600) {
                faults.push((soon(dice), Fault::ClientDies { client }));
            }
        }
    }
    faults
}

/// Some pairs of hosts between which nothing gets through, one way or both.
fn cut(dice: &mut Dice, hosts: usize) -> Vec<(usize, usize)> {
    let alone = dice.index(hosts);
    let (out, back) = *dice.pick(&[(true, true), (true, false), (false, true)]);
    let from_one = dice.chance(500).then(|| dice.index(hosts));
    let others =
        (0..hosts).filter(|other| *other != alone && from_one.is_none_or(|one| one == *other));
    others
        .flat_map(|other| {
            let there = out.then_some((alone, other));
            let here = back.then_some((other, alone));
            there.into_iter().chain(here)
        })
        .collect()
}

/// What else befalls hosts. Returns when all is well again.
pub(super) fn more_faults(
    options: &Options,
    features: Features,
    setting: &mut Setting,
    heal_at: Time,
) -> Time {
    press(options.seed, features, setting, heal_at);
    upgrade(options.seed, setting, heal_at);
    first_fails(options, setting).unwrap_or(heal_at)
}

/// Hosts have little memory, now more, now less, until all is well again.
fn press(seed: u64, features: Features, setting: &mut Setting, heal_at: Time) {
    if !features.pressure {
        return;
    }
    let hosts = setting.hosts.len();
    let mut dice = Dice::stream(seed, "pressed");
    for _ in 0..dice.between(2, 20) {
        let fault = Fault::Press {
            host: dice.index(hosts),
            frames: dice.below(5) as u32,
            anywhere: dice.chance(700),
        };
        let at = Time(dice.between(0, heal_at.0));
        setting.faults.push((at, fault));
    }
    let relieved = |host| Fault::Press {
        host,
        frames: u32::MAX,
        anywhere: false,
    };
    let relieved = (0..hosts).map(|host| (heal_at, relieved(host)));
    setting.faults.extend(relieved);
}

/// Daemons are replaced by ones of another program, until all is well again: then all are new.
fn upgrade(seed: u64, setting: &mut Setting, heal_at: Time) {
    if !setting.upgrades {
        return;
    }
    let hosts = setting.hosts.len();
    let mut dice = Dice::stream(seed, "upgrades");
    for _ in 0..dice.between(3, 20) {
        let fault = Fault::Upgrade {
            host: dice.index(hosts),
            old: dice.chance(400),
        };
        setting
            .faults
            .push((Time(dice.between(0, heal_at.0)), fault));
    }
    let renewed = |host| (heal_at, Fault::Upgrade { host, old: false });
    setting.faults.extend((0..hosts).map(renewed));
}
