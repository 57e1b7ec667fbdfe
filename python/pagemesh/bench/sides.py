"""The two processes that are compared: one has the data, the other wants them and measures."""

import contextlib
import importlib.util
import json
import os
import shutil
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

    def stream(self, times):
        """Raw bytes over TCP."""
        with socket.create_server((self.host, self.port + 1)) as door:
            self.connection.send("now")
            end, _ = door.accept()
            with end:
                for _ in range(times):
                    end.recv(1)
                    end.sendall(self.local)

    def start_redis(self):
        program = shutil.which("redis-server")
        if program is None or importlib.util.find_spec("redis") is None:
            return False
        command = [program, "--bind", self.host, "--port", str(self.port + 2), "--save", ""]
        command += ["--protected-mode", "no"]
        self.redis = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.client = redis_at(self.host, self.port + 2)
        return True

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

    def __init__(self, host, port, size, rounds):
        self.host, self.port, self.rounds = host, port, rounds
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
        yield from self.first_touch()
        yield from self.repeated()
        yield from self.updates()
        yield from self.meetings()
        yield from self.counters()
        self.connection.send(("end",))

    def first_touch(self):
        what, unit = f"first touch of {self.mib:.0f} MiB, copied", "MiB/s"

        def touch():
            start = time.monotonic()
            numpy.copyto(self.local, self.array)
            return time.monotonic() - start

        taken = []
        for number in range(5):
            self.order("fill", number + 1.0)
            taken.append(touch())
        yield row(what, "pagemesh", self.mib / statistics.median(taken), unit)
        self.connection.send(("stream", 5))
        self.connection.recv()
        with socket.create_connection((self.host, self.port + 1)) as end:
            buffer = memoryview(self.local).cast("B")

            def receive():
                end.send(b"x")
                got = 0
                while got < len(buffer):
                    got += end.recv_into(buffer[got:])

            yield row(what, "raw TCP", self.mib / self.timed(receive), unit)
        self.connection.recv()
        pickled = self.timed(self.receive_pickle)
        yield row(what, "pickle over a socket", self.mib / pickled, unit)
        self.has_redis = self.order("start_redis")
        if self.has_redis:
            self.redis = redis_at(self.host, self.port + 2)
            self.order("redis_set")
            got = self.timed(lambda: numpy.frombuffer(self.redis.get("array")))
            yield row(what, "Redis GET", self.mib / got, unit)

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
        read = {
            "pagemesh": plain,
            "multiprocessing.shared_memory": shared,
            "a local array": self.local,
        }
        taken = {by: [] for by in read}
        for _ in range(9):
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
                pass
            self.array[0].copy()
            seen = time.monotonic()
            taken.append(seen - self.connection.recv())
        yield row(what, "pagemesh", statistics.median(taken) * 1e6, unit)
        whole = statistics.median(self.receive_pickle() for _ in range(5))
        yield row(what, "pickle over a socket, the array", whole * 1e6, unit)
        rows = statistics.median(self.receive_pickle("pickle_row") for _ in range(self.rounds))
        yield row(what, "pickle over a socket, the row", rows * 1e6, unit)
        if not self.has_redis:
            return
        taken = []
        for _ in range(5):
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

    def meetings(self):
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
    side, host, port, size, rounds = sys.argv[1:]
    if side == "serve":
        Server(host, int(port), int(size)).run()
    else:
        print(json.dumps(list(Measurer(host, int(port), int(size), int(rounds)).rows())))


if __name__ == "__main__":
    main()
