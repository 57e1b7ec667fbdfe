"""Locks and their kin, with the interface of :mod:`threading`, for all processes of the cluster.

Each has a name; who gives the same name means the same one. Without a name a new one is made,
which other processes get by pickling (as an argument of :func:`pagemesh.spawn`, say), and whose
name goes when its maker drops it. Named ones stay until :meth:`unlink`.

All times are seconds. Waiting lets other threads run and ends at Ctrl-C. A process that dies gives
back its locks.
"""

import hashlib
import os
import secrets
import threading
import time
import weakref
from threading import BrokenBarrierError

from . import errors
from ._mesh import retrying

__all__ = [
    "Barrier",
    "BoundedSemaphore",
    "BrokenBarrierError",
    "Condition",
    "Event",
    "Lock",
    "RLock",
    "Semaphore",
]

# Where things are in the segment of such an object, in bytes.
_PARAMETER, _STATE, _EPOCH = 8, 64, 72

# How long a party waits before it looks whether its barrier is broken.
_LOOK = 0.2


class _Named:
    """Something in a small segment of its own."""

    _kind = ""

    def __init__(self, name, mode, parameter=None, *, size=4096):
        if name == "":
            raise ValueError(f"a {self._kind} has no empty name: leave the name out for a new one")
        self.name = secrets.token_hex(8) if name is None else name
        self._full = f"{self._kind}.{self.name}"
        self._segment = retrying(lambda mesh: mesh.create(self._full, size, mode=mode, exclusive=False))
        self._mode = mode
        self._native = self._segment.lock(1)
        self._memory = None
        if name is None:
            self.unlink = weakref.finalize(self, _forget, self._full, os.getpid())
        if parameter is not None:
            self._memory = self._segment.map()
            self._agree(parameter)

    def _agree(self, parameter):
        """All makers must mean the same; the first one is right."""
        with _Held(self._native):
            known = self._memory.load(_PARAMETER)
            if known == 0:
                self._memory.store(_STATE, self._first(parameter))
                self._memory.store(_PARAMETER, parameter + 1)
            elif known != parameter + 1:
                raise errors.MismatchError(
                    f"the {self._kind} {self.name!r} was made with {known - 1}, not {parameter}: "
                    "give the same number everywhere, or another name"
                )

    def _first(self, parameter):
        """The state to begin with."""
        return 0

    def unlink(self):
        """Removes the name; who has it goes on. Raises ``FileNotFoundError`` if it is gone."""
        retrying(lambda mesh: mesh.remove(self._full))

    def __repr__(self):
        return f"{type(self).__name__}({self.name!r})"


def _forget(name, maker):
    if os.getpid() == maker:
        try:
            retrying(lambda mesh: mesh.remove(name))
        except Exception:  # gone already, or its node is
            pass


class Lock(_Named):
    """A lock. One process of the cluster holds it; any of its threads may release it.

    ``recovered`` tells whether the holder before the last :meth:`acquire` died with the lock: what it
    guards may be half-written.
    """

    _kind = "lock"

    def __init__(self, name=None, *, mode=0o600):
        super().__init__(name, mode)
        self.recovered = False

    def __reduce__(self):
        return type(self), (self.name,)

    def acquire(self, blocking=True, timeout=-1):
        """Takes the lock; whether that went well. ``timeout`` in seconds, -1 for ever."""
        if timeout != -1 and not blocking:
            raise ValueError("can't specify a timeout for a non-blocking call")
        if timeout < 0 and timeout != -1:
            raise ValueError("timeout value must be a non-negative number")
        limit = None if timeout == -1 else timeout
        taken, self.recovered = self._native.acquire(bool(blocking), limit)
        return taken

    def release(self):
        """Gives it back. Raises ``RuntimeError`` if this object does not hold it."""
        if not self._native.release():
            raise RuntimeError("release unlocked lock")

    def locked(self):
        """Whether anybody in the cluster holds it."""
        if self._native.held():
            return True
        taken, _ = self._native.acquire(False)
        if taken:
            self._native.release()
        return not taken

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()

    def _is_owned(self):
        return self._native.held()

    def _release_save(self):
        return None

    def _acquire_restore(self, _state):
        pass


class OwnLock(Lock):
    """A lock that belongs to an array; made by :meth:`pagemesh.Array.lock`."""

    def __init__(self, array, native, number):
        self.name = f"{array}, {number}"
        self._native = native
        self.recovered = False

    def __reduce__(self):
        raise TypeError("pass the array on, and take its lock there")

    def unlink(self):
        raise TypeError("it goes with its array")


