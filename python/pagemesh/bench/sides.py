"""The two processes that are compared: one has the data, the other wants them and measures."""

import contextlib
import json
import mmap
import os
import socket
import statistics
import subprocess
import sys
import time
from multiprocessing.connection import Client, Listener
from multiprocessing.shared_memory import SharedMemory

import numpy

import pagemesh

ROW = 1024  # items of 8 bytes
KEY = b"bench"


def row(what, by, value, unit):
    return {"what": what, "by": by, "value": value, "unit": unit}


class Server:
    """Does what the other side says."""

    def __init__(self, host, port, size):
        self.host, self.port = host, port
        self.array = pagemesh.array("bench", (size << 20 >> 13, ROW), "f8")
        self.local = numpy.ones(self.array.shape)
        self.lock = pagemesh.Lock("bench")
        self.barrier = pagemesh.Barrier(2, name="bench")
        self.counter = pagemesh.Semaphore(0, "bench-counter")
        self.redis = None

    def run(self):
        with Listener((self.host, self.port), authkey=KEY) as listener:
            with listener.accept() as self.connection:
                hurry(self.connection)
                while (order := self.connection.recv())[0] != "end":
                    self.connection.send(getattr(self, order[0])(*order[1:]))
        if self.redis:
            self.redis.kill()

    def fill(self, value):
        self.array[:] = value
        self.local[:] = value

    def update(self, number):
        self.local[0] = number
        moment = time.monotonic()
        self.array[0] = number
        return moment

    def hold(self):
        with self.lock:
            pass

    def meet(self, rounds):
        self.connection.send("now")
        for _ in range(rounds):
            self.barrier.wait()

    def meet_natively(self, rounds):
        native = self.barrier._segment.barrier(1 << 40, 2)
        self.connection.send("now")
        for _ in range(rounds):
            native.wait()

    def count(self, rounds):
        self.connection.send("now")
        for _ in range(rounds):
            self.counter._memory.add(128, 1)

    def pickle_array(self):
        self.connection.send("now")
        moment = time.monotonic()
        self.connection.send(self.local)
        return moment

    def pickle_row(self):
        self.connection.send("now")
        moment = time.monotonic()
        self.connection.send(self.local[0])
        return moment

    def stream(self):
        """Raw bytes over TCP."""
        with socket.create_server((self.host, self.port + 1)) as door:
            self.connection.send("now")
            self.end, _ = door.accept()

    def stream_once(self):
        self.connection.send("now")
        self.end.sendall(self.local)

    def start_redis(self):
        command = ["redis-server", "--bind", self.host, "--port", str(self.port + 2), "--save", ""]
        command += ["--protected-mode", "no"]
        self.redis = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.client = redis_at(self.host, self.port + 2)

    def redis_set(self):
        moment = time.monotonic()
        self.client.set("array", self.local.tobytes())
        return moment

    def redis_publish(self):
        moment = time.monotonic()
        self.client.publish("row", self.local[0].tobytes())
        return moment

    def redis_count(self, rounds):
        self.connection.send("now")
        for _ in range(rounds):
            self.client.incr("counter")


