"""Queues and dictionaries that processes on all nodes share."""

import pickle
import queue
import subprocess
import threading
import time

import numpy
import pytest

import pagemesh


def segments():
    return {segment["name"] for segment in pagemesh.segments()}


def test_a_queue_keeps_order_and_counts(cluster):
    items = pagemesh.Queue(3)
    for item in (1, "two", {"three": 3}):
        items.put(item)
    assert (items.qsize(), items.full(), items.empty()) == (3, True, False)
    with pytest.raises(queue.Full):
        items.put_nowait(4)
    with pytest.raises(queue.Full):
        items.put(4, timeout=0.05)
    assert [items.get(), items.get_nowait(), items.get(timeout=1)] == [1, "two", {"three": 3}]
    with pytest.raises(queue.Empty):
        items.get_nowait()
    with pytest.raises(queue.Empty):
        items.get(timeout=0.05)
    for _ in range(3):
        items.task_done()
    items.join()
    with pytest.raises(ValueError, match="too many times"):
        items.task_done()
    with pytest.raises(ValueError, match="non-negative"):
        items.get(timeout=-1)


def test_a_queue_goes_round_and_takes_items_of_any_size(cluster):
    items = pagemesh.Queue(capacity=5000)
    before = segments()
    for round in range(50):
        sizes = [1, 700, 1100 + round]
        for size in sizes:
            items.put(bytes([round]) * size)
        assert [items.get() for _ in sizes] == [bytes([round]) * size for size in sizes]
    items.put(numpy.arange(100_000))
    items.put("after")
    assert len(segments() - before) == 1
    assert items.get().sum() == 4999950000 and items.get() == "after"
    assert segments() == before


def test_a_full_queue_waits_for_room(cluster):
    items = pagemesh.Queue(capacity=4096)
    for _ in range(5):
        items.put(bytes(700))
    putting = threading.Thread(target=items.put, args=(b"x" * 700,))
    putting.start()
    time.sleep(0.2)
    assert items.qsize() == 5 and putting.is_alive()
    assert len(items.get()) == 700
    putting.join(30)
    assert items.qsize() == 5


WORKS = """
    import sys, pagemesh
    calls, results = pagemesh.Queue(name=sys.argv[1]), pagemesh.Queue(name=sys.argv[1] + "-results")
    while (item := calls.get()) is not None:
        results.put((item, item * item))
        calls.task_done()
"""


def test_a_queue_is_shared_by_nodes(cluster, name):
    calls, results = pagemesh.Queue(name=name), pagemesh.Queue(name=f"{name}-results")
    workers = [cluster.start(node, WORKS, name) for node in (0, 1, 2)]
    for number in range(200):
        calls.put(number)
    calls.join()
    assert calls.empty() and results.qsize() == 200
    assert sorted(results.get() for _ in range(200)) == [(n, n * n) for n in range(200)]
    for _ in workers:
        calls.put(None)
    for worker in workers:
        assert worker.communicate(timeout=60) == ("", "")
    calls.unlink()
    results.unlink()
    with pytest.raises(pagemesh.errors.MismatchError):
        pagemesh.Queue(3, name=f"{name}-2")
        pagemesh.Queue(4, name=f"{name}-2")
    pagemesh.Queue(3, name=f"{name}-2").unlink()


DIES = """
    import os, sys, pagemesh
    items = pagemesh.Queue(name=sys.argv[1])
    items.put("before")
    items._native.acquire()
    items._memory.store(80, 77)      # in the middle of counting
    os._exit(0)
"""


def test_a_queue_outlives_a_process_that_dies_with_its_lock(cluster, name):
    items = pagemesh.Queue(name=name)
    cluster.start(1, DIES, name).communicate(timeout=60)
    items.put("after")
    assert [items.get(timeout=30), items.get(timeout=30), items.qsize()] == ["before", "after", 0]
    items.unlink()


def test_a_dictionary_is_a_dictionary(cluster):
    shared, plain = pagemesh.Dict(), {}
    for one in (shared, plain):
        one["a"] = 1
        one.update({"b": [2], (3, 4): None}, c=5)
        one["a"] = 6
        del one["b"]
        one |= {"d": 7}
    assert shared == plain and list(shared) == list(plain) and len(shared) == 4
    assert dict(shared.items()) == plain and list(shared.values()) == list(plain.values())
    for one in (shared, plain):
        assert one.setdefault("a", 0) == 6 and one.setdefault("e", 8) == 8
        assert one.pop("c") == 5 and one.pop("c", None) is None
        assert one.popitem() == ("e", 8)
        assert "a" in one and "b" not in one and one.get("b") is None
        for failure in (lambda one=one: one["b"], lambda one=one: one.pop("b")):
            with pytest.raises(KeyError, match="b"):
                failure()
        with pytest.raises(TypeError, match="unhashable"):
            one[[]] = 1
    assert shared.copy() == plain and repr(shared).startswith("Dict({'a': 6")
    shared.clear()
    assert len(shared) == 0 and not shared
    with pytest.raises(KeyError, match="empty"):
        shared.popitem()


def test_a_dictionary_grows_and_forgets_what_is_overwritten(cluster, name):
    shared = pagemesh.Dict(name, capacity=4096)
    for number in range(3000):
        shared[number % 10] = bytes(100)
    sizes = [s["size"] for s in pagemesh.segments() if s["name"].startswith(f"dict.{name}.")]
    assert len(sizes) == 1 and sizes[0] < 20_000
    shared.update({number: bytes(1000) for number in range(200)})
    assert len(shared) == 200 and all(len(value) == 1000 for value in shared.values())
    shared.unlink()
    assert not [one for one in segments() if name in one]


RAISES = """
    import sys, pagemesh
    shared, lock = pagemesh.Dict(sys.argv[1]), pagemesh.Lock(sys.argv[1])
    for step in range(100):
        with lock:
            shared["sum"] = shared.get("sum", 0) + 1
        shared[sys.argv[2], step] = step
"""


def test_a_dictionary_is_shared_by_nodes(cluster, name):
    shared = pagemesh.Dict(name, capacity=4096)
    writers = [cluster.start(node, RAISES, name, node) for node in (0, 1, 2)]
    for writer in writers:
        assert writer.communicate(timeout=100) == ("", "")
    assert shared["sum"] == 300 and len(shared) == 301
    assert all(shared[str(node), step] == step for node in range(3) for step in range(100))
    again = pickle.loads(pickle.dumps(shared))
    again["array"] = pagemesh.array(f"{name}-array", 4)
    shared["array"][:] = 3
    assert again["array"].sum() == 12
    shared["array"].unlink()
    shared.unlink()
    pagemesh.Lock(name).unlink()


def test_threads_may_use_one_dictionary(cluster):
    shared, failures = pagemesh.Dict(capacity=4096), []

    def work(number):
        try:
            for step in range(100):
                shared[number, step] = bytes(50)
                assert len(shared[number, step]) == 50
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and len(shared) == 400


def test_without_a_name_nothing_is_left(cluster):
    code = """
        import pagemesh
        items, shared = pagemesh.Queue(), pagemesh.Dict(capacity=4096)
        items.put(1)
        shared.update({number: bytes(100) for number in range(100)})
    """
    before = segments()
    process = cluster.start(0, code, stdin=subprocess.DEVNULL)
    assert process.communicate(timeout=60) == ("", "")
    assert segments() == before
