"""Who makes an array, what is refused, and that nothing is overwritten or left behind."""

import copy
import multiprocessing
import subprocess
import time

import numpy
import pytest

import pagemesh
from pagemesh import errors
from pagemesh.shared_memory import SharedMemory


def names():
    return {segment["name"] for segment in pagemesh.segments()}


def test_a_segment_that_is_no_array_is_refused_and_kept(cluster, name):
    segment = SharedMemory(name, create=True, size=1 << 20)
    segment.buf[4000:4010] = b"0123456789"
    with pytest.raises(errors.CorruptHeaderError, match=f"{name!r} is no array made by pagemesh.array"):
        pagemesh.array(name, 10)
    # One of the very size that the array would have might still be described: for some seconds.
    with pytest.raises(errors.CorruptHeaderError, match="nobody has described it for 5 s"):
        pagemesh.array(name, (1 << 20) - 4096, "u1")
    with pytest.raises(errors.CorruptHeaderError, match=repr(name)):
        pagemesh.attach(name)
    assert bytes(segment.buf[4000:4010]) == b"0123456789"
    assert not any(segment.buf[:4000])
    segment.buf[:6] = b"\x93NUMPX"
    with pytest.raises(errors.CorruptHeaderError, match=repr(name)):
        pagemesh.array(name, 10)
    segment.close()
    segment.unlink()


MAKES = """
    import sys, pagemesh
    sys.stdin.readline()
    for number in range(20):
        array = pagemesh.array(f"{sys.argv[1]}-{number}", (100, 7), "i4", policy=sys.argv[2])
        assert array.shape == (100, 7) and array.dtype == "i4"
    print("all")
"""


@pytest.mark.parametrize("policy", ["sequential", "release"])
def test_of_many_makers_one_makes_it_and_the_others_see_it_whole(cluster, name, policy):
    racers = [cluster.start(node % 3, MAKES, name, policy, stdin=subprocess.PIPE) for node in range(6)]
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        out, err = racer.communicate(timeout=100)
        assert out == "all\n", err
    for number in range(20):
        pagemesh.unlink(f"{name}-{number}")


def test_an_array_that_is_still_to_be_described_is_waited_for(cluster, name):
    from pagemesh import _layout
    from pagemesh._mesh import mesh

    header = _layout.header_of((10,), numpy.dtype("f8"), "C")
    segment = mesh().create(name, len(header) + 80)
    code = "import sys, pagemesh; print(pagemesh.attach(sys.argv[1]).shape)"
    waiting = cluster.start(1, code, name)
    time.sleep(0.5)
    memory = segment.map()
    with memoryview(memory) as view:
        _layout.write_header(view, header)
    out, err = waiting.communicate(timeout=60)
    assert out == "(10,)\n", err
    pagemesh.unlink(name)


@pytest.mark.parametrize(
    ("shape", "error", "says"),
    [
        ((-5,), ValueError, "negative length"),
        (-5, ValueError, "negative length"),
        ((3.7,), TypeError, "whole number or a tuple"),
        (3.7, TypeError, "whole number or a tuple"),
        ("12", TypeError, "whole number or a tuple"),
        ((1 << 62, 1 << 62), ValueError, "larger than memory can be"),
        (1 << 62, ValueError, "larger than memory can be"),
        ((1,) * 40, ValueError, "40 dimensions; 32 is the limit"),
        (1 << 50, errors.LimitError, "16 TiB"),
        (None, TypeError, "whole number or a tuple"),
    ],
)
def test_shapes_that_cannot_be_leave_nothing_behind(cluster, name, shape, error, says):
    with pytest.raises(error, match=says):
        pagemesh.array(name, shape)
    assert name not in names()
    assert pagemesh.array(name, 3).shape == (3,)
    pagemesh.unlink(name)


def test_without_memory_the_name_is_free_again(cluster, name):
    code = f"""
        import os, resource
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        import pagemesh
        from pagemesh import errors
        pagemesh.nodes()
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        try:
            pagemesh.array({name!r}, 1 << 36, "u1")
        except errors.OutOfMemoryError as error:
            print(error)
    """
    assert "cannot map the segment" in cluster.run(0, code)
    assert name not in names()


