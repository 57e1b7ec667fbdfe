"""Removes segments that no process of a tree has unlinked, once all of its processes have ended.

What :mod:`multiprocessing.resource_tracker` does for the standard library's segments: the first process
that tracks a segment starts a process of its own for that, and its children by :mod:`multiprocessing`
use the same one. It ends with the last of them, however they end, and removes what is left.
"""

import contextlib
import json
import multiprocessing
import os
import secrets
import selectors
import socket
import struct
import subprocess
import sys
import threading
import warnings
from pathlib import Path

from . import errors

# Where the children of this process find its tracker.
_VARIABLE = "PAGEMESH_TRACKER"

# No message is longer: a name of 255 bytes and the path of a socket.
_LONGEST_BYTES = 4096

_lock = threading.Lock()
_connection = None


def wanted(track):
    """Whether to track: as the caller says, else as ``PAGEMESH_TRACK`` says, else not."""
    if track is not None:
        return bool(track)
    word = os.environ.get("PAGEMESH_TRACK", "").lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("", "0", "false", "no", "off"):
        return False
    raise ValueError(f"PAGEMESH_TRACK is 1 or 0, not {word!r}")


def register(name, kind="shared_memory", *, attached=False):
    """Has the segment removed at the end, unless it is unregistered before."""
    if attached and _is_child() and _VARIABLE not in os.environ and _connection is None:
        return  # the parent has made it, and tracks it if it wants to
    _say("register", name)


def unregister(name, kind="shared_memory"):
    """The segment has been unlinked."""
    _say("unregister", name)


def unlink(name):
    """Removes a segment, as ``shm_unlink`` does."""
    _remove(name, os.environ.get("PAGEMESH_SOCKET"))


# As in multiprocessing.resource_tracker.
_CLEANUP_FUNCS = {"shared_memory": unlink}


def _after_fork():
    """The lock may have been held by a thread that the child does not have."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _say(what, name):
    global _connection
    message = json.dumps([what, name, os.environ.get("PAGEMESH_SOCKET")]).encode()
    with _lock:
        if _connection is not None:
            try:
                _connection.send(message)
                return
            except OSError:  # somebody has ended it; the next one begins anew
                _connection.close()
                os.environ.pop(_VARIABLE, None)
        _connection = _inherited() or _started()
        _connection.send(message)


def _is_child():
    return multiprocessing.parent_process() is not None


def _inherited():
    """A connection to the tracker of the process that started this one."""
    address = os.environ.get(_VARIABLE)
    if address is None or not _is_child():
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect("\0" + address)
    except OSError:
        connection.close()
        return None
    return connection


def _started():
    """A connection to a new tracker."""
    address = f"pagemesh-tracker-{os.getpid()}-{secrets.token_hex(16)}"
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("\0" + address)
        listener.listen(64)
        connection.connect("\0" + address)
        above = str(Path(__file__).resolve().parents[1])
        path = os.pathsep.join([above, *filter(None, [os.environ.get("PYTHONPATH")])])
        subprocess.Popen(
            [sys.executable, "-m", "pagemesh._tracker", str(listener.fileno())],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the others
        ).returncode = 0  # it ends after this process, which does not wait for it
    os.environ[_VARIABLE] = address
    return connection


def main(number):
    """The tracker: listens until the last process is gone, then removes what is left."""
    left = _listen(socket.socket(fileno=number))
    if not left:
        return
    warnings.warn(
        f"resource_tracker: There appear to be {len(left)} leaked shared_memory objects to clean up at "
        f"shutdown: {sorted({name for name, _ in left})}",
        stacklevel=1,
    )
    for name, path in sorted(left, key=str):
        try:
            _remove(name, path)
        except Exception as error:
            warnings.warn(f"resource_tracker: {name!r}: {error}", stacklevel=1)


def _listen(listener):
    """The segments that are registered when the last process is gone."""
    left = set()
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        processes = 0
        while True:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    if _is_ours(connection):
                        selector.register(connection, selectors.EVENT_READ)
                        processes += 1
                    else:
                        connection.close()
                    continue
                with contextlib.suppress(OSError):
                    if message := key.fileobj.recv(_LONGEST_BYTES):
                        _note(left, message)
                        continue
                selector.unregister(key.fileobj)
                key.fileobj.close()
                processes -= 1
            if processes == 0 and not selector.select(0):
                return left


def _note(left, message):
    what, name, path = json.loads(message)
    if what == "register":
        left.add((name, path))
    else:
        left.discard((name, path))


def _is_ours(connection):
    """Whether it is a process of the same user. Others have no business here."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1] == os.getuid()


def _remove(name, path):
    from ._pagemesh import Mesh

    try:
        Mesh(path).remove(name.lstrip("/"))
    except (FileNotFoundError, PermissionError) as error:
        raise errors.plain(error.errno, name) from None


if __name__ == "__main__":
    main(int(sys.argv[1]))
