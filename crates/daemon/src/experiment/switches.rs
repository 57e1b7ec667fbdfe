//! Which switches are set, and how people write that.

use super::disk::{Disk, SlowDisk};
use super::ticks::{Tick, Ticks};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Which switches are set, as in `packet=1024,acknowledge=packet,receive=worker,
/// tick=10ms,sleep=strict,disk=350us/88us,dead=30s,edition=former`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Experiment {
    /// Cut pages into packets of so many bytes; all daemons of a cluster or none.
    pub packet: Option<u16>,
    /// Acknowledge each packet before the next leaves, not the page at its end.
    pub handshake: bool,
    /// Hand received datagrams to another thread first.
    pub worker: bool,
    /// Windows end at ticks only.
    pub tick: Option<Tick>,
    /// Reads of the files of private segments take so long.
    pub disk: Option<Disk>,
    /// Members are declared dead when they have been silent for so long, a second at least.
    pub dead: Option<Duration>,
    /// Speak, read and write what the former edition did, and nothing newer.
    pub former: bool,
}

impl Experiment {
    /// Whether this program is to be of the former edition.
    pub(crate) fn is_former(self) -> bool {
        self.former
    }

    /// The clock by which windows end, if they end at ticks.
    pub(crate) fn ticks(self, now: u64) -> Option<Ticks> {
        self.tick.map(|tick| Ticks::new(tick, now))
    }

    /// The silence after which a member is declared dead, if it is not the usual one.
    pub(crate) fn dead_after(self) -> Option<Duration> {
        self.dead
    }

    /// The disk of private segments, if it is slower than it is.
    pub(crate) fn slow_disk(self) -> Option<SlowDisk> {
        self.disk.map(SlowDisk::new)
    }
}

impl fmt::Display for Experiment {
    /// As it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(size) = self.packet {
            write!(f, "packet={size},")?;
        }
        let acknowledge = if self.handshake { "packet" } else { "page" };
        let receive = if self.worker { "worker" } else { "inline" };
        write!(f, "acknowledge={acknowledge},receive={receive}")?;
        self.tick.map_or(Ok(()), |tick| write!(f, ",{tick}"))?;
        self.disk.map_or(Ok(()), |disk| write!(f, ",{disk}"))?;
        if let Some(dead) = self.dead {
            write!(f, ",dead={}ms", dead.as_millis())?;
        }
        f.write_str(if self.former { ",edition=former" } else { "" })
    }
}

/// Not a description of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}`: an experiment is like `packet=1024,acknowledge=packet,receive=worker,tick=10ms,\
     sleep=strict,disk=350us/88us,dead=30s,edition=former`; packets have 64 to 4096 bytes, acknowledge is page or packet (and needs packets), \
     receive is inline or worker, ticks come every 100us to 1s, sleep is early or strict (and needs ticks), disk is the time of a random read and of the next page, up to 1s, members are dead after 1s to 1h, edition is present or former"
)]
pub struct ExperimentError(String);

impl FromStr for Experiment {
    type Err = ExperimentError;

    fn from_str(text: &str) -> Result<Self, ExperimentError> {
        let mut experiment = Self::default();
        let mut strict = None;
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let set = part.split_once('=').and_then(|(key, value)| {
                match (key.trim(), value.trim()) {
                    ("packet", size) => {
                        let size = size
                            .parse()
                            .ok()
                            .filter(|size| (64..=4096).contains(size))?;
                        experiment.packet = Some(size);
                    }
                    ("acknowledge", "page") => experiment.handshake = false,
                    ("acknowledge", "packet") => experiment.handshake = true,
                    ("receive", "inline") => experiment.worker = false,
                    ("receive", "worker") => experiment.worker = true,
                    ("tick", length) => experiment.tick = Some(Tick::of(length)?),
                    ("edition", "present") => experiment.former = false,
                    ("edition", "former") => experiment.former = true,
                    ("disk", times) => experiment.disk = Some(Disk::of(times)?),
                    ("dead", silence) => experiment.dead = Some(silence_of_the_dead(silence)?),
                    ("sleep", "early") => strict = Some(false),
                    ("sleep", "strict") => strict = Some(true),
                    _ => return None,
                }
                Some(())
            });
            set.ok_or_else(|| ExperimentError(part.into()))?;
        }
        match (&mut experiment.tick, strict) {
            (Some(tick), Some(strict)) => tick.strict = strict,
            (None, Some(_)) => return Err(ExperimentError(text.into())),
            (_, None) => {}
        }
        if experiment.handshake && experiment.packet.is_none() {
            return Err(ExperimentError(text.into()));
        }
        Ok(experiment)
    }
}

/// A silence of a second to an hour: heartbeats come every half a second.
fn silence_of_the_dead(text: &str) -> Option<Duration> {
    let silence = humantime::parse_duration(text).ok()?;
    let sensible = Duration::from_secs(1)..=Duration::from_secs(3600);
    sensible.contains(&silence).then_some(silence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_read_and_nonsense_is_not() {
        let all: Experiment =
            "packet=1024,acknowledge=packet,receive=worker,sleep=strict,tick=10ms,disk=350us/88us,dead=30s,edition=former"
                .parse()
                .unwrap();
        let expected = Experiment {
            packet: Some(1024),
            handshake: true,
            worker: true,
            tick: Some(Tick {
                length: Duration::from_millis(10),
                strict: true,
            }),
            disk: Disk::of("350us/88us"),
            dead: Some(Duration::from_secs(30)),
            former: true,
        };
        assert_eq!(all, expected);
        assert_eq!(all.to_string().parse(), Ok(all));
        assert_eq!("".parse(), Ok(Experiment::default()));
        assert_eq!("receive=inline".parse(), Ok(Experiment::default()));
        for bad in [
            "packet=10",
            "packet=5000",
            "acknowledge=packet",
            "x=1",
            "tick=10",
            "tick=2s",
            "sleep=strict",
            "tick=1ms,sleep=late",
            "packet",
        ] {
            assert!(bad.parse::<Experiment>().is_err(), "{bad}");
        }
    }
}
