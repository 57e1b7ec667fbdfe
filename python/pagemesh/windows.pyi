from enum import IntFlag

from ._pagemesh import PageLock

__all__ = ["View", "Windows", "view_pointer"]

class View(IntFlag):
    CONSISTENT = 0
    SHORT = 1
    NEXT = 2
    OLD = 4

def view_pointer(address: int, stride: int, view: int) -> int: ...

class Windows:
    name: str
    def __init__(
        self,
        name: str,
        size: int | None = None,
        *,
        short: int = 32,
        mode: int = 0o600,
        write: bool = True,
    ) -> None: ...
    @property
    def size(self) -> int: ...
    @property
    def stride(self) -> int: ...
    def address(self, view: int = ..., offset: int = 0) -> int: ...
    def __getitem__(self, view: int) -> memoryview: ...
    def purge(self, view: int = ..., start: int = 0, end: int | None = None) -> None: ...
    def page_out(self, view: int = ..., start: int = 0, end: int | None = None) -> None: ...
    def lock(self, view: int = ..., start: int = 0, end: int | None = None) -> PageLock: ...
    def publish(self, start: int = 0, end: int | None = None, *, short: bool = False) -> None: ...
