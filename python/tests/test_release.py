"""Arrays of policy ``release``, on two nodes."""

import numpy
import pytest

import pagemesh


@pytest.fixture(
    params=["release", pagemesh.Release(), pagemesh.Release(replicas=1)],
    ids=["by name", "by object", "with a replica"],
)
def grid(cluster, name, request):
    array = pagemesh.array(name, (64, 1024), "i8", policy=request.param)
    yield array
    array.unlink()


PHASES = """
    import sys, numpy, pagemesh
    grid = pagemesh.attach(sys.argv[1])
    for phase in range(1, 6):
        # Every second item of every page: both nodes write all pages.
        grid[:, 1::2] = 100 * phase
        grid.barrier(2)
        assert (grid[:, 0::2] == phase).all(), phase
        grid.barrier(2)
    for turn in range(50):
        with grid.lock():
            grid[0, 0] += 1
    grid.barrier(2)
    print(int(grid[0, 0]))
"""


def test_both_nodes_write_all_pages_phase_by_phase(cluster, grid, name):
    other = cluster.start(1, PHASES, name)
    for phase in range(1, 6):
        grid[:, 0::2] = phase
        grid.barrier(2, timeout=30)
        assert (grid[:, 1::2] == 100 * phase).all(), phase
        grid.barrier(2, timeout=30)
    for _ in range(50):
        with grid.lock() as taken:
            assert taken
            grid[0, 0] += 1
    grid.barrier(2, timeout=30)
    assert grid[0, 0] == 5 + 100
    out, err = other.communicate(timeout=30)
    assert (out.strip(), err) == ("105", "")


def test_a_view_has_the_locks_of_its_array(grid):
    part = grid.slice_of(0, 2)
    with part.lock(3) as taken:
        assert taken
    with grid.lock(3) as taken:
        assert taken
    with pytest.raises(ValueError, match="count from 1"):
        grid.lock(0)
    with pytest.raises(ValueError, match="in no segment"):
        numpy.add(grid, 1).view(pagemesh.Array).lock()
    with pytest.raises(TimeoutError):
        grid.barrier(2, number=9, timeout=0.05)


def test_an_array_has_one_of_the_policies(cluster, name):
    policies = r"Sequential\(...\), pagemesh.Release\(...\), pagemesh.Views\(...\) and pagemesh.Private"
    with pytest.raises(ValueError, match=policies):
        pagemesh.array(name, 4, policy="eventual")
