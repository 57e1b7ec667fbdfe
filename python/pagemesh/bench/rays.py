"""The same by Ray: the driver's side, on the second node. Objects are made by an actor on the first."""

import json
import logging
import statistics
import sys
import time

import numpy
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .sides import ROW, row


class Maker:
    """Has the data."""

    def __init__(self, items):
        self.array = numpy.ones((items // ROW, ROW))

    def publish(self, number):
        """A new object with the whole array: objects cannot be changed."""
        self.array[0] = number
        moment = time.monotonic()
        return ray.put(self.array), moment

    def publish_row(self, number):
        moment = time.monotonic()
        return ray.put(numpy.full(ROW, number)), moment


def main():
    first, second, port, size, rounds = sys.argv[1:]
    size, rounds = int(size), int(rounds)
    connect(f"{first}:{port}", second)
    there = next(node["NodeID"] for node in ray.nodes() if node["NodeManagerAddress"] == first)
    place = NodeAffinitySchedulingStrategy(there, soft=False)
    maker = ray.remote(Maker).options(scheduling_strategy=place).remote(size << 17)
    touched, updated, small = [], [], []
    for number in range(5):
        made, moment = ray.get(maker.publish.remote(number))
        start = time.monotonic()
        found = ray.get(made)
        numpy.copyto(numpy.empty_like(found), found)
        touched.append(time.monotonic() - start)
        updated.append(time.monotonic() - moment)
    for number in range(rounds):
        made, moment = ray.get(maker.publish_row.remote(number))
        ray.get(made)
        small.append(time.monotonic() - moment)
    first_touch, update = f"first touch of {size} MiB, copied", "one row of 8 KiB, until a reader has it"
    rows = [
        row(first_touch, "Ray", size / statistics.median(touched), "MiB/s"),
        row(update, "Ray, the array", statistics.median(updated) * 1e6, "us"),
        row(update, "Ray, the row", statistics.median(small) * 1e6, "us"),
    ]
    print(json.dumps(rows))


def connect(address, own):
    """Both nodes take a while to come up."""
    end = time.monotonic() + 60
    while True:
        try:
            ray.init(address, _node_ip_address=own, log_to_driver=False, logging_level=logging.ERROR)
            while sum(node["Alive"] for node in ray.nodes()) < 2 and time.monotonic() < end:
                time.sleep(0.2)
            return
        except ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


if __name__ == "__main__":
    main()
