//! Gives the shared library its name for the dynamic linker.

use std::path::PathBuf;

/// Raised with every change that breaks programs linked before.
const SONAME: &str = "libpagemesh.so.0";

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    println!("cargo:rerun-if-changed=build.rs");
    name_in_build_folder();
}

/// The library's name in the build folder, so that programs linked against it there run.
fn name_in_build_folder() {
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from);
    // OUT_DIR is PROFILE/build/PACKAGE-HASH/out.
    let folder = out.as_deref().and_then(|out| out.ancestors().nth(3));
    if let Some(folder) = folder {
        // It may be there already; without it, a link that the reader makes does as well.
        let _ = std::os::unix::fs::symlink("libpagemesh.so", folder.join(SONAME));
    }
}
