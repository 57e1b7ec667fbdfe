"""numpy arrays in segments, on several nodes."""

import multiprocessing
import os
import pickle
import random

import numpy
import pytest

import pagemesh
from pagemesh import errors
from pagemesh.shared_memory import SharedMemory


@pytest.fixture
def grid(cluster, name):
    array = pagemesh.array(name, (600, 500), "f8")
    yield array
    array.unlink()


def test_it_is_an_ndarray_of_zeros(grid, name):
    assert isinstance(grid, numpy.ndarray)
    assert (grid.shape, grid.dtype, grid.name) == ((600, 500), numpy.dtype("f8"), name)
    assert grid.flags.writeable and grid.flags.aligned and grid.flags.c_contiguous
    assert grid.__array_interface__["data"][0] % pagemesh.PAGE_SIZE == 0
    assert not grid.any()


def test_another_node_sees_the_same(cluster, grid, name):
    grid[:] = numpy.arange(300_000).reshape(600, 500)
    code = """
        import sys, numpy, pagemesh
        a = pagemesh.attach(sys.argv[1])
        assert (a == numpy.arange(300_000).reshape(600, 500)).all()
        a[7, 9] = -1
        print(a.shape, a.dtype, a.sum())
    """
    total = 300_000 * 299_999 / 2 - grid[7, 9] - 1
    assert cluster.run(1, code, name) == f"(600, 500) float64 {total}"
    assert grid[7, 9] == -1


DTYPES = [
    "u1",
    "<i2",
    ">f4",
    "c16",
    "?",
    "S7",
    "U5",
    "M8[ns]",
    "f2",
    [("x", "f8"), ("y", "i4", (2, 3))],
    numpy.dtype({"names": ["a", "b"], "formats": ["u1", "f8"], "offsets": [0, 16], "itemsize": 32}),
]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_shape_dtype_and_order_travel(cluster, name, dtype, order):
    made = pagemesh.array(name, (3, 4, 5), dtype, order=order)
    found = pagemesh.attach(name)
    assert (found.shape, found.dtype, found.strides) == ((3, 4, 5), numpy.dtype(dtype), made.strides)
    assert found.flags.f_contiguous == (order == "F")
    pagemesh.unlink(name)


@pytest.mark.parametrize("shape", [(), (0,), (5, 0, 2), 7, (1,) * 20, (1 << 20,)])
def test_shapes(cluster, name, shape):
    made = pagemesh.array(name, shape, "i8")
    assert made.shape == (shape if isinstance(shape, tuple) else (shape,))
    made[...] = 3
    assert (pagemesh.attach(name) == 3).all()
    pagemesh.unlink(name)


def test_all_may_say_the_same_line(cluster, grid, name):
    grid[0, 0] = 5
    assert pagemesh.array(name, (600, 500), "f8")[0, 0] == 5


@pytest.mark.parametrize(
    "other", [((600, 501), "f8", "C"), ((600, 500), "f4", "C"), ((600, 500), "f8", "F")]
)
def test_what_does_not_fit_is_refused(cluster, grid, name, other):
    shape, dtype, order = other
    with pytest.raises(errors.MismatchError, match=r"has shape \(600, 500\), dtype float64.*attach"):
        pagemesh.array(name, shape, dtype, order=order)


def test_attaching_checks_what_is_relied_on(cluster, grid, name):
    assert pagemesh.attach(name, dtype="f8", shape=(600, 500)).shape == (600, 500)
    with pytest.raises(errors.MismatchError, match=r"dtype float64, not int32.*astype"):
        pagemesh.attach(name, dtype="i4")
    with pytest.raises(errors.MismatchError):
        pagemesh.attach(name, shape=(500, 600))
    with pytest.raises(errors.SegmentNotFoundError, match="pagemesh segment ls") as caught:
        pagemesh.attach("test-absent")
    assert isinstance(caught.value, FileNotFoundError)


def test_objects_are_refused(cluster, name):
    with pytest.raises(TypeError, match="pointers to Python objects"):
        pagemesh.array(name, 5, object)
    with pytest.raises(errors.SegmentNotFoundError):
        pagemesh.attach(name)


def test_readers_cannot_store(cluster, grid, name):
    grid[3] = 4
    reader = pagemesh.attach(name, readonly=True)
    assert reader[3].sum() == 2000 and not reader.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        reader[0] = 1
    grid[3] = 5
    assert reader[3, 3] == 5


