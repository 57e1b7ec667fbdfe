"""One process of `pagemesh-bench boards` in Python: as lab/apps/boards/main.c, over other systems.

    main.py SYSTEM ROLE NAME ADDRESS SIZE RATE SECONDS BROKER
"""

import collections
import importlib
import json
import os
import signal
import sys
import time

import numpy
from systems import MODULES, SYSTEMS, configure_cyclone

# At most so many measurements are printed; an answer is lost after so long; a wait is so long; every so
# many words a number stands, so that a torn state is seen.
PRINTED, LOST, SLICE, MARKED = 2000, 0.2, 0.05, 64
# So long peers may take to find one another.
FINDING = 0.5


class Ended:
    """Whether a signal has ended this process."""

    flag = False


def stamped(words, number):
    words[::MARKED] = number
    words[-1] = number
    words[1] = time.monotonic_ns()
    return words.tobytes()


def is_whole(words):
    return bool((words[::MARKED] == words[0]).all() and words[-1] == words[0])


def printed(values):
    return values[:: len(values) // PRINTED + 1]


def say(**what):
    print(json.dumps(what), flush=True)


def ready():
    print("ready", flush=True)


def told():
    sys.stdin.readline()


def write(board, place):
    words, took, number = numpy.zeros(place.size // 8, "u8"), [], 0
    time.sleep(FINDING)
    ready()
    told()
    start = time.monotonic()
    busy = time.process_time_ns()
    while time.monotonic() - start < place.seconds:
        number += 1
        state = stamped(words, number)
        board.publish(state)
        took.append(time.monotonic_ns() - int(words[1]))
        if place.rate:
            time.sleep(max(0, start + number / place.rate - time.monotonic()))
    seconds = time.monotonic() - start
    busy = time.process_time_ns() - busy
    say(published=number, took=printed(took), worst=max(took), seconds=seconds, cpu=busy)
    told()


def hold(board, place):
    words = numpy.zeros(place.size // 8, "u8")
    time.sleep(FINDING)
    for number in 1, 2, 3:
        board.publish(stamped(words, number))
    ready()
    told()
    say(published=3, took=[], worst=0, seconds=1.0, cpu=0)
    told()


def watch(board, joined):
    last = seen = torn = back = age = first = 0
    ages = []
    ready()
    busy = time.process_time_ns()
    while not Ended.flag:
        state = board.next(SLICE)
        if state is None:
            continue
        now = time.monotonic_ns()
        words = numpy.frombuffer(state, "u8")
        number = int(words[0])
        if not is_whole(words):
            torn += 1
        elif number <= last:
            back += number < last
        else:
            first = first or now
            last, age = number, now - int(words[1])
            ages.append(age)
            seen += 1
    say(
        seen=seen,
        torn=torn,
        back=back,
        last=last,
        ages=printed(ages),
        last_age=age,
        first=first - joined if first else -1,
        cut_off=board.cut_off,
        cpu=time.process_time_ns() - busy,
    )


def ping(to, back, place):
    words, trips, lost, number = numpy.zeros(place.size // 8, "u8"), [], 0, 0
    time.sleep(FINDING)
    ready()
    told()
    limit = time.monotonic() + place.seconds
    while time.monotonic() < limit:
        number += 1
        start = time.monotonic_ns()
        to.publish(stamped(words, number))
        if answered(back, number):
            trips.append(time.monotonic_ns() - start)
        else:
            lost += 1
    say(trips=printed(trips), lost=lost)


def answered(board, number):
    limit = time.monotonic() + LOST
    while time.monotonic() < limit:
        state = board.next(SLICE)
        if state is not None and numpy.frombuffer(state[:8], "u8")[0] >= number:
            return True
    return False


def pong(to, there):
    ready()
    while not Ended.flag:
        state = there.next(SLICE)
        if state is not None:
            to.publish(state)


def end(*_):
    Ended.flag = True


Place = collections.namedtuple("Place", "name address size rate seconds broker")


def main():
    system, role, *rest = sys.argv[1:]
    name, address, size, rate, seconds, broker = rest
    place = Place(name, address, int(size), float(rate), float(seconds), broker)
    signal.signal(signal.SIGTERM, end)
    if system == "cyclonedds":
        configure_cyclone(place)
    for module in MODULES.get(system, []):
        importlib.import_module(module)
    system = SYSTEMS[system]
    if role in ("write", "hold"):
        board = system(name, place, True)
        (write if role == "write" else hold)(board, place)
    elif role in ("watch", "join"):
        joined = time.monotonic_ns()
        watch(system(name, place, False), joined)
    else:
        ways = [f"{name}.there", f"{name}.back"]
        to, back = ways if role == "ping" else reversed(ways)
        to, back = system(to, place, True), system(back, place, False)
        if role == "ping":
            ping(to, back, place)
        else:
            pong(to, back)
    sys.stdout.flush()
    # Threads of libraries may never end.
    os._exit(0)


main()
