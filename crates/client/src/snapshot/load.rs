//! Making a segment from a file.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use pagemesh_snapshot::{Error as FormatError, PAGE, Reader};
use pagemesh_wire::local::{Refusal, Request};
use pagemesh_wire::peer::Policy;

use super::copy::failed;
use super::{Header, LoadOptions, Observer, Progress, SnapshotError, SnapshotResult, Step, tell};
use crate::{Error, Mapping, Mesh, Options, Segment};

/// The lock under which contents are stored into a segment of policy `release`.
const LOADER: u64 = u64::MAX - 0x10ad;

/// Bytes that are read at once.
const BUFFER: usize = 1 << 20;

pub fn load(
    mesh: &Mesh,
    name: &str,
    path: &Path,
    options: LoadOptions<'_>,
) -> SnapshotResult<Header> {
    let LoadOptions {
        replace,
        mut observer,
    } = options;
    if !replace && is_taken(mesh, name)? {
        return Err(SnapshotError::Exists(name.to_owned()));
    }
    let header = each_piece(path, (Step::Checking, &mut observer), |_, _| Ok(()))?;
    let segment = nameless(mesh, &header)?;
    store(&segment, path, &mut observer)?;
    let named = mesh.done(Request::Name {
        segment: segment.id(),
        name: name.to_owned(),
        replace,
    });
    match named {
        Err(Error::Refused(Refusal::Exists)) => Err(SnapshotError::Exists(name.to_owned())),
        named => Ok(named.map(|()| header)?),
    }
}

fn is_taken(mesh: &Mesh, name: &str) -> SnapshotResult<bool> {
    match mesh.stat(name) {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A segment without a name: it goes with this process, however that ends.
fn nameless(mesh: &Mesh, header: &Header) -> SnapshotResult<Segment> {
    let options = Options {
        mode: header.spec.mode,
        policy: header.spec.policy,
        exclusive: true,
        replicas: header.spec.replicas,
    };
    let name = format!(".load-{}-{}", mesh.node().0, std::process::id());
    let segment = mesh.create(&name, header.spec.size.0, options)?;
    mesh.remove(&name)?;
    Ok(segment)
}

fn store(
    segment: &Segment,
    path: &Path,
    observer: &mut Option<Observer<'_>>,
) -> SnapshotResult<()> {
    let mapping = segment.map()?;
    let ordered = matches!(segment.info().spec.policy, Policy::Release { .. });
    let turn = match ordered {
        true => Some(segment.lock(LOADER).lock_surely(None)?),
        false => None,
    };
    each_piece(path, (Step::Storing, observer), |at, contents| {
        store_piece(&mapping, at, contents)
    })?;
    drop(turn);
    Ok(())
}

fn store_piece(mapping: &Mapping, at: usize, contents: &[u8]) -> SnapshotResult<()> {
    // The last page may be longer than the segment's size, by which the mapping goes.
    let room = mapping.len().saturating_sub(at).min(contents.len());
    Ok(mapping.write(at, &contents[..room])?)
}

/// Reads a file to its end, and hands over the contents with their places in the segment.
fn each_piece(
    path: &Path,
    (step, observer): (Step, &mut Option<Observer<'_>>),
    mut work: impl FnMut(usize, &[u8]) -> SnapshotResult<()>,
) -> SnapshotResult<Header> {
    let file = File::open(path).map_err(|error| failed(path, error))?;
    let total = file.metadata().map_err(|error| failed(path, error))?.len();
    let flawed = |source: FormatError| SnapshotError::Format {
        path: path.to_owned(),
        source,
    };
    let mut reader = Reader::new(BufReader::with_capacity(BUFFER, file)).map_err(flawed)?;
    loop {
        let done = reader.offset();
        tell(observer, Progress { step, done, total })?;
        let Some(piece) = reader.piece().map_err(flawed)? else {
            return Ok(reader.header().clone());
        };
        work(piece.first.0 as usize * PAGE, piece.contents)?;
    }
}
