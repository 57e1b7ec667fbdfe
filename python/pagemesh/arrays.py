"""numpy arrays in segments.

A segment with an array is laid out as a ``.npy`` file: a header of whole pages that says shape,
dtype and order, then the data. Whoever attaches checks it as if it came from an enemy.
"""

import io
from dataclasses import dataclass

import numpy
from numpy.lib import format as npy

try:
    from numpy.lib.array_utils import byte_bounds
except ImportError:  # numpy 1
    from numpy import byte_bounds

from . import errors
from ._mesh import retrying
from ._pagemesh import PAGE_SIZE
from .sync import OwnLock

__all__ = ["Array", "Release", "Sequential", "array", "attach"]

# Longer headers than this nobody needs: structured dtypes with hundreds of fields.
_LONGEST_HEADER = 16 * PAGE_SIZE

_MAGIC = npy.magic(1, 0)


@dataclass(frozen=True)
class Sequential:
    """Every load sees the latest store, wherever it was made.

    ``manager`` is ``"dynamic"`` (who has a page is found along hints) or ``"fixed"`` (the node that
    made the segment knows). A page stays at least ``window`` seconds where it has come to;
    ``None`` chooses, 0 is not at all.
    """

    manager: str = "dynamic"
    window: float | None = None

    def _keywords(self):
        return {"policy": "sequential", "manager": self.manager, "window": self.window}


@dataclass(frozen=True)
class Release:
    """A load sees what was stored before it by the array's *own* locks and barriers.

    See :meth:`Array.lock` and :meth:`Array.barrier`. Several nodes may write one page at once; only
    what they changed travels, when somebody touches it who must see it.
    """

    def _keywords(self):
        return {"policy": "release"}


