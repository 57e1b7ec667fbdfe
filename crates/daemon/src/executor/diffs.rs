//! Twins and diffs of pages of policy `release`: the core orders the work on them and never sees
//! their bytes.
//!
//! No failure is passed over: where stores would be lost, or a page would have wrong contents,
//! processes that access it get SIGBUS.

use super::DaemonExecutor;
use super::batch::EffectBatch;
use super::carry_out::Done;
use crate::changes::key;
use crate::counters::Count;
use crate::pages::Fresh;
use pagemesh_core::{Afterwards, At, DiffBatch, DiffExecutor, Source};
use pagemesh_twins::{Error, Keep};
use pagemesh_wire::header::{HEADER_SIZE, MAX_DATAGRAM};
use pagemesh_wire::local::RaceLine;
use pagemesh_wire::peer::{DiffName, Diffs, Message, Rule};
use pagemesh_wire::{SegmentId, VectorTime};

/// Bytes of diffs in one datagram: leaves room for the header, the names and a seal.
const TOGETHER: usize = MAX_DATAGRAM - HEADER_SIZE - 1024;

const _: () = assert!(TOGETHER > pagemesh_diff::LONGEST);

impl DiffExecutor for EffectBatch<'_> {
    /// Makes the twin of the frame's contents, or of those being filled in.
    fn twin(&mut self, at: At, source: Source) -> Done {
        self.executor.counters.add(Count::TwinsMade, 1);
        if source == Source::Zero {
            let made = self.executor.pages.changes.twin_of_zeros(at);
            self.executor.heed(at, "a twin cannot be made", made);
            return Ok(());
        }
        let filling = self.filling.as_ref();
        let filling = filling.filter(|fill| fill.pages.contains(at));
        let payload = filling.map_or(self.payload(), |fill| self.payload_of(fill, at));
        let pages = &mut self.executor.pages;
        let made = match filling.map(|fill| &fill.fresh) {
            Some(Fresh::Merged(bytes)) => pages.changes.twin(at, &**bytes),
            Some(Fresh::From(source)) => pages.twin_of(at, *source, payload),
            None => pages.twin_of(at, Source::Frame, payload),
        };
        self.executor.heed(at, "a twin cannot be made", made);
        Ok(())
    }

    fn diff(
        &mut self,
        segment: SegmentId,
        name: DiffName,
        then: Afterwards,
        rules: &[Rule],
    ) -> Done<bool> {
        self.finish_fill();
        let key = key(segment, name);
        let (pages, counters) = (&mut self.executor.pages, &mut self.executor.counters);
        let made = match then {
            Afterwards::Drop => pages.capture(key, (Keep::Nothing, rules)),
            Afterwards::Refresh if rules.is_empty() => pages.capture(key, (Keep::Twin, rules)),
            Afterwards::Refresh => pages.capture_stopped(key, rules, counters),
        };
        counters.add(Count::DiffsMade, 1);
        let changed = made != Ok(0);
        self.executor.heed(key.at(), "a diff cannot be made", made);
        Ok(changed)
    }

    fn drop_twin(&mut self, at: At) -> Done {
        self.finish_fill();
        self.executor.pages.changes.drop_twin(at);
        Ok(())
    }

    fn keep_diffs(&mut self, segment: SegmentId, names: &[DiffName]) -> Done {
        self.finish_fill();
        let diffs = self.payload().diffs().unwrap_or_default();
        for name in names {
            let found = diffs.iter().find(|(other, _)| other == name);
            let changes = &mut self.executor.pages.changes;
            let kept = match found {
                Some((_, encoded)) => changes.insert(key(segment, *name), encoded),
                None => Err(Error::NoDiff(key(segment, *name))),
            };
            let at = (segment, name.page);
            self.executor.heed(at, "a diff cannot be kept", kept);
        }
        Ok(())
    }

    fn merge(&mut self, at: At, source: Source, diffs: (&[DiffName], &[Rule])) -> Done {
        self.finish_fill();
        let payload = self.payload();
        let executor = &mut *self.executor;
        executor
            .counters
            .add(Count::DiffsApplied, diffs.0.len() as u64);
        match executor.pages.merge(at, source, diffs, payload) {
            Ok(bytes) => self.begin_fill(at.into(), Fresh::Merged(bytes)),
            // The previous daemon merged the page and dropped its sources.
            Err(_) if executor.pages.again && executor.pages.has(at) => {}
            Err(why) => executor.heed::<()>(at, "diffs cannot be applied", Err(why)),
        }
        Ok(())
    }

    fn update(&mut self, at: At, diffs: (&[DiffName], &[Rule])) -> Done {
        self.finish_fill();
        let executor = &mut *self.executor;
        executor
            .counters
            .add(Count::DiffsApplied, diffs.0.len() as u64);
        let updated = executor.pages.update(at, diffs, &mut executor.counters);
        executor.heed(at, "diffs cannot be applied", updated);
        Ok(())
    }

    fn send_diffs(&mut self, batch: &DiffBatch) -> Done {
        self.finish_fill();
        let mut together: Vec<(DiffName, u16)> = Vec::new();
        let mut bytes = 0;
        for name in &batch.names {
            let diff = self.executor.pages.changes.diff(key(batch.segment, *name));
            let length = match diff {
                Ok(diff) => diff.len(),
                Err(error) => {
                    tracing::error!(segment = %batch.segment, ?name, %error, "a diff cannot be sent");
                    continue;
                }
            };
            if length > usize::from(batch.at_most) {
                continue;
            }
            if bytes + length > TOGETHER {
                self.executor
                    .send_together(batch, std::mem::take(&mut together));
                bytes = 0;
            }
            bytes += length;
            // The longest diff has some 4,700 bytes.
            together.push((*name, length as u16));
        }
        self.executor.send_together(batch, together);
        Ok(())
    }

    /// Compares pairs of diffs; bytes that both change are a race.
    fn compare(&mut self, segment: SegmentId, pairs: &[(DiffName, DiffName)]) -> Done {
        self.finish_fill();
        for (one, other) in pairs {
            let changes = &mut self.executor.pages.changes;
            let Ok(ranges) = changes.overlap(key(segment, *one), key(segment, *other)) else {
                // The previous daemon compared the pair and dropped its diffs.
                continue;
            };
            for range in ranges {
                let race = RaceLine {
                    segment,
                    page: one.page,
                    begin: range.start as u16,
                    end: range.end as u16,
                    one: one.node.min(other.node),
                    other: one.node.max(other.node),
                };
                if self.executor.races.notice(race) {
                    self.executor.counters.add(Count::RacesFound, 1);
                }
            }
        }
        Ok(())
    }

    fn forget_diffs(&mut self, segment: SegmentId, upto: &VectorTime) -> Done {
        self.finish_fill();
        let changes = &mut self.executor.pages.changes;
        changes.forget_through(segment, |node| upto.get(node));
        Ok(())
    }
}

impl DaemonExecutor {
    /// Sends diffs in one datagram.
    fn send_together(&mut self, batch: &DiffBatch, diffs: Vec<(DiffName, u16)>) {
        if diffs.is_empty() {
            return;
        }
        self.counters.add(Count::DiffsSent, diffs.len() as u64);
        let names: Vec<_> = diffs.iter().map(|(name, _)| *name).collect();
        let message = Message::Diffs(Diffs {
            segment: batch.segment,
            request: batch.request,
            diffs,
        });
        let changes = &self.pages.changes;
        let append = |datagram: &mut Vec<u8>| {
            for name in &names {
                if let Ok(diff) = changes.made(key(batch.segment, *name)) {
                    datagram.extend_from_slice(diff);
                }
            }
            true
        };
        let (network, counters) = (&mut self.network, &mut self.counters);
        network.send(batch.address, batch.header, &message, append, counters);
    }

    /// After a failure the page is lost here, so that no access reads wrong contents.
    fn heed<T>(&mut self, at: At, what: &str, done: Result<T, Error>) {
        if let Err(why) = done {
            tracing::error!(
                segment = %at.0, page = %at.1, %why,
                "{what}; processes that use the page get SIGBUS",
            );
            self.pages.lose(at);
        }
    }
}