def test_another_policy_is_refused(cluster, name):
    made = pagemesh.array(name, 10, policy="release")
    for other in ("sequential", None, pagemesh.Sequential()):
        with pytest.raises(errors.MismatchError, match=r"policy Release\(replicas=0\), not Sequential"):
            pagemesh.array(name, 10, policy=other)
    assert pagemesh.array(name, 10, policy=pagemesh.Release()).policy == pagemesh.Release()
    assert pagemesh.attach(name).policy == pagemesh.Release()
    assert "policy=Release(replicas=0)" in repr(made)
    made.unlink()
    fixed = pagemesh.Sequential("fixed", 0.5)
    made = pagemesh.array(name, 10, policy=fixed)
    assert pagemesh.array(name, 10).policy == fixed
    assert pagemesh.array(name, 10, policy="sequential").policy == fixed
    for other in ("release", pagemesh.Sequential("dynamic", 0.5), pagemesh.Sequential("fixed")):
        with pytest.raises(errors.MismatchError, match="has policy Sequential"):
            pagemesh.array(name, 10, policy=other)
    made.unlink()


def test_segments_and_repr_say_what_there_is(cluster, name):
    made = pagemesh.array(name, (2, 3), "i4", order="F", policy="release")
    about = f"name={name!r}, shape=(2, 3), dtype=int32, policy=Release(replicas=0)"
    assert repr(made) == f"Array([[0, 0, 0],\n       [0, 0, 0]], {about})"
    assert repr(made[0]).startswith("Array([0, 0, 0], name=")
    raw = SharedMemory(f"{name}-raw", create=True, size=4096)
    listed = {segment["name"]: segment for segment in pagemesh.segments(arrays=True)}
    assert listed[name]["policy"]["policy"] == "release"
    assert listed[name]["array"] == {"shape": (2, 3), "dtype": numpy.dtype("i4"), "order": "F"}
    assert listed[f"{name}-raw"]["policy"] == {
        "policy": "sequential",
        "manager": "dynamic",
        "window": None,
        "replicas": 0,
    }
    assert listed[f"{name}-raw"]["array"] is None
    assert "array" not in pagemesh.segments()[0]
    raw.close()
    raw.unlink()
    made.unlink()


def test_what_is_computed_or_copied_is_an_ordinary_array(cluster, name):
    array = pagemesh.array(name, (4, 5), "f8")
    array[:] = 3
    for result in (
        array.astype("f4"),
        array.astype("f8"),
        numpy.zeros_like(array),
        numpy.empty_like(array),
        numpy.full_like(array, 2),
        copy.copy(array),
        copy.deepcopy(array),
        array.flatten(),
        array.T.ravel(),
        array.take([0, 1]),
        array.round(),
        array.repeat(2),
        array.clip(0, 1),
        array.cumsum(),
        array.argsort(),
        array.T.reshape(20),
        numpy.concatenate([array, array]),
        numpy.split(array + 0, 2)[0],
        numpy.where(array > 1, array, 0),
    ):
        assert type(result) is numpy.ndarray, repr(result)
    for view in (
        array.astype("f8", copy=False),
        array.ravel(),
        array.reshape(20),
        numpy.split(array, 2)[1],
    ):
        assert type(view) is pagemesh.Array and view.name == name
    assert copy.deepcopy({"a": array})["a"].sum() == 60
    array.unlink()


def test_small_mistakes_are_named(cluster, name):
    array = pagemesh.array(name, 10)
    assert pagemesh.attach(name, shape=10).shape == (10,)
    with pytest.raises(errors.MismatchError):
        pagemesh.attach(name, shape=11)
    array.unlink()
    point = pagemesh.array(name, ())
    with pytest.raises(ValueError, match="without dimensions has no parts"):
        point.slice_of(0, 2)
    point.unlink()
    for make in (pagemesh.Lock, pagemesh.RLock, pagemesh.Event):
        with pytest.raises(ValueError, match="empty name"):
            make("")
    with pytest.raises(ValueError, match="empty name"):
        pagemesh.Barrier(2, name="")


def _meet(barrier, started):
    started.set()
    try:
        barrier.wait()
    except KeyboardInterrupt:
        pass


def test_a_barrier_broken_by_ctrl_c_has_nobody_waiting(cluster):
    import os
    import signal

    context = multiprocessing.get_context("spawn")
    barrier, started = pagemesh.Barrier(2), context.Event()
    party = context.Process(target=_meet, args=(barrier, started))
    party.start()
    assert started.wait(60)
    while barrier.n_waiting == 0:
        time.sleep(0.01)
    os.kill(party.pid, signal.SIGINT)
    party.join(60)
    assert barrier.broken and barrier.n_waiting == 0
    barrier.reset()
    assert not barrier.broken and barrier.n_waiting == 0
