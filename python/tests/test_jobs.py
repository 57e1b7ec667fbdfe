"""Workers on the nodes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import program

import pagemesh
from pagemesh.shared_memory import SharedMemory


def fill(rank, array, event):
    part = array.slice_of(rank, pagemesh.size())
    part[:] = rank + 1
    pagemesh.barrier()
    event.set()
    return pagemesh.rank(), int(array.sum())


def fail(rank):
    pagemesh.barrier()
    if rank == 1:
        raise KeyError(f"of {rank}")


def vanish(rank):
    os._exit(3)


class Awkward(Exception):
    def __init__(self, one, two):
        super().__init__(one)


def fail_awkwardly(rank):
    raise Awkward(1, 2)


def linger(rank, event):
    if rank == 1:
        event.set()
    time.sleep(100)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    path = os.path.dirname(__file__)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([path, os.environ.get("PYTHONPATH", "")]))


def test_workers_share_arrays_and_events(cluster, name):
    array, event = pagemesh.array(name, 3 * 8192, "u1"), pagemesh.Event()
    assert pagemesh.spawn(fill, 3, (array, event)) == [(rank, 6 * 8192) for rank in range(3)]
    assert event.is_set()
    array.unlink()


def test_there_is_one_worker_a_node_by_default(cluster):
    workers = pagemesh.spawn(nothing, join=False)
    assert workers.size == len(pagemesh.nodes()) == 3
    assert workers.join(60) == [0, 1, 2]


def nothing(rank):
    return rank


def test_an_exception_of_a_worker_is_raised_here(cluster):
    with pytest.raises(KeyError, match="of 1") as caught:
        pagemesh.spawn(fail, 2)
    assert "in worker 1:" in caught.value.__notes__[0]


def test_whatever_the_exception_is(cluster):
    with pytest.raises(pagemesh.errors.Error, match="Awkward: 1"):
        pagemesh.spawn(fail_awkwardly, 1)


def test_a_worker_that_vanishes_is_an_error(cluster):
    with pytest.raises(pagemesh.errors.Error, match="ended without a result"):
        pagemesh.spawn(vanish, 1)


def test_a_worker_that_is_ended_while_it_writes_leaves_nothing(cluster, name):
    event = pagemesh.Event(name)
    workers = pagemesh.spawn(linger, 2, (event,), join=False)
    assert event.wait(60)
    begun = f"{workers._token}.0"
    SharedMemory(begun, create=True, size=100).close()
    workers.terminate()
    assert begun not in [segment["name"] for segment in pagemesh.segments()]
    event.unlink()


SPAWNS = """
    import sys, pagemesh, test_jobs
    try:
        pagemesh.spawn(test_jobs.linger, 2, (pagemesh.Event(sys.argv[1]),))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""

MEETS = """
import os, time, pagemesh
if pagemesh.rank() == 0:
    time.sleep(100)
print(os.getpid(), flush=True)
try:
    pagemesh.barrier()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def workers_of(cluster):
    """Processes that `spawn` started on nodes of this cluster; others may be on the machine."""
    sockets = [f"PAGEMESH_SOCKET={node['socket']}".encode() for node in cluster.nodes]
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            surroundings = (process / "environ").read_bytes().split(b"\0")
            if b"pagemesh._worker" in (process / "cmdline").read_bytes():
                found += [process for socket in sockets if socket in surroundings]
    return found


def test_waiting_for_workers_ends_at_ctrl_c_and_so_do_they(cluster, name):
    event = pagemesh.Event(name)
    process = cluster.start(1, SPAWNS, name)
    assert event.wait(60)
    assert workers_of(cluster)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert out.splitlines()[-1] == "interrupted"
    while workers_of(cluster):
        time.sleep(0.1)
    event.unlink()


def test_the_barrier_of_a_job_ends_at_ctrl_c(cluster):
    """One party of two, which waits in vain."""
    command = [program(), "run", "--no-prefix", "-n", "2", "--", sys.executable, "-c", MEETS]
    pipes = {"stdout": subprocess.PIPE, "text": True}
    run = subprocess.Popen(command, env=cluster.environment(0), **pipes)
    party = int(run.stdout.readline())
    time.sleep(0.3)
    os.kill(party, signal.SIGINT)
    assert run.stdout.readline() == "interrupted\n"
    run.terminate()
    run.communicate(timeout=30)


def test_nothing_is_left(cluster):
    """A removed segment is listed until the daemon has noticed the end of the last worker."""

    def left():
        names = [segment["name"] for segment in pagemesh.segments()]
        return [name for name in names if name.startswith("spawn.") or ".executor." in name]

    patience = time.monotonic() + 20
    while left() and time.monotonic() < patience:
        time.sleep(0.1)
    assert not left()


def test_run_starts_python_programs(cluster):
    code = "import pagemesh; print(pagemesh.rank(), pagemesh.size()); pagemesh.barrier(30)"
    command = [program(), "run", "--no-prefix", "-n", "4", "--", sys.executable, "-c", code]
    environment = cluster.environment(0)
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert sorted(said.stdout.split("\n")) == ["", "0 4", "1 4", "2 4", "3 4"]


def test_a_process_alone_is_a_job_of_one(cluster):
    code = "import pagemesh; pagemesh.barrier(); print(pagemesh.rank(), pagemesh.size())"
    assert cluster.run(1, code) == "0 1"
