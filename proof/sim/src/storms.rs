//! No storms: pages asked for ahead are asked for again only a few times, however many datagrams
//! get lost.

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
    /// An event of a node.
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
