use super::*;

/// What is said of notices, by a list that is gone through each time.
#[derive(Default)]
struct Plain {
    all: Vec<(u64, NodeId, u64)>,
    applied: VectorTime,
}

impl Plain {
    fn pending(&self) -> Vec<(NodeId, u64)> {
        let lacking = |(_, node, interval): &&_| !self.applied.has(*node, *interval);
        let mut lacking: Vec<_> = self.all.iter().filter(lacking).copied().collect();
        lacking.sort_unstable();
        let id = |(_, node, interval)| (node, interval);
        lacking.into_iter().map(id).collect()
    }

    fn of(&self, of: NodeId) -> Vec<u64> {
        let mine = self.all.iter().filter(|(_, node, _)| *node == of);
        let mut mine: Vec<_> = mine.map(|(_, _, interval)| *interval).collect();
        mine.sort_unstable_by(|one, other| other.cmp(one));
        mine
    }

    fn last_writer(&self, upto: &VectorTime, among: &NodeSet) -> Option<NodeId> {
        let fits = |(_, node, interval): &&_| upto.has(*node, *interval) && among.contains(*node);
        let last = self.all.iter().filter(fits).max();
        last.map(|(_, node, _)| *node)
    }
}

/// Numbers that look like chance, the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn node(&mut self) -> NodeId {
        NodeId(1 + self.below(5) as u16)
    }

    /// A time in which each node has some of its intervals.
    fn part_of(&mut self, known: &VectorTime) -> VectorTime {
        let part = known
            .iter()
            .map(|(node, last)| (node, self.below(last + 1)));
        part.collect()
    }
}

fn agree(notices: &Notices, plain: &Plain, dice: &mut Dice, known: &VectorTime) {
    let id = |name: DiffName| (name.node, name.interval);
    let pending: Vec<_> = notices.pending(PageIndex(7)).into_iter().map(id).collect();
    assert_eq!(pending, plain.pending());
    assert_eq!(notices.applied(), &plain.applied);
    assert_eq!(notices.len(), plain.all.len());
    assert_eq!(notices.is_empty(), plain.all.is_empty());
    let node = dice.node();
    assert!(notices.of(node).eq(plain.of(node)));
    assert_eq!(
        notices.any_but(node),
        plain.all.iter().any(|one| one.1 != node)
    );
    let upto = dice.part_of(known);
    let lacks = |(node, interval): &(NodeId, u64)| upto.has(*node, *interval);
    assert_eq!(notices.lacks(&upto), plain.pending().iter().any(lacks));
    let any_in = |(_, node, interval): &_| upto.has(*node, *interval);
    assert_eq!(notices.any_in(&upto), plain.all.iter().any(any_in));
    let among: NodeSet = [dice.node(), dice.node(), dice.node()]
        .into_iter()
        .collect();
    let last = notices.last_writer(&upto, &among);
    assert_eq!(last, plain.last_writer(&upto, &among));
    let some = (dice.node(), 1 + dice.below(20));
    assert_eq!(
        notices.is_pending(some.0, some.1),
        plain.pending().contains(&some)
    );
}

#[test]
fn what_stands_apart_is_what_a_plain_list_lacks() {
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let (mut notices, mut plain) = (Notices::default(), Plain::default());
        let (mut known, mut rank) = (VectorTime::ZERO, 0);
        for _ in 0..200 {
            match dice.below(10) {
                // Whose clocks stand still: some have the same rank.
                0..=5 => {
                    let node = dice.node();
                    let mine = plain.all.iter().filter(|one| one.1 == node);
                    let least = mine.map(|one| one.0 + 1).max().unwrap_or(1);
                    rank = least.max(rank + dice.below(2));
                    let place = if dice.below(3) == 0 { least } else { rank };
                    let interval = known.get(node) + 1;
                    known.raise(node, interval);
                    notices.add((node, interval), place);
                    plain.all.push((place, node, interval));
                }
                6 => {
                    let some = (dice.node(), dice.below(20));
                    notices.apply(some.0, some.1);
                    plain.applied.raise(some.0, some.1);
                }
                7 => {
                    let merged = plain.pending();
                    notices.apply_all(merged.iter().copied());
                    plain.applied.join(&VectorTime::from_iter(merged));
                }
                8 => {
                    let mut copy = dice.part_of(&known);
                    if dice.below(2) == 0 {
                        copy = VectorTime::ZERO;
                    }
                    notices.restart(copy.clone());
                    plain.applied = copy;
                }
                _ => {
                    let upto = dice.part_of(&known);
                    notices.forget(&upto);
                    plain.all.retain(|one| !upto.has(one.1, one.2));
                }
            }
            agree(&notices, &plain, &mut dice, &known);
        }
    }
}
