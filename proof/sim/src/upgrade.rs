//! Daemons that are replaced by ones of another program: a new one reads what an old one has written,
//! and an old one what a new one writes for it.

use crate::check::{Check, ensure};
use crate::dice::Dice;
use crate::log::Mark;
use crate::step::Fault;
use crate::world::{Happening, Life, World};
use pagemesh_core::Input;
use pagemesh_recorder::schema;
use pagemesh_wire::{Program, Versions};

/// The old program.
pub(crate) const OLD: Program = Program::SILENT;
/// The new one.
pub(crate) const NEW: Program = Program::of(Versions::SPOKEN);

/// Nanoseconds until a daemon that has something to do is looked at again.
const BUSY: u64 = 1_000;

impl World {
    /// The program of a host's first daemon.
    pub(crate) fn first_program(&self, host: usize) -> Program {
        let mut dice = Dice::stream(self.setting.seed, &format!("program {host}"));
        match self.setting.upgrades && dice.chance(500) {
            true => OLD,
            false => NEW,
        }
    }

    /// A daemon of this program takes the place of a host's, when that has nothing left to do.
    pub(crate) fn goes_on_as(&mut self, at: usize, program: Program) -> Check {
        let host = &mut self.hosts[at];
        if host.life != Life::Up {
            return Ok(());
        }
        if host.answers > 0 || host.remains.is_some() {
            let again = match program == OLD {
                true => Fault::PutBack { host: at },
                false => Fault::Upgrade {
                    host: at,
                    old: false,
                },
            };
            self.after(BUSY, Happening::Misfortune(again));
            return Ok(());
        }
        // What both programs read; between two new ones it is the present schema.
        let old = [host.node.program(), program].contains(&OLD);
        let version = match old {
            true => schema::OLDEST_WRITTEN,
            false => schema::SCHEMA,
        };
        let document = schema::write_as(version, &host.node, &[]);
        let read = document.map(|document| schema::read(&document));
        let Some(Ok((node, _))) = read else {
            ensure!(false, Replay, "h{}: {read:?}", at + 1);
            return Ok(());
        };
        ensure!(
            old || node == host.node,
            Replay,
            "h{} is another node to the next program",
            at + 1
        );
        host.node = node;
        if let Some(recording) = &mut host.recording {
            recording.begin_anew(&host.node);
        }
        host.ways.forget();
        self.forget_receipts(at);
        self.stats.upgraded += 1;
        let versions = program.speaks;
        self.log.note(
            self.now,
            at,
            Mark::Hand,
            [8, versions.newest.into(), 0],
            || format!("goes on as a program that speaks {versions}"),
        );
        // The first thing that it hears, before what waits in its sockets.
        self.input(at, Input::Runs(program));
        self.hosts[at].inbox.rotate_right(1);
        Ok(())
    }
}
