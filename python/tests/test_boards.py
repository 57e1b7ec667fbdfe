"""Boards: the newest state, whole, for everybody."""

import threading

import numpy
import pytest

import pagemesh


def test_a_state_of_bytes_is_read_whole_and_counted(cluster):
    board = pagemesh.Board("bytes", 100, history=2)
    assert board.read() is None
    assert board.wait(0, timeout=0.01) is None
    assert board.publish(b"one") == 1
    assert board.publish(b"two, longer") == 2
    reader = pagemesh.Board("bytes", write=False)
    state = reader.read()
    assert (state.value, state.number, state.missed) == (b"two, longer", 2, 1)
    assert [old.value for old in reader.history()] == [b"one", b"two, longer"]
    with pytest.raises(ValueError):
        board.publish(bytes(101))
    pagemesh.unlink("bytes")


def test_a_state_of_numbers_wakes_who_waits(cluster):
    robot = numpy.dtype([("time", "f8"), ("position", "f4", 3)])
    board = pagemesh.Board("robot", robot)
    woken = []
    waiter = threading.Thread(target=lambda: woken.append(pagemesh.Board("robot", robot).wait(0, 30)))
    waiter.start()
    board.publish(numpy.array((1.5, (1, 2, 3)), robot))
    waiter.join()
    assert woken == [1]
    state = pagemesh.Board("robot", robot, write=False).read().value
    assert state["time"] == 1.5
    assert list(state["position"]) == [1, 2, 3]
    pagemesh.unlink("robot")
