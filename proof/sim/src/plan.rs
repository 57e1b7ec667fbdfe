//! The plan of a seed: hosts, network, segments, programs and faults.
//!
//! Every seed draws the features that it has, so that some runs have nothing but locks and others
//! all features at once.

mod fates;
mod faults;
mod features;
mod first;
mod hosts;
mod large;
mod pace;
mod profile;
mod segments;
mod weather;

use crate::dice::Dice;
use crate::run::Options;
use crate::step::ClientPlan;
use crate::workload;
use crate::world::Setting;
use fates::Fates;
use faults::{faults, more_faults};
use hosts::host;
use pace::bearable;
use pagemesh_core::Time;
use segments::{make_walkable, segments};

pub(crate) use features::Features;
pub use large::Large;
pub(crate) use pace::pace;
pub use profile::Profile;
pub(crate) use weather::weather;

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;

/// The plan of a seed.
pub(crate) struct Plan {
    pub(crate) setting: Setting,
    pub(crate) clients: Vec<ClientPlan>,
    /// The number of main segments, which come first.
    pub(crate) mains: usize,
    pub(crate) heal_at: Time,
    pub(crate) doomed: Vec<usize>,
    pub(crate) leavers: Vec<usize>,
}

impl Plan {
    /// The plan of one seed.
    pub(crate) fn draw(options: &Options) -> Self {
        if let Some(large) = options.large {
            return large::draw(options, large);
        }
        let Options { seed, profile, .. } = *options;
        let mut dice = Dice::stream(seed, "plan");
        let features = Features::drawn(options, &mut dice);
        let headless = options.first_fails();
        let most = if profile.is_harsh() { 6 } else { 5 };
        let count = dice.between(if headless { 3 } else { 2 }, most) as usize;
        let mut hosts: Vec<_> = (0..count)
            .map(|at| host(&mut dice, at, profile, features))
            .collect();
        let mut pace = pace(&mut dice);
        pace.resend_ceiling = pace.resend_ceiling.max(bearable(&hosts));
        let weather = weather(&mut dice, profile);
        let (mut segments, mains) = segments(&mut dice, features);
        if features.strolls {
            make_walkable(seed, &mut pace, &mut segments[..mains]);
        }
        let mut wild = Dice::stream(seed, "fates");
        let fates = Fates::draw((&mut dice, &mut wild), &mut hosts, features, headless);
        let mut setting = Setting {
            recorded: Dice::stream(seed, "recorded").chance(250),
            turns: Dice::stream(seed, "turns").chance(500),
            upgrades: options.upgrade,
            traps_late: Dice::stream(seed, "traps").chance(500),
            carried: crate::ways::carried(seed),
            sealed: Dice::stream(seed, "sealed").chance(125),
            seed,
            hosts,
            pace,
            weather,
            segments,
            repeats: *wild.pick(&[0, 100, 500]),
            canary: options.canary,
            log: options.log,
            ..Setting::default()
        };
        let mut dice = Dice::stream(seed, "workload");
        let clients = workload::draw(&mut dice, features, &mut setting, mains, &fates.doomed);
        let mut dice = Dice::stream(seed, "faults");
        let heal_at = Time(dice.between(20 * MILLI, 300 * MILLI));
        setting.faults = faults(&mut dice, profile, features, count, &clients, heal_at);
        let back_at = fates.befall(&mut dice, count, &mut setting.faults);
        let heal_at = more_faults(options, features, &mut setting, back_at.unwrap_or(heal_at));
        Self {
            setting,
            clients,
            mains,
            heal_at,
            doomed: fates.doomed,
            leavers: fates.leavers,
        }
    }
}
