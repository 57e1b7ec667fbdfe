"""The one connection of this process to the daemon of its host."""

import os
import threading

from . import _pagemesh, errors

_lock = threading.Lock()
_mesh = None
_raises = False


def _nothing():
    """Called to see whether the interpreter calls trace functions."""


def _after_fork():
    """The lock may have been held by a thread that the child does not have."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def mesh():
    """The connection, made when first asked for; a forked child inherits it."""
    global _mesh, _raises
    with _lock:
        if not _raises:
            # Classes are made without arguments, by the interpreter.
            _pagemesh.raise_in_threads(errors.LostPageError, errors.ClosedError, _nothing)
            _raises = True
        if _mesh is None:
            _mesh = _pagemesh.Mesh()
        return _mesh


def anew():
    """Forgets the connection, for a daemon that is gone."""
    global _mesh
    with _lock:
        _mesh = None


def retrying(work):
    """Does ``work(mesh)``, once more if the daemon has been replaced in between."""
    try:
        return work(mesh())
    except errors.DaemonGoneError:
        anew()
        return work(mesh())


def owner(name, page):
    """The node that probably has a page; ``None`` if nobody can say."""
    try:
        return mesh().owner(name, page)
    except Exception:  # an explanation must not fail
        return None
