"""``multiprocessing.shared_memory`` for the processes of several hosts.

Change the import, and nothing else::

    from pagemesh.shared_memory import SharedMemory, ShareableList

Names are names of the whole cluster. What the standard library does, this does, down to the
exceptions; only the end of a segment differs, because processes of other hosts know nothing
of this host's resource tracker: a segment lives until :meth:`SharedMemory.unlink`, whoever
exits, and nothing warns. With ``track=True``, or ``PAGEMESH_TRACK=1`` in the environment, it is
tracked as the standard library does: when all processes of a tree that has tracked it have ended,
it is removed, with a warning.
"""

import errno
import importlib.util
import operator
import os
import secrets
from multiprocessing import shared_memory as _standard

from . import _tracker, errors
from ._mesh import retrying

__all__ = ["SharedMemory", "ShareableList"]

_USE_POSIX = True
_O_CREX = os.O_CREAT | os.O_EXCL
_SHM_SAFE_NAME_LENGTH = 14
_SHM_NAME_PREFIX = "/psm_"
_NAME_MAX = 255


def _make_filename():
    """A name that nobody has, most likely."""
    digits = _SHM_SAFE_NAME_LENGTH - len(_SHM_NAME_PREFIX)
    return _SHM_NAME_PREFIX + secrets.token_hex(digits // 2)


class SharedMemory(_standard.SharedMemory):
    """A block of memory, ``size`` bytes, that processes on all nodes share by its name.

    ``SharedMemory(create=True, size=...)`` makes one, ``SharedMemory(name)`` attaches to one.
    ``track`` says whether it is removed when this process and its relatives have ended: see the
    module. ``None`` leaves that to ``PAGEMESH_TRACK``.

    Raises what the standard library raises (``FileNotFoundError``, ``FileExistsError``,
    ``PermissionError``, ``ValueError``), and :class:`pagemesh.errors.NoDaemonError` if no daemon
    runs on this host.
    """

    _name = None
    _fd = -1
    _mmap = None
    _buf = None
    _flags = os.O_RDWR
    _mode = 0o600
    _track = False
    _prepend_leading_slash = True

    def __init__(self, name=None, create=False, size=0, *, track=None):
        if not size >= 0:
            raise ValueError("'size' must be a positive integer")
        self._track = _tracker.wanted(track)
        if create:
            self._flags = _O_CREX | os.O_RDWR
            if size == 0:
                raise ValueError("'size' must be a positive number different from zero")
            size = operator.index(size)
        if name is None and not self._flags & os.O_EXCL:
            raise ValueError("'name' can only be None if create=True")
        if name is None:
            segment = self._under_new_name(size)
        else:
            name = "/" + name if self._prepend_leading_slash else name
            segment = self._open(name, create, size)
            self._name = name
        try:
            self._mmap = segment.map()
        except errors.OutOfMemoryError:
            if create:
                self.unlink()
            raise errors.plain(errno.ENOMEM, None) from None
        self._size = segment.size
        self._buf = memoryview(self._mmap)
        if self._track:
            _tracker.register(self._name, attached=not create)

    def _under_new_name(self, size):
        while True:
            name = _make_filename()
            try:
                segment = self._open(name, True, size)
            except FileExistsError:
                continue
            self._name = name
            return segment

    def _open(self, name, create, size):
        """What ``shm_open``, ``ftruncate`` and ``fstat`` do together."""
        key = _key(name)
        if create and size > _LARGEST:
            raise OverflowError("Python int too large to convert to C long")
        try:
            if create or self._flags & os.O_EXCL:
                return retrying(lambda mesh: mesh.create(key, size, mode=self._mode))
            try:
                return retrying(lambda mesh: mesh.open(key))
            except errors.SegmentNotFoundError:
                if self._flags & os.O_CREAT:
                    raise ValueError("cannot mmap an empty file") from None
                raise
        except (FileNotFoundError, FileExistsError, PermissionError, errors.LimitError) as error:
            if isinstance(error, errors.KernelError):
                raise
            raise errors.plain(error.errno, name) from None

    def close(self):
        """Closes this access. The segment lives on.

        Raises ``BufferError`` while other memoryviews of it are in use.
        """
        if self._buf is not None:
            self._buf.release()
            self._buf = None
        if self._mmap is not None:
            self._mmap.close()
            self._mmap = None

    def unlink(self):
        """Removes the name, in the whole cluster. Who has the segment open keeps it.

        Raises ``FileNotFoundError`` if it has been removed already.
        """
        if self._name:
            try:
                retrying(lambda mesh: mesh.remove(_key(self._name)))
            except (FileNotFoundError, PermissionError) as error:
                raise errors.plain(error.errno, self._name) from None
            if self._track:
                _tracker.unregister(self._name)


_LARGEST = (1 << 63) - 1


def _key(name):
    """The segment's name: what ``shm_open`` makes of it."""
    key = name.lstrip("/")
    if "\0" in key:
        raise ValueError("embedded null character")
    if not key or "/" in key or len(os.fsencode(key)) > _NAME_MAX:
        raise errors.plain(errno.EINVAL, name)
    return key


def _shareable_list():
    """The standard library's list, over segments of ours.

    Its bytes, corner cases and messages are those of the running Python, because it is the
    running Python's: a copy of the module, in which ``SharedMemory`` is another class.
    """
    spec = importlib.util.find_spec("multiprocessing.shared_memory")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.SharedMemory = SharedMemory
    return module.ShareableList


class ShareableList(_shareable_list()):
    """A list of ``int``, ``float``, ``bool``, ``str``, ``bytes`` and ``None``, shared by its name.

    Its length is fixed, and a ``str`` or ``bytes`` gets no longer than when it was made (rounded
    up to 8 bytes). Items may be changed from any node; each read sees the latest write.
    """
