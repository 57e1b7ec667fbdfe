"""One process of `pagemesh-bench boards` in Python: as lab/apps/boards/main.c, over one of several systems.

    peers.py SYSTEM ROLE NAME ADDRESS SIZE RATE SECONDS BROKER
"""

import collections
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time

import numpy

PRINTED, LOST, SLICE, MARKED = 2000, 0.2, 0.05, 64
# So long peers may take to find one another.
FINDING = 0.5


class Ended:
    flag = False


# Redis: its protocol by hand, so that no client's threads and locks are measured.


class Redis:
    def __init__(self, address):
        self.address = address
        self.connect()

    def connect(self):
        host, port = self.address.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb", 1 << 17)
        self.ask(b"HELLO", b"3")

    def send(self, *words):
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            parts += [b"$%d\r\n" % len(word), word, b"\r\n"]
        self.socket.sendall(b"".join(parts))

    def ask(self, *words):
        self.send(*words)
        while True:
            kind, value = self.read()
            if kind != b">":
                return value

    def read(self):
        line = self.stream.readline()
        if not line:
            raise ConnectionError("Redis has cut us off")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind in (b"$", b"="):
            if rest == b"-1":
                return kind, None
            value = self.stream.read(int(rest) + 2)
            return kind, value[:-2]
        if kind == b"_":
            return kind, None
        if kind in (b"*", b">", b"~"):
            return kind, [self.read()[1] for _ in range(int(rest))]
        if kind == b"%":
            return kind, [self.read()[1] for _ in range(2 * int(rest))]
        return kind, rest


class Connection(Redis):
    """A connection that is waited for: bytes are gathered here, since a stream forgets at timeouts."""

    def connect(self):
        super().connect()
        self.stream = Gathered(self.socket)
        self.subscribe()

    def subscribe(self):
        raise NotImplementedError


class Gathered:
    """What a socket said: lines and blocks. While it waits for the first byte it may give up."""

    def __init__(self, connected):
        self.socket, self.bytes, self.at = connected, bytearray(), 0

    def more(self):
        if self.at > 1 << 20 or self.at == len(self.bytes):
            del self.bytes[: self.at]
            self.at = 0
        got = self.socket.recv(1 << 17)
        if not got:
            raise ConnectionError("Redis has cut us off")
        self.bytes += got

    def readline(self):
        while (end := self.bytes.find(b"\n", self.at)) < 0:
            self.more()
        line = bytes(self.bytes[self.at : end + 1])
        self.at = end + 1
        return line

    def read(self, count):
        while len(self.bytes) - self.at < count:
            self.more()
        block = bytes(self.bytes[self.at : self.at + count])
        self.at += count
        return block

    def wait(self, timeout):
        if self.at < len(self.bytes):
            return True
        self.socket.settimeout(timeout)
        try:
            self.more()
            return True
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(5)


class Watching(Connection):
    cut_off = 0

    def next(self, timeout):
        try:
            if not self.stream.wait(timeout):
                return None
            return self.take()
        except ConnectionError:
            self.cut_off += 1
            self.connect()
            return None


class RedisPublished(Watching):
    """Pub/sub."""

    def __init__(self, name, broker):
        self.name = name
        super().__init__(broker)

    def subscribe(self):
        self.send(b"SUBSCRIBE", self.name)

    def take(self):
        _, value = self.read()
        return value[2] if value[0] == b"message" else None


class RedisTracked(Watching):
    """Client tracking: told that the key changed, it gets it."""

    def __init__(self, name, broker):
        self.name, self.dirty = name, True
        super().__init__(broker)

    def subscribe(self):
        self.ask(b"CLIENT", b"TRACKING", b"ON")
        self.dirty = True

    def next(self, timeout):
        if not self.dirty:
            return super().next(timeout)
        try:
            return self.fetch()
        except ConnectionError:
            self.cut_off += 1
            self.connect()
            return None

    def take(self):
        self.read()
        return self.fetch()

    def fetch(self):
        self.dirty = False
        self.send(b"GET", self.name)
        while True:
            kind, value = self.read()
            if kind != b">":
                return value
            # Changed again before the answer: the next GET will tell.
            self.dirty = True


