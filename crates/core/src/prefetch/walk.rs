//! Recognizes walks: faults at equal distances, one after the other, or runs of as many neighbours
//! each, as in a column of blocks.

use super::rows::Rows;
use core::time::Duration;
use pagemesh_wire::PageIndex;
use pagemesh_wire::peer::Access;
use serde::{Deserialize, Serialize};

/// Walks followed at once in one process: as many threads may walk.
const SLOTS: usize = 16;

/// The longest step that makes a walk, in pages.
const REACH: i64 = 64;

/// Equal steps after which the next pages are asked for: of one page or between runs of pages, and of
/// more pages, which chance makes more often.
const RUN: u32 = 2;
const STRIDED_RUN: u32 = 3;

/// Pages of a run that may be one of many.
const SHORT: i64 = 8;

/// Pages of the first burst of a walk, and of one that a program announced.
const FIRST: u32 = 4;
const ANNOUNCED: u32 = 32;

/// Pages of a burst at most: at 10 Gbit/s they take a millisecond. Columns of a matrix end sooner than
/// arrays, and what comes from behind their end is in vain.
const MOST: u32 = 256;
const MOST_IN_COLUMNS: u32 = 64;

/// A walk that has proven itself asks for no fewer.
const LEAST: u32 = 16;

/// A burst should be there after this long. Longer ones fill queues on the way, and all other
/// requests wait behind them.
const SOON: Duration = Duration::from_millis(4);

/// Walks that may begin and end at once, and the number of faults after which one more may. This
/// bounds the cost of guesses for a program that does not walk: of 256 faults at most one, and four
/// pages.
const TRUST: u32 = 8;
const EARNED_BY: u32 = 256;

/// Where a program stores to more places in turn than walks are followed, as a sort does: pages after
/// that of a fault to which the right to store is given because as many before it have it.
const BESIDE: u32 = 8;

/// The first of the pages directly before this one that are stored to, and as many pages after it.
pub(crate) fn beside(
    page: PageIndex,
    is_stored_to: impl Fn(PageIndex) -> bool,
) -> (PageIndex, impl Iterator<Item = PageIndex>) {
    let before = (1..=BESIDE).map_while(|back| page.0.checked_sub(back).map(PageIndex));
    let before = before.take_while(|page| is_stored_to(*page)).count() as u32;
    let after = (1..=before).map_while(move |step| page.0.checked_add(step).map(PageIndex));
    (PageIndex(page.0 - before), after)
}

/// A program's announcement of how it will use a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum AccessPattern {
    /// Nothing.
    #[default]
    Unknown,
    /// From front to back: two steps are enough.
    Sequential,
    /// Here and there: nothing is to be guessed.
    Random,
}

/// The walks of one process in one segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Walks {
    /// The one that went on last comes first.
    walks: Vec<Walk>,
    pattern: AccessPattern,
    trust: u32,
    faults: u32,
}

/// One thread's walk through memory, or accesses that look like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Walk {
    access: Access,
    last: i64,
    /// The first page of the run that it is in, and where it has gone as seen from there.
    rows: Rows,
    /// Steps from run to run that were equal, one after the other.
    equal: u32,
    /// It goes from page to page, whatever runs were before.
    straight: bool,
    /// Pages of the next burst; zero while nothing is asked for ahead.
    window: u32,
    /// Nothing was asked for from this place on.
    next: i64,
    /// A fault at this place shows that the pages asked for before were used.
    mark: i64,
    /// Some burst was used.
    proven: bool,
}

/// Pages to ask for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    pub(crate) access: Access,
    rows: Rows,
    place: i64,
    count: u32,
}

impl Burst {
    /// Number of pages.
    pub(crate) fn len(self) -> u32 {
        self.count
    }

    /// The farthest page, as seen from the first one, that the burst before it may have had.
    pub(crate) fn before(self) -> PageIndex {
        let page = self.rows.page(self.place - i64::from(MOST + 1));
        PageIndex(u32::try_from(page.max(0)).unwrap_or(u32::MAX))
    }

    /// The pages, in the order in which they will be touched.
    pub(crate) fn pages(self) -> impl Iterator<Item = PageIndex> {
        (0..i64::from(self.count)).map(move |step| {
            let page = self.rows.page(self.place + step);
            PageIndex(u32::try_from(page).expect("bursts stay inside the segment"))
        })
    }
}