class Array(numpy.ndarray):
    """A :class:`numpy.ndarray` whose memory is a segment.

    Views of it are such arrays, too; what is computed from it are ordinary arrays. The memory is
    unmapped with the last of them. Pickled, arrays and views are names and places, not data.
    """

    _home = None

    def __array_finalize__(self, source):
        home = getattr(source, "_home", None)
        if home is not None and home.contains(self):
            self._home = home

    def __array_wrap__(self, array, context=None, return_scalar=False):
        # Called when something was computed, it is also where the exception for a lost page
        # is raised: before anybody gets to see the result.
        if array is self:
            return array
        if return_scalar or array.shape == ():
            return array[()]
        return array.view(numpy.ndarray)

    def __getitem__(self, index):
        found = super().__getitem__(index)
        if isinstance(found, Array) and found._home is None:
            return found.view(numpy.ndarray)
        return found

    def __setitem__(self, index, value):
        super().__setitem__(index, value)

    def copy(self, order="C"):
        """An ordinary array with the same contents."""
        return self.view(numpy.ndarray).copy(order)

    def __reduce__(self):
        if self._home is None:
            return self.view(numpy.ndarray).__reduce__()
        home = self._home
        place = self.__array_interface__["data"][0] - home.address
        layout = (place, self.shape, self.strides, self.dtype)
        return _view_of, (home.name, not self.flags.writeable, *layout)

    def __reduce_ex__(self, protocol):
        return self.__reduce__()

    @property
    def name(self):
        """The segment's name."""
        return self._known().name

    def unlink(self):
        """Removes the name, in the whole cluster. Who has the array keeps it."""
        name = self.name
        retrying(lambda mesh: mesh.remove(name))

    def advise(self, advice):
        """Says how this process will use the array, or the part of it that a view is.

        ``"willneed"`` fetches its pages ahead, for reading, while the caller goes on; ``"dontneed"``
        drops copies of what others own. ``"sequential"``, ``"random"``, ``"normal"`` hold for the whole
        segment: how much is asked for ahead. It changes how soon loads are done, never what
        they see. Under policy ``release`` nothing is asked for ahead without ``"willneed"`` or
        ``"sequential"``, and ``"dontneed"`` does nothing.
        """
        home = self._known()
        if self.size:
            low, high = byte_bounds(self)
            home.memory.advise(low - home.address, high - home.address, advice)

    def reduce(self, merge):
        """Declares that nodes accumulate in the array, or the part of it that a view is, without a lock.

        For :class:`Release`. What each did to a number is combined, ``"sum"``, ``"min"``, ``"max"``,
        ``"or"`` or ``"replace"`` (the last writer's number), and after the next :meth:`barrier` all see
        the same. Declare before anybody stores there, and let a barrier follow; all processes may say
        the same line. Then :meth:`accumulate`: ``array += 1`` is a load and a store, between which
        others may be heard of.

        Numbers are integers of 1 to 8 bytes, truth values (not for ``"sum"``) and floats of 4 or 8 (not
        for ``"or"``), in this host's order of bytes. Raises ``TypeError`` for another dtype,
        ``ValueError`` for a view that lies in pieces, an array of another policy or opened read-only, a
        range that overlaps with one declared otherwise, and beyond 64 ranges.
        """
        home = self._known()
        kind = _number(self.dtype, merge)
        if not (self.flags.c_contiguous or self.flags.f_contiguous) or self.size == 0:
            raise ValueError(
                f"a view of shape {self.shape} with steps of {self.strides} bytes is no run of numbers "
                "side by side: declare whole rows, or the whole array"
            )
        low, high = byte_bounds(self)
        home.memory.reduce(low - home.address, high - home.address, merge, kind)

    def accumulate(self, values, merge="sum"):
        """Combines each item with one of ``values`` (broadcast), each by one atomic operation.

        ``merge`` is as declared by :meth:`reduce`: ``"sum"`` adds, ``"min"`` and ``"max"`` keep the
        least and the greatest (and prefer numbers to NaN), ``"or"`` sets bits, ``"replace"`` stores. Of
        an array with :class:`Sequential` nothing need be declared: there it is atomic in the whole
        cluster. Other threads run meanwhile.

        Raises ``TypeError`` for dtypes as :meth:`reduce`, and for values that do not fit the dtype;
        ``ValueError`` for shapes that do not fit, and for read-only arrays.
        """
        home = self._known()
        kind = _number(self.dtype, merge)
        if not self.flags.writeable:
            raise ValueError("the array is read-only: attach to it without readonly")
        given = numpy.asarray(values)
        if given.dtype.kind in "iu" and not isinstance(values, (numpy.ndarray, numpy.generic)):
            given = numpy.asarray(values, self.dtype)  # Python's own numbers have no size
        fitting = given.astype(self.dtype, casting="same_kind", copy=False)
        operands = numpy.broadcast_to(fitting, self.shape).tobytes()
        place = self.__array_interface__["data"][0] - home.address
        axes = list(zip(self.shape, self.strides, strict=True))
        home.memory.accumulate(place, axes, merge, kind, operands)

    def lock(self, number=1):
        """The array's own lock of that number, an :class:`pagemesh.Lock`, the same everywhere.

        With :class:`Release` it orders what is stored in the array; other locks do not. Numbers
        count from 1.
        """
        if number < 1:
            raise ValueError("locks of an array count from 1: 0 is the array's")
        home = self._known()
        return OwnLock(home.name, home.segment.lock(number), number)

    def barrier(self, parties, number=0, timeout=None):
        """Waits at the array's own barrier of that number until ``parties`` processes are there.

        With :class:`Release`, what they stored in the array before, all of them see after. Raises
        ``TimeoutError`` if they are not there in ``timeout`` seconds.
        """
        if not self._known().segment.barrier(number, parties).wait(timeout):
            raise TimeoutError(f"not all {parties} processes came to barrier {number}")

    def slice_of(self, rank, size):
        """The part of number ``rank`` when the array is cut into ``size`` even ones.

        Cut along the axis whose neighbours are far apart in memory: the first, or the last of
        arrays in Fortran's order. Where there are enough pages, cuts are between pages, so that
        no two parts share one.
        """
        if not 0 <= rank < size:
            raise IndexError(f"part {rank} of {size} does not exist: parts count from 0")
        axis = self._slowest_axis()
        count = self.shape[axis]
        step = PAGE_SIZE // numpy.gcd(PAGE_SIZE, abs(self.strides[axis]) or PAGE_SIZE)
        step = int(step) if count >= 2 * size * step else 1
        cuts = [min(count, round(part * count / size / step) * step) for part in (rank, rank + 1)]
        if rank + 1 == size:
            cuts[1] = count
        return self[(slice(None),) * axis + (slice(*cuts),)]

    def _slowest_axis(self):
        flags = self.flags
        if flags.c_contiguous and flags.f_contiguous:  # all but one are of length 1
            return int(numpy.argmax(self.shape))
        return self.ndim - 1 if flags.f_contiguous else 0

    def _known(self):
        if self._home is None:
            raise ValueError("this array is a copy: it is in no segment")
        return self._home


