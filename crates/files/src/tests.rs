//! A mounted view over frames in this process. Skipped where nothing can be mounted.

use crate::{Frames, Identity, Meter, Mount, Options, Unmounter};
use pagemesh_wire::local::FileFrames;
use pagemesh_wire::peer::{FileKey, FilePart};
use pagemesh_wire::{PAGE_SIZE, PageIndex};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

type Name = (FileKey, PageIndex);

/// Frames as a daemon would have them, without bound.
#[derive(Clone, Default)]
struct Pool(Arc<Mutex<Inner>>);

/// Frames by name, and their contents.
type Inner = (HashMap<Name, u32>, Vec<Vec<u8>>);

impl Frames for Pool {
    fn get(&self, part: FilePart) -> Option<FileFrames> {
        let mut pool = self.0.lock().unwrap();
        let mut found = FileFrames::default();
        for page in part.each() {
            let bit = 1 << (page.0 % FilePart::PAGES);
            if let Some(frame) = pool.0.get(&(part.file, page)).copied() {
                found.here |= bit;
                found.frames.push(PageIndex(frame));
            } else {
                found.missing |= bit;
                found.frames.push(PageIndex(pool.1.len() as u32));
                pool.1.push(Vec::new());
            }
        }
        Some(found)
    }

    fn read(&self, frame: PageIndex, from: usize, into: &mut [u8]) -> io::Result<()> {
        let pool = self.0.lock().unwrap();
        into.copy_from_slice(&pool.1[frame.0 as usize][from..from + into.len()]);
        Ok(())
    }

    fn write(&self, frame: PageIndex, page: &[u8]) -> io::Result<()> {
        assert_eq!(page.len(), PAGE_SIZE);
        self.0.lock().unwrap().1[frame.0 as usize] = page.to_vec();
        Ok(())
    }

    fn done(&self, part: FilePart, filled: u64, frames: Vec<PageIndex>) {
        let mut pool = self.0.lock().unwrap();
        for (page, frame) in part.each().zip(frames) {
            if filled >> (page.0 % FilePart::PAGES) & 1 == 1 {
                pool.0.insert((part.file, page), frame.0);
            }
        }
    }
}

struct Mounted {
    folder: PathBuf,
    unmounter: Unmounter,
    serving: Option<JoinHandle<()>>,
    meter: Meter,
}

impl Mounted {
    fn new(name: &str) -> Option<Self> {
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("pagemesh-files-{name}-{id}"));
        let [directory, mountpoint] = ["dir", "view"].map(|name| folder.join(name));
        fs::create_dir_all(&directory).unwrap();
        fs::create_dir_all(&mountpoint).unwrap();
        let identity = Identity::of(&directory).unwrap();
        let options = Options {
            read_only: false,
            threads: 2,
        };
        let pool = Box::new(Pool::default());
        let mount = match Mount::new(&directory, &mountpoint, pool, identity, &options) {
            Ok(mount) => mount,
            Err(why) => {
                eprintln!("skipped: nothing can be mounted here: {why}");
                fs::remove_dir_all(folder).unwrap();
                return None;
            }
        };
        let meter = mount.meter();
        let (serving, unmounter) = mount.split();
        let serving = Some(thread::spawn(|| serving.run().unwrap()));
        Some(Self {
            folder,
            unmounter,
            serving,
            meter,
        })
    }

    fn below(&self, name: &str) -> PathBuf {
        self.folder.join("dir").join(name)
    }

    fn seen(&self, name: &str) -> PathBuf {
        self.folder.join("view").join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.unmounter.unmount().unwrap();
        self.serving.take().unwrap().join().unwrap();
        fs::remove_dir_all(&self.folder).unwrap();
    }
}

fn settle() {
    thread::sleep(crate::version::SETTLED + Duration::from_millis(100));
}

#[test]
fn pages_are_read_once_and_a_changed_file_is_seen_at_the_next_open() {
    let Some(view) = Mounted::new("versions") else {
        return;
    };
    let old: Vec<u8> = (0..300_001_u32).map(|n| (n % 251) as u8).collect();
    fs::write(view.below("file"), &old).unwrap();
    assert!(fs::read(view.seen("file")).unwrap() == old);
    assert_eq!(view.meter.read().read, 0, "it was just changed");
    settle();
    assert!(fs::read(view.seen("file")).unwrap() == old);
    let first = view.meter.read();
    assert_eq!(first.read, 74, "each page once");
    assert!(fs::read(view.seen("file")).unwrap() == old);
    assert_eq!(view.meter.read(), first, "the kernel has kept it");
    // Changed behind the view, same size.
    let new: Vec<u8> = old.iter().map(|byte| byte ^ 1).collect();
    fs::write(view.below("file"), &new).unwrap();
    assert!(fs::read(view.seen("file")).unwrap() == new);
    settle();
    assert!(fs::read(view.seen("file")).unwrap() == new);
    // Changed through the view.
    let file = File::options().write(true).open(view.seen("file")).unwrap();
    file.write_all_at(b"through", 5000).unwrap();
    let mut newest = new;
    newest[5000..5007].copy_from_slice(b"through");
    assert!(fs::read(view.below("file")).unwrap() == newest, "at once");
    assert!(fs::read(view.seen("file")).unwrap() == newest);
    drop(file);
    settle();
    assert!(fs::read(view.seen("file")).unwrap() == newest);
}

#[test]
fn files_are_made_renamed_linked_and_removed() {
    let Some(view) = Mounted::new("names") else {
        return;
    };
    fs::create_dir(view.seen("a")).unwrap();
    fs::write(view.seen("a/one"), "one").unwrap();
    fs::rename(view.seen("a/one"), view.seen("two")).unwrap();
    fs::hard_link(view.seen("two"), view.seen("three")).unwrap();
    symlink("two", view.seen("four")).unwrap();
    assert_eq!(fs::read_to_string(view.seen("four")).unwrap(), "one");
    assert_eq!(fs::metadata(view.seen("three")).unwrap().nlink(), 2);
    let mut open = File::open(view.seen("two")).unwrap();
    fs::remove_file(view.seen("two")).unwrap();
    fs::remove_file(view.seen("three")).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one", "an open file stays");
    fs::remove_dir(view.seen("a")).unwrap();
    let names: Vec<_> = fs::read_dir(view.folder.join("view"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["four"]);
    assert!(fs::read_dir(view.below("a")).is_err());
    // Appended, cut, and with other times.
    let path = view.seen("log");
    let mut log = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .unwrap();
    log.write_all(b"0123456789").unwrap();
    log.set_len(4).unwrap();
    log.write_all(b"x").unwrap();
    let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    log.set_modified(time).unwrap();
    drop(log);
    assert_eq!(fs::read(&path).unwrap(), b"0123x");
    assert_eq!(
        fs::metadata(view.below("log")).unwrap().modified().unwrap(),
        time
    );
    assert!(fs::File::create_new(&path).is_err());
    assert_eq!(
        fs::metadata(view.seen("none")).unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
}
