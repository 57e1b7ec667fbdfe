"""The same by MPI: started twice by mpirun."""

import json
import statistics
import sys
import time

import mpi4py
import numpy

# One-sided calls over TCP want no threads.
mpi4py.rc.thread_level = "single"
from mpi4py import MPI  # noqa: E402

from .sides import ROW, row  # noqa: E402

ALL = MPI.COMM_WORLD


def timed(work, times):
    taken = []
    for _ in range(times):
        ALL.Barrier()
        start = time.monotonic()
        work()
        taken.append(time.monotonic() - start)
    return statistics.median(taken)


def main():
    size, rounds = (int(word) for word in sys.argv[1:])
    array = numpy.ones((size << 20 >> 13, ROW))
    word = numpy.zeros(1, "i8")
    one, old = numpy.ones(1, "i8"), numpy.zeros(1, "i8")
    window = MPI.Win.Create(word, comm=ALL)

    def move(part):
        return ALL.Send(part, 1) if ALL.rank == 0 else ALL.Recv(part, 0)

    def count():
        window.Lock(0)
        window.Fetch_and_op(one, old, 0)
        window.Unlock(0)

    def hold():
        window.Lock(0)
        window.Unlock(0)

    by = "mpi4py (TCP, one namespace)"
    update = timed(lambda: move(array[0]), rounds)
    rows = [
        row(f"first touch of {size} MiB, copied", by, size / timed(lambda: move(array), 5), "MiB/s"),
        row("one row of 8 KiB, until a reader has it", by, update * 1e6, "us"),
        row("barrier of two", by, timed(ALL.Barrier, rounds) * 1e6, "us"),
        row("lock and unlock, last held by the other", by, timed(hold, rounds) * 1e6, "us"),
        row("counter raised by two at once, each", by, timed(count, rounds) * 1e6, "us"),
    ]
    window.Free()
    if ALL.rank == 1:
        print(json.dumps(rows))


main()
