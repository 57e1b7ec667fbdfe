//! The flight recorder: the inputs of the node and the progress of their effects, for people who
//! must find the cause of a failure, and for a daemon that takes the place of this one.

use crate::crash_point::CrashPoint;
use anyhow::{Context as _, Result};
use pagemesh_core::{Input, Node, Time};
use pagemesh_os::region::{Region, Shape};
use pagemesh_recorder::Note;
use pagemesh_recorder::{Dump, DumpError, Journal, Recovered, recover};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Bytes a log has at least before the node is written down anew. There are two
/// logs, so this is half of what is remembered of a small node.
const LOG: usize = 4 << 20;

/// Address space of the journal: 16 GiB. Only what is used costs memory: two
/// snapshots, each with a log twice its size, or [`LOG`].
const SPACE: Shape = Shape {
    words: 2 << 30,
    bytes: 0,
};

/// Records the node's inputs, and how far their effects are carried out.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// The journal of the node, if there is one.
    journal: Option<Journal<Region>>,
    /// Inputs that effects gave rise to, for after the effects.
    next: VecDeque<Input<'static>>,
    /// Ends this daemon between two effects, in tests.
    pub(crate) crash_point: Option<CrashPoint>,
}

impl Recorder {
    /// Starts to record a node.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(crate) fn begin(node: &Node) -> io::Result<Self> {
        let region = Region::create("pagemesh-journal", SPACE)?;
        let journal = Journal::begin(region, LOG, node, &[]).map_err(io::Error::other)?;
        Ok(Self::with(journal))
    }

    /// Goes on where the daemon before stopped, and tells where that was.
    ///
    /// # Errors
    /// If its node cannot be had again.
    pub(crate) fn adopt(fd: OwnedFd) -> Result<(Self, Recovered)> {
        let region = Region::map(fd, SPACE).context("the journal cannot be read")?;
        let recovered = recover(region.words())?;
        let journal = Journal::resume(region, LOG, &recovered)?;
        Ok((Self::with(journal), recovered))
    }

    fn with(journal: Journal<Region>) -> Self {
        Self {
            journal: Some(journal),
            ..Self::default()
        }
    }

    /// The descriptor to keep for the next daemon.
    pub(crate) fn memory(&self) -> Option<BorrowedFd<'_>> {
        let journal = self.journal.as_ref()?;
        Some(journal.memory().as_fd())
    }

    /// Appends a note; it is published together with the next record.
    pub(crate) fn note(&mut self, note: &Note) {
        if let Some(journal) = &mut self.journal {
            journal.note(&note.encode());
        }
    }

    /// Publishes the notes.
    pub(crate) fn publish(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.publish();
        }
    }

    /// Writes the state in this schema so that a daemon of another version may go on.
    /// False if nothing is recorded.
    pub(crate) fn hand_over(&mut self, schema: u64, node: &Node, registry: &[u8]) -> bool {
        let journal = self.journal.as_mut();
        journal.is_some_and(|journal| journal.hand_over(schema, node, registry).is_ok())
    }

    /// Records nothing.
    pub(crate) fn off() -> Self {
        Self::default()
    }

    /// The node is about to handle this.
    pub(crate) fn input(&mut self, now: Time, input: &Input<'_>) {
        if let Some(journal) = &mut self.journal {
            journal.input(now, input.clone());
        }
    }

    /// The node is about to handle this, too, which came together with the input
    /// before.
    pub(crate) fn join(&mut self, now: Time, input: &Input<'_>) {
        if let Some(journal) = &mut self.journal {
            journal.join(now, input.clone());
        }
    }

    /// The first in line, which the node is about to handle.
    pub(crate) fn next(&mut self, now: impl FnOnce() -> Time) -> Option<(Time, Input<'static>)> {
        let next = self.next.pop_front()?;
        let now = now();
        if let Some(journal) = &mut self.journal {
            journal.next(now);
        }
        Some((now, next))
    }

    /// The daemon before left this line.
    pub(crate) fn take_over(&mut self, line: VecDeque<Input<'static>>) {
        self.next = line;
    }

    /// An effect gave rise to an input, which gets in line.
    pub(crate) fn follow(&mut self, input: Input<'static>) {
        if let Some(journal) = &mut self.journal {
            journal.follow(input.clone());
        }
        self.next.push_back(input);
    }

    /// An effect of this kind was carried out, or it was noted that it was.
    pub(crate) fn burn(&mut self, kind: &str) {
        if let Some(crash_point) = &mut self.crash_point {
            crash_point.burn(kind);
        }
    }

    /// Number of effects of the input that have been carried out.
    pub(crate) fn progress(&mut self, done: usize) {
        if let Some(journal) = &mut self.journal {
            journal.progress(u32::try_from(done).unwrap_or(u32::MAX));
        }
    }

    /// Nothing is left to do: starts a new log if the present one is long.
    /// `registry` is what the daemon has beside the node.
    pub(crate) fn settle(&mut self, node: &Node, registry: &[u8]) {
        if self.is_due()
            && let Some(journal) = &mut self.journal
            && journal.snapshot(node, registry).is_err()
        {
            tracing::warn!(
                "this node knows too many pages for its flight recorder, which is off from now on"
            );
            self.journal = None;
        }
    }

    /// Whether [`Recorder::settle`] has something to do.
    pub(crate) fn is_due(&self) -> bool {
        let journal = self.journal.as_ref();
        journal.is_some_and(|journal| journal.is_long() || journal.is_stopped())
    }

    /// There is time: gets ready for what comes next.
    pub(crate) fn look_ahead(&self) {
        if let Some(journal) = &self.journal {
            journal.look_ahead();
        }
    }

    /// The recorder's contents as a file; with the state of `node`, if that is sound.
    ///
    /// # Errors
    /// If nothing is recorded.
    pub(crate) fn dump(&self, node: Option<&Node>, why: &str) -> Result<Vec<u8>, DumpError> {
        let journal = self.journal.as_ref().ok_or(DumpError::Nothing)?;
        Ok(Dump::take(journal.memory().as_ref(), node, why)?.to_bytes())
    }

    /// The daemon is about to die of this panic: saves what led to it. The node
    /// may be broken, so its state is not asked for.
    pub(crate) fn save(&self, socket: &Path, why: &str) {
        let path = crash_path(socket);
        match self.dump(None, why).map_err(io::Error::other) {
            Ok(bytes) => match write(&path, &bytes) {
                Ok(()) => tracing::error!(path = %path.display(), "the flight recorder is saved"),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "the flight recorder is lost");
                }
            },
            Err(error) => tracing::error!(%error, "nothing of the flight recorder is saved"),
        }
    }
}

