"""What moves state, each in its best documented setting."""

import collections
import json
import os
import select
import socket
import threading
import time

import numpy

from redis_wire import redis_pubsub, redis_tracking


class Queued:
    """Systems that call back: states are taken in order, or only the newest is kept."""

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
        self.client.on_connect = (
            lambda *_: subscribed.set() if writes else self.client.subscribe(name, 0)
        )
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
        # The nodes stand for hosts: nothing may pass beside the network.
        config.insert_json5("transport/shared_memory/enabled", "false")
        self.session = zenoh.open(config)
        if writes:
            self.publisher = self.session.declare_publisher(
                name,
                congestion_control=zenoh.CongestionControl.DROP,
                priority=zenoh.Priority.REAL_TIME,
                express=True,
            )
        else:
            self.watching = self.session.declare_subscriber(
                name, lambda sample: self.add(sample.payload.to_bytes())
            )

    def publish(self, state):
        self.publisher.put(state)


class Cyclone:
    """Reliable, the last one kept, and kept for who comes late."""

    cut_off = 0

    def __init__(self, name, place, writes):
        import dataclasses

        from cyclonedds.core import InstanceState, Policy, Qos, ReadCondition, SampleState
        from cyclonedds.core import ViewState, WaitSet
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
    "cyclonedds": [
        f"cyclonedds.{name}" for name in ("domain", "idl.types", "pub", "sub", "topic", "util")
    ],
}
