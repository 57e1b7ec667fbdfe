//! The programs: each reads pages of files through frames of its node, and fills those that no node
//! has.

use super::{Asked, Cluster, Happening, contents};
use crate::files::FilesMistake;
use crate::small::{self, Check};
use pagemesh_core::{Input, Request, Time};
use pagemesh_wire::peer::{Credentials, FileKey, FilePart, Policy, SegmentSpec};
use pagemesh_wire::{ByteLen, ClientId, PAGE_SIZE, SegmentId, Ticket};

impl Cluster {
    pub(super) fn ask(&mut self, host: usize, request: Request, waits: bool) -> Check {
        self.last += 1;
        let ticket = Ticket(self.last);
        if waits {
            self.hosts[host].program.ticket = ticket;
        }
        let client = ClientId(host as u32 + 1);
        let input = Input::Request {
            ticket,
            client,
            request,
        };
        small::input(self, host, input)
    }

    pub(super) fn open(&mut self, host: usize) -> Check {
        self.tell_budgets(host)?;
        let frames = self.hosts[host].program.frames;
        let spec = SegmentSpec {
            size: ByteLen(u64::from(frames) * PAGE_SIZE as u64),
            mode: 0o600,
            policy: Policy::Files,
            replicas: 0,
        };
        let name = format!("cache{host}-{}", self.last);
        let request = Request::Open {
            name,
            create: Some(spec),
            exclusive: false,
            write: true,
            credentials: Credentials::root(),
        };
        self.ask(host, request, true)
    }

    /// A program takes its next step: it reads from what it has got, or asks for more.
    pub(super) fn step(&mut self, host: usize) -> Check {
        let program = &self.hosts[host].program;
        if program.asked.is_some() || program.left == 0 {
            return Ok(());
        }
        let Some(segment) = program.segment else {
            return self.open(host);
        };
        let (has, leaves) = (program.got.len(), program.leaves);
        if has == 2 || (has == 1 && self.dice.chance(600)) {
            return self.finish(host, segment);
        }
        if leaves {
            self.hosts[host].program.leaves = false;
            return self.ask(host, Request::Leave, true);
        }
        let file = self.dice.index(self.files.len());
        let newest = self.files[file];
        let opens = self.dice.chance(300);
        let opened = &mut self.hosts[host].program.opened;
        let version = *opened.entry(file).or_insert(newest);
        let version = if opens { newest } else { version };
        opened.insert(file, version);
        let named = if self.plants(FilesMistake::VersionNotNamed) {
            0
        } else {
            version
        };
        let pages = self.dice.number() | self.dice.number();
        let width = self.dice.below(20);
        let part = FilePart {
            file: FileKey {
                user: 7,
                hash: [file as u64, named],
            },
            chunk: self.dice.below(3) as u32,
            pages: (pages & ((2 << width) - 1)) | 1,
        };
        let at = self.time();
        let program = &mut self.hosts[host].program;
        program.left -= 1;
        program.asked = Some(Asked {
            file,
            version,
            part,
            at,
        });
        self.note(host, || format!("asks for {part:x?}"));
        self.ask(host, Request::FilePages { segment, part }, true)
    }

    /// A program has read from its frames, fills those that were missing, and gives all back.
    fn finish(&mut self, host: usize, segment: SegmentId) -> Check {
        self.check_contents(host)?;
        let Some((asked, frames)) = self.hosts[host].program.got.front().cloned() else {
            return Ok(());
        };
        let version = self.files[asked.file];
        for page in asked.part.with(frames.missing).each() {
            let frame = frames.frame(page.0 % FilePart::PAGES).ok_or("no frame")?;
            let value = contents(asked.file, version, page);
            self.put(host, segment, frame.0, value);
        }
        let unseen = self.plants(FilesMistake::ChangeUnseen);
        let filled = if version == asked.version || unseen {
            frames.missing
        } else {
            0
        };
        let again = self.dice.chance(500) && self.plants(FilesMistake::ReadAfterDone);
        if !again {
            self.hosts[host].program.got.pop_front();
        }
        let part = asked.part.with(frames.all());
        let done = Request::FilePagesDone {
            segment,
            part,
            filled,
            frames: frames.frames,
        };
        self.ask(host, done, false)?;
        let at = Time(self.time().0 + 1 + self.dice.below(20_000_000));
        self.schedule(at, Happening::Run(host));
        Ok(())
    }
}
