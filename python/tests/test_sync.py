"""Locks and their kin: the same cases against threading and ours, then across nodes."""

import pickle
import signal
import threading
import time

import pytest

import pagemesh
from pagemesh import errors


@pytest.fixture(params=[threading, pagemesh], ids=["threading", "ours"])
def module(request, cluster):
    return request.param


def start(function, *args):
    thread = threading.Thread(target=function, args=args, daemon=True)
    thread.start()
    return thread


def held_elsewhere(lock, seconds=0.2):
    """Another thread takes the lock for a while."""
    taken = threading.Event()

    def hold():
        with lock:
            taken.set()
            time.sleep(seconds)

    thread = start(hold)
    taken.wait()
    return thread


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_a_lock(module, kind):
    lock = getattr(module, kind)()
    assert lock.acquire() is True
    lock.release()
    with lock as entered:
        assert entered is True
    holder = held_elsewhere(lock)
    assert lock.acquire(False) is False
    assert lock.acquire(timeout=0.01) is False
    assert lock.acquire(True, 10) is True
    lock.release()
    holder.join()
    with pytest.raises(RuntimeError):
        lock.release()
    with pytest.raises(ValueError):
        lock.acquire(False, 1)
    with pytest.raises(ValueError):
        lock.acquire(timeout=-2)


def test_a_lock_says_whether_it_is_held(module):
    lock = module.Lock()
    assert lock.locked() is False
    with lock:
        assert lock.locked() is True
        assert lock.acquire(False) is False


def test_an_rlock_is_taken_again(module):
    lock = module.RLock()
    for _ in range(3):
        assert lock.acquire() is True
    for _ in range(3):
        lock.release()
    with pytest.raises(RuntimeError, match="cannot release un-acquired lock"):
        lock.release()


def test_a_condition(module):
    condition = module.Condition()
    items = []

    def consume():
        with condition:
            assert condition.wait_for(lambda: items, 10)
            items.append("seen")
            condition.notify()

    thread = start(consume)
    time.sleep(0.05)
    with condition:
        items.append("made")
        condition.notify_all()
        assert condition.wait_for(lambda: "seen" in items, 10)
        assert condition.wait(0.01) is False
        assert condition.wait_for(lambda: False, 0.01) is False
    thread.join()
    with pytest.raises(RuntimeError, match="cannot wait on un-acquired lock"):
        condition.wait()
    with pytest.raises(RuntimeError, match="cannot notify on un-acquired lock"):
        condition.notify()


def test_a_condition_lets_an_rlock_go_entirely(module):
    condition = module.Condition()

    def notify():
        with condition:
            condition.notify()

    with condition, condition:
        start(notify)
        assert condition.wait(10) is True
        condition.release()
        condition.acquire()


@pytest.mark.parametrize("kind", ["Semaphore", "BoundedSemaphore"])
def test_a_semaphore(module, kind):
    semaphore = getattr(module, kind)(2)
    assert semaphore.acquire() and semaphore.acquire()
    assert semaphore.acquire(False) is False
    assert semaphore.acquire(timeout=0.01) is False
    thread = start(lambda: (time.sleep(0.05), semaphore.release()))
    assert semaphore.acquire(timeout=10) is True
    thread.join()
    semaphore.release(2)
    with pytest.raises(ValueError):
        semaphore.release(0)
    with pytest.raises(ValueError):
        semaphore.acquire(False, 1)
    if kind == "BoundedSemaphore":
        with pytest.raises(ValueError, match="released too many times"):
            semaphore.release()
    with pytest.raises(ValueError):
        getattr(module, kind)(-1)


def test_an_event(module):
    event = module.Event()
    assert event.is_set() is False
    assert event.wait(0.01) is False
    thread = start(lambda: (time.sleep(0.05), event.set()))
    assert event.wait(10) is True
    assert event.is_set() is True and event.wait(0) is True
    thread.join()
    event.set()
    event.clear()
    event.clear()
    assert event.is_set() is False


def test_who_waits_sees_an_event_that_is_cleared_at_once(module):
    event, waits, woken = module.Event(), threading.Event(), []

    def wait():
        waits.set()
        woken.append(event.wait(10))

    thread = start(wait)
    waits.wait()
    time.sleep(0.1)
    event.set()
    event.clear()
    thread.join(10)
    assert woken == [True]


def test_a_barrier(module):
    acted, numbers = [], [[], [], []]
    barrier = module.Barrier(3, action=lambda: acted.append(1))

    def meet(mine):
        for _ in range(20):
            mine.append(barrier.wait(20))

    threads = [start(meet, mine) for mine in numbers]
    for thread in threads:
        thread.join(30)
    assert len(acted) == 20
    assert all(sorted(met) == [0, 1, 2] for met in zip(*numbers, strict=True))
    assert (barrier.parties, barrier.n_waiting, barrier.broken) == (3, 0, False)


def test_a_barrier_breaks_and_is_mended(module):
    barrier = module.Barrier(2)
    with pytest.raises(threading.BrokenBarrierError):
        barrier.wait(0.05)
    assert barrier.broken
    with pytest.raises(threading.BrokenBarrierError):
        barrier.wait()
    barrier.reset()
    assert not barrier.broken
    outcome = []

    def wait():
        try:
            outcome.append(barrier.wait())
        except threading.BrokenBarrierError:
            outcome.append("broken")

    for end in (barrier.abort, barrier.reset):
        thread = start(wait)
        while barrier.n_waiting == 0:
            time.sleep(0.001)
        time.sleep(0.05)
        end()
        thread.join(10)
        barrier.reset()
    assert outcome == ["broken", "broken"]


