"""The same cases against the standard library's shared memory and ours.

What the standard library does is right by definition: a case that it fails is no case.
"""

import _posixshmem
import gc
import importlib
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import textwrap
import warnings
from contextlib import suppress

import numpy
import pytest

MODULES = ["multiprocessing.shared_memory", "pagemesh.shared_memory"]


@pytest.fixture(params=MODULES, ids=["standard", "ours"])
def module(request, cluster):
    return importlib.import_module(request.param)


@pytest.fixture
def made(module, name):
    """A segment of 512 bytes."""
    segment = module.SharedMemory(name, create=True, size=512)
    yield segment
    with suppress(BufferError):
        segment.close()
    with suppress(FileNotFoundError):
        segment.unlink()


def complaint(call):
    """The exception of a call, as a program may look at it."""
    with pytest.raises(Exception) as caught:
        call()
    error = caught.value
    return type(error), str(error), getattr(error, "errno", None), getattr(error, "filename", None)


def both(case):
    """The outcome of a case with each module."""
    return [case(importlib.import_module(name)) for name in MODULES]


def test_a_segment_is_what_it_says(module, made, name):
    assert (made.name, made.size) == (name, 512)
    assert repr(made) == str(made) == f"SharedMemory({name!r}, size=512)"
    assert isinstance(made.buf, memoryview)
    assert (made.buf.format, made.buf.itemsize, made.buf.nbytes) == ("B", 1, 512)
    assert (made.buf.readonly, made.buf.contiguous, made.buf.shape) == (False, True, (512,))
    assert bytes(made.buf) == bytes(512)


def test_stores_are_seen_through_other_objects(module, made, name):
    made.buf[3:6] = b"abc"
    other = module.SharedMemory(name)
    assert bytes(other.buf[:7]) == b"\0\0\0abc\0"
    other.buf[0] = 42
    assert made.buf[0] == 42
    other.close()


def test_a_wished_size_is_ignored_on_attaching(module, made, name):
    other = module.SharedMemory(name, size=20 * 512)
    assert other.size == 512
    other.close()


def test_generated_names_are_short_and_distinct(module):
    segments = [module.SharedMemory(create=True, size=1) for _ in range(3)]
    names = {segment.name for segment in segments}
    assert len(names) == 3
    assert all(re.fullmatch(r"psm_[0-9a-f]{8}", name) for name in names)
    for segment in segments:
        segment.close()
        segment.unlink()


def test_a_generated_name_that_is_taken_is_not_used(module, monkeypatch, name):
    names = iter([f"/psm_{name}", f"/psm_{name}", f"/psm_{name}-"])
    monkeypatch.setattr(module, "_make_filename", lambda: next(names))
    first = module.SharedMemory(create=True, size=1)
    second = module.SharedMemory(create=True, size=1)
    assert (first._name, second._name) == (f"/psm_{name}", f"/psm_{name}-")
    for segment in (first, second):
        segment.close()
        segment.unlink()


IMPOSSIBLE = {
    "negative": lambda m: m.SharedMemory(create=True, size=-1),
    "nothing": lambda m: m.SharedMemory(create=True, size=0),
    "no size": lambda m: m.SharedMemory(create=True),
    "no name": lambda m: m.SharedMemory(),
    "no name, attaching": lambda m: m.SharedMemory(create=False, size=9),
    "absent": lambda m: m.SharedMemory("test-absent"),
    "empty name": lambda m: m.SharedMemory("", create=True, size=1),
    "empty name, attaching": lambda m: m.SharedMemory(""),
    "a slash": lambda m: m.SharedMemory("test/slash", create=True, size=1),
    "a long name": lambda m: m.SharedMemory("n" * 300, create=True, size=1),
    "a number as a name": lambda m: m.SharedMemory(7, create=True, size=1),
    "bytes as a name": lambda m: m.SharedMemory(b"x", create=True, size=1),
    "a word as a size": lambda m: m.SharedMemory("test-size", create=True, size="9"),
    "too many arguments": lambda m: m.SharedMemory("a", True, 1, True, True),
    "an unknown keyword": lambda m: m.SharedMemory("a", sise=1),
}


