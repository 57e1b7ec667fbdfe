"""Boards: the newest state, whole, for everybody."""

import threading
import time

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


def test_the_death_of_a_writer_is_told(cluster):
    code = """
        import pagemesh, time
        board = pagemesh.Board("mortal", 100)
        board.publish(b"last words")
        print("published", flush=True)
        time.sleep(60)
    """
    writer = cluster.start(1, code)
    assert writer.stdout.readline() == "published\n"
    reader = pagemesh.Board("mortal", write=False)
    assert not reader.writer_is_gone()
    assert reader.wait(0, timeout=30) == 1
    assert reader.read().value == b"last words"
    assert not reader.writer_is_gone()
    writer.kill()
    writer.communicate()
    until = time.monotonic() + 30
    while not reader.writer_is_gone():
        assert time.monotonic() < until
    assert reader.read().value == b"last words"
    pagemesh.unlink("mortal")
