"""What the wheel carries, and that it is all one needs."""

import importlib.metadata
import json
import os
import pwd
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import pytest
from conftest import program

import pagemesh

# A wheel that `make test-python` has built.
WHEEL = os.environ.get("PAGEMESH_WHEEL")

# Two processes, each on a node of its own.
SHARES = """
import pagemesh
from pagemesh.shared_memory import SharedMemory
if pagemesh.rank() == 0:
    segment = SharedMemory("shared", create=True, size=9)
    segment.buf[:5] = b"hello"
pagemesh.barrier(30)
if pagemesh.rank() == 1:
    segment = SharedMemory("shared")
    print(bytes(segment.buf[:5]).decode())
pagemesh.barrier(30)
"""

needs_wheel = pytest.mark.skipif(not WHEEL, reason="`make test-python` says which wheel it built")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes somebody else")


@pytest.fixture(scope="module")
def fresh():
    """An environment in which nobody did anything but `pip install pagemesh`; all may look into it."""
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)
        home = Path(above) / "fresh"
        venv.create(home, with_pip=True)
        command = [home / "bin" / "pip", "install", "--quiet", "--no-index", WHEEL]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        yield home


def alone(home, *command, variables={}, **more):
    """A command in an environment, as after `activate`, with nothing of ours around it."""
    kept = {key: word for key, word in os.environ.items() if not key.startswith(("PAGEMESH_", "PYTHON"))}
    kept["PATH"] = f"{home}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    kept |= variables
    more = {"capture_output": True, "text": True, "timeout": 150} | more
    return subprocess.run([f"{home}/bin/{command[0]}", *command[1:]], env=kept, **more)


@needs_wheel
def test_pip_install_and_demo_is_all(cluster, fresh):
    demo = alone(fresh, "pagemesh", "demo", "--packages", "400")
    assert demo.returncode == 0, demo.stderr
    assert "400 packages" in demo.stdout and "4 nodes" in demo.stdout
    shared = "from pagemesh.shared_memory import SharedMemory as S; print(S(create=True, size=9).size)"
    run = alone(fresh, "pagemesh", "sandbox", "2", "--", "python", "-c", shared)
    assert (run.returncode, run.stdout.count("9")) == (0, 2), run.stderr
    # Without numpy, arrays say what they need.
    bare = alone(fresh, "python", "-c", "import pagemesh; pagemesh.array")
    assert "pip install 'pagemesh[numpy]'" in bare.stderr


@needs_wheel
def test_a_fresh_environment_has_all_and_links_c_programs(able):
    """What `make wheel` does with its result."""
    attempt = Path(__file__).resolve().parents[1] / "build" / "try_wheel.py"
    command = [sys.executable, attempt, WHEEL]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert tried.returncode == 0, tried.stderr
    assert "share memory" in tried.stdout and "C: is linked" in tried.stdout, tried.stdout


@needs_wheel
def test_one_wheel_is_for_all_later_pythons():
    assert "-cp311-abi3-" in Path(WHEEL).name


def test_the_package_brings_its_programs():
    said = subprocess.run([program(), "version", "-o", "json"], capture_output=True, check=True)
    assert json.loads(said.stdout)["version"] == pagemesh.__version__
    assert importlib.metadata.version("pagemesh") == pagemesh.__version__
    if sys.prefix != sys.base_prefix and program() == os.path.join(sys.prefix, "bin", "pagemesh"):
        for library in ("libpagemesh.so.0", "libpagemesh-sysv.so"):
            assert os.path.exists(os.path.join(sys.prefix, "lib", library))
    assert (Path(pagemesh.__file__).parent / "py.typed").exists()


@needs_root
@needs_wheel
def test_without_root_it_works_or_says_what_is_missing(cluster, fresh):
    """As somebody who may do nothing special: `doctor` is right about whether memory is shared."""
    nobody = pwd.getpwnam("nobody")
    home = fresh.parent / "home"
    home.mkdir()
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    # As `sudo -u` leaves it: the home is another user's, and closed.
    closed = fresh.parent / "closed"
    closed.mkdir(mode=0o700)
    as_nobody = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": home}
    as_nobody["variables"] = {"HOME": str(closed), "XDG_CONFIG_HOME": str(closed)}
    doctor = alone(fresh, "pagemesh", "doctor", "-o", "json", **as_nobody)
    checks = json.loads(doctor.stdout)["checks"]
    blockers = [check for check in checks if check["verdict"] == "blocker"]
    assert all(check["found"] and check["cure"] for check in blockers), blockers
    # A Python in somebody's home is not for everybody.
    above = Path(sys.executable).resolve().parents
    shares = ["python", "-c", SHARES] if all(one.stat().st_mode & 1 for one in above) else ["true"]
    sandbox = alone(fresh, "pagemesh", "sandbox", "2", "--", *shares, **as_nobody)
    if blockers:
        assert sandbox.returncode != 0, blockers
        assert "doctor" in sandbox.stderr
    else:
        assert sandbox.returncode == 0, sandbox.stderr
        assert shares == ["true"] or "hello" in sandbox.stdout
