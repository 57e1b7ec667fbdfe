from dataclasses import dataclass
from typing import Any

__all__ = ["Board", "State"]

@dataclass(frozen=True)
class State:
    value: Any
    number: int
    age: float
    missed: int
    writer: int

class Board:
    name: str
    def __init__(
        self,
        name: str,
        of: Any = None,
        *,
        shape: int | tuple[int, ...] = (),
        mode: int = 0o600,
        history: int = 1,
        replicas: int = 0,
        write: bool = True,
    ) -> None: ...
    @property
    def size(self) -> int: ...
    def publish(self, value: Any) -> int: ...
    def read(self) -> State | None: ...
    def history(self) -> list[State]: ...
    def writer_is_gone(self) -> bool: ...
    def wait(self, newer_than: int = 0, timeout: float | None = None) -> int | None: ...