class RLock(Lock):
    """A lock that the thread which holds it may take again; it must release it as often."""

    def __init__(self, name=None, *, mode=0o600):
        super().__init__(name, mode=mode)
        self._owner = None
        self._count = 0

    def acquire(self, blocking=True, timeout=-1):
        """As :meth:`Lock.acquire`; at once if this thread holds it."""
        if self._is_owned():
            self._count += 1
            return True
        taken = super().acquire(blocking, timeout)
        if taken:
            self._acquire_restore(1)
        return taken

    def release(self):
        """Gives it back once. Raises ``RuntimeError`` if this thread does not hold it."""
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if self._count == 0:
            self._owner = None
            super().release()

    def _is_owned(self):
        return self._owner == (os.getpid(), threading.get_ident())

    def _release_save(self):
        count, self._count, self._owner = self._count, 0, None
        return count

    def _acquire_restore(self, count):
        self._owner = (os.getpid(), threading.get_ident())
        self._count = count


class Condition:
    """A condition variable over a lock: an :class:`RLock` of its own if none is given.

    Several may share one lock. A notification is for those who wait at that moment.
    """

    def __init__(self, lock=None, name=None):
        if lock is not None and not isinstance(lock, Lock):
            raise TypeError("the lock of a Condition is a pagemesh.Lock or pagemesh.RLock")
        if name == "":
            raise ValueError("a condition has no empty name: leave the name out for a new one")
        self._lock = RLock(name) if lock is None else lock
        self.name = name or secrets.token_hex(8)
        number = hashlib.blake2b(self.name.encode(), digest_size=8).digest()
        self._native = self._lock._segment.condition(int.from_bytes(number, "little"))

    def __reduce__(self):
        return type(self), (self._lock, self.name)

    def unlink(self):
        """Removes the name of its lock; who has it goes on."""
        self._lock.unlink()

    def __repr__(self):
        return f"Condition({self._lock!r}, {self.name!r})"

    def __enter__(self):
        return self._lock.__enter__()

    def __exit__(self, *args):
        return self._lock.__exit__(*args)

    def acquire(self, blocking=True, timeout=-1):
        """Takes the lock."""
        return self._lock.acquire(blocking, timeout)

    def release(self):
        """Gives the lock back."""
        self._lock.release()

    def wait(self, timeout=None):
        """Releases the lock, waits for a notification, and takes the lock again.

        Whether there was one within ``timeout`` seconds. Raises ``RuntimeError`` without the lock.
        """
        if not self._lock._is_owned():
            raise RuntimeError("cannot wait on un-acquired lock")
        saved = self._lock._release_save()
        try:
            return self._native.wait(self._lock._native, timeout)
        finally:
            if self._lock._native.held():
                self._lock._acquire_restore(saved)

    def wait_for(self, predicate, timeout=None):
        """Waits until ``predicate()`` is true; its last value."""
        end = None if timeout is None else time.monotonic() + timeout
        result = predicate()
        while not result:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
            result = predicate()
        return result

    def notify(self, n=1):
        """Wakes up to ``n`` waiters, on whatever nodes. Raises ``RuntimeError`` without the lock."""
        if not self._lock._is_owned():
            raise RuntimeError("cannot notify on un-acquired lock")
        for _ in range(n):
            if self._native.signal() == 0:
                break

    def notify_all(self):
        """Wakes all waiters. Raises ``RuntimeError`` without the lock."""
        if not self._lock._is_owned():
            raise RuntimeError("cannot notify on un-acquired lock")
        self._native.broadcast()


class Semaphore(_Named):
    """A count of ``value`` at first, which :meth:`acquire` lowers and :meth:`release` raises."""

    _kind = "semaphore"

    def __init__(self, value=1, name=None, *, mode=0o600):
        if value < 0:
            raise ValueError("semaphore initial value must be >= 0")
        self._initial = value
        super().__init__(name, mode, value)
        self._changed = self._segment.condition(1)

    def __reduce__(self):
        return type(self), (self._initial, self.name)

    def _first(self, parameter):
        return parameter

    def acquire(self, blocking=True, timeout=None):
        """Lowers the count, waiting while it is 0; whether that went well within ``timeout``."""
        if not blocking and timeout is not None:
            raise ValueError("can't specify timeout for non-blocking acquire")
        end = None if timeout is None else time.monotonic() + timeout
        with _Held(self._native):
            while (count := self._memory.load(_STATE)) == 0:
                left = None if end is None else end - time.monotonic()
                if not blocking or (left is not None and left <= 0):
                    return False
                self._changed.wait(self._native, left)
            self._memory.store(_STATE, count - 1)
            return True

    def release(self, n=1):
        """Raises the count by ``n``, and lets so many waiters on."""
        if n < 1:
            raise ValueError("n must be one or more")
        with _Held(self._native):
            count = self._memory.load(_STATE) + n
            self._check(count)
            self._memory.store(_STATE, count)
            for _ in range(n):
                if self._changed.signal() == 0:
                    break

    def _check(self, count):
        """Nothing is too much."""

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()


