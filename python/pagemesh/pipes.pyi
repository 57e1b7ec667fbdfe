from dataclasses import dataclass
from typing import Literal, Self

from typing_extensions import Buffer

__all__ = ["Group", "Message", "Pipe"]

class _Closes:
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

class Pipe(_Closes):
    name: str
    def __init__(
        self,
        name: str,
        size: int = 4032,
        *,
        mode: int = 0o600,
        end: Literal["free", "first", "second"] = "free",
        create: bool = True,
    ) -> None: ...
    @property
    def size(self) -> int: ...
    @property
    def peer(self) -> Literal["absent", "open", "closed", "dead"]: ...
    def send(self, message: Buffer, timeout: float | None = None) -> None: ...
    def receive(self, timeout: float | None = None) -> bytes: ...
    def close(self) -> None: ...

@dataclass(frozen=True)
class Message:
    kind: int
    sender: int
    value: bytes

class Group(_Closes):
    name: str
    number: int
    count: int
    def __init__(
        self,
        name: str,
        number: int | None = None,
        count: int | None = None,
        *,
        size: int = 4032,
        mode: int = 0o600,
    ) -> None: ...
    def csend(self, kind: int, message: Buffer, to: int, timeout: float | None = None) -> None: ...
    def crecv(
        self, kind: int | None = None, sender: int | None = None, timeout: float | None = None
    ) -> Message: ...
    def close(self) -> None: ...
    def unlink(self) -> None: ...
