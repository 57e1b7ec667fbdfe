//! The libraries that stand in for calls of the C library, and the programs they can be loaded
//! before.

mod managers;

use crate::exit::{Exit, Trouble};
use anyhow::{Result, bail};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The variable of the dynamic linker.
pub(crate) const VARIABLE: &str = "LD_PRELOAD";

/// A library that is loaded before a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library {
    /// What its file is called, after `libpagemesh-`.
    name: &'static str,
    /// What it stands in for.
    calls: &'static str,
    /// Why it can do nothing for this program, with the cure.
    useless: fn(&Path) -> Option<String>,
}

/// For System V calls.
pub(crate) const SYSV: Library = Library {
    name: "sysv",
    calls: "System V calls",
    useless: |_| None,
};

/// For large allocations.
pub(crate) const BORROW: Library = Library {
    name: "borrow",
    calls: "allocations",
    useless: managers::useless,
};

/// The value of `LD_PRELOAD` for this program.
///
/// # Errors
/// If the library is not installed, or the program cannot be helped by it; the message gives the
/// reason and the cure.
pub(crate) fn preload(library: Library, command: &OsStr) -> Result<OsString> {
    let file = library.file()?;
    if let Some(program) = find(command) {
        library.examine(&program, 0)?;
    }
    let mut value = file.into_os_string();
    if let Some(others) = std::env::var_os(VARIABLE).filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    Ok(value)
}

/// The file that would be run.
fn find(command: &OsStr) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(command));
    }
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|directory| directory.join(command));
    places.find(|place| place.is_file())
}

/// Scripts that are run by scripts that are run by scripts: so many at most.
const DEPTH: usize = 4;

impl Library {
    /// The library: beside this program, or in the directory of libraries next to it.
    fn file(self) -> Result<PathBuf> {
        let name = self.name;
        let program = std::env::current_exe()?;
        let here = program.parent().unwrap_or(Path::new("/"));
        let places = [
            here.join(format!("libpagemesh-{name}.so")),
            here.join(format!("../lib/libpagemesh-{name}.so")),
            // Where Cargo puts it.
            here.join(format!("libpagemesh_{name}.so")),
        ];
        for place in &places {
            if let Ok(library) = place.canonicalize() {
                if library
                    .as_os_str()
                    .as_bytes()
                    .iter()
                    .any(|byte| b": ".contains(byte))
                {
                    bail!(
                        "the dynamic linker cannot load {}: its path has a blank or a colon; install \
                     PageMesh elsewhere",
                        library.display()
                    );
                }
                return Ok(library);
            }
        }
        bail!(
            "libpagemesh-{name}.so is neither beside {} nor in ../lib; install PageMesh whole (make \
         install)",
            program.display()
        )
    }

    /// Whether a library can be loaded before the program. A file that is no program is refused by the
    /// code that starts it.
    fn examine(self, program: &Path, depth: usize) -> Result<()> {
        let Self {
            name,
            calls,
            useless,
        } = self;
        let Ok(file) = File::open(program) else {
            return Ok(());
        };
        let refuse = |why: &str| {
            Err(Trouble::new(Exit::CANNOT_RUN, format!("{}: {why}", program.display())).into())
        };
        let mode = file.metadata()?.mode();
        if mode & 0o6000 != 0 || has_capabilities(program) {
            return refuse(
                "runs with rights of its own (setuid, setgid or capabilities), so the dynamic linker \
             loads nothing before it: run it as the user it becomes, from a copy without these \
             rights",
            );
        }
        let mut start = Vec::new();
        (&file).take(4096).read_to_end(&mut start)?;
        if let Some(line) = start.strip_prefix(b"#!") {
            let mut words = line
                .split(|byte| b" \t\n".contains(byte))
                .filter(|word| !word.is_empty());
            let interpreter = words.next().map(OsStr::from_bytes);
            return match interpreter {
                Some(interpreter) if depth < DEPTH => {
                    let named = interpreter.as_bytes().ends_with(b"/env");
                    let through = words.next().filter(|_| named).map(OsStr::from_bytes);
                    match through.and_then(find) {
                        Some(program) => self.examine(&program, depth + 1),
                        None => self.examine(Path::new(interpreter), depth + 1),
                    }
                }
                _ => Ok(()),
            };
        }
        if let Some(why) = useless(program) {
            return refuse(&why);
        }
        match linking(&file, &start) {
            Ok(Some(Linking::Static)) => refuse(&format!(
                "is linked statically, so no library can stand in for its {calls}: link it \
             dynamically, without -static"
            )),
            Ok(Some(Linking::Foreign)) => refuse(
                "is made for another kind of machine than this program, so its library cannot be \
             loaded before it: build it for this machine",
            ),
            Ok(Some(Linking::Loader(loader))) if is_foreign(&loader) => refuse(&format!(
                "is linked with another C library (its loader is {loader}), for which \
             libpagemesh-{name}.so is not built: build it with the GNU C library"
            )),
            Ok(_) => Ok(()),
            Err(error) => bail!("cannot read {}: {error}", program.display()),
        }
    }
}

