//! How bad the network is.

use super::{MICRO, MILLI, Profile};
use crate::dice::Dice;
use crate::network::Weather;

pub(crate) fn weather(dice: &mut Dice, profile: Profile) -> Weather {
    let base = dice.between(5 * MICRO, 40 * MICRO);
    let jitter = dice.pick(&[0, 1, 4, 20]) * base;
    let calm = Weather {
        base,
        jitter,
        ..Weather::default()
    };
    match profile {
        Profile::Calm => calm,
        Profile::Mild => Weather {
            late: *dice.pick(&[0, 10, 50]),
            latest: dice.between(100 * MICRO, 3 * MILLI),
            loss: *dice.pick(&[0, 10, 50, 100]),
            twice: *dice.pick(&[0, 10, 50]),
            ..calm
        },
        Profile::Harsh | Profile::Wild => Weather {
            garbage: if profile == Profile::Wild { 30 } else { 0 },
            late: *dice.pick(&[0, 50, 200]),
            latest: dice.between(MILLI, 40 * MILLI),
            loss: *dice.pick(&[0, 50, 150, 300]),
            twice: *dice.pick(&[0, 50, 300]),
            ..calm
        },
    }
}