/// The recent history of pages asked for ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fare {
    /// How long pages took.
    pub(crate) took: Duration,
    /// How many of a hundred had to be asked for again.
    pub(crate) lost: u32,
    /// How many more may be under way.
    pub(crate) room: u32,
}

impl Default for Walks {
    fn default() -> Self {
        Self {
            walks: Vec::new(),
            pattern: AccessPattern::default(),
            trust: TRUST,
            faults: 0,
        }
    }
}

impl Walks {
    /// The process says how it will use the segment.
    pub(crate) fn set_pattern(&mut self, pattern: AccessPattern) {
        self.pattern = pattern;
        self.walks.clear();
    }

    /// Whether the process says that it goes from front to back.
    pub(crate) fn is_announced(&self) -> bool {
        self.pattern == AccessPattern::Sequential
    }

    /// Whether the last fault belongs to no walk that was seen: it was far from the places where the
    /// process was lately, and nothing says that it touches pages at random.
    pub(crate) fn is_elsewhere(&self) -> bool {
        let last = self.walks.first();
        self.pattern != AccessPattern::Random && last.is_some_and(|walk| walk.is_first_fault())
    }

    /// A thread stopped at a page of a segment of `pages` pages. Returns the pages to ask for
    /// ahead.
    pub(crate) fn fault(
        &mut self,
        page: PageIndex,
        access: Access,
        pages: u32,
        fare: Fare,
    ) -> Option<Burst> {
        if self.pattern == AccessPattern::Random {
            return None;
        }
        self.faults += 1;
        if self.faults == EARNED_BY {
            self.faults = 0;
            self.trust = TRUST.min(self.trust + 1);
        }
        let at = i64::from(page.0);
        let slot = self.slot(at, access);
        let mut walk = self.walks.remove(slot);
        let burst = self.step(&mut walk, at, i64::from(pages), fare);
        self.walks.insert(0, walk);
        burst
    }

    /// The walk that this fault belongs to: one whose pages ahead it is among, one
    /// that comes here with its next step, one nearby, or a new one.
    fn slot(&mut self, at: i64, access: Access) -> usize {
        let of_kind = |walk: &Walk| walk.access == access;
        let ahead = |walk: &Walk| of_kind(walk) && walk.place_ahead(at).is_some();
        let next = |walk: &Walk| of_kind(walk) && walk.expects(at);
        let near = |walk: &Walk| of_kind(walk) && walk.is_open() && (at - walk.last).abs() <= REACH;
        let found = self.walks.iter().position(ahead);
        let found = found.or_else(|| self.walks.iter().position(next));
        found
            .or_else(|| self.walks.iter().position(near))
            .unwrap_or_else(|| {
                self.walks.truncate(SLOTS - 1);
                self.walks.insert(0, Walk::new(at, access));
                0
            })
    }

    fn step(&mut self, walk: &mut Walk, at: i64, pages: i64, fare: Fare) -> Option<Burst> {
        let Some(place) = walk.place_ahead(at) else {
            return self.begin(walk, at, pages, fare);
        };
        walk.go_to(at, place);
        if place < walk.mark {
            return None;
        }
        if !walk.proven {
            self.trust = TRUST.min(self.trust + 1);
        }
        walk.used(place, fare);
        walk.burst(pages, fare)
    }

    /// One more step of accesses that may become a walk.
    fn begin(&mut self, walk: &mut Walk, at: i64, pages: i64, fare: Fare) -> Option<Burst> {
        if at == walk.last {
            return None;
        }
        let announced = self.pattern == AccessPattern::Sequential;
        (walk.window, walk.proven) = (0, false);
        if !walk.shows(at, announced) || (self.trust == 0 && !announced) {
            return None;
        }
        self.trust = self.trust.saturating_sub(1);
        walk.window = if announced { ANNOUNCED } else { FIRST };
        walk.next = walk.places().place(at)? + 1;
        walk.burst(pages, fare)
    }
}

impl Walk {
    fn new(at: i64, access: Access) -> Self {
        let rows = Rows {
            first: at,
            stride: 0,
            width: 0,
        };
        Self {
            access,
            last: at,
            rows,
            equal: 0,
            straight: false,
            window: 0,
            next: 0,
            mark: 0,
            proven: false,
        }
    }

    /// Whether nothing is known but where it began.
    fn is_first_fault(&self) -> bool {
        self.rows.stride == 0 && self.rows.first == self.last
    }

