//! The effects of a reaction, carried out on the host's kernel.

use super::super::lab;
use super::turn::Turn;
use super::{Outcome, Packet, Sight};
use crate::check::{Check, ensure};
use crate::kernel::{PageKey, Reclaimed, append_page};
use crate::network::{is_sign_of_life, kind};
use pagemesh_core::{Afterwards, DiffWork, Effect, Event, Input, Rights, Source};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Diffs, Message};
use pagemesh_wire::{PageIndex, SegmentId};
use std::net::SocketAddr;

impl Turn<'_> {
    pub(super) fn carry_out(&mut self, effect: Effect, payload: Option<&[u8]>) -> Check {
        let now = self.site.clock;
        let kernel = &mut self.site.kernel;
        let key = |segment, page| PageKey { segment, page };
        match effect {
            Effect::Send {
                address,
                header,
                message,
                page,
            } => return self.send(address, header, *message, page, payload),
            Effect::Fill {
                segment,
                page,
                source,
            } => {
                ensure!(source != Source::Frame, Law, "{page} fills itself");
                let words = kernel.contents(key(segment, page), source, payload)?;
                kernel.fill(key(segment, page), words)?;
            }
            Effect::Map {
                mapping,
                segment,
                page,
                rights,
            } => {
                let words = kernel.map(now, mapping, key(segment, page), rights)?;
                let mapped = Sight::Mapped(key(segment, page), words, rights);
                self.see(mapped);
            }
            Effect::Protect { segment, page } => kernel.protect(key(segment, page)),
            Effect::Evict {
                segment,
                page,
                keep,
            } => {
                kernel.evict(now, key(segment, page), keep)?;
                self.see(Sight::Dropped(key(segment, page)));
            }
            Effect::DropStash { segment, page } => {
                kernel.drop_stash(key(segment, page));
                self.see(Sight::Dropped(key(segment, page)));
            }
            Effect::Fail {
                mapping,
                segment,
                page,
                why,
            } => {
                let threads = kernel.sleepers(mapping, key(segment, page));
                let failed = Sight::Failed(key(segment, page), threads, why.to_string());
                self.see(failed);
            }
            Effect::ConfirmUse { segment, page } => {
                let used = kernel.used(key(segment, page));
                self.answers.push_back(Input::UseConfirmed {
                    segment,
                    page,
                    used,
                });
            }
            Effect::Forget { segment } => kernel.forget(segment)?,
            Effect::LendLock {
                key,
                client,
                wanted,
            } => {
                kernel.lend(key, client, wanted)?;
                self.see(Sight::Lent(client));
            }
            Effect::ReclaimLock { key } => match kernel.reclaim(key) {
                Reclaimed::Back => self.answers.push_back(Input::LockReturned {
                    key,
                    recovered: false,
                }),
                Reclaimed::Marked => {}
                Reclaimed::UnderWay => self.see(Sight::Awaited(key)),
            },
            Effect::Reply { ticket, reply } => {
                self.see(Sight::Replied(ticket, *reply));
            }
            // Said to strangers, of whom there are none here.
            Effect::SendNotice { .. } => {}
            Effect::Diffs(work) => self.diff_work(work, payload)?,
            Effect::Emit(event) => self.event(event),
        }
        Ok(())
    }

    /// Twins and diffs.
    fn diff_work(&mut self, work: DiffWork, payload: Option<&[u8]>) -> Check {
        let key = |segment, page| PageKey { segment, page };
        let kernel = &mut self.site.kernel;
        match work {
            DiffWork::Twin { segment, page } => kernel.twin(key(segment, page)),
            DiffWork::DropTwin { segment, page } => kernel.drop_twin(key(segment, page)),
            DiffWork::Diff {
                segment,
                name,
                then,
                ..
            } => {
                let page = name.page;
                if kernel.diff(segment, name, then)? && then == Afterwards::Refresh {
                    self.answers.push_back(Input::Unchanged { segment, page });
                }
                Ok(())
            }
            DiffWork::Keep { names, .. } => {
                let Some(letter) = &self.letter else {
                    ensure!(false, Law, "{names:?} are kept, but none came");
                    unreachable!()
                };
                kernel.keep(letter, payload.unwrap_or_default(), &names)
            }
            DiffWork::Merge {
                segment,
                page,
                source,
                names,
                ..
            } => kernel.merge(key(segment, page), (source, payload), &names),
            DiffWork::Update {
                segment,
                page,
                names,
                ..
            } => kernel.update(key(segment, page), &names),
            DiffWork::Forget { segment, upto } => {
                kernel.forget_changes(segment, &upto);
                Ok(())
            }
            DiffWork::Send {
                address,
                header,
                segment,
                request,
                names,
                at_most,
            } => {
                let letter = Diffs {
                    segment,
                    request,
                    diffs: Vec::new(),
                };
                let (letter, tail) = kernel.pack(letter, &names, at_most)?;
                if !letter.diffs.is_empty() {
                    self.emit(address, header, Message::Diffs(letter), &tail);
                }
                Ok(())
            }
            // Nobody checks for races here.
            DiffWork::Compare { .. } => Ok(()),
        }
    }

    fn event(&mut self, event: Event) {
        let sight = match event {
            Event::Owned {
                segment,
                page,
                version,
            } => Some(Sight::Owned(PageKey { segment, page }, version)),
            Event::OwnershipGiven { .. } | Event::TokenGiven { .. } => Some(Sight::Given(event)),
            Event::Left { node } | Event::Died { node } => Some(Sight::Gone(node)),
            Event::Expelled {} => Some(Sight::Expelled),
            _ => None,
        };
        self.outcomes.extend(sight.map(Outcome::Seen));
    }

    fn send(
        &mut self,
        address: SocketAddr,
        header: Header,
        mut message: Message,
        page: Option<(SegmentId, PageIndex, Source)>,
        payload: Option<&[u8]>,
    ) -> Check {
        if is_sign_of_life(kind(&message)) {
            return Ok(());
        }
        if let Some(canary) = self.site.canary {
            canary.tamper(&mut message);
        }
        if let Some(granted) = PageKey::granted_by(&message) {
            let rights = self.site.kernel.rights(granted);
            ensure!(
                rights < Rights::Write,
                ProtectBeforeGrant,
                "h{} grants {granted} while it may still be stored to: {message:?}",
                self.me + 1
            );
            if matches!(message, Message::Pass(_)) {
                self.see(Sight::Passed(header.to, granted));
            }
        }
        let mut behind = Vec::new();
        if let Some((segment, page, source)) = page {
            let key = PageKey { segment, page };
            let words = self.site.kernel.contents(key, source, payload)?;
            append_page(&words, &mut behind);
        }
        self.emit(address, header, message, &behind);
        Ok(())
    }

    fn emit(&mut self, address: SocketAddr, header: Header, message: Message, behind: &[u8]) {
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        bytes.extend_from_slice(behind);
        self.outcomes.push(Outcome::Sent(Packet {
            from: self.me,
            to: lab::host_at(address),
            bytes,
            message,
        }));
    }
}
