"""Pipes and groups: whole messages between processes."""

import os
import signal
import threading
import time

import pytest

import pagemesh
from pagemesh import errors


def test_messages_go_both_ways(cluster):
    with pagemesh.Pipe("both", 100_000) as one, pagemesh.Pipe("both", create=False) as other:
        assert one.size >= 100_000
        one.send(b"question")
        assert other.receive(timeout=30) == b"question"
        answer = bytes(range(256)) * 300
        other.send(memoryview(answer))
        assert one.receive(timeout=30) == answer
        assert one.peer == "open"
        one.send(bytearray(b"first"))
        with pytest.raises(TimeoutError):
            one.send(b"second", timeout=0.05)
        with pytest.raises(ValueError, match="longer"):
            one.send(bytes(one.size + 1))
        with pytest.raises(ValueError, match="end of the pipe is open"):
            pagemesh.Pipe("both", end="first")
        assert other.receive() == b"first"
        with pytest.raises(TimeoutError):
            other.receive(timeout=0.05)
    pagemesh.unlink("both")


def test_a_closed_end_is_told_after_the_last_message(cluster):
    one, other = pagemesh.Pipe("over"), pagemesh.Pipe("over")
    one.send(b"last")
    one.close()
    one.close()
    assert other.receive() == b"last"
    with pytest.raises(errors.PipeClosedError, match="open the pipe anew"):
        other.receive()
    with pytest.raises(BrokenPipeError):
        other.send(b"more")
    with pytest.raises(ValueError):
        one.send(b"more")
    other.close()
    pagemesh.unlink("over")
    with pytest.raises(errors.SegmentNotFoundError):
        pagemesh.Pipe("over", create=False)


def test_a_process_that_died_is_told(cluster):
    child = os.fork()
    if child == 0:
        pipe = pagemesh.Pipe("killed")
        pipe.send(b"here")
        time.sleep(60)
        os._exit(1)
    with pagemesh.Pipe("killed") as pipe:
        assert pipe.receive(timeout=30) == b"here"
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with pytest.raises(errors.PeerDiedError):
            pipe.receive(timeout=30)
        assert pipe.peer == "dead"
    pagemesh.unlink("killed")


# Says how its wait ended; another exception than Ctrl-C's shows as such.
WAITS = """
    import sys, pagemesh
    with pagemesh.Pipe(sys.argv[1]) as pipe:
        print("waits", flush=True)
        try:
            pipe.receive(timeout=60)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """


def test_ctrl_c_ends_a_wait(cluster):
    process = cluster.start(0, WAITS, "ctrl-c")
    assert process.stdout.readline() == "waits\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "interrupted\n", "")
    pagemesh.unlink("ctrl-c")


def test_ctrl_c_ends_a_wait_while_the_daemon_is_silent(doomed):
    """The daemon does not answer when the wait is withdrawn, which would be an error of its own."""
    cluster = doomed(1)
    daemon = cluster.nodes[0]["pid"]
    process = cluster.start(0, WAITS, "silent")
    assert process.stdout.readline() == "waits\n"
    os.kill(daemon, signal.SIGSTOP)
    try:
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
    finally:
        os.kill(daemon, signal.SIGCONT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_group_sends_by_kind(cluster):
    count = 3
    groups = [pagemesh.Group("hypercube", number, count, size=10_000) for number in range(count)]

    def work(group):
        for other in range(count):
            if other != group.number:
                group.csend(7, bytes([group.number]) * 9_000, other, timeout=30)

    threads = [threading.Thread(target=work, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for group in groups:
        came = [group.crecv(7, timeout=30) for _ in range(count - 1)]
        assert {message.sender for message in came} == set(range(count)) - {group.number}
        assert all(message.value == bytes([message.sender]) * 9_000 for message in came)
    for thread in threads:
        thread.join()
    groups[1].csend(2, b"two", 0)
    first = groups[0].crecv(sender=1, timeout=30)
    assert (first.kind, first.sender, first.value) == (2, 1, b"two")
    with pytest.raises(TimeoutError):
        groups[0].crecv(8, timeout=0.05)
    groups[0].unlink()
    for group in groups:
        group.close()
    assert not [s["name"] for s in pagemesh.segments() if s["name"].startswith("hypercube.")]