/// Where the last flight recorder of a daemon that broke is: beside its socket.
fn crash_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".dump");
    path.into()
}

/// Writes a file only its owner can read, in the place of a former one.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600);
    let written = options
        .open(&draft)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| std::fs::rename(&draft, path));
    written.inspect_err(|_| drop(std::fs::remove_file(&draft)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_core::{Config, Effects, Start};
    use pagemesh_recorder::Verdict;
    use pagemesh_wire::{ClusterId, Incarnation};
    use std::os::unix::fs::PermissionsExt as _;

    fn node() -> Node {
        Node::new(Config::plain(
            "test",
            ([127, 0, 0, 1], 1).into(),
            Incarnation(1),
            Start::Found(ClusterId(1)),
        ))
    }

    #[test]
    fn what_led_to_a_crash_is_saved_for_its_owner_alone() {
        let name = format!("pagemesh-crash-{}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let mut node = node();
        let mut recorder = Recorder::begin(&node).unwrap();
        for second in 0..3 {
            let now = Time(second * 1_000_000_000);
            recorder.input(now, &Input::Deadline);
            node.handle(now, Input::Deadline, &mut Effects::default());
            recorder.save(&socket, "a test");
        }
        let path = crash_path(&socket);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let dump = Dump::from_bytes(&std::fs::read(&path).unwrap()).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(dump.why, "a test");
        let mut times = Vec::new();
        let verdict = dump.replay(|transition| times.push(transition.now.0 / 1_000_000_000));
        let state = pagemesh_recorder::digest(&node);
        assert_eq!(verdict, Ok(Verdict::Unknown(state)));
        assert_eq!(times, [0, 1, 2]);
    }

    #[test]
    fn a_recorder_that_is_off_has_nothing_to_tell() {
        let mut recorder = Recorder::off();
        recorder.input(Time(1), &Input::Deadline);
        recorder.settle(&node(), &[]);
        assert_eq!(recorder.dump(None, ""), Err(DumpError::Nothing));
    }
}
