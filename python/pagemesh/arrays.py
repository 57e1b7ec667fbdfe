"""numpy arrays in segments, which :mod:`pagemesh._layout` lays out."""

import time
import uuid

import numpy

from . import _layout, errors
from ._gathering import gather, scatter
from ._layout import bare, byte_bounds
from ._mesh import retrying
from ._pagemesh import PAGE_SIZE
from ._policies import Private, Release, Sequential, Views, known_policy, policy_of
from .sync import OwnLock

__all__ = ["Array", "Private", "Release", "Sequential", "Views", "array", "attach", "redeem"]

# So long is waited, in seconds, for the process that has made a segment to describe it, and so long
# between two looks.
_HANDOVER, _LOOK = 5.0, 0.01


# What computes from an array and may give another one of its class.
_COMPUTING = (
    "argpartition",
    "argsort",
    "astype",
    "byteswap",
    "choose",
    "clip",
    "compress",
    "conj",
    "conjugate",
    "cumprod",
    "cumsum",
    "diagonal",
    "flatten",
    "ravel",
    "repeat",
    "reshape",
    "round",
    "searchsorted",
)


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

    def __array_function__(self, function, types, arguments, keywords):
        return _honest(super().__array_function__(function, types, arguments, keywords))

    def __getitem__(self, index):
        gathered = gather(self, index)
        return _honest(super().__getitem__(index)) if gathered is None else gathered

    def __setitem__(self, index, value):
        if not scatter(self, index, value):
            super().__setitem__(index, value)

    def __repr__(self):
        if self._home is None:
            return repr(bare(self))
        home = self._home
        shown = f"Array({numpy.array2string(bare(self), separator=', ', prefix='Array(')}"
        return (
            f"{shown}, name={home.name!r}, shape={self.shape}, dtype={self.dtype}, policy={home.policy})"
        )

    def take(self, indices, axis=None, out=None, mode="raise"):
        """As of :class:`numpy.ndarray`; pages that are elsewhere are fetched together."""
        if out is None and mode == "raise":
            flat = axis is None and self.ndim > 1 and self.flags.c_contiguous
            known = self.reshape(-1) if flat else self
            gathered = gather(known, indices) if known.ndim == 1 or axis == 0 else None
            if gathered is not None:
                return gathered
        return _honest(super().take(indices, axis=axis, out=out, mode=mode))

    def copy(self, order="C"):
        """An ordinary array with the same contents."""
        return bare(self).copy(order)

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return self.copy()

    def __reduce__(self):
        if self._home is None:
            return bare(self).__reduce__()
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

    @property
    def policy(self):
        """What the memory promises: an object of one of the policies' classes, as :class:`Release`."""
        return self._known().policy

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
        ``"sequential"``, and ``"dontneed"`` does nothing. ``"renew"`` is for policy ``views``: pages
        that are lost with their node begin anew with zeros, instead of failing.
        """
        home = self._known()
        if self.size:
            low, high = byte_bounds(self)
            home.memory.advise(low - home.address, high - home.address, advice)

    def publish(self):
        """Sends copies of the array, or of the part that a view is, to all nodes that use it.

        For :class:`Views`. Returns when they are sent, and waits for no reader. Pages that were stored
        to on another node since cannot be published here: ``ValueError`` says so.
        """
        home = self._known()
        if self.size:
            low, high = byte_bounds(self)
            home.memory.publish(low - home.address, high - home.address)

    def purge(self):
        """Drops this node's copies of the array, or of the part that a view is.

        For :class:`Views`, attached to with ``readonly``: the next load sees newer contents.
        """
        home = self._known()
        if self.size:
            low, high = byte_bounds(self)
            home.memory.purge(low - home.address, high - home.address)

    def capability(self, *, write=False):
        """A descriptor with which another process of this host may :func:`redeem` the array.

        It needs neither the name nor the mode's permission, and permits loads, or with ``write`` loads
        and stores. Hand it over as descriptors are: :func:`socket.send_fds`, or ``pass_fds`` of
        :class:`subprocess.Popen`; then :func:`os.close` it. It is good as long as some process of this
        host has the array. ``PermissionError`` for ``write`` of an array attached to with ``readonly``.
        """
        return self._known().segment.capability(write)

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
        if self.ndim == 0:
            raise ValueError("an array without dimensions has no parts")
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


def _computes(name):
    """A method of numpy's arrays whose result is an :class:`Array` only if it is in the segment."""
    method = getattr(numpy.ndarray, name)

    def computed(self, *arguments, **keywords):
        return _honest(method(self, *arguments, **keywords))

    computed.__name__, computed.__doc__ = name, method.__doc__
    computed.__qualname__ = f"Array.{name}"
    return computed