def hurry(connection):
    """Nobody shall wait for more bytes to fill a packet."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def redis_at(host, port):
    import redis

    client = redis.Redis(host, port)
    while True:
        with contextlib.suppress(redis.ConnectionError):
            client.ping()
            return client
        time.sleep(0.02)


class Measurer:
    """Asks the other side for things, and looks at the clock, which both share."""

    def __init__(self, host, port, rounds, sweeps, only, has_redis):
        self.host, self.port, self.rounds, self.sweeps = host, port, rounds, sweeps
        self.only, self.has_redis = only, has_redis
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                self.connection = Client((host, port), authkey=KEY)
                hurry(self.connection)
                break
            time.sleep(0.05)
        self.array = pagemesh.attach("bench")
        self.local = numpy.ones(self.array.shape)
        self.mib = self.array.nbytes / (1 << 20)

    def order(self, *words):
        self.connection.send(words)
        return self.connection.recv()

    def timed(self, work, times=5):
        taken = []
        for _ in range(times):
            start = time.monotonic()
            work()
            taken.append(time.monotonic() - start)
        return statistics.median(taken)

    def rows(self):
        if self.has_redis:
            self.order("start_redis")
            self.redis = redis_at(self.host, self.port + 2)
        parts = {
            "touch": self.first_touch,
            "read": self.repeated,
            "row": self.updates,
            "barrier": self.barriers,
            "lock": self.locks,
            "counter": self.counters,
        }
        for measure in self.only:
            yield from parts[measure]()
        self.connection.send(("end",))

    def first_touch(self):
        """All in turn, so that all have the same of what else the machine does."""
        ways = {
            "pagemesh": self.touch,
            "raw TCP": self.receive,
            "pickle over a socket": self.receive_pickle,
        }
        if self.has_redis:
            ways["Redis GET"] = self.get
        self.order("stream")
        self.end = socket.create_connection((self.host, self.port + 1))
        self.connection.recv()
        taken = {by: [] for by in ways}
        for number in range(self.sweeps + 1):
            self.order("fill", number + 1.0)
            if self.has_redis:
                self.order("redis_set")
            for by, way in ways.items():
                taken[by].append(way())
            assert self.local[-1, -1] == number + 1.0
        what = f"first touch of {self.mib:.0f} MiB, copied"
        for by, times in taken.items():
            # The first sweep is to warm up.
            yield row(what, by, self.mib / statistics.median(times[1:]), "MiB/s")

    def touch(self):
        start = time.monotonic()
        numpy.copyto(self.local, numpy.asarray(self.array))
        return time.monotonic() - start

    def receive(self):
        self.order("stream_once")
        buffer, got, start = memoryview(self.local).cast("B"), 0, time.monotonic()
        while got < len(buffer):
            got += self.end.recv_into(buffer[got:])
        taken = time.monotonic() - start
        self.connection.recv()
        return taken

    def get(self):
        start = time.monotonic()
        numpy.frombuffer(self.redis.get("array"))
        return time.monotonic() - start

    def receive_pickle(self, what="pickle_array"):
        self.order(what)
        self.connection.recv()
        seen = time.monotonic()
        return seen - self.connection.recv()

    def repeated(self):
        what, unit = f"repeated read of {self.mib:.0f} MiB", "MiB/s"
        plain = numpy.asarray(self.array)
        block = SharedMemory(create=True, size=self.array.nbytes)
        shared = numpy.ndarray(self.array.shape, "f8", buffer=block.buf)
        shared[:] = 1
        # In small pages, as shared memory is, and in whatever the kernel gives to numpy.
        small = mmap.mmap(-1, self.array.nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        small.madvise(mmap.MADV_NOHUGEPAGE)
        local = numpy.frombuffer(small, "f8").reshape(self.array.shape)
        local[:] = 1
        read = {
            "pagemesh": plain,
            "multiprocessing.shared_memory": shared,
            "a local array, pages of 4 KiB": local,
            "a local array as numpy makes it": self.local,
        }
        plain.sum()
        taken = {by: [] for by in read}
        for _ in range(25):
            for by, array in read.items():
                taken[by].append(self.timed(array.sum, 1))
        for by, times in taken.items():
            yield row(what, by, self.mib / statistics.median(times), unit)
        del shared
        read.clear()
        block.close()
        block.unlink()

    def updates(self):
        what, unit = "one row of 8 KiB, until a reader has it", "us"
        taken = []
        for number in range(self.rounds):
            first = self.array[0, -1]
            self.connection.send(("update", 1000.0 + number))
            while self.array[0, -1] == first:
                time.sleep(1e-5)
            self.array[0].copy()
            seen = time.monotonic()
            taken.append(seen - self.connection.recv())
        yield row(what, "pagemesh", statistics.median(taken) * 1e6, unit)
        whole = statistics.median(self.receive_pickle() for _ in range(self.sweeps))
        yield row(what, "pickle over a socket, the array", whole * 1e6, unit)
        rows = statistics.median(self.receive_pickle("pickle_row") for _ in range(self.rounds))
        yield row(what, "pickle over a socket, the row", rows * 1e6, unit)
        if not self.has_redis:
            return
        taken = []
        for _ in range(self.sweeps):
            moment = self.order("redis_set")
            numpy.frombuffer(self.redis.get("array"))
            taken.append(time.monotonic() - moment)
        yield row(what, "Redis, the array", statistics.median(taken) * 1e6, unit)
        taken = []
        channel = self.redis.pubsub(ignore_subscribe_messages=True)
        channel.subscribe("row")
        channel.get_message(timeout=1)
        for _ in range(self.rounds):
            self.connection.send(("redis_publish",))
            while channel.get_message(timeout=1) is None:
                pass
            seen = time.monotonic()
            taken.append(seen - self.connection.recv())
        yield row(what, "Redis, the row published", statistics.median(taken) * 1e6, unit)

    def barriers(self):
        barrier = pagemesh.Barrier(2, name="bench")
        native = barrier._segment.barrier(1 << 40, 2)
        each = 1e6 / self.rounds
        for by, order, wait in (
            ("pagemesh.barrier", "meet_natively", native.wait),
            ("pagemesh.Barrier", "meet", barrier.wait),
        ):
            self.order(order, self.rounds)
            taken = self.timed(lambda wait=wait: [wait() for _ in range(self.rounds)], 1)
            self.connection.recv()
            yield row("barrier of two", by, taken * each, "us")

    def locks(self):
        lock, taken = pagemesh.Lock("bench"), []

        def hold():
            with lock:
                pass

        for _ in range(self.rounds):
            self.order("hold")
            taken.append(self.timed(hold, 1))
        what = "lock and unlock, last held by the other"
        yield row(what, "pagemesh", statistics.median(taken) * 1e6, "us")
        if self.has_redis:

            def hold_there():
                self.redis.set("lock", 1, nx=True, px=1000)
                self.redis.delete("lock")

            yield row(what, "Redis", self.timed(hold_there, self.rounds) * 1e6, "us")

    def counters(self):
        what, unit = "counter raised by two at once, each", "us"
        counter = pagemesh.Semaphore(0, "bench-counter")._memory
        for by, order, add in (
            ("pagemesh", "count", lambda: counter.add(128, 1)),
            ("Redis", "redis_count", lambda: self.redis.incr("counter")),
        ):
            if by == "Redis" and not self.has_redis:
                continue
            many = self.rounds * 10
            self.order(order, many)
            taken = self.timed(lambda add=add, many=many: [add() for _ in range(many)], 1)
            self.connection.recv()
            yield row(what, by, taken / many * 1e6, unit)


def main():
    side, processor, about = sys.argv[1:]
    if processor:
        os.sched_setaffinity(0, {int(processor)})
    about = json.loads(about)
    host, port, rounds = about["host"], about["port"], about["rounds"]
    if side == "serve":
        Server(host, port, about["size"]).run()
    else:
        measurer = Measurer(host, port, rounds, about["sweeps"], about["only"], about["redis"])
        print(json.dumps(list(measurer.rows())))


if __name__ == "__main__":
    main()
