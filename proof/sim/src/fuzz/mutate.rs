//! Inputs made of other inputs.

use crate::dice::Dice;

/// Longer inputs say nothing new.
const LONGEST: usize = 4096;

/// Numbers at which things end.
const EDGES: [u8; 8] = [0, 1, 0x7f, 0x80, 0xfe, 0xff, 0x10, 0x40];

/// One of the corpus, or two one after the other, changed a little.
pub(super) fn mutated(dice: &mut Dice, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = Vec::new();
    for _ in 0..=dice.below(4) {
        input.extend_from_slice(dice.pick::<Vec<u8>>(corpus));
    }
    for _ in 0..dice.below(6) {
        change(dice, &mut input, corpus);
    }
    input.truncate(LONGEST);
    input
}

fn change(dice: &mut Dice, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = dice.index(input.len() + 1);
    let length = dice.index(8).min(input.len() - at);
    match dice.below(6) {
        0 if at < input.len() => input[at] ^= 1 << dice.below(8),
        1 if at < input.len() => input[at] = *dice.pick(&EDGES),
        2 => drop(input.drain(at..at + length)),
        3 => input.insert(at, dice.number() as u8),
        4 => {
            let copy = input[at..at + length].to_vec();
            let to = dice.index(input.len() + 1);
            input.splice(to..to, copy);
        }
        _ => {
            let other: &Vec<u8> = dice.pick(corpus);
            let from = dice.index(other.len() + 1);
            input.splice(at..at + length, other[from..].iter().copied());
        }
    }
}

/// As few of the bytes as are still wrong.
pub(super) fn shrunk(input: &[u8], wrong: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut least = input.to_vec();
    let mut length = least.len().next_power_of_two();
    while length > 0 {
        let mut at = 0;
        while at < least.len() {
            let mut fewer = least.clone();
            fewer.drain(at..least.len().min(at + length));
            if wrong(&fewer) {
                least = fewer;
            } else {
                at += length;
            }
        }
        length /= 2;
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_repeat_and_stay_short() {
        let corpus = vec![b"one".to_vec(), vec![7; LONGEST], Vec::new()];
        let draw = || {
            let mut dice = Dice::stream(3, "mutations");
            (0..200)
                .map(|_| mutated(&mut dice, &corpus))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
        assert!(draw().iter().all(|input| input.len() <= LONGEST));
    }

    #[test]
    fn what_is_wrong_is_found_among_the_rest() {
        let input: Vec<u8> = (0..100).collect();
        let least = shrunk(&input, |input| input.contains(&13) && input.contains(&77));
        assert_eq!(least, [13, 77]);
    }
}
