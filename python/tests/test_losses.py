"""What cannot be served any more is an exception in the thread that wanted it."""

import os
import subprocess
import textwrap
import time

import pytest

import pagemesh

READS = """
    import os, subprocess, sys, threading, time
    import numpy, pagemesh
    from pagemesh import errors
    from pagemesh.shared_memory import SharedMemory

    array = pagemesh.array("doomed", (4, 1024), "f4")
    raw = SharedMemory("raw", create=True, size=8192)
    array[0] = 1
    print("made", flush=True)
    sys.stdin.readline()          # the other node has the pages now, and is killed
    for attempt in ("array[1, 1]", "array[1].sum()", "array + 1", "int(raw.buf[0])"):
        try:
            eval(attempt)
            print("no exception", attempt, flush=True)
        except errors.LostPageError as error:
            print(attempt, "->", error, flush=True)
    try:
        array[1] = 5
        print("no exception at the store", flush=True)
    except errors.LostPageError:
        pass
    caught = []
    def look():
        time.sleep(0.3)           # the first thread waits by now
        try:
            caught.append(array[2].sum())
        except errors.LostPageError as error:
            caught.append(str(error))
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    print("thread ->", caught[0], flush=True)
    print("array[0] is", array[0].sum(), flush=True)
"""

TAKES = """
    import sys, time, pagemesh
    from pagemesh.shared_memory import SharedMemory
    array = pagemesh.attach("doomed")
    array[1:] = 2
    raw = SharedMemory("raw")
    raw.buf[0] = 1
    print("taken", flush=True)
    time.sleep(100)
"""


def test_a_lost_page_is_an_exception_and_all_else_goes_on(doomed):
    cluster = doomed(2)
    reader = cluster.start(0, READS, stdin=subprocess.PIPE)
    assert reader.stdout.readline() == "made\n"
    taker = cluster.start(1, TAKES)
    assert taker.stdout.readline() == "taken\n"
    cluster.kill(1)
    taker.kill()
    taker.communicate()
    out, err = reader.communicate("go\n", timeout=60)
    assert err == ""
    lines = out.splitlines()
    for line, pages in zip(lines[:3], ("page 2", "page 2", "page 2 (and 2 more)"), strict=True):
        assert f"{pages} of segment 'doomed' is lost to node 1; node 2 had it last" in line, out
    assert "page 0 of segment 'raw' is lost to node 1" in lines[3], out
    assert lines[4].startswith("thread -> ") and "page 3 of segment 'doomed'" in lines[4], out
    assert lines[5:] == ["array[0] is 1024.0"], out


def test_without_its_daemon_a_program_gets_exceptions(doomed):
    cluster = doomed(2)
    code = """
        import sys, time, pagemesh
        from pagemesh import errors
        array = pagemesh.array("a", 10)
        lock = pagemesh.Lock("l")
        print("ready", flush=True)
        sys.stdin.readline()
        for attempt in (lambda: array.sum(), lambda: lock.locked(), lambda: pagemesh.array("b", 1)):
            # The process hears of it when the kernel tells it.
            for _ in range(200):
                try:
                    attempt()
                except errors.Error as error:
                    print(type(error).__name__, flush=True)
                    break
                time.sleep(0.1)
    """
    process = cluster.start(0, code, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    # The kernel serves the pages of an array that one node alone has used: no daemon is missed.
    other = cluster.start(1, "import pagemesh; pagemesh.array('a', 10); print('seen', flush=True)")
    assert other.stdout.readline() == "seen\n"
    other.communicate()
    cluster.kill(0)
    out, err = process.communicate("go\n", timeout=60)
    assert out.split() == ["LostPageError", "DaemonGoneError", "NoDaemonError"], err


def test_without_the_node_that_keeps_names_a_program_gets_exceptions(doomed):
    cluster = doomed(2)
    code = """
        import sys, pagemesh
        from pagemesh import errors
        own = pagemesh.array("own", 10)
        own[:] = 3
        print("ready", flush=True)
        sys.stdin.readline()
        for attempt in (lambda: pagemesh.array("new", 4), lambda: pagemesh.attach("other")):
            try:
                attempt()
                print("fine", flush=True)
            except errors.NodeGoneError as error:
                assert isinstance(error, OSError)
                print(error, flush=True)
        print(own.sum(), flush=True)
    """
    process = cluster.start(1, code, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    cluster.kill(0)
    out, err = process.communicate("go\n", timeout=90)
    first, second, own = out.splitlines()
    for said, name in ((first, "new"), (second, "other")):
        assert "n1, which answers for this, is gone; `pagemesh status`" in said, (out, err)
        assert said.endswith(f"{name!r}")
    assert (own, err) == ("30.0", "")


def test_threads_that_are_not_pythons_end_with_a_message(cluster, name):
    code = textwrap.dedent("""
        import ctypes, ctypes.util, sys, pagemesh
        from pagemesh.shared_memory import SharedMemory
        segment = SharedMemory(sys.argv[1], create=True, size=4096)
        address = ctypes.addressof(ctypes.c_char.from_buffer(segment._mmap))
        import gc; gc.collect()
        segment.close(); segment.unlink()
        libc = ctypes.CDLL(None)
        thread = ctypes.c_ulong()
        libc.pthread_create(ctypes.byref(thread), None, ctypes.cast(libc.strlen, ctypes.c_void_p),
                            ctypes.c_void_p(address))
        libc.pthread_join(thread, None)
    """)
    process = cluster.start(0, code, name)
    _, err = process.communicate(timeout=30)
    assert process.returncode < 0
    assert f"touched page 0 of segment '{name}' on node" in err


def test_a_crash_elsewhere_is_a_crash_as_ever(cluster):
    code = "import pagemesh, ctypes; pagemesh.nodes(); ctypes.string_at(16)"
    process = cluster.start(0, code)
    process.communicate(timeout=30)
    assert process.returncode == -11


def test_unlimited_sizes_are_refused(cluster, name):
    with pytest.raises(pagemesh.errors.LimitError, match="16 TiB"):
        pagemesh.array(name, 1 << 50, "u1")
    code = f"""
        import resource, pagemesh
        from pagemesh import errors
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        try:
            pagemesh.array({name!r}, 1 << 36, "u1")
        except errors.OutOfMemoryError as error:
            assert isinstance(error, MemoryError)
            print(error)
    """
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    assert "cannot map the segment" in cluster.run(0, code)
    with pytest.raises(pagemesh.errors.SegmentNotFoundError):
        pagemesh.unlink(name)