class RedisWriter(Redis):
    def __init__(self, name, broker, command):
        self.name, self.command = name, command
        super().__init__(broker)

    def publish(self, state):
        self.ask(self.command, self.name, state)


def redis_pubsub(name, place, writes):
    if writes:
        return RedisWriter(name.encode(), place.broker, b"PUBLISH")
    return RedisPublished(name.encode(), place.broker)


def redis_tracking(name, place, writes):
    if writes:
        return RedisWriter(name.encode(), place.broker, b"SET")
    return RedisTracked(name.encode(), place.broker)


class Queued:
    """Systems that call back: each state that comes is waited for in order, or only the newest is kept."""

    cut_off = 0

    def __init__(self, newest=False):
        self.states = collections.deque(maxlen=1 if newest else None)
        self.came = threading.Semaphore(0)

    def add(self, state):
        self.states.append(state)
        self.came.release()

    def next(self, timeout):
        if not self.came.acquire(timeout=timeout):
            return None
        try:
            return self.states.popleft()
        except IndexError:
            return None  # only the newest was kept


class Mqtt(Queued):
    """Quality of service 0, the last state retained, TCP_NODELAY."""

    def __init__(self, name, place, writes):
        from paho.mqtt import client

        super().__init__()
        self.name = name
        self.client = client.Client(client.CallbackAPIVersion.VERSION2)
        self.client.max_queued_messages_set(1)
        self.client.on_socket_open = lambda _c, _u, opened: opened.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        subscribed = threading.Event()
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.on_connect = lambda *_: subscribed.set() if writes else self.client.subscribe(name, 0)
        self.client.on_message = lambda _c, _u, message: self.add(message.payload)
        host, port = place.broker.split(":")
        self.client.connect(host, int(port))
        self.client.loop_start()
        if not subscribed.wait(10):
            raise TimeoutError("mosquitto did not answer")

    def publish(self, state):
        # What is not on its way yet would only grow old.
        self.client.publish(self.name, state, 0, retain=True).wait_for_publish(5)


class Lcm:
    cut_off = 0

    def __init__(self, name, _place, writes):
        import lcm

        self.name, self.state = name, None
        self.lcm = lcm.LCM(f"udpm://239.255.76.67:7667?ttl=1&recv_buf_size={8 << 20}")
        if not writes:
            self.lcm.subscribe(name, self.keep).set_queue_capacity(1)

    def keep(self, _channel, state):
        self.state = state

    def publish(self, state):
        self.lcm.publish(self.name, state)

    def next(self, timeout):
        self.state = None
        # Its own wait with a timeout fails when a signal comes.
        if select.select([self.lcm], [], [], timeout)[0]:
            self.lcm.handle()
        return self.state


class Zenoh(Queued):
    """Peer to peer, no batching; congested, it drops."""

    def __init__(self, name, place, writes):
        import zenoh

        super().__init__()
        config = zenoh.Config()
        config.insert_json5("mode", '"peer"')
        config.insert_json5("listen/endpoints", json.dumps([f"tcp/{place.address}:0"]))
        config.insert_json5("scouting/multicast/interface", '"mesh0"')
        self.session = zenoh.open(config)
        if writes:
            self.publisher = self.session.declare_publisher(
                name,
                congestion_control=zenoh.CongestionControl.DROP,
                priority=zenoh.Priority.REAL_TIME,
                express=True,
            )
        else:
            self.watching = self.session.declare_subscriber(name, lambda sample: self.add(sample.payload.to_bytes()))

    def publish(self, state):
        self.publisher.put(state)


