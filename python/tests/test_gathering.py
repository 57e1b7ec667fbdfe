"""Items of arrays by their numbers, where most pages are elsewhere: what numpy gives, in few requests."""

import random

import numpy
import pytest

import pagemesh

ROWS = 4000


@pytest.fixture(params=["f8", "S700", [("x", "i4"), ("y", "f8", 40)]], ids=str)
def filled(cluster, request):
    """A private array of which a small part is here, and an ordinary one with the same items."""
    dtype = numpy.dtype(request.param)
    width = max(1, (4 << 20) // ROWS // dtype.itemsize)
    noise = numpy.random.default_rng(5).integers(0, 100, ROWS * width * dtype.itemsize, "u1")
    plain = noise.view(dtype).reshape(ROWS, width)
    array = pagemesh.array(None, plain.shape, dtype, policy=pagemesh.Private(local="1M"))
    array[:] = plain
    return array, plain


def some(count, low=-ROWS, dtype="i8"):
    return numpy.random.default_rng(count).integers(low, ROWS, count).astype(dtype)


NUMBERS = {
    "many": some(9000),
    "few": some(70),
    "unsigned": some(500, 0, "u2"),
    "in two dimensions": some(600).reshape(20, 30),
    "a list": some(300).tolist(),
    "the same": numpy.full(200, 3999),
    "backwards": numpy.arange(ROWS)[::-1],
    "truth values": some(ROWS) % 3 == 0,
    "not contiguous": some(900)[::3],
}


def same(one, other):
    assert type(one) is numpy.ndarray and one.flags.writeable
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("numbers", NUMBERS.values(), ids=NUMBERS)
def test_the_items_are_those_that_numpy_takes(filled, numbers):
    for view in (lambda a: a, lambda a: a[::-1], lambda a: a[:, 0], lambda a: a[:, ::-2]):
        array, plain = map(view, filled)
        same(array[numbers], plain[numbers])
    array, plain = filled
    if numpy.asarray(numbers).dtype.kind != "b":
        same(array.take(numbers, 0), plain.take(numbers, 0))
        same(numpy.take(array, numbers), numpy.take(plain, numbers))
        few = numpy.ravel(numbers)[:70]
        same(array.take(few, 1, mode="wrap"), plain.take(few, 1, mode="wrap"))


@pytest.mark.parametrize("numbers", NUMBERS.values(), ids=NUMBERS)
def test_items_are_assigned_as_by_numpy(filled, numbers):
    array, plain = filled
    count = plain[numbers].shape[:-1]
    others = numpy.random.default_rng(9).integers(0, ROWS, count)
    for values in (plain[others], plain[7], plain[others][..., :1], plain[:1, :1]):
        array[numbers] = values
        plain[numbers] = values
        assert array.tobytes() == plain.tobytes()
    if count == (ROWS,):  # from itself, while it is stored to
        array[numbers] = array
        plain[numbers] = plain
    if plain.dtype.kind in "fi":
        array[numbers] = 3
        plain[numbers] = 3
    assert array.tobytes() == plain.tobytes()
    with pytest.raises(ValueError, match="shape mismatch"):
        array[numbers] = plain[:3, :0]


def test_numbers_that_are_no_item_are_errors_as_of_numpy(filled):
    array, _ = filled
    numbers = numpy.arange(200)
    for wrong in (ROWS, -ROWS - 1):
        numbers[100] = wrong
        with pytest.raises(IndexError, match=f"index {wrong} is out of bounds"):
            array[numbers]
    for wrong in (numbers / 2, numpy.arange(ROWS - 1) % 2 == 0, [[1] * 99, [2]]):
        with pytest.raises((IndexError, ValueError)):
            array[wrong]


def test_pages_that_are_elsewhere_are_announced(cluster):
    array = pagemesh.array(None, 1 << 19, policy=pagemesh.Private(local="1M"))
    array[:] = numpy.arange(array.size)
    before = pagemesh.counters()
    numbers = some(20_000, 0) * (array.size // ROWS)
    assert (array[numbers] == numbers).all()
    after = pagemesh.counters()
    asked, faults = (after[name] - before[name] for name in ("came_ahead", "faults_read"))
    assert asked + after["pages_from_disk"] - before["pages_from_disk"] > 300, "most of 1024 pages"
    assert faults < 300, "in the order of numpy it would be many thousands"


def test_items_of_another_node_are_fetched_together(cluster, name):
    array = pagemesh.array(name, 1 << 19)
    cluster.run(1, "import sys, numpy, pagemesh; a = pagemesh.attach(sys.argv[1]); a[:] = range(a.size)", name)
    before = pagemesh.counters()["faults_read"]
    numbers = random.Random(3).sample(range(array.size), 5000)
    assert array[numbers].tolist() == numbers
    assert pagemesh.counters()["faults_read"] - before < 300, "of 1024 pages"
    array.unlink()