class _Home:
    """The segment that an array and its views are in."""

    def __init__(self, segment, memory):
        self.name = segment.name
        self.segment = segment
        self.memory = memory
        self.address = numpy.frombuffer(memory, "u1").__array_interface__["data"][0]

    def contains(self, array):
        """Whether it is a view of this memory, be it of no items, and no copy."""
        return 0 <= array.__array_interface__["data"][0] - self.address <= len(self.memory)


def array(name, shape, dtype=float, *, order="C", policy=None, mode=0o600):
    """The array of that name: made, full of zeros, if there is none, else attached to.

    ``shape`` is a number of items or a tuple, ``dtype`` anything but objects, ``order`` ``"C"`` or
    ``"F"``, ``policy`` what the memory promises (:class:`Sequential`, the default, or :class:`Release`;
    or their names), ``mode`` who may use it, as for a file. All processes may say the same line; one of
    them makes it.

    Raises :class:`pagemesh.errors.MismatchError` if there is one with another shape, dtype
    or order; ``TypeError`` for objects.
    """
    dtype = numpy.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(
            f"{dtype} holds pointers to Python objects, which mean nothing to other processes; use "
            "numbers, or strings of a fixed length"
        )
    if order not in ("C", "F"):
        raise ValueError(f"order is 'C' or 'F', not {order!r}")
    shape = (shape,) if isinstance(shape, (int, numpy.integer)) else tuple(shape)
    policy = _policy(policy)
    header = _header(shape, dtype, order)
    size = len(header) + _bytes(shape, dtype)
    segment = retrying(
        lambda mesh: mesh.create(name, size, mode=mode, exclusive=False, **policy._keywords())
    )
    made = _open(segment, header)
    found = (made.shape, made.dtype, "C" if made.flags.c_contiguous else "F")
    in_order = made.flags.c_contiguous if order == "C" else made.flags.f_contiguous
    if found[:2] != (shape, dtype) or not in_order:
        raise errors.MismatchError(
            f"the array {name!r} has shape {found[0]}, dtype {found[1]} and order {found[2]!r}, not "
            f"{shape}, {dtype} and {order!r}: attach({name!r}) takes it as it is, "
            "unlink() makes room for another"
        )
    return made


def attach(name, *, dtype=None, shape=None, readonly=False):
    """The array of that name, as its maker described it.

    With ``readonly``, nobody can store through it, and permission to read is enough. ``dtype`` and
    ``shape`` are what the caller relies on.

    Raises :class:`pagemesh.errors.SegmentNotFoundError`, :class:`~pagemesh.errors.MismatchError`,
    and :class:`~pagemesh.errors.CorruptHeaderError` if the segment is not an array.
    """
    found = _open(retrying(lambda mesh: mesh.open(name, write=not readonly)), None)
    if dtype is not None and numpy.dtype(dtype) != found.dtype:
        raise errors.MismatchError(
            f"the array {name!r} has dtype {found.dtype}, not {numpy.dtype(dtype)}: attach without "
            "dtype, then use .astype() for a converted copy"
        )
    if shape is not None and tuple(shape) != found.shape:
        raise errors.MismatchError(f"the array {name!r} has shape {found.shape}, not {shape}")
    return found


_MERGES = ("sum", "min", "max", "or", "replace")


