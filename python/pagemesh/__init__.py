"""Shared memory between ordinary processes on several hosts.

- :mod:`pagemesh.shared_memory`, :mod:`pagemesh.managers`: in place of the modules of
  :mod:`multiprocessing`.
- :func:`array`, :func:`attach`: numpy arrays that processes on all nodes share; :func:`redeem` opens one by a
  capability that another process has handed over.
- :class:`Lock`, :class:`RLock`, :class:`Semaphore`, :class:`BoundedSemaphore`, :class:`Barrier`,
  :class:`Event`, :class:`Condition`: as in :mod:`threading`, for the whole cluster.
- :func:`spawn`, :func:`rank`, :func:`size`, :func:`barrier`: processes that work together;
  :class:`Executor`: :mod:`concurrent.futures` on the nodes.
- :class:`Queue` and :class:`Dict`, as :class:`queue.Queue` and ``dict``, for the whole cluster.
- :class:`Board`: state that one process publishes and many watch, whole and always the newest.
- :class:`Windows`: all views of a segment of policy ``views``, chosen by bits of an address.
- :class:`Pipe`: messages between two processes; :class:`Group`: ``csend`` and ``crecv`` between many.
- :mod:`pagemesh.errors`: what goes wrong.

A daemon runs on each host (``pagemesh daemon``); ``pagemesh sandbox 3`` brings up three on one.
"""

from . import errors
from ._pagemesh import PAGE_SIZE
from ._pagemesh import VERSION as __version__
from .boards import Board, State
from .dicts import Dict
from .executor import Executor
from .jobs import Workers, barrier, nodes, rank, size, spawn
from .pipes import Group, Message, Pipe
from .queues import Queue
from .sync import (
    Barrier,
    BoundedSemaphore,
    BrokenBarrierError,
    Condition,
    Event,
    Lock,
    RLock,
    Semaphore,
)
from .windows import View, Windows, view_pointer

__all__ = [
    "PAGE_SIZE",
    "Array",
    "Barrier",
    "Board",
    "BoundedSemaphore",
    "BrokenBarrierError",
    "Condition",
    "Dict",
    "Event",
    "Executor",
    "Group",
    "Lock",
    "Message",
    "Pipe",
    "Private",
    "Queue",
    "RLock",
    "Release",
    "Semaphore",
    "Sequential",
    "State",
    "View",
    "Views",
    "Windows",
    "Workers",
    "__version__",
    "array",
    "attach",
    "barrier",
    "counters",
    "errors",
    "nodes",
    "rank",
    "redeem",
    "segments",
    "size",
    "spawn",
    "unlink",
    "view_pointer",
]

# They need numpy, which not everybody has.
_WITH_NUMPY = ("Array", "Private", "Release", "Sequential", "Views", "array", "attach", "redeem")


def __getattr__(name):
    if name not in _WITH_NUMPY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from . import arrays
    except ModuleNotFoundError as missing:
        if missing.name != "numpy":
            raise
        why = f"pagemesh.{name} needs numpy: pip install 'pagemesh[numpy]'"
        raise ImportError(why, name="numpy") from missing
    return getattr(arrays, name)


def __dir__():
    return __all__


def unlink(name):
    """Removes a segment's name, in the whole cluster. Who has it open keeps it.

    Raises :class:`errors.SegmentNotFoundError` if there is none.
    """
    from ._mesh import retrying

    retrying(lambda mesh: mesh.remove(name))


def segments(*, arrays=False):
    """All segments of the cluster: dictionaries with ``name``, ``size`` in bytes, ``mode``, ``home``,
    ``owner`` (user and group), ``policy`` (its name and parameters) and on how many nodes each is
    ``attached``.

    With ``arrays``, also ``array``: ``shape``, ``dtype`` and ``order`` of a segment that holds one, else
    ``None``. That touches the first page of each segment that this process may read.
    """
    from ._mesh import retrying

    listed = retrying(lambda mesh: mesh.list())
    if arrays:
        from .arrays import described

        for segment in listed:
            segment["array"] = described(segment["name"])
    return listed


def counters():
    """What this node's daemon has counted since it started, by name (see docs/operating.md)."""
    from ._mesh import retrying

    return retrying(lambda mesh: mesh.counters())