for _name in _COMPUTING:
    setattr(Array, _name, _computes(_name))


def _honest(result):
    """A result, as an ordinary array if it is a copy."""
    if type(result) is Array and result._home is None:
        return bare(result)
    if type(result) in (list, tuple):
        return type(result)(_honest(one) for one in result)
    return result


class _Home:
    """The segment that an array and its views are in."""

    def __init__(self, segment, memory):
        self.name = segment.name
        self._policy = None
        self.segment = segment
        self.memory = memory
        self.address = numpy.frombuffer(memory, "u1").__array_interface__["data"][0]

    @property
    def policy(self):
        """What the memory promises, as the cluster knows it; ``None`` once the name is gone."""
        if self._policy is None:
            try:
                self._policy = known_policy(self.name)
            except errors.Error:  # a name that is gone must not keep the array from being shown
                return None
        return self._policy

    def contains(self, array):
        """Whether it is a view of this memory, be it of no items, and no copy."""
        return 0 <= array.__array_interface__["data"][0] - self.address <= len(self.memory)


def array(name, shape, dtype=float, *, order="C", policy=None, local=None, mode=0o600):
    """The array of that name: made, full of zeros, if there is none, else attached to.

    ``shape`` is a number of items or a tuple, ``dtype`` anything but objects, ``order`` ``"C"`` or
    ``"F"``, ``policy`` what the memory promises (:class:`Sequential`, :class:`Release`, :class:`Views`
    or :class:`Private`; or their names; without one, :class:`Sequential` of any kind), ``local`` how
    much of a private array is in this host's memory at most, for example ``"2G"``, ``mode`` who may
    use it, as for a file. All processes may say the same line; one of them makes it.

    A private array may have no name (``None``): it lives as long as this process uses it.

    Raises :class:`pagemesh.errors.MismatchError` if there is one with another shape, dtype, order
    or policy; :class:`pagemesh.errors.CorruptHeaderError` if the segment of that name is no array;
    ``TypeError`` for objects. Nothing is written, or left behind, in these cases.
    """
    dtype = numpy.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(
            f"{dtype} holds pointers to Python objects, which mean nothing to other processes; use "
            "numbers, or strings of a fixed length"
        )
    if order not in ("C", "F"):
        raise ValueError(f"order is 'C' or 'F', not {order!r}")
    shape = _layout.shape_of(shape, dtype)
    wanted = policy_of(policy, local)
    header = _layout.header_of(shape, dtype, order)
    size = len(header) + _layout.data_bytes(shape, dtype)
    if name is None:
        return _make_anonymous(size, header, wanted)
    made = None
    while made is None:
        try:
            made = _make_new(name, size, header, mode, wanted)
        except errors.SegmentExistsError:
            made = _take(name, size)
    _check_policy(made._home, policy, wanted)
    if not _layout.agrees(made, shape, dtype, order):
        found = "C" if made.flags.c_contiguous else "F"
        raise errors.MismatchError(
            f"the array {name!r} has shape {made.shape}, dtype {made.dtype} and order {found!r}, not "
            f"{shape}, {dtype} and {order!r}: attach({name!r}) takes it as it is, "
            "unlink() makes room for another"
        )
    return made


def _make_anonymous(size, header, policy):
    """A private array whose name is gone at once, so that it ends with this process."""
    if not isinstance(policy, Private):
        raise ValueError("only an array of policy='private' may have no name: others find it by that")
    name = f"private-{uuid.uuid4().hex}"
    made = _make_new(name, size, header, 0o600, policy)
    made._home._policy = policy
    retrying(lambda mesh: mesh.remove(name))
    return made