def test_an_action_that_fails_breaks_the_barrier(module):
    def act():
        raise KeyError("action")

    barrier = module.Barrier(1, act)
    with pytest.raises(KeyError):
        barrier.wait()
    assert barrier.broken


@pytest.mark.parametrize("kind", ["Lock", "RLock", "Event", "Semaphore", "Condition"])
def test_they_are_pickled_by_name(cluster, kind):
    one = getattr(pagemesh, kind)()
    other = pickle.loads(pickle.dumps(one))
    assert type(other) is type(one) and other.name == one.name


def test_parameters_must_agree(cluster, name):
    barrier = pagemesh.Barrier(2, name=name)
    with pytest.raises(errors.MismatchError, match="was made with 2, not 3"):
        pagemesh.Barrier(3, name=name)
    barrier.unlink()


@pytest.mark.parametrize("kind", ["Lock", "RLock", "Event", "Semaphore", "Condition"])
def test_names_are_removed(cluster, name, kind):
    made = getattr(pagemesh, kind)(name=name)
    assert any(segment["name"].endswith(f".{name}") for segment in pagemesh.segments())
    made.unlink()
    assert not any(segment["name"].endswith(f".{name}") for segment in pagemesh.segments())
    with pytest.raises(FileNotFoundError):
        made.unlink()


def test_what_nobody_named_is_forgotten(cluster):
    lock = pagemesh.Lock()
    assert any(segment["name"] == f"lock.{lock.name}" for segment in pagemesh.segments())
    full = f"lock.{lock.name}"
    del lock
    assert all(segment["name"] != full for segment in pagemesh.segments())


# ---- across nodes ---------------------------------------------------------------

TOGETHER = """
    import sys, pagemesh
    name = sys.argv[1]
    total = pagemesh.array(name, 2, "i8")
    barrier = pagemesh.Barrier(3, name=name)
    event = pagemesh.Event(name)
    slots = pagemesh.Semaphore(2, name)
    condition = pagemesh.Condition(name=name)
    barrier.wait(30)
    for _ in range(30):
        with condition:
            total[0] += 1
        with slots:
            pass
    with condition:
        total[1] += 1
        condition.notify_all()
        condition.wait_for(lambda: total[1] == 3, 30)
    number = barrier.wait(30)
    if number == 0:
        event.set()
    assert event.wait(30)
    print(number, total[0])
"""


def test_three_nodes_together(cluster, name):
    processes = [cluster.start(node, TOGETHER, name) for node in range(3)]
    said = [process.communicate(timeout=60) for process in processes]
    assert sorted(out for out, _ in said) == ["0 90\n", "1 90\n", "2 90\n"], said


def test_a_dead_holder_gives_its_lock_back(cluster, name):
    code = """
        import sys, time, pagemesh
        lock = pagemesh.Lock(sys.argv[1])
        lock.acquire()
        print("held", flush=True)
        time.sleep(60)
    """
    process = cluster.start(1, code, name)
    process.stdout.readline()
    lock = pagemesh.Lock(name)
    assert lock.acquire(timeout=0.05) is False and lock.locked()
    process.kill()
    process.communicate()
    assert lock.acquire(timeout=20) is True
    assert lock.recovered
    lock.release()
    lock.unlink()


WAITS = {
    "Lock": "pagemesh.Lock(sys.argv[1]).acquire()",
    "Event": "pagemesh.Event().wait()",
    "Barrier": "pagemesh.Barrier(2).wait()",
    "Semaphore": "pagemesh.Semaphore(0).acquire()",
    "Condition": "c = pagemesh.Condition(); c.acquire(); c.wait()",
    "RLock": "pagemesh.RLock(sys.argv[1] + '-r').acquire()",
    "RLock with a limit": "pagemesh.RLock(sys.argv[1] + '-r').acquire(timeout=60)",
    "BoundedSemaphore": "s = pagemesh.BoundedSemaphore(1); s.acquire(); s.acquire(timeout=60)",
    "Condition.wait_for": "c = pagemesh.Condition(); c.acquire(); c.wait_for(lambda: False, 60)",
    "Array.barrier": "pagemesh.attach(sys.argv[1] + '-held').barrier(2)",
    "Array.barrier with a limit": "pagemesh.attach(sys.argv[1] + '-held').barrier(2, timeout=60)",
    "Array.lock": "pagemesh.attach(sys.argv[1] + '-held').lock().acquire()",
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_waiting_lets_others_run_and_ends_at_ctrl_c(cluster, name, wait):
    code = f"""
        import sys, threading, time, pagemesh
        ran = []
        def run():
            for _ in range(20):
                ran.append(1)
                time.sleep(0.01)
            print("ran", flush=True)
        pagemesh.nodes()
        threading.Thread(target=run, daemon=True).start()
        try:
            {wait}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    lock, again = pagemesh.Lock(name), pagemesh.RLock(f"{name}-r")
    held = pagemesh.array(f"{name}-held", 4)
    with lock, again, held.lock():
        process = cluster.start(1, code, name)
        assert process.stdout.readline() == "ran\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (out, err) == ("interrupted\n", "")
    for made in (lock, again, held):
        made.unlink()


def test_ctrl_c_ends_a_wait_that_it_does_not_interrupt(cluster, name):
    """As one that comes between the last look of the interpreter and the sleep: here the handler
    runs in another thread."""
    code = """
        import signal, sys, threading, time, pagemesh
        lock = pagemesh.Lock(sys.argv[1])
        threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        print("waits", flush=True)
        try:
            lock.acquire(timeout=60)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    lock = pagemesh.Lock(name)
    with lock:
        process = cluster.start(1, code, name)
        assert process.stdout.readline() == "waits\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (out, err) == ("interrupted\n", "")
    lock.unlink()
