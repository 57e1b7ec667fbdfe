"""Nothing that was read from lost or closed memory reaches a program unnoticed.

Either the exception is raised right where the memory was read, or the process ends with a message.
"""

import subprocess
import textwrap

import pytest

BEGINS = """
    import gc, sys, threading, time
    import numpy, pagemesh
    from pagemesh.errors import ClosedError, LostPageError
    from pagemesh.shared_memory import SharedMemory

    def closed(size=4096):
        segment = SharedMemory(create=True, size=size)
        array = numpy.ndarray((size // 8,), "f8", buffer=segment.buf)
        segment.close()
        segment.unlink()
        return array

    class Finalized:
        def __init__(self, work):
            self.work = work

        def __del__(self):
            self.work()

    def say(*words):
        print(*words, flush=True)
"""

# Each prints what it got; "garbage" must never be among it.
RAISES = {
    "before a finalizer of the function runs": """
        def read():
            segment = SharedMemory(create=True, size=4096)
            array = numpy.ndarray((512,), "f8", buffer=segment.buf)
            segment.close()
            segment.unlink()
            return array[0]
        for _ in range(100):
            try:
                say("garbage", read())
            except ClosedError:
                pass
        say("ClosedError")
    """,
    "before the value is used": """
        array = closed()
        try:
            if array[0] != array[1]:
                say("garbage")
        except ClosedError:
            say("ClosedError")
    """,
    "before the value is given to a function": """
        array, got = closed(), []
        try:
            got.append(array[0])
        except ClosedError:
            say("ClosedError", got)
    """,
    "in a finalizer that reads": """
        array, got = closed(), []
        def work():
            try:
                got.append(array[0])
            except ClosedError:
                say("ClosedError")
        Finalized(work)
        say(got)
    """,
    "while a collector runs finalizers": """
        array = closed(1 << 16)
        gc.set_threshold(1, 1, 1)
        class Ring:
            def __init__(self):
                self.ring = self
            def __del__(self):
                ran.append(1)
        ran = []
        for _ in range(20):
            Ring()
            try:
                say("garbage", list(map(float, array)))
            except ClosedError:
                pass
        say("ClosedError", len(ran) > 0)
    """,
    "in functions that native code calls": """
        view, got = closed().data, []
        try:
            list(map(lambda value: got.append(value), view))
        except ClosedError:
            say("ClosedError", got)
    """,
    "whatever native code swallows": """
        view, got = closed().data, []
        class Swallows:
            def __init__(self, value):
                self.value = value
            def __getattr__(self, name):
                raise AttributeError(name)
        try:
            got.append(hasattr(Swallows(view[0]), "x"))
        except ClosedError:
            say("ClosedError", got)
    """,
    "instead of the mistake that native code makes of it": """
        index = closed().view("i8")
        try:
            numpy.arange(3)[index]
        except ClosedError:
            say("ClosedError")
    """,
    "in a generator": """
        array = closed()
        def items():
            for place in range(3):
                yield array[place]
        try:
            say("garbage", next(items()))
        except ClosedError:
            say("ClosedError")
    """,
    "in a loop over the memory itself": """
        got = []
        try:
            for value in closed():
                got.append(value)
        except ClosedError:
            say("ClosedError", got)
    """,
    "in a thread": """
        array, got = closed(), []
        def read():
            time.sleep(0.3)  # the first thread waits by now
            try:
                got.append(array[0])
            except ClosedError:
                say("ClosedError", got)
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    """,
    "though there are handlers for other things": """
        array = closed()
        def read():
            try:
                return [array[0]]
            except KeyError:
                say("garbage")
        class Quiet:
            def __del__(self):
                try:
                    gc.collect()
                except Exception:
                    say("garbage")
        def call():
            quiet = Quiet()
            value = array[0]
            del quiet
            return value
        try:
            say("garbage", call())
        except ClosedError:
            say("ClosedError")
    """,
    "with a debugger": """
        array, seen = closed(), []
        def trace(frame, event, argument):
            seen.append(event)
            return trace
        def read():
            value = array[0]
            return value
        sys.settrace(trace)
        try:
            say("garbage", read())
        except ClosedError:
            say("ClosedError")
        assert sys.gettrace() is trace
        sys.settrace(None)
    """,
    "on the small signal stack of faulthandler": """
        import faulthandler
        faulthandler.enable()
        array = closed()
        try:
            say("garbage", array[0])
        except ClosedError:
            say("ClosedError")
    """,
    "at a store": """
        array = closed()
        try:
            array[0] = 1
            say("garbage")
        except ClosedError:
            say("ClosedError")
    """,
    "again and again, and nothing is traced then": """
        array = closed()
        for attempt in range(300):
            try:
                say("garbage", array[attempt])
            except ClosedError:
                assert sys.gettrace() is None
        say("ClosedError")
    """,
}