def _make_new(name, size, header, mode, policy):
    """Makes the segment and describes it; whatever goes wrong, it is not left half made."""
    keywords = policy._keywords()
    segment = retrying(lambda mesh: mesh.create(name, size, mode=mode, exclusive=True, **keywords))
    try:
        memory = segment.map()
        lock = segment.lock(0)
        lock.acquire()
        try:
            with memoryview(memory) as view:
                _layout.write_header(view, header)
                described = _layout.parse(name, view)
        finally:
            lock.release()
        return _in(_Home(segment, memory), *described)
    except BaseException:
        retrying(lambda mesh: mesh.remove(name))
        raise


def _take(name, size):
    """The array that another process has made; ``None`` if its name is gone by now."""
    try:
        segment = retrying(lambda mesh: mesh.open(name))
    except errors.SegmentNotFoundError:
        return None
    return _open(segment, size)


def _check_policy(home, given, wanted):
    """Under another policy, what a program relies on would not hold. A name means any kind of it."""
    found = home.policy
    loose = given is None or isinstance(given, str)
    if found is not None and found != wanted and not (loose and type(found) is type(wanted)):
        raise errors.MismatchError(
            f"the array {home.name!r} has policy {found}, not {wanted}: say so in every process, or "
            f"take it as it is, by attach({home.name!r})"
        )


def attach(name, *, dtype=None, shape=None, readonly=False):
    """The array of that name, as its maker described it.

    With ``readonly``, nobody can store through it, and permission to read is enough. ``dtype`` and
    ``shape`` are what the caller relies on.

    Raises :class:`pagemesh.errors.SegmentNotFoundError`, :class:`~pagemesh.errors.MismatchError`,
    and :class:`~pagemesh.errors.CorruptHeaderError` if the segment is not an array.
    """
    found = _open(retrying(lambda mesh: mesh.open(name, write=not readonly)))
    if dtype is not None and numpy.dtype(dtype) != found.dtype:
        raise errors.MismatchError(
            f"the array {name!r} has dtype {found.dtype}, not {numpy.dtype(dtype)}: attach without "
            "dtype, then use .astype() for a converted copy"
        )
    if shape is not None and _layout.shape_of(shape, found.dtype) != found.shape:
        raise errors.MismatchError(f"the array {name!r} has shape {found.shape}, not {shape}")
    return found


def redeem(capability):
    """The array of a capability that another process of this host has made and handed over.

    It is read-only if the capability permits loads only. The descriptor stays open. ``ValueError`` if it
    is none of a segment that is open on this host.
    """
    return _open(retrying(lambda mesh: mesh.redeem(capability)))


def described(name):
    """What a segment says of the array in it; ``None`` if it holds none or may not be read."""
    try:
        segment = retrying(lambda mesh: mesh.open(name, write=False))
        with memoryview(segment.map()) as view:
            _, shape, dtype, order = _layout.parse(name, view)
            found = {"shape": shape, "dtype": dtype, "order": order}
    except errors.Error:
        return None
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


def _open(segment, size=None):
    """The array in a segment that another process has made, and describes.

    ``size`` is what an array as asked for would have: a segment of another size is not waited for.
    """
    memory = segment.map()
    lock = segment.lock(0)
    until = time.monotonic() + _HANDOVER
    with memoryview(memory) as view:
        while True:
            lock.acquire()
            try:
                if not _layout.is_blank(view):
                    described = _layout.parse(segment.name, view)
                    break
            finally:
                lock.release()
            if size is not None and size != segment.size:
                why = f"it begins with zeros, and has {segment.size} bytes where this array needs {size}"
                raise _layout.not_an_array(segment.name, why)
            if time.monotonic() >= until:
                why = f"nobody has described it for {_HANDOVER:.0f} s, unless its maker died before"
                raise _layout.not_an_array(segment.name, why)
            time.sleep(_LOOK)
    return _in(_Home(segment, memory), *described)


def _in(home, start, shape, dtype, order):
    return _make(home, shape, dtype, start, order=order)


def _make(home, shape, dtype, start, **layout):
    made = numpy.ndarray.__new__(Array, shape, dtype, home.memory, start, **layout)
    made._home = home
    return made


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