/// How an ELF file is linked.
#[derive(Debug, PartialEq, Eq)]
enum Linking {
    /// Without a loader.
    Static,
    /// For other processors.
    Foreign,
    /// By this loader.
    Loader(String),
}

/// Reads so much of an ELF file as says how it is linked; none if it is not one.
fn linking(file: &File, start: &[u8]) -> io::Result<Option<Linking>> {
    const PT_INTERP: u32 = 3;
    if !start.starts_with(b"\x7fELF") || start.len() < 64 {
        return Ok(None);
    }
    let short = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let long = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    };
    let machine = if cfg!(target_arch = "x86_64") {
        62
    } else {
        183
    };
    // 64 bits, the lower byte first, and this processor.
    if start[4..6] != [2, 1] || short(start, 18) != machine {
        return Ok(Some(Linking::Foreign));
    }
    let (table, size, count) = (long(start, 32), short(start, 54), short(start, 56));
    for at in 0..u64::from(count) {
        let mut entry = [0; 56];
        let place = at
            .checked_mul(size.into())
            .and_then(|at| table.checked_add(at));
        file.read_exact_at(&mut entry, place.unwrap_or(u64::MAX))?;
        if u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) == PT_INTERP {
            let length = long(&entry, 32).min(4096) as usize;
            let mut name = vec![0; length];
            file.read_exact_at(&mut name, long(&entry, 8))?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            return Ok(Some(Linking::Loader(name)));
        }
    }
    Ok(Some(Linking::Static))
}

/// Whether this is not the loader of the GNU C library.
fn is_foreign(loader: &str) -> bool {
    let name = loader.rsplit('/').next().unwrap_or_default();
    !name.starts_with("ld-linux")
}

fn has_capabilities(program: &Path) -> bool {
    let mut value = [0; 64];
    rustix::fs::getxattr(program, "security.capability", &mut value[..]).is_ok()
        && fs::metadata(program).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn why(program: &Path) -> String {
        SYSV.examine(program, 0).unwrap_err().to_string()
    }

    #[test]
    fn programs_that_cannot_be_helped_are_refused_with_the_cure() {
        let directory =
            std::env::temp_dir().join(format!("pagemesh-preload-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = directory.join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let this = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(SYSV.examine(&file("good", &this), 0).is_ok());
        let mut elf = vec![0; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[18..20].copy_from_slice(&this[18..20]);
        assert!(why(&file("static", &elf)).contains("without -static"));
        elf[18] ^= 1;
        assert!(why(&file("foreign", &elf)).contains("another kind of machine"));
        let script = file(
            "script",
            format!("#! {}\n", directory.join("static").display()).as_bytes(),
        );
        assert!(why(&script).contains("static"));
        assert!(SYSV.examine(&file("text", b"#!/bin/sh\n"), 0).is_ok());
        let setuid = file("setuid", &this);
        fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(why(&setuid).contains("setuid"));
        assert!(
            SYSV.examine(&file("cut", &this[..32]), 0).is_ok(),
            "no ELF file"
        );
        elf[18] ^= 1;
        // One entry, in a table behind the end.
        (elf[33], elf[56]) = (1, 1);
        assert!(why(&file("broken", &elf)).contains("cannot read"));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn loaders_of_other_libraries_are_known() {
        assert!(!is_foreign("/lib64/ld-linux-x86-64.so.2"));
        assert!(!is_foreign("/lib/ld-linux-aarch64.so.1"));
        assert!(is_foreign("/lib/ld-musl-x86_64.so.1"));
    }
}
