"""What goes wrong, each with its cause and its cure.

All exceptions of this package are :class:`Error`, and most are also the built-in
exception that a program would catch for the same trouble with files.
"""

import errno
import os
from concurrent.futures import BrokenExecutor

__all__ = [
    "Error",
    "NoDaemonError",
    "DaemonGoneError",
    "NodeGoneError",
    "SegmentNotFoundError",
    "SegmentExistsError",
    "SegmentPermissionError",
    "KernelError",
    "OutOfMemoryError",
    "LimitError",
    "MismatchError",
    "CorruptHeaderError",
    "LostPageError",
    "ClosedError",
    "PipeClosedError",
    "PeerDiedError",
    "BrokenExecutorError",
]


class Error(Exception):
    """Any failure of PageMesh."""


class NoDaemonError(Error, ConnectionRefusedError):
    """No daemon answers on this host. Start one, or set ``PAGEMESH_SOCKET``."""


class DaemonGoneError(Error, ConnectionResetError):
    """The daemon of this host stopped, or does not answer. Start it, then connect anew."""


class NodeGoneError(Error, OSError):
    """A node that must answer is dead, or this node belongs to no cluster any more."""


class SegmentNotFoundError(Error, FileNotFoundError):
    """No segment of that name. ``pagemesh segment ls`` shows what there is."""


class SegmentExistsError(Error, FileExistsError):
    """A segment of that name exists already."""


class SegmentPermissionError(Error, PermissionError):
    """Owner, group and mode of the segment do not allow it."""


class KernelError(Error, PermissionError):
    """The kernel lets nobody serve this process's page faults. ``pagemesh doctor`` says more."""


class OutOfMemoryError(Error, MemoryError):
    """The segment cannot be mapped: no address space or memory is left."""


class LimitError(Error, OSError):
    """A limit of the daemon was reached."""


class MismatchError(Error, ValueError):
    """What is there has another shape, dtype, order or kind than asked for."""


class CorruptHeaderError(Error, ValueError):
    """The segment is no array, or what describes the array makes no sense."""


class BrokenExecutorError(Error, BrokenExecutor):
    """A worker of a :class:`pagemesh.Executor` died, or its node. What was submitted is not done."""


class PipeClosedError(Error, EOFError, BrokenPipeError):
    """The process at the other end of a pipe has closed it, and what it sent has been received."""


class PeerDiedError(Error, EOFError, ConnectionResetError):
    """The process at the other end of a pipe died, or its node; what it sent has been received."""


class LostPageError(Error, OSError):
    """A page that can never be served again: the only node that had it died.

    Raised in the thread that touched it, by the instruction of Python that did. Native code
    that touched it finishes its call with bytes of ``0xFF`` before: drop what it stored. Where the
    exception cannot be raised, the process ends with a message (docs/python.md).
    """

    def __init__(self, *args):
        super().__init__(*(args or (errno.EFAULT, _explain_loss())))


class ClosedError(Error, ValueError):
    """Memory of a segment was touched after the segment was closed.

    A numpy array does not keep ``SharedMemory.close`` from closing what it points to. Raised
    as :class:`LostPageError` is; nothing is read, and nothing is written.
    """

    def __init__(self, *args):
        super().__init__(*(args or (_explain_closed(),)))


def _explain_loss():
    from . import _mesh

    faults = _faults()
    if not faults:
        return "an access to a segment could not be served"
    name, page, node, _ = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    owner = _mesh.owner(name, page)
    had = "" if owner is None else f"; node {owner} had it last, as far as is known there"
    return (
        f"page {page}{more} of segment {name!r} is lost to node {node}{had}: a node died or left, "
        "or the daemon here is gone. Make the segment anew, or go on without the page; "
        "`pagemesh status` says how the cluster is"
    )


def _explain_closed():
    faults = _faults()
    if not faults:
        return "the segment is closed"
    name, page, node, _ = faults[0]
    return (
        f"page {page} of segment {name!r} was touched on node {node} after the segment was "
        "closed; drop the arrays over it first, or keep it open"
    )


def _faults():
    """What this thread touched in vain, for an exception made by the interpreter."""
    from . import _pagemesh

    return _pagemesh.take_faults()


def plain(number, name):
    """The error of the operating system for a name, as the standard library raises it."""
    return OSError(number, os.strerror(number), name)


_KINDS = {
    "no-daemon": (NoDaemonError, errno.ECONNREFUSED),
    "daemon-gone": (DaemonGoneError, errno.ECONNRESET),
    "daemon-silent": (DaemonGoneError, errno.ETIMEDOUT),
    "forked": (DaemonGoneError, errno.ESTALE),
    "pipe-closed": (PipeClosedError, errno.EPIPE),
    "peer-died": (PeerDiedError, errno.EOWNERDEAD),
    "not-found": (SegmentNotFoundError, errno.ENOENT),
    "exists": (SegmentExistsError, errno.EEXIST),
    "permission": (SegmentPermissionError, errno.EACCES),
    "bad-size": (LimitError, errno.EFBIG),
    "limit": (LimitError, errno.ENOSPC),
    "node-gone": (NodeGoneError, errno.EHOSTDOWN),
    "not-member": (NodeGoneError, errno.ENETDOWN),
    "no-userfaultfd": (KernelError, errno.EPERM),
}


# What helps, where the native half's words end with the cause.
_CURES = {
    "permission": "`pagemesh segment ls` shows whose it is; its maker chooses `mode`",
    "map": "close other segments, or raise the limits of memory (`ulimit -v`)",
    "node-gone": "`pagemesh status` says how the cluster is; start the daemon there again, or make the "
    "segment anew under another name",
}


def make(kind, message, name=None):
    """The exception for a failure of the native half. Called from there."""
    if kind in _CURES:
        message = f"{message}; {_CURES[kind]}"
    if kind == "timed-out":
        return TimeoutError(errno.ETIMEDOUT, message)
    if kind == "interrupted":
        return InterruptedError(errno.EINTR, message)
    if kind == "invalid":
        return ValueError(message)
    if kind == "map":
        return OutOfMemoryError(message)
    if kind not in _KINDS:
        return Error(message)
    exception, number = _KINDS[kind]
    return exception(number, message) if name is None else exception(number, message, name)