def _number(dtype, merge):
    """What the native half calls numbers of this dtype, if they can be combined like that."""
    if merge not in _MERGES:
        raise ValueError(f"numbers are not combined by {merge!r}; there are {', '.join(_MERGES)}")
    kind = {"b": "u"}.get(dtype.kind, dtype.kind)
    sizes = (4, 8) if kind == "f" else (1, 2, 4, 8)
    if kind not in "uif" or dtype.itemsize not in sizes or not dtype.isnative:
        raise TypeError(
            "nodes accumulate integers of 1 to 8 bytes, truth values and floats of 4 or 8, in this "
            f"host's order of bytes, not {dtype}: make an array of such numbers, for a field its own"
        )
    if kind == "f" and merge == "or":
        raise TypeError(f"{dtype} has no bits to set: use an array of integers")
    if dtype.kind == "b" and merge == "sum":
        raise TypeError('truth values are not added up: use "or", or an array of integers')
    return f"{kind}{8 * dtype.itemsize}"


def _policy(policy):
    if policy is None or policy == "sequential":
        return Sequential()
    if policy == "release":
        return Release()
    if not isinstance(policy, (Sequential, Release)):
        raise ValueError(
            f"unknown policy {policy!r}; there are pagemesh.Sequential(...) and pagemesh.Release()"
        )
    return policy


def _open(segment, header):
    """The array in a segment, which is described now if it is new."""
    memory = segment.map()
    lock = segment.lock(0)
    lock.acquire()
    try:
        with memoryview(memory) as view:
            if header is not None and bytes(view[: len(_MAGIC)]) == bytes(len(_MAGIC)):
                view[: len(header)] = header
            start, shape, dtype, order = _parse(segment.name, view)
    finally:
        lock.release()
    return _make(_Home(segment, memory), shape, dtype, start, order=order)


def _make(home, shape, dtype, start, **layout):
    made = numpy.ndarray.__new__(Array, shape, dtype, home.memory, start, **layout)
    made._home = home
    return made


def _parse(name, view):
    """What a header says, if that can be true."""
    head = io.BytesIO(bytes(view[:_LONGEST_HEADER]))
    try:
        if npy.read_magic(head) != (1, 0):
            raise ValueError("it is of an unknown version")
        shape, fortran, dtype = npy.read_array_header_1_0(head, max_header_size=_LONGEST_HEADER)
        if dtype.hasobject:
            raise ValueError("its items are objects")
        if any(length < 0 for length in shape) or len(shape) > 32:
            raise ValueError(f"its shape {shape} is impossible")
        if head.tell() % PAGE_SIZE:
            raise ValueError("its data do not begin with a page")
        if head.tell() + _bytes(shape, dtype) > len(view):
            raise ValueError(f"shape {shape} of {dtype} needs more than its {len(view)} bytes")
    except Exception as error:
        raise errors.CorruptHeaderError(
            f"the segment {name!r} is no array: {error}. pagemesh.shared_memory opens segments of "
            "any kind"
        ) from None
    return head.tell(), shape, dtype, "F" if fortran else "C"


def _header(shape, dtype, order):
    """A header of whole pages."""
    words = {
        "descr": npy.dtype_to_descr(dtype),
        "fortran_order": order == "F",
        "shape": tuple(int(length) for length in shape),
    }
    text = repr(words).encode("latin1")
    length = -(-(len(_MAGIC) + 2 + len(text) + 1) // PAGE_SIZE) * PAGE_SIZE
    if length > _LONGEST_HEADER:
        raise ValueError("the dtype has too many fields to be described")
    padded = text.ljust(length - len(_MAGIC) - 3) + b"\n"
    return _MAGIC + len(padded).to_bytes(2, "little") + padded


def _bytes(shape, dtype):
    size = dtype.itemsize
    for length in shape:
        size *= int(length)
    return size


def _view_of(name, readonly, place, shape, strides, dtype):
    """An array or a part of it, from its pickled form."""
    whole = attach(name, readonly=readonly)
    if 0 in shape:
        return whole.ravel()[:0].view(dtype).reshape(shape)
    ways = [(length - 1) * step for length, step in zip(shape, strides, strict=True)]
    lowest = place + sum(way for way in ways if way < 0)
    highest = place + sum(way for way in ways if way > 0) + dtype.itemsize
    if lowest < PAGE_SIZE or highest > len(whole._home.memory) or dtype.hasobject:
        raise errors.CorruptHeaderError(f"a pickled view does not lie in the array {name!r}")
    return _make(whole._home, shape, dtype, place, strides=strides)
