"""Ten dashboards on one sensor: a board does not care how many watch, nor how slow they are.

    pagemesh sandbox 4 -- python dashboards.py [SECONDS]

The first process publishes 200 times a second. Dashboards run on the other nodes, each at a pace of
its own; one of them hangs. All show the newest state when they look.
"""

import sys
import threading
import time

import numpy

import pagemesh

READING = numpy.dtype([("number", "u8"), ("celsius", "f4"), ("over", "?")])
DASHBOARDS = 10


def sense(board, seconds):
    number, slowest, start = 0, 0, time.monotonic()
    while (now := time.monotonic()) - start < seconds:
        number += 1
        board.publish((number, 20 + 5 * numpy.sin(number / 100), False))
        slowest = max(slowest, time.monotonic() - now)
        time.sleep(0.005)
    board.publish((number, 0, True))
    print(f"published {number} readings, the slowest in {slowest * 1000:.1f} ms")


def show(name, pause):
    board = pagemesh.Board("sensor", READING, write=False)
    number, looks, over = 0, 0, False
    while not over and board.wait(number, timeout=30):
        state = board.read()
        number, looks, over = state.number, looks + 1, state.value["over"]
        time.sleep(pause)
    print(f"dashboard {name}: {looks} looks, the last at reading {number}")


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    board = pagemesh.Board("sensor", READING)
    pagemesh.barrier()
    if pagemesh.rank() == 0:
        sense(board, seconds)
    else:
        mine = range(pagemesh.rank() - 1, DASHBOARDS, pagemesh.size() - 1)
        pauses = {name: seconds if name == 9 else 0.002 * name for name in mine}
        threads = [threading.Thread(target=show, args=at) for at in pauses.items()]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    pagemesh.barrier()
    if pagemesh.rank() == 0:
        pagemesh.unlink("sensor")


main()
