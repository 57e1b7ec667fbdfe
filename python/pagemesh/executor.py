"""``concurrent.futures`` on the nodes of the cluster."""

import collections
import concurrent.futures
import contextlib
import functools
import itertools
import pickle
import queue
import secrets
import threading
import traceback

from . import _pickling, errors
from .jobs import Workers, nodes
from .queues import Queue
from .sync import Lock

__all__ = ["Executor"]

# So often is looked, in seconds, whether the workers and the process that started them are alive.
_LOOK = 0.5

# Beside the tasks that run, so many wait in the workers' queue, so that no worker waits for one.
_AHEAD = 1


class Executor(concurrent.futures.Executor):
    """Runs functions in ``max_workers`` processes on the nodes in turn, one on each if not given.

    The interface is that of :class:`concurrent.futures.ProcessPoolExecutor`. Arrays of
    :func:`pagemesh.array` and all that has a name in the cluster go by that. Functions are importable
    on all nodes, as for :func:`pagemesh.spawn`. An exception of a task is raised by its future, with the
    worker's traceback as its cause. If a worker or its node dies, all futures that are not done raise
    :class:`pagemesh.errors.BrokenExecutorError`, as does :meth:`submit` from then on.

    ``initializer(*initargs)`` is called in each worker first.
    """

    def __init__(self, max_workers=None, *, initializer=None, initargs=()):
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._size = len(nodes()) if max_workers is None else max_workers
        self._lock = threading.Lock()
        self._waiting = collections.deque()  # (number, future, call)
        self._running = {}
        self._numbers = itertools.count()
        self._closing, self._broken = False, None
        token = f"executor.{secrets.token_hex(8)}"
        self._calls, self._results = Queue(name=f"{token}.calls"), Queue(name=f"{token}.results")
        self._lives = [Lock(f"{token}.{rank}") for rank in range(self._size)]
        self._life = Lock(f"{token}.life")
        self._life.acquire()
        begin = _pickling.dumps((initializer, initargs))
        arguments = (self._calls, self._results, self._life, self._lives, begin)
        self._workers = Workers(_serve, self._size, arguments)
        self._started = set()
        self._manager = threading.Thread(target=self._manage, name="pagemesh-executor")
        self._manager.start()

    def submit(self, fn, /, *args, **kwargs):
        """Has ``fn(*args, **kwargs)`` called by a worker; a :class:`concurrent.futures.Future`."""
        call = _pickling.dumps((fn, args, kwargs))
        future = concurrent.futures.Future()
        with self._lock:
            if self._broken is not None:
                raise self._broken
            if self._closing:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append((next(self._numbers), future, call))
            self._feed()
        return future

    def map(self, fn, *iterables, timeout=None, chunksize=1):
        """As the built-in ``map``, by the workers; ``chunksize`` items go to one at a time."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        chunks = _chunks(zip(*iterables, strict=False), chunksize)
        results = super().map(functools.partial(_all, fn), chunks, timeout=timeout)
        return itertools.chain.from_iterable(results)

    def shutdown(self, wait=True, *, cancel_futures=False):
        """Takes no more tasks; the workers end after the last one, which is waited for or not."""
        with self._lock:
            self._closing = True
            if cancel_futures:
                for _, future, _ in self._waiting:
                    future.cancel()
        if wait:
            self._manager.join()

    def _feed(self):
        """Gives tasks to the workers. The lock is held."""
        while self._waiting and len(self._running) < self._size + _AHEAD:
            number, future, call = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            self._running[number] = future
            try:
                self._calls.put((number, call))
            except BaseException as error:
                del self._running[number]
                future.set_exception(error)

    def _manage(self):
        """What the manager's thread does: hands results out until there is nothing more to do."""
        try:
            while not self._is_done():
                try:
                    self._take(*self._results.get(timeout=_LOOK))
                except queue.Empty:
                    self._check()
            self._end()
        except BaseException as error:
            self._break(error)
        finally:
            self._forget()

    def _is_done(self):
        with self._lock:
            self._feed()
            ending = self._closing or not threading.main_thread().is_alive()
            return ending and not self._running and not self._waiting

    def _take(self, number, rank, outcome):
        """A result; without a number, a worker has begun."""
        if number is None:
            self._started.add(rank)
            if outcome is not None:
                raise errors.BrokenExecutorError(f"the initializer failed in worker {rank}:\n{outcome}")
            return
        with self._lock:
            future = self._running.pop(number)
            self._feed()
        try:
            good, value, trace = pickle.loads(outcome)
        except Exception as error:
            good, value, trace = False, error, traceback.format_exc()
        if good:
            future.set_result(value)
        else:
            value.__cause__ = _RemoteTraceback(trace)
            future.set_exception(value)

    def _check(self):
        """Whether all workers are alive: each holds a lock as long as it is."""
        code = self._workers.poll()
        if code is not None:
            raise errors.BrokenExecutorError(f"the workers ended (exit code {code})")
        for rank in sorted(self._started):
            life = self._lives[rank]
            if life.acquire(blocking=False):
                life.release()
                raise errors.BrokenExecutorError(
                    f"worker {rank} of {self._size}, or its node, died; `pagemesh status` says how the "
                    "cluster is. Make a new Executor, and submit again what is not done"
                )

    def _end(self):
        for _ in range(self._size):
            self._calls.put(None)
        self._workers.join()

    def _break(self, error):
        if not isinstance(error, errors.BrokenExecutorError):
            error = errors.BrokenExecutorError(f"the executor failed: {error!r}")
        with self._lock:
            self._broken = error
            left = [*self._running.values(), *(future for _, future, _ in self._waiting)]
            self._running.clear()
            self._waiting.clear()
        for future in left:
            if future.running() or future.set_running_or_notify_cancel():
                future.set_exception(error)
        with contextlib.suppress(Exception):
            self._workers.terminate()

    def _forget(self):
        with contextlib.suppress(Exception):
            self._life.release()
        for named in (self._calls, self._results, self._life, *self._lives):
            with contextlib.suppress(Exception):  # its node may be gone
                named.unlink()


