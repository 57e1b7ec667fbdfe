"""Processes that work together: who they are, and how they are started."""

import contextlib
import os
import pickle
import secrets
import shutil
import subprocess
import sys
import traceback
from multiprocessing import spawn as _spawn

from . import _pickling, errors
from ._mesh import mesh, retrying
from .shared_memory import SharedMemory

__all__ = ["Workers", "barrier", "nodes", "rank", "size", "spawn"]

_job = None


def _this_job():
    global _job
    if _job is None:
        _job = mesh().job()
    return _job


def rank():
    """This process's number in its job, from 0; 0 if it was started alone."""
    return _this_job().rank


def size():
    """How many processes the job has; 1 if this one was started alone."""
    return _this_job().size


def nodes():
    """The numbers of the living nodes of the cluster."""
    return retrying(lambda mesh: mesh.alive())


def barrier(timeout=None, *, number=0):
    """Waits until all processes of the job are here.

    What any of them stored before, all load after. Raises ``TimeoutError`` after ``timeout`` seconds, in
    which case this process has not arrived. Each ``number`` is a barrier of its own.
    """
    job = _this_job()
    if not job.segment.barrier(number, job.size).wait(timeout):
        raise TimeoutError(f"not all {job.size} processes of the job came within {timeout} s")


class Workers:
    """Processes that :func:`spawn` started."""

    def __init__(self, function, n, args):
        self.size = len(nodes()) if n is None else n
        if self.size < 1:
            raise ValueError("there must be at least one worker")
        self._token = f"spawn.{secrets.token_hex(8)}"
        work = pickle.dumps((_preparation(), _pickling.dumps((function, args))))
        command = [_program(), "run", "-n", str(self.size), "--"]
        command += [sys.executable, "-m", "pagemesh._worker", self._token]
        try:
            _put(self._token, work).close()
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        except BaseException:
            self._forget()
            raise

    def join(self, timeout=None):
        """Waits for all workers; what their functions returned, in order.

        Raises the exception of the first worker that failed, with its traceback as a note, or
        ``subprocess.TimeoutExpired`` after ``timeout`` seconds, while the workers go on.
        """
        try:
            code = self._process.wait(timeout)
        except KeyboardInterrupt:
            self.terminate()
            raise
        try:
            outcomes = [_outcome(name) for name in self._outcomes()]
        finally:
            self._forget()
        for number, outcome in enumerate(outcomes):
            if outcome is not None and not outcome[0]:
                _, exception, trace = outcome
                exception.add_note(f"in worker {number}:\n{trace}")
                raise exception
        if None in outcomes or code:
            raise errors.Error(
                f"worker {outcomes.index(None) if None in outcomes else '?'} of {self.size} ended "
                f"without a result (exit code {code}); what it said is on standard error"
            )
        return [outcome[1] for outcome in outcomes]

    def poll(self):
        """The exit code once all workers have ended, else ``None``."""
        return self._process.poll()

    def terminate(self):
        """Ends all workers."""
        try:
            self._process.terminate()
            self._process.wait()
        finally:
            self._forget()

    def _outcomes(self):
        """The names of the segments with what the workers' functions returned, or raised."""
        return [f"{self._token}.{number}" for number in range(self.size)]

    def _forget(self):
        """Removes the segments that this process made, and those that its workers did."""
        for name in (self._token, *self._outcomes()):
            with contextlib.suppress(FileNotFoundError):
                retrying(lambda mesh, name=name: mesh.remove(name))


def spawn(fn, n=None, args=(), *, join=True):
    """Runs ``fn(rank, *args)`` in ``n`` new processes on the nodes of the cluster, in turn.

    One on each node if ``n`` is not given. ``fn`` is importable there, from the same path, as with
    :mod:`multiprocessing` and its method "spawn"; so ``if __name__ == "__main__":`` is needed around
    the call in a file. With cloudpickle, ``fn`` may also be typed interactively, or be a lambda. Arrays,
    segments and locks in ``args`` go by name.

    Returns the results in order, or the :class:`Workers` if not to ``join`` them. An exception in
    a worker is raised here.
    """
    workers = Workers(fn, n, tuple(args))
    return workers.join() if join else workers


def _preparation():
    """What makes a new interpreter like this one."""
    data = _spawn.get_preparation_data("worker")
    # A secret of this process and its children, that must not lie in memory of the cluster.
    data.pop("authkey", None)
    if _pickling.is_interactive():
        data.pop("init_main_from_path", None)  # of no file
    return data


def _program():
    """The command line that belongs to this package."""
    beside = os.path.join(os.path.dirname(sys.executable), "pagemesh")
    found = beside if os.access(beside, os.X_OK) else shutil.which("pagemesh")
    if found is None:
        raise FileNotFoundError("there is no program `pagemesh` beside Python or in PATH")
    return found


def _put(name, data):
    """A segment with these bytes, and how many they are, which is written last."""
    segment = SharedMemory(name, create=True, size=8 + len(data))
    segment.buf[8:] = data
    segment.buf[:8] = len(data).to_bytes(8, "little")
    return segment


def _outcome(name):
    """The outcome of a worker; ``None`` if it left none, or was ended while it wrote it."""
    try:
        segment = SharedMemory(name)
    except FileNotFoundError:
        return None
    try:
        data = _get(segment)
        return pickle.loads(data) if data else None
    except errors.LostPageError:
        return None
    finally:
        segment.close()


def _get(segment):
    length = int.from_bytes(segment.buf[:8], "little")
    return bytes(segment.buf[8 : 8 + length])


def work(token):
    """What a worker does: the whole life of its process."""
    segment = SharedMemory(token)
    preparation, call = pickle.loads(_get(segment))
    segment.close()
    code = 0
    try:
        _spawn.prepare(preparation)
        function, args = pickle.loads(call)
        data = _pickling.dumps((True, function(rank(), *args)))
    except Exception as error:
        trace = traceback.format_exc()
        data = _portable(error, trace)
        code = 1
    _put(f"{token}.{rank()}", data).close()
    return code


def _portable(error, trace):
    """A failure that another process can read, whatever the exception is like."""
    try:
        data = _pickling.dumps((False, error, trace))
        pickle.loads(data)
        return data
    except Exception:
        return pickle.dumps((False, errors.Error(f"{type(error).__name__}: {error}"), trace))
