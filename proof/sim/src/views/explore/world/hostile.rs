//! Random walks through an explored cluster in which messages come again, at any time, as they were
//! or changed.

use super::{Life, Packet, State as _, World};
use crate::dice::Dice;
use crate::small::Check;
use crate::views::ViewsSetting;
use pagemesh_wire::header::HEADER_SIZE;
use pagemesh_wire::peer::Message;

/// Steps of a walk.
const STEPS: usize = 150;

/// Walks. Old messages of the policy come again; if `forged`, with changed bytes, or cut off: then
/// members may lie, so that memory may be wrong, but no node may break the law of drivers or fail.
/// Returns how many came.
pub(in crate::views) fn suffer(setting: &ViewsSetting, seed: u64, forged: bool) -> Check<usize> {
    let mut dice = Dice::stream(seed, "hostile");
    let mut world = World::new(setting)?;
    let (mut heard, mut came) = (Vec::<Packet>::new(), 0);
    for _ in 0..STEPS {
        let mut next = world.next();
        if next.is_empty() {
            break;
        }
        let (what, result) = next.swap_remove(dice.index(next.len()));
        world = match result {
            Ok(next) => next,
            Err(why) if forged && !is_law(&why) => return Ok(came),
            Err(why) => return Err(format!("{why}, after {what}")),
        };
        let flying = world.wires.iter().filter_map(|wire| wire.back());
        heard.extend(flying.filter(|packet| is_of_views(packet)).cloned());
        if heard.is_empty() || dice.chance(500) {
            continue;
        }
        let mut packet = dice.pick(&heard).clone();
        if forged {
            forge(&mut packet, &mut dice);
        }
        if world.lives[packet.to] != Life::Up {
            continue;
        }
        came += 1;
        match world.arrive(&packet) {
            Err(why) if !forged || is_law(&why) => {
                return Err(format!("{why}, after it came again"));
            }
            Err(_) => return Ok(came),
            Ok(()) => {}
        }
    }
    Ok(came)
}

fn is_of_views(packet: &Packet) -> bool {
    let decoded = Message::decode(&packet.bytes);
    decoded
        .is_ok_and(|(_, message, _)| matches!(message, Message::Policy(_) | Message::PolicyPage(_)))
}

/// What a daemon cannot do.
fn is_law(why: &str) -> bool {
    why.contains("nothing there") || why.contains("empty")
}

/// Changes a few bytes behind the header, or cuts the end off.
fn forge(packet: &mut Packet, dice: &mut Dice) {
    let mut bytes = packet.bytes.to_vec();
    let end = bytes.len().min(HEADER_SIZE + 80);
    for _ in 0..dice.between(1, 4) {
        let at = HEADER_SIZE + dice.index(end - HEADER_SIZE);
        bytes[at] = dice.number() as u8;
    }
    if dice.chance(200) {
        bytes.truncate(HEADER_SIZE + dice.index(bytes.len() - HEADER_SIZE));
    }
    packet.bytes = bytes.into();
}
