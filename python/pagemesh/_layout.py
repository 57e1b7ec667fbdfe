"""How an array lies in its segment: as in a ``.npy`` file, a header of whole pages, then the data.

The header says shape, dtype and order. Whoever attaches checks it as if it came from an enemy.
"""

import io
import operator

import numpy
from numpy.lib import format as npy

try:
    from numpy.lib.array_utils import byte_bounds
except ImportError:  # numpy 1
    from numpy import byte_bounds

from . import errors
from ._pagemesh import PAGE_SIZE

# Longer headers than this nobody needs: structured dtypes with hundreds of fields.
LONGEST_HEADER = 16 * PAGE_SIZE

# What a described segment begins with.
MAGIC = npy.magic(1, 0)

# The most bytes a segment can have, and numpy's own limit of dimensions.
_LARGEST = 16 << 40
_DIMENSIONS = 32


def shape_of(shape, dtype):
    """A shape as a tuple of lengths, if there can be an array like that.

    Raises ``TypeError`` for what is no number or tuple of numbers, ``ValueError`` for negative
    lengths and for more dimensions or bytes than an array can have.
    """
    try:
        lengths = (operator.index(shape),)
    except TypeError:
        if isinstance(shape, (str, bytes)):
            raise TypeError(f"a shape is a whole number or a tuple of them, not {shape!r}") from None
        try:
            lengths = tuple(operator.index(length) for length in shape)
        except TypeError:
            raise TypeError(f"a shape is a whole number or a tuple of them, not {shape!r}") from None
    if any(length < 0 for length in lengths):
        raise ValueError(f"the shape {shape!r} has a negative length")
    if len(lengths) > _DIMENSIONS:
        raise ValueError(f"the shape has {len(lengths)} dimensions; {_DIMENSIONS} is the limit")
    # As numpy does: empty arrays must be addressable without their zeros, too.
    if data_bytes([length or 1 for length in lengths], dtype) > (1 << 63) - 1:
        raise ValueError(
            f"an array of shape {lengths} and dtype {dtype} is larger than memory can be: a segment has "
            f"at most {_LARGEST >> 40} TiB"
        )
    return lengths


def data_bytes(shape, dtype):
    """How many bytes the items have."""
    size = dtype.itemsize
    for length in shape:
        size *= int(length)
    return size


def header_of(shape, dtype, order):
    """The header, of whole pages."""
    words = {
        "descr": npy.dtype_to_descr(dtype),
        "fortran_order": order == "F",
        "shape": tuple(int(length) for length in shape),
    }
    text = repr(words).encode("latin1")
    length = -(-(len(MAGIC) + 2 + len(text) + 1) // PAGE_SIZE) * PAGE_SIZE
    if length > LONGEST_HEADER:
        raise ValueError("the dtype has too many fields to be described")
    padded = text.ljust(length - len(MAGIC) - 3) + b"\n"
    return MAGIC + len(padded).to_bytes(2, "little") + padded


def write_header(view, header):
    """Describes a new segment. The first bytes come last: before them, nothing is described."""
    view[len(MAGIC) : len(header)] = header[len(MAGIC) :]
    view[: len(MAGIC)] = header[: len(MAGIC)]


def is_blank(view):
    """Whether a segment has not been described."""
    start = bytes(view[: len(MAGIC)])
    return start == bytes(len(start))


def parse(name, view):
    """What a header says, if that can be true: where the data begin, shape, dtype and order.

    Raises :class:`errors.CorruptHeaderError` otherwise.
    """
    head = io.BytesIO(bytes(view[:LONGEST_HEADER]))
    try:
        if npy.read_magic(head) != (1, 0):
            raise ValueError("it is of an unknown version")
        shape, fortran, dtype = npy.read_array_header_1_0(head, max_header_size=LONGEST_HEADER)
        if dtype.hasobject:
            raise ValueError("its items are objects")
        if any(length < 0 for length in shape) or len(shape) > _DIMENSIONS:
            raise ValueError(f"its shape {shape} is impossible")
        if head.tell() % PAGE_SIZE:
            raise ValueError("its data do not begin with a page")
        if head.tell() + data_bytes(shape, dtype) > len(view):
            raise ValueError(f"shape {shape} of {dtype} needs more than its {len(view)} bytes")
    except Exception as error:
        raise not_an_array(name, error) from None
    return head.tell(), shape, dtype, "F" if fortran else "C"


def not_an_array(name, why):
    """The error for a segment that :func:`pagemesh.array` has not made."""
    return errors.CorruptHeaderError(
        f"the segment {name!r} is no array made by pagemesh.array: {why}. Nothing was written. Use "
        "another name; pagemesh.shared_memory opens segments of any kind"
    )


def agrees(found, shape, dtype, order):
    """Whether an array is as asked for."""
    in_order = found.flags.c_contiguous if order == "C" else found.flags.f_contiguous
    return (found.shape, found.dtype) == (shape, dtype) and in_order


def bare(array):
    """An ordinary array over the same memory."""
    return array.view(numpy.ndarray)
