"""Redis, its protocol by hand, so that no client's threads and locks are measured."""

import socket


class Redis:
    """Requests and answers on one connection."""

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


class Watching(Redis):
    """A connection that is waited for; made again when Redis cuts it off."""

    cut_off = 0

    def connect(self):
        super().connect()
        # A stream forgets at timeouts what it had.
        self.stream = Gathered(self.socket)
        self.subscribe()

    def subscribe(self):
        raise NotImplementedError

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
    """Publishes by PUBLISH, or by SET."""

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
