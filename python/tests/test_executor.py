"""Functions that run on the nodes: an executor, and what is typed interactively."""

import concurrent.futures
import os
import signal
import subprocess
import sys
import textwrap

import pytest

import pagemesh

MARK = None


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    path = os.path.dirname(__file__)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([path, os.environ.get("PYTHONPATH", "")]))


def square(number):
    return number * number


def add(array, part, value):
    array.slice_of(part, 3)[:] += value
    return os.environ["PAGEMESH_SOCKET"], os.getpid()


def fail(text):
    raise KeyError(text)


class Awkward(Exception):
    def __init__(self, one, two):
        super().__init__(one)


def fail_awkwardly():
    raise Awkward(1, 2)


def wait_for(event):
    event.wait(60)
    return "waited"


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def mark(value):
    global MARK
    MARK = value


def marked():
    return MARK


@pytest.fixture(scope="module")
def executor(cluster):
    with pagemesh.Executor() as executor:
        yield executor
    assert not [
        one for one in pagemesh.segments() if one["name"].startswith(("queue.exec", "lock.exec"))
    ]


def test_tasks_run_on_all_nodes_and_arrays_go_by_name(executor, name):
    assert isinstance(executor, concurrent.futures.Executor)
    array = pagemesh.array(name, (3, 4096), "u1")
    started = pagemesh.Barrier(3)
    calls = [executor.submit(meet_and_add, started, array, part) for part in range(3)]
    assert len({call.result(60) for call in calls}) == 3
    assert array[:, 0].tolist() == [1, 2, 3]
    array.unlink()


def meet_and_add(started, array, part):
    started.wait(60)
    return add(array, part, part + 1)


def test_map_keeps_order(executor):
    assert list(executor.map(square, range(50))) == [n * n for n in range(50)]
    assert list(executor.map(pow, [2, 3], [3, 2], chunksize=7)) == [8, 9]
    assert list(executor.map(square, range(50), chunksize=8)) == [n * n for n in range(50)]
    with pytest.raises(ValueError, match="chunksize"):
        executor.map(square, [1], chunksize=0)


def test_an_exception_comes_with_the_workers_traceback(executor):
    with pytest.raises(KeyError, match="sorry") as caught:
        executor.submit(fail, "sorry").result(60)
    assert "raise KeyError(text)" in str(caught.value.__cause__)
    with pytest.raises(pagemesh.errors.Error, match="Awkward: 1"):
        executor.submit(fail_awkwardly).result(60)
    with pytest.raises((TypeError, AttributeError, Exception), match="pickle"):
        executor.submit(square, (n for n in range(3)))
    assert executor.submit(square, 3).result(60) == 9


def test_what_waits_can_be_cancelled(executor):
    event = pagemesh.Event()
    calls = [executor.submit(wait_for, event) for _ in range(8)]
    assert calls[7].cancel() and calls[7].cancelled()
    with pytest.raises(concurrent.futures.TimeoutError):
        calls[0].result(0.1)
    event.set()
    assert [call.result(60) for call in calls[:7]] == ["waited"] * 7


def test_shutdown_and_initializers(cluster):
    with pytest.raises(ValueError, match="max_workers"):
        pagemesh.Executor(0)
    executor = pagemesh.Executor(2, initializer=mark, initargs=("marked",))
    event = pagemesh.Event()
    first = executor.submit(marked)
    calls = [executor.submit(wait_for, event) for _ in range(8)]
    assert first.result(60) == "marked"
    executor.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(square, 1)
    event.set()
    executor.shutdown()
    assert calls[-1].cancelled() and calls[0].result(60) == "waited"


def test_a_failing_initializer_breaks_the_executor(cluster):
    executor = pagemesh.Executor(1, initializer=fail, initargs=("at once",))
    call = executor.submit(square, 1)
    with pytest.raises(concurrent.futures.BrokenExecutor, match="at once"):
        call.result(60)
    executor.shutdown()


def test_a_dead_worker_breaks_the_executor(cluster):
    executor = pagemesh.Executor(2)
    assert executor.submit(square, 2).result(60) == 4
    event = pagemesh.Event()
    others = [executor.submit(wait_for, event) for _ in range(5)]
    call = executor.submit(die)
    event.set()
    with pytest.raises(pagemesh.errors.BrokenExecutorError) as caught:
        call.result(60)
    assert isinstance(caught.value, concurrent.futures.BrokenExecutor)
    with pytest.raises(concurrent.futures.BrokenExecutor):
        executor.submit(square, 1)
    concurrent.futures.wait(others, 60)
    executor.shutdown()


NODE_DIES = """
    import concurrent.futures, sys, time, pagemesh, test_executor
    executor = pagemesh.Executor(3)
    list(executor.map(test_executor.square, range(30)))
    event = pagemesh.Event()
    calls = [executor.submit(test_executor.wait_for, event) for _ in range(3)]
    time.sleep(1)
    print("running", flush=True)
    for call in calls:
        try:
            call.result(90)
        except concurrent.futures.BrokenExecutor as error:
            print("broken", flush=True)
    executor.shutdown()
"""


def test_a_dead_node_breaks_the_executor(doomed):
    cluster = doomed(3)
    program = cluster.start(0, NODE_DIES)
    assert program.stdout.readline() == "running\n"
    cluster.kill(2)
    out, err = program.communicate(timeout=150)
    assert out.split() == ["broken"] * 3, err


INTERACTIVE = """
    import pagemesh
    offset = 100
    class Found(Exception):
        pass
    def work(rank, factor):
        if factor == 0:
            raise Found("nothing")
        return offset + factor * rank
    print(pagemesh.spawn(work, 3, (7,)))
    print(pagemesh.spawn(lambda rank: rank + 1, 2))
    try:
        pagemesh.spawn(work, 1, (0,))
    except Exception as error:
        print(type(error).__name__, error)
    with pagemesh.Executor(2) as executor:
        print(list(executor.map(lambda n: n + offset, range(3))))
"""


def test_functions_typed_interactively_run_in_workers(cluster):
    pytest.importorskip("cloudpickle")
    typed = textwrap.dedent(INTERACTIVE)
    environment = cluster.environment(0)
    said = subprocess.run(
        [sys.executable, "-"], input=typed, env=environment, capture_output=True, text=True, timeout=100
    )
    assert said.stdout.splitlines() == [
        "[100, 107, 114]",
        "[1, 2]",
        "Found nothing",
        "[100, 101, 102]",
    ], said.stderr


def test_without_cloudpickle_the_error_names_it(cluster, monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(Exception, match=r"pip install 'pagemesh\[cloudpickle\]'"):
        pagemesh.spawn(lambda rank: rank, 1)


def test_a_program_that_forgets_its_executor_ends(cluster):
    code = """
        import pagemesh, test_executor
        executor = pagemesh.Executor(2)
        call = executor.submit(test_executor.square, 5)
        print(call.result(60))
    """
    assert cluster.run(0, code) == "25"