class BoundedSemaphore(Semaphore):
    """A semaphore whose count never rises above where it began."""

    _kind = "bounded-semaphore"

    def _check(self, count):
        if count > self._initial:
            raise ValueError("Semaphore released too many times")


class Event(_Named):
    """A flag to wait for. Looking at it costs nothing while nobody changes it."""

    _kind = "event"

    def __init__(self, name=None, *, mode=0o600):
        super().__init__(name, mode, 0)

    def __reduce__(self):
        return type(self), (self.name,)

    # The state counts changes: odd is set. So a short "set" is not missed.

    def is_set(self):
        """Whether the flag is set."""
        return self._memory.load(_STATE) % 2 == 1

    def set(self):
        """Sets the flag, and wakes all who wait."""
        self._make(1)

    def clear(self):
        """Clears the flag."""
        self._make(0)

    def wait(self, timeout=None):
        """Waits until the flag is set; whether it was within ``timeout`` seconds."""
        seen = self._memory.load(_STATE)
        if seen % 2 == 1:
            return True
        return self._memory.wait_change(_STATE, seen % 256, timeout) is not None

    def _make(self, wanted):
        with _Held(self._native):
            if self._memory.load(_STATE) % 2 != wanted:
                self._memory.add(_STATE, 1)


class Barrier(_Named):
    """A point at which ``parties`` threads, in whatever processes, wait for each other.

    ``action`` is called by one of them before all go on. A party that gives up, at its
    ``timeout`` or by an exception, breaks the barrier for all until :meth:`reset`.
    """

    _kind = "barrier"

    def __init__(self, parties, action=None, timeout=None, name=None, *, mode=0o600):
        if parties < 1:
            raise ValueError("parties must be > 0")
        self.parties = parties
        self._action = action
        self._timeout = timeout
        super().__init__(name, mode, parties)

    def __reduce__(self):
        return type(self), (self.parties, self._action, self._timeout, self.name)

    # The state counts arrivals; the epoch is odd while the barrier is broken, and
    # numbers the native barrier that parties meet at.

    def wait(self, timeout=None):
        """Waits for all parties; a number from 0 to ``parties`` - 1, another one for each.

        Raises :class:`threading.BrokenBarrierError` if the barrier is or gets broken.
        """
        timeout = self._timeout if timeout is None else timeout
        epoch = self._memory.load(_EPOCH)
        if epoch % 2 == 1:
            raise BrokenBarrierError
        number = self._memory.add(_STATE, 1) % self.parties
        try:
            if self._action is not None and number == self.parties - 1:
                self._action()
            self._meet(epoch, timeout)
        except BaseException:
            self._break(epoch)
            raise
        return number

    def _meet(self, epoch, timeout):
        native = self._segment.barrier(epoch, self.parties)
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _LOOK if end is None else min(_LOOK, end - time.monotonic())
            if native.wait(max(left, 0)):
                return
            if self._memory.load(_EPOCH) != epoch or (end and time.monotonic() >= end):
                raise BrokenBarrierError

    def abort(self):
        """Breaks the barrier: who waits, and who comes, gets an exception."""
        self._break(self._memory.load(_EPOCH))

    def reset(self):
        """Mends the barrier; who waits gets an exception."""
        with _Held(self._native):
            self._memory.store(_STATE, 0)
            self._memory.store(_EPOCH, (self._memory.load(_EPOCH) | 1) + 1)

    def _break(self, epoch):
        with _Held(self._native):
            if self._memory.load(_EPOCH) == epoch:
                self._memory.store(_EPOCH, epoch | 1)
                self._memory.store(_STATE, 0)

    @property
    def n_waiting(self):
        """How many parties wait, at this moment; none if it is broken."""
        return 0 if self.broken else self._memory.load(_STATE) % self.parties

    @property
    def broken(self):
        """Whether it is broken."""
        return self._memory.load(_EPOCH) % 2 == 1


class _Held:
    """A native lock, in a ``with``."""

    def __init__(self, lock):
        self._lock = lock

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()
