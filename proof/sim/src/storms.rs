//! No storms: what was asked for ahead is asked for again only so often, however
//! much gets lost.

use crate::check::{Check, ensure};
use crate::kernel::PageKey;
use pagemesh_core::Event;
use std::collections::BTreeMap;

/// How often each host has repeated its last request ahead for each page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Storms(BTreeMap<(usize, PageKey), u32>);

/// Repetitions of one request: datagrams for one lost datagram.
const AGAIN: u32 = 3;

impl Storms {
    /// A node tells what it did.
    pub(crate) fn told(&mut self, at: usize, event: &Event) -> Check {
        match *event {
            Event::AskedAhead { segment, page } => {
                self.0.insert((at, PageKey { segment, page }), 0);
            }
            Event::Repaired { segment, page } => {
                let key = PageKey { segment, page };
                let again = self.0.entry((at, key)).or_default();
                *again += 1;
                ensure!(
                    *again <= AGAIN,
                    Progress,
                    "h{} asks for {key} ahead for the {again}th time",
                    at + 1
                );
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::key;

    #[test]
    fn a_storm_is_noticed() {
        let PageKey { segment, page } = key(0);
        let mut storms = Storms::default();
        let asked = Event::AskedAhead { segment, page };
        let again = Event::Repaired { segment, page };
        for _ in 0..2 {
            storms.told(0, &asked).unwrap();
            for _ in 0..AGAIN {
                storms.told(0, &again).unwrap();
            }
        }
        storms.told(1, &again).unwrap();
        assert!(storms.told(0, &again).is_err());
    }
}
