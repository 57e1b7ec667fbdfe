"""A queue that processes on all nodes share."""

import pickle
import queue
import secrets
import time

from . import _pickling, errors
from ._mesh import retrying
from ._pagemesh import PAGE_SIZE
from .sync import _Held, _Named

__all__ = ["Queue"]

# Where words are in the queue's segment; after the first page come the items, in a ring.
_HEAD, _TAIL, _COUNT, _UNFINISHED = 64, 72, 80, 88
_RING = PAGE_SIZE

# An item is its length and its bytes. One whose length is this lies in a segment of its own, whose name
# follows.
_LENGTH_BYTES = 8
_ELSEWHERE = 1 << 62


class Queue(_Named):
    """A :class:`queue.Queue` for all processes of the cluster; the same name is the same queue.

    ``maxsize`` is how many items it takes, 0 is any number, as long as ``capacity`` bytes have room for
    them, pickled; the first maker decides on that. :meth:`put` waits for room. A large item goes
    through a segment of its own; arrays of :func:`pagemesh.array` go by name. Raises
    :class:`queue.Full` and :class:`queue.Empty` as the standard library's.

    Items are unpickled: give ``mode`` to those only whom you trust with your processes.
    """

    _kind = "queue"

    def __init__(self, maxsize=0, name=None, *, capacity=1 << 20, mode=0o600):
        if capacity < PAGE_SIZE:
            raise ValueError(f"a queue has room for at least {PAGE_SIZE} bytes, not {capacity}")
        self.maxsize = max(maxsize, 0)
        super().__init__(name, mode, self.maxsize, size=_RING + capacity)
        self._room = self._segment.size - _RING
        self._view = memoryview(self._memory)
        self._not_empty = self._segment.condition(1)
        self._not_full = self._segment.condition(2)
        self._all_done = self._segment.condition(3)

    def __reduce__(self):
        return _attached, (type(self), self.maxsize, self.name)

    def qsize(self):
        """How many items are in it, at this moment."""
        return self._memory.load(_COUNT)

    def empty(self):
        """Whether none is."""
        return self.qsize() == 0

    def full(self):
        """Whether no more fits by number; there may be too little room for one all the same."""
        return 0 < self.maxsize <= self.qsize()

    def put(self, item, block=True, timeout=None):
        """Adds an item at the end, waiting for room, at most ``timeout`` seconds if given."""
        data, large = _pickling.dumps(item), None
        if len(data) + _LENGTH_BYTES > self._room // 4:
            data, large = self._put_elsewhere(data)
            length = _ELSEWHERE
        else:
            length = len(data)
        record = length.to_bytes(_LENGTH_BYTES, "little")
        if length == _ELSEWHERE:
            record += len(data).to_bytes(_LENGTH_BYTES, "little")
        try:
            self._put(record + data, block, _end(timeout))
        except BaseException:
            if large is not None:
                retrying(lambda mesh: mesh.remove(large))
            raise

    def _put(self, record, block, end):
        with _Locked(self):
            while True:
                head, tail = self._memory.load(_HEAD), self._memory.load(_TAIL)
                fits = tail - head + len(record) <= self._room
                if fits and not self.full():
                    break
                self._wait(self._not_full, block, end, queue.Full)
            self._write(tail, record)
            self._memory.store(_UNFINISHED, self._memory.load(_UNFINISHED) + 1)
            self._memory.store(_TAIL, tail + len(record))  # from here on it is in the queue
            self._memory.store(_COUNT, self._memory.load(_COUNT) + 1)
            self._not_empty.signal()

    def get(self, block=True, timeout=None):
        """Takes the first item away, waiting for one, at most ``timeout`` seconds if given."""
        end = _end(timeout)
        with _Locked(self):
            while self.qsize() == 0:
                self._wait(self._not_empty, block, end, queue.Empty)
            head = self._memory.load(_HEAD)
            data, length, elsewhere = self._item(head)
            self._memory.store(_COUNT, self._memory.load(_COUNT) - 1)
            self._memory.store(_HEAD, head + length)
            self._not_full.signal()
        return pickle.loads(self._get_elsewhere(data.decode()) if elsewhere else data)

    def put_nowait(self, item):
        """As :meth:`put`, without waiting."""
        self.put(item, False)

    def get_nowait(self):
        """As :meth:`get`, without waiting."""
        return self.get(False)

    def task_done(self):
        """Says that an item that was taken has been dealt with, for :meth:`join`."""
        with _Locked(self):
            left = self._memory.load(_UNFINISHED) - 1
            if left < 0:
                raise ValueError("task_done() called too many times")
            self._memory.store(_UNFINISHED, left)
            if left == 0:
                self._all_done.broadcast()

    def join(self):
        """Waits until all items have been dealt with."""
        with _Locked(self):
            while self._memory.load(_UNFINISHED) > 0:
                self._all_done.wait(self._native, None)

    def _first(self, parameter):
        return 0

    def _wait(self, condition, block, end, failure):
        left = None if end is None else end - time.monotonic()
        if not block or (left is not None and left <= 0):
            raise failure
        condition.wait(self._native, left)

    def _write(self, at, data):
        at %= self._room
        first = min(len(data), self._room - at)
        self._view[_RING + at : _RING + at + first] = data[:first]
        self._view[_RING : _RING + len(data) - first] = data[first:]

    def _read(self, at, length):
        at %= self._room
        first = min(length, self._room - at)
        start = bytes(self._view[_RING + at : _RING + at + first])
        return start + bytes(self._view[_RING : _RING + length - first])

    def _item(self, at):
        """The bytes of an item, of its record, and whether they are the name of a segment."""
        start, elsewhere = _LENGTH_BYTES, False
        length = int.from_bytes(self._read(at, _LENGTH_BYTES), "little")
        if length == _ELSEWHERE:
            length = int.from_bytes(self._read(at + start, _LENGTH_BYTES), "little")
            start, elsewhere = 2 * _LENGTH_BYTES, True
        if length > self._room:
            raise errors.CorruptHeaderError(f"the queue {self.name!r} holds no items that make sense")
        return self._read(at + start, length), start + length, elsewhere

    def _recount(self):
        """After a process died in the middle of something."""
        at, tail, count = self._memory.load(_HEAD), self._memory.load(_TAIL), 0
        while at < tail:
            at, count = at + self._item(at)[1], count + 1
        self._memory.store(_COUNT, count)

    def _put_elsewhere(self, data):
        name = f"{self._full[:200]}.{secrets.token_hex(8)}"
        segment = retrying(lambda mesh: mesh.create(name, len(data), mode=self._mode))
        with memoryview(segment.map()) as view:
            view[:] = data
        return name.encode(), name

    def _get_elsewhere(self, name):
        segment = retrying(lambda mesh: mesh.open(name))
        with memoryview(segment.map()) as view:
            data = bytes(view)
            retrying(lambda mesh: mesh.remove(name))
        return data


class _Locked(_Held):
    """A queue's lock, whose last holder may have died with it."""

    def __init__(self, queue):
        super().__init__(queue._native)
        self._queue = queue

    def __enter__(self):
        _, recovered = self._lock.acquire()
        if recovered:
            self._queue._recount()


def _attached(kind, maxsize, name):
    return kind(maxsize, name)


def _end(timeout):
    if timeout is not None and timeout < 0:
        raise ValueError("'timeout' must be a non-negative number")
    return None if timeout is None else time.monotonic() + timeout