def test_views_are_arrays_and_results_are_not(grid):
    for view in (grid[1:], grid.T, grid.reshape(-1), grid[::2, 5], grid.view("u8")):
        assert type(view) is pagemesh.Array and view.name == grid.name
    for result in (grid + 1, grid[[1, 2]], grid[grid > 1], numpy.sqrt(grid), grid.copy(), grid.sum(0)):
        assert type(result) is numpy.ndarray
    assert isinstance(grid.sum(), float) and isinstance(grid[0, 0], float)
    grid += 2
    assert type(grid) is pagemesh.Array and grid.max() == 2
    out = numpy.add(grid, 1, out=grid)
    assert out is grid
    with pytest.raises(ValueError, match="copy"):
        _ = numpy.empty(3).view(pagemesh.Array).name


def test_a_view_of_nothing_is_a_view(cluster, name):
    """As some part of a small array is, when there are more processes than rows."""
    array = pagemesh.array(name, 3)
    parts = [array.slice_of(rank, 5) for rank in range(5)]
    assert sum(part.size for part in parts) == 3 and min(part.size for part in parts) == 0
    for part in [*parts, array[3:], array[:0, None]]:
        assert type(part) is pagemesh.Array and part.name == name
        part.advise("willneed")
    assert type(array[:0] + 1) is numpy.ndarray and type(array[array > 1]) is numpy.ndarray
    array.unlink()


