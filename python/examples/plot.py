"""A live plot in the terminal of a board on another host: one node publishes, the others draw.

    pagemesh sandbox 2 -- python plot.py [SECONDS]

Who draws sees the newest state, whole, and sleeps in between; who publishes waits for nobody.
"""

import math
import sys
import time

import numpy

import pagemesh

STATE = numpy.dtype([("time", "f8"), ("position", "f8", 2)])
WIDTH = 61


def publish(board, seconds):
    start = time.monotonic()
    while (now := time.monotonic() - start) < seconds:
        board.publish(numpy.array((now, (math.sin(3 * now), math.cos(2 * now))), STATE))
        time.sleep(0.01)
    board.publish(numpy.array((-1, (0, 0)), STATE))


def line(value):
    """A row of the plot: a mark where the value is, between -1 and 1."""
    place = round((value + 1) / 2 * (WIDTH - 1))
    return "".join("*" if at == place else "|" if at == WIDTH // 2 else " " for at in range(WIDTH))


def draw(board):
    number = missed = shown = 0
    while board.wait(number, timeout=10):
        state = board.read()
        if state.value["time"] < 0:
            break
        number, missed, shown = state.number, missed + state.missed, shown + 1
        print(f"{state.age * 1000:6.2f} ms {line(state.value['position'][0])}", flush=True)
        time.sleep(0.05)  # nobody looks faster
    print(f"drew {shown} states, skipped {missed}")


def main():
    board = pagemesh.Board("plot", STATE)
    pagemesh.barrier()
    if pagemesh.rank() == 0:
        publish(board, float(sys.argv[1]) if len(sys.argv) > 1 else 3.0)
    else:
        draw(board)
    pagemesh.barrier()
    if pagemesh.rank() == 0:
        pagemesh.unlink("plot")


main()
