"""Numbers that several nodes accumulate without a lock."""

import threading

import numpy
import pytest

import pagemesh
from pagemesh import errors

INTEGERS = [f"{letter}{size}" for letter in "ui" for size in (1, 2, 4, 8)]


@pytest.fixture
def make(cluster, name):
    made = []

    def array(*args, policy="release", **more):
        made.append(pagemesh.array(f"{name}-{len(made)}", *args, policy=policy, **more))
        return made[-1]

    yield array
    for one in made:
        one.unlink()


NODE = """
    import sys, numpy, pagemesh
    name, rank, rounds = sys.argv[1], int(sys.argv[2]), 12
    # Three pages and a half, with four ways: all nodes write all pages all the time.
    numbers = pagemesh.attach(name + "-0")
    numbers[0].reduce("sum")
    numbers[1].reduce("max")
    numbers[2].reduce("min")
    reals = pagemesh.attach(name + "-1")
    reals.reduce("sum")
    numbers.barrier(3, timeout=60)
    reals.barrier(3, timeout=60)
    slots = numpy.arange(numbers.shape[1])
    for turn in range(1, rounds + 1):
        numbers[0].accumulate(slots + rank)
        numbers[1].accumulate(100 * turn + rank, "max")
        numbers[2].accumulate(-slots * rank, "min")
        reals[::2].accumulate(0.5)
        numbers.barrier(3, timeout=60)
        reals.barrier(3, timeout=60)
        assert (numbers[0] == turn * (3 * slots + 0 + 1 + 2)).all(), (rank, turn, numbers[0])
        assert (numbers[1] == 100 * turn + 2).all(), (rank, turn, numbers[1])
        assert (numbers[2] == -2 * slots).all(), (rank, turn, numbers[2])
        assert (reals[::2] == 1.5 * turn).all() and not reals[1::2].any(), (rank, turn, reals)
        numbers.barrier(3, timeout=60)
        reals.barrier(3, timeout=60)
    print("right", numbers[0].sum())
"""


