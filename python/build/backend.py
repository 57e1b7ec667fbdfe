"""Builds the wheel: maturin, after the programs and libraries that it is to carry.

A wheel has `bin/pagemesh` (daemon and command line) and the C library, so that
`pip install pagemesh` is all. They are built with cargo in the same target directory and
put where maturin takes a wheel's data from.

`PAGEMESH_WHEEL_PROFILE=dev` builds everything with that profile of Cargo instead of
`release`; with `PAGEMESH_WHEEL_BUILT=1`, programs and libraries have been built already.
"""

import io
import os
import shutil
import subprocess
import tarfile
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

# Directories of Cargo's profiles, where not named as they are.
DIRECTORIES = {"dev": "debug", "test": "debug", "bench": "release"}

get_requires_for_build_sdist = maturin.get_requires_for_build_sdist
get_requires_for_build_wheel = maturin.get_requires_for_build_wheel


def build_sdist(sdist_directory, config_settings=None):
    """The hook of PEP 517: all sources, since a wheel is made from most of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
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


def profile():
    """With which profile of Cargo everything is built."""
    return os.environ.get("PAGEMESH_WHEEL_PROFILE", "release")


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


def build():
    """Builds what the wheel carries."""
    packages = [word for package in CARRIED for word in ("--package", package)]
    cargo = os.environ.get("CARGO", "cargo")
    command = [cargo, "build", "--locked", "--profile", profile(), *packages]
    subprocess.run(command, cwd=ROOT, check=True)


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
