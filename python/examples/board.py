"""A live board: one writer, 100 times a second; readers on other nodes, and how old what they see is.

    pagemesh sandbox 3 -- python board.py [SECONDS]

Ages compare the clocks of two hosts: set them by NTP, or believe them only within one machine.
"""

import sys
import time

import numpy

import pagemesh

STATE = numpy.dtype([("number", "u8"), ("written", "f8"), ("position", "f8", 3), ("speed", "f8")])


def write(board, seconds):
    start = time.monotonic()
    number = 0
    while (now := time.monotonic() - start) < seconds:
        number += 1
        board["position"] = numpy.sin(now), numpy.cos(now), now
        board["speed"] = 1.5
        board["written"] = time.time()
        board["number"] = number  # last, so that readers find the rest complete
        time.sleep(max(0, start + number / 100 - time.monotonic()))
    board["number"] = 0
    print(f"wrote {number} states, {number / seconds:.0f} a second")


def read(board):
    ages, last = [], 0
    while True:
        number = int(board["number"])
        if number == 0 and ages:
            break
        if number > last:
            ages.append(time.time() - float(board["written"]))
            last = number
        time.sleep(0.002)
    middle, most = numpy.median(ages) * 1000, max(ages) * 1000
    print(f"saw {len(ages)} of {last} states; age: median {middle:.2f} ms, most {most:.1f} ms")


def main():
    board = pagemesh.array("board", (), STATE)
    pagemesh.barrier()
    if pagemesh.rank() == 0:
        write(board, float(sys.argv[1]) if len(sys.argv) > 1 else 3.0)
    else:
        read(board)
    pagemesh.barrier()
    if pagemesh.rank() == 0:
        board.unlink()


main()