def test_the_memory_lives_as_long_as_a_view(cluster, name):
    view = pagemesh.array(name, 10_000, "i4")[5000:]
    pagemesh.unlink(name)
    view[:] = 7
    assert view.sum() == 35_000


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("rows", "columns"), [(1000, 512), (10, 3), (7, 1000), (3, 1), (4097, 2)])
@pytest.mark.parametrize("size", [1, 3, 4])
def test_slices_are_disjoint_and_complete(cluster, name, rows, columns, order, size):
    array = pagemesh.array(name, (rows, columns) if order == "C" else (columns, rows), "f8", order=order)
    for rank in range(size):
        array.slice_of(rank, size)[...] += rank + 1
    counts = [int((array == rank + 1).sum()) for rank in range(size)]
    assert sum(counts) == rows * columns
    assert max(counts) - min(counts) <= max(columns, 2 * pagemesh.PAGE_SIZE // 8)
    with pytest.raises(IndexError):
        array.slice_of(size, size)
    pagemesh.unlink(name)


def test_slices_of_large_arrays_share_no_page(cluster, name):
    array = pagemesh.array(name, (4000, 100), "f8")
    for rank in range(1, 4):
        start = array.slice_of(rank, 4).__array_interface__["data"][0]
        assert start % pagemesh.PAGE_SIZE == 0
    pagemesh.unlink(name)


def test_advice_brings_pages_ahead(cluster, grid, name):
    code = """
        import sys, time, pagemesh
        grid = pagemesh.attach(sys.argv[1])
        for advice in ("sequential", "random", "normal", "dontneed", "willneed"):
            grid[:300].advise(advice)
        before = pagemesh.counters()["faults_read"]
        end = time.monotonic() + 20
        while time.monotonic() < end and pagemesh.counters()["copies_arrived"] < 200:
            time.sleep(0.01)
        print(grid[:100].sum(), pagemesh.counters()["faults_read"] - before < 10)
    """
    grid[:] = 1
    assert cluster.run(2, code, name) == "50000.0 True"
    with pytest.raises(ValueError, match="no advice is called .soon.*willneed"):
        grid.advise("soon")


@pytest.mark.parametrize("view", ["a", "a[5:9, ::3]", "a.T[::-1]", "a[4]", "a[2:2]"])
def test_arrays_and_views_are_pickled_by_place(grid, view):
    grid[:] = numpy.arange(300_000).reshape(600, 500)
    piece = eval(view, {"a": grid})
    pickled = pickle.dumps(piece)
    assert len(pickled) < 400
    again = pickle.loads(pickled)
    assert (again == piece).all() and again.shape == piece.shape
    again += 1
    assert (again == piece).all()


def test_children_get_the_array_itself(grid):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.map(fill, [grid[:300], grid[300:]])
    assert (grid == 9).all()


def fill(piece):
    piece[:] = 9


# ---- what travels with the segment is not trusted ----------------------------


def test_segments_of_other_kinds_are_no_arrays(cluster, name):
    other = SharedMemory(name, create=True, size=10_000)
    with pytest.raises(errors.CorruptHeaderError, match="pagemesh.shared_memory"):
        pagemesh.attach(name)
    other.unlink()


HOSTILE = {
    "a huge shape": b"{'descr': '<f8', 'fortran_order': False, 'shape': (1 << 40,), }",
    "more than there is": b"{'descr': '<f8', 'fortran_order': False, 'shape': (4000, 4000), }",
    "a negative shape": b"{'descr': '<f8', 'fortran_order': False, 'shape': (-5,), }",
    "an overflow": b"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 9223372036854775807), }",
    "objects": b"{'descr': '|O', 'fortran_order': False, 'shape': (5,), }",
    "code": b"__import__('os').abort()",
    "no dtype": b"{'descr': 'nonsense', 'fortran_order': False, 'shape': (5,), }",
    "depth": b"(" * 4000,
    "nothing": b"",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_header_is_refused(cluster, name, text):
    segment = SharedMemory(name, create=True, size=10_000)
    segment.buf[:10] = b"\x93NUMPY\x01\x00" + (4086).to_bytes(2, "little")
    segment.buf[10:4096] = text.ljust(4085)[:4085] + b"\n"
    with pytest.raises(errors.CorruptHeaderError):
        pagemesh.attach(name)
    segment.unlink()


def test_no_header_crashes(cluster, name):
    dice = random.Random(7)
    whole = pagemesh.array(name, (20, 20), "f4")
    segment = SharedMemory(name)
    good = bytes(segment.buf[:4096])
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(dice.randint(1, 8)):
            bad[dice.randrange(140)] = dice.randrange(256)
        segment.buf[:4096] = bytes(bad)
        try:
            found = pagemesh.attach(name)
        except (errors.CorruptHeaderError, errors.MismatchError):
            continue
        assert found.nbytes <= 10_000
        found.view(numpy.ndarray).tobytes()
    whole.unlink()


def test_a_pickled_view_outside_of_the_array_is_refused(grid):
    _, (name, readonly, place, shape, strides, dtype) = grid.__reduce__()
    from pagemesh.arrays import _view_of

    for wrong in ((0, shape, strides), (place, (600, 501), strides), (place, shape, (-8, 8))):
        with pytest.raises(errors.CorruptHeaderError):
            _view_of(name, readonly, *wrong, dtype)


# ---- other libraries -----------------------------------------------------------


def test_pandas_uses_the_memory_itself(grid):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(grid, copy=False)
    assert numpy.shares_memory(frame.to_numpy(), grid)
    grid[1, 1] = 8
    assert frame.iloc[1, 1] == 8 and frame.sum().sum() == 8


@pytest.mark.heavy
def test_torch_uses_the_memory_itself(grid):
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(grid)
    tensor[2, 3] = 5
    assert grid[2, 3] == 5 and tensor.data_ptr() == grid.__array_interface__["data"][0]
    grid[:] = 1
    assert float(tensor.sum()) == 300_000


def test_numba_uses_the_memory_itself(grid):
    numba = pytest.importorskip("numba")

    @numba.njit(parallel=False)
    def add(array, number):
        for row in range(array.shape[0]):
            for column in range(array.shape[1]):
                array[row, column] += number

    add(grid, 2.5)
    assert (grid == 2.5).all()


# ---- policies -------------------------------------------------------------------


def test_policies(cluster, name):
    fixed = pagemesh.Sequential(manager="fixed", window=0.001)
    pagemesh.array(name, 10, policy=fixed).unlink()
    with pytest.raises(ValueError, match="unknown policy 'eventual'"):
        pagemesh.array(name, 10, policy="eventual")
    with pytest.raises(ValueError, match="unknown manager"):
        pagemesh.array(name, 10, policy=pagemesh.Sequential(manager="none"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to be")
def test_permissions(cluster, grid, name):
    code = """
        import os, sys
        os.chmod(os.path.dirname(os.environ["PAGEMESH_SOCKET"]), 0o755)
        os.chmod(os.environ["PAGEMESH_SOCKET"], 0o777)
        import pagemesh
        from pagemesh import arrays, errors
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        try:
            pagemesh.attach(sys.argv[1])
        except errors.SegmentPermissionError as error:
            assert isinstance(error, PermissionError)
            print(error)
    """
    assert "owner, group and mode" in cluster.run(1, code, name)


def test_e19_an_array_is_handed_to_another_process_by_a_capability(cluster, name):
    grid = pagemesh.array(name, (4, 5), "i8")
    grid[:] = 7
    code = """
        import os, sys, pagemesh
        loads, stores = map(int, sys.argv[1:])
        grid = pagemesh.redeem(loads)
        print(grid.shape, grid.dtype, int(grid.sum()), grid.flags.writeable)
        try:
            grid.capability(write=True)
        except PermissionError:
            print("no right to give")
        pagemesh.redeem(stores)[0, 0] = 8
        pipe, _ = os.pipe()
        for wrong in pipe, -1:
            try:
                pagemesh.redeem(wrong)
            except ValueError:
                print("refused")
    """
    capabilities = [grid.capability(), grid.capability(write=True)]
    try:
        process = cluster.start(0, code, *capabilities, pass_fds=capabilities)
        out, err = process.communicate(timeout=60)
    finally:
        for capability in capabilities:
            os.close(capability)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines() == ["(4, 5) int64 140 False", "no right to give", "refused", "refused"]
    assert grid[0, 0] == 8
    grid.unlink()