    /// Whether its next step may go elsewhere: nothing was asked for ahead, or only behind a run of
    /// few pages, which may have ended.
    fn is_open(&self) -> bool {
        self.window == 0 || self.straight && self.last - self.rows.first < SHORT
    }

    /// Whether a page begins the next run.
    fn expects(&self, at: i64) -> bool {
        let Rows { first, stride, .. } = self.rows;
        self.is_open() && stride != 0 && at == first + stride
    }

    /// The places of the pages that are asked for ahead.
    fn places(&self) -> Rows {
        match self.straight {
            true => Rows {
                stride: 1,
                width: 1,
                ..self.rows
            },
            false => self.rows,
        }
    }

    /// The number of a page's place if it lies between here and the first one not asked for, that
    /// one included.
    fn place_ahead(&self, at: i64) -> Option<i64> {
        if self.window == 0 {
            return None;
        }
        let places = self.places();
        let (here, there) = (places.place(self.last)?, places.place(at)?);
        (here..=self.next).contains(&there).then_some(there)
    }

    /// One more step. Returns true if the last steps show where the walk goes.
    fn shows(&mut self, at: i64, announced: bool) -> bool {
        let run = self.last - self.rows.first + 1;
        let is_next = at == self.last + 1;
        self.last = at;
        self.straight = is_next;
        if is_next {
            let wanted = if announced { 1 } else { i64::from(RUN) };
            return run >= wanted.max(self.rows.width);
        }
        let rows = Rows {
            first: at,
            stride: at - self.rows.first,
            width: run,
        };
        let is_equal = (rows.stride, rows.width) == (self.rows.stride, self.rows.width);
        self.equal = if is_equal { self.equal + 1 } else { 1 };
        self.rows = rows;
        let wanted = match (rows.stride, run) {
            (-1, 1) | (_, 2..) => RUN,
            _ => STRIDED_RUN,
        };
        self.equal >= wanted && rows.width <= rows.stride.abs()
    }

    fn go_to(&mut self, at: i64, place: i64) {
        self.last = at;
        self.next = self.next.max(place + 1);
    }

    /// The pages asked for ahead are used: asks for more at once, unless they came late or not at
    /// all.
    fn used(&mut self, place: i64, fare: Fare) {
        if fare.took > SOON || fare.lost > 25 {
            self.window = LEAST.max(self.window / 2);
        } else if fare.took <= SOON / 2 {
            let most = match self.places().stride {
                -1 | 1 => MOST,
                _ => MOST_IN_COLUMNS,
            };
            self.window = most.min(self.window * 2);
        }
        self.proven = true;
        self.mark = place + 1;
    }

    /// The next burst, as far as the segment goes and others leave room.
    fn burst(&mut self, pages: i64, fare: Fare) -> Option<Burst> {
        let rows = self.places();
        let inside = (rows.last_place(pages) + 1 - self.next).max(0);
        let inside = u32::try_from(inside).unwrap_or(u32::MAX);
        let count = self.window.min(fare.room).min(inside);
        // The first of them is not mapped: a thread that comes there needs the next burst.
        self.mark = self.next;
        if count == 0 {
            return None;
        }
        let place = self.next;
        self.next += i64::from(count);
        Some(Burst {
            access: self.access,
            rows,
            place,
            count,
        })
    }
}

