//! A fingerprint of the code whose inputs are recorded: a log can be replayed
//! only by the code that wrote it.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The sources that decide how a node answers its inputs, and how both are written down.
const SOURCES: [&str; 4] = ["../core/src", "../schema/src", "../wire/src", "src"];

fn main() {
    let mut files = Vec::new();
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        collect(Path::new(source), &mut files);
    }
    files.sort();
    let version = env::var("CARGO_PKG_VERSION").expect("cargo says the version");
    let mut hash = mix(0xcbf2_9ce4_8422_2325, version.as_bytes());
    for file in files {
        hash = mix(hash, file.to_string_lossy().as_bytes());
        hash = mix(hash, &fs::read(&file).expect("a source can be read"));
    }
    println!("cargo::rustc-env=PAGEMESH_FINGERPRINT={hash:x}");
}

/// All Rust sources below a directory; none if it is not there, as in a package
/// of this crate alone.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// FNV-1a.
fn mix(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
