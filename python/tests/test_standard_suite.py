"""The tests that CPython itself has for shared memory, run against ours.

They come with most Pythons, but not with Debian's; without them there is nothing to run.
"""

import multiprocessing
import sys
import unittest

import pytest

suite = pytest.importorskip("test._test_multiprocessing", reason="this Python has no tests")

# About the resource tracker, whose work ours is not.
OTHERWISE = {
    "test_shared_memory_cleaned_after_process_termination",
    "test_shared_memory_untracking",
    "test_shared_memory_tracking",
}


@pytest.fixture
def replaced(cluster, monkeypatch):
    import pagemesh.managers
    import pagemesh.shared_memory

    monkeypatch.setattr(suite, "shared_memory", pagemesh.shared_memory)
    monkeypatch.setattr(multiprocessing, "shared_memory", pagemesh.shared_memory)
    monkeypatch.setitem(sys.modules, "multiprocessing.shared_memory", pagemesh.shared_memory)
    manager = pagemesh.managers.SharedMemoryManager
    monkeypatch.setattr(multiprocessing.managers, "SharedMemoryManager", manager)


class _Cases(suite._TestSharedMemory, unittest.TestCase):
    """With processes of the default context."""

    __test__ = False
    TYPE = "processes"
    Process = multiprocessing.Process


NAMES = [name for name in unittest.TestLoader().getTestCaseNames(_Cases) if name not in OTHERWISE]


@pytest.mark.parametrize("name", NAMES)
def test_cpython(replaced, name):
    result = _Cases(name).run()
    problems = [text for _, text in result.failures + result.errors]
    assert problems == []
    assert result.testsRun == 1
