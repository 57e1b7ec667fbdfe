"""A pipe of two pages: each process stores to one, and reads the other as it was sent last.

    pagemesh sandbox 2 -- python pipe.py [ROUNDS]

One process asks, the other one answers; a message waits until it is read. When the first one closes
its end, the second one is told.
"""

import sys
import time

import numpy

import pagemesh


def ask(pipe, rounds):
    start = time.monotonic()
    for number in range(rounds):
        pipe.send(numpy.arange(number % 100))
        total = int.from_bytes(pipe.receive(timeout=10), "little")
        assert total == sum(range(number % 100))
    took = (time.monotonic() - start) / rounds
    print(f"{rounds} questions, {took * 1e6:.0f} us for each answer")


def answer(pipe):
    while True:
        try:
            numbers = numpy.frombuffer(pipe.receive(timeout=10), numpy.int64)
        except pagemesh.errors.PipeClosedError:
            break
        pipe.send(int(numbers.sum()).to_bytes(8, "little"))


def main():
    with pagemesh.Pipe("questions", size=1000) as pipe:
        if pagemesh.rank() == 0:
            ask(pipe, int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
        else:
            answer(pipe)
    pagemesh.barrier()
    if pagemesh.rank() == 0:
        pagemesh.unlink("questions")


main()
