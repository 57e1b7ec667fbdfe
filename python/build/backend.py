"""Builds the wheel: maturin, after the programs and libraries that it is to carry.

A wheel has `bin/pagemesh` (daemon and command line) and the C library with its header, so that
`pip install pagemesh` is all. They are built with cargo in the same target directory and put where
maturin takes a wheel's data from.

The profile of Cargo is `wheel`, which takes the least processor time. `PAGEMESH_WHEEL_PROFILE`
names another one: `release` for the fastest program, `dev` for tests; with
`PAGEMESH_WHEEL_BUILT=1`, programs and libraries have been built already.
"""

import io
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from pathlib import Path

import maturin

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "python" / "pagemesh.data"

# Packages of Cargo, and what of theirs goes where in the environment.
CARRIED = {
    "pagemesh-cli": [("pagemesh", "scripts/pagemesh")],
    "pagemesh-capi": [("libpagemesh.so", "data/lib/libpagemesh.so.0")],
    "pagemesh-sysv": [("libpagemesh_sysv.so", "data/lib/libpagemesh-sysv.so")],
}

# Files of the sources that it carries as they are.
COPIED = {"crates/capi/include/pagemesh.h": "data/include/pagemesh.h"}

# A wheel has no symbolic links: what the linker looks for says where the library is.
LINKED = "/* For the linker: -lpagemesh is this. */\nINPUT(libpagemesh.so.0)\n"

# The environment is where the file is, whose libraries are in no list of the system's.
PKG_CONFIG = """\
prefix=${{pcfiledir}}/../..
includedir=${{prefix}}/include
libdir=${{prefix}}/lib

Name: pagemesh
Description: Shared memory between the processes of several hosts
Version: {version}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -lpagemesh -Wl,-rpath,${{libdir}}
"""

# Directories of Cargo's profiles, where not named as they are.
DIRECTORIES = {"dev": "debug", "test": "debug", "bench": "release"}

get_requires_for_build_sdist = maturin.get_requires_for_build_sdist
get_requires_for_build_wheel = maturin.get_requires_for_build_wheel


def build_sdist(sdist_directory, config_settings=None):
    """The hook of PEP 517: all sources, since a wheel is made from most of them."""
    project = described()
    name = f"{project['name']}-{project['version']}"
    about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n".encode()
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(Path(sdist_directory) / f"{name}.tar.gz", "w:gz") as archive:
        for file in listed.stdout.decode().split("\0")[:-1]:
            archive.add(ROOT / file, f"{name}/{file}")
        entry = tarfile.TarInfo(f"{name}/PKG-INFO")
        entry.size = len(about)
        archive.addfile(entry, io.BytesIO(about))
    return f"{name}.tar.gz"


def described():
    """What pyproject.toml says of the package."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def profile():
    """With which profile of Cargo everything is built."""
    return os.environ.get("PAGEMESH_WHEEL_PROFILE", "wheel")


def target():
    """Where cargo puts what it builds."""
    directory = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return directory / DIRECTORIES.get(profile(), profile())


def stage():
    """Puts what the wheel carries where maturin finds it."""
    if not os.environ.get("PAGEMESH_WHEEL_BUILT"):
        build()
    shutil.rmtree(DATA, ignore_errors=True)
    for built, place in (pair for pairs in CARRIED.values() for pair in pairs):
        (DATA / place).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "--strip-unneeded", "-o", DATA / place, target() / built], check=True)
    for source, place in COPIED.items():
        (DATA / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / source, DATA / place)
    (DATA / "data/lib/libpagemesh.so").write_text(LINKED)
    (DATA / "data/lib/pkgconfig").mkdir()
    text = PKG_CONFIG.format(version=described()["version"])
    (DATA / "data/lib/pkgconfig/pagemesh.pc").write_text(text)


def build():
    """Builds what the wheel carries. Maturin builds the package's native half, and finds most of it."""
    cargo = os.environ.get("CARGO", "cargo")
    if shutil.which(cargo) is None:
        raise SystemExit(
            "PageMesh is built with Rust, and there is no cargo: https://rustup.rs, then again"
        )
    # With the native half, so that maturin finds what all have in common built with the same features.
    packages = [word for package in (*CARRIED, "pagemesh-python") for word in ("--package", package)]
    command = [cargo, "build", "--locked", "--profile", profile(), *packages]
    say(f"compiling the program and the libraries ({' '.join(command)}), which takes some minutes")
    began, before = time.monotonic(), processor_time()
    subprocess.run(command, cwd=ROOT, check=True)
    spent = processor_time() - before
    say(f"compiled in {time.monotonic() - began:.0f} s, with {spent:.0f} s of processor time; packing")


def processor_time():
    """What processes that were waited for have used, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def say(words):
    """Tells the user: on the terminal, if any, since pip shows what is printed with `-v` only."""
    print(f"pagemesh: {words}", file=sys.stderr, flush=True)
    try:
        with open("/dev/tty", "w") as terminal:
            print(f"\n  pagemesh: {words}", file=terminal)
    except OSError:  # none: nobody looks
        pass


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The hook of PEP 517."""
    stage()
    _tell_maturin()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """The hook of PEP 517; the data are not looked at yet."""
    DATA.mkdir(exist_ok=True)
    _tell_maturin()
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def _tell_maturin():
    os.environ.setdefault("MATURIN_PEP517_ARGS", f"--profile {profile()}")
