"""A cluster of three nodes on this machine, for all tests of a session."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def program():
    """The command line that came with the package."""
    beside = Path(sys.executable).with_name("pagemesh")
    return str(beside) if beside.exists() else shutil.which("pagemesh")


class Cluster:
    """Nodes of a sandbox. This process is on the first."""

    def __init__(self, nodes, *more):
        command = [program(), "-o", "json", "sandbox", str(nodes), *more]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        said = ""
        for line in self.process.stdout:
            said += line
            if line == "}\n":
                break
        self.nodes = json.loads(said)["nodes"]

    def environment(self, node):
        """For a program that shall run on a node, outside of any job."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PAGEMESH_")}
        return kept | {"PAGEMESH_SOCKET": self.nodes[node]["socket"]}

    def start(self, node, code, *args, **more):
        """A Python program on a node."""
        command = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=self.environment(node), **(pipes | more))

    def run(self, node, code, *args, timeout=60):
        """What a Python program on a node prints. It must end well, and warn of nothing."""
        process = self.start(node, code, *args)
        out, err = process.communicate(timeout=timeout)
        assert (process.returncode, err) == (0, ""), err or f"exit code {process.returncode}"
        return out.strip()

    def kill(self, node):
        """Kills the daemon of a node."""
        os.kill(self.nodes[node]["pid"], signal.SIGKILL)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)


@pytest.fixture(scope="session", autouse=True)
def able():
    """Without a kernel that lets PageMesh work there is nothing to test."""
    command = [program(), "doctor", "-o", "json"]
    checks = json.loads(subprocess.run(command, stdout=subprocess.PIPE).stdout)["checks"]
    blockers = [check["found"] for check in checks if check["verdict"] == "blocker"]
    if blockers:
        pytest.skip(f"`pagemesh doctor` says: {'; '.join(blockers)}")


@pytest.fixture(scope="session")
def cluster():
    cluster = Cluster(3)
    before = os.environ.get("PAGEMESH_SOCKET")
    os.environ["PAGEMESH_SOCKET"] = cluster.nodes[0]["socket"]
    yield cluster
    if before is None:
        del os.environ["PAGEMESH_SOCKET"]
    else:
        os.environ["PAGEMESH_SOCKET"] = before
    cluster.stop()


@pytest.fixture
def doomed():
    """A cluster for a test that breaks it."""
    started = []

    def start(*args):
        started.append(Cluster(*args))
        return started[-1]

    yield start
    for cluster in started:
        cluster.stop()


_NUMBERS = itertools.count()


@pytest.fixture
def name():
    """A name that no other test has."""
    return f"test-{os.getpid()}-{next(_NUMBERS)}"
