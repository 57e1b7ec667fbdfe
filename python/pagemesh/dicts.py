"""A dictionary that processes on all nodes share.

Its contents are a log of changes in a segment, which each process follows; the log's end, the last
thing that a change stores, says how far it goes. A log that is full is replaced by one of the next
generation with what is still there.
"""

import contextlib
import os
import pickle
import struct
import threading
import weakref
from collections.abc import MutableMapping

from . import _pickling, errors
from ._mesh import retrying
from .sync import _Held, _Named

__all__ = ["Dict"]

# In the dictionary's own segment: which log is the current one; in a log: its end, and where it begins.
_GENERATION, _END, _BEGIN = 64, 0, 64

# Before each key and value: their lengths. A value of this length is none: the key was deleted.
_LENGTHS = struct.Struct("<QQ")
_DELETED = (1 << 64) - 1

_MISSING = object()


class Dict(_Named, MutableMapping):
    """A ``dict`` for all processes of the cluster; who gives the same name means the same one.

    Keys and values are pickled; arrays of :func:`pagemesh.array` go by name. Each method is atomic, and
    sees what all processes did before. Reading costs no message while nothing changes. To change an item
    that depends on what it is, hold a lock of your own. A value that was read is a copy: assign it again
    after changing it. ``capacity`` in bytes is what there is room for at first; it grows.

    Items are unpickled: give ``mode`` to those only whom you trust with your processes.
    """

    _kind = "dict"

    def __init__(self, name=None, *, capacity=1 << 16, mode=0o600):
        super().__init__(name, mode, 0)
        self._local = threading.RLock()  # of this process's threads, around what it has followed
        self._capacity = max(capacity, 4096)
        self._generation = 0
        self._index, self._log, self._view, self._followed = {}, None, None, _BEGIN
        if name is None:
            self.unlink.detach()
            self.unlink = weakref.finalize(self, _forget, self._full, os.getpid())
        with _Held(self._native), self._local:
            if self._memory.load(_GENERATION) == 0:
                self._replace()

    def __reduce__(self):
        return type(self), (self.name,)

    def __hash__(self):
        return object.__hash__(self)

    def __repr__(self):
        return f"Dict({self.copy()!r}, name={self.name!r})"

    def __getitem__(self, key):
        with self._reading():
            return self._value(self._index[key])

    def __setitem__(self, key, value):
        self.update({key: value})

    def __delitem__(self, key):
        if self.pop(key, _MISSING) is _MISSING:
            raise KeyError(key)

    def __contains__(self, key):
        with self._reading():
            return key in self._index

    def __len__(self):
        with self._reading():
            return len(self._index)

    def __iter__(self):
        with self._reading():
            return iter(list(self._index))

    def __ior__(self, other):
        self.update(other)
        return self

    def copy(self):
        """An ordinary ``dict`` with the same items, all of one moment."""
        with self._reading():
            return {key: self._value(place) for key, place in self._index.items()}

    def items(self):
        """Its items, all of one moment."""
        return self.copy().items()

    def values(self):
        """Its values, all of one moment."""
        return self.copy().values()

    def update(self, other=(), /, **more):
        """Sets all these items. Others see all of them, or none."""
        new = dict(other, **more)
        records = [_record(key, value) for key, value in new.items()]
        with self._changing():
            self._append(records)

    def setdefault(self, key, default=None):
        """The value of ``key``, which is set to ``default`` if there is none."""
        with self._changing():
            if key not in self._index:
                self._append([_record(key, default)])
            return self._value(self._index[key])

    def pop(self, key, default=_MISSING):
        """Removes ``key``; its value, or ``default``."""
        with self._changing():
            if key in self._index:
                value = self._value(self._index[key])
                self._append([_record(key, _MISSING)])
                return value
        if default is _MISSING:
            raise KeyError(key)
        return default

    def popitem(self):
        """Removes the item that was set last."""
        with self._changing():
            if not self._index:
                raise KeyError("popitem(): dictionary is empty")
            key, place = next(reversed(self._index.items()))
            value = self._value(place)
            self._append([_record(key, _MISSING)])
        return key, value

    def clear(self):
        """Removes all items."""
        with self._changing():
            self._append([_record(key, _MISSING) for key in self._index])

    def unlink(self):
        """Removes the name; who has it goes on. Raises ``FileNotFoundError`` if it is gone."""
        with self._reading():
            log = self._name(self._generation)
        retrying(lambda mesh: mesh.remove(self._full))
        retrying(lambda mesh: mesh.remove(log))

    @contextlib.contextmanager
    def _reading(self):
        with self._local:
            self._follow()
            yield

    @contextlib.contextmanager
    def _changing(self):
        with _Held(self._native), self._reading():
            yield

    def _name(self, generation):
        return _log_name(self._full, generation)

    def _follow(self):
        """Notes what others have changed."""
        while (generation := self._memory.load(_GENERATION)) != self._generation:
            try:
                self._open(retrying(lambda mesh: mesh.open(self._name(generation))), generation)
            except errors.SegmentNotFoundError:
                if self._memory.load(_GENERATION) == generation:
                    raise
        end = self._log.load(_END)
        while self._followed < end:
            self._note()

    def _open(self, segment, generation):
        memory = segment.map()
        self._log, self._view = memory, memoryview(memory)
        self._index, self._followed, self._generation = {}, _BEGIN, generation

    def _note(self):
        """Notes one change."""
        at = self._followed + _LENGTHS.size
        key_bytes, value_bytes = _LENGTHS.unpack(bytes(self._view[self._followed : at]))
        key = pickle.loads(self._view[at : at + key_bytes])
        if value_bytes == _DELETED:
            self._index.pop(key, None)
            value_bytes = 0
        else:
            self._index[key] = (at + key_bytes, value_bytes)
        self._followed = at + key_bytes + value_bytes

    def _value(self, place):
        start, length = place
        return pickle.loads(self._view[start : start + length])

    def _append(self, records):
        """Changes items, all at once. The lock is held, and all is followed."""
        size = sum(map(len, records))
        if self._followed + size > len(self._view):
            self._replace(size)
        at = self._followed
        for record in records:
            self._view[at : at + len(record)] = record
            at += len(record)
        self._log.store(_END, at)
        self._follow()

    def _replace(self, room=0):
        """Begins a log of the next generation with what is still there. The lock is held."""
        kept = [_joined(_pickling.dumps(key), self._bytes(place)) for key, place in self._index.items()]
        size = max(self._capacity, 2 * (_BEGIN + sum(map(len, kept)) + room))
        generation, old = self._memory.load(_GENERATION) + 1, self._generation
        name = self._name(generation)
        with contextlib.suppress(errors.SegmentNotFoundError):  # of a process that died here
            retrying(lambda mesh: mesh.remove(name))
        self._open(retrying(lambda mesh: mesh.create(name, size, mode=self._mode)), generation)
        at = _BEGIN
        for record in kept:
            self._view[at : at + len(record)] = record
            at += len(record)
        self._log.store(_END, at)
        self._memory.store(_GENERATION, generation)
        if old:
            with contextlib.suppress(errors.SegmentNotFoundError):
                retrying(lambda mesh: mesh.remove(self._name(old)))
        self._follow()

    def _bytes(self, place):
        start, length = place
        return bytes(self._view[start : start + length])


def _record(key, value):
    """A change: a key and its value, or that it was deleted."""
    hash(key)
    if value is _MISSING:
        data = _pickling.dumps(key)
        return _LENGTHS.pack(len(data), _DELETED) + data
    return _joined(_pickling.dumps(key), _pickling.dumps(value))


def _joined(key, value):
    return _LENGTHS.pack(len(key), len(value)) + key + value


def _log_name(full, generation):
    return f"{full}.{generation}"


def _forget(full, maker):
    if os.getpid() == maker:
        with contextlib.suppress(Exception):  # gone already, or its node is
            segment = retrying(lambda mesh: mesh.open(full))
            generation = segment.map().load(_GENERATION)
            retrying(lambda mesh: mesh.remove(full))
            retrying(lambda mesh: mesh.remove(_log_name(full, generation)))
