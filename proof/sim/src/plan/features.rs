//! What a seed has and does.

use super::Profile;
use crate::dice::Dice;
use crate::run::Options;

/// The features that a seed has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    pub(crate) locks: bool,
    pub(crate) barriers: bool,
    pub(crate) queues: bool,
    pub(crate) watches: bool,
    pub(crate) pins: bool,
    pub(crate) tenants: bool,
    pub(crate) several_mappings: bool,
    pub(crate) inquiries: bool,
    pub(crate) impatience: bool,
    pub(crate) client_deaths: bool,
    pub(crate) leaves: bool,
    pub(crate) crashes: bool,
    pub(crate) late_hosts: bool,
    pub(crate) home_anywhere: bool,
    /// Several processes create one name exclusively.
    pub(crate) races: bool,
    /// A host is cut off until it is declared dead.
    pub(crate) burials: bool,
    /// A host leaves while its processes still work.
    pub(crate) abrupt_leaves: bool,
    /// Threads walk through segments of many pages.
    pub(crate) strolls: bool,
    /// Processes save segments.
    pub(crate) holds: bool,
    /// Hosts have less memory than their segments have pages.
    pub(crate) pressure: bool,
}

impl Features {
    /// The features of a run. A takeover is hard enough: no other host dies, joins late or leaves
    /// meanwhile.
    pub(super) fn drawn(options: &Options, dice: &mut Dice) -> Self {
        let drawn = Self::draw(options.seed, dice, options.profile);
        if !options.first_fails() {
            return drawn;
        }
        Self {
            crashes: false,
            late_hosts: false,
            leaves: false,
            burials: false,
            abrupt_leaves: false,
            races: false,
            ..drawn
        }
    }

    fn draw(seed: u64, dice: &mut Dice, profile: Profile) -> Self {
        let mut wild = Dice::stream(seed, "wild");
        let mut sometimes = |per_mille| profile == Profile::Wild && wild.chance(per_mille);
        let mut often = |per_mille| dice.chance(per_mille);
        let troubled = profile != Profile::Calm;
        Self {
            locks: often(600),
            barriers: often(400),
            queues: often(300),
            watches: often(300),
            pins: often(250),
            tenants: often(300),
            several_mappings: often(500),
            inquiries: often(300),
            impatience: often(200),
            client_deaths: often(300) && troubled,
            leaves: often(250),
            crashes: often(300) && profile.is_harsh(),
            late_hosts: often(300),
            home_anywhere: often(500),
            races: sometimes(300),
            burials: sometimes(300),
            abrupt_leaves: sometimes(300),
            strolls: Dice::stream(seed, "strolls").chance(400),
            holds: Dice::stream(seed, "holds").chance(300),
            pressure: Dice::stream(seed, "pressure").chance(400),
        }
    }
}