/// Nothing measured yet, and room for all.
#[cfg(test)]
pub(crate) const FREE: Fare = Fare {
    took: Duration::ZERO,
    lost: 0,
    room: u32::MAX,
};

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u32 = 100_000;

    /// The faults of a program that touches these pages; those that came ahead
    /// cause none, unless they are the mark.
    fn touch(walks: &mut Walks, pages: impl Iterator<Item = u32>) -> (u32, Vec<u32>) {
        let mut here = pagemesh_sorted::LongMap::new();
        let (mut faults, mut ahead) = (0, Vec::new());
        for page in pages {
            if here.get(&page) == Some(&true) {
                continue;
            }
            faults += u32::from(!here.contains_key(&page));
            here.insert(page, true);
            let burst = walks.fault(PageIndex(page), Access::Read, PAGES, FREE);
            for (at, page) in burst.into_iter().flat_map(Burst::pages).enumerate() {
                ahead.push(page.0);
                here.entry(page.0).or_insert(at > 0);
            }
        }
        (faults, ahead)
    }

    #[test]
    fn a_walk_finds_everything_there() {
        for stride in [1_i64, 2, 7, -1, -3, 64] {
            let mut walks = Walks::default();
            let start = if stride < 0 { 90_000 } else { 10 };
            let steps = (0..1200).map(|step| (start + step * stride) as u32);
            let (faults, ahead) = touch(&mut walks, steps.clone());
            assert!(faults <= 5, "{faults} faults with stride {stride}");
            let wanted: Vec<u32> = steps.skip(faults as usize - 1).collect();
            assert!(
                ahead
                    .iter()
                    .all(|page| i64::from(*page) % stride == start % stride)
            );
            assert!(ahead.len() <= wanted.len() + 2 * MOST as usize);
        }
    }

    #[test]
    fn columns_of_blocks_are_found() {
        for (stride, width) in [(64, 2), (8, 3), (40, 4), (-16, 2)] {
            let mut walks = Walks::default();
            let start = if stride < 0 { 90_000 } else { 10 };
            let rows = (0..600).map(|row| start + row * stride);
            let pages = rows.flat_map(|first| (first..first + width).map(|page| page as u32));
            let pages: Vec<u32> = pages.collect();
            let (faults, ahead) = touch(&mut walks, pages.iter().copied());
            assert!(
                i64::from(faults) <= 3 * width + 1,
                "{faults} faults with runs of {width} at {stride}"
            );
            // The last burst goes on behind the columns.
            let (low, high) = (*pages.iter().min().unwrap(), *pages.iter().max().unwrap());
            let between = |page: &&u32| (low..=high).contains(*page) && !pages.contains(page);
            let in_vain = ahead.iter().filter(between).count();
            assert!(in_vain <= 16, "{in_vain} pages with runs of {width}");
        }
    }

    #[test]
    fn sixteen_threads_walk_at_once() {
        let mut walks = Walks::default();
        let steps = (0..200).flat_map(|step| (0..16).map(move |thread| thread * 5000 + step));
        let (faults, _) = touch(&mut walks, steps);
        assert!(faults <= 16 * 4, "{faults}");
    }

    #[test]
    fn guessing_costs_little_who_does_not_walk() {
        let mut walks = Walks::default();
        let mut state = 7_u64;
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as u32
        };
        // Runs of three neighbours, the worst there is: each begins a walk that ends.
        let runs = (0..20_000).flat_map(|_| {
            let first = random() % (PAGES - 8);
            first..first + 3
        });
        let (mut faults, mut asked) = (0, 0);
        for page in runs {
            faults += 1;
            let burst = walks.fault(PageIndex(page), Access::Read, PAGES, FREE);
            asked += burst.map_or(0, |burst| burst.pages().count());
        }
        assert!(
            asked * 100 <= faults * 3,
            "{asked} pages for {faults} faults"
        );
    }

    #[test]
    fn a_program_may_say_what_it_does() {
        let mut walks = Walks::default();
        walks.set_pattern(AccessPattern::Random);
        assert_eq!(touch(&mut walks, 0..100), (100, Vec::new()));
        walks.set_pattern(AccessPattern::Sequential);
        assert_eq!(touch(&mut walks, 0..100).0, 2);
    }

    #[test]
    fn stays_inside_the_segment() {
        let mut walks = Walks::default();
        let burst = |walks: &mut Walks, page| walks.fault(PageIndex(page), Access::Write, 10, FREE);
        for page in [5, 6, 7] {
            if let Some(burst) = burst(&mut walks, page) {
                assert_eq!(burst.pages().map(|page| page.0).collect::<Vec<_>>(), [8, 9]);
            }
        }
        assert_eq!(burst(&mut walks, 8), None);
        for page in [4, 3, 2] {
            if let Some(burst) = burst(&mut walks, page) {
                assert_eq!(burst.pages().map(|page| page.0).collect::<Vec<_>>(), [1, 0]);
            }
        }
    }

    #[test]
    fn late_pages_are_asked_for_in_smaller_bursts() {
        let mut walk = Walk::new(0, Access::Read);
        (walk.window, walk.rows.stride) = (64, 1);
        let late = Fare {
            took: SOON * 2,
            ..FREE
        };
        walk.used(1, late);
        assert_eq!(walk.window, 32);
        for _ in 0..9 {
            walk.used(1, late);
        }
        assert_eq!(walk.window, LEAST);
        for _ in 0..9 {
            walk.used(1, FREE);
        }
        assert_eq!(walk.window, MOST);
    }
}
