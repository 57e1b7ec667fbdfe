//! Programs that bring a memory manager of their own, for which another allocator does nothing.

use object::{Object as _, ObjectSection as _, ReadCache};
use std::fs::File;
use std::path::Path;

/// Runtimes, by the names of their programs. The file is asked first: names may be changed.
const PROGRAMS: [(&str, &str); 5] = [
    ("java", "the Java virtual machine"),
    ("node", "node"),
    ("nodejs", "node"),
    ("deno", "deno"),
    ("bun", "bun"),
];

/// Runtimes, by libraries that their programs are linked with.
const LIBRARIES: [(&str, &str); 4] = [
    ("libjvm.so", "the Java virtual machine"),
    ("libjli.so", "the Java virtual machine"),
    ("libnode.so", "node"),
    ("libcoreclr.so", ".NET"),
];

/// Why a program's allocations pass no allocator of the C library, and what to do instead.
pub(super) fn useless(program: &Path) -> Option<String> {
    let manager = by_contents(program).or_else(|| by_name(program))?;
    Some(format!(
        "brings a memory manager of its own ({manager}), so none of its memory could be borrowed; \
         give its host swap space on a block device instead: `pagemesh export --size 16G` makes \
         one, and docs/far-memory.md says how to swap there"
    ))
}

fn by_name(program: &Path) -> Option<&'static str> {
    let real = program.canonicalize().ok()?;
    let name = real.file_name()?.to_str()?;
    let known = PROGRAMS.iter().find(|(program, _)| *program == name);
    known.map(|(_, manager)| *manager)
}

/// A file that is not ELF passes: starting it says what is wrong.
fn by_contents(program: &Path) -> Option<&'static str> {
    let cache = ReadCache::new(File::open(program).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let has = |name| file.section_by_name(name).is_some();
    if has(".go.buildinfo") || has(".note.go.buildid") {
        return Some("the Go runtime");
    }
    let names = file.section_by_name(".dynstr")?.data().ok()?;
    let needs = |library: &str| {
        let mut strings = names.split(|byte| *byte == 0);
        strings.any(|string| string.starts_with(library.as_bytes()))
    };
    let known = LIBRARIES.iter().find(|(library, _)| needs(library));
    known.map(|(_, manager)| *manager)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_no_manager_of_its_own() {
        assert_eq!(useless(&std::env::current_exe().unwrap()), None);
        assert_eq!(useless(Path::new("/nowhere")), None);
    }

    #[test]
    fn runtimes_are_known_by_name() {
        let directory =
            std::env::temp_dir().join(format!("pagemesh-runtime-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let program = directory.join("node");
        std::fs::write(&program, "no ELF file").unwrap();
        let link = directory.join("js");
        std::os::unix::fs::symlink(&program, &link).unwrap();
        let why = useless(&link).unwrap();
        assert!(
            why.contains("node") && why.contains("pagemesh export"),
            "{why}"
        );
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