class _RemoteTraceback(Exception):
    """What a worker's traceback looks like here."""

    def __init__(self, trace):
        super().__init__(trace)
        self._trace = trace

    def __str__(self):
        return f'\n"""\n{self._trace}"""'


def _serve(rank, calls, results, parent, lives, begin):
    """What a worker does."""
    lives[rank].acquire()
    try:
        initializer, arguments = pickle.loads(begin)
        if initializer is not None:
            initializer(*arguments)
    except BaseException:
        results.put((None, rank, traceback.format_exc()))
        return
    results.put((None, rank, None))
    while (task := _next(calls, parent)) is not None:
        number, call = task
        results.put((number, rank, _outcome(call)))
    # Given back by the end of the process, not before.


def _next(calls, parent):
    """The next task; ``None`` at the end, or when the process that submits them is gone."""
    while True:
        try:
            return calls.get(timeout=4 * _LOOK)
        except queue.Empty:
            if parent.acquire(blocking=False):
                parent.release()
                return None


def _outcome(call):
    try:
        function, arguments, keywords = pickle.loads(call)
        return _pickling.dumps((True, function(*arguments, **keywords), None))
    except BaseException as error:
        trace = traceback.format_exc()
        try:
            data = _pickling.dumps((False, error, trace))
            pickle.loads(data)
            return data
        except Exception:
            plain = errors.Error(f"{type(error).__name__}: {error}")
            return pickle.dumps((False, plain, trace))


def _chunks(items, size):
    while chunk := tuple(itertools.islice(items, size)):
        yield chunk


def _all(function, chunk):
    return [function(*arguments) for arguments in chunk]
