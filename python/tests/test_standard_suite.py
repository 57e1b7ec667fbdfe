"""The tests that CPython itself has for shared memory, run against ours.

They come with most Pythons, but not with Debian's; without them there is nothing to run.
"""

import multiprocessing
import subprocess
import sys
import types
import unittest

import pytest

script_helper = pytest.importorskip("test.support.script_helper", reason="this Python has no tests")
suite = pytest.importorskip("test._test_multiprocessing", reason="this Python has no tests")


@pytest.fixture
def replaced(cluster, monkeypatch):
    import pagemesh.managers
    import pagemesh.shared_memory

    monkeypatch.setattr(suite, "shared_memory", pagemesh.shared_memory)
    monkeypatch.setattr(multiprocessing, "shared_memory", pagemesh.shared_memory)
    monkeypatch.setitem(sys.modules, "multiprocessing.shared_memory", pagemesh.shared_memory)
    manager = pagemesh.managers.SharedMemoryManager
    monkeypatch.setattr(multiprocessing.managers, "SharedMemoryManager", manager)


@pytest.fixture
def tracked(replaced, monkeypatch):
    """With tracking as the standard library has it, in programs that the tests start, too."""
    from pagemesh import _tracker

    monkeypatch.setenv("PAGEMESH_TRACK", "1")
    monkeypatch.setattr(suite, "resource_tracker", _tracker)

    class Programs(types.SimpleNamespace):
        def __getattr__(self, name):
            return getattr(subprocess, name)

        def Popen(self, command, **more):
            return subprocess.Popen([ours(word) for word in command], **more)

    class Helper:
        def assert_python_ok(self, *words):
            return script_helper.assert_python_ok(*map(ours, words))

    monkeypatch.setattr(suite, "subprocess", Programs())
    monkeypatch.setattr(suite, "script_helper", Helper(), raising=False)


def ours(code):
    """A program that does the same with our module."""
    code = code.replace("from multiprocessing.shared_memory", "from pagemesh.shared_memory")
    return code.replace(
        "from multiprocessing import shared_memory", "from pagemesh import shared_memory"
    )


class _Cases(suite._TestSharedMemory, unittest.TestCase):
    """With processes of the default context."""

    __test__ = False
    TYPE = "processes"
    Process = multiprocessing.Process


class _Tracker(suite.TestResourceTracker):
    __test__ = False


NAMES = unittest.TestLoader().getTestCaseNames(_Cases)
# About the resource tracker. The second is in Python 3.13.
TRACKED = [name for name in NAMES if name.endswith(("process_termination", "tracking"))]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TRACKED])
def test_cpython(replaced, name):
    run(_Cases(name))


@pytest.mark.parametrize("name", NAMES)
def test_cpython_with_tracking(tracked, name):
    run(_Cases(name))


def test_cpythons_resource_tracker(tracked):
    run(_Tracker("test_resource_tracker"))


def run(case):
    result = case.run()
    problems = [text for _, text in result.failures + result.errors]
    assert problems == []
    assert result.testsRun == 1