# The process ends, and says why.
ENDS = {
    "a block ends with the access": (
        """
        def read(array):
            try:
                return array[0]
            except ClosedError:
                return 0
        say("garbage", read(closed()))
        """,
        "ends with the access in <string>, line",
    ),
    "a lock would stay locked": (
        """
        array, lock = closed(), threading.Lock()
        with lock:
            array[0] = 1
        say("garbage")
        """,
        "would miss the handlers",
    ),
    "another thread runs": (
        """
        import hashlib
        array = closed()
        spend = lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000_000)
        threading.Thread(target=spend, daemon=True).start()
        try:
            say("garbage", array[0])
        except ClosedError:
            say("ClosedError")
        """,
        "another thread runs",
    ),
    "a trace function reads": (
        """
        array = closed()
        def trace(frame, event, argument):
            sys.settrace(None)
            say("garbage", array[0])
        sys.settrace(trace)
        (lambda: 1)()
        """,
        "a trace function or a profiler",
    ),
}


def outcome(cluster, code):
    process = cluster.start(0, textwrap.dedent(BEGINS) + textwrap.dedent(code))
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize("case", RAISES)
def test_the_exception_is_raised(cluster, case):
    code, out, err = outcome(cluster, RAISES[case])
    assert (code, err) == (0, ""), (out, err)
    assert "garbage" not in out and "ClosedError" in out


@pytest.mark.parametrize("case", ENDS)
def test_the_process_ends(cluster, case):
    source, why = ENDS[case]
    code, out, err = outcome(cluster, source)
    assert code < 0, (out, err)
    assert "garbage" not in out
    assert "touched page 0 of segment" in err and why in err


def test_threads_that_read_one_lost_page_all_notice(doomed):
    """Each gets an exception, or the process ends; none computes with what is not there."""
    cluster = doomed(2)
    code = textwrap.dedent(BEGINS) + textwrap.dedent("""
        array = pagemesh.array("many", (8, 4096), "f4")
        say("made")
        sys.stdin.readline()
        start = threading.Barrier(8)
        def read():
            start.wait()
            for row in range(8):
                try:
                    say("garbage", numpy.asarray(array)[row].sum())
                except LostPageError:
                    pass
            say("done")
        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    """)
    reader = cluster.start(0, code, stdin=subprocess.PIPE)
    assert reader.stdout.readline() == "made\n"
    takes = """
        import time, pagemesh
        pagemesh.attach("many")[:] = 2
        print("taken", flush=True)
        time.sleep(100)
    """
    taker = cluster.start(1, takes)
    assert taker.stdout.readline() == "taken\n"
    cluster.kill(1)
    taker.kill()
    taker.communicate()
    out, err = reader.communicate("go\n", timeout=60)
    assert "garbage" not in out
    if reader.returncode == 0:
        assert out.count("done") == 8, err
    else:
        assert "of segment 'many' on node" in err and "another thread r" in err
