//! Gives the shared library its name for the dynamic linker.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpagemesh-borrow.so");
    println!("cargo:rerun-if-changed=build.rs");
}
