//! A file that appears whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{SnapshotError, SnapshotResult};

/// Bytes that are written at once.
const BUFFER: usize = 1 << 20;

/// A file beside the one that it will replace; removed when it is dropped before that.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    /// Where it is while it is written; none once it has its name.
    beside: Option<PathBuf>,
    out: BufWriter<File>,
}

impl NewFile {
    pub fn create(path: &Path) -> SnapshotResult<Self> {
        let beside =
            beside(path).ok_or_else(|| failed(path, io::ErrorKind::IsADirectory.into()))?;
        // The contents are memory of this user: nobody else may read them.
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&beside);
        let file = file.map_err(|error| failed(&beside, error))?;
        Ok(Self {
            path: path.to_owned(),
            beside: Some(beside),
            out: BufWriter::with_capacity(BUFFER, file),
        })
    }

    /// The file is whole: gives it its name, and waits until the disk has both.
    pub fn finish(&mut self) -> SnapshotResult<()> {
        let named = self.name();
        named.map_err(|error| failed(&self.path, error))
    }

    fn name(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.out.get_ref().sync_all()?;
        let Some(beside) = &self.beside else {
            return Ok(());
        };
        fs::rename(beside, &self.path)?;
        self.beside = None;
        File::open(directory(&self.path))?.sync_all()
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = fs::remove_file(beside);
        }
    }
}

fn failed(path: &Path, source: io::Error) -> SnapshotError {
    SnapshotError::File {
        path: path.to_owned(),
        source,
    }
}

/// The name while the file is written: one process writes one at a time.
fn beside(path: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}.part", std::process::id()));
    Some(directory(path).join(name))
}

fn directory(path: &Path) -> &Path {
    let parent = path.parent().unwrap_or(Path::new("."));
    if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("pagemesh-file-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("a");
        fs::write(&path, "old").unwrap();
        let mut half = NewFile::create(&path).unwrap();
        half.write_all(b"half").unwrap();
        drop(half);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let mut whole = NewFile::create(&path).unwrap();
        whole.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        whole.finish().unwrap();
        drop(whole);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            1,
            "and nothing else"
        );
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_part_is_in_the_same_directory() {
        let part = beside(Path::new("grid")).unwrap();
        assert!(part.starts_with("./") && part.to_str().unwrap().ends_with(".part"));
        assert_eq!(directory(Path::new("/a/b")), Path::new("/a"));
        assert!(beside(Path::new("/")).is_none());
    }
}
