//! Gives the shared library its name for the dynamic linker.

fn main() {
    // Raised with every change that breaks programs linked before.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpagemesh.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
