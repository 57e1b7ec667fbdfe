"""Pipes: messages between two processes; groups: messages between many."""

from dataclasses import dataclass

from ._mesh import mesh

__all__ = ["Group", "Message", "Pipe"]


class _Closes:
    """Closed at the end of a ``with`` block."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Pipe(_Closes):
    """One end of a pipe of the cluster; two processes open the same name.

    ``size`` is the longest message in bytes, up to 16 MiB; the first maker decides on it and on
    ``mode``. With ``create=False`` an existing pipe is opened. ``end`` is ``"first"``, ``"second"``, or
    ``"free"`` for one that is not open.

    Messages are bytes, and arrive whole and in order. Both ends may send and receive, from several
    threads. A message waits until the other end has read it: :meth:`send` waits for the one before.
    """

    def __init__(self, name, size=4032, *, mode=0o600, end="free", create=True):
        self.name = name
        self._pipe = mesh().open_pipe(name, size if create else None, mode=mode, end=end)

    @property
    def size(self):
        """Bytes of the longest message."""
        return self._pipe.size

    @property
    def peer(self):
        """What is known of the other end: ``"absent"``, ``"open"``, ``"closed"`` or ``"dead"``."""
        return self._pipe.peer

    def send(self, message, timeout=None):
        """Sends bytes, or anything with a buffer. Raises :class:`TimeoutError` with nothing sent.

        Raises :class:`errors.PipeClosedError` or :class:`errors.PeerDiedError` if the other end was
        closed, or its process died.
        """
        self._pipe.send(_bytes(message), timeout)

    def receive(self, timeout=None):
        """The next message. When there is none left, raises as :meth:`send`."""
        return self._pipe.receive(timeout)

    def close(self):
        """Closes this end, and tells the other one. A message that was not read stays."""
        self._pipe.close()


@dataclass(frozen=True)
class Message:
    """A message of a group: its kind, the number of its sender, and its bytes."""

    kind: int
    sender: int
    value: bytes


class Group(_Closes):
    """This process in a group of numbered processes that send each other messages.

    ``number`` and ``count`` are those of the process in its job (:func:`pagemesh.rank`,
    :func:`pagemesh.size`), unless they are given. ``size`` is the longest message in bytes, ``mode`` as
    of a file; all processes give the same.
    """

    def __init__(self, name, number=None, count=None, *, size=4032, mode=0o600):
        from . import jobs

        self.name = name
        self.number = jobs.rank() if number is None else number
        self.count = jobs.size() if count is None else count
        self._group = mesh().join_group(name, self.number, self.count, size=size, mode=mode)

    def csend(self, kind, message, to, timeout=None):
        """Sends bytes of a kind, a number from 0 on, to process ``to``, as :meth:`Pipe.send`."""
        self._group.csend(kind, _bytes(message), to, timeout)

    def crecv(self, kind=None, sender=None, timeout=None):
        """The next :class:`Message` of this kind from this sender; any, if ``None``.

        Messages of other kinds wait. Raises as :meth:`Pipe.receive` when no sender is left.
        """
        return Message(*self._group.crecv(kind, sender, timeout))

    def close(self):
        """Leaves the group: closes its pipes."""
        self._group.close()

    def unlink(self):
        """Removes the names of the group's pipes, in the whole cluster; before :meth:`close`."""
        self._group.remove()


def _bytes(message):
    return message if isinstance(message, bytes) else bytes(memoryview(message))