@pytest.mark.parametrize("case", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_wishes_are_refused_alike(cluster, case):
    standard, ours = both(lambda module: complaint(lambda: case(module)))
    if standard[0] is TypeError:  # names the arguments, of which there are more
        assert ours[0] is TypeError
    else:
        assert ours == standard


@pytest.mark.parametrize("size", [1.5, 1 << 70])
def test_a_size_must_be_a_possible_number(cluster, name, size):
    def case(module):
        return complaint(lambda: module.SharedMemory(name, create=True, size=size))

    standard, ours = both(case)
    # The standard library leaves the name behind.
    _posixshmem.shm_unlink(f"/{name}")
    assert ours == standard


def test_a_name_is_made_once(module, made, name):
    error = complaint(lambda: module.SharedMemory(name, create=True, size=512))
    assert error == (FileExistsError, f"[Errno 17] File exists: '/{name}'", 17, f"/{name}")


def test_leading_slashes_do_not_count(module, made, name):
    other = module.SharedMemory(f"/{name}")
    assert (other.name, other._name) == (f"/{name}", f"//{name}")
    other.buf[0] = 9
    assert made.buf[0] == 9
    other.close()


def test_a_subclass_may_open_what_exists(module, made, name):
    class Optional(module.SharedMemory):
        _flags = os.O_CREAT | os.O_RDWR

    other = Optional(name)
    assert other.size == 512
    assert repr(other) == f"Optional({name!r}, size=512)"
    other.close()


def test_a_removed_segment_lives_on_where_it_is_open(module, made, name):
    other = module.SharedMemory(name)
    other.unlink()
    made.buf[0] = 5
    assert other.buf[0] == 5
    other.close()
    missing = (FileNotFoundError, f"[Errno 2] No such file or directory: '/{name}'", 2, f"/{name}")
    assert complaint(lambda: module.SharedMemory(name)) == missing
    assert complaint(made.unlink) == missing


def test_a_name_may_be_used_again(module, name):
    for number in range(3):
        segment = module.SharedMemory(name, create=True, size=8 + number)
        assert (segment.size, segment.buf[0]) == (8 + number, 0)
        segment.buf[0] = 77
        segment.unlink()
        segment.close()


def test_closing_is_for_good_and_may_be_repeated(module, made, name):
    buffer = made.buf
    made.close()
    made.close()
    assert (made.buf, made.name, made.size) == (None, name, 512)
    assert repr(made) == f"SharedMemory({name!r}, size=512)"
    assert complaint(lambda: buffer[0])[:2] == (
        ValueError,
        "operation forbidden on released memoryview object",
    )


def test_a_slice_in_use_keeps_the_memory(module, made):
    piece = made.buf[10:20]
    assert complaint(made.close)[:2] == (BufferError, "cannot close exported pointers exist")
    assert made.buf is None
    piece[0] = 3
    assert piece[0] == 3
    piece.release()
    made.close()


def test_a_view_of_the_buffer_in_use_keeps_it(module, made):
    array = numpy.frombuffer(made.buf, "u1")
    assert complaint(made.close)[0] is BufferError
    assert array.sum() == 0
    del array
    gc.collect()
    made.close()


def test_a_forgotten_segment_is_closed_but_not_removed(module, name):
    segment = module.SharedMemory(name, create=True, size=3)
    segment.buf[:] = b"abc"
    del segment
    gc.collect()
    again = module.SharedMemory(name)
    assert bytes(again.buf) == b"abc"
    again.close()
    again.unlink()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_segments_are_pickled_by_name(module, made, protocol):
    pickled = pickle.dumps(made, protocol)
    assert len(pickled) < 200
    other = pickle.loads(pickled)
    assert type(other) is module.SharedMemory
    other.buf[:3] = b"two"
    assert bytes(made.buf[:3]) == b"two"
    other.close()
    made.unlink()
    assert complaint(lambda: pickle.loads(pickled))[0] is FileNotFoundError


def test_the_constructor_and_the_class_look_alike(cluster):
    standard, ours = (importlib.import_module(module).SharedMemory for module in MODULES)
    assert issubclass(ours, standard)
    public = lambda cls: {word for word in dir(cls) if not word.startswith("_")}  # noqa: E731
    assert public(ours) == public(standard)


def test_track_is_accepted(cluster, name):
    from pagemesh.shared_memory import SharedMemory

    for track in (True, False):
        segment = SharedMemory(name, create=True, size=9, track=track)
        segment.unlink()
        segment.close()


def child(segment, text):
    segment.buf[: len(text)] = text
    segment.close()


def child_by_name(module, name, text):
    child(importlib.import_module(module).SharedMemory(name), text)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_share_it(module, made, method):
    context = multiprocessing.get_context(method)
    by_object = context.Process(target=child, args=(made, b"object"))
    by_name = context.Process(target=child_by_name, args=(module.__name__, made.name, b"name"))
    for process, result in ((by_object, b"object"), (by_name, b"namect")):
        process.start()
        process.join()
        assert process.exitcode == 0
        assert bytes(made.buf[:6]) == result


def test_a_pool_fills_it(module, made):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.starmap(fill, [(made, start) for start in range(0, 512, 64)])
    assert bytes(made.buf) == bytes(start // 64 for start in range(512))


def fill(segment, start):
    segment.buf[start : start + 64] = bytes([start // 64] * 64)


def test_a_numpy_array_lies_over_it(module, made, name):
    array = numpy.ndarray((8, 8), "f8", buffer=made.buf)
    array[:] = numpy.arange(64).reshape(8, 8)
    other = module.SharedMemory(name)
    assert numpy.ndarray((64,), "f8", buffer=other.buf).sum() == 64 * 63 / 2
    other.close()


EXITS = """
    import importlib, sys
    module = importlib.import_module(sys.argv[1])
    segment = module.SharedMemory(sys.argv[2])
    segment.buf[0] += 1
"""


def test_a_reader_on_any_node_ends_without_harm(cluster, name):
    from pagemesh.shared_memory import SharedMemory

    segment = SharedMemory(name, create=True, size=100_000)
    for node in (1, 2, 0, 1):
        assert cluster.run(node, EXITS, "pagemesh.shared_memory", name) == ""
    assert segment.buf[0] == 4
    segment.close()
    segment.unlink()


def test_the_creator_may_end_and_others_come_later(cluster, name):
    code = """
        import sys
        from pagemesh.shared_memory import SharedMemory
        segment = SharedMemory(sys.argv[1], create=True, size=9)
        segment.buf[:] = b"long live"
    """
    assert cluster.run(1, code, name) == ""
    found = """
        import sys
        from pagemesh.shared_memory import SharedMemory
        segment = SharedMemory(sys.argv[1])
        print(bytes(segment.buf).decode())
        segment.unlink()
    """
    assert cluster.run(2, found, name) == "long live"


STRANGER = """
    import importlib, os, sys
    module = importlib.import_module(sys.argv[1])
    os.chmod(os.path.dirname(os.environ["PAGEMESH_SOCKET"]), 0o755)
    os.chmod(os.environ["PAGEMESH_SOCKET"], 0o777)
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    for more in ({}, {"create": True, "size": 1}):
        try:
            module.SharedMemory(sys.argv[2], **more)
        except OSError as error:
            print(type(error).__name__, error, error.errno, error.filename)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to be")
def test_what_is_anothers_is_refused_alike(cluster, name):
    said = []
    for module in MODULES:
        segment = importlib.import_module(module).SharedMemory(name, create=True, size=9)
        said.append(cluster.run(2, STRANGER, module, name))
        segment.close()
        segment.unlink()
    assert said[0] == said[1]
    assert said[0].startswith(f"PermissionError [Errno 13] Permission denied: '/{name}' 13")


def test_no_daemon_is_an_error_with_its_cure(cluster):
    code = """
        from pagemesh import errors
        from pagemesh.shared_memory import SharedMemory
        try:
            SharedMemory("x", create=True, size=1)
        except errors.NoDaemonError as error:
            assert isinstance(error, ConnectionError)
            print(error)
    """
    environment = os.environ | {"PAGEMESH_SOCKET": "/nowhere/at.all"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "/nowhere/at.all; start one with `pagemesh daemon`" in said.stdout


def test_touching_an_array_after_close_is_an_exception(cluster, name):
    from pagemesh import errors
    from pagemesh.shared_memory import SharedMemory

    segment = SharedMemory(name, create=True, size=4096)
    array = numpy.ndarray((512,), "f8", buffer=segment.buf)
    segment.close()
    with pytest.raises(errors.ClosedError, match=f"page 0 of segment '{name}' was touched"):
        array.sum()
    with pytest.raises(errors.ClosedError):
        array.fill(1)
    segment.unlink()


def test_a_failed_wish_leaves_nothing_behind(module, monkeypatch, name):
    """No exception while the half-made object goes, and no name."""
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    for wish in ({"create": True, "size": 0}, {"create": True, "size": -1}, {"create": False}):
        with pytest.raises((ValueError, FileNotFoundError)):
            module.SharedMemory(name, **wish)
    gc.collect()
    assert ignored == []
    made = module.SharedMemory(name, create=True, size=8)
    made.close()
    made.unlink()


def test_what_goes_while_a_slice_is_in_use_says_so(module, monkeypatch, name):
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", lambda caught: ignored.append(caught.exc_type))
    made = module.SharedMemory(name, create=True, size=8)
    piece = made.buf[2:4]
    made.unlink()
    del made
    gc.collect()
    assert ignored == [BufferError]
    piece[0] = 7  # the slice keeps the memory
    assert bytes(piece) == b"\7\0"
    piece.release()


def test_objects_are_themselves(module, made, name):
    other = module.SharedMemory(name)
    assert made != other and len({made, other}) == 2
    other.close()


BUFFER = {
    "an item too far": lambda buffer: buffer[512],
    "a store too far": lambda buffer: buffer.__setitem__(512, 1),
    "a number too large": lambda buffer: buffer.__setitem__(0, 256),
    "a word": lambda buffer: buffer.__setitem__(0, "a"),
    "another length": lambda buffer: buffer.__setitem__(slice(0, 3), b"ab"),
    "no deletion": lambda buffer: buffer.__delitem__(0),
    "a bad cast": lambda buffer: buffer[:511].cast("d"),
    "a bad shape": lambda buffer: buffer.cast("B", (3, 5)),
    "a store to what is read-only": lambda buffer: buffer.toreadonly().__setitem__(0, 1),
}


@pytest.mark.parametrize("use", BUFFER.values(), ids=BUFFER)
def test_buffers_refuse_alike(cluster, name, use):
    def case(module):
        segment = module.SharedMemory(name, create=True, size=512)
        try:
            kind, text, *_ = complaint(lambda: use(segment.buf))
            return kind, text
        finally:
            gc.collect()
            segment.close()
            segment.unlink()

    standard, ours = both(case)
    assert ours == standard


def test_buffers_are_cast_and_compared(module, made):
    words = made.buf.cast("Q")
    words[1] = 1 << 40
    assert bytes(made.buf[8:16]) == (1 << 40).to_bytes(8, sys.byteorder)
    assert made.buf == bytes(made.buf) and made.buf.tolist()[13] == 1
    words.release()
    made.buf[:4] = memoryview(b"wxyz")
    assert made.buf[::2].tobytes()[:2] == b"wy"


def race(module, name, results):
    try:
        importlib.import_module(module).SharedMemory(name, create=True, size=64).close()
        results.put("made")
    except FileExistsError:
        results.put("too late")


def test_one_of_many_makes_a_name(module, name):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=race, args=(module.__name__, name, results)) for _ in range(6)]
    for process in processes:
        process.start()
    assert sorted(results.get(timeout=30) for _ in processes) == ["made"] + ["too late"] * 5
    for process in processes:
        process.join()
    found = module.SharedMemory(name)
    found.close()
    found.unlink()


# ---- ShareableList -------------------------------------------------------------

ITEMS = ["howdy", b"HoWdY", -273.154, 100, None, True, 42, "", b"", "é" * 3, "x" * 8]


@pytest.fixture
def listed(module):
    items = module.ShareableList(ITEMS)
    yield items
    items.shm.close()
    items.shm.unlink()


def test_a_list_is_what_was_put_in(module, listed):
    assert list(listed) == ITEMS
    assert (len(listed), listed[-1], listed[2]) == (len(ITEMS), "x" * 8, -273.154)
    assert repr(listed) == f"ShareableList({ITEMS!r}, name={listed.shm.name!r})"
    assert (listed.count(42), listed.index(42)) == (1, 6)


def test_lists_have_one_layout(cluster):
    def layout(module):
        items = module.ShareableList(ITEMS)
        try:
            return items.format, bytes(items.shm.buf)
        finally:
            items.shm.close()
            items.shm.unlink()

    standard, ours = both(layout)
    assert ours == standard


CHANGES = {
    "a number for a number": lambda items: items.__setitem__(3, 7),
    "a word for None": lambda items: items.__setitem__(4, "some"),
    "a long word": lambda items: items.__setitem__(4, "far too many"),
    "bytes that are too long": lambda items: items.__setitem__(1, b"123456789"),
    "eight bytes of utf-8": lambda items: items.__setitem__(0, "encodés"),
    "nine bytes of utf-8": lambda items: items.__setitem__(0, "encodées"),
    "beyond the end": lambda items: items[99],
    "store beyond the end": lambda items: items.__setitem__(99, 1),
    "not there": lambda items: items.index("100"),
    "a list": lambda items: items.__setitem__(0, []),
    "a big number": lambda items: items.__setitem__(0, 1 << 80),
    "nulls": lambda items: items.__setitem__(1, b"a\0\0"),
    "a number for a word": lambda items: items.__setitem__(0, 1.5),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_items_change_alike(cluster, change):
    def outcome(module):
        items = module.ShareableList(ITEMS)
        try:
            return change(items), list(items), items.format
        except Exception as error:  # noqa: BLE001
            return type(error), str(error), list(items), items.format
        finally:
            items.shm.close()
            items.shm.unlink()

    standard, ours = both(outcome)
    assert ours == standard


def test_lists_are_pickled_by_name_and_copied(module, listed, name):
    other = pickle.loads(pickle.dumps(listed))
    assert type(other) is module.ShareableList
    other[3] = 101
    assert listed[3] == 101
    copy = module.ShareableList(listed, name=name)
    assert (copy.shm.name, list(copy)) == (name, list(listed))
    copy[3] = 0
    assert listed[3] == 101
    for items in (other, copy):
        items.shm.close()
    copy.shm.unlink()


def test_an_empty_list(module):
    items = module.ShareableList()
    assert (len(items), items.format, items.count("any")) == (0, "", 0)
    items.shm.close()
    items.shm.unlink()


def test_a_list_is_shared_between_nodes(cluster):
    from pagemesh.shared_memory import ShareableList

    items = ShareableList(["word", 1, None])
    code = """
        import sys
        from pagemesh.shared_memory import ShareableList
        items = ShareableList(name=sys.argv[1])
        items[1] += 41
        items[0] = items[0].upper()
        print(list(items))
    """
    assert cluster.run(1, code, items.shm.name) == "['WORD', 42, None]"
    assert list(items) == ["WORD", 42, None]
    items.shm.close()
    items.shm.unlink()


# ---- managers ------------------------------------------------------------------


@pytest.fixture(params=["multiprocessing", "pagemesh"])
def library(request, cluster):
    return request.param


def test_a_manager_removes_what_it_made(library):
    managers = importlib.import_module(f"{library}.managers")
    module = importlib.import_module(f"{library}.shared_memory")
    manager = managers.SharedMemoryManager()
    with pytest.raises(ValueError):
        manager.SharedMemory(size=9)
    manager.start()
    lists = [manager.ShareableList(range(number)) for number in range(5, 8)]
    blocks = [manager.SharedMemory(size=number) for number in range(32, 128, 32)]
    assert [type(block) for block in blocks] == [module.SharedMemory] * 3
    assert len(module.ShareableList(name=lists[0].shm.name)) == 5
    names = [made.shm.name for made in lists] + [block.name for block in blocks]
    manager.shutdown()
    for name in names:
        assert complaint(lambda name=name: module.SharedMemory(name))[0] is FileNotFoundError


def test_a_manager_as_a_context(library):
    managers = importlib.import_module(f"{library}.managers")
    module = importlib.import_module(f"{library}.shared_memory")
    with managers.SharedMemoryManager() as manager:
        held = manager.ShareableList("howdy").shm.name
        assert list(module.ShareableList(name=held)) == list("howdy")
    assert complaint(lambda: module.ShareableList(name=held))[0] is FileNotFoundError


def test_a_manager_is_connected_to(library):
    """By another object, as in another process: it makes, the manager removes."""
    managers = importlib.import_module(f"{library}.managers")
    module = importlib.import_module(f"{library}.shared_memory")
    server = managers.SharedMemoryManager(("127.0.0.1", 0), authkey=b"key")
    server.start()
    client = managers.SharedMemoryManager(server.address, authkey=b"key")
    client.connect()
    made = client.SharedMemory(size=100)
    made.buf[0] = 3
    other = module.SharedMemory(made.name)
    assert other.buf[0] == 3
    for segment in (made, other):
        segment.close()
    server.shutdown()
    assert complaint(lambda: module.SharedMemory(made.name))[0] is FileNotFoundError
    stranger = managers.SharedMemoryManager(("127.0.0.1", 1), authkey=b"key")
    assert complaint(stranger.connect)[0] is ConnectionRefusedError


def test_managers_refuse_alike(cluster):
    def case(library):
        managers = importlib.import_module(f"{library}.managers")
        seen = []
        manager = managers.SharedMemoryManager()
        seen.append(complaint(lambda: manager.ShareableList([1]))[:1])
        manager.start()
        seen.append(complaint(manager.start)[:2])
        seen.append(complaint(manager.get_server)[:2])
        seen.append(complaint(lambda: manager.SharedMemory(size=0))[:2])
        seen.append(complaint(lambda: manager.SharedMemory(size=-1))[:2])
        seen.append(complaint(lambda: manager.SharedMemory())[:1])
        seen.append(complaint(lambda: manager.ShareableList([[]]))[:1])
        manager.shutdown()
        manager.shutdown()
        seen.append(complaint(manager.start)[:2])
        seen.append(complaint(manager.get_server)[:2])
        return seen

    standard, ours = (case(library) for library in ("multiprocessing", "pagemesh"))
    assert ours == standard


def test_nothing_warns(cluster):
    code = """
        from pagemesh.managers import SharedMemoryManager
        from pagemesh.shared_memory import SharedMemory
        manager = SharedMemoryManager()
        manager.start()
        manager.ShareableList(range(10))
        manager.shutdown()
        left = SharedMemory(create=True, size=5)
        print(left.name)
    """
    left = cluster.run(0, code)
    from pagemesh.shared_memory import SharedMemory

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = SharedMemory(left)
        found.close()
        found.unlink()