def test_three_nodes_accumulate_without_a_lock(cluster, make, name):
    make((3, 600), "i8")
    make(900, "f4")
    processes = [cluster.start(node, NODE, name, node) for node in range(3)]
    said = [process.communicate(timeout=120) for process in processes]
    total = 12 * (3 * 600 * 599 // 2 + 3 * 600)
    assert said == [(f"right {total}\n", "")] * 3


SEQUENTIAL = """
    import sys, pagemesh
    counts = pagemesh.attach(sys.argv[1])
    for _ in range(200):
        counts[1:].accumulate([1, 2, 3])
    print("done")
"""


def test_in_sequential_memory_nothing_is_declared(cluster, make, name):
    counts = make(4, "u4", policy="sequential")
    processes = [cluster.start(node, SEQUENTIAL, counts.name) for node in range(3)]
    said = [process.communicate(timeout=120) for process in processes]
    assert said == [("done\n", "")] * 3
    assert counts.tolist() == [0, 600, 1200, 1800]
    with pytest.raises(ValueError, match="policy release; in a sequential one use atomic"):
        counts.reduce("sum")


def test_threads_lose_nothing(make):
    counts = make(50, "i4")
    counts.reduce("sum")

    def add():
        for _ in range(300):
            counts.accumulate(1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counts == 1200).all()


COMBINED = {
    "sum": numpy.add,
    "min": numpy.minimum,
    "max": numpy.maximum,
    "or": numpy.bitwise_or,
    "replace": lambda old, new: new,
}


@pytest.mark.parametrize("merge", COMBINED)
@pytest.mark.parametrize("dtype", [*INTEGERS, "f4", "f8", "?"])
def test_every_number_is_combined_as_numpy_does(make, dtype, merge):
    dtype = numpy.dtype(dtype)
    array = make(64, dtype)
    if (dtype.kind, merge) in (("f", "or"), ("b", "sum")):
        for call in (lambda: array.reduce(merge), lambda: array.accumulate(1, merge)):
            with pytest.raises(TypeError, match="array of integers"):
                call()
        return
    array.reduce(merge)
    array.reduce(merge)  # the same again changes nothing
    dice = numpy.random.default_rng(3)
    old, new = (numpy.frombuffer(dice.bytes(64 * dtype.itemsize), dtype) for _ in range(2))
    if dtype.kind == "f":
        old, new = dice.normal(size=(2, 64)).astype(dtype)
    if dtype.kind == "b":
        old, new = dice.random((2, 64)) < 0.5
    array[:] = old
    array.accumulate(new, merge)
    with numpy.errstate(over="ignore"):
        assert (array == COMBINED[merge](old, new)).all()


def test_what_is_no_number_loses(make):
    array = make(4, "f8")
    array[:] = [numpy.nan, 1, numpy.nan, -numpy.inf]
    array.accumulate([3, numpy.nan, 2, 5], "min")
    assert array.tolist() == [3, 1, 2, -numpy.inf]


VIEWS = ["a", "a[1]", "a.T", "a[::-1, 3]", "a[1:3, ::2]", "a[2, 2:3]", "a[:0]", "a[..., None]"]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_views_are_accumulated_where_they_lie(make, view, order):
    array = make((4, 6), "i2", order=order)
    array[:] = numpy.arange(24).reshape(4, 6)
    expected = numpy.array(array)
    for whole in (array, expected):
        part = eval(view, {"a": whole})
        values = 100 * numpy.arange(part.size).reshape(part.shape)
        if whole is array:
            part.accumulate(values)
        else:
            part += values.astype("i2")
    assert (array == expected).all()


def test_a_number_alone(make):
    total = make((), "i8")
    total.reduce("sum")
    total.accumulate(5)
    assert total == 5


UNFIT = ["c16", ">i4", "f2", "S4", "M8[s]", [("x", "i4")]]


@pytest.mark.parametrize("dtype", UNFIT, ids=str)
def test_other_dtypes_are_refused_with_their_cure(make, dtype):
    array = make(4, dtype)
    for call in (lambda: array.reduce("replace"), lambda: array.accumulate(1, "replace")):
        with pytest.raises(TypeError, match="integers of 1 to 8 bytes.*make an array of such numbers"):
            call()


def test_what_cannot_be_declared(make, name):
    array = make((4, 6), "i4")
    with pytest.raises(ValueError, match="not combined by 'mean'; there are sum, min"):
        array.reduce("mean")
    for view in (array[:, 1], array[::2], array[:0]):
        with pytest.raises(ValueError, match="side by side: declare whole rows"):
            view.reduce("sum")
    array[1].reduce("sum")
    with pytest.raises(ValueError, match="in common"):
        array.reduce("sum")
    with pytest.raises(ValueError, match="in common"):
        array[1].reduce("max")
    reader = pagemesh.attach(array.name, readonly=True)
    with pytest.raises(ValueError, match="read-only"):
        reader[2].reduce("sum")
    with pytest.raises(ValueError, match="read-only: attach to it without readonly"):
        reader.accumulate(1)
    with pytest.raises(ValueError, match="in no segment"):
        (array + 1).view(pagemesh.Array).reduce("sum")


def test_values_that_do_not_fit_are_refused(make):
    array = make((4, 6), "i4")
    with pytest.raises(TypeError, match="Cannot cast"):
        array.accumulate(0.5)
    with pytest.raises(ValueError, match="broadcast"):
        array.accumulate([1, 2])
    with pytest.raises(OverflowError):
        array.accumulate(1 << 40)
    with pytest.raises(TypeError, match="Cannot cast"):
        array.accumulate([0.5] * 6)
    assert not array.any()


def test_there_are_64_ranges(make):
    array = make((65, 4), "i4")
    for row in array[:64]:
        row.reduce("sum")
    with pytest.raises(ValueError, match="at most 64 declared ranges"):
        array[64].reduce("sum")
    assert issubclass(errors.LimitError, OSError)