class Cyclone:
    """Reliable, the last one kept, and kept for who comes late."""

    cut_off = 0

    def __init__(self, name, place, writes):
        import dataclasses

        from cyclonedds.core import InstanceState, Policy, Qos, ReadCondition, SampleState, ViewState, WaitSet
        from cyclonedds.domain import DomainParticipant
        from cyclonedds.idl import IdlStruct
        from cyclonedds.idl.types import array, uint8
        from cyclonedds.pub import DataWriter
        from cyclonedds.sub import DataReader
        from cyclonedds.topic import Topic
        from cyclonedds.util import duration

        @dataclasses.dataclass
        class State(IdlStruct, typename="State"):
            data: array[uint8, place.size]

        self.kind, self.duration = State, duration
        qos = Qos(
            Policy.Reliability.Reliable(duration(milliseconds=100)),
            Policy.History.KeepLast(1),
            Policy.Durability.TransientLocal,
        )
        self.participant = DomainParticipant(0)
        topic = Topic(self.participant, name.replace(".", "_"), State, qos=qos)
        if writes:
            self.writer = DataWriter(self.participant, topic, qos=qos)
        else:
            self.reader = DataReader(self.participant, topic, qos=qos)
            self.waiting = WaitSet(self.participant)
            state = ViewState.Any | InstanceState.Any | SampleState.NotRead
            self.condition = ReadCondition(self.reader, state)
            self.waiting.attach(self.condition)

    def publish(self, state):
        self.writer.write(self.kind(bytes(state)))

    def next(self, timeout):
        self.waiting.wait(self.duration(seconds=timeout))
        for sample in self.reader.take(N=1):
            if isinstance(sample, self.kind):
                return bytes(sample.data)
        return None


class Board:
    """A board of PageMesh: the newest whole state wins."""

    cut_off = 0

    def __init__(self, name, place, _writes):
        import pagemesh

        self.board = pagemesh.Board(name, place.size)
        self.seen = 0

    def publish(self, state):
        self.board.publish(state)

    def next(self, timeout):
        if self.board.wait(self.seen, timeout) is None:
            return None
        state = self.board.read()
        if state is None or state.number <= self.seen:
            return None
        self.seen = state.number
        return state.value


class Sequential:
    """An array of policy sequential, whose number is odd while it is written; watched by polling."""

    cut_off = 0

    def __init__(self, name, place, _writes):
        import pagemesh

        self.words = pagemesh.array(name, (8 + place.size // 8,), "u8")
        self.seen = 0

    def publish(self, state):
        self.words[0] += 1
        self.words[8:] = numpy.frombuffer(state, "u8")
        self.words[0] += 1

    def next(self, timeout):
        limit = time.monotonic() + timeout
        while time.monotonic() < limit:
            number = int(self.words[0])
            if number != self.seen and number % 2 == 0:
                state = self.words[8:].tobytes()
                if int(self.words[0]) == number:
                    self.seen = number
                    return state
            time.sleep(0.001)
        return None


SYSTEMS = {
    "redis_pubsub": redis_pubsub,
    "redis_tracking": redis_tracking,
    "mqtt": Mqtt,
    "lcm": Lcm,
    "zenoh": Zenoh,
    "cyclonedds": Cyclone,
    "board_py": Board,
    "sequential_py": Sequential,
}


def configure_cyclone(place):
    os.environ["CYCLONEDDS_URI"] = (
        "<CycloneDDS><Domain><General><Interfaces>"
        f'<NetworkInterface address="{place.address}" multicast="true"/></Interfaces>'
        "<AllowMulticast>true</AllowMulticast><MaxMessageSize>65500B</MaxMessageSize>"
        "</General><Discovery><ParticipantIndex>none</ParticipantIndex></Discovery>"
        "</Domain></CycloneDDS>"
    )


# What is imported before the time of joining begins.
MODULES = {
    "mqtt": ["paho.mqtt.client"],
    "lcm": ["lcm"],
    "zenoh": ["zenoh"],
    "board_py": ["pagemesh"],
    "sequential_py": ["pagemesh"],
    "cyclonedds": [f"cyclonedds.{name}" for name in ("domain", "idl.types", "pub", "sub", "topic", "util")],
}


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
