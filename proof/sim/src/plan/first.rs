//! The host that coordinates fails.

use super::{MICRO, MILLI};
use crate::dice::Dice;
use crate::run::Options;
use crate::step::Fault;
use crate::world::Setting;
use pagemesh_core::Time;

/// The first host fails in some way, if that is asked for. Returns when all is well again.
pub(super) fn first_fails(options: &Options, setting: &mut Setting) -> Option<Time> {
    if options.takeover {
        setting.standby = true;
        return Some(without_the_first(options.seed, setting));
    }
    if options.etcd {
        return Some(etcd_elects(options.seed, setting));
    }
    options.resume.then(|| first_resumes(options.seed, setting))
}

/// The first host's daemon dies or stands still until another one coordinates. Returns when all is
/// well again.
fn without_the_first(seed: u64, setting: &mut Setting) -> Time {
    let mut dice = Dice::stream(seed, "takeover");
    let at = Time(dice.between(MILLI, 60 * MILLI));
    let crash = dice.chance(500);
    let with = None;
    setting.faults.push((at, Fault::FirstFails { crash, with }));
    // Nothing else may stand still for so long that it counts as dead.
    let promote = Time(at.0 + dice.between(0, 4_000 * MILLI));
    setting.faults.push((promote, Fault::Promote));
    setting.takeovers = 1;
    Time(promote.0 + 12_000 * MILLI)
}

/// The coordinator dies or stands still, in some seeds a member with it, or the next one as well, and
/// etcd elects another. Before and meanwhile etcd is out of reach now and then, and in some seeds a
/// host asks the one that fails for admission. Returns when all is well again.
fn etcd_elects(seed: u64, setting: &mut Setting) -> Time {
    let mut dice = Dice::stream(seed, "etcd");
    (setting.keeps, setting.elected) = (true, true);
    let at = Time(dice.between(MILLI, 60 * MILLI));
    let crash = dice.chance(600);
    let mut others = Dice::stream(seed, "etcd and others");
    let hosts = setting.hosts.len();
    let with = (hosts > 3 && others.chance(300)).then(|| 1 + others.index(hosts - 1));
    setting.faults.push((at, Fault::FirstFails { crash, with }));
    let mut end = Time(at.0 + 12_000 * MILLI);
    for _ in 0..dice.below(4) {
        let one = dice.chance(500);
        let host = one.then(|| dice.index(setting.hosts.len()));
        let length = *dice.pick(&[5 * MILLI, 300 * MILLI, 4_000 * MILLI]);
        let from = Time(dice.between(0, at.0 + 4_000 * MILLI));
        setting
            .faults
            .push((from, Fault::EtcdFails { host, length }));
    }
    // Two hosts are left, and one of those may be cut off from etcd.
    if hosts - usize::from(with.is_some()) > 3 && dice.chance(400) {
        let again = Time(at.0 + dice.between(0, 6_000 * MILLI));
        setting.faults.push((again, Fault::CoordinatorFails));
        end = Time(again.0 + 20_000 * MILLI);
    }
    if others.chance(300) {
        let mut late = setting.hosts[1].clone();
        late.starts_at = at.0 + others.below(2_000 * MILLI);
        setting.hosts.push(late);
    }
    end
}

/// The first host's daemon is killed, and goes on from its disk; in some seeds it is killed once
/// more, soon or late. Returns when all is well again.
fn first_resumes(seed: u64, setting: &mut Setting) -> Time {
    let mut dice = Dice::stream(seed, "resume");
    setting.keeps = true;
    setting.standby = dice.chance(500);
    let at = Time(dice.between(MILLI, 60 * MILLI));
    let (crash, with) = (true, None);
    setting.faults.push((at, Fault::FirstFails { crash, with }));
    let resume = Time(at.0 + *dice.pick(&[MILLI, 100 * MILLI, 3_000 * MILLI]));
    setting.faults.push((resume, Fault::Resume));
    if dice.chance(400) {
        let again = Time(resume.0 + dice.between(100 * MICRO, 30 * MILLI));
        setting.faults.push((again, Fault::KillAgain));
        setting.faults.push((Time(again.0 + MILLI), Fault::Resume));
    }
    Time(resume.0 + 12_000 * MILLI)
}
