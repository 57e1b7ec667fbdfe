//! The processes that one launcher started together (a job).

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{Barrier, Condition, Error, Lock, Mesh, Options, Result, Segment};

/// Variables that hold this process's number, best first: PageMesh, PMIx, Open MPI, PMI (MPICH),
/// Slurm.
const RANK: [&str; 5] = [
    "PAGEMESH_RANK",
    "PMIX_RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
];

/// Variables that hold the number of processes.
const SIZE: [&str; 5] = [
    "PAGEMESH_SIZE",
    "PMIX_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "SLURM_NTASKS",
];

/// Variables that hold a name which all processes of the job share, and no other job has.
const NAME: [&str; 4] = [
    "PAGEMESH_JOB",
    "PMIX_NAMESPACE",
    "PMI_JOBID",
    "SLURM_JOB_ID",
];

/// This process's place in a job started by `pagemesh run`, `pagemesh sandbox`, `mpirun` or `srun`,
/// and locks, barriers and condition variables for all its processes. They belong to a small
/// segment `job.NAME`, which the launcher removes. A process that was started alone is 0 of 1.
#[derive(Clone, Debug)]
pub struct Job {
    segment: Segment,
    rank: u32,
    size: u32,
}

/// The place in the job that the environment describes.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// `None` if the process is alone.
    name: Option<String>,
    rank: u32,
    size: u32,
}

impl Job {
    /// Joins the job that the environment describes.
    ///
    /// # Errors
    /// [`Error::Environment`] if a variable has no usable value;
    /// [`Error::Invalid`] if some are missing; else as [`Mesh::create`].
    pub fn from_env(mesh: &Mesh) -> Result<Self> {
        let place = Place::from(|name| std::env::var_os(name)?.into_string().ok())?;
        let segment = if let Some(name) = &place.name {
            mesh.create(&format!("job.{name}"), 4096, Options::default())?
        } else {
            alone(mesh)?
        };
        Ok(Self {
            segment,
            rank: place.rank,
            size: place.size,
        })
    }

    /// This process's number, from 0.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many processes there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The job's lock with this number.
    #[must_use]
    pub fn lock(&self, number: u64) -> Lock {
        self.segment.lock(number)
    }

    /// The job's condition variable with this number.
    #[must_use]
    pub fn condition(&self, number: u64) -> Condition {
        self.segment.condition(number)
    }

    /// The job's barrier with this number, for all its processes.
    #[must_use]
    pub fn barrier(&self, number: u64) -> Barrier {
        self.segment.barrier(number, self.size)
    }

    /// The segment to which these locks and barriers belong; its 4096 bytes are free to use.
    #[must_use]
    pub fn segment(&self) -> &Segment {
        &self.segment
    }
}

/// A segment for a process without a job; it ends with the process.
fn alone(mesh: &Mesh) -> Result<Segment> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = now.map_or(0, |now| now.as_nanos());
    let name = format!("job.alone.{}.{}.{nanos}", mesh.node(), std::process::id());
    let exclusive = Options {
        exclusive: true,
        ..Options::default()
    };
    let segment = mesh.create(&name, 4096, exclusive)?;
    mesh.remove(&name)?;
    Ok(segment)
}

impl Place {
    fn from(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let rank = number(&variable, &RANK)?;
        let size = number(&variable, &SIZE)?;
        let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
        let name = NAME.iter().find_map(set);
        match (rank, size, name) {
            (None | Some(0), None | Some(1), None) => Ok(Self {
                name: None,
                rank: 0,
                size: 1,
            }),
            (Some(rank), Some(size), Some(name)) if rank < size => Ok(Self {
                name: Some(name),
                rank,
                size,
            }),
            (Some(_), Some(_), Some(_)) => Err(Error::Invalid(
                "the environment gives this process a rank not below the size of its job",
            )),
            _ => Err(Error::Invalid(
                "only part of PAGEMESH_JOB, PAGEMESH_RANK and PAGEMESH_SIZE is set; start the \
                 program with `pagemesh run`",
            )),
        }
    }
}

/// The number in the first variable that is set.
fn number(
    variable: impl Fn(&str) -> Option<String>,
    names: &'static [&'static str],
) -> Result<Option<u32>> {
    for name in names {
        if let Some(value) = variable(name) {
            return value
                .trim()
                .parse()
                .map(Some)
                .map_err(|_| Error::Environment {
                    name,
                    value,
                    wanted: "a number",
                });
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(variables: &[(&str, &str)]) -> Result<Place> {
        Place::from(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn our_own_variables_beat_the_launchers() {
        let both = [
            ("SLURM_PROCID", "9"),
            ("SLURM_NTASKS", "10"),
            ("SLURM_JOB_ID", "77"),
            ("PAGEMESH_RANK", "1"),
            ("PAGEMESH_SIZE", "2"),
            ("PAGEMESH_JOB", "x"),
        ];
        let ours = Place {
            name: Some("x".into()),
            rank: 1,
            size: 2,
        };
        assert_eq!(place(&both).unwrap(), ours);
        let slurm = place(&both[..3]).unwrap();
        assert_eq!((slurm.rank, slurm.size), (9, 10));
    }

    #[test]
    fn a_process_started_by_hand_is_alone() {
        let alone = place(&[]).unwrap();
        assert_eq!((alone.name, alone.rank, alone.size), (None, 0, 1));
    }

    #[test]
    fn half_an_environment_is_an_error() {
        assert!(place(&[("PAGEMESH_RANK", "1")]).is_err());
        assert!(place(&[("PAGEMESH_RANK", "one")]).is_err());
        let beyond = [
            ("PAGEMESH_RANK", "2"),
            ("PAGEMESH_SIZE", "2"),
            ("PAGEMESH_JOB", "x"),
        ];
        assert!(place(&beyond).is_err());
    }
}
