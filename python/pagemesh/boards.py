"""Boards: state that one process publishes and many watch."""

from dataclasses import dataclass
from typing import Any

from ._mesh import mesh

__all__ = ["Board", "State"]


@dataclass(frozen=True)
class State:
    """A state of a board.

    ``value`` is a scalar or array of the board's dtype, or ``bytes``; ``age`` is the time in seconds
    since it was published, by the clocks of the two hosts; ``missed`` is how many states lie between
    the one read before and this one; ``writer`` is the node that published it; ``went_back`` says that
    newer states which were read before are lost with the nodes that had them.
    """

    value: Any
    number: int
    age: float
    missed: int
    writer: int
    went_back: bool = False


class Board:
    """A board of the cluster; the same name is the same board.

    ``of`` is a size in bytes, or a numpy dtype (with ``shape``, if a state is an array of them); the
    first maker decides on it, on ``mode``, on ``history``, how many states stay readable, and on
    ``replicas``: with 1, another node has the states, too, and they outlive their writer's node. Without
    ``of`` an existing board is opened, and its states are bytes. ``write=False`` opens it to read only.

    :meth:`publish` never waits for a reader. :meth:`read` gives the newest whole state. States are
    bytes of the publisher's memory, nothing is unpickled.
    """

    def __init__(self, name, of=None, *, shape=(), mode=0o600, history=1, replicas=0, write=True):
        self.name = name
        self._dtype, self._shape = None, shape
        if of is None or not write:
            size = None
        elif isinstance(of, int):
            size = of
        else:
            size = self._typed(of, shape)
        if of is not None and not isinstance(of, int):
            self._typed(of, shape)
        if size is None:
            self._board = mesh().open_board(name, write=write)
        else:
            options = {"mode": mode, "history": history, "replicas": replicas}
            self._board = mesh().create_board(name, size, **options)

    def _typed(self, of, shape):
        import numpy

        self._dtype = numpy.dtype(of)
        if self._dtype.hasobject:
            raise ValueError("a board has no Python objects: they are of use in their process only")
        self._shape = (shape,) if isinstance(shape, int) else tuple(shape)
        return self._dtype.itemsize * int(numpy.prod(self._shape, dtype=int))

    @property
    def size(self):
        """Bytes of the largest state."""
        return self._board.size

    def publish(self, value):
        """Publishes a state, and returns its number."""
        if self._dtype is not None:
            import numpy

            value = numpy.asarray(value, self._dtype)
            if value.shape != self._shape:
                raise ValueError(f"the board's states have shape {self._shape}, not {value.shape}")
            value = value.tobytes()
        return self._board.publish(bytes(value))

    def read(self):
        """The newest whole state; ``None`` if nothing was published yet."""
        return self._state(self._board.read())

    def history(self):
        """The last states, the oldest first."""
        return [self._state(told) for told in self._board.history()]

    def wait(self, newer_than=0, timeout=None):
        """Sleeps until there is a state with a greater number, and returns the newest number.

        ``None`` if ``timeout`` seconds pass before.
        """
        return self._board.wait(newer_than, timeout)

    def writer_is_gone(self):
        """Whether the process that published the state that was read last died, or closed the board.

        Its last state stays. ``False`` if nothing was read yet.
        """
        return self._board.writer_is_gone()

    def _state(self, told):
        if told is None:
            return None
        number, value, age, missed, writer, went_back = told
        if self._dtype is not None:
            import numpy

            value = numpy.frombuffer(value, self._dtype).reshape(self._shape)
            value = value if self._shape else value[()]
        return State(value, number, age, missed, writer, went_back)
