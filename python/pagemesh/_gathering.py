"""Items of an array by their numbers, as ``array[numbers]``, where pages of it are elsewhere.

numpy takes items in their order, and waits for each page that is not here. Here those come
first whose pages are here, then the others in the order of their pages, which are announced before
they are touched: each page is fetched once, together with others.
"""

import functools

import numpy

from . import errors
from ._layout import bare, byte_bounds
from ._pagemesh import PAGE_SIZE
from ._policies import Private

# Fewer items are left to numpy.
_FEWEST = 64

# Of the items so many are looked at to find out whether pages are elsewhere: one in _SAMPLE, but at
# least _LOOKS.
_SAMPLE, _LOOKS = 256, 32

# Pages that are announced at once, while those announced before are used; of an array's own
# memory on this host at most this part.
_PAGES, _PART = 256, 8

# Items that are put in order at once, and items that are copied at once.
_ORDERED, _COPIED = 1 << 20, 1 << 16


def gather(array, index):
    """The items of these numbers along the first axis; ``None`` if numpy may as well take them."""
    numbers = _numbers(array, index)
    places = _elsewhere(array, numbers)
    if places is None:
        return None
    found = numpy.empty((numbers.size, *array.shape[1:]), array.dtype)
    data, flat = bare(array), numbers.reshape(-1)
    for part, some in _parts(places, flat):
        found[part][some] = data[flat[part][some]]
    return found.reshape(numbers.shape + array.shape[1:])


def scatter(array, index, values):
    """Assigns to the items of these numbers. False if numpy may as well do it, and nothing is done."""
    # numpy makes items of an array's type from lists and the like.
    fits = array.flags.writeable and isinstance(values, (numpy.ndarray, numpy.generic, int, float))
    numbers = _numbers(array, index) if fits else None
    places = _elsewhere(array, numbers)
    if places is None:
        return False
    given = bare(numpy.asarray(values))
    if numpy.may_share_memory(given, array):
        given = given.copy()
    try:
        given = numpy.broadcast_to(given, numbers.shape + array.shape[1:])
    except ValueError:
        return False  # numpy says what does not fit
    given = given.reshape(numbers.size, *array.shape[1:])
    data, flat = bare(array), numbers.reshape(-1)
    for part, some in _parts(places, flat):
        data[flat[part][some]] = given[part][some]
    return True


def _numbers(array, index):
    """The numbers of items, if they are many and numpy would take them; else ``None``."""
    if array._home is None or array.size == 0 or not isinstance(index, (list, numpy.ndarray)):
        return None
    if len(index) < _FEWEST if type(index) is list else index.size < _FEWEST:
        return None
    try:
        numbers = bare(numpy.asarray(index))
    except ValueError:  # lists of different lengths
        return None
    length = array.shape[0]
    if numbers.dtype.kind == "b" and numbers.shape == (length,):
        numbers = numpy.flatnonzero(numbers)
    if numbers.dtype.kind not in "iu" or numbers.size < _FEWEST:
        return None
    if numbers.min() < -length or numbers.max() >= length:
        return None  # numpy says which one
    return numbers.astype(numpy.int64, copy=False)


def _elsewhere(array, numbers):
    """Where the array's items lie, if a sample shows that pages of these are not here."""
    if numbers is None:
        return None
    places, numbers = _Places(array), numbers.reshape(-1)
    sample = numbers[:: max(1, min(_SAMPLE, numbers.size // _LOOKS))] % places.count
    if places.are_here(sample).all() or places.an_item > places.at_once:
        return None
    return places


class _Places:
    """Where the items of an array lie along its first axis, in pages of its segment."""

    def __init__(self, array):
        home = array._home
        low, high = byte_bounds(bare(array)[:1])
        self._home = home
        self._step = array.strides[0]
        self._ends = low - home.address, high - 1 - home.address
        self.count = array.shape[0]
        # The pages of one item, at most.
        self.an_item = (high - low - 1) // PAGE_SIZE + 2

    @functools.cached_property
    def at_once(self):
        """How many pages may be announced at once. The daemon may have to be asked for the policy."""
        policy = self._home.policy
        local = policy.local if isinstance(policy, Private) else None
        return _PAGES if local is None else min(_PAGES, local // PAGE_SIZE // _PART)

    def of(self, numbers):
        """The first and the last page of each of these items."""
        return tuple((numbers * self._step + end) // PAGE_SIZE for end in self._ends)

    def are_here(self, numbers):
        """For each of these items whether its first and last page have frames on this host."""
        first, last = self.of(numbers)
        found = self._have_frames(first)
        return found if (first == last).all() else found & self._have_frames(last)

    def _have_frames(self, pages):
        return numpy.frombuffer(self._home.memory.frames(pages.tobytes()), bool)

    def announce(self, numbers):
        """Has the pages of these items fetched."""
        first, last = self.of(numbers)
        pages = first[:, None] + numpy.arange(self.an_item)
        pages = numpy.unique(numpy.minimum(pages, last[:, None]))
        try:
            self._home.memory.will_need(pages.tobytes())
        except (errors.ClosedError, errors.LostPageError):
            raise  # of another access: these must not get lost
        except (errors.Error, ValueError):
            pass  # as of a daemon of an older release; the pages come when they are touched


def _parts(places, numbers):
    """Slices of the numbers, and of each, some at a time, the positions of its items: in an order that
    has few pages fetched, and where numbers are the same, in theirs."""
    for start in range(0, numbers.size, _ORDERED):
        part = slice(start, start + _ORDERED)
        for some in _in_order(places, numbers[part] % places.count):
            yield part, some


def _in_order(places, numbers):
    """Positions of these numbers, some at a time, once their pages are here or announced."""
    are_here = places.are_here(numbers)
    here = numpy.flatnonzero(are_here)
    for start in range(0, here.size, _COPIED):
        yield here[start : start + _COPIED]
    away = numpy.flatnonzero(~are_here)
    away = away[numpy.argsort(numbers[away], kind="stable")]
    announced = None
    for some in _cut(places, numbers, away):
        places.announce(numbers[some])
        if announced is not None:
            yield announced
        announced = some
    if announced is not None:
        yield announced


def _cut(places, numbers, ordered):
    """Cuts ordered positions where the pages of their items are enough to be announced together."""
    first, _ = places.of(numbers[ordered])
    # Items on one page stay together.
    distinct = numpy.cumsum(numpy.diff(first, prepend=first[:1]) != 0)
    part = distinct // max(1, places.at_once // places.an_item)
    return numpy.split(ordered, numpy.flatnonzero(numpy.diff(part)) + 1) if ordered.size else []
