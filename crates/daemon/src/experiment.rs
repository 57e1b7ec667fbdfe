//! MIRAGE+'s switches that nobody needs but who measures (M25): how pages are cut and
//! acknowledged, and who handles what came in.

use std::fmt;
use std::str::FromStr;

/// Which switches are set, as in `packet=1024,acknowledge=packet,receive=worker`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Experiment {
    /// Cut pages into packets of so many bytes; all daemons of a cluster or none.
    pub packet: Option<u16>,
    /// Acknowledge each packet before the next leaves, not the page at its end.
    pub handshake: bool,
    /// Hand what came in to another thread first.
    pub worker: bool,
}

impl fmt::Display for Experiment {
    /// As it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(size) = self.packet {
            write!(f, "packet={size},")?;
        }
        let acknowledge = if self.handshake { "packet" } else { "page" };
        let receive = if self.worker { "worker" } else { "inline" };
        write!(f, "acknowledge={acknowledge},receive={receive}")
    }
}

/// Not a description of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}`: an experiment is like `packet=1024,acknowledge=packet,receive=worker`; packets have 64 \
     to 4096 bytes, acknowledge is page or packet (and needs packets), receive is inline or worker"
)]
pub struct ExperimentError(String);

impl FromStr for Experiment {
    type Err = ExperimentError;

    fn from_str(text: &str) -> Result<Self, ExperimentError> {
        let mut experiment = Self::default();
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
                    _ => return None,
                }
                Some(())
            });
            set.ok_or_else(|| ExperimentError(part.into()))?;
        }
        if experiment.handshake && experiment.packet.is_none() {
            return Err(ExperimentError(text.into()));
        }
        Ok(experiment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_read_and_nonsense_is_not() {
        let all: Experiment = "packet=1024,acknowledge=packet,receive=worker"
            .parse()
            .unwrap();
        let expected = Experiment {
            packet: Some(1024),
            handshake: true,
            worker: true,
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
            "packet",
        ] {
            assert!(bad.parse::<Experiment>().is_err(), "{bad}");
        }
    }
}
